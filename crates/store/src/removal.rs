//! Removes a copied file or link of a source, if unchanged.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use haul_sys::beneath::Links;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::as_copied::AsCopied;
use crate::at::At;
use crate::error::{Result, StoreError, is_missing, refusal};
use crate::meta::Kind;
use crate::name::{check_new_path, split};
use crate::source::{SourceLinks, SourceSet};

impl SourceSet {
    /// See [`SourceTree::remove`](crate::SourceTree::remove). Directories stay.
    pub fn remove(&self, source: u32, source_path: &[u8], copied: &AsCopied) -> Result<bool> {
        match self.remove_entry(source, source_path, copied) {
            Err(error) if is_missing(&error) => Ok(false),
            removed => removed.map_err(|error| StoreError::new("remove the source", source_path, error)).map(|()| true),
        }
    }

    fn remove_entry(&self, number: u32, path: &[u8], copied: &AsCopied) -> io::Result<()> {
        check_new_path(path)?;
        let source = self.sources.get(number as usize).ok_or(Errno::INVAL)?;
        if !source.is_dir && path != source.name {
            return Err(Errno::NOENT.into());
        }
        let (parent, name) = split(path);
        let remove = |dir: &Arc<OwnedFd>| {
            let at = At { set: self, source: number, dir: dir.as_fd(), name, source_path: path };
            let stat = at.look()?;
            if stat.kind == Kind::Directory || AsCopied::of(&stat) != *copied {
                return Err(refusal(io::ErrorKind::InvalidData, "it has changed since it was copied, and stays"));
            }
            Ok(rustix::fs::unlinkat(dir, name, AtFlags::empty())?)
        };
        let root = source.root.as_fd();
        match self.links {
            SourceLinks::Copied => self.parents.within(number, root, parent, Links::Refused, remove),
            SourceLinks::FollowedWithin => self.parents.within(number, root, parent, Links::Within, remove),
            SourceLinks::Followed => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let parent = if parent.is_empty() { b"." } else { parent };
                remove(&Arc::new(rustix::fs::openat(root, parent, flags, Mode::empty())?))
            }
        }
    }
}
