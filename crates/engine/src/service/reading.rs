//! What policies see of a path, and what they allow.

use super::ServiceClass;
use crate::path::{Estimate, LaneReading};

/// One reading of a path.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    /// When, in microseconds since any fixed start.
    pub at_us: u64,
    /// The estimate of the path.
    pub estimate: &'a Estimate,
    /// All lanes; the first `carrying` have data.
    pub lanes: &'a [LaneReading],
    /// The number of lanes that carry data.
    pub carrying: usize,
    /// No unit waits for a lane.
    pub ends: bool,
    /// Time with priority, of all paths and sessions.
    pub used_us: u64,
    /// The class that a deadline needs.
    pub wanted: Option<ServiceClass>,
    /// Lanes move to where priority is granted: the mark has no effect.
    pub is_moving: bool,
    /// The operator's program, as [`PathPolicies`](super::path_policies::PathPolicies) enters it.
    pub grant: Grant,
}

/// The permissions after the policies so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// The path's class.
    pub class: ServiceClass,
    /// The number of first lanes with the mark.
    pub marked: usize,
    /// Lanes bounded as marked ones, also in a trial.
    pub bounded: usize,
    /// Priority is possible.
    pub may_raise: bool,
    /// All marked lanes, in bytes per second.
    pub priority_bytes_per_s: Option<u64>,
}

/// The operator's program about a path's priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Grant {
    /// The network is not to be asked.
    #[default]
    NotNeeded,
    /// Not asked yet, or given back.
    None,
    /// The program has not answered.
    Asked,
    /// Granted, perhaps at a rate in bytes per second.
    Granted(Option<u64>),
    /// The program does not grant it.
    Refused,
}

impl Grant {
    pub(super) fn is_granted(self) -> bool {
        matches!(self, Self::NotNeeded | Self::Granted(_))
    }

    pub(super) fn is_refused(self) -> bool {
        self == Self::Refused
    }
}

impl<'a> Reading<'a> {
    /// A reading of lanes that all carry data.
    #[must_use]
    pub fn of(at_us: u64, estimate: &'a Estimate, lanes: &'a [LaneReading]) -> Self {
        let (carrying, grant) = (lanes.len(), Grant::default());
        Self { at_us, estimate, lanes, carrying, ends: false, used_us: 0, wanted: None, is_moving: false, grant }
    }

    pub(super) fn may_mark(&self, class: ServiceClass) -> bool {
        class != ServiceClass::Priority || self.grant.is_granted()
    }

    pub(super) fn carry(&self) -> &'a [LaneReading] {
        &self.lanes[..self.carrying.min(self.lanes.len())]
    }
}

impl Allowance {
    pub(super) fn without_mark(self) -> Self {
        Self { class: self.class.min(ServiceClass::Normal), marked: 0, ..self }
    }
}
