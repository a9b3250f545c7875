//! The traits of an end that is written: a tree, and a draft of a file.

use std::fmt::Debug;
use std::io;
use std::ops::Deref;
use std::sync::Arc;

use super::abilities::Abilities;
use super::connections::Connections;
use super::journal::Journal;
use super::reading::SourceFile;
use crate::error::{Context, Result, StoreError, refusal};
use crate::limits::ZERO_BUFFER_BYTES;
use crate::local_tree::LocalTree;
use crate::meta::{Applied, Metadata, Stat, Time};
use crate::part::Part;
use crate::source_names::SourceNames;

/// A tree to write. All paths are relative to it.
pub trait TargetTree: Debug + Send + Sync {
    /// Returns the abilities of this end.
    fn abilities(&self) -> Abilities;

    /// The tree, if it lies on this host.
    fn local(&self) -> Option<&LocalTree> {
        None
    }

    /// The connections over which it is written, where the end is served by another host and data goes as fast as they let it.
    fn connections(&self) -> Option<Arc<dyn Connections>> {
        None
    }

    /// How many files may get their names at once.
    fn names_at_once(&self) -> usize {
        NAMES_AT_ONCE
    }

    /// The metadata of the entry itself, not through a link; `None` if the entry or a parent is missing.
    fn stat(&self, path: &[u8]) -> Result<Option<Stat>>;

    /// Opens an existing regular file, to compare it.
    fn open_file(&self, path: &[u8]) -> Result<SourceFile>;

    /// Makes a directory; false if it existed.
    fn make_dir(&self, path: &[u8]) -> Result<bool>;

    /// Marks a directory in which nothing is, at an end without directories of its own: otherwise nothing would be left of it.
    fn mark_directory(&self, _path: &[u8], _meta: &Metadata) -> Result<()> {
        Ok(())
    }

    /// Makes a symbolic link; false if it existed. Replaces a file or another link, but never a directory.
    fn make_symlink(&self, path: &[u8], target: &[u8], meta: &Metadata) -> Result<bool>;

    /// Makes `path` a hard link to `first`, a regular file or symbolic link; false if it is one already. Replaces a
    /// file or link, but never a directory.
    fn make_hard_link(&self, path: &[u8], first: &[u8]) -> Result<bool>;

    /// Sets metadata of a file or directory, never through a link.
    fn set_metadata(&self, path: &[u8], meta: &Metadata) -> Result<Applied>;

    /// Waits until the names in a directory are on the medium.
    fn flush_dir(&self, path: &[u8]) -> Result<()>;

    /// Waits until the data of an existing regular file is on the medium.
    fn flush_file(&self, path: &[u8]) -> Result<()>;

    /// Makes an empty draft for `path`, and removes what an earlier run left of it.
    ///
    /// With `inplace` it is the final file itself, whose content stays until it is overwritten.
    fn new_draft(&self, path: &[u8], inplace: bool) -> Result<Draft>;

    /// [`TargetTree::new_draft`] of a file of which more is known, for an end that wants to know it first.
    fn new_draft_of(&self, path: &[u8], plan: &DraftPlan) -> Result<Draft> {
        self.new_draft(path, plan.inplace)
    }

    /// Opens the draft of an interrupted transfer and its journal; `None` unless both exist and are ours.
    fn resume_draft(&self, path: &[u8], inplace: bool) -> Result<Option<(Draft, Vec<u8>)>>;

    /// Removes every entry of the directory `path` that the source lacks, with all that lies in it. Entries for which
    /// `spare(path, is_dir)` is true stay, and so do the directories above them. `deleted` gets each path, content
    /// before its directory; a dry run only reports.
    ///
    /// Drafts and journals of the source's names stay. So does an entry that is found under a name of the source,
    /// however it is listed. A missing directory counts as empty.
    fn delete_extraneous(
        &self,
        path: &[u8],
        has: &SourceNames,
        spare: &dyn Fn(&[u8], bool) -> bool,
        dry_run: bool,
        deleted: &mut dyn FnMut(Vec<u8>, bool),
    ) -> Vec<StoreError>;

    /// Removes one entry, a directory with all that lies in it. `spare` is asked about the entry itself first; the rest
    /// is as in [`TargetTree::delete_extraneous`].
    fn delete_entry(
        &self,
        path: &[u8],
        spare: &dyn Fn(&[u8], bool) -> bool,
        dry_run: bool,
        deleted: &mut dyn FnMut(Vec<u8>, bool),
    ) -> Vec<StoreError>;

    /// Marks a file as unfinished before it is opened to be written in place. With `flush` the mark is on the medium on
    /// return. `header` makes the beginning of a journal from the [`FileToWrite::id`] of the existing file.
    fn mark_unfinished(
        &self,
        path: &[u8],
        _header: &dyn Fn(Option<(u64, u64)>) -> Vec<u8>,
        _flush: bool,
    ) -> Result<()> {
        Err(StoreError::new("mark as unfinished", path, no_writing_in_place()))
    }

    /// The first `_most_bytes` bytes of our own journal of a file without a draft.
    fn journal_of_file(&self, _path: &[u8], _most_bytes: usize) -> Option<Vec<u8>> {
        None
    }

    /// Removes a left-over journal of a complete file.
    fn remove_left_journal(&self, _path: &[u8]) {}

    /// Removes the drafts in the directory `path` that no run will continue. True if there were any.
    fn sweep_drafts(&self, _path: &[u8]) -> bool {
        false
    }

    /// [`TargetTree::sweep_drafts`] for the draft of one file, where the directory may be too large to list.
    fn sweep_draft_of(&self, _path: &[u8]) -> bool {
        false
    }
}

/// Whoever names files waits for the disk more than it works: on a file server each flush is a round trip.
const NAMES_AT_ONCE: usize = 16;

pub(crate) fn no_writing_in_place() -> io::Error {
    refusal(io::ErrorKind::Unsupported, "this target writes no file in place")
}

/// Facts about a file before its draft is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftPlan {
    /// See [`TargetTree::new_draft`].
    pub inplace: bool,
    /// Bytes of content.
    pub size: u64,
    /// Bytes of each piece but the last. A piece is written from its beginning to its end by one thread, maybe several times.
    pub chunk_bytes: u64,
    /// The source's modification time.
    pub mtime: Time,
    /// The source's permission bits.
    pub mode: u32,
    /// The source's owner, by its number here.
    pub uid: u32,
    /// The source's group, by its number here.
    pub gid: u32,
}

/// A file being written, shared by threads. It shows under its final name only once it is complete.
pub trait FileToWrite: Debug + Send + Sync {
    /// The path, for messages.
    fn path(&self) -> &[u8];

    /// Tells the draft from every other at this end, also after a restart. The journal remembers it.
    fn id(&self) -> (u64, u64);

    /// Writes all of `data` at `offset`.
    fn write_at(&self, data: &[u8], offset: u64) -> Result<()>;

    /// Reads back what was written; fewer bytes mean the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize>;

    /// For an end that does not give back what it holds of a draft: whether a sum of its own proves that a range of an earlier run
    /// stands there as it was written. What is written at such an end is safe at once. `None`: it is read.
    fn proves(&self, _offset: u64, _length: u64) -> Option<bool> {
        None
    }

    /// Whether the range that was proved last can be read, before anything is written: what [`FileToWrite::proves`] says is then tried with
    /// its content.
    fn gives_back(&self) -> bool {
        false
    }

    /// The current size.
    fn size(&self) -> Result<u64>;

    /// Cuts the file, or extends it by zeros, as a hole where the end has holes.
    fn set_size(&self, size: u64) -> Result<()>;

    /// Waits until everything written so far is on the medium. After one failure every further flush fails.
    fn flush(&self) -> Result<()>;

    /// Sets the metadata. Without a mode in `meta` the end decides; in place the mode stays. `flush`: in place, data is
    /// flushed before.
    fn set_metadata(&self, meta: &Metadata, flush: bool) -> Result<()>;

    /// Gives the file its final name and removes its journal. Fails if the file was discarded meanwhile.
    fn give_name(&self) -> Result<()>;

    /// Gives the file up: removes draft and journal. A file written in place stays, and so does its journal.
    fn discard(&self) -> Result<()>;

    /// The journal of this draft.
    fn journal(&self) -> &dyn Journal;

    /// Begins a journal with only `header`, and makes it and the draft findable after a crash. Fails if the draft was
    /// discarded meanwhile.
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

    /// Makes a range read as zeros, by a hole where there are holes. A range beyond the end needs nothing: the file
    /// grows by zeros.
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

    /// The next range that holds data at or after `offset`, clipped to `end`; `None` when only a hole is left. An end
    /// without holes has data everywhere.
    fn next_data(&self, offset: u64, end: u64) -> Result<Option<(u64, u64)>> {
        let end = end.min(self.size()?);
        Ok((offset < end).then_some((offset, end)))
    }

    /// Counts the bytes of data in a range, without holes.
    fn data_bytes(&self, offset: u64, end: u64) -> Result<u64> {
        let (mut at, mut bytes) = (offset, 0);
        while let Some((start, stop)) = self.next_data(at, end)? {
            bytes += stop - start;
            at = stop;
        }
        Ok(bytes)
    }

    /// Fails early if the end clearly lacks room for `size` bytes of data of this file.
    fn reserve(&self, _size: u64) -> Result<()> {
        Ok(())
    }

    /// Gives the file at least this size; only the first call need act.
    fn extend(&self, size: u64) -> Result<()> {
        if self.size()? < size { self.set_size(size) } else { Ok(()) }
    }

    /// The smallest aligned range of zeros that can be a hole here, at most 4 KiB.
    fn hole_bytes(&self) -> usize {
        4096
    }

    /// The last flush of content and metadata, if asked for. Fails if data was lost.
    fn finish_flush(&self, flush: bool) -> Result<()> {
        if flush { self.flush() } else { Ok(()) }
    }

    /// Finishes all but the name.
    fn prepare(&self, meta: &Metadata, flush: bool) -> Result<()> {
        self.set_metadata(meta, flush)?;
        self.finish_flush(flush)
    }

    /// Finishes the file: metadata, flush if asked, final name, removal of the journal. The directory is not flushed,
    /// see [`TargetTree::flush_dir`].
    fn commit(&self, meta: &Metadata, flush: bool) -> Result<()> {
        self.prepare(meta, flush)?;
        self.give_name()
    }
}

/// A draft at any end. Callers can ask for the part on a disk of this host, which has further routes and whose blocks
/// are written without a virtual call.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a draft lies behind a pointer that lanes share; most are parts")]
pub enum Draft {
    /// On a disk of this host.
    Local(Part),
    /// Anywhere else.
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

    /// [`Draft::write_at`] past the page cache, if the end has one.
    pub fn write_past_cache(&self, data: &[u8], offset: u64) -> Result<()> {
        match self {
            Draft::Local(part) => part.write_past_cache(data, offset),
            Draft::Other(other) => other.write_at(data, offset),
        }
    }

    /// Whether room was made for the whole file: then only [`FileToWrite::punch`] makes holes.
    pub fn is_allocated(&self) -> bool {
        self.local().is_some_and(Part::is_allocated)
    }

    /// Asks the kernel to begin reading a range, without waiting.
    pub fn will_need(&self, offset: u64, len: u64) {
        if let Some(part) = self.local() {
            part.will_need(offset, len);
        }
    }

    /// Asks the kernel to begin writing a range to the medium. Errors show at the flush.
    pub fn start_writeback(&self, offset: u64, len: u64) {
        if let Some(part) = self.local() {
            part.start_writeback(offset, len);
        }
    }

    /// Drops clean pages of a range from the cache, so that reading back comes from the medium.
    pub fn drop_cache(&self, offset: u64, len: u64) {
        if let Some(part) = self.local() {
            part.drop_cache(offset, len);
        }
    }
}
