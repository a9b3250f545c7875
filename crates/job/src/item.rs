//! Differences of an entry at the target, and the rule that leaves it out.

/// A rule that leaves an entry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOut {
    /// The target lacks the entry (`--existing`).
    Missing,
    /// Something at the target (`--ignore-existing`).
    Exists,
    /// Newer at the target (`--update`).
    Newer,
    /// The file exceeds `--max-size`.
    TooLarge,
    /// The file is below `--min-size`.
    TooSmall,
    /// Older than `--max-age`.
    TooOld,
    /// Younger than `--min-age`.
    TooYoung,
    /// The source itself.
    Itself,
    /// A link out of the tree (`--safe-links`).
    UnsafeLink,
    /// The target's file is not shorter (`--append-verify`).
    NotShorter,
}

impl LeftOut {
    /// The flag, or a word for [`LeftOut::Itself`].
    pub fn name(self) -> &'static str {
        match self {
            Self::Missing => "existing",
            Self::Exists => "ignore-existing",
            Self::Newer => "update",
            Self::TooLarge => "max-size",
            Self::TooSmall => "min-size",
            Self::TooOld => "max-age",
            Self::TooYoung => "min-age",
            Self::Itself => "itself",
            Self::UnsafeLink => "safe-links",
            Self::NotShorter => "append-verify",
        }
    }
}

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryType {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A further name.
    HardLink,
    /// A device.
    Device,
    /// A FIFO or socket.
    Special,
}

/// Differences from what stood at the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "the columns of rsync's --itemize-changes")]
pub struct Changed {
    /// No entry of this kind stood there.
    pub new: bool,
    /// Contents or link target; of files if compared.
    pub content: bool,
    /// The size.
    pub size: bool,
    /// Modification time.
    pub time: bool,
    /// The permissions.
    pub mode: bool,
    /// The owner.
    pub owner: bool,
    /// The group.
    pub group: bool,
}

/// One entry, and what changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemTold {
    /// Path; empty for the root.
    pub path: Vec<u8>,
    /// The kind.
    pub kind: EntryType,
    /// Bytes of file or link.
    pub size: u64,
    /// Target of a symbolic link, or first name.
    pub link: Option<Vec<u8>>,
    /// Permission bits.
    pub mode: u32,
    /// Modification time in seconds since the epoch.
    pub mtime_s: i64,
    /// Owner; `u32::MAX` if not copied.
    pub uid: u32,
    /// Group; `u32::MAX` if not copied.
    pub gid: u32,
    /// Whether data moves.
    pub data_moved: bool,
    /// Whether the entry is made.
    pub made: bool,
    /// The differences.
    pub changed: Changed,
}
