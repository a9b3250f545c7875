//! Places parts and journals beside their files, or in a requested directory (`--partial-dir`, `--temp-dir`). Finds files
//! that wait for their names (`--delay-updates`).

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

use haul_sys::process;
use rustix::fs::{AtFlags, Mode, OFlags};

use crate::error::{Context, Result, StoreError, refusal};
use crate::meta::{Kind, Metadata, Stat};
use crate::name::{join, parse_haul_name, split};

use super::LocalTree;
use super::draft_place::{Drafts, open_own_directory};
use super::options::TargetOptions;

impl LocalTree {
    /// Makes parts stand in this directory: with `each`, one beside each file; else one for all, made if missing, from the
    /// target if relative. Warns of another file system.
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
        // A path descriptor would not do: names in it are flushed.
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

    /// The directory for parts outside the tree.
    pub fn draft_directory(&self) -> Option<BorrowedFd<'_>> {
        match self.settings.drafts.get()? {
            Drafts::InOne(dir) => Some(dir.as_fd()),
            Drafts::InEach(_) => None,
        }
    }

    /// Removes empty directories for unfinished and delayed files.
    pub fn tidy_drafts(&self, path: &[u8]) {
        let drafts = match self.settings.drafts.get() {
            Some(Drafts::InEach(name)) => Some(&name[..]),
            _ => None,
        };
        let delayed = self.settings.delayed.get().map(|delayed| delayed.directory());
        for name in drafts.into_iter().chain(delayed) {
            let place = join(path, name);
            let _ = self.within_parent(&place, |dir, name| Ok(rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)?));
        }
    }

    /// The file waiting for this path since an earlier run.
    pub fn delayed(&self, path: &[u8]) -> Option<Stat> {
        let delayed = self.settings.delayed.get()?;
        let (dir, name) = self.place(path).ok()?;
        let staged = open_own_directory(&dir, delayed.directory(), false).ok()?;
        let stat = Stat::of_name(staged.as_fd(), name).ok()?;
        // root gives files away before they wait: if only root may write there, root has put the file there.
        let is_given_away = || {
            process::is_root() && Stat::of_fd(&staged).is_ok_and(|directory| directory.mode & WRITTEN_BY_OTHERS == 0)
        };
        (stat.kind == Kind::File && (stat.uid == self.settings.user || is_given_away())).then_some(stat)
    }

    /// Sets the metadata of a waiting file.
    pub fn set_delayed_metadata(&self, path: &[u8], meta: &Metadata) -> Result<()> {
        let Some(delayed) = self.settings.delayed.get() else { return Ok(()) };
        let (parent, name) = split(path);
        self.set_metadata(&join(&join(parent, delayed.directory()), name), meta).map(drop)
    }
}

const WRITTEN_BY_OTHERS: u32 = 0o022;
