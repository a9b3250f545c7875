//! Hashes of files that the initiator names one by one: `haul verify LIST host:path`, `haul diff`.
//!
//! ```text
//!   initiator                    agent
//!       ---- Start: a question, its path is the root --->
//!       ---- Wanted ------------->        at most [`MAX_WANTED_FILES`] without an answer
//!       <--- Told::Found ---------        one for each, in any order, with its number
//!       ---- End ---------------->
//!       <--- End -----------------
//! ```
//! The agent does not know the expected hash, so it has to read the file.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::limits::MAX_TEXT_BYTES;
use crate::path::RelPath;

/// Files that await an answer.
pub const MAX_WANTED_FILES: usize = 4096;

/// Half of what waits at a session that does not listen.
pub const MAX_WANTED_BYTES: usize = 4 << 20;

/// SHA-512.
pub const MAX_HASH_BYTES: usize = 64;

/// Common hashes in lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Algorithm {
    Blake3,
    Md5,
    Sha1,
    Sha256,
    Sha512,
}

impl Algorithm {
    /// Bytes of a hash.
    pub fn bytes(self) -> usize {
        match self {
            Self::Md5 => 16,
            Self::Sha1 => 20,
            Self::Blake3 | Self::Sha256 => 32,
            Self::Sha512 => MAX_HASH_BYTES,
        }
    }
}

/// A file to hash, numbered by its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedFile {
    /// Path beneath the root.
    pub path: RelPath,
    /// Expected: otherwise it need not be read.
    pub size: Option<u64>,
    /// The wanted hash.
    pub algorithm: Algorithm,
    /// Second algorithm, from the same reading.
    pub or: Option<Algorithm>,
}

/// The finding about a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileFound {
    /// The whole file was read.
    Hashed {
        /// Size.
        size: u64,
        /// Hash of at most [`MAX_HASH_BYTES`].
        hash: Vec<u8>,
        /// The other hash, or empty.
        or: Vec<u8>,
    },
    /// An unexpected size.
    OtherSize {
        /// The found size.
        size: u64,
    },
    /// The file is missing.
    Missing,
    /// No regular file, or behind a symbolic link.
    NotAFile,
    /// The file cannot be read.
    Unreadable {
        /// The system's words.
        why: String,
    },
}

impl WantedFile {
    /// The question's approximate memory.
    pub fn weight_bytes(&self) -> usize {
        size_of::<Self>() + self.path.as_bytes().len()
    }
}

impl FileFound {
    pub(crate) fn weight_bytes(&self) -> usize {
        match self {
            Self::Hashed { hash, or, .. } => hash.len() + or.len(),
            Self::Unreadable { why } => why.len(),
            Self::OtherSize { .. } | Self::Missing | Self::NotAFile => 0,
        }
    }

    pub(crate) fn is_within_limits(&self) -> bool {
        match self {
            Self::Hashed { hash, or, .. } => hash.len().max(or.len()) <= MAX_HASH_BYTES,
            Self::Unreadable { why } => why.len() <= MAX_TEXT_BYTES,
            Self::OtherSize { .. } | Self::Missing | Self::NotAFile => true,
        }
    }
}
