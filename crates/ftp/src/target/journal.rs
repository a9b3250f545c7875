//! The journal of an upload: a file in the state directory of this host, which holds what the receiver writes behind what tells the upload.
//!
//! ```text
//!   haul-ftp-upload 1 | number of the draft (16) | size (8) | bytes of the place (4) | place      what the server cannot keep
//!   bytes of the receiver's journal
//! ```
//! A process that lives holds it: a second copy from this host to the same file fails.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use haul_store::{Journal, JournalFile};

/// What an earlier run left of an upload.
pub(super) struct Left {
    pub(super) number: (u64, u64),
    pub(super) size: u64,
    /// The receiver's journal.
    pub(super) receiver: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct UploadJournal {
    /// `None`: a later run begins anew.
    file: Option<JournalFile>,
    first: Vec<u8>,
    /// It says something of the upload.
    is_begun: AtomicBool,
}

impl UploadJournal {
    /// No later run goes on.
    pub(super) fn none() -> UploadJournal {
        UploadJournal { file: None, first: Vec::new(), is_begun: AtomicBool::new(false) }
    }

    /// For an upload of so many bytes to a place. `place` names the server, too.
    pub(super) fn new(directory: &Path, place: &[u8], number: (u64, u64), size: u64) -> io::Result<UploadJournal> {
        let file = JournalFile::in_directory(directory, place)?;
        let is_begun = AtomicBool::new(false);
        Ok(UploadJournal { file: Some(file), first: first(place, number, size), is_begun })
    }

    /// Reads what an earlier run left for this place, and holds it. What is no journal of this place is nothing; one that another process
    /// holds is an error.
    pub(super) fn left(directory: &Path, place: &[u8]) -> io::Result<Option<(UploadJournal, Left)>> {
        let file = JournalFile::in_directory(directory, place)?;
        let Some(bytes) = file.resume()? else { return Ok(None) };
        let Some(left) = decode(&bytes, place) else { return Ok(None) };
        let first = first(place, left.number, left.size);
        Ok(Some((UploadJournal { file: Some(file), first, is_begun: AtomicBool::new(true) }, left)))
    }

    /// Removes what an earlier run may have left: it tells of other data than that which is about to be sent. One that another process holds
    /// is an error.
    pub(super) fn take_over(&self) -> io::Result<()> {
        match &self.file {
            Some(file) if file.resume()?.is_some() => file.remove(),
            _ => Ok(()),
        }
    }

    /// A later run goes on with what the server has.
    pub(super) fn is_begun(&self) -> bool {
        self.is_begun.load(Ordering::Relaxed)
    }

    /// A later run may go on.
    pub(super) fn is_kept(&self) -> bool {
        self.file.is_some()
    }
}

impl Journal for UploadJournal {
    fn begin(&self, header: &[u8], begun: &mut dyn FnMut()) -> io::Result<()> {
        match &self.file {
            Some(file) => {
                file.begin(&[&self.first[..], header].concat(), begun)?;
                self.is_begun.store(true, Ordering::Relaxed);
                Ok(())
            }
            None => {
                begun();
                Ok(())
            }
        }
    }

    fn append(&self, record: &[u8]) -> io::Result<()> {
        self.file.as_ref().map_or(Ok(()), |file| file.append(record))
    }

    fn keep(&self, len: u64) -> io::Result<()> {
        self.file.as_ref().map_or(Ok(()), |file| file.keep(self.first.len() as u64 + len))
    }

    fn remove(&self) -> io::Result<()> {
        self.is_begun.store(false, Ordering::Relaxed);
        self.file.as_ref().map_or(Ok(()), JournalFile::remove)
    }
}

const MAGIC: &[u8] = b"haul-ftp-upload 1\n";

fn first(place: &[u8], number: (u64, u64), size: u64) -> Vec<u8> {
    let length = u32::try_from(place.len()).expect("a place is shorter than a command");
    let numbers = [number.0.to_le_bytes(), number.1.to_le_bytes(), size.to_le_bytes()].concat();
    [MAGIC, &numbers, &length.to_le_bytes(), place].concat()
}

fn decode(bytes: &[u8], place: &[u8]) -> Option<Left> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (first, rest) = rest.split_first_chunk::<8>()?;
    let (second, rest) = rest.split_first_chunk::<8>()?;
    let (size, rest) = rest.split_first_chunk::<8>()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (found, receiver) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    let number = (u64::from_le_bytes(*first), u64::from_le_bytes(*second));
    (found == place).then(|| Left { number, size: u64::from_le_bytes(*size), receiver: receiver.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_is_of_its_place_alone_and_ends_where_it_is_torn() {
        let dir = tempfile::tempdir().unwrap();
        let journal = UploadJournal::new(dir.path(), b"host/f", (1, 2), 30).unwrap();
        journal.begin(b"header", &mut || ()).unwrap();
        journal.append(b" one").unwrap();
        drop(journal);
        assert!(UploadJournal::left(dir.path(), b"host/g").unwrap().is_none());
        let (journal, left) = UploadJournal::left(dir.path(), b"host/f").unwrap().unwrap();
        assert_eq!((left.number, left.size, &left.receiver[..]), ((1, 2), 30, &b"header one"[..]));
        journal.keep(6).unwrap();
        journal.append(b" two").unwrap();
        drop(journal);
        assert_eq!(UploadJournal::left(dir.path(), b"host/f").unwrap().unwrap().1.receiver, b"header two");
        let whole = [&first(b"host/f", (1, 2), 30)[..], b"rest"].concat();
        for end in 0..whole.len() - 4 {
            assert!(decode(&whole[..end], b"host/f").is_none(), "{end}");
        }
        assert!(decode(&whole, b"host/x").is_none());
    }
}
