//! What is seen of a path at a moment.

use crate::path::{Estimate, LaneReading};

/// One reading of a path.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// When, in microseconds since any fixed start.
    pub at_us: u64,
    /// The estimate of the path.
    pub estimate: &'a Estimate,
    /// The lanes with data, by number.
    pub lanes: &'a [LaneReading],
    /// Priority is allowed, and not refused.
    pub may_raise: bool,
    /// No unit waits for a lane.
    pub ends: bool,
}

pub(super) const PACKET_BYTES: u32 = 1_500;

/// Fewer bytes tell nothing of losses.
pub(super) const LOSES_OF_BYTES: u64 = 30 * PACKET_BYTES as u64;
