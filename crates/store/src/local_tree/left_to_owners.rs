//! Counts what stays on other users' entries, which only they may change (chmod(2), utimensat(2)).

use crate::meta::MayStay;

/// Entries of other users that stay.
#[derive(Clone, Debug, Default)]
pub struct LeftToOwners {
    /// Entries with other permissions than the source's.
    pub modes: u64,
    /// Entries with another time than the source's.
    pub times: u64,
    /// The first of these entries.
    pub first: Vec<u8>,
}

impl LeftToOwners {
    pub(super) fn note(&mut self, stays: MayStay, path: &[u8]) {
        if self.is_empty() {
            self.first = path.to_vec();
        }
        self.modes += u64::from(stays.mode);
        self.times += u64::from(stays.mtime);
    }

    /// Whether everything was set.
    pub fn is_empty(&self) -> bool {
        (self.modes, self.times) == (0, 0)
    }
}
