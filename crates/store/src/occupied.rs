//! Remembers the directories that a job writes into. Copied files follow a moved directory: each must be the same whenever
//! opened, and at its end.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::refusal;
use crate::limits::MAX_HELD_DIRECTORIES;
use crate::meta::{FileId, Stat};

#[derive(Debug, Default)]
pub(crate) struct Occupied(Mutex<Directories>);

#[derive(Debug, Default)]
struct Directories {
    by_path: HashMap<Vec<u8>, Directory>,
    held: usize,
}

#[derive(Debug)]
struct Directory {
    id: FileId,
    /// While open, it keeps its inode number everywhere.
    held: Option<Arc<OwnedFd>>,
    /// Whether the inode number stays; on FAT and FUSE only while held.
    keeps_number: bool,
}

impl Occupied {
    /// Tells directories beneath the root (0) and followed links apart: no path has a NUL.
    pub(crate) fn key(root_number: u32, path: &[u8]) -> Cow<'_, [u8]> {
        match root_number {
            0 => Cow::Borrowed(path),
            number => Cow::Owned([&b"\0"[..], &number.to_be_bytes(), path].concat()),
        }
    }

    pub(crate) fn enter(&self, path: &[u8], dir: &Arc<OwnedFd>) -> io::Result<()> {
        let id = Stat::of_fd(dir)?.id;
        let mut directories = self.lock();
        directories.leave(path);
        let held = (directories.held < MAX_HELD_DIRECTORIES).then(|| Arc::clone(dir));
        let keeps_number = held.is_some() || haul_sys::file_system::keeps_inode_numbers(dir);
        directories.held += usize::from(held.is_some());
        directories.by_path.insert(path.to_vec(), Directory { id, held, keeps_number });
        Ok(())
    }

    pub(crate) fn check(&self, path: &[u8], dir: &OwnedFd) -> io::Result<()> {
        let Some(id) = self.lock().by_path.get(path).filter(|there| there.keeps_number).map(|there| there.id) else {
            return Ok(());
        };
        let now = Stat::of_fd(dir)?.id;
        if now == id { Ok(()) } else { Err(refusal(io::ErrorKind::NotFound, REPLACED)) }
    }

    pub(crate) fn leave(&self, path: &[u8]) {
        self.lock().leave(path);
    }

    fn lock(&self) -> MutexGuard<'_, Directories> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Directories {
    fn leave(&mut self, path: &[u8]) {
        let left = self.by_path.remove(path);
        self.held -= usize::from(left.is_some_and(|left| left.held.is_some()));
    }
}

const REPLACED: &str = "another directory stands there now: it was renamed, replaced or unmounted during the copy, and what was copied went with it";
