//! What an observer is told of an entry: the differences at the target, and the rule that leaves it out.

/// A rule that leaves an entry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// The source itself stands at the target.
    Itself,
    /// A symbolic link that leads out of the tree (`--safe-links`).
    UnsafeLink,
    /// The target's file is not shorter (`--append-verify`).
    NotShorter,
}

impl LeftOut {
    /// The name of the flag, or for [`LeftOut::Itself`] a word.
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
    /// A further name of a file.
    HardLink,
    /// A device.
    Device,
    /// A FIFO or socket.
    Special,
}

/// In what an entry differed from what stood at the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "the columns of rsync's --itemize-changes")]
pub struct Changed {
    /// No entry of this kind stood there.
    pub new: bool,
    /// The contents changed, or the target of a link; for files only if contents were compared.
    pub content: bool,
    /// The size changed.
    pub size: bool,
    /// The modification time changed.
    pub time: bool,
    /// The permissions changed.
    pub mode: bool,
    /// The owner changed.
    pub owner: bool,
    /// The group changed.
    pub group: bool,
}

/// One entry as the source has it, and what changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemTold {
    /// Path relative to the target; empty for the root.
    pub path: Vec<u8>,
    /// The kind of the entry.
    pub kind: EntryType,
    /// Bytes of a file, or of the text of a link.
    pub size: u64,
    /// Where a symbolic link leads, or the first name of a further one.
    pub link: Option<Vec<u8>>,
    /// Permission bits.
    pub mode: u32,
    /// Modification time: seconds since the epoch.
    pub mtime_s: i64,
    /// Numeric owner at the source; `u32::MAX` where owners are not copied.
    pub uid: u32,
    /// Numeric group at the source; `u32::MAX` where groups are not copied.
    pub gid: u32,
    /// The data moved, or would move.
    pub data_moved: bool,
    /// The entry was made, or would be.
    pub made: bool,
    /// The differences at the target.
    pub changed: Changed,
}
