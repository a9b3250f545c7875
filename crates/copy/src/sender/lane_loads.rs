//! Tells of each lane of a sender what it has in hand, and where its time went.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use haul_wire::control::LaneTime;

use haul_channel::stopwatch;
use haul_kept::sync::lock;

#[derive(Default)]
pub(super) struct LaneLoads {
    carrying: AtomicU32,
    left_bytes: Mutex<BTreeMap<u16, Arc<AtomicU64>>>,
    time: Mutex<LaneTime>,
    /// The time of each other lane at its last pause, and that moment.
    so_far: Mutex<BTreeMap<u16, (LaneTime, Instant)>>,
}

impl LaneLoads {
    pub(super) fn begin(&self, lane: u16) -> Arc<AtomicU64> {
        self.carrying.fetch_add(1, Ordering::Relaxed);
        let left = Arc::new(AtomicU64::new(0));
        lock(&self.left_bytes).insert(lane, Arc::clone(&left));
        left
    }

    pub(super) fn pauses(&self, lane: u16, time: LaneTime) {
        lock(&self.so_far).insert(lane, (time, Instant::now()));
    }

    pub(super) fn end(&self, lane: u16, time: &LaneTime) {
        self.carrying.fetch_sub(1, Ordering::Relaxed);
        lock(&self.so_far).remove(&lane);
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

    /// The time of all lanes, while some still run. A paused lane waits as in
    /// [`Stopwatch::lap_for_units`](haul_channel::stopwatch::Stopwatch::lap_for_units).
    pub(super) fn time_so_far(&self, last_receipt: impl Fn(u16) -> Option<Instant>) -> LaneTime {
        let mut total = self.time();
        for (lane, (time, paused)) in &*lock(&self.so_far) {
            let waited =
                last_receipt(*lane).map_or(Duration::ZERO, |receipt| receipt.saturating_duration_since(*paused));
            let waited_us = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
            stopwatch::add(&mut total, &LaneTime { network_us: time.network_us.saturating_add(waited_us), ..*time });
        }
        total
    }
}
