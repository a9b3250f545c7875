//! The place of one connection among those that carry data: whether it is in use, and how far it is behind.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The place of a connection among those that carry data.
#[derive(Debug, Default)]
pub(crate) struct Place {
    pub(crate) is_written: AtomicBool,
    pub(crate) has_phase: AtomicBool,
    /// How long the server took to confirm writes, in microseconds, smoothed; 0 before the first.
    pub(crate) confirms_in_us: AtomicU64,
}

impl Place {
    /// A write was confirmed, so long after it was sent.
    pub(crate) fn confirmed(&self, took: Duration) {
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
        let before_us = self.confirms_in_us.load(Ordering::Relaxed);
        let smoothed_us = if before_us == 0 { took_us } else { before_us - before_us / 8 + took_us / 8 };
        self.confirms_in_us.store(smoothed_us.max(1), Ordering::Relaxed);
    }

    /// The bytes that may be under way, where the quickest connection confirms in `least_us`.
    pub(crate) fn room_bytes(&self, least_us: u64) -> usize {
        let may_take_us = least_us.saturating_mul(MAY_TAKE);
        match self.confirms_in_us.load(Ordering::Relaxed) {
            0 => FIRST_BYTES,
            us if us <= may_take_us => usize::MAX,
            us => usize::try_from(WINDOW_BYTES * may_take_us / us).unwrap_or(usize::MAX).max(FIRST_BYTES / 2),
        }
    }
}

/// A connection is behind if it takes so many times as long as the quickest.
const MAY_TAKE: u64 = 2;

/// What goes over a connection before its first answer: ten segments, doubled five times.
const FIRST_BYTES: usize = 512 << 10;

/// The window of a channel of OpenSSH.
const WINDOW_BYTES: u64 = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_is_behind_gets_less() {
        let place = Place::default();
        assert_eq!(place.room_bytes(300_000), FIRST_BYTES, "nothing is known of it");
        place.confirmed(Duration::from_millis(500));
        assert_eq!(place.room_bytes(300_000), usize::MAX);
        for _ in 0..100 {
            place.confirmed(Duration::from_millis(1200));
        }
        let room_bytes = place.room_bytes(300_000);
        assert!((1 << 20..12 << 17).contains(&room_bytes), "a half of the window: {room_bytes}");
    }
}
