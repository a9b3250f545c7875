//! One file of a source, open for reading: an ordinary file, or a file in stripes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use haul_sys::cached::CacheProbe;
use haul_sys::{file, medium};

use crate::attributes::{self, Namespaces, Place};
use crate::cold::ColdMap;
use crate::meta::Stat;
use crate::regular_file;
use crate::striped::Striped;

/// A regular file that is open for reading.
#[derive(Debug)]
pub struct SourceFile {
    content: Content,
    cold: Option<ColdMap>,
    /// The range of data that was found last. On tmpfs a look for a hole walks page by page to the end of the data: in
    /// a file of 2 GB, one look for each chunk took 20 s.
    known_data: Mutex<(u64, u64)>,
}

#[derive(Debug)]
enum Content {
    One(Arc<OwnedFd>),
    Striped(Arc<Striped>),
}

impl SourceFile {
    pub(crate) fn striped(striped: Arc<Striped>) -> Self {
        Self::of(Content::Striped(striped))
    }

    fn of(content: Content) -> Self {
        Self { content, cold: None, known_data: Mutex::new((0, 0)) }
    }

    /// Accepts only regular files.
    pub(crate) fn new(fd: OwnedFd) -> io::Result<SourceFile> {
        regular_file::check(&Stat::of_fd(&fd)?)?;
        Ok(SourceFile::of(Content::One(Arc::new(fd))))
    }

    /// The metadata now. Compare it with the walk's metadata to notice a change.
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

    /// The map of its uncached parts, if [`SourceFile::map_cold`] made one.
    pub fn cold(&self) -> Option<&ColdMap> {
        self.cold.as_ref()
    }

    /// Whether reading a range costs no more than copying it: the file lies in memory, or the page cache has all of the
    /// range.
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

    /// The descriptor, for routes that move bytes inside the kernel; `None` for a file in stripes.
    pub fn single(&self) -> Option<BorrowedFd<'_>> {
        match &self.content {
            Content::One(fd) => Some(fd.as_fd()),
            Content::Striped(_) => None,
        }
    }
}
