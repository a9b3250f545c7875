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
//!
//! A striped recording goes to several directories in turn, buffer by buffer, each with a writer of its own ([`striped`]).

mod flushed;
mod ring;
mod striped;

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
use haul_store::recording::{self, STRIPES_MAX};
use haul_store::stripe_bytes;
use haul_sys::file;
use haul_sys::poll::{self, Interest};
use haul_sys::standard_streams;
use ring::Filling;
use striped::Striping;

use crate::bench::Interval;

/// The question of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Where the stream comes from.
    pub input: Input,
    /// The file, which must not be there yet.
    pub path: PathBuf,
    /// Stripes it over these directories; then `path` has an index beside it, and is no file itself. Empty: it is one file.
    pub stripe_directories: Vec<PathBuf>,
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
    /// How often stripes are flushed: a power cut costs so much of a striped recording, and the time of a flush.
    pub flush_every: Duration,
}

/// [`Request::flush_every`], unless somebody says otherwise.
pub const FLUSH_EVERY: Duration = Duration::from_secs(2);

/// Where a stream comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Standard input.
    Stdin,
    /// The first connection to this address. It is neither encrypted nor asked who it is: for networks of instruments.
    Listen(SocketAddr),
}

/// The result of a recording.
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
    /// A call of [`Watcher::interrupted`] ended it.
    pub interrupted: bool,
    /// The index of a striped recording, and the BLAKE3 of all of it.
    pub striped: Option<(PathBuf, [u8; 32])>,
}

/// The observer, called from several threads.
pub trait Watcher: Sync {
    /// The stream can come: the address that is listened on.
    fn on_listening(&self, address: SocketAddr);

    /// An interval is over.
    fn on_interval(&self, interval: &Interval);

    /// Something failed that does not end the recording.
    fn on_warning(&self, warning: &Error);

    /// Whether to end now.
    fn interrupted(&self) -> bool;
}

/// With fewer buffers, one could not be filled while another is written.
pub const BUFFERS_MIN: usize = 2;

/// With buffers of 4 MiB that is 4 GiB.
pub const BUFFERS_MAX: usize = 1024;

/// The smallest buffer, of which all others are multiples: one of every alignment that was seen.
pub const BUFFER_BYTES_UNIT: usize = 64 << 10;

/// The largest buffer: no disk gains from more than a few MiB.
pub const BUFFER_BYTES_MAX: usize = recording::BLOCK_BYTES_MAX as usize;

/// All buffers together: 27 s of 300 MB/s.
pub const RING_BYTES_MAX: usize = 8 << 30;

/// Between two looks at whether somebody wants to stop.
const LOOK_ROUND: Duration = Duration::from_millis(100);

/// Records until the stream ends.
pub fn run(request: &Request, watcher: &dyn Watcher) -> Result<Recorded, Error> {
    check(request)?;
    match request.input {
        Input::Stdin => {
            // A descriptor of our own: what the standard library reads ahead nobody could wait for. It is opened before the
            // targets are made.
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

/// The hints of other commands are no use: a stream does not come twice.
fn unrecorded(error: Error) -> Error {
    match error.hint {
        Some(_) => error,
        None => error.try_this("nothing was recorded; see to it before the stream comes again"),
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
    if request.stripe_directories.len() > STRIPES_MAX {
        return refused(format!("{} directories", request.stripe_directories.len()), "64 at most");
    }
    // One that is filled and one that is written, for each disk: else they would wait for each other.
    if request.buffers < 2 * request.stripe_directories.len() {
        let what =
            format!("a ring of {} buffers for {} directories", request.buffers, request.stripe_directories.len());
        return refused(what, "two for each directory at least: --buffers");
    }
    if request.interval.is_zero() {
        return refused("no time between two readings".into(), "0.1 to 60 s");
    }
    Ok(())
}

/// The files that are written to.
struct Targets {
    files: Vec<(PathBuf, File)>,
    striped: Option<Striping>,
}

impl Targets {
    /// Makes them, with room for what is to be reserved. What was made goes again when something fails.
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
        // Now, while nothing is lost with it: what is flushed later is of no use under a name that a power cut takes.
        haul_sys::file::flush_directory_of(&path)
            .map_err(|error| Error::of_disk("flush the directory of", &path, &error))
    }

    /// Removes the files: they are empty.
    fn remove(&self) {
        for (path, _) in &self.files {
            let _ = std::fs::remove_file(path);
        }
        if let Some(striping) = &self.striped {
            striping.remove();
        }
    }

    /// Gives back what was reserved and is not needed; then all of it is on the medium, its length, too. Each file has its turn, whatever comes of
    /// the others. `written`: bytes of each.
    fn finish(&self, written: &[u64], flushed: &mut [Flushed]) -> Vec<Error> {
        let mut faults = Vec::new();
        for (((path, file), written), flushed) in self.files.iter().zip(written).zip(flushed) {
            // A disk that fails says of the write behind it what may be of one that was flushed before.
            let length = flushed.bytes.max(*written);
            if let Err(error) = file.set_len(length) {
                let hint = "the recording is there; reserved room beyond it stays taken";
                faults.push(Error::of_disk("set the length of", path, &error).try_this(hint));
            }
            // Whether it failed is known to who asks for doubts.
            let _ = flushed.flush(length, || file.sync_all());
        }
        faults
    }

    /// How to find out whether all of it is there.
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
                // Those that were started wait for what to write.
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
    // All that follows holds for what came of a stream that broke off, and before a disk that failed, as well.
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

/// The bytes that were read.
struct Read {
    bytes: u64,
    elapsed: Duration,
    broken: Option<io::Error>,
}

/// Fills buffers until the stream ends or breaks off, or enough came, or somebody had enough, or the writer is gone (which says itself why).
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

/// Reads what has come; `None` when nothing did for a while.
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
