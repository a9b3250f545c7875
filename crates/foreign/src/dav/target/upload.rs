//! One file on its way up: a PUT whose body comes block by block.
//!
//! ```text
//! begin -> a thread makes the request, and holds the body back until the server wants it (100 Continue)
//!   send   -> the queue of the request
//!   finish -> the answer
//! ```
//! Redirects and questions for a login come before the body. The first blocks are kept until the queue proves that one was taken:
//! until then the request can be repeated.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::thread::JoinHandle;

use bytes::Bytes;
use http::header::LOCATION;
use http::{HeaderName, HeaderValue, Method, StatusCode, response};

use crate::dav::target::answers;
use crate::http_client::client::{Answer, Ask, Client, invalid};
use crate::http_client::limits::{FEED_BLOCKS, MAX_REDIRECTS};
use crate::http_client::outgoing::{self, Feed};
use crate::http_client::url::Url;

#[derive(Debug)]
pub(crate) struct Upload {
    client: Arc<Client>,
    url: Url,
    size: u64,
    fields: Vec<(HeaderName, HeaderValue)>,
    running: Option<Running>,
    /// The bytes sent, while all can be sent again.
    kept: Option<Vec<Bytes>>,
    begun: usize,
}

#[derive(Debug)]
struct Running {
    feed: Feed,
    answer: JoinHandle<io::Result<(response::Parts, Url)>>,
}

/// The queue, and the block about to be taken.
const KEPT_BLOCKS: usize = FEED_BLOCKS + 1;

impl Upload {
    pub(crate) fn begin(
        client: &Arc<Client>,
        url: Url,
        size: u64,
        fields: Vec<(HeaderName, HeaderValue)>,
    ) -> io::Result<Upload> {
        let client = Arc::clone(client);
        let mut upload = Upload { client, url, size, fields, running: None, kept: Some(Vec::new()), begun: 0 };
        upload.start()?;
        Ok(upload)
    }

    fn start(&mut self) -> io::Result<()> {
        self.begun += 1;
        let (feed, content) = outgoing::stream(Some(self.size));
        let (client, url, fields) = (Arc::clone(&self.client), self.url.clone(), self.fields.clone());
        let ask = move || {
            let ask = Ask { fields, content, expects: true, redirects: false, ..Ask::new(Method::PUT, &url) };
            let Answer { head, body, url } = client.ask(&ask)?;
            client.give_back(url.origin(), body);
            Ok((head, url))
        };
        let answer = std::thread::Builder::new().name("put".into()).spawn(ask)?;
        self.running = Some(Running { feed, answer });
        Ok(())
    }

    pub(crate) fn send(&mut self, block: Bytes) -> io::Result<()> {
        if let Some(kept) = &mut self.kept {
            kept.push(block.clone());
            if kept.len() > KEPT_BLOCKS {
                // The queue had room only after it gave a block to the connection.
                self.kept = None;
            }
        }
        let running = self.running.as_ref().ok_or_else(over)?;
        match running.feed.send(block) {
            Ok(()) => Ok(()),
            Err(_) => self.go_on_elsewhere(),
        }
    }

    pub(crate) fn finish(mut self) -> io::Result<response::Parts> {
        loop {
            let Running { feed, answer } = self.running.take().ok_or_else(over)?;
            feed.finish();
            let (head, url) = joined(answer)?;
            if answers::is_success(&head) {
                return Ok(head);
            }
            self.turn(&head, &url)?;
            self.start()?;
            self.send_kept()?;
        }
    }

    /// Repeats a request that ended early, as its answer says.
    fn go_on_elsewhere(&mut self) -> io::Result<()> {
        loop {
            let Running { feed, answer } = self.running.take().ok_or_else(over)?;
            drop(feed);
            let (head, url) = joined(answer)?;
            if answers::is_success(&head) {
                return Err(invalid("the server answers before it has all of the file".to_owned()));
            }
            self.turn(&head, &url)?;
            self.start()?;
            if self.send_kept().is_ok() {
                return Ok(());
            }
        }
    }

    /// Takes the next URL, or the same with a login.
    fn turn(&mut self, head: &response::Parts, url: &Url) -> io::Result<()> {
        if self.kept.is_none() || self.begun > MAX_REDIRECTS {
            return Err(answers::refusal(head));
        }
        match head.status {
            StatusCode::FOUND | StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => {
                let next = head.headers.get(LOCATION).and_then(|link| url.join(link.as_bytes()));
                let next = next.ok_or_else(|| invalid(format!("{url} leads nowhere ({})", head.status)))?;
                if url.origin().is_tls && !next.origin().is_tls {
                    return Err(invalid(format!("it is redirected from https to http: {next}")));
                }
                self.url = next;
                Ok(())
            }
            StatusCode::EXPECTATION_FAILED => Err(invalid("the server knows no Expect: 100-continue".to_owned())),
            _ => Err(answers::refusal(head)),
        }
    }

    fn send_kept(&self) -> io::Result<()> {
        let running = self.running.as_ref().ok_or_else(over)?;
        self.kept.iter().flatten().try_for_each(|block| running.feed.send(block.clone()))
    }
}

fn joined(answer: JoinHandle<io::Result<(response::Parts, Url)>>) -> io::Result<(response::Parts, Url)> {
    answer.join().unwrap_or_else(|_| Err(io::Error::other("the thread of the request broke")))
}

fn over() -> io::Error {
    io::Error::new(ErrorKind::BrokenPipe, "the upload is over")
}
