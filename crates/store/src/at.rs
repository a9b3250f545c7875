//! One name in an open directory of a source.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use haul_sys::beneath::{self, Links};
use rustix::fs::{AtFlags, Mode, OFlags};

use crate::attributes::{self, Attribute, Namespaces, Place};
use crate::error::{is_missing, refusal};
use crate::files_from::Extent;
use crate::found::{EntryKind, FoundEntry};
use crate::meta::{Kind, Stat};
use crate::source::{SourceLinks, SourceSet};

#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    pub set: &'a SourceSet,
    pub source: u32,
    pub dir: BorrowedFd<'a>,
    pub name: &'a [u8],
    pub source_path: &'a [u8],
}

impl At<'_> {
    pub(crate) fn look(&self) -> io::Result<Stat> {
        let stat = Stat::of_name(self.dir, self.name)?;
        if self.set.links == SourceLinks::Copied || !matches!(stat.kind, Kind::Symlink { .. }) {
            return Ok(stat);
        }
        let followed = match self.set.links {
            SourceLinks::FollowedWithin => {
                let opened = beneath::open(self.root(), self.source_path, OFlags::PATH, Mode::empty(), Links::Within);
                opened.and_then(Stat::of_fd)
            }
            _ => rustix::io::retry_on_intr(|| rustix::fs::statat(self.dir, self.name, AtFlags::empty()))
                .map(Stat::from)
                .map_err(io::Error::from),
        };
        // The link exists: "no such file" would mislead.
        followed.map_err(|error| match is_missing(&error) {
            true => refusal(io::ErrorKind::NotFound, "it is a symbolic link that leads to nothing"),
            false => error,
        })
    }

    pub(crate) fn open_directory(&self, extent: Extent) -> io::Result<OwnedFd> {
        let flags = directory_flags(extent);
        let flags = match self.set.links {
            SourceLinks::Copied => flags | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            SourceLinks::Followed => flags | OFlags::CLOEXEC,
            SourceLinks::FollowedWithin => {
                return beneath::open(self.root(), self.source_path, flags, Mode::empty(), Links::Within);
            }
        };
        Ok(rustix::io::retry_on_intr(|| rustix::fs::openat(self.dir, self.name, flags, Mode::empty()))?)
    }

    /// Opens without reading: a FIFO does not block.
    pub(crate) fn open_path(&self) -> io::Result<OwnedFd> {
        let flags = match self.set.links {
            SourceLinks::Copied => OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            SourceLinks::Followed => OFlags::PATH | OFlags::CLOEXEC,
            SourceLinks::FollowedWithin => {
                return beneath::open(self.root(), self.source_path, OFlags::PATH, Mode::empty(), Links::Within);
            }
        };
        Ok(rustix::io::retry_on_intr(|| rustix::fs::openat(self.dir, self.name, flags, Mode::empty()))?)
    }

    pub(crate) fn attributes(&self, namespaces: &Namespaces) -> io::Result<Vec<Attribute>> {
        match self.set.links {
            SourceLinks::Copied => attributes::read(&Place::Name(self.dir, self.name), namespaces),
            SourceLinks::Followed | SourceLinks::FollowedWithin => {
                let opened = self.open_path()?;
                attributes::read(&Place::Open(opened.as_fd()), namespaces)
            }
        }
    }

    pub(crate) fn entry(&self, path: &[u8], stat: Stat) -> FoundEntry {
        FoundEntry {
            source: self.source,
            path: path.to_vec(),
            source_path: self.source_path.to_vec(),
            stat,
            tells_changes: true,
            kind: EntryKind::File { further_names: 0 },
            xattrs: Vec::new(),
        }
    }

    fn root(&self) -> BorrowedFd<'_> {
        self.set.source(self.source).root.as_fd()
    }
}

pub(crate) fn open_by_path(set: &SourceSet, source: u32, source_path: &[u8], extent: Extent) -> io::Result<OwnedFd> {
    let root = set.source(source).root.as_fd();
    let flags = directory_flags(extent);
    if source_path.is_empty() {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        return Ok(rustix::io::retry_on_intr(|| rustix::fs::openat(root, ".", flags, Mode::empty()))?);
    }
    match set.links {
        SourceLinks::Copied => beneath::open(root, source_path, flags, Mode::empty(), Links::Refused),
        SourceLinks::FollowedWithin => beneath::open(root, source_path, flags, Mode::empty(), Links::Within),
        SourceLinks::Followed => {
            let flags = flags | OFlags::CLOEXEC;
            Ok(rustix::io::retry_on_intr(|| rustix::fs::openat(root, source_path, flags, Mode::empty()))?)
        }
    }
}

/// Passing through a directory needs no right to read it.
fn directory_flags(extent: Extent) -> OFlags {
    let access = if extent >= Extent::Entries { OFlags::RDONLY } else { OFlags::PATH };
    access | OFlags::DIRECTORY
}
