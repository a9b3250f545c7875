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
    /// Empty unless asked for.
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
    /// There before, unchanged.
    Kept {
        /// The contents' BLAKE3, if read.
        blake3: Option<[u8; 32]>,
    },
    /// New metadata for data that was there.
    Touched {
        /// The contents' BLAKE3, if read.
        blake3: Option<[u8; 32]>,
    },
    /// Made (or would be) without the sender: from a reference tree, or by the sources' server.
    Brought {
        /// The way.
        how: Brought,
        /// The contents' BLAKE3, if read.
        blake3: Option<[u8; 32]>,
    },
    /// A directory or link was made.
    Made,
    /// A rule leaves it out, or the target's entry as it is.
    LeftOut {
        /// The rule.
        rule: LeftOut,
    },
    /// No action (existing directory, end of a directory, skipped or failed at the source).
    Nothing,
    /// A dry run would send it.
    WouldCopy,
    /// Not written or verified.
    Failed {
        /// Act and cause.
        why: String,
        /// Kind of failure.
        kind: FailureKind,
    },
    /// The file changed, and a new item replaces this one; or this came too late to replace a complete one.
    Superseded,
}

/// How it came without the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Brought {
    /// A hard link.
    Linked,
    /// A copy on the target's host.
    Copied,
    /// From the sources' server to the target's, compared by sums of both.
    ByServer,
}

/// Kinds of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureKind {
    /// Input or output.
    Io,
    /// No space or quota.
    Space,
    /// The source vanished.
    Vanished,
    /// Unverified after repeated tries.
    Unverified,
    /// Changed while it was read.
    Changed,
}

/// Rules, named as rsync's flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeftOut {
    /// Missing at the target (`--existing`).
    Missing,
    /// Existing at the target (`--ignore-existing`).
    Exists,
    /// Newer at the target (`--update`).
    Newer,
    /// Larger than `--max-size`.
    TooLarge,
    /// Smaller than `--min-size`.
    TooSmall,
    /// Older than `--max-age`.
    TooOld,
    /// Newer than `--min-age`.
    TooYoung,
    /// The source itself stands there, to be removed.
    Itself,
    /// A symbolic link out of the tree (`--safe-links`).
    UnsafeLink,
    /// Not shorter at the target (`--append-verify`).
    NotShorter,
}

/// The columns of rsync's `--itemize-changes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes(u16);

impl Changes {
    /// No entry stood there.
    pub const NEW: Self = Self(1);
    /// Contents, or the target of a link.
    pub const CONTENT: Self = Self(1 << 1);
    /// Size.
    pub const SIZE: Self = Self(1 << 2);
    /// Modification time.
    pub const TIME: Self = Self(1 << 3);
    /// Permissions.
    pub const MODE: Self = Self(1 << 4);
    /// Owner.
    pub const OWNER: Self = Self(1 << 5);
    /// Group.
    pub const GROUP: Self = Self(1 << 6);
    /// No difference was seen, but equal times prove nothing.
    pub const UNSEEN: Self = Self(1 << 7);

    /// Whether all of these changed.
    pub fn has(self, changes: Self) -> bool {
        self.0 & changes.0 == changes.0
    }

    /// Adds these, if `is_so`.
    #[must_use]
    pub fn with(self, changes: Self, is_so: bool) -> Self {
        if is_so { Self(self.0 | changes.0) } else { self }
    }

    /// Whether nothing differed.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}
