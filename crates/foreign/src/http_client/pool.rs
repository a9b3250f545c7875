//! A client's connections, resting or being made.
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

/// How many connections begin a read of so many bytes, at this round-trip time in microseconds.
pub type BeginsWith = fn(u32, u64) -> u16;

pub(crate) struct Pool {
    reach: Reach,
    silence: Duration,
    begins_with: BeginsWith,
    most: usize,
    tls: OnceLock<Result<Arc<ClientConfig>, String>>,
    sockets: Arc<Sockets>,
    foreseen_bytes: AtomicU64,
    /// The smallest of any connection; 0 before the first.
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
    /// The origin of dials ahead, their number, and the waiting threads.
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

    pub(crate) fn rtt_us(&self) -> u32 {
        self.rtt_us.load(Ordering::Relaxed)
    }

    /// Expects that many bodies at once.
    pub(crate) fn spread_over(&self, count: u16) {
        self.spacing.lock().unwrap_or_else(PoisonError::into_inner).count = count.into();
    }

    /// How long the request for a body waits.
    ///
    /// A sender sends each window of slow start as one burst. Where all bursts meet, cubic takes the delay for a full path when
    /// it is half full, and grows slowly (HyStart, RFC 9406). So requests are spread over a round trip: 500 MB over 1 Gbit/s x
    /// 228 ms took 7.4 s, and 10.2 s without.
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

    pub(crate) fn now(&self) -> ConnectionsNow {
        self.sockets.now()
    }

    pub(crate) fn gather_reads(&self, pause: Duration) {
        self.sockets.gather_reads(pause);
    }

    pub(crate) fn end(&self) {
        self.sockets.end();
    }

    /// Announces a file of up to so many bytes. On a long path others shake hands while the first connection asks about the file.
    pub(crate) fn foresees(&self, bytes: u64) {
        self.foreseen_bytes.store(bytes, Ordering::Relaxed);
    }

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

    pub(crate) fn keep(&self, origin: &Origin, connection: Connection) {
        let connection = connection.rested();
        let mut state = self.lock();
        if state.resting.len() < self.most {
            state.resting.push((origin.clone(), connection));
        }
        // Threads waiting for another origin must not take this call.
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
            self.dial_some(origin, self.wanted(rtt_us, foreseen_bytes).min(DIALLED_AHEAD).saturating_sub(1));
        }
    }

    /// Dials what the bytes are worth, beside connections open or on their way; at most so many in all.
    pub(crate) fn dial_more(self: &Arc<Self>, origin: &Origin, bytes: u64, most: usize) {
        let rtt_us = self.rtt_us();
        // On a shorter path an early handshake gains nothing.
        if rtt_us < SPREAD_FROM_US {
            return;
        }
        let there = self.lock().dialling + self.sockets.open_count();
        self.dial_some(origin, self.wanted(rtt_us, bytes).min(most).saturating_sub(there));
    }

    fn wanted(&self, rtt_us: u32, bytes: u64) -> usize {
        usize::from((self.begins_with)(rtt_us, bytes)).min(self.most)
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
                    // The dial fails in words where its connection is needed.
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
