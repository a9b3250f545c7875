//! Several connections to one server. Further ones are dialled once there is work for them: over a long path several at once, as soon as it
//! is announced, for a login takes seven round trips; else one after the other.
//!
//! A connection that cannot be had is no failure: the copy goes on with those that stand, and no more are dialled.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use crate::limits::{
    LONG_PATH, MAX_CONNECTIONS, MAX_DIALS_AT_ONCE, MAX_NEAR_CONNECTIONS, WORTH_ANOTHER_BYTES, WORTH_ANOTHER_FILES,
};
use crate::pipe::Pipe;
use crate::server::Server;

/// Reaches the server once more. `None`: it cannot be reached again without a question, or not at all.
pub type Dial = Box<dyn Fn() -> Option<Pipe> + Send + Sync>;

/// Several connections to one server.
pub struct Pool {
    servers: RwLock<Vec<Arc<Server>>>,
    dial: Option<Dial>,
    most: usize,
    patience: Duration,
    /// Threads that dial.
    dialling: AtomicUsize,
    /// The server refused one, or ssh had a question: nobody dials any more.
    is_refused: AtomicBool,
    is_long_path: bool,
    next: AtomicUsize,
    moved_bytes: AtomicU64,
    opened_files: AtomicU64,
    /// Bytes of the files that are to be moved, as far as that was said.
    announced_bytes: AtomicU64,
    /// Bytes that files hold ahead.
    ahead_bytes: Arc<AtomicUsize>,
}

impl Pool {
    /// Begins with one connection. `dial` brings further ones, up to `most` in all.
    pub fn new(first: Arc<Server>, dial: Option<Dial>, most: usize, patience: Duration) -> Arc<Self> {
        let is_long_path = first.answered_in().is_some_and(|time| time >= LONG_PATH);
        Arc::new(Self {
            servers: RwLock::new(vec![first]),
            dial,
            most: most.clamp(1, if is_long_path { MAX_CONNECTIONS } else { MAX_NEAR_CONNECTIONS }),
            patience,
            dialling: AtomicUsize::new(0),
            is_refused: AtomicBool::new(false),
            is_long_path,
            announced_bytes: AtomicU64::new(0),
            next: AtomicUsize::new(0),
            moved_bytes: AtomicU64::new(0),
            opened_files: AtomicU64::new(0),
            ahead_bytes: Arc::default(),
        })
    }

    /// The connections that stand; at least the first one, which may be lost.
    pub fn servers(&self) -> Vec<Arc<Server>> {
        let servers = self.servers.read().unwrap_or_else(PoisonError::into_inner);
        let standing: Vec<_> = servers.iter().filter(|server| !server.is_lost()).cloned().collect();
        if standing.is_empty() { servers[..1].to_vec() } else { standing }
    }

    /// One connection, each time another one.
    pub fn server(&self) -> Arc<Server> {
        let servers = self.servers();
        Arc::clone(&servers[self.next.fetch_add(1, Ordering::Relaxed) % servers.len()])
    }

    /// Fails once no connection stands.
    pub fn check(&self) -> io::Result<()> {
        match self.servers().iter().any(|server| !server.is_lost()) {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::BrokenPipe, "the connection to the server is lost")),
        }
    }

    pub(crate) fn ahead_bytes(&self) -> &Arc<AtomicUsize> {
        &self.ahead_bytes
    }

    /// Says that so many bytes of a file are to be moved.
    pub(crate) fn announce(self: &Arc<Self>, bytes: u64) {
        let announced = self.announced_bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if self.is_long_path {
            self.grow(announced / WORTH_ANOTHER_BYTES);
        }
    }

    pub(crate) fn count_moved(self: &Arc<Self>, bytes: usize) {
        let moved = self.moved_bytes.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        self.grow(moved / WORTH_ANOTHER_BYTES);
    }

    pub(crate) fn count_opened(self: &Arc<Self>) {
        let opened = self.opened_files.fetch_add(1, Ordering::Relaxed) + 1;
        self.grow(opened / WORTH_ANOTHER_FILES);
    }

    /// Dials, if the work is worth `further` connections beside the first.
    fn grow(self: &Arc<Self>, further: u64) {
        if further == 0 || self.dial.is_none() || self.is_refused.load(Ordering::Relaxed) {
            return;
        }
        let at_once = if self.is_long_path { MAX_DIALS_AT_ONCE } else { 1 };
        let wanted = usize::try_from(further).unwrap_or(usize::MAX).saturating_add(1).min(self.most);
        loop {
            let standing = self.servers.read().unwrap_or_else(PoisonError::into_inner).len();
            let begun = self.dialling.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |dialling| {
                (dialling < at_once && standing + dialling < wanted).then_some(dialling + 1)
            });
            if begun.is_err() {
                return;
            }
            let pool = Arc::downgrade(self);
            let dial = move || {
                let Some(pool) = pool.upgrade() else { return };
                let pipe = pool.dial.as_ref().and_then(|dial| dial());
                match pipe.and_then(|pipe| Server::meet(pipe, pool.patience).ok()) {
                    Some(server) => pool.servers.write().unwrap_or_else(PoisonError::into_inner).push(server),
                    None => pool.is_refused.store(true, Ordering::Relaxed),
                }
                pool.dialling.fetch_sub(1, Ordering::AcqRel);
                // The next ones, beyond those that may be dialled at once.
                pool.grow(further);
            };
            if std::thread::Builder::new().name("sftp-dial".into()).spawn(dial).is_err() {
                // Without a thread it stays with what stands.
                self.is_refused.store(true, Ordering::Relaxed);
                self.dialling.fetch_sub(1, Ordering::AcqRel);
                return;
            }
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("servers", &self.servers().len()).finish_non_exhaustive()
    }
}
