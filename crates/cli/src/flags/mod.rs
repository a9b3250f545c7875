//! Flags that several commands share, and their values.

pub mod filter_rules;
pub mod filters;
pub mod headings;
pub mod lists;
pub mod values;
