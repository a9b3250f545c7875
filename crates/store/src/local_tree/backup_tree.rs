//! A tree keeps what it replaces and deletes, beside it or in a tree for backups.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use crate::error::{Context, Result, StoreError, refusal};
use crate::limits::MAX_DEPTH;
use crate::meta::{Metadata, Stat};

use super::LocalTree;
use super::backup::{Backups, Elsewhere, Work};
use super::options::TargetOptions;

impl LocalTree {
    /// Makes replaced and deleted entries stay, with this suffix, beneath `directory` unless empty, from the target if
    /// relative.
    pub fn keep_backups(&self, suffix: &[u8], directory: &[u8], options: &TargetOptions) -> Result<()> {
        let is_name = !suffix.contains(&b'/') && !suffix.contains(&0);
        if !is_name || (suffix.is_empty() && directory.is_empty()) {
            let why = refusal(io::ErrorKind::InvalidInput, "the suffix of --backup is no part of a name");
            return Err(StoreError::new("use the suffix", suffix, why));
        }
        let elsewhere = match directory {
            b"" => None,
            _ => {
                let tree = self.beside(directory, options).context("open the directory of backups", directory)?;
                Some(Box::new(tree) as Box<dyn Elsewhere>)
            }
        };
        let _ = self.settings.backups.set(Backups::new(suffix, elsewhere));
        Ok(())
    }

    /// The directory of backups outside the tree, if any.
    pub fn backup_directory(&self) -> Option<BorrowedFd<'_>> {
        self.settings.backups.get()?.directory()
    }
}

impl LocalTree {
    /// Makes the directories above a path, with the modes of those above `dir` in the other tree.
    fn make_parents_like(&self, path: &[u8], dir: &OwnedFd) -> io::Result<()> {
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

impl Elsewhere for LocalTree {
    fn within_parent_like(&self, path: &[u8], like: &OwnedFd, work: &mut Work<'_>) -> io::Result<bool> {
        self.make_parents_like(path, like)?;
        self.within_parent(path, work)
    }

    fn root_directory(&self) -> Option<BorrowedFd<'_>> {
        Self::root_directory(self)
    }
}
