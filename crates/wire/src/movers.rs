//! The words of a leader, an initiator and movers about files: several hosts are one end.
//!
//! ```text
//!   initiator          mover (another host of the receiver's end)     and the receiver, which leads
//!       ---- Begin, SharedRoot --->                                    <--- SharedRoot ---   a file to find it by
//!       <--- SameRoot -------------
//!       ---- OpenDraft, CloseDraft>                                    <--- OpenDraft ----
//!       <--- Moved ----------------                                    ---- Moved ------->
//!       ---- Bye ----------------->
//!
//!   initiator, which receives    mover (of the sender's end)          and the sender, which leads: all of it is OfMover
//!       <--- Takes ----------------                                    ---- Takes ------->
//!       ---- Portion, Receipts --->                                    <--- Portion ------
//!                                                                      <--- Proofs -------
//!       <--- Returns, Bye ---------                                    ---- Returns ----->
//! ```

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::bounded;
use crate::chunk_range::ChunkRange;
use crate::limits::{MAX_BATCH_ITEMS, MAX_PATH_BYTES, MAX_RANGES};
use crate::manifest::Identity;

/// A new file for a mover to find: only the leader knows its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedRoot {
    /// Final name, relative to the target.
    pub path: Vec<u8>,
    /// The file's inode.
    pub inode: u64,
    /// The file's contents.
    pub token: [u8; 32],
}

/// A file that the leader has opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenDraft {
    /// Manifest index.
    pub index: u64,
    /// Final path, relative to the target.
    pub path: Vec<u8>,
    /// The draft's inode.
    pub inode: u64,
    /// The final size.
    pub size: u64,
}

/// A chunk written, verified and flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedChunk {
    /// Manifest index.
    pub index: u64,
    /// Chunk number.
    pub chunk: u32,
    /// The chunk's hash.
    pub hash: [u8; 32],
    /// Data, without holes.
    pub data_bytes: u64,
    /// Written bytes.
    pub written_bytes: u64,
}

/// Words of a sending end, through the initiator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MoverWord {
    /// More chunks are taken. The first word: sources are open.
    Takes {
        /// Chunks besides earlier ones.
        chunks: u32,
    },
    /// Send these.
    Portion(Portion),
    /// Chunks that go to others.
    Returns {
        /// Manifest index.
        index: u64,
        /// The chunks.
        #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_RANGES>")]
        chunks: Vec<ChunkRange>,
    },
    /// Hashes that the mover's chunks must have.
    Proofs(#[serde(deserialize_with = "bounded::at_most::<_, _, MAX_BATCH_ITEMS>")] Vec<ChunkProof>),
}

impl MoverWord {
    pub(crate) fn is_within_limits(&self) -> bool {
        match self {
            MoverWord::Portion(portion) => portion.path.len() <= MAX_PATH_BYTES,
            MoverWord::Takes { .. } | MoverWord::Returns { .. } | MoverWord::Proofs(_) => true,
        }
    }
}

/// Chunks of a file to send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Portion {
    /// Manifest index.
    pub index: u64,
    /// Index of the source.
    pub source: u32,
    /// Relative to the source.
    pub path: Vec<u8>,
    /// The leader's reading of its identity: nothing of another file is sent.
    pub identity: Identity,
    /// The chunks.
    pub chunks: ChunkRange,
}

/// The leader's reading of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkProof {
    /// Manifest index.
    pub index: u64,
    /// Chunk number.
    pub chunk: u32,
    /// The chunk's hash.
    pub hash: [u8; 32],
}
