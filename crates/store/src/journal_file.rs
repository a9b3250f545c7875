//! A journal as a file: beside the draft, or on this host for other ends.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use haul_sys::{file, process};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::ends::journal::Journal;
use crate::error::refusal;
use crate::limits::MAX_JOURNAL_BYTES;
use crate::meta::Stat;
use crate::name::{is_journal_name, journal_name};
use crate::own_file::{begin_journal, is_still_there, lock, open_journal, open_own, unlink_if_there};

/// A journal under a name in an open directory.
#[derive(Debug)]
pub struct JournalFile {
    directory: Arc<OwnedFd>,
    name: Vec<u8>,
    user: u32,
    open: Mutex<Option<OwnedFd>>,
    exists: AtomicBool,
}

impl JournalFile {
    pub(crate) fn new(directory: Arc<OwnedFd>, name: Vec<u8>, user: u32, open: Option<OwnedFd>, exists: bool) -> Self {
        Self { directory, name, user, open: Mutex::new(open), exists: AtomicBool::new(exists) }
    }

    /// The journal of a draft at another end, in a directory of this host; `draft` names end and path.
    pub fn in_directory(directory: &Path, draft: &[u8]) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = Arc::new(rustix::io::retry_on_intr(|| rustix::fs::open(directory, flags, Mode::empty()))?);
        Ok(Self::new(directory, journal_name(draft), process::effective_user(), None, true))
    }

    /// The journals in such a directory, at most so many.
    pub fn all_in_directory(directory: &Path, most: usize) -> io::Result<Vec<Self>> {
        let names = std::fs::read_dir(directory)?.map(|entry| entry.map(|entry| entry.file_name().into_vec()));
        let names = names.filter(|name| name.as_ref().map_or(true, |name| is_journal_name(name))).take(most);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = Arc::new(rustix::io::retry_on_intr(|| rustix::fs::open(directory, flags, Mode::empty()))?);
        let user = process::effective_user();
        names.map(|name| Ok(Self::new(Arc::clone(&directory), name?, user, None, true))).collect()
    }

    /// Reads and holds the journal of an earlier run. `None`: there is none, or it may be somebody else's. Waits for a
    /// process that is about to end.
    ///
    /// # Errors
    /// Another process holds it ([`io::ErrorKind::WouldBlock`]).
    pub fn resume(&self) -> io::Result<Option<Vec<u8>>> {
        self.hold(lock)
    }

    /// [`JournalFile::resume`], without a wait.
    pub fn resume_at_once(&self) -> io::Result<Option<Vec<u8>>> {
        self.hold(|journal| match file::try_lock(journal.as_fd())? {
            true => Ok(()),
            false => Err(refusal(io::ErrorKind::WouldBlock, "another haul is writing this file")),
        })
    }

    fn hold(&self, take: impl Fn(&OwnedFd) -> io::Result<()>) -> io::Result<Option<Vec<u8>>> {
        let mut open = self.lock();
        if let Some(held) = &*open {
            return read(held, &Stat::of_fd(held)?);
        }
        let Some((journal, _)) = open_own(&self.directory, &self.name, self.user)? else { return Ok(None) };
        take(&journal)?;
        // The earlier holder may have written on.
        let stat = Stat::of_fd(&journal)?;
        let Some(bytes) = read(&journal, &stat)? else { return Ok(None) };
        if !is_still_there(&self.directory, &self.name, &stat) {
            return Ok(None);
        }
        *open = Some(journal);
        Ok(Some(bytes))
    }

    fn lock(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn read(journal: &OwnedFd, stat: &Stat) -> io::Result<Option<Vec<u8>>> {
    if stat.size > MAX_JOURNAL_BYTES {
        return Ok(None);
    }
    let mut bytes = vec![0; stat.size as usize];
    let len = file::read_full_at(journal.as_fd(), &mut bytes, 0)?;
    bytes.truncate(len);
    Ok(Some(bytes))
}

impl Journal for JournalFile {
    fn begin(&self, header: &[u8], begun: &mut dyn FnMut()) -> io::Result<()> {
        let mut open = self.lock();
        let fd = match &mut *open {
            Some(fd) => fd,
            none => none.insert(open_journal(&self.directory, &self.name, self.user)?),
        };
        self.exists.store(true, Ordering::Release);
        begin_journal(fd, header)?;
        begun();
        file::flush_data(fd.as_fd())?;
        // The draft beside it survives a crash, too.
        file::flush_directory(self.directory.as_fd())
    }

    fn append(&self, record: &[u8]) -> io::Result<()> {
        let open = self.lock();
        let fd = open.as_ref().ok_or_else(|| refusal(io::ErrorKind::NotFound, "it has no journal"))?;
        let end = Stat::of_fd(fd)?.size;
        if end.saturating_add(record.len() as u64) > MAX_JOURNAL_BYTES {
            return Err(Errno::FBIG.into());
        }
        file::write_all_at(fd.as_fd(), record, end)?;
        file::flush_data(fd.as_fd())
    }

    fn keep(&self, len: u64) -> io::Result<()> {
        let open = self.lock();
        let Some(fd) = open.as_ref() else { return Ok(()) };
        if Stat::of_fd(fd)?.size != len {
            file::set_size(fd.as_fd(), len)?;
            file::flush_data(fd.as_fd())?;
        }
        Ok(())
    }

    fn remove(&self) -> io::Result<()> {
        if !self.exists.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        *self.lock() = None;
        unlink_if_there(&self.directory, &self.name).map(drop)
    }
}
