//! Removes the target's entries that the source lacks. Never follows a link, and goes on after a failure.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use haul_sys::beneath;
use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;

use crate::error::{StoreError, is_missing, refusal};
use crate::limits::MAX_DEPTH;
use crate::listing::{Hint, Names};
use crate::local_tree::LocalTree;
use crate::meta::{self, Kind, Stat};
use crate::name::{join, split};
use crate::parents::is_at_or_beneath;
use crate::source_names::SourceNames;

impl LocalTree {
    /// See [`TargetTree::delete_extraneous`](crate::TargetTree::delete_extraneous); for parts and journals
    /// [`crate::parse_haul_name`]. `deleted` also gets whether it is a directory. Mounted entries are errors.
    pub fn delete_extraneous(
        &self,
        path: &[u8],
        has: &SourceNames,
        spare: &dyn Fn(&[u8], bool) -> bool,
        dry_run: bool,
        deleted: &mut dyn FnMut(Vec<u8>, bool),
    ) -> Vec<StoreError> {
        let mut deletion = Deletion { tree: self, dry_run, deleted, errors: Vec::new() };
        if let Some(dir) = deletion.open(path)
            && let Some(top) = deletion.list(dir, path.to_vec())
        {
            let beyond = has.lacks(&top.names).and_then(|lacks| has.keep_respelled(top.dir.as_fd(), &top.names, lacks));
            match beyond {
                Ok(names) => deletion.run(Frame { names, ..top }, spare),
                Err(error) => deletion.errors.push(StoreError::new("delete what the source lacks in", path, error)),
            }
        }
        deletion.errors
    }

    /// See [`TargetTree::delete_entry`](crate::TargetTree::delete_entry).
    pub fn delete_entry(
        &self,
        path: &[u8],
        spare: &dyn Fn(&[u8], bool) -> bool,
        dry_run: bool,
        deleted: &mut dyn FnMut(Vec<u8>, bool),
    ) -> Vec<StoreError> {
        let (parent, name) = split(path);
        let mut deletion = Deletion { tree: self, dry_run, deleted, errors: Vec::new() };
        if let Some(dir) = deletion.open(parent) {
            let top =
                Frame { dir: Arc::new(dir), path: parent.to_vec(), names: Names::of(name), next: 0, spared: false };
            deletion.run(top, spare);
        }
        deletion.errors
    }
}

struct Deletion<'a> {
    tree: &'a LocalTree,
    dry_run: bool,
    deleted: &'a mut dyn FnMut(Vec<u8>, bool),
    errors: Vec<StoreError>,
}

struct Frame {
    dir: Arc<OwnedFd>,
    path: Vec<u8>,
    names: Names,
    next: usize,
    spared: bool,
}

impl Deletion<'_> {
    fn run(&mut self, top: Frame, spare: &dyn Fn(&[u8], bool) -> bool) {
        let mut stack = vec![top];
        while !stack.is_empty() {
            let Some(frame) = stack.last_mut() else { return };
            let Some((name, hint)) = frame.names.get(frame.next) else {
                let Some(done) = stack.pop() else { return };
                if let Some(above) = stack.last_mut() {
                    above.spared |= done.spared;
                    if !done.spared {
                        self.remove(&above.dir, done.path, AtFlags::REMOVEDIR);
                    }
                }
                continue;
            };
            frame.next += 1;
            let name = name.to_vec();
            let path = join(&frame.path, &name);
            let is_dir = match hint {
                Hint::Directory => true,
                Hint::Symlink | Hint::Other => false,
                Hint::Unknown => match Stat::of_name(frame.dir.as_fd(), &name) {
                    Ok(stat) => stat.kind == Kind::Directory,
                    Err(Errno::NOENT) => continue,
                    Err(error) => {
                        self.fail("look at", path, error);
                        continue;
                    }
                },
            };
            if spare(&path, is_dir) {
                frame.spared = true;
                continue;
            }
            let depth = stack.len();
            let Some(frame) = stack.last_mut() else { return };
            if !is_dir {
                frame.spared |= self.remove_file(&frame.dir, path);
            } else if depth >= MAX_DEPTH {
                let why = refusal(std::io::ErrorKind::InvalidInput, "directories are nested too deep");
                self.errors.push(StoreError::new("delete", &path, why));
            } else {
                match self.enter(frame.dir.as_fd(), &name) {
                    // A followed link leads here: copied entries may lie beneath.
                    Ok(dir) if self.tree.dirlinks.lead_to(&dir) => frame.spared = true,
                    Ok(dir) => stack.extend(self.list(dir, path)),
                    Err(error) if is_missing(&error) => {}
                    Err(error) if is_on_other_mount(&error) => {
                        frame.spared = true;
                        self.errors.push(StoreError::mounted(&path));
                    }
                    Err(error) => self.errors.push(StoreError::new("read directory", &path, error)),
                }
            }
        }
    }

    /// Opens a directory to be emptied. A mounted one is refused: somebody else put it there.
    fn enter(&self, dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
        if !self.dry_run && !haul_sys::process::is_root() {
            beneath::open_on_one_mount(dir, name, OFlags::PATH | OFlags::DIRECTORY)?;
            let _ = meta::open_up(dir, name);
        }
        beneath::open_on_one_mount(dir, name, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    fn open(&mut self, path: &[u8]) -> Option<OwnedFd> {
        match self.tree.open_dir(path) {
            Ok(dir) => return Some(dir),
            Err(error) if is_missing(&error) => {}
            Err(error) => self.errors.push(StoreError::new("read directory", path, error)),
        }
        None
    }

    fn list(&mut self, dir: OwnedFd, path: Vec<u8>) -> Option<Frame> {
        let checked = self.tree.settings.kernel_files.check(&dir);
        match checked.and_then(|()| Names::read(dir.as_fd())) {
            Ok(names) => Some(Frame { dir: Arc::new(dir), path, names, next: 0, spared: false }),
            Err(error) => {
                self.errors.push(StoreError::new("read directory", &path, error));
                None
            }
        }
    }

    fn remove_file(&mut self, dir: &Arc<OwnedFd>, path: Vec<u8>) -> bool {
        // The kernel refuses to remove a file on which another is mounted.
        if self.dry_run && beneath::is_mounted(dir.as_fd(), split(&path).1).unwrap_or(false) {
            self.errors.push(StoreError::mounted(&path));
            return true;
        }
        let Some(backups) = self.tree.settings.backups.get().filter(|_| !self.dry_run) else {
            self.remove(dir, path, AtFlags::empty());
            return false;
        };
        let kept = backups.keep_deleted(&self.tree.settings.placed(), dir, &path);
        match kept {
            Ok(true) => (self.deleted)(path, false),
            Ok(false) => self.remove(dir, path, AtFlags::empty()),
            Err(error) => self.errors.push(StoreError::new("keep a backup of", &path, error)),
        }
        backups.stand_beside()
    }

    fn remove(&mut self, dir: &OwnedFd, path: Vec<u8>, flags: AtFlags) {
        if !self.dry_run {
            let name = crate::name::split(&path).1;
            match rustix::fs::unlinkat(dir, name, flags) {
                Ok(()) => {}
                Err(Errno::NOENT) => return,
                // The entries inside have their own errors.
                Err(Errno::NOTEMPTY) if self.has_error_beneath(&path) => return,
                Err(Errno::BUSY) if beneath::is_mounted(dir.as_fd(), name).unwrap_or(false) => {
                    return self.errors.push(StoreError::mounted(&path));
                }
                Err(error) => return self.fail("delete", path, error),
            }
            if flags.contains(AtFlags::REMOVEDIR) {
                self.tree.forget(&path);
            }
        }
        (self.deleted)(path, flags.contains(AtFlags::REMOVEDIR));
    }

    fn has_error_beneath(&self, path: &[u8]) -> bool {
        self.errors.iter().any(|error| is_at_or_beneath(&error.path, path))
    }

    fn fail(&mut self, op: &'static str, path: Vec<u8>, error: Errno) {
        self.errors.push(StoreError::new(op, &path, error));
    }
}

fn is_on_other_mount(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::XDEV.raw_os_error())
}

impl StoreError {
    fn mounted(path: &[u8]) -> StoreError {
        StoreError::new("delete", path, refusal(io::ErrorKind::ResourceBusy, MOUNTED))
    }

    /// Whether something mounted kept the entry.
    pub fn is_mounted(&self) -> bool {
        self.source.raw_os_error().is_none() && self.source.to_string() == MOUNTED
    }
}

const MOUNTED: &str = "something is mounted there, and stays with all that is in it; unmount it, or name what is in it";
