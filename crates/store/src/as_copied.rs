//! Tells whether an entry is still the entry that was copied.

use crate::meta::{Stat, Time};

/// An entry as it was when it was copied, with the facts that rsync compares: size, time, and which file it is. No
/// change time (ctime): it changes when another name of the file is removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AsCopied {
    /// Bytes of a regular file.
    pub size: u64,
    /// When the content last changed.
    pub mtime: Time,
    /// The file's number: another file under the same name has another number.
    pub file: u64,
}

impl AsCopied {
    /// Takes these facts from the metadata.
    pub fn of(stat: &Stat) -> Self {
        Self { size: stat.size, mtime: stat.mtime, file: stat.version.file() }
    }
}
