//! The steps of a walk.

use std::io;

use crate::error::{StoreError, refusal};
use crate::meta::Stat;
use crate::special::Special;

/// One step of a walk.
#[derive(Debug)]
pub enum Found {
    /// Something to copy.
    Entry(FoundEntry),
    /// All beneath this directory has been yielded.
    DirEnd {
        /// The directory's path; empty: the root.
        path: Vec<u8>,
        /// All names of each source were seen: others at the target are extraneous.
        complete: bool,
    },
    /// An entry not copied, or in part.
    Skipped {
        /// Relative to the target.
        path: Vec<u8>,
        /// The reason, behind the path: "is a FIFO".
        why: String,
    },
    /// An entry that could not be looked at; behind a directory's: its names or attributes could not be read.
    Failed {
        /// Relative to the target.
        path: Vec<u8>,
        /// The cause.
        error: StoreError,
        /// The entries that the walk may have missed.
        hides: Hidden,
    },
}

impl Found {
    /// A failed step.
    pub fn failed(op: &'static str, path: Vec<u8>, error: io::Error) -> Found {
        let error = StoreError::new(op, &path, error);
        let hides = if error.is_vanished() { Hidden::Sibling } else { Hidden::Anything };
        Found::Failed { path, error, hides }
    }

    pub(crate) fn list_of_no_directory(typed: Vec<u8>) -> Found {
        let error = refusal(io::ErrorKind::NotADirectory, "a list of files needs one directory as the source");
        let error = StoreError::new("copy from a list", &typed, error);
        Found::Failed { path: typed, error, hides: Hidden::Anything }
    }
}

/// The entries that a failure may have hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hidden {
    /// No entry.
    Nothing,
    /// A name of the same, changing directory.
    Sibling,
    /// Any entry: a moved file, or a whole tree.
    Anything,
}

/// An entry to copy.
#[derive(Debug, Clone)]
pub struct FoundEntry {
    /// The source's number, for [`SourceSet::open`](crate::SourceSet::open).
    pub source: u32,
    /// Relative to the target, without leading `/`, empty, `.` or `..` components; empty for the root.
    pub path: Vec<u8>,
    /// Relative to the source, for [`SourceSet::open`](crate::SourceSet::open).
    pub source_path: Vec<u8>,
    /// The file system's metadata.
    pub stat: Stat,
    /// The file has a ctime, which shows a change even with the modification time set back.
    pub tells_changes: bool,
    /// The target's entry.
    pub kind: EntryKind,
    /// The requested extended attributes and ACLs, sorted.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The target's entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File {
        /// The other names, if hard links are asked for. Found ones come as [`EntryKind::HardLink`].
        further_names: u64,
    },
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink {
        /// The target's bytes.
        target: Vec<u8>,
    },
    /// A device, FIFO or socket, if asked for.
    Special(Special),
    /// A further name of an earlier file or link.
    HardLink {
        /// The first name's path at the target.
        first: Vec<u8>,
    },
}

/// Why an entry of such a name is not copied.
pub const CALLED_LIKE_A_PART: &str = "it is called like an unfinished file of haul; if a copy left it, run that one again or remove it, else rename it; \
    --exclude '.haul-*' leaves it out";
