//! Records a stream that should never be held up, such as an instrument's.
//!
//! ```text
//! stream --reading thread--> a free buffer --> ring --writing thread--> file, past the page cache
//!                                 ^                          |
//!                                 +------ written buffers ---+
//! ```
//! A stall of the disk goes unnoticed while a buffer is free. Else the stream is held up: an overrun. The room is reserved
//! before. Without direct writes, each buffer is written out and dropped from the page cache before the next but one: dirty pages
//! stay bounded, and the kernel has no reason to freeze the writer.
//!
//! A striped recording goes to several directories in turn, buffer by buffer, each with its own writer ([`striped`]).

mod flushed;
mod request;
mod ring;
mod striped;
mod watcher;

use std::fs::File;
use std::io::{self, Read as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use flushed::Flushed;
use haul_job::{Error, Fault};
use haul_store::stripe_bytes;
use haul_sys::file;
use haul_sys::poll::{self, Interest};
use haul_sys::standard_streams;
use request::check;
pub use request::{
    BUFFER_BYTES_MAX, BUFFER_BYTES_UNIT, BUFFERS_MAX, BUFFERS_MIN, FLUSH_EVERY, Input, RING_BYTES_MAX, Request,
};
use ring::Filling;
use striped::Striping;
pub use watcher::Watcher;

use crate::bench::Interval;

/// The result of a recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// Bytes recorded.
    pub bytes: u64,
    /// Time to the stream's end.
    pub elapsed: Duration,
    /// Time of the flush after that.
    pub flush: Duration,
    /// `direct`, or `copy` through the page cache.
    pub route: &'static str,
    /// Buffers of the ring.
    pub buffers: usize,
    /// Bytes of a buffer.
    pub buffer_bytes: usize,
    /// The most full buffers at once.
    pub high_water: usize,
    /// The times without a free buffer.
    pub overruns: u64,
    /// The time that the stream was held up.
    pub held_up: Duration,
    /// [`Watcher::interrupted`] ended it.
    pub interrupted: bool,
    /// A striped recording's index and BLAKE3.
    pub striped: Option<(PathBuf, [u8; 32])>,
}

const LOOK_ROUND: Duration = Duration::from_millis(100);

/// Records until the stream ends.
pub fn run(request: &Request, watcher: &dyn Watcher) -> Result<Recorded, Error> {
    check(request)?;
    match request.input {
        Input::Stdin => {
            // The standard library reads ahead, and such bytes could not be waited for. So this descriptor is our own, opened
            // before the targets.
            let stream = standard_streams::Input::open().and_then(|input| input.as_fd().try_clone_to_owned());
            let failed = |error| unrecorded(Error::new(Fault::Network, "cannot read the stream").because(error));
            let stream = stream.map_err(failed)?;
            let targets = Targets::create(request).map_err(unrecorded)?;
            record(request, File::from(stream), targets, watcher)
        }
        Input::Listen(address) => {
            let targets = Targets::create(request).map_err(unrecorded)?;
            match accept(address, watcher) {
                Ok(stream) => record(request, File::from(OwnedFd::from(stream)), targets, watcher),
                Err(error) => {
                    targets.remove();
                    Err(unrecorded(error))
                }
            }
        }
    }
}

/// Drops other commands' hints: a stream does not come twice.
fn unrecorded(error: Error) -> Error {
    match error.hint {
        Some(_) => error,
        None => error.try_this("nothing was recorded; see to it before the stream comes again"),
    }
}

struct Targets {
    files: Vec<(PathBuf, File)>,
    striped: Option<Striping>,
}

impl Targets {
    /// A failure removes the files.
    fn create(request: &Request) -> Result<Targets, Error> {
        let mut targets = Targets { files: Vec::new(), striped: None };
        let made = match request.stripe_directories.is_empty() {
            true => targets.create_file(request.path.clone(), request.reserve_bytes),
            false => targets.create_striped(request),
        };
        match made {
            Ok(()) => Ok(targets),
            Err(error) => {
                targets.remove();
                Err(error)
            }
        }
    }

    fn create_striped(&mut self, request: &Request) -> Result<(), Error> {
        let striping = Striping::begin(request)?;
        let stripes = request.stripe_directories.len() as u64;
        let paths = striping.stripe_paths(&request.stripe_directories);
        self.striped = Some(striping);
        for (number, path) in (0u64..).zip(paths) {
            let reserve = stripe_bytes(request.reserve_bytes, request.buffer_bytes as u64, stripes, number);
            self.create_file(path, reserve)?;
        }
        Ok(())
    }

    fn create_file(&mut self, path: PathBuf, reserve_bytes: u64) -> Result<(), Error> {
        let made = File::options().read(true).write(true).create_new(true).open(&path);
        let file = made.map_err(|error| {
            let hint = "a recording replaces no file: name a new one";
            Error::of_disk("make", &path, &error).try_this(hint)
        })?;
        let reserved = file::reserve(file.as_fd(), reserve_bytes);
        self.files.push((path.clone(), file));
        reserved.map(drop).map_err(|error| Error::of_disk("reserve room for", &path, &error))?;
        // Nothing is lost yet. Data flushed later would be useless under a name that a power cut removes.
        haul_sys::file::flush_directory_of(&path)
            .map_err(|error| Error::of_disk("flush the directory of", &path, &error))
    }

    fn remove(&self) {
        for (path, _) in &self.files {
            let _ = std::fs::remove_file(path);
        }
        if let Some(striping) = &self.striped {
            striping.remove();
        }
    }

    /// Gives back unused room, and flushes each file with its length, whatever comes of the others. `written`: bytes of each.
    fn finish(&self, written: &[u64], flushed: &mut [Flushed]) -> Vec<Error> {
        let mut faults = Vec::new();
        for (((path, file), written), flushed) in self.files.iter().zip(written).zip(flushed) {
            // After a failure, an earlier flush may have put more there.
            let length = flushed.bytes.max(*written);
            if let Err(error) = file.set_len(length) {
                let hint = "the recording is there; reserved room beyond it stays taken";
                faults.push(Error::of_disk("set the length of", path, &error).try_this(hint));
            }
            // A failure becomes a doubt.
            let _ = flushed.flush(length, || file.sync_all());
        }
        faults
    }

    fn how_to_compare(&self) -> String {
        match &self.striped {
            Some(striping) => format!(
                "copy it now, to another disk: haul cp --stripe-dir DIR ... stripes:{} DST compares with what was recorded",
                striping.path().display()
            ),
            None => "copy it now, to another disk, and compare it with its source if you can".to_owned(),
        }
    }
}

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
    Err(Error::new(Fault::Interrupted, "interrupted before the stream came").try_this("nothing is left of it"))
}

fn record(request: &Request, stream: File, mut targets: Targets, watcher: &dyn Watcher) -> Result<Recorded, Error> {
    let (mut filling, writing) = ring::new(request.buffers, request.buffer_bytes, targets.files.len());
    let progress: Vec<_> = writing.iter().map(ring::Writing::written).collect();
    let mut hasher = targets.striped.is_some().then(blake3::Hasher::new);
    let result = std::thread::scope(|scope| {
        let (files, progress) = (&targets.files, &progress);
        let writers = writing.into_iter().zip(files).map(|(writing, (path, file))| {
            start(scope, "write", move || writing.run(file).map_err(|error| Error::of_disk("write", path, &error)))
        });
        let writers: Result<Vec<_>, Error> = writers.collect();
        let (ends, ended) = sync_channel(0);
        let flusher = targets.striped.as_ref().map(|striping| {
            let keep = move || striping.keep_index(files, progress, &ended, watcher, request.flush_every);
            start(scope, "flush", keep)
        });
        let (writers, flusher) = match writers.and_then(|writers| Ok((writers, flusher.transpose()?))) {
            Ok(started) => started,
            Err(error) => {
                // The started writers wait for something to write.
                filling.end();
                return Err(error);
            }
        };
        let read = read_all(request, &stream, &mut filling, hasher.as_mut(), watcher);
        let stands = filling.end();
        let routes: Vec<Result<&'static str, Error>> = writers.into_iter().map(joined).collect();
        drop(ends);
        let flushed = flusher.map_or_else(|| vec![Flushed::default()], joined);
        Ok((read, stands, routes, flushed))
    });
    let (Read { bytes, elapsed, broken }, stands, routes, mut flushed) = result?;
    let start = Instant::now();
    let written: Vec<u64> = progress.iter().map(|written| written.load(Ordering::Acquire)).collect();
    let (mut names, mut faults) = (Vec::new(), Vec::new());
    for route in routes {
        match route {
            Ok(name) => names.push(name),
            Err(error) => faults.push(error),
        }
    }
    // Broken streams and failed disks end here, too.
    let late = targets.finish(&written, &mut flushed);
    let whole = hasher.filter(|_| faults.is_empty()).map(|hasher| (bytes, *hasher.finalize().as_bytes()));
    let entered = targets.striped.as_mut().map_or(Ok(()), |striping| striping.end(&flushed, whole));
    let kept = targets.striped.as_ref().map_or(written[0], Striping::bytes);
    for fault in &mut faults {
        fault.hint =
            Some(format!("{kept} bytes before that are kept; record the rest into another file, on a good disk"));
    }
    faults.extend(flushed::doubts(&targets.files, &flushed, &targets.how_to_compare()));
    faults.extend(entered.err());
    faults.extend(late);
    faults.extend(broken.map(|error| {
        let what = format!("the stream broke off after {bytes} bytes, which are recorded");
        Error::new(Fault::Network, what).because(error).try_this("what still comes needs another file")
    }));
    let mut faults = faults.into_iter();
    if let Some(first) = faults.next() {
        faults.for_each(|fault| watcher.on_warning(&fault));
        return Err(first);
    }
    let route = if names.iter().all(|name| *name == "direct") { "direct" } else { "copy" };
    let striped =
        targets.striped.as_ref().zip(whole).map(|(striping, (_, blake3))| (striping.path().to_owned(), blake3));
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
        striped,
    })
}

fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    run: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, Error> {
    let started = std::thread::Builder::new().name(name.into()).spawn_scoped(scope, run);
    started.map_err(|error| Error::new(Fault::FileIo, "cannot start a thread").because(error))
}

fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

struct Read {
    bytes: u64,
    elapsed: Duration,
    broken: Option<io::Error>,
}

/// Fills buffers until the end, or until a writer fails, which reports itself.
fn read_all(
    request: &Request,
    stream: &File,
    ring: &mut Filling,
    mut hasher: Option<&mut blake3::Hasher>,
    watcher: &dyn Watcher,
) -> Read {
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
        if let Some(hasher) = &mut hasher {
            hasher.update(&buffer[..filled]);
        }
        if filled > 0 && !ring.full(buffer, filled) {
            break;
        }
    }
    read.elapsed = clock.map_or(Duration::ZERO, |clock| clock.end(read.bytes, watcher));
    read
}

/// `None`: nothing came for a while.
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
