//! Flushes a part to the medium: by itself, or with its whole file system.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;

use haul_sys::{file, file_system};
use rustix::io::Errno;

use super::Part;
use crate::error::{Context, Result, StoreError};

impl Part {
    /// Waits until all writes are on the medium. After a failure every further flush fails, and the file must be written
    /// anew: the kernel drops what it could not write, and reports this once.
    pub fn flush(&self) -> Result<()> {
        self.flush_by(file::flush_data)
    }

    /// Whether the file system's flush may replace this part's ([`Part::has_shared_flush`]). In place, flushes have an
    /// order.
    pub fn can_share_flush(&self) -> bool {
        let failed = self.flush_error.load(Ordering::Acquire) != 0;
        !self.file.inplace && !failed && file_system::flush_tells_errors()
    }

    /// Whether the file system's flush is as good as each file's own.
    pub fn has_shared_flush(&self) -> bool {
        file_system::flush_is_whole(self.file.fd.as_fd())
    }

    /// Flushes the whole file system: the writes of this part and parts opened later ([`Part::opened_number`]). An error
    /// names no file: each part then needs its own flush.
    pub fn flush_file_system(&self) -> io::Result<()> {
        file_system::flush(self.file.fd.as_fd())
    }

    /// The order of opening. Its data was written after parts with smaller numbers were opened.
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

    /// Flushes all, if asked to, and checks for errors at close.
    pub fn finish_flush(&self, flush: bool) -> Result<()> {
        if flush {
            self.flush_by(file::flush_all)?;
        } else if self.flush_error.load(Ordering::Acquire) != 0 {
            self.flush()?;
        }
        self.check_close()
    }

    /// Fails if the file system kept an error for the close.
    pub fn check_close(&self) -> Result<()> {
        // A file with lost data must not get its name.
        file::check_close(self.file.fd.as_fd()).context("close", &self.file.path)
    }
}
