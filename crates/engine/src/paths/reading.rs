//! What is read of a path at a moment.

use alloc::vec::Vec;

use crate::path::LaneReading;

/// One reading of the lanes of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathReading {
    /// Number of the path.
    pub path: u16,
    /// The connected lanes, resting ones too, in the order of their numbers.
    pub lanes: Vec<LaneReading>,
    /// The kernel repeated a segment so often in a row without an answer (`tcpi_backoff`); the least of the lanes.
    pub timeouts: u8,
}
