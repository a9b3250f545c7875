//! Times pings on the way: ours for the lanes, the peer's for the peer.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use haul_kept::sync::lock;
use haul_wire::control::OneWay;

/// The times of the pings of one session.
#[derive(Debug)]
pub(crate) struct WayTimes {
    began: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The quickest of the peer's last pings, to be told to it.
    heard: Option<OneWay>,
    is_told: bool,
    /// The time of our last ping of which the peer has told.
    ours: Option<OneWay>,
    pinged: Option<Instant>,
}

impl WayTimes {
    pub(crate) fn new(now: Instant) -> Self {
        Self { began: now, state: Mutex::default() }
    }

    fn us(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.began).as_micros()).unwrap_or(u64::MAX)
    }

    /// A ping of the peer arrived.
    pub(crate) fn on_ping(&self, now: Instant, sent_us: u64, took: Option<OneWay>) {
        let took_us = i64::try_from(i128::from(self.us(now)) - i128::from(sent_us)).unwrap_or(i64::MIN);
        let mut state = lock(&self.state);
        let was_quicker = state.heard.is_some_and(|heard| !state.is_told && heard.took_us < took_us);
        if !was_quicker {
            (state.heard, state.is_told) = (Some(OneWay { sent_us, took_us }), false);
        }
        state.ours = took.or(state.ours);
    }

    /// A ping of ours leaves. Returns its time, and what it tells of the peer's.
    pub(crate) fn leaves(&self, now: Instant) -> (u64, Option<OneWay>) {
        let mut state = lock(&self.state);
        (state.pinged, state.is_told) = (Some(now), true);
        (self.us(now), state.heard)
    }

    /// Whether a ping is due beside other words. The first one leaves with the first words, before anything is sent that could delay it.
    pub(crate) fn is_due(&self, now: Instant, every: Duration) -> bool {
        lock(&self.state).pinged.is_none_or(|pinged| now.saturating_duration_since(pinged) >= every)
    }

    /// How long the last ping of ours took of which the peer has told.
    pub(crate) fn ours(&self) -> Option<OneWay> {
        lock(&self.state).ours
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_learns_how_long_its_own_pings_take_by_clocks_that_began_at_other_times() {
        let now = Instant::now();
        let after = |ms| now + Duration::from_millis(ms);
        let (near, far) = (WayTimes::new(now), WayTimes::new(after(5)));
        let (sent_us, took) = near.leaves(after(100));
        assert_eq!((sent_us, took), (100_000, None));
        far.on_ping(after(130), sent_us, took);
        let (sent_us, took) = far.leaves(after(200));
        near.on_ping(after(210), sent_us, took);
        assert_eq!(near.ours(), Some(OneWay { sent_us: 100_000, took_us: 25_000 }));
        assert_eq!(far.ours(), None);
        near.on_ping(after(300), u64::MAX, None);
        assert_eq!(near.ours().map(|ours| ours.sent_us), Some(100_000), "what is not told again still holds");
        let every = Duration::from_millis(250);
        assert!(!near.is_due(after(349), every) && near.is_due(after(350), every));
    }
}
