//! One connection, clear or TLS, over TCP, a Unix socket or two pipes.
//!
//! Over TLS **`flush` sends** small writes; a full batch of 256 KiB goes at once. Clear or sealed by the kernel, every write
//! does. The directions share no lock.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use haul_sys::poll;
use haul_sys::retransmission;
use haul_sys::socket;
use haul_sys::tcp_info::TcpInfo;
use zeroize::Zeroize as _;

use crate::cipher::Cipher;
use crate::door::Caller;
use crate::kernel_opener::KernelOpener;
use crate::kernel_sealer::KernelSealer;
use crate::limits;
use crate::mptcp::{Subflow, WayTotals};
use crate::policy::{self, Applied, Dscp, Found, OverLimit, Policy, Wanted};
use crate::record::{Opener, Sealer, TAG_KEY_BYTES};
use crate::transport::{Link, Pipes, ShutdownHandle, Transport};

/// One connection. Write errors are final.
pub struct Stream {
    read: ReadHalf,
    write: WriteHalf,
    cipher: Option<Cipher>,
    /// The keys, kept when the stream becomes clear.
    tag_keys: Option<TagKeys>,
}

/// Keys that authenticate bytes after TLS. Only this handshake's ends have them; they are cleared at the end.
#[derive(Clone, PartialEq, Eq)]
pub struct TagKeys {
    /// For bytes that this end sends.
    pub send: [u8; TAG_KEY_BYTES],
    /// For bytes that this end receives.
    pub receive: [u8; TAG_KEY_BYTES],
}

impl Drop for TagKeys {
    fn drop(&mut self) {
        self.send.zeroize();
        self.receive.zeroize();
    }
}

/// The next thing on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// More.
    Data,
    /// The proper end of the stream.
    End,
}

/// The reading half of a [`Stream`].
pub struct ReadHalf {
    link: Arc<Link>,
    opening: Opening,
    /// Clear bytes read during TLS, delivered first.
    early: VecDeque<u8>,
}

/// The writing half of a [`Stream`]. Over TLS `flush` sends.
pub struct WriteHalf {
    link: Arc<Link>,
    sealing: Sealing,
}

enum Opening {
    None,
    Here(Opener),
    Kernel(KernelOpener),
}

enum Sealing {
    None,
    Here(Sealer),
    Kernel(KernelSealer),
}

/// Samples and tunes a connection from another thread.
#[derive(Clone)]
pub struct Probe(Arc<Link>);

impl Stream {
    /// Two connected clear streams inside this machine.
    pub fn plain_pair() -> io::Result<(Stream, Stream)> {
        let (one, two) = UnixStream::pair()?;
        for socket in [&one, &two] {
            // At most wmem_max is granted. Less is slower, and works.
            drop(socket::set_send_buffer_bytes(socket, limits::PAIR_BUFFER_BYTES));
        }
        Ok((Stream::plain(one), Stream::plain(two)))
    }

    /// A clear stream.
    pub fn plain(transport: impl Into<Transport>) -> Stream {
        Stream::over(Arc::new(Link::new(transport.into())))
    }

    /// A clear stream over TCP.
    pub fn plain_tcp(socket: TcpStream) -> Stream {
        Stream::plain(socket)
    }

    /// A clear stream over two pipes; see [`Pipes::new`].
    pub fn plain_pipes(
        input: impl Into<OwnedFd>,
        output: impl Into<OwnedFd>,
        on_shutdown: Option<Box<dyn Fn() + Send + Sync>>,
    ) -> io::Result<Stream> {
        Ok(Stream::plain(Pipes::new(input, output, on_shutdown)?))
    }

    /// A caller's clear connection, under its deadline.
    pub fn of(caller: &Caller) -> Stream {
        Stream::over(Arc::clone(&caller.link))
    }

    pub(crate) fn over(link: Arc<Link>) -> Stream {
        Stream {
            read: ReadHalf { link: Arc::clone(&link), opening: Opening::None, early: VecDeque::new() },
            write: WriteHalf { link, sealing: Sealing::None },
            cipher: None,
            tag_keys: None,
        }
    }

    pub(crate) fn over_tls(
        link: Arc<Link>,
        opener: Opener,
        sealer: Sealer,
        cipher: Cipher,
        tag_keys: TagKeys,
    ) -> Stream {
        let mut stream = Stream::over(link);
        stream.read.opening = Opening::Here(opener);
        stream.write.sealing = Sealing::Here(sealer);
        stream.cipher = Some(cipher);
        stream.tag_keys = Some(tag_keys);
        stream
    }

    /// Leaves TLS, as the peer must at the same byte of each direction. Later bytes have only [`Stream::tag_keys`].
    ///
    /// Fails on a clear stream, and with bytes of TLS still to be sent or taken.
    pub fn into_clear(self) -> io::Result<Stream> {
        let refused = |why| io::Error::new(io::ErrorKind::InvalidInput, why);
        let (opener, sealer) = match (&self.read.opening, &self.write.sealing) {
            (Opening::Here(opener), Sealing::Here(sealer)) => (opener, sealer),
            (Opening::Kernel(_), _) | (_, Sealing::Kernel(_)) => {
                return Err(refused("the kernel has the keys of the stream, and goes on using them"));
            }
            _ => return Err(refused("the stream is clear already")),
        };
        if !sealer.is_empty() {
            return Err(refused("bytes wait to be sent under TLS"));
        }
        let early = opener.read_ahead().ok_or_else(|| refused("bytes of TLS wait to be taken"))?;
        let early = VecDeque::from(early.to_vec());
        let mut stream = Stream::over(self.read.link);
        stream.read.early = early;
        stream.tag_keys = self.tag_keys;
        Ok(stream)
    }

    /// The keys of a stream that has left TLS.
    pub fn tag_keys(&self) -> Option<&TagKeys> {
        self.tag_keys.as_ref().filter(|_| self.cipher.is_none())
    }

    /// Whether [`ShutdownHandle::shutdown`] was called.
    pub fn is_shut_down(&self) -> bool {
        self.read.link.is_shut_down()
    }

    /// Ends this connection from another thread.
    pub fn shutdown_handle(&self) -> ShutdownHandle {
        ShutdownHandle::of(&self.read.link)
    }

    /// Samples this connection from another thread.
    pub fn probe(&self) -> Probe {
        Probe(Arc::clone(&self.read.link))
    }

    /// Bounds the total time of later reads and writes, which then fail with `TimedOut`; `None` lifts it.
    ///
    /// A begun write to a pipe outlasts it. A timed-out write is final; a read may be repeated.
    pub fn set_deadline(&self, limit: Option<Duration>) -> io::Result<()> {
        self.read.link.set_deadline(limit)
    }

    /// Whether a read would return without waiting.
    pub fn has_input(&self) -> bool {
        self.read.has_input()
    }

    /// Tunes TCP for data: by its door's policies, or by `wanted` if dialled. Round trips below `near_rtt_us` are near.
    pub fn tune(&self, wanted: &Wanted, near_rtt_us: u32) -> Vec<Applied> {
        let Some(socket) = self.tcp() else { return Vec::new() };
        let policies = self.read.link.policies().unwrap_or(&wanted.policies);
        policies.for_data(socket, wanted, near_rtt_us).settings
    }

    /// Tunes accepted TCP for messages, by its door's policies. Round trips below `near_rtt_us` are near.
    pub fn tune_for_words(&self, near_rtt_us: u32) {
        if let (Some(socket), Some(policies)) = (self.tcp(), self.read.link.policies()) {
            policies.for_accepted_words(socket, near_rtt_us);
        }
    }

    /// The peer's network classes, by its door; none if dialled.
    pub fn class(&self) -> Found {
        self.read.link.member().map(|member| member.class().clone()).unwrap_or_default()
    }

    /// The limit that an accepted stream is over.
    pub fn over_limit(&self) -> Option<&OverLimit> {
        self.read.link.member()?.over_limit()
    }

    /// Waits for its classes' rates. True: it waited.
    pub fn keep_to_rate(&self, bytes: u64) -> bool {
        let Some(member) = self.read.link.member() else { return false };
        let wait = member.charge(bytes, Instant::now());
        if !wait.is_zero() {
            std::thread::sleep(wait);
        }
        !wait.is_zero()
    }

    /// The kernel's view of TCP, or of all paths of MPTCP.
    pub fn tcp_info(&self) -> Option<TcpInfo> {
        self.read.link.tcp_info()
    }

    /// See [`mptcp::is_in_use`](crate::mptcp::is_in_use).
    pub fn is_mptcp(&self) -> Option<bool> {
        self.read.link.is_mptcp()
    }

    /// The peer's address over TCP.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.tcp()?.peer_addr().ok()
    }

    /// Our address over TCP.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.tcp()?.local_addr().ok()
    }

    /// The TCP socket, for options. Reading or writing it breaks TLS.
    pub fn tcp(&self) -> Option<&TcpStream> {
        self.read.link.tcp()
    }

    /// The socket of a clear stream, to receive directly. None over TLS and pipes, and while read-ahead bytes wait.
    pub fn clear_socket(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        match self.cipher {
            None if self.read.early.is_empty() => self.read.link.socket_fd(),
            _ => None,
        }
    }

    /// Sends what was written; from here on the kernel seals, pages of files, too.
    ///
    /// `Unsupported` says why not; the stream goes on. Other errors are final.
    pub fn seal_in_kernel(&mut self) -> io::Result<()> {
        if let Sealing::Here(sealer) = &mut self.write.sealing {
            self.write.sealing = Sealing::Kernel(sealer.hand_over(&self.write.link)?);
        }
        Ok(())
    }

    /// Whether the kernel seals the records.
    pub fn is_sealed_in_kernel(&self) -> bool {
        matches!(self.write.sealing, Sealing::Kernel(_))
    }

    /// From here on the kernel opens records, for splicing. Call before the first read.
    ///
    /// `Unsupported` says why not, such as bytes read ahead; the stream goes on.
    pub fn open_in_kernel(&mut self) -> io::Result<()> {
        if let Opening::Here(opener) = &self.read.opening {
            self.read.opening = Opening::Kernel(opener.hand_over(&self.read.link)?);
        }
        Ok(())
    }

    /// Whether the kernel opens the records.
    pub fn is_opened_in_kernel(&self) -> bool {
        matches!(self.read.opening, Opening::Kernel(_))
    }

    /// The socket to splice from, of a clear stream, or one opened by the kernel ([`Stream::spliced_wrong`]), without
    /// read-ahead bytes.
    pub fn socket_to_splice(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        match self.read.opening {
            Opening::Kernel(_) => self.read.link.socket_fd(),
            Opening::None | Opening::Here(_) => self.clear_socket(),
        }
    }

    /// Handles a failed splice from a stream that the kernel opens. Takes a record without data: the proper end (`End`), or
    /// splicing goes on (`Data`). Else returns `error`.
    pub fn spliced_wrong(&mut self, error: io::Error) -> io::Result<Next> {
        let Opening::Kernel(opener) = &mut self.read.opening else { return Err(error) };
        if error.kind() != io::ErrorKind::InvalidInput {
            return Err(opener.judge(error));
        }
        match opener.take_control(&self.read.link)? {
            false => Err(error),
            true if opener.has_ended() => Ok(Next::End),
            true => Ok(Next::Data),
        }
    }

    /// The socket, for so many bytes in one call (write, sendfile, splice): of a clear stream, or one sealed by the kernel.
    /// None otherwise.
    ///
    /// Sealed bytes with MSG_MORE wait for more. Fails finally with [`KeyUsedUp`](crate::KeyUsedUp).
    pub fn socket_to_send(&mut self, bytes: u64) -> io::Result<Option<std::os::fd::BorrowedFd<'_>>> {
        match &mut self.write.sealing {
            Sealing::None => {}
            Sealing::Here(_) => return Ok(None),
            Sealing::Kernel(sealer) => sealer.prepare(&self.write.link, bytes)?,
        }
        Ok(self.write.link.socket_fd())
    }

    /// The cipher in use, if any.
    pub fn cipher(&self) -> Option<Cipher> {
        self.cipher
    }

    /// The cipher's name for a report.
    pub fn cipher_name(&self) -> &'static str {
        match self.cipher {
            Some(cipher) => cipher.name(),
            None if self.tag_keys.is_some() => "none (clear, authenticated)",
            None => "none",
        }
    }

    /// Sends all, and the proper end. Reading goes on.
    pub fn finish_write(&mut self) -> io::Result<()> {
        self.write.finish_write()
    }

    /// Sends all, and about `bytes`, at most [`PADDING_BYTES_MAX`](crate::PADDING_BYTES_MAX), of padding, which TLS throws
    /// away (RFC 8446, 5.4).
    pub fn pad(&mut self, bytes: usize) -> io::Result<()> {
        self.write.pad(bytes)
    }

    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        match &self.read.opening {
            Opening::Here(opener) => opener.held_bytes(),
            Opening::None | Opening::Kernel(_) => 0,
        }
    }

    #[cfg(test)]
    pub(crate) fn change_keys_after_records(&mut self, records: u64) {
        match &mut self.write.sealing {
            Sealing::None => {}
            Sealing::Here(sealer) => sealer.change_keys_after_records(records),
            Sealing::Kernel(sealer) => sealer.change_keys_after_records(records),
        }
    }

    /// Two halves for two threads.
    pub fn split(self) -> (ReadHalf, WriteHalf) {
        (self.read, self.write)
    }
}

impl Read for Stream {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        self.read.read(target)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write.write(bytes)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write.write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write.flush()
    }
}

impl ReadHalf {
    /// See [`Stream::has_input`].
    pub fn has_input(&self) -> bool {
        let is_here = match &self.opening {
            Opening::None => false,
            Opening::Here(opener) => opener.has_input(),
            Opening::Kernel(opener) => opener.has_ended(),
        };
        !self.early.is_empty() || is_here || poll::readable_now(self.link.input_fd())
    }
}

impl Read for ReadHalf {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        match &mut self.opening {
            Opening::None if !self.early.is_empty() => self.early.read(target),
            Opening::None => self.link.read(target),
            Opening::Here(opener) => opener.read(&self.link, target),
            Opening::Kernel(opener) => opener.read(&self.link, target),
        }
    }
}

impl WriteHalf {
    fn pad(&mut self, bytes: usize) -> io::Result<()> {
        match &mut self.sealing {
            Sealing::None | Sealing::Kernel(_) => Ok(()),
            Sealing::Here(sealer) => sealer.pad(&self.link, bytes),
        }
    }

    /// See [`Stream::finish_write`].
    pub fn finish_write(&mut self) -> io::Result<()> {
        match &mut self.sealing {
            Sealing::None => {}
            Sealing::Here(sealer) => sealer.finish(&self.link)?,
            Sealing::Kernel(sealer) => sealer.finish(&self.link)?,
        }
        self.link.finish_write()
    }
}

impl Write for WriteHalf {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.sealing {
            Sealing::None => self.link.write(bytes),
            Sealing::Here(sealer) => sealer.write(&self.link, bytes),
            Sealing::Kernel(sealer) => sealer.write_vectored(&self.link, &[IoSlice::new(bytes)]),
        }
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let sealer = match &mut self.sealing {
            Sealing::None => return self.link.write_vectored(parts),
            Sealing::Here(sealer) => sealer,
            Sealing::Kernel(sealer) => return sealer.write_vectored(&self.link, parts),
        };
        let mut taken = 0;
        for part in parts {
            let count = sealer.write(&self.link, part)?;
            taken += count;
            if count < part.len() {
                break;
            }
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.sealing {
            Sealing::None | Sealing::Kernel(_) => Ok(()),
            Sealing::Here(sealer) => sealer.flush(&self.link),
        }
    }
}

impl Probe {
    /// See [`Stream::tcp_info`].
    pub fn tcp_info(&self) -> Option<TcpInfo> {
        self.0.tcp_info()
    }

    /// See [`Stream::is_mptcp`].
    pub fn is_mptcp(&self) -> Option<bool> {
        self.0.is_mptcp()
    }

    /// The paths of an MPTCP connection.
    pub fn subflows(&self) -> Vec<Subflow> {
        self.0.subflows()
    }

    /// MPTCP's bytes between each pair of addresses, up to the last [`Probe::tcp_info`].
    pub fn ways(&self) -> Vec<WayTotals> {
        self.0.ways()
    }

    /// Sets TCP's longest pause before sending a segment again (`TCP_RTO_MAX_MS`, Linux 6.15).
    pub fn set_rto_max(&self, longest: Duration) -> io::Result<()> {
        self.0.tcp().map_or(Ok(()), |socket| retransmission::set_rto_max(socket, longest))
    }

    /// See [`Stream::local_addr`].
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.0.tcp()?.local_addr().ok()
    }

    /// See [`Stream::peer_addr`].
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.0.tcp()?.peer_addr().ok()
    }

    /// Whether the peer has ended its direction, or the connection broke.
    pub fn has_hung_up(&self) -> bool {
        poll::has_hung_up(self.0.input_fd())
    }

    /// Ends both directions, also for whoever holds another descriptor.
    pub fn shut_down(&self) {
        self.0.shut_down();
    }

    /// The send buffer of TCP, as the kernel counts it.
    pub fn send_buffer_bytes(&self) -> Option<usize> {
        socket::send_buffer_bytes(self.0.tcp()?).ok()
    }

    /// TCP's congestion control.
    pub fn congestion_control(&self) -> Option<String> {
        socket::congestion_control(self.0.tcp()?).ok()
    }

    /// Changes TCP's congestion control.
    pub fn set_congestion_control(&self, name: &str) -> io::Result<()> {
        self.0.tcp().map_or(Ok(()), |socket| socket::set_congestion_control(socket, name))
    }

    /// Marks TCP's packets (RFC 2474), and reads back what is granted.
    pub fn set_dscp(&self, dscp: Dscp) -> Vec<Applied> {
        let Some((socket, peer)) = self.0.tcp().and_then(|tcp| Some((tcp, tcp.peer_addr().ok()?))) else {
            return Vec::new();
        };
        policy::apply(socket, &Policy { dscp: Some(dscp), ..Policy::default() }, peer.ip()).settings
    }

    /// The mark of TCP's packets, while connected.
    pub fn dscp(&self) -> Option<Dscp> {
        let socket = self.0.tcp()?;
        policy::mark_of(socket, socket.peer_addr().ok()?.ip())
    }

    /// Has the kernel keep the mark of what arrives.
    pub fn keep_arriving_dscp(&self) {
        if let Some((socket, peer)) = self.0.tcp().and_then(|tcp| Some((tcp, tcp.peer_addr().ok()?))) {
            // A kernel that refuses tells nothing later.
            let _ = socket::keep_arriving_dscp(socket, policy::family_of(peer.ip()));
        }
    }

    /// The mark of arriving packets, if known. IPv4 has the handshake's, if accepted: `handshake` says that it is of use.
    pub fn arriving_dscp(&self, handshake: bool) -> Option<Dscp> {
        let socket = self.0.tcp()?;
        let family = policy::family_of(socket.peer_addr().ok()?.ip());
        if family == socket::Family::V4 && !handshake {
            return None;
        }
        socket::arriving_dscp(socket, family).ok().flatten().and_then(Dscp::new)
    }

    /// Lets data gather for so long before each read, which thins the acknowledgements (RFC 3449, section 5.2).
    pub fn gather_reads(&self, pause: Duration) {
        self.0.gather_reads(pause);
    }

    /// Whether nothing has arrived that nobody read yet, as far as the kernel tells.
    pub fn has_nothing_unread(&self) -> bool {
        self.0.tcp().is_some_and(|socket| socket::unread_bytes(socket).is_ok_and(|bytes| bytes == 0))
    }

    /// Has what is sent back off as data does, where it was taken for words.
    pub fn back_off_as_data(&self) {
        self.0.tcp().into_iter().for_each(socket::back_off_as_data);
    }

    /// Bounds TCP's rate, or lifts the bound. MPTCP refuses it.
    pub fn set_max_pacing_rate(&self, rate_bytes_per_s: Option<u64>) -> io::Result<()> {
        self.0.tcp().map_or(Ok(()), |socket| socket::set_max_pacing_rate(socket, rate_bytes_per_s))
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("peer", &self.peer_addr())
            .field("cipher", &self.cipher_name())
            .finish_non_exhaustive()
    }
}
