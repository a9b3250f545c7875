//! How far a sender reads ahead.

/// All lanes of a session together have so many buffers: 32 MiB, all that 16 lanes ask for. A lane that finds none left
/// has one all the same: with 256 lanes, 92 MiB. So many lanes have the disk busy without reading ahead.
pub(super) const BLOCKS_AHEAD_OF_ALL: usize = 128;

/// A lane has so many chunks at once, with the chunk that it sends. The smallest chunks have four blocks: one chunk
/// more than fits into the buffers.
pub(super) const UNITS_AHEAD: usize = 4;
