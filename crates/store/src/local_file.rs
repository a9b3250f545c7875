//! A regular file of this host, open for reading.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use haul_sys::cached::CacheProbe;
use haul_sys::{file, medium};

use crate::attributes::{self, Namespaces, Place};
use crate::cold::ColdMap;
use crate::meta::Stat;
use crate::regular_file;

/// A regular file open for reading.
#[derive(Debug)]
pub struct LocalFile {
    fd: Arc<OwnedFd>,
    /// The file counts as full of data.
    is_full: bool,
    is_remote: bool,
    cold: Option<ColdMap>,
    /// The last found range of data. On tmpfs a search for a hole walks to the data's end: one for each chunk of 2 GB took
    /// 20 s.
    known_data: Mutex<(u64, u64)>,
}

impl LocalFile {
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        regular_file::check(&Stat::of_fd(&fd)?)?;
        Ok(Self { fd: Arc::new(fd), is_full: false, is_remote: false, cold: None, known_data: Mutex::new((0, 0)) })
    }

    pub(crate) fn of_regular(fd: OwnedFd) -> Self {
        Self { fd: Arc::new(fd), is_full: true, is_remote: false, cold: None, known_data: Mutex::new((0, 0)) }
    }

    pub(crate) fn remote(self, is_remote: bool) -> Self {
        Self { is_remote, ..self }
    }

    /// Whether the file system may ask a server even for data in memory: not for threads that must not wait.
    pub fn is_remote(&self) -> bool {
        self.is_remote
    }

    pub(crate) fn full(self) -> Self {
        Self { is_full: true, ..self }
    }

    /// See [`FileToRead::stat`](crate::FileToRead::stat).
    pub fn stat(&self) -> io::Result<Stat> {
        Stat::of_fd(&self.fd)
    }

    /// See [`FileToRead::attributes`](crate::FileToRead::attributes).
    pub fn attributes(&self, xattrs: bool, acls: bool) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let namespaces = Namespaces { xattrs, acls, ..Namespaces::default() };
        if !namespaces.any() {
            return Ok(Vec::new());
        }
        attributes::read(&Place::Open(self.as_fd()), &namespaces)
    }

    /// See [`FileToRead::read_at`](crate::FileToRead::read_at).
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        file::read_full_at(self.as_fd(), buffer, offset)
    }

    /// Reads `wanted` bytes, and what comes with them.
    pub fn read_with_rest(&self, buffer: &mut [u8], wanted: usize, offset: u64) -> io::Result<usize> {
        file::read_at_least(self.as_fd(), buffer, wanted, offset)
    }

    /// See [`FileToRead::next_data`](crate::FileToRead::next_data).
    pub fn next_data(&self, offset: u64, end: u64) -> io::Result<Option<(u64, u64)>> {
        if self.is_full {
            return Ok((offset < end).then_some((offset, end)));
        }
        let known = *self.known_data.lock().unwrap_or_else(PoisonError::into_inner);
        if known.0 <= offset && offset < end && end <= known.1 {
            return Ok(Some((offset, end)));
        }
        if offset >= end {
            return Ok(None);
        }
        let Some(found) = file::next_data(self.as_fd(), offset, u64::MAX)? else { return Ok(None) };
        *self.known_data.lock().unwrap_or_else(PoisonError::into_inner) = found;
        Ok((found.0 < end).then_some((found.0, found.1.min(end))))
    }

    /// Announces reading from front to back.
    pub fn advise_sequential(&self) {
        file::advise_sequential(self.as_fd());
    }

    /// Looks at what the page cache has, from `from_bytes` on.
    pub fn map_cold(&mut self, size: u64, from_bytes: u64) {
        self.cold = ColdMap::of(&self.fd, size, from_bytes);
    }

    /// The map of uncached parts, if [`LocalFile::map_cold`] made one.
    pub fn cold(&self) -> Option<&ColdMap> {
        self.cold.as_ref()
    }

    /// Whether reading a range costs no more than copying: it lies in memory or the page cache.
    pub fn is_in_memory(&self, offset: u64, len: u64) -> bool {
        medium::lies_in_memory(self.as_fd()).unwrap_or(false)
            || CacheProbe::new(self.as_fd()).cached_bytes(offset, len).is_ok_and(|cached| cached >= len)
    }

    /// Whether the page cache has a range. If this user neither owns nor may write the file, its first page stands for it.
    pub fn has_cached(&self, offset: u64, len: u64) -> bool {
        CacheProbe::new(self.as_fd()).cached_bytes(offset, len).is_ok_and(|cached| cached >= len)
    }

    /// [`LocalFile::has_cached`] in one system call; false if the kernel does not tell.
    pub fn is_surely_cached(&self, offset: u64, len: u64) -> bool {
        haul_sys::cached::is_surely_cached(self.as_fd(), offset, len)
    }

    /// Reads from the page cache at `offset`. `None`: it is on the disk only.
    pub fn read_cached_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        haul_sys::cached::read_cached_at(self.as_fd(), buffer, offset)
    }

    /// Sends at most `len` bytes from `offset` on to a socket, in the kernel; 0 at the file's end.
    pub fn send_to(&self, socket: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<usize> {
        haul_sys::sendfile::send_from_file(socket, self.as_fd(), offset, len)
    }

    /// Drops a range's clean pages: the next read comes from the medium.
    pub fn drop_cache(&self, offset: u64, len: u64) {
        file::drop_cache(self.as_fd(), offset, len);
    }
}

impl AsFd for LocalFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
