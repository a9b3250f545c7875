//! Kinds and permissions in letters, and as JSON.

use haul_transfer::place::{Facts, Kind};
use serde::Serialize;

use crate::json::values::{Named, named};
use crate::places::figures;

/// `drwxr-xr-x`
pub fn mode(facts: &Facts) -> String {
    let kind = match facts.kind {
        Kind::File => '-',
        Kind::Directory => 'd',
        Kind::Symlink => 'l',
        Kind::Fifo => 'p',
        Kind::Socket => 's',
        Kind::BlockDevice => 'b',
        Kind::CharacterDevice => 'c',
        Kind::Unknown => '?',
    };
    let mut text = String::from(kind);
    if facts.lacks.mode {
        return text + "?????????";
    }
    for (shift, special, letters) in [(6, 0o4000, "sS"), (3, 0o2000, "sS"), (0, 0o1000, "tT")] {
        let bits = facts.mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        let (is_special, executes) = (facts.mode & special != 0, bits & 1 != 0);
        text.push(match (is_special, executes) {
            (true, true) => char::from(letters.as_bytes()[0]),
            (true, false) => char::from(letters.as_bytes()[1]),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

pub fn kind(facts: &Facts) -> &'static str {
    match facts.kind {
        Kind::File if facts.size == 0 && !facts.lacks.size => "regular empty file",
        Kind::File => "regular file",
        Kind::Directory => "directory",
        Kind::Symlink => "symbolic link",
        Kind::Fifo => "fifo",
        Kind::Socket => "socket",
        Kind::BlockDevice => "block special file",
        Kind::CharacterDevice => "character special file",
        Kind::Unknown => "weird file",
    }
}

pub fn account(name: &[u8], number: u32, numeric: bool) -> Vec<u8> {
    if numeric || name.is_empty() { number.to_string().into_bytes() } else { name.to_vec() }
}

/// An entry for programs, without what the end does not tell.
#[derive(Serialize)]
pub struct EntryLine {
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<String>,
    #[serde(flatten)]
    path: Named,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    links: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inode: Option<u64>,
    /// `null`: a year beyond RFC 3339. An untold time is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    mtime: Option<Option<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ctime: Option<Option<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    atime: Option<Option<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    btime: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<Named>,
}

impl EntryLine {
    pub fn new(place: Option<String>, path: &[u8], facts: &Facts) -> Self {
        let account = |name: &[u8]| (!name.is_empty()).then(|| String::from_utf8_lossy(name).into_owned());
        let lacks = facts.lacks;
        Self {
            place,
            path: named(path),
            kind: match facts.kind {
                Kind::File => "file",
                Kind::Directory => "directory",
                Kind::Symlink => "symlink",
                Kind::Fifo => "fifo",
                Kind::Socket => "socket",
                Kind::BlockDevice => "block_device",
                Kind::CharacterDevice => "character_device",
                Kind::Unknown => "unknown",
            },
            size: (!lacks.size).then_some(facts.size),
            disk_bytes: (!lacks.inode).then(|| facts.blocks.saturating_mul(512)),
            mode: (!lacks.mode).then(|| format!("{:04o}", facts.mode)),
            links: (!lacks.inode).then_some(facts.links),
            uid: (!lacks.owner).then_some(facts.uid),
            gid: (!lacks.owner).then_some(facts.gid),
            owner: account(&facts.owner),
            group: account(&facts.group),
            inode: (!lacks.inode).then_some(facts.inode),
            mtime: (!lacks.modified).then(|| figures::rfc3339(facts.modified)),
            ctime: (!lacks.inode).then(|| figures::rfc3339(facts.changed)),
            atime: (!lacks.accessed).then(|| figures::rfc3339(facts.accessed)),
            btime: facts.born.and_then(figures::rfc3339),
            target: (facts.kind == Kind::Symlink).then(|| named(&facts.target)),
        }
    }
}
