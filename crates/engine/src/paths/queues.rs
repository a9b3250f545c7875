//! Whether two paths see the same queue.
//!
//! In one queue delays have the same size, and change together (cf. RFC 8382), also from reading to reading: queues of two links
//! may grow in the same seconds, but not the same tenths.

use alloc::vec::Vec;

use crate::path::square_root;

/// Whether delays of two paths at the same moments are of one queue.
pub(super) fn are_one(delays_us: &[(u32, u32)]) -> bool {
    let standing = delays_us.iter().filter(|(one, other)| (*one).min(*other) >= STANDING_US).count();
    if delays_us.len() < COUNT_LEAST || standing * 4 < delays_us.len() * 3 {
        return false;
    }
    let delays: Vec<(f64, f64)> = delays_us.iter().map(|(one, other)| (f64::from(*one), f64::from(*other))).collect();
    let steps: Vec<(f64, f64)> = delays.windows(2).map(|pair| (pair[1].0 - pair[0].0, pair[1].1 - pair[0].1)).collect();
    let (one, other) = means(&delays);
    one.min(other) >= ALIKE * one.max(other)
        && correlation(&delays) >= TOGETHER
        && correlation(&steps) >= STEPS_TOGETHER
}

fn means(pairs: &[(f64, f64)]) -> (f64, f64) {
    let (one, other) = pairs.iter().fold((0.0, 0.0), |(one, other), pair| (one + pair.0, other + pair.1));
    (one / pairs.len().max(1) as f64, other / pairs.len().max(1) as f64)
}

/// Pearson's coefficient; 0 where one never changes.
fn correlation(pairs: &[(f64, f64)]) -> f64 {
    let (one, other) = means(pairs);
    let (mut both, mut squares, mut other_squares) = (0.0, 0.0, 0.0);
    for (a, b) in pairs.iter().map(|pair| (pair.0 - one, pair.1 - other)) {
        (both, squares, other_squares) = (both + a * b, squares + a * a, other_squares + b * b);
    }
    let product = square_root(squares) * square_root(other_squares);
    if product > 0.0 { both / product } else { 0.0 }
}

/// A smaller delay is jitter. Doubled, the rate falls 9.3 % (one link).
const STANDING_US: u32 = 2_000;
/// A few readings agree by chance. Doubled, others keep 14 points less (one link of 100 x 20, a cubic flow).
const COUNT_LEAST: usize = 20;
/// Shorter mean delay by longer one, at least.
const ALIKE: f64 = 0.6;
/// Two links of 500 Mbit/s x 10 ms reached this in 2 % of all stretches of 3 s, two paths over one link in all (simulated).
const TOGETHER: f64 = 0.7;
/// Doubled, others keep 14 points less (one link of 100 x 20, a cubic flow).
const STEPS_TOGETHER: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::*;

    fn sawtooth(period: u32, phase: u32) -> impl Iterator<Item = u32> {
        (0..30).map(move |at| 5_000 + (at + phase) % period * 1_500)
    }

    fn check(one: impl Iterator<Item = u32>, other: impl Iterator<Item = u32>, expected: bool) {
        let delays: Vec<(u32, u32)> = one.zip(other).collect();
        assert_eq!(are_one(&delays), expected, "{delays:?}");
    }

    #[test]
    fn delays_that_change_together_are_of_one_queue() {
        check(sawtooth(10, 0), sawtooth(10, 0).map(|us| us + 700), true);
        check(sawtooth(10, 0), sawtooth(10, 1), false);
        check(sawtooth(10, 0), sawtooth(7, 3), false);
        check(sawtooth(10, 0), sawtooth(10, 0).map(|us| 3 * us), false);
    }

    #[test]
    fn queues_that_grow_in_the_same_seconds_and_not_in_the_same_tenths_are_two() {
        let uneven = |phase: u32| (0..30).map(move |at| 5_000 + 300 * at + (at + phase) % 2 * 900);
        check(uneven(0), uneven(1), false);
        check(uneven(0), uneven(0), true);
    }

    #[test]
    fn no_queue_is_nobodys() {
        check(sawtooth(10, 0).map(|us| us / 10), sawtooth(10, 0).map(|us| us / 10), false);
        check(sawtooth(10, 0).take(10), sawtooth(10, 0), false);
        check((0..30).map(|_| 5_000), (0..30).map(|_| 5_000), false);
    }
}
