//! The control channel: messages are read and written by threads of their own, and nobody waits for the other direction.
//!
//! ```text
//!   Outbox -> writer of the link where this end speaks == link ==> reader -> Events     one link, or several
//!             frames: what is not confirmed                         in order, each once
//! ```
//! What is read goes to the session's [`Events`], what is to be written waits in its [`Outbox`]. The channel begins with one
//! link. Further links can be added while it lives. Each direction can move to another link at any time: the end that sends
//! writes all messages there that the peer has not confirmed, and goes on there. So the channel survives the loss of a
//! link. After the loss of the last one it waits for another as long as somebody keeps it (`reach/attach.rs`).

mod framing;
mod heard;
mod reading;
#[cfg(test)]
mod tests;
mod writing;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use haul_job::{Error, Fault};
use haul_net::{ShutdownHandle, Stream};

use framing::End;
use heard::Heard;

use crate::session::frames::{Kept, MAX_KEPT_BYTES};
use crate::session::links::{LINK_PING_EVERY, Links};
use crate::sync::lock;

/// How often either side says that it is alive, while there is one link.
pub(crate) const PING_EVERY: Duration = Duration::from_secs(1);

/// The peer hears what has arrived after so many messages, and after so many bytes of them; so it does not keep them for long.
const CONFIRM_MESSAGES: u64 = 64;

/// See [`CONFIRM_MESSAGES`].
const CONFIRM_BYTES: u64 = 128 << 10;

/// Links that may wait for the thread that takes them.
const MAX_OFFERED: usize = 4;

#[cfg(feature = "fuzzing")]
pub(crate) use framing::read_link;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use framing::read_message;

pub(crate) use crate::session::inbox::{EventSender, Events, LaneBack, LaneEnd, SessionEvent};
pub(crate) use crate::session::links::LinkId;
pub(crate) use crate::session::outbox::Outbox;

/// The near end of a control channel.
#[derive(Clone)]
pub(crate) struct Channel {
    inside: Arc<Inside>,
}

/// How a channel is, for whoever keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// There is a link, and it is heard.
    Good,
    /// Nothing has come for so long on the link where this end speaks; or somebody knows better than its silence.
    Doubtful(Duration),
    /// There is no link on which this end could speak.
    Lost(Loss),
    /// It is not needed any more.
    Over,
}

/// The last link was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    pub(crate) since: Instant,
    /// The kernel of the peer ended it: the process may be gone. Else the network did not carry it.
    pub(crate) by_peer: bool,
    /// The link was a connection between the two processes, without a process in between that can die alone, as ssh can.
    pub(crate) is_direct: bool,
    why: Option<String>,
}

/// What became of a link that was dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// The peer has said something on it.
    Stands,
    /// The peer has ended it without a word.
    Refused,
    /// Nothing has come yet.
    Silent,
}

struct Inside {
    outbox: Arc<Outbox>,
    /// Ends the first link. Who has it besides us, as a daemon has, ends the session with it.
    first: ShutdownHandle,
    heard: Heard,
    events: EventSender,
    ping_every: Duration,
    /// Held while a message is handed over: links may bring the same one.
    intake: Mutex<()>,
    /// So many messages were handed over.
    delivered: AtomicU64,
    /// So many of them the peer was told of, and the bytes of the others.
    told: AtomicU64,
    untold_bytes: AtomicU64,
    /// Lanes of this session were dialled by the peer. It can dial a link as well.
    is_dialled: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    kept: Kept,
    links: Links<Handle>,
    /// Links that wait for the thread that keeps the channel.
    offered: Vec<Stream>,
    /// A thread keeps the channel: the loss of the last link is not its end.
    is_attended: bool,
    loss: Option<Loss>,
    /// The link where this end speaks is said to be dead.
    is_doubted: bool,
    /// The session was told that nothing comes any more.
    has_ended: bool,
    is_closed: bool,
}

/// What the writer of a link needs to know.
struct Handle {
    shutdown: ShutdownHandle,
    /// The number of the next message to write there.
    next: u64,
    /// A ping is to be written first.
    is_to_greet: bool,
    is_direct: bool,
}

impl Handle {
    fn of(stream: &Stream, is_to_greet: bool) -> Self {
        Self { shutdown: stream.shutdown_handle(), next: 0, is_to_greet, is_direct: stream.tcp().is_some() }
    }
}

impl Channel {
    /// Starts the two threads on a stream; messages arrive in `events`.
    pub(crate) fn open(stream: Stream, events: EventSender, ping_every: Duration) -> io::Result<Self> {
        Self::with(stream, events, ping_every, MAX_KEPT_BYTES)
    }

    /// What the peer has not confirmed takes at most so much memory; see [`MAX_KEPT_BYTES`].
    fn with(stream: Stream, events: EventSender, ping_every: Duration, max_kept_bytes: usize) -> io::Result<Self> {
        let state = State {
            kept: Kept::new(max_kept_bytes),
            links: Links::new(Handle::of(&stream, false), Instant::now()),
            offered: Vec::new(),
            is_attended: false,
            loss: None,
            is_doubted: false,
            has_ended: false,
            is_closed: false,
        };
        let inside = Arc::new(Inside {
            outbox: Arc::default(),
            first: stream.shutdown_handle(),
            heard: Heard::new(),
            events,
            ping_every,
            intake: Mutex::default(),
            delivered: AtomicU64::new(0),
            told: AtomicU64::new(0),
            untold_bytes: AtomicU64::new(0),
            is_dialled: AtomicBool::new(false),
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let channel = Self { inside };
        channel.start(stream, LinkId::FIRST)?;
        Ok(channel)
    }

    fn start(&self, stream: Stream, id: LinkId) -> io::Result<()> {
        let (input, output) = stream.split();
        let (for_reader, for_writer) = (Arc::clone(&self.inside), Arc::clone(&self.inside));
        std::thread::Builder::new().name("control-in".into()).spawn(move || for_reader.read(id, input))?;
        std::thread::Builder::new().name("control-out".into()).spawn(move || for_writer.write(id, output)).map(drop)
    }

    pub(crate) fn outbox(&self) -> &Arc<Outbox> {
        &self.inside.outbox
    }

    /// Time since the peer's last byte on any link, as far as we listened.
    pub(crate) fn silence(&self) -> Duration {
        self.inside.heard.silence()
    }

    /// Writes what is queued, within `limit`, and ends the channel.
    pub(crate) fn close(&self, limit: Duration) {
        // A link that the network lost may come back, and what was said on it may go again. A peer that has left does not come back.
        let has_writer = || {
            let state = self.inside.lock();
            state.links.speaker().is_some() || !state.loss.as_ref().is_some_and(|loss| loss.by_peer)
        };
        self.inside.outbox.close(limit, has_writer);
        let mut state = self.inside.lock();
        state.is_closed = true;
        state.links.handles().for_each(|handle| handle.shutdown.shutdown());
        state.offered.clear();
        drop(state);
        self.inside.changed.notify_all();
    }

    /// A further link: a connection to the peer that has proved its key and has named the session. `is_proved`: the peer
    /// dialled it. Else this end speaks there only once the peer has said something.
    ///
    /// `None`: the channel has ended or needs all the links that it has.
    pub(crate) fn add_link(&self, stream: Stream, is_proved: bool) -> Option<LinkId> {
        let mut state = self.inside.lock();
        if state.has_ended || state.is_closed {
            return None;
        }
        let (id, gone) = state.links.add(Handle::of(&stream, true), is_proved, Instant::now()).ok()?;
        if let Some(gone) = gone {
            gone.shutdown.shutdown();
        }
        self.inside.find_speaker(&mut state);
        drop(state);
        self.inside.call();
        if self.start(stream, id).is_err() {
            // As if it had never been there.
            self.inside.link_ended(id, End::Gone { why: None, by_peer: false });
            return None;
        }
        Some(id)
    }

    /// Whether a link that was dialled stands; waits for it, at most for `limit`.
    pub(crate) fn proof(&self, id: LinkId, limit: Duration) -> Proof {
        let waits = |state: &mut State| state.is_kept() && state.links.stands(id) && !state.links.is_proved(id);
        let waited = self.inside.changed.wait_timeout_while(self.inside.lock(), limit, waits);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match (state.links.stands(id), state.links.is_proved(id)) {
            (true, true) => Proof::Stands,
            (true, false) => Proof::Silent,
            (false, _) => Proof::Refused,
        }
    }

    /// How many links there are.
    #[cfg_attr(not(test), expect(dead_code, reason = "for whoever brings links over several paths"))]
    pub(crate) fn links(&self) -> usize {
        self.inside.lock().links.len()
    }

    /// Where this end speaks.
    #[cfg_attr(not(test), expect(dead_code, reason = "for whoever brings links over several paths"))]
    pub(crate) fn speaks_on(&self) -> Option<LinkId> {
        self.inside.lock().links.speaker()
    }

    /// This link is known to be dead, or will be soon. If this end speaks there it moves, at once or as soon as there is
    /// another link.
    pub(crate) fn avoid(&self, id: LinkId) {
        let mut state = self.inside.lock();
        if state.links.speaker() != Some(id) {
            return;
        }
        match state.links.successor().filter(|_| state.kept.is_whole()) {
            Some(other) => self.inside.move_to(&mut state, other),
            None => state.is_doubted = true,
        }
        drop(state);
        self.inside.call();
    }

    /// From now on a thread keeps the channel: see [`Channel::attend`].
    pub(crate) fn set_attended(&self) {
        self.inside.lock().is_attended = true;
    }

    /// Waits until whoever keeps the channel has something to do, at most for `limit`. Returns the links that were offered,
    /// and how the channel is.
    pub(crate) fn attend(&self, limit: Duration) -> (Vec<Stream>, Health) {
        let state = self.inside.lock();
        let is_fine = |state: &mut State| {
            state.offered.is_empty() && state.loss.is_none() && !state.is_doubted && state.is_kept()
        };
        let waited = self.inside.changed.wait_timeout_while(state, limit, is_fine);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let offered = std::mem::take(&mut state.offered);
        if self.inside.first.is_shut_down() && !state.is_over() {
            self.inside.finish(state, Some("it was ended at this host".into()));
            return (offered, Health::Over);
        }
        if !state.is_kept() || self.inside.events.is_over() {
            return (offered, Health::Over);
        }
        let health = match &state.loss {
            Some(loss) => Health::Lost(loss.clone()),
            None => self.inside.health(&state),
        };
        (offered, health)
    }

    /// Whether a link was offered, or the channel has ended.
    pub(crate) fn has_news(&self) -> bool {
        let state = self.inside.lock();
        !state.is_kept() || !state.offered.is_empty()
    }

    /// Waits for `pause`, less if the channel ends or a link is offered meanwhile.
    pub(crate) fn pause(&self, pause: Duration) {
        let waits = |state: &mut State| state.is_kept() && state.offered.is_empty();
        drop(self.inside.changed.wait_timeout_while(self.inside.lock(), pause, waits));
    }

    /// The peer dials a further link; whoever keeps the channel takes it. False: nobody does.
    pub(crate) fn offer(&self, stream: Stream) -> bool {
        let mut state = self.inside.lock();
        if !state.is_attended || state.is_over() || state.offered.len() >= MAX_OFFERED {
            return false;
        }
        state.offered.push(stream);
        drop(state);
        self.inside.changed.notify_all();
        true
    }

    /// The peer can dial this host.
    pub(crate) fn set_dialled(&self) {
        self.inside.is_dialled.store(true, Ordering::Relaxed);
    }

    /// Whether it has.
    pub(crate) fn is_dialled(&self) -> bool {
        self.inside.is_dialled.load(Ordering::Relaxed)
    }

    /// Whether a lane of the session stands, as far as the kernel knows.
    pub(crate) fn has_live_lane(&self) -> bool {
        self.inside.events.has_live_lane()
    }

    /// Nobody waits for another link any more: the session ends as it does when its only link is lost.
    pub(crate) fn give_up(&self) {
        let mut state = self.inside.lock();
        state.is_attended = false;
        match state.loss.take() {
            Some(loss) => self.inside.finish(state, loss.why),
            None => self.inside.changed.notify_all(),
        }
    }
}

impl State {
    fn is_over(&self) -> bool {
        self.has_ended || self.is_closed
    }

    /// It goes on, and a thread keeps it.
    fn is_kept(&self) -> bool {
        self.is_attended && !self.is_over()
    }
}

impl Inside {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Threads that wait look at the links again.
    fn call(&self) {
        self.outbox.call();
        self.changed.notify_all();
    }

    fn ping_every(&self, state: &State) -> Duration {
        if state.links.len() > 1 { LINK_PING_EVERY.min(self.ping_every) } else { self.ping_every }
    }

    fn health(&self, state: &State) -> Health {
        if !state.kept.is_whole() {
            // It has to do with the link that it has.
            return Health::Good;
        }
        match state.links.speaker_silence(Instant::now()).filter(|_| !self.heard.waits()) {
            Some(silence) if state.is_doubted || silence > self.ping_every * SUSPICIOUS_PINGS => {
                Health::Doubtful(silence)
            }
            None if state.links.speaker().is_none() => Health::Doubtful(Duration::ZERO),
            _ => Health::Good,
        }
    }

    /// From now on this end speaks on this link. Afterwards [`Inside::call`].
    fn move_to(&self, state: &mut State, id: LinkId) {
        state.links.move_to(id);
        let oldest = state.kept.oldest();
        if let Some(handle) = state.links.handle(id) {
            (handle.next, handle.is_to_greet) = (oldest, true);
        }
        (state.loss, state.is_doubted) = (None, false);
    }

    /// Where this end speaks nowhere, or on a link that is said to be dead, it moves to the best link that there is.
    fn find_speaker(&self, state: &mut State) {
        if (state.is_doubted || state.links.speaker().is_none())
            && state.kept.is_whole()
            && let Some(other) = state.links.successor()
        {
            self.move_to(state, other);
        }
    }

    /// Nothing comes any more. What is queued may still be written.
    fn finish(&self, mut state: MutexGuard<'_, State>, why: Option<String>) {
        if std::mem::replace(&mut state.has_ended, true) {
            return;
        }
        state.loss = None;
        let is_mute = state.links.speaker().is_none();
        drop(state);
        if is_mute {
            self.outbox.written_out();
        }
        self.call();
        // Nor is it silent from here on: a loop that had long to do has to hear its last words, and how it ended.
        self.heard.touch();
        self.heard.begin_wait();
        // A session that ended no longer listens; that is no error.
        let _ = self.events.send(SessionEvent::ControlEnded(why));
    }
}

/// A link is doubtful when so many pings in a row are missing: one may be late.
const SUSPICIOUS_PINGS: u32 = 2;

/// An error of the session from what the control channel said at its end.
pub(crate) fn ended(why: Option<String>) -> Error {
    match why {
        None => Error::new(Fault::Network, "the far side ended the session early"),
        Some(why) => Error::new(Fault::Network, "the control channel failed").because(why),
    }
    .try_this("run the same command again: what is verified is not sent again")
}
