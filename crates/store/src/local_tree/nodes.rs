//! Makes devices, FIFOs and sockets.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Context, Result};
use crate::meta::{self, Kind, Metadata, Stat};
use crate::name::{check_new_path, part_name, split};
use crate::special::Special;

use super::LocalTree;
use super::replace::replace;

impl LocalTree {
    /// The device, FIFO or socket at this path.
    pub fn special(&self, path: &[u8]) -> Result<Option<Special>> {
        let looked = self.place(path).and_then(|(dir, name)| Special::of_name(dir.as_fd(), name, false));
        looked.context("look at", path)
    }

    /// Makes a device, FIFO or socket; false if it existed. Replaces a file or link, never a directory.
    pub fn make_special(&self, path: &[u8], special: Special, meta: &Metadata) -> Result<bool> {
        let make = |dir: &Arc<OwnedFd>, name: &[u8]| {
            let made = match special.make(dir, name) {
                Ok(()) => true,
                Err(Errno::EXIST) => self.replace_by_special(dir, path, special)?,
                Err(error) => return Err(error.into()),
            };
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = rustix::io::retry_on_intr(|| rustix::fs::openat(dir, name, flags, Mode::empty()))?;
            let now = Stat::of_fd(&opened)?;
            if now.kind != Kind::Special {
                return Err(Errno::STALE.into());
            }
            self.settings.placed().note(&now, path);
            let meta = Metadata { xattrs: None, ..meta.clone() };
            self.settings.note_applied(meta::apply(opened.as_fd(), &now, &meta, &self.settings.namespaces)?, path);
            Ok(made)
        };
        let made = check_new_path(path).and_then(|()| self.within_parent(path, make));
        made.context("make device, FIFO or socket", path)
    }

    fn replace_by_special(&self, dir: &Arc<OwnedFd>, path: &[u8], special: Special) -> io::Result<bool> {
        let name = split(path).1;
        let standing = Stat::of_name(dir.as_fd(), name)?;
        self.settings.refuse_twin(dir, &standing, path)?;
        if standing.kind == Kind::Directory {
            return Err(Errno::ISDIR.into());
        }
        if Special::of_name(dir.as_fd(), name, false)? == Some(special) {
            return Ok(false);
        }
        self.settings.keep_backup(&self.settings.placed(), dir, path)?;
        replace(dir, name, &part_name(name), |temporary| special.make(dir, temporary))?;
        self.settings.placed().forget(&standing, path);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::super::TargetOptions;
    use super::*;

    #[test]
    fn a_fifo_and_a_socket_are_made_once_and_replace_files() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().as_os_str().as_encoded_bytes();
        let (tree, _) = LocalTree::open(root, &TargetOptions::default()).unwrap();
        std::fs::write(dir.path().join("b"), "a file").unwrap();
        let meta = Metadata { mode: Some(0o640), mtime: Some(crate::Time { s: 7, ns: 9 }), ..Metadata::default() };
        for (name, special) in [(b"a", Special::Fifo), (b"b", Special::Socket)] {
            assert!(tree.make_special(name, special, &meta).unwrap());
            assert!(!tree.make_special(name, special, &meta).unwrap());
            assert_eq!(tree.special(name).unwrap(), Some(special));
            let stat = tree.stat(name).unwrap().unwrap();
            assert_eq!((stat.mode, stat.mtime.s, stat.mtime.ns), (0o640, 7, 9));
        }
        assert!(tree.make_special(b"a", Special::Socket, &meta).unwrap());
        std::fs::create_dir(dir.path().join("d")).unwrap();
        assert!(tree.make_special(b"d", Special::Fifo, &meta).is_err());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
    }
}
