//! Rules of a job that carry rsync's names: what becomes of what is replaced, and who owns what is copied.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::bounded;
use crate::limits::{MAX_PATH_BYTES, MAX_REFERENCES, MAX_TEXT_BYTES};

/// What is replaced or deleted stays under another name (`--backup`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backup {
    /// It is put behind the name.
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_TEXT_BYTES>")]
    pub suffix: Vec<u8>,
    /// The directory that gets it, with its path in the target; relative to the target. Empty: it stays where it is.
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_PATH_BYTES>")]
    pub directory: Vec<u8>,
}

/// Which entries of the sources come, beyond filter rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entries {
    /// Directories come without their contents, but for those that were named with a slash behind (`--dirs`).
    pub dirs: bool,
    /// Directories in which nothing comes stay away, too (`--prune-empty-dirs`).
    pub prune_empty_dirs: bool,
    /// Symbolic links that lead out of the tree are left out (`--safe-links`).
    pub safe_links: bool,
    /// Devices come, too (`--devices`).
    pub devices: bool,
    /// FIFOs and sockets come, too (`--specials`).
    pub specials: bool,
}

/// Where data stands until its file has its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drafts {
    /// The directory of unfinished files; empty: each stands beside its place.
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_PATH_BYTES>")]
    pub directory: Vec<u8>,
    /// `directory` is a name, and each directory of the target has one (`--partial-dir`). Otherwise it is one for all; a
    /// relative path begins at the target (`--temp-dir`).
    pub in_each: bool,
    /// Files get their names at the end; until then they wait in directories of this name, if it is not empty
    /// (`--delay-updates`).
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_TEXT_BYTES>")]
    pub delayed_in: Vec<u8>,
}

/// Trees beside the target that may have a file already (`--link-dest`, `--copy-dest`, `--compare-dest`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct References {
    /// Their directories, the first to look at first; relative to the target.
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_REFERENCES>")]
    pub directories: Vec<Vec<u8>>,
    /// What is made of a file that one of them has.
    pub made: OfReference,
}

/// What is made of a file that a reference tree has as the source has it. If its metadata alone differs, it is copied from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OfReference {
    /// Nothing.
    Nothing,
    /// A copy.
    Copy,
    /// A hard link.
    HardLink,
}

/// Users or groups of the source, and who owns their entries at the target (`--usermap`, `--groupmap`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountRule {
    /// Of the source.
    pub from: Accounts,
    /// A name of the target, or a number in decimal digits.
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_TEXT_BYTES>")]
    pub to: Vec<u8>,
}

/// Users or groups of the source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Accounts {
    /// Those with these numbers.
    Numbers {
        /// The first one.
        first: u32,
        /// The last one.
        last: u32,
    },
    /// Those whose name matches the pattern. Without a name at the source, the name is empty.
    Named(#[serde(deserialize_with = "bounded::at_most::<_, _, MAX_TEXT_BYTES>")] Vec<u8>),
}
