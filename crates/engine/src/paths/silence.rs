//! A path that is dead: data is under way and nothing is acknowledged, while another path delivers.
//!
//! TCP takes minutes to give up; other paths carry the units at once. If none delivers, the cause is elsewhere (this host, the
//! peer, a common cable), and none is cut.

use super::arrived::Arrival;

/// How a path was seen to be dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// No acknowledgement came, although data was under way.
    Silent {
        /// Time since the last acknowledgement.
        us: u64,
    },
    /// The lanes repeat the same segments again and again.
    Repeats,
}
use crate::path::TCP_RTO_MIN_US;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Silence {
    silent_us: u64,
    heard_us: u64,
    timeouts: u8,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    pub(super) rtt_us: u32,
    pub(super) deviation_us: u32,
}

impl Silence {
    /// Takes in what arrived. `timeouts`: see [`super::PathReading::timeouts`].
    pub(super) fn on_arrival(&mut self, arrival: Arrival, timeouts: u8) {
        // A stopped session hears everything late.
        let us = arrival.us.min(INTERVAL_US_MAX);
        self.timeouts = timeouts;
        self.heard_us = if arrival.bytes > 0 { 0 } else { self.heard_us.saturating_add(us) };
        let is_silent = arrival.bytes == 0 && arrival.in_flight_bytes > 0;
        self.silent_us = if is_silent { self.silent_us.saturating_add(us) } else { 0 };
    }

    /// The death, if another path delivered `other_heard_us` ago.
    pub(super) fn death(&self, timing: Timing, other_heard_us: u64) -> Option<Death> {
        let most_us = silent_us_most(timing);
        if self.silent_us == 0 || other_heard_us > most_us / 2 {
            return None;
        }
        if self.silent_us >= most_us {
            return Some(Death::Silent { us: self.silent_us });
        }
        (self.timeouts >= TIMEOUTS_IN_A_ROW).then_some(Death::Repeats)
    }

    /// Half of the time has passed: a resting path should carry data as a witness.
    pub(super) fn is_doubtful(&self, timing: Timing) -> bool {
        self.silent_us >= silent_us_most(timing) / 2
    }

    pub(super) fn heard_us(&self) -> u64 {
        self.heard_us
    }
}

/// Three retransmission timeouts (RFC 6298) with Linux's least deviation.
fn silent_us_most(timing: Timing) -> u64 {
    let timeout_us =
        u64::from(timing.rtt_us) + (4 * u64::from(timing.deviation_us)).clamp(TCP_RTO_MIN_US, DEVIATIONS_US_MAX);
    (TIMEOUTS * timeout_us).max(SILENT_US_MIN)
}

/// Doubled, the scenario `a_path_that_blackholes_is_found_in_a_second_and_comes_back` fails.
const TIMEOUTS: u64 = 3;
/// A changing queue deviates for a moment.
const DEVIATIONS_US_MAX: u64 = 1_000_000;
/// A radio cell or a switch's tree (RSTP) changes in less. Doubled, the scenario
/// `a_path_that_blackholes_is_found_in_a_second_and_comes_back` fails.
const SILENT_US_MIN: u64 = 1_000_000;
/// Three readings that failed.
const INTERVAL_US_MAX: u64 = 300_000;
/// Three losses in a row are no chance.
const TIMEOUTS_IN_A_ROW: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    const NEAR: Timing = Timing { rtt_us: 20_000, deviation_us: 2_000 };

    fn quiet(in_flight_bytes: u64) -> Arrival {
        Arrival { us: 100_000, bytes: 0, in_flight_bytes }
    }

    fn dies_after(timing: Timing, arrival: Arrival, timeouts: u8, other_heard_us: u64) -> Option<usize> {
        let mut silence = Silence::default();
        silence.on_arrival(Arrival { bytes: 1, ..arrival }, 0);
        (1..=100).find(|_| {
            silence.on_arrival(arrival, timeouts);
            silence.death(timing, other_heard_us).is_some()
        })
    }

    #[test]
    fn a_path_is_dead_after_a_second_or_three_timeouts() {
        assert_eq!(dies_after(NEAR, quiet(1), 0, 0), Some(10));
        assert_eq!(dies_after(Timing { rtt_us: 80_000, deviation_us: 20_000 }, quiet(1), 0, 0), Some(10));
        assert_eq!(dies_after(Timing { rtt_us: 228_000, deviation_us: 20_000 }, quiet(1), 0, 0), Some(13));
        assert_eq!(dies_after(NEAR, quiet(1), TIMEOUTS_IN_A_ROW, 0), Some(1));
    }

    #[test]
    fn a_path_lives_while_it_has_nothing_to_send_or_nobody_else_delivers() {
        assert_eq!(dies_after(NEAR, quiet(0), 0, 0), None);
        assert_eq!(dies_after(NEAR, quiet(1), 0, 600_000), None);
        assert_eq!(dies_after(NEAR, Arrival { bytes: 1, ..quiet(1) }, 0, 0), None);
    }

    #[test]
    fn a_session_that_was_stopped_for_an_hour_has_seen_no_silence() {
        let mut silence = Silence::default();
        silence.on_arrival(Arrival { us: 3_600_000_000, ..quiet(1) }, 0);
        assert_eq!(silence.death(NEAR, 0), None);
    }
}
