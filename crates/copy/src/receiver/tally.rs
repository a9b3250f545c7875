//! Counts where the time of lanes went, what arrived, and what was finished.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use haul_wire::control::LaneTime;

use haul_channel::stopwatch;
use haul_kept::sync::lock;

#[derive(Default)]
pub(super) struct Tally {
    time: Mutex<LaneTime>,
    /// A bit for each arrived mark (DSCP).
    marks_seen: AtomicU64,
    arrived_bytes: AtomicU64,
    /// Chunks, outcomes, checkpoints and deletions.
    done: AtomicU64,
}

impl Tally {
    pub(super) fn add_time(&self, lane: &LaneTime) {
        stopwatch::add(&mut lock(&self.time), lane);
    }

    pub(super) fn time(&self) -> LaneTime {
        *lock(&self.time)
    }

    pub(super) fn saw_marks(&self, bits: u64) {
        self.marks_seen.fetch_or(bits, Ordering::Relaxed);
    }

    pub(super) fn marks_seen(&self) -> u64 {
        self.marks_seen.load(Ordering::Relaxed)
    }

    pub(super) fn add_arrived(&self, bytes: u64) {
        self.arrived_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn arrived_bytes(&self) -> u64 {
        self.arrived_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn count_done(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
}
