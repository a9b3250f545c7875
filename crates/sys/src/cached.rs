//! Counts the cached bytes of a file without causing reads: `cachestat(2)` (Linux 6.5).
//!
//! The fallback is a read with `RWF_NOWAIT` (preadv2(2)): `EAGAIN`, and the kernel begins to read (Linux 6.18: 1 MiB for 256
//! KiB). A random-read advice makes that one page for one byte.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Advice, CWD, Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};

/// Asks about one file.
#[derive(Debug)]
pub struct CacheProbe<'a> {
    file: BorrowedFd<'a>,
    /// The same file, read at random, without `cachestat`.
    touched: Option<OwnedFd>,
}

impl CacheProbe<'_> {
    /// Takes a file that is open for reading.
    pub fn new(file: BorrowedFd<'_>) -> CacheProbe<'_> {
        CacheProbe { file, touched: None }
    }

    /// Counts a range's cached bytes, by whole pages. Without `cachestat` the first byte stands for the range, and a missing
    /// first page is read. `Unsupported` if that fails.
    pub fn cached_bytes(&mut self, offset: u64, len: u64) -> io::Result<u64> {
        if self.touched.is_none() {
            match cached_bytes(self.file, offset, len) {
                Ok(bytes) => return Ok(bytes),
                Err(_) => self.touched = Some(open_again(self.file)?),
            }
        }
        let Some(touched) = &self.touched else { return Err(io::ErrorKind::Unsupported.into()) };
        Ok(if is_cached_at(touched, offset)? { len } else { 0 })
    }
}

/// Reads from the page cache at `offset`; 0 at the file's end. `None`: not cached, or unknown.
pub fn read_cached_at(file: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
    let mut parts = [io::IoSliceMut::new(buffer)];
    loop {
        match rustix::io::preadv2(file, &mut parts, offset, ReadWriteFlags::NOWAIT) {
            Ok(read) => return Ok(Some(read)),
            Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(None),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether a range is surely cached. Never reads.
pub fn is_surely_cached(file: BorrowedFd<'_>, offset: u64, len: u64) -> bool {
    cached_bytes(file, offset, len).is_ok_and(|cached| cached >= len)
}

/// Counts a range's cached bytes, by whole pages. `ENOSYS` before Linux 6.5; `EPERM` unless owned or writable; `EOPNOTSUPP`
/// for huge pages.
pub(crate) fn cached_bytes(file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<u64> {
    if len == 0 {
        // To the kernel, length 0 means up to the end.
        return Ok(0);
    }
    let range = Range { offset, len };
    let mut found = Found::default();
    // SAFETY: both structures have the kernel's layout and live for the length of the call; it reads the first and
    // fills the second.
    let answer = unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut found, 0u32) };
    match answer {
        0 => Ok(found.cached_pages.saturating_mul(crate::process::page_bytes())),
        _ => Err(io::Error::last_os_error()),
    }
}

fn open_again(file: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // The advice belongs to the open file.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let again = rustix::io::retry_on_intr(|| rustix::fs::openat(CWD, &path, flags, Mode::empty()))?;
    rustix::fs::fadvise(&again, 0, None, Advice::Random)?;
    Ok(again)
}

fn is_cached_at(touched: &OwnedFd, offset: u64) -> io::Result<bool> {
    let mut byte = [0];
    let mut parts = [io::IoSliceMut::new(&mut byte)];
    loop {
        match rustix::io::preadv2(touched, &mut parts, offset, ReadWriteFlags::NOWAIT) {
            Ok(read) => return Ok(read > 0),
            Err(Errno::AGAIN) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[repr(C)]
struct Range {
    offset: u64,
    len: u64,
}

#[repr(C)]
#[derive(Default)]
struct Found {
    cached_pages: u64,
    dirty_pages: u64,
    written_pages: u64,
    evicted_pages: u64,
    lately_evicted_pages: u64,
}

/// Every architecture has this number; not every `libc` names it.
const CACHESTAT: libc::c_long = 451;

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;
    use crate::condition::{despite_others, unmet};

    const LENGTH: u64 = 8 << 20;

    /// 8 MiB on a disk, the second half cached.
    fn half_cached() -> Option<std::fs::File> {
        let file = tempfile::tempfile().unwrap();
        crate::file::write_all_at(file.as_fd(), &vec![7; LENGTH as usize], 0).unwrap();
        crate::file::flush_all(file.as_fd()).unwrap();
        crate::file::drop_cache(file.as_fd(), 0, LENGTH / 2);
        if crate::medium::lies_in_memory(file.as_fd()).unwrap() {
            unmet("the temporary directory lies in memory");
            return None;
        }
        Some(file)
    }

    #[test]
    fn what_is_cached_is_told_and_nothing_is_read_for_it() {
        despite_others(|| {
            let Some(file) = half_cached() else { return };
            if let Err(error) = cached_bytes(file.as_fd(), 0, LENGTH) {
                return unmet(format_args!("no cachestat here: {error}"));
            }
            let mut probe = CacheProbe::new(file.as_fd());
            for _ in 0..2 {
                assert_eq!(probe.cached_bytes(0, LENGTH).unwrap(), LENGTH / 2);
                assert_eq!(probe.cached_bytes(0, LENGTH / 4).unwrap(), 0);
                assert_eq!(probe.cached_bytes(LENGTH / 2, LENGTH / 4).unwrap(), LENGTH / 4);
                assert_eq!(probe.cached_bytes(LENGTH, 0).unwrap(), 0);
            }
        });
    }

    #[test]
    fn without_cachestat_the_first_byte_tells_and_costs_a_page_at_most() {
        despite_others(|| {
            let Some(file) = half_cached() else { return };
            let mut probe = CacheProbe { file: file.as_fd(), touched: Some(open_again(file.as_fd()).unwrap()) };
            assert_eq!(probe.cached_bytes(LENGTH / 2, LENGTH / 2).unwrap(), LENGTH / 2);
            assert_eq!(probe.cached_bytes(0, LENGTH / 2).unwrap(), 0);
            if let Ok(bytes) = cached_bytes(file.as_fd(), 0, LENGTH / 2) {
                assert!(bytes <= crate::process::page_bytes(), "{bytes} bytes were read to ask");
            }
        });
    }
}
