//! The control connections to a server. Each serves one thread at a time: for a question, or for a transfer with its data connection.
//!
//! ```text
//! take -> one that rests | one that is being dialled ahead | a new one, if the server allows it | wait for one
//! Held -> dropped: rests, or is closed
//! park -> a transfer that stands still until somebody reads on; the oldest one gives way
//! ```

use std::fmt;
use std::io::{self, ErrorKind};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use crate::account::{Account, is_busy};
use crate::block_habits::Grid;
use crate::control::Control;
use crate::limits::{
    DIALLED_AHEAD, IDLE_KEPT, MAX_TRIES, ONE_MORE_AFTER, READING_RESTS, SPARE, SPREAD_FROM_US, TURN_PATIENCE,
};

/// Control connections to one server, with transfers `R` that may stand still.
pub(crate) struct Pool<R> {
    pub(crate) account: Account,
    state: Mutex<State<R>>,
    changed: Condvar,
    spacing: Mutex<Option<Instant>>,
}

struct State<R> {
    resting: Vec<(Control, Instant)>,
    /// All control connections: those that rest, those in use, those that are being made.
    open: usize,
    transfers: usize,
    /// As many transfers as are wanted at once.
    wanted: usize,
    /// As many connections as the server allows, once it has refused one.
    allowed: Option<usize>,
    refusals: u32,
    /// When the server last refused one, or one more was tried.
    changed: Instant,
    /// When a transfer last brought something.
    moved: Instant,
    parked: Vec<Parked<R>>,
    /// Connections that are on their way, and threads that wait for one of them.
    dialling: usize,
    waiting: usize,
    /// Connections are dialled ahead for a file of so many bytes as soon as the path is known.
    foreseen_bytes: u64,
}

struct Parked<R> {
    file: u64,
    at: u64,
    reader: ThreadId,
    since: Instant,
    transfer: R,
}

/// What a connection is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Question,
    Transfer,
}

/// A control connection, held by one thread.
pub(crate) struct Held<R: Send + 'static> {
    control: Option<Control>,
    purpose: Purpose,
    /// It has rested before: the server may have closed it meanwhile.
    pub(crate) has_rested: bool,
    pool: Arc<Pool<R>>,
}

impl<R: Send + 'static> Deref for Held<R> {
    type Target = Control;

    fn deref(&self) -> &Control {
        self.control.as_ref().expect("it is there until it is dropped")
    }
}

impl<R: Send + 'static> DerefMut for Held<R> {
    fn deref_mut(&mut self) -> &mut Control {
        self.control.as_mut().expect("it is there until it is dropped")
    }
}

impl<R: Send + 'static> Held<R> {
    /// A round trip is so long that what is asked ahead saves time.
    pub(crate) fn is_far(&self) -> bool {
        self.pool.account.is_far()
    }
}

impl<R: Send + 'static> fmt::Debug for Held<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.control.fmt(f)
    }
}

impl<R: Send + 'static> Drop for Held<R> {
    fn drop(&mut self) {
        let control = self.control.take().filter(|control| !control.is_broken());
        let mut state = self.pool.lock();
        if self.purpose == Purpose::Transfer {
            state.transfers -= 1;
            state.moved = Instant::now();
        }
        match control {
            Some(control) if state.allowed.is_none_or(|allowed| state.open <= allowed) => {
                state.resting.push((control, Instant::now()));
            }
            gone => {
                state.open -= 1;
                drop(state);
                if let Some(control) = gone {
                    control.quit();
                }
            }
        }
        self.pool.changed.notify_all();
    }
}

impl<R> fmt::Debug for Pool<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        write!(f, "{} open, {} rest", state.open, state.resting.len())
    }
}

impl<R> Pool<R> {
    fn lock(&self) -> MutexGuard<'_, State<R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: Send + 'static> Pool<R> {
    pub(crate) fn new(account: Account) -> Arc<Pool<R>> {
        let now = Instant::now();
        let wanted = account.settings.connections.max(1);
        Arc::new(Pool {
            account,
            state: Mutex::new(State {
                resting: Vec::new(),
                open: 0,
                transfers: 0,
                wanted,
                allowed: None,
                refusals: 0,
                changed: now,
                moved: now,
                parked: Vec::new(),
                dialling: 0,
                waiting: 0,
                foreseen_bytes: 0,
            }),
            changed: Condvar::new(),
            spacing: Mutex::new(None),
        })
    }

    /// Wants so many transfers at once, from now on.
    pub(crate) fn want(&self, count: usize) {
        self.lock().wanted = count.max(1);
        self.changed.notify_all();
    }

    /// How many transfers the server allows, as far as is known, and how often it refused a connection.
    pub(crate) fn allowed(&self) -> (usize, u32) {
        let state = self.lock();
        (state.allowed.unwrap_or(state.wanted).min(state.wanted), state.refusals)
    }

    /// The server allows no more connections than there are.
    pub(crate) fn is_limited(&self) -> bool {
        let state = self.lock();
        state.allowed.is_some_and(|allowed| state.open >= allowed)
    }

    /// Waits for so long.
    pub(crate) fn pause(&self, length: Duration) {
        if length > Duration::ZERO {
            let _ = self.changed.wait_timeout_while(self.lock(), length, |_| true);
        }
    }

    /// The pause before a further try.
    pub(crate) fn backoff(&self, tries: u32) -> Duration {
        self.account.settings.first_pause * 2_u32.saturating_pow(tries.saturating_sub(1).min(MAX_TRIES))
    }

    /// How many control connections are open.
    pub(crate) fn open(&self) -> usize {
        self.lock().open
    }

    /// Says that a file is about to be read which may have so many bytes: further connections are dialled while the first one asks what
    /// the file is like.
    pub(crate) fn foresees(&self, bytes: u64) {
        self.lock().foreseen_bytes = bytes;
    }

    /// How long to wait with a transfer, so that those of all connections begin spread over a round trip.
    ///
    /// Bursts that keep their distance grow to the rate of the path together. At a web server over 1 Gbit/s x 228 ms, 500 MB took 7.4 s with
    /// it, and 10.2 s without.
    pub(crate) fn turn(&self) -> Duration {
        let rtt_us = self.account.rtt_us();
        if rtt_us < SPREAD_FROM_US {
            return Duration::ZERO;
        }
        let count = u32::try_from(self.lock().wanted).unwrap_or(u32::MAX).max(1);
        let apart = Duration::from_micros(rtt_us.into()) / count;
        let mut next = self.spacing.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let turn = next.map_or(now, |next| next.max(now));
        *next = Some(turn + apart);
        turn - now
    }

    /// A control connection. The first one is waited for if the server is busy; later ones are waited for until another thread gives one back.
    pub(crate) fn take(self: &Arc<Self>, purpose: Purpose) -> io::Result<Held<R>> {
        loop {
            if let Some(held) = self.take_or(purpose, true)? {
                return Ok(held);
            }
        }
    }

    /// A control connection for a transfer that may last. `None`: all that the server allows are in use, but for one that is left for
    /// questions.
    pub(crate) fn try_take(self: &Arc<Self>) -> io::Result<Option<Held<R>>> {
        {
            let state = self.lock();
            if state.allowed.is_some_and(|allowed| state.transfers > 0 && state.transfers + 1 >= allowed) {
                return Ok(None);
            }
        }
        self.take_or(Purpose::Transfer, false)
    }

    /// `None`: the caller did not want to wait.
    fn take_or(self: &Arc<Self>, purpose: Purpose, waits: bool) -> io::Result<Option<Held<R>>> {
        let mut tries = 0;
        let mut state = self.lock();
        loop {
            state.close_old();
            let may_transfer = purpose == Purpose::Question || state.transfers < state.wanted;
            if may_transfer && let Some(control) = state.take_resting(purpose) {
                state.transfers += usize::from(purpose == Purpose::Transfer);
                drop(state);
                let mut held = Held { control: Some(control), purpose, has_rested: true, pool: Arc::clone(self) };
                if held.is_open() && held.settle_transfers().is_ok() && self.account.welcomes(&mut held).is_ok() {
                    return Ok(Some(held));
                }
                held.control = None;
                drop(held);
                state = self.lock();
            } else if may_transfer && state.dialling > state.waiting {
                state.waiting += 1;
                // A dial has its deadline.
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.waiting -= 1;
            } else if may_transfer && state.allowed.is_none_or(|allowed| state.open < allowed) {
                state.open += 1;
                state.transfers += usize::from(purpose == Purpose::Transfer);
                drop(state);
                let dialled = self.account.dial(&|| self.dial_ahead());
                match dialled {
                    Ok(control) => {
                        let pool = Arc::clone(self);
                        return Ok(Some(Held { control: Some(control), purpose, has_rested: false, pool }));
                    }
                    Err(error) => {
                        state = self.lock();
                        state.open -= 1;
                        state.transfers -= usize::from(purpose == Purpose::Transfer);
                        self.changed.notify_all();
                        if !is_busy(&error) {
                            return Err(error);
                        }
                        if state.open > 0 {
                            state.refused();
                            continue;
                        }
                        tries += 1;
                        if tries >= MAX_TRIES {
                            return Err(error);
                        }
                        drop(state);
                        self.pause(self.backoff(tries));
                        state = self.lock();
                    }
                }
            } else if waits {
                state = self.wait(state)?;
            } else {
                return Ok(None);
            }
        }
    }

    /// Waits until a connection may be free. A transfer that nobody reads gives way.
    fn wait<'a>(&'a self, mut state: MutexGuard<'a, State<R>>) -> io::Result<MutexGuard<'a, State<R>>> {
        let oldest = (0..state.parked.len()).min_by_key(|at| state.parked[*at].since);
        let rests = oldest.map(|at| state.parked[at].since.elapsed());
        if let Some(at) = oldest.filter(|_| rests >= Some(READING_RESTS)) {
            let dropped = state.parked.swap_remove(at);
            drop(state);
            drop(dropped);
            return Ok(self.lock());
        }
        if state.moved.elapsed() >= TURN_PATIENCE && state.transfers > 0 {
            return Err(io::Error::new(
                ErrorKind::TimedOut,
                "the server allows no further connection, and the others stand still",
            ));
        }
        let patience = READING_RESTS.saturating_sub(rests.unwrap_or_default());
        Ok(self.changed.wait_timeout(state, patience).unwrap_or_else(PoisonError::into_inner).0)
    }

    /// Dials for the file that is foreseen.
    pub(crate) fn dial_ahead(self: &Arc<Self>) {
        let mut state = self.lock();
        let foreseen_bytes = std::mem::take(&mut state.foreseen_bytes);
        if foreseen_bytes == 0 {
            return;
        }
        let begins_with = self.account.settings.begins_with;
        let uploads_blocks = self.account.settings.grid.as_ref().is_some_and(|grid| grid.foreseen_bytes > 0);
        let most = if uploads_blocks { state.wanted } else { DIALLED_AHEAD.min(state.wanted) };
        let wanted = usize::from(begins_with(self.account.rtt_us(), foreseen_bytes)).min(most);
        let spare = if wanted > 1 && wanted <= DIALLED_AHEAD { SPARE } else { 0 };
        let further = (wanted + spare).saturating_sub(state.open);
        state.dialling += further;
        state.open += further;
        drop(state);
        for _ in 0..further {
            let pool = Arc::clone(self);
            let dial = move || {
                let mut dialled = pool.account.dial_ahead();
                if let (Ok(control), Some(Grid { foreseen_bytes: 1.., .. })) =
                    (&mut dialled, &pool.account.settings.grid)
                {
                    control.prepare_store();
                }
                pool.dialled(dialled);
            };
            if std::thread::Builder::new().name("ftp-dial".into()).spawn(dial).is_err() {
                self.dialled(Err(ErrorKind::WouldBlock.into()));
            }
        }
    }

    /// A connection that was dialled ahead is there, or cannot be had.
    fn dialled(&self, dialled: io::Result<Control>) {
        let mut state = self.lock();
        state.dialling -= 1;
        match dialled {
            Ok(control) => state.resting.push((control, Instant::now())),
            Err(error) => {
                state.open -= 1;
                if is_busy(&error) && state.open > 0 {
                    state.refused();
                }
                // Another error shows again, in words, where the connection is needed.
            }
        }
        self.changed.notify_all();
    }

    /// A transfer has brought something.
    pub(crate) fn moved(&self) {
        self.lock().moved = Instant::now();
    }

    /// No transfer has brought anything for so long that whoever waits for a connection gives up.
    pub(crate) fn stands_still(&self) -> bool {
        self.lock().moved.elapsed() >= TURN_PATIENCE
    }

    /// A connection is there, or on its way, that nobody uses.
    pub(crate) fn has_spare(&self) -> bool {
        let state = self.lock();
        !state.resting.is_empty() || state.dialling > state.waiting
    }

    /// Keeps a transfer that stands at this place of a file.
    pub(crate) fn park(&self, file: u64, at: u64, transfer: R) {
        let now = Instant::now();
        let mut state = self.lock();
        state.moved = now;
        if let Some(allowed) = state.allowed.filter(|allowed| *allowed < state.wanted)
            && state.changed.elapsed() >= ONE_MORE_AFTER
        {
            state.allowed = Some(allowed + 1);
            state.changed = now;
        }
        state.parked.push(Parked { file, at, reader: std::thread::current().id(), since: now, transfer });
        self.changed.notify_all();
    }

    /// The transfer that stands at this place.
    pub(crate) fn resume(&self, file: u64, at: u64) -> Option<R> {
        let mut state = self.lock();
        let found = state.parked.iter().position(|parked| parked.file == file && parked.at == at)?;
        Some(state.parked.swap_remove(found).transfer)
    }

    /// Gives the transfers of this thread up, which reads elsewhere from now on.
    pub(crate) fn leave(&self) {
        let reader = std::thread::current().id();
        self.drop_all(|parked| parked.reader == reader);
    }

    /// A file is closed.
    pub(crate) fn close(&self, file: u64) {
        self.drop_all(|parked| parked.file == file);
    }

    fn drop_all(&self, is_meant: impl Fn(&Parked<R>) -> bool) {
        let dropped: Vec<Parked<R>> = self.lock().parked.extract_if(.., |parked| is_meant(parked)).collect();
        // Each takes the lock, to give its connection back.
        drop(dropped);
    }
}

impl<R> State<R> {
    /// The server refused one more than are open.
    fn refused(&mut self) {
        self.allowed = Some(self.open.max(1));
        self.changed = Instant::now();
        self.refusals = self.refusals.saturating_add(1);
    }

    /// The one that has rested least: for a transfer one with a data connection, for a question one without. One whose transfer was given up
    /// answers a round trip later.
    fn take_resting(&mut self, purpose: Purpose) -> Option<Control> {
        let is_free = |(control, _): &(Control, Instant)| !control.owes_end();
        let suits = |(control, _): &(Control, Instant)| control.has_kept() == (purpose == Purpose::Transfer);
        let at = self.resting.iter().rposition(|one| is_free(one) && suits(one));
        let at = at.or_else(|| self.resting.iter().rposition(is_free));
        let at = at.or_else(|| self.resting.len().checked_sub(1))?;
        Some(self.resting.remove(at).0)
    }

    fn close_old(&mut self) {
        // Without a word: nobody waits here for a server that does not read.
        let old = self.resting.extract_if(.., |(_, since)| since.elapsed() >= IDLE_KEPT).count();
        self.open -= old;
    }
}
