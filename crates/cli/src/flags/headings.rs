//! Headings in the help of `haul cp`. The settings file goes by them, too: see `config/file.rs`.

/// Which entries, and what of each.
pub const WHAT: &str = "What is copied";
/// The heading of flags for the target.
pub const WRITE: &str = "How it is written and verified";
/// How the data goes over the network.
pub const TRAVEL: &str = "How it travels";
/// How the far side is reached, by ssh or a daemon.
pub const REACH: &str = "How the far side is reached";
/// The heading of flags for messages.
pub const SAID: &str = "What is said";
