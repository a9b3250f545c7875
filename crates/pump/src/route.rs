//! The routes by name, and those that are left.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// How a range of a file gets into a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendRoute {
    /// File to pipe to socket (splice(2)).
    Splice,
    /// File to socket (sendfile(2)).
    Sendfile,
    /// `Splice` in one call of io_uring.
    RingSplice,
    /// The socket copies from a mapping of the file.
    Map,
    /// Copies through a buffer. Always possible, and the only way over TLS that the kernel does not seal.
    Copy,
    /// `Copy` in one call of io_uring.
    RingCopy,
}

/// How arriving bytes get into a file, or are discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveRoute {
    /// Socket to pipe to page cache (splice(2)): one copy.
    Splice,
    /// Aligned buffers, past the page cache (O_DIRECT), several writes at once (io_uring).
    Direct,
    /// Copies through a buffer. Always possible.
    Copy,
    /// Discarded unseen (MSG_TRUNC). Only without a file.
    Discard,
    /// Spliced to `/dev/null`. Only without a file.
    Null,
}

impl SendRoute {
    /// All routes by name.
    pub const ALL: [(SendRoute, &'static str); 6] = [
        (SendRoute::Splice, "splice"),
        (SendRoute::Sendfile, "sendfile"),
        (SendRoute::RingSplice, "uring-splice"),
        (SendRoute::Map, "mmap"),
        (SendRoute::Copy, "copy"),
        (SendRoute::RingCopy, "uring-copy"),
    ];

    /// The name in flags, reports and JSON.
    pub fn name(self) -> &'static str {
        name(&Self::ALL, self)
    }
}

impl ReceiveRoute {
    /// All routes by name.
    pub const ALL: [(ReceiveRoute, &'static str); 5] = [
        (ReceiveRoute::Splice, "splice"),
        (ReceiveRoute::Direct, "direct"),
        (ReceiveRoute::Copy, "copy"),
        (ReceiveRoute::Discard, "discard"),
        (ReceiveRoute::Null, "null"),
    ];

    /// The name in flags, reports and JSON.
    pub fn name(self) -> &'static str {
        name(&Self::ALL, self)
    }

    /// Whether the route ends in a file.
    pub fn fills_file(self) -> bool {
        matches!(self, ReceiveRoute::Splice | ReceiveRoute::Direct | ReceiveRoute::Copy)
    }
}

fn name<R: PartialEq>(all: &[(R, &'static str)], route: R) -> &'static str {
    all.iter().find(|(known, _)| *known == route).map_or("unknown", |(_, name)| name)
}

impl From<SendRoute> for &'static str {
    fn from(route: SendRoute) -> &'static str {
        route.name()
    }
}

impl From<ReceiveRoute> for &'static str {
    fn from(route: ReceiveRoute) -> &'static str {
        route.name()
    }
}

/// Routes in order of preference, shared by the lanes of a job. The last one is never dropped.
#[derive(Debug)]
pub struct Routes<R> {
    list: Vec<R>,
    current: AtomicUsize,
    dropped: Mutex<Vec<Dropped>>,
}

/// A route that the kernel refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// The route.
    pub route: &'static str,
    /// The next route.
    pub instead: &'static str,
    /// The kernel's refusal.
    pub why: String,
}

impl<R: Copy + PartialEq + Into<&'static str>> Routes<R> {
    /// Takes the preferred routes, best first, and one that always works.
    pub fn new(preferred: &[R], last: R) -> Routes<R> {
        let mut list: Vec<R> = preferred.iter().copied().filter(|route| *route != last).collect();
        list.push(last);
        Routes { list, current: AtomicUsize::new(0), dropped: Mutex::default() }
    }

    /// The present route.
    pub fn current(&self) -> R {
        self.list[self.current.load(Ordering::Acquire)]
    }

    /// Gives up a refused route, once for all lanes. Returns false if no other is left.
    pub(super) fn drop_route(&self, refused: R, why: &io::Error) -> bool {
        let mut dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        let at = self.current.load(Ordering::Acquire);
        if self.list[at] != refused {
            return true;
        }
        let Some(next) = self.list.get(at + 1) else { return false };
        dropped.push(Dropped { route: refused.into(), instead: (*next).into(), why: why.to_string() });
        self.current.store(at + 1, Ordering::Release);
        true
    }

    /// The refused routes, each once.
    pub fn dropped(&self) -> Vec<Dropped> {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Whether the kernel, the file system or the operator forbids a way altogether.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, NotSeekable, OutOfMemory, PermissionDenied, Unsupported};
    // OutOfMemory: the user may pin no more memory for rings and pipes.
    matches!(error.kind(), InvalidInput | Unsupported | PermissionDenied | NotSeekable | OutOfMemory)
        || error.raw_os_error() == Some(NO_SUCH_DEVICE)
}

/// ENODEV: the file system has no mappings (mmap(2)).
const NO_SUCH_DEVICE: i32 = 19;
