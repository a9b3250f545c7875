//! The settings for a written tree.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::attributes::Namespaces;
use crate::error::refusal;
use crate::kernel_files::KernelFiles;
use crate::listing::are_listed;
use crate::meta::{Applied, Stat};
use crate::placed::{Placed, TWIN};

use super::backup::Backups;
use super::draft_place::{DraftPlace, Drafts};
use super::left_to_owners::LeftToOwners;
use super::made_directories::MadeDirectories;
use super::waiting::Waiting;

#[derive(Debug)]
pub(crate) struct Settings {
    pub namespaces: Namespaces,
    pub umask: u32,
    pub user: u32,
    pub kernel_files: KernelFiles,
    pub placed: Mutex<Placed>,
    /// The first entry without its set-group-id bit.
    pub lost_set_group: OnceLock<Vec<u8>>,
    pub left_to_owners: Mutex<LeftToOwners>,
    /// Where replaced and deleted entries stay, if they do.
    pub backups: OnceLock<Backups>,
    /// The place of parts, if not beside their files.
    pub drafts: OnceLock<Drafts>,
    /// The files that wait for names until the end.
    pub delayed: OnceLock<Waiting>,
    pub made: MadeDirectories,
}

impl Settings {
    /// The place of the part of `name` in `parent`. In place, the journal stands beside the file.
    pub(crate) fn draft_place(
        &self,
        parent: &Arc<OwnedFd>,
        name: &[u8],
        inplace: bool,
        make: bool,
    ) -> io::Result<DraftPlace> {
        Drafts::place(self.drafts(inplace), parent, name, make)
    }

    pub(crate) fn drafts(&self, inplace: bool) -> Option<&Drafts> {
        self.drafts.get().filter(|_| !inplace)
    }

    pub(crate) fn note_applied(&self, applied: Applied, path: &[u8]) {
        if applied.lost_set_group {
            self.lost_set_group.get_or_init(|| path.to_vec());
        }
        self.left_to_owners.lock().unwrap_or_else(PoisonError::into_inner).note(applied.stays, path);
    }

    pub(crate) fn keep_backup(&self, placed: &Placed, dir: &Arc<OwnedFd>, path: &[u8]) -> io::Result<()> {
        self.backups.get().map_or(Ok(()), |backups| backups.keep(placed, dir, path).map(drop))
    }

    pub(crate) fn placed(&self) -> MutexGuard<'_, Placed> {
        self.placed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses an entry in the place of another of this job. `dir` is the path's directory.
    pub(crate) fn refuse_twin(&self, dir: &OwnedFd, standing: &Stat, path: &[u8]) -> io::Result<()> {
        check_twin(&self.placed(), dir, standing, path)
    }

    pub(crate) fn check_placed(&self, dir: &OwnedFd, standing: &Stat, path: &[u8]) -> io::Result<()> {
        self.refuse_twin(dir, standing, path)?;
        self.placed().note(standing, path);
        Ok(())
    }
}

pub(crate) fn check_twin(placed: &Placed, dir: &OwnedFd, standing: &Stat, path: &[u8]) -> io::Result<()> {
    match placed.is_twin(standing, path, &mut |names| are_listed(dir.as_fd(), names))? {
        true => Err(refusal(io::ErrorKind::AlreadyExists, TWIN)),
        false => Ok(()),
    }
}
