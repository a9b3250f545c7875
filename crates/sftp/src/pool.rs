//! Several connections to one server. Further ones are dialled once there is work for them: over a long path several at once, as soon as it
//! is announced, for a login takes nine round trips; else one after the other.
//!
//! A connection that cannot be had is no failure: the copy goes on with those that stand, and no more are dialled.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::dials::Dials;
use crate::limits::{
    LONG_PATH, MAX_DIALS_AT_ONCE, MAX_NEAR_CONNECTIONS, QUIET_BESIDE_CONNECTIONS, WORTH_ANOTHER_BYTES,
    WORTH_ANOTHER_FILES,
};
use crate::server::{Handle, Server};
use crate::turns::Turns;

/// Several connections to one server.
pub struct Pool {
    first: Arc<Server>,
    further: Option<Arc<Dials>>,
    is_long_path: bool,
    next: AtomicUsize,
    moved_bytes: AtomicU64,
    opened_files: AtomicU64,
    /// Bytes of the files that are to be moved, as far as that was said.
    announced_bytes: AtomicU64,
    /// Bytes that files hold ahead.
    ahead_bytes: Arc<AtomicUsize>,
    turns: Arc<Turns>,
}

impl Pool {
    /// Begins with one connection. `further` brings more.
    pub fn new(first: Arc<Server>, further: Option<Arc<Dials>>) -> Arc<Self> {
        let is_long_path = first.answered_in().is_some_and(|time| time >= LONG_PATH);
        if let Some(further) = &further {
            match is_long_path {
                true => further.first_is_in(first.features(), usize::MAX, MAX_DIALS_AT_ONCE),
                false => further.first_is_in(first.features(), MAX_NEAR_CONNECTIONS - 1, 1),
            }
        }
        Arc::new(Self {
            first,
            further,
            is_long_path,
            announced_bytes: AtomicU64::new(0),
            next: AtomicUsize::new(0),
            moved_bytes: AtomicU64::new(0),
            opened_files: AtomicU64::new(0),
            ahead_bytes: Arc::default(),
            turns: Arc::new(Turns::new(is_long_path)),
        })
    }

    /// The connections that stand; at least the first one, which may be lost.
    pub fn servers(&self) -> Vec<Arc<Server>> {
        let further = self.further.as_ref().map(|further| further.servers()).unwrap_or_default();
        if self.first.is_lost() && !further.is_empty() {
            return further;
        }
        [vec![Arc::clone(&self.first)], further].concat()
    }

    /// One connection for a question: the one with the fewest bytes under way, each time another one among equals.
    pub fn server(&self) -> Arc<Server> {
        let mut servers = self.servers();
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % servers.len();
        servers.rotate_left(turn);
        servers.into_iter().min_by_key(|server| server.bytes_in_flight()).expect("the first one is there")
    }

    /// The connection for questions about what is written for long: where others carry data, it has none.
    pub(crate) fn quiet(&self) -> Arc<Server> {
        if self.first.is_lost() { self.server() } else { Arc::clone(&self.first) }
    }

    /// Leaves out the handles over the connection of the first login, where enough others carry data: questions go there.
    pub(crate) fn for_data(&self, mut handles: Vec<Arc<Handle>>) -> Vec<Arc<Handle>> {
        let is_of_first = |handle: &Arc<Handle>| {
            let is_beside = || self.further.as_ref().is_some_and(|further| further.is_beside_first(handle.server()));
            Arc::ptr_eq(handle.server(), &self.first) || is_beside()
        };
        if handles.iter().filter(|handle| !is_of_first(handle)).count() >= QUIET_BESIDE_CONNECTIONS {
            handles.retain(|handle| !is_of_first(handle));
        }
        handles
    }

    /// Fails once no connection stands.
    pub fn check(&self) -> io::Result<()> {
        match self.servers().iter().any(|server| !server.is_lost()) {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::BrokenPipe, "the connection to the server is lost")),
        }
    }

    pub(crate) fn turns(&self) -> &Arc<Turns> {
        &self.turns
    }

    /// How long a further connection waits before its first data.
    pub(crate) fn until_phase(&self, server: &Server) -> Duration {
        match self.first.answered_in() {
            Some(rtt) if self.is_long_path => self.turns.until_phase(server, rtt),
            _ => Duration::ZERO,
        }
    }

    pub(crate) fn ahead_bytes(&self) -> &Arc<AtomicUsize> {
        &self.ahead_bytes
    }

    /// How many further connections so many bytes are worth.
    pub fn worth(bytes: u64) -> usize {
        usize::try_from(bytes / WORTH_ANOTHER_BYTES).unwrap_or(usize::MAX)
    }

    /// Says that so many bytes of a file are to be moved.
    pub(crate) fn announce(&self, bytes: u64) {
        let announced = self.announced_bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if self.is_long_path {
            self.grow(Self::worth(announced));
        }
    }

    pub(crate) fn count_moved(&self, bytes: usize) {
        let moved = self.moved_bytes.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        self.grow(Self::worth(moved));
    }

    pub(crate) fn count_opened(&self) {
        let opened = self.opened_files.fetch_add(1, Ordering::Relaxed) + 1;
        self.grow(usize::try_from(opened / WORTH_ANOTHER_FILES).unwrap_or(usize::MAX));
    }

    /// Dials, if the work is worth `count` connections beside the first.
    fn grow(&self, count: usize) {
        if let Some(further) = self.further.as_ref().filter(|_| count > 0) {
            further.want(count);
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("servers", &self.servers().len()).finish_non_exhaustive()
    }
}
