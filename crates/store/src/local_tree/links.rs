//! Makes symbolic and hard links.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::AtFlags;
use rustix::io::Errno;

use crate::error::{Context, Result, refusal};
use crate::meta::{self, Kind, Metadata, Stat};
use crate::name::{check_new_path, part_name, split};

use super::LocalTree;
use super::replace::replace;

impl LocalTree {
    /// See [`TargetTree::make_symlink`](crate::TargetTree::make_symlink).
    pub fn make_symlink(&self, path: &[u8], target: &[u8], meta: &Metadata) -> Result<bool> {
        let make = |dir: &Arc<OwnedFd>, name: &[u8]| {
            let unchanged = match rustix::fs::symlinkat(target, dir, name) {
                Ok(()) => None,
                Err(Errno::EXIST) => {
                    let standing = Stat::of_name(dir.as_fd(), name)?;
                    self.settings.refuse_twin(dir, &standing, path)?;
                    if self.replace_by_symlink(dir, path, target, &standing)? {
                        self.settings.placed().forget(&standing, path);
                        None
                    } else {
                        Some(standing)
                    }
                }
                Err(error) => return Err(error.into()),
            };
            let changed = unchanged.is_none();
            let now = match unchanged {
                Some(standing) => standing,
                None => Stat::of_name(dir.as_fd(), name)?,
            };
            if !matches!(now.kind, Kind::Symlink { .. }) {
                return Err(Errno::STALE.into());
            }
            self.settings.placed().note(&now, path);
            if changed {
                self.dirlinks.note_made(&now);
            }
            Ok((changed, meta::apply_to_link(dir.as_fd(), name, &now, meta, &self.settings.namespaces)))
        };
        let made = check_new_path(path).and_then(|()| self.within_parent(path, make));
        let (changed, applied) = made.context("make symbolic link", path)?;
        let applied = applied.context("set metadata of", path)?;
        self.settings.note_applied(applied, path);
        Ok(applied.changed || changed)
    }

    /// False if what stands there is this link.
    fn replace_by_symlink(&self, dir: &Arc<OwnedFd>, path: &[u8], target: &[u8], standing: &Stat) -> io::Result<bool> {
        let name = split(path).1;
        match standing.kind {
            Kind::Directory => return Err(Errno::ISDIR.into()),
            Kind::Symlink { .. } if rustix::fs::readlinkat(dir, name, Vec::new())?.as_bytes() == target => {
                return Ok(false);
            }
            _ => {}
        }
        self.settings.keep_backup(&self.settings.placed(), dir, path)?;
        replace(dir, name, &part_name(name), |temporary| rustix::fs::symlinkat(target, dir, temporary))?;
        // Somebody may have replaced the temporary link.
        match rustix::fs::readlinkat(dir, name, Vec::new())?.as_bytes() == target {
            true => Ok(true),
            false => Err(Errno::STALE.into()),
        }
    }

    /// See [`TargetTree::make_hard_link`](crate::TargetTree::make_hard_link).
    pub fn make_hard_link(&self, path: &[u8], first: &[u8]) -> Result<bool> {
        self.link(path, self, first)
    }

    /// [`LocalTree::make_hard_link`] to this path in another tree of this file system.
    pub fn link_from(&self, other: &LocalTree, path: &[u8]) -> Result<bool> {
        self.link(path, other, path)
    }

    fn link(&self, path: &[u8], tree: &LocalTree, first: &[u8]) -> Result<bool> {
        let made = check_new_path(path).and_then(|()| check_new_path(first)).and_then(|()| {
            let (first_dir, first_name) = tree.place(first)?;
            let origin = Stat::of_name(first_dir.as_fd(), first_name)?;
            if !matches!(origin.kind, Kind::File | Kind::Symlink { .. }) {
                return Err(refusal(
                    io::ErrorKind::InvalidInput,
                    "its first name must be a regular file or a symbolic link",
                ));
            }
            self.within_parent(path, |dir, name| {
                let link = |new: &[u8]| rustix::fs::linkat(&first_dir, first_name, dir, new, AtFlags::empty());
                match link(name) {
                    Ok(()) => {
                        self.settings.placed().note_link(&origin, path);
                        return Ok(true);
                    }
                    Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                let now = Stat::of_name(dir.as_fd(), name)?;
                if now.is_same_inode(&origin) {
                    return Ok(false);
                }
                if now.kind == Kind::Directory {
                    return Err(Errno::ISDIR.into());
                }
                self.settings.refuse_twin(dir, &now, path)?;
                self.settings.keep_backup(&self.settings.placed(), dir, path)?;
                replace(dir, name, &part_name(name), link)?;
                if !Stat::of_name(dir.as_fd(), name)?.is_same_inode(&origin) {
                    return Err(Errno::STALE.into());
                }
                let mut placed = self.settings.placed();
                placed.forget(&now, path);
                placed.note_link(&origin, path);
                Ok(true)
            })
        });
        made.context("make hard link", path)
    }
}
