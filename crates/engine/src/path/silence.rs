//! Times in which nothing comes through although there is something to send: a link that is down, a peer that stands still.
//!
//! Readings then, and shortly after, tell nothing about the path: the round-trip time is old, packets are late, and all is sent
//! again.

use super::sample::Step;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Silence {
    silent_us: u64,
    settling: Option<Settling>,
}

#[derive(Clone, Copy, Debug)]
struct Settling {
    us: u64,
    least_us: u64,
    delivered_bytes: u64,
}

impl Silence {
    /// Takes one step in; true while it tells nothing.
    ///
    /// `rtt_us` is the smoothed round-trip time before, `rtt_min_us` the smallest.
    pub(super) fn on_step(&mut self, step: &Step, rtt_us: u32, rtt_min_us: u32) -> bool {
        if step.delivered_bytes > 0 {
            if core::mem::take(&mut self.silent_us) > silent_us_most(rtt_us) {
                let least_us = (SETTLE_ROUND_TRIPS * u64::from(rtt_min_us)).max(SETTLE_US_MIN);
                self.settling = Some(Settling { us: 0, least_us, delivered_bytes: 0 });
            } else {
                self.settling = self.settling.and_then(|settling| settling.after(step));
            }
        } else if !step.lanes.is_empty() {
            self.silent_us = self.silent_us.saturating_add(step.us);
        }
        self.silent_us > silent_us_most(rtt_us) || self.settling.is_some()
    }
}

impl Silence {
    /// The time without anything through, beyond a pause.
    pub(super) fn outage_us(&self, rtt_us: u32) -> Option<u64> {
        (self.silent_us >= OUTAGE_US_MIN.max(OUTAGE_ROUND_TRIPS * u64::from(rtt_us))).then_some(self.silent_us)
    }
}

impl Settling {
    fn after(self, step: &Step) -> Option<Self> {
        let us = self.us.saturating_add(step.us);
        let delivered_bytes = self.delivered_bytes.saturating_add(step.delivered_bytes);
        let enough_bytes = SETTLE_SEGMENTS * u64::from(step.mss_bytes) * step.lanes.len() as u64;
        let is_settled = us >= SETTLE_US_MAX || (us >= self.least_us && delivered_bytes >= enough_bytes);
        (!is_settled).then_some(Self { us, delivered_bytes, ..self })
    }
}

/// Acknowledgements may come once a round trip.
fn silent_us_most(rtt_us: u32) -> u64 {
    (2 * u64::from(rtt_us)).max(SILENT_US_MIN)
}

/// Two kernel timeouts are mostly shorter (RFC 6298).
const OUTAGE_US_MIN: u64 = 1_000_000;
/// A timeout alone takes three over a satellite.
const OUTAGE_ROUND_TRIPS: u64 = 5;
/// A busy host may miss two samples.
const SILENT_US_MIN: u64 = 250_000;
/// Slow start fills a path in so many.
const SETTLE_ROUND_TRIPS: u64 = 8;
const SETTLE_US_MIN: u64 = 500_000;
/// A late packet is forgotten by an eighth with each sample (RFC 6298), one for two segments of a lane.
const SETTLE_SEGMENTS: u64 = 64;
/// A slower path is taken as it is.
const SETTLE_US_MAX: u64 = 10_000_000;

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::super::sample::LaneStep;
    use super::*;

    fn step(delivered_bytes: u64, busy: bool) -> Step {
        let lanes = if busy { vec![LaneStep::default()] } else { vec![] };
        Step { us: 100_000, lanes, delivered_bytes, ..Step::default() }
    }

    fn untold(steps: impl IntoIterator<Item = Step>, rtt_us: u32) -> usize {
        let mut silence = Silence::default();
        steps.into_iter().filter(|step| silence.on_step(step, rtt_us, rtt_us)).count()
    }

    #[test]
    fn a_silence_of_a_second_is_an_outage_and_a_long_path_has_longer_pauses() {
        let outage_after = |rtt_us| {
            let mut silence = Silence::default();
            (1..100).find(|_| {
                silence.on_step(&step(0, true), rtt_us, rtt_us);
                silence.outage_us(rtt_us).is_some()
            })
        };
        assert_eq!([outage_after(20_000), outage_after(600_000)], [Some(10), Some(30)]);
        let mut silence = Silence::default();
        assert_eq!((0..30).filter(|_| silence.on_step(&step(0, true), 20_000, 20_000)).count(), 28);
        assert_eq!(silence.outage_us(20_000), Some(3_000_000));
        silence.on_step(&step(1, true), 20_000, 20_000);
        assert_eq!(silence.outage_us(20_000), None);
    }

    #[test]
    fn lanes_that_have_nothing_to_send_are_not_silent() {
        assert_eq!(untold((0..50).map(|_| step(0, false)).chain([step(1, true)]), 10_000), 0);
    }

    #[test]
    fn clumps_of_acknowledgements_are_no_silence() {
        let clumps = (0..60).map(|at| step(u64::from(at % 4 == 0), true));
        assert_eq!(untold(clumps, 200_000), 0);
    }

    #[test]
    fn lanes_that_had_few_samples_since_still_tell_the_round_trip_times_of_before() {
        let after = |delivered_bytes| (0..1_000).map(move |_| Step { mss_bytes: 1_000, ..step(delivered_bytes, true) });
        let outage = || (0..30).map(|_| step(0, true));
        assert_eq!(untold(outage().chain(after(4_000)), 20_000), 30 - 2 + 16);
        assert_eq!(untold(outage().chain(after(1)), 20_000), 30 - 2 + 100, "but not for ever");
    }

    #[test]
    fn a_silence_and_what_comes_right_after_tell_nothing() {
        let outage = (0..30).map(|_| step(0, true));
        let after = (0..30).map(|_| step(1, true));
        assert_eq!(untold(outage.chain(after), 20_000), 30 - 2 + 5);
    }
}
