//! Uploads in parts: begin, list, end, give up.
//!
//! ```text
//! begin -> parts -> complete -> the object
//!                -> abort                          list: uploads beneath a prefix that nobody has ended
//! ```

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;

use bytes::Bytes;
use haul_store::Time;
use http::{HeaderName, HeaderValue, Method, StatusCode};

use crate::http_client::client::invalid;
use crate::http_client::fields::text;
use crate::http_client::outgoing::Content;
use crate::http_client::url::decoded;
use crate::s3::limits::{MAX_ANSWER_BYTES, MAX_EMPTY_PAGES, MAX_PAGE_BYTES, MAX_PARTS, PAGE_KEYS};
use crate::s3::store::{Refusal, Request, Store, refusal};
use crate::s3::xml;

pub(super) const CRC64: HeaderName = HeaderName::from_static("x-amz-checksum-crc64nvme");

/// An object's mark from its upload: it shows ours if Complete had no answer.
pub(super) const MARK: HeaderName = HeaderName::from_static("x-amz-meta-haul-upload");

/// Amazon's have about 130 characters.
const MAX_ID_BYTES: usize = 1024;

pub(super) fn new_mark() -> io::Result<String> {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| io::Error::other("no random numbers can be had"))?;
    Ok(format!("{:032x}", u128::from_le_bytes(bytes)))
}

/// Begins an upload, and returns its name.
pub(super) fn begin(
    store: &Store,
    key: &[u8],
    fields: Vec<(HeaderName, HeaderValue)>,
) -> io::Result<Result<String, Refusal>> {
    // A second, unknown upload costs less than a failed copy.
    let request = Request { query: &[("uploads", "")], fields, repeats: true, ..Request::new(Method::POST, key) };
    let answer = match store.ask(&request)? {
        Ok(answer) => answer,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let body = store.body_of(answer, MAX_ANSWER_BYTES)?;
    let mut id = None;
    xml::read(&body, |path, text| {
        if let ["InitiateMultipartUploadResult", "UploadId"] = path {
            id = Some(text.to_owned());
        }
    })?;
    let id = id.filter(|id| is_id(id));
    id.map(Ok).ok_or_else(|| invalid("the store begins an upload without a name".to_owned()))
}

fn is_id(id: &str) -> bool {
    !id.is_empty() && id.len() <= MAX_ID_BYTES
}

pub(super) enum Completed {
    /// The store's sum of the object.
    With(Option<String>),
    Refused(Refusal),
}

/// Complete may be repeated: the store tells that it was carried out.
const MAX_COMPLETES: u32 = 5;

#[derive(Clone, Copy)]
pub(super) struct Named<'a> {
    pub(super) key: &'a [u8],
    pub(super) id: &'a str,
    pub(super) mark: &'a str,
}

/// Completes an upload, and looks at the object if the answer was lost.
pub(super) fn complete(
    store: &Store,
    upload: Named<'_>,
    fields: &[(HeaderName, HeaderValue)],
    body: &Bytes,
) -> io::Result<Completed> {
    let mut tries = 0;
    loop {
        tries += 1;
        let query = [("uploadId", upload.id)];
        let content = Content::Whole(body.clone());
        // An answer may take minutes: the store sends spaces meanwhile.
        let request =
            Request { query: &query, fields: fields.to_vec(), content, ..Request::new(Method::POST, upload.key) };
        let refused = match store.ask(&request) {
            Ok(Ok(mut answer)) => match answer.body.read_to_end(MAX_ANSWER_BYTES) {
                Ok(said) => {
                    let (mut is_done, mut sum) = (false, None);
                    let read = xml::read(trimmed(&said), |path, text| match path {
                        ["CompleteMultipartUploadResult", "ChecksumCRC64NVME"] => sum = Some(text.to_owned()),
                        ["CompleteMultipartUploadResult"] => is_done = true,
                        _ => {}
                    });
                    store.client.give_back(answer.url.origin(), answer.body);
                    if read.is_ok() && is_done {
                        return Ok(Completed::With(sum));
                    }
                    // An error may come behind a 200.
                    let refusal = refusal(&answer.head, trimmed(&said));
                    if read.is_ok() && !refusal.code.is_empty() { Ok(refusal) } else { Err(no_answer()) }
                }
                Err(error) => Err(error),
            },
            Ok(Err(refusal)) => Ok(refusal),
            Err(error) => Err(error),
        };
        // An earlier Complete may have been carried out.
        let is_unsure = match &refused {
            Err(_) => true,
            Ok(refusal) => {
                refusal.code == "NoSuchUpload"
                    || refusal.code == "InternalError"
                    || refusal.status.is_server_error()
                    || (tries > 1 && refusal.status == StatusCode::PRECONDITION_FAILED)
            }
        };
        if is_unsure
            && let Ok(Some(head)) = store.head(upload.key)
            && text(&head.headers, &MARK) == Some(upload.mark)
        {
            return Ok(Completed::With(text(&head.headers, &CRC64).map(str::to_owned)));
        }
        let is_gone = matches!(&refused, Ok(refusal) if refusal.code == "NoSuchUpload");
        let is_unknown = matches!(&refused, Ok(refusal) if refusal.status == StatusCode::NOT_IMPLEMENTED);
        if !is_unsure || is_gone || is_unknown || tries >= MAX_COMPLETES {
            return refused.map(Completed::Refused);
        }
        store.client.pause(store.client.backoff(tries));
    }
}

fn no_answer() -> io::Error {
    invalid("the store's answer to the end of an upload says nothing".to_owned())
}

/// Spaces precede an answer that takes long.
pub(super) fn trimmed(said: &[u8]) -> &[u8] {
    said.trim_ascii_start()
}

/// Ends an upload: its parts cost money.
pub(super) fn abort(store: &Store, key: &[u8], id: &str) -> io::Result<()> {
    let request = Request { query: &[("uploadId", id)], ..Request::new(Method::DELETE, key) };
    match store.ask(&request)? {
        Ok(answer) => {
            store.client.give_back(answer.url.origin(), answer.body);
            Ok(())
        }
        Err(refusal) if refusal.status == StatusCode::NOT_FOUND => Ok(()),
        Err(refusal) => Err(refusal.as_io()),
    }
}

pub(super) struct ListedPart {
    pub(super) size: u64,
    pub(super) tag: String,
    pub(super) crc64: Option<String>,
}

/// moto 5.2's name for `ListPartsResult`.
const MOTOS_LIST: &str = "ListPartsResponse";

/// `None`: the store no longer has the upload.
pub(super) fn list_parts(store: &Store, key: &[u8], id: &str) -> io::Result<Option<BTreeMap<u32, ListedPart>>> {
    let (mut found, mut marker) = (BTreeMap::new(), String::new());
    // Each page brings higher numbers, so it ends.
    loop {
        let mut query = vec![("uploadId", id)];
        if !marker.is_empty() {
            query.insert(0, ("part-number-marker", &marker));
        }
        let answer = match store.ask(&Request { query: &query, ..Request::new(Method::GET, key) })? {
            Ok(answer) => answer,
            Err(refusal) if refusal.status == StatusCode::NOT_FOUND => return Ok(None),
            Err(refusal) => return Err(refusal.as_io()),
        };
        let body = store.body_of(answer, MAX_ANSWER_BYTES)?;
        let (mut number, mut part) = (None, ListedPart { size: 0, tag: String::new(), crc64: None });
        let (mut last, mut is_truncated) = (0, false);
        xml::read(&body, |path, text| match path {
            ["ListPartsResult" | MOTOS_LIST, "IsTruncated"] => is_truncated = text == "true",
            ["ListPartsResult" | MOTOS_LIST, "Part", "PartNumber"] => number = text.trim().parse::<u32>().ok(),
            ["ListPartsResult" | MOTOS_LIST, "Part", "Size"] => part.size = text.trim().parse().unwrap_or(0),
            ["ListPartsResult" | MOTOS_LIST, "Part", "ETag"] => part.tag = text.to_owned(),
            ["ListPartsResult" | MOTOS_LIST, "Part", "ChecksumCRC64NVME"] => part.crc64 = Some(text.to_owned()),
            ["ListPartsResult" | MOTOS_LIST, "Part"] => {
                let done = std::mem::replace(&mut part, ListedPart { size: 0, tag: String::new(), crc64: None });
                if let Some(number) = number.take().filter(|number| (1..=MAX_PARTS).contains(number)) {
                    last = last.max(number);
                    found.insert(number - 1, done);
                }
            }
            _ => {}
        })?;
        if !is_truncated {
            return Ok(Some(found));
        }
        if last <= marker.parse().unwrap_or(0) {
            return Err(invalid("the store's list of parts does not go on".to_owned()));
        }
        marker = last.to_string();
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Open {
    pub(super) key: Vec<u8>,
    pub(super) id: String,
    /// `None`: the store tells no time that is understood.
    pub(super) begun: Option<Time>,
}

#[derive(Debug, Default)]
struct Page {
    uploads: Vec<Open>,
    next: Option<(String, String)>,
}

/// Gives each unfinished upload beneath a prefix, in the order of keys.
pub(super) fn each_open(
    store: &Store,
    prefix: &[u8],
    each: &mut dyn FnMut(Open) -> ControlFlow<()>,
) -> io::Result<ControlFlow<()>> {
    let prefix = std::str::from_utf8(prefix).map_err(|_| io::Error::from(io::ErrorKind::InvalidFilename))?;
    let most = PAGE_KEYS.to_string();
    let (mut at, mut listed, mut empty) = (None::<(String, String)>, 0_u64, 0);
    loop {
        let mut query = vec![("uploads", ""), ("encoding-type", "url"), ("max-uploads", &most), ("prefix", prefix)];
        if let Some((key, id)) = &at {
            query.extend([("key-marker", key.as_str()), ("upload-id-marker", id.as_str())]);
        }
        query.sort_unstable();
        let answer = store.need(&Request { query: &query, ..Request::new(Method::GET, b"") })?;
        let Page { uploads, next } = page(&store.body_of(answer, MAX_PAGE_BYTES)?)?;
        empty = if uploads.is_empty() { empty + 1 } else { 0 };
        for upload in uploads {
            listed += 1;
            if !upload.key.starts_with(prefix.as_bytes()) {
                return Err(invalid("the store lists uploads that were not asked for".to_owned()));
            }
            if each(upload).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        let Some(next) = next else { return Ok(ControlFlow::Continue(())) };
        if at.as_ref() == Some(&next) || empty > MAX_EMPTY_PAGES || listed > MAX_UPLOADS {
            return Err(invalid("the store's list of uploads does not come to an end".to_owned()));
        }
        at = Some(next);
    }
}

/// A store with more unfinished uploads lists without end.
const MAX_UPLOADS: u64 = 1 << 24;

fn page(body: &[u8]) -> io::Result<Page> {
    let (mut page, mut is_list, mut is_encoded, mut is_truncated) = (Page::default(), false, false, false);
    let (mut key, mut id, mut begun) = (None, None, None);
    let (mut next_key, mut next_id) = (String::new(), String::new());
    xml::read(body, |path, text| match path {
        ["ListMultipartUploadsResult"] => is_list = true,
        ["ListMultipartUploadsResult", "EncodingType"] => is_encoded = text == "url",
        ["ListMultipartUploadsResult", "IsTruncated"] => is_truncated = text == "true",
        ["ListMultipartUploadsResult", "NextKeyMarker"] => text.clone_into(&mut next_key),
        ["ListMultipartUploadsResult", "NextUploadIdMarker"] => text.clone_into(&mut next_id),
        ["ListMultipartUploadsResult", "Upload", "Key"] => key = Some(text.to_owned()),
        ["ListMultipartUploadsResult", "Upload", "UploadId"] => id = Some(text.to_owned()),
        ["ListMultipartUploadsResult", "Upload", "Initiated"] => begun = xml::time(text),
        ["ListMultipartUploadsResult", "Upload"] => {
            if let (Some(key), Some(id)) = (key.take(), id.take().filter(|id| is_id(id))) {
                page.uploads.push(Open { key: key.into_bytes(), id, begun: begun.take() });
            }
        }
        _ => {}
    })?;
    if !is_list {
        return Err(invalid("the store does not list uploads".to_owned()));
    }
    if page.uploads.len() > 2 * PAGE_KEYS {
        return Err(invalid("the store lists more uploads than were asked for".to_owned()));
    }
    // The element comes anywhere in the page.
    let plain = |text: &[u8]| decoded(&String::from_utf8_lossy(text).replace('+', " "));
    if is_encoded {
        for upload in &mut page.uploads {
            upload.key = plain(&upload.key);
        }
        next_key = String::from_utf8_lossy(&plain(next_key.as_bytes())).into_owned();
    }
    page.next = is_truncated.then_some((next_key, next_id));
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_gives_uploads_of_any_key_and_where_the_next_one_begins() {
        let xml = "<ListMultipartUploadsResult><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>\
                   <NextKeyMarker>a%0Db</NextKeyMarker><NextUploadIdMarker>i2</NextUploadIdMarker>\
                   <Upload><Key>a%2F+b</Key><UploadId>i1</UploadId><Initiated>2026-01-02T03:04:05.678Z</Initiated></Upload>\
                   <Upload><Key>no id</Key></Upload></ListMultipartUploadsResult>";
        let Page { uploads, next } = page(xml.as_bytes()).unwrap();
        let begun = Some(Time { s: 1_767_323_045, ns: 678_000_000 });
        assert_eq!(uploads, [Open { key: b"a/ b".to_vec(), id: "i1".to_owned(), begun }]);
        assert_eq!(next, Some(("a\rb".to_owned(), "i2".to_owned())));
        assert!(page(b"<html></html>").is_err());
    }
}
