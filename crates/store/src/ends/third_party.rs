//! Two servers of which one sends files to the other at this host's word ("third party"): the bytes do not pass this host.

use std::fmt::Debug;

use crate::error::Result;
use crate::meta::{Metadata, Time};

/// Has files of the sources brought to a target. Several threads ask at once.
pub trait ThirdParty: Debug + Send + Sync {
    /// Brings a file to its final name, compared by sums of both servers.
    ///
    /// # Errors
    /// The target has no room, or does not name what it has.
    fn bring(&self, file: &FileToBring<'_>) -> Result<Carried>;

    /// How many files may be on their way at once.
    fn at_once(&self) -> usize;
}

/// A file that is to be brought.
#[derive(Clone, Copy)]
pub struct FileToBring<'a> {
    /// In the tree of the sources.
    pub source_path: &'a [u8],
    /// In the target's tree.
    pub path: &'a [u8],
    /// Bytes of content.
    pub size: u64,
    /// The source's modification time. Another version is not brought.
    pub mtime: Time,
    /// What the file is to have.
    pub metadata: &'a Metadata,
    /// Whether nobody wants it any more. Asked often.
    pub is_over: &'a (dyn Fn() -> bool + Sync),
    /// Gets a sign of life: so many bytes are there by now, as far as the servers tell.
    pub moves: &'a (dyn Fn(u64) + Sync),
}

/// The way of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carried {
    /// From server to server. It has its name.
    BetweenServers,
    /// The servers tell different sums of it, however often it was sent. It has no name.
    Differs,
    /// Nothing of it came, or it changed meanwhile: it has to go through this host.
    ThroughThisHost,
}
