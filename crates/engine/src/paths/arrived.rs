//! What arrived on a path between two readings, and what is under way.

use alloc::collections::BTreeMap;

use crate::path::LaneReading;

#[derive(Clone, Debug, Default)]
pub(super) struct Arrived {
    at_us: Option<u64>,
    delivered_bytes: BTreeMap<u16, u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) us: u64,
    pub(super) bytes: u64,
    pub(super) in_flight_bytes: u64,
}

impl Arrived {
    /// New lanes count from zero, also where counters ran backward.
    pub(super) fn on_reading(&mut self, at_us: u64, lanes: &[LaneReading]) -> Arrival {
        let now: BTreeMap<u16, u64> = lanes.iter().map(|lane| (lane.lane, progress(lane))).collect();
        let last = core::mem::replace(&mut self.delivered_bytes, now);
        let gained = self.delivered_bytes.iter().map(|(lane, now)| match last.get(lane) {
            Some(last) if last <= now => now - last,
            _ => *now,
        });
        let us = self.at_us.replace(at_us).map_or(0, |last_us| at_us.saturating_sub(last_us));
        let in_flight_bytes = lanes.iter().map(in_flight_bytes).fold(0, u64::saturating_add);
        Arrival { us, bytes: gained.fold(0, u64::saturating_add), in_flight_bytes }
    }
}

fn progress(lane: &LaneReading) -> u64 {
    lane.delivered_bytes.max(lane.acked_bytes)
}

fn in_flight_bytes(lane: &LaneReading) -> u64 {
    lane.sent_bytes.saturating_sub(lane.resent_bytes).saturating_sub(lane.acked_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_that_are_new_or_were_dialled_again_count_from_zero() {
        let lane = |lane, delivered_bytes| LaneReading {
            lane,
            delivered_bytes,
            acked_bytes: delivered_bytes,
            sent_bytes: delivered_bytes + 5,
            ..LaneReading::default()
        };
        let mut arrived = Arrived::default();
        arrived.on_reading(100, &[lane(0, 50)]);
        let arrival = |us, bytes, in_flight_bytes| Arrival { us, bytes, in_flight_bytes };
        assert_eq!(arrived.on_reading(300, &[lane(0, 70), lane(1, 7)]), arrival(200, 27, 10));
        assert_eq!(arrived.on_reading(400, &[lane(1, 3)]), arrival(100, 3, 5));
    }
}
