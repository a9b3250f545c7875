//! What is read of a path at a moment.

use alloc::vec::Vec;

use crate::path::LaneReading;

/// One reading of a path's lanes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathReading {
    /// Number of the path.
    pub path: u16,
    /// The connected lanes, resting ones too, by number.
    pub lanes: Vec<LaneReading>,
    /// Repeats of a segment in a row (`tcpi_backoff`); the least of the lanes.
    pub timeouts: u8,
}
