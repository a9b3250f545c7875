//! The directories that this job made, without a journal: no run has left one there.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// The newest first.
#[derive(Debug, Default)]
pub(crate) struct MadeDirectories(Mutex<VecDeque<Vec<u8>>>);

/// Files follow their directory: few are in use at once. Others cost a call a file.
const REMEMBERED: usize = 64;

impl MadeDirectories {
    pub(crate) fn note(&self, path: &[u8]) {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        made.truncate(REMEMBERED - 1);
        made.push_front(path.to_vec());
    }

    /// Forgets a directory with a journal, or perhaps somebody else's.
    pub(crate) fn forget(&self, path: &[u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|made| made != path);
    }

    pub(crate) fn has(&self, path: &[u8]) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|made| made == path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_known() {
        let made = MadeDirectories::default();
        for number in 0..=REMEMBERED {
            made.note(format!("d{number}").as_bytes());
        }
        assert!(!made.has(b"d0") && made.has(b"d1") && made.has(format!("d{REMEMBERED}").as_bytes()));
        made.forget(b"d1");
        assert!(!made.has(b"d1") && made.has(b"d2"));
    }
}
