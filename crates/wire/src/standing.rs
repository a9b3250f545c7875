//! The target's file, cut into pieces by its content. The sender sends only what is in none of them.
//!
//! ```text
//!   receiver   reads the standing file, cuts it -> Standing ... Standing (last)      control channel
//!   sender     cuts its own file in the same way, and compares
//!   sender     a run that stands at the target: a block with its place there, no data      lane
//!   receiver   reads the run, hashes and writes it as if it had come
//! ```
//! A digest only says where to look: the chunk's BLAKE3 decides.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::bounded;

/// 4096 pieces of 13 bytes: 52 KiB.
pub const MAX_PIECES: usize = 4096;

/// Shorter ones cost more than they save.
pub const MIN_MEAN_BYTES: u32 = 8 << 10;

/// The cutting algorithm's most.
pub const MAX_MEAN_BYTES: u32 = 4 << 20;

/// The longest, in means.
pub const LONGEST_IN_MEANS: u32 = 4;

/// The next pieces of a standing file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// Manifest index.
    pub index: u64,
    /// Mean length, a power of two.
    pub mean_bytes: u32,
    /// A run can only stay where it is.
    pub in_place: bool,
    /// Behind those before.
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_PIECES>")]
    pub pieces: Vec<Piece>,
    /// No more follow.
    pub is_last: bool,
}

/// A piece of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// Length.
    pub bytes: u32,
    /// The first eight bytes of its BLAKE3.
    pub digest: [u8; 8],
}

impl Standing {
    /// Whether a receiver may say so.
    pub fn is_within_limits(&self) -> bool {
        let longest = self.mean_bytes.saturating_mul(LONGEST_IN_MEANS);
        self.mean_bytes.is_power_of_two()
            && (MIN_MEAN_BYTES..=MAX_MEAN_BYTES).contains(&self.mean_bytes)
            && self.pieces.iter().all(|piece| (1..=longest).contains(&piece.bytes))
    }
}
