//! Records a stream that should never be held up, such as that of an instrument.
//!
//! ```text
//! stream --reading thread--> a free buffer --> ring --writing thread--> file, past the page cache
//!                                 ^                          |
//!                                 +------ written buffers ---+
//! ```
//! The ring alone stands between the stream and the disk: what the disk does for a while nobody notices, as long as a buffer is free. When
//! none is, the stream is held up: that is an overrun, counted with its time, and the report says how full the ring was at most. The room is
//! reserved before. Where the file system has no direct writes, each buffer is written out and dropped from the page cache before the next
//! but one: what is dirty is bounded all the same, and the kernel never has a reason to freeze the writer.

mod ring;
#[cfg(test)]
mod scenarios;

use std::fs::File;
use std::io::{self, Read as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use haul_sys::file;
use haul_sys::poll::{self, Interest};

use crate::bench::{Interval, disk_error};
use crate::error::{Error, Fault};
use ring::Filling;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Where the stream comes from.
    pub input: Input,
    /// The file, which must not be there yet.
    pub path: PathBuf,
    /// Room to reserve; what is left of it is given back at the end. 0: none.
    pub reserve_bytes: u64,
    /// Ends after so many bytes; `None`: with the stream.
    pub bytes: Option<u64>,
    /// Buffers of the ring: 2 to 1024.
    pub buffers: usize,
    /// Bytes of each, a multiple of 64 KiB up to 64 MiB.
    pub buffer_bytes: usize,
    /// Between two readings.
    pub interval: Duration,
}

/// Where a stream comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Standard input.
    Stdin,
    /// The first connection to this address. It is neither encrypted nor asked who it is: for networks of instruments.
    Listen(SocketAddr),
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// Recorded.
    pub bytes: u64,
    /// From the first byte to the end of the stream.
    pub elapsed: Duration,
    /// From then until all was on the medium.
    pub flush: Duration,
    /// `direct`, or `copy` through the page cache.
    pub route: &'static str,
    /// Buffers of the ring.
    pub buffers: usize,
    /// Bytes of each.
    pub buffer_bytes: usize,
    /// Buffers that were full and not yet written, at most.
    pub high_water: usize,
    /// How often no buffer was free.
    pub overruns: u64,
    /// How long altogether the stream was held up by that.
    pub held_up: Duration,
    /// It was ended by [`Watcher::interrupted`].
    pub interrupted: bool,
}

/// Who looks on.
pub trait Watcher {
    /// The stream can come: the address that is listened on.
    fn on_listening(&self, address: SocketAddr);

    /// An interval is over.
    fn on_interval(&self, interval: &Interval);

    /// Whether to end now.
    fn interrupted(&self) -> bool;
}

/// Fewer could not be filled and written at once.
pub const BUFFERS_MIN: usize = 2;

/// With buffers of 4 MiB that is 4 GiB.
pub const BUFFERS_MAX: usize = 1024;

/// The smallest buffer, of which all others are multiples: one of every alignment that was seen.
pub const BUFFER_BYTES_UNIT: usize = 64 << 10;

/// The largest buffer: no disk gains from more than a few MiB.
pub const BUFFER_BYTES_MAX: usize = 64 << 20;

/// All buffers together: 27 s of 300 MB/s.
pub const RING_BYTES_MAX: usize = 8 << 30;

/// Between two looks at whether somebody wants to stop.
const LOOK_ROUND: Duration = Duration::from_millis(100);

/// Records until the stream ends.
pub fn run(request: &Request, watcher: &dyn Watcher) -> Result<Recorded, Error> {
    check(request)?;
    let target = create(request)?;
    match request.input {
        Input::Stdin => {
            // A descriptor of our own: what the standard library reads ahead nobody could wait for.
            let stream = io::stdin().as_fd().try_clone_to_owned();
            let stream = stream.map_err(|error| Error::new(Fault::Network, "cannot read the stream").because(error))?;
            record(request, File::from(stream), target, watcher)
        }
        Input::Listen(address) => match accept(address, watcher) {
            Ok(stream) => record(request, File::from(OwnedFd::from(stream)), target, watcher),
            Err(error) => {
                // Empty: of use to nobody.
                let _ = std::fs::remove_file(&request.path);
                Err(error)
            }
        },
    }
}

fn check(request: &Request) -> Result<(), Error> {
    let refused = |what: String, hint: &str| Err(Error::new(Fault::Usage, what).try_this(hint));
    if !(BUFFERS_MIN..=BUFFERS_MAX).contains(&request.buffers) {
        return refused(format!("a ring of {} buffers", request.buffers), "2 to 1024");
    }
    let bytes = request.buffer_bytes;
    if bytes == 0 || bytes > BUFFER_BYTES_MAX || !bytes.is_multiple_of(BUFFER_BYTES_UNIT) {
        return refused(format!("buffers of {bytes} bytes"), "a multiple of 64 KiB up to 64 MiB");
    }
    if request.buffers * bytes > RING_BYTES_MAX {
        return refused(format!("a ring of {} buffers of {bytes} bytes", request.buffers), "8 GiB in all at most");
    }
    if request.interval.is_zero() {
        return refused("no time between two readings".into(), "0.1 to 60 s");
    }
    Ok(())
}

fn create(request: &Request) -> Result<File, Error> {
    let made = File::options().read(true).write(true).create_new(true).open(&request.path);
    let target = made.map_err(|error| {
        let hint = "a recording takes the place of nothing: name a file that is not there";
        disk_error("make", &request.path, error).try_this(hint)
    })?;
    if let Err(error) = file::reserve(target.as_fd(), request.reserve_bytes) {
        // Empty: of use to nobody.
        let _ = std::fs::remove_file(&request.path);
        return Err(disk_error("reserve room for", &request.path, error));
    }
    Ok(target)
}

/// The first connection.
fn accept(address: SocketAddr, watcher: &dyn Watcher) -> Result<TcpStream, Error> {
    let failed = |error: io::Error| {
        Error::new(Fault::Network, format!("cannot listen on {address}"))
            .because(error)
            .try_this("an address of this host, and a port that is free")
    };
    let listener = TcpListener::bind(address).map_err(failed)?;
    watcher.on_listening(listener.local_addr().map_err(failed)?);
    while !watcher.interrupted() {
        if is_ready(listener.as_fd(), LOOK_ROUND).map_err(failed)? {
            return listener.accept().map(|(stream, _)| stream).map_err(failed);
        }
    }
    Err(Error::new(Fault::Interrupted, "interrupted before the stream came"))
}

fn record(request: &Request, stream: File, target: File, watcher: &dyn Watcher) -> Result<Recorded, Error> {
    let write_failed = |error| disk_error("write", &request.path, error);
    let (mut filling, writing) = ring::new(request.buffers, request.buffer_bytes);
    let result = std::thread::scope(|scope| {
        let target = &target;
        let writer = std::thread::Builder::new().name("write".into()).spawn_scoped(scope, move || writing.run(target));
        let writer = writer.map_err(|error| Error::new(Fault::FileIo, "cannot start a thread").because(error))?;
        let read = read_all(request, &stream, &mut filling, watcher);
        let stands = filling.end();
        let route = writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map_err(write_failed)?;
        Ok((read, stands, route))
    });
    let (Read { bytes, elapsed, broken }, stands, route) = result?;
    let start = Instant::now();
    // What was reserved and is not needed goes back; then all of it is on the medium, its length, too. That holds for what came of a stream
    // that broke off as well.
    target.set_len(bytes).and_then(|()| target.sync_all()).map_err(write_failed)?;
    if let Some(error) = broken {
        let what = format!("the stream broke off after {bytes} bytes, which are recorded");
        return Err(Error::new(Fault::Network, what).because(error));
    }
    Ok(Recorded {
        bytes,
        elapsed,
        flush: start.elapsed(),
        route,
        buffers: request.buffers,
        buffer_bytes: request.buffer_bytes,
        high_water: stands.high_water,
        overruns: stands.overruns,
        held_up: stands.held_up,
        interrupted: watcher.interrupted(),
    })
}

/// What was read.
struct Read {
    bytes: u64,
    elapsed: Duration,
    broken: Option<io::Error>,
}

/// Fills buffers until the stream ends or breaks off, or enough came, or somebody had enough, or the writer is gone (which says itself why).
fn read_all(request: &Request, stream: &File, ring: &mut Filling, watcher: &dyn Watcher) -> Read {
    let limit = request.bytes.unwrap_or(u64::MAX);
    let mut read = Read { bytes: 0, elapsed: Duration::ZERO, broken: None };
    let mut clock: Option<Clock> = None;
    let mut open = true;
    while open && read.bytes < limit && !watcher.interrupted() {
        let Some(mut buffer) = ring.free() else { break };
        let wanted = usize::try_from(limit - read.bytes).unwrap_or(usize::MAX).min(buffer.len());
        let mut filled = 0;
        while open && filled < wanted && !watcher.interrupted() {
            match some(stream, &mut buffer[filled..wanted]) {
                Ok(None) => continue,
                Ok(Some(0)) => open = false,
                Ok(Some(bytes)) => filled += bytes,
                Err(error) => (open, read.broken) = (false, Some(error)),
            }
            let clock = clock.get_or_insert_with(|| Clock::start(request.interval));
            clock.look(read.bytes + filled as u64, watcher);
        }
        read.bytes += filled as u64;
        if filled > 0 && !ring.full(buffer, filled) {
            break;
        }
    }
    read.elapsed = clock.map_or(Duration::ZERO, |clock| clock.end(read.bytes, watcher));
    read
}

/// What has come; `None` when nothing did for a while.
fn some(mut stream: &File, target: &mut [u8]) -> io::Result<Option<usize>> {
    if !is_ready(stream.as_fd(), LOOK_ROUND)? {
        return Ok(None);
    }
    match stream.read(target) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
        read => read.map(Some),
    }
}

fn is_ready(fd: BorrowedFd<'_>, limit: Duration) -> io::Result<bool> {
    Ok(poll::wait(&[(fd, Interest::Read)], Some(limit))?.first().copied().unwrap_or(false))
}

/// Tells of intervals.
struct Clock {
    start: Instant,
    interval: Duration,
    last: (Duration, u64),
}

impl Clock {
    fn start(interval: Duration) -> Self {
        Self { start: Instant::now(), interval, last: (Duration::ZERO, 0) }
    }

    fn look(&mut self, bytes: u64, watcher: &dyn Watcher) {
        let now = self.start.elapsed();
        if now - self.last.0 >= self.interval {
            self.tell(now, bytes, watcher);
        }
    }

    fn end(mut self, bytes: u64, watcher: &dyn Watcher) -> Duration {
        let now = self.start.elapsed();
        self.tell(now, bytes, watcher);
        now
    }

    fn tell(&mut self, now: Duration, bytes: u64, watcher: &dyn Watcher) {
        watcher.on_interval(&Interval { start: self.last.0, end: now, bytes: bytes - self.last.1 });
        self.last = (now, bytes);
    }
}
