//! Answers with a file or parts of it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use haul_store::{LocalFile, Stat};
use http::header::{
    ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, ETAG, HeaderName, LAST_MODIFIED, RANGE, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use super::asked::Asked;
use super::body::{Body, Reopening, Segment, Supply};
use super::coding::Coding;
use super::digest::{Digests, OLD_DIGEST, OldWish, REPR_DIGEST, Wish};
use super::names;
use super::refusal::{Refusal, refusal};
use crate::limits::{INLINE_BYTES, INLINE_BYTES_MAX};
use crate::request::condition::{Outcome, Validators};
use crate::request::range::{self, Part, Wanted};

pub(crate) async fn answer(
    asked: &Asked,
    file: Arc<LocalFile>,
    stat: &Stat,
    coding: Option<Coding>,
    reopening: Reopening,
) -> Result<Response<Body>, Refusal> {
    let validators = Validators::of(stat, coding.map_or("", |coding| coding.name), asked.now);
    let with_ranges = match validators.judge(&asked.header) {
        Outcome::Failed => return Err(Refusal::of(StatusCode::PRECONDITION_FAILED)),
        Outcome::NotModified => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            describe(response.headers_mut(), &validators);
            return Ok(response);
        }
        Outcome::Proceed { with_ranges } => with_ranges,
    };
    let media_type = names::media_type(asked.target.name());
    // RFC 9110, section 14.2, defines ranges for GET only.
    let with_ranges = with_ranges && !asked.is_head;
    let wanted = if with_ranges { wanted(&asked.header, stat.size) } else { Wanted::Whole };
    let (status, segments, content_type, content_range) = match wanted {
        Wanted::Nothing => return Ok(nothing(asked, stat.size)),
        Wanted::Whole => {
            let whole = Part { start: 0, end: stat.size };
            let segments = if stat.size == 0 { VecDeque::new() } else { VecDeque::from([Segment::Part(whole)]) };
            (StatusCode::OK, segments, media_type, None)
        }
        Wanted::Parts(parts) => match parts[..] {
            [part] => {
                let range = content_range(part, stat.size);
                (StatusCode::PARTIAL_CONTENT, VecDeque::from([Segment::Part(part)]), media_type, Some(range))
            }
            _ => {
                let boundary = boundary(&validators, asked.now);
                let segments = multipart(&parts, stat.size, &media_type, &boundary);
                let media_type = format!("multipart/byteranges; boundary={boundary}");
                (StatusCode::PARTIAL_CONTENT, segments, media_type, None)
            }
        },
    };
    let digests = digests(asked, &file, stat, &validators).await;
    // sendfile of a remote file would wait for its server.
    let files = asked.files.clone().filter(|_| !file.is_remote());
    let supply = Supply { pools: Arc::clone(&asked.shared.pools), client: asked.client.clone() };
    let body = Body::of_file(Arc::clone(&file), segments, files.clone(), supply);
    let length = body.len();
    let body = match asked.is_head {
        true => Body::empty(),
        false if asked.is_http2 => body.for_stream(reopening),
        false => inline(asked, body, &file, files.is_some()).await?,
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let header = response.headers_mut();
    describe(header, &validators);
    header.insert(CONTENT_LENGTH, length.into());
    set(header, CONTENT_TYPE, &content_type);
    header.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if names::may_run(&content_type) {
        header.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
    }
    if let Some(range) = content_range {
        set(header, CONTENT_RANGE, &range);
    }
    if let Some(coding) = coding {
        header.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name));
    }
    if let Some(digests) = digests {
        let (wish, old) = (Wish::of(&asked.header), OldWish::of(&asked.header));
        if wish.is_any() {
            set(header, REPR_DIGEST, &wish.field(&digests));
        }
        let field = old.field(&digests);
        if !field.is_empty() {
            set(header, OLD_DIGEST, &field);
        }
    }
    if asked.target.wishes.download {
        set(header, CONTENT_DISPOSITION, &names::disposition(asked.target.name()));
    }
    Ok(response)
}

fn wanted(header: &HeaderMap, size: u64) -> Wanted {
    let mut fields = header.get_all(RANGE).iter();
    match (fields.next(), fields.next()) {
        (Some(field), None) => range::wanted(field.as_bytes(), size),
        _ => Wanted::Whole,
    }
}

/// A file that has just changed has no digests: another state may look the same.
async fn digests(asked: &Asked, file: &Arc<LocalFile>, stat: &Stat, validators: &Validators) -> Option<Digests> {
    let old = OldWish::of(&asked.header);
    let is_wanted = Wish::of(&asked.header).is_any() || old.is_any();
    if !is_wanted || validators.is_weak {
        return None;
    }
    asked.shared.digests.wanted(&asked.shared.pools, &asked.client, (file, stat), old.which()).await
}

/// Reads a small part, which leaves in one write with the header.
async fn inline(asked: &Asked, mut body: Body, file: &Arc<LocalFile>, has_queue: bool) -> Result<Body, Refusal> {
    let small = body.only_part().filter(|part| part.len() <= INLINE_BYTES_MAX);
    let is_cached = !file.is_remote() && small.is_some_and(|part| file.is_surely_cached(part.start, part.len()));
    let Some(part) = small.filter(|part| part.len() <= INLINE_BYTES || !has_queue || !is_cached) else {
        if is_cached {
            body.is_cached();
        }
        return Ok(body);
    };
    let mut bytes = vec![0; part.len() as usize];
    let at_once = match is_cached {
        true => file.read_at(&mut bytes, part.start).map(Some),
        false if file.is_remote() => Ok(None),
        false => file.read_cached_at(&mut bytes, part.start),
    };
    let read = match at_once {
        Ok(Some(count)) if count == bytes.len() => Ok((bytes, count)),
        _ => {
            let file = Arc::clone(file);
            asked.on_disk(move |_| file.read_at(&mut bytes, part.start).map(|count| (bytes, count))).await?
        }
    };
    Ok(match read {
        Ok((bytes, count)) if count == bytes.len() => Body::full(Bytes::from(bytes)),
        // The body will meet the error and end the connection.
        _ => body,
    })
}

fn describe(header: &mut HeaderMap, validators: &Validators) {
    set(header, ETAG, &validators.etag());
    set(header, LAST_MODIFIED, &httpdate::fmt_http_date(validators.modified));
    header.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    header.insert(VARY, HeaderValue::from_static("Accept-Encoding, Authorization"));
}

/// Callers pass only characters that a field can have.
pub(super) fn set(header: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        header.insert(name, value);
    }
}

fn content_range(part: Part, size: u64) -> String {
    format!("bytes {}-{}/{size}", part.start, part.end - 1)
}

fn nothing(asked: &Asked, size: u64) -> Response<Body> {
    let mut response = refusal(&Refusal::of(StatusCode::RANGE_NOT_SATISFIABLE), asked.is_head);
    set(response.headers_mut(), CONTENT_RANGE, &format!("bytes */{size}"));
    response.headers_mut().insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    response
}

/// No file can hold the boundary: its writer does not know the time of the request.
fn boundary(validators: &Validators, now: SystemTime) -> String {
    let ns = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let hash = blake3::hash(format!("{} {ns}", validators.tag).as_bytes()).to_hex();
    hash.as_str()[..BOUNDARY_CHARS].to_owned()
}

const BOUNDARY_CHARS: usize = 40;

fn multipart(parts: &[Part], size: u64, media_type: &str, boundary: &str) -> VecDeque<Segment> {
    let mut segments = VecDeque::new();
    for part in parts {
        let range = content_range(*part, size);
        let text = format!("\r\n--{boundary}\r\nContent-Type: {media_type}\r\nContent-Range: {range}\r\n\r\n");
        segments.push_back(Segment::Bytes(text.into()));
        segments.push_back(Segment::Part(*part));
    }
    segments.push_back(Segment::Bytes(format!("\r\n--{boundary}--\r\n").into()));
    segments
}
