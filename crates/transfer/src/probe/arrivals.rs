//! Computes a rate from the times at which bytes arrived.

use std::time::{Duration, Instant};

use haul_wire::control::{LaneTime, ProbeArrived};

#[derive(Default)]
pub(super) struct Arrivals {
    first: Option<Instant>,
    /// Pairs of the time since the first byte, and the bytes until then.
    points: Vec<(Duration, u64)>,
}

const POINT_EVERY: Duration = Duration::from_millis(50);

/// 60 s / 50 ms = 1200 points, and some while the last bytes come in: 64 KiB.
const POINTS_MAX: usize = 4096;

impl Arrivals {
    pub(super) fn note(&mut self, now: Instant, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let at = now.duration_since(*self.first.get_or_insert(now));
        match self.points.last() {
            Some((last, _)) if at < *last + POINT_EVERY => {}
            Some((_, before)) if *before == bytes => {}
            _ if self.points.len() >= POINTS_MAX => {}
            _ => self.points.push((at, bytes)),
        }
    }

    pub(super) fn elapsed(&self, now: Instant) -> Option<Duration> {
        self.first.map(|first| now.duration_since(first))
    }

    /// Sums up a probe that was to send for `time`.
    pub(super) fn summary(&self, time: Duration, arrived_bytes: u64, lanes: LaneTime) -> ProbeArrived {
        let elapsed = self.points.last().map_or(Duration::ZERO, |(at, _)| *at);
        ProbeArrived {
            time: lanes,
            arrived_bytes,
            elapsed_us: u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX),
            steady_bytes_per_s: self.steady_bytes_per_s(time),
            marks_seen: 0,
        }
    }

    /// Counts from half of the time, after the ramp, to its end: later bytes come from queues. A probe that ended early counts
    /// as a whole.
    fn steady_bytes_per_s(&self, time: Duration) -> u64 {
        let within: Vec<&(Duration, u64)> = self.points.iter().filter(|(at, _)| *at <= time).collect();
        let Some((to, bytes_then)) = within.last() else { return 0 };
        let half = within.iter().find(|(at, _)| *at >= time / 2).filter(|(at, _)| *to >= *at + time / 4);
        let (from, bytes_before) = half.or(within.first()).map_or((Duration::ZERO, 0), |(at, bytes)| (*at, *bytes));
        let us = to.saturating_sub(from).as_micros();
        if us == 0 {
            return 0;
        }
        u64::try_from(u128::from(bytes_then.saturating_sub(bytes_before)) * 1_000_000 / us).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(ms: u64, rate: impl Fn(u64) -> u64) -> Arrivals {
        let (mut arrivals, start) = (Arrivals::default(), Instant::now());
        let mut bytes = 0;
        for at in 0..ms {
            bytes += rate(at);
            arrivals.note(start + Duration::from_millis(at), bytes);
        }
        arrivals
    }

    #[track_caller]
    fn check(arrivals: &Arrivals, expected: u64) {
        let summary = arrivals.summary(Duration::from_secs(4), 0, LaneTime::default());
        let off = summary.steady_bytes_per_s.abs_diff(expected);
        assert!(off * 100 <= expected, "{} instead of {expected}", summary.steady_bytes_per_s);
    }

    #[test]
    fn the_ramp_and_what_stood_in_queues_do_not_count() {
        check(&seen(4_000, |_| 100), 100_000);
        check(&seen(4_000, |at| (at / 10).min(100)), 100_000);
        // The queue empties after the time.
        check(&seen(6_000, |at| if at < 4_000 { 100 } else { 20 }), 100_000);
    }

    #[test]
    fn what_ended_early_counts_as_far_as_it_came() {
        check(&seen(1_000, |_| 100), 100_000);
        check(&seen(2_200, |_| 100), 100_000);
    }

    #[test]
    fn nothing_has_no_rate_and_any_length_is_bounded() {
        let nothing = Arrivals::default().summary(Duration::from_secs(4), 0, LaneTime::default());
        assert_eq!(nothing, ProbeArrived::default());
        let once = seen(1, |_| 7).summary(Duration::from_secs(4), 7, LaneTime::default());
        assert_eq!((once.steady_bytes_per_s, once.elapsed_us), (0, 0));
        assert_eq!(seen(400_000, |_| 1).points.len(), POINTS_MAX);
    }
}
