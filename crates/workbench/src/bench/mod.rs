//! Measures how fast each way of moving bytes is on this host alone, and what it costs each side.
//!
//! ```text
//! source (zeros, memory, a file) --pump::send--> loopback connection --pump::receive--> sink (nowhere, memory, a disk)
//!      a thread for each lane          clear or TLS, tuned as those of a copy         a thread for each lane
//! ```
//! Connections, ciphers and routes are a copy's, without its names, journals and receipts. With `verify` both ends hash chunks.

mod alone;
mod lane;
mod prepare;
mod request;
#[cfg(test)]
#[path = "../../tests/inside/bench.rs"]
mod scenarios;
mod shared;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use haul_job::{Error, Fault};
use haul_pump::Dropped;
pub use haul_sys::usage::Usage;

pub use alone::{Disk, disk, memory};
use lane::{Ended, Receiving, Sending};
pub use request::{Amount, BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, LANES_MAX, Offset, Request, Sink, Source};
use shared::{Shared, Start};

/// One reading.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Start, in the run.
    pub start: Duration,
    /// End, in the run.
    pub end: Duration,
    /// Bytes received.
    pub bytes: u64,
}

impl Interval {
    /// The mean rate.
    pub fn bytes_per_s(&self) -> f64 {
        self.bytes as f64 / (self.end - self.start).as_secs_f64().max(1e-6)
    }
}

/// One side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// The last route.
    pub route: &'static str,
    /// Better or requested routes that were refused.
    pub dropped: Vec<Dropped>,
    /// Processor time of its threads, helpers of io_uring included. Later work of the kernel (writing out pages) counts for
    /// neither side.
    pub usage: Usage,
}

impl Side {
    /// Processor time for 10^9 bytes.
    pub fn cpu_s_per_gb(&self, bytes: u64) -> f64 {
        self.usage.total_us() as f64 / 1e6 / (bytes as f64 / 1e9).max(1e-9)
    }
}

/// The results.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Bytes received.
    pub bytes: u64,
    /// Time until the last byte reached its target, though not the medium.
    pub elapsed: Duration,
    /// All readings.
    pub intervals: Vec<Interval>,
    /// The sending threads.
    pub send: Side,
    /// The receiving threads.
    pub receive: Side,
    /// Time of the flush; `None` without a disk.
    pub flush: Option<Duration>,
    /// A lane's most direct writes at once.
    pub writes_in_flight_max: usize,
    /// The kernel sealed TLS records.
    pub sealed_in_kernel: bool,
    /// The kernel opened TLS records.
    pub opened_in_kernel: bool,
    /// The first lane's congestion control.
    pub congestion_control: String,
    /// [`Watcher::interrupted`] ended it.
    pub interrupted: bool,
}

/// The observer of a bench.
pub trait Watcher {
    /// Takes a past interval.
    fn on_interval(&self, interval: &Interval);

    /// Ends the run if true.
    fn interrupted(&self) -> bool {
        false
    }
}

/// Runs a measurement.
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
                    // The dropped end of the lane frees the other.
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

#[derive(Default)]
struct Sums {
    send: Usage,
    receive: Usage,
    writes_in_flight_max: usize,
    sealed_in_kernel: bool,
    opened_in_kernel: bool,
    error: Option<Error>,
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

    /// A failed end breaks the other's connection: the first cause counts.
    fn fail(&mut self, error: Error) {
        if self.error.as_ref().is_none_or(|known| known.fault == Fault::Network) {
            self.error = Some(error);
        }
    }
}

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
        // A last interval needs some length for a rate.
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

const LOOK_ROUND: Duration = Duration::from_millis(100);

/// A day of seconds, 40 bytes each. More are only reported.
pub const INTERVALS_MAX: usize = 86_400;
