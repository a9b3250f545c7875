//! The rate limit, and what is told of paths while it holds the lanes.
//!
//! Lanes that wait for the limit send in bursts, with pauses in which the path looks idle. So the rate of a path is what passed the
//! limit, and what holds it is the limit.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use haul_engine::pace::TokenBucket;
use haul_wire::summary::{HeldBy, PathNow};

use super::Shared;
use crate::sync::lock;

/// The limit of one job.
pub(super) struct Paced {
    bucket: Mutex<TokenBucket>,
    started: Instant,
    waited_us: AtomicU64,
    passed_bytes: AtomicU64,
    /// Both of them, when the paths were told last.
    told: Mutex<(u64, u64, Instant)>,
}

impl Paced {
    pub(super) fn new(rate_bytes_per_s: u64) -> Self {
        let started = Instant::now();
        Self {
            bucket: Mutex::new(TokenBucket::new(rate_bytes_per_s, 0)),
            started,
            waited_us: AtomicU64::new(0),
            passed_bytes: AtomicU64::new(0),
            told: Mutex::new((0, 0, started)),
        }
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// From now on this is the limit.
    pub(super) fn set_rate(&self, bytes_per_s: u64) {
        lock(&self.bucket).set_rate(bytes_per_s, self.now_us());
    }

    fn pace(&self, bytes: u64) -> bool {
        let wait_us = lock(&self.bucket).take(bytes, self.now_us());
        if wait_us > 0 {
            // The rate limit is the one place where a lane sleeps by the clock.
            std::thread::sleep(Duration::from_micros(wait_us));
        }
        self.waited_us.fetch_add(wait_us, Ordering::Relaxed);
        self.passed_bytes.fetch_add(bytes, Ordering::Relaxed);
        wait_us > 0
    }

    /// The rate since the last call, if the lanes waited for the limit most of the time.
    fn holds(&self, lanes: u32) -> Option<u64> {
        let now = (self.waited_us.load(Ordering::Relaxed), self.passed_bytes.load(Ordering::Relaxed), Instant::now());
        let before = std::mem::replace(&mut *lock(&self.told), now);
        let seconds = now.2.duration_since(before.2).as_secs_f64();
        let waited_s = now.0.saturating_sub(before.0) as f64 / 1e6;
        let holds = seconds > 0.0 && waited_s > seconds * f64::from(lanes.max(1)) / 2.0;
        holds.then(|| (now.1.saturating_sub(before.1) as f64 / seconds) as u64)
    }
}

impl Shared {
    /// Waits as long as the rate limit says.
    pub(in crate::session::sender) fn pace(&self, bytes: u64) -> bool {
        self.paced.as_ref().is_some_and(|paced| paced.pace(bytes))
    }

    /// The paths as they are told.
    pub(in crate::session::sender) fn as_paced(&self, mut paths: Vec<PathNow>) -> Vec<PathNow> {
        if paths.is_empty() {
            return paths;
        }
        let lanes = self.lanes.load(Ordering::Relaxed);
        let Some(rate) = self.paced.as_ref().and_then(|paced| paced.holds(lanes)) else { return paths };
        let all = paths.iter().map(|path| path.rate_bytes_per_s).sum::<u64>();
        let number = paths.len() as u64;
        for path in &mut paths {
            path.held_by = HeldBy::RateLimit;
            path.rate_bytes_per_s = match all {
                0 => rate / number,
                _ => u64::try_from(u128::from(rate) * u128::from(path.rate_bytes_per_s) / u128::from(all))
                    .unwrap_or(rate),
            };
        }
        paths
    }
}
