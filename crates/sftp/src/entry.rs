//! From the attributes of version 3 to the metadata of the store.

use std::io;

use haul_store::place::NodeKind;
use haul_store::{FileId, Kind, Stat, Time, Version, name_hash};

use crate::codec::Attributes;

/// The metadata of the entry at `path` (of the server). A link's target is empty.
///
/// Version 3 has neither inodes nor times of changes: the path stands for the file, and the time of the last change of the
/// content for the time of any change.
pub(crate) fn stat(path: &[u8], attributes: &Attributes) -> io::Result<Stat> {
    let mode = attributes.mode.ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "the server does not say whether it is a file or a directory")
    })?;
    let kind = match mode & TYPE {
        REGULAR => Kind::File,
        DIRECTORY => Kind::Directory,
        LINK => Kind::Symlink { target: Vec::new() },
        _ => Kind::Special,
    };
    let mtime = Time { s: attributes.times.map_or(0, |(_, change)| change.into()), ns: 0 };
    let number = name_hash(path) as u64;
    let size = attributes.size.unwrap_or(0);
    let (uid, gid) = attributes.owners.unwrap_or((u32::MAX, u32::MAX));
    Ok(Stat {
        kind,
        mode: mode & 0o7777,
        size,
        blocks: size.div_ceil(BLOCK_BYTES),
        mtime,
        id: FileId { dev: 0, ino: number },
        version: Version::new(mtime, number),
        nlink: 1,
        uid,
        gid,
    })
}

/// The kind that a mode tells.
pub(crate) fn node_kind(mode: u32) -> NodeKind {
    match mode & TYPE {
        REGULAR => NodeKind::File,
        DIRECTORY => NodeKind::Directory,
        LINK => NodeKind::Symlink,
        FIFO => NodeKind::Fifo,
        SOCKET => NodeKind::Socket,
        BLOCK_DEVICE => NodeKind::BlockDevice,
        CHARACTER_DEVICE => NodeKind::CharacterDevice,
        _ => NodeKind::Unknown,
    }
}

/// Whether it is a directory; `None`: the server does not say.
pub(crate) fn is_dir(attributes: &Attributes) -> Option<bool> {
    attributes.mode.map(|mode| mode & TYPE == DIRECTORY)
}

/// Whether it is a regular file.
pub(crate) fn is_file(attributes: &Attributes) -> bool {
    attributes.mode.is_some_and(|mode| mode & TYPE == REGULAR)
}

/// Whether it is a symbolic link.
pub(crate) fn is_link(attributes: &Attributes) -> bool {
    attributes.mode.is_some_and(|mode| mode & TYPE == LINK)
}

/// `S_IFMT` and its values (inode(7)); OpenSSH and others send `st_mode`.
const TYPE: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;
const LINK: u32 = 0o120_000;
const FIFO: u32 = 0o010_000;
const SOCKET: u32 = 0o140_000;
const BLOCK_DEVICE: u32 = 0o060_000;
const CHARACTER_DEVICE: u32 = 0o020_000;

/// The unit of [`Stat::blocks`].
const BLOCK_BYTES: u64 = 512;
