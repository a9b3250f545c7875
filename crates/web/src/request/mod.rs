//! Parses requests into types that cannot be wrong.

pub(crate) mod condition;
pub(crate) mod range;
pub(crate) mod target;
