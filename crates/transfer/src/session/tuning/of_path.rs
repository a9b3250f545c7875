//! What was done to the lanes of one path, and how its bound is divided among them.

use std::collections::BTreeMap;

use haul_engine::path::{Advice, LaneReading, bound_per_lane, bounds_at_end};

use haul_net::mptcp::WayTotals;
use haul_wire::lane::path_of;

use super::lane::{Lane, LaneAdvice};
use super::subflows::Subflows;
use super::work::Ending;
use crate::session::lane_addresses::LaneAddresses;

/// What was done to the lanes of one path.
pub(super) struct OfPath {
    /// Where its first lane leads.
    pub(super) addresses: Option<LaneAddresses>,
    pub(super) advice: Advice,
    /// The last bound that was the same for each lane, in bytes per second.
    pub(super) paced_to: Option<u64>,
    /// Lanes will soon leave their part.
    pub(super) some_finish: bool,
    /// What lanes delivered that are gone.
    pub(super) delivered_bytes: u64,
    /// Rate and lanes of a path whose class is background: what the tuner finds there is what others leave.
    pub(super) modest: Option<(u64, u16)>,
    /// Over MPTCP.
    pub(super) subflows: Subflows,
}

impl OfPath {
    /// Divides the bound of this path among its lanes. `is_done`: none of them gets further units.
    pub(super) fn divide<'a>(
        &mut self,
        readings: &[LaneReading],
        ending: Option<Ending>,
        is_done: bool,
        lanes: impl Iterator<Item = &'a mut Lane>,
    ) {
        let bound = self.modest.map_or(self.advice.pacing_bytes_per_s, |(bound, _)| Some(bound));
        let Some(bound) = bound else {
            self.some_finish = false;
            return self.pace_all(None, lanes);
        };
        match ending {
            Some(Ending { left_bytes, waiting_bytes }) => {
                let left = left(readings, &left_bytes);
                self.some_finish = left.iter().chain(&waiting_bytes).any(|bytes| *bytes > 0);
                let bounds = bounds_at_end(bound, readings, &left, &waiting_bytes);
                let bounds: BTreeMap<u16, u64> = readings.iter().map(|reading| reading.lane).zip(bounds).collect();
                for lane in lanes {
                    if let Some(bound) = bounds.get(&lane.number) {
                        lane.pace(Some(*bound));
                    }
                }
            }
            None => {
                let lanes_most = self.modest.map_or(self.advice.lanes, |(_, lanes)| lanes.min(self.advice.lanes));
                let carrying = if is_done { 0 } else { lanes_most };
                self.some_finish = readings.iter().skip(usize::from(carrying)).any(|lane| lane.unsent_bytes > 0);
                self.pace_all(Some(bound_per_lane(bound, readings, carrying)), lanes);
            }
        }
    }

    /// What each lane is advised as long as all are advised the same.
    pub(super) fn for_lanes(&self) -> LaneAdvice {
        let congestion_control = self.advice.congestion_control.clone();
        LaneAdvice { pace_bytes_per_s: self.paced_to, congestion_control, dscp: None }
    }

    pub(super) fn pace_all<'a>(&mut self, bytes_per_s: Option<u64>, lanes: impl Iterator<Item = &'a mut Lane>) {
        self.paced_to = bytes_per_s;
        lanes.for_each(|lane| lane.pace(bytes_per_s));
    }
}

/// Over MPTCP, what each lane of a path carried by each way.
pub(super) fn ways(lanes: &[Lane], path: u16) -> impl Iterator<Item = WayTotals> + '_ {
    lanes.iter().filter(move |lane| path_of(lane.number) == path).flat_map(|lane| lane.probe.ways())
}

/// What each lane has left: in its connection, and taken beyond that.
pub(super) fn left(lanes: &[LaneReading], left_bytes: &[u64]) -> Vec<u64> {
    lanes.iter().zip(left_bytes).map(|(lane, left)| lane.unsent_bytes.saturating_add(*left)).collect()
}

/// Every so many-th of the units, from this one on.
pub(super) fn part_of(units: &[u64], first: usize, every: usize) -> Vec<u64> {
    units.iter().skip(first).step_by(every).copied().collect()
}
