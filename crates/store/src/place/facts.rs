//! An end's facts of an entry; here from statx(2).

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, FileType, StatxFlags, StatxTimestamp};

use crate::meta::Time;

/// The kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum NodeKind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    BlockDevice,
    CharacterDevice,
    Unknown,
}

/// The facts of an entry, not followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryFacts {
    /// The kind.
    pub kind: NodeKind,
    /// The target of a link.
    pub target: Vec<u8>,
    /// Permission bits, at most 0o7777.
    pub mode: u16,
    /// The names of this inode.
    pub links: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes of content.
    pub size: u64,
    /// Blocks of 512 bytes.
    pub blocks: u64,
    /// The block size that suits the file system.
    pub io_block: u32,
    /// The device of its file system.
    pub device: (u32, u32),
    /// The device of a device file.
    pub special: (u32, u32),
    /// The inode.
    pub inode: u64,
    /// The last read.
    pub accessed: Time,
    /// The last change of content.
    pub modified: Time,
    /// The last change of any kind.
    pub changed: Time,
    /// The making, if known.
    pub born: Option<Time>,
    /// The fields that mean nothing.
    pub lacks: Lacks,
}

/// The facts that an end does not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lacks {
    /// Permission bits.
    pub mode: bool,
    /// Owner and group.
    pub owner: bool,
    /// Bytes of content.
    pub size: bool,
    /// The last change of content.
    pub modified: bool,
    /// The last read.
    pub accessed: bool,
    /// Facts of file systems alone: names, blocks, device and inode, any change.
    pub inode: bool,
}

impl Lacks {
    /// Only its kind is known.
    pub const ALL: Lacks = Lacks { mode: true, owner: true, size: true, modified: true, accessed: true, inode: true };
}

impl EntryFacts {
    /// An entry of this kind, to be filled in.
    pub fn of_kind(kind: NodeKind) -> EntryFacts {
        let never = Time { s: 0, ns: 0 };
        EntryFacts {
            kind,
            target: Vec::new(),
            mode: 0,
            links: 1,
            uid: 0,
            gid: 0,
            size: 0,
            blocks: 0,
            io_block: 0,
            device: (0, 0),
            special: (0, 0),
            inode: 0,
            accessed: never,
            modified: never,
            changed: never,
            born: None,
            lacks: Lacks::ALL,
        }
    }

    /// Looks at a name, or with [`AtFlags::EMPTY_PATH`] at the open entry.
    pub(super) fn look(at: impl AsFd, name: &[u8], flags: AtFlags) -> io::Result<EntryFacts> {
        let flags = flags | AtFlags::SYMLINK_NOFOLLOW;
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let found = rustix::io::retry_on_intr(|| rustix::fs::statx(at.as_fd(), name, flags, wanted))?;
        let kind = match FileType::from_raw_mode(found.stx_mode.into()) {
            FileType::RegularFile => NodeKind::File,
            FileType::Directory => NodeKind::Directory,
            FileType::Symlink => NodeKind::Symlink,
            FileType::Fifo => NodeKind::Fifo,
            FileType::Socket => NodeKind::Socket,
            FileType::BlockDevice => NodeKind::BlockDevice,
            FileType::CharacterDevice => NodeKind::CharacterDevice,
            FileType::Unknown => NodeKind::Unknown,
        };
        let target = match kind {
            NodeKind::Symlink => rustix::fs::readlinkat(at.as_fd(), name, Vec::new())?.into_bytes(),
            _ => Vec::new(),
        };
        let time = |at: StatxTimestamp| Time { s: at.tv_sec, ns: at.tv_nsec };
        let has_birth = found.stx_mask & StatxFlags::BTIME.bits() != 0;
        Ok(EntryFacts {
            kind,
            target,
            mode: found.stx_mode & 0o7777,
            links: found.stx_nlink.into(),
            uid: found.stx_uid,
            gid: found.stx_gid,
            size: found.stx_size,
            blocks: found.stx_blocks,
            io_block: found.stx_blksize,
            device: (found.stx_dev_major, found.stx_dev_minor),
            special: (found.stx_rdev_major, found.stx_rdev_minor),
            inode: found.stx_ino,
            accessed: time(found.stx_atime),
            modified: time(found.stx_mtime),
            changed: time(found.stx_ctime),
            born: has_birth.then(|| time(found.stx_btime)),
            lacks: Lacks::default(),
        })
    }
}
