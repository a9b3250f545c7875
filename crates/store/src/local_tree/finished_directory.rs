//! Gives a finished directory its mode and time back after names changed in it.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, Timespec, Timestamps, UTIME_OMIT};

use crate::meta::{self, Stat};

pub(super) struct FinishedDirectory {
    before: Stat,
    /// The mode kept the owner out.
    is_opened_up: bool,
}

impl FinishedDirectory {
    pub(super) fn open_up(directory: BorrowedFd<'_>) -> io::Result<Self> {
        let before = Stat::of_name(directory, b".")?;
        Ok(Self { before, is_opened_up: meta::open_up(directory, b".")? })
    }

    /// A wrong time does no harm to the data.
    pub(super) fn give_back_time(&self, directory: BorrowedFd<'_>) {
        let mtime = self.before.mtime;
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec { tv_sec: mtime.s, tv_nsec: mtime.ns.into() },
        };
        let _ = rustix::fs::utimensat(directory, ".", &times, AtFlags::empty());
    }

    pub(super) fn give_back_mode(&self, directory: BorrowedFd<'_>) -> io::Result<()> {
        if self.is_opened_up { haul_sys::file::set_mode(directory, self.before.mode) } else { Ok(()) }
    }
}
