//! Two roles in one process hand data over in one buffer, where a connection would copy it twice and both would hash it.
//!
//! ```text
//! sender's lane: begin a unit -> read a block into its buffer -> the receiver's half hashes it there, and writes it from there
//! ```
//! Both halves run on the thread of the sender's lane. The connection of the lane stands beside: units that need more than data
//! take it, and its end is the end of the lane.

use std::io;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use haul_kept::sync::lock;
use haul_store::Connections;
use haul_wire::lane::UnitHeader;

/// The receiver's half of a lane, as the sender's half calls it.
pub(crate) trait TakesUnits: Send {
    /// A unit begins. It waits while too much has arrived that is not safe.
    fn begin(&mut self, header: UnitHeader) -> io::Result<()>;

    /// The next bytes of the unit: at most a block. `mixed`: some of it may be a hole.
    fn data(&mut self, data: &[u8], mixed: bool) -> io::Result<()>;

    /// The unit goes on with a hole of at most a block.
    fn hole(&mut self, bytes: usize) -> io::Result<()>;

    /// The source had all of the unit, as it was listed.
    fn complete(&mut self) -> io::Result<()>;

    /// The source has given up the unit. The control channel says why.
    fn void(&mut self);

    /// The sender has nothing to hand over for a while.
    fn rest(&mut self);

    /// The lane ends, maybe within a unit.
    fn end(&mut self);
}

/// The lanes of one job between two roles in this process.
pub struct HandOver {
    places: Box<[Place]>,
    /// Of a target that is served by another host, once it is open.
    target_connections: OnceLock<Arc<dyn Connections>>,
}

struct Place {
    state: Mutex<State>,
    opened: Condvar,
}

enum State {
    /// The receiver has not begun the lane.
    Awaited,
    Open(Box<dyn TakesUnits>),
    /// The receiver has ended the lane.
    Ended,
}

/// A receiver begins its half of a lane within milliseconds. After this time the sender takes the connection instead.
const OPENS_WITHIN: Duration = Duration::from_secs(1);

impl HandOver {
    /// For lanes with the numbers below `lanes`.
    pub fn new(lanes: u16) -> Self {
        let place = |_| Place { state: Mutex::new(State::Awaited), opened: Condvar::new() };
        Self { places: (0..lanes).map(place).collect(), target_connections: OnceLock::new() }
    }

    /// The receiver has opened its target, which is written over these connections.
    pub(crate) fn target_is_open(&self, connections: Option<Arc<dyn Connections>>) {
        if let Some(connections) = connections {
            // A target is opened once.
            let _ = self.target_connections.set(connections);
        }
    }

    /// The connections over which the target is written, once they are known.
    pub(crate) fn target_connections(&self) -> Option<Arc<dyn Connections>> {
        self.target_connections.get().cloned()
    }

    /// The receiver begins its half of a lane, which ends when the result is dropped. `None`: the lane has its connection alone.
    pub(crate) fn open(&self, lane: u16, half: Box<dyn TakesUnits>) -> Option<Opened<'_>> {
        let place = self.places.get(usize::from(lane))?;
        *lock(&place.state) = State::Open(half);
        place.opened.notify_all();
        Some(Opened(place))
    }

    /// Whether the sender can hand over on this lane. The first call may wait for the receiver.
    pub(crate) fn is_open(&self, lane: u16) -> bool {
        let Some(place) = self.places.get(usize::from(lane)) else { return false };
        let waits = |state: &mut State| matches!(state, State::Awaited);
        let waited = place.opened.wait_timeout_while(lock(&place.state), OPENS_WITHIN, waits);
        matches!(*waited.unwrap_or_else(PoisonError::into_inner).0, State::Open(_))
    }

    /// The sender hands something over. The receiver cannot end its half meanwhile.
    pub(crate) fn give<T>(&self, lane: u16, give: impl FnOnce(&mut dyn TakesUnits) -> T) -> io::Result<T> {
        let ended = || io::Error::new(io::ErrorKind::ConnectionReset, "the receiving side has ended the lane");
        let mut state = lock(&self.places.get(usize::from(lane)).ok_or_else(ended)?.state);
        match &mut *state {
            State::Open(half) => Ok(give(&mut **half)),
            State::Awaited | State::Ended => Err(ended()),
        }
    }
}

/// The receiver's half of a lane is open.
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

    use super::*;

    /// Tells what it is called for.
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
