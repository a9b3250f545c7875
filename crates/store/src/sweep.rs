//! Removes parts that no run will continue.
//!
//! A part with a journal is resumed; one without is used again with its file. But a killed run's agent may have finished the
//! file while draining its lanes: only a sweep then finds the part.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use haul_sys::file;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::listing::{Hint, Names};
use crate::local_tree::{Drafts, LocalTree};
use crate::meta::Stat;
use crate::name::{join, journal_name, journal_of_part, part_name, split};
use crate::own_file::{WRITE_FLAGS, is_own, is_still_there};
use crate::regular_file::READ_FLAGS;

impl LocalTree {
    /// Removes the parts in a directory without journal and writer. True: there were any. What cannot be listed, locked or
    /// removed does no harm.
    pub fn sweep_parts(&self, path: &[u8]) -> bool {
        let in_each = match self.settings.drafts.get() {
            Some(Drafts::InEach(name)) => self.sweep_in(&join(path, name)),
            _ => false,
        };
        self.sweep_in(path) || in_each
    }

    /// Sweeps the one directory with all parts: those of files gone from the source are found nowhere else.
    pub fn sweep_one_directory(&self) {
        if let Some(Drafts::InOne(dir)) = self.settings.drafts.get() {
            self.sweep_all_in(dir);
        }
    }

    fn sweep_in(&self, path: &[u8]) -> bool {
        self.open_dir(path).is_ok_and(|dir| self.sweep_all_in(&dir))
    }

    fn sweep_all_in(&self, dir: &OwnedFd) -> bool {
        let Ok(names) = Names::read_only(dir.as_fd(), |name| journal_of_part(name).is_some()) else { return false };
        let mut any = false;
        let mut next = 0;
        while let Some((name, hint)) = names.get(next) {
            next += 1;
            any |= matches!(hint, Hint::Other | Hint::Unknown) && self.sweep(dir, name);
        }
        any
    }

    /// [`LocalTree::sweep_parts`] for one file: the directory may be too large to list.
    pub fn sweep_part_of(&self, path: &[u8]) -> bool {
        let (parent, name) = split(path);
        let Ok(dir) = self.open_dir(parent).map(Arc::new) else { return false };
        match self.settings.draft_place(&dir, name, false, false) {
            Ok(place) if !Arc::ptr_eq(&place.dir, &dir) && self.sweep(&place.dir, &place.part) => true,
            _ => self.sweep(&dir, &part_name(name)),
        }
    }

    /// Removes a complete file's journal, left by a crash, unless there is a part or a writer of the file.
    pub fn remove_left_journal(&self, path: &[u8]) {
        let Ok((parent, name)) = self.place(path) else { return };
        self.remove_left_journal_in(&parent, name, &parent, &journal_name(name), &part_name(name));
        match self.settings.draft_place(&parent, name, false, false) {
            Ok(place) if !Arc::ptr_eq(&place.dir, &parent) => {
                self.remove_left_journal_in(&parent, name, &place.dir, &place.journal, &place.part);
            }
            _ => {}
        }
    }

    fn remove_left_journal_in(&self, parent: &OwnedFd, name: &[u8], dir: &OwnedFd, journal: &[u8], part: &[u8]) {
        if !Stat::of_name(dir.as_fd(), journal).is_ok_and(|stat| is_own(&stat, self.settings.user)) {
            return;
        }
        // A part's lock goes with it to its name; in place, the file is the part.
        let open = || rustix::fs::openat(parent, name, READ_FLAGS, Mode::empty());
        let unused = rustix::io::retry_on_intr(open).is_ok_and(|file| file::try_lock_surely(file.as_fd()));
        if unused && matches!(Stat::of_name(dir.as_fd(), part), Err(Errno::NOENT)) {
            let _ = rustix::fs::unlinkat(dir, journal, AtFlags::empty());
        }
    }

    fn sweep(&self, dir: &OwnedFd, name: &[u8]) -> bool {
        let Some(journal) = journal_of_part(name) else { return false };
        // A journal is begun only under its part's lock: none appears in between.
        self.remove_unused(dir, name, || matches!(Stat::of_name(dir.as_fd(), &journal), Err(Errno::NOENT)))
    }

    /// Removes the unused part of a file to be written in place: the journal will be of the file.
    pub(crate) fn remove_left_part(&self, dir: &OwnedFd, name: &[u8]) {
        self.remove_unused(dir, &part_name(name), || true);
    }

    /// Removes an unused part; true if it is gone. `is_useless` is asked under the lock.
    fn remove_unused(&self, dir: &OwnedFd, name: &[u8], is_useless: impl FnOnce() -> bool) -> bool {
        let Some(_part) = lock_unused(dir, name, self.settings.user) else { return false };
        is_useless() && rustix::fs::unlinkat(dir, name, AtFlags::empty()).is_ok()
    }
}

/// Locks this user's unused part, until the descriptor closes.
pub(crate) fn lock_unused(dir: impl AsFd, name: &[u8], user: u32) -> Option<OwnedFd> {
    let dir = dir.as_fd();
    // Opening a device, for example, could have effects.
    if !Stat::of_name(dir, name).is_ok_and(|stat| is_own(&stat, user)) {
        return None;
    }
    let open = |flags| rustix::io::retry_on_intr(|| rustix::fs::openat(dir, name, flags, Mode::empty()));
    // A part about to be renamed has its source's mode, perhaps without writing.
    let part = match open(WRITE_FLAGS) {
        Err(Errno::ACCESS) => open(WRITE_FLAGS.difference(OFlags::RDWR)),
        opened => opened,
    };
    let part = part.ok().filter(|part| file::try_lock_surely(part.as_fd()))?;
    // The last holder may have renamed it.
    let is_it = Stat::of_fd(&part).is_ok_and(|stat| is_own(&stat, user) && is_still_there(dir, name, &stat));
    is_it.then_some(part)
}
