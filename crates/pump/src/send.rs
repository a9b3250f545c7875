//! Sends a range of a file into a connection.

use std::io::{self, Write as _};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use haul_net::{KeyUsedUp, Stream};
use haul_sys::mapping::Mapping;
use haul_sys::splice::Pipe;
use haul_sys::uring::{SendRing, SpliceRing};
use haul_sys::{file, sendfile};

use super::route::{Routes, SendRoute, is_refusal};
use super::tap::{TAP_BYTES, Tap};

/// Sends ranges of files into the connection of one lane.
pub struct SendPump {
    routes: Arc<Routes<SendRoute>>,
    mechanism: Mechanism,
    block_bytes: usize,
    shown: Box<[u8]>,
}

/// A range that was not sent to its end.
#[derive(Debug)]
pub struct SendFailed {
    /// The bytes that went.
    pub sent_bytes: u64,
    /// The reason.
    pub why: SendError,
}

/// The reason of a [`SendFailed`].
#[derive(Debug)]
pub enum SendError {
    /// The file could not be read.
    Source(io::Error),
    /// The file ended before the range.
    Ended,
    /// The connection failed.
    Lane(io::Error),
}

enum Mechanism {
    Splice(Pipe),
    Sendfile,
    RingSplice(Box<SpliceRing>),
    Map,
    Copy(Box<[u8]>),
    RingCopy(Box<SendRing>),
}

impl SendPump {
    /// Makes a pump of blocks of this size, as far as the route allows.
    pub fn new(routes: Arc<Routes<SendRoute>>, block_bytes: usize) -> SendPump {
        let mechanism = Mechanism::first(&routes, block_bytes);
        SendPump { routes, mechanism, block_bytes, shown: Box::default() }
    }

    /// Sends `len` bytes from `offset` on. `more`: further bytes follow at once; the caller flushes when none do. The kernel
    /// seals an encrypted connection from the first range on a route that needs it.
    pub fn send(
        &mut self,
        stream: &mut Stream,
        file: BorrowedFd<'_>,
        offset: u64,
        len: u64,
        more: bool,
        tap: Option<Tap<'_>>,
    ) -> Result<(), SendFailed> {
        let mut at = offset;
        let end = offset.saturating_add(len);
        let sent = self.open_way(stream).and_then(|()| self.range(stream, file, &mut at, end, more, tap));
        sent.map_err(|why| SendFailed { sent_bytes: at - offset, why })
    }

    fn open_way(&mut self, stream: &mut Stream) -> Result<(), SendError> {
        self.follow_routes();
        let is_sealed_here = stream.cipher().is_some() && !stream.is_sealed_in_kernel();
        while is_sealed_here && !matches!(self.mechanism, Mechanism::Copy(_)) {
            match stream.seal_in_kernel() {
                Ok(()) => break,
                Err(why) if is_refusal(&why) && self.routes.drop_route(self.mechanism.route(), &why) => {
                    self.follow_routes();
                }
                Err(error) => return Err(SendError::Lane(error)),
            }
        }
        Ok(())
    }

    fn range(
        &mut self,
        stream: &mut Stream,
        file: BorrowedFd<'_>,
        offset: &mut u64,
        end: u64,
        more: bool,
        mut tap: Option<Tap<'_>>,
    ) -> Result<(), SendError> {
        let mut mapping = None;
        // The kernel would keep the last record open until more follows.
        let more = more && !stream.is_sealed_in_kernel();
        while *offset < end {
            let block = usize::try_from(end - *offset).unwrap_or(usize::MAX).min(self.block_bytes);
            // Other routes read the bytes again, from the page cache.
            let copies = matches!(self.mechanism, Mechanism::Copy(_));
            let block = match &mut tap {
                Some(tap) if !copies => self.show(file, *offset, block.min(TAP_BYTES), *tap)?,
                _ => block,
            };
            let block_end = *offset + block as u64;
            while *offset < block_end {
                let left = usize::try_from(block_end - *offset).expect("at most a block");
                let more = more || block_end < end;
                let tap: Option<Tap<'_>> = match &mut tap {
                    Some(tap) if copies => Some(&mut **tap),
                    _ => None,
                };
                match self.piece(stream, file, *offset, left, end, more, tap, &mut mapping) {
                    Ok(0) => return Err(SendError::Ended),
                    Ok(sent) => *offset += sent as u64,
                    Err(Failed::Route(why)) => {
                        if !self.routes.drop_route(self.mechanism.route(), &why) {
                            return Err(SendError::Source(why));
                        }
                        self.follow_routes();
                    }
                    Err(Failed::Send(error)) => return Err(error),
                }
            }
        }
        Ok(())
    }

    fn follow_routes(&mut self) {
        if self.mechanism.route() != self.routes.current() {
            self.mechanism = Mechanism::first(&self.routes, self.block_bytes);
        }
    }

    fn show(&mut self, file: BorrowedFd<'_>, offset: u64, len: usize, tap: Tap<'_>) -> Result<usize, SendError> {
        if self.shown.is_empty() {
            self.shown = vec![0; TAP_BYTES].into_boxed_slice();
        }
        let read = file::read_full_at(file, &mut self.shown[..len], offset).map_err(SendError::Source)?;
        if read == 0 {
            return Err(SendError::Ended);
        }
        tap(&self.shown[..read]);
        Ok(read)
    }

    #[allow(clippy::too_many_arguments, reason = "one call of one loop")]
    fn piece(
        &mut self,
        stream: &mut Stream,
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        end: u64,
        more: bool,
        tap: Option<Tap<'_>>,
        mapping: &mut Option<(u64, Mapping)>,
    ) -> Result<usize, Failed> {
        let socket = match &self.mechanism {
            Mechanism::Copy(_) => None,
            _ => stream.socket_to_send(len as u64).map_err(|error| self.key_failed(error))?,
        };
        match (&mut self.mechanism, socket) {
            (Mechanism::Copy(buffer), _) => copied(stream, file, offset, len, buffer, tap),
            (_, None) => {
                let why = "the connection is no socket, or is encrypted in user space";
                Err(Failed::Route(io::Error::new(io::ErrorKind::Unsupported, why)))
            }
            (Mechanism::Sendfile, Some(socket)) => sendfile::send_from_file(socket, file, offset, len).map_err(failed),
            (Mechanism::Splice(pipe), Some(socket)) => {
                let taken = pipe.fill_from_file(file, offset, len).map_err(failed)?;
                match pipe.drain_to_socket(socket, more) {
                    Ok(()) => Ok(taken),
                    Err(error) if is_refusal(&error) && pipe.held_bytes() == taken => Err(Failed::Route(error)),
                    Err(error) => Err(Failed::Send(SendError::Lane(error))),
                }
            }
            (Mechanism::RingSplice(ring), Some(socket)) => {
                ring.send_from_file(socket, file, offset, len, more).map_err(failed)
            }
            (Mechanism::RingCopy(ring), Some(socket)) => ring.send_from_file(socket, file, offset, len).map_err(failed),
            (Mechanism::Map, Some(socket)) => {
                let window = match mapping.take() {
                    Some((start, window)) if offset < start + window.bytes() as u64 => (start, window),
                    _ => {
                        let bytes = usize::try_from(end - offset).unwrap_or(usize::MAX).min(MAPPED_BYTES);
                        (offset, Mapping::of_file(file, offset, bytes).map_err(failed)?)
                    }
                };
                let at = usize::try_from(offset - window.0).expect("within the window");
                let sent = window.1.send(socket, at, len, more).map_err(|error| match error.raw_os_error() {
                    Some(BAD_ADDRESS) => Failed::Send(SendError::Ended),
                    _ => failed(error),
                });
                *mapping = Some(window);
                sent
            }
        }
    }

    /// The connection or its key is used up: another route would meet the same.
    fn key_failed(&self, error: io::Error) -> Failed {
        if KeyUsedUp::caused(&error) {
            self.routes.drop_route(self.mechanism.route(), &error);
        }
        Failed::Send(SendError::Lane(error))
    }
}

enum Failed {
    Route(io::Error),
    Send(SendError),
}

fn copied(
    stream: &mut Stream,
    file: BorrowedFd<'_>,
    offset: u64,
    len: usize,
    buffer: &mut [u8],
    tap: Option<Tap<'_>>,
) -> Result<usize, Failed> {
    // Bytes that are touched three times (read, hash, write) should stay in the cache.
    let len = if tap.is_some() { len.min(TAP_BYTES) } else { len };
    let len = len.min(buffer.len());
    let read = file::read_full_at(file, &mut buffer[..len], offset).map_err(|e| Failed::Send(SendError::Source(e)))?;
    if let Some(tap) = tap {
        tap(&buffer[..read]);
    }
    stream.write_all(&buffer[..read]).map_err(|error| Failed::Send(SendError::Lane(error)))?;
    Ok(read)
}

fn failed(error: io::Error) -> Failed {
    use io::ErrorKind as Kind;
    let of_connection = [
        Kind::BrokenPipe,
        Kind::ConnectionReset,
        Kind::ConnectionAborted,
        Kind::NotConnected,
        Kind::TimedOut,
        Kind::WouldBlock,
        Kind::HostUnreachable,
        Kind::NetworkUnreachable,
        Kind::NetworkDown,
    ];
    match error.kind() {
        _ if is_refusal(&error) => Failed::Route(error),
        kind if of_connection.contains(&kind) => Failed::Send(SendError::Lane(error)),
        _ => Failed::Send(SendError::Source(error)),
    }
}

impl Mechanism {
    fn first(routes: &Routes<SendRoute>, block_bytes: usize) -> Mechanism {
        loop {
            let route = routes.current();
            match Mechanism::of(route, block_bytes) {
                Ok(mechanism) => return mechanism,
                Err(error) if routes.drop_route(route, &error) => {}
                Err(_) => return Mechanism::copy(block_bytes),
            }
        }
    }

    fn of(route: SendRoute, block_bytes: usize) -> io::Result<Mechanism> {
        Ok(match route {
            SendRoute::Splice => Mechanism::Splice(Pipe::new(block_bytes)?),
            SendRoute::Sendfile => Mechanism::Sendfile,
            SendRoute::RingSplice => Mechanism::RingSplice(Box::new(SpliceRing::new(block_bytes)?)),
            SendRoute::Map => Mechanism::Map,
            SendRoute::Copy => Mechanism::copy(block_bytes),
            SendRoute::RingCopy => Mechanism::RingCopy(Box::new(SendRing::new(block_bytes)?)),
        })
    }

    fn copy(block_bytes: usize) -> Mechanism {
        Mechanism::Copy(vec![0; block_bytes].into_boxed_slice())
    }

    fn route(&self) -> SendRoute {
        match self {
            Mechanism::Splice(_) => SendRoute::Splice,
            Mechanism::Sendfile => SendRoute::Sendfile,
            Mechanism::RingSplice(_) => SendRoute::RingSplice,
            Mechanism::Map => SendRoute::Map,
            Mechanism::Copy(_) => SendRoute::Copy,
            Mechanism::RingCopy(_) => SendRoute::RingCopy,
        }
    }
}

/// Making a mapping costs as much as copying a few pages.
const MAPPED_BYTES: usize = 64 << 20;

/// EFAULT: the file has become shorter than the mapping.
const BAD_ADDRESS: i32 = 14;
