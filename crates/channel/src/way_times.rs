//! Times the pings of the peer on the way.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use haul_engine::path::OneWay;
use haul_kept::sync::lock;

#[derive(Debug)]
pub(crate) struct WayTimes {
    began: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    heard: Option<OneWay>,
    pinged: Option<Instant>,
}

impl WayTimes {
    pub(crate) fn new(now: Instant) -> Self {
        Self { began: now, state: Mutex::default() }
    }

    fn us(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.began).as_micros()).unwrap_or(u64::MAX)
    }

    pub(crate) fn on_ping(&self, now: Instant, sent_us: u64) {
        let took_us = i64::try_from(i128::from(self.us(now)) - i128::from(sent_us)).unwrap_or(i64::MIN);
        lock(&self.state).heard = Some(OneWay { sent_us, took_us });
    }

    /// Stamps a leaving ping. Returns the time.
    pub(crate) fn leaves(&self, now: Instant) -> u64 {
        lock(&self.state).pinged = Some(now);
        self.us(now)
    }

    /// Whether a ping is due beside other words. The first leaves with the first words, before anything that could delay it.
    pub(crate) fn is_due(&self, now: Instant, every: Duration) -> bool {
        lock(&self.state).pinged.is_none_or(|pinged| now.saturating_duration_since(pinged) >= every)
    }

    pub(crate) fn heard(&self) -> Option<OneWay> {
        lock(&self.state).heard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ping_is_timed_by_clocks_that_began_at_other_times() {
        let now = Instant::now();
        let after = |ms| now + Duration::from_millis(ms);
        let (near, far) = (WayTimes::new(now), WayTimes::new(after(50)));
        near.on_ping(after(130), far.leaves(after(100)));
        assert_eq!(near.heard(), Some(OneWay { sent_us: 50_000, took_us: 80_000 }));
        near.on_ping(after(300), u64::MAX);
        assert_eq!(near.heard().map(|heard| heard.took_us), Some(i64::MIN));
        let every = Duration::from_millis(250);
        assert!(near.is_due(after(0), every) && !far.is_due(after(349), every) && far.is_due(after(350), every));
    }
}
