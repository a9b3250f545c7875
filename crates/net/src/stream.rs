//! One connection, clear or TLS, over TCP, a Unix socket or two pipes.
//!
//! Over TLS small writes are collected: **`flush` sends**. What fills a batch of 256 KiB is sent at once. A clear stream
//! hands every write to the kernel. The two directions share no lock: a reader that waits for the peer never holds up a
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

use crate::limits;
use crate::record::{Opener, Sealer, TAG_KEY_BYTES};
use crate::tls::Cipher;
use crate::transport::{Link, Pipes, Transport};

/// One connection. Write errors are final.
pub struct Stream {
    read: ReadHalf,
    write: WriteHalf,
    cipher: Option<Cipher>,
    /// Of the TLS connection that this is or was.
    tag_keys: Option<TagKeys>,
}

/// With these the two ends of a TLS connection can prove to each other what they say after it has become clear: they belong to this
/// connection, and only who shook hands has them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TagKeys {
    /// For what this end sends.
    pub send: [u8; TAG_KEY_BYTES],
    /// For what this end receives.
    pub receive: [u8; TAG_KEY_BYTES],
}

/// The reading half of a [`Stream`].
pub struct ReadHalf {
    link: Arc<Link>,
    opener: Option<Opener>,
    /// Clear bytes that were read while the stream was TLS: they come first.
    early: VecDeque<u8>,
}

/// The writing half of a [`Stream`]; over TLS `flush` sends.
pub struct WriteHalf {
    link: Arc<Link>,
    sealer: Option<Sealer>,
}

/// Ends a connection from another thread.
#[derive(Clone)]
pub struct ShutdownHandle(Arc<Link>);

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

    pub(crate) fn over(link: Arc<Link>) -> Stream {
        Stream {
            read: ReadHalf { link: Arc::clone(&link), opener: None, early: VecDeque::new() },
            write: WriteHalf { link, sealer: None },
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
        stream.read.opener = Some(opener);
        stream.write.sealer = Some(sealer);
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
        let (Some(opener), Some(sealer)) = (&self.read.opener, &self.write.sealer) else {
            return Err(refused("the stream is clear already"));
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

    /// A handle that ends this connection from another thread.
    pub fn shutdown_handle(&self) -> ShutdownHandle {
        ShutdownHandle(Arc::clone(&self.read.link))
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

    /// The socket of a clear stream, for sendfile and splice; None over TLS and pipes, and while bytes that were read ahead wait here.
    pub fn clear_socket(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        match self.cipher {
            None if self.read.early.is_empty() => self.read.link.socket_fd(),
            _ => None,
        }
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
    pub(crate) fn change_keys_after_records(&mut self, records: u64) {
        if let Some(sealer) = &mut self.write.sealer {
            sealer.change_keys_after_records(records);
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
        !self.early.is_empty()
            || self.opener.as_ref().is_some_and(Opener::has_input)
            || poll::readable_now(self.link.input_fd())
    }
}

impl Read for ReadHalf {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        match &mut self.opener {
            None if !self.early.is_empty() => self.early.read(target),
            None => self.link.read(target),
            Some(opener) => opener.read(&self.link, target),
        }
    }
}

impl WriteHalf {
    fn pad(&mut self, bytes: usize) -> io::Result<()> {
        match &mut self.sealer {
            None => Ok(()),
            Some(sealer) => sealer.pad(&self.link, bytes),
        }
    }

    /// Sends what was written and tells the peer that nothing follows.
    pub fn finish_write(&mut self) -> io::Result<()> {
        if let Some(sealer) = &mut self.sealer {
            sealer.finish(&self.link)?;
        }
        self.link.finish_write()
    }
}

impl Write for WriteHalf {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.sealer {
            None => self.link.write(bytes),
            Some(sealer) => sealer.write(&self.link, bytes),
        }
    }

    /// A header and its block in one system call.
    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some(sealer) = &mut self.sealer else {
            return self.link.write_vectored(parts);
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
        match &mut self.sealer {
            None => Ok(()),
            Some(sealer) => sealer.flush(&self.link),
        }
    }
}

impl ShutdownHandle {
    /// Ends both directions; reads and writes in progress in other threads fail at once.
    pub fn shutdown(&self) {
        self.0.shut_down();
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
