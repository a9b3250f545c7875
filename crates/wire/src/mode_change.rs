//! A change of permission bits (`--chmod`).

use serde::{Deserialize, Serialize};

/// Some bits stay, others are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModeChange {
    /// Changes other entries than directories.
    pub files: bool,
    /// Changes directories.
    pub directories: bool,
    /// Bits that stay.
    pub keep: u32,
    /// Bits that are added.
    pub add: u32,
    /// Files become executable only if somebody could execute them (`X`).
    pub only_if_executable: bool,
}

impl ModeChange {
    /// The mode after the change.
    #[must_use]
    pub fn apply(&self, mode: u32, is_dir: bool) -> u32 {
        if !(if is_dir { self.directories } else { self.files }) {
            return mode;
        }
        let stays_closed = self.only_if_executable && !is_dir && mode & 0o111 == 0;
        let add = if stays_closed { self.add & !0o111 } else { self.add };
        (mode & self.keep | add) & 0o7777
    }
}
