//! A part too large to be held: it goes to the store while it is written.
//!
//! ```text
//! begin -> a thread makes the request, and holds the body back until the store wants it (100 Continue)
//!   send   -> the queue of the request
//!   finish -> its sum behind the body (a trailer) -> the answer: the tag of the part
//! ```
//! A busy store says so before the body. The first blocks are kept until the queue proves that one was taken: until then the
//! request can be repeated. A later break fails the file, and the next run goes on with the other parts.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::thread::JoinHandle;

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest};
use http::header::CONTENT_ENCODING;
use http::{HeaderName, HeaderValue, Method, response};

use crate::http_client::client::invalid;
use crate::http_client::fields::text;
use crate::http_client::limits::FEED_BLOCKS;
use crate::http_client::outgoing::{self, Feed};
use crate::s3::credentials::TRAILER;
use crate::s3::store::{Refusal, Request, etag};
use crate::s3::sums::{is_one, text as sum_text};
use crate::s3::target::journal::Part;
use crate::s3::target::tree::Tree;
use crate::s3::uploads::CRC64;

const DECODED_LENGTH: HeaderName = HeaderName::from_static("x-amz-decoded-content-length");

/// The queue, and the block about to be taken.
const KEPT_BLOCKS: usize = FEED_BLOCKS + 1;

/// With pauses that double these are some seconds.
const MAX_TRIES: u32 = 5;

#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) key: Vec<u8>,
    pub(super) upload: String,
    /// The number, from 1.
    pub(super) number: u32,
    pub(super) length: u64,
}

pub(super) struct SentPart {
    tree: Arc<Tree>,
    place: Place,
    at: u64,
    digest: Digest,
    /// The sum goes behind the body; else the answer may tell it.
    has_trailer: bool,
    running: Option<Running>,
    /// The blocks sent, while all can be sent again.
    kept: Option<Vec<Bytes>>,
    tries: u32,
}

impl std::fmt::Debug for SentPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} at {}", self.place, self.at)
    }
}

struct Running {
    feed: Feed,
    answer: JoinHandle<io::Result<Result<response::Parts, Refusal>>>,
}

impl SentPart {
    pub(super) fn begin(tree: &Arc<Tree>, place: Place) -> io::Result<SentPart> {
        let mut part = SentPart {
            tree: Arc::clone(tree),
            place,
            at: 0,
            digest: Digest::new(CrcAlgorithm::Crc64Nvme),
            has_trailer: tree.sums() && tree.takes_trailers(),
            running: None,
            kept: Some(Vec::new()),
            tries: 0,
        };
        part.start()?;
        if part.send_kept().is_err() {
            let why = part.why_ended();
            part.again(why)?;
        }
        Ok(part)
    }

    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// The text around a part's bytes: one chunk of aws-chunked, and the trailer.
    fn frame(&self, sum: &str) -> [String; 2] {
        match self.has_trailer {
            true => [format!("{:x}\r\n", self.place.length), format!("\r\n0\r\n{CRC64}:{sum}\r\n\r\n")],
            false => [String::new(), String::new()],
        }
    }

    fn start(&mut self) -> io::Result<()> {
        self.tries += 1;
        let around = self.frame(&sum_text(0));
        let length = self.place.length + around.iter().map(|text| text.len() as u64).sum::<u64>();
        let (feed, content) = outgoing::stream(Some(length));
        let mut fields = Vec::new();
        if self.has_trailer {
            fields.push((CONTENT_ENCODING, HeaderValue::from_static("aws-chunked")));
            fields.push((DECODED_LENGTH, HeaderValue::from(self.place.length)));
            fields.push((TRAILER, HeaderValue::from_static("x-amz-checksum-crc64nvme")));
        }
        let (tree, Place { key, upload, number, .. }) = (Arc::clone(&self.tree), self.place.clone());
        let ask = move || {
            let number = number.to_string();
            let query = [("partNumber", number.as_str()), ("uploadId", upload.as_str())];
            let request = Request { query: &query, fields, content, ..Request::new(Method::PUT, &key) };
            tree.store.send(request)
        };
        let answer = std::thread::Builder::new().name("part".into()).spawn(ask)?;
        self.running = Some(Running { feed, answer });
        Ok(())
    }

    fn send_kept(&self) -> io::Result<()> {
        let [head, _] = self.frame("");
        let head = Some(Bytes::from(head)).filter(|head| !head.is_empty());
        head.iter().chain(self.kept.iter().flatten()).try_for_each(|block| self.feed(block.clone()))
    }

    pub(super) fn send(&mut self, data: &[u8]) -> io::Result<()> {
        self.digest.update(data);
        self.at += data.len() as u64;
        self.push(Bytes::copy_from_slice(data))
    }

    fn push(&mut self, block: Bytes) -> io::Result<()> {
        if let Some(kept) = &mut self.kept {
            kept.push(block.clone());
            if kept.len() > KEPT_BLOCKS {
                // The queue had room only after it gave a block to the connection.
                self.kept = None;
            }
        }
        match self.feed(block) {
            Ok(()) => Ok(()),
            Err(_) => {
                let why = self.why_ended();
                self.again(why)
            }
        }
    }

    fn feed(&self, block: Bytes) -> io::Result<()> {
        self.running.as_ref().ok_or_else(over)?.feed.send(block)
    }

    /// Ends the body, and returns the part as the store has it.
    pub(super) fn finish(mut self) -> io::Result<Part> {
        let crc64 = self.digest.finalize();
        let sum = sum_text(crc64);
        loop {
            let tail = self.frame(&sum)[1].clone();
            let sent = if tail.is_empty() { Ok(()) } else { self.feed(Bytes::from(tail)) };
            let Running { feed, answer } = self.running.take().ok_or_else(over)?;
            match sent {
                Ok(()) => feed.finish(),
                Err(_) => drop(feed),
            }
            let head = match joined(answer) {
                Ok(Ok(head)) => head,
                why => {
                    self.again(why.map(Result::err))?;
                    continue;
                }
            };
            let told = text(&head.headers, &CRC64);
            if told.is_some_and(|told| is_one(told) && told != sum) {
                return Err(invalid("the store has another CRC64NVME of a part than was sent".to_owned()));
            }
            return Ok(Part { tag: etag(&head)?, crc64 });
        }
    }

    /// `None`: the store was content.
    fn why_ended(&mut self) -> io::Result<Option<Refusal>> {
        let Running { feed, answer } = self.running.take().ok_or_else(over)?;
        drop(feed);
        joined(answer).map(Result::err)
    }

    /// Begins the part anew, if all is at hand and another try may help.
    fn again(&mut self, mut why: io::Result<Option<Refusal>>) -> io::Result<()> {
        loop {
            let can_repeat = self.kept.is_some() && self.tries < MAX_TRIES;
            match why {
                Ok(None) => return Err(invalid("the store answers before it has all of a part".to_owned())),
                Ok(Some(refusal)) if can_repeat && self.has_trailer && refusal.is_of_unknown_field() => {
                    self.tree.without_trailers();
                    self.has_trailer = false;
                }
                Ok(Some(refusal)) if can_repeat && self.tree.store.passes(&refusal) => {}
                Ok(Some(refusal)) => return Err(broken(&refusal.as_io())),
                Err(_) if can_repeat => {}
                Err(error) => return Err(broken(&error)),
            }
            self.tree.store.client.pause(self.tree.store.client.backoff(self.tries));
            self.start()?;
            match self.send_kept() {
                Ok(()) => return Ok(()),
                Err(_) => why = self.why_ended(),
            }
        }
    }
}

fn broken(error: &io::Error) -> io::Error {
    let why = format!("{error}; the same command goes on with the parts that are there");
    io::Error::new(error.kind(), why)
}

fn joined<T>(answer: JoinHandle<io::Result<T>>) -> io::Result<T> {
    answer.join().unwrap_or_else(|_| Err(io::Error::other("the thread of the request broke")))
}

fn over() -> io::Error {
    io::Error::new(ErrorKind::BrokenPipe, "the upload of the part is over")
}
