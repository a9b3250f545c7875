//! A file being written.
//!
//! Make or resume a part under its temporary name -> lock it -> write ranges in any order -> record in the journal what
//! has been flushed -> set metadata, flush, rename over the final name, remove the journal. A crash leaves the final
//! name as it was or complete, and a part that can be resumed.

mod commit;
mod flush;
mod journal;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use haul_sys::direct::DirectFile;
use haul_sys::file;
use haul_sys::medium::{self, Medium};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Context, Result, StoreError, is_missing, refusal};
use crate::journal_file::{self, JournalFile};
use crate::limits::{MAX_JOURNAL_BYTES, ZERO_BUFFER_BYTES};
use crate::local_tree::{DraftPlace, Drafts, LocalTree, Settings};
use crate::meta::{STAT_BLOCK_BYTES, Stat};
use crate::name::{check_new_path, journal_name, part_name, split};
use crate::own_file::{begin_journal, is_still_there, lock, open_journal, open_new, open_own, unlink_if_there};
use crate::trial::{self, Trial};

/// A file being written, locked against other processes.
#[derive(Debug)]
pub struct Part {
    file: PartFile,
    number: u64,
    settings: Arc<Settings>,
    /// Set at first use, or from an earlier run.
    journal: OnceLock<JournalFile>,
    /// After giving up, the temporary name may be another part's. Locked while names change, before `journal`.
    discarded: Mutex<bool>,
    /// The first failed flush: later the kernel may report success for lost data.
    flush_error: AtomicI32,
    /// Opened at first use; `None` without direct I/O.
    direct: OnceLock<Option<DirectFile>>,
    allocated: Mutex<bool>,
    known_data: Mutex<(u64, u64)>,
    size: AtomicU64,
    extended: Mutex<bool>,
    hole_bytes: OnceLock<usize>,
}

#[derive(Debug)]
struct PartFile {
    fd: OwnedFd,
    opened: Stat,
    parent: Arc<OwnedFd>,
    drafts: Arc<OwnedFd>,
    journal_name: Vec<u8>,
    path: Vec<u8>,
    /// The temporary name, or in place the final one.
    current_name: Vec<u8>,
    inplace: bool,
}

impl LocalTree {
    /// Makes an empty, locked part. One left behind, unless held, is used again.
    ///
    /// With `inplace` it is the final file, whose content stays until overwritten. An earlier journal marks the file as
    /// unfinished until a new one begins.
    pub fn new_part(&self, path: &[u8], inplace: bool) -> Result<Part> {
        self.part_in(self.settings.drafts(inplace), path, inplace)
    }

    /// Makes an empty part beside `path`, where it is looked for, wherever others stand.
    pub fn new_part_beside(&self, path: &[u8]) -> Result<Part> {
        self.part_in(None, path, false)
    }

    fn part_in(&self, drafts: Option<&Drafts>, path: &[u8], inplace: bool) -> Result<Part> {
        // The look costs a call for each small file.
        let may_have_journal = drafts.is_some() || !self.settings.made.has(split(path).0);
        let made = check_new_path(path).and_then(|()| {
            self.within_parent(path, |dir, name| {
                let DraftPlace { dir: drafts, part, journal } = Drafts::place(drafts, dir, name, true)?;
                let (current_name, journal_name) = (if inplace { name.to_vec() } else { part }, journal);
                let (fd, opened) = open_new(&drafts, &current_name, inplace, self.settings.user)?;
                self.settings.kernel_files.check(&fd)?;
                let (parent, path) = (Arc::clone(dir), path.to_vec());
                let file = PartFile { fd, opened, parent, drafts, journal_name, path, current_name, inplace };
                if inplace {
                    // A run that wrote beside the file may have left a part.
                    self.remove_left_part(dir, name);
                    self.settings.check_placed(dir, &file.opened, &file.path)?;
                    let name = file.journal_name.clone();
                    let has_journal = Stat::of_name(dir.as_fd(), &name).is_ok();
                    let journal = || JournalFile::new(dir.clone(), name, self.settings.user, None, true);
                    return Ok(Part::new(self, file, has_journal.then(journal)));
                }
                let had_journal = may_have_journal && unlink_if_there(&file.drafts, &file.journal_name)?;
                let part = Part::new(self, file, None);
                // An earlier journal describes other content. On btrfs, where a file's flush leaves out changes of names, a
                // power cut could bring it back beside new data.
                if had_journal {
                    part.flush_parent()?;
                }
                Ok(part)
            })
        });
        made.context("write", path)
    }

    /// See [`TargetTree::mark_unfinished`](crate::TargetTree::mark_unfinished).
    pub fn mark_unfinished(
        &self,
        path: &[u8],
        header: impl Fn(Option<(u64, u64)>) -> Vec<u8>,
        flush: bool,
    ) -> Result<()> {
        self.settings.made.forget(split(path).0);
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

    /// See [`TargetTree::journal_of_file`](crate::TargetTree::journal_of_file).
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

    /// Opens a part that another host of this end has made and locked. Fails unless it has this inode, on the root's file
    /// system.
    pub fn share_part(&self, path: &[u8], inode: u64) -> Result<Part> {
        let shared = check_new_path(path).and_then(|()| {
            let (dir, name) = self.place(path)?;
            let DraftPlace { dir: drafts, part: current_name, journal: journal_name } =
                self.settings.draft_place(&dir, name, false, false)?;
            let missing = || refusal(io::ErrorKind::NotFound, "the draft of the leading host does not stand here");
            let (fd, opened) = open_own(&drafts, &current_name, self.settings.user)?.ok_or_else(missing)?;
            self.settings.kernel_files.check(&fd)?;
            let root = self.root_directory().ok_or_else(missing)?;
            if opened.id.ino != inode || opened.id.dev != Stat::of_fd(root)?.id.dev {
                return Err(missing());
            }
            let path = path.to_vec();
            let file = PartFile { fd, opened, parent: dir, drafts, journal_name, path, current_name, inplace: false };
            Ok(Part::new(self, file, None))
        });
        shared.context("write", path)
    }

    /// Opens an interrupted part and its journal, if both exist and are ours; beside the file, too, where parts have their
    /// own directory.
    pub fn resume_part(&self, path: &[u8], inplace: bool) -> Result<Option<(Part, Vec<u8>)>> {
        let drafts = self.settings.drafts(inplace);
        match self.resume_in(drafts, path, inplace)? {
            None if drafts.is_some() => self.resume_in(None, path, inplace),
            resumed => Ok(resumed),
        }
    }

    fn resume_in(&self, drafts: Option<&Drafts>, path: &[u8], inplace: bool) -> Result<Option<(Part, Vec<u8>)>> {
        let resumed = check_new_path(path).and_then(|()| {
            let (_, name) = split(path);
            let (parent, _) = self.place(path)?;
            let DraftPlace { dir, part, journal: own_journal } = Drafts::place(drafts, &parent, name, false)?;
            let Some((journal, journal_stat)) = open_own(&dir, &own_journal, self.settings.user)? else {
                return Ok(None);
            };
            if journal_stat.size > MAX_JOURNAL_BYTES {
                return Ok(None);
            }
            let current_name = if inplace { name.to_vec() } else { part };
            let Some((fd, opened)) = open_own(&dir, &current_name, self.settings.user)? else { return Ok(None) };
            self.settings.kernel_files.check(&fd).and_then(|()| lock(&fd))?;
            // The last holder may have finished: the file has its name, or the journal is gone.
            if !is_still_there(&dir, &current_name, &opened) || !is_still_there(&dir, &own_journal, &journal_stat) {
                return Ok(None);
            }
            let Some(bytes) = journal_file::read(&journal, &journal_stat)? else { return Ok(None) };
            let journal_name = own_journal.clone();
            let journal = JournalFile::new(dir.clone(), own_journal, self.settings.user, Some(journal), true);
            let (drafts, path) = (dir, path.to_vec());
            let file = PartFile { fd, opened, parent, drafts, journal_name, path, current_name, inplace };
            Ok(Some((Part::new(self, file, Some(journal)), bytes)))
        });
        match resumed {
            Err(error) if is_missing(&error) => Ok(None),
            resumed => resumed.context("resume", path),
        }
    }
}

impl Part {
    fn new(tree: &LocalTree, file: PartFile, journal: Option<JournalFile>) -> Part {
        Part {
            number: OPENED.fetch_add(1, Ordering::SeqCst),
            settings: tree.settings.clone(),
            journal: journal.map_or_else(OnceLock::new, OnceLock::from),
            discarded: Mutex::new(false),
            flush_error: AtomicI32::new(0),
            direct: OnceLock::new(),
            allocated: Mutex::new(false),
            size: AtomicU64::new(file.opened.size),
            extended: Mutex::new(false),
            known_data: Mutex::new((0, 0)),
            hole_bytes: OnceLock::new(),
            file,
        }
    }

    /// See [`FileToWrite::write_at`](crate::FileToWrite::write_at).
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        file::write_all_at(self.file.fd.as_fd(), data, offset).context("write", &self.file.path)?;
        self.reaches(offset + data.len() as u64);
        Ok(())
    }

    fn reaches(&self, end: u64) {
        self.size.fetch_max(end, Ordering::Relaxed);
    }

    /// Whether data goes past the page cache (direct I/O accepted so far).
    pub fn goes_past_cache(&self) -> bool {
        self.direct().is_some_and(|direct| !direct.is_refused())
    }

    /// [`Part::write_at`] past the page cache, as far as possible: whole disk blocks, from a page's beginning.
    pub fn write_past_cache(&self, data: &[u8], offset: u64) -> Result<()> {
        match self.direct() {
            Some(direct) if offset.is_multiple_of(direct.alignment_bytes() as u64) => {
                direct.write_all_at(data, offset).context("write", &self.file.path)?;
                self.reaches(offset + data.len() as u64);
                Ok(())
            }
            _ => self.write_at(data, offset),
        }
    }

    fn direct(&self) -> Option<&DirectFile> {
        let open = || DirectFile::new(self.reopen_direct(OFlags::WRONLY)?, self.file.fd.try_clone().ok()?);
        self.direct.get_or_init(open).as_ref()
    }

    /// Direct I/O belongs to the open file. The name may lead elsewhere by now: the inode is compared.
    fn reopen_direct(&self, access: OFlags) -> Option<OwnedFd> {
        let flags = access | OFlags::DIRECT | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let open = || rustix::fs::openat(&self.file.drafts, &self.file.current_name, flags, Mode::empty());
        let direct = rustix::io::retry_on_intr(open).ok()?;
        Stat::of_fd(&direct).is_ok_and(|now| now.is_same_inode(&self.file.opened)).then_some(direct)
    }

    /// See [`FileToWrite::read_at`](crate::FileToWrite::read_at).
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        file::read_full_at(self.file.fd.as_fd(), buffer, offset).context("read back", &self.file.path)
    }

    /// See [`FileToWrite::punch`](crate::FileToWrite::punch).
    pub fn punch(&self, offset: u64, len: u64) -> Result<()> {
        let punched = file::punch(self.file.fd.as_fd(), offset, len).and_then(|done| match done {
            true => Ok(()),
            false => self.write_zeros(offset, len),
        });
        punched.context("make a hole in", &self.file.path)
    }

    fn write_zeros(&self, offset: u64, len: u64) -> io::Result<()> {
        let end = offset.saturating_add(len).min(Stat::of_fd(&self.file.fd)?.size);
        let zeros = vec![0; ZERO_BUFFER_BYTES];
        let mut at = offset;
        while at < end {
            let step = (end - at).min(ZERO_BUFFER_BYTES as u64);
            file::write_all_at(self.file.fd.as_fd(), &zeros[..step as usize], at)?;
            at += step;
        }
        Ok(())
    }

    /// Cuts the file, or extends it by a hole.
    pub fn set_size(&self, size: u64) -> Result<()> {
        file::set_size(self.file.fd.as_fd(), size).context("set the size of", &self.file.path)?;
        self.size.store(size, Ordering::Relaxed);
        Ok(())
    }

    /// See [`FileToWrite::size`](crate::FileToWrite::size).
    pub fn size(&self) -> Result<u64> {
        file::size(self.file.fd.as_fd()).context("look at", &self.file.path)
    }

    /// See [`FileToWrite::next_data`](crate::FileToWrite::next_data). File systems that cannot tell report data.
    pub fn next_data(&self, offset: u64, end: u64) -> Result<Option<(u64, u64)>> {
        file::next_data(self.file.fd.as_fd(), offset, end).context("look for holes in", &self.file.path)
    }

    /// Whether the first `size` bytes surely hold data. Memory counts its pages exactly, and looks for holes page by page:
    /// 40 ms for 1 GB.
    pub fn is_surely_full(&self, size: u64) -> bool {
        let holds = |stat: Stat| stat.size >= size && stat.blocks.saturating_mul(STAT_BLOCK_BYTES) >= size;
        medium::lies_in_memory(self.file.fd.as_fd()).unwrap_or(false) && Stat::of_fd(&self.file.fd).is_ok_and(holds)
    }

    /// See [`FileToWrite::data_bytes`](crate::FileToWrite::data_bytes).
    pub fn data_bytes(&self, offset: u64, end: u64) -> Result<u64> {
        // On tmpfs each look walks over all data that follows.
        let mut known = self.known_data.lock().unwrap_or_else(PoisonError::into_inner);
        if !(known.0 <= offset && end <= known.1) {
            *known = self.next_data(offset, u64::MAX)?.unwrap_or_default();
        }
        if known.0 <= offset && end <= known.1 {
            return Ok(end.saturating_sub(offset));
        }
        drop(known);
        let (mut at, mut bytes) = (offset, 0);
        while let Some((start, stop)) = self.next_data(at, end)? {
            bytes += stop - start;
            at = stop;
        }
        Ok(bytes)
    }

    /// See [`Draft::will_need`](crate::Draft::will_need).
    pub fn will_need(&self, offset: u64, len: u64) {
        file::will_need(self.file.fd.as_fd(), offset, len);
    }

    /// Fails early with `ENOSPC` if `size` bytes of data, without holes, clearly lack room. Allocates nothing: holes stay.
    pub fn reserve(&self, size: u64) -> Result<()> {
        let Ok(space) = rustix::fs::fstatvfs(&self.file.fd) else { return Ok(()) };
        let allocated = Stat::of_fd(&self.file.fd).map_or(0, |stat| stat.blocks.saturating_mul(STAT_BLOCK_BYTES));
        let blocks = if self.settings.user == 0 { space.f_bfree } else { space.f_bavail };
        let free = blocks.saturating_mul(space.f_frsize);
        // Some file systems do not tell their size.
        if space.f_blocks > 0 && size.saturating_sub(allocated) > free {
            return Err(StoreError::new("find room for", &self.file.path, Errno::NOSPC));
        }
        Ok(())
    }

    /// Gives the file its size and, if possible, room, once. On ext4 a direct write that extends the file or allocates
    /// blocks waits for all others.
    pub fn allocate(&self, size: u64) -> Result<()> {
        let mut allocated = self.allocated.lock().unwrap_or_else(PoisonError::into_inner);
        if !*allocated {
            let done =
                file::reserve(self.file.fd.as_fd(), size).and_then(|_| file::set_size(self.file.fd.as_fd(), size));
            done.context("find room for", &self.file.path)?;
            self.size.store(size, Ordering::Relaxed);
            *allocated = true;
        }
        Ok(())
    }

    /// Whether [`Part::allocate`] made room: then only [`Part::punch`] makes holes.
    pub fn is_allocated(&self) -> bool {
        *self.allocated.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the file at least this size, once, for a hole at its end.
    pub fn extend(&self, size: u64) -> Result<()> {
        let mut extended = self.extended.lock().unwrap_or_else(PoisonError::into_inner);
        if !*extended {
            let extend = || match Stat::of_fd(&self.file.fd)?.size < size {
                true => file::set_size(self.file.fd.as_fd(), size),
                false => Ok(()),
            };
            extend().context("set the size of", &self.file.path)?;
            self.reaches(size);
            *extended = true;
        }
        Ok(())
    }

    /// The smallest aligned hole: a block of the file system, at most 4 KiB. Network file systems report far larger ones.
    pub fn hole_bytes(&self) -> usize {
        let told = || rustix::fs::fstatvfs(&self.file.fd).map_or(MAX_HOLE_GRAIN_BYTES, |told| told.f_frsize);
        let grain = || told().clamp(MIN_HOLE_GRAIN_BYTES, MAX_HOLE_GRAIN_BYTES).next_power_of_two();
        *self.hole_bytes.get_or_init(|| usize::try_from(grain()).expect("4 KiB at most"))
    }

    /// Identifies the file system, also after a restart.
    pub fn file_system_id(&self) -> Option<u64> {
        rustix::fs::fstatvfs(&self.file.fd).ok().map(|told| told.f_fsid).filter(|id| *id != 0)
    }

    /// Measures which way of writing is faster there.
    pub fn try_routes(&self) -> Result<Trial> {
        trial::try_in(self.file.drafts.as_fd()).context("try ways to write beside", &self.file.path)
    }

    /// See [`Draft::start_writeback`](crate::Draft::start_writeback).
    pub fn start_writeback(&self, offset: u64, len: u64) {
        file::start_writeback(self.file.fd.as_fd(), offset, len);
    }

    /// See [`Draft::drop_cache`](crate::Draft::drop_cache).
    pub fn drop_cache(&self, offset: u64, len: u64) {
        file::drop_cache(self.file.fd.as_fd(), offset, len);
    }

    /// Opens the content again to read what the medium holds, past the page cache if possible.
    pub fn medium(&self) -> Result<Medium> {
        let direct = self.reopen_direct(OFlags::RDONLY);
        let plain = self.file.fd.as_fd().try_clone_to_owned();
        plain.and_then(|plain| Medium::new(plain, direct)).context("read back", &self.file.path)
    }

    pub(crate) fn path(&self) -> &[u8] {
        &self.file.path
    }

    /// See [`FileToWrite::id`](crate::FileToWrite::id).
    pub fn id(&self) -> (u64, u64) {
        (self.file.opened.id.dev, self.file.opened.id.ino)
    }

    /// The metadata at the opening.
    pub fn opened_stat(&self) -> &Stat {
        &self.file.opened
    }

    /// The descriptor, for routes inside the kernel.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.fd.as_fd()
    }

    fn flush_parent(&self) -> io::Result<()> {
        file::flush_directory(self.file.drafts.as_fd())
    }
}

static OPENED: AtomicU64 = AtomicU64::new(0);

fn given_up() -> io::Error {
    refusal(io::ErrorKind::NotFound, "it was given up meanwhile")
}

const MAX_HOLE_GRAIN_BYTES: u64 = 4096;

/// The smallest block of Linux file systems.
const MIN_HOLE_GRAIN_BYTES: u64 = 512;
