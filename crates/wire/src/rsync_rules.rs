//! Rules of a job that carry rsync's names: for replaced entries, and for owners.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::bounded;
use crate::limits::{MAX_PATH_BYTES, MAX_REFERENCES, MAX_TEXT_BYTES};

/// Replaced and deleted entries stay under another name (`--backup`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backup {
    /// The suffix behind the name.
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_TEXT_BYTES>")]
    pub suffix: Vec<u8>,
    /// The directory for backups, which keep their path in the target; relative to the target. Empty: beside the entry.
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_PATH_BYTES>")]
    pub directory: Vec<u8>,
}

/// The entries of the sources to copy, beyond filter rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entries {
    /// Directories come without their contents, except those that were named with a slash behind (`--dirs`).
    pub dirs: bool,
    /// Directories in which nothing comes are left out, too (`--prune-empty-dirs`).
    pub prune_empty_dirs: bool,
    /// Symbolic links that lead out of the tree are left out (`--safe-links`).
    pub safe_links: bool,
    /// Devices come, too (`--devices`).
    pub devices: bool,
    /// FIFOs and sockets come, too (`--specials`).
    pub specials: bool,
}

/// How much an attribute of an entry is wanted at the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wish {
    /// The target keeps its own (`--no-times`).
    No,
    /// It is set wherever the user at the target may set it. What only another user may set stays, with a warning.
    #[default]
    Usual,
    /// Asked for in words (`-t`, `-a`): an entry on which it cannot be set has failed.
    InWords,
}

/// The attributes that come without a word for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wishes {
    /// Permission bits.
    pub permissions: Wish,
    /// Times of all but directories and symbolic links.
    pub times: Wish,
    /// Times of directories (`--omit-dir-times`).
    pub directory_times: Wish,
    /// Times of symbolic links (`--omit-link-times`).
    pub link_times: Wish,
}

/// The place of data until its file has its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drafts {
    /// The directory of unfinished files; empty: each stands beside its place.
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_PATH_BYTES>")]
    pub directory: Vec<u8>,
    /// `directory` is a name, and each directory of the target has one (`--partial-dir`). Otherwise it is one for all;
    /// a relative path begins at the target (`--temp-dir`).
    pub in_each: bool,
    /// Files get their names at the end; until then they wait in directories of this name, if it is not empty
    /// (`--delay-updates`).
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_TEXT_BYTES>")]
    pub delayed_in: Vec<u8>,
}

/// Trees beside the target that may have a file already (`--link-dest`, `--copy-dest`, `--compare-dest`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct References {
    /// The directories, the first to search first; relative to the target.
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_REFERENCES>")]
    pub directories: Vec<Vec<u8>>,
    /// The result for a file that one of them has.
    pub made: OfReference,
}

/// The result for a file that a reference tree has as the source has it. If only its metadata differ, it is copied from
/// there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OfReference {
    /// Nothing.
    Nothing,
    /// A copy.
    Copy,
    /// A hard link.
    HardLink,
}

/// Users or groups of the source, and the owner of their entries at the target (`--usermap`, `--groupmap`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountRule {
    /// The users or groups of the source.
    pub from: Accounts,
    /// A name of the target, or a number in decimal digits.
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_TEXT_BYTES>")]
    pub to: Vec<u8>,
}

/// Users or groups of the source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Accounts {
    /// Users or groups with these numbers.
    Numbers {
        /// The first one.
        first: u32,
        /// The last one.
        last: u32,
    },
    /// Users or groups whose name matches the pattern. Without a name at the source, the name is empty.
    Named(#[serde(deserialize_with = "bounded::at_most::<_, _, MAX_TEXT_BYTES>")] Vec<u8>),
}
