//! The traits of an end that is read: a tree, its items, and a file.

use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

use crate::as_copied::AsCopied;
use crate::cold::ColdMap;
use crate::duplicates::Duplicates;
use crate::ends::connections::Connections;
use crate::ends::sums::{ServerSum, SumCounts};
use crate::error::{Result, StoreError, refusal};
use crate::found::Found;
use crate::local_file::LocalFile;
use crate::meta::Stat;
use crate::walk_options::WalkOptions;

/// A tree to read.
pub trait SourceTree: Debug + Send + Sync {
    /// Yields all that is to be copied: each directory before its content, the names of a directory sorted.
    fn items(self: Arc<Self>, options: WalkOptions) -> Box<dyn ItemSource>;

    /// Opens a regular file that the walk found, by its `source` and `source_path`.
    fn open(&self, source: u32, source_path: &[u8]) -> Result<SourceFile>;

    /// Whether exactly one path was given, and it is not a directory: the target may be its new name.
    fn is_single_file(&self) -> bool {
        false
    }

    /// The name of that single file.
    fn name_of_single_file(&self) -> &[u8] {
        b""
    }

    /// Removes a file or link if it still is what was copied. False: it is gone already.
    fn remove(&self, _source: u32, source_path: &[u8], _copied: &AsCopied) -> Result<bool> {
        let error = refusal(io::ErrorKind::Unsupported, "nothing can be removed from this source");
        Err(StoreError::new("remove the source", source_path, error))
    }

    /// Returns the source in whose directory a target has a draft of this path. From then on the walk reports a failure
    /// where it finds that draft.
    fn seen_at(&self, _draft: &[u8]) -> Option<Vec<u8>> {
        None
    }

    /// The order of reads that suits the end. It may change as the end learns what its files are like.
    fn access(&self) -> Access {
        Access::Random
    }

    /// The connections over which files are read, where the end is served by another host.
    fn connections(&self) -> Option<Arc<dyn Connections>> {
        None
    }

    /// How many files were compared with sums of their server. `None`: a file of this end has no sum to compare with.
    fn sums(&self) -> Option<SumCounts> {
        None
    }

    /// The local directories beneath which files are opened, so that the process may give up its rights to all others.
    /// `None`: files are opened anywhere.
    fn roots(&self) -> Option<Vec<BorrowedFd<'_>>> {
        Some(Vec::new())
    }
}

/// The order of reads that suits an end, as with posix_fadvise(2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Access {
    /// Any place is read as quickly as any other.
    #[default]
    Random,
    /// A reader that goes on where it was is much quicker than one that jumps. Several readers may be in one file. Each says how far it
    /// goes on ([`FileToRead::reads_on`]).
    Runs {
        /// A jump costs as much time as so many bytes.
        jump_bytes: u64,
    },
    /// A file is read from front to back, by one reader.
    Sequential,
}

/// Where the items of a job come from, one after the other: a walk over a tree, or a list.
pub trait ItemSource: Iterator<Item = Found> + Send {
    /// The entries left out so far because an earlier source has their names.
    fn duplicates(&self) -> Duplicates {
        Duplicates::default()
    }

    /// The estimated share of the whole found so far, from 0 to 1, from the names read so far.
    fn share(&self) -> Option<f64> {
        None
    }
}

impl ItemSource for std::vec::IntoIter<Found> {}

/// A file to read.
pub trait FileToRead: Debug + Send + Sync {
    /// The current metadata. Another version than the walk's means that the file has changed.
    fn stat(&self) -> io::Result<Stat>;

    /// Fills `buffer` from `offset` on; fewer bytes mean the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// This thread will read on from `start` to `end`, without a jump. Other threads read what follows.
    fn reads_on(&self, _start: u64, _end: u64) {}

    /// The next `[start, end)` that holds data at or after `offset`, clipped to `end`; `None` when only a hole is left.
    /// An end without holes has data everywhere.
    fn next_data(&self, offset: u64, end: u64) -> io::Result<Option<(u64, u64)>> {
        Ok((offset < end).then_some((offset, end)))
    }

    /// The server's sum of this file, where there is one to compare with.
    fn server_sum(&self) -> Option<Arc<dyn ServerSum>> {
        None
    }

    /// The extended attributes and ACLs that were asked for, where the end has them.
    fn attributes(&self, _xattrs: bool, _acls: bool) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        Ok(Vec::new())
    }
}

/// A file of any end, open for reading. Callers can ask for the file of this host, whose bytes the kernel can move and
/// whose blocks are read without a virtual call.
#[derive(Debug)]
pub enum SourceFile {
    /// On this host.
    Local(LocalFile),
    /// Anywhere else.
    Other(Arc<dyn FileToRead>),
}

const MAX_RULES_BYTES: usize = 1 << 20;

impl SourceFile {
    pub(crate) fn read_rules(&self) -> io::Result<Vec<u8>> {
        let (mut bytes, mut block) = (Vec::new(), vec![0; 16 << 10]);
        loop {
            let read = self.read_at(&mut block, bytes.len() as u64)?;
            bytes.extend_from_slice(&block[..read]);
            if read == 0 {
                return Ok(bytes);
            }
            if bytes.len() > MAX_RULES_BYTES {
                return Err(refusal(io::ErrorKind::InvalidData, "it is longer than 1 MiB, which no list of rules is"));
            }
        }
    }

    /// See [`FileToRead::stat`].
    pub fn stat(&self) -> io::Result<Stat> {
        match self {
            SourceFile::Local(file) => file.stat(),
            SourceFile::Other(file) => file.stat(),
        }
    }

    /// See [`FileToRead::read_at`].
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            SourceFile::Local(file) => file.read_at(buffer, offset),
            SourceFile::Other(file) => file.read_at(buffer, offset),
        }
    }

    /// Whether there are bytes at `end`, where the metadata say that the file ends.
    pub fn reads_on_at(&self, end: u64) -> io::Result<bool> {
        match self {
            SourceFile::Local(file) => Ok(file.read_at(&mut [0], end)? > 0),
            // The end itself makes such a file and its size.
            SourceFile::Other(_) => Ok(false),
        }
    }

    /// See [`FileToRead::reads_on`].
    pub fn reads_on(&self, start: u64, end: u64) {
        if let SourceFile::Other(file) = self {
            file.reads_on(start, end);
        }
    }

    /// See [`FileToRead::next_data`].
    pub fn next_data(&self, offset: u64, end: u64) -> io::Result<Option<(u64, u64)>> {
        match self {
            SourceFile::Local(file) => file.next_data(offset, end),
            SourceFile::Other(file) => file.next_data(offset, end),
        }
    }

    /// See [`FileToRead::attributes`].
    pub fn attributes(&self, xattrs: bool, acls: bool) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        match self {
            SourceFile::Local(file) => file.attributes(xattrs, acls),
            SourceFile::Other(file) => file.attributes(xattrs, acls),
        }
    }

    /// See [`FileToRead::server_sum`].
    pub fn server_sum(&self) -> Option<Arc<dyn ServerSum>> {
        match self {
            SourceFile::Local(_) => None,
            SourceFile::Other(file) => file.server_sum(),
        }
    }

    /// The file of this host, if it is one.
    pub fn local(&self) -> Option<&LocalFile> {
        match self {
            SourceFile::Local(file) => Some(file),
            SourceFile::Other(_) => None,
        }
    }

    /// The descriptor of a local file, for routes that move bytes inside the kernel.
    pub fn local_fd(&self) -> Option<BorrowedFd<'_>> {
        self.local().map(|file| file.as_fd())
    }

    /// Prepares a file of `size` bytes to be read from front to back. If it has at least `from_bytes`, looks at what
    /// the page cache has of it.
    pub fn prepare(&mut self, size: u64, from_bytes: Option<u64>) {
        let SourceFile::Local(file) = self else { return };
        if let Some(from_bytes) = from_bytes {
            file.map_cold(size, from_bytes);
        }
        file.advise_sequential();
    }

    /// The parts of a local file that the page cache did not have when the file was prepared.
    pub fn cold(&self) -> Option<&ColdMap> {
        self.local().and_then(LocalFile::cold)
    }
}
