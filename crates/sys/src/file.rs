//! Reads, writes and flushes open files at explicit offsets.
//!
//! The file position is not used. Calls are repeated after a signal or a short result.

use std::ffi::OsStr;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd};
use std::path::Path;

use rustix::fs::{Advice, AtFlags, FallocateFlags, FlockOperation, Mode, OFlags, SeekFrom};
use rustix::io::Errno;

/// Fills `buffer` from `offset` on; less at the end of the file.
pub fn read_full_at(file: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let wanted = buffer.len();
    read_at_least(file, buffer, wanted, offset)
}

/// [`read_full_at`] that may stop after `wanted` bytes.
pub fn read_at_least(file: BorrowedFd<'_>, buffer: &mut [u8], wanted: usize, offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < wanted {
        match rustix::io::pread(file, &mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(len) => done += len,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(done)
}

/// Writes all of `data` at `offset`.
pub fn write_all_at(file: BorrowedFd<'_>, data: &[u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < data.len() {
        match rustix::io::pwrite(file, &data[done..], offset + done as u64) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(len) => done += len,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Cuts the file, or extends it by a hole.
pub fn set_size(file: BorrowedFd<'_>, size: u64) -> io::Result<()> {
    Ok(rustix::io::retry_on_intr(|| rustix::fs::ftruncate(file, size))?)
}

/// The size in bytes.
pub fn size(file: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(u64::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0))
}

/// The next range of data at or after `offset`, clipped to `end`; `None`: only a hole is left. If unknown, all is data.
pub fn next_data(file: BorrowedFd<'_>, offset: u64, end: u64) -> io::Result<Option<(u64, u64)>> {
    if offset >= end {
        return Ok(None);
    }
    let start = match rustix::io::retry_on_intr(|| rustix::fs::seek(file, SeekFrom::Data(offset))) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(Some((offset, end))),
        Err(error) => return Err(error.into()),
    };
    if start >= end {
        return Ok(None);
    }
    let stop = match rustix::io::retry_on_intr(|| rustix::fs::seek(file, SeekFrom::Hole(start))) {
        Ok(stop) => stop.min(end),
        // The file shrank between the two calls.
        Err(Errno::NXIO) => end,
        Err(error) => return Err(error.into()),
    };
    Ok(Some((start, stop)))
}

/// Makes `[offset, offset + len)` a hole; the size stays. False: impossible here.
pub fn punch(file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<bool> {
    if len == 0 {
        return Ok(true);
    }
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, flags, offset, len)) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Begins to write a range out. Errors show at the next flush.
pub fn start_writeback(file: BorrowedFd<'_>, offset: u64, len: u64) {
    let (Ok(offset), Ok(len)) = (i64::try_from(offset), i64::try_from(len)) else { return };
    // SAFETY: no memory is passed; the descriptor is borrowed and so open for the length of the call.
    let _ = unsafe { libc::sync_file_range(file.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE) };
}

/// Waits until a range is written out, to bound the dirty pages. Metadata and the disk's own cache stay unwritten
/// (sync_file_range(2)).
pub fn wait_writeback(file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    let invalid = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let (offset, len) = (i64::try_from(offset).map_err(invalid)?, i64::try_from(len).map_err(invalid)?);
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    loop {
        // SAFETY: no memory is passed; the descriptor is borrowed and so open for the length of the call.
        if unsafe { libc::sync_file_range(file.as_raw_fd(), offset, len, flags) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Reserves room for `[0, len)`; the size stays. False: impossible here.
pub fn reserve(file: BorrowedFd<'_>, len: u64) -> io::Result<bool> {
    if len == 0 {
        return Ok(true);
    }
    match rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, len)) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Makes the kernel read further ahead.
pub fn advise_sequential(file: BorrowedFd<'_>) {
    let _ = rustix::fs::fadvise(file, 0, None, Advice::Sequential);
}

/// Begins to read a range into the cache, without waiting.
pub fn will_need(file: BorrowedFd<'_>, offset: u64, len: u64) {
    if let Some(len) = std::num::NonZeroU64::new(len) {
        let _ = rustix::fs::fadvise(file, offset, Some(len), Advice::WillNeed);
    }
}

/// Drops a range's clean pages: the next read comes from the medium.
pub fn drop_cache(file: BorrowedFd<'_>, offset: u64, len: u64) {
    if let Some(len) = std::num::NonZeroU64::new(len) {
        let _ = rustix::fs::fadvise(file, offset, Some(len), Advice::DontNeed);
    }
}

/// Waits until content, findable, is on the medium.
pub fn flush_data(file: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::io::retry_on_intr(|| rustix::fs::fdatasync(file))?)
}

/// Waits until content and metadata are on the medium.
pub fn flush_all(file: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::io::retry_on_intr(|| rustix::fs::fsync(file))?)
}

/// Waits until a directory's names are on the medium; a path descriptor suffices. An unreadable directory (a drop box)
/// cannot be flushed and is skipped.
pub fn flush_directory(directory: BorrowedFd<'_>) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::io::retry_on_intr(|| rustix::fs::openat(directory, c".", flags, Mode::empty())) {
        Ok(directory) => flush_all(directory.as_fd()),
        Err(Errno::ACCESS) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Makes a new or removed name survive a power cut.
pub fn flush_directory_of(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    flush_directory(rustix::io::retry_on_intr(|| rustix::fs::open(parent, flags, Mode::empty()))?.as_fd())
}

/// Renames a held file within its directory. Fails if the old name before, or the new name after, leads to another user's
/// file.
pub fn rename_held(file: BorrowedFd<'_>, directory: BorrowedFd<'_>, from: &OsStr, to: &OsStr) -> io::Result<()> {
    let held = rustix::fs::fstat(file)?;
    let check = |name: &OsStr| match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(now) if (now.st_dev, now.st_ino) == (held.st_dev, held.st_ino) => Ok(()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "somebody else has put another file in its place")),
    };
    check(from)?;
    rustix::fs::renameat(directory, from, directory, to)?;
    check(to)
}

/// Gets errors reported only at close (NFS, quotas, FUSE), from a duplicate (`close(2)`, notes).
pub fn check_close(file: BorrowedFd<'_>) -> io::Result<()> {
    // A signal cuts off the answer: another duplicate asks again.
    Ok(rustix::io::retry_on_intr(|| {
        let duplicate = rustix::io::fcntl_dupfd_cloexec(file, 0)?.into_raw_fd();
        // SAFETY: the descriptor was ours alone, and is not used after this: Linux has closed it even when it reports
        // an error.
        if unsafe { libc::close(duplicate) } == 0 {
            return Ok(());
        }
        Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
    })?)
}

/// Locks the file for this open descriptor; false if another holds it. True where locks are missing: correctness never
/// depends on it.
pub fn try_lock(file: BorrowedFd<'_>) -> io::Result<bool> {
    match rustix::io::retry_on_intr(|| rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive)) {
        Ok(()) | Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Releases the lock of [`try_lock`].
pub fn unlock(file: BorrowedFd<'_>) {
    let _ = rustix::io::retry_on_intr(|| rustix::fs::flock(file, FlockOperation::Unlock));
}

/// [`try_lock`] to be certain: false without locks.
pub fn try_lock_surely(file: BorrowedFd<'_>) -> bool {
    rustix::io::retry_on_intr(|| rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive)).is_ok()
}

/// The process that holds the lock of [`try_lock`]. `None`: `/proc` is hidden, its PID namespace is another, or the file
/// system keeps its own locks.
pub fn lock_holder(file: BorrowedFd<'_>) -> Option<u32> {
    let stat = rustix::fs::fstat(file).ok()?;
    let mut locks = String::new();
    std::fs::File::open("/proc/locks").ok()?.take(MAX_LOCKS_BYTES).read_to_string(&mut locks).ok()?;
    holder_in(&locks, (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev), stat.st_ino))
}

/// Parses proc_locks(5): `1: FLOCK  ADVISORY  WRITE 708 08:01:160722 0 EOF`, the device in hexadecimal, with `->` before a
/// waiting process.
fn holder_in(locks: &str, (major, minor, inode): (u32, u32, u64)) -> Option<u32> {
    let wanted = format!("{major:02x}:{minor:02x}:{inode}");
    locks.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let is_flock = words.next() == Some("FLOCK");
        let holder = words.nth(2)?;
        let is_wanted = is_flock && words.next() == Some(&wanted);
        // Zero is a process invisible from here.
        holder.parse().ok().filter(|&pid| is_wanted && pid != 0)
    })
}

/// Some 10,000 locks, enough for a message.
const MAX_LOCKS_BYTES: u64 = 1 << 20;

/// Sets an open file's permission bits, even with `O_PATH` (by `/proc`).
pub fn set_mode(file: impl AsFd, mode: u32) -> io::Result<()> {
    let (fd, mode) = (file.as_fd(), Mode::from_raw_mode(mode));
    let set = match rustix::fs::fchmod(fd, mode) {
        Err(Errno::BADF) => rustix::fs::chmod(format!("/proc/self/fd/{}", fd.as_raw_fd()), mode),
        result => result,
    };
    set.map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::unmet;
    use std::fs::File;

    #[test]
    fn finds_data_between_holes_and_punches_more() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8 << 20).unwrap();
        write_all_at(file.as_fd(), &[1; 65536], 4 << 20).unwrap();
        let found = next_data(file.as_fd(), 0, 8 << 20).unwrap();
        if found == Some((0, 8 << 20)) {
            unmet("the file system of the temporary directory does not report holes");
            return;
        }
        assert_eq!(found, Some((4 << 20, (4 << 20) + 65536)));
        assert_eq!(next_data(file.as_fd(), 5 << 20, 8 << 20).unwrap(), None);
        assert_eq!(next_data(file.as_fd(), 0, 1 << 20).unwrap(), None);
        assert_eq!(next_data(file.as_fd(), 9 << 20, 10 << 20).unwrap(), None);
        assert!(punch(file.as_fd(), 4 << 20, 65536).unwrap());
        assert_eq!(next_data(file.as_fd(), 0, 8 << 20).unwrap(), None);
        assert_eq!(file.metadata().unwrap().len(), 8 << 20);
    }

    #[test]
    fn only_the_file_that_is_held_gets_another_name() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        let (file, opened) = (File::create(&from).unwrap(), File::open(dir.path()).unwrap());
        let rename = || rename_held(file.as_fd(), opened.as_fd(), "from".as_ref(), "to".as_ref());
        rename().unwrap();
        std::fs::write(&from, b"somebody else's").unwrap();
        assert!(rename().is_err());
        assert_eq!((std::fs::read(&to).unwrap(), from.exists()), (Vec::new(), true), "nothing was renamed");
    }

    #[test]
    fn room_is_reserved_without_growing_the_file() {
        let file = tempfile::tempfile().unwrap();
        match reserve(file.as_fd(), 1 << 20).unwrap() {
            true => {
                let stat = rustix::fs::fstat(&file).unwrap();
                assert!(stat.st_blocks * 512 >= 1 << 20 && stat.st_size == 0, "{stat:?}");
            }
            false => unmet("the file system of the temporary directory reserves no room"),
        }
    }

    #[test]
    fn a_range_is_written_out_on_request() {
        let file = tempfile::tempfile().unwrap();
        write_all_at(file.as_fd(), &[1; 65536], 0).unwrap();
        wait_writeback(file.as_fd(), 0, 65536).unwrap();
        assert!(wait_writeback(file.as_fd(), u64::MAX, 1).is_err());
    }

    #[test]
    fn reads_up_to_the_end_and_a_second_lock_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        write_all_at(file.as_file().as_fd(), b"0123456789", 0).unwrap();
        let mut buffer = [0; 8];
        assert_eq!(read_full_at(file.as_file().as_fd(), &mut buffer, 6).unwrap(), 4);
        assert_eq!(&buffer[..4], b"6789");
        assert!(try_lock(file.as_file().as_fd()).unwrap());
        let again = File::open(file.path()).unwrap();
        assert!(!try_lock(again.as_fd()).unwrap());
        assert!(try_lock_surely(file.as_file().as_fd()) && !try_lock_surely(again.as_fd()));
    }

    #[test]
    fn who_holds_a_lock_is_found_where_the_kernel_tells() {
        // Some file systems (overlay, btrfs), unlike memory, tell the kernel another device than us.
        let held = File::from(rustix::fs::memfd_create("held", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
        assert_eq!(lock_holder(held.as_fd()), None, "nobody");
        assert!(try_lock(held.as_fd()).unwrap());
        let again = File::open(format!("/proc/self/fd/{}", held.as_raw_fd())).unwrap();
        assert!(!try_lock(again.as_fd()).unwrap());
        assert_eq!(lock_holder(again.as_fd()), Some(std::process::id()));
    }

    #[test]
    fn only_the_line_of_the_file_names_the_holder() {
        let locks = "1: POSIX  ADVISORY  WRITE 5 fe:00:99 0 EOF\n2: FLOCK  ADVISORY  WRITE 6 fe:01:99 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 0 fe:00:98 0 EOF\ntorn\n4: FLOCK  ADVISORY  WRITE 8 fe:00:99 0 EOF\n\
                     4: -> FLOCK  ADVISORY  WRITE 9 fe:00:99 0 EOF\n";
        assert_eq!(holder_in(locks, (0xfe, 0, 99)), Some(8));
        assert_eq!(holder_in(locks, (0xfe, 0, 98)), None, "a process that cannot be seen");
        assert_eq!(holder_in(locks, (0xfe, 0, 9)), None);
        assert_eq!(holder_in("", (0xfe, 0, 99)), None);
    }
}
