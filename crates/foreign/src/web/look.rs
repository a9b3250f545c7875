//! What stands at a URL: a file of a version, or a directory.

use std::io;

use http::{Method, StatusCode};

use crate::http_client::client::{Answer, Ask, Client, invalid, refusal};
use crate::http_client::fields::content_length;
use crate::http_client::url::Url;
use crate::web::version::{Part, Version, accepts_ranges, length_of_refused_range};

#[derive(Debug)]
pub(crate) enum Looked {
    File {
        version: Version,
        /// `None`: the server does not say.
        accepts_ranges: Option<bool>,
    },
    /// The server redirects to the name with a slash.
    Directory(Url),
}

/// Asks for the head, or else for the first byte.
pub(crate) fn look(client: &Client, url: &Url) -> io::Result<Looked> {
    look_by(client, &Ask::new(Method::HEAD, url))
}

/// Like [`look`], while others read: a busy server is an error at once.
pub(crate) fn look_beside(client: &Client, url: &Url, is_starved: &dyn Fn() -> bool) -> io::Result<Looked> {
    look_by(client, &Ask { takes_busy: true, is_starved: Some(is_starved), ..Ask::new(Method::HEAD, url) })
}

fn look_by(client: &Client, ask: &Ask<'_>) -> io::Result<Looked> {
    let url = ask.url;
    let Answer { head, body, url: found } = client.ask(ask)?;
    let is_directory = found.is_directory() && !url.is_directory();
    match head.status {
        StatusCode::OK if is_directory => {
            client.give_back(found.origin(), body);
            return Ok(Looked::Directory(found));
        }
        StatusCode::OK => {
            client.give_back(found.origin(), body);
            if let Some(size) = content_length(&head) {
                let version = Version::of(&head, size);
                return Ok(Looked::File { version, accepts_ranges: accepts_ranges(&head) });
            }
        }
        // Presigned URLs are for one method (403); some servers have no HEAD.
        StatusCode::BAD_REQUEST
        | StatusCode::FORBIDDEN
        | StatusCode::METHOD_NOT_ALLOWED
        | StatusCode::NOT_IMPLEMENTED => client.give_back(found.origin(), body),
        _ => return Err(refusal(&head)),
    }
    first_byte(client, url)
}

fn first_byte(client: &Client, url: &Url) -> io::Result<Looked> {
    let ask = Ask { range: Some((0, Some(1))), ..Ask::new(Method::GET, url) };
    let Answer { head, body, url: found } = client.ask(&ask)?;
    if head.status.is_success() && found.is_directory() && !url.is_directory() {
        return Ok(Looked::Directory(found));
    }
    let (size, ranges) = match head.status {
        StatusCode::PARTIAL_CONTENT => (Part::of(&head).and_then(|part| part.total), Some(true)),
        StatusCode::OK => (content_length(&head), Some(false)),
        // An empty file has no first byte.
        StatusCode::RANGE_NOT_SATISFIABLE => (length_of_refused_range(&head).filter(|size| *size == 0), Some(true)),
        _ => return Err(refusal(&head)),
    };
    client.give_back(found.origin(), body);
    let size = size.ok_or_else(|| invalid(NO_LENGTH.to_owned()))?;
    Ok(Looked::File { version: Version::of(&head, size), accepts_ranges: ranges })
}

/// Fails if nothing is there, as far as its head tells.
pub(crate) fn exists(client: &Client, url: &Url) -> io::Result<()> {
    let Answer { head, body, url: found } = client.ask(&Ask::new(Method::HEAD, url))?;
    client.give_back(found.origin(), body);
    match head.status {
        StatusCode::NOT_FOUND | StatusCode::GONE | StatusCode::UNAUTHORIZED => Err(refusal(&head)),
        _ => Ok(()),
    }
}

/// Asks for the second byte: many servers have a rule of their own for the first.
pub(crate) fn sends_ranges(client: &Client, url: &Url) -> io::Result<bool> {
    let ask = Ask { range: Some((1, Some(2))), ..Ask::new(Method::GET, url) };
    let Answer { head, body, url: found } = client.ask(&ask)?;
    let sends = head.status == StatusCode::PARTIAL_CONTENT && Part::of(&head).is_some_and(|part| part.start == 1);
    client.give_back(found.origin(), body);
    Ok(sends)
}

pub(crate) const NO_LENGTH: &str =
    "the server does not say how long it is: copy it as a stream, curl URL | haul cp - TARGET";
