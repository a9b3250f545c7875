//! Ends: where trees are read, and where they are written.
//!
//! ```text
//!   SourceTree -> items (a walk), files to read             this host's disk, zeros, stripes
//! ```
//! A session knows an end by these traits alone. A file of this host also says that it is one, so that it keeps its
//! routes and its speed.

pub(crate) mod abilities;
pub(crate) mod journal;
mod local;
pub(crate) mod nowhere;
pub(crate) mod one_file;
pub(crate) mod reading;
pub(crate) mod writing;
pub(crate) mod zeros;
