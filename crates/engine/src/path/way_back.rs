//! What stands on the way back: acknowledgements that wait delay nobody's data.
//!
//! If others, or our acknowledgements, fill the uplink, the round-trip time grows as if the lanes had made a queue. The far
//! side's words wait there, too, and their time by two clocks shows it (RFC 6817, section 2.1.1). On the way out words may have a
//! mark or a queue of their own.

use alloc::collections::VecDeque;

/// A far word's time by two clocks: only changes mean something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OneWay {
    /// When it was sent, by the far clock.
    pub sent_us: u64,
    /// Our clock at its arrival, less that time.
    pub took_us: i64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct WayBack {
    last_sent_us: Option<u64>,
    least_us: [Option<i64>; 2],
    span_began_us: u64,
    first_us: Option<i64>,
    recent: VecDeque<Heard>,
}

#[derive(Clone, Copy, Debug)]
struct Heard {
    at_us: u64,
    late_us: u32,
}

impl WayBack {
    pub(super) fn on_word(&mut self, at_us: u64, word: OneWay) {
        if self.last_sent_us.replace(word.sent_us) == Some(word.sent_us) {
            return;
        }
        self.first_us.get_or_insert(word.took_us);
        // Quartz clocks drift apart by some 50 us a second.
        if at_us.saturating_sub(self.span_began_us) > SPAN_US {
            (self.least_us, self.span_began_us) = ([self.least_us[1], None], at_us);
        }
        self.least_us[1] = Some(self.least_us[1].map_or(word.took_us, |least| least.min(word.took_us)));
        let late_us = word.took_us.saturating_sub(self.least().unwrap_or(word.took_us));
        if self.recent.len() == WORDS {
            self.recent.pop_front();
        }
        self.recent.push_back(Heard { at_us, late_us: u32::try_from(late_us).unwrap_or(u32::MAX) });
    }

    fn least(&self) -> Option<i64> {
        self.least_us.into_iter().flatten().min()
    }

    /// The longer of the last two readings; 0: none known.
    pub(super) fn queue_us(&self, at_us: u64, rtt_min_us: u32) -> u32 {
        let least_us = (rtt_min_us / 20).max(BACK_US_MIN);
        let Some(oldest) = self.recent.front().filter(|_| self.recent.len() == WORDS) else { return 0 };
        let is_new = at_us.saturating_sub(oldest.at_us) < FRESH_US;
        let stands = is_new && self.recent.iter().all(|heard| heard.late_us > least_us);
        let last = self.recent.iter().rev().take(2).map(|heard| heard.late_us).max().unwrap_or(0);
        if stands { last } else { 0 }
    }

    pub(super) fn fell_by_us(&self) -> u32 {
        let (first, least) = self.first_us.zip(self.least()).unwrap_or_default();
        u32::try_from(first.saturating_sub(least)).unwrap_or(u32::MAX)
    }
}

/// A second of words.
const WORDS: usize = 4;
/// Words come four times a second.
const FRESH_US: u64 = 3_000_000;
/// A shorter delay is jitter (`pacing::STOOD_US_MIN`).
const BACK_US_MIN: u32 = 5_000;
/// In twice this time clocks drift by 6 ms.
const SPAN_US: u64 = 60_000_000;

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn after(times: &[i64]) -> (WayBack, u64) {
        let mut way = WayBack::default();
        let mut at_us = 0;
        for took_us in times {
            at_us += 250_000;
            way.on_word(at_us, OneWay { sent_us: at_us, took_us: *took_us });
        }
        (way, at_us)
    }

    #[test]
    fn a_queue_that_stands_for_a_second_is_known_whatever_the_clocks_say() {
        let clocks = -7_000_000_000;
        let (way, at_us) = after(&[0, 60, 70, 50, 65].map(|ms| clocks + ms * 1000));
        assert_eq!(way.queue_us(at_us, 30_000), 65_000);
        let (way, at_us) = after(&[0, 60, 70, 0, 65].map(|ms| clocks + ms * 1000));
        assert_eq!(way.queue_us(at_us, 30_000), 0, "it was gone for a moment");
        let (way, at_us) = after(&[clocks; 8]);
        assert_eq!(way.queue_us(at_us, 30_000), 0);
    }

    #[test]
    fn what_is_old_or_said_twice_tells_nothing() {
        let (mut way, at_us) = after(&[0, 60_000, 60_000, 60_000]);
        way.on_word(at_us, OneWay { sent_us: at_us, took_us: 60_000 });
        assert_eq!(way.queue_us(at_us, 30_000), 0, "there are three late words");
        let (way, at_us) = after(&[0, 60_000, 60_000, 60_000, 60_000]);
        assert_eq!(way.queue_us(at_us + FRESH_US, 30_000), 0);
    }

    #[test]
    fn the_way_becomes_shorter_when_others_leave_and_clocks_may_say_anything() {
        assert_eq!(after(&[80_000, 90_000, 40_000]).0.fell_by_us(), 40_000);
        assert_eq!(after(&[]).0.fell_by_us(), 0);
        let (way, at_us) = after(&[i64::MAX, i64::MIN, i64::MAX, i64::MIN]);
        assert_eq!((way.fell_by_us(), way.queue_us(at_us, 0)), (u32::MAX, 0));
    }

    #[test]
    fn clocks_that_drift_apart_make_no_queue() {
        let times: Vec<i64> = (0..4 * 3_600).map(|word: i64| word * 250_000 / 20_000).collect();
        let (way, _) = after(&times);
        assert!(way.recent.iter().all(|heard| heard.late_us < 8_000), "{way:?}");
    }
}
