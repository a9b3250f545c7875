//! The sorted names of one directory, or of several sources' that meet, in one buffer: 10^6 names of 30 bytes take 42 MB.

use std::io;
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::fs::{FileType, Mode, OFlags, RawDir};

use crate::error::refusal;
use crate::limits::{LISTING_BUFFER_BYTES, MAX_DIRECTORY_BYTES};
use crate::name::name_hash;

pub(crate) type Flow = io::Result<ControlFlow<()>>;

#[derive(Debug, Default)]
pub(crate) struct Names {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

/// Linux's names have at most 255 bytes, on some file systems more: hence 16 bits.
#[derive(Debug, Clone, Copy)]
struct Entry {
    offset: u32,
    len: u16,
    hint: Hint,
    source: u32,
}

/// The type of an entry, if its directory reports it; it may have changed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hint {
    Directory,
    Symlink,
    Other,
    Unknown,
}

impl Names {
    pub(crate) fn of(name: &[u8]) -> Names {
        let len = u16::try_from(name.len()).unwrap_or(u16::MAX);
        Names { bytes: name.to_vec(), entries: vec![Entry { offset: 0, len, hint: Hint::Unknown, source: 0 }] }
    }

    pub(crate) fn read(dir: BorrowedFd<'_>) -> io::Result<Names> {
        Self::read_only(dir, |_| true)
    }

    pub(crate) fn read_only(dir: BorrowedFd<'_>, wanted: impl Fn(&[u8]) -> bool) -> io::Result<Names> {
        let mut names = Names::default();
        names.add_directory(dir, 0, wanted)?;
        names.sort();
        Ok(names)
    }

    pub(crate) fn add_directory(
        &mut self,
        dir: BorrowedFd<'_>,
        source: u32,
        wanted: impl Fn(&[u8]) -> bool,
    ) -> io::Result<()> {
        Self::each(dir, &mut |name, hint| {
            if wanted(name) {
                self.add(name, source, hint)?;
            }
            Ok(ControlFlow::Continue(()))
        })
        .map(drop)
    }

    pub(crate) fn each(dir: BorrowedFd<'_>, take: &mut dyn FnMut(&[u8], Hint) -> Flow) -> Flow {
        let mut buffer = vec![MaybeUninit::uninit(); LISTING_BUFFER_BYTES];
        let mut listing = RawDir::new(dir, &mut buffer);
        while let Some(entry) = listing.next() {
            let entry = match entry {
                Err(rustix::io::Errno::INTR) => continue,
                entry => entry?,
            };
            let name = entry.file_name().to_bytes();
            // A broken or hostile file system must not make us leave the directory.
            if matches!(name, b"" | b"." | b"..") || name.contains(&b'/') {
                continue;
            }
            let hint = match entry.file_type() {
                FileType::Directory => Hint::Directory,
                FileType::Symlink => Hint::Symlink,
                FileType::Unknown => Hint::Unknown,
                _ => Hint::Other,
            };
            if take(name, hint)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    pub(crate) fn add(&mut self, name: &[u8], source: u32, hint: Hint) -> io::Result<()> {
        let len = u16::try_from(name.len()).map_err(|_| io::ErrorKind::InvalidFilename)?;
        if self.bytes.len() + name.len() > MAX_DIRECTORY_BYTES {
            return Err(refusal(io::ErrorKind::FileTooLarge, "the directory holds too many names"));
        }
        self.entries.push(Entry { offset: self.bytes.len() as u32, len, hint, source });
        self.bytes.extend_from_slice(name);
        Ok(())
    }

    pub(crate) fn sort(&mut self) {
        self.bytes.shrink_to_fit();
        self.entries.shrink_to_fit();
        let bytes = &self.bytes;
        self.entries.sort_unstable_by(|a, b| a.name(bytes).cmp(b.name(bytes)).then(a.source.cmp(&b.source)));
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.len() + size_of_val(&self.entries[..])
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn get(&self, index: usize) -> Option<(&[u8], Hint)> {
        self.entries.get(index).map(|entry| (entry.name(&self.bytes), entry.hint))
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (&[u8], Hint)> {
        self.entries.iter().map(|entry| (entry.name(&self.bytes), entry.hint))
    }

    pub(crate) fn has(&self, name: &[u8]) -> bool {
        self.entries.binary_search_by(|entry| entry.name(&self.bytes).cmp(name)).is_ok()
    }

    /// The estimated size of the tree behind a name: directories hold more.
    pub(crate) fn weight(&self, index: usize) -> u64 {
        self.entries.get(index).map_or(0, Entry::weight)
    }

    pub(crate) fn weights(&self, before: usize) -> (u64, u64) {
        let sum = |entries: &[Entry]| entries.iter().map(Entry::weight).sum::<u64>();
        let (first, rest) = self.entries.split_at(before.min(self.entries.len()));
        (sum(first), sum(first) + sum(rest))
    }

    pub(crate) fn source(&self, index: usize) -> Option<u32> {
        self.entries.get(index).map(|entry| entry.source)
    }
}

/// Whether an open directory lists names with all these different hashes.
pub(crate) fn are_listed(dir: BorrowedFd<'_>, hashes: &[u128]) -> io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::io::retry_on_intr(|| rustix::fs::openat(dir, ".", flags, Mode::empty()))?;
    let mut missing = hashes.to_vec();
    let _ = Names::each(opened.as_fd(), &mut |name, _| {
        let hash = name_hash(name);
        missing.retain(|other| *other != hash);
        Ok(if missing.is_empty() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(missing.is_empty())
}

/// Entries of an average directory: between sources (10) and data sets (1,000).
const DIRECTORY_WEIGHT: u64 = 100;

impl Entry {
    fn weight(&self) -> u64 {
        if self.hint == Hint::Directory { DIRECTORY_WEIGHT } else { 1 }
    }

    fn name(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.offset as usize..][..self.len as usize]
    }
}
