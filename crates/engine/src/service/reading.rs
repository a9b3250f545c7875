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
    /// All lanes; the first `carrying` of them carry data.
    pub lanes: &'a [LaneReading],
    /// The number of lanes that carry data.
    pub carrying: usize,
    /// No unit waits for a lane: what they have is the last of the job.
    pub ends: bool,
    /// The time with priority so far, of all paths and of earlier sessions.
    pub used_us: u64,
    /// The class that a deadline needs, in a job that has one.
    pub wanted: Option<ServiceClass>,
    /// Lanes are being dialled again from where priority is granted: the mark shows no effect.
    pub is_moving: bool,
    /// The answer of the operator's program, as [`PathPolicies`](super::path_policies::PathPolicies) enters it.
    pub grant: Grant,
}

/// What a path may do, as the policies so far leave it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// Its class.
    pub class: ServiceClass,
    /// So many lanes have the mark of the class, counted from the first.
    pub marked: usize,
    /// So many lanes are bounded as marked ones are, also while a trial takes the mark off.
    pub bounded: usize,
    /// Priority is possible.
    pub may_raise: bool,
    /// All marked lanes together, in bytes per second.
    pub priority_bytes_per_s: Option<u64>,
}

/// The answer of the operator's program about priority on a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Grant {
    /// The network is not to be asked.
    #[default]
    NotNeeded,
    /// The program was not asked yet, or priority was given back.
    None,
    /// The program has not answered.
    Asked,
    /// The program grants it, and may name a rate in bytes per second.
    Granted(Option<u64>),
    /// The program does not grant it.
    Refused,
}

impl Grant {
    /// Whether packets may carry the mark.
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

    /// Whether packets of this class carry its mark now.
    pub(super) fn may_mark(&self, class: ServiceClass) -> bool {
        class != ServiceClass::Priority || self.grant.is_granted()
    }

    /// The lanes that carry data.
    pub(super) fn carry(&self) -> &'a [LaneReading] {
        &self.lanes[..self.carrying.min(self.lanes.len())]
    }
}

impl Allowance {
    /// No mark, and no class above normal.
    pub(super) fn without_mark(self) -> Self {
        Self { class: self.class.min(ServiceClass::Normal), marked: 0, ..self }
    }
}
