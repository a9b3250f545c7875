//! What a leader, an initiator and movers say of files: several hosts are one end.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// A file that the leader has just made, for a mover to find. Nobody else can know what is in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedRoot {
    /// The name that the file would get in the end, relative to the target.
    pub path: Vec<u8>,
    /// Its inode.
    pub inode: u64,
    /// What is in it.
    pub token: [u8; 32],
}

/// A file that the leader has opened to be written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenDraft {
    /// Manifest index.
    pub index: u64,
    /// Its final path, relative to the target.
    pub path: Vec<u8>,
    /// The inode of the draft.
    pub inode: u64,
    /// The size that it will have.
    pub size: u64,
}

/// A chunk that a mover wrote, verified and flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedChunk {
    /// Manifest index.
    pub index: u64,
    /// Chunk number.
    pub chunk: u32,
    /// Its hash.
    pub hash: [u8; 32],
    /// Bytes of it that were data, not holes.
    pub data_bytes: u64,
    /// Bytes of it that were written.
    pub written_bytes: u64,
}
