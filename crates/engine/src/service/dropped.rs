//! Whether packets with a mark arrive at all: some networks drop them.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::policy::Policy;
use super::reading::{Allowance, Reading};
use super::said::Said;
use crate::path::LaneReading;

/// Watches the marked lanes of a path. Its answer holds for the session.
///
/// A lane begins unmarked, so its first bytes prove nothing. A silent path is dialled again: the silence of all tries counts.
#[derive(Clone, Debug, Default)]
pub struct Dropped {
    state: State,
    first: BTreeMap<u16, u64>,
    last_us: Option<u64>,
    silent_us: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Unknown,
    Arrives,
    Dropped,
}

impl Dropped {
    /// Takes a reading. True once: marks do not arrive.
    pub fn watch_marked(&mut self, at_us: u64, rtt_us: u32, lanes: &[LaneReading]) -> bool {
        if self.state != State::Unknown {
            return false;
        }
        let span_us = at_us.saturating_sub(self.last_us.replace(at_us).unwrap_or(at_us)).min(SPAN_US_MAX);
        let mut is_under_way = false;
        for lane in lanes {
            let first = self.first.entry(lane.lane).or_insert(lane.acked_bytes);
            // The number has another connection.
            *first = (*first).min(lane.acked_bytes);
            if lane.acked_bytes - *first > UNMARKED_BYTES {
                self.state = State::Arrives;
                self.first.clear();
                return false;
            }
            let sent = lane.sent_bytes.saturating_sub(lane.resent_bytes);
            is_under_way |= sent > lane.acked_bytes.saturating_add(lane.mss_bytes.into());
        }
        if is_under_way {
            self.silent_us = self.silent_us.saturating_add(span_us);
        }
        let is_certain = self.silent_us >= SILENT_US.max(ROUND_TRIPS * u64::from(rtt_us));
        if is_certain {
            self.state = State::Dropped;
            self.first.clear();
        }
        is_certain
    }

    /// True if nothing marked arrives.
    pub fn is_certain(&self) -> bool {
        self.state == State::Dropped
    }
}

impl Policy for Dropped {
    fn on_sample(&mut self, reading: &Reading<'_>, allowance: Allowance, say: &mut Vec<Said>) -> Allowance {
        let is_marked = allowance.marked > 0 && reading.may_mark(allowance.class);
        if !self.is_certain() && is_marked && self.watch_marked(reading.at_us, reading.estimate.rtt_us, reading.lanes) {
            say.push(Said::Dropped(allowance.class));
        }
        if self.is_certain() { Allowance { bounded: 0, ..allowance.without_mark() } } else { allowance }
    }
}

/// Bytes that may be under way when a lane gets its mark.
const UNMARKED_BYTES: u64 = 64 << 10;

/// Slow paths start within it, and any timeout is far longer.
const SILENT_US: u64 = 2_000_000;
const ROUND_TRIPS: u64 = 8;
/// Between two lanes nobody is silent.
const SPAN_US_MAX: u64 = 200_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(number: u16, sent_bytes: u64, acked_bytes: u64) -> LaneReading {
        LaneReading { lane: number, sent_bytes, acked_bytes, mss_bytes: 1_448, ..LaneReading::default() }
    }

    /// The answer in seconds, if there is one.
    fn answer(watch: &mut Dropped, from_us: u64, rtt_us: u32, lanes: &dyn Fn(u64) -> LaneReading) -> Option<f64> {
        (0..200)
            .map(|n| from_us + n * 100_000)
            .find(|at| watch.watch_marked(*at, rtt_us, &[lanes(*at)]))
            .map(|at| at as f64 / 1e6)
    }

    #[test]
    fn marked_data_that_never_arrives_is_noticed_in_two_seconds_or_eight_round_trips() {
        assert_eq!(answer(&mut Dropped::default(), 0, 20_000, &|_| lane(0, 90_000, 5_000)), Some(2.0));
        assert_eq!(answer(&mut Dropped::default(), 0, 500_000, &|_| lane(0, 90_000, 5_000)), Some(4.0));
    }

    #[test]
    fn lanes_that_are_given_up_and_dialled_again_count_together() {
        let mut watch = Dropped::default();
        for (n, from_us) in [0, 5_000_000].into_iter().enumerate() {
            (0..9).for_each(|at| {
                assert!(!watch.watch_marked(from_us + at * 100_000, 20_000, &[lane(n as u16, 90_000, 900)]))
            });
        }
        assert!(answer(&mut watch, 10_000_000, 20_000, &|_| lane(0, 90_000, 800)).is_some_and(|at_s| at_s < 10.5));
        assert!(watch.is_certain());
    }

    #[test]
    fn marked_data_that_has_arrived_once_is_no_reason_later_nor_is_a_lane_without_work() {
        let mut watch = Dropped::default();
        assert_eq!(answer(&mut watch, 0, 20_000, &|_| lane(0, 5_000, 5_000)), None, "nothing is under way");
        assert!(!watch.watch_marked(30_000_000, 20_000, &[lane(0, 500_000, 200_000)]));
        assert_eq!(answer(&mut watch, 31_000_000, 20_000, &|_| lane(0, 900_000, 200_000)), None, "the cable is out");
        assert!(!watch.is_certain());
    }
}
