//! The last seconds of a path, and its marked and unmarked lanes side by side.

use alloc::collections::{BTreeMap, VecDeque};

use crate::path::{LaneReading, SOURCE_PERMILLE};

use super::seen::{PACKET_BYTES, Seen};

#[derive(Clone, Debug, Default)]
pub(super) struct Recent {
    pub(super) samples: VecDeque<Sample>,
    /// The path's best second without marks, and when.
    pub(super) best_bytes_per_s: u64,
    /// Since when nothing is marked, by acknowledgements.
    unmarked_from_us: u64,
    pub(super) since_change: VecDeque<(u64, Sides)>,
    pub(super) totals: Sides,
    pub(super) last: BTreeMap<u16, (u64, u64, u64)>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) at_us: u64,
    pub(super) acked_bytes: u64,
    pub(super) queueing_us: u32,
    sent_bytes: u64,
    resent_bytes: u64,
}

impl Sample {
    fn sent(self) -> Sent {
        Sent { bytes: self.sent_bytes, resent_bytes: self.resent_bytes, delivered_bytes: self.acked_bytes }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    pub(super) bytes: u64,
    pub(super) resent_bytes: u64,
    pub(super) delivered_bytes: u64,
}

impl Sent {
    pub(super) fn after(self, before: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(before.bytes),
            resent_bytes: self.resent_bytes.saturating_sub(before.resent_bytes),
            delivered_bytes: self.delivered_bytes.saturating_sub(before.delivered_bytes),
        }
    }

    pub(super) fn resends_many(self) -> bool {
        self.bytes >= LOSES_MANY_OF_BYTES
            && self.resent_bytes >= LOSES_MANY_BYTES
            && self.resent_bytes > self.bytes / LOSES_MANY_PART
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sides {
    pub(super) marked: Side,
    pub(super) unmarked: Side,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Side {
    pub(super) lanes: u64,
    pub(super) acked_bytes: u64,
    pub(super) resent_bytes: u64,
    pub(super) rtt_us: u64,
    pub(super) has_data: bool,
}

impl Side {
    pub(super) fn of(lanes: &[LaneReading]) -> Self {
        let count = lanes.len() as u64;
        let sum = |of: fn(&LaneReading) -> u64| lanes.iter().map(of).fold(0, u64::saturating_add);
        Self {
            lanes: count,
            acked_bytes: 0,
            resent_bytes: 0,
            rtt_us: sum(|lane| lane.rtt_us.into()) / count.max(1),
            has_data: lanes.iter().any(has_data),
        }
    }
}

pub(super) fn has_data(lane: &LaneReading) -> bool {
    let under_way = lane.sent_bytes.saturating_sub(lane.resent_bytes);
    lane.unsent_bytes > 0 || under_way > lane.acked_bytes.saturating_add(lane.mss_bytes.into())
}

impl Recent {
    pub(super) fn on_sample(&mut self, seen: &Seen<'_>, marked: usize) {
        let queueing_us = seen.estimate.queueing_us;
        let (with, without) = seen.lanes.split_at(marked.min(seen.lanes.len()));
        let sides =
            Sides { marked: self.side(with, self.totals.marked), unmarked: self.side(without, self.totals.unmarked) };
        self.totals = sides;
        let acked_bytes = sides.marked.acked_bytes.saturating_add(sides.unmarked.acked_bytes);
        let resent_bytes = sides.marked.resent_bytes.saturating_add(sides.unmarked.resent_bytes);
        let newly_sent = seen.lanes.iter().map(|lane| match self.last.get(&lane.lane) {
            Some((.., sent)) => lane.sent_bytes.saturating_sub(*sent),
            None => 0,
        });
        let before = self.samples.back().map_or(0, |last| last.sent_bytes);
        let sent_bytes = newly_sent.fold(before, u64::saturating_add);
        let counts = |lane: &LaneReading| (lane.delivered_bytes, lane.resent_bytes, lane.sent_bytes);
        self.last = seen.lanes.iter().map(|lane| (lane.lane, counts(lane))).collect();
        self.samples.push_back(Sample { at_us: seen.at_us, acked_bytes, queueing_us, sent_bytes, resent_bytes });
        while self.samples.front().is_some_and(|first| seen.at_us.saturating_sub(first.at_us) > KEPT_US) {
            self.samples.pop_front();
        }
        if marked > 0 {
            self.unmarked_from_us = seen.at_us.saturating_add(u64::from(seen.estimate.rtt_us));
        }
        let is_of_path = seen.at_us >= self.unmarked_from_us.saturating_add(BEST_US)
            && seen.estimate.source_permille <= SOURCE_PERMILLE;
        if is_of_path && let Some(rate) = self.rate_over(BEST_US) {
            self.best_bytes_per_s = self.best_bytes_per_s.max(rate);
        }
        self.since_change.push_back((seen.at_us, sides));
        while self.since_change.front().is_some_and(|(at_us, _)| seen.at_us.saturating_sub(*at_us) > KEPT_US) {
            self.since_change.pop_front();
        }
    }

    /// A side's lanes on top of its past. Lanes come, go and change sides, so each counts from its last reading.
    pub(super) fn side(&self, lanes: &[LaneReading], before: Side) -> Side {
        let mut side = Side { acked_bytes: before.acked_bytes, resent_bytes: before.resent_bytes, ..Side::of(lanes) };
        for lane in lanes {
            let (delivered, resent, _) =
                self.last.get(&lane.lane).copied().unwrap_or((lane.delivered_bytes, lane.resent_bytes, 0));
            side.acked_bytes = side.acked_bytes.saturating_add(lane.delivered_bytes.saturating_sub(delivered));
            side.resent_bytes = side.resent_bytes.saturating_add(lane.resent_bytes.saturating_sub(resent));
        }
        side
    }

    pub(super) fn rate_over(&self, span_us: u64) -> Option<u64> {
        let last = self.samples.back()?;
        let first = self.samples.iter().rev().find(|sample| last.at_us.saturating_sub(sample.at_us) >= span_us)?;
        per_second(last.acked_bytes.saturating_sub(first.acked_bytes), last.at_us.saturating_sub(first.at_us))
    }

    pub(super) fn sent(&self) -> Sent {
        self.samples.back().map_or(Sent::default(), |last| last.sent())
    }

    fn sent_over(&self, span_us: u64) -> Option<Sent> {
        let last = self.samples.back()?;
        let first = self.samples.iter().rev().find(|sample| last.at_us.saturating_sub(sample.at_us) >= span_us)?;
        Some(last.sent().after(first.sent()))
    }

    pub(super) fn resends_many_over(&self, span_us: u64) -> bool {
        self.sent_over(span_us).is_some_and(Sent::resends_many)
    }

    pub(super) fn mean_queue_us(&self, span_us: u64) -> u32 {
        let Some(last) = self.samples.back() else { return 0 };
        let within = self.samples.iter().rev().take_while(|sample| last.at_us.saturating_sub(sample.at_us) <= span_us);
        let (sum, count) = within.fold((0, 0), |(sum, count), sample| (sum + u64::from(sample.queueing_us), count + 1));
        u32::try_from(sum / count.max(1)).unwrap_or(u32::MAX)
    }

    pub(super) fn least_queue_us(&self, span_us: u64) -> u32 {
        let Some(last) = self.samples.back() else { return 0 };
        let within = self.samples.iter().rev().take_while(|sample| last.at_us.saturating_sub(sample.at_us) <= span_us);
        within.map(|sample| sample.queueing_us).min().unwrap_or(0)
    }

    /// Each side's totals since then; `None`: too long ago.
    pub(super) fn sides_since(&self, from_us: u64) -> Option<(Sides, u64)> {
        let (first_us, first) = self.since_change.iter().find(|(at_us, _)| *at_us >= from_us)?;
        let (last_us, last) = self.since_change.back()?;
        let between = |first: Side, last: Side| Side {
            acked_bytes: last.acked_bytes.saturating_sub(first.acked_bytes),
            resent_bytes: last.resent_bytes.saturating_sub(first.resent_bytes),
            ..last
        };
        let sides =
            Sides { marked: between(first.marked, last.marked), unmarked: between(first.unmarked, last.unmarked) };
        (last_us > first_us).then_some((sides, last_us - first_us))
    }
}

pub(super) fn per_second(bytes: u64, us: u64) -> Option<u64> {
    (us > 0).then(|| u64::try_from(u128::from(bytes) * 1_000_000 / u128::from(us)).unwrap_or(u64::MAX))
}

const KEPT_US: u64 = 4_000_000;
/// Bursts do not count. Doubled, 14 points more are marked (20 x 20, a circuit of 60 for marks).
const BEST_US: u64 = 1_000_000;
/// One of so many tells a heavy loss early.
pub(super) const LOSES_MANY_PART: u64 = 8;
/// Four of ten: 3 % of chance shows as many in 1 case of 7,000.
const LOSES_MANY_BYTES: u64 = 4 * PACKET_BYTES as u64;
/// Fewer than ten packets tell nothing.
const LOSES_MANY_OF_BYTES: u64 = 10 * PACKET_BYTES as u64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::Estimate;

    #[test]
    fn what_a_lane_sent_before_it_came_is_not_new() {
        let lane =
            |lane, sent_bytes, resent_bytes| LaneReading { lane, sent_bytes, resent_bytes, ..LaneReading::default() };
        let mut recent = Recent::default();
        let mut sample = |at_us, lanes: &[LaneReading]| {
            recent.on_sample(&Seen { at_us, estimate: &Estimate::default(), lanes, may_raise: true, ends: false }, 0);
            recent.sent()
        };
        sample(100_000, &[lane(0, 50_000, 0), lane(1, 50_000, 0)]);
        let before = sample(200_000, &[lane(0, 60_000, 0), lane(1, 60_000, 0)]);
        // A lane with many losses takes another's place.
        let after = sample(300_000, &[lane(0, 70_000, 0), lane(2, 9_000_000, 900_000)]).after(before);
        assert_eq!((after.bytes, after.resent_bytes), (10_000, 0));
    }
}
