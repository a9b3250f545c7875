//! Runs the control channel: its own threads read and write messages, and neither direction waits for the other.
//!
//! ```text
//!   Outbox -> writer of the link where this end speaks == link ==> reader -> Events     one link, or several
//!             frames: what is not confirmed                         in order, each once
//! ```
//! Each direction can move to another link at any time: its sender writes all unconfirmed messages there, and goes on there. So
//! the channel survives the loss of a link. After the last one it waits for another as long as a thread keeps it
//! (`reach/attach.rs`).

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
use haul_net::{Probe, ShutdownHandle, Stream};

use framing::End;
use heard::Heard;

use crate::frames::{Kept, MAX_KEPT_BYTES};
use crate::links::Links;
use crate::way_times::WayTimes;
use haul_engine::path::OneWay;
use haul_engine::thin_acks::WordsSent;
use haul_kept::sync::lock;

/// The longest time between two words of a live side.
pub const PING_EVERY: Duration = Duration::from_secs(1);
/// Three pings are missing before a link is left, and a queue on one way is known within a second.
const PINGS_MORE_OFTEN: u32 = 4;

/// Bounds the messages that the peer must keep.
const CONFIRM_MESSAGES: u64 = 64;

const CONFIRM_BYTES: u64 = 128 << 10;

const MAX_OFFERED: usize = 4;

#[cfg(feature = "testing")]
pub use framing::read_link;
#[cfg(any(test, feature = "testing"))]
pub use framing::read_message;

pub use crate::inbox::{EventSender, Events, LaneBack, LaneEnd, LaneEvent, SessionEvent};
pub use crate::links::LinkId;
pub use crate::outbox::Outbox;

/// The near end of a control channel.
#[derive(Clone)]
pub struct Channel {
    inside: Arc<Inside>,
}

/// The state of a channel, for its keeping thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// A link works.
    Good,
    /// The speaking link has been silent, or is dead.
    Doubtful(Duration),
    /// No link is left.
    Lost(Loss),
    /// The channel is not needed.
    Over,
}

/// The loss of the last link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The moment.
    pub since: Instant,
    /// Whether the peer's kernel ended it, not the network.
    pub by_peer: bool,
    /// Whether no process in between, such as ssh, could die alone.
    pub is_direct: bool,
    why: Option<String>,
}

/// The state of a dialled link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The peer has spoken on it.
    Stands,
    /// The peer ended it without a message.
    Refused,
    /// The peer is silent on it.
    Silent,
}

struct Inside {
    outbox: Arc<Outbox>,
    /// A daemon also holds this link, and ends the session with it.
    first: ShutdownHandle,
    heard: Heard,
    events: EventSender,
    ping_every: Duration,
    way_times: WayTimes,
    /// Orders a message that several links bring.
    intake: Mutex<()>,
    delivered: AtomicU64,
    /// The confirmed messages, and the bytes of the others.
    told: AtomicU64,
    untold_bytes: AtomicU64,
    is_dialled: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    kept: Kept,
    links: Links<Handle>,
    readers: u32,
    offered: Vec<Stream>,
    is_attended: bool,
    loss: Option<Loss>,
    is_doubted: bool,
    has_ended: bool,
    is_closed: bool,
    peer_leaves_first: bool,
}

struct Handle {
    shutdown: ShutdownHandle,
    probe: Probe,
    next: u64,
    is_to_greet: bool,
    is_direct: bool,
}

impl Handle {
    fn of(stream: &Stream, is_to_greet: bool) -> Self {
        let (shutdown, probe) = (stream.shutdown_handle(), stream.probe());
        Self { shutdown, probe, next: 0, is_to_greet, is_direct: stream.tcp().is_some() }
    }
}

impl Channel {
    /// Starts both threads on a stream; messages arrive in `events`.
    pub fn open(stream: Stream, events: EventSender, ping_every: Duration) -> io::Result<Self> {
        Self::with(stream, events, ping_every, MAX_KEPT_BYTES)
    }

    fn with(stream: Stream, events: EventSender, ping_every: Duration, max_kept_bytes: usize) -> io::Result<Self> {
        let state = State {
            kept: Kept::new(max_kept_bytes),
            links: Links::new(Handle::of(&stream, false), Instant::now()),
            readers: 0,
            offered: Vec::new(),
            is_attended: false,
            loss: None,
            is_doubted: false,
            has_ended: false,
            is_closed: false,
            peer_leaves_first: false,
        };
        let inside = Arc::new(Inside {
            outbox: Arc::default(),
            first: stream.shutdown_handle(),
            heard: Heard::new(),
            events,
            ping_every,
            way_times: WayTimes::new(Instant::now()),
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
        self.inside.lock().readers += 1;
        let reader = std::thread::Builder::new().name("control-in".into());
        reader.spawn(move || for_reader.read(id, input)).inspect_err(|_| self.inside.lock().readers -= 1)?;
        std::thread::Builder::new().name("control-out".into()).spawn(move || for_writer.write(id, output)).map(drop)
    }

    /// The time of the peer's last ping.
    pub fn one_way(&self) -> Option<OneWay> {
        self.inside.way_times.heard()
    }

    /// The queue to the peer.
    pub fn outbox(&self) -> &Arc<Outbox> {
        &self.inside.outbox
    }

    /// The time since the peer's last byte on any link, as far as we listened.
    pub fn silence(&self) -> Duration {
        self.inside.heard.silence()
    }

    /// Whether the peer was just heard where this end speaks, so last words likely arrive.
    pub fn is_well(&self) -> bool {
        let state = self.inside.lock();
        let silence = state.links.speaker_silence(Instant::now());
        !state.is_over() && !state.is_doubted && silence.is_some_and(|silence| silence <= 2 * self.inside.ping_often())
    }

    /// What the kernel counts of the words on the link where this end speaks; `None`: no TCP.
    pub fn words_sent(&self) -> Option<WordsSent> {
        let mut state = self.inside.lock();
        let speaker = state.links.speaker()?;
        let info = state.links.handle(speaker)?.probe.tcp_info()?;
        let (bytes, again_bytes) = (info.bytes_sent?, info.bytes_retrans?);
        Some(WordsSent { bytes, again_bytes, again: info.total_retrans })
    }

    /// Lets the peer close first: the kernel of an end that has shut down, and is still spoken to, resets the connection and
    /// throws away what it has not sent (RFC 9293, 3.10.7.4).
    pub fn let_peer_leave_first(&self) {
        self.inside.lock().peer_leaves_first = true;
    }

    /// Writes the queue, and ends the channel. Takes at most `limit`, and as long again for a peer that [leaves
    /// first](Channel::let_peer_leave_first).
    pub fn close(&self, limit: Duration) {
        // A link that the network lost may come back. A peer that left does not.
        let has_writer = || {
            let state = self.inside.lock();
            state.links.speaker().is_some() || !state.loss.as_ref().is_some_and(|loss| loss.by_peer)
        };
        self.inside.outbox.close(limit, has_writer);
        let mut state = self.inside.lock();
        state.is_closed = true;
        state.offered.clear();
        self.inside.changed.notify_all();
        if state.peer_leaves_first {
            state.links.handles().for_each(|handle| handle.shutdown.finish_write());
            let stays = |state: &mut State| state.readers > 0;
            let waited = self.inside.changed.wait_timeout_while(state, limit, stays);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        state.links.handles().for_each(|handle| handle.shutdown.shutdown());
    }

    /// Adds a link to a peer that proved its key. `is_proved`: the peer dialled it; otherwise the peer speaks first there.
    ///
    /// `None`: the channel has ended or needs all its links.
    pub fn add_link(&self, stream: Stream, is_proved: bool) -> Option<LinkId> {
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
            self.inside.link_ended(id, End::Gone { why: None, by_peer: false });
            return None;
        }
        Some(id)
    }

    /// Waits up to `limit` until a dialled link stands or fails.
    pub fn proof(&self, id: LinkId, limit: Duration) -> Proof {
        let waits = |state: &mut State| state.is_kept() && state.links.stands(id) && !state.links.is_proved(id);
        let waited = self.inside.changed.wait_timeout_while(self.inside.lock(), limit, waits);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match (state.links.stands(id), state.links.is_proved(id)) {
            (true, true) => Proof::Stands,
            (true, false) => Proof::Silent,
            (false, _) => Proof::Refused,
        }
    }

    /// Counts links.
    #[cfg(any(test, feature = "testing"))]
    pub fn links(&self) -> usize {
        self.inside.lock().links.count()
    }

    /// The link where this end speaks.
    #[cfg(any(test, feature = "testing"))]
    pub fn speaks_on(&self) -> Option<LinkId> {
        self.inside.lock().links.speaker()
    }

    /// Leaves a dead link, at once or when there is another.
    pub fn avoid(&self, id: LinkId) {
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

    /// Announces a keeping thread: see [`Channel::attend`].
    pub fn set_attended(&self) {
        self.inside.lock().is_attended = true;
    }

    /// Waits for work of the keeping thread. Returns offered links and the state.
    pub fn attend(&self, limit: Duration) -> (Vec<Stream>, Health) {
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

    /// Whether a link was offered, or the channel ended.
    pub fn has_news(&self) -> bool {
        let state = self.inside.lock();
        !state.is_kept() || !state.offered.is_empty()
    }

    /// Waits for `pause`, or for news.
    pub fn pause(&self, pause: Duration) {
        let waits = |state: &mut State| state.is_kept() && state.offered.is_empty();
        drop(self.inside.changed.wait_timeout_while(self.inside.lock(), pause, waits));
    }

    /// Offers a link of the peer's. Returns false without room or a keeping thread.
    pub fn offer(&self, stream: Stream) -> bool {
        let mut state = self.inside.lock();
        if !state.is_attended || state.is_over() || state.offered.len() >= MAX_OFFERED {
            return false;
        }
        state.offered.push(stream);
        drop(state);
        self.inside.changed.notify_all();
        true
    }

    /// Notes that the peer can dial this host.
    pub fn set_dialled(&self) {
        self.inside.is_dialled.store(true, Ordering::Relaxed);
    }

    /// Whether the peer can dial this host.
    pub fn is_dialled(&self) -> bool {
        self.inside.is_dialled.load(Ordering::Relaxed)
    }

    /// The bytes of all lanes, arrived or acknowledged.
    pub fn lane_bytes(&self) -> u64 {
        self.inside.events.lane_bytes()
    }

    /// Whether a lane stands, for the kernel.
    pub fn has_live_lane(&self) -> bool {
        self.inside.events.has_live_lane()
    }

    /// Stops waiting for a link, which ends the session.
    pub fn give_up(&self) {
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

    fn is_kept(&self) -> bool {
        self.is_attended && !self.is_over()
    }
}

impl Inside {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn call(&self) {
        self.outbox.call();
        self.changed.notify_all();
    }

    fn ping_often(&self) -> Duration {
        self.ping_every / PINGS_MORE_OFTEN
    }

    fn health(&self, state: &State) -> Health {
        if !state.kept.is_whole() {
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

    /// Moves this direction; the caller must then do [`Inside::call`].
    fn move_to(&self, state: &mut State, id: LinkId) {
        state.links.move_to(id);
        let oldest = state.kept.oldest();
        if let Some(handle) = state.links.handle(id) {
            (handle.next, handle.is_to_greet) = (oldest, true);
        }
        (state.loss, state.is_doubted) = (None, false);
    }

    fn find_speaker(&self, state: &mut State) {
        if (state.is_doubted || state.links.speaker().is_none())
            && state.kept.is_whole()
            && let Some(other) = state.links.successor()
        {
            self.move_to(state, other);
        }
    }

    /// Ends the reading side. Queued messages may still be written.
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
        // A busy loop must still read the last messages; the peer is not silent meanwhile.
        self.heard.touch();
        self.heard.begin_wait();
        let _ = self.events.send(SessionEvent::ControlEnded(why));
    }
}

/// One ping may be late.
const SUSPICIOUS_PINGS: u32 = 2;

/// Makes the error of an ended channel.
pub fn ended(why: Option<String>) -> Error {
    match why {
        None => Error::new(Fault::Network, "the far side ended the session early"),
        Some(why) => Error::new(Fault::Network, "the control channel failed").because(why),
    }
    .try_this("run the same command again: what is verified is not sent again")
}
