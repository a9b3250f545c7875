//! The outcome of an item, and its differences before.

use alloc::string::String;

use serde::{Deserialize, Serialize};

/// The outcome of an item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Manifest index.
    pub index: u64,
    /// The kind of outcome.
    pub result: OutcomeKind,
    /// The differences at the target before; empty unless asked for.
    pub changes: Changes,
}

impl Outcome {
    /// An outcome without changes.
    pub fn of(index: u64, result: OutcomeKind) -> Self {
        Self { index, result, changes: Changes::default() }
    }
}

/// How an item ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OutcomeKind {
    /// Data moved, was verified, and has its final name.
    Copied {
        /// BLAKE3 of the contents.
        blake3: [u8; 32],
    },
    /// The entry was already there, unchanged.
    Kept {
        /// BLAKE3 of the contents, if they were read.
        blake3: Option<[u8; 32]>,
    },
    /// Data was there; metadata was brought up to date.
    Touched {
        /// BLAKE3 of the contents, if they were read.
        blake3: Option<[u8; 32]>,
    },
    /// A reference tree of the target has it, and it was made from there (or would be).
    Brought {
        /// The way it was made.
        how: Brought,
        /// BLAKE3 of the contents, if they were read.
        blake3: Option<[u8; 32]>,
    },
    /// A directory or link was made.
    Made,
    /// A rule of the job leaves it out, or leaves the target's entry as it is.
    LeftOut {
        /// The rule.
        rule: LeftOut,
    },
    /// No action was needed (directory that existed, end of a directory, skipped or failed at the source).
    Nothing,
    /// A dry run would move its data.
    WouldCopy,
    /// Could not be written or verified.
    Failed {
        /// The failed act and its cause.
        why: String,
        /// Kind of failure.
        kind: FailureKind,
    },
    /// Another item replaces it: the file changed while it was read, and is announced anew; or the item that it was to
    /// replace was already complete.
    Superseded,
}

/// How a file came from a reference tree of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Brought {
    /// By a hard link.
    Linked,
    /// By a copy on the target's host.
    Copied,
}

/// Kinds of failures of one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureKind {
    /// Input or output.
    Io,
    /// No space or quota.
    Space,
    /// The source vanished.
    Vanished,
    /// Data did not verify after repeated tries.
    Unverified,
    /// The source changed while it was read.
    Changed,
}

/// The rule that leaves an item out. Its words are those of rsync's flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeftOut {
    /// The entry does not stand at the target (`--existing`).
    Missing,
    /// Something stands at the target (`--ignore-existing`).
    Exists,
    /// The target's is newer (`--update`).
    Newer,
    /// The file is larger than `--max-size`.
    TooLarge,
    /// The file is smaller than `--min-size`.
    TooSmall,
    /// The file was modified longer ago than `--max-age`.
    TooOld,
    /// The file was modified more lately than `--min-age`.
    TooYoung,
    /// The source itself stands at the target, and is to be removed.
    Itself,
    /// A symbolic link that leads out of the tree (`--safe-links`).
    UnsafeLink,
    /// The target's file is not shorter (`--append-verify`).
    NotShorter,
}

/// The differences of an item from the target's: the columns of rsync's `--itemize-changes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes(u16);

impl Changes {
    /// No entry stood there.
    pub const NEW: Self = Self(1);
    /// The contents changed, or the target of a link.
    pub const CONTENT: Self = Self(1 << 1);
    /// The size changed.
    pub const SIZE: Self = Self(1 << 2);
    /// The modification time changed.
    pub const TIME: Self = Self(1 << 3);
    /// The permissions changed.
    pub const MODE: Self = Self(1 << 4);
    /// The owner changed.
    pub const OWNER: Self = Self(1 << 5);
    /// The group changed.
    pub const GROUP: Self = Self(1 << 6);
    /// No difference was found: the data is sent because equal times prove nothing.
    pub const UNSEEN: Self = Self(1 << 7);

    /// Whether it has all of these changes.
    pub fn has(self, changes: Self) -> bool {
        self.0 & changes.0 == changes.0
    }

    /// Adds these changes, if `is_so`.
    #[must_use]
    pub fn with(self, changes: Self, is_so: bool) -> Self {
        if is_so { Self(self.0 | changes.0) } else { self }
    }

    /// Whether nothing differed.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}
