//! Each lane of a sender tells what it has in hand, and where its time went.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use haul_wire::control::LaneTime;

use haul_channel::stopwatch;
use haul_kept::sync::lock;

#[derive(Default)]
pub(super) struct LaneLoads {
    carrying: AtomicU32,
    /// A lane has taken these bytes, and not given them to its connection.
    left_bytes: Mutex<BTreeMap<u16, Arc<AtomicU64>>>,
    time: Mutex<LaneTime>,
}

impl LaneLoads {
    /// The lane counts here what it has taken, and not given to its connection.
    pub(super) fn begin(&self, lane: u16) -> Arc<AtomicU64> {
        self.carrying.fetch_add(1, Ordering::Relaxed);
        let left = Arc::new(AtomicU64::new(0));
        lock(&self.left_bytes).insert(lane, Arc::clone(&left));
        left
    }

    pub(super) fn end(&self, time: &LaneTime) {
        self.carrying.fetch_sub(1, Ordering::Relaxed);
        stopwatch::add(&mut lock(&self.time), time);
    }

    pub(super) fn carrying(&self) -> u32 {
        self.carrying.load(Ordering::Relaxed)
    }

    pub(super) fn left_bytes(&self, lanes: &[u16]) -> Vec<u64> {
        let left = lock(&self.left_bytes);
        lanes.iter().map(|lane| left.get(lane).map_or(0, |left| left.load(Ordering::Relaxed))).collect()
    }

    pub(super) fn time(&self) -> LaneTime {
        *lock(&self.time)
    }
}
