//! Dials lost lanes again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use haul_engine::path::AUTO_LANES_MAX;
use haul_wire::lane::index_of;

use crate::dialler::{Dialler, REDIAL_PAUSE, WAY_TIMEOUT};
use haul_kept::hook_words::Outlet;
use haul_kept::sync::lock;

/// More redials leave a lane to the others.
const MAX_REDIALS: u32 = 5;

/// The losses of a lane that stood this long count anew. While the receiver reads a large file, kernels end waiting lanes every
/// 30 s (`USER_TIMEOUT_MS`), and doors every 10 s (`HAND_OVER`).
const STOOD: Duration = Duration::from_secs(5);

/// Dials lanes again, and useful further ones.
pub struct Redialler {
    dialler: Arc<Dialler>,
    lanes: u16,
    losses: Arc<Mutex<Losses>>,
}

#[derive(Default)]
struct Losses(HashMap<u16, u32>);

impl Losses {
    fn pause_after(&mut self, lane: u16, stood: Duration) -> Option<Duration> {
        let losses = self.0.entry(lane).or_insert(0);
        if stood >= STOOD {
            *losses = 0;
        }
        *losses += 1;
        (*losses <= MAX_REDIALS).then(|| REDIAL_PAUSE * 2u32.pow(*losses - 1))
    }
}

impl Redialler {
    /// Keeps `lanes` dialled lanes.
    pub fn new(dialler: Arc<Dialler>, lanes: u16) -> Self {
        Self { dialler, lanes, losses: Arc::default() }
    }
}

impl Redialler {
    /// Redials after a pause.
    pub fn lane_lost(&mut self, lane: u16) {
        let connected = lock(&self.dialler.connected).remove(&lane);
        let stood = connected.map_or(Duration::ZERO, |connected| connected.elapsed());
        let mut pause = lock(&self.losses).pause_after(lane, stood);
        let (dialler, losses) = (Arc::clone(&self.dialler), Arc::clone(&self.losses));
        let dial_threads = self.dialler.terms.dial_threads.clone();
        let _ = dial_threads.clone().start(format!("redial-{lane}"), move || {
            while let Some(before_it) = pause {
                if !dial_threads.pause(before_it) || dialler.is_over() {
                    return;
                }
                match dialler.dial_patiently(index_of(lane), WAY_TIMEOUT) {
                    Ok(stream) => return dialler.hand_over(stream, index_of(lane)),
                    Err(_) => pause = lock(&losses).pause_after(lane, Duration::ZERO),
                }
            }
        });
    }

    /// Does [`LaneKeeper::leave_from`](haul_channel::lane_threads::LaneKeeper::leave_from).
    pub fn leave_from(&self, outlet: Outlet, lanes: &[u16]) -> bool {
        self.dialler.leave_from(outlet, lanes)
    }

    /// Limits new lanes' segments.
    pub fn shrink(&self, segment_bytes: u16) -> bool {
        self.dialler.shrink(segment_bytes);
        true
    }

    /// Dials useful lanes.
    pub fn want(&mut self, lanes: u16) {
        // The peer, too, gets no more than the user allows, or than we would open.
        let lanes = lanes.min(self.dialler.terms.carriage.lanes.unwrap_or(AUTO_LANES_MAX));
        let lanes = lanes.min(self.dialler.lanes_max().unwrap_or(lanes));
        if lanes > self.lanes {
            self.dialler.dial_more(self.lanes..lanes, None, WAY_TIMEOUT);
            self.lanes = lanes;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::mpsc::sync_channel;

    use super::*;
    use crate::dial_threads::DialThreadsOwner;
    use crate::dialler::MAX_KNOCKS;
    use crate::lane_terms::LaneTerms;
    use haul_channel::channel::Events;

    #[test]
    fn a_lost_lane_that_cannot_be_dialled_at_once_is_dialled_again() {
        let door = TcpListener::bind("127.0.0.1:0").unwrap();
        let events = Events::new();
        let dial_owner = DialThreadsOwner::new();
        let terms = LaneTerms::towards_nobody(&events, dial_owner.threads());
        let dialler = Arc::new(Dialler::new(terms, vec![door.local_addr().unwrap()]));
        let (tells, told) = sync_channel(0);
        std::thread::spawn(move || while tells.send(door.accept().unwrap().1).is_ok() {});
        Redialler::new(dialler, 1).lane_lost(0);
        for knock in 0..2 + MAX_KNOCKS {
            assert!(told.recv_timeout(Duration::from_secs(30)).is_ok(), "knock {knock}");
        }
    }

    #[test]
    fn a_lane_that_stood_is_dialled_again_however_often_it_was_lost() {
        let mut losses = Losses::default();
        let pause = |tries: u32| Some(REDIAL_PAUSE * 2u32.pow(tries));
        for _ in 0..100 {
            assert_eq!(losses.pause_after(0, STOOD), pause(0));
        }
        for tries in 1..MAX_REDIALS {
            assert_eq!(losses.pause_after(0, STOOD / 2), pause(tries));
        }
        for _ in 0..100 {
            assert_eq!(losses.pause_after(0, STOOD / 2), None);
        }
        assert_eq!(losses.pause_after(1, Duration::ZERO), pause(0));
    }

    #[test]
    fn a_session_that_is_over_leaves_no_thread_that_dials() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let events = Events::new();
        let dial_owner = DialThreadsOwner::new();
        let terms = LaneTerms::towards_nobody(&events, dial_owner.threads());
        let dialler = Arc::new(Dialler::new(terms, vec![silent.local_addr().unwrap()]));
        dialler.dial_more(0..3, None, WAY_TIMEOUT);
        let _connections: Vec<_> = (0..3).map(|_| silent.accept().unwrap()).collect();
        drop(dial_owner);
        assert_eq!(Arc::strong_count(&dialler), 1, "a thread still has it");
    }
}
