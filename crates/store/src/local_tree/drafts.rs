//! Where parts and their journals stand: beside their files, or in a directory that was asked for (`--partial-dir`,
//! `--temp-dir`). And files that are complete and wait for their names (`--delay-updates`).
//!
//! A part gets its final name by a rename, which works within one file system only. Where the directory that was asked for
//! lies on another one, the part stands beside its file: a copy into the final name would show half a file.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use haul_sys::process;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Context, Result, StoreError, refusal};
use crate::meta::{Kind, Metadata, Stat};
use crate::name::{join, journal_name, parse_haul_name, part_name, split};

use super::{LocalTree, TargetOptions};

/// Where parts stand that do not stand beside their files.
#[derive(Debug)]
pub(crate) enum Drafts {
    /// In a directory of this name in the directory of each file.
    InEach(Vec<u8>),
    /// All in this one.
    InOne(Arc<OwnedFd>),
}

/// The bits of a mode that let others write.
const WRITTEN_BY_OTHERS: u32 = 0o022;

/// Where the part of one file stands, and its journal.
pub(crate) struct DraftPlace {
    pub dir: Arc<OwnedFd>,
    pub part: Vec<u8>,
    pub journal: Vec<u8>,
}

impl DraftPlace {
    fn beside(parent: &Arc<OwnedFd>, name: &[u8]) -> Self {
        Self { dir: Arc::clone(parent), part: part_name(name), journal: journal_name(name) }
    }
}

impl Drafts {
    /// The place for the part of `name` in the open directory `parent`; `make`: a missing directory is made.
    pub(crate) fn place(
        drafts: Option<&Self>,
        parent: &Arc<OwnedFd>,
        name: &[u8],
        make: bool,
    ) -> io::Result<DraftPlace> {
        let place = match drafts {
            None => return Ok(DraftPlace::beside(parent, name)),
            Some(Self::InEach(directory)) => {
                let dir = open_own_directory(parent, directory, make)?;
                DraftPlace { dir: Arc::new(dir), part: part_name(name), journal: journal_name(name) }
            }
            Some(Self::InOne(dir)) => {
                // Files of several directories may have one name.
                let above = Stat::of_fd(parent)?.id;
                let whole = [&above.dev.to_le_bytes()[..], &above.ino.to_le_bytes(), name].concat();
                DraftPlace { dir: Arc::clone(dir), part: part_name(&whole), journal: journal_name(&whole) }
            }
        };
        let is_near = Stat::of_fd(&place.dir)?.id.dev == Stat::of_fd(parent)?.id.dev;
        Ok(if is_near { place } else { DraftPlace::beside(parent, name) })
    }
}

/// A directory of ours in an open directory, never through a link. Others could put anything into one of theirs.
pub(crate) fn open_own_directory(parent: &OwnedFd, name: &[u8], make: bool) -> io::Result<OwnedFd> {
    if make {
        match rustix::fs::mkdirat(parent, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::io::retry_on_intr(|| rustix::fs::openat(parent, name, flags, Mode::empty()))?;
    match Stat::of_fd(&opened)?.uid == process::effective_user() {
        true => Ok(opened),
        false => Err(refusal(
            io::ErrorKind::PermissionDenied,
            "the directory for its unfinished data belongs to another user",
        )),
    }
}

impl LocalTree {
    /// From now on parts stand in this directory: in one of this name in the directory of each file, or (`each` is false) all
    /// in one, which is made if it is missing; a relative path begins at the target. Returns a warning where the directory
    /// lies on another file system than the target.
    pub fn place_drafts(&self, directory: &[u8], each: bool, options: &TargetOptions) -> Result<Option<String>> {
        if each {
            let is_name = !directory.is_empty() && !directory.contains(&b'/') && !directory.contains(&0);
            if !is_name || matches!(directory, b"." | b"..") || parse_haul_name(directory).is_some() {
                let why = refusal(io::ErrorKind::InvalidInput, "it is no name of a directory");
                return Err(StoreError::new("put unfinished data into", directory, why));
            }
            let _ = self.settings.drafts.set(Drafts::InEach(directory.to_vec()));
            return Ok(None);
        }
        let context = "open the directory for unfinished data";
        let tree = self.beside(directory, options).context(context, directory)?;
        let (Some(dir), Some(root)) = (tree.root_directory(), self.root_directory()) else { return Ok(None) };
        let device = |fd: BorrowedFd<'_>| Stat::of_fd(fd).map(|stat| stat.id.dev);
        let is_near = device(dir).and_then(|there| Ok(there == device(root)?)).context(context, directory)?;
        // Not a path descriptor: names in it are flushed.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::io::retry_on_intr(|| rustix::fs::openat(dir, ".", flags, Mode::empty()));
        let opened = opened.map_err(io::Error::from).context(context, directory)?;
        let _ = self.settings.drafts.set(Drafts::InOne(Arc::new(opened)));
        Ok((!is_near).then(|| {
            format!(
                "{} is on another file system than the target: unfinished data stands beside its files, where a name follows in one step",
                tree.display_root()
            )
        }))
    }

    /// The directory for parts, where it is none of the tree's own.
    pub fn draft_directory(&self) -> Option<BorrowedFd<'_>> {
        match self.settings.drafts.get()? {
            Drafts::InOne(dir) => Some(dir.as_fd()),
            Drafts::InEach(_) => None,
        }
    }

    /// Removes what a directory holds for unfinished and delayed files, where nothing is left in it.
    pub fn tidy_drafts(&self, path: &[u8]) {
        let drafts = match self.settings.drafts.get() {
            Some(Drafts::InEach(name)) => Some(&name[..]),
            _ => None,
        };
        let delayed = self.settings.delayed.get().map(|delayed| delayed.directory());
        for name in drafts.into_iter().chain(delayed) {
            let place = join(path, name);
            // What is not there, or is not empty, stays as it is.
            let _ = self.within_parent(&place, |dir, name| Ok(rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)?));
        }
    }

    /// What stands at this path and waits for its name since an earlier run.
    pub fn delayed(&self, path: &[u8]) -> Option<Stat> {
        let delayed = self.settings.delayed.get()?;
        let (dir, name) = self.place(path).ok()?;
        let staged = open_own_directory(&dir, delayed.directory(), false).ok()?;
        let stat = Stat::of_name(staged.as_fd(), name).ok()?;
        // root gives files away before they wait. Where nobody else may write, nobody else has put one there.
        let is_given_away = || {
            process::is_root() && Stat::of_fd(&staged).is_ok_and(|directory| directory.mode & WRITTEN_BY_OTHERS == 0)
        };
        (stat.kind == Kind::File && (stat.uid == self.settings.user || is_given_away())).then_some(stat)
    }

    /// Gives what waits for its name the metadata that it is to have by now.
    pub fn set_delayed_metadata(&self, path: &[u8], meta: &Metadata) -> Result<()> {
        let Some(delayed) = self.settings.delayed.get() else { return Ok(()) };
        let (parent, name) = split(path);
        self.set_metadata(&join(&join(parent, delayed.directory()), name), meta)
    }
}
