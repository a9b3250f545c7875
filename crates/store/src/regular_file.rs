//! Checks and flags for opening a regular file to read.

use std::io;

use rustix::fs::OFlags;

use crate::error::refusal;
use crate::meta::{Kind, Stat};

/// Refuses a FIFO, which could hang, or a device, which may never end.
pub(crate) fn check(stat: &Stat) -> io::Result<()> {
    match stat.kind {
        Kind::File => Ok(()),
        _ => Err(refusal(io::ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

/// Non-blocking: the name may be a FIFO by now.
pub(crate) const READ_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
