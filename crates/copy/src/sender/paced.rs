//! The rate limit of one job, and what passes it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use haul_engine::pace::TokenBucket;
use haul_kept::sync::lock;

/// One job's limit, which may change while lanes wait.
pub(super) struct Paced {
    limit: Mutex<Limit>,
    changed: Condvar,
    /// Without a limit nobody takes the lock.
    is_limited: AtomicBool,
    started: Instant,
    waited_us: AtomicU64,
    passed_bytes: AtomicU64,
    /// Both counts, when the paths were last told.
    told: Mutex<(u64, u64, Instant)>,
}

struct Limit {
    bytes_per_s: Option<u64>,
    bucket: TokenBucket,
    is_over: bool,
}

impl Paced {
    pub(super) fn new(bytes_per_s: Option<u64>) -> Self {
        let started = Instant::now();
        let bucket = TokenBucket::new(bytes_per_s.unwrap_or(u64::MAX), 0);
        Self {
            limit: Mutex::new(Limit { bytes_per_s, bucket, is_over: false }),
            changed: Condvar::new(),
            is_limited: AtomicBool::new(bytes_per_s.is_some()),
            started,
            waited_us: AtomicU64::new(0),
            passed_bytes: AtomicU64::new(0),
            told: Mutex::new((0, 0, started)),
        }
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Sets the limit, also for those who wait.
    pub(super) fn set_rate(&self, bytes_per_s: Option<u64>) {
        let mut limit = lock(&self.limit);
        match (limit.bytes_per_s, bytes_per_s) {
            (None, Some(rate)) => limit.bucket = TokenBucket::new(rate, self.now_us()),
            (Some(_), Some(rate)) => limit.bucket.set_rate(rate, self.now_us()),
            (_, None) => {}
        }
        limit.bytes_per_s = bytes_per_s;
        self.is_limited.store(bytes_per_s.is_some(), Ordering::Relaxed);
        self.changed.notify_all();
    }

    pub(super) fn end(&self) {
        lock(&self.limit).is_over = true;
        self.changed.notify_all();
    }

    /// Waits until so many bytes may go. Returns true if they had to wait.
    pub(super) fn pace(&self, bytes: u64) -> bool {
        if !self.is_limited.load(Ordering::Relaxed) {
            return false;
        }
        let mut limit = lock(&self.limit);
        let Some(mut rate) = limit.bytes_per_s else { return false };
        let mut left_us = limit.bucket.take(bytes, self.now_us());
        let begun = Instant::now();
        let waits = left_us > 0;
        // Only for the rate limit does a lane sleep by the clock.
        while left_us > 0 && !limit.is_over {
            let since = Instant::now();
            let waited = self.changed.wait_timeout(limit, Duration::from_micros(left_us));
            limit = waited.unwrap_or_else(PoisonError::into_inner).0;
            left_us = left_us.saturating_sub(u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX));
            let Some(now) = limit.bytes_per_s else { break };
            left_us = at_rate(left_us, rate, now);
            rate = now;
        }
        drop(limit);
        self.waited_us.fetch_add(u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.passed_bytes.fetch_add(bytes, Ordering::Relaxed);
        waits
    }

    /// The rate since the last call, if lanes mostly waited for the limit.
    pub(super) fn holds(&self, lanes: u32) -> Option<u64> {
        let now = (self.waited_us.load(Ordering::Relaxed), self.passed_bytes.load(Ordering::Relaxed), Instant::now());
        let before = std::mem::replace(&mut *lock(&self.told), now);
        let seconds = now.2.duration_since(before.2).as_secs_f64();
        let waited_s = now.0.saturating_sub(before.0) as f64 / 1e6;
        let holds = seconds > 0.0 && waited_s > seconds * f64::from(lanes.max(1)) / 2.0;
        holds.then(|| (now.1.saturating_sub(before.1) as f64 / seconds) as u64)
    }
}

/// The rest of a wait at another rate.
fn at_rate(left_us: u64, before: u64, now: u64) -> u64 {
    let left = u128::from(left_us) * u128::from(before.max(1)) / u128::from(now.max(1));
    u64::try_from(left).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    /// A day's bytes for a lane.
    const A_DAY: u64 = 1_000_000 * 86_400;

    #[test]
    fn a_lane_that_waits_goes_on_when_the_limit_is_lifted_or_raised_or_the_session_ends() {
        let lifted: [fn(&Paced); 3] =
            [|paced| paced.set_rate(None), |paced| paced.set_rate(Some(u64::MAX / 4)), |paced| paced.end()];
        for change in lifted {
            let paced = Arc::new(Paced::new(Some(1_000_000)));
            let lane = Arc::clone(&paced);
            let lane = thread::spawn(move || lane.pace(A_DAY));
            change(&paced);
            while !lane.is_finished() {
                change(&paced);
                thread::yield_now();
            }
            lane.join().unwrap();
        }
    }

    #[test]
    fn a_limit_may_come_later_and_without_one_nobody_waits() {
        let paced = Paced::new(None);
        assert!(!paced.pace(A_DAY));
        paced.set_rate(Some(u64::MAX / 4));
        assert!(paced.is_limited.load(Ordering::Relaxed));
        paced.set_rate(None);
        assert!(!paced.pace(A_DAY));
    }

    #[test]
    fn what_is_left_to_wait_follows_the_rate() {
        assert_eq!(at_rate(1_000_000, 10, 5), 2_000_000);
        assert_eq!(at_rate(1_000_000, 5, 10), 500_000);
        assert_eq!(at_rate(1_000_000, 10, 10), 1_000_000);
        assert_eq!(at_rate(u64::MAX, u64::MAX, 1), u64::MAX);
    }
}
