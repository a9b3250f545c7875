//! What is answered: a file or parts of it, the page of a directory, or a short refusal.

pub(crate) mod body;
pub(crate) mod coding;
pub(crate) mod digest;
mod directory;
mod file;
pub(crate) mod manifest;
pub(crate) mod names;
pub(crate) mod paced;
pub(crate) mod refusal;

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use haul_store::{LocalFile, Opened, Patience, Stat};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, LOCATION, TRANSFER_ENCODING, X_CONTENT_TYPE_OPTIONS};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::access::Shelf;
use crate::limits::{
    BLOCK_BYTES, BODY_MEMORY_BYTES, BODY_MEMORY_DEADLINE, MANIFESTS_AT_ONCE, SCARCE_BLOCK_BYTES, TARS_AT_ONCE,
};
use crate::request::target::{BadTarget, Target};
use crate::token::Reach;
use crate::transport::piece::Queue;

use body::Body;
use coding::Coding;
use digest::Kept;
use manifest::{Making, ManifestFormat};
use refusal::{Refusal, refusal};

/// A request, as far as answers need it.
pub(crate) struct Asked {
    pub(crate) is_head: bool,
    pub(crate) target: Target,
    /// Where this reader may go beneath the directory.
    pub(crate) reach: Reach,
    pub(crate) header: HeaderMap,
    pub(crate) now: SystemTime,
    /// Where ranges of files may go. `None`: their bytes pass through this process.
    pub(crate) files: Option<Queue>,
    /// What all answers share.
    pub(crate) shared: Arc<Shared>,
}

/// What all answers share.
pub(crate) struct Shared {
    /// In KiB: see [`crate::limits::BODY_MEMORY_BYTES`].
    memory: Arc<Semaphore>,
    digests: Arc<Kept>,
    manifests: Arc<Semaphore>,
    tars: Arc<Semaphore>,
    format: Arc<dyn ManifestFormat>,
}

impl Shared {
    pub(crate) fn new(format: Arc<dyn ManifestFormat>, digests: Kept) -> Shared {
        Shared {
            memory: Arc::new(Semaphore::new(BODY_MEMORY_BYTES / KIB)),
            digests: Arc::new(digests),
            manifests: Arc::new(Semaphore::new(MANIFESTS_AT_ONCE)),
            tars: Arc::new(Semaphore::new(TARS_AT_ONCE)),
            format,
        }
    }

    /// A share of the memory for bodies. It waits for others to end, but not for long.
    async fn memory(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Refusal> {
        let wanted = u32::try_from(kib(bytes)).unwrap_or(u32::MAX);
        let share = Arc::clone(&self.memory).acquire_many_owned(wanted);
        match tokio::time::timeout(BODY_MEMORY_DEADLINE, share).await {
            Ok(Ok(share)) => Ok(share),
            _ => Err(Refusal::of(StatusCode::SERVICE_UNAVAILABLE)),
        }
    }
}

impl Shared {
    /// The share of a body of this length that goes block by block, and the size of its blocks.
    async fn blocks(&self, length: u64) -> Result<(OwnedSemaphorePermit, usize), Refusal> {
        let is_scarce = self.memory.available_permits() < BODY_MEMORY_BYTES / KIB / 2;
        let block = if is_scarce { SCARCE_BLOCK_BYTES } else { BLOCK_BYTES };
        let share = usize::try_from(length).unwrap_or(usize::MAX).min(2 * block);
        Ok((self.memory(share).await?, block))
    }
}

const KIB: usize = 1 << 10;

/// What a share of the memory counts in.
fn kib(bytes: usize) -> usize {
    bytes.div_ceil(KIB)
}

/// Checks a request before anything is looked at.
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

/// What holds for a request of any method: one host, and no content.
pub(crate) fn check_frame<B>(request: &Request<B>) -> Result<(), Refusal> {
    check_host(request)?;
    // There is no body that a reader has to send. One that nobody reads must not be taken for the next request.
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

/// RFC 9112, section 3.2: exactly one `Host`, and a valid one; in HTTP/1.0 it may be missing.
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

/// Without an account, and its port is a number.
fn is_plain(host: &Authority) -> bool {
    let name = host.host();
    let port = host.as_str().strip_prefix(name).and_then(|rest| rest.strip_prefix(':'));
    !host.as_str().contains('@') && port.is_none_or(|port| port.parse::<u16>().is_ok() || port.is_empty())
}

/// Answers a request that may read in `shelf`.
pub(crate) async fn answer(asked: Asked, shelf: Arc<Shelf>, uri: &Uri) -> Result<Response<Body>, Refusal> {
    let opened = match shelf.directory.find(&asked.target.path, Patience::None) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => find(&asked, &shelf).await,
        Err(error) if has_links(&error) => find(&asked, &shelf).await,
        found => found.map(|opened| (opened, None)),
    };
    let (opened, real) = opened.map_err(|error| Refusal::of(status_of(&error)))?;
    let path = real.unwrap_or_else(|| asked.target.path.clone());
    match opened {
        Opened::File(..) if asked.target.is_directory => Err(Refusal::of(StatusCode::NOT_FOUND)),
        Opened::File(file, stat) => {
            let (file, stat, coding) = match neighbour(&asked, &shelf, &path, &stat) {
                Some((file, stat, coding)) => (file, stat, Some(coding)),
                None => (file, stat, None),
            };
            file::answer(&asked, Arc::new(file), &stat, coding).await
        }
        Opened::Directory(_) if !asked.target.is_directory => Ok(to_the_slash(&asked.target.path, uri.query())),
        Opened::Directory(_) if asked.target.wishes.tar => directory::packed(&asked, shelf, path),
        Opened::Directory(_) if asked.target.wishes.manifest => manifest_of(&asked, shelf, path),
        Opened::Directory(directory) => directory::answer(&asked, shelf, path, directory).await,
    }
}

/// Where the path leads, and its form without links where it has some. A link leads a reader only to where the reader may go.
async fn find(asked: &Asked, shelf: &Arc<Shelf>) -> io::Result<(Opened, Option<Vec<u8>>)> {
    let (shelf, path, reach) = (Arc::clone(shelf), asked.target.path.clone(), asked.reach.clone());
    in_pool(move || match shelf.directory.find(&path, Patience::ForDisk) {
        Err(error) if has_links(&error) => {
            let real = shelf.directory.without_links(&path)?;
            if !reach.includes(&real) {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            Ok((shelf.directory.find(&real, Patience::ForDisk)?, Some(real)))
        }
        found => Ok((found?, None)),
    })
    .await
}

/// The kernel refused a link on the way. One without `openat2` says of a link in a directory's place that it is no directory.
fn has_links(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix_errno::LOOP) || error.kind() == io::ErrorKind::NotADirectory
}

/// The file's compressed neighbour, if the reader takes it, and it is not older than the file. One that the kernel does
/// not have in memory is not waited for.
fn neighbour(asked: &Asked, shelf: &Shelf, path: &[u8], stat: &Stat) -> Option<(LocalFile, Stat, Coding)> {
    coding::taken(&asked.header).find_map(|coding| {
        let path = [path, coding.suffix].concat();
        if !asked.reach.includes(&path) {
            return None;
        }
        match shelf.directory.find(&path, Patience::None) {
            Ok(Opened::File(file, found)) if found.mtime >= stat.mtime => Some((file, found, coding)),
            _ => None,
        }
    })
}

fn manifest_of(asked: &Asked, shelf: Arc<Shelf>, top: Vec<u8>) -> Result<Response<Body>, Refusal> {
    let body = if asked.is_head {
        Body::empty()
    } else {
        let busy = |_| Refusal::of(StatusCode::SERVICE_UNAVAILABLE);
        let place = Arc::clone(&asked.shared.manifests).try_acquire_owned().map_err(busy)?;
        let making =
            Making { shelf, top, kept: Arc::clone(&asked.shared.digests), format: Arc::clone(&asked.shared.format) };
        Body::stream(manifest::begin(making, place))
    };
    let mut response = Response::new(body);
    let header = response.headers_mut();
    header.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    header.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}

/// Runs what may wait for a disk.
pub(crate) async fn in_pool<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|failed| Err(io::Error::other(failed)))
}

fn status_of(error: &io::Error) -> StatusCode {
    use rustix_errno::*;
    match (error.kind(), error.raw_os_error()) {
        (io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidFilename, _) => {
            StatusCode::NOT_FOUND
        }
        // A link on the way, the way out, a FIFO, or no rights.
        (io::ErrorKind::PermissionDenied, _) | (_, Some(LOOP | XDEV | NXIO)) => StatusCode::FORBIDDEN,
        (_, Some(MFILE | NFILE)) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Numbers that the standard library has no stable word for, as on most architectures of Linux.
mod rustix_errno {
    pub(super) const NXIO: i32 = 6;
    pub(super) const XDEV: i32 = 18;
    pub(super) const NFILE: i32 = 23;
    pub(super) const MFILE: i32 = 24;
    pub(super) const LOOP: i32 = 40;
}

/// Written anew from what was understood: slashes or dots at the start of what was asked could name another host.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;

    struct NoForm;

    impl ManifestFormat for NoForm {
        fn write(
            &self,
            _: &mut dyn FnMut() -> io::Result<Option<manifest::ManifestFile>>,
            _: &mut dyn io::Write,
        ) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn there_is_a_share_for_as_many_readers_as_there_are_connections() {
        let shared = Shared::new(Arc::new(NoForm), Kept::default());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let shares: Vec<_> = (0..Limits::default().connections)
            .map(|_| runtime.block_on(shared.blocks(u64::MAX)).expect("a share"))
            .collect();
        let large = shares.iter().filter(|(_, block)| *block == BLOCK_BYTES).count();
        assert!((1024..2048).contains(&large), "{large}");
        drop(shares);
        assert_eq!(runtime.block_on(shared.blocks(9)).map(|(_, block)| block), Ok(BLOCK_BYTES));
    }
}
