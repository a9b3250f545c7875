//! Receives from a connection into a range of a file, or nowhere.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Arc, OnceLock};

use haul_net::{Next, Stream};
use haul_sys::direct::DirectFile;
use haul_sys::splice::Pipe;
use haul_sys::uring::WriteRing;
use haul_sys::{discard, file};

use super::route::{ReceiveRoute, Routes, is_refusal};
use super::tap::{TAP_BYTES, Tap};

/// The target, shared by the lanes that write to it.
#[derive(Debug)]
pub struct Target {
    file: Option<File>,
    direct: OnceLock<Result<Arc<DirectFile>, i32>>,
}

/// Receives ranges from the connection of one lane.
pub struct ReceivePump {
    routes: Arc<Routes<ReceiveRoute>>,
    mechanism: Mechanism,
    block_bytes: usize,
    shown: Box<[u8]>,
    /// The route was refused late. Taken bytes are safe; the next piece goes another way.
    refused_late: Option<io::Error>,
}

/// Why a range was not taken.
#[derive(Debug)]
pub enum ReceiveError {
    /// The connection failed.
    Lane(io::Error),
    /// The file could not be written, or read back.
    Target(io::Error),
}

enum Mechanism {
    Splice(Pipe),
    Direct(Box<WriteRing>),
    Copy(Box<[u8]>),
    Discard,
    Null(Pipe, File),
}

impl Target {
    /// Makes a target of a file open for reading and writing.
    pub fn file(file: File) -> Target {
        Target { file: Some(file), direct: OnceLock::new() }
    }

    /// Makes a target that discards bytes.
    pub fn nowhere() -> Target {
        Target { file: None, direct: OnceLock::new() }
    }

    /// The file, if any.
    pub fn as_file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    fn direct(&self) -> io::Result<Arc<DirectFile>> {
        let open = || match &self.file {
            Some(file) => DirectFile::of(file.as_fd()).map(Arc::new).map_err(|e| e.raw_os_error().unwrap_or_default()),
            None => Err(BAD_DESCRIPTOR),
        };
        self.direct.get_or_init(open).clone().map_err(io::Error::from_raw_os_error)
    }
}

impl ReceivePump {
    /// Makes a pump of blocks of this size, as far as the route allows.
    pub fn new(routes: Arc<Routes<ReceiveRoute>>, block_bytes: usize) -> ReceivePump {
        let mechanism = Mechanism::first(&routes, block_bytes);
        ReceivePump { routes, mechanism, block_bytes, shown: Box::default(), refused_late: None }
    }

    /// Receives `len` bytes, and puts them at `offset` of the target. Returns how many came: fewer if the peer ended before. A
    /// tap is shown what then stands in the file, unless it went past the page cache.
    pub fn receive(
        &mut self,
        stream: &mut Stream,
        target: &Target,
        offset: u64,
        len: u64,
        mut tap: Option<Tap<'_>>,
    ) -> Result<u64, ReceiveError> {
        self.open_way(stream)?;
        let mut done = 0;
        while done < len {
            let left = usize::try_from(len - done).unwrap_or(usize::MAX).min(self.block_bytes);
            let tap: Option<Tap<'_>> = match &mut tap {
                Some(tap) => Some(&mut **tap),
                None => None,
            };
            match self.piece(stream, target, offset + done, left, tap) {
                Ok(0) => break,
                Ok(taken) => {
                    done += taken as u64;
                    if let Some(why) = self.refused_late.take() {
                        self.give_up_route(why)?;
                    }
                }
                Err(Failed::Route(why)) => self.give_up_route(why)?,
                Err(Failed::Receive(error)) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Waits until all received bytes are in the file, though not yet on the medium.
    pub fn finish(&mut self) -> io::Result<()> {
        match &mut self.mechanism {
            Mechanism::Direct(ring) => ring.finish(),
            _ => Ok(()),
        }
    }

    /// The most writes at once; 0 for single writes.
    pub fn writes_in_flight_max(&self) -> usize {
        match &self.mechanism {
            Mechanism::Direct(ring) => ring.in_flight_max(),
            _ => 0,
        }
    }

    fn give_up_route(&mut self, why: io::Error) -> Result<(), ReceiveError> {
        if !self.routes.drop_route(self.mechanism.route(), &why) {
            return Err(ReceiveError::Target(why));
        }
        self.follow_routes().map_err(ReceiveError::Target)
    }

    fn open_way(&mut self, stream: &mut Stream) -> Result<(), ReceiveError> {
        self.follow_routes().map_err(ReceiveError::Target)?;
        let is_opened_here = stream.cipher().is_some() && !stream.is_opened_in_kernel();
        while is_opened_here && matches!(self.mechanism, Mechanism::Splice(_) | Mechanism::Null(..)) {
            match stream.open_in_kernel() {
                Ok(()) => break,
                Err(why) if is_refusal(&why) => self.give_up_route(why)?,
                Err(error) => return Err(ReceiveError::Lane(error)),
            }
        }
        Ok(())
    }

    /// Follows another lane's change of routes. Bytes that were handed over are written first.
    fn follow_routes(&mut self) -> io::Result<()> {
        if self.mechanism.route() != self.routes.current() {
            self.finish()?;
            self.mechanism = Mechanism::first(&self.routes, self.block_bytes);
        }
        Ok(())
    }

    fn piece(
        &mut self,
        stream: &mut Stream,
        target: &Target,
        offset: u64,
        len: usize,
        tap: Option<Tap<'_>>,
    ) -> Result<usize, Failed> {
        match &mut self.mechanism {
            Mechanism::Copy(buffer) => copied(stream, target, offset, len, buffer, tap),
            Mechanism::Splice(pipe) => {
                let file = target.file.as_ref().ok_or_else(|| refused("there is no file to splice to"))?;
                let taken = fill(pipe, stream, if tap.is_some() { len.min(TAP_BYTES) } else { len })?;
                self.refused_late = spliced(pipe, file.as_fd(), offset, taken)?;
                if let Some(tap) = tap {
                    if self.shown.is_empty() {
                        self.shown = vec![0; TAP_BYTES].into_boxed_slice();
                    }
                    read_back(file.as_fd(), offset, &mut self.shown[..taken], tap)?;
                }
                Ok(taken)
            }
            Mechanism::Direct(ring) => {
                let file = target.direct().map_err(Failed::Route)?;
                if file.is_refused() {
                    return Err(refused("the file system refused a direct write"));
                }
                direct(ring, stream, &file, offset, len, tap)
            }
            Mechanism::Discard | Mechanism::Null(..) if tap.is_some() => {
                Err(refused("a hash was asked for, and this way sees no bytes"))
            }
            Mechanism::Discard => {
                let Some(socket) = stream.clear_socket() else {
                    return Err(refused("the connection is encrypted"));
                };
                discard::discard(socket, len).map_err(lane_or_route)
            }
            Mechanism::Null(pipe, null) => {
                let taken = fill(pipe, stream, len)?;
                pipe.drain_to_device(null.as_fd()).map_err(target_failed)?;
                Ok(taken)
            }
        }
    }
}

enum Failed {
    Route(io::Error),
    Receive(ReceiveError),
}

fn refused(why: &'static str) -> Failed {
    Failed::Route(io::Error::new(io::ErrorKind::Unsupported, why))
}

fn lane_failed(error: io::Error) -> Failed {
    Failed::Receive(ReceiveError::Lane(error))
}

fn target_failed(error: io::Error) -> Failed {
    Failed::Receive(ReceiveError::Target(error))
}

fn lane_or_route(error: io::Error) -> Failed {
    if is_refusal(&error) { Failed::Route(error) } else { lane_failed(error) }
}

/// Fills the pipe; 0 at the end of the stream. A record without data stops a splice from kernel TLS, and is taken in between.
fn fill(pipe: &mut Pipe, stream: &mut Stream, len: usize) -> Result<usize, Failed> {
    loop {
        let Some(socket) = stream.socket_to_splice() else {
            return Err(refused("the connection is no socket, or is opened in user space"));
        };
        let error = match pipe.fill_from_socket(socket, len) {
            // An end without the proper record may be a cut by somebody on the way.
            Ok(0) if stream.is_opened_in_kernel() => match stream.read(&mut [0]) {
                Ok(0) => return Ok(0),
                Ok(_) => return Err(lane_failed(io::ErrorKind::InvalidData.into())),
                Err(error) => return Err(lane_failed(error)),
            },
            Ok(taken) => return Ok(taken),
            Err(error) => error,
        };
        match stream.spliced_wrong(error) {
            Ok(Next::Data) => {}
            Ok(Next::End) => return Ok(0),
            Err(error) => return Err(lane_or_route(error)),
        }
    }
}

/// Moves the pipe's bytes into the file, or copies them if the file system refuses.
fn spliced(pipe: &mut Pipe, file: BorrowedFd<'_>, offset: u64, taken: usize) -> Result<Option<io::Error>, Failed> {
    let Err(error) = pipe.drain_to_file(file, offset) else { return Ok(None) };
    if !is_refusal(&error) {
        return Err(target_failed(error));
    }
    let mut at = offset + (taken - pipe.held_bytes()) as u64;
    let mut buffer = vec![0; pipe.held_bytes()];
    while pipe.held_bytes() > 0 {
        let len = pipe.read_out(&mut buffer).map_err(target_failed)?;
        file::write_all_at(file, &buffer[..len], at).map_err(target_failed)?;
        at += len as u64;
    }
    Ok(Some(error))
}

fn read_back(file: BorrowedFd<'_>, offset: u64, buffer: &mut [u8], tap: Tap<'_>) -> Result<(), Failed> {
    let read = file::read_full_at(file, buffer, offset).map_err(target_failed)?;
    if read < buffer.len() {
        return Err(target_failed(io::ErrorKind::UnexpectedEof.into()));
    }
    tap(buffer);
    Ok(())
}

fn copied(
    stream: &mut Stream,
    target: &Target,
    offset: u64,
    len: usize,
    buffer: &mut [u8],
    tap: Option<Tap<'_>>,
) -> Result<usize, Failed> {
    let len = if tap.is_some() { len.min(TAP_BYTES) } else { len };
    let buffer = &mut buffer[..len];
    let taken = read_full(stream, buffer)?;
    if let Some(tap) = tap {
        tap(&buffer[..taken]);
    }
    if let Some(file) = &target.file {
        file::write_all_at(file.as_fd(), &buffer[..taken], offset).map_err(target_failed)?;
    }
    Ok(taken)
}

fn direct(
    ring: &mut WriteRing,
    stream: &mut Stream,
    file: &Arc<DirectFile>,
    offset: u64,
    len: usize,
    tap: Option<Tap<'_>>,
) -> Result<usize, Failed> {
    let slot = ring.slot().map_err(target_failed)?;
    let (taken, aligned) = match filled(ring.bytes_mut(&slot), stream, file, offset, len, tap) {
        Ok(filled) => filled,
        Err(failed) => {
            ring.give_back(slot);
            return Err(failed);
        }
    };
    if aligned > 0 {
        ring.write(slot, file, aligned, offset).map_err(target_failed)?;
    } else {
        ring.give_back(slot);
    }
    Ok(taken)
}

/// Fills a buffer. Returns the bytes that came, and those that may go past the page cache; the ragged end went through it.
fn filled(
    buffer: &mut [u8],
    stream: &mut Stream,
    file: &DirectFile,
    offset: u64,
    len: usize,
    mut tap: Option<Tap<'_>>,
) -> Result<(usize, usize), Failed> {
    let len = len.min(buffer.len());
    let mut taken = 0;
    while taken < len {
        let piece = taken..(taken + TAP_BYTES).min(len);
        let got = read_full(stream, &mut buffer[piece.clone()])?;
        if let Some(tap) = &mut tap {
            tap(&buffer[piece.start..piece.start + got]);
        }
        taken += got;
        if got < piece.len() {
            break;
        }
    }
    let alignment = file.alignment_bytes();
    let aligned = if offset.is_multiple_of(alignment as u64) { taken / alignment * alignment } else { 0 };
    file::write_all_at(file.plain(), &buffer[aligned..taken], offset + aligned as u64).map_err(target_failed)?;
    Ok((taken, aligned))
}

fn read_full(stream: &mut Stream, buffer: &mut [u8]) -> Result<usize, Failed> {
    let mut filled = 0;
    while filled < buffer.len() {
        match stream.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(len) => filled += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(lane_failed(error)),
        }
    }
    Ok(filled)
}

impl Mechanism {
    fn first(routes: &Routes<ReceiveRoute>, block_bytes: usize) -> Mechanism {
        loop {
            let route = routes.current();
            match Mechanism::of(route, block_bytes) {
                Ok(mechanism) => return mechanism,
                Err(error) if routes.drop_route(route, &error) => {}
                Err(_) => return Mechanism::copy(block_bytes),
            }
        }
    }

    fn of(route: ReceiveRoute, block_bytes: usize) -> io::Result<Mechanism> {
        Ok(match route {
            ReceiveRoute::Splice => Mechanism::Splice(Pipe::new(block_bytes)?),
            ReceiveRoute::Direct => {
                let bytes = block_bytes.max(DIRECT_BLOCK_BYTES).next_multiple_of(DIRECT_BLOCK_BYTES);
                Mechanism::Direct(Box::new(WriteRing::new(DIRECT_BUFFERS, bytes)?))
            }
            ReceiveRoute::Copy => Mechanism::copy(block_bytes),
            ReceiveRoute::Discard => Mechanism::Discard,
            ReceiveRoute::Null => {
                Mechanism::Null(Pipe::new(block_bytes)?, File::options().write(true).open("/dev/null")?)
            }
        })
    }

    fn copy(block_bytes: usize) -> Mechanism {
        Mechanism::Copy(vec![0; block_bytes].into_boxed_slice())
    }

    fn route(&self) -> ReceiveRoute {
        match self {
            Mechanism::Splice(_) => ReceiveRoute::Splice,
            Mechanism::Direct(_) => ReceiveRoute::Direct,
            Mechanism::Copy(_) => ReceiveRoute::Copy,
            Mechanism::Discard => ReceiveRoute::Discard,
            Mechanism::Null(..) => ReceiveRoute::Null,
        }
    }
}

/// One buffer is filled while three are written, which keeps the disk busy: 4 MiB for a lane.
const DIRECT_BUFFERS: usize = 4;

/// A multiple of every alignment that was seen for direct writes.
const DIRECT_BLOCK_BYTES: usize = 64 << 10;

/// EBADF: there is nothing to open.
const BAD_DESCRIPTOR: i32 = 9;
