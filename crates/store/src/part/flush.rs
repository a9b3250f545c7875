//! How a part comes to the medium: by itself, or with all of its file system.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;

use haul_sys::{file, file_system};
use rustix::io::Errno;

use super::Part;
use crate::error::{Context, Result, StoreError};

impl Part {
    /// Waits until everything written so far is on the medium. After one failure it fails for ever: the kernel drops
    /// what it could not write and says so only once, so the file must be written anew.
    pub fn flush(&self) -> Result<()> {
        self.flush_by(file::flush_data)
    }

    /// Whether a flush of its file system, where there is a good one ([`Part::has_shared_flush`]), is enough for it. In place it is not: there
    /// flushes have an order.
    pub fn can_share_flush(&self) -> bool {
        let failed = self.flush_error.load(Ordering::Acquire) != 0;
        !self.file.inplace && !failed && file_system::flush_tells_errors()
    }

    /// Whether a flush of its file system is known to be as good for each of its files as their own.
    pub fn has_shared_flush(&self) -> bool {
        file_system::flush_is_whole(self.file.fd.as_fd())
    }

    /// Flushes all of its file system. What was written to any part of it that was opened after this one ([`Part::opened_number`]) is on the
    /// medium then. An error says nothing of which file it is about: then each has to be flushed by itself, and knows.
    pub fn flush_file_system(&self) -> io::Result<()> {
        file_system::flush(self.file.fd.as_fd())
    }

    /// Parts in the order in which they were opened: what is written to one was written after those with smaller numbers were open.
    pub fn opened_number(&self) -> u64 {
        self.number
    }

    fn flush_by(&self, flush: fn(BorrowedFd<'_>) -> io::Result<()>) -> Result<()> {
        match self.flush_error.load(Ordering::Acquire) {
            0 => {}
            failed => return Err(StoreError::new("flush", &self.file.path, io::Error::from_raw_os_error(failed))),
        }
        flush(self.file.fd.as_fd()).map_err(|error| {
            let code = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
            self.flush_error.store(code, Ordering::Release);
            StoreError::new("flush", &self.file.path, error)
        })
    }

    /// The last flush of content and metadata, if asked, and what the file system tells at a close.
    pub fn finish_flush(&self, flush: bool) -> Result<()> {
        if flush {
            self.flush_by(file::flush_all)?;
        } else if self.flush_error.load(Ordering::Acquire) != 0 {
            self.flush()?;
        }
        self.check_close()
    }

    /// Fails when the file system has kept an error of this file for the close.
    pub fn check_close(&self) -> Result<()> {
        // What the file system knows to be lost must not get a name, whether or not anybody asked for the medium.
        file::check_close(self.file.fd.as_fd()).context("close", &self.file.path)
    }
}
