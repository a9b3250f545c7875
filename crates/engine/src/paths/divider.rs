//! One limit over several paths.

use alloc::vec;
use alloc::vec::Vec;

/// Divides the user's rate limit equally; what a path cannot use goes to the others (max-min fairness).
///
/// `can_use` has each path's most; `None`: unknown. A rest for no path is divided equally: a path may carry more than is known.
pub fn divide_rate(rate_bytes_per_s: u64, can_use: &[Option<u64>]) -> Vec<u64> {
    let mut parts = vec![0; can_use.len()];
    let mut order: Vec<(u64, usize)> =
        can_use.iter().enumerate().map(|(at, can_use)| (can_use.unwrap_or(u64::MAX), at)).collect();
    order.sort_unstable();
    let mut left = rate_bytes_per_s;
    for (turn, (can_use, at)) in order.iter().enumerate() {
        let part = (left / (order.len() - turn) as u64).min(*can_use);
        parts[*at] = part;
        left -= part;
    }
    for (turn, part) in parts.iter_mut().enumerate() {
        let more = left / (can_use.len() - turn) as u64;
        *part += more;
        left -= more;
    }
    parts
}

/// Divides the user's lanes equally, the first paths with one more, and each with at least one.
pub fn divide_lanes(lanes: u16, paths: u16) -> Vec<u16> {
    let paths = paths.max(1);
    (0..paths).map(|path| (lanes / paths + u16::from(path < lanes % paths)).max(1)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_have_equal_parts_and_what_one_cannot_use_goes_to_the_others() {
        assert_eq!(divide_rate(900, &[None, None, None]), [300, 300, 300]);
        assert_eq!(divide_rate(900, &[Some(100), None, None]), [100, 400, 400]);
        assert_eq!(divide_rate(900, &[Some(600), Some(100), Some(350)]), [450, 100, 350]);
        assert_eq!(divide_rate(900, &[]), []);
    }

    #[test]
    fn what_nobody_can_use_is_free_for_all() {
        assert_eq!(divide_rate(900, &[Some(100), Some(200)]), [400, 500]);
    }

    #[test]
    fn each_path_has_a_lane_at_least() {
        assert_eq!(divide_lanes(8, 2), [4, 4]);
        assert_eq!(divide_lanes(10, 3), [4, 3, 3]);
        assert_eq!(divide_lanes(1, 3), [1, 1, 1]);
        assert_eq!(divide_lanes(256, 1), [256]);
    }

    proptest! {
        #[test]
        fn the_parts_are_the_whole(rate: u64, can_use in prop::collection::vec(prop::option::of(any::<u64>()), 1..8)) {
            let parts = divide_rate(rate, &can_use);
            prop_assert_eq!(parts.iter().map(|part| u128::from(*part)).sum::<u128>(), u128::from(rate));
        }
    }
}
