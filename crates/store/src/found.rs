//! What a walk yields: entries to copy, ends of directories, and what was left out or failed.

use crate::error::StoreError;
use crate::meta::Stat;

/// One step of a walk.
#[derive(Debug)]
pub enum Found {
    /// Something to copy.
    Entry(FoundEntry),
    /// All beneath this directory has been yielded.
    DirEnd {
        /// The directory, relative to the target; empty for the root.
        path: Vec<u8>,
        /// All names in it were seen, of every source that has it, so others at the target are extraneous.
        complete: bool,
    },
    /// Something that is not copied, or not fully, and why: "is a FIFO".
    Skipped {
        /// Relative to the target.
        path: Vec<u8>,
        /// Continues a sentence that begins with the path.
        why: String,
    },
    /// Something that could not be looked at. Behind the entry of a directory, with its path: its names or attributes could not be read.
    Failed {
        /// Relative to the target.
        path: Vec<u8>,
        /// Why.
        error: StoreError,
        /// What may be missing for it.
        hides: Hidden,
    },
}

/// What a walk may not have found because of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hidden {
    /// Nothing that is there.
    Nothing,
    /// A name of the same directory, which changed while it was listed.
    Sibling,
    /// Nobody knows what: a file that was moved there, a whole tree.
    Anything,
}

/// Something to copy.
#[derive(Debug, Clone)]
pub struct FoundEntry {
    /// Number of the source, for [`SourceSet::open`](crate::SourceSet::open).
    pub source: u32,
    /// Relative to the target: never begins with `/`, no empty, `.` or `..` component. Empty for the root itself.
    pub path: Vec<u8>,
    /// Relative to the source, for [`SourceSet::open`](crate::SourceSet::open).
    pub source_path: Vec<u8>,
    /// What the file system said.
    pub stat: Stat,
    /// Its inode tells when it changed, also where somebody set back the time of its content. Files only.
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
        /// Names that it has beside this one, where they are asked for: those that are found come as [`EntryKind::HardLink`].
        further_names: u64,
    },
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink {
        /// Where it points, byte for byte.
        target: Vec<u8>,
    },
    /// Another name of a file or symbolic link that was yielded before.
    HardLink {
        /// Target-relative path of the first name.
        first: Vec<u8>,
    },
}
