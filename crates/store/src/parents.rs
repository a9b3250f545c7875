//! A small cache of open parent directories.
//!
//! An open directory stays the same when its path changes: a cached one never leads outside. A removed one answers `ENOENT`,
//! and is dropped.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use haul_sys::beneath::{self, Links};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::kernel_files::KernelFiles;
use crate::limits::MAX_CACHED_PARENTS;
use crate::meta::Stat;
use crate::occupied::Occupied;

#[derive(Debug)]
pub(crate) struct Parents {
    kernel_files: KernelFiles,
    pub(crate) occupied: Occupied,
    open: Mutex<VecDeque<Cached>>,
}

#[derive(Debug)]
struct Cached {
    root: u32,
    path: Vec<u8>,
    dir: Arc<OwnedFd>,
}

impl Parents {
    pub(crate) fn new(kernel_files: KernelFiles) -> Self {
        Self { kernel_files, occupied: Occupied::default(), open: Mutex::default() }
    }

    pub(crate) fn open(
        &self,
        root_number: u32,
        root: BorrowedFd<'_>,
        path: &[u8],
        links: Links,
    ) -> io::Result<Arc<OwnedFd>> {
        if let Some(dir) = self.find(root_number, path) {
            return Ok(dir);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let dir = beneath::open(root.as_fd(), path, flags, Mode::empty(), links)?;
        let dir = Arc::new(self.kernel_files.checked(dir)?);
        self.occupied.check(&Occupied::key(root_number, path), &dir)?;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= MAX_CACHED_PARENTS {
            open.pop_back();
        }
        open.push_front(Cached { root: root_number, path: path.to_vec(), dir: dir.clone() });
        Ok(dir)
    }

    /// Runs `work` in the directory at `path`. If an entry is missing, opens it afresh, and runs `work` once more if it is
    /// another.
    pub(crate) fn within<T>(
        &self,
        root_number: u32,
        root: BorrowedFd<'_>,
        path: &[u8],
        links: Links,
        mut work: impl FnMut(&Arc<OwnedFd>) -> io::Result<T>,
    ) -> io::Result<T> {
        let dir = self.open(root_number, root, path, links)?;
        match work(&dir) {
            Err(error) if is_gone(&error) => {
                self.forget(root_number, path);
                let fresh = self.open(root_number, root, path, links)?;
                let same = Stat::of_fd(&fresh)?.is_same_inode(&Stat::of_fd(&dir)?);
                if same { Err(error) } else { work(&fresh) }
            }
            result => result,
        }
    }

    fn find(&self, root_number: u32, path: &[u8]) -> Option<Arc<OwnedFd>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let index = open.iter().position(|cached| cached.root == root_number && cached.path == path)?;
        let dir = open[index].dir.clone();
        if index > 0 {
            let cached = open.remove(index)?;
            open.push_front(cached);
        }
        Some(dir)
    }

    pub(crate) fn forget(&self, root_number: u32, path: &[u8]) -> bool {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let before = open.len();
        open.retain(|cached| cached.root != root_number || !is_at_or_beneath(&cached.path, path));
        open.len() < before
    }
}

fn is_gone(error: &io::Error) -> bool {
    [Errno::NOENT, Errno::STALE].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// By components: `ab` is not beneath `a`.
pub(crate) fn is_at_or_beneath(path: &[u8], top: &[u8]) -> bool {
    match path.strip_prefix(top) {
        Some(rest) => rest.is_empty() || top.is_empty() || rest[0] == b'/',
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_few_and_forgets_whole_subtrees() {
        let dir = tempfile::tempdir().unwrap();
        let root = rustix::fs::open(dir.path(), OFlags::PATH, Mode::empty()).unwrap();
        let parents = Parents::new(KernelFiles::Reached);
        for number in 0..MAX_CACHED_PARENTS + 8 {
            let name = format!("d{number}");
            std::fs::create_dir(dir.path().join(&name)).unwrap();
            parents.open(0, root.as_fd(), name.as_bytes(), Links::Refused).unwrap();
        }
        assert_eq!(parents.open.lock().unwrap().len(), MAX_CACHED_PARENTS);
        assert!(
            parents.find(0, b"d0").is_none() && parents.find(0, b"d60").is_some() && parents.find(1, b"d60").is_none()
        );
        std::fs::create_dir(dir.path().join("d60/x")).unwrap();
        parents.open(0, root.as_fd(), b"d60/x", Links::Refused).unwrap();
        assert!(parents.forget(0, b"d60"));
        assert!(parents.find(0, b"d60/x").is_none() && parents.find(0, b"d61").is_some());
        assert!(!parents.forget(0, b"d60"));
    }
}
