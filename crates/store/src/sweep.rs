//! Removes parts that nobody will go on with.
//!
//! A run that is killed leaves parts. One with a journal is resumed; one without is used again when its file is sent
//! again. But its file may be there already: the agent of a run before, which still drained its lanes, finished it. Then
//! only somebody who looks for such parts finds them.

use std::os::fd::{AsFd, OwnedFd};

use haul_sys::file;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::listing::{Hint, Names};
use crate::meta::Stat;
use crate::name::{journal_name, journal_of_part, part_name, split};
use crate::own_file::{WRITE_FLAGS, is_own, is_still_there};
use crate::regular_file::READ_FLAGS;
use crate::tree::TargetTree;

impl TargetTree {
    /// Removes the parts in the directory `path` that have no journal and that nobody is writing. True when there were
    /// any. What cannot be listed, locked or removed stays: it is in nobody's way.
    pub fn sweep_parts(&self, path: &[u8]) -> bool {
        let Ok(dir) = self.open_dir(path) else { return false };
        let Ok(names) = Names::read_only(dir.as_fd(), |name| journal_of_part(name).is_some()) else { return false };
        let mut any = false;
        let mut next = 0;
        while let Some((name, hint)) = names.get(next) {
            next += 1;
            any |= matches!(hint, Hint::Other | Hint::Unknown) && self.sweep(&dir, name);
        }
        any
    }

    /// [`TargetTree::sweep_parts`] for the part of one file, in a directory that may be too large to list for it.
    pub fn sweep_part_of(&self, path: &[u8]) -> bool {
        let (parent, name) = split(path);
        self.open_dir(parent).is_ok_and(|dir| self.sweep(&dir, &part_name(name)))
    }

    /// Removes the journal of a file that is complete: a crash between the file's final name and the removal leaves it. As
    /// long as there is a part, or somebody writes into the file, it stays.
    pub fn remove_left_journal(&self, path: &[u8]) {
        let Ok((dir, name)) = self.place(path) else { return };
        let (journal, part) = (journal_name(name), part_name(name));
        if !Stat::of_name(dir.as_fd(), &journal).is_ok_and(|stat| is_own(&stat, self.settings.user)) {
            return;
        }
        // The lock of a part goes with it to its final name; in place, the file itself is the part.
        let open = || rustix::fs::openat(&dir, name, READ_FLAGS, Mode::empty());
        let unused = rustix::io::retry_on_intr(open).is_ok_and(|file| file::try_lock_surely(file.as_fd()));
        if unused && matches!(Stat::of_name(dir.as_fd(), &part), Err(Errno::NOENT)) {
            // One that cannot be removed is in nobody's way.
            let _ = rustix::fs::unlinkat(&dir, &journal, AtFlags::empty());
        }
    }

    fn sweep(&self, dir: &OwnedFd, name: &[u8]) -> bool {
        let Some(journal) = journal_of_part(name) else { return false };
        // Only with the lock of its part is a journal begun, so none can come between the look and the removal.
        self.remove_unused(dir, name, || matches!(Stat::of_name(dir.as_fd(), &journal), Err(Errno::NOENT)))
    }

    /// Removes the part of a file whose journal is about to tell of the file itself. One that somebody is writing stays.
    pub(crate) fn remove_left_part(&self, dir: &OwnedFd, name: &[u8]) {
        self.remove_unused(dir, &part_name(name), || true);
    }

    /// Removes a part that nobody is writing. True when it was there and is gone; `is_useless` is asked with its lock.
    fn remove_unused(&self, dir: &OwnedFd, name: &[u8], is_useless: impl FnOnce() -> bool) -> bool {
        let user = self.settings.user;
        // Opening something else, a device for example, could have effects.
        if !Stat::of_name(dir.as_fd(), name).is_ok_and(|stat| is_own(&stat, user)) {
            return false;
        }
        let open = |flags| rustix::io::retry_on_intr(|| rustix::fs::openat(dir, name, flags, Mode::empty()));
        // Just before it would have been renamed it had the mode of its source, maybe one that does not let us write.
        let part = match open(WRITE_FLAGS) {
            Err(Errno::ACCESS) => open(WRITE_FLAGS.difference(OFlags::RDWR)),
            opened => opened,
        };
        let Ok(part) = part else { return false };
        if !file::try_lock_surely(part.as_fd()) {
            return false;
        }
        // Whoever held the lock before may have renamed it to its final name.
        let is_it = Stat::of_fd(&part).is_ok_and(|stat| is_own(&stat, user) && is_still_there(dir, name, &stat));
        is_it && is_useless() && rustix::fs::unlinkat(dir, name, AtFlags::empty()).is_ok()
    }
}
