//! The bodies read at once. Each waits at its place of a file for the next read there.
//!
//! A thread that reads elsewhere drops its body with its connection.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use crate::http_client::connection::Body;
use crate::http_client::url::Origin;
use crate::web::limits::{BODY_RESTS, ONE_MORE_AFTER, STARVES_AFTER_QUICKEST, TURN_PATIENCE};

#[derive(Debug)]
pub(crate) struct Bodies {
    state: Mutex<State>,
    freed: Condvar,
    compares_finer_times: AtomicBool,
}

struct State {
    waiting: Vec<Waiting>,
    open: usize,
    /// The server's limit, at most `wanted`.
    allowed: usize,
    wanted: usize,
    refusals: u32,
    /// The last refusal, or the last body allowed again.
    changed: Instant,
    moved: Instant,
    /// The shortest wait for an answer.
    quickest: Option<Duration>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} open", self.open, self.allowed)
    }
}

struct Waiting {
    file: u64,
    reader: ThreadId,
    since: Instant,
    reading: Reading,
}

/// A body at byte `at` of its file, up to `end`.
pub(crate) struct Reading {
    pub(crate) body: Body,
    pub(crate) origin: Origin,
    pub(crate) at: u64,
    pub(crate) end: u64,
    pub(crate) _place: Place,
}

pub(crate) struct Place(Arc<Bodies>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.lock().open -= 1;
        self.0.freed.notify_one();
    }
}

impl Bodies {
    pub(crate) fn new(allowed: usize) -> Arc<Bodies> {
        let (wanted, now) = (allowed.max(1), Instant::now());
        let state = State {
            waiting: Vec::new(),
            open: 0,
            allowed: wanted,
            wanted,
            refusals: 0,
            changed: now,
            moved: now,
            quickest: None,
        };
        Arc::new(Bodies {
            state: Mutex::new(state),
            freed: Condvar::new(),
            compares_finer_times: AtomicBool::new(false),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn want(&self, count: usize) {
        let mut state = self.lock();
        let count = count.max(1);
        // Refused bodies are tried again one by one.
        if state.allowed == state.wanted || state.allowed > count {
            state.allowed = count;
        }
        state.wanted = count;
        self.freed.notify_all();
    }

    /// The known limit of the server, and the number of its refusals.
    pub(crate) fn allowed(&self) -> (usize, u32) {
        let state = self.lock();
        (state.allowed, state.refusals)
    }

    /// Whether the server has refused one more.
    pub(crate) fn is_limited(&self) -> bool {
        let state = self.lock();
        state.refusals > 0 || state.allowed < state.wanted
    }

    pub(crate) fn resume(&self, file: u64, at: u64) -> Option<Reading> {
        let mut state = self.lock();
        let found = state.waiting.iter().position(|waiting| waiting.file == file && waiting.reading.at == at)?;
        Some(state.waiting.swap_remove(found).reading)
    }

    pub(crate) fn park(&self, file: u64, reading: Reading) {
        let (reader, since) = (std::thread::current().id(), Instant::now());
        let mut state = self.lock();
        state.moved = since;
        if state.allowed < state.wanted && state.changed.elapsed() >= ONE_MORE_AFTER {
            state.allowed += 1;
            state.changed = since;
        }
        state.waiting.push(Waiting { file, reader, since, reading });
        self.freed.notify_one();
    }

    /// Drops this thread's bodies, because it reads elsewhere.
    pub(crate) fn leave(&self) {
        let reader = std::thread::current().id();
        self.drop_all(|waiting| waiting.reader == reader);
    }

    pub(crate) fn close(&self, file: u64) {
        self.drop_all(|waiting| waiting.file == file);
    }

    fn drop_all(&self, is_meant: impl Fn(&Waiting) -> bool) {
        let dropped: Vec<Waiting> = self.lock().waiting.extract_if(.., |waiting| is_meant(waiting)).collect();
        // Each takes the lock to give its place back.
        drop(dropped);
    }

    /// Waits for a place. A body that nobody reads gives way.
    pub(crate) fn place(self: &Arc<Self>) -> io::Result<Place> {
        let mut state = self.lock();
        loop {
            if state.open < state.allowed {
                state.open += 1;
                return Ok(Place(Arc::clone(self)));
            }
            let oldest = (0..state.waiting.len()).min_by_key(|at| state.waiting[*at].since);
            let rests = oldest.map(|at| state.waiting[at].since.elapsed());
            if let Some(at) = oldest.filter(|_| rests >= Some(BODY_RESTS)) {
                let dropped = state.waiting.swap_remove(at);
                drop(state);
                drop(dropped);
                state = self.lock();
                continue;
            }
            if state.moved.elapsed() >= TURN_PATIENCE {
                return Err(io::Error::new(
                    ErrorKind::TimedOut,
                    "the server allows no further connection, and the others stand still",
                ));
            }
            let patience = BODY_RESTS.saturating_sub(rests.unwrap_or_default());
            state = self.freed.wait_timeout(state, patience).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether the server refuses `If-Unmodified-Since` with its own time: versitygw compares parts of a second of files that
    /// others wrote, which have no tag either.
    pub(crate) fn compares_finer_times(&self) -> bool {
        self.compares_finer_times.load(Ordering::Relaxed)
    }

    pub(crate) fn found_finer_times(&self) {
        self.compares_finer_times.store(true, Ordering::Relaxed);
    }

    /// Whether there are bodies beside the one to be opened.
    pub(crate) fn has_others(&self) -> bool {
        self.lock().open > 1
    }

    /// Notes how long an answer took.
    pub(crate) fn answered_after(&self, took: Duration) {
        let mut state = self.lock();
        state.quickest = Some(state.quickest.map_or(took, |quickest| quickest.min(took)));
    }

    /// Whether a request waits much longer than others did, while their data comes: a server with few workers lets it queue
    /// (Apache's `MaxRequestWorkers`).
    pub(crate) fn starves(&self, asked: Instant, least: Duration) -> bool {
        let state = self.lock();
        let patience = least.max(STARVES_AFTER_QUICKEST * state.quickest.unwrap_or_default());
        asked.elapsed() >= patience && state.moved > asked
    }

    /// When a body brought something last.
    pub(crate) fn moved(&self) -> Instant {
        self.lock().moved
    }

    /// Lowers the limit after a refusal.
    pub(crate) fn too_many(&self) {
        let mut state = self.lock();
        state.allowed = state.allowed.min(state.open.saturating_sub(1)).max(1);
        state.changed = Instant::now();
        state.refusals = state.refusals.saturating_add(1);
    }
}
