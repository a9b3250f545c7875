//! Whether what is lost while the lanes still grow is lost by chance.
//!
//! Chance takes the same share of twice the rate. Whoever is short of room loses nothing first, and then a growing share. So the
//! ramp itself is the trial that [`super::limiter`] would have to make after it: on 1 Gbit/s x 300 ms the lanes stood at a third
//! of the path for two seconds until then.

use super::estimate::{Estimator, Phase, per_second};
use super::limiter::queue_us_most;
use super::sample::Step;

/// Adds up round trips of the ramp.
#[derive(Clone, Debug, Default)]
pub(super) struct RampLosses {
    /// The round trips before, at lower rates.
    earlier: Share,
    /// The latest round trips.
    now: Share,
    are_chance: bool,
    is_over: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Share {
    us: u64,
    delivered_bytes: u64,
    resent_bytes: u64,
}

impl Share {
    fn add(&mut self, us: u64, delivered_bytes: u64, resent_bytes: u64) {
        self.us = self.us.saturating_add(us);
        self.delivered_bytes = self.delivered_bytes.saturating_add(delivered_bytes);
        self.resent_bytes = self.resent_bytes.saturating_add(resent_bytes);
    }

    fn ppm(&self) -> u128 {
        let [resent, delivered] = [self.resent_bytes, self.delivered_bytes].map(u128::from);
        resent * 1_000_000 / (resent + delivered).max(1)
    }

    fn bytes_per_s(&self) -> u64 {
        per_second(self.delivered_bytes, self.us)
    }

    fn tells(&self, mss_bytes: u32) -> bool {
        self.resent_bytes >= PACKETS * u64::from(mss_bytes)
    }
}

impl RampLosses {
    /// Takes one step in, after the estimator. A queue, or the end of the ramp, ends the trial.
    pub(super) fn on_step(&mut self, step: &Step, estimator: &Estimator) {
        let is_ramp = estimator.now.phase == Phase::Ramp;
        let has_queue = estimator.now.queueing_us > queue_us_most(estimator.now.rtt_min_us);
        self.is_over |= !is_ramp || has_queue || estimator.is_source_limited();
        if self.is_over {
            return;
        }
        self.now.add(step.us, step.delivered_bytes, step.resent_bytes);
        let mss_bytes = estimator.mss_bytes;
        if !self.earlier.tells(mss_bytes) {
            if self.now.tells(mss_bytes) {
                self.earlier = core::mem::take(&mut self.now);
            }
        } else if self.now.tells(mss_bytes) {
            let (before, now) = (self.earlier.ppm(), self.now.ppm());
            let has_doubled = self.now.bytes_per_s() / 2 >= self.earlier.bytes_per_s();
            let is_same_share = now <= SAME * before && before <= SAME * now;
            self.are_chance = has_doubled && is_same_share && now <= CHANCE_PPM_MOST;
            if has_doubled {
                self.earlier = core::mem::take(&mut self.now);
            }
        }
    }

    /// Whether they are, as far as was seen.
    pub(super) fn are_chance(&self) -> bool {
        self.are_chance
    }
}

/// With fewer the share says little. Doubled, it takes 9.4 % longer (1 Gbit/s x 300 ms, loses 5e-3).
const PACKETS: u64 = 12;

/// If chance takes 12 packets, the next time it takes 6 to 24.
const SAME: u128 = 2;

/// More is no chance on a path that anybody uses.
const CHANCE_PPM_MOST: u128 = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether losses are chance in ten round trips of 100 ms. Each has twice the bytes of the one before, the first 1 MB. `lost_ppm`
    /// says what each loses.
    fn are_chance(rtt_us: u32, lost_ppm: impl Fn(u32) -> u64) -> bool {
        let (mut estimator, mut losses) = (Estimator::new(100_000), RampLosses::default());
        for nth in 0..10 {
            let delivered_bytes = 1_000_000u64 << nth;
            let resent_bytes = delivered_bytes * lost_ppm(nth) / 1_000_000;
            let (at_us, us, sent_bytes) = (u64::from(nth + 1) * 100_000, 100_000, delivered_bytes + resent_bytes);
            let step = Step { at_us, us, delivered_bytes, sent_bytes, resent_bytes, rtt_us, ..Step::default() };
            estimator.on_step(&step);
            losses.on_step(&step, &estimator);
        }
        losses.are_chance()
    }

    #[test]
    fn the_same_share_of_twice_the_rate_is_lost_by_chance() {
        assert!(are_chance(100_000, |_| 5_000));
        assert!(are_chance(100_000, |_| 500));
        assert!(!are_chance(100_000, |_| 0));
        assert!(!are_chance(100_000, |_| 50_000), "others leave no room");
        assert!(!are_chance(100_000, |nth| if nth < 7 { 0 } else { 10_000 << nth }), "a policer's bucket is empty");
        assert!(!are_chance(100_000, |nth| 500 << (2 * nth).min(20)), "a short queue overflows more and more");
        assert!(!are_chance(140_000, |_| 5_000), "a queue stands");
    }
}
