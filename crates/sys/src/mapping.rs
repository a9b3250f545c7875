//! A mapped file that only the kernel reads, by `send(2)`: a cut file gives `EFAULT` instead of SIGBUS, and a changed one
//! changes no `&[u8]`.

use std::ffi::c_void;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// A mapped range.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<c_void>,
    len: NonZeroUsize,
    /// The start of the range, behind the start of its page.
    skip: usize,
}

// SAFETY: the memory is only read, by the kernel, and belongs to the process, not to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps a range of a file, for reading from front to back.
    pub fn of_file(file: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Mapping> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let page = crate::process::page_bytes();
        let skip = usize::try_from(offset % page).map_err(|_| invalid())?;
        let at = libc::off_t::try_from(offset - skip as u64).map_err(|_| invalid())?;
        let whole = len.checked_add(skip).and_then(NonZeroUsize::new).ok_or_else(invalid)?;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that is in use.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), whole.get(), libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), at)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start).ok_or_else(invalid)?;
        // SAFETY: the range was mapped above; the advice changes no content.
        let _ = unsafe { libc::madvise(start.as_ptr(), whole.get(), libc::MADV_SEQUENTIAL) };
        Ok(Mapping { start, len: whole, skip })
    }

    /// The length of the requested range.
    pub fn bytes(&self) -> usize {
        self.len.get() - self.skip
    }

    /// Sends at most `len` bytes from `at` on; returns how many. `more`: further bytes follow. `EFAULT`: the file was cut.
    pub fn send(&self, socket: BorrowedFd<'_>, at: usize, len: usize, more: bool) -> io::Result<usize> {
        let len = len.min(self.bytes().saturating_sub(at));
        let flags = libc::MSG_NOSIGNAL | if more { libc::MSG_MORE } else { 0 };
        loop {
            // SAFETY: `skip + at + len` is at most the length of the mapping, which lives as long as `self`. The kernel
            // reads it as any address of a process: missing pages are an error of the call and raise no signal.
            let sent = unsafe {
                let from = self.start.as_ptr().cast::<u8>().add(self.skip + at.min(self.bytes()));
                libc::send(socket.as_raw_fd(), from.cast(), len, flags)
            };
            match usize::try_from(sent) {
                Ok(sent) => return Ok(sent),
                Err(_) => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `of_file` with this length, and unmapped once.
        let _ = unsafe { libc::munmap(self.start.as_ptr(), self.len.get()) };
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_range_that_begins_anywhere_is_sent() {
        let file = tempfile::tempfile().unwrap();
        let content: Vec<u8> = (0..10_000u32).map(|n| (n % 251) as u8).collect();
        crate::file::write_all_at(file.as_fd(), &content, 0).unwrap();
        let mapping = Mapping::of_file(file.as_fd(), 5_000, 4_000).unwrap();
        let (near, mut far) = UnixStream::pair().unwrap();
        assert_eq!(mapping.send(near.as_fd(), 10, 100_000, false).unwrap(), 3_990, "no more than was asked for");
        let mut got = [0; 3_990];
        far.read_exact(&mut got).unwrap();
        assert!(got == content[5_010..9_000], "another range");
        assert!(Mapping::of_file(file.as_fd(), 0, 0).is_err());
    }

    #[test]
    fn a_file_that_is_cut_is_an_error_and_no_signal() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        let mapping = Mapping::of_file(file.as_fd(), 0, 1 << 20).unwrap();
        file.set_len(0).unwrap();
        let (near, _far) = UnixStream::pair().unwrap();
        let error = mapping.send(near.as_fd(), 0, 4096, false).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
    }
}
