//! The traits of an end that is written: a tree, and a draft of a file.

use std::fmt::Debug;
use std::io;
use std::ops::Deref;
use std::sync::Arc;

use super::abilities::Abilities;
use super::connections::Connections;
use super::journal::Journal;
use super::reading::{Access, SourceFile};
use super::third_party::ThirdParty;
use crate::error::{Context, Result, StoreError, refusal};
use crate::limits::ZERO_BUFFER_BYTES;
use crate::local_tree::LocalTree;
use crate::meta::{Applied, Metadata, Stat, Time};
use crate::part::Part;
use crate::source_names::SourceNames;

/// A tree to write; paths are relative to it.
pub trait TargetTree: Debug + Send + Sync {
    /// The abilities of this end.
    fn abilities(&self) -> Abilities;

    /// The tree, if on this host.
    fn local(&self) -> Option<&LocalTree> {
        None
    }

    /// The connections to a serving host, where they set the pace.
    fn connections(&self) -> Option<Arc<dyn Connections>> {
        None
    }

    /// How the server of the sources sends files here by itself, if it does.
    fn third_party(&self) -> Option<Arc<dyn ThirdParty>> {
        None
    }

    /// The order of writes that suits the end now, where data has to come in order.
    fn access(&self) -> Access {
        Access::Sequential
    }

    /// The files that may get names at once.
    fn names_at_once(&self) -> usize {
        NAMES_AT_ONCE
    }

    /// The metadata of the entry itself; `None` if it or a parent is missing.
    fn stat(&self, path: &[u8]) -> Result<Option<Stat>>;

    /// Opens an existing file, to compare it.
    fn open_file(&self, path: &[u8]) -> Result<SourceFile>;

    /// Makes a directory; false if it existed.
    fn make_dir(&self, path: &[u8]) -> Result<bool>;

    /// Marks an empty directory, at an end without directories.
    fn mark_directory(&self, _path: &[u8], _meta: &Metadata) -> Result<()> {
        Ok(())
    }

    /// Makes a symbolic link; false if it existed. Replaces a file or link, never a directory.
    fn make_symlink(&self, path: &[u8], target: &[u8], meta: &Metadata) -> Result<bool>;

    /// Makes `path` a hard link to `first`, a file or link; false if it is one. Replaces a file or link, never a directory.
    fn make_hard_link(&self, path: &[u8], first: &[u8]) -> Result<bool>;

    /// Sets metadata, never through a link.
    fn set_metadata(&self, path: &[u8], meta: &Metadata) -> Result<Applied>;

    /// Waits until the names in a directory are on the medium.
    fn flush_dir(&self, path: &[u8]) -> Result<()>;

    /// Waits until the data of an existing file is on the medium.
    fn flush_file(&self, path: &[u8]) -> Result<()>;

    /// Makes an empty draft in place of an earlier run's. With `inplace` it is the final file, whose content stays until
    /// overwritten.
    fn new_draft(&self, path: &[u8], inplace: bool) -> Result<Draft>;

    /// [`TargetTree::new_draft`] for an end that needs more facts.
    fn new_draft_of(&self, path: &[u8], plan: &DraftPlan) -> Result<Draft> {
        self.new_draft(path, plan.inplace)
    }

    /// Opens an interrupted draft and its journal, if both exist and are ours.
    fn resume_draft(&self, path: &[u8], inplace: bool) -> Result<Option<(Draft, Vec<u8>)>>;

    /// Removes every entry of `path` that the source lacks, with all in it. Entries with `spare(path, is_dir)`, and
    /// directories above them, stay. `deleted` gets each path, content first; a dry run only reports.
    ///
    /// Drafts, journals and entries found under a name of the source, however listed, stay. A missing directory counts as
    /// empty.
    fn delete_extraneous(
        &self,
        path: &[u8],
        has: &SourceNames,
        spare: &dyn Fn(&[u8], bool) -> bool,
        dry_run: bool,
        deleted: &mut dyn FnMut(Vec<u8>, bool),
    ) -> Vec<StoreError>;

    /// Removes one entry as [`TargetTree::delete_extraneous`] does, if `spare` permits.
    fn delete_entry(
        &self,
        path: &[u8],
        spare: &dyn Fn(&[u8], bool) -> bool,
        dry_run: bool,
        deleted: &mut dyn FnMut(Vec<u8>, bool),
    ) -> Vec<StoreError>;

    /// Marks a file as unfinished before it is written in place; with `flush`, on the medium. `header` makes a journal's
    /// beginning from the file's [`FileToWrite::id`].
    fn mark_unfinished(
        &self,
        path: &[u8],
        _header: &dyn Fn(Option<(u64, u64)>) -> Vec<u8>,
        _flush: bool,
    ) -> Result<()> {
        Err(StoreError::new("mark as unfinished", path, no_writing_in_place()))
    }

    /// The beginning of our own journal of a file without draft.
    fn journal_of_file(&self, _path: &[u8], _most_bytes: usize) -> Option<Vec<u8>> {
        None
    }

    /// Removes a complete file's left-over journal.
    fn remove_left_journal(&self, _path: &[u8]) {}

    /// Removes drafts in a directory that no run will continue. True: there were any.
    fn sweep_drafts(&self, _path: &[u8]) -> bool {
        false
    }

    /// [`TargetTree::sweep_drafts`] for one file: the directory may be too large to list.
    fn sweep_draft_of(&self, _path: &[u8]) -> bool {
        false
    }
}

/// Naming waits for the disk: on a file server each flush is a round trip.
const NAMES_AT_ONCE: usize = 16;

pub(crate) fn no_writing_in_place() -> io::Error {
    refusal(io::ErrorKind::Unsupported, "this target writes no file in place")
}

/// Facts known before a draft is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftPlan {
    /// See [`TargetTree::new_draft`].
    pub inplace: bool,
    /// Bytes of content.
    pub size: u64,
    /// The bytes of each piece but the last. One thread writes a piece from front to back, maybe several times.
    pub chunk_bytes: u64,
    /// The source's modification time.
    pub mtime: Time,
    /// The source's permission bits.
    pub mode: u32,
    /// The source's owner, as numbered here.
    pub uid: u32,
    /// The source's group, as numbered here.
    pub gid: u32,
}

/// A file being written by threads, named once complete.
pub trait FileToWrite: Debug + Send + Sync {
    /// The path, for messages.
    fn path(&self) -> &[u8];

    /// Tells the draft from all others here, also after a restart. The journal remembers it.
    fn id(&self) -> (u64, u64);

    /// Writes all of `data` at `offset`.
    fn write_at(&self, data: &[u8], offset: u64) -> Result<()>;

    /// Reads back what was written; less at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize>;

    /// Whether the end's sum proves a range of an earlier run, where a draft is not given back and writes are safe at once.
    /// `None`: read it.
    fn proves(&self, _offset: u64, _length: u64) -> Option<bool> {
        None
    }

    /// Whether the last proved range can be read before anything is written, to try [`FileToWrite::proves`].
    fn gives_back(&self) -> bool {
        false
    }

    /// The current size.
    fn size(&self) -> Result<u64>;

    /// Cuts the file, or extends it by zeros, if possible a hole.
    fn set_size(&self, size: u64) -> Result<()>;

    /// Waits until all writes are on the medium. After a failure every further flush fails.
    fn flush(&self) -> Result<()>;

    /// Sets the metadata. Without a mode the end decides; in place it stays. `flush`: in place, flushes data before.
    fn set_metadata(&self, meta: &Metadata, flush: bool) -> Result<()>;

    /// Gives the file its name and removes its journal. Fails if discarded meanwhile.
    fn give_name(&self) -> Result<()>;

    /// Removes draft and journal, but not of a file written in place.
    fn discard(&self) -> Result<()>;

    /// The journal of this draft.
    fn journal(&self) -> &dyn Journal;

    /// Begins a journal with only `header`; it and the draft survive a crash. Fails if the draft was discarded meanwhile.
    fn journal_start(&self, header: &[u8]) -> Result<()> {
        self.journal().begin(header, &mut || ()).context("start the journal of", self.path())
    }

    /// See [`Journal::append`].
    fn journal_append(&self, record: &[u8]) -> Result<()> {
        self.journal().append(record).context("append to the journal of", self.path())
    }

    /// See [`Journal::keep`].
    fn journal_keep(&self, len: u64) -> Result<()> {
        self.journal().keep(len).context("cut the journal of", self.path())
    }

    /// Makes a range read as zeros, if possible a hole. Beyond its end the file grows by zeros anyway.
    fn punch(&self, offset: u64, len: u64) -> Result<()> {
        let end = offset.saturating_add(len).min(self.size()?);
        let zeros = [0; ZERO_BUFFER_BYTES];
        let mut at = offset;
        while at < end {
            let step = (end - at).min(ZERO_BUFFER_BYTES as u64);
            self.write_at(&zeros[..step as usize], at)?;
            at += step;
        }
        Ok(())
    }

    /// See [`FileToRead::next_data`](crate::FileToRead::next_data).
    fn next_data(&self, offset: u64, end: u64) -> Result<Option<(u64, u64)>> {
        let end = end.min(self.size()?);
        Ok((offset < end).then_some((offset, end)))
    }

    /// Counts the bytes of data in a range.
    fn data_bytes(&self, offset: u64, end: u64) -> Result<u64> {
        let (mut at, mut bytes) = (offset, 0);
        while let Some((start, stop)) = self.next_data(at, end)? {
            bytes += stop - start;
            at = stop;
        }
        Ok(bytes)
    }

    /// Fails early if `size` bytes clearly lack room.
    fn reserve(&self, _size: u64) -> Result<()> {
        Ok(())
    }

    /// Gives the file at least this size, once.
    fn extend(&self, size: u64) -> Result<()> {
        if self.size()? < size { self.set_size(size) } else { Ok(()) }
    }

    /// The smallest aligned hole, at most 4 KiB.
    fn hole_bytes(&self) -> usize {
        4096
    }

    /// Flushes all, if asked to. Fails if data was lost.
    fn finish_flush(&self, flush: bool) -> Result<()> {
        if flush { self.flush() } else { Ok(()) }
    }

    /// Finishes all but the name.
    fn prepare(&self, meta: &Metadata, flush: bool) -> Result<()> {
        self.set_metadata(meta, flush)?;
        self.finish_flush(flush)
    }

    /// Finishes the file: metadata, flush if asked, name, removal of the journal; not [`TargetTree::flush_dir`].
    fn commit(&self, meta: &Metadata, flush: bool) -> Result<()> {
        self.prepare(meta, flush)?;
        self.give_name()
    }
}

/// A draft at any end. A part of this host has further routes, and no virtual calls.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a draft lies behind a pointer that lanes share; most are parts")]
pub enum Draft {
    /// A part on a disk of this host.
    Local(Part),
    /// Any other draft.
    Other(Box<dyn FileToWrite>),
}

impl Deref for Draft {
    type Target = dyn FileToWrite;

    fn deref(&self) -> &Self::Target {
        match self {
            Draft::Local(part) => part,
            Draft::Other(other) => &**other,
        }
    }
}

impl Draft {
    /// The part on a disk of this host, if it is one.
    pub fn local(&self) -> Option<&Part> {
        match self {
            Draft::Local(part) => Some(part),
            Draft::Other(_) => None,
        }
    }

    /// See [`FileToWrite::write_at`].
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        match self {
            Draft::Local(part) => part.write_at(data, offset),
            Draft::Other(other) => other.write_at(data, offset),
        }
    }

    /// See [`FileToWrite::read_at`].
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        match self {
            Draft::Local(part) => part.read_at(buffer, offset),
            Draft::Other(other) => other.read_at(buffer, offset),
        }
    }

    /// See [`FileToWrite::extend`].
    pub fn extend(&self, size: u64) -> Result<()> {
        match self {
            Draft::Local(part) => part.extend(size),
            Draft::Other(other) => other.extend(size),
        }
    }

    /// See [`FileToWrite::punch`].
    pub fn punch(&self, offset: u64, len: u64) -> Result<()> {
        match self {
            Draft::Local(part) => part.punch(offset, len),
            Draft::Other(other) => other.punch(offset, len),
        }
    }

    /// See [`FileToWrite::hole_bytes`].
    pub fn hole_bytes(&self) -> usize {
        match self {
            Draft::Local(part) => part.hole_bytes(),
            Draft::Other(other) => other.hole_bytes(),
        }
    }

    /// [`Draft::write_at`] past the page cache, if any.
    pub fn write_past_cache(&self, data: &[u8], offset: u64) -> Result<()> {
        match self {
            Draft::Local(part) => part.write_past_cache(data, offset),
            Draft::Other(other) => other.write_at(data, offset),
        }
    }

    /// Whether the file has room: then only [`FileToWrite::punch`] makes holes.
    pub fn is_allocated(&self) -> bool {
        self.local().is_some_and(Part::is_allocated)
    }

    /// Begins to read a range, without waiting.
    pub fn will_need(&self, offset: u64, len: u64) {
        if let Some(part) = self.local() {
            part.will_need(offset, len);
        }
    }

    /// Begins to write a range out. Errors show at the flush.
    pub fn start_writeback(&self, offset: u64, len: u64) {
        if let Some(part) = self.local() {
            part.start_writeback(offset, len);
        }
    }

    /// Drops a range's clean pages: reads come from the medium.
    pub fn drop_cache(&self, offset: u64, len: u64) {
        if let Some(part) = self.local() {
            part.drop_cache(offset, len);
        }
    }
}
