//! Reads what a medium holds: by `O_DIRECT` (open(2)), or `POSIX_FADV_DONTNEED` (posix_fadvise(2)) and a look at what stayed
//! (mincore(2)). The disk's own cache stays.

use std::ffi::c_void;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::Errno;

/// The way a file is read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Past the page cache.
    Direct,
    /// Through the emptied page cache, without direct reads.
    Dropped,
    /// The file lies in memory, and has no medium (tmpfs, ramfs).
    Memory,
}

/// A file to be read back.
#[derive(Debug)]
pub struct Medium {
    /// The file past the page cache, if possible.
    direct: Option<OwnedFd>,
    plain: OwnedFd,
    way: Way,
    alignment_bytes: u64,
}

/// The result of one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Got {
    /// Bytes in the buffer; 0 at the end of the file.
    pub bytes: usize,
    /// The bytes that the page cache could not drop.
    pub cached_bytes: usize,
}

impl Medium {
    /// Takes a file, and the same opened with `O_DIRECT`, if possible.
    pub fn new(plain: OwnedFd, direct: Option<OwnedFd>) -> io::Result<Medium> {
        let in_memory = lies_in_memory(plain.as_fd())?;
        let direct = direct.filter(|_| !in_memory);
        let way = match &direct {
            _ if in_memory => Way::Memory,
            Some(_) => Way::Direct,
            None => Way::Dropped,
        };
        let alignment_bytes = direct.as_ref().map_or(PAGE_BYTES, |direct| alignment_bytes(direct.as_fd()));
        Ok(Medium { direct, plain, way, alignment_bytes })
    }

    /// The way of reading.
    pub fn way(&self) -> Way {
        self.way
    }

    /// Offsets and the length of the buffer are multiples of this.
    pub fn alignment_bytes(&self) -> u64 {
        self.alignment_bytes
    }

    /// Fills `buffer` from `offset` on, both aligned ([`Medium::alignment_bytes`], `AlignedBuffer`); less at the end of the
    /// file.
    pub fn read_at(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<Got> {
        // A file system may still read through its cache (compressed extents, data journals): it must be empty.
        crate::file::drop_cache(self.plain.as_fd(), offset, buffer.len() as u64);
        if let Some(direct) = &self.direct {
            match read_direct(direct.as_fd(), buffer, offset, self.alignment_bytes) {
                Ok(bytes) => return Ok(Got { bytes, cached_bytes: 0 }),
                // Some file systems refuse only here.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    self.direct = None;
                    self.way = Way::Dropped;
                }
                Err(error) => return Err(error),
            }
        }
        let cached = match self.way {
            Way::Memory => 0,
            Way::Direct | Way::Dropped => resident_bytes(self.plain.as_fd(), offset, buffer.len())?,
        };
        let bytes = crate::file::read_full_at(self.plain.as_fd(), buffer, offset)?;
        Ok(Got { bytes, cached_bytes: cached.min(bytes) })
    }
}

/// Behind a short read the next must be aligned again.
fn read_direct(file: BorrowedFd<'_>, buffer: &mut [u8], offset: u64, alignment_bytes: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match rustix::io::pread(file, &mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(len) => {
                done += len;
                if !(done as u64).is_multiple_of(alignment_bytes) {
                    break;
                }
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(done)
}

/// Counts a range's cached bytes, by whole pages (mincore(2)).
pub fn resident_bytes(file: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<usize> {
    let end = crate::file::size(file)?;
    let len = usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX).min(len);
    let Some(len) = NonZeroUsize::new(len) else { return Ok(0) };
    let page = usize::try_from(crate::process::page_bytes()).expect("pages are small");
    let at = libc::off_t::try_from(offset).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut pages = vec![0u8; len.get().div_ceil(page)];
    // SAFETY: a new mapping at an address of the kernel's choice leaves memory in use untouched. The mapping is never
    // read: its pages are counted into a vector with a byte for each page. It is unmapped once, with its length.
    let looked = unsafe {
        let start =
            libc::mmap(std::ptr::null_mut(), len.get(), libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), at);
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let looked = libc::mincore(start.cast::<c_void>(), len.get(), pages.as_mut_ptr());
        let error = io::Error::last_os_error();
        libc::munmap(start, len.get());
        if looked == 0 { Ok(()) } else { Err(error) }
    };
    looked?;
    Ok(pages.iter().filter(|page| **page & 1 == 1).count() * page)
}

/// Whether a file lies in memory (tmpfs, ramfs), all page cache.
pub fn lies_in_memory(file: BorrowedFd<'_>) -> io::Result<bool> {
    let kind = rustix::io::retry_on_intr(|| rustix::fs::fstatfs(file))?.f_type;
    Ok(IN_MEMORY.contains(&kind))
}

/// Whether a file system surely keeps ctimes, as users may set the mtime. With FUSE the server decides: SFTP has no ctime,
/// so sshfs reports the mtime.
pub fn keeps_change_times(file: BorrowedFd<'_>) -> io::Result<bool> {
    let kind = rustix::io::retry_on_intr(|| rustix::fs::fstatfs(file))?.f_type;
    if kind == FUSE {
        let name = File::open("/proc/self/mountinfo")
            .and_then(|mounts| mounted_as(rustix::fs::fstat(file)?.st_dev, BufReader::new(mounts)));
        return Ok(matches!(name, Ok(Some(name)) if FUSE_WITH_CHANGE_TIMES.contains(&name.as_str())));
    }
    Ok(!ONE_TIME.contains(&kind))
}

/// The kernel's name of this device's file system, with FUSE's server (proc_pid_mountinfo(5)).
fn mounted_as(device: u64, mounts: impl BufRead) -> io::Result<Option<String>> {
    let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    for line in mounts.split(b'\n') {
        let line = line?;
        // These fields are never escaped; paths may be invalid UTF-8.
        let line = String::from_utf8_lossy(&line);
        if line.split(' ').nth(2) == Some(&device) {
            return Ok(line.split_once(" - ").and_then(|(_, source)| source.split(' ').next()).map(str::to_owned));
        }
    }
    Ok(None)
}

fn alignment_bytes(file: BorrowedFd<'_>) -> u64 {
    let told = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok();
    let told = told.filter(|stat| stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0);
    told.map_or(0, |stat| u64::from(stat.stx_dio_offset_align)).max(PAGE_BYTES)
}

const PAGE_BYTES: u64 = 4096;

const IN_MEMORY: [rustix::fs::FsWord; 2] = [0x0102_1994, 0x8584_58f6];

/// `MSDOS_SUPER_MAGIC` and `EXFAT_SUPER_MAGIC` (statfs(2), linux/magic.h).
const ONE_TIME: [rustix::fs::FsWord; 2] = [0x4d44, 0x2011_bab0];

/// `FUSE_SUPER_MAGIC`.
const FUSE: rustix::fs::FsWord = 0x6573_5546;

/// Servers for large files that store ctimes, or pass them on.
const FUSE_WITH_CHANGE_TIMES: [&str; 6] =
    ["fuse.glusterfs", "fuse.ceph-fuse", "fuse.juicefs", "fuse.mfs", "fuse.mergerfs", "fuse.gocryptfs"];

#[cfg(test)]
mod tests {
    use rustix::fs::{Mode, OFlags};

    use super::*;
    use crate::condition::{despite_others, unmet};

    #[test]
    fn a_file_system_is_found_by_its_device_number() {
        let mounts = b"36 35 98:0 / /mnt\xff rw,noatime master:1 - ext3 /dev/root rw\n\
            77 36 0:44 / /mnt/a\\040b rw - fuse.glusterfs host:/volume rw\n";
        let found = |major, minor| mounted_as(rustix::fs::makedev(major, minor), &mounts[..]).unwrap();
        assert_eq!((found(98, 0).as_deref(), found(0, 44).as_deref()), (Some("ext3"), Some("fuse.glusterfs")));
        assert_eq!(found(98, 1), None);
        let file = File::open("/proc/self").unwrap();
        let mounts = BufReader::new(File::open("/proc/self/mountinfo").unwrap());
        let device = rustix::fs::fstat(&file).unwrap().st_dev;
        assert_eq!(mounted_as(device, mounts).unwrap().as_deref(), Some("proc"));
        assert!(keeps_change_times(file.as_fd()).unwrap());
    }
    use crate::direct::AlignedBuffer;

    fn content() -> Vec<u8> {
        (0..10_000u32).map(|n| (n % 251) as u8).collect()
    }

    fn written(direct: bool) -> Option<Medium> {
        let file = tempfile::NamedTempFile::new().unwrap();
        crate::file::write_all_at(file.as_file().as_fd(), &content(), 0).unwrap();
        crate::file::flush_all(file.as_file().as_fd()).unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
        let opened = direct.then(|| rustix::fs::open(file.path(), flags, Mode::empty()).ok()).flatten();
        let medium = Medium::new(file.as_file().as_fd().try_clone_to_owned().unwrap(), opened).unwrap();
        if medium.way() == Way::Memory || (direct && medium.way() != Way::Direct) {
            unmet("the temporary directory lies in memory, or has no direct I/O");
            return None;
        }
        Some(medium)
    }

    #[test]
    fn a_file_is_read_past_the_cache_up_to_its_ragged_end() {
        let Some(mut medium) = written(true) else { return };
        let mut buffer = AlignedBuffer::new(8192);
        assert_eq!(medium.read_at(&mut buffer, 0).unwrap(), Got { bytes: 8192, cached_bytes: 0 });
        assert!(buffer[..] == content()[..8192]);
        assert_eq!(medium.read_at(&mut buffer, 8192).unwrap(), Got { bytes: 1808, cached_bytes: 0 });
        assert!(buffer[..1808] == content()[8192..]);
        assert_eq!(medium.read_at(&mut buffer, 16384).unwrap().bytes, 0);
        let plain = medium.plain.as_fd();
        assert_eq!(resident_bytes(plain, 0, 16384).unwrap(), 0, "nothing of it stays in the cache");
    }

    #[test]
    fn without_direct_reads_the_cache_is_emptied_first() {
        let Some(mut medium) = written(false) else { return };
        assert_eq!(medium.way(), Way::Dropped);
        let mut buffer = AlignedBuffer::new(16384);
        assert!(resident_bytes(medium.plain.as_fd(), 0, 16384).unwrap() > 0, "it was just written");
        assert_eq!(medium.read_at(&mut buffer, 0).unwrap(), Got { bytes: 10_000, cached_bytes: 0 });
        assert!(buffer[..10_000] == content());
    }

    #[test]
    fn what_cannot_be_put_out_of_the_cache_is_counted() {
        despite_others(|| {
            let Some(mut medium) = written(false) else { return };
            crate::file::write_all_at(medium.plain.as_fd(), &[1; 4096], 0).unwrap();
            let mut buffer = AlignedBuffer::new(16384);
            let got = medium.read_at(&mut buffer, 0).unwrap();
            assert!(got.bytes == 10_000 && got.cached_bytes >= 4096, "{got:?}");
        });
    }

    #[test]
    fn a_file_in_memory_has_no_medium() {
        let Ok(file) = tempfile::tempfile_in("/dev/shm") else { return unmet("no /dev/shm") };
        if !lies_in_memory(file.as_fd()).unwrap() {
            return unmet("/dev/shm is no memory");
        }
        assert_eq!(Medium::new(file.into(), None).unwrap().way(), Way::Memory);
    }
}
