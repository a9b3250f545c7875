//! The words of a leader, an initiator and movers about files: several hosts are one end.
//!
//! ```text
//!   initiator          mover (another host of the receiver's end)     and the receiver, which leads
//!       ---- Begin, SharedRoot --->                                    <--- SharedRoot ---   a file to find it by
//!       <--- SameRoot -------------
//!       ---- OpenDraft, CloseDraft>                                    <--- OpenDraft ----   files whose chunks a mover may write
//!       <--- Moved ----------------                                    ---- Moved ------->   chunks that it wrote, verified and flushed
//!       ---- Bye ----------------->
//!
//!   initiator, which receives    mover (of the sender's end)          and the sender, which leads: all of it is OfMover
//!       <--- Takes ----------------                                    ---- Takes ------->   it takes so many chunks
//!       ---- Portion, Receipts --->                                    <--- Portion ------   which ones
//!                                                                      <--- Proofs -------   what they have to hash to
//!       <--- Returns, Bye ---------                                    ---- Returns ----->
//! ```

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::bounded;
use crate::chunk_range::ChunkRange;
use crate::limits::{MAX_BATCH_ITEMS, MAX_PATH_BYTES, MAX_RANGES};
use crate::manifest::Identity;

/// A file that the leader has just made for a mover to find. Nobody else can know its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedRoot {
    /// The final name of that file, relative to the target.
    pub path: Vec<u8>,
    /// The inode of the token.
    pub inode: u64,
    /// The token's contents.
    pub token: [u8; 32],
}

/// A file that the leader has opened to be written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenDraft {
    /// Manifest index.
    pub index: u64,
    /// The final path, relative to the target.
    pub path: Vec<u8>,
    /// The inode of the draft.
    pub inode: u64,
    /// The final size.
    pub size: u64,
}

/// A chunk that a mover wrote, verified and flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedChunk {
    /// Manifest index.
    pub index: u64,
    /// Chunk number.
    pub chunk: u32,
    /// The chunk's hash.
    pub hash: [u8; 32],
    /// Its bytes of data, without holes.
    pub data_bytes: u64,
    /// Its bytes that were written.
    pub written_bytes: u64,
}

/// Messages of the hosts of a sending end to each other, through the initiator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MoverWord {
    /// Mover to leader: it takes this many more chunks. The first such message says that its sources are open.
    Takes {
        /// The number of chunks, besides those that it was given already.
        chunks: u32,
    },
    /// Leader to mover: send these.
    Portion(Portion),
    /// Mover to leader: these chunks go to others.
    Returns {
        /// Manifest index.
        index: u64,
        /// The chunks.
        #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_RANGES>")]
        chunks: Vec<ChunkRange>,
    },
    /// Leader to receiver: the hashes that chunks of this mover must have.
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

/// Chunks of one file that a mover shall send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Portion {
    /// Manifest index.
    pub index: u64,
    /// The index of the source in the job.
    pub source: u32,
    /// The path relative to the source.
    pub path: Vec<u8>,
    /// The identity that the leader found there. The mover sends nothing of a file that differs.
    pub identity: Identity,
    /// The chunks.
    pub chunks: ChunkRange,
}

/// The leader's reading of a chunk that a mover sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkProof {
    /// Manifest index.
    pub index: u64,
    /// Chunk number.
    pub chunk: u32,
    /// The chunk's hash.
    pub hash: [u8; 32],
}
