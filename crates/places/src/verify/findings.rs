//! The findings of a check, and who hears of them.

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
    /// No regular file, or one behind a link.
    NotAFile,
    /// A failed read in the system's words.
    Unreadable(String),
    /// The list lacks this file.
    Extra,
}

/// Watches a check.
pub trait VerifyWatcher {
    /// Takes a fault.
    fn on_finding(&self, path: &[u8], finding: &Finding);

    /// Takes totals, several times a second.
    fn on_progress(&self, progress: &VerifyProgress);

    /// Ends the check with [`Fault::Interrupted`] if true.
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
    /// Files and bytes of the list, if known early.
    pub listed: Option<(u64, u64)>,
}

pub(super) fn interrupted() -> Error {
    Error::new(Fault::Interrupted, "interrupted before the whole tree was checked")
}
