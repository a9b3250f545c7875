//! What all lanes delivered, over about a round trip.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::path::LaneReading;

#[derive(Clone, Debug, Default)]
pub(super) struct Delivered {
    last: BTreeMap<u16, (u64, u64)>,
    delivered_bytes: u64,
    resent_bytes: u64,
    course: VecDeque<Mark>,
    changed: Vec<u16>,
    mss_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    at_us: u64,
    delivered_bytes: u64,
    resent_bytes: u64,
}

impl Delivered {
    pub(super) fn on_sample(&mut self, at_us: u64, lanes: &[LaneReading], rtt_us: u64) {
        self.changed.clear();
        let mut last = BTreeMap::new();
        for lane in lanes {
            let before = self.last.get(&lane.lane).copied().unwrap_or((lane.delivered_bytes, lane.resent_bytes));
            let delivered = lane.delivered_bytes.saturating_sub(before.0);
            if delivered > 0 {
                self.changed.push(lane.lane);
            }
            self.delivered_bytes = self.delivered_bytes.saturating_add(delivered);
            self.resent_bytes = self.resent_bytes.saturating_add(lane.resent_bytes.saturating_sub(before.1));
            self.mss_bytes = self.mss_bytes.max(u64::from(lane.mss_bytes));
            last.insert(lane.lane, (lane.delivered_bytes, lane.resent_bytes));
        }
        self.last = last;
        let mark = Mark { at_us, delivered_bytes: self.delivered_bytes, resent_bytes: self.resent_bytes };
        self.course.push_back(mark);
        let span_us = rtt_us.max(SPAN_US_MIN);
        while self.course.len() > 2 && self.course[1].at_us.saturating_add(span_us) <= at_us
            || self.course.len() > MARKS_MAX
        {
            self.course.pop_front();
        }
    }

    pub(super) fn changed(&self) -> &[u16] {
        &self.changed
    }

    pub(super) fn last_bytes(&self) -> u64 {
        let before = self.course.len().checked_sub(2).and_then(|at| self.course.get(at));
        before.map_or(0, |before| self.delivered_bytes.saturating_sub(before.delivered_bytes))
    }

    fn ends(&self) -> Option<(Mark, Mark)> {
        let (first, last) = (*self.course.front()?, *self.course.back()?);
        (last.at_us > first.at_us).then_some((first, last))
    }

    pub(super) fn is_complete(&self) -> bool {
        self.ends().is_some_and(|(first, last)| last.at_us - first.at_us >= SPAN_US_MIN)
    }

    pub(super) fn rate(&self) -> f64 {
        self.ends().map_or(0.0, |(first, last)| {
            (last.delivered_bytes - first.delivered_bytes) as f64 * 1e6 / (last.at_us - first.at_us) as f64
        })
    }

    /// True if more is lost than radio links lose: a queue too short to delay.
    pub(super) fn suffers(&self) -> bool {
        self.ends().is_some_and(|(first, last)| {
            let resent = last.resent_bytes.saturating_sub(first.resent_bytes);
            let delivered = last.delivered_bytes.saturating_sub(first.delivered_bytes);
            resent > self.mss_bytes.saturating_mul(LOST_SEGMENTS) && resent > delivered / LOST_SHARE
        })
    }
}

/// Doubled, the rate grows 72 % (100 x 50, after a cubic flow).
const SPAN_US_MIN: u64 = 100_000;
/// 2.5 s of readings.
const MARKS_MAX: usize = 256;
/// Doubled, the rate grows 6.2 % (100 x 50, loses 1e-3).
const LOST_SEGMENTS: u64 = 3;
/// Halved, the rate grows 6.2 % (100 x 50, loses 1e-3).
const LOST_SHARE: u64 = 100;
