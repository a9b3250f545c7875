//! Keeps what is replaced or deleted under another name, as rsync's `--backup` does.
//!
//! The entry gets its second name first, and loses the old one when the new entry takes it. So a reader always finds an
//! entry under the old name. Where the file system has no hard links, the entry is renamed.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::AtFlags;
use rustix::io::Errno;

use crate::error::{Context, Result, StoreError, is_missing, refusal};
use crate::limits::MAX_DEPTH;
use crate::meta::{Kind, Metadata, Stat};
use crate::name::{parse_haul_name, part_name, split};
use crate::placed::Placed;

use super::{LocalTree, TargetOptions, replace};

/// Where a tree keeps what is replaced.
#[derive(Debug)]
pub(crate) struct Backups {
    suffix: Vec<u8>,
    /// A tree of its own, with the same paths. `None`: beside the entry.
    elsewhere: Option<Box<LocalTree>>,
}

impl LocalTree {
    /// From now on what is replaced or deleted stays: with this suffix, and beneath this directory, if it is not empty.
    /// A relative directory begins at the target.
    pub fn keep_backups(&self, suffix: &[u8], directory: &[u8], options: &TargetOptions) -> Result<()> {
        let is_name = !suffix.contains(&b'/') && !suffix.contains(&0);
        if !is_name || (suffix.is_empty() && directory.is_empty()) {
            let why = refusal(io::ErrorKind::InvalidInput, "the suffix of --backup is no part of a name");
            return Err(StoreError::new("use the suffix", suffix, why));
        }
        let elsewhere = match directory {
            b"" => None,
            _ => Some(Box::new(self.beside(directory, options).context("open the directory of backups", directory)?)),
        };
        let _ = self.settings.backups.set(Backups { suffix: suffix.to_vec(), elsewhere });
        Ok(())
    }

    /// The directory of backups, where it is none of the tree's own.
    pub fn backup_directory(&self) -> Option<BorrowedFd<'_>> {
        self.settings.backups.get().and_then(|backups| backups.elsewhere.as_ref()?.root_directory())
    }
}

impl Backups {
    /// Whether backups stand beside what they are of.
    pub(crate) fn stand_beside(&self) -> bool {
        self.elsewhere.is_none()
    }

    /// Whether an entry with this path could be a backup of another one beside it.
    pub(crate) fn may_be_backup(&self, path: &[u8]) -> bool {
        let name = split(path).1;
        self.stand_beside() && name.len() > self.suffix.len() && name.ends_with(&self.suffix)
    }

    /// Gives the entry its second name. True: it has lost the first one. Directories have no backups, nor have our own
    /// temporary files.
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
        tree.make_parents_like(&path, dir)?;
        tree.within_parent(&path, |to, name| entry.set_aside(to, name))
    }

    /// The name of the backup beside an entry. The source may have an entry with the name of a backup, too: what this job
    /// has placed there stays, and the suffix comes once more behind it. rsync, which goes by name, comes to the same.
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

    /// Keeps an entry that is about to be deleted: see [`Backups::keep`]. A backup of an earlier run that stands beside
    /// its entry gets none of its own.
    pub(crate) fn keep_deleted(&self, placed: &Placed, dir: &Arc<OwnedFd>, path: &[u8]) -> io::Result<bool> {
        if self.may_be_backup(path) { Ok(false) } else { self.keep(placed, dir, path) }
    }
}

/// `f`, `f~`, `f~~` and so on may all come from the source; more than a few do not.
const MAX_SUFFIXES: usize = 16;

struct Entry<'a> {
    dir: &'a Arc<OwnedFd>,
    name: &'a [u8],
    standing: Stat,
}

impl Entry<'_> {
    fn set_aside(&self, to: &Arc<OwnedFd>, backup: &[u8]) -> io::Result<bool> {
        match Stat::of_name(to.as_fd(), backup) {
            // A run that died has done it. A rename onto the same file would do nothing.
            Ok(earlier) if earlier.is_same_inode(&self.standing) => return Ok(false),
            Ok(earlier) if earlier.kind == Kind::Directory => {
                return Err(refusal(io::ErrorKind::IsADirectory, "a directory stands where its backup goes"));
            }
            _ => {}
        }
        let link = |new: &[u8]| rustix::fs::linkat(self.dir, self.name, to, new, AtFlags::empty());
        let linked = match link(backup) {
            // No file can have this name: so it is not the part of a file that has the name of the backup.
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
            // No hard links here, or no more of this file.
            Err(_) => Ok(rustix::fs::renameat(self.dir, self.name, to, backup).map(|()| true)?),
        }
    }
}

impl LocalTree {
    /// Makes the directories above a path. They get the modes of those above `dir`, the directory with the same path in
    /// the other tree.
    fn make_parents_like(&self, path: &[u8], dir: &OwnedFd) -> io::Result<()> {
        // Mostly all of them are there.
        if self.within_parent(path, |_, _| Ok(())).is_ok() {
            return Ok(());
        }
        let ends: Vec<usize> =
            path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at).take(MAX_DEPTH).collect();
        let mut made = Vec::new();
        for (levels, end) in ends.iter().rev().enumerate() {
            let above = [&b"."[..], &b"/..".repeat(levels)].concat();
            made.push((*end, Stat::of_name(dir.as_fd(), &above)?.mode));
        }
        for (end, mode) in made.into_iter().rev() {
            let parent = &path[..end];
            if self.make_dir(parent).map_err(|error| error.source)? {
                let meta = Metadata { mode: Some(mode), ..Metadata::default() };
                self.set_metadata(parent, &meta).map_err(|error| error.source)?;
            }
        }
        Ok(())
    }
}
