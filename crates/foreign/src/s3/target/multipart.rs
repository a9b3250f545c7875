//! A file of several parts: each chunk of the copy is a part, and the object shows when all are there. A part is held in memory
//! until the store has it, or is sent while it is written ([`super::sent_part`]).
//!
//! ```text
//! Create -> journal -> parts, in any order, each with its sum -> Complete with the sum of the whole -> the object
//!                                                              -> no answer: is it our object that stands there?
//! ```

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use haul_store::{DraftPlan, FileToWrite, Journal, Metadata, Result, StoreError};
use http::{HeaderName, HeaderValue, Method};

use crate::http_client::client::invalid;
use crate::http_client::fields::text;
use crate::http_client::outgoing::Content;
use crate::s3::limits::{HELD_PART_BYTES, MAX_OBJECT_BYTES, MAX_PART_BYTES, MAX_PARTS, SURE_OBJECT_BYTES};
use crate::s3::store::{Request, etag};
use crate::s3::sums::{crc64, is_one, joined, text as sum_text};
use crate::s3::target::held::Share;
use crate::s3::target::journal::{Found, Part, Upload, UploadJournal};
use crate::s3::target::sent_part::{Place, SentPart};
use crate::s3::target::standing::Seen;
use crate::s3::target::tree::{Tree, changed_meanwhile};
use crate::s3::uploads::{self, CRC64, Completed, MARK, Named, abort, list_parts};
use crate::s3::xml;

const ALGORITHM: HeaderName = HeaderName::from_static("x-amz-checksum-algorithm");
const KIND: HeaderName = HeaderName::from_static("x-amz-checksum-type");

#[derive(Debug)]
pub(super) struct MultipartDraft {
    tree: Arc<Tree>,
    path: Vec<u8>,
    key: Vec<u8>,
    size: u64,
    part_bytes: u64,
    upload: Upload,
    journal: UploadJournal,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// A dead lane's part is begun anew by its next writer.
    filling: HashMap<u32, Filling>,
    is_over: bool,
}

#[derive(Debug)]
enum Filling {
    Held(Vec<u8>, Share),
    Sent(Box<SentPart>),
}

impl Filling {
    fn at(&self) -> u64 {
        match self {
            Filling::Held(data, _) => data.len() as u64,
            Filling::Sent(part) => part.at(),
        }
    }
}

/// Ends an earlier run's upload, if no process goes on with it.
pub(super) fn end_left_upload(tree: &Tree, path: &[u8]) -> io::Result<()> {
    let Some(journals) = tree.settings.journals.as_deref() else { return Ok(()) };
    let key = tree.key(path)?;
    let object = tree.store.object_name(&key);
    let journal = UploadJournal::new(Some(journals), &object)?;
    let Found::Left(left) = journal.look(&object)? else { return Ok(()) };
    abort(&tree.store, &key, &left.upload.id)?;
    journal.remove()
}

impl MultipartDraft {
    /// Begins an upload, and ends an earlier run's.
    pub(super) fn begin(tree: &Arc<Tree>, path: &[u8], plan: &DraftPlan) -> io::Result<MultipartDraft> {
        let key = tree.new_key(path)?;
        if plan.size > MAX_OBJECT_BYTES || plan.chunk_bytes > MAX_PART_BYTES {
            let why = "a store takes 10,000 parts, of 4 GiB as haul cuts them: objects of at most 39 TiB";
            return Err(io::Error::new(ErrorKind::FileTooLarge, why));
        }
        if plan.size > SURE_OBJECT_BYTES {
            tree.doubts_size();
        }
        let object = tree.store.object_name(&key);
        let journal = UploadJournal::new(tree.settings.journals.as_deref(), &object)?;
        if let Some(left) = journal.left(&object)?
            && let Err(error) = abort(&tree.store, &key, &left.upload.id)
        {
            // The right to write need not include the right to end uploads.
            tree.warn(format!("an upload that an earlier copy left stays in the store: {error}"));
        }
        // Handshakes run while the store begins the upload.
        tree.store.client.dial_for_upload(plan.size);
        let mark = uploads::new_mark()?;
        let id = create(tree, &key, plan, &mark)?;
        let upload = Upload { object, id, mark, size: plan.size, part_bytes: plan.chunk_bytes };
        if let Err(error) = journal.begin_upload(upload.clone()) {
            // Without a journal the upload could never be ended.
            let _ = abort(&tree.store, &key, &upload.id);
            return Err(error);
        }
        Ok(MultipartDraft::with(tree, path, key, upload, journal))
    }

    fn with(tree: &Arc<Tree>, path: &[u8], key: Vec<u8>, upload: Upload, journal: UploadJournal) -> MultipartDraft {
        tree.held.expect(upload.part_bytes);
        let (size, part_bytes) = (upload.size, upload.part_bytes);
        let (tree, path, state) = (Arc::clone(tree), path.to_vec(), Mutex::default());
        MultipartDraft { tree, path, key, size, part_bytes, upload, journal, state }
    }

    /// Resumes an earlier upload with the parts that the store has as sent, and returns the receiver's journal.
    pub(super) fn resume(tree: &Arc<Tree>, path: &[u8]) -> io::Result<Option<(MultipartDraft, Vec<u8>)>> {
        let key = tree.new_key(path)?;
        let object = tree.store.object_name(&key);
        let journal = UploadJournal::new(tree.settings.journals.as_deref(), &object)?;
        let Some(mut left) = journal.left(&object)? else { return Ok(None) };
        if left.receiver.is_empty() || !left.upload.part_bytes.is_power_of_two() {
            return Ok(None);
        }
        tree.store.client.dial_for_upload(left.upload.size);
        let Some(listed) = list_parts(&tree.store, &key, &left.upload.id)? else { return Ok(None) };
        let Upload { size, part_bytes, .. } = left.upload;
        left.parts.retain(|number, part| {
            let start = u64::from(*number).saturating_mul(part_bytes);
            let length = size.saturating_sub(start).min(part_bytes);
            listed.get(number).is_some_and(|listed| {
                listed.size == length
                    && listed.tag == part.tag
                    && listed.crc64.as_ref().is_none_or(|sum| *sum == sum_text(part.crc64))
            })
        });
        journal.go_on(&left);
        let draft = MultipartDraft::with(tree, path, key, left.upload, journal);
        Ok(Some((draft, left.receiver)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn length_of(&self, part: u32) -> u64 {
        self.size.saturating_sub(u64::from(part) * self.part_bytes).min(self.part_bytes)
    }

    fn write(&self, mut data: &[u8], mut offset: u64) -> io::Result<()> {
        while !data.is_empty() {
            let part = u32::try_from(offset / self.part_bytes).map_err(|_| ErrorKind::FileTooLarge)?;
            let (at, length) = (offset % self.part_bytes, self.length_of(part));
            let piece = usize::try_from(length.saturating_sub(at)).unwrap_or(usize::MAX).min(data.len());
            if piece == 0 {
                return Err(io::Error::new(ErrorKind::InvalidInput, "it is longer than was announced"));
            }
            match self.fill(part, at, length, &data[..piece])? {
                Some(Filling::Held(whole, _share)) => self.send(part, Bytes::from(whole))?,
                Some(Filling::Sent(sent)) => self.journal.enter(part, sent.finish()?),
                None => {}
            }
            data = &data[piece..];
            offset += piece as u64;
        }
        Ok(())
    }

    /// Takes pieces in order. Returns the part when full.
    fn fill(&self, part: u32, at: u64, length: u64, piece: &[u8]) -> io::Result<Option<Filling>> {
        let before = {
            let mut state = self.lock();
            if state.is_over {
                return Err(io::Error::new(ErrorKind::NotFound, "its upload was given up meanwhile"));
            }
            state.filling.remove(&part)
        };
        let mut filling = match before {
            Some(before) if at > 0 => before,
            _ => self.begin_part(part, length)?,
        };
        if filling.at() != at {
            return Err(io::Error::new(ErrorKind::InvalidInput, "a part is written from its beginning to its end"));
        }
        match &mut filling {
            Filling::Held(data, _) => data.extend_from_slice(piece),
            // Sending may wait for the store.
            Filling::Sent(sent) => sent.send(piece)?,
        }
        if filling.at() == length {
            return Ok(Some(filling));
        }
        let mut state = self.lock();
        if !state.is_over {
            state.filling.insert(part, filling);
        }
        Ok(None)
    }

    fn begin_part(&self, part: u32, length: u64) -> io::Result<Filling> {
        let held = self.tree.settings.held_part_bytes.unwrap_or(HELD_PART_BYTES);
        if self.part_bytes <= held
            && let Some(share) = self.tree.held.take(length)
        {
            return Ok(Filling::Held(Vec::with_capacity(usize::try_from(length).unwrap_or(0)), share));
        }
        let (key, upload) = (self.key.clone(), self.upload.id.clone());
        let place = Place { key, upload, number: part + 1, length };
        SentPart::begin(&self.tree, place).map(|sent| Filling::Sent(Box::new(sent)))
    }

    fn send(&self, part: u32, data: Bytes) -> io::Result<()> {
        let sum = crc64(&data);
        let number = (part + 1).to_string();
        let query = [("partNumber", number.as_str()), ("uploadId", self.upload.id.as_str())];
        loop {
            let sums = self.tree.sums();
            let mut fields = Vec::new();
            if sums {
                fields.push((CRC64, value(&sum_text(sum))?));
            }
            let content = Content::Whole(data.clone());
            let put = Request::new(Method::PUT, &self.key);
            let request = Request { query: &query, fields, content, is_large: true, ..put };
            match self.tree.store.ask(&request)? {
                Ok(answer) => {
                    let tag = etag(&answer.head)?;
                    let told = text(&answer.head.headers, &CRC64).map(str::to_owned);
                    self.tree.store.client.give_back(answer.url.origin(), answer.body);
                    if told.is_some_and(|told| is_one(&told) && told != sum_text(sum)) {
                        return Err(invalid("the store has another CRC64NVME of a part than was sent".to_owned()));
                    }
                    self.journal.enter(part, Part { tag, crc64: sum });
                    return Ok(());
                }
                Err(refusal) if sums && refusal.is_of_unknown_field() => self.tree.without_sums(),
                Err(refusal) => return Err(refusal.as_io()),
            }
        }
    }

    fn complete(&self) -> io::Result<()> {
        let parts = self.journal.parts();
        let count = u32::try_from(self.size.div_ceil(self.part_bytes)).unwrap_or(u32::MAX);
        if !parts.keys().copied().eq(0..count) || count > MAX_PARTS {
            return Err(io::Error::new(ErrorKind::InvalidInput, "parts of it are missing"));
        }
        let sums = self.tree.sums();
        let mut whole = None;
        let mut body = String::from("<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
        for (part, Part { tag, crc64 }) in &parts {
            let length = self.length_of(*part);
            whole = Some(whole.map_or(*crc64, |whole| joined(whole, *crc64, length)));
            let _ = write!(body, "<Part><PartNumber>{}</PartNumber><ETag>{}</ETag>", part + 1, xml::escaped(tag));
            if sums {
                let _ = write!(body, "<ChecksumCRC64NVME>{}</ChecksumCRC64NVME>", sum_text(*crc64));
            }
            body.push_str("</Part>");
        }
        body.push_str("</CompleteMultipartUpload>");
        let sum = whole.map(sum_text).unwrap_or_default();
        let mut fields = Vec::new();
        if sums {
            fields.push((CRC64, value(&sum)?));
            fields.push((KIND, HeaderValue::from_static("FULL_OBJECT")));
        }
        let told = self.complete_as(&fields, &Bytes::from(body))?;
        match told {
            Completed::With(Some(told)) if sums && is_one(&told) && told != sum => {
                Err(invalid("the store has another CRC64NVME of the object than was sent".to_owned()))
            }
            Completed::With(told) => {
                if !sums || told.is_some_and(|told| !is_one(&told)) {
                    self.tree.unsummed();
                }
                Ok(())
            }
            Completed::Refused(refusal) => Err(refusal.as_io()),
        }
    }

    /// Completes the upload of an object unchanged since it was looked at.
    fn complete_as(&self, fields: &[(HeaderName, HeaderValue)], body: &Bytes) -> io::Result<Completed> {
        let upload = Named { key: &self.key, id: &self.upload.id, mark: &self.upload.mark };
        let condition = self.tree.condition(&self.path, &self.key)?;
        let is_conditional = condition.is_some();
        if let Some(condition) = condition {
            let fields = [fields, &[condition]].concat();
            match uploads::complete(&self.tree.store, upload, &fields, body)? {
                Completed::Refused(refusal) if refusal.is_of_unknown_field() => {}
                Completed::Refused(refusal) if self.tree.is_of_change(&refusal) => return Err(changed_meanwhile()),
                done => return Ok(done),
            }
        }
        let done = uploads::complete(&self.tree.store, upload, fields, body)?;
        if is_conditional && matches!(done, Completed::With(_)) {
            self.tree.without_conditions();
        }
        Ok(done)
    }

    fn context<T>(&self, op: &'static str, result: io::Result<T>) -> Result<T> {
        result.map_err(|error| StoreError::new(op, &self.path, error))
    }
}

fn value(text: &str) -> io::Result<HeaderValue> {
    HeaderValue::from_str(text).map_err(|_| io::Error::from(ErrorKind::InvalidInput))
}

fn create(tree: &Tree, key: &[u8], plan: &DraftPlan, mark: &str) -> io::Result<String> {
    loop {
        let sums = tree.sums();
        let mut fields = tree.fields(plan);
        fields.push((MARK, value(mark)?));
        if sums {
            fields.push((ALGORITHM, HeaderValue::from_static("CRC64NVME")));
            fields.push((KIND, HeaderValue::from_static("FULL_OBJECT")));
        }
        match uploads::begin(&tree.store, key, fields)? {
            Ok(id) => return Ok(id),
            Err(refusal) if sums && refusal.is_of_unknown_field() => tree.without_sums(),
            Err(refusal) => return Err(refusal.as_io()),
        }
    }
}

impl FileToWrite for MultipartDraft {
    fn path(&self) -> &[u8] {
        &self.path
    }

    fn id(&self) -> (u64, u64) {
        let hash = blake3::hash(self.upload.id.as_bytes());
        let (one, other) = hash.as_bytes().split_at(8);
        let number = |bytes: &[u8]| u64::from_le_bytes(*bytes.first_chunk().expect("a hash has 32 bytes"));
        (number(one), number(other))
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.context("upload", self.write(data, offset))
    }

    fn read_at(&self, _buffer: &mut [u8], _offset: u64) -> Result<usize> {
        let why = "a store gives nothing back of an upload that is not complete";
        self.context("read", Err(io::Error::new(ErrorKind::Unsupported, why)))
    }

    fn proves(&self, offset: u64, length: u64) -> Option<bool> {
        let part = u32::try_from(offset / self.part_bytes).unwrap_or(u32::MAX);
        Some(offset.is_multiple_of(self.part_bytes) && length == self.length_of(part) && self.journal.has(part))
    }

    fn size(&self) -> Result<u64> {
        Ok(self.size)
    }

    fn set_size(&self, size: u64) -> Result<()> {
        match size == self.size {
            true => Ok(()),
            false => self.context("upload", Err(io::Error::new(ErrorKind::InvalidInput, "its size was announced"))),
        }
    }

    /// Does nothing: confirmed parts are safe.
    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn set_metadata(&self, _meta: &Metadata, _flush: bool) -> Result<()> {
        Ok(())
    }

    fn give_name(&self) -> Result<()> {
        if self.lock().is_over {
            return self.context("upload", Err(io::Error::new(ErrorKind::NotFound, "it was given up meanwhile")));
        }
        self.context("complete the upload of", self.complete())?;
        self.lock().is_over = true;
        self.tree.standing.enter(&self.path, Seen::Ours);
        self.tree.replace_link(&self.path);
        // A remaining journal names an upload that is gone.
        let _ = self.journal.remove();
        Ok(())
    }

    fn discard(&self) -> Result<()> {
        {
            let mut state = self.lock();
            if std::mem::replace(&mut state.is_over, true) {
                return Ok(());
            }
            state.filling.clear();
        }
        self.context("abort the upload of", abort(&self.tree.store, &self.key, &self.upload.id))?;
        self.context("remove the journal of", self.journal.remove())
    }

    fn journal(&self) -> &dyn Journal {
        &self.journal
    }
}
