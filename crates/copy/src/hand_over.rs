//! Two roles in one process hand data over in one buffer, where a connection would copy it twice and both would hash it. The sender sees
//! the target, too.
//!
//! ```text
//! sender's lane: begin a unit -> read a block into its buffer -> the receiver's half hashes it there, and writes it from there
//! ```
//! The sender's lane runs both halves. Units that need more than data take the lane's connection, whose end is the end of the
//! lane.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use haul_kept::sync::lock;
use haul_store::{Access, Connections, TargetTree};
use haul_wire::lane::UnitHeader;

/// The receiver's half of a lane, as the sender's half calls it.
pub(crate) trait TakesUnits: Send {
    /// Begins a unit. Waits while too much that arrived is not safe.
    fn begin(&mut self, header: UnitHeader) -> io::Result<()>;

    /// Takes at most a block. `mixed`: some may be a hole.
    fn data(&mut self, data: &[u8], mixed: bool) -> io::Result<()>;

    /// Takes a hole of at most a block.
    fn hole(&mut self, bytes: usize) -> io::Result<()>;

    /// Ends a unit of which the source had all, as listed.
    fn complete(&mut self) -> io::Result<()>;

    /// Ends a unit that the source gave up. The control channel says why.
    fn void(&mut self);

    /// Learns that nothing comes for a while.
    fn rest(&mut self);

    fn end(&mut self);
}

/// The lanes of one job between two roles in this process.
pub struct HandOver {
    places: Box<[Place]>,
    target: OnceLock<Arc<dyn TargetTree>>,
    target_opened: (Mutex<()>, Condvar),
    takes_runs: AtomicBool,
}

struct Place {
    state: Mutex<State>,
    opened: Condvar,
}

enum State {
    Awaited,
    Open(Box<dyn TakesUnits>),
    Ended,
}

/// A receiver opens its target, and begins its half, within milliseconds. Else the sender does without.
const OPENS_WITHIN: Duration = Duration::from_secs(1);

impl HandOver {
    /// Takes lanes with numbers below `lanes`.
    pub fn new(lanes: u16) -> Self {
        let place = |_| Place { state: Mutex::new(State::Awaited), opened: Condvar::new() };
        Self {
            places: (0..lanes).map(place).collect(),
            target: OnceLock::new(),
            target_opened: (Mutex::default(), Condvar::new()),
            takes_runs: AtomicBool::new(false),
        }
    }

    pub(crate) fn target_is_open(&self, target: &Arc<dyn TargetTree>) {
        let (opening, opened) = &self.target_opened;
        let opening = lock(opening);
        let _ = self.target.set(Arc::clone(target));
        drop(opening);
        opened.notify_all();
    }

    /// Waits a moment for the receiver to open the target. It may take longer, or fail.
    pub(crate) fn await_target(&self) {
        let (opening, opened) = &self.target_opened;
        drop(opened.wait_timeout_while(lock(opening), OPENS_WITHIN, |()| self.target.get().is_none()));
    }

    pub(crate) fn target(&self) -> Option<&dyn TargetTree> {
        self.target.get().map(|target| &**target)
    }

    pub(crate) fn target_connections(&self) -> Option<Arc<dyn Connections>> {
        self.target()?.connections()
    }

    /// See [`TargetTree::access`].
    pub(crate) fn target_access(&self) -> Option<Access> {
        Some(self.target()?.access())
    }

    /// Notes that the target takes runs. True: it is news, for lanes that wait.
    pub(crate) fn begins_runs(&self) -> bool {
        !self.takes_runs.swap(true, Ordering::Relaxed)
    }

    /// Begins the receiver's half of a lane, until the result is dropped. `None`: no hand-over.
    pub(crate) fn open(&self, lane: u16, half: Box<dyn TakesUnits>) -> Option<Opened<'_>> {
        let place = self.places.get(usize::from(lane))?;
        *lock(&place.state) = State::Open(half);
        place.opened.notify_all();
        Some(Opened(place))
    }

    /// Whether the sender can hand over. The first call may wait.
    pub(crate) fn is_open(&self, lane: u16) -> bool {
        let Some(place) = self.places.get(usize::from(lane)) else { return false };
        let waits = |state: &mut State| matches!(state, State::Awaited);
        let waited = place.opened.wait_timeout_while(lock(&place.state), OPENS_WITHIN, waits);
        matches!(*waited.unwrap_or_else(PoisonError::into_inner).0, State::Open(_))
    }

    /// Hands over; the receiver cannot end its half meanwhile.
    pub(crate) fn give<T>(&self, lane: u16, give: impl FnOnce(&mut dyn TakesUnits) -> T) -> io::Result<T> {
        let ended = || io::Error::new(io::ErrorKind::ConnectionReset, "the receiving side has ended the lane");
        let mut state = lock(&self.places.get(usize::from(lane)).ok_or_else(ended)?.state);
        match &mut *state {
            State::Open(half) => Ok(give(&mut **half)),
            State::Awaited | State::Ended => Err(ended()),
        }
    }
}

pub(crate) struct Opened<'a>(&'a Place);

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        let state = std::mem::replace(&mut *lock(&self.0.state), State::Ended);
        if let State::Open(mut half) = state {
            half.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::thread;

    use haul_store::Nowhere;

    use super::*;

    struct Half(Sender<&'static str>);

    impl TakesUnits for Half {
        fn begin(&mut self, _: UnitHeader) -> io::Result<()> {
            Ok(())
        }

        fn data(&mut self, _: &[u8], _: bool) -> io::Result<()> {
            Ok(())
        }

        fn hole(&mut self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn complete(&mut self) -> io::Result<()> {
            Ok(())
        }

        fn void(&mut self) {}

        fn rest(&mut self) {
            self.0.send("rest").unwrap();
        }

        fn end(&mut self) {
            self.0.send("end").unwrap();
        }
    }

    #[test]
    fn a_sender_waits_for_the_receiver_to_begin_and_hands_nothing_over_after_its_end() {
        let (hand_over, (tell, told)) = (HandOver::new(2), channel());
        thread::scope(|scope| {
            let waits = scope.spawn(|| hand_over.is_open(1));
            let opened = hand_over.open(1, Box::new(Half(tell.clone())));
            assert!(waits.join().unwrap());
            hand_over.give(1, |half| half.rest()).unwrap();
            drop(opened);
        });
        assert_eq!(told.try_iter().collect::<Vec<_>>(), ["rest", "end"]);
        assert!(!hand_over.is_open(1));
        let error = hand_over.give(1, |half| half.rest()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        assert!(hand_over.open(2, Box::new(Half(tell))).is_none(), "there are two lanes");
    }

    #[test]
    fn a_sender_waits_for_the_target_to_be_open() {
        let (hand_over, target): (_, Arc<dyn TargetTree>) = (HandOver::new(0), Arc::new(Nowhere));
        thread::scope(|scope| {
            let waits = scope.spawn(|| {
                hand_over.await_target();
                hand_over.target().is_some()
            });
            hand_over.target_is_open(&target);
            assert!(waits.join().unwrap());
        });
    }

    #[test]
    fn a_receiver_ends_its_half_once_what_was_being_handed_over_is_taken() {
        let (hand_over, (tell, told)) = (HandOver::new(1), channel());
        let opened = hand_over.open(0, Box::new(Half(tell.clone())));
        let ((begins, begun), (go_on, goes_on)) = (channel(), channel());
        thread::scope(|scope| {
            let hand_over = &hand_over;
            scope.spawn(move || {
                hand_over.give(0, |_| {
                    begins.send(()).unwrap();
                    goes_on.recv().unwrap();
                    tell.send("taken").unwrap();
                })
            });
            begun.recv().unwrap();
            scope.spawn(|| drop(opened));
            go_on.send(()).unwrap();
        });
        assert_eq!(told.try_iter().collect::<Vec<_>>(), ["taken", "end"]);
    }
}
