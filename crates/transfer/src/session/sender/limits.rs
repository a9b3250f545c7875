//! How far a sender reads ahead.

/// The buffers of all lanes of a session together: 32 MiB, all that 16 lanes ask for. A lane that finds none left has one all the same: with
/// 256 lanes, 92 MiB. So many lanes have the disk busy without reading ahead.
pub(super) const BLOCKS_AHEAD_OF_ALL: usize = 128;

/// Chunks that a lane has at once, the one that it sends among them: with the smallest, of four blocks each, one more than has room.
pub(super) const UNITS_AHEAD: usize = 4;
