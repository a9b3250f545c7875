//! Dials further connections to a server: at most so many logins at once as a server takes, and none after a refusal.
//!
//! ```text
//!   nobody can be asked          eight logins at once, then the next as each is over
//!   ssh may have a question      one, silently: once it is let in, so will be the others
//! ```
//! A server keeps away from hosts whose logins fail (sshd_config(5), PerSourcePenalties: 5 s for each, from 15 s on). So a server that wants a
//! password sees one login fail, and no more.

use std::fmt;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::limits::{LOGIN_OF_LONG_PATH, MAX_DIALS_AT_ONCE};
use crate::pipe::Pipe;
use crate::server::{Features, Server};

/// Reaches the server once more, and returns when the login is over.
pub type Dial = Box<dyn Fn() -> Result<Pipe, Refused> + Send + Sync>;

/// Why a login without a question does not come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The host's key is not known, and the first login may be asking about it.
    HostUnknown,
    /// The server refuses it, wants an answer, or is not reached.
    ForGood,
}

/// Starts one more session over the connection of the first login. `None`: that is not to be had.
pub type Beside = Box<dyn Fn() -> Option<Pipe> + Send + Sync>;

/// Further connections to one server.
pub struct Dials {
    dial: Dial,
    beside: Beside,
    patience: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    servers: Vec<Arc<Server>>,
    /// A further session over the connection of the first login: that connection carries more than one window.
    beside: Option<Arc<Server>>,
    is_beside_tried: bool,
    /// Threads whose login is not over.
    logging_in: usize,
    /// Threads whose connection is not there yet.
    coming: usize,
    wanted: usize,
    most: usize,
    at_once: usize,
    /// A login went without a question, or no question can be asked.
    is_silent: bool,
    /// The server refused one, or ssh had a question: nobody dials any more.
    is_refused: bool,
    /// The first login is not over, and may be asking whether the host is the right one.
    waits_for_first: bool,
    /// What the server of the first login can, once that is over.
    first: Option<Features>,
}

/// Dials ahead while the first login is under way, until it is dropped.
pub struct Ahead {
    _first_login: Option<Sender<()>>,
}

impl Dials {
    /// At most `most` further connections. With `is_silent`, ssh can ask nobody.
    pub fn new(dial: Dial, beside: Beside, most: usize, is_silent: bool, patience: Duration) -> Arc<Self> {
        let state = State { most, is_silent, at_once: MAX_DIALS_AT_ONCE, ..State::default() };
        Arc::new(Self { dial, beside, patience, state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that stand.
    pub(crate) fn servers(&self) -> Vec<Arc<Server>> {
        let state = self.lock();
        state.beside.iter().chain(&state.servers).filter(|server| !server.is_lost()).cloned().collect()
    }

    /// Whether this one shares the connection of the first login.
    pub(crate) fn is_beside_first(&self, server: &Arc<Server>) -> bool {
        self.lock().beside.as_ref().is_some_and(|beside| Arc::ptr_eq(beside, server))
    }

    /// The first login is over, and the path is known: so many connections are worth having, and so many logins at once.
    pub(crate) fn first_is_in(&self, like: Features, most: usize, at_once: usize) {
        let mut state = self.lock();
        state.most = state.most.min(most);
        state.at_once = state.at_once.min(at_once);
        (state.first, state.waits_for_first) = (Some(like), false);
        let most = state.most.min(state.servers.len());
        let too_many = state.servers.split_off(most);
        drop(state);
        // Those that were dialled ahead are closed.
        drop(too_many);
    }

    /// Dials until so many stand.
    pub fn want(self: &Arc<Self>, count: usize) {
        {
            let mut state = self.lock();
            state.wanted = state.wanted.max(count);
            if state.wants_beside() {
                let dials = Arc::clone(self);
                // Without a thread, the first session is alone on its connection.
                let _ = std::thread::Builder::new().name("sftp-beside".into()).spawn(move || dials.dial_beside());
            }
        }
        while self.lock().begins() {
            let dials = Arc::clone(self);
            if std::thread::Builder::new().name("sftp-dial".into()).spawn(move || dials.dial()).is_err() {
                // Without a thread it stays with what stands.
                let mut state = self.lock();
                state.is_refused = true;
                state.logging_in -= 1;
                state.coming -= 1;
                return;
            }
        }
    }

    /// Dials `count` connections if the first login is not over soon: the path is long then.
    pub fn ahead(self: &Arc<Self>, count: usize) -> Ahead {
        let (first_login, over) = channel::<()>();
        let dials = Arc::downgrade(self);
        let wait = move || {
            if over.recv_timeout(LOGIN_OF_LONG_PATH) == Err(RecvTimeoutError::Timeout)
                && let Some(dials) = dials.upgrade()
            {
                dials.want(count);
            }
        };
        let waits = count > 0 && std::thread::Builder::new().name("sftp-ahead".into()).spawn(wait).is_ok();
        Ahead { _first_login: waits.then_some(first_login) }
    }

    fn dial_beside(&self) {
        let like = || self.lock().first;
        let server = (self.beside)().and_then(|pipe| Server::meet_again(pipe, self.patience, like).ok());
        self.lock().beside = server;
    }

    fn dial(self: Arc<Self>) {
        let is_ahead = self.lock().first.is_none();
        let dialled = (self.dial)();
        {
            let mut state = self.lock();
            state.logging_in -= 1;
            state.is_silent |= dialled.is_ok();
            if dialled.as_ref().is_err_and(|refused| *refused == Refused::HostUnknown && is_ahead) {
                state.coming -= 1;
                state.waits_for_first = state.first.is_none();
                drop(state);
                return self.want(0);
            }
        }
        // The next login begins before this connection has been greeted.
        if dialled.is_ok() {
            self.want(0);
        }
        let server = dialled.ok().and_then(|pipe| Server::meet_again(pipe, self.patience, || self.lock().first).ok());
        let mut state = self.lock();
        state.coming -= 1;
        state.is_refused |= server.is_none();
        if state.servers.len() < state.most {
            state.servers.extend(server);
        }
    }
}

impl State {
    /// Notes that a session beside the first one is being started, if it is to be: a near path needs one window.
    fn wants_beside(&mut self) -> bool {
        let is_long = self.first.is_some() && self.at_once > 1;
        let wants = is_long && self.wanted > 0 && !self.is_beside_tried;
        self.is_beside_tried |= wants;
        wants
    }

    /// Counts one more, if it is to be dialled now.
    fn begins(&mut self) -> bool {
        let at_once = if self.is_silent { self.at_once } else { 1 };
        let wanted = self.wanted.min(self.most);
        let begins = !(self.is_refused || self.waits_for_first)
            && self.logging_in < at_once
            && self.servers.len() + self.coming < wanted;
        self.logging_in += usize::from(begins);
        self.coming += usize::from(begins);
        begins
    }
}

impl fmt::Debug for Dials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dials").field("servers", &self.lock().servers.len()).finish_non_exhaustive()
    }
}
