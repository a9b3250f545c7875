//! What all policies of a path have in common.

use alloc::vec::Vec;

use super::reading::{Allowance, Reading};
use super::said::Said;

/// One policy of a path.
pub trait Policy {
    /// Takes a reading, and narrows what earlier policies allow.
    fn on_sample(&mut self, reading: &Reading<'_>, allowance: Allowance, say: &mut Vec<Said>) -> Allowance;
}
