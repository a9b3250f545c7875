//! The policy of the operator: which classes, at which rate, for how long in a day.

use alloc::vec::Vec;

use super::ServiceClass;
use super::allowed::Allowed;
use super::policy::Policy;
use super::reading::{Allowance, Reading};
use super::said::Said;

/// What the operator allows on a path.
#[derive(Clone, Debug)]
pub(super) struct Operator {
    allowed: Allowed,
    time_is_over: bool,
}

impl Operator {
    pub(super) fn new(allowed: Allowed) -> Self {
        Self { allowed, time_is_over: false }
    }

    pub(super) fn may_raise(&self) -> bool {
        self.allowed.priority() && !self.time_is_over
    }

    pub(super) fn left_us(&self, used_us: u64) -> Option<u64> {
        self.allowed.priority_us().map(|most| most.saturating_sub(used_us))
    }

    pub(super) fn priority_bytes_per_s(&self, capacity_bytes_per_s: u64) -> Option<u64> {
        self.allowed.priority_bytes_per_s(capacity_bytes_per_s)
    }
}

impl Policy for Operator {
    fn on_sample(&mut self, reading: &Reading<'_>, allowance: Allowance, say: &mut Vec<Said>) -> Allowance {
        if let Some(us) = self.allowed.priority_us() {
            let is_over = reading.used_us >= us;
            if is_over && !self.time_is_over {
                say.push(Said::TimeIsOver { us });
            }
            self.time_is_over = is_over;
        }
        let may_raise = allowance.may_raise && self.may_raise();
        let class = self.allowed.class(allowance.class);
        let class = if may_raise { class } else { class.min(ServiceClass::Normal) };
        let (marked, bounded) = match class {
            ServiceClass::Normal => (0, 0),
            ServiceClass::Background | ServiceClass::Priority => (allowance.marked, allowance.bounded),
        };
        let priority_bytes_per_s = self.priority_bytes_per_s(reading.estimate.capacity_bytes_per_s);
        Allowance { class, marked, bounded, may_raise, priority_bytes_per_s }
    }
}
