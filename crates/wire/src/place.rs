//! Questions about a tree, and their answers: `haul ls`, `du`, `df`, `stat`, `mkdir`, `mv`, `rm`, `cat`, `hash`, `clean`.
//!
//! ```text
//!   initiator                    agent
//!       ---- Start: a question --->
//!       <--- Told, Data -----------        pages of the answer; at most [`PAGES_AHEAD`] that are not taken yet
//!       ---- More ---------------->        so many pages were taken
//!       <--- End ------------------
//! ```
//! A path of an answer is a [`RelPath`] beneath the entry that was asked about.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::bounded;
use crate::fault::CodecFault;
pub use crate::hashed::{Algorithm, FileFound, MAX_HASH_BYTES, MAX_WANTED_BYTES, MAX_WANTED_FILES, WantedFile};
use crate::limits::{MAX_ACCOUNT_NAME_BYTES, MAX_LINK_TARGET_BYTES, MAX_PATH_BYTES, MAX_SPEC_ITEMS, MAX_TEXT_BYTES};
use crate::path::RelPath;

/// Pages under way and not taken: 64 x [`PAGE_BYTES`] are 4 MiB, half of what waits at a session that does not listen
/// for a while. Over 100 ms they carry 42 MB/s.
pub const PAGES_AHEAD: u16 = 64;

/// A page is sent when it takes this much memory, or when nothing came for a while.
pub const PAGE_BYTES: usize = 64 << 10;

/// Lines of one page: the least line takes 48 bytes in memory.
pub const MAX_PAGE_LINES: usize = 2048;

/// Lines of the longest answer: a listing of two thousand million entries. An end that sends more is refused.
pub const MAX_ANSWER_LINES: u64 = 1 << 31;

/// Bytes of the longest answer: as large as a file of Linux can be.
pub const MAX_ANSWER_BYTES: u64 = 1 << 63;

/// The question to a place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The act.
    pub verb: Verb,
    /// The entries: paths as typed.
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_SPEC_ITEMS>")]
    pub paths: Vec<Vec<u8>>,
}

/// The act on each entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verb {
    /// List the entries of a directory; anything else is told itself.
    List(List),
    /// Tell the entry.
    Stat {
        /// True to look at the target of a link instead of the link.
        follow: bool,
    },
    /// Tell the usage of an entry, with all beneath it.
    Usage {
        /// True to answer also for each directory beneath it.
        each: bool,
    },
    /// Make a directory.
    Make {
        /// True to make also the directories above; an existing one is fine.
        parents: bool,
    },
    /// Rename an entry.
    Move {
        /// The new name, or the directory to move into.
        to: Vec<u8>,
        /// True to keep what already has the new name.
        keep: bool,
    },
    /// Remove an entry.
    Remove {
        /// Directories are removed too, with all beneath them.
        trees: bool,
        /// A missing entry is fine.
        force: bool,
        /// Removals are only reported.
        dry_run: bool,
    },
    /// Send the content of files.
    Read,
    /// Take a stream of unknown length as the content of a file. One path; [`PlaceWord::Whole`] ends the stream.
    Write,
    /// Tell the hash of a file, or of each file beneath a directory.
    Hash {
        /// The wanted hash.
        algorithm: Algorithm,
    },
    /// Tell the hashes of files beneath it that are named one by one; see [`crate::hashed`]. One path.
    HashNamed,
    /// Find leftovers of dead copies beneath a directory.
    Clean {
        /// True to remove it as well.
        remove: bool,
        /// In a store: uploads that anybody began so many seconds ago are leftovers, too.
        others_after_s: Option<u64>,
    },
    /// Tell the space of the file system on which an entry lies.
    Space,
}

/// How to list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct List {
    /// Whether to list all beneath the directory.
    pub recursive: bool,
    /// Whether to list names that begin with a dot, too.
    pub hidden: bool,
    /// Whether to list a directory itself, not its entries.
    pub itself: bool,
    /// Whether to list the facts of each entry, too.
    pub facts: bool,
}

impl Question {
    /// Whether the question changes anything.
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

    /// The question's own memory.
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
    /// The next lines of the answer.
    Told(#[serde(deserialize_with = "bounded::at_most::<_, _, MAX_PAGE_LINES>")] Vec<Told>),
    /// The next bytes of the requested files, or of the stream; a page, too.
    Data {
        /// The bytes, at most [`PAGE_BYTES`].
        #[serde(serialize_with = "bounded::write_bytes", deserialize_with = "bounded::bytes::<_, PAGE_BYTES>")]
        bytes: Vec<u8>,
        /// The BLAKE3 of these bytes.
        blake3: [u8; 32],
    },
    /// The stream has ended; this describes all of it.
    Whole(Whole),
    /// The next files whose hashes are wanted.
    Wanted(#[serde(deserialize_with = "bounded::at_most::<_, _, MAX_PAGE_LINES>")] Vec<WantedFile>),
    /// The asking side took this many pages and wants more.
    More {
        /// The number of pages, at least one.
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
    /// The BLAKE3 of all of it.
    pub blake3: [u8; 32],
}

/// A line of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Told {
    /// The entry that the following answers are about: a typed path, or a match of its wildcard.
    Operand {
        /// The path. It has as many names as the typed one, and equals it where that has no wildcard.
        path: Vec<u8>,
    },
    /// The next entries stand in this directory.
    In {
        /// The path beneath the operand.
        path: RelPath,
    },
    /// The directory has too many names to be sorted.
    Unsorted,
    /// An entry.
    Entry {
        /// The path beneath the operand.
        path: RelPath,
        /// The facts, if asked for.
        facts: Option<Box<Facts>>,
    },
    /// The space of an entry with all beneath it, an inode with several names once.
    Usage {
        /// The path beneath the operand.
        path: RelPath,
        /// The space in blocks of 512 bytes.
        blocks: u64,
        /// The sum of all sizes.
        apparent_bytes: u64,
    },
    /// The directory was made.
    Made {
        /// The typed path, or its beginning.
        path: Vec<u8>,
    },
    /// The entry has another name.
    Moved {
        /// The typed name, with the entry's own name if that is a directory.
        to: Vec<u8>,
    },
    /// The entry stays, because its new name is taken.
    Stays {
        /// The typed name, with the entry's own name if that is a directory.
        to: Vec<u8>,
    },
    /// The entry was removed, or would be.
    Removed {
        /// The path beneath the operand.
        path: RelPath,
    },
    /// The hash of a file.
    Hash {
        /// The path beneath the operand.
        path: RelPath,
        /// The hash, at most [`MAX_HASH_BYTES`].
        hash: Vec<u8>,
        /// The number of hashed bytes.
        size: u64,
        /// Time of the last change of its content.
        modified: Moment,
    },
    /// The finding about a named file.
    Found {
        /// The number of the file.
        number: u64,
        /// The finding.
        found: FileFound,
    },
    /// The progress on named files.
    Hashed {
        /// The bytes read since the beginning.
        bytes: u64,
    },
    /// The leftovers of a dead copy. They were removed, if that was asked for.
    Left {
        /// The path beneath the operand.
        path: RelPath,
        /// The size.
        bytes: u64,
    },
    /// The sent file is this; or the received stream is this, and has its name.
    Whole(Whole),
    /// An act failed.
    Failed {
        /// True if it concerns the requested entry itself, not something beneath it.
        is_operand: bool,
        /// A line that names the failure.
        why: String,
    },
    /// The space of the file system on which the operand lies.
    Space(Space),
}

/// The space of a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// All bytes.
    pub bytes: u64,
    /// Bytes in which nothing stands.
    pub free_bytes: u64,
    /// The part of these that the user may fill.
    pub available_bytes: u64,
    /// All inodes; 0: the file system makes them as they are needed.
    pub inodes: u64,
    /// Inodes that the user may make.
    pub free_inodes: u64,
}

/// The facts that a file system knows of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// The kind of the entry.
    pub kind: Kind,
    /// The target of a link.
    pub target: Vec<u8>,
    /// Permission bits, at most 0o7777.
    pub mode: u16,
    /// The number of names of this inode.
    pub links: u64,
    /// Owner, by number and, if it has one, by name.
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
    /// The block size for reads and writes that suits its file system.
    pub io_block: u32,
    /// The device of its file system.
    pub device: (u32, u32),
    /// The device that a device file stands for.
    pub special: (u32, u32),
    /// Inode.
    pub inode: u64,
    /// Time of the last read.
    pub accessed: Moment,
    /// Time of the last change of content.
    pub modified: Moment,
    /// Time of the last change of any kind.
    pub changed: Moment,
    /// Time when it was made, if the file system keeps it.
    pub born: Option<Moment>,
    /// What an end where no haul runs does not tell. A haul tells all, so this never travels.
    #[serde(skip)]
    pub lacks: Lacks,
}

/// The facts that an end does not tell of an entry. Their fields mean nothing then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lacks {
    /// Permission bits.
    pub mode: bool,
    /// Owner and group.
    pub owner: bool,
    /// Bytes of content.
    pub size: bool,
    /// Time of the last change of content.
    pub modified: bool,
    /// Time of the last read.
    pub accessed: bool,
    /// What only a file system has: names, blocks, device and number of the inode, and the time of any change.
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

/// A point in time as file systems keep it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// Seconds since 1970, negative before.
    pub s: i64,
    /// Nanoseconds within the second.
    pub ns: u32,
}

impl Told {
    /// The memory of the line.
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
    /// The own memory of the word.
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
            // A path as a peer may write it: the path of an honest one cannot be wrong.
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
