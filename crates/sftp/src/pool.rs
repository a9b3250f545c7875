//! Several connections to one server. Further ones are dialled one after the other, once there is work for them.
//!
//! A connection that cannot be had is no failure: the copy goes on with those that stand, and no more are dialled.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use crate::limits::{MAX_CONNECTIONS, WORTH_ANOTHER_BYTES, WORTH_ANOTHER_FILES};
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
    /// A thread dials, or nobody shall any more.
    is_dialling: AtomicBool,
    next: AtomicUsize,
    moved_bytes: AtomicU64,
    opened_files: AtomicU64,
    /// Bytes that files hold ahead.
    ahead_bytes: Arc<AtomicUsize>,
}

impl Pool {
    /// Begins with one connection. `dial` brings further ones, up to `most` in all.
    pub fn new(first: Arc<Server>, dial: Option<Dial>, most: usize, patience: Duration) -> Arc<Self> {
        Arc::new(Self {
            servers: RwLock::new(vec![first]),
            dial,
            most: most.clamp(1, MAX_CONNECTIONS),
            patience,
            is_dialling: AtomicBool::new(false),
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

    pub(crate) fn count_moved(self: &Arc<Self>, bytes: usize) {
        let moved = self.moved_bytes.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        self.grow(moved / WORTH_ANOTHER_BYTES);
    }

    pub(crate) fn count_opened(self: &Arc<Self>) {
        let opened = self.opened_files.fetch_add(1, Ordering::Relaxed) + 1;
        self.grow(opened / WORTH_ANOTHER_FILES);
    }

    /// Dials once more, if the work is worth `further` connections beside the first.
    fn grow(self: &Arc<Self>, further: u64) {
        if further == 0 || self.dial.is_none() || self.is_dialling.load(Ordering::Relaxed) {
            return;
        }
        let standing = self.servers.read().unwrap_or_else(PoisonError::into_inner).len();
        if standing >= self.most || standing as u64 > further || self.is_dialling.swap(true, Ordering::AcqRel) {
            return;
        }
        let pool = Arc::downgrade(self);
        // Without a thread it stays with what stands.
        let _ = std::thread::Builder::new().name("sftp-dial".into()).spawn(move || {
            let Some(pool) = pool.upgrade() else { return };
            let pipe = pool.dial.as_ref().and_then(|dial| dial());
            let Some(server) = pipe.and_then(|pipe| Server::meet(pipe, pool.patience).ok()) else { return };
            pool.servers.write().unwrap_or_else(PoisonError::into_inner).push(server);
            pool.is_dialling.store(false, Ordering::Release);
        });
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("servers", &self.servers().len()).finish_non_exhaustive()
    }
}
