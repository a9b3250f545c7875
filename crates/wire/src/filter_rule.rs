//! A filter rule on the wire; its meaning is documented where the rules are matched.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::bounded;
use crate::limits::MAX_PATH_BYTES;

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct FilterRule {
    /// Include rather than exclude.
    pub include: bool,
    /// rsync's pattern language; of a merge file, its name.
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_PATH_BYTES>")]
    pub pattern: Vec<u8>,
    pub sides: Sides,
    pub negated: bool,
    pub perishable: bool,
    /// Not a pattern, but a file with rules in each directory.
    pub merge: Option<Merge>,
}

/// The sides for which a rule holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Sides {
    Both,
    Sender,
    Receiver,
}

/// How a merge file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Merge {
    pub inherits: bool,
    pub excludes_itself: bool,
    pub words: bool,
    pub format: MergeFormat,
}

/// The form of a merge file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum MergeFormat {
    Rules,
    Includes,
    Excludes,
    Cvs,
}
