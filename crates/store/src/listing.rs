//! The names of one directory, sorted, in one buffer: 10^6 names of 30 bytes take 38 MB.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use rustix::fs::{FileType, RawDir};

use crate::error::refusal;
use crate::limits::{LISTING_BUFFER_BYTES, MAX_DIRECTORY_BYTES};

/// Names and their types as the directory tells them.
#[derive(Debug, Default)]
pub(crate) struct Names {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

/// Names have at most 255 bytes on Linux; some file systems allow more characters than that in theory, hence 16 bit.
#[derive(Debug, Clone, Copy)]
struct Entry {
    offset: u32,
    len: u16,
    hint: Hint,
}

/// What the directory says an entry is. Some file systems do not say, and it may have changed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hint {
    Directory,
    Symlink,
    Other,
    Unknown,
}

impl Names {
    /// One name, of whatever kind.
    pub(crate) fn of(name: &[u8]) -> Names {
        let len = u16::try_from(name.len()).unwrap_or(u16::MAX);
        Names { bytes: name.to_vec(), entries: vec![Entry { offset: 0, len, hint: Hint::Unknown }] }
    }

    /// Reads an open directory to its end, from its current position (the start, when freshly opened).
    pub(crate) fn read(dir: BorrowedFd<'_>) -> io::Result<Names> {
        Self::read_only(dir, |_| true)
    }

    /// [`Names::read`], but remembers only the names that are wanted.
    pub(crate) fn read_only(dir: BorrowedFd<'_>, wanted: impl Fn(&[u8]) -> bool) -> io::Result<Names> {
        let mut names = Names::default();
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
            if !wanted(name) {
                continue;
            }
            let len = u16::try_from(name.len()).map_err(|_| io::ErrorKind::InvalidFilename)?;
            if names.bytes.len() + name.len() > MAX_DIRECTORY_BYTES {
                return Err(refusal(io::ErrorKind::FileTooLarge, "the directory holds too many names"));
            }
            let hint = match entry.file_type() {
                FileType::Directory => Hint::Directory,
                FileType::Symlink => Hint::Symlink,
                FileType::Unknown => Hint::Unknown,
                _ => Hint::Other,
            };
            names.entries.push(Entry { offset: names.bytes.len() as u32, len, hint });
            names.bytes.extend_from_slice(name);
        }
        names.bytes.shrink_to_fit();
        names.entries.shrink_to_fit();
        let bytes = &names.bytes;
        names.entries.sort_unstable_by(|a, b| a.name(bytes).cmp(b.name(bytes)));
        Ok(names)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn get(&self, index: usize) -> Option<(&[u8], Hint)> {
        self.entries.get(index).map(|entry| (entry.name(&self.bytes), entry.hint))
    }
}

impl Entry {
    fn name(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.offset as usize..][..self.len as usize]
    }
}
