//! The journal of a part: which ranges are on the medium, so that another run can resume.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

use haul_sys::file;
use rustix::io::Errno;

use super::{Part, given_up};
use crate::error::{Context, Result, refusal};
use crate::limits::MAX_JOURNAL_BYTES;
use crate::meta::Stat;
use crate::name::{journal_name, split};
use crate::own_file::{begin_journal, open_journal, unlink_if_there};

impl Part {
    /// Begins a journal that holds only `header`, and makes it and the part findable after a crash. Fails when the part
    /// was discarded meanwhile: the journal would belong to no part, or to another part.
    pub fn journal_start(&self, header: &[u8]) -> Result<()> {
        self.start_journal(header).context("start the journal of", &self.file.path)
    }

    fn start_journal(&self, header: &[u8]) -> io::Result<()> {
        let discarded = self.discarded.lock().unwrap_or_else(PoisonError::into_inner);
        if *discarded {
            return Err(given_up());
        }
        let mut journal = self.journal();
        let fd = match &mut *journal {
            Some(fd) => fd,
            none => none.insert(open_journal(&self.file.parent, &self.journal_name(), self.settings.user)?),
        };
        self.has_journal.store(true, Ordering::Release);
        begin_journal(fd, header)?;
        // `discard` may run from here on; it waits for the journal and removes it after the flush.
        drop(discarded);
        file::flush_data(fd.as_fd())?;
        self.flush_parent()
    }

    /// Appends a record and waits until it is on the medium.
    pub fn journal_append(&self, record: &[u8]) -> Result<()> {
        let journal = self.journal();
        let appended = || -> io::Result<()> {
            let fd = journal.as_ref().ok_or_else(|| refusal(io::ErrorKind::NotFound, "it has no journal"))?;
            let end = Stat::of_fd(fd)?.size;
            if end.saturating_add(record.len() as u64) > MAX_JOURNAL_BYTES {
                return Err(Errno::FBIG.into());
            }
            file::write_all_at(fd.as_fd(), record, end)?;
            file::flush_data(fd.as_fd())
        };
        appended().context("append to the journal of", &self.file.path)
    }

    /// Keeps only the first `len` bytes of a resumed journal, and waits until the rest is gone from the medium. A torn
    /// record at the end would hide all later records. A record beyond the end of the part is refused now, but could be
    /// believed once the part has grown.
    pub fn journal_keep(&self, len: u64) -> Result<()> {
        let journal = self.journal();
        let Some(fd) = journal.as_ref() else { return Ok(()) };
        let cut = || -> io::Result<()> {
            if Stat::of_fd(fd)?.size != len {
                file::set_size(fd.as_fd(), len)?;
                file::flush_data(fd.as_fd())?;
            }
            Ok(())
        };
        cut().context("cut the journal of", &self.file.path)
    }

    pub(super) fn remove_journal(&self) -> io::Result<()> {
        if !self.has_journal.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        *self.journal() = None;
        unlink_if_there(&self.file.parent, &self.journal_name()).map(drop)
    }

    fn journal_name(&self) -> Vec<u8> {
        journal_name(split(&self.file.path).1)
    }

    fn journal(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
