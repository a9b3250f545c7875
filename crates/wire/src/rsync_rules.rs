//! Rules of a job that carry rsync's names.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::bounded;
use crate::limits::{MAX_PATH_BYTES, MAX_REFERENCES, MAX_TEXT_BYTES};

/// Replaced and deleted entries are kept (`--backup`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backup {
    /// Behind the name.
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_TEXT_BYTES>")]
    pub suffix: Vec<u8>,
    /// Here backups keep their path, relative to the target. Empty: beside the entry.
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_PATH_BYTES>")]
    pub directory: Vec<u8>,
}

/// Entries that come, beyond filter rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entries {
    /// Directories without contents, unless named with a slash (`--dirs`).
    pub dirs: bool,
    /// No empty directories (`--prune-empty-dirs`).
    pub prune_empty_dirs: bool,
    /// No symbolic links out of the tree (`--safe-links`).
    pub safe_links: bool,
    /// Devices, too (`--devices`).
    pub devices: bool,
    /// FIFOs and sockets, too (`--specials`).
    pub specials: bool,
}

/// How much an attribute is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wish {
    /// The target's stays (`--no-times`).
    No,
    /// Set where the target's user may; the rest stays, with a warning.
    #[default]
    Usual,
    /// Asked for (`-t`, `-a`): an entry fails where it cannot be set.
    InWords,
}

/// Attributes that come unasked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wishes {
    /// Permission bits.
    pub permissions: Wish,
    /// Times of other entries.
    pub times: Wish,
    /// Times of directories (`--omit-dir-times`).
    pub directory_times: Wish,
    /// Times of symbolic links (`--omit-link-times`).
    pub link_times: Wish,
}

/// Where unfinished data stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drafts {
    /// Directory of unfinished files; empty: beside their places.
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_PATH_BYTES>")]
    pub directory: Vec<u8>,
    /// One `directory` in each directory (`--partial-dir`); else one for all, relative to the target (`--temp-dir`).
    pub in_each: bool,
    /// Files wait in directories of this name, unless empty, for their names (`--delay-updates`).
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_TEXT_BYTES>")]
    pub delayed_in: Vec<u8>,
}

/// Trees that may have a file (`--link-dest`, `--copy-dest`, `--compare-dest`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct References {
    /// Directories in order of search, relative to the target.
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_REFERENCES>")]
    pub directories: Vec<Vec<u8>>,
    /// The use of a found file.
    pub made: OfReference,
}

/// The use of a matching file; one with other metadata is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OfReference {
    /// No file is made.
    Nothing,
    /// A copy.
    Copy,
    /// A hard link.
    HardLink,
}

/// New owners of entries (`--usermap`, `--groupmap`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountRule {
    /// Accounts at the source.
    pub from: Accounts,
    /// A target's name or number.
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_TEXT_BYTES>")]
    pub to: Vec<u8>,
}

/// Users or groups of the source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Accounts {
    /// Numbered accounts.
    Numbers {
        /// The first one.
        first: u32,
        /// The last one.
        last: u32,
    },
    /// Matching names; unnamed ones are empty.
    Named(#[serde(deserialize_with = "bounded::at_most::<_, _, MAX_TEXT_BYTES>")] Vec<u8>),
}
