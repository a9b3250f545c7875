//! The policy of a network that must be asked: no packet is marked before the operator's program grants it.

use alloc::vec::Vec;

use super::ServiceClass;
use super::policy::Policy;
use super::reading::{Allowance, Grant, Reading};
use super::said::{Asks, Said};

/// The state of the question.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hook(Grant);

impl Default for Hook {
    fn default() -> Self {
        Self(Grant::None)
    }
}

impl Hook {
    pub(super) fn grant(&self) -> Grant {
        self.0
    }

    pub(super) fn granted(&mut self, rate_bytes_per_s: Option<u64>) {
        self.0 = Grant::Granted(rate_bytes_per_s);
    }

    pub(super) fn refused(&mut self) {
        self.0 = Grant::Refused;
    }

    /// True if there is anything to give back.
    pub(super) fn gives_back(&mut self) -> bool {
        let has = matches!(self.0, Grant::Granted(_) | Grant::Asked);
        if has {
            self.0 = Grant::None;
        }
        has
    }
}

impl Policy for Hook {
    fn on_sample(&mut self, _: &Reading<'_>, allowance: Allowance, say: &mut Vec<Said>) -> Allowance {
        match (allowance.class, self.0) {
            (ServiceClass::Priority, Grant::None) => {
                self.0 = Grant::Asked;
                say.push(Said::Hook(Asks::ToRaise));
            }
            (ServiceClass::Background | ServiceClass::Normal, Grant::Granted(_)) => {
                self.0 = Grant::None;
                say.push(Said::Hook(Asks::ToRelease));
            }
            _ => {}
        }
        match (allowance.class, self.0) {
            (ServiceClass::Priority, Grant::Granted(rate)) => {
                let rates = [allowance.priority_bytes_per_s, rate];
                Allowance { priority_bytes_per_s: rates.into_iter().flatten().min(), ..allowance }
            }
            (ServiceClass::Priority, _) => Allowance { bounded: 0, ..allowance.without_mark() },
            _ => allowance,
        }
    }
}
