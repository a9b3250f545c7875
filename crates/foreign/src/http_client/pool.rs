//! The connections of a client that wait for a request, and those that are being made.
//!
//! ```text
//! take -> one that rests | one that is being dialled ahead | a new one
//! keep -> rests for 20 s -> closed
//! ```

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, io};

use haul_store::ConnectionsNow;
use rustls::ClientConfig;

use crate::http_client::connection::Connection;
use crate::http_client::limits::{DIALLED_AHEAD, IDLE_KEPT, SPREAD_FROM_US};
use crate::http_client::reach::{Reach, Sockets};
use crate::http_client::trust;
use crate::http_client::url::Origin;

/// How many connections a read of so many bytes begins with, over a path of this round-trip time in microseconds.
pub type BeginsWith = fn(u32, u64) -> u16;

/// See the module.
pub(crate) struct Pool {
    reach: Reach,
    silence: Duration,
    begins_with: BeginsWith,
    /// Most connections that rest.
    most: usize,
    tls: OnceLock<Result<Arc<ClientConfig>, String>>,
    sockets: Arc<Sockets>,
    foreseen_bytes: AtomicU64,
    /// The smallest round-trip time of any connection so far; 0 before the first one.
    rtt_us: AtomicU32,
    spacing: Mutex<Spacing>,
    state: Mutex<State>,
    changed: Condvar,
}

/// Bodies begin one after the other within a round trip.
#[derive(Default)]
struct Spacing {
    count: u32,
    next: Option<Instant>,
}

#[derive(Default)]
struct State {
    resting: Vec<(Origin, Connection)>,
    /// Where connections are dialled ahead to, how many are on their way, and threads that wait for one of them.
    ahead_to: Option<Origin>,
    dialling: usize,
    waiting: usize,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} connections rest", self.lock().resting.len())
    }
}

impl Pool {
    pub(crate) fn new(reach: Reach, silence: Duration, begins_with: BeginsWith, most: usize) -> Arc<Pool> {
        Arc::new(Pool {
            reach,
            silence,
            begins_with,
            most,
            tls: OnceLock::new(),
            sockets: Sockets::new(),
            foreseen_bytes: AtomicU64::new(0),
            rtt_us: AtomicU32::new(0),
            spacing: Mutex::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The smallest round-trip time of any connection so far; 0 before the first one.
    pub(crate) fn rtt_us(&self) -> u32 {
        self.rtt_us.load(Ordering::Relaxed)
    }

    /// Expects that many bodies at once from now on.
    pub(crate) fn spread_over(&self, count: u16) {
        self.spacing.lock().unwrap_or_else(PoisonError::into_inner).count = count.into();
    }

    /// How long to wait with the request for a body.
    ///
    /// A sender sends each window of slow start as one burst. Where the bursts of all connections come together, each of them takes as long
    /// as all: cubic takes that for a full path when it is half full, and grows slowly from there (HyStart, RFC 9406). So the requests are
    /// spread over a round trip, and bursts keep their distance from then on. 500 MB over 1 Gbit/s x 228 ms took 7.4 s with it, and 10.2 s
    /// without.
    pub(crate) fn turn(&self) -> Duration {
        let rtt_us = self.rtt_us();
        if rtt_us < SPREAD_FROM_US {
            return Duration::ZERO;
        }
        let mut spacing = self.spacing.lock().unwrap_or_else(PoisonError::into_inner);
        let apart = Duration::from_micros(rtt_us.into()) / spacing.count.max(1);
        let now = Instant::now();
        let turn = spacing.next.map_or(now, |next| next.max(now));
        spacing.next = Some(turn + apart);
        turn - now
    }

    /// Reads what the kernel tells of all connections.
    pub(crate) fn now(&self) -> ConnectionsNow {
        self.sockets.now()
    }

    /// Ends dials that are under way.
    pub(crate) fn end(&self) {
        self.sockets.end();
    }

    /// Says that a file is about to be read which may have so many bytes. Once the first connection has shown that the path is long,
    /// further ones are dialled. They shake hands while the first one asks what the file is like.
    pub(crate) fn foresees(&self, bytes: u64) {
        self.foreseen_bytes.store(bytes, Ordering::Relaxed);
    }

    /// A connection for a request.
    pub(crate) fn take(self: &Arc<Self>, origin: &Origin) -> io::Result<Connection> {
        let mut state = self.lock();
        loop {
            state.resting.retain(|(_, connection)| connection.idle_since.elapsed() < IDLE_KEPT);
            if let Some(at) = state.resting.iter().rposition(|(of, _)| of == origin) {
                let (_, mut connection) = state.resting.swap_remove(at);
                drop(state);
                if connection.is_open() {
                    return Ok(connection);
                }
                state = self.lock();
            } else if state.dialling > state.waiting && state.ahead_to.as_ref() == Some(origin) {
                state.waiting += 1;
                // A dial has its deadline.
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.waiting -= 1;
            } else {
                drop(state);
                return self.connect(origin);
            }
        }
    }

    /// Keeps a connection for another request.
    pub(crate) fn keep(&self, origin: &Origin, connection: Connection) {
        let connection = connection.rested();
        let mut state = self.lock();
        if state.resting.len() < self.most {
            state.resting.push((origin.clone(), connection));
        }
        // Who waits for one to another origin must not take the call of another.
        self.changed.notify_all();
    }

    fn connect(self: &Arc<Self>, origin: &Origin) -> io::Result<Connection> {
        let tls = match origin.is_tls {
            true => Some(self.tls.get_or_init(trust::config).clone().map_err(io::Error::other)?),
            false => None,
        };
        let dialled = self.sockets.dial(origin, &self.reach, self.silence)?;
        let rtt_us = match self.rtt_us() {
            0 => dialled.rtt_us,
            before => dialled.rtt_us.min(before),
        };
        self.rtt_us.store(rtt_us, Ordering::Relaxed);
        self.dial_ahead(origin, dialled.rtt_us);
        Connection::open(origin, dialled, tls, self.silence)
    }

    fn dial_ahead(self: &Arc<Self>, origin: &Origin, rtt_us: u32) {
        let foreseen_bytes = self.foreseen_bytes.swap(0, Ordering::Relaxed);
        if foreseen_bytes > 0 {
            self.dial_some(origin, self.wanted(rtt_us, foreseen_bytes).saturating_sub(1));
        }
    }

    /// Dials as many as so many bytes are worth, beside those that are open or on their way.
    pub(crate) fn dial_more(self: &Arc<Self>, origin: &Origin, bytes: u64) {
        let rtt_us = self.rtt_us();
        // On a shorter path nobody gains from a handshake that is over a round trip earlier.
        if rtt_us < SPREAD_FROM_US {
            return;
        }
        let there = self.lock().dialling + self.sockets.open_count();
        self.dial_some(origin, self.wanted(rtt_us, bytes).saturating_sub(there));
    }

    fn wanted(&self, rtt_us: u32, bytes: u64) -> usize {
        usize::from((self.begins_with)(rtt_us, bytes)).min(DIALLED_AHEAD).min(self.most)
    }

    fn dial_some(self: &Arc<Self>, origin: &Origin, count: usize) {
        self.lock().ahead_to = Some(origin.clone());
        for _ in 0..count {
            self.lock().dialling += 1;
            let (pool, origin) = (Arc::clone(self), origin.clone());
            let dial = move || {
                let made = pool.connect(&origin);
                pool.lock().dialling -= 1;
                match made {
                    Ok(connection) => pool.keep(&origin, connection),
                    // It fails again, in words, where the connection is needed.
                    Err(_) => pool.changed.notify_one(),
                }
            };
            if std::thread::Builder::new().name("dial".into()).spawn(dial).is_err() {
                self.lock().dialling -= 1;
                self.changed.notify_one();
            }
        }
    }
}
