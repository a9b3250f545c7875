//! The named sources of a bucket, and its objects.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, PoisonError};

use haul_store::{Stat, Time};
use http::{HeaderName, Method, response};

use crate::http_client::client::invalid;
use crate::http_client::fields::{content_length, text};
use crate::s3::kept::Kept;
use crate::s3::limits::{CONTENTS_AHEAD_BYTES, MAX_LINK_BYTES, SMALL_OBJECT_BYTES};
use crate::s3::source::content::{Content, Room};
use crate::s3::store::{Request, Store};
use crate::s3::sums::is_one;
use crate::web::bodies::Bodies;
use crate::web::version::Version;

#[derive(Debug)]
pub(in crate::s3) enum Top {
    File {
        name: Vec<u8>,
        object: Box<Object>,
    },
    /// A directory under its own name.
    Directory {
        name: Vec<u8>,
        prefix: Vec<u8>,
    },
    Contents(Vec<u8>),
}

impl Top {
    pub(in crate::s3) fn name(&self) -> &[u8] {
        match self {
            Top::File { name, .. } | Top::Directory { name, .. } => name,
            Top::Contents(_) => b"",
        }
    }
}

#[derive(Clone, Debug)]
pub(in crate::s3) struct Object {
    pub(in crate::s3) key: Vec<u8>,
    pub(in crate::s3) version: Version,
    pub(in crate::s3) kept: Kept,
    pub(in crate::s3) crc64: Option<String>,
    /// All bytes, if they came with the metadata.
    pub(in crate::s3) content: Option<Arc<Content>>,
}

impl Object {
    fn of(key: &[u8], head: &response::Parts) -> io::Result<Object> {
        let size = content_length(head).ok_or_else(|| invalid("the store does not say how long it is".to_owned()))?;
        let crc64 = text(&head.headers, &CRC64).filter(|sum| is_one(sum)).map(str::to_owned);
        let (version, kept) = (Version::of(head, size), Kept::of(&head.headers));
        Ok(Object { key: key.to_vec(), version, kept, crc64, content: None })
    }

    pub(in crate::s3) fn stat(&self, begun: Time) -> Stat {
        let mut stat = self.version.stat(begun);
        stat.mode = self.kept.permissions().unwrap_or(stat.mode);
        stat.uid = self.kept.uid.unwrap_or(stat.uid);
        stat.gid = self.kept.gid.unwrap_or(stat.gid);
        stat
    }
}

#[derive(Debug)]
pub(in crate::s3) struct Bucket {
    pub(in crate::s3) store: Arc<Store>,
    pub(in crate::s3) bodies: Arc<Bodies>,
    pub(in crate::s3) tops: Vec<Top>,
    /// The time of objects without one.
    pub(in crate::s3) begun: Time,
    pub(in crate::s3) links: bool,
    /// For contents that came with their metadata.
    pub(in crate::s3) room: Arc<Room>,
    /// Objects found by the walk and not yet opened.
    pub(in crate::s3) walked: Mutex<HashMap<Vec<u8>, Object>>,
}

/// A copy's open items, at about 500 bytes. Other files are looked at again.
const MAX_WALKED: usize = 16 << 10;

const CRC64: HeaderName = HeaderName::from_static("x-amz-checksum-crc64nvme");

impl Bucket {
    /// A bucket without named sources.
    pub(in crate::s3) fn new(store: Arc<Store>, begun: Time, links: bool) -> Bucket {
        let bodies = Bodies::new(store.client.settings.connections);
        let (room, walked) = (Room::new(CONTENTS_AHEAD_BYTES), Mutex::default());
        Bucket { store, bodies, tops: Vec::new(), begun, links, room, walked }
    }

    pub(in crate::s3) fn look(&self, key: &[u8]) -> io::Result<Option<Object>> {
        self.store.head(key)?.map(|head| Object::of(key, &head)).transpose()
    }

    /// Like [`Bucket::look`], with the content of an object of up to so many bytes: a GET tells all that a HEAD does.
    pub(in crate::s3) fn look_and_read(&self, key: &[u8], most_bytes: u64) -> io::Result<Option<Object>> {
        let is_small = most_bytes <= SMALL_OBJECT_BYTES;
        let Some(place) = is_small.then(|| self.room.take(most_bytes)).flatten() else { return self.look(key) };
        let answer = self.store.get(key)?.and_then(|answer| Some((Object::of(key, &answer.head).ok()?, answer)));
        // A HEAD tells the reason.
        let Some((object, answer)) = answer else { return self.look(key) };
        if object.version.size > most_bytes {
            return Ok(Some(object));
        }
        // A lane reads what is cut here.
        let bytes = self.store.body_of(answer, SMALL_OBJECT_BYTES as usize).ok();
        let bytes = bytes.filter(|bytes| bytes.len() as u64 == object.version.size);
        Ok(Some(Object { content: bytes.map(|bytes| Arc::new(Content::new(bytes, place))), ..object }))
    }

    pub(in crate::s3) fn keep(&self, object: &Object) {
        let mut walked = self.walked.lock().unwrap_or_else(PoisonError::into_inner);
        if walked.len() >= MAX_WALKED {
            walked.clear();
        }
        walked.insert(object.key.clone(), object.clone());
    }

    pub(in crate::s3) fn walked(&self, key: &[u8]) -> Option<Object> {
        self.walked.lock().unwrap_or_else(PoisonError::into_inner).remove(key)
    }

    pub(in crate::s3) fn link(&self, object: &Object) -> io::Result<Vec<u8>> {
        match &object.content {
            Some(content) => as_link(content.bytes().to_vec()),
            None => link_of(&self.store, &object.key, &object.version),
        }
    }
}

pub(in crate::s3) fn link_text(store: &Store, key: &[u8], head: &response::Parts) -> io::Result<Vec<u8>> {
    let size = content_length(head).unwrap_or(u64::MAX);
    link_of(store, key, &Version::of(head, size))
}

fn link_of(store: &Store, key: &[u8], version: &Version) -> io::Result<Vec<u8>> {
    if version.size > MAX_LINK_BYTES {
        return Err(too_long());
    }
    let fields = Vec::from_iter(version.condition());
    let answer = store.need(&Request { fields, ..Request::new(Method::GET, key) })?;
    as_link(store.body_of(answer, MAX_LINK_BYTES as usize)?)
}

fn too_long() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "it is too long for the text of a link")
}

fn as_link(text: Vec<u8>) -> io::Result<Vec<u8>> {
    if text.len() as u64 > MAX_LINK_BYTES {
        return Err(too_long());
    }
    match text.is_empty() || text.contains(&0) {
        true => Err(io::Error::new(ErrorKind::InvalidData, "its content is no text of a link")),
        false => Ok(text),
    }
}
