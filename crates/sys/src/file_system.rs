//! Flushes a whole file system (`syncfs(2)`), and tells when that suffices for files.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;

/// Waits until this file's file system is on the medium. Reports errors since `file` was opened ([`flush_tells_errors`]), by
/// its inode of a failed journal (before Linux 5.17).
pub fn flush(file: BorrowedFd<'_>) -> io::Result<()> {
    rustix::io::retry_on_intr(|| rustix::fs::syncfs(file))?;
    crate::file::flush_all(file)
}

/// Whether [`flush`] reports lost data: since Linux 5.8 (`syncfs(2)`).
pub fn flush_tells_errors() -> bool {
    static TELLS: OnceLock<bool> = OnceLock::new();
    *TELLS.get_or_init(|| version_of(rustix::system::uname().release().to_bytes()) >= Some((5, 8)))
}

/// Whether [`flush`] does all of each file's own flush, unlike on network file systems, overlays and FUSE. The listed ones
/// keep no error for close: their tables of calls have no `flush`.
pub fn flush_is_whole(file: BorrowedFd<'_>) -> bool {
    let kind = rustix::io::retry_on_intr(|| rustix::fs::fstatfs(file)).map(|told| told.f_type);
    // The type of `f_type` differs; the numbers have 32 bits.
    #[allow(clippy::unnecessary_cast)]
    kind.is_ok_and(|kind| FLUSHED_AS_A_WHOLE.contains(&(kind as u32)))
}

/// Whether an inode keeps its number, unlike on FAT, FUSE, overlays and some network file systems while nobody has it open.
pub fn keeps_inode_numbers(file: impl AsFd) -> bool {
    let kind = rustix::io::retry_on_intr(|| rustix::fs::fstatfs(file.as_fd())).map(|told| told.f_type);
    #[allow(clippy::unnecessary_cast)]
    kind.is_ok_and(|kind| !NUMBERED_ANEW.contains(&(kind as u32)))
}

/// FAT, exFAT, FUSE, SMB in two versions, 9P, overlayfs (statfs(2), linux/magic.h).
const NUMBERED_ANEW: [u32; 7] = [0x4d44, 0x2011_bab0, 0x6573_5546, 0xff53_4d42, 0xfe53_4d42, 0x0102_1997, 0x794c_7630];

/// ext4 (`EXT4_SUPER_MAGIC`), XFS, btrfs, and in memory tmpfs and ramfs (statfs(2)).
const FLUSHED_AS_A_WHOLE: [u32; 5] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x8584_58f6];

/// Whether this file system lies on this host's disk or memory. Others may wait for a dead server.
pub fn is_of_this_host(file: BorrowedFd<'_>) -> bool {
    let kind = rustix::io::retry_on_intr(|| rustix::fs::fstatfs(file)).map(|told| told.f_type);
    #[allow(clippy::unnecessary_cast)]
    kind.is_ok_and(|kind| OF_THIS_HOST.contains(&(kind as u32)))
}

/// From statfs(2) and linux/magic.h; ZFS and bcachefs from their sources.
const OF_THIS_HOST: [u32; 21] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // btrfs
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
    0x794c_7630, // overlayfs
    0x2fc1_2fc1, // ZFS
    0xca45_1a4e, // bcachefs
    0xf2f5_2010, // F2FS
    0x7371_7368, // squashfs
    0xe0f5_e1e2, // EROFS
    0x9660,      // ISO 9660
    0x1501_3346, // UDF
    0x4d44,      // FAT
    0x2011_bab0, // exFAT
    0x7366_746e, // NTFS3
    0x482b,      // HFS+
    0x3153_464a, // JFS
    0x5265_4973, // ReiserFS
    0x3434,      // NILFS2
    0x2405_1905, // UBIFS
];

/// The space of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// All bytes.
    pub bytes: u64,
    /// Free bytes.
    pub free_bytes: u64,
    /// Free bytes that an unprivileged user may fill.
    pub available_bytes: u64,
    /// All inodes; 0: made as they are needed.
    pub inodes: u64,
    /// Inodes that an unprivileged user may make.
    pub free_inodes: u64,
}

impl Space {
    /// The space of a file's file system; `O_PATH` suffices.
    pub fn of(file: impl AsFd) -> io::Result<Self> {
        let told = rustix::io::retry_on_intr(|| rustix::fs::fstatvfs(file.as_fd()))?;
        let bytes = |blocks: u64| blocks.saturating_mul(told.f_frsize);
        Ok(Self {
            bytes: bytes(told.f_blocks),
            free_bytes: bytes(told.f_bfree),
            available_bytes: bytes(told.f_bavail),
            inodes: told.f_files,
            free_inodes: told.f_favail,
        })
    }
}

/// The system's dirty pages, and those under writeback. Opened early, with all rights.
#[derive(Debug)]
pub struct DirtyPages(File);

impl DirtyPages {
    /// `None` where `/proc` does not tell.
    pub fn open() -> Option<Self> {
        File::open("/proc/meminfo").ok().map(Self)
    }

    /// The current number of bytes.
    pub fn bytes(&self) -> Option<u64> {
        let mut text = [0; 2048];
        let len = crate::file::read_full_at(self.0.as_fd(), &mut text, 0).ok()?;
        dirty_in(&String::from_utf8_lossy(&text[..len]))
    }
}

/// Parses proc_meminfo(5): `Dirty:            131168 kB`, and `Writeback` likewise.
fn dirty_in(meminfo: &str) -> Option<u64> {
    let kib_of = |name: &str| {
        let value = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        value.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    Some((kib_of("Dirty:")? + kib_of("Writeback:")?).saturating_mul(1024))
}

/// The first two numbers of a release such as `6.1.0-rc1`.
fn version_of(release: &[u8]) -> Option<(u32, u32)> {
    let mut numbers = release.split(|byte| !byte.is_ascii_digit());
    let mut next = || std::str::from_utf8(numbers.next()?).ok()?.parse().ok();
    Some((next()?, next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_number() {
        assert_eq!(version_of(b"5.10.0-21-amd64"), Some((5, 10)));
        assert_eq!(version_of(b"6.18-rc1"), Some((6, 18)));
        assert!(version_of(b"5.10.1") >= Some((5, 8)) && version_of(b"4.18.0-553.el8") < Some((5, 8)));
        assert!(version_of(b"mystery") < Some((5, 8)) && version_of(b"6") < Some((5, 8)));
    }

    #[test]
    fn what_is_dirty_and_under_way_counts() {
        assert_eq!(dirty_in("MemFree: 1 kB\nDirty:       131168 kB\nWriteback:     4 kB\n"), Some(131_172 << 10));
        assert_eq!(dirty_in("Dirty: lots\n"), None);
        assert_eq!(dirty_in(""), None);
    }

    #[test]
    fn a_file_system_tells_its_space_through_a_path() {
        let directory = tempfile::tempdir().unwrap();
        let flags = rustix::fs::OFlags::PATH;
        let open = rustix::fs::open(directory.path(), flags, rustix::fs::Mode::empty()).unwrap();
        let space = Space::of(&open).unwrap();
        assert!(space.bytes > 0 && space.available_bytes <= space.free_bytes && space.free_bytes <= space.bytes);
        assert!(space.free_inodes <= space.inodes);
    }

    #[test]
    fn a_file_system_is_flushed_through_an_open_file() {
        let file = tempfile::tempfile().unwrap();
        crate::file::write_all_at(file.as_fd(), &[1; 8192], 0).unwrap();
        flush(file.as_fd()).unwrap();
    }
}
