//! The one queue of a session. Everything that happens arrives here as a [`SessionEvent`]. So a session is a loop:
//! `while !done { apply(next_event()) }`.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use haul_job::Error;
use haul_net::{Applied, Probe, Stream};
use haul_wire::control::{Control, MovedChunk};
use haul_wire::limits::MAX_LANES;

use crate::session::weight;
use crate::sync::lock;

/// What can happen to a session.
pub(crate) enum SessionEvent {
    /// A message of the peer.
    Control(Control),
    /// The control channel ended: orderly (`None`), or with what was wrong.
    ControlEnded(Option<String>),
    /// A lane is connected and authenticated.
    LaneUp(Stream, u16),
    /// A lane's thread ended.
    LaneDown(LaneEnd),
    /// What the user asked of the connections and this host does not grant.
    FallsShort(Vec<Applied>),
    /// Who brings the lanes knows that this path leads nowhere any more.
    PathLost { path: u16, why: String },
    /// A mover wrote these, on lanes of this path.
    Moved(u16, Vec<MovedChunk>),
    /// Something changed that the loop should look at now.
    Wake,
    /// No lane can be had, and nothing is left to try.
    NoLanes(Error),
}

/// A lane that is no more.
pub(crate) struct LaneEnd {
    pub(crate) lane: u16,
    /// Tells lanes with the same number apart: a redialled lane may be there before the end of the old one is noticed.
    pub(crate) serial: u64,
    /// Why it ended before its time.
    pub(crate) error: Option<io::Error>,
}

/// Most bytes of messages that wait. A peer that floods then waits in its own socket.
///
/// All messages of an honest peer fit, however long the loop hashes a file: a window of 16 Ki items takes 176 bytes each and
/// 4 MiB for their names (`MAX_OPEN_ITEM_BYTES`), 6.8 MiB in all. A full socket that nobody reads for 30 s would make the
/// peer's kernel end the connection (`USER_TIMEOUT_MS`).
const MAX_WAITING_BYTES: usize = 8 << 20;

/// Events of other kinds that wait: all lanes of a session may come while its loop has long to do.
const MAX_WAITING_OTHERS: usize = MAX_LANES as usize;

/// The receiving end; whoever still sends when it is dropped is told so.
pub(crate) struct Events {
    queue: Arc<Queue>,
    put_back: RefCell<VecDeque<SessionEvent>>,
}

/// A sending end.
#[derive(Clone)]
pub(crate) struct EventSender(Arc<Queue>);

/// The session is over, or had no room in time; the event is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotTaken;

struct Queue {
    /// What the messages that wait may take in memory.
    max_bytes: usize,
    state: Mutex<State>,
    filled: Condvar,
    taken: Condvar,
    lanes: Mutex<Carrying>,
}

/// Lanes whose threads have not ended.
#[derive(Default)]
struct Carrying {
    probes: BTreeMap<u64, Probe>,
    next: u64,
}

#[derive(Default)]
struct State {
    /// Each with what it takes in memory; `None` for those that are counted by number.
    events: VecDeque<(SessionEvent, Option<usize>)>,
    message_bytes: usize,
    others: usize,
    is_over: bool,
}

impl State {
    fn has_room(&self, weight: Option<usize>, max_bytes: usize) -> bool {
        match weight {
            // One that is larger than all that may wait has to come through, too.
            Some(bytes) => self.message_bytes == 0 || self.message_bytes + bytes <= max_bytes,
            None => self.others < MAX_WAITING_OTHERS,
        }
    }

    fn push(&mut self, event: SessionEvent, weight: Option<usize>) {
        match weight {
            Some(bytes) => self.message_bytes += bytes,
            None => self.others += 1,
        }
        self.events.push_back((event, weight));
    }

    fn pop(&mut self) -> Option<SessionEvent> {
        let (event, weight) = self.events.pop_front()?;
        match weight {
            Some(bytes) => self.message_bytes -= bytes,
            None => self.others -= 1,
        }
        Some(event)
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Events {
    pub(crate) fn new() -> Self {
        Self::with(MAX_WAITING_BYTES)
    }

    /// Messages that wait take at most so many bytes, or are a single one.
    pub(crate) fn with(max_bytes: usize) -> Self {
        let (state, filled, taken, lanes) = Default::default();
        Self { queue: Arc::new(Queue { max_bytes, state, filled, taken, lanes }), put_back: RefCell::default() }
    }

    pub(crate) fn sender(&self) -> EventSender {
        EventSender(Arc::clone(&self.queue))
    }

    /// The next event, or `None` after `limit`.
    pub(crate) fn next(&self, limit: Duration) -> Option<SessionEvent> {
        let first = self.put_back.borrow_mut().pop_front();
        first.or_else(|| {
            let state = self.queue.lock();
            let waited = self.queue.filled.wait_timeout_while(state, limit, |state| state.events.is_empty());
            let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            let event = state.pop();
            drop(state);
            self.queue.taken.notify_all();
            event
        })
    }

    /// Events that came before their time: they come again, first.
    pub(crate) fn put_back(&self, events: Vec<SessionEvent>) {
        self.put_back.borrow_mut().extend(events);
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.is_over = true;
        let left = std::mem::take(&mut state.events);
        drop(state);
        self.queue.taken.notify_all();
        // Lanes among them are closed.
        drop(left);
    }
}

impl EventSender {
    /// Waits for room as long as it takes.
    pub(crate) fn send(&self, event: SessionEvent) -> Result<(), NotTaken> {
        self.put(event, None, || ())
    }

    /// [`EventSender::send`]; `waits` is told before it waits.
    pub(crate) fn send_noting(&self, event: SessionEvent, waits: impl FnOnce()) -> Result<(), NotTaken> {
        self.put(event, None, waits)
    }

    /// Waits for room no longer than this.
    pub(crate) fn send_within(&self, event: SessionEvent, limit: Duration) -> Result<(), NotTaken> {
        self.put(event, Some(limit), || ())
    }

    /// Waits for nothing.
    pub(crate) fn try_send(&self, event: SessionEvent) -> Result<(), NotTaken> {
        self.put(event, Some(Duration::ZERO), || ())
    }

    /// Whether nobody takes anything any more.
    pub(crate) fn is_over(&self) -> bool {
        self.0.lock().is_over
    }

    /// A thread carries this lane, until the answer is dropped.
    pub(crate) fn carries(&self, lane: Probe) -> CarriedLane {
        let mut lanes = lock(&self.0.lanes);
        let number = lanes.next;
        lanes.next += 1;
        lanes.probes.insert(number, lane);
        CarriedLane { queue: Arc::clone(&self.0), number }
    }

    /// Whether a lane stands, as far as the kernel knows: a thread that waits for work does not see the end of its lane.
    pub(crate) fn has_live_lane(&self) -> bool {
        lock(&self.0.lanes).probes.values().any(|lane| !lane.has_hung_up())
    }

    fn put(&self, event: SessionEvent, limit: Option<Duration>, waits: impl FnOnce()) -> Result<(), NotTaken> {
        let weight = match &event {
            SessionEvent::Control(message) => Some(weight::memory_bytes(message)),
            SessionEvent::ControlEnded(_) => Some(size_of::<SessionEvent>()),
            _ => None,
        };
        let queue = &self.0;
        let mut state = queue.lock();
        let mut waits = Some(waits);
        let start = Instant::now();
        while !state.is_over && !state.has_room(weight, self.0.max_bytes) {
            if let Some(waits) = waits.take() {
                waits();
            }
            state = match limit.map(|limit| limit.saturating_sub(start.elapsed())) {
                Some(Duration::ZERO) => return Err(NotTaken),
                Some(left) => queue.taken.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
                None => queue.taken.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
        if state.is_over {
            return Err(NotTaken);
        }
        state.push(event, weight);
        drop(state);
        queue.filled.notify_one();
        Ok(())
    }
}

/// See [`EventSender::carries`].
pub(crate) struct CarriedLane {
    queue: Arc<Queue>,
    number: u64,
}

impl Drop for CarriedLane {
    fn drop(&mut self) {
        lock(&self.queue.lanes).probes.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn message() -> SessionEvent {
        SessionEvent::Control(Control::Again { index: 1, chunk: 1 })
    }

    /// Enough for hundreds of messages.
    const WAITING_BYTES: usize = 64 << 10;

    #[test]
    fn messages_and_lanes_do_not_take_each_others_room() {
        let events = Events::with(WAITING_BYTES);
        let sender = events.sender();
        let mut messages = 0;
        while sender.try_send(message()).is_ok() {
            messages += 1;
        }
        assert!(
            messages * weight::memory_bytes(&Control::EndOfManifest) <= WAITING_BYTES && messages > 100,
            "{messages}"
        );
        (0..MAX_WAITING_OTHERS).for_each(|_| sender.try_send(SessionEvent::Wake).unwrap());
        assert_eq!(sender.try_send(SessionEvent::Wake), Err(NotTaken));
        // Room for a message comes back with a message.
        assert!(matches!(events.next(LONG), Some(SessionEvent::Control(_))));
        sender.try_send(message()).unwrap();
        assert_eq!(sender.try_send(SessionEvent::Wake), Err(NotTaken));
        let all = std::iter::from_fn(|| events.next(Duration::ZERO)).count();
        assert_eq!(all, messages + MAX_WAITING_OTHERS);
        assert!(sender.try_send(message()).is_ok() && sender.try_send(SessionEvent::Wake).is_ok());
    }

    #[test]
    fn a_message_that_is_larger_than_all_room_comes_through() {
        let events = Events::with(WAITING_BYTES);
        let why = "w".repeat(2 * WAITING_BYTES);
        let large = || SessionEvent::Control(Control::DialFailed { why: why.clone() });
        events.sender().try_send(large()).unwrap();
        assert_eq!(events.sender().try_send(message()), Err(NotTaken));
        assert!(events.next(LONG).is_some());
        assert_eq!(events.sender().try_send(message()), Ok(()));
    }

    #[test]
    fn a_lane_lives_until_its_peer_or_its_thread_has_ended() {
        let events = Events::new();
        let sender = events.sender();
        assert!(!sender.has_live_lane());
        let ((one, peer), (two, _peer)) = (Stream::plain_pair().unwrap(), Stream::plain_pair().unwrap());
        let (_one, two) = (sender.carries(one.probe()), sender.carries(two.probe()));
        assert!(sender.has_live_lane());
        drop(two);
        assert!(sender.has_live_lane());
        drop(peer);
        assert!(!sender.has_live_lane(), "its thread has not ended, and its peer has");
    }

    #[test]
    fn who_waits_for_room_is_let_go_when_the_session_ends_and_what_waited_is_closed() {
        let events = Events::new();
        let sender = events.sender();
        let (lane, mut peer) = Stream::plain_pair().unwrap();
        sender.send(SessionEvent::LaneUp(lane, 0)).unwrap();
        while sender.try_send(SessionEvent::Wake).is_ok() {}
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| sender.send(SessionEvent::Wake));
            drop(events);
            assert_eq!(waits.join().unwrap(), Err(NotTaken));
        });
        assert_eq!(io::Read::read(&mut peer, &mut [0]).unwrap(), 0);
    }
}
