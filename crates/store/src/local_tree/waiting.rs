//! The complete files that wait for their names (`--delay-updates`), listed in a file without a name: memory does not grow.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use crate::meta::Stat;
use crate::name::split;
use crate::path_list::PathList;

use super::draft_place::open_own_directory;

#[derive(Debug)]
pub(crate) struct Waiting {
    pub(super) directory: Vec<u8>,
    pub(super) waiting: Mutex<PathList>,
}

impl Waiting {
    pub(crate) fn directory(&self) -> &[u8] {
        &self.directory
    }

    pub(super) fn note(&self, path: &[u8], first: &[u8]) -> io::Result<()> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.add(path)?;
        waiting.add(first)
    }

    /// Puts a complete file into its waiting place by `put`. Notes only a file that then stands there: an earlier run may
    /// have left another. `is_noted`: this job put it there.
    pub(crate) fn stage(
        &self,
        is_noted: impl Fn(&Stat) -> bool,
        parent: &OwnedFd,
        path: &[u8],
        put: impl FnOnce(&Arc<OwnedFd>) -> io::Result<()>,
    ) -> io::Result<Arc<OwnedFd>> {
        let staged = open_own_directory(parent, &self.directory, true).map(Arc::new)?;
        // A file that changed while read comes twice.
        let standing = Stat::of_name(staged.as_fd(), split(path).1).ok();
        let is_listed = standing.is_some_and(|standing| is_noted(&standing));
        put(&staged)?;
        if !is_listed {
            self.note(path, b"")?;
        }
        Ok(staged)
    }
}
