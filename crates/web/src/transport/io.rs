//! One connection as hyper reads and writes it, clear or TLS, reported to its line.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::os::fd::AsFd as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::line::Line;
use super::piece::{Queue, is_marker};
use crate::limits::PREFACE;

#[derive(Debug)]
pub(crate) enum Carrier {
    Clear(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

#[derive(Debug)]
pub(crate) struct Io {
    carrier: TokioIo<Carrier>,
    first: Bytes,
    files: Queue,
    line: Arc<Line>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// Input, or its end.
    Ended,
    /// The reader has to ask before `due_ms`, by the watchdog's clock.
    GoesOn { due_ms: u64 },
}

impl Io {
    pub(crate) fn new(carrier: Carrier, line: Arc<Line>) -> Io {
        Io { carrier: TokioIo::new(carrier), first: Bytes::new(), files: Queue::default(), line }
    }

    /// The queue for ranges of files. `None`: their bytes pass through this process.
    pub(crate) fn files(&self) -> Option<Queue> {
        matches!(self.carrier.inner(), Carrier::Clear(_)).then(|| self.files.clone())
    }

    pub(crate) fn unread(&mut self, bytes: &[u8]) {
        // A slice would keep all of hyper's buffer.
        self.first = [bytes, &self.first].concat().into();
    }

    pub(crate) fn has_unread(&self) -> bool {
        !self.first.is_empty()
    }

    /// Waits without a buffer until there is input or its end, or the connection should rest.
    pub(crate) async fn silence(&self) -> io::Result<Silence> {
        if self.has_unread() {
            return Ok(Silence::Ended);
        }
        let socket = match self.carrier.inner() {
            Carrier::Clear(socket) => socket,
            Carrier::Tls(stream) => {
                let (socket, session) = stream.get_ref();
                // A request that came with the end of the handshake is deciphered already: the socket is empty.
                if !session.wants_read() {
                    return Ok(Silence::Ended);
                }
                socket
            }
        };
        // `TcpStream::readable` would need a place in a list of waiting tasks.
        poll_fn(|cx| match (socket.poll_read_ready(cx), self.line.leaves()) {
            (Poll::Ready(ready), _) => Poll::Ready(ready.map(|()| Silence::Ended)),
            (Poll::Pending, Some(due_ms)) => Poll::Ready(Ok(Silence::GoesOn { due_ms })),
            (Poll::Pending, None) => Poll::Pending,
        })
        .await
    }

    /// Reads until the bytes show whether HTTP/2 begins, and puts them back.
    pub(crate) async fn begins_http2(&mut self) -> io::Result<bool> {
        let mut first = BytesMut::with_capacity(PREFACE.len());
        while first.len() < PREFACE.len() && PREFACE.starts_with(&first) {
            let mut some = [0; PREFACE.len()];
            match self.carrier.inner_mut().read(&mut some[first.len()..]).await? {
                0 => break,
                count => {
                    let start = first.len();
                    first.extend_from_slice(&some[start..start + count]);
                    self.line.read(false);
                }
            }
        }
        self.first = first.freeze();
        Ok(self.first.starts_with(PREFACE))
    }

    pub(crate) fn into_clear(self) -> io::Result<std::net::TcpStream> {
        match self.carrier.into_inner() {
            Carrier::Clear(socket) => socket.into_std(),
            Carrier::Tls(_) => Err(io::Error::other("a session of TLS is more than its socket")),
        }
    }

    fn send_file(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<io::Result<usize>> {
        let (Some(range), Carrier::Clear(socket)) = (self.files.first(), self.carrier.inner()) else {
            return Poll::Ready(Err(io::Error::other("a marker without its file")));
        };
        let most = most.min(usize::try_from(range.left).unwrap_or(usize::MAX));
        loop {
            ready!(socket.poll_write_ready(cx))?;
            let sent = socket.try_io(Interest::WRITABLE, || range.file.send_to(socket.as_fd(), range.offset, most));
            match sent {
                // The file became shorter: bytes must be missing.
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                Ok(sent) => {
                    self.files.sent(sent as u64);
                    return Poll::Ready(Ok(sent));
                }
                // The readiness was stale; the next round waits.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Sends the header in one packet with the first bytes of the file.
    fn send_before_file(&self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let Carrier::Clear(socket) = self.carrier.inner() else {
            return Poll::Ready(Err(io::Error::other("a marker where only bytes can go")));
        };
        loop {
            ready!(socket.poll_write_ready(cx))?;
            match socket.try_io(Interest::WRITABLE, || haul_sys::outgoing::send_with_more(socket, slices)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => return Poll::Ready(sent),
            }
        }
    }

    fn told<T>(&self, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        self.line.wrote(outcome.is_pending());
        outcome
    }
}

impl Read for Io {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, mut buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            let outcome = Pin::new(&mut self.carrier).poll_read(cx, buf);
            self.line.read(outcome.is_pending());
            return outcome;
        }
        self.line.read(false);
        let count = self.first.len().min(buf.remaining());
        buf.put_slice(&self.first[..count]);
        self.first.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl Write for Io {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.as_mut().poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.line.writes();
        let in_memory = slices.iter().take_while(|slice| !is_marker(slice)).count();
        let outcome = match slices.first() {
            Some(first) if in_memory == 0 => self.send_file(cx, first.len()),
            Some(_) if in_memory < slices.len() => self.send_before_file(cx, &slices[..in_memory]),
            _ => Pin::new(&mut self.carrier).poll_write_vectored(cx, &slices[..in_memory]),
        };
        if let Poll::Ready(Ok(count)) = outcome {
            self.line.sent(count);
        }
        self.told(outcome)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.carrier).poll_flush(cx);
        if let Poll::Ready(Ok(())) = outcome {
            self.line.flushed();
        }
        self.told(outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.line.closes();
        let outcome = Pin::new(&mut self.carrier).poll_shutdown(cx);
        self.told(outcome)
    }
}

impl AsyncRead for Carrier {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Carrier::Clear(stream) => Pin::new(stream).poll_read(cx, buf),
            Carrier::Tls(stream) => Pin::new(stream.as_mut()).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Carrier {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            Carrier::Clear(stream) => Pin::new(stream).poll_write(cx, bytes),
            Carrier::Tls(stream) => Pin::new(stream.as_mut()).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Carrier::Clear(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Carrier::Tls(stream) => Pin::new(stream.as_mut()).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Carrier::Clear(stream) => Pin::new(stream).poll_flush(cx),
            Carrier::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Carrier::Clear(stream) => Pin::new(stream).poll_shutdown(cx),
            Carrier::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(cx),
        }
    }
}
