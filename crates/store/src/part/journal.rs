//! The journal of a part: it lists the ranges on the medium, for another run.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::{Arc, PoisonError};

use haul_sys::file;

use super::{Part, given_up};
use crate::ends::journal::Journal as _;
use crate::error::{Context, Result};
use crate::journal_file::JournalFile;
use crate::name::split;

impl Part {
    /// See [`FileToWrite::journal_start`](crate::FileToWrite::journal_start). A discarded part's journal would be nobody's,
    /// or another's.
    pub fn journal_start(&self, header: &[u8]) -> Result<()> {
        self.start_journal(header).context("start the journal of", &self.file.path)
    }

    fn start_journal(&self, header: &[u8]) -> io::Result<()> {
        let discarded = self.discarded.lock().unwrap_or_else(PoisonError::into_inner);
        if *discarded {
            return Err(given_up());
        }
        self.settings.made.forget(split(&self.file.path).0);
        // `discard` may run once the journal exists, and removes it after the flush.
        let mut discarded = Some(discarded);
        self.journal().begin(header, &mut || discarded = None)?;
        // A directory made for parts must be findable, too.
        match Arc::ptr_eq(&self.file.parent, &self.file.drafts) {
            true => Ok(()),
            false => file::flush_directory(self.file.parent.as_fd()),
        }
    }

    /// See [`Journal::append`](crate::Journal::append).
    pub fn journal_append(&self, record: &[u8]) -> Result<()> {
        self.journal().append(record).context("append to the journal of", &self.file.path)
    }

    /// See [`Journal::keep`](crate::Journal::keep).
    pub fn journal_keep(&self, len: u64) -> Result<()> {
        self.journal().keep(len).context("cut the journal of", &self.file.path)
    }

    pub(super) fn remove_journal(&self) -> io::Result<()> {
        self.journal.get().map_or(Ok(()), |journal| journal.remove())
    }

    pub(crate) fn journal(&self) -> &JournalFile {
        let name = || self.file.journal_name.clone();
        self.journal.get_or_init(|| JournalFile::new(self.file.drafts.clone(), name(), self.settings.user, None, false))
    }
}
