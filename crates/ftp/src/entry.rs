//! From the facts that a server tells to the metadata of the store.

use haul_store::place::{EntryFacts, Lacks, NodeKind};
use haul_store::{FileId, Kind, Stat, Time, Version, name_hash};

use crate::codec::listing::{EntryType, Facts};

/// The metadata of the entry at `path` (of the server). What has no time has the time `begun`, so that it is never taken for unchanged.
///
/// FTP has neither inodes nor times of changes: the path stands for the file, and the time of the last change of the content for the time
/// of any change.
pub(crate) fn stat(path: &[u8], facts: &Facts, begun: Time) -> Stat {
    let kind = match &facts.kind {
        EntryType::File => Kind::File,
        EntryType::Directory | EntryType::Itself => Kind::Directory,
        EntryType::Link(target) => Kind::Symlink { target: target.clone().unwrap_or_default() },
        EntryType::Special | EntryType::Unknown => Kind::Special,
    };
    let usual_mode = if kind == Kind::Directory { 0o755 } else { 0o644 };
    let mtime = facts.modified.map_or(begun, |modified| modified.time);
    let number = name_hash(path) as u64;
    let size = facts.size.filter(|_| kind == Kind::File).unwrap_or(0);
    Stat {
        kind,
        mode: facts.mode.unwrap_or(usual_mode),
        size,
        blocks: size.div_ceil(BLOCK_BYTES),
        mtime,
        id: FileId { dev: 0, ino: number },
        version: Version::new(mtime, number),
        nlink: 1,
        uid: 0,
        gid: 0,
    }
}

/// The same for a person.
pub(crate) fn for_person(facts: &Facts) -> EntryFacts {
    let kind = node_kind(facts);
    let target = match &facts.kind {
        EntryType::Link(target) => target.clone().unwrap_or_default(),
        _ => Vec::new(),
    };
    let modified = facts.modified.filter(|modified| modified.is_exact);
    EntryFacts {
        mode: facts.mode.unwrap_or(0) as u16,
        size: facts.size.unwrap_or(0),
        modified: modified.map(|modified| modified.time).unwrap_or_default(),
        target,
        lacks: Lacks {
            mode: facts.mode.is_none(),
            owner: true,
            size: facts.size.is_none(),
            modified: modified.is_none(),
            accessed: true,
            inode: true,
        },
        ..EntryFacts::of_kind(kind)
    }
}

pub(crate) fn node_kind(facts: &Facts) -> NodeKind {
    match facts.kind {
        EntryType::File => NodeKind::File,
        EntryType::Directory | EntryType::Itself => NodeKind::Directory,
        EntryType::Link(_) => NodeKind::Symlink,
        EntryType::Special | EntryType::Unknown => NodeKind::Unknown,
    }
}

/// The unit of [`Stat::blocks`].
const BLOCK_BYTES: u64 = 512;
