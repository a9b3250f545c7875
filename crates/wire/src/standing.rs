//! The file that stands at the target, cut into pieces by its content. The sender sends only what is in none of them.
//!
//! ```text
//!   receiver   reads the standing file, cuts it -> Standing ... Standing (last)      control channel
//!   sender     cuts its own file in the same way, and compares
//!   sender     a run that stands at the target: a block with its place there, no data      lane
//!   receiver   reads the run from the standing file, hashes and writes it as if it had come
//! ```
//! A digest only says where it is worth looking: the chunk's BLAKE3 decides.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::bounded;

/// Pieces in one message: 4096 of at most 13 bytes are 52 KiB.
pub const MAX_PIECES: usize = 4096;

/// Mean length of a piece, at least. Shorter ones would cost more on the wire than they save.
pub const MIN_MEAN_BYTES: u32 = 8 << 10;

/// Mean length of a piece, at most: the cutting algorithm allows no more.
pub const MAX_MEAN_BYTES: u32 = 4 << 20;

/// A piece is at most so many times as long as the mean.
pub const LONGEST_IN_MEANS: u32 = 4;

/// The next pieces of the file that stands at the target under the name of an item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// Manifest index.
    pub index: u64,
    /// Mean length of the pieces of this file: a power of two.
    pub mean_bytes: u32,
    /// The file is written in place, so that a run can only stay where it is.
    pub in_place: bool,
    /// Pieces that follow each other, behind those of the message before.
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_PIECES>")]
    pub pieces: Vec<Piece>,
    /// No more pieces follow.
    pub is_last: bool,
}

/// A piece of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// Its length.
    pub bytes: u32,
    /// The first eight bytes of its BLAKE3.
    pub digest: [u8; 8],
}

impl Standing {
    /// Whether an honest receiver could have sent it.
    pub fn is_within_limits(&self) -> bool {
        let longest = self.mean_bytes.saturating_mul(LONGEST_IN_MEANS);
        self.mean_bytes.is_power_of_two()
            && (MIN_MEAN_BYTES..=MAX_MEAN_BYTES).contains(&self.mean_bytes)
            && self.pieces.iter().all(|piece| (1..=longest).contains(&piece.bytes))
    }
}
