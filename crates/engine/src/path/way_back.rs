//! What stands on the way back: acknowledgements that wait delay nobody's data.
//!
//! A round trip has two ways. Where others fill the uplink, or acknowledgements are more than it carries, they wait there, and the round-trip
//! time grows as if the lanes had made a queue. The clocks of both hosts tell the ways apart: the time on the way out, by two clocks, changes
//! with the queue there alone (RFC 6817, section 2.1.1).

use alloc::collections::VecDeque;

use haul_wire::control::OneWay;

/// Gathers reports of the way out.
#[derive(Clone, Debug, Default)]
pub(super) struct WayBack {
    last_sent_us: Option<u64>,
    /// The least time on the way out in the span before, and in this one.
    least_us: [Option<i64>; 2],
    span_began_us: u64,
    /// The first report: when we came.
    first_us: Option<i64>,
    recent: VecDeque<Report>,
}

#[derive(Clone, Copy, Debug)]
struct Report {
    at_us: u64,
    /// Longer than the least on the way out.
    out_us: u32,
    /// The rest of what the round trip is longer than the least.
    back_us: u32,
}

impl WayBack {
    /// Takes a report in, which may be the last one again. `queueing_us`: by how much the round-trip time is longer than the smallest.
    pub(super) fn on_report(&mut self, at_us: u64, report: OneWay, queueing_us: u32) {
        if self.last_sent_us.replace(report.sent_us) == Some(report.sent_us) {
            return;
        }
        self.first_us.get_or_insert(report.took_us);
        // Quartz clocks drift apart by some 50 us in a second, so that no time is the least for ever.
        if at_us.saturating_sub(self.span_began_us) > SPAN_US {
            (self.least_us, self.span_began_us) = ([self.least_us[1], None], at_us);
        }
        self.least_us[1] = Some(self.least_us[1].map_or(report.took_us, |least| least.min(report.took_us)));
        let late_us = report.took_us.saturating_sub(self.least().unwrap_or(report.took_us));
        let out_us = u32::try_from(late_us).unwrap_or(u32::MAX);
        if self.recent.len() == REPORTS {
            self.recent.pop_front();
        }
        self.recent.push_back(Report { at_us, out_us, back_us: queueing_us.saturating_sub(out_us) });
    }

    fn least(&self) -> Option<i64> {
        self.least_us.into_iter().flatten().min()
    }

    /// The queue on the way out, if one stands on the way back: the longer of the last two readings. `None`: all of a queue is on the way out, as far
    /// as is known.
    pub(super) fn queue_out_us(&self, at_us: u64, rtt_min_us: u32) -> Option<u32> {
        let least_us = (rtt_min_us / 20).max(BACK_US_MIN);
        let oldest = self.recent.front().filter(|_| self.recent.len() == REPORTS)?;
        let is_new = at_us.saturating_sub(oldest.at_us) < FRESH_US;
        let stands = is_new && self.recent.iter().all(|report| report.back_us > least_us);
        stands.then(|| self.recent.iter().rev().take(2).map(|report| report.out_us).max().unwrap_or(0))
    }

    /// By how much the way out has become shorter than it was when we came; `None` before that is known.
    pub(super) fn fell_by_us(&self) -> Option<u32> {
        let (first, least) = self.first_us.zip(self.least())?;
        Some(u32::try_from(first.saturating_sub(least)).unwrap_or(u32::MAX))
    }
}

/// A queue on the way back is believed after this many reports in a row: a second of them.
const REPORTS: usize = 4;
/// Reports come four times a second. Where they come that late, nothing is known of now.
const FRESH_US: u64 = 3_000_000;
/// A shorter delay is jitter, as for the queue on the way out (`pacing::STOOD_US_MIN`).
const BACK_US_MIN: u32 = 5_000;
/// In twice this time clocks that differ by 50 millionths drift by 6 ms.
const SPAN_US: u64 = 60_000_000;

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    /// A report each 250 ms: the time on the way out, and the queueing of the round trip.
    fn after(reports: &[(i64, u32)]) -> (WayBack, u64) {
        let mut way = WayBack::default();
        let mut at_us = 0;
        for (took_us, queueing_us) in reports {
            at_us += 250_000;
            way.on_report(at_us, OneWay { sent_us: at_us, took_us: *took_us }, *queueing_us);
        }
        (way, at_us)
    }

    #[test]
    fn a_queue_on_the_way_back_is_told_from_one_on_the_way_out() {
        let far_clock = -7_000_000_000;
        let (way, at_us) = after(&[(far_clock, 60_000); 6]);
        assert_eq!(way.queue_out_us(at_us, 30_000), Some(0), "all of it is on the way back");
        let both = [(far_clock, 0), (far_clock + 20_000, 90_000), (far_clock + 30_000, 90_000)];
        let (way, at_us) = after(&[&both[..], &[(far_clock + 25_000, 90_000); 2]].concat());
        assert_eq!(way.queue_out_us(at_us, 30_000), Some(25_000));
        let (way, at_us) = after(&[&[(far_clock, 0)][..], &[(far_clock + 60_000, 61_000); 6]].concat());
        assert_eq!(way.queue_out_us(at_us, 30_000), None, "it is on the way out");
    }

    #[test]
    fn what_is_old_or_said_twice_tells_nothing() {
        let (mut way, at_us) = after(&[(0, 60_000); 3]);
        way.on_report(at_us, OneWay { sent_us: at_us, took_us: 0 }, 60_000);
        assert_eq!(way.queue_out_us(at_us, 30_000), None, "there are three reports");
        let (way, at_us) = after(&[(0, 60_000); 4]);
        assert_eq!(way.queue_out_us(at_us + FRESH_US, 30_000), None);
    }

    #[test]
    fn the_way_out_becomes_shorter_when_others_leave_and_clocks_may_say_anything() {
        let (way, _) = after(&[(80_000, 0), (90_000, 0), (40_000, 0)]);
        assert_eq!(way.fell_by_us(), Some(40_000));
        let (way, at_us) = after(&[(i64::MAX, 0), (i64::MIN, 0), (i64::MAX, u32::MAX), (i64::MIN, 0)]);
        assert_eq!((way.fell_by_us(), way.queue_out_us(at_us, 0)), (Some(u32::MAX), None));
    }

    #[test]
    fn clocks_that_drift_apart_make_no_queue() {
        let drift = |report: i64| (report * 250_000 / 20_000, 0);
        let reports: Vec<(i64, u32)> = (0..4 * 3_600).map(drift).collect();
        let (way, _) = after(&reports);
        assert!(way.recent.iter().all(|report| report.out_us < 8_000), "{way:?}");
    }
}
