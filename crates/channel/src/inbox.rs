//! Holds the one queue of a session, which gets all its [`SessionEvent`]s: `while !done { apply(next_event()) }`.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use haul_engine::integrity::LaneTags;
use haul_job::Error;
use haul_net::{Applied, Probe, Stream};
use haul_wire::control::{Control, MovedChunk};
use haul_wire::limits::MAX_LANES;

use crate::message_memory;
use haul_kept::sync::lock;

/// An event of a session.
pub enum SessionEvent {
    /// The peer's message.
    Control(Control),
    /// The control channel's end: orderly (`None`) or not.
    ControlEnded(Option<String>),
    /// An event for [`carry_on`](crate::lane_role::carry_on).
    Lane(LaneEvent),
    /// Chunks that the mover of a path wrote.
    Moved(u16, Vec<MovedChunk>),
    /// The loop must look at a change now.
    Wake,
}

/// An event of a lane or a path.
pub enum LaneEvent {
    /// An authenticated lane.
    Up(Stream, u16),
    /// A lane after the last job.
    Back(LaneBack),
    /// A lane's thread ended.
    Down(LaneEnd),
    /// The host does not grant requested settings.
    FallsShort(Vec<Applied>),
    /// The keeper gave the path up.
    PathLost {
        /// The path.
        path: u16,
        /// The reason.
        why: String,
    },
    /// Lanes of a path leave elsewhere, as far as possible.
    Redialled {
        /// The path.
        path: u16,
        /// The failure.
        outcome: Result<(), String>,
    },
    /// No lane can be had.
    NoMore(Error),
}

/// A lane between two jobs.
pub struct LaneBack {
    /// The number.
    pub lane: u16,
    /// The connection.
    pub stream: Stream,
    /// The tags of a clear lane. They count on, so that no data of one job passes as data of another.
    pub tags: Option<LaneTags>,
}

/// A lane that has ended.
pub struct LaneEnd {
    /// The number.
    pub lane: u16,
    /// Tells lanes of one number apart: a redialled lane may come before the old one's end is noticed. 0: lost after its job.
    pub serial: u64,
    /// The reason of an early end.
    pub error: Option<io::Error>,
}

/// Makes a flooding peer wait in its own socket.
///
/// All messages of an honest peer fit, however long the loop hashes: 16 Ki items of 176 bytes and 4 MiB of names
/// (`MAX_OPEN_ITEM_BYTES`) are 6.8 MiB. A socket full for 30 s would end the connection (`USER_TIMEOUT_MS`).
const MAX_WAITING_BYTES: usize = 8 << 20;

/// All lanes of a session may come while its loop is busy.
const MAX_WAITING_OTHERS: usize = MAX_LANES as usize;

/// The receiving end of a queue; dropping it fails senders.
///
/// A session of several jobs keeps one, and has another [of each job](Events::of_job). Messages, lanes and events of lanes wait
/// for the next job.
pub struct Events {
    queue: Arc<Queue>,
    put_back: RefCell<VecDeque<SessionEvent>>,
    job: Option<u64>,
}

/// A sending end of a queue.
#[derive(Clone)]
pub struct EventSender {
    queue: Arc<Queue>,
    job: Option<u64>,
}

/// The session is over, or had no room in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotTaken;

struct Queue {
    max_bytes: usize,
    state: Mutex<State>,
    filled: Condvar,
    taken: Condvar,
    lanes: Mutex<Carrying>,
}

#[derive(Default)]
struct Carrying {
    probes: BTreeMap<u64, Probe>,
    next: u64,
}

#[derive(Default)]
struct State {
    /// The event with its size; `None`: counted by number.
    events: VecDeque<(SessionEvent, Option<usize>)>,
    message_bytes: usize,
    others: usize,
    is_over: bool,
    job: u64,
    job_is_over: bool,
    back: Vec<LaneBack>,
    lanes_are_spared: bool,
}

impl State {
    fn is_over_for(&self, job: Option<u64>) -> bool {
        self.is_over || job.is_some_and(|job| job != self.job || self.job_is_over)
    }

    fn end_job(&mut self, put_back: VecDeque<SessionEvent>) {
        self.job_is_over = true;
        let waiting = std::mem::take(&mut self.events).into_iter().map(|(event, _)| event);
        (self.message_bytes, self.others) = (0, 0);
        let back = std::mem::take(&mut self.back).into_iter().map(|lane| SessionEvent::Lane(LaneEvent::Back(lane)));
        let all: Vec<SessionEvent> = back.chain(put_back).chain(waiting).collect();
        all.into_iter().filter_map(of_session).for_each(|event| self.enter(event));
    }

    fn enter(&mut self, event: SessionEvent) {
        let weight = weight_of(&event);
        self.push(event, weight);
    }

    fn has_room(&self, weight: Option<usize>, max_bytes: usize) -> bool {
        match weight {
            // A message above the bound has to come through.
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
        self.taken(weight);
        Some(event)
    }

    fn taken(&mut self, weight: Option<usize>) {
        match weight {
            Some(bytes) => self.message_bytes -= bytes,
            None => self.others -= 1,
        }
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Default for Events {
    fn default() -> Self {
        Self::new()
    }
}

impl Events {
    /// Makes a queue with the usual bound.
    pub fn new() -> Self {
        Self::with(MAX_WAITING_BYTES)
    }

    /// Makes a queue of at most so many bytes, or of one message.
    pub fn with(max_bytes: usize) -> Self {
        let (state, filled, taken, lanes) = Default::default();
        let queue = Arc::new(Queue { max_bytes, state, filled, taken, lanes });
        Self { queue, put_back: RefCell::default(), job: None }
    }

    /// Makes a sending end.
    pub fn sender(&self) -> EventSender {
        EventSender { queue: Arc::clone(&self.queue), job: self.job }
    }

    /// Begins a job. Dropping its events ends the job, not the session.
    ///
    /// # Panics
    /// If `number` is not greater than that of the job before.
    pub fn of_job(&self, number: u64) -> Events {
        let mut state = self.queue.lock();
        assert!(number > state.job, "job {number} comes after job {}", state.job);
        state.job = number;
        (state.job_is_over, state.lanes_are_spared) = (false, false);
        let job = Some(state.job);
        drop(state);
        Self { queue: Arc::clone(&self.queue), put_back: RefCell::new(self.put_back.take()), job }
    }

    /// Whether another job may follow.
    pub fn stay(&self) -> bool {
        self.job.is_some()
    }

    /// The job's number, if another may follow.
    pub fn job(&self) -> Option<u64> {
        self.job
    }

    /// The last job's number; 0: none.
    pub fn last_job(&self) -> u64 {
        self.queue.lock().job
    }

    pub(crate) fn spare_lanes(&self) {
        self.queue.lock().lanes_are_spared = true;
    }

    /// Whether the last job used no lane.
    pub fn lanes_are_spared(&self) -> bool {
        self.queue.lock().lanes_are_spared
    }

    /// Takes a message, or the channel's end, between two jobs. `None` after `limit`.
    pub fn next_word(&self, limit: Duration) -> Option<SessionEvent> {
        let is_word = |event: &SessionEvent| matches!(event, SessionEvent::Control(_) | SessionEvent::ControlEnded(_));
        let at = |state: &State| state.events.iter().position(|(event, _)| is_word(event));
        let waited = self.queue.filled.wait_timeout_while(self.queue.lock(), limit, |state| at(state).is_none());
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let (event, weight) = at(&state).and_then(|at| state.events.remove(at))?;
        state.taken(weight);
        drop(state);
        self.queue.taken.notify_all();
        Some(event)
    }

    /// Gives up lanes that did not end the job at both ends.
    pub fn drop_lanes_back(&self) {
        let mut state = self.queue.lock();
        for (event, _) in &mut state.events {
            if let SessionEvent::Lane(LaneEvent::Back(LaneBack { lane, .. })) = event {
                *event = SessionEvent::Lane(LaneEvent::Down(lost(*lane)));
            }
        }
    }

    /// Takes an event; `None` after `limit`.
    pub fn next(&self, limit: Duration) -> Option<SessionEvent> {
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

    /// Puts early events back in front.
    pub fn put_back(&self, events: Vec<SessionEvent>) {
        self.put_back.borrow_mut().extend(events);
    }
}

fn of_session(event: SessionEvent) -> Option<SessionEvent> {
    match event {
        SessionEvent::Control(_)
        | SessionEvent::ControlEnded(_)
        | SessionEvent::Lane(LaneEvent::Up(..))
        | SessionEvent::Lane(LaneEvent::Back(_))
        | SessionEvent::Lane(LaneEvent::FallsShort(_))
        | SessionEvent::Lane(LaneEvent::NoMore(_)) => Some(event),
        SessionEvent::Lane(LaneEvent::Down(LaneEnd { lane, error: Some(_), .. })) => {
            Some(SessionEvent::Lane(LaneEvent::Down(lost(lane))))
        }
        SessionEvent::Lane(LaneEvent::Down(_))
        | SessionEvent::Lane(LaneEvent::PathLost { .. })
        | SessionEvent::Lane(LaneEvent::Redialled { .. })
        | SessionEvent::Moved(..)
        | SessionEvent::Wake => None,
    }
}

fn lost(lane: u16) -> LaneEnd {
    LaneEnd { lane, serial: 0, error: Some(io::ErrorKind::ConnectionReset.into()) }
}

fn weight_of(event: &SessionEvent) -> Option<usize> {
    match event {
        SessionEvent::Control(message) => Some(message_memory::memory_bytes(message)),
        SessionEvent::ControlEnded(_) => Some(size_of::<SessionEvent>()),
        _ => None,
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        if let Some(job) = self.job {
            if job == state.job {
                state.end_job(self.put_back.take());
            }
            drop(state);
            self.queue.taken.notify_all();
            return;
        }
        state.is_over = true;
        state.back.clear();
        let left = std::mem::take(&mut state.events);
        drop(state);
        self.queue.taken.notify_all();
        drop(left);
    }
}

impl EventSender {
    /// Sends an event, and waits for room.
    pub fn send(&self, event: SessionEvent) -> Result<(), NotTaken> {
        self.put(event, None, || ())
    }

    pub(crate) fn send_noting(&self, event: SessionEvent, waits: impl FnOnce()) -> Result<(), NotTaken> {
        self.put(event, None, waits)
    }

    /// Sends an event; waits for room up to `limit`.
    pub fn send_within(&self, event: SessionEvent, limit: Duration) -> Result<(), NotTaken> {
        self.put(event, Some(limit), || ())
    }

    /// Sends an event if there is room.
    pub fn try_send(&self, event: SessionEvent) -> Result<(), NotTaken> {
        self.put(event, Some(Duration::ZERO), || ())
    }

    /// Whether events are refused.
    pub fn is_over(&self) -> bool {
        self.queue.lock().is_over_for(self.job)
    }

    /// Gives a lane back. If no job follows, it ends here.
    pub fn lane_back(&self, lane: LaneBack) {
        let mut state = self.queue.lock();
        if state.is_over || self.job != Some(state.job) {
            return;
        }
        if !state.job_is_over {
            if state.back.len() < usize::from(MAX_LANES) {
                state.back.push(lane);
            }
        } else if state.has_room(None, self.queue.max_bytes) {
            state.enter(SessionEvent::Lane(LaneEvent::Back(lane)));
            drop(state);
            self.queue.filled.notify_one();
        }
    }

    /// Reports a thread's end, maybe to the next job.
    pub fn lane_down(&self, end: LaneEnd) {
        let (lane, is_lost) = (end.lane, end.error.is_some());
        if self.send(SessionEvent::Lane(LaneEvent::Down(end))).is_err() && is_lost {
            let mut state = self.queue.lock();
            if !state.is_over && self.job == Some(state.job) && state.has_room(None, self.queue.max_bytes) {
                state.enter(SessionEvent::Lane(LaneEvent::Down(lost(lane))));
                drop(state);
                self.queue.filled.notify_one();
            }
        }
    }

    /// Counts a lane as carried until the answer is dropped.
    pub fn carries(&self, lane: Probe) -> CarriedLane {
        let mut lanes = lock(&self.queue.lanes);
        let number = lanes.next;
        lanes.next += 1;
        lanes.probes.insert(number, lane);
        CarriedLane { queue: Arc::clone(&self.queue), number }
    }

    /// Whether a lane stands for the kernel, a waiting one too: a thread that waits for work does not see its end.
    pub fn has_live_lane(&self) -> bool {
        let lives = |stream: &Stream| !stream.probe().has_hung_up();
        let waits = |event: &SessionEvent| match event {
            SessionEvent::Lane(LaneEvent::Up(stream, _))
            | SessionEvent::Lane(LaneEvent::Back(LaneBack { stream, .. })) => lives(stream),
            _ => false,
        };
        lock(&self.queue.lanes).probes.values().any(|lane| !lane.has_hung_up())
            || self.queue.lock().events.iter().any(|(event, _)| waits(event))
    }

    /// The bytes of all lanes, arrived or acknowledged.
    pub fn lane_bytes(&self) -> u64 {
        let lanes = lock(&self.queue.lanes);
        let all =
            lanes.probes.values().filter_map(Probe::tcp_info).flat_map(|lane| [lane.bytes_acked, lane.bytes_received]);
        all.flatten().fold(0, u64::saturating_add)
    }

    fn put(&self, event: SessionEvent, limit: Option<Duration>, waits: impl FnOnce()) -> Result<(), NotTaken> {
        let weight = weight_of(&event);
        let queue = &self.queue;
        let mut state = queue.lock();
        let mut waits = Some(waits);
        let start = Instant::now();
        while !state.is_over_for(self.job) && !state.has_room(weight, queue.max_bytes) {
            if let Some(waits) = waits.take() {
                waits();
            }
            state = match limit.map(|limit| limit.saturating_sub(start.elapsed())) {
                Some(Duration::ZERO) => return Err(NotTaken),
                Some(left) => queue.taken.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
                None => queue.taken.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
        if state.is_over_for(self.job) {
            return Err(NotTaken);
        }
        state.push(event, weight);
        drop(state);
        queue.filled.notify_one();
        Ok(())
    }
}

pub struct CarriedLane {
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
            messages * message_memory::memory_bytes(&Control::EndOfManifest) <= WAITING_BYTES && messages > 100,
            "{messages}"
        );
        (0..MAX_WAITING_OTHERS).for_each(|_| sender.try_send(SessionEvent::Wake).unwrap());
        assert_eq!(sender.try_send(SessionEvent::Wake), Err(NotTaken));
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
    fn what_belongs_to_the_session_waits_for_its_next_job_and_the_rest_ends_with_its_own() {
        let events = Events::new();
        let (session, first) = (events.sender(), events.of_job(1));
        assert!(first.stay() && !events.stay());
        let of_first = first.sender();
        let ((new, _new), (old, _old)) = (Stream::plain_pair().unwrap(), Stream::plain_pair().unwrap());
        session.send(message()).unwrap();
        of_first.send(SessionEvent::Wake).unwrap();
        session.send(SessionEvent::Lane(LaneEvent::Up(new, 1))).unwrap();
        of_first.lane_back(LaneBack { lane: 0, stream: old, tags: None });
        of_first.lane_down(LaneEnd { lane: 0, serial: 7, error: None });
        of_first.lane_down(LaneEnd { lane: 2, serial: 8, error: Some(io::ErrorKind::BrokenPipe.into()) });
        assert!(session.has_live_lane());
        drop(first);
        assert!(of_first.is_over() && !session.is_over());
        assert_eq!(of_first.send(SessionEvent::Wake), Err(NotTaken));
        of_first.lane_down(LaneEnd { lane: 3, serial: 9, error: Some(io::ErrorKind::BrokenPipe.into()) });
        assert!(matches!(events.next_word(LONG), Some(SessionEvent::Control(_))), "between two jobs, past the lanes");
        assert!(events.next_word(Duration::ZERO).is_none());
        let second = events.of_job(2);
        assert!(matches!(second.next(LONG), Some(SessionEvent::Lane(LaneEvent::Back(LaneBack { lane: 0, .. })))));
        assert!(matches!(second.next(LONG), Some(SessionEvent::Lane(LaneEvent::Up(_, 1)))));
        for lost in [2, 3] {
            let Some(SessionEvent::Lane(LaneEvent::Down(end))) = second.next(LONG) else { panic!("it is not told of") };
            assert_eq!((end.lane, end.serial, end.error.is_some()), (lost, 0, true));
        }
        assert!(second.next(Duration::ZERO).is_none());
        let (late, mut peer) = Stream::plain_pair().unwrap();
        of_first.lane_back(LaneBack { lane: 4, stream: late, tags: None });
        assert!(second.next(Duration::ZERO).is_none(), "it is of a job that has ended long ago");
        assert_eq!(io::Read::read(&mut peer, &mut [0]).unwrap(), 0);
    }

    #[test]
    fn lanes_that_cannot_carry_the_next_job_count_as_lost() {
        let events = Events::new();
        let job = events.of_job(1);
        let (stream, mut peer) = Stream::plain_pair().unwrap();
        job.sender().lane_back(LaneBack { lane: 5, stream, tags: None });
        drop(job);
        events.drop_lanes_back();
        assert_eq!(io::Read::read(&mut peer, &mut [0]).unwrap(), 0, "it is closed");
        assert!(matches!(
            events.next(LONG),
            Some(SessionEvent::Lane(LaneEvent::Down(LaneEnd { lane: 5, serial: 0, .. })))
        ));
    }

    #[test]
    fn who_waits_for_room_is_let_go_when_the_session_ends_and_what_waited_is_closed() {
        let events = Events::new();
        let sender = events.sender();
        let (lane, mut peer) = Stream::plain_pair().unwrap();
        sender.send(SessionEvent::Lane(LaneEvent::Up(lane, 0))).unwrap();
        while sender.try_send(SessionEvent::Wake).is_ok() {}
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| sender.send(SessionEvent::Wake));
            drop(events);
            assert_eq!(waits.join().unwrap(), Err(NotTaken));
        });
        assert_eq!(io::Read::read(&mut peer, &mut [0]).unwrap(), 0);
    }
}
