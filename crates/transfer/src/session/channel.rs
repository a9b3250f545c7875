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

use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use haul_job::{Error, Fault};
use haul_net::{ReadHalf, ShutdownHandle, Stream, WriteHalf};
use haul_wire::codec::{self, LENGTH_BYTES, NUMBER_BYTES};
use haul_wire::control::Control;

use crate::session::frames::{Kept, MAX_KEPT_BYTES};
use crate::session::links::{LINK_PING_EVERY, Links};
use crate::session::outbox::{MAX_TAKEN_BYTES, PIECE_BYTES};
use crate::sync::lock;

/// How often either side says that it is alive, while there is one link.
pub(crate) const PING_EVERY: Duration = Duration::from_secs(1);

/// The peer hears what has arrived after so many messages, and after so many bytes of them; so it does not keep them for long.
const CONFIRM_MESSAGES: u64 = 64;

/// See [`CONFIRM_MESSAGES`].
const CONFIRM_BYTES: u64 = 128 << 10;

/// Links that may wait for the thread that takes them.
const MAX_OFFERED: usize = 4;

pub(crate) use crate::session::inbox::{EventSender, Events, LaneEnd, SessionEvent};
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
}

impl Handle {
    fn of(stream: &Stream, is_to_greet: bool) -> Self {
        Self { shutdown: stream.shutdown_handle(), next: 0, is_to_greet }
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
        self.inside.outbox.close(limit);
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

/// When the peer was last heard; shared by the reading threads and the session's loop.
struct Heard {
    start: Instant,
    last_ms: AtomicU64,
    /// Nobody listens: the reading thread waits for the session's own loop.
    waits: AtomicBool,
}

impl Heard {
    fn new() -> Self {
        Self { start: Instant::now(), last_ms: AtomicU64::new(0), waits: AtomicBool::new(false) }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn touch(&self) {
        self.last_ms.store(self.now_ms(), Ordering::Relaxed);
    }

    /// From here on the peer may say what it likes: it is not heard.
    fn begin_wait(&self) {
        self.waits.store(true, Ordering::Release);
    }

    /// It is heard again, and its silence begins anew.
    fn end_wait(&self) {
        self.touch();
        self.waits.store(false, Ordering::Release);
    }

    fn waits(&self) -> bool {
        self.waits.load(Ordering::Acquire)
    }

    fn silence(&self) -> Duration {
        if self.waits() {
            return Duration::ZERO;
        }
        Duration::from_millis(self.now_ms().saturating_sub(self.last_ms.load(Ordering::Relaxed)))
    }
}

/// How the reading of a link ended.
enum End {
    /// Its bytes make no sense. The peer is to blame, and no other link helps.
    Broken(String),
    /// It brings nothing more.
    Gone { why: Option<String>, by_peer: bool },
    /// The session does not listen any more.
    NotHeard,
}

/// What a writer does next.
enum Turn {
    Write,
    /// This is the last of all.
    WriteLast,
    Leave,
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

    fn read(&self, id: LinkId, mut input: ReadHalf) {
        let (mut buffer, mut count) = (Vec::new(), 0);
        let end = loop {
            let frame = match id {
                LinkId::FIRST => read_frame(&mut input, &mut buffer).map(|read| read.map(|message| (count, message))),
                _ => read_numbered(&mut input, &mut buffer),
            };
            let taken = match frame {
                Ok(Some((_, Control::Ping { received, turn }))) => self.on_ping(id, received, turn),
                Ok(Some((number, message))) => {
                    count += 1;
                    self.take(id, number, message, buffer.len())
                }
                Ok(None) => Err(End::Gone { why: None, by_peer: true }),
                Err(end) => Err(end),
            };
            if let Err(end) = taken {
                break end;
            }
        };
        self.link_ended(id, end);
    }

    /// Hands a message over, unless another link has brought it before.
    fn take(&self, id: LinkId, number: u64, message: Control, bytes: usize) -> Result<(), End> {
        let intake = lock(&self.intake);
        self.heard.touch();
        self.hear(id);
        let expected = self.delivered.load(Ordering::Relaxed);
        if number > expected {
            return Err(End::Broken(format!("message {number} came before {expected}")));
        }
        if number < expected {
            return Ok(());
        }
        let mut has_waited = false;
        let sent = self.events.send_noting(SessionEvent::Control(message), || {
            has_waited = true;
            self.heard.begin_wait();
        });
        self.heard.end_wait();
        if has_waited {
            self.lock().links.forgive(Instant::now());
        }
        if sent.is_err() {
            return Err(End::NotHeard);
        }
        self.delivered.store(expected + 1, Ordering::Release);
        drop(intake);
        let untold_bytes = self.untold_bytes.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        let untold = (expected + 1).saturating_sub(self.told.load(Ordering::Relaxed));
        if untold >= CONFIRM_MESSAGES || untold_bytes >= CONFIRM_BYTES {
            self.outbox.want_ping();
        }
        Ok(())
    }

    fn hear(&self, id: LinkId) {
        let mut state = self.lock();
        let is_new = !state.links.is_proved(id);
        state.links.hear(id, Instant::now());
        if is_new {
            self.find_speaker(&mut state);
            drop(state);
            self.call();
        }
    }

    fn on_ping(&self, id: LinkId, received: u64, turn: u32) -> Result<(), End> {
        self.heard.touch();
        self.hear(id);
        let mut state = self.lock();
        if state.kept.confirm(received).is_err() {
            return Err(End::Broken(format!("it confirms {received} messages, which were never sent")));
        }
        if state.links.is_to_follow(id, turn) && state.kept.is_whole() {
            self.move_to(&mut state, id);
            drop(state);
            self.call();
        }
        Ok(())
    }

    fn link_ended(&self, id: LinkId, end: End) {
        let mut state = self.lock();
        let (why, by_peer) = match end {
            End::NotHeard => return,
            End::Broken(why) => return self.finish(state, Some(why)),
            End::Gone { why, by_peer } => (why, by_peer),
        };
        if state.is_over() {
            return;
        }
        let is_needed = state.links.speaker().is_none_or(|speaker| speaker == id);
        let can_go_on = state.kept.is_whole() && (state.is_attended || state.links.successor().is_some());
        if self.first.is_shut_down() || (is_needed && !can_go_on) {
            return self.finish(state, why);
        }
        if let Some(handle) = state.links.remove(id).filter(|_| id != LinkId::FIRST) {
            // Its writer ends, too.
            handle.shutdown.shutdown();
        }
        self.find_speaker(&mut state);
        if state.links.speaker().is_none() && state.loss.is_none() {
            state.loss = Some(Loss { since: Instant::now(), by_peer, why });
        }
        drop(state);
        self.call();
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

    fn write(&self, id: LinkId, mut output: WriteHalf) {
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let turn = self.turn(id, &mut bytes);
            let mut pieces = bytes.chunks(PIECE_BYTES);
            let written = pieces.try_for_each(|piece| output.write_all(piece).map(|()| self.outbox.moved()));
            let written = written.and_then(|()| output.flush());
            if written.is_err() {
                return self.cannot_write(id);
            }
            match turn {
                Turn::Write => {}
                Turn::WriteLast => return self.outbox.written_out(),
                Turn::Leave => return,
            }
        }
    }

    /// Nothing can be written on a link any more. Its reader may still hear the last words of the peer.
    fn cannot_write(&self, id: LinkId) {
        let mut state = self.lock();
        state.links.mute(id);
        self.find_speaker(&mut state);
        let is_mute = state.links.speaker().is_none() && (!state.is_attended || state.is_over());
        drop(state);
        if is_mute {
            self.outbox.written_out();
        }
        self.call();
    }

    /// Waits for what is to be written next on a link.
    fn turn(&self, id: LinkId, bytes: &mut Vec<u8>) -> Turn {
        let begun = Instant::now();
        let mut state = self.lock();
        loop {
            if state.is_closed || !state.links.stands(id) {
                return Turn::Leave;
            }
            let ping_at = begun + self.ping_every(&state);
            let kept = state.kept.next();
            let handle = state.links.handle(id).expect("it stands");
            let (is_to_greet, next) = (std::mem::take(&mut handle.is_to_greet), handle.next);
            if is_to_greet {
                self.ping(&state, id, bytes);
            }
            if state.links.speaker() == Some(id) {
                if next < kept {
                    self.again(&mut state, id, bytes);
                }
                if !bytes.is_empty() {
                    return Turn::Write;
                }
                let calls = self.outbox.calls();
                drop(state);
                let may_leave = self.outbox.await_leave(ping_at, calls);
                state = self.lock();
                if may_leave && state.links.speaker() == Some(id) {
                    return self.new_words(&mut state, id, bytes);
                }
                continue;
            }
            if !bytes.is_empty() {
                return Turn::Write;
            }
            if id == LinkId::FIRST {
                // Nobody comes back here.
                return Turn::Leave;
            }
            let now = Instant::now();
            if state.kept.is_whole() && !self.heard.waits() && state.links.is_to_take_over(id, now) {
                self.move_to(&mut state, id);
                drop(state);
                self.call();
                state = self.lock();
                continue;
            }
            if now >= ping_at {
                self.ping(&state, id, bytes);
                return Turn::Write;
            }
            let waited = self.changed.wait_timeout(state, ping_at.saturating_duration_since(now));
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Messages that were written before, on another link.
    fn again(&self, state: &mut State, id: LinkId, bytes: &mut Vec<u8>) {
        let Some(mut next) = state.links.handle(id).map(|handle| handle.next) else { return };
        for (number, frame) in state.kept.from(next) {
            put_frame(id, number, frame, bytes);
            next = number + 1;
            if bytes.len() >= MAX_TAKEN_BYTES {
                break;
            }
        }
        if let Some(handle) = state.links.handle(id) {
            handle.next = next;
        }
    }

    /// Messages that have never left.
    fn new_words(&self, state: &mut State, id: LinkId, bytes: &mut Vec<u8>) -> Turn {
        let leaving = self.outbox.leave();
        let is_last = leaving.closing && leaving.messages.is_empty();
        let mut frame = Vec::new();
        for message in &leaving.messages {
            frame.clear();
            if let Err(fault) = codec::encode(message, &mut frame) {
                // Only a message of our own making can be too large: a broken invariant, but the peer must not hang.
                debug_assert!(false, "cannot encode {message:?}: {fault}");
                self.outbox.written_out();
                return Turn::Leave;
            }
            put_frame(id, state.kept.next(), &frame, bytes);
            state.kept.push(&frame);
        }
        let next = state.kept.next();
        if let Some(handle) = state.links.handle(id) {
            handle.next = next;
        }
        if leaving.ping || (leaving.messages.is_empty() && !leaving.closing) {
            self.ping(state, id, bytes);
        }
        if is_last { Turn::WriteLast } else { Turn::Write }
    }

    fn ping(&self, state: &State, id: LinkId, bytes: &mut Vec<u8>) {
        let received = self.delivered.load(Ordering::Acquire);
        self.told.store(received, Ordering::Relaxed);
        self.untold_bytes.store(0, Ordering::Relaxed);
        let mut frame = Vec::new();
        let ping = Control::Ping { received, turn: state.links.turn_on(id) };
        codec::encode(&ping, &mut frame).expect("it is short");
        put_frame(id, state.kept.next(), &frame, bytes);
    }
}

/// A link is doubtful when so many pings in a row are missing: one may be late.
const SUSPICIOUS_PINGS: u32 = 2;

fn put_frame(id: LinkId, number: u64, frame: &[u8], bytes: &mut Vec<u8>) {
    if id != LinkId::FIRST {
        bytes.extend_from_slice(&number.to_be_bytes());
    }
    bytes.extend_from_slice(frame);
}

/// Reads all messages of a further link until one makes no sense.
#[cfg(feature = "fuzzing")]
pub(crate) fn read_link(mut input: impl Read, buffer: &mut Vec<u8>) {
    while let Ok(Some(_)) = read_numbered(&mut input, buffer) {}
}

/// Reads one message; `Ok(None)` at an orderly end.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn read_message(input: &mut impl Read, buffer: &mut Vec<u8>) -> Result<Option<Control>, String> {
    read_frame(input, buffer).map_err(|end| match end {
        End::Broken(why) => why,
        End::Gone { why, .. } => why.unwrap_or_default(),
        End::NotHeard => String::new(),
    })
}

fn read_frame(input: &mut impl Read, buffer: &mut Vec<u8>) -> Result<Option<Control>, End> {
    let mut length = [0; LENGTH_BYTES];
    if !read_full(input, &mut length)? {
        return Ok(None);
    }
    let length = codec::decode_length(length).map_err(|fault| End::Broken(fault.to_string()))?;
    buffer.resize(length, 0);
    if !read_full(input, buffer)? {
        return Err(in_the_middle());
    }
    codec::decode(buffer).map(Some).map_err(|fault| End::Broken(fault.to_string()))
}

/// Reads one message of a further link, with its number; `Ok(None)` at its end.
fn read_numbered(input: &mut impl Read, buffer: &mut Vec<u8>) -> Result<Option<(u64, Control)>, End> {
    let mut number = [0; NUMBER_BYTES];
    if !read_full(input, &mut number)? {
        return Ok(None);
    }
    let message = read_frame(input, buffer)?.ok_or_else(in_the_middle)?;
    Ok(Some((u64::from_be_bytes(number), message)))
}

/// Fills `buffer`. False: the input has ended before its first byte.
fn read_full(input: &mut impl Read, buffer: &mut [u8]) -> Result<bool, End> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) if filled == 0 => return Ok(false),
            Ok(0) => return Err(in_the_middle()),
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                let by_peer = matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof
                );
                return Err(End::Gone { why: Some(error.to_string()), by_peer });
            }
        }
    }
    Ok(true)
}

fn in_the_middle() -> End {
    End::Gone { why: Some("it ended in the middle of a message".into()), by_peer: true }
}

/// An error of the session from what the control channel said at its end.
pub(crate) fn ended(why: Option<String>) -> Error {
    match why {
        None => Error::new(Fault::Network, "the far side ended the session early"),
        Some(why) => Error::new(Fault::Network, "the control channel failed").because(why),
    }
    .try_this("run the same command again: what is verified is not sent again")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_peer_is_not_silent_while_nobody_listens_to_it() {
        const BUSY: Duration = Duration::from_millis(500);
        let (ours, mut theirs) = Stream::plain_pair().unwrap();
        let events = Events::with(64 << 10);
        let channel = Channel::open(ours, events.sender(), LONG).unwrap();
        let mut flood = Vec::new();
        codec::encode(&Control::EndOfManifest, &mut flood).unwrap();
        let flood = flood.repeat(10_000);
        // It goes on talking for as long as it likes, and more than may wait is under way.
        let talks = std::thread::spawn(move || {
            let _ = theirs.write_all(&flood).and_then(|()| theirs.flush());
            theirs
        });
        let begun = Instant::now();
        while begun.elapsed() < BUSY || channel.silence() > Duration::ZERO {
            assert!(begun.elapsed() < LONG, "it counts as silent for {:?}", channel.silence());
            std::thread::sleep(Duration::from_millis(5));
        }
        let listening = Instant::now();
        let heard = std::iter::from_fn(|| events.next(LONG)).take(10_000).count();
        assert_eq!(heard, 10_000);
        let _peer = talks.join().unwrap();
        // Its silence counts from here on only.
        while channel.silence() == Duration::ZERO {
            assert!(listening.elapsed() < LONG, "it is never silent");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(channel.silence() <= listening.elapsed());
    }

    #[test]
    fn a_peer_that_has_said_its_last_word_is_not_silent() {
        let (ours, mut theirs) = Stream::plain_pair().unwrap();
        let events = Events::new();
        let channel = Channel::open(ours, events.sender(), LONG).unwrap();
        let mut last_words = Vec::new();
        codec::encode(&Control::EndOfManifest, &mut last_words).unwrap();
        theirs.write_all(&last_words).and_then(|()| theirs.finish_write()).unwrap();
        drop(theirs);
        assert!(matches!(events.next(LONG), Some(SessionEvent::Control(Control::EndOfManifest))));
        assert!(matches!(events.next(LONG), Some(SessionEvent::ControlEnded(None))));
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(20) {
            assert_eq!(channel.silence(), Duration::ZERO);
        }
    }

    #[test]
    fn silence_brings_a_ping() {
        let (ours, mut theirs) = Stream::plain_pair().unwrap();
        let channel = Channel::open(ours, Events::new().sender(), Duration::from_millis(1)).unwrap();
        let mut buffer = Vec::new();
        for _ in 0..3 {
            assert_eq!(read_message(&mut theirs, &mut buffer), Ok(Some(Control::Ping { received: 0, turn: 1 })));
        }
        channel.close(LONG);
    }

    /// Nobody pings for a minute here: what comes is said because so much has arrived.
    #[test]
    fn what_has_arrived_is_confirmed_before_it_is_much() {
        let (ours, theirs) = Stream::plain_pair().unwrap();
        let events = Events::new();
        let channel = Channel::open(ours, events.sender(), LONG).unwrap();
        let (mut input, mut output) = theirs.split();
        let mut bytes = Vec::new();
        (0..CONFIRM_MESSAGES).for_each(|_| codec::encode(&Control::EndOfManifest, &mut bytes).unwrap());
        output.write_all(&bytes).unwrap();
        let mut buffer = Vec::new();
        let ping = |received| Ok(Some(Control::Ping { received, turn: 1 }));
        assert_eq!(read_message(&mut input, &mut buffer), ping(CONFIRM_MESSAGES));
        bytes.clear();
        let why = "w".repeat(4096);
        let messages = CONFIRM_BYTES / 4096;
        (0..messages).for_each(|_| codec::encode(&Control::DialFailed { why: why.clone() }, &mut bytes).unwrap());
        output.write_all(&bytes).unwrap();
        assert_eq!(read_message(&mut input, &mut buffer), ping(CONFIRM_MESSAGES + messages));
        channel.close(LONG);
    }

    /// The peer confirms nothing. Memory stays bounded, and the loss of the link is the end, as another link could not bring all.
    #[test]
    fn a_channel_that_would_have_to_keep_too_much_cannot_move() {
        const MAX_KEPT: usize = 10_000;
        let (ours, mut theirs) = Stream::plain_pair().unwrap();
        let events = Events::new();
        let channel = Channel::with(ours, events.sender(), LONG, MAX_KEPT).unwrap();
        channel.set_attended();
        let why = "w".repeat(1000);
        let mut buffer = Vec::new();
        for _ in 0..3 * MAX_KEPT / why.len() {
            channel.outbox().send(Control::DialFailed { why: why.clone() });
            read_message(&mut theirs, &mut buffer).unwrap();
        }
        assert!(!channel.inside.lock().kept.is_whole());
        let (link, _peer) = Stream::plain_pair().unwrap();
        assert!(channel.add_link(link, true).is_some());
        channel.avoid(LinkId::FIRST);
        assert_eq!(channel.speaks_on(), Some(LinkId::FIRST));
        drop(theirs);
        assert!(matches!(events.next(LONG), Some(SessionEvent::ControlEnded(_))));
        channel.close(LONG);
    }

    /// A daemon that cuts its sessions has nothing but this.
    #[test]
    fn who_ends_the_first_link_here_ends_the_channel() {
        let (ours, _theirs) = Stream::plain_pair().unwrap();
        let (first, events) = (ours.shutdown_handle(), Events::new());
        let channel = Channel::open(ours, events.sender(), LONG).unwrap();
        channel.set_attended();
        let (link, _peer) = Stream::plain_pair().unwrap();
        channel.add_link(link, true);
        channel.avoid(LinkId::FIRST);
        first.shutdown();
        assert!(matches!(events.next(LONG), Some(SessionEvent::ControlEnded(_))));
        assert_eq!(channel.attend(LONG).1, Health::Over);
        channel.close(LONG);
    }
}
