//! Questions about a tree, and their answers: `haul ls`, `du`, `df`, `stat`, `mkdir`, `mv`, `rm`, `cat`, `hash`, `clean`.
//!
//! ```text
//!   initiator                    agent
//!       ---- Start: a question --->
//!       <--- Told, Data -----------        pages; at most [`PAGES_AHEAD`] that are not taken
//!       ---- More ---------------->
//!       <--- End ------------------
//! ```
//! Paths of an answer lie beneath the entry that was asked about (*operand*).

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::bounded;
use crate::fault::CodecFault;
pub use crate::hashed::{Algorithm, FileFound, MAX_HASH_BYTES, MAX_WANTED_BYTES, MAX_WANTED_FILES, WantedFile};
use crate::limits::{MAX_ACCOUNT_NAME_BYTES, MAX_LINK_TARGET_BYTES, MAX_PATH_BYTES, MAX_SPEC_ITEMS, MAX_TEXT_BYTES};
use crate::path::RelPath;

/// 64 x [`PAGE_BYTES`] are 4 MiB, half of what waits at a session that does not listen: 42 MB/s over 100 ms.
pub const PAGES_AHEAD: u16 = 64;

/// Sent at this size, or after a while.
pub const PAGE_BYTES: usize = 64 << 10;

/// The least line has 48 bytes in memory.
pub const MAX_PAGE_LINES: usize = 2048;

/// Two thousand million entries; more are refused.
pub const MAX_ANSWER_LINES: u64 = 1 << 31;

/// The largest file of Linux.
pub const MAX_ANSWER_BYTES: u64 = 1 << 63;

/// The question to a place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The act.
    pub verb: Verb,
    /// Paths as typed.
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_SPEC_ITEMS>")]
    pub paths: Vec<Vec<u8>>,
}

/// Acts on entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verb {
    /// List a directory, or tell another entry.
    List(List),
    /// Tell the entry.
    Stat {
        /// Follow a link.
        follow: bool,
    },
    /// Tell usage, with all beneath.
    Usage {
        /// Tells each directory beneath, too.
        each: bool,
    },
    /// Make a directory.
    Make {
        /// Parents, too; existing ones are fine.
        parents: bool,
    },
    /// Rename an entry.
    Move {
        /// New name, or directory to move into.
        to: Vec<u8>,
        /// Keep what has the name.
        keep: bool,
    },
    /// Remove an entry.
    Remove {
        /// Directories, with all beneath.
        trees: bool,
        /// A missing entry is fine.
        force: bool,
        /// Only report.
        dry_run: bool,
    },
    /// Send the content of files.
    Read,
    /// Take a stream as a file's content, until [`PlaceWord::Whole`].
    Write,
    /// Hash a file, or each one beneath.
    Hash {
        /// The wanted hash.
        algorithm: Algorithm,
    },
    /// Hash named files beneath one path; see [`crate::hashed`].
    HashNamed,
    /// Find dead copies' leftovers.
    Clean {
        /// Remove them.
        remove: bool,
        /// In a store anybody's uploads of this age are leftovers, too.
        others_after_s: Option<u64>,
    },
    /// Tell the file system's space.
    Space,
}

/// How to list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct List {
    /// All beneath.
    pub recursive: bool,
    /// Names with a leading dot.
    pub hidden: bool,
    /// A directory itself.
    pub itself: bool,
    /// Each entry's facts.
    pub facts: bool,
}

impl Question {
    /// Whether it changes anything.
    pub fn writes(&self) -> bool {
        match self.verb {
            Verb::List(_)
            | Verb::Stat { .. }
            | Verb::Usage { .. }
            | Verb::Space
            | Verb::Read
            | Verb::Hash { .. }
            | Verb::HashNamed => false,
            Verb::Clean { remove, .. } => remove,
            Verb::Remove { dry_run, .. } => !dry_run,
            Verb::Make { .. } | Verb::Move { .. } | Verb::Write => true,
        }
    }

    /// Own memory.
    pub fn weight_bytes(&self) -> usize {
        let paths: usize = self.paths.iter().map(|path| size_of::<Vec<u8>>() + path.len()).sum();
        paths + if let Verb::Move { to, .. } = &self.verb { to.len() } else { 0 }
    }

    pub(crate) fn check_limits(&self) -> Result<(), CodecFault> {
        let long = |path: &Vec<u8>| path.len() > MAX_PATH_BYTES;
        let to_is_long = matches!(&self.verb, Verb::Move { to, .. } if long(to));
        if matches!(self.verb, Verb::Write | Verb::HashNamed) && self.paths.len() != 1 {
            return Err(CodecFault::Limit("paths"));
        }
        if to_is_long || self.paths.iter().any(long) { Err(CodecFault::Limit("path")) } else { Ok(()) }
    }
}

/// A message about a place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PlaceWord {
    /// Lines of the answer.
    Told(#[serde(deserialize_with = "bounded::at_most::<_, _, MAX_PAGE_LINES>")] Vec<Told>),
    /// The next page of files, or of the stream.
    Data {
        /// The bytes, at most [`PAGE_BYTES`].
        #[serde(serialize_with = "bounded::write_bytes", deserialize_with = "bounded::bytes::<_, PAGE_BYTES>")]
        bytes: Vec<u8>,
        /// Their BLAKE3.
        blake3: [u8; 32],
    },
    /// The stream's end.
    Whole(Whole),
    /// Files to hash.
    Wanted(#[serde(deserialize_with = "bounded::at_most::<_, _, MAX_PAGE_LINES>")] Vec<WantedFile>),
    /// Pages were taken.
    More {
        /// The number, at least one.
        pages: u16,
    },
    /// The end of the answer.
    End,
}

/// A whole file or stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Whole {
    /// The length.
    pub bytes: u64,
    /// The BLAKE3.
    pub blake3: [u8; 32],
}

/// A line of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Told {
    /// The entry of the next answers: a typed path, or a wildcard's match.
    Operand {
        /// Path of as many names as typed.
        path: Vec<u8>,
    },
    /// The next entries' directory.
    In {
        /// The path.
        path: RelPath,
    },
    /// Too many names to be sorted.
    Unsorted,
    /// An entry.
    Entry {
        /// The path.
        path: RelPath,
        /// The facts, if asked for.
        facts: Option<Box<Facts>>,
    },
    /// Space with all beneath, each inode once.
    Usage {
        /// The path.
        path: RelPath,
        /// Blocks of 512 bytes.
        blocks: u64,
        /// Sum of all sizes.
        apparent_bytes: u64,
    },
    /// The directory was made.
    Made {
        /// Path as typed, or its beginning.
        path: Vec<u8>,
    },
    /// An entry has another name.
    Moved {
        /// Name as typed, with the entry's behind a directory.
        to: Vec<u8>,
    },
    /// An entry stays: the new name is taken.
    Stays {
        /// Name as typed, with the entry's behind a directory.
        to: Vec<u8>,
    },
    /// Removed, or would be.
    Removed {
        /// The path.
        path: RelPath,
    },
    /// The hash of a file.
    Hash {
        /// The path.
        path: RelPath,
        /// The hash, at most [`MAX_HASH_BYTES`].
        hash: Vec<u8>,
        /// The hashed bytes.
        size: u64,
        /// Last change of content.
        modified: Moment,
    },
    /// A named file's finding.
    Found {
        /// The file's number.
        number: u64,
        /// The finding.
        found: FileFound,
    },
    /// Progress on named files.
    Hashed {
        /// Bytes read so far.
        bytes: u64,
    },
    /// Dead leftovers, removed if asked for.
    Left {
        /// The path.
        path: RelPath,
        /// The size.
        bytes: u64,
    },
    /// The sent file, or the stream under its name.
    Whole(Whole),
    /// An act failed.
    Failed {
        /// The requested entry failed.
        is_operand: bool,
        /// A line that names the failure.
        why: String,
    },
    /// The file system's space.
    Space(Space),
}

/// The space of a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// All bytes.
    pub bytes: u64,
    /// Free bytes.
    pub free_bytes: u64,
    /// Free bytes for the user.
    pub available_bytes: u64,
    /// All inodes; 0: made as needed.
    pub inodes: u64,
    /// Inodes that the user may make.
    pub free_inodes: u64,
}

/// Facts that a file system knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// The kind.
    pub kind: Kind,
    /// The target of a link.
    pub target: Vec<u8>,
    /// Permission bits, at most 0o7777.
    pub mode: u16,
    /// Names of this inode.
    pub links: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Name of the owner; empty: unknown.
    pub owner: Vec<u8>,
    /// Name of the group; empty: unknown.
    pub group: Vec<u8>,
    /// Bytes of content.
    pub size: u64,
    /// Blocks of 512 bytes.
    pub blocks: u64,
    /// Suitable size of reads and writes.
    pub io_block: u32,
    /// The file system's device.
    pub device: (u32, u32),
    /// The device of a device file.
    pub special: (u32, u32),
    /// Inode.
    pub inode: u64,
    /// Last read.
    pub accessed: Moment,
    /// Last change of content.
    pub modified: Moment,
    /// Last change.
    pub changed: Moment,
    /// Creation, if kept.
    pub born: Option<Moment>,
    /// Facts that a foreign end does not tell. A haul tells all, so this never travels.
    #[serde(skip)]
    pub lacks: Lacks,
}

/// Untold facts, whose fields mean nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lacks {
    /// Permission bits.
    pub mode: bool,
    /// Owner and group.
    pub owner: bool,
    /// Bytes of content.
    pub size: bool,
    /// Last change of content.
    pub modified: bool,
    /// Last read.
    pub accessed: bool,
    /// Names, blocks, device, inode, time of any change.
    pub inode: bool,
}

/// Kinds of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Kind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    BlockDevice,
    CharacterDevice,
    Unknown,
}

/// A time as file systems keep it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// Seconds since 1970, negative before.
    pub s: i64,
    /// Nanoseconds within the second.
    pub ns: u32,
}

impl Told {
    /// The line's memory.
    pub fn weight_bytes(&self) -> usize {
        size_of::<Told>()
            + match self {
                Told::Operand { path } | Told::Made { path } => path.len(),
                Told::Moved { to } | Told::Stays { to } => to.len(),
                Told::In { path } | Told::Usage { path, .. } | Told::Removed { path } | Told::Left { path, .. } => {
                    path.as_bytes().len()
                }
                Told::Hash { path, hash, .. } => path.as_bytes().len() + hash.len(),
                Told::Entry { path, facts } => {
                    let words = |facts: &Facts| facts.target.len() + facts.owner.len() + facts.group.len();
                    path.as_bytes().len() + facts.as_ref().map_or(0, |facts| size_of::<Facts>() + words(facts))
                }
                Told::Failed { why, .. } => why.len(),
                Told::Found { found, .. } => found.weight_bytes(),
                Told::Unsorted | Told::Whole(_) | Told::Hashed { .. } | Told::Space(_) => 0,
            }
    }

    fn is_within_limits(&self) -> bool {
        match self {
            Told::Operand { path } | Told::Made { path } => path.len() <= MAX_PATH_BYTES,
            Told::Moved { to } | Told::Stays { to } => to.len() <= MAX_PATH_BYTES,
            Told::Entry { facts: Some(facts), .. } => {
                facts.target.len() <= MAX_LINK_TARGET_BYTES
                    && facts.owner.len().max(facts.group.len()) <= MAX_ACCOUNT_NAME_BYTES
            }
            Told::Failed { why, .. } => why.len() <= MAX_TEXT_BYTES,
            Told::Hash { hash, .. } => hash.len() <= MAX_HASH_BYTES,
            Told::Found { found, .. } => found.is_within_limits(),
            Told::Left { .. } | Told::Whole(_) | Told::Hashed { .. } | Told::Space(_) => true,
            Told::In { .. } | Told::Unsorted | Told::Entry { .. } | Told::Usage { .. } | Told::Removed { .. } => true,
        }
    }
}

impl PlaceWord {
    /// The word's own memory.
    pub fn weight_bytes(&self) -> usize {
        match self {
            PlaceWord::Told(lines) => lines.iter().map(Told::weight_bytes).sum(),
            PlaceWord::Data { bytes, .. } => bytes.len(),
            PlaceWord::Wanted(files) => files.iter().map(WantedFile::weight_bytes).sum(),
            PlaceWord::Whole(_) | PlaceWord::More { .. } | PlaceWord::End => 0,
        }
    }

    pub(crate) fn check_limits(&self) -> Result<(), CodecFault> {
        let ok = match self {
            PlaceWord::Told(lines) => lines.iter().all(Told::is_within_limits),
            PlaceWord::More { pages } => (1..=PAGES_AHEAD).contains(pages),
            PlaceWord::Data { .. } | PlaceWord::Whole(_) | PlaceWord::Wanted(_) | PlaceWord::End => true,
        };
        if ok { Ok(()) } else { Err(CodecFault::Limit("answer")) }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::codec;
    use crate::control::Control;

    fn decoded(word: PlaceWord) -> Result<Control, CodecFault> {
        let mut bytes = Vec::new();
        codec::encode(&Control::Place(word), &mut bytes).unwrap();
        codec::decode(&bytes[4..])
    }

    #[test]
    fn an_answer_names_nothing_outside_of_what_was_asked_about() {
        let entry = |path: &str| {
            // No honest peer makes such a path.
            let mut bytes = Vec::new();
            let path = RelPath::new(path.replace('.', "x").into_bytes()).unwrap();
            codec::encode(&Control::Place(PlaceWord::Told(vec![Told::Entry { path, facts: None }])), &mut bytes)
                .unwrap();
            bytes
        };
        let honest = entry("../y");
        let hostile: Vec<u8> = honest.iter().map(|byte| if *byte == b'x' { b'.' } else { *byte }).collect();
        assert!(codec::decode(&honest[4..]).is_ok());
        assert_eq!(codec::decode(&hostile[4..]), Err(CodecFault::Message));
    }

    #[test]
    fn pages_have_their_bounds() {
        assert!(decoded(PlaceWord::Told(vec![Told::Unsorted; MAX_PAGE_LINES])).is_ok());
        assert!(decoded(PlaceWord::Told(vec![Told::Unsorted; MAX_PAGE_LINES + 1])).is_err());
        let data = |length| PlaceWord::Data { bytes: vec![0; length], blake3: [0; 32] };
        assert!(decoded(data(PAGE_BYTES)).is_ok());
        assert_eq!(decoded(data(PAGE_BYTES + 1)), Err(CodecFault::Message));
        assert_eq!(decoded(PlaceWord::More { pages: 0 }), Err(CodecFault::Limit("answer")));
        assert_eq!(decoded(PlaceWord::More { pages: PAGES_AHEAD + 1 }), Err(CodecFault::Limit("answer")));
        let line = Told::Failed { is_operand: true, why: "x".repeat(MAX_TEXT_BYTES + 1) };
        assert_eq!(decoded(PlaceWord::Told(vec![line])), Err(CodecFault::Limit("answer")));
    }
}
