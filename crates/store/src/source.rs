//! Where trees are read from: an open directory for each source, and the regular files beneath.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use haul_sys::beneath::{self, Links};
use haul_sys::cached::CacheProbe;
use haul_sys::{file, medium};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::attributes::{self, Namespaces, Place};
use crate::cold::ColdMap;
use crate::error::{Context, Result, StoreError, refusal};
use crate::kernel_files::KernelFiles;
use crate::meta::{Kind, Stat};
use crate::name::{check_path, split};
use crate::parents::Parents;
use crate::resolve::{Held, ResolveOptions};
use crate::scratch;
use crate::striped::Striped;
use crate::walk::{Walk, WalkOptions};

/// The resolved sources of a job.
#[derive(Debug)]
pub struct SourceSet {
    pub(crate) sources: Vec<Source>,
    pub(crate) links: SourceLinks,
    typed_alone: bool,
    parents: Parents,
    pub(crate) kernel_files: KernelFiles,
    /// Counts the directories behind `sources`.
    _held: Held,
}

/// One source: a directory whose contents are copied, or one entry of a directory.
#[derive(Debug)]
pub(crate) struct Source {
    /// The directory itself, or for a single entry the one that holds it.
    pub root: Arc<OwnedFd>,
    /// First component at the target; empty when the contents go straight into the target's root.
    pub name: Vec<u8>,
    pub is_dir: bool,
    /// Whether it is a file that stands in no directory, or in several.
    pub alone: Alone,
    pub stat: Stat,
    /// For messages.
    pub typed: Vec<u8>,
}

/// A file that is not opened by its name.
#[derive(Debug)]
pub(crate) enum Alone {
    /// It is an ordinary source.
    No,
    /// `root` is the file itself.
    Nameless,
    /// It stands in pieces; `root` is of no use.
    Striped(Arc<Striped>),
}

impl Source {
    pub(crate) fn is_alone(&self) -> bool {
        !matches!(self.alone, Alone::No)
    }
}

/// What symbolic links beneath a source mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SourceLinks {
    /// They are copied as links and never followed.
    Copied,
    /// They are followed wherever they lead: the user asked for it on the user's own files.
    Followed,
    /// They are followed if they stay beneath the source.
    FollowedWithin,
}

/// A regular file that is open for reading.
#[derive(Debug)]
pub struct SourceFile {
    content: Content,
    cold: Option<ColdMap>,
    /// The data that was found last. A look for a hole walks to the end of the data, page by page in memory (tmpfs): one for each chunk of
    /// 2 GB took 20 s.
    known_data: Mutex<(u64, u64)>,
}

#[derive(Debug)]
enum Content {
    One(Arc<OwnedFd>),
    Striped(Arc<Striped>),
}

impl SourceSet {
    pub(crate) fn new(sources: Vec<Source>, typed_alone: bool, options: &ResolveOptions) -> SourceSet {
        let links = match (options.follow_links, options.confine.is_some()) {
            (false, _) => SourceLinks::Copied,
            (true, false) => SourceLinks::Followed,
            (true, true) => SourceLinks::FollowedWithin,
        };
        let kernel_files = KernelFiles::of(options.confine.is_some());
        let parents = Parents::new(kernel_files);
        SourceSet { sources, links, typed_alone, parents, kernel_files, _held: Held::default() }
    }

    pub(crate) fn holding(self, held: Held) -> SourceSet {
        SourceSet { _held: held, ..self }
    }

    /// One file of so many zeros, named `zero`, that stands nowhere. It is a hole of a file in memory and takes none; it counts as full, so
    /// that its zeros travel.
    pub fn zeros(bytes: u64) -> Result<SourceSet> {
        let typed = format!("zero:{bytes}").into_bytes();
        let made = scratch::in_memory(bytes).and_then(|file| Ok((Stat::of_fd(&file)?, file)));
        let (stat, file) = made.context("make", &typed)?;
        let stat = Stat { blocks: bytes.div_ceil(BLOCK_BYTES), mode: 0o644, ..stat };
        let root = Arc::new(OwnedFd::from(file));
        let name = b"zero".to_vec();
        Ok(SourceSet::alone(Source { root, name, is_dir: false, alone: Alone::Nameless, stat, typed }))
    }

    /// One file that stands in pieces, as if it stood under this name.
    pub fn striped(striped: Striped, name: &str) -> Result<SourceSet> {
        let made = scratch::in_memory(0).and_then(|root| Ok((striped.stat()?, root)));
        let (stat, root) = made.context("look at", name.as_bytes())?;
        let (root, name) = (Arc::new(OwnedFd::from(root)), name.as_bytes().to_vec());
        let (alone, typed) = (Alone::Striped(Arc::new(striped)), name.clone());
        Ok(SourceSet::alone(Source { root, name, is_dir: false, alone, stat, typed }))
    }

    fn alone(source: Source) -> SourceSet {
        SourceSet::new(vec![source], true, &ResolveOptions::default())
    }

    /// Exactly one path was given, and it is not a directory: the target may be its new name.
    pub fn is_single_file(&self) -> bool {
        self.typed_alone && self.sources.len() == 1 && !self.sources[0].is_dir
    }

    /// What the file is called where [`SourceSet::is_single_file`]; else the name of the first source.
    pub fn name_of_single_file(&self) -> &[u8] {
        self.sources.first().map_or(b"", |source| &source.name)
    }

    /// Nothing was found.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    pub(crate) fn source(&self, number: u32) -> &Source {
        &self.sources[number as usize]
    }

    /// The directories beneath which everything is read; `None` where links are followed wherever they lead.
    pub fn roots(&self) -> Option<Vec<BorrowedFd<'_>>> {
        if self.links == SourceLinks::Followed {
            return None;
        }
        let mut roots: Vec<&Arc<OwnedFd>> = self.sources.iter().map(|source| &source.root).collect();
        // Files that were named one by one stand in one directory.
        roots.dedup_by(|one, other| Arc::ptr_eq(one, other));
        Some(roots.into_iter().map(AsFd::as_fd).collect())
    }

    /// Walks all sources as one tree, depth first and sorted.
    pub fn walk(self: &Arc<Self>, options: WalkOptions) -> Walk {
        Walk::new(self.clone(), options)
    }

    /// Opens a regular file that the walk found, by its `source` and `source_path`.
    pub fn open(&self, source: u32, source_path: &[u8]) -> Result<SourceFile> {
        self.open_file(source, source_path).map_err(|error| StoreError::new("open", source_path, error))
    }

    fn open_file(&self, number: u32, path: &[u8]) -> io::Result<SourceFile> {
        match self.sources.get(number as usize) {
            Some(Source { alone: Alone::Striped(striped), name, .. }) if path == *name => {
                Ok(SourceFile::of(Content::Striped(Arc::clone(striped))))
            }
            _ => SourceFile::new(self.kernel_files.checked(self.open_fd(number, path)?)?),
        }
    }

    fn open_fd(&self, number: u32, path: &[u8]) -> io::Result<OwnedFd> {
        check_path(path)?;
        let source = self.sources.get(number as usize).ok_or(Errno::INVAL)?;
        // A single file gives no right to its neighbours.
        if !source.is_dir && path != source.name {
            return Err(Errno::NOENT.into());
        }
        let root = source.root.as_fd();
        if source.is_alone() {
            return root.try_clone_to_owned();
        }
        match self.links {
            SourceLinks::Followed => {
                let flags = FILE_FLAGS & !OFlags::NOFOLLOW;
                return Ok(rustix::io::retry_on_intr(|| rustix::fs::openat(root, path, flags, Mode::empty()))?);
            }
            // Only the user's own choice of a single link may lead out of its directory, and only when not confined.
            SourceLinks::FollowedWithin => {
                return beneath::open(root, path, FILE_FLAGS & !OFlags::NOFOLLOW, Mode::empty(), Links::Within);
            }
            SourceLinks::Copied => {}
        }
        let (parent, name) = split(path);
        self.parents.within(number, root, parent, Links::Refused, |dir| {
            Ok(rustix::io::retry_on_intr(|| rustix::fs::openat(dir, name, FILE_FLAGS, Mode::empty()))?)
        })
    }
}

impl SourceFile {
    fn of(content: Content) -> Self {
        Self { content, cold: None, known_data: Mutex::new((0, 0)) }
    }

    /// Accepts only regular files: reading a FIFO would hang, reading a device would never end.
    pub(crate) fn new(fd: OwnedFd) -> io::Result<SourceFile> {
        match Stat::of_fd(&fd)?.kind {
            Kind::File => Ok(SourceFile::of(Content::One(Arc::new(fd)))),
            _ => Err(refusal(io::ErrorKind::InvalidInput, "it is not a regular file")),
        }
    }

    /// What the file is now; compare with what the walk saw to notice a change.
    pub fn stat(&self) -> io::Result<Stat> {
        match &self.content {
            Content::One(fd) => Stat::of_fd(fd),
            Content::Striped(striped) => striped.stat(),
        }
    }

    /// Its extended attributes and ACLs, as far as they are kept.
    pub fn attributes(&self, xattrs: bool, acls: bool) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let namespaces = Namespaces { xattrs, acls, ..Namespaces::default() };
        match self.single().filter(|_| namespaces.any()) {
            Some(fd) => attributes::read(&Place::Open(fd), &namespaces),
            None => Ok(Vec::new()),
        }
    }

    /// Fills `buffer` from `offset` on; fewer bytes mean the end of the file.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match &self.content {
            Content::One(fd) => file::read_full_at(fd.as_fd(), buffer, offset),
            Content::Striped(striped) => striped.read_at(buffer, offset),
        }
    }

    /// The next `[start, end)` that holds data at or after `offset`, clipped to `end`; `None` when only a hole is left.
    pub fn next_data(&self, offset: u64, end: u64) -> io::Result<Option<(u64, u64)>> {
        let Content::One(fd) = &self.content else { return Ok((offset < end).then_some((offset, end))) };
        let known = *self.known_data.lock().unwrap_or_else(PoisonError::into_inner);
        if known.0 <= offset && offset < end && end <= known.1 {
            return Ok(Some((offset, end)));
        }
        if offset >= end {
            return Ok(None);
        }
        let Some(found) = file::next_data(fd.as_fd(), offset, u64::MAX)? else { return Ok(None) };
        *self.known_data.lock().unwrap_or_else(PoisonError::into_inner) = found;
        Ok((found.0 < end).then_some((found.0, found.1.min(end))))
    }

    /// Tells the kernel that the file will be read from front to back.
    pub fn advise_sequential(&self) {
        if let Some(fd) = self.single() {
            file::advise_sequential(fd);
        }
    }

    /// Looks at what the page cache has of a file of `size` bytes, when that is at least `from_bytes`.
    pub fn map_cold(&mut self, size: u64, from_bytes: u64) {
        self.cold = match &self.content {
            Content::One(fd) => ColdMap::of(fd, size, from_bytes),
            Content::Striped(_) => None,
        };
    }

    /// What the page cache does not have of it, where that was looked at and is something.
    pub fn cold(&self) -> Option<&ColdMap> {
        self.cold.as_ref()
    }

    /// Whether reading a range costs no more than copying it: the file lies in memory, or the page cache has all of the range.
    pub fn is_in_memory(&self, offset: u64, len: u64) -> bool {
        self.single().is_some_and(|fd| {
            medium::lies_in_memory(fd).unwrap_or(false)
                || CacheProbe::new(fd).cached_bytes(offset, len).is_ok_and(|cached| cached >= len)
        })
    }

    /// Drops clean pages of a range from the cache, so that the next read comes from the medium.
    pub fn drop_cache(&self, offset: u64, len: u64) {
        if let Some(fd) = self.single() {
            file::drop_cache(fd, offset, len);
        }
    }

    /// The descriptor, for routes that move bytes inside the kernel; `None` for a file that stands in pieces.
    pub fn single(&self) -> Option<BorrowedFd<'_>> {
        match &self.content {
            Content::One(fd) => Some(fd.as_fd()),
            Content::Striped(_) => None,
        }
    }
}

/// What `st_blocks` counts in: stat(2).
pub(crate) const BLOCK_BYTES: u64 = 512;

/// Non-blocking, because the name may have become a FIFO since it was listed.
pub(crate) const FILE_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
