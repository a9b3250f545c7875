//! Paths for the end of a copy, in a file without a name: memory does not grow.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::path::Path;

use crate::limits::MAX_LISTED_PATH_BYTES;
use crate::scratch;

/// A list of byte strings, each as long as a path may be.
///
/// ```text
/// add, add, add -> read: first to last -> clear
/// ```
#[derive(Debug)]
pub struct PathList(BufWriter<File>);

impl PathList {
    /// An empty list in the file system of the directory `root`, else in memory. Fails if the kernel refuses both.
    pub fn new(root: Option<BorrowedFd<'_>>) -> io::Result<Self> {
        // The directory's own path may lead elsewhere.
        let on_disk = root.map(|root| scratch::in_directory(Path::new(&format!("/proc/self/fd/{}", root.as_raw_fd()))));
        match on_disk {
            Some(Ok(file)) => Ok(Self(BufWriter::new(file))),
            Some(Err(_)) | None => scratch::in_memory(0).map(|file| Self(BufWriter::new(file))),
        }
    }

    /// Adds one. Fails if it is too long, or with the file's errors.
    pub fn add(&mut self, text: &[u8]) -> io::Result<()> {
        let length = u32::try_from(text.len()).ok().filter(|length| *length <= MAX_TEXT_BYTES);
        let length = length.ok_or(io::ErrorKind::InvalidInput)?;
        self.0.write_all(&length.to_le_bytes())?;
        self.0.write_all(text)
    }

    /// Reads all from the first on.
    pub fn read(&mut self) -> io::Result<PathListReader> {
        self.0.flush()?;
        let mut file = self.0.get_ref().try_clone()?;
        file.seek(SeekFrom::Start(0))?;
        Ok(PathListReader(BufReader::new(file)))
    }

    /// Forgets all.
    pub fn clear(&mut self) -> io::Result<()> {
        self.0.flush()?;
        self.0.get_mut().set_len(0)?;
        self.0.seek(SeekFrom::Start(0)).map(drop)
    }
}

/// The wire allows no longer path.
#[expect(clippy::cast_possible_truncation, reason = "a path is shorter than 4 GiB")]
const MAX_TEXT_BYTES: u32 = MAX_LISTED_PATH_BYTES as u32;

/// Gives what a [`PathList`] holds. Nothing may be added meanwhile.
#[derive(Debug)]
pub struct PathListReader(BufReader<File>);

impl Iterator for PathListReader {
    type Item = io::Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut length = [0; 4];
        match self.0.read_exact(&mut length) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return None,
            Err(error) => return Some(Err(error)),
            Ok(()) => {}
        }
        let length = u32::from_le_bytes(length);
        if length > MAX_TEXT_BYTES {
            return Some(Err(io::ErrorKind::InvalidData.into()));
        }
        let mut text = vec![0; length as usize];
        Some(self.0.read_exact(&mut text).map(|()| text))
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn what_was_added_is_read_in_order_and_forgotten_after_clear() {
        let directory = tempfile::tempdir().unwrap();
        let root = File::open(directory.path()).unwrap();
        for root in [Some(root.as_fd()), None] {
            let mut list = PathList::new(root).unwrap();
            for texts in [&[&b"a/b"[..], b"", b"c\n"][..], &[b"d"]] {
                for text in texts {
                    list.add(text).unwrap();
                }
                let read: Vec<_> = list.read().unwrap().map(Result::unwrap).collect();
                assert_eq!(read, texts);
                list.clear().unwrap();
                assert_eq!(list.read().unwrap().count(), 0);
            }
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_longer_text_than_a_path_is_refused() {
        let mut list = PathList::new(None).unwrap();
        assert!(list.add(&vec![b'a'; MAX_LISTED_PATH_BYTES + 1]).is_err());
        list.add(&vec![b'a'; MAX_LISTED_PATH_BYTES]).unwrap();
        assert_eq!(list.read().unwrap().count(), 1);
    }
}
