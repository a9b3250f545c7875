//! Bounds how far a sender reads ahead.

/// 32 MiB: all that 16 lanes ask for. A lane that finds none left has one all the same: with 256 lanes, 92 MiB, and the disk is
/// busy without reading ahead.
pub(super) const BLOCKS_AHEAD_OF_ALL: usize = 128;

/// The most chunks of a lane, with the one that it sends. The smallest have four blocks: one more than fits into the buffers.
pub(super) const UNITS_AHEAD: usize = 4;
