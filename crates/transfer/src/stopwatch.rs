//! Where a lane's time goes: work on a processor, or waiting, and for what.

use std::time::Instant;

use haul_sys::clock::thread_cpu_us;
use haul_wire::control::LaneTime;

/// What a lane may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    Storage,
    Network,
    Work,
    Rate,
    /// For nothing: it was told to rest, and its time belongs to nobody.
    Leave,
}

/// Divides the time of one thread. Between two laps the time the thread ran counts as processor time; the rest, while it
/// slept in a system call, counts for what it waited for.
pub(crate) struct Stopwatch {
    at: Instant,
    cpu_us: u64,
    time: LaneTime,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self { at: Instant::now(), cpu_us: thread_cpu_us(), time: LaneTime::default() }
    }

    /// Ends a lap in which the thread worked or waited for `cause`.
    pub(crate) fn lap(&mut self, cause: Waiting) {
        let (now, cpu_us) = (Instant::now(), thread_cpu_us());
        let wall_us = u64::try_from(now.duration_since(self.at).as_micros()).unwrap_or(u64::MAX);
        let worked_us = cpu_us.saturating_sub(self.cpu_us).min(wall_us);
        self.time.cpu_us += worked_us;
        let waited_us = wall_us - worked_us;
        match cause {
            Waiting::Storage => self.time.storage_us += waited_us,
            Waiting::Network => self.time.network_us += waited_us,
            Waiting::Work => self.time.idle_us += waited_us,
            Waiting::Rate => self.time.rate_us += waited_us,
            Waiting::Leave => {}
        }
        self.at = now;
        self.cpu_us = cpu_us;
    }

    pub(crate) fn time(&self) -> LaneTime {
        self.time
    }

    /// Takes what was measured so far.
    pub(crate) fn take(&mut self) -> LaneTime {
        std::mem::take(&mut self.time)
    }
}

/// Adds what another lane used.
pub(crate) fn add(total: &mut LaneTime, lane: &LaneTime) {
    total.storage_us += lane.storage_us;
    total.cpu_us += lane.cpu_us;
    total.network_us += lane.network_us;
    total.idle_us += lane.idle_us;
    total.rate_us += lane.rate_us;
}
