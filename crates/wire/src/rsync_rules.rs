//! Rules of a job that carry rsync's names: what becomes of what is replaced, and who owns what is copied.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::bounded;
use crate::limits::{MAX_PATH_BYTES, MAX_TEXT_BYTES};

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
