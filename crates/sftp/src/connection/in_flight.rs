//! The requests of a connection that have no answer yet. Their number and their bytes have a bound.

use std::collections::HashMap;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::codec::Reply;

/// Takes the answer to a request, on the thread that reads the connection. It must not wait.
pub(crate) type Recipient = Box<dyn FnOnce(io::Result<Reply>) + Send>;

/// What a request needs until it is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// Bytes of the request, or of the awaited answer.
    pub bytes: usize,
    /// A longer answer breaks the protocol.
    pub longest_reply_bytes: usize,
    /// The server may be silent for so long over it.
    pub patience: Duration,
    /// The request waits until there is room for it.
    pub waits: bool,
}

pub(crate) struct InFlight {
    state: Mutex<State>,
    room: Condvar,
    most_requests: usize,
    most_bytes: usize,
}

struct State {
    pending: HashMap<u32, Pending>,
    next_id: u32,
    bytes: usize,
    /// Why there are no more answers.
    lost: Option<String>,
    /// The server's last sign of life, or the time when it got work.
    heard_at: Instant,
}

struct Pending {
    recipient: Recipient,
    terms: Terms,
}

impl InFlight {
    pub(crate) fn new(most_requests: usize, most_bytes: usize) -> Self {
        let (pending, heard_at) = (HashMap::new(), Instant::now());
        let state = State { pending, next_id: 0, bytes: 0, lost: None, heard_at };
        Self { state: Mutex::new(state), room: Condvar::new(), most_requests, most_bytes }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a request its number. Waits for room, if its terms say so. A single request always has room.
    pub(crate) fn begin(&self, terms: Terms, recipient: Recipient) -> io::Result<u32> {
        let is_full = |state: &mut State| {
            let is_over = state.pending.len() >= self.most_requests || state.bytes + terms.bytes > self.most_bytes;
            terms.waits && state.lost.is_none() && is_over && !state.pending.is_empty()
        };
        let mut state = self.room.wait_while(self.lock(), is_full).unwrap_or_else(PoisonError::into_inner);
        if let Some(why) = &state.lost {
            return Err(lost(why));
        }
        if state.pending.is_empty() {
            state.heard_at = Instant::now();
        }
        let mut id = state.next_id;
        while state.pending.contains_key(&id) {
            id = id.wrapping_add(1);
        }
        state.next_id = id.wrapping_add(1);
        state.bytes += terms.bytes;
        state.pending.insert(id, Pending { recipient, terms });
        Ok(id)
    }

    /// The longest answer that this request may get; `None`: nobody asked with this number.
    pub(crate) fn longest_reply_bytes(&self, id: u32) -> Option<usize> {
        self.lock().pending.get(&id).map(|pending| pending.terms.longest_reply_bytes)
    }

    pub(crate) fn heard(&self) {
        self.lock().heard_at = Instant::now();
    }

    /// Hands the answer over; false: nobody asked with this number.
    pub(crate) fn answer(&self, id: u32, reply: Reply) -> bool {
        let mut state = self.lock();
        let Some(Pending { recipient, terms }) = state.pending.remove(&id) else { return false };
        state.bytes -= terms.bytes;
        state.heard_at = Instant::now();
        drop(state);
        self.room.notify_all();
        recipient(Ok(reply));
        true
    }

    /// Returns how long the server has been silent, if that is longer than all that it was asked for may take.
    pub(crate) fn silent_for(&self) -> Option<Duration> {
        let state = self.lock();
        let patience = state.pending.values().map(|pending| pending.terms.patience).max()?;
        let silent = state.heard_at.elapsed();
        (silent > patience).then_some(silent)
    }

    /// Fails all requests, now and later. True for the first reason, which stays.
    pub(crate) fn fail(&self, why: String) -> bool {
        let mut state = self.lock();
        let is_first = state.lost.is_none();
        let why = state.lost.get_or_insert(why).clone();
        state.bytes = 0;
        let pending = std::mem::take(&mut state.pending);
        drop(state);
        self.room.notify_all();
        for (_, Pending { recipient, .. }) in pending {
            recipient(Err(lost(&why)));
        }
        is_first
    }

    /// Bytes of requests and awaited answers.
    pub(crate) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lock().lost.is_some()
    }
}

fn lost(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, format!("the connection to the server is lost: {why}"))
}
