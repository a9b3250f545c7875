//! The ends where trees are read and written.
//!
//! ```text
//!   SourceTree: items (a walk), files to read           this host's disk, zeros, stripes
//!   TargetTree: entries, drafts of files, journals      this host's disk, nowhere
//!   PlaceTree:  one path at a time, for people          ends where no haul runs
//! ```
//! A session knows an end by these traits, and for the kernel's routes by this host's tree, file or part.
//! `tests/conformance` has every end's scenarios.

pub(crate) mod abilities;
pub(crate) mod connections;
pub(crate) mod journal;
mod local;
pub(crate) mod nowhere;
pub(crate) mod one_file;
pub(crate) mod place_tree;
pub(crate) mod reading;
pub(crate) mod sums;
pub(crate) mod third_party;
pub(crate) mod writing;
pub(crate) mod zeros;
