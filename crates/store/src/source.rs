//! The sources of a job: an open directory for each, and the files beneath.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use haul_sys::beneath::{self, Links};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::ends::reading::SourceFile;
use crate::error::{Result, StoreError, is_missing};
use crate::held::Held;
use crate::kernel_files::KernelFiles;
use crate::local_file::LocalFile;
use crate::meta::Stat;
use crate::name::{check_path, part_name, split};
use crate::parents::Parents;
use crate::regular_file::READ_FLAGS;

/// The resolved sources of a job.
#[derive(Debug)]
pub struct SourceSet {
    pub(crate) sources: Vec<Source>,
    pub(crate) links: SourceLinks,
    typed_alone: bool,
    pub(crate) parents: Parents,
    pub(crate) kernel_files: KernelFiles,
    /// A draft's name that marks the target.
    pub(crate) target: OnceLock<Vec<u8>>,
    _held: Held,
}

/// A directory's contents, or one entry.
#[derive(Debug)]
pub(crate) struct Source {
    /// The directory, or the entry's parent.
    pub root: Arc<OwnedFd>,
    /// The first component at the target, if not the target's root.
    pub name: Vec<u8>,
    pub is_dir: bool,
    pub stat: Stat,
    pub typed: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Reach {
    pub links: SourceLinks,
    pub kernel_files: KernelFiles,
}

impl Reach {
    pub(crate) fn of(follow_links: bool, is_confined: bool) -> Reach {
        let links = match (follow_links, is_confined) {
            (false, _) => SourceLinks::Copied,
            (true, false) => SourceLinks::Followed,
            (true, true) => SourceLinks::FollowedWithin,
        };
        Reach { links, kernel_files: KernelFiles::of(is_confined) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SourceLinks {
    Copied,
    /// Links are followed anywhere: the user asked for it.
    Followed,
    /// Links are followed beneath the source.
    FollowedWithin,
}

impl SourceSet {
    pub(crate) fn new(sources: Vec<Source>, typed_alone: bool, reach: Reach) -> SourceSet {
        let Reach { links, kernel_files } = reach;
        let parents = Parents::new(kernel_files);
        let (target, held) = (OnceLock::new(), Held::default());
        SourceSet { sources, links, typed_alone, parents, kernel_files, target, _held: held }
    }

    pub(crate) fn holding(self, held: Held) -> SourceSet {
        SourceSet { _held: held, ..self }
    }

    /// See [`SourceTree::is_single_file`](crate::SourceTree::is_single_file).
    pub fn is_single_file(&self) -> bool {
        self.typed_alone && self.sources.len() == 1 && !self.sources[0].is_dir
    }

    /// The single file's name, or the first source's.
    pub fn name_of_single_file(&self) -> &[u8] {
        self.sources.first().map_or(b"", |source| &source.name)
    }

    /// Whether there are no sources.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    pub(crate) fn source(&self, number: u32) -> &Source {
        &self.sources[number as usize]
    }

    /// The directories beneath which all is read; `None`: links are followed anywhere.
    pub fn roots(&self) -> Option<Vec<BorrowedFd<'_>>> {
        if self.links == SourceLinks::Followed {
            return None;
        }
        let mut roots: Vec<&Arc<OwnedFd>> = self.sources.iter().map(|source| &source.root).collect();
        // Files named one by one share a descriptor.
        roots.dedup_by(|one, other| Arc::ptr_eq(one, other));
        Some(roots.into_iter().map(AsFd::as_fd).collect())
    }

    /// See [`SourceTree::open`](crate::SourceTree::open).
    pub fn open(&self, source: u32, source_path: &[u8]) -> Result<SourceFile> {
        self.open_file(source, source_path).map_err(|error| StoreError::new("open", source_path, error))
    }

    pub(crate) fn read_merge_file(&self, number: u32, path: &[u8]) -> io::Result<Option<Vec<u8>>> {
        match self.open_file(number, path) {
            Ok(file) => file.read_rules().map(Some),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// See [`SourceTree::seen_at`](crate::SourceTree::seen_at). It needs only the walk's rights.
    pub(crate) fn seen_at(&self, draft: &[u8]) -> Option<Vec<u8>> {
        let name = self.target.get_or_init(|| part_name(draft));
        let stands = |source: &&Source| {
            // A directory under its own name lands beside the draft.
            let above = if source.is_dir && !source.name.is_empty() { &b"../"[..] } else { b"" };
            Stat::of_name(source.root.as_fd(), &[above, name].concat()).is_ok()
        };
        self.sources.iter().find(stands).map(|source| source.typed.clone())
    }

    fn open_file(&self, number: u32, path: &[u8]) -> io::Result<SourceFile> {
        let opened = self.kernel_files.checked(self.open_fd(number, path)?)?;
        LocalFile::new(opened).map(SourceFile::Local)
    }

    fn open_fd(&self, number: u32, path: &[u8]) -> io::Result<OwnedFd> {
        check_path(path)?;
        let source = self.sources.get(number as usize).ok_or(Errno::INVAL)?;
        // A single file gives no right to its neighbours.
        if !source.is_dir && path != source.name {
            return Err(Errno::NOENT.into());
        }
        let root = source.root.as_fd();
        match self.links {
            SourceLinks::Followed => {
                let flags = READ_FLAGS & !OFlags::NOFOLLOW;
                return Ok(rustix::io::retry_on_intr(|| rustix::fs::openat(root, path, flags, Mode::empty()))?);
            }
            // Only the user's own single link may lead out of its directory, and only when not confined.
            SourceLinks::FollowedWithin => {
                return beneath::open(root, path, READ_FLAGS & !OFlags::NOFOLLOW, Mode::empty(), Links::Within);
            }
            SourceLinks::Copied => {}
        }
        let (parent, name) = split(path);
        self.parents.within(number, root, parent, Links::Refused, |dir| {
            Ok(rustix::io::retry_on_intr(|| rustix::fs::openat(dir, name, READ_FLAGS, Mode::empty()))?)
        })
    }
}
