//! A file being written.
//!
//! Make or resume a part under its temporary name -> lock it -> write ranges in any order -> record in the journal what
//! has been flushed -> set metadata, flush, rename over the final name, remove the journal. A crash at any point leaves
//! the final name as it was or complete, and a part that can be resumed.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use haul_sys::direct::DirectFile;
use haul_sys::file;
use haul_sys::medium::Medium;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::error::{Context, Result, StoreError, refusal};
use crate::limits::{MAX_JOURNAL_BYTES, MAX_PART_ATTEMPTS, ZERO_BUFFER_BYTES};
use crate::meta::{self, Kind, Metadata, Stat};
use crate::name::{check_new_path, journal_name, part_name, split};
use crate::placed::TWIN;
use crate::tree::{Settings, TargetTree};
use crate::trial::{self, Trial};

/// A file being written, locked against other processes. Shared by threads.
#[derive(Debug)]
pub struct Part {
    fd: OwnedFd,
    parent: Arc<OwnedFd>,
    settings: Arc<Settings>,
    /// For messages; its last component is the final name.
    path: Vec<u8>,
    /// What the content is called now: the temporary name, or the final one when written in place.
    current_name: Vec<u8>,
    inplace: bool,
    /// Inode and mode when it was opened.
    opened: Stat,
    journal: Mutex<Option<OwnedFd>>,
    has_journal: AtomicBool,
    /// Its temporary name may be that of another part by now. Held while names change, before the journal.
    discarded: Mutex<bool>,
    /// The first failed flush, as its error number. After it the kernel may report success for data that is lost.
    flush_error: AtomicI32,
    /// Opened when first asked for; none where the file system has no direct I/O.
    direct: OnceLock<Option<DirectFile>>,
    allocated: Mutex<bool>,
}

impl TargetTree {
    /// An empty part for `path`, locked. One left behind is emptied and used again, unless another process holds it.
    ///
    /// In place means writing into the final file itself, whose content stays until it is overwritten. The journal of an earlier run stays as
    /// well: until another begins it says that the file is not finished.
    pub fn new_part(&self, path: &[u8], inplace: bool) -> Result<Part> {
        let made = check_new_path(path).and_then(|()| {
            self.within_parent(path, |dir, name| {
                let current_name = if inplace { name.to_vec() } else { part_name(name) };
                let (fd, opened) = open_new(dir, &current_name, inplace, self.settings.user)?;
                if inplace {
                    self.settings.check_placed(&opened, path)?;
                    let has_journal = Stat::of_name(dir.as_fd(), &journal_name(name)).is_ok();
                    let part = self.part(fd, opened, dir, path, current_name, inplace, None);
                    part.has_journal.store(has_journal, Ordering::Release);
                    return Ok(part);
                }
                let had_journal = unlink_if_there(dir, &journal_name(name))?;
                let part = self.part(fd, opened, dir, path, current_name, inplace, None);
                // Of an earlier part: it describes content that this one does not have. On file systems that flush a file without the
                // names that changed before (btrfs), a power cut could bring it back beside new data.
                if had_journal {
                    part.flush_parent()?;
                }
                Ok(part)
            })
        });
        made.context("write", path)
    }

    /// Writes down, before it is opened, that a file is about to be written in place; with `flush` it waits until that is on the medium.
    /// `header` makes the beginning of a journal, of the device and inode that stand there.
    pub fn mark_unfinished(
        &self,
        path: &[u8],
        header: impl Fn(Option<(u64, u64)>) -> Vec<u8>,
        flush: bool,
    ) -> Result<()> {
        let marked = check_new_path(path).and_then(|()| {
            self.within_parent(path, |dir, name| {
                let standing = Stat::of_name(dir.as_fd(), name).ok();
                let journal = open_journal(dir, &journal_name(name), self.settings.user)?;
                self.remove_left_part(dir, name);
                begin_journal(&journal, &header(standing.map(|stat| (stat.id.dev, stat.id.ino))))?;
                if flush {
                    file::flush_data(journal.as_fd())?;
                    file::flush_directory(dir.as_fd())?;
                }
                Ok(())
            })
        });
        marked.context("mark as unfinished", path)
    }

    /// The first bytes, at most so many, of our own journal beside a file that has no part.
    pub fn journal_beside(&self, path: &[u8], most_bytes: usize) -> Option<Vec<u8>> {
        let (dir, name) = self.place(path).ok()?;
        let (journal, _) = open_own(&dir, &journal_name(name), self.settings.user).ok()??;
        if Stat::of_name(dir.as_fd(), &part_name(name)).is_ok() {
            return None;
        }
        let mut bytes = vec![0; most_bytes];
        let len = file::read_full_at(journal.as_fd(), &mut bytes, 0).ok()?;
        bytes.truncate(len);
        Some(bytes)
    }

    /// The part of an interrupted transfer and its journal; `None` unless both are there and are ours.
    pub fn resume_part(&self, path: &[u8], inplace: bool) -> Result<Option<(Part, Vec<u8>)>> {
        let resumed = check_new_path(path).and_then(|()| {
            let (_, name) = split(path);
            let (dir, _) = self.place(path)?;
            let Some((journal, journal_stat)) = open_own(&dir, &journal_name(name), self.settings.user)? else {
                return Ok(None);
            };
            if journal_stat.size > MAX_JOURNAL_BYTES {
                return Ok(None);
            }
            let current_name = if inplace { name.to_vec() } else { part_name(name) };
            let Some((fd, opened)) = open_own(&dir, &current_name, self.settings.user)? else { return Ok(None) };
            lock(&fd)?;
            // Whoever held the lock before may have finished: then this is the final file, or the journal is gone.
            if !is_still_there(&dir, &current_name, &opened)
                || !is_still_there(&dir, &journal_name(name), &journal_stat)
            {
                return Ok(None);
            }
            let mut bytes = vec![0; journal_stat.size as usize];
            let len = file::read_full_at(journal.as_fd(), &mut bytes, 0)?;
            bytes.truncate(len);
            Ok(Some((self.part(fd, opened, &dir, path, current_name, inplace, Some(journal)), bytes)))
        });
        match resumed {
            Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => Ok(None),
            resumed => resumed.context("resume", path),
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn part(
        &self,
        fd: OwnedFd,
        opened: Stat,
        parent: &Arc<OwnedFd>,
        path: &[u8],
        current_name: Vec<u8>,
        inplace: bool,
        journal: Option<OwnedFd>,
    ) -> Part {
        Part {
            fd,
            parent: parent.clone(),
            settings: self.settings.clone(),
            path: path.to_vec(),
            current_name,
            inplace,
            opened,
            has_journal: AtomicBool::new(journal.is_some()),
            journal: Mutex::new(journal),
            discarded: Mutex::new(false),
            flush_error: AtomicI32::new(0),
            direct: OnceLock::new(),
            allocated: Mutex::new(false),
        }
    }
}

impl Part {
    /// Writes all of `data` at `offset`.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        file::write_all_at(self.fd.as_fd(), data, offset).context("write", &self.path)
    }

    /// Whether it can be written past the page cache: the file system does direct I/O, and has not refused it so far.
    pub fn goes_past_cache(&self) -> bool {
        self.direct().is_some_and(|direct| !direct.is_refused())
    }

    /// [`Part::write_at`] past the page cache, as far as the file system lets it: whole blocks of the disk, out of memory that begins at a
    /// page.
    pub fn write_past_cache(&self, data: &[u8], offset: u64) -> Result<()> {
        match self.direct() {
            Some(direct) if offset.is_multiple_of(direct.alignment_bytes() as u64) => {
                direct.write_all_at(data, offset).context("write", &self.path)
            }
            _ => self.write_at(data, offset),
        }
    }

    fn direct(&self) -> Option<&DirectFile> {
        let open = || DirectFile::new(self.reopen_direct(OFlags::WRONLY)?, self.fd.try_clone().ok()?);
        self.direct.get_or_init(open).as_ref()
    }

    /// Opens the content once more, past the page cache: the flag belongs to the open file. Under the name may be another file by now.
    fn reopen_direct(&self, access: OFlags) -> Option<OwnedFd> {
        let flags = access | OFlags::DIRECT | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let open = || rustix::fs::openat(&self.parent, &self.current_name, flags, Mode::empty());
        let direct = rustix::io::retry_on_intr(open).ok()?;
        Stat::of_fd(&direct).is_ok_and(|now| now.is_same_inode(&self.opened)).then_some(direct)
    }

    /// Reads back what was written; fewer bytes mean the end of the file.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        file::read_full_at(self.fd.as_fd(), buffer, offset).context("read back", &self.path)
    }

    /// Makes a range read as zeros without allocating it. Beyond the end there is nothing to do: the file grows by a
    /// hole.
    pub fn punch(&self, offset: u64, len: u64) -> Result<()> {
        let punched = file::punch(self.fd.as_fd(), offset, len).and_then(|done| match done {
            true => Ok(()),
            false => self.write_zeros(offset, len),
        });
        punched.context("make a hole in", &self.path)
    }

    fn write_zeros(&self, offset: u64, len: u64) -> io::Result<()> {
        let end = offset.saturating_add(len).min(Stat::of_fd(&self.fd)?.size);
        let zeros = vec![0; ZERO_BUFFER_BYTES];
        let mut at = offset;
        while at < end {
            let step = (end - at).min(ZERO_BUFFER_BYTES as u64);
            file::write_all_at(self.fd.as_fd(), &zeros[..step as usize], at)?;
            at += step;
        }
        Ok(())
    }

    /// Cuts or extends (by a hole) the file.
    pub fn set_size(&self, size: u64) -> Result<()> {
        file::set_size(self.fd.as_fd(), size).context("set the size of", &self.path)
    }

    /// Fails early with `ENOSPC` when the file system clearly has no room for `size` bytes of data in this file.
    /// Nothing is allocated, so holes stay holes; pass the bytes that will really be stored.
    pub fn reserve(&self, size: u64) -> Result<()> {
        let Ok(space) = rustix::fs::fstatvfs(&self.fd) else { return Ok(()) };
        let allocated = Stat::of_fd(&self.fd).map_or(0, |stat| stat.blocks.saturating_mul(BLOCK_BYTES));
        let blocks = if self.settings.user == 0 { space.f_bfree } else { space.f_bavail };
        let free = blocks.saturating_mul(space.f_frsize);
        // Some file systems do not tell their size.
        if space.f_blocks > 0 && size.saturating_sub(allocated) > free {
            return Err(StoreError::new("find room for", &self.path, Errno::NOSPC));
        }
        Ok(())
    }

    /// Gives the file its size and room for it, the first time, so that writes past the page cache neither extend it nor look for room: on
    /// ext4 each such write would wait for all others. Where a file system cannot keep room free, only the size is set.
    pub fn allocate(&self, size: u64) -> Result<()> {
        let mut allocated = self.allocated.lock().unwrap_or_else(PoisonError::into_inner);
        if !*allocated {
            let done = file::reserve(self.fd.as_fd(), size).and_then(|_| file::set_size(self.fd.as_fd(), size));
            done.context("find room for", &self.path)?;
            *allocated = true;
        }
        Ok(())
    }

    /// Which file system it is on, also after a restart; `None` where that cannot be told.
    pub fn file_system_id(&self) -> Option<u64> {
        rustix::fs::fstatvfs(&self.fd).ok().map(|told| told.f_fsid).filter(|id| *id != 0)
    }

    /// Measures which way of writing is quicker in its directory.
    pub fn try_routes(&self) -> Result<Trial> {
        trial::try_in(self.parent.as_fd()).context("try ways to write beside", &self.path)
    }

    /// Asks the kernel to begin writing a range to the medium. Only a hint; errors show at the flush.
    pub fn start_writeback(&self, offset: u64, len: u64) {
        file::start_writeback(self.fd.as_fd(), offset, len);
    }

    /// Drops clean pages of a range from the cache, so that reading back comes from the medium.
    pub fn drop_cache(&self, offset: u64, len: u64) {
        file::drop_cache(self.fd.as_fd(), offset, len);
    }

    /// Waits until everything written so far is on the medium. After one failure it fails for ever: the kernel drops
    /// what it could not write and says so only once, so the file must be written anew.
    pub fn flush(&self) -> Result<()> {
        self.flush_by(file::flush_data)
    }

    fn flush_by(&self, flush: fn(BorrowedFd<'_>) -> io::Result<()>) -> Result<()> {
        match self.flush_error.load(Ordering::Acquire) {
            0 => {}
            failed => return Err(StoreError::new("flush", &self.path, io::Error::from_raw_os_error(failed))),
        }
        flush(self.fd.as_fd()).map_err(|error| {
            let code = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
            self.flush_error.store(code, Ordering::Release);
            StoreError::new("flush", &self.path, error)
        })
    }

    /// Opens the content once more, to read back what the medium holds of it: past the page cache, where the file system lets us.
    pub fn medium(&self) -> Result<Medium> {
        // Whatever stands in the way, the open descriptor can be read.
        let direct = self.reopen_direct(OFlags::RDONLY);
        let plain = self.fd.as_fd().try_clone_to_owned();
        plain.and_then(|plain| Medium::new(plain, direct)).context("read back", &self.path)
    }

    /// Device and inode, which the journal remembers.
    pub fn id(&self) -> (u64, u64) {
        (self.opened.id.dev, self.opened.id.ino)
    }

    /// What the file was when it was opened.
    pub fn opened_stat(&self) -> &Stat {
        &self.opened
    }

    /// The descriptor, open for reading and writing, for routes that move bytes inside the kernel.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Begins a journal that holds only `header`, and makes it and the part findable after a crash. Fails when the part was discarded
    /// meanwhile: it would be that of nothing, or of another part.
    pub fn journal_start(&self, header: &[u8]) -> Result<()> {
        self.start_journal(header).context("start the journal of", &self.path)
    }

    fn start_journal(&self, header: &[u8]) -> io::Result<()> {
        let discarded = self.discarded.lock().unwrap_or_else(PoisonError::into_inner);
        if *discarded {
            return Err(given_up());
        }
        let mut journal = self.journal();
        let fd = match &mut *journal {
            Some(fd) => fd,
            none => none.insert(open_journal(&self.parent, &self.journal_name(), self.settings.user)?),
        };
        self.has_journal.store(true, Ordering::Release);
        begin_journal(fd, header)?;
        // Who gives the part up meanwhile removes the journal after the flush.
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
        appended().context("append to the journal of", &self.path)
    }

    /// Keeps only the first bytes of a resumed journal, and waits until the rest is gone from the medium: a torn record at its end would
    /// hide all that follow, and what it claims wrongly could pass for true once the part has grown.
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
        cut().context("cut the journal of", &self.path)
    }

    /// Finishes the file: metadata, flush if asked, rename over the final name, removal of the journal. The directory
    /// is not flushed, see [`TargetTree::flush_dir`]. Without a mode in `meta` the user's umask decides, in place the
    /// mode stays.
    pub fn commit(&self, meta: &Metadata, flush: bool) -> Result<()> {
        self.prepare(meta, flush)?;
        self.give_name()
    }

    /// The first half of [`Part::commit`]: everything but the name.
    pub fn prepare(&self, meta: &Metadata, flush: bool) -> Result<()> {
        let default_mode = (!self.inplace).then_some(0o666 & !self.settings.umask);
        let meta = Metadata { mode: meta.mode.or(default_mode), ..meta.clone() };
        // In place its size and time are all that tells the finished file from one that was begun: after a power cut they must not be there
        // without the data.
        if self.inplace && flush {
            self.flush()?;
        }
        // Writing has changed the time, so only the mode of what was seen at the start still holds.
        let now = Stat { mtime: TIME_UNKNOWN, ..self.opened.clone() };
        meta::apply(self.fd.as_fd(), &now, &meta, &self.settings.namespaces).context("set metadata of", &self.path)?;
        if flush {
            self.flush_by(file::flush_all)?;
        } else if self.flush_error.load(Ordering::Acquire) != 0 {
            self.flush()?;
        }
        // What the file system knows to be lost must not get a name, whether or not anybody asked for the medium.
        file::check_close(self.fd.as_fd()).context("close", &self.path)
    }

    /// The second half of [`Part::commit`]: the final name. Fails when the part was discarded meanwhile: its temporary name may be that of
    /// another one.
    pub fn give_name(&self) -> Result<()> {
        let discarded = self.discarded.lock().unwrap_or_else(PoisonError::into_inner);
        if *discarded {
            return Err(StoreError::new("rename to", &self.path, given_up()));
        }
        if !self.inplace {
            self.rename().context("rename to", &self.path)?;
        }
        self.remove_journal().context("remove the journal of", &self.path)
    }

    /// Over the final name, unless another entry of this job stands there: its name and ours are one on this file system.
    fn rename(&self) -> io::Result<()> {
        self.settings.placed().note(&self.opened, &self.path);
        let renamed = self.rename_noted();
        if renamed.is_err() {
            self.settings.placed().forget(&self.opened, &self.path);
        }
        renamed
    }

    fn rename_noted(&self) -> io::Result<()> {
        let name = split(&self.path).1;
        // A name that is free cannot be another's: two that come at once are told apart here.
        let free = RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(&self.parent, &self.current_name, &self.parent, name, free) {
            Ok(()) => return Ok(()),
            // Not every file system has such a call.
            Err(Errno::EXIST | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
        // Nobody else of this job gives a name between the look and the rename.
        let mut placed = self.settings.placed();
        let standing = Stat::of_name(self.parent.as_fd(), name).ok();
        if standing.as_ref().is_some_and(|standing| placed.is_twin(standing, &self.path)) {
            return Err(refusal(io::ErrorKind::AlreadyExists, TWIN));
        }
        rustix::fs::renameat(&self.parent, &self.current_name, &self.parent, name)?;
        // Its inode is free now.
        if let Some(standing) = standing {
            placed.forget(&standing, &self.path);
        }
        Ok(())
    }

    /// Gives the file up: removes part and journal. A file written in place stays as it is, and so does the journal that tells that it is not
    /// finished.
    pub fn discard(&self) -> Result<()> {
        let mut discarded = self.discarded.lock().unwrap_or_else(PoisonError::into_inner);
        *discarded = true;
        if self.inplace {
            return Ok(());
        }
        let journal = self.remove_journal();
        // Only if the name is still ours: after a commit it may be somebody else's.
        if is_still_there(&self.parent, &self.current_name, &self.opened) {
            unlink_if_there(&self.parent, &self.current_name).context("discard", &self.path)?;
        }
        journal.context("remove the journal of", &self.path)
    }

    fn remove_journal(&self) -> io::Result<()> {
        if !self.has_journal.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        *self.journal() = None;
        unlink_if_there(&self.parent, &self.journal_name()).map(drop)
    }

    fn journal_name(&self) -> Vec<u8> {
        journal_name(split(&self.path).1)
    }

    fn journal(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn flush_parent(&self) -> io::Result<()> {
        file::flush_directory(self.parent.as_fd())
    }
}

fn given_up() -> io::Error {
    refusal(io::ErrorKind::NotFound, "it was given up meanwhile")
}

/// Opens `name` for writing, empty unless `keep_content`, locked, and surely a regular file of ours with no other name.
fn open_new(dir: &Arc<OwnedFd>, name: &[u8], keep_content: bool, user: u32) -> io::Result<(OwnedFd, Stat)> {
    let owner_only = Mode::RUSR | Mode::WUSR;
    for _ in 0..MAX_PART_ATTEMPTS {
        let create = WRITE_FLAGS | OFlags::CREATE | OFlags::EXCL;
        match rustix::io::retry_on_intr(|| rustix::fs::openat(dir, name, create, owner_only)) {
            Ok(fd) => {
                let locked = file::try_lock(fd.as_fd())?;
                let stat = Stat::of_fd(&fd)?;
                // Between the two calls it looked like a part left behind: whoever sweeps may hold or have removed it.
                if !locked || stat.nlink == 0 {
                    continue;
                }
                return Ok((fd, stat));
            }
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let fd = match rustix::io::retry_on_intr(|| rustix::fs::openat(dir, name, WRITE_FLAGS, Mode::empty())) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => continue,
            // A planted link, or a part of another user: it is removed, not followed and not used. The final file
            // itself, when it is written in place, is only ever replaced if it is a link.
            Err(error @ (Errno::LOOP | Errno::ACCESS | Errno::NXIO)) => {
                if keep_content && error != Errno::LOOP {
                    return Err(error.into());
                }
                unlink_if_there(dir, name)?;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let stat = Stat::of_fd(&fd)?;
        if keep_content {
            if stat.kind != Kind::File {
                return Err(refusal(io::ErrorKind::InvalidInput, "it is not a regular file"));
            }
            lock(&fd)?;
            return Ok((fd, stat));
        }
        if !is_own(&stat, user) {
            unlink_if_there(dir, name)?;
            continue;
        }
        lock(&fd)?;
        // Its last holder may have renamed it to its final name while we waited for nothing: then it is not ours.
        if !is_still_there(dir, name, &stat) {
            continue;
        }
        file::set_size(fd.as_fd(), 0)?;
        file::set_mode(&fd, 0o600)?;
        let stat = Stat::of_fd(&fd)?;
        return Ok((fd, stat));
    }
    Err(refusal(io::ErrorKind::ResourceBusy, "somebody keeps replacing its temporary file"))
}

/// Our own journal under this name as it is, locked, or a new one.
fn open_journal(dir: &Arc<OwnedFd>, name: &[u8], user: u32) -> io::Result<OwnedFd> {
    if let Some((journal, stat)) = open_own(dir, name, user)? {
        lock(&journal)?;
        // Whoever held it may have been done with it.
        if is_still_there(dir, name, &stat) {
            return Ok(journal);
        }
    }
    open_new(dir, name, false, user).map(|(journal, _)| journal)
}

/// Begins a journal anew. At every moment it has a beginning, the old or the new one; records of another count for nothing.
fn begin_journal(journal: &OwnedFd, header: &[u8]) -> io::Result<()> {
    file::write_all_at(journal.as_fd(), header, 0)?;
    file::set_size(journal.as_fd(), header.len() as u64)
}

/// Opens a part or journal left behind; `None` when it is missing or not certainly ours.
fn open_own(dir: &Arc<OwnedFd>, name: &[u8], user: u32) -> io::Result<Option<(OwnedFd, Stat)>> {
    match rustix::io::retry_on_intr(|| rustix::fs::openat(dir, name, WRITE_FLAGS, Mode::empty())) {
        Ok(fd) => {
            let stat = Stat::of_fd(&fd)?;
            Ok(is_own(&stat, user).then_some((fd, stat)))
        }
        Err(Errno::NOENT | Errno::LOOP | Errno::ACCESS | Errno::NXIO | Errno::ISDIR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Another name could lead to a file somewhere else, which must not change with this one.
pub(crate) fn is_own(stat: &Stat, user: u32) -> bool {
    stat.kind == Kind::File && stat.uid == user && stat.nlink == 1
}

pub(crate) fn is_still_there(dir: &OwnedFd, name: &[u8], opened: &Stat) -> bool {
    Stat::of_name(dir.as_fd(), name).is_ok_and(|now| now.is_same_inode(opened))
}

fn lock(fd: &OwnedFd) -> io::Result<()> {
    match file::try_lock(fd.as_fd())? {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::WouldBlock, is_written_by(file::lock_holder(fd.as_fd())))),
    }
}

fn is_written_by(holder: Option<u32>) -> String {
    let process = holder.map(|pid| format!(" (process {pid})")).unwrap_or_default();
    format!("another haul{process} is writing this file")
}

/// False when it was not there.
fn unlink_if_there(dir: &Arc<OwnedFd>, name: &[u8]) -> io::Result<bool> {
    match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Readable too, so that what was written can be verified. Non-blocking, because a planted FIFO must not hold us.
pub(crate) const WRITE_FLAGS: OFlags =
    OFlags::RDWR.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// Unit of `st_blocks`, whatever the file system's own blocks are.
const BLOCK_BYTES: u64 = 512;

/// No valid time has so many nanoseconds.
const TIME_UNKNOWN: crate::Time = crate::Time { s: 0, ns: u32::MAX };
