//! The journal of an upload, in this host's state directory: the upload and its parts' sums, beside the receiver's own bytes. A
//! later run goes on with parts that the store still has as sent.
//!
//! ```text
//!   haul-s3-upload 1 | bucket, key, upload id, mark, size, bytes of a part      the first frame
//!   part: number, sum, tag                                                      a frame of each part, in front of what claims it
//!   bytes of the receiver's journal                                             a frame of each call
//! ```

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use haul_store::{Journal, JournalFile};

use crate::s3::sums::crc64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::s3) struct Upload {
    /// `ORIGIN/BUCKET/KEY`, for people and `haul clean`.
    pub(in crate::s3) object: Vec<u8>,
    pub(in crate::s3) id: String,
    /// The mark beside the object: it shows ours if Complete had no answer.
    pub(in crate::s3) mark: String,
    pub(in crate::s3) size: u64,
    pub(in crate::s3) part_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::s3) struct Part {
    pub(in crate::s3) tag: String,
    pub(in crate::s3) crc64: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(in crate::s3) struct Left {
    pub(in crate::s3) upload: Upload,
    pub(in crate::s3) parts: BTreeMap<u32, Part>,
    pub(in crate::s3) receiver: Vec<u8>,
}

/// The journal, seen by somebody who does not upload.
#[derive(Debug)]
pub(in crate::s3) enum Found {
    Nothing,
    Written,
    Left(Left),
}

#[derive(Debug)]
pub(in crate::s3) struct UploadJournal {
    /// `None`: this host has no place for it, and a later run begins anew.
    file: Option<JournalFile>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    upload: Option<Upload>,
    parts: BTreeMap<u32, Part>,
    fresh: Vec<u32>,
    /// The receiver's journal, until the receiver says what it keeps.
    receiver: Vec<u8>,
    is_over: bool,
}

impl UploadJournal {
    pub(in crate::s3) fn new(directory: Option<&Path>, object: &[u8]) -> io::Result<UploadJournal> {
        let file = directory.map(|directory| JournalFile::in_directory(directory, object)).transpose()?;
        Ok(UploadJournal { file, state: Mutex::default() })
    }

    pub(in crate::s3) fn all(directory: &Path) -> io::Result<Vec<UploadJournal>> {
        let files = JournalFile::all_in_directory(directory, MAX_JOURNALS)?;
        Ok(files.into_iter().map(|file| UploadJournal { file: Some(file), state: Mutex::default() }).collect())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads an earlier run's rest. Anything but a journal of this object counts as missing; a held journal is an error.
    pub(in crate::s3) fn left(&self, object: &[u8]) -> io::Result<Option<Left>> {
        Ok(self.read(JournalFile::resume)?.filter(|left| left.upload.object == object))
    }

    /// Reads an earlier run's rest without waiting, and holds the journal from then on.
    pub(in crate::s3) fn look(&self, object: &[u8]) -> io::Result<Found> {
        Ok(match self.look_at_any()? {
            Found::Left(left) if left.upload.object != object => Found::Nothing,
            found => found,
        })
    }

    /// Like [`UploadJournal::look`], for any object.
    pub(in crate::s3) fn look_at_any(&self) -> io::Result<Found> {
        match self.read(JournalFile::resume_at_once) {
            Ok(Some(left)) => Ok(Found::Left(left)),
            Ok(None) => Ok(Found::Nothing),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Found::Written),
            Err(error) => Err(error),
        }
    }

    fn read(&self, resume: fn(&JournalFile) -> io::Result<Option<Vec<u8>>>) -> io::Result<Option<Left>> {
        let Some(file) = &self.file else { return Ok(None) };
        let Some(bytes) = resume(file)? else { return Ok(None) };
        Ok(decode(&bytes))
    }

    pub(in crate::s3) fn go_on(&self, left: &Left) {
        let mut state = self.lock();
        state.upload = Some(left.upload.clone());
        state.parts = left.parts.clone();
        state.receiver = left.receiver.clone();
    }

    /// Writes an upload down before anything is sent: else it could not be ended.
    pub(in crate::s3) fn begin_upload(&self, upload: Upload) -> io::Result<()> {
        let mut state = self.lock();
        let first = encode_upload(&upload);
        *state = State { upload: Some(upload), ..State::default() };
        match &self.file {
            Some(file) => file.begin(&first, &mut || ()),
            None => Ok(()),
        }
    }

    pub(in crate::s3) fn enter(&self, number: u32, part: Part) {
        let mut state = self.lock();
        state.parts.insert(number, part);
        state.fresh.push(number);
    }

    pub(in crate::s3) fn has(&self, number: u32) -> bool {
        self.lock().parts.contains_key(&number)
    }

    pub(in crate::s3) fn parts(&self) -> BTreeMap<u32, Part> {
        self.lock().parts.clone()
    }

    fn rewrite(&self, state: &mut State, receiver: &[u8], begun: &mut dyn FnMut()) -> io::Result<()> {
        let over = || io::Error::new(io::ErrorKind::NotFound, "its upload was given up meanwhile");
        let upload = state.upload.as_ref().filter(|_| !state.is_over).ok_or_else(over)?;
        let mut bytes = encode_upload(upload);
        for (number, part) in &state.parts {
            encode_part(&mut bytes, *number, part);
        }
        state.fresh.clear();
        frame(&mut bytes, RECEIVER, receiver);
        match &self.file {
            Some(file) => file.begin(&bytes, begun),
            None => Ok(()),
        }
    }
}

impl Journal for UploadJournal {
    fn begin(&self, header: &[u8], begun: &mut dyn FnMut()) -> io::Result<()> {
        self.rewrite(&mut self.lock(), header, begun)
    }

    fn append(&self, record: &[u8]) -> io::Result<()> {
        let mut state = self.lock();
        let mut bytes = Vec::new();
        for number in std::mem::take(&mut state.fresh) {
            if let Some(part) = state.parts.get(&number) {
                encode_part(&mut bytes, number, part);
            }
        }
        frame(&mut bytes, RECEIVER, record);
        match &self.file {
            Some(file) => file.append(&bytes),
            None => Ok(()),
        }
    }

    fn keep(&self, len: u64) -> io::Result<()> {
        let mut state = self.lock();
        let receiver = std::mem::take(&mut state.receiver);
        let kept = usize::try_from(len).unwrap_or(usize::MAX).min(receiver.len());
        // A torn frame takes all behind it along.
        self.rewrite(&mut state, &receiver[..kept], &mut || ())
    }

    fn remove(&self) -> io::Result<()> {
        self.lock().is_over = true;
        self.file.as_ref().map_or(Ok(()), JournalFile::remove)
    }
}

/// A copy has a journal for each large file under way, and rarely dies.
const MAX_JOURNALS: usize = 64 << 10;

const MAGIC: &[u8] = b"haul-s3-upload 1\n";
const UPLOAD: u8 = b'U';
const PART: u8 = b'P';
const RECEIVER: u8 = b'J';

/// Writes kind, length, bytes, and a sum of all: a torn frame ends the journal.
fn frame(out: &mut Vec<u8>, kind: u8, bytes: &[u8]) {
    let begin = out.len();
    out.push(kind);
    out.extend(u32::try_from(bytes.len()).expect("a frame is short").to_le_bytes());
    out.extend_from_slice(bytes);
    let sum = crc64(&out[begin..]);
    out.extend(sum.to_le_bytes());
}

fn encode_upload(upload: &Upload) -> Vec<u8> {
    let Upload { object, id, mark, size, part_bytes } = upload;
    let mut fields = Vec::new();
    for field in [&object[..], id.as_bytes(), mark.as_bytes()] {
        fields.extend(u32::try_from(field.len()).expect("a name is short").to_le_bytes());
        fields.extend_from_slice(field);
    }
    fields.extend(size.to_le_bytes());
    fields.extend(part_bytes.to_le_bytes());
    let mut bytes = MAGIC.to_vec();
    frame(&mut bytes, UPLOAD, &fields);
    bytes
}

fn encode_part(out: &mut Vec<u8>, number: u32, part: &Part) {
    frame(out, PART, &[&number.to_le_bytes()[..], &part.crc64.to_le_bytes(), part.tag.as_bytes()].concat());
}

fn decode(bytes: &[u8]) -> Option<Left> {
    let mut rest = bytes.strip_prefix(MAGIC)?;
    let (mut upload, mut parts, mut receiver) = (None, BTreeMap::new(), Vec::new());
    while let Some((kind, body)) = next_frame(&mut rest) {
        match kind {
            UPLOAD if upload.is_none() => upload = Some(decode_upload(body)?),
            PART => {
                let (number, body) = body.split_first_chunk::<4>()?;
                let (sum, tag) = body.split_first_chunk::<8>()?;
                let part = Part { tag: String::from_utf8(tag.to_vec()).ok()?, crc64: u64::from_le_bytes(*sum) };
                parts.insert(u32::from_le_bytes(*number), part);
            }
            RECEIVER => receiver.extend_from_slice(body),
            _ => return None,
        }
    }
    Some(Left { upload: upload?, parts, receiver })
}

fn next_frame<'a>(rest: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let whole = *rest;
    let (kind, tail) = whole.split_first()?;
    let (length, tail) = tail.split_first_chunk::<4>()?;
    let (body, tail) = tail.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    let (sum, tail) = tail.split_first_chunk::<8>()?;
    if crc64(&whole[..5 + body.len()]) != u64::from_le_bytes(*sum) {
        return None;
    }
    *rest = tail;
    Some((*kind, body))
}

fn decode_upload(mut body: &[u8]) -> Option<Upload> {
    let mut field = || {
        let (length, tail) = body.split_first_chunk::<4>()?;
        let (field, tail) = tail.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        body = tail;
        Some(field.to_vec())
    };
    let (object, id, mark) = (field()?, String::from_utf8(field()?).ok()?, String::from_utf8(field()?).ok()?);
    let (size, tail) = body.split_first_chunk::<8>()?;
    let part_bytes = u64::from_le_bytes(*tail.first_chunk::<8>()?);
    Some(Upload { object, id, mark, size: u64::from_le_bytes(*size), part_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_is_read_up_to_where_it_is_torn() {
        let dir = tempfile::tempdir().unwrap();
        let open = || UploadJournal::new(Some(dir.path()), b"o/b/k").unwrap();
        // The journal is held while it is written.
        let stands = || {
            let file = std::fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
            decode(&std::fs::read(file).unwrap()).unwrap()
        };
        let upload = Upload { object: b"o/b/k".to_vec(), id: "id".into(), mark: "m".into(), size: 30, part_bytes: 10 };
        let part = |sum| Part { tag: format!("\"{sum}\""), crc64: sum };
        let journal = open();
        assert_eq!(journal.left(b"o/b/k").unwrap(), None);
        journal.begin_upload(upload.clone()).unwrap();
        assert_eq!(stands().upload, upload);
        assert!(matches!(open().look(b"o/b/k").unwrap(), Found::Written));
        journal.enter(0, part(1));
        journal.begin(b"header", &mut || ()).unwrap();
        journal.enter(2, part(3));
        journal.append(b" one").unwrap();
        drop(journal);
        assert_eq!(open().left(b"o/b/other").unwrap(), None);
        let left = open().left(b"o/b/k").unwrap().unwrap();
        assert_eq!((&left.receiver[..], left.parts.len()), (&b"header one"[..], 2));
        let file = std::fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
        let bytes = std::fs::read(&file).unwrap();
        for end in 0..bytes.len() {
            match decode(&bytes[..end]) {
                Some(torn) => assert!(left.receiver.starts_with(&torn.receiver) && torn.upload == upload),
                None => assert!(end < encode_upload(&upload).len()),
            }
        }
        let again = open();
        let left = again.left(b"o/b/k").unwrap().unwrap();
        again.go_on(&left);
        again.keep(6).unwrap();
        again.append(b" two").unwrap();
        assert_eq!(stands().receiver, b"header two");
        again.remove().unwrap();
        assert_eq!(open().left(b"o/b/k").unwrap(), None);
        assert!(again.begin(b"x", &mut || ()).is_err());
    }
}
