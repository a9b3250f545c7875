//! A filter rule on the wire; its meaning stands at the matching.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::bounded;
use crate::limits::MAX_PATH_BYTES;

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct FilterRule {
    /// Include, not exclude.
    pub include: bool,
    /// rsync's pattern, or a merge file's name.
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_PATH_BYTES>")]
    pub pattern: Vec<u8>,
    pub sides: Sides,
    pub negated: bool,
    pub perishable: bool,
    /// A file of rules in each directory instead.
    pub merge: Option<Merge>,
}

/// Where a rule holds.
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

/// A merge file's form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum MergeFormat {
    Rules,
    Includes,
    Excludes,
    Cvs,
}
