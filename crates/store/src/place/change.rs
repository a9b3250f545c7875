//! Makes, moves and removes entries by names in open directories.

use std::cell::{Cell, RefCell};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, OFlags, RenameFlags};
use rustix::io::Errno;

use super::operand::DIRECTORY_MODE;
use super::operand::Operand;
use super::site::{Line, Site, Tell};
use crate::error::{Context, Result, StoreError, is_missing, refusal};
use crate::listing::are_listed;
use crate::local_tree::{LocalTree, TargetOptions};
use crate::meta::{Kind, Stat};
use crate::name::{check_new_path, name_hash};
use crate::spelling::folded;
use crate::typed::{means_contents, parent_and_name};

/// The result of a rename.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Moved {
    /// The entry has this name now.
    To(Vec<u8>),
    /// The entry stays: this name is taken.
    Stays(Vec<u8>),
}

/// How to remove.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Removal {
    /// Whether directories are removed, with all beneath.
    pub trees: bool,
    /// Whether a missing entry is fine.
    pub force: bool,
    /// Whether entries are only reported.
    pub dry_run: bool,
}

impl Site {
    /// Makes a directory; with `parents` those above, too, and one may exist. Returns the made paths.
    pub fn make_directory(&self, operand: &Operand, parents: bool) -> Result<Vec<Vec<u8>>> {
        if !parents {
            let (parent, name) = self.parent(operand)?;
            check_new_path(&name).context("make directory", &operand.shown)?;
            rustix::fs::mkdirat(&parent, &name, DIRECTORY_MODE).context("make directory", &operand.shown)?;
            return Ok(vec![operand.shown.clone()]);
        }
        // First the existing beginning of the path, then one name after the other.
        let (mut missing, mut path) = (Vec::new(), trimmed(&operand.path));
        while !path.is_empty() && path != b"/" {
            match self.changed.open(path, OFlags::PATH | OFlags::DIRECTORY) {
                Ok(_) => break,
                Err(error) if !is_missing(&error) => {
                    return Err(StoreError::new("make directory", &operand.shown, error));
                }
                Err(_) => missing.push(path),
            }
            path = match parent_and_name(path).0 {
                b"." if !path.starts_with(b"./") => b"",
                parent => trimmed(parent),
            };
        }
        let mut made = Vec::new();
        for path in missing.into_iter().rev() {
            // `a/./b` and `a/..` name what exists by now.
            if means_contents(path) {
                continue;
            }
            let (parent, name) = parent_and_name(path);
            check_new_path(name).context("make directory", &operand.shown)?;
            let make = || {
                let parent = self.changed.open(parent, OFlags::PATH | OFlags::DIRECTORY)?;
                match rustix::fs::mkdirat(&self.kernel_files.checked(parent)?, name, DIRECTORY_MODE) {
                    Err(Errno::EXIST) => Ok(false),
                    made => Ok::<bool, io::Error>(made.map(|()| true)?),
                }
            };
            if make().context("make directory", &operand.shown)? {
                let behind = operand.path.len() - path.len();
                made.push(operand.shown[..operand.shown.len().saturating_sub(behind)].to_vec());
            }
        }
        Ok(made)
    }

    /// Renames an entry, into a directory at the new name, or over a file unless `keep`.
    pub fn rename(&self, operand: &Operand, to: &[u8], keep: bool) -> Result<Moved> {
        let (from, name) = self.parent(operand)?;
        let mut target = self.operand(to);
        let is_respelt = self.is_respelt(&from, &name, &target);
        if !is_respelt && self.is_directory(&target) {
            let into = |path: &[u8]| [path, if path.ends_with(b"/") { b"" } else { b"/" }, &name].concat();
            target = Operand { shown: into(&target.shown), path: into(&target.path) };
        }
        let (parent, new_name) = self.parent(&target)?;
        if target.path.ends_with(b"/") && !self.is_directory(operand) {
            return Err(StoreError::new("move to", &target.shown, Errno::NOTDIR));
        }
        check_new_path(&new_name).context("make", &target.shown)?;
        let old = Stat::of_name(from.as_fd(), &name).context("access", &operand.shown)?;
        // Like rename(2): a slash behind a link means its target, which is not moved.
        if operand.path.ends_with(b"/") && old.kind != Kind::Directory {
            return Err(StoreError::new("move", &operand.shown, Errno::NOTDIR));
        }
        let there = Stat::of_name(parent.as_fd(), &new_name).ok();
        if let Some(there) = &there {
            if keep {
                return Ok(Moved::Stays(target.shown));
            }
            if there.is_same_inode(&old) && !is_respelt {
                let why = refusal(io::ErrorKind::AlreadyExists, "both names are the same file");
                return Err(StoreError::new("move", &operand.shown, why));
            }
        }
        let flags = if keep { RenameFlags::NOREPLACE } else { RenameFlags::empty() };
        match rustix::fs::renameat_with(&from, &name, &parent, &new_name, flags) {
            Ok(()) if is_respelt => {
                respell(&from, &name, &new_name).context("move", &operand.shown)?;
                Ok(Moved::To(target.shown))
            }
            Ok(()) => Ok(Moved::To(target.shown)),
            Err(Errno::EXIST) if keep => Ok(Moved::Stays(target.shown)),
            Err(Errno::XDEV) => {
                let why = refusal(
                    io::ErrorKind::CrossesDevices,
                    "the two names are on different file systems, where only a copy helps: haul cp",
                );
                Err(StoreError::new("move", &operand.shown, why))
            }
            Err(Errno::INVAL) => {
                let why = refusal(io::ErrorKind::InvalidInput, "a directory cannot be moved into itself");
                Err(StoreError::new("move", &operand.shown, why))
            }
            Err(error) => Err(StoreError::new("move", &operand.shown, error)),
        }
    }

    /// Whether the file system takes the new name for the old (case, accents). Two listed names are two.
    fn is_respelt(&self, from: &OwnedFd, name: &[u8], target: &Operand) -> bool {
        let Ok((parent, new_name)) = self.parent(target) else { return false };
        let is_one = |one: io::Result<Stat>, other: io::Result<Stat>| {
            one.is_ok_and(|one| other.is_ok_and(|other| one.is_same_inode(&other)))
        };
        let at = |name: &[u8]| Stat::of_name(from.as_fd(), name).map_err(io::Error::from);
        !target.path.ends_with(b"/")
            && name != new_name
            && is_one(Stat::of_fd(from), Stat::of_fd(&parent))
            && at(&new_name).is_ok()
            && (folded(name) == folded(&new_name) || is_one(at(name), at(&new_name)))
            && are_listed(from.as_fd(), &[name_hash(name), name_hash(&new_name)]).is_ok_and(|are_two| !are_two)
    }

    /// Whether this is a directory to move entries into.
    pub fn takes_entries(&self, to: &[u8]) -> bool {
        self.is_directory(&self.operand(to))
    }

    /// Removes an entry, content first; of a link, the link. Stops soon after `Break`.
    pub fn remove(&self, operand: &Operand, removal: Removal, tell: Tell<'_>) -> Result<ControlFlow<()>> {
        let (parent, name) = match self.parent(operand) {
            Err(error) if removal.force && is_missing(&error.source) => return Ok(ControlFlow::Continue(())),
            parent => parent?,
        };
        let stat = match Stat::of_name(parent.as_fd(), &name) {
            Err(Errno::NOENT) if removal.force => return Ok(ControlFlow::Continue(())),
            stat => stat.context("remove", &operand.shown)?,
        };
        let is_dir = stat.kind == Kind::Directory;
        if is_dir && !removal.trees {
            let why = refusal(io::ErrorKind::IsADirectory, "it is a directory, which only -r removes");
            return Err(StoreError::new("remove", &operand.shown, why));
        }
        if !is_dir {
            if operand.path.ends_with(b"/") {
                return Err(StoreError::new("remove", &operand.shown, Errno::NOTDIR));
            }
            if !removal.dry_run {
                rustix::fs::unlinkat(&parent, &name, AtFlags::empty()).context("remove", &operand.shown)?;
            }
            return Ok(tell(Line::Removed(Vec::new())));
        }
        self.remove_tree((parent, &name), operand, removal, tell)
    }

    fn remove_tree(
        &self,
        (parent, name): (OwnedFd, &[u8]),
        operand: &Operand,
        removal: Removal,
        tell: Tell<'_>,
    ) -> Result<ControlFlow<()>> {
        let options = TargetOptions { confine: self.options.confine.clone(), ..TargetOptions::default() };
        let tree = LocalTree::of_root(parent, &options);
        // After that the closure spares the rest.
        let is_over = Cell::new(false);
        let told = RefCell::new(tell);
        let errors = tree.delete_entry(name, &|_, _| is_over.get(), removal.dry_run, &mut |path, _| {
            let beneath = path.get(name.len() + 1..).unwrap_or_default().to_vec();
            if !is_over.get() && (told.borrow_mut())(Line::Removed(beneath)).is_break() {
                is_over.set(true);
            }
        });
        let tell = told.into_inner();
        for mut error in errors {
            let beneath = error.path.get(name.len()..).unwrap_or_default().to_vec();
            error.path = [trimmed(&operand.shown), &beneath].concat();
            if is_over.get() || tell(Line::Failed(error)).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(if is_over.get() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }
}

/// The kernel renames nothing between names of one inode: it needs a name in between, which no sweep takes for a draft.
fn respell(dir: &OwnedFd, name: &[u8], new_name: &[u8]) -> io::Result<()> {
    if are_listed(dir.as_fd(), &[name_hash(new_name)])? {
        return Ok(());
    }
    let between = format!(".haul-mv-{}", std::process::id()).into_bytes();
    rustix::fs::renameat_with(dir, name, dir, &between, RenameFlags::empty())?;
    rustix::fs::renameat(dir, &between, dir, new_name).or_else(|error| {
        rustix::fs::renameat(dir, &between, dir, name)?;
        Err(error.into())
    })
}

fn trimmed(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(path.len().min(1), |last| last + 1);
    &path[..end]
}
