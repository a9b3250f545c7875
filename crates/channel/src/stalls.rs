//! Judges when a peer or a disk is too slow to wait for.

use std::time::{Duration, Instant};

/// The least speed of storage: a side gets so much extra time to compare or flush. A checkpoint's 256 MiB are four minutes.
const LEAST_STORAGE_BYTES_PER_S: u64 = 1 << 20;

/// The slowest disk's time for so many bytes.
pub fn time_to_store(bytes: u64) -> Duration {
    Duration::from_secs(bytes / LEAST_STORAGE_BYTES_PER_S)
}

/// Judges a sender by arriving payload.
pub struct Progress {
    bytes: u64,
    done: u64,
    since: Instant,
    /// The last moment when something was finished, or nothing was to do.
    done_at: Instant,
}

/// Half of the least rate limit, since the limit may change. In 60 s a peer brings 30 kB, or finishes something.
const LEAST_BYTES_PER_S: u64 = haul_job::rate::MIN_RATE_BYTES_PER_S / 2;

/// Data without one complete chunk for so long will never be a file: 16 MiB (a chunk of 1 TiB) on each of 64 lanes takes this
/// long at 12 kB/s in all.
pub const MAX_IN_VAIN: Duration = Duration::from_secs(24 * 60 * 60);

impl Progress {
    /// Begins now.
    pub fn new(now: Instant) -> Self {
        Self { bytes: 0, done: 0, since: now, done_at: now }
    }

    /// Leaves out time in which our loop was busy.
    pub fn exclude_own_time(&mut self, busy: Duration) {
        self.since += busy;
        self.done_at += busy;
    }

    /// Whether `timeout` passed with work, few bytes and nothing finished, as counted from the session's start.
    pub fn is_stalled(&mut self, has_work: bool, bytes: u64, done: u64, now: Instant, timeout: Duration) -> bool {
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        let least = LEAST_BYTES_PER_S.saturating_mul(timeout_ms) / 1000;
        if done != self.done || !has_work {
            self.done_at = now;
        }
        let moves = bytes.saturating_sub(self.bytes) >= least.max(1) || done != self.done;
        if moves || !has_work {
            (self.bytes, self.done, self.since) = (bytes, done, now);
            return false;
        }
        self.stands_for(now) > timeout
    }

    /// The time without progress at the last `is_stalled`.
    pub fn stands_for(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    /// Whether bytes came and nothing was finished, at the last `is_stalled`.
    pub fn is_in_vain(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.done_at) > MAX_IN_VAIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_that_never_becomes_a_chunk_is_in_vain() {
        let start = Instant::now();
        let (day, hour, tick) = (MAX_IN_VAIN, Duration::from_secs(3600), Duration::from_millis(1));
        let mut progress = Progress::new(start);
        let mut bytes = 0;
        let mut comes = |progress: &mut Progress, has_work, done, at: Duration| {
            bytes += 1 << 30;
            assert!(!progress.is_stalled(has_work, bytes, done, start + at, hour));
            progress.is_in_vain(start + at)
        };
        assert!(!comes(&mut progress, true, 1, hour));
        assert!(!comes(&mut progress, true, 1, day + hour));
        assert!(comes(&mut progress, true, 1, day + hour + tick));
        assert!(!comes(&mut progress, true, 2, day + 2 * hour), "a chunk was complete");
        assert!(!comes(&mut progress, false, 2, 2 * day), "nothing was to be done");
        progress.exclude_own_time(hour);
        assert!(!comes(&mut progress, true, 2, 3 * day + hour));
        assert!(comes(&mut progress, true, 2, 3 * day + hour + tick));
    }

    #[test]
    fn a_byte_now_and_then_is_no_progress() {
        let start = Instant::now();
        let at = |s: u64| start + Duration::from_secs(s);
        const TIMEOUT: Duration = Duration::from_secs(60);
        let mut progress = Progress::new(start);
        assert!((1..=60).all(|s| !progress.is_stalled(true, s, 0, at(s), TIMEOUT)));
        assert!(progress.is_stalled(true, 61, 0, at(61), TIMEOUT));
        for (has_work, bytes, done) in [(true, 61, 1), (true, 61 + (60 << 10), 1), (false, 61 + (60 << 10), 1)] {
            let mut progress = Progress { bytes: 61, ..Progress::new(start) };
            assert!(!progress.is_stalled(has_work, bytes, done, at(61), TIMEOUT));
            assert!(progress.is_stalled(true, bytes, done, at(122), TIMEOUT));
        }
        let mut progress = Progress::new(start);
        progress.exclude_own_time(Duration::from_secs(300));
        assert!(!progress.is_stalled(true, 0, 0, at(360), TIMEOUT), "what our own loop took is not the peer's");
        assert!(progress.is_stalled(true, 0, 0, at(361), TIMEOUT));
        let mut slow = Progress::new(start);
        assert!(!slow.is_stalled(true, 30_000, 0, at(61), TIMEOUT), "half of what the least rate limit allows");
    }
}
