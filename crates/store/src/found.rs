//! The steps of a walk: entries, ends of directories, skipped entries and failures.

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
        /// The directory, relative to the target; empty for the root.
        path: Vec<u8>,
        /// All names in the directory were seen, of every source that has it, so other names at the target are
        /// extraneous.
        complete: bool,
    },
    /// An entry that is not copied, or only in part, and why: "is a FIFO".
    Skipped {
        /// Relative to the target.
        path: Vec<u8>,
        /// Continues a sentence that begins with the path.
        why: String,
    },
    /// An entry that could not be looked at. If the path is a directory's, after its entry, its names or attributes
    /// could not be read.
    Failed {
        /// Relative to the target.
        path: Vec<u8>,
        /// Why.
        error: StoreError,
        /// The entries that the walk may have missed because of it.
        hides: Hidden,
    },
}

impl Found {
    /// An entry of a directory that could not be looked at.
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

/// The entries that a walk may have missed because of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hidden {
    /// No existing entry is missing.
    Nothing,
    /// A name of the same directory may be missing, because the directory changed while it was listed.
    Sibling,
    /// Any entry may be missing: a file that was moved there, or a whole tree.
    Anything,
}

/// An entry to copy.
#[derive(Debug, Clone)]
pub struct FoundEntry {
    /// Number of the source, for [`SourceSet::open`](crate::SourceSet::open).
    pub source: u32,
    /// Relative to the target, without a leading `/` and without empty, `.` or `..` components. Empty for the root
    /// itself.
    pub path: Vec<u8>,
    /// Relative to the source, for [`SourceSet::open`](crate::SourceSet::open).
    pub source_path: Vec<u8>,
    /// The metadata that the file system reported.
    pub stat: Stat,
    /// The file system keeps a change time (ctime), which shows a change even if somebody set back the modification
    /// time. Files only.
    pub tells_changes: bool,
    /// What to make at the target.
    pub kind: EntryKind,
    /// Extended attributes and ACLs as asked for, sorted by name.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What to make at the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File {
        /// The number of other names, if hard links are asked for. The names that the walk finds come as
        /// [`EntryKind::HardLink`].
        further_names: u64,
    },
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink {
        /// Where it points, byte for byte.
        target: Vec<u8>,
    },
    /// A device, FIFO or socket, if asked for.
    Special(Special),
    /// Another name of a file or symbolic link that was yielded before.
    HardLink {
        /// The first name's path, relative to the target.
        first: Vec<u8>,
    },
}

/// Why a source's entry of such a name is not copied.
pub const CALLED_LIKE_A_PART: &str = "it is called like an unfinished file of haul; if a copy left it, run that one again or remove it, else rename it; \
    --exclude '.haul-*' leaves it out";
