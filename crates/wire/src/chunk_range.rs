//! Names chunks of a file.

use serde::{Deserialize, Serialize};

/// Consecutive chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkRange {
    /// First chunk.
    pub first: u32,
    /// Number of chunks, at least one.
    pub count: u32,
}
