//! Direct I/O: `O_DIRECT` (open(2)), and memory for it.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};

/// A file open past the page cache, and through it.
#[derive(Debug)]
pub struct DirectFile {
    direct: OwnedFd,
    plain: OwnedFd,
    alignment_bytes: usize,
    refused: AtomicBool,
}

impl DirectFile {
    /// Opens an open file again, past the page cache, or `EINVAL`. Needs `/proc`.
    pub fn of(file: BorrowedFd<'_>) -> io::Result<DirectFile> {
        // The flag belongs to the open file; ragged ends go through the first descriptor.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
        let direct = rustix::io::retry_on_intr(|| rustix::fs::open(&path, flags, Mode::empty()))?;
        let alignment_bytes = alignment_bytes(direct.as_fd());
        Ok(DirectFile { direct, plain: file.try_clone_to_owned()?, alignment_bytes, refused: AtomicBool::new(false) })
    }

    /// Takes a file's two descriptors, if the kernel reports direct I/O (Linux 6.1, statx(2)): tmpfs accepts the flag and
    /// still copies, and some network file systems send and await each write.
    pub fn new(direct: OwnedFd, plain: OwnedFd) -> Option<DirectFile> {
        let alignment_bytes = told_alignment_bytes(direct.as_fd())?;
        Some(DirectFile { direct, plain, alignment_bytes, refused: AtomicBool::new(false) })
    }

    /// Direct writes, in file and memory, are multiples of this.
    pub fn alignment_bytes(&self) -> usize {
        self.alignment_bytes
    }

    /// The descriptor past the page cache.
    pub fn direct(&self) -> BorrowedFd<'_> {
        self.direct.as_fd()
    }

    /// The descriptor through the page cache.
    pub fn plain(&self) -> BorrowedFd<'_> {
        self.plain.as_fd()
    }

    /// Whether a direct write was refused (some file systems refuse only then), and went through the page cache.
    pub fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// Writes all of `data` at an aligned offset. The ragged end, and all after a refusal, go through the page cache.
    pub fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let direct = if self.is_refused() { 0 } else { data.len() / self.alignment_bytes * self.alignment_bytes };
        let (direct, ragged) = data.split_at(direct);
        match crate::file::write_all_at(self.direct(), direct, offset) {
            Ok(()) => {}
            Err(error) => self.write_plainly(direct, offset, error)?,
        }
        crate::file::write_all_at(self.plain(), ragged, offset + direct.len() as u64)
    }

    /// Repeats a failed direct write through the page cache.
    pub(crate) fn write_plainly(&self, data: &[u8], offset: u64, error: io::Error) -> io::Result<()> {
        if error.raw_os_error() != Some(libc::EINVAL) {
            return Err(error);
        }
        self.refused.store(true, Ordering::Relaxed);
        crate::file::write_all_at(self.plain(), data, offset)
    }
}

/// A file that is read past the page cache.
#[derive(Debug)]
pub struct DirectSource {
    direct: OwnedFd,
    plain: Arc<OwnedFd>,
    alignment_bytes: u64,
    refused: AtomicBool,
}

impl DirectSource {
    /// Opens an open file again, past the page cache. `Unsupported` without a reported alignment (`STATX_DIOALIGN`, Linux
    /// 6.1), or above [`MAX_ALIGNMENT_BYTES`]. Needs `/proc`.
    pub fn of(file: &Arc<OwnedFd>) -> io::Result<DirectSource> {
        let unsupported = |why: &'static str| io::Error::new(io::ErrorKind::Unsupported, why);
        let told = told_alignment(file.as_fd());
        let (memory, offset) = told.ok_or_else(|| unsupported("the file system says nothing of direct reads"))?;
        if memory > MEMORY_ALIGNMENT || offset > MAX_ALIGNMENT_BYTES || !offset.is_power_of_two() {
            return Err(unsupported("the file system reads directly in large blocks only"));
        }
        // io_uring answers O_NONBLOCK, as sources have it, with EAGAIN instead of waiting.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
        let direct = rustix::io::retry_on_intr(|| rustix::fs::openat(CWD, &path, flags, Mode::empty()))?;
        let alignment_bytes = offset.max(MEMORY_ALIGNMENT) as u64;
        Ok(DirectSource { direct, plain: Arc::clone(file), alignment_bytes, refused: AtomicBool::new(false) })
    }

    /// Direct reads begin at multiples of this.
    pub fn alignment_bytes(&self) -> u64 {
        self.alignment_bytes
    }

    /// Whether a direct read was refused, and done through the page cache.
    pub fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    pub(crate) fn direct(&self) -> BorrowedFd<'_> {
        self.direct.as_fd()
    }

    /// Completes a direct read by a plain one: the rest after a short one, all after a refusal.
    pub(crate) fn complete(&self, buffer: &mut [u8], offset: u64, result: io::Result<usize>) -> io::Result<usize> {
        let done = match result {
            Ok(done) => done.min(buffer.len()),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => {
                self.refused.store(true, Ordering::Relaxed);
                0
            }
            Err(error) => return Err(error),
        };
        Ok(done + crate::file::read_full_at(self.plain.as_fd(), &mut buffer[done..], offset + done as u64)?)
    }
}

fn alignment_bytes(file: BorrowedFd<'_>) -> usize {
    told_alignment_bytes(file).unwrap_or(MEMORY_ALIGNMENT)
}

/// Whether the kernel reports direct I/O (Linux 6.1, statx(2)).
pub fn is_possible(file: BorrowedFd<'_>) -> bool {
    told_alignment_bytes(file).is_some()
}

fn told_alignment_bytes(file: BorrowedFd<'_>) -> Option<usize> {
    told_alignment(file).map(|(memory, offset)| memory.max(offset).max(MEMORY_ALIGNMENT))
}

fn told_alignment(file: BorrowedFd<'_>) -> Option<(usize, usize)> {
    let told = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    let bytes = |told: u32| usize::try_from(told).unwrap_or(0);
    let is_told = told.stx_mask & StatxFlags::DIOALIGN.bits() != 0 && told.stx_dio_offset_align > 0;
    is_told.then(|| (bytes(told.stx_dio_mem_align), bytes(told.stx_dio_offset_align)))
}

/// Memory that begins at a page.
pub struct AlignedBuffer {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory belongs to the buffer alone, like that of a `Box<[u8]>`.
unsafe impl Send for AlignedBuffer {}
// SAFETY: as above; a shared reference only reads.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    /// `len` zeros.
    ///
    /// # Panics
    /// When `len` is 0 or more than half of the address space.
    pub fn new(len: usize) -> AlignedBuffer {
        assert!(len > 0, "a buffer holds something");
        let layout = Layout::from_size_align(len, MEMORY_ALIGNMENT).expect("a length that fits into memory");
        // SAFETY: the layout is not empty.
        let Some(start) = NonNull::new(unsafe { alloc_zeroed(layout) }) else { handle_alloc_error(layout) };
        AlignedBuffer { start, layout }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` has `layout.size()` initialised bytes, which live as long as `self` and are borrowed with it.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.layout.size()) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and the borrow is the only one.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size()) }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and freed once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

impl std::fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuffer({} bytes)", self.len())
    }
}

/// Above this alignment the ragged ends would cost too much.
pub const MAX_ALIGNMENT_BYTES: usize = 64 << 10;

/// A page, a multiple of every block of a disk.
const MEMORY_ALIGNMENT: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::unmet;

    #[test]
    fn aligned_memory_is_written_past_the_page_cache() {
        let file = tempfile::tempfile().unwrap();
        let direct = match DirectFile::of(file.as_fd()) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                unmet("the file system of the temporary directory has no direct I/O");
                return;
            }
            direct => direct.unwrap(),
        };
        let alignment = direct.alignment_bytes();
        assert!(alignment >= 4096 && alignment.is_power_of_two(), "{alignment}");
        let mut buffer = AlignedBuffer::new(2 * alignment);
        assert_eq!(buffer.as_ptr().align_offset(4096), 0);
        buffer.fill(9);
        crate::file::write_all_at(direct.direct(), &buffer, alignment as u64).unwrap();
        let mut got = vec![1; 3 * alignment];
        assert_eq!(crate::file::read_full_at(file.as_fd(), &mut got, 0).unwrap(), got.len());
        assert!(got[..alignment].iter().all(|b| *b == 0) && got[alignment..].iter().all(|b| *b == 9));
        buffer[..alignment].fill(8);
        direct.write_all_at(&buffer[..alignment + 3], 0).unwrap();
        assert_eq!(crate::file::read_full_at(file.as_fd(), &mut got, 0).unwrap(), got.len());
        assert!(got[..alignment].iter().all(|b| *b == 8) && got[alignment..].iter().all(|b| *b == 9), "with its end");
        assert!(!direct.is_refused());
        let refused = || io::Error::from_raw_os_error(libc::EINVAL);
        let full = || io::Error::from_raw_os_error(libc::ENOSPC);
        assert_eq!(direct.write_plainly(b"x", 0, full()).unwrap_err().raw_os_error(), Some(libc::ENOSPC));
        assert!(!direct.is_refused());
        direct.write_plainly(b"ragged", 1, refused()).unwrap();
        assert_eq!(
            (crate::file::read_full_at(file.as_fd(), &mut got[..8], 0).unwrap(), &got[..8]),
            (8, &b"\x08ragged\x08"[..])
        );
        assert!(direct.is_refused());
    }
}
