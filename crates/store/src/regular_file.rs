//! Checks and flags for opening a regular file to read.

use std::io;

use rustix::fs::OFlags;

use crate::error::refusal;
use crate::meta::{Kind, Stat};

/// Fails unless the entry is a regular file: reading a FIFO could hang, and reading a device may never end.
pub(crate) fn check(stat: &Stat) -> io::Result<()> {
    match stat.kind {
        Kind::File => Ok(()),
        _ => Err(refusal(io::ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

/// Non-blocking, because the name may have become a FIFO since it was listed.
pub(crate) const READ_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
