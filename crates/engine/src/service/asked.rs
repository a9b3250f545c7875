//! The policy of a class that was asked for: all lanes have its mark.

use alloc::vec::Vec;

use super::policy::Policy;
use super::reading::{Allowance, Reading};
use super::said::Said;
use super::{AskedClass, ServiceClass};

#[derive(Clone, Copy, Debug)]
pub(super) struct Asked(AskedClass);

impl Asked {
    pub(super) fn new(class: AskedClass) -> Self {
        Self(class)
    }

    pub(super) fn is_auto(self) -> bool {
        self.0 == AskedClass::Auto
    }
}

impl Policy for Asked {
    fn on_sample(&mut self, reading: &Reading<'_>, allowance: Allowance, _: &mut Vec<Said>) -> Allowance {
        let class = reading.wanted.unwrap_or(self.0.first());
        let marked = if class == ServiceClass::Normal { 0 } else { reading.lanes.len() };
        Allowance { class, marked, bounded: marked, ..allowance }
    }
}
