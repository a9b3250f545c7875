//! What tells whether an entry is still what was copied.

use crate::meta::{Stat, Time};

/// What an entry was when it was copied, as far as rsync looks at it again: its size, its time, and which file it is. The
/// time of its change is not among them: it changes when another name of the file is removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AsCopied {
    /// Bytes of a regular file.
    pub size: u64,
    /// When the content last changed.
    pub mtime: Time,
    /// The number that another file under the same name has not.
    pub file: u64,
}

impl AsCopied {
    /// What this is.
    pub fn of(stat: &Stat) -> Self {
        Self { size: stat.size, mtime: stat.mtime, file: stat.version.file() }
    }
}
