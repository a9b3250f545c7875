//! The traits of an end that is read: a tree, its items, and a file.

use std::any::Any;
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
    /// Yields all to copy: directories before content, names sorted.
    fn items(self: Arc<Self>, options: WalkOptions) -> Box<dyn ItemSource>;

    /// Opens a regular file of the walk.
    fn open(&self, source: u32, source_path: &[u8]) -> Result<SourceFile>;

    /// Whether one path was given, no directory: the target may be its new name.
    fn is_single_file(&self) -> bool {
        false
    }

    /// The single file's name.
    fn name_of_single_file(&self) -> &[u8] {
        b""
    }

    /// Removes a file or link that still is what was copied. False: it is gone.
    fn remove(&self, _source: u32, source_path: &[u8], _copied: &AsCopied) -> Result<bool> {
        let error = refusal(io::ErrorKind::Unsupported, "nothing can be removed from this source");
        Err(StoreError::new("remove the source", source_path, error))
    }

    /// The source in whose directory a target has this draft; the walk then fails there.
    fn seen_at(&self, _draft: &[u8]) -> Option<Vec<u8>> {
        None
    }

    /// This tree, for a target to which its server may send files by itself ([`ThirdParty`](crate::ThirdParty)).
    fn for_third_party(self: Arc<Self>) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }

    /// The order of reads that suits the end, as known by now.
    fn access(&self) -> Access {
        Access::Random
    }

    /// The connections of an end that another host serves.
    fn connections(&self) -> Option<Arc<dyn Connections>> {
        None
    }

    /// How many files were compared with sums, if this end has any.
    fn sums(&self) -> Option<SumCounts> {
        None
    }

    /// The local directories of opened files, to give up rights to others. `None`: anywhere.
    fn roots(&self) -> Option<Vec<BorrowedFd<'_>>> {
        Some(Vec::new())
    }
}

/// The order of reads that suits an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Access {
    /// Every place is read as quickly.
    #[default]
    Random,
    /// Reading on is much quicker than jumping. Readers of one file say how far they go on ([`FileToRead::reads_on`]).
    Runs {
        /// The bytes whose time a jump costs.
        jump_bytes: u64,
    },
    /// One reader reads a file from front to back.
    Sequential,
}

/// The items of a job: a walk over a tree, or a list.
pub trait ItemSource: Iterator<Item = Found> + Send {
    /// The entries left out for an earlier source's.
    fn duplicates(&self) -> Duplicates {
        Duplicates::default()
    }

    /// The estimated share found so far, 0 to 1.
    fn share(&self) -> Option<f64> {
        None
    }
}

impl ItemSource for std::vec::IntoIter<Found> {}

/// A file to read.
pub trait FileToRead: Debug + Send + Sync {
    /// The current metadata; another version: the file has changed.
    fn stat(&self) -> io::Result<Stat>;

    /// Fills `buffer` from `offset` on; less at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Announces that this thread reads from `start` to `end`, and others what follows.
    fn reads_on(&self, _start: u64, _end: u64) {}

    /// The next `[start, end)` of data at or after `offset`, clipped to `end`; `None`: only a hole is left. Without holes
    /// all is data.
    fn next_data(&self, offset: u64, end: u64) -> io::Result<Option<(u64, u64)>> {
        Ok((offset < end).then_some((offset, end)))
    }

    /// The server's sum of this file, if any.
    fn server_sum(&self) -> Option<Arc<dyn ServerSum>> {
        None
    }

    /// The requested extended attributes and ACLs.
    fn attributes(&self, _xattrs: bool, _acls: bool) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        Ok(Vec::new())
    }
}

/// An open file of any end, on this host with the kernel's routes and no virtual call.
#[derive(Debug)]
pub enum SourceFile {
    /// A file of this host.
    Local(LocalFile),
    /// Any other file.
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

    /// Whether there are bytes at `end`, the metadata's size.
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

    /// The descriptor of a local file, for the kernel's routes.
    pub fn local_fd(&self) -> Option<BorrowedFd<'_>> {
        self.local().map(|file| file.as_fd())
    }

    /// Prepares to read from front to back; from `from_bytes` on, looks at the page cache.
    pub fn prepare(&mut self, size: u64, from_bytes: Option<u64>) {
        let SourceFile::Local(file) = self else { return };
        if let Some(from_bytes) = from_bytes {
            file.map_cold(size, from_bytes);
        }
        file.advise_sequential();
    }

    /// The uncached parts of a prepared local file.
    pub fn cold(&self) -> Option<&ColdMap> {
        self.local().and_then(LocalFile::cold)
    }
}
