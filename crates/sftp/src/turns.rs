//! Who writes over which connection, and when a connection begins to.
//!
//! ```text
//!   a lane with data -> a connection over which nobody writes, and which is not behind: the one with the fewest bytes under way
//!                    -> none: it waits for the first that is free, or new
//! ```
//! A connection that has just begun takes a second to grow. Lanes that stood in line behind it would not see the others. ssh takes 2 MiB at
//! once, also where the connection brings 1 MB/s: whoever then waits for all that is under way waits for two seconds.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::place_in_line::Place;
use crate::server::{Handle, Server};

/// The turns of all connections of a pool.
#[derive(Debug)]
pub(crate) struct Turns {
    freed: Condvar,
    lock: Mutex<()>,
    phases: Mutex<Phases>,
    /// On a near path each connection is as quick as its server.
    is_long_path: bool,
}

/// The right to write over one connection.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    handle: Arc<Handle>,
}

/// The points of a round trip at which connections begin to send.
#[derive(Debug)]
struct Phases {
    origin: Instant,
    is_taken: Vec<bool>,
}

/// Connections that have come meanwhile are seen so soon.
const LOOK_FOR_OTHERS: Duration = Duration::from_millis(25);

/// As many connections begin at points of their own. Beyond them they begin at once.
const PHASES: usize = 16;

impl Turns {
    pub(crate) fn new(is_long_path: bool) -> Self {
        let phases = Phases { origin: Instant::now(), is_taken: vec![false; PHASES] };
        Self { freed: Condvar::new(), lock: Mutex::default(), phases: Mutex::new(phases), is_long_path }
    }

    /// Waits for one of these handles over whose connection nobody writes.
    pub(crate) fn take(&self, handles: impl Fn() -> Vec<Arc<Handle>>) -> Turn<'_> {
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let handles = handles();
            let known_us = handles.iter().map(|handle| handle.server().place().confirms_in_us.load(Ordering::Relaxed));
            let least_us = known_us.filter(|us| *us > 0).min().unwrap_or(0);
            let is_free = |handle: &Arc<Handle>| {
                let (place, bytes) = (handle.server().place(), handle.server().bytes_in_flight());
                let has_room = !self.is_long_path || bytes == 0 || bytes < place.room_bytes(least_us);
                has_room && !place.is_written.load(Ordering::Relaxed)
            };
            let free: Vec<_> = handles.into_iter().filter(is_free).collect();
            if let Some(handle) = least_loaded(&free).cloned() {
                handle.server().place().is_written.store(true, Ordering::Relaxed);
                return Turn { turns: self, handle };
            }
            // Each write ends: the server takes it, or its silence ends the connection.
            (guard, _) = self.freed.wait_timeout(guard, LOOK_FOR_OTHERS).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A write was confirmed, so long after it was sent over the connection of this place.
    pub(crate) fn confirmed(&self, place: &Place, took: Duration) {
        place.confirmed(took);
        // Who looks at the connections holds the lock.
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        self.freed.notify_one();
    }

    /// How long a connection waits before its first data, over a path of this round trip.
    ///
    /// TCP sends each window of slow start as one burst. Where the bursts of several connections come together, each sees a queue, takes it
    /// for a full path, and grows slowly from there (HyStart, RFC 9406): fifteen connections over 1 Gbit/s x 228 ms stood at 1 MB for seconds.
    /// Bursts that begin apart keep their distance.
    pub(crate) fn until_phase(&self, server: &Server, rtt: Duration) -> Duration {
        if server.place().has_phase.swap(true, Ordering::Relaxed) {
            return Duration::ZERO;
        }
        self.phases.lock().unwrap_or_else(PoisonError::into_inner).next(Instant::now(), rtt)
    }
}

/// The handle whose connection has the fewest bytes under way: one that is slow holds up nobody else.
pub(crate) fn least_loaded(handles: &[Arc<Handle>]) -> Option<&Arc<Handle>> {
    handles.iter().min_by_key(|handle| handle.server().bytes_in_flight())
}

impl Turn<'_> {
    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let guard = self.turns.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.handle.server().place().is_written.store(false, Ordering::Relaxed);
        drop(guard);
        self.turns.freed.notify_one();
    }
}

impl Phases {
    /// Takes the free phase that comes first.
    fn next(&mut self, now: Instant, rtt: Duration) -> Duration {
        let within = now.duration_since(self.origin).as_nanos() % rtt.as_nanos().max(1);
        let until = |phase: usize| {
            let at = rtt.as_nanos() * phase as u128 / PHASES as u128;
            (at + rtt.as_nanos() - within) % rtt.as_nanos().max(1)
        };
        let free = (0..PHASES).filter(|phase| !self.is_taken[*phase]);
        let Some(phase) = free.min_by_key(|phase| until(*phase)) else { return Duration::ZERO };
        self.is_taken[phase] = true;
        Duration::from_nanos(u64::try_from(until(phase)).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_come_together_begin_a_sixteenth_of_a_round_trip_apart() {
        let (origin, rtt) = (Instant::now(), Duration::from_millis(160));
        let mut phases = Phases { origin, is_taken: vec![false; PHASES] };
        let at = |ms| origin + Duration::from_millis(ms);
        let waits: Vec<_> = (0..4).map(|_| phases.next(at(325), rtt).as_millis()).collect();
        assert_eq!(waits, [5, 15, 25, 35]);
        assert_eq!(phases.next(at(485), rtt).as_millis(), 45, "the next ones begin between those of before");
        let rest = (5..PHASES).map(|_| phases.next(at(485), rtt)).max();
        assert!(rest < Some(rtt));
        assert_eq!(phases.next(at(485), rtt), Duration::ZERO, "all are taken");
    }
}
