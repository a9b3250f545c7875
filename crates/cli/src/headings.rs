//! Headings in the help of `haul cp`. The settings file goes by them, too: see `config/file.rs`.

/// Which entries, and what of each.
pub const WHAT: &str = "What is copied";
/// What happens at the target.
pub const WRITE: &str = "How it is written and verified";
/// What is told.
pub const SAID: &str = "What is said";
