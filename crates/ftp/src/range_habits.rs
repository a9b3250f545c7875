//! When large files go up in ranges, and what is known of a server that takes them.

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

/// When large files go up in ranges.
#[derive(Clone, Copy, Debug)]
pub struct RangeUploads {
    /// From this round trip on.
    pub from_us: u32,
    /// The largest file that is going to be written, as far as is known: so many connections are dialled ahead.
    pub foreseen_bytes: u64,
}

/// What is known of a server's ranges.
#[derive(Debug, Default)]
pub(crate) struct RangeHabits {
    /// The answer of the trial.
    pub(crate) found: OnceLock<bool>,
    /// A thread tries it.
    pub(crate) is_tried: AtomicBool,
    /// The bytes that are worth a connection.
    pub(crate) worth_bytes: OnceLock<u64>,
    /// A file had another content all the same.
    pub(crate) has_failed: AtomicBool,
}
