//! Tells whether an entry is still the entry that was copied.

use crate::meta::{Stat, Time};

/// An entry when it was copied, by rsync's facts. No ctime: removing another name of the file changes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AsCopied {
    /// The bytes of content.
    pub size: u64,
    /// The last change of content.
    pub mtime: Time,
    /// The file's number, which no other file of that name has.
    pub file: u64,
}

impl AsCopied {
    /// Takes these facts from the metadata.
    pub fn of(stat: &Stat) -> Self {
        Self { size: stat.size, mtime: stat.mtime, file: stat.version.file() }
    }
}
