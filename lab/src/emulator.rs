//! Carries packets between TUN devices, a thread for each link or segment.
//!
//! Send packets that are due -> read the devices -> wait for a device or the next due time -> repeat. The thread counts its
//! own lateness, so a lab without enough processor time is known to be invalid.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use haul_sys::poll::{self, Interest};
use haul_sys::tun::Tun;

use crate::frame::Frame;
use crate::limits;
use crate::pcap::Capture;
use crate::shape::{Counters, Direction, LinkChange, Nanos, Payload, Segment};

/// The time since a lab's start.
#[derive(Clone, Copy, Debug)]
pub struct LabClock {
    start: Instant,
    start_since_epoch: Duration,
}

impl LabClock {
    /// Starts at zero.
    pub fn start() -> LabClock {
        let start_since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        LabClock { start: Instant::now(), start_since_epoch }
    }

    /// The time since the start.
    pub fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn since_epoch(&self, at: Nanos) -> Duration {
        self.start_since_epoch + Duration::from_nanos(at.0)
    }
}

/// The rule by which packets pass.
pub enum Wire {
    /// Two directions, from device 0 to 1 and back.
    Link {
        /// The directions.
        directions: Box<[Direction<Frame>; 2]>,
        /// Events by their times since `began`.
        changes: VecDeque<Change>,
        /// When the command began; no event happens before.
        began: Arc<OnceLock<Nanos>>,
    },
    /// A medium that all devices share.
    Segment {
        /// The medium.
        medium: Box<Segment<Frame>>,
        /// Finds the receiver of a packet.
        route: Box<RouteOnSegment>,
    },
}

/// A timed change of a link and its devices.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// The time since the command began.
    pub at: Nanos,
    /// The change of both directions.
    pub link: LinkChange,
    /// Whether both devices have a carrier from now on.
    pub carrier: Option<bool>,
}

/// `(sender, packet)` gives the receiver; `None` for an unknown address.
pub type RouteOnSegment = dyn Fn(usize, &Frame) -> Option<usize> + Send;

/// Counters of a wire, shared with its watcher.
#[derive(Debug, Default)]
pub struct Watched {
    delivered: AtomicU64,
    late: AtomicU64,
    latest_us: AtomicU64,
    refused: AtomicU64,
    counters: Mutex<Vec<Counters>>,
}

/// The lateness of a wire's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// Packets handed out.
    pub delivered: u64,
    /// Packets later than [`limits::LATE`].
    pub late: u64,
    /// The largest lateness.
    pub latest_us: u64,
}

impl Watched {
    /// Takes the lateness since the last call.
    pub fn take_lateness(&self) -> Lateness {
        Lateness {
            delivered: self.delivered.swap(0, Ordering::Relaxed),
            late: self.late.swap(0, Ordering::Relaxed),
            latest_us: self.latest_us.swap(0, Ordering::Relaxed),
        }
    }

    /// Packets that a host refused so far.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Counters of each direction, or of the segment.
    pub fn counters(&self) -> Vec<Counters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn handed_out(&self, late_by: Duration) {
        self.delivered.fetch_add(1, Ordering::Relaxed);
        if late_by > limits::LATE {
            self.late.fetch_add(1, Ordering::Relaxed);
        }
        let late_us = u64::try_from(late_by.as_micros()).unwrap_or(u64::MAX);
        self.latest_us.fetch_max(late_us, Ordering::Relaxed);
    }
}

/// A wire with its devices.
pub struct Emulated {
    /// Devices in the order of the wire's ends.
    pub devices: Vec<Tun>,
    /// Packets have a virtio header.
    pub has_header: bool,
    /// The rule for packets.
    pub wire: Wire,
    /// Records packets as they enter.
    pub capture: Option<Capture>,
    /// The counters shared with the watcher.
    pub watched: Arc<Watched>,
}

impl Emulated {
    /// Carries packets until `stop`; an error tells why it cannot go on.
    pub fn run(mut self, clock: LabClock, stop: &AtomicBool) -> io::Result<()> {
        // Ends waits on time, not up to 50 us later (prctl(2), PR_SET_TIMERSLACK).
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        // Time slices of the measured tools would delay the link. Not SCHED_RR: each wake-up on an idle machine would change
        // the processor, for 0.07 ms.
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), limits::MOST_URGENT);
        let mut spare = Spare::default();
        let mut scratch = vec![0; limits::DEVICE_READ_BYTES];
        let mut told = clock.now();
        while !stop.load(Ordering::Relaxed) {
            self.hand_out(&clock, &mut spare);
            let idle = !self.take_in(&clock, &mut scratch, &mut spare)?;
            let now = clock.now();
            if now.0.saturating_sub(told.0) > TELL_EVERY.as_nanos() as u64 {
                told = now;
                *self.watched.counters.lock().unwrap_or_else(PoisonError::into_inner) = self.wire.counters();
            }
            if idle {
                self.wait(now)?;
            }
        }
        match self.capture.take() {
            Some(capture) => capture.finish(),
            None => Ok(()),
        }
    }

    fn hand_out(&mut self, clock: &LabClock, spare: &mut Spare) {
        let now = clock.now();
        let (devices, watched) = (&self.devices, &self.watched);
        let mut deliver = |device: usize, due: Nanos, frame: Frame| {
            // A host with a full queue or without its device loses the packet, like a real one.
            if devices[device].write(frame.device_bytes()).is_err() {
                watched.refused.fetch_add(1, Ordering::Relaxed);
            }
            watched.handed_out(Duration::from_nanos(clock.now().0.saturating_sub(due.0)));
            spare.put(frame);
        };
        match &mut self.wire {
            Wire::Link { directions, changes, began } => {
                while let Some(at) = next_change(changes, began).filter(|at| *at <= now) {
                    if let Some(change) = changes.pop_front() {
                        directions.iter_mut().for_each(|direction| direction.change(at, &change.link));
                        if let Some(has_carrier) = change.carrier {
                            // A kernel before 5.0 keeps the carrier: packets stop, unannounced.
                            devices.iter().for_each(|device| drop(device.set_carrier(has_carrier)));
                        }
                    }
                }
                for (from, direction) in directions.iter_mut().enumerate() {
                    direction.advance(now, &mut |due, frame| deliver(1 - from, due, frame));
                }
            }
            Wire::Segment { medium, .. } => {
                medium.advance(now, &mut |due, station, frame| deliver(station, due, frame))
            }
        }
    }

    fn take_in(&mut self, clock: &LabClock, scratch: &mut [u8], spare: &mut Spare) -> io::Result<bool> {
        let mut any = false;
        for (from, device) in self.devices.iter().enumerate() {
            for _ in 0..limits::FRAMES_AT_ONCE {
                let read = match device.read(scratch) {
                    Ok(read) => read,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                };
                any = true;
                let frame = Frame::from_device(&scratch[..read], self.has_header, spare.take());
                let now = clock.now();
                if let Some(capture) = &mut self.capture {
                    capture.packet(clock.since_epoch(now), frame.ip())?;
                }
                match &mut self.wire {
                    Wire::Link { directions, .. } => directions[from].offer(now, frame),
                    Wire::Segment { medium, route } => {
                        if let Some(to) = route(from, &frame) {
                            medium.offer(now, from, Some(to), frame);
                        }
                    }
                }
            }
        }
        Ok(any)
    }

    fn wait(&self, now: Nanos) -> io::Result<()> {
        let due = self.wire.next_at().map(|at| Duration::from_nanos(at.0.saturating_sub(now.0)));
        let watched: Vec<_> = self.devices.iter().map(|device| (device.as_fd(), Interest::Read)).collect();
        poll::wait(&watched, Some(due.map_or(STOP_CHECK, |due| due.min(STOP_CHECK)))).map(drop)
    }
}

impl Wire {
    fn next_at(&self) -> Option<Nanos> {
        match self {
            Wire::Link { directions, changes, began } => {
                let due = directions.iter().filter_map(Direction::next_at);
                due.chain(next_change(changes, began)).min()
            }
            Wire::Segment { medium, .. } => medium.next_at(),
        }
    }

    fn counters(&self) -> Vec<Counters> {
        match self {
            Wire::Link { directions, .. } => directions.iter().map(Direction::counters).collect(),
            Wire::Segment { medium, .. } => vec![medium.counters()],
        }
    }
}

fn next_change(changes: &VecDeque<Change>, began: &OnceLock<Nanos>) -> Option<Nanos> {
    let (change, began) = (changes.front()?, began.get()?);
    Some(began.after(Duration::from_nanos(change.at.0)))
}

impl Payload for Frame {
    fn ip_bytes(&self) -> u32 {
        Frame::ip_bytes(self)
    }

    fn packets(&self) -> u32 {
        Frame::packets(self)
    }

    fn dscp(&self) -> u8 {
        Frame::dscp(self)
    }

    fn flip_bit(&mut self, nth: u64) {
        Frame::flip_bit(self, nth);
    }
}

/// Buffers for reuse: a link in steady state allocates no memory.
#[derive(Default)]
struct Spare {
    buffers: Vec<Vec<u8>>,
}

impl Spare {
    fn take(&mut self) -> Vec<u8> {
        self.buffers.pop().unwrap_or_default()
    }

    fn put(&mut self, frame: Frame) {
        if self.buffers.len() < limits::SPARE_BUFFERS {
            self.buffers.push(frame.into_buffer());
        }
    }
}

const STOP_CHECK: Duration = Duration::from_millis(100);

const TELL_EVERY: Duration = Duration::from_millis(100);
