//! How fast is each way of moving bytes, on this host alone, and what does it cost each side?
//!
//! ```text
//! source (zeros, memory, a file) --pump::send--> loopback connection --pump::receive--> sink (nowhere, memory, a disk)
//!      a thread for each lane          clear or TLS, tuned as those of a copy         a thread for each lane
//! ```
//! The connections, the ciphers and the routes are those of a copy; what a copy does besides (names, journals, receipts) is left out.
//! Each side's processor time is that of its threads. With `verify` the lanes hash both ends' chunks and compare.

mod alone;
mod lane;
mod prepare;
#[cfg(test)]
#[path = "../../tests/inside/bench.rs"]
mod scenarios;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use haul_net::Stream;
use haul_store::DiskRate;
pub use haul_sys::usage::Usage;

pub use alone::{disk, memory};
use haul_job::Cipher;
use haul_job::{Error, Fault};
use haul_pump::{Dropped, ReceiveRoute, SendRoute};
use lane::{Receiving, Sending};

/// The rates that the disk reaches alone.
pub type Disk = DiskRate;

/// The bytes that are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A hole of a file in memory: nothing but zeros, in the same few pages.
    Zero,
    /// A file in memory that holds noise.
    Memory,
    /// A file.
    File(PathBuf),
}

/// Where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sink {
    /// Nowhere.
    Discard,
    /// A file in memory, all of its pages touched before.
    Memory,
    /// A file without a name below this directory, gone at the end.
    Directory(PathBuf),
}

/// Where the next block is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offset {
    /// Always at the same place, so that it stays in the processor's caches.
    Fixed,
    /// Behind the last one, and at the front again when the end is reached.
    Moving,
}

/// When it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// After this time.
    Time(Duration),
    /// After so many bytes, or somewhat more: each lane ends with a whole chunk, of 4 MiB at most.
    Bytes(u64),
}

/// The question of a bench.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The bytes that are read.
    pub source: Source,
    /// Where it goes.
    pub sink: Sink,
    /// A way to send; `None` leaves it to what this host can do.
    pub send_route: Option<SendRoute>,
    /// A way to receive; `None` leaves it to what this host can do.
    pub receive_route: Option<ReceiveRoute>,
    /// Bytes moved by one call, as far as the route allows: 4 KiB to 64 MiB.
    pub block_bytes: usize,
    /// Where the next block is read.
    pub offset: Offset,
    /// Connections, each with a thread at either end: 1 to 256.
    pub lanes: u16,
    /// `None`: clear.
    pub cipher: Option<Cipher>,
    /// Both ends hash every chunk (BLAKE3), and the receiver compares.
    pub verify: bool,
    /// When it ends.
    pub amount: Amount,
    /// Between two readings: 0.1 s to a minute.
    pub interval: Duration,
    /// The end that accepted the connection sends, instead of the end that made it.
    pub reverse: bool,
    /// Congestion control; `None`: as for a copy inside this host.
    pub congestion_control: Option<String>,
    /// Processors that all sending and all receiving threads are bound to.
    pub processors: Option<(usize, usize)>,
    /// The size of a source or sink in memory, and of the file that a timed run goes round in: 64 KiB for each lane at
    /// least.
    pub size_bytes: u64,
    /// The source file's pages are dropped from the cache first, so that it comes from the disk.
    pub cold: bool,
}

/// One reading.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Since the start.
    pub start: Duration,
    /// Since the start.
    pub end: Duration,
    /// Received in it.
    pub bytes: u64,
}

impl Interval {
    /// The mean rate in it.
    pub fn bytes_per_s(&self) -> f64 {
        self.bytes as f64 / (self.end - self.start).as_secs_f64().max(1e-6)
    }
}

/// One side of what was measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// The way that was used, at the end.
    pub route: &'static str,
    /// Ways that were asked for or better, and refused.
    pub dropped: Vec<Dropped>,
    /// Processor time of its threads, the helpers of io_uring included. What the kernel does later (writing out pages) is nobody's.
    pub usage: Usage,
}

impl Side {
    /// Processor time for each 10^9 bytes.
    pub fn cpu_s_per_gb(&self, bytes: u64) -> f64 {
        self.usage.total_us() as f64 / 1e6 / (bytes as f64 / 1e9).max(1e-9)
    }
}

/// The results.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Received, all lanes.
    pub bytes: u64,
    /// From the first byte until the last was where it goes (not: on the medium).
    pub elapsed: Duration,
    /// All readings.
    pub intervals: Vec<Interval>,
    /// The sending threads.
    pub send: Side,
    /// The receiving threads.
    pub receive: Side,
    /// How long the flush to the medium took after that; `None` when nothing went to a disk.
    pub flush: Option<Duration>,
    /// Direct writes that one lane had on their way at once, at most.
    pub writes_in_flight_max: usize,
    /// The kernel made the TLS records, on one lane at least.
    pub sealed_in_kernel: bool,
    /// The kernel opened the TLS records, on one lane at least.
    pub opened_in_kernel: bool,
    /// Congestion control in effect on the first lane.
    pub congestion_control: String,
    /// A call of [`Watcher::interrupted`] ended it.
    pub interrupted: bool,
}

/// The observer of a bench.
pub trait Watcher {
    /// An interval is over.
    fn on_interval(&self, interval: &Interval);

    /// Whether to end now.
    fn interrupted(&self) -> bool {
        false
    }
}

/// Shared by the threads of all lanes.
struct Shared {
    stop: AtomicBool,
    received_bytes: AtomicU64,
    start: Start,
}

/// Threads wait here until all of them are ready, and the clock runs.
#[derive(Default)]
struct Start {
    state: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    ready: usize,
    begun: bool,
}

impl Start {
    /// A thread is ready, and waits for the start.
    fn await_start(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.ready += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| !state.begun));
    }

    /// Waits until so many threads are ready.
    fn await_ready(&self, threads: usize) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_while(state, |state| state.ready < threads));
    }

    /// All may go on.
    fn begin(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).begun = true;
        self.changed.notify_all();
    }
}

/// Measures.
pub fn run(request: &Request, watcher: &dyn Watcher) -> Result<Found, Error> {
    let plan = prepare::plan(request)?;
    let lanes = prepare::connect(request)?;
    let congestion_control = lanes.first().and_then(|(near, _)| near.tcp()).and_then(congestion_control_of);
    let shared = Shared { stop: AtomicBool::new(false), received_bytes: AtomicU64::new(0), start: Start::default() };
    let (tell, ended) = mpsc::channel();
    let mut sums = Sums::default();
    let (elapsed, intervals) = std::thread::scope(|scope| {
        let mut threads = 0;
        for (number, (sender, receiver)) in lanes.into_iter().enumerate() {
            let shared = &shared;
            let sending = Sending { request, plan: &plan, shared, number };
            let receiving = Receiving { request, plan: &plan, shared, number };
            let (sent, received) = (tell.clone(), tell.clone());
            let send = move || sent.send(lane::send(&sending, sender)).unwrap_or_default();
            let receive = move || received.send(lane::receive(&receiving, receiver)).unwrap_or_default();
            let started = [
                std::thread::Builder::new().name(format!("send {number}")).spawn_scoped(scope, send),
                std::thread::Builder::new().name(format!("receive {number}")).spawn_scoped(scope, receive),
            ];
            for thread in started {
                match thread {
                    Ok(_) => threads += 1,
                    // Its end of the lane is gone with it, so that the other end does not wait.
                    Err(error) => sums.fail(Error::new(Fault::FileIo, "cannot start a thread").because(error)),
                }
            }
        }
        drop(tell);
        if sums.error.is_some() {
            shared.stop.store(true, Ordering::Release);
        } else {
            shared.start.await_ready(threads);
        }
        let start = Instant::now();
        shared.start.begin();
        let intervals = watch(request, watcher, &shared, &ended, start, &mut sums);
        (start.elapsed(), intervals)
    });
    if let Some(error) = sums.error {
        return Err(error);
    }
    let bytes = shared.received_bytes.load(Ordering::Acquire);
    let flush = match (&request.sink, plan.target.as_file()) {
        (Sink::Directory(directory), Some(file)) => {
            let start = Instant::now();
            file.sync_data().map_err(|error| Error::of_disk("flush the file below", directory, &error))?;
            Some(start.elapsed())
        }
        _ => None,
    };
    let send = Side { route: plan.send.current().name(), dropped: plan.send.dropped(), usage: sums.send };
    let receive = Side { route: plan.receive.current().name(), dropped: plan.receive.dropped(), usage: sums.receive };
    Ok(Found {
        bytes,
        elapsed,
        intervals,
        send,
        receive,
        flush,
        writes_in_flight_max: sums.writes_in_flight_max,
        sealed_in_kernel: sums.sealed_in_kernel,
        opened_in_kernel: sums.opened_in_kernel,
        congestion_control: congestion_control.unwrap_or_default(),
        interrupted: watcher.interrupted(),
    })
}

/// The sums of what the threads told at their ends.
#[derive(Default)]
struct Sums {
    send: Usage,
    receive: Usage,
    writes_in_flight_max: usize,
    sealed_in_kernel: bool,
    opened_in_kernel: bool,
    error: Option<Error>,
}

/// The last word of a thread.
enum Ended {
    /// The sender's usage, and whether the kernel sealed what it sent.
    Sent(Result<(Usage, bool), Error>),
    Received(Result<Received, Error>),
}

#[derive(Debug)]
struct Received {
    usage: Usage,
    /// On their way at once, at most.
    writes_in_flight_max: usize,
    opened_in_kernel: bool,
}

impl Sums {
    fn add(&mut self, ended: Ended) {
        match ended {
            Ended::Sent(Ok((usage, sealed_in_kernel))) => {
                self.send += usage;
                self.sealed_in_kernel |= sealed_in_kernel;
            }
            Ended::Received(Ok(received)) => {
                self.receive += received.usage;
                self.writes_in_flight_max = self.writes_in_flight_max.max(received.writes_in_flight_max);
                self.opened_in_kernel |= received.opened_in_kernel;
            }
            Ended::Sent(Err(error)) | Ended::Received(Err(error)) => self.fail(error),
        }
    }

    /// When one end fails, the other loses its connection: what began it is told.
    fn fail(&mut self, error: Error) {
        if self.error.as_ref().is_none_or(|known| known.fault == Fault::Network) {
            self.error = Some(error);
        }
    }
}

/// Reads the count at each interval until all threads have ended.
fn watch(
    request: &Request,
    watcher: &dyn Watcher,
    shared: &Shared,
    ended: &mpsc::Receiver<Ended>,
    start: Instant,
    sums: &mut Sums,
) -> Vec<Interval> {
    let mut intervals: Vec<Interval> = Vec::new();
    let mut last = (Duration::ZERO, 0);
    let mut due = request.interval;
    loop {
        let now = start.elapsed();
        let told = ended.recv_timeout(due.saturating_sub(now).min(LOOK_ROUND));
        let now = start.elapsed();
        let over = match told {
            Ok(told) => {
                sums.add(told);
                false
            }
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => true,
        };
        if watcher.interrupted() || sums.error.is_some() || matches!(request.amount, Amount::Time(time) if now >= time)
        {
            shared.stop.store(true, Ordering::Release);
        }
        // What is left at the end is told when it is long enough to have a rate.
        if now < due && !(over && now - last.0 >= request.interval / 10) {
            if over {
                return intervals;
            }
            continue;
        }
        let bytes = shared.received_bytes.load(Ordering::Acquire);
        let interval = Interval { start: last.0, end: now, bytes: bytes - last.1 };
        watcher.on_interval(&interval);
        if intervals.len() < INTERVALS_MAX {
            intervals.push(interval);
        }
        last = (now, bytes);
        while due <= now {
            due += request.interval;
        }
        if over {
            return intervals;
        }
    }
}

fn congestion_control_of(socket: &std::net::TcpStream) -> Option<String> {
    haul_sys::socket::congestion_control(socket).ok()
}

/// The two ends of a lane: the first sends.
type Ends = (Stream, Stream);

/// Between two looks at whether somebody wants to stop.
const LOOK_ROUND: Duration = Duration::from_millis(100);

/// Readings that are kept: a day of seconds, 40 bytes each. More are told, and not kept.
pub const INTERVALS_MAX: usize = 86_400;

/// The bytes that one thread moves and hashes before it looks up: with 256 KiB blocks, a clock is read once in sixteen
/// calls.
const CHUNK_BYTES: u64 = 4 << 20;

/// Smallest block.
pub const BLOCK_BYTES_MIN: usize = 4 << 10;

/// Largest block: no route gains from more than a few MiB.
pub const BLOCK_BYTES_MAX: usize = 64 << 20;

/// Most lanes, as for a copy.
pub const LANES_MAX: u16 = 256;

/// The least that a lane has to itself in a source or sink.
const LANE_BYTES_MIN: u64 = 64 << 10;

impl Request {
    /// Zeros to nowhere for ten seconds by whatever is best here.
    pub fn new() -> Request {
        Request {
            source: Source::Zero,
            sink: Sink::Discard,
            send_route: None,
            receive_route: None,
            block_bytes: 256 << 10,
            offset: Offset::Moving,
            lanes: 1,
            cipher: None,
            verify: false,
            amount: Amount::Time(Duration::from_secs(10)),
            interval: Duration::from_secs(1),
            reverse: false,
            congestion_control: None,
            processors: None,
            size_bytes: 1 << 30,
            cold: false,
        }
    }
}

impl Default for Request {
    fn default() -> Self {
        Self::new()
    }
}
