//! Tools for this host alone.
//!
//! ```text
//!   bench    how fast each way across this host is
//!   record   a stream that should not be held up, into a file
//!   tune     what this host should be set to for a path
//! ```

#![forbid(unsafe_code)]

pub mod bench;
pub mod record;
pub mod tune;
