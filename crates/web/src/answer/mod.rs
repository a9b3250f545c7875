//! Makes the answer: a file or parts of it, the page of a directory, or a short refusal.

pub(crate) mod asked;
pub(crate) mod body;
pub(crate) mod coding;
pub(crate) mod digest;
mod directory;
mod file;
pub(crate) mod manifest;
pub(crate) mod names;
pub(crate) mod paced;
pub(crate) mod refusal;
mod status;

use std::io;
use std::sync::Arc;

use haul_store::{Opened, Patience};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, LOCATION, TRANSFER_ENCODING, X_CONTENT_TYPE_OPTIONS};
use http::uri::Authority;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, Version};

use crate::access::Shelf;
use crate::limits::OPEN_DEADLINE;
use crate::pools::Leaving;
use crate::request::target::{BadTarget, Target};
use crate::token::Reach;

pub(crate) use asked::{Asked, Shared};
use body::{Body, Reopening};
use coding::Coding;
use manifest::{Making, Out};
use refusal::{Refusal, refusal};
use status::{has_links, status_of};

pub(crate) fn check<B>(request: &Request<B>) -> Result<Target, Refusal> {
    check_frame(request)?;
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Err(Refusal::of(StatusCode::METHOD_NOT_ALLOWED));
    }
    Target::parse(request.uri().path(), request.uri().query()).map_err(|bad| match bad {
        BadTarget::TooLong => Refusal::of(StatusCode::URI_TOO_LONG),
        BadTarget::Malformed => Refusal::of(StatusCode::BAD_REQUEST),
    })
}

pub(crate) fn check_frame<B>(request: &Request<B>) -> Result<(), Refusal> {
    check_host(request)?;
    // An unread body must not be taken for the next request.
    let header = request.headers();
    let has_body = header.get_all(CONTENT_LENGTH).iter().any(|length| length.as_bytes() != b"0");
    if has_body || header.contains_key(TRANSFER_ENCODING) {
        return Err(match *request.method() {
            Method::GET | Method::HEAD => Refusal::closing(StatusCode::BAD_REQUEST),
            _ => Refusal::closing(StatusCode::METHOD_NOT_ALLOWED),
        });
    }
    Ok(())
}

/// Checks for exactly one valid `Host` (RFC 9112, section 3.2). In HTTP/1.0 it may be missing.
fn check_host<B>(request: &Request<B>) -> Result<(), Refusal> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let (host, more) = (hosts.next(), hosts.next());
    let is_needed = request.version() == Version::HTTP_11;
    let is_valid = |host: &HeaderValue| {
        let authority = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
        host.is_empty() || authority.is_some_and(|host| is_plain(&host))
    };
    match (host, more) {
        (None, None) if !is_needed => Ok(()),
        (Some(host), None) if is_valid(host) => Ok(()),
        _ => Err(Refusal::closing(StatusCode::BAD_REQUEST)),
    }
}

fn is_plain(host: &Authority) -> bool {
    let name = host.host();
    let port = host.as_str().strip_prefix(name).and_then(|rest| rest.strip_prefix(':'));
    !host.as_str().contains('@') && port.is_none_or(|port| port.parse::<u16>().is_ok() || port.is_empty())
}

pub(crate) async fn answer(asked: Asked, shelf: Arc<Shelf>, uri: &Uri) -> Result<Response<Body>, Refusal> {
    let asked = &asked;
    let sought = Sought {
        path: asked.target.path.clone(),
        reach: asked.reach.clone(),
        codings: coding::taken(&asked.header).collect(),
    };
    let found = match sought.find(&shelf, Patience::None) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock || has_links(&error) => {
            let shelf = Arc::clone(&shelf);
            asked.on_disk(move |_| sought.find(&shelf, Patience::ForDisk)).await?
        }
        found => found,
    };
    let Found { opened, coding, real } = found.map_err(|error| Refusal::of(status_of(&error)))?;
    let path = real.unwrap_or_else(|| asked.target.path.clone());
    match opened {
        Opened::File(..) if asked.target.is_directory => Err(Refusal::of(StatusCode::NOT_FOUND)),
        Opened::File(file, stat) => {
            let path = [path.as_slice(), coding.map_or(b"".as_slice(), |coding| coding.suffix)].concat();
            file::answer(asked, Arc::new(file), &stat, coding, Reopening { shelf, path, stat: stat.clone() }).await
        }
        Opened::Directory(_) if !asked.target.is_directory => Ok(to_the_slash(&asked.target.path, uri.query())),
        Opened::Directory(_) if asked.target.wishes.tar => directory::packed(asked, shelf, path).await,
        Opened::Directory(_) if asked.target.wishes.manifest => manifest_of(asked, shelf, path).await,
        Opened::Directory(directory) => directory::answer(asked, shelf, path, directory).await,
    }
}

struct Sought {
    path: Vec<u8>,
    reach: Reach,
    codings: Vec<Coding>,
}

struct Found {
    opened: Opened,
    coding: Option<Coding>,
    real: Option<Vec<u8>>,
}

impl Sought {
    /// Follows links only with patience, and only to a path that the reader may have.
    fn find(&self, shelf: &Shelf, patience: Patience) -> io::Result<Found> {
        let (opened, real) = match shelf.directory.find(&self.path, patience) {
            Err(error) if has_links(&error) && patience == Patience::ForDisk => {
                let real = shelf.directory.without_links(&self.path)?;
                if !self.reach.includes(&real) {
                    return Err(io::ErrorKind::PermissionDenied.into());
                }
                (shelf.directory.find(&real, patience)?, Some(real))
            }
            found => (found?, None),
        };
        let path = real.as_deref().unwrap_or(&self.path);
        let (opened, coding) = match self.neighbour(shelf, path, &opened, patience) {
            Some((neighbour, coding)) => (neighbour, Some(coding)),
            None => (opened, None),
        };
        Ok(Found { opened, coding, real })
    }

    /// Finds a compressed neighbour that the reader takes and may read, and that is not older. It is waited for only if the file
    /// was.
    fn neighbour(&self, shelf: &Shelf, path: &[u8], opened: &Opened, patience: Patience) -> Option<(Opened, Coding)> {
        let Opened::File(_, stat) = opened else { return None };
        self.codings.iter().find_map(|coding| {
            let path = [path, coding.suffix].concat();
            if !self.reach.includes(&path) {
                return None;
            }
            match shelf.directory.find(&path, patience) {
                Ok(Opened::File(file, found)) if found.mtime >= stat.mtime => {
                    Some((Opened::File(file, found), *coding))
                }
                _ => None,
            }
        })
    }
}

async fn manifest_of(asked: &Asked, shelf: Arc<Shelf>, top: Vec<u8>) -> Result<Response<Body>, Refusal> {
    let body = if asked.is_head {
        Body::empty()
    } else {
        let pools = &asked.shared.pools;
        let of_shelf = asked.share(&asked.client.threads.hashing, 1, OPEN_DEADLINE).await?;
        let of_all = asked.share(&pools.hash_jobs, 1, OPEN_DEADLINE).await?;
        let making =
            Making { shelf, top, kept: Arc::clone(&asked.shared.digests), format: Arc::clone(&asked.shared.format) };
        let job = pools.hashing.job(asked.client.claimant.clone(), None);
        let (out, blocks) = Out::to_reader(vec![of_shelf, of_all], Some(Arc::clone(&job)));
        let leaving = Leaving::new(&job);
        manifest::begin(making, &pools.hashing, job, out);
        Body::stream(blocks, Some(leaving))
    };
    let mut response = Response::new(body);
    let header = response.headers_mut();
    header.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    header.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}

/// Redirects to the path with a slash. The link comes from the parsed path: leading slashes or dots of the request could name
/// another host.
fn to_the_slash(path: &[u8], query: Option<&str>) -> Response<Body> {
    let path = names::path_link(path);
    let location = match query {
        Some(query) => format!("/{path}/?{query}"),
        None => format!("/{path}/"),
    };
    let mut response = refusal(&Refusal::of(StatusCode::MOVED_PERMANENTLY), false);
    if let Ok(location) = HeaderValue::from_bytes(location.as_bytes()) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}
