//! The end of a job: lanes that hold it up.

use std::iter;

use haul_engine::path::{Confidence, EndingLane, LaneReading, better_given_up};
use haul_engine::paths::PathReading;

use super::{Tuning, left};
use crate::work::Work;

impl Tuning {
    /// What these paths carry together; `None`: not of all of them was it measured.
    fn measured_capacity(&self, paths: &[PathReading]) -> Option<u64> {
        paths.iter().try_fold(0u64, |sum, path| {
            let estimate = self.paths.estimate(path.path)?;
            let is_measured = estimate.confidence == Confidence::Measured;
            is_measured.then(|| sum.saturating_add(estimate.capacity_bytes_per_s))
        })
    }

    /// Finds lanes that hold up the end.
    pub(super) fn look_for_last(&mut self, paths: &[PathReading], work: &dyn Work) -> Vec<u16> {
        let lanes: Vec<LaneReading> = paths.iter().flat_map(|path| path.lanes.iter().copied()).collect();
        let numbers: Vec<u16> = lanes.iter().map(|lane| lane.lane).collect();
        let Some(ending) = work.ending(&numbers, self.all_carrying(paths)) else { return Vec::new() };
        let left = left(&lanes, &ending.left_bytes);
        let again = ending.again_bytes.into_iter().chain(iter::repeat(0));
        let lanes = lanes.into_iter().zip(left).zip(again);
        let lanes: Vec<EndingLane> =
            lanes.map(|((reading, left_bytes), again_bytes)| EndingLane { reading, left_bytes, again_bytes }).collect();
        let slow = better_given_up(&lanes, self.measured_capacity(paths));
        let slow = numbers.into_iter().zip(slow).filter(|(_, slow)| *slow);
        let slow: Vec<u16> = slow.map(|(number, _)| number).filter(|lane| !self.given_up.contains(lane)).collect();
        self.given_up.extend(&slow);
        slow
    }
}
