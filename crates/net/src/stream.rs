//! One connection, clear or TLS, over TCP, a Unix socket or two pipes.
//!
//! Over TLS small writes are collected: **`flush` sends**. What fills a batch of 256 KiB is sent at once. A clear stream, and one whose
//! records the kernel seals, hands every write to the kernel. The two directions share no lock: a reader that waits for the peer never holds up a
//! writer, nor the other way round.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use haul_sys::poll;
use haul_sys::socket;
use haul_sys::tcp_info::{self, TcpInfo};
use zeroize::Zeroize as _;

use crate::cipher::Cipher;
use crate::door::Caller;
use crate::kernel_opener::KernelOpener;
use crate::kernel_sealer::KernelSealer;
use crate::limits;
use crate::policy::{Applied, Wanted};
use crate::record::{Opener, Sealer, TAG_KEY_BYTES};
use crate::transport::{Link, Pipes, ShutdownHandle, Transport};

/// One connection. Write errors are final.
pub struct Stream {
    read: ReadHalf,
    write: WriteHalf,
    cipher: Option<Cipher>,
    /// Of the TLS connection that this is or was.
    tag_keys: Option<TagKeys>,
}

/// With these the two ends of a TLS connection can prove to each other what they say after it has become clear: they belong to this
/// connection, and only who shook hands has them. Their memory is cleared when they go.
#[derive(Clone, PartialEq, Eq)]
pub struct TagKeys {
    /// For what this end sends.
    pub send: [u8; TAG_KEY_BYTES],
    /// For what this end receives.
    pub receive: [u8; TAG_KEY_BYTES],
}

impl Drop for TagKeys {
    fn drop(&mut self) {
        self.send.zeroize();
        self.receive.zeroize();
    }
}

/// What comes next on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// More.
    Data,
    /// Nothing: the peer has ended properly.
    End,
}

/// The reading half of a [`Stream`].
pub struct ReadHalf {
    link: Arc<Link>,
    opening: Opening,
    /// Clear bytes that were read while the stream was TLS: they come first.
    early: VecDeque<u8>,
}

/// The writing half of a [`Stream`]; over TLS `flush` sends.
pub struct WriteHalf {
    link: Arc<Link>,
    sealing: Sealing,
}

/// Who opens the records that arrive.
enum Opening {
    /// Nobody: the stream is clear.
    None,
    Here(Opener),
    Kernel(KernelOpener),
}

/// Who makes records of what is written.
enum Sealing {
    /// Nobody: the stream is clear.
    None,
    Here(Sealer),
    Kernel(KernelSealer),
}

/// Looks at a connection from another thread, and tunes it while it works.
#[derive(Clone)]
pub struct Probe(Arc<Link>);

impl Stream {
    /// Two connected clear streams inside this machine.
    pub fn plain_pair() -> io::Result<(Stream, Stream)> {
        let (one, two) = UnixStream::pair()?;
        for socket in [&one, &two] {
            // The kernel grants at most wmem_max; less is slower, not wrong.
            drop(socket::set_send_buffer_bytes(socket, limits::PAIR_BUFFER_BYTES));
        }
        Ok((Stream::plain(one), Stream::plain(two)))
    }

    /// A clear stream over anything.
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

    /// The connection of a caller at a door, clear. Its deadline holds on.
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

    /// Goes on without TLS from here; the peer must do so at the same byte of each direction. Nothing protects what follows: whoever asks
    /// for this proves it by [`Stream::tag_keys`].
    ///
    /// Fails on a stream that is no TLS, and while bytes of TLS are still to be sent or taken.
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

    /// What proves bytes on a stream that was TLS and is clear now; `None` on all others.
    pub fn tag_keys(&self) -> Option<&TagKeys> {
        self.tag_keys.as_ref().filter(|_| self.cipher.is_none())
    }

    /// Did somebody end it ([`ShutdownHandle::shutdown`])?
    pub fn is_shut_down(&self) -> bool {
        self.read.link.is_shut_down()
    }

    /// A handle that ends this connection from another thread.
    pub fn shutdown_handle(&self) -> ShutdownHandle {
        ShutdownHandle::of(&self.read.link)
    }

    /// A handle that samples this connection from another thread.
    pub fn probe(&self) -> Probe {
        Probe(Arc::clone(&self.read.link))
    }

    /// All reads and writes from now on must end within `limit` in total, else they fail with `TimedOut`; None lifts it.
    ///
    /// Not meant for the bulk of a transfer: while it is set, each call costs one system call more. On pipes, a write that
    /// has begun is not cut off. A write that times out is final as any write error; a read may be tried again.
    pub fn set_deadline(&self, limit: Option<Duration>) -> io::Result<()> {
        self.read.link.set_deadline(limit)
    }

    /// Would a read return without waiting for the peer?
    pub fn has_input(&self) -> bool {
        self.read.has_input()
    }

    /// Tunes it for data, by the policies of the door that accepted it, or else those that `wanted` carries. What is not TCP has nothing
    /// to tune. Paths with a shorter round trip than `near_rtt_us` are near.
    pub fn tune(&self, wanted: &Wanted, near_rtt_us: u32) -> Vec<Applied> {
        let Some(socket) = self.tcp() else { return Vec::new() };
        let policies = self.read.link.policies().unwrap_or(&wanted.policies);
        policies.for_data(socket, wanted, near_rtt_us).settings
    }

    /// The kernel's view of the connection; None when it is not TCP.
    pub fn tcp_info(&self) -> Option<TcpInfo> {
        tcp_info_of(&self.read.link)
    }

    /// The address of the peer; None when it is not TCP.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.tcp()?.peer_addr().ok()
    }

    /// The address of this end; None when it is not TCP.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.tcp()?.local_addr().ok()
    }

    /// The TCP socket, for its options. Reading or writing it past a TLS stream breaks the stream.
    pub fn tcp(&self) -> Option<&TcpStream> {
        self.read.link.tcp()
    }

    /// The socket of a clear stream, to receive from past this; None over TLS and pipes, and while bytes that were read ahead wait here.
    pub fn clear_socket(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        match self.cipher {
            None if self.read.early.is_empty() => self.read.link.socket_fd(),
            _ => None,
        }
    }

    /// From here on the kernel seals what is written, so that it can be handed pages of files, too. Sends what was written before.
    ///
    /// `Unsupported` says that it cannot, and why; then all goes on as before. Other errors are the connection's, and final.
    pub fn seal_in_kernel(&mut self) -> io::Result<()> {
        if let Sealing::Here(sealer) = &mut self.write.sealing {
            self.write.sealing = Sealing::Kernel(sealer.hand_over(&self.write.link)?);
        }
        Ok(())
    }

    /// Whether the kernel seals what is written.
    pub fn is_sealed_in_kernel(&self) -> bool {
        matches!(self.write.sealing, Sealing::Kernel(_))
    }

    /// From here on the kernel opens what arrives, so that it can be spliced into files.
    ///
    /// `Unsupported` says that it cannot, and why; then all goes on as before. So it does when bytes were read ahead here: whoever wants this
    /// asks for it before reading.
    pub fn open_in_kernel(&mut self) -> io::Result<()> {
        if let Opening::Here(opener) = &self.read.opening {
            self.read.opening = Opening::Kernel(opener.hand_over(&self.read.link)?);
        }
        Ok(())
    }

    /// Whether the kernel opens what arrives.
    pub fn is_opened_in_kernel(&self) -> bool {
        matches!(self.read.opening, Opening::Kernel(_))
    }

    /// The socket, to splice out of it: that of a clear stream, or of one that the kernel opens. None over other TLS and over pipes, and while
    /// bytes that were read ahead wait here.
    ///
    /// From a stream that the kernel opens only data can be spliced; see [`Stream::spliced_wrong`].
    pub fn socket_to_splice(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        match self.read.opening {
            Opening::Kernel(_) => self.read.link.socket_fd(),
            Opening::None | Opening::Here(_) => self.clear_socket(),
        }
    }

    /// Splicing out of a stream that the kernel opens failed with `error`. Takes what is no data, if it was that: the stream has come to its
    /// proper end (`End`), or splicing may go on (`Data`). Anything else is returned as what it means.
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

    /// The socket, to be given at most so many bytes in one call (write, sendfile, splice): that of a clear stream, or of one that the
    /// kernel seals. None over other TLS and over pipes.
    ///
    /// What is given to a stream that the kernel seals with the word that more follows (MSG_MORE) waits until more does.
    /// Fails when the key must change and cannot, see [`KeyUsedUp`](crate::KeyUsedUp); that is final.
    pub fn socket_to_send(&mut self, bytes: u64) -> io::Result<Option<std::os::fd::BorrowedFd<'_>>> {
        match &mut self.write.sealing {
            Sealing::None => {}
            Sealing::Here(_) => return Ok(None),
            Sealing::Kernel(sealer) => sealer.prepare(&self.write.link, bytes)?,
        }
        Ok(self.write.link.socket_fd())
    }

    /// The cipher in use; None on a clear stream.
    pub fn cipher(&self) -> Option<Cipher> {
        self.cipher
    }

    /// The cipher in use, in the words of a report.
    pub fn cipher_name(&self) -> &'static str {
        match self.cipher {
            Some(cipher) => cipher.name(),
            None if self.tag_keys.is_some() => "none (clear, authenticated)",
            None => "none",
        }
    }

    /// Sends what was written and tells the peer that nothing follows. Reading goes on.
    pub fn finish_write(&mut self) -> io::Result<()> {
        self.write.finish_write()
    }

    /// Sends what was written, and then about so many bytes that mean nothing and that the peer throws away: the padding of TLS (RFC 8446,
    /// 5.4). At most [`PADDING_BYTES_MAX`](crate::PADDING_BYTES_MAX) at once. Without TLS there is none, and nothing is sent.
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
    /// Would a read return without waiting for the peer?
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
            // The kernel pads nothing that it seals.
            Sealing::None | Sealing::Kernel(_) => Ok(()),
            Sealing::Here(sealer) => sealer.pad(&self.link, bytes),
        }
    }

    /// Sends what was written and tells the peer that nothing follows.
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

    /// A header and its block in one system call.
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
    /// The kernel's view of the connection; None when it is not TCP.
    pub fn tcp_info(&self) -> Option<TcpInfo> {
        tcp_info_of(&self.0)
    }

    /// Size of the send buffer, as the kernel counts it; None when it is not TCP.
    pub fn send_buffer_bytes(&self) -> Option<usize> {
        socket::send_buffer_bytes(self.0.tcp()?).ok()
    }

    /// The congestion control in use; None when it is not TCP.
    pub fn congestion_control(&self) -> Option<String> {
        socket::congestion_control(self.0.tcp()?).ok()
    }

    /// Changes the congestion control. What is not TCP has none to change.
    pub fn set_congestion_control(&self, name: &str) -> io::Result<()> {
        self.0.tcp().map_or(Ok(()), |socket| socket::set_congestion_control(socket, name))
    }

    /// Bounds the rate at which it sends; None lifts the bound. What is not TCP is not bounded.
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

fn tcp_info_of(link: &Link) -> Option<TcpInfo> {
    tcp_info::tcp_info(link.tcp()?).ok()
}
