//! Finds the drafts and journals of dead copies. A living copy's files are locked, and stay.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use haul_sys::{file, process};
use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;

use super::descent::{Step, descend};
use super::listing::for_each_name;
use super::operand::Operand;
use super::site::{Line, Site, Tell};
use crate::error::{Result, StoreError};
use crate::listing::{Flow, Hint, Names};
use crate::meta::Stat;
use crate::name::{join, journal_name, journal_of_part, name_hash, parse_haul_name};
use crate::own_file::is_own;
use crate::regular_file::READ_FLAGS;
use crate::sweep::lock_unused;

#[derive(Default)]
struct Ours {
    parts: Vec<Vec<u8>>,
    /// Journals of copies in place.
    journals: Vec<Vec<u8>>,
}

/// Drafts of one directory that are looked at: a copy has one for each lane and thread, and rarely dies.
const MAX_OURS: usize = 64 << 10;

impl Site {
    /// Tells this user's drafts and journals beneath a directory that no living copy holds, removed if `remove`.
    pub fn leftovers(&self, operand: &Operand, remove: bool, tell: Tell<'_>) -> Result<ControlFlow<()>> {
        let root = self.directory(operand)?;
        let bounds = (self.kernel_files, self.options.bounds.held_bytes);
        let mut step = |step: Step<'_>| match step {
            Step::Into { dir, path, enter, .. } => {
                if tell(Line::Busy).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                let ours = self.ours(dir, enter)?;
                Ok(self.each_left(operand, (dir, path), ours, remove, tell))
            }
            Step::OutOf { .. } | Step::At { .. } => Ok(ControlFlow::Continue(())),
            Step::Failed(error) => Ok(tell(Line::Failed(error))),
        };
        Ok(descend(root, &operand.shown, bounds, &mut step))
    }

    fn ours(&self, dir: BorrowedFd<'_>, enter: &mut Names) -> io::Result<Ours> {
        let mut ours = Ours::default();
        let mut too_many = None;
        let read: Flow = for_each_name(dir, self.options.bounds.sorted_bytes, |_| true, &mut |name, hint, _| {
            let is_dir = match hint {
                Hint::Directory => true,
                Hint::Unknown => Stat::of_name(dir, name).is_ok_and(|stat| stat.kind == crate::meta::Kind::Directory),
                Hint::Symlink | Hint::Other => false,
            };
            if is_dir {
                too_many = enter.add(name, 0, Hint::Directory).err();
            } else if parse_haul_name(name).is_some() && ours.parts.len() + ours.journals.len() < MAX_OURS {
                let list = if journal_of_part(name).is_some() { &mut ours.parts } else { &mut ours.journals };
                list.push(name.to_vec());
            }
            if too_many.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let _ = read?;
        ours.journals.retain(|journal| !ours.parts.iter().any(|part| journal_of_part(part).as_ref() == Some(journal)));
        too_many.map_or(Ok(ours), Err)
    }

    fn each_left(
        &self,
        operand: &Operand,
        (dir, path): (BorrowedFd<'_>, &[u8]),
        ours: Ours,
        remove: bool,
        tell: Tell<'_>,
    ) -> ControlFlow<()> {
        let user = process::effective_user();
        let mut left = |name: &[u8]| {
            let Ok(stat) = Stat::of_name(dir, name) else { return ControlFlow::Continue(()) };
            let beneath = join(path, name);
            match if remove { rustix::fs::unlinkat(dir, name, AtFlags::empty()) } else { Ok(()) } {
                Ok(()) => tell(Line::Left(beneath, stat.size)),
                Err(error) => tell(Line::Failed(StoreError::new("remove", &join(&operand.shown, &beneath), error))),
            }
        };
        for part in &ours.parts {
            // A journal is begun under its part's lock, and useless without its part: it goes first.
            let Some(_lock) = lock_unused(dir, part, user) else { continue };
            if let Some(journal) = journal_of_part(part).filter(|journal| is_ours(dir, journal, user)) {
                left(&journal)?;
            }
            left(part)?;
        }
        if ours.journals.is_empty() {
            return ControlFlow::Continue(());
        }
        let journals = self.without_writer(dir, ours.journals);
        journals.iter().filter(|journal| is_ours(dir, journal, user)).try_for_each(|journal| left(journal))
    }

    fn without_writer(&self, dir: BorrowedFd<'_>, mut journals: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let Ok(again) = reopened(dir) else { return Vec::new() };
        let read = for_each_name(again.as_fd(), self.options.bounds.sorted_bytes, |_| true, &mut |name, _, _| {
            let hash = name_hash(name);
            if journals.iter().any(|journal| parse_haul_name(journal) == Some(hash)) && is_written(dir, name) {
                let journal = journal_name(name);
                journals.retain(|other| *other != journal);
            }
            ControlFlow::Continue(())
        });
        // Without all names their files are unknown.
        if read.is_ok() { journals } else { Vec::new() }
    }
}

fn is_ours(dir: BorrowedFd<'_>, name: &[u8], user: u32) -> bool {
    Stat::of_name(dir, name).is_ok_and(|stat| is_own(&stat, user))
}

fn is_written(dir: BorrowedFd<'_>, name: &[u8]) -> bool {
    match rustix::io::retry_on_intr(|| rustix::fs::openat(dir, name, READ_FLAGS, Mode::empty())) {
        Ok(opened) => !file::try_lock_surely(opened.as_fd()),
        Err(Errno::NOENT) => false,
        Err(_) => true,
    }
}

fn reopened(dir: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    Ok(rustix::io::retry_on_intr(|| rustix::fs::openat(dir, ".", flags, Mode::empty()))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::part_name;
    use crate::place::SiteOptions;

    #[test]
    fn what_a_living_copy_holds_is_neither_told_nor_removed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let at = |name: &[u8]| root.join(std::str::from_utf8(name).unwrap());
        let write = |name: &[u8]| std::fs::write(at(name), "draft").unwrap();
        for name in [&b"dead"[..], b"live"] {
            write(&part_name(name));
            write(&journal_name(name));
        }
        for name in [&b"dead-in-place"[..], b"live-in-place"] {
            write(name);
            write(&journal_name(name));
        }
        let held: Vec<std::fs::File> = [part_name(b"live"), b"live-in-place".to_vec()]
            .map(|name| {
                let file = std::fs::OpenOptions::new().read(true).write(true).open(at(&name)).unwrap();
                assert!(file::try_lock_surely(file.as_fd()));
                file
            })
            .into();
        let leftovers = |remove| {
            let mut site = Site::open(SiteOptions { confine: Some(root.clone()), ..SiteOptions::default() }).unwrap();
            let operand = site.operands(b".").unwrap().remove(0);
            let mut left = Vec::new();
            let flow = site.leftovers(&operand, remove, &mut |line| {
                if let Line::Left(path, _) = line {
                    left.push(path);
                }
                ControlFlow::Continue(())
            });
            assert!(flow.unwrap().is_continue());
            left
        };
        let dead = vec![journal_name(b"dead"), part_name(b"dead"), journal_name(b"dead-in-place")];
        assert_eq!(leftovers(false), dead);
        assert_eq!(leftovers(true), dead);
        assert_eq!(leftovers(false), Vec::<Vec<u8>>::new());
        for name in [part_name(b"live"), journal_name(b"live"), journal_name(b"live-in-place")] {
            assert!(at(&name).exists());
        }
        assert!(at(b"dead-in-place").exists(), "the file itself is not haul's");
        drop(held);
        assert_eq!(leftovers(false).len(), 3);
    }
}
