//! Ends: where trees are read, and where they are written.
//!
//! ```text
//!   SourceTree: items (a walk), files to read           this host's disk, zeros, stripes
//!   TargetTree: entries, drafts of files, journals      this host's disk, nowhere
//!   PlaceTree:  one path at a time, for people          ends where no haul runs
//! ```
//! A session knows an end by these traits alone. An end of this host also hands out its local tree, file or part, so that
//! the session can use the routes of the kernel. `tests/conformance` has the scenarios that every end must pass.

pub(crate) mod abilities;
pub(crate) mod connections;
pub(crate) mod journal;
mod local;
pub(crate) mod nowhere;
pub(crate) mod one_file;
pub(crate) mod place_tree;
pub(crate) mod reading;
pub(crate) mod sums;
pub(crate) mod writing;
pub(crate) mod zeros;
