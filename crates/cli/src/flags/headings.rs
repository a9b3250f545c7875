//! Headings in the help of `haul cp`, which also sort the settings file: see `config/file.rs`.

pub const WHAT: &str = "What is copied";
pub const WRITE: &str = "How it is written and verified";
pub const TRAVEL: &str = "How it travels";
pub const REACH: &str = "How the far side is reached";
pub const SAID: &str = "What is said";
