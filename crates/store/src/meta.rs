//! Reads and sets the metadata of an entry.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use haul_sys::process;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, Uid};
use rustix::io::Errno;

use crate::attributes::{self, Namespaces, Place};

/// A time as file systems keep it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time {
    /// Seconds since 1970.
    pub s: i64,
    /// Nanoseconds within the second.
    pub ns: u32,
}

/// The unit of `st_blocks` (stat(2)), not the file system's own.
pub(crate) const STAT_BLOCK_BYTES: u64 = 512;

/// Identifies a file, whatever its names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileId {
    /// Device number.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
}

/// One state of a file: every change of content, and another file of that name, has another. On a local disk: ctime and
/// inode.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Version {
    changed: Time,
    file: u64,
}

impl Version {
    /// The version of a last change and a file's number.
    pub const fn new(changed: Time, file: u64) -> Version {
        Version { changed, file }
    }

    /// The last change, by its end's clock.
    pub fn changed(self) -> Time {
        self.changed
    }

    /// The file's number, which no other file of that name has.
    pub fn file(self) -> u64 {
        self.file
    }
}

/// The kind of an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link. The target is empty if not read.
    Symlink {
        /// The target's bytes.
        target: Vec<u8>,
    },
    /// A FIFO, socket or device.
    Special,
}

/// The metadata of an entry itself; links are not followed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stat {
    /// The kind of the entry.
    pub kind: Kind,
    /// Permission bits, at most 0o7777.
    pub mode: u32,
    /// Bytes of content.
    pub size: u64,
    /// Allocated blocks of 512 bytes.
    pub blocks: u64,
    /// The last change of content.
    pub mtime: Time,
    /// Identifies the file.
    pub id: FileId,
    /// The state of the file.
    pub version: Version,
    /// The names of this inode.
    pub nlink: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// The metadata to set; `None` leaves a field as it is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Metadata {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Without `mode`: permission bits, within the umask, of a new entry.
    pub mode_if_new: Option<u32>,
    /// Set also set-user-id, set-group-id and sticky bits. Otherwise a directory keeps its own and may become sticky; a file
    /// has none.
    pub special_bits: bool,
    /// Modification time.
    pub mtime: Option<Time>,
    /// Owner; set by root, else ignored.
    pub owner: Option<u32>,
    /// Group; a user can set its own groups.
    pub group: Option<u32>,
    /// Extended attributes and ACLs, exactly, in the copied namespaces.
    pub xattrs: Option<Vec<(Vec<u8>, Vec<u8>)>>,
    /// The fields that may stay.
    pub may_stay: MayStay,
}

/// The fields that only an entry's owner may set, if not explicitly asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MayStay {
    /// The permission bits may stay.
    pub mode: bool,
    /// The modification time may stay.
    pub mtime: bool,
}

/// The outcome of setting metadata.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Applied {
    /// Something was set.
    pub changed: bool,
    /// The kernel left out the set-group-id bit: the user is not in the group (chmod(2)).
    pub lost_set_group: bool,
    /// The fields that stay: the entry is another user's.
    pub stays: MayStay,
}

impl Stat {
    pub(crate) fn of_fd(fd: impl AsFd) -> io::Result<Stat> {
        Ok(Stat::from(rustix::io::retry_on_intr(|| rustix::fs::fstat(fd.as_fd()))?))
    }

    pub(crate) fn of_name(dir: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<Stat> {
        rustix::io::retry_on_intr(|| rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)).map(Stat::from)
    }

    /// Whether both are one file, whatever their names.
    pub fn is_same_inode(&self, other: &Stat) -> bool {
        (self.id.dev, self.id.ino) == (other.id.dev, other.id.ino)
    }
}

// The field types differ between architectures: some casts do nothing.
#[allow(clippy::unnecessary_cast)]
impl From<rustix::fs::Stat> for Stat {
    fn from(stat: rustix::fs::Stat) -> Stat {
        let kind = match FileType::from_raw_mode(stat.st_mode as _) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Symlink { target: Vec::new() },
            _ => Kind::Special,
        };
        let ctime = Time { s: stat.st_ctime as i64, ns: stat.st_ctime_nsec as u32 };
        Stat {
            kind,
            mode: stat.st_mode as u32 & 0o7777,
            size: stat.st_size as u64,
            blocks: stat.st_blocks as u64,
            mtime: Time { s: stat.st_mtime as i64, ns: stat.st_mtime_nsec as u32 },
            id: FileId { dev: stat.st_dev as u64, ino: stat.st_ino as u64 },
            version: Version::new(ctime, stat.st_ino as u64),
            nlink: stat.st_nlink as u64,
            uid: stat.st_uid as u32,
            gid: stat.st_gid as u32,
        }
    }
}

impl Metadata {
    fn effective_mode(&self, now: &Stat) -> Option<u32> {
        self.mode.map(|mode| match now.kind {
            _ if self.special_bits => mode & 0o7777,
            Kind::Directory => (mode & 0o1777) | (now.mode & 0o7000),
            _ => mode & 0o777,
        })
    }
}

/// Applies metadata to an open file or directory, skipping what `now` has.
///
/// The order matters: a change of owner clears set-user bits and capabilities, an ACL changes the mode, and all but the mode
/// needs write permission. The time comes last.
pub(crate) fn apply(fd: BorrowedFd<'_>, now: &Stat, meta: &Metadata, namespaces: &Namespaces) -> io::Result<Applied> {
    let mut applied = Applied::default();
    let mut mode_now = now.mode;
    let (owner, group) = ownership_to_set(now, meta);
    if owner.is_some() || group.is_some() {
        rustix::fs::chownat(fd, "", owner.map(Uid::from_raw), group.map(Gid::from_raw), AtFlags::EMPTY_PATH)?;
        mode_now = MODE_UNKNOWN;
        applied.changed = true;
    }
    if let Some(wanted) = &meta.xattrs
        && attributes::apply(&Place::Open(fd), wanted, meta.owner.is_some(), namespaces)?
    {
        mode_now = MODE_UNKNOWN;
        applied.changed = true;
    }
    if let Some(mode) = meta.effective_mode(now)
        && mode != mode_now
    {
        applied.stays.mode = stays(haul_sys::file::set_mode(fd, mode), now, meta.may_stay.mode)?;
        applied.changed |= !applied.stays.mode;
        applied.lost_set_group = !applied.stays.mode
            && mode & SET_GROUP != 0
            && !process::is_root()
            && Stat::of_fd(fd)?.mode & SET_GROUP == 0;
    }
    if let Some(mtime) = meta.mtime
        && mtime != now.mtime
    {
        applied.stays.mtime = stays(set_mtime(fd, b"", mtime, AtFlags::EMPTY_PATH), now, meta.may_stay.mtime)?;
        applied.changed |= !applied.stays.mtime;
    }
    Ok(applied)
}

/// Whether an attribute stays: the entry is another user's, and it was not explicitly asked for. Other errors are errors.
fn stays(set: io::Result<()>, now: &Stat, may_stay: bool) -> io::Result<bool> {
    let is_refused = |error: &io::Error| error.raw_os_error() == Some(Errno::PERM.raw_os_error());
    match set {
        Err(error) if may_stay && is_refused(&error) && now.uid != process::effective_user() => Ok(true),
        set => set.map(|()| false),
    }
}

pub(crate) fn foresee(now: &Stat, meta: &Metadata) -> io::Result<Applied> {
    let mut applied = Applied { changed: true, ..Applied::default() };
    if process::is_root() || now.uid == process::effective_user() {
        return Ok(applied);
    }
    let is_link = matches!(now.kind, Kind::Symlink { .. });
    let sets_mode = !is_link && meta.effective_mode(now).is_some_and(|mode| mode != now.mode);
    let sets_mtime = meta.mtime.is_some_and(|mtime| mtime != now.mtime);
    let fails = (sets_mode && !meta.may_stay.mode) || (sets_mtime && !meta.may_stay.mtime);
    if fails || ownership_to_set(now, meta).1.is_some() {
        return Err(Errno::PERM.into());
    }
    applied.stays = MayStay { mode: sets_mode, mtime: sets_mtime };
    applied.changed = meta.xattrs.is_some();
    Ok(applied)
}

/// Lets a user list, enter and change its own directory despite the mode; true if necessary. Root needs none of it.
pub(crate) fn open_up(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<bool> {
    let is_closed = |stat: &Stat| {
        stat.kind == Kind::Directory && stat.mode & OWNER_ALL != OWNER_ALL && stat.uid == process::effective_user()
    };
    if process::is_root() || !is_closed(&Stat::of_name(dir, name)?) {
        return Ok(false);
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::io::retry_on_intr(|| rustix::fs::openat(dir, name, flags, Mode::empty()))?;
    let now = Stat::of_fd(&opened)?;
    haul_sys::file::set_mode(&opened, now.mode | OWNER_ALL)?;
    Ok(true)
}

const OWNER_ALL: u32 = 0o700;

pub(crate) fn apply_to_link(
    dir: BorrowedFd<'_>,
    name: &[u8],
    now: &Stat,
    meta: &Metadata,
    namespaces: &Namespaces,
) -> io::Result<Applied> {
    let (owner, group) = ownership_to_set(now, meta);
    let mut applied = Applied::default();
    if owner.is_some() || group.is_some() {
        let (owner, group) = (owner.map(Uid::from_raw), group.map(Gid::from_raw));
        rustix::fs::chownat(dir, name, owner, group, AtFlags::SYMLINK_NOFOLLOW)?;
        applied.changed = true;
    }
    if let Some(wanted) = &meta.xattrs {
        applied.changed |= attributes::apply(&Place::Name(dir, name), wanted, meta.owner.is_some(), namespaces)?;
    }
    if let Some(mtime) = meta.mtime
        && mtime != now.mtime
    {
        let set = set_mtime(dir, name, mtime, AtFlags::SYMLINK_NOFOLLOW);
        applied.stays.mtime = stays(set, now, meta.may_stay.mtime)?;
        applied.changed |= !applied.stays.mtime;
    }
    Ok(applied)
}

fn ownership_to_set(now: &Stat, meta: &Metadata) -> (Option<u32>, Option<u32>) {
    // All ones means "leave it" to the kernel.
    let owner = meta.owner.filter(|&owner| owner != now.uid && owner != u32::MAX && process::is_root());
    let group = meta.group.filter(|&group| group != now.gid && group != u32::MAX);
    (owner, group)
}

fn set_mtime(dir: BorrowedFd<'_>, name: &[u8], mtime: Time, flags: AtFlags) -> io::Result<()> {
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        // Larger values are commands to the kernel ("now", "omit"): not for peers.
        last_modification: Timespec { tv_sec: mtime.s, tv_nsec: mtime.ns.min(NS_PER_S - 1).into() },
    };
    if flags.contains(AtFlags::EMPTY_PATH) && name.is_empty() {
        // This call works on every kernel; only a path descriptor needs the other.
        match rustix::fs::futimens(dir, &times) {
            Err(rustix::io::Errno::BADF) => {}
            result => return Ok(result?),
        }
    }
    Ok(rustix::fs::utimensat(dir, name, &times, flags)?)
}

const NS_PER_S: u32 = 1_000_000_000;

const SET_GROUP: u32 = 0o2000;

/// Differs from every mode.
const MODE_UNKNOWN: u32 = u32::MAX;
