//! Keeps replaced and deleted entries under another name, as rsync's `--backup` does.
//!
//! The entry gets its second name before it loses the first: a reader always finds one. Without hard links it is renamed.

use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::AtFlags;
use rustix::io::Errno;

use crate::error::{is_missing, refusal};
use crate::meta::{Kind, Stat};
use crate::name::{parse_haul_name, part_name, split};
use crate::placed::Placed;

use super::replace::replace;

#[derive(Debug)]
pub(crate) struct Backups {
    suffix: Vec<u8>,
    /// The tree of backups; `None`: beside their entries.
    elsewhere: Option<Box<dyn Elsewhere>>,
}

pub(super) trait Elsewhere: fmt::Debug + Send + Sync {
    /// Runs `work` with this path's directory and name. Missing directories get the modes of those above `like`, at the same
    /// path in the other tree.
    fn within_parent_like(&self, path: &[u8], like: &OwnedFd, work: &mut Work<'_>) -> io::Result<bool>;

    fn root_directory(&self) -> Option<BorrowedFd<'_>>;
}

pub(super) type Work<'a> = dyn FnMut(&Arc<OwnedFd>, &[u8]) -> io::Result<bool> + 'a;

impl Backups {
    pub(super) fn new(suffix: &[u8], elsewhere: Option<Box<dyn Elsewhere>>) -> Self {
        Self { suffix: suffix.to_vec(), elsewhere }
    }

    pub(super) fn directory(&self) -> Option<BorrowedFd<'_>> {
        self.elsewhere.as_ref()?.root_directory()
    }

    pub(crate) fn stand_beside(&self) -> bool {
        self.elsewhere.is_none()
    }

    pub(crate) fn may_be_backup(&self, path: &[u8]) -> bool {
        let name = split(path).1;
        self.stand_beside() && name.len() > self.suffix.len() && name.ends_with(&self.suffix)
    }

    /// Gives the entry its second name; true if it lost the first. Directories and our temporary files have no backups.
    pub(crate) fn keep(&self, placed: &Placed, dir: &Arc<OwnedFd>, path: &[u8]) -> io::Result<bool> {
        let name = split(path).1;
        if parse_haul_name(name).is_some() {
            return Ok(false);
        }
        let standing = match Stat::of_name(dir.as_fd(), name) {
            Ok(standing) if standing.kind != Kind::Directory => standing,
            Ok(_) | Err(Errno::NOENT) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let entry = Entry { dir, name, standing };
        let Some(tree) = &self.elsewhere else {
            return entry.set_aside(dir, &self.free_of_ours(placed, dir, path)?);
        };
        let path = [path, &self.suffix].concat();
        tree.within_parent_like(&path, dir, &mut |to, name| entry.set_aside(to, name))
    }

    /// The name of the backup beside an entry. Where this job has placed an entry, the suffix is added once more, as in
    /// rsync.
    fn free_of_ours(&self, placed: &Placed, dir: &Arc<OwnedFd>, path: &[u8]) -> io::Result<Vec<u8>> {
        let mut backup = path.to_vec();
        for _ in 0..MAX_SUFFIXES {
            backup.extend_from_slice(&self.suffix);
            let name = split(&backup).1;
            let standing = Stat::of_name(dir.as_fd(), name).ok();
            if !standing.is_some_and(|standing| placed.is_noted(&standing, &backup)) {
                return Ok(name.to_vec());
            }
        }
        Err(refusal(io::ErrorKind::AlreadyExists, "entries of this copy have all names that its backup could get"))
    }

    /// [`Backups::keep`] of an entry to be deleted; a backup beside its entry gets none.
    pub(crate) fn keep_deleted(&self, placed: &Placed, dir: &Arc<OwnedFd>, path: &[u8]) -> io::Result<bool> {
        if self.may_be_backup(path) { Ok(false) } else { self.keep(placed, dir, path) }
    }
}

/// `f`, `f~`, `f~~` may come from the source, but not many more.
const MAX_SUFFIXES: usize = 16;

struct Entry<'a> {
    dir: &'a Arc<OwnedFd>,
    name: &'a [u8],
    standing: Stat,
}

impl Entry<'_> {
    fn set_aside(&self, to: &Arc<OwnedFd>, backup: &[u8]) -> io::Result<bool> {
        match Stat::of_name(to.as_fd(), backup) {
            // A run that died has done it; the rename would do nothing.
            Ok(earlier) if earlier.is_same_inode(&self.standing) => return Ok(false),
            Ok(earlier) if earlier.kind == Kind::Directory => {
                return Err(refusal(io::ErrorKind::IsADirectory, "a directory stands where its backup goes"));
            }
            _ => {}
        }
        let link = |new: &[u8]| rustix::fs::linkat(self.dir, self.name, to, new, AtFlags::empty());
        let linked = match link(backup) {
            // No file can have this name: it is not the part of a file with the backup's name.
            Err(Errno::EXIST) => replace(to, backup, &part_name(&[b"/", backup].concat()), link),
            linked => Ok(linked?),
        };
        match linked {
            Ok(()) => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => Err(refusal(
                io::ErrorKind::CrossesDevices,
                "the directory of its backup is on another file system; --backup-dir takes one on the same",
            )),
            Err(error) if is_missing(&error) => Err(error),
            // The file system has no hard links, or no more of this file.
            Err(_) => Ok(rustix::fs::renameat(self.dir, self.name, to, backup).map(|()| true)?),
        }
    }
}
