//! What a check finds in a tree, and who hears of it.

use haul_job::{Error, Fault};

/// A fault of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The file is missing.
    Missing,
    /// The size differs from the list.
    Size {
        /// The size in the list.
        listed: u64,
        /// The size in the tree.
        found: u64,
    },
    /// The contents differ.
    Altered,
    /// The name is no regular file, or leads through a symbolic link.
    NotAFile,
    /// The file could not be read; the text is the system's.
    Unreadable(String),
    /// The list lacks this file of the tree.
    Extra,
}

/// Watches a check.
pub trait VerifyWatcher {
    /// Takes a fault.
    fn on_finding(&self, path: &[u8], finding: &Finding);

    /// Takes running totals, several times a second.
    fn on_progress(&self, progress: &VerifyProgress);

    /// Ends the check with [`Fault::Interrupted`] if true. It is asked often.
    fn interrupted(&self) -> bool {
        false
    }
}

/// Running totals of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifyProgress {
    /// Files that were checked.
    pub files: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Files and bytes of the list, if they are known before its end is read.
    pub listed: Option<(u64, u64)>,
}

/// The error of a check that its watcher ended.
pub(super) fn interrupted() -> Error {
    Error::new(Fault::Interrupted, "interrupted before the whole tree was checked")
}
