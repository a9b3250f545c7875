//! Copies an object to another key of its bucket, inside the store.
//!
//! ```text
//!   up to 5 GB   CopyObject                                 metadata and tags go along
//!   beyond       parts of 512 MiB, eight at once, Complete  metadata go along; the sum of the whole is compared by the store
//! ```

use std::fmt::Write as _;
use std::io::{self, ErrorKind};
use std::path::Path;

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE, EXPIRES, IF_MATCH,
    IF_NONE_MATCH,
};
use http::{HeaderName, HeaderValue, Method, StatusCode, response};

use crate::http_client::client::invalid;
use crate::http_client::fields::{content_length, text};
use crate::http_client::outgoing::Content;
use crate::s3::at_once::at_once;
use crate::s3::limits::{
    COPIED_PART_BYTES, MAX_ANSWER_BYTES, MAX_COPIED_BYTES, MAX_OBJECT_BYTES, MAX_PARTS, PARTS_COPIED_AT_ONCE,
};
use crate::s3::store::{Refusal, Request, Store, escaped, etag, refusal};
use crate::s3::sums::is_one;
use crate::s3::target::journal::{Upload, UploadJournal};
use crate::s3::uploads::{self, CRC64, Completed, MARK, Named, abort, trimmed};
use crate::s3::xml;

pub(super) struct Original<'a> {
    pub(super) key: &'a [u8],
    pub(super) head: &'a response::Parts,
}

impl Original<'_> {
    /// The fields that name the object at this version.
    pub(super) fn fields(&self, store: &Store) -> io::Result<Vec<(HeaderName, HeaderValue)>> {
        let source = format!("/{}/{}", store.access.bucket, escaped(self.key, true));
        Ok(vec![(COPY_SOURCE, value(&source)?), (COPY_SOURCE_IF_MATCH, value(&etag(self.head)?)?)])
    }
}

const COPY_SOURCE: HeaderName = HeaderName::from_static("x-amz-copy-source");
const COPY_SOURCE_IF_MATCH: HeaderName = HeaderName::from_static("x-amz-copy-source-if-match");
const COPY_SOURCE_RANGE: HeaderName = HeaderName::from_static("x-amz-copy-source-range");
const STORAGE_CLASS: HeaderName = HeaderName::from_static("x-amz-storage-class");
const TAGGING_COUNT: HeaderName = HeaderName::from_static("x-amz-tagging-count");
const ALGORITHM: HeaderName = HeaderName::from_static("x-amz-checksum-algorithm");
const KIND: HeaderName = HeaderName::from_static("x-amz-checksum-type");

fn value(text: &str) -> io::Result<HeaderValue> {
    HeaderValue::from_str(text).map_err(|_| io::Error::from(ErrorKind::InvalidInput))
}

/// Moves an object, replacing another unless `keep`. The old key goes once the new one stands, in the copied version only.
pub(super) fn move_object(
    store: &Store,
    (from, to): (&[u8], &[u8]),
    keep: bool,
    journals: Option<&Path>,
) -> io::Result<()> {
    let head = store.head(from)?.ok_or(ErrorKind::NotFound)?;
    let original = Original { key: from, head: &head };
    match from.ends_with(b"/") && content_length(&head) == Some(0) {
        true => make_mark(store, &original, to)?,
        false => copy(store, &original, to, keep, journals)?,
    }
    remove_version(store, &original)
}

/// Makes a directory's mark anew, because versitygw 1.8 copies none.
fn make_mark(store: &Store, original: &Original<'_>, to: &[u8]) -> io::Result<()> {
    let (fields, content) = (carried(original.head), Content::Whole(Bytes::new()));
    let answer = store.need(&Request { fields, content, ..Request::new(Method::PUT, to) })?;
    store.client.give_back(answer.url.origin(), answer.body);
    Ok(())
}

fn copy(store: &Store, original: &Original<'_>, to: &[u8], keep: bool, journals: Option<&Path>) -> io::Result<()> {
    let size = content_length(original.head).ok_or_else(|| invalid("the store tells no length".to_owned()))?;
    let refused = if size <= MAX_COPIED_BYTES {
        copy_at_once(store, original, to, keep)?
    } else if size <= MAX_OBJECT_BYTES {
        copy_in_parts(store, original, size, (to, keep, journals))?
    } else {
        return Err(ErrorKind::FileTooLarge.into());
    };
    match refused {
        None => Ok(()),
        // One of two conditions did not hold.
        Some(refusal) if keep && refusal.is_of_condition() && store.head(to)?.is_some() => {
            Err(ErrorKind::AlreadyExists.into())
        }
        Some(refusal) => Err(refusal.as_io()),
    }
}

/// `None`: done by one request.
fn copy_at_once(store: &Store, original: &Original<'_>, to: &[u8], keep: bool) -> io::Result<Option<Refusal>> {
    let mut fields = original.fields(store)?;
    // Without this field the copy gets the usual class.
    fields.extend(original.head.headers.get(STORAGE_CLASS).map(|class| (STORAGE_CLASS, class.clone())));
    let mut keeps = keep;
    loop {
        let mut fields = fields.clone();
        fields.extend(keeps.then_some((IF_NONE_MATCH, HeaderValue::from_static("*"))));
        match copied(store, &Request { fields, ..Request::new(Method::PUT, to) }, "CopyObjectResult")? {
            // The mover has looked before.
            Err(refusal) if keeps && refusal.is_of_unknown_field() => keeps = false,
            done => return Ok(done.err()),
        }
    }
}

/// Sends a copy, and returns its tag. An error may come behind a 200.
pub(super) fn copied(store: &Store, request: &Request<'_>, root: &str) -> io::Result<Result<String, Refusal>> {
    let answer = match store.ask(request)? {
        Ok(answer) => answer,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let head = answer.head.clone();
    let said = store.body_of(answer, MAX_ANSWER_BYTES)?;
    let (mut is_done, mut tag) = (false, String::new());
    xml::read(trimmed(&said), |path, text| match path {
        [element] => is_done |= *element == root,
        [element, "ETag"] if *element == root => text.clone_into(&mut tag),
        _ => {}
    })?;
    let refusal = refusal(&head, trimmed(&said));
    match (is_done, refusal.code.is_empty()) {
        (true, _) => Ok(Ok(tag)),
        (false, false) => Ok(Err(refusal)),
        (false, true) => Err(invalid("the store does not say whether it copied the object".to_owned())),
    }
}

/// A copy in parts has to give these fields again.
fn carried(head: &response::Parts) -> Vec<(HeaderName, HeaderValue)> {
    let of_content =
        [CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE, EXPIRES, STORAGE_CLASS];
    let is_carried =
        |name: &HeaderName| of_content.contains(name) || (name.as_str().starts_with("x-amz-meta-") && *name != MARK);
    let fields = head.headers.iter().filter(|(name, _)| is_carried(name));
    fields.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Copies a large object part by part. `None`: done.
fn copy_in_parts(
    store: &Store,
    original: &Original<'_>,
    size: u64,
    (to, keep, journals): (&[u8], bool, Option<&Path>),
) -> io::Result<Option<Refusal>> {
    if text(&original.head.headers, &TAGGING_COUNT).is_some_and(|count| count != "0") {
        let why = "it has tags, and a copy of more than 5 GB would lose them: remove its tags first";
        return Err(io::Error::new(ErrorKind::Unsupported, why));
    }
    let crc64 = text(&original.head.headers, &CRC64).filter(|sum| is_one(sum));
    let mark = uploads::new_mark()?;
    let mut fields = carried(original.head);
    fields.push((MARK, value(&mark)?));
    if crc64.is_some() {
        fields.push((ALGORITHM, HeaderValue::from_static("CRC64NVME")));
        fields.push((KIND, HeaderValue::from_static("FULL_OBJECT")));
    }
    let object = store.object_name(to);
    let journal = UploadJournal::new(journals, &object)?;
    if let Some(left) = journal.left(&object)? {
        abort(store, to, &left.upload.id)?;
    }
    let id = uploads::begin(store, to, fields)?.map_err(|refusal| refusal.as_io())?;
    let part_bytes = COPIED_PART_BYTES.max(size.div_ceil(MAX_PARTS.into()));
    let upload = Upload { object, id: id.clone(), mark: mark.clone(), size, part_bytes };
    let of_whole = crc64.map(|sum| Ok::<_, io::Error>((CRC64, value(sum)?))).transpose()?;
    let done = journal.begin_upload(upload).and_then(|()| {
        let tags = copy_each_part(store, original, (to, &id), (size, part_bytes))?;
        let mut body = String::from("<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
        for (part, tag) in tags.iter().enumerate() {
            let (number, tag) = (part + 1, xml::escaped(tag));
            let _ = write!(body, "<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>");
        }
        body.push_str("</CompleteMultipartUpload>");
        let mut fields = Vec::new();
        if let Some(sum) = of_whole {
            fields.extend([sum, (KIND, HeaderValue::from_static("FULL_OBJECT"))]);
        }
        fields.extend(keep.then_some((IF_NONE_MATCH, HeaderValue::from_static("*"))));
        uploads::complete(store, Named { key: to, id: &id, mark: &mark }, &fields, &Bytes::from(body))
    });
    // If this fails, the journal stays and `haul clean` finds the upload.
    if matches!(done, Ok(Completed::With(_))) || abort(store, to, &id).is_ok() {
        journal_is_over(&journal);
    }
    match done? {
        Completed::With(_) => Ok(None),
        Completed::Refused(refusal) => Ok(Some(refusal)),
    }
}

fn journal_is_over(journal: &UploadJournal) {
    // A remaining journal names an upload that is gone.
    let _ = haul_store::Journal::remove(journal);
}

fn copy_each_part(
    store: &Store,
    original: &Original<'_>,
    (to, id): (&[u8], &str),
    (size, part_bytes): (u64, u64),
) -> io::Result<Vec<String>> {
    let starts: Vec<u64> = (0..size.div_ceil(part_bytes)).map(|part| part * part_bytes).collect();
    let has_failed = std::sync::atomic::AtomicBool::new(false);
    let copied_parts = at_once(PARTS_COPIED_AT_ONCE, &starts, |start| {
        if has_failed.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(io::Error::other("another part was not copied"));
        }
        let mut fields = original.fields(store)?;
        let last = (start + part_bytes).min(size) - 1;
        fields.push((COPY_SOURCE_RANGE, value(&format!("bytes={start}-{last}"))?));
        let number = (start / part_bytes + 1).to_string();
        let query = [("partNumber", number.as_str()), ("uploadId", id)];
        let request = Request { query: &query, fields, ..Request::new(Method::PUT, to) };
        let tag = copied(store, &request, "CopyPartResult").and_then(|done| done.map_err(|refusal| refusal.as_io()));
        if tag.is_err() {
            has_failed.store(true, std::sync::atomic::Ordering::Relaxed);
        }
        tag
    });
    // The others follow from the first error.
    let mut tags = Vec::new();
    let mut failed = None;
    for part in copied_parts {
        match part {
            Ok(tag) => tags.push(tag),
            Err(error) if failed.as_ref().is_none_or(|failed: &io::Error| failed.kind() == ErrorKind::Other) => {
                failed = Some(error);
            }
            Err(_) => {}
        }
    }
    failed.map_or(Ok(tags), Err)
}

/// Removes an object still at the version that was found.
fn remove_version(store: &Store, original: &Original<'_>) -> io::Result<()> {
    let changed = || {
        let why = "it was copied, and somebody has written it anew meanwhile: both stay";
        io::Error::new(ErrorKind::StaleNetworkFileHandle, why)
    };
    let tag = etag(original.head)?;
    let fields = vec![(IF_MATCH, value(&tag)?)];
    let refused = match store.ask(&Request { fields, ..Request::new(Method::DELETE, original.key) })? {
        Ok(answer) => {
            store.client.give_back(answer.url.origin(), answer.body);
            return Ok(());
        }
        Err(refusal) => refusal,
    };
    match refused {
        refusal if refusal.status == StatusCode::NOT_FOUND => Ok(()),
        refusal if refusal.is_of_condition() => Err(changed()),
        refusal if refusal.is_of_unknown_field() => {
            let Some(now) = store.head(original.key)? else { return Ok(()) };
            if etag(&now)? != tag {
                return Err(changed());
            }
            let answer = store.need(&Request::new(Method::DELETE, original.key))?;
            store.client.give_back(answer.url.origin(), answer.body);
            Ok(())
        }
        refusal => Err(refusal.as_io()),
    }
}
