//! One bound for all lanes, as a bound for each.

use alloc::vec;
use alloc::vec::Vec;

use haul_wire::limits::MIN_CHUNK_BYTES;

use super::estimate::per_second;
use super::sample::{FIRST_WINDOW_BYTES, LaneReading};

/// The bound for each lane, so that together they use the bound for all.
///
/// With equal parts, young lanes would leave most of theirs unused. So a lane that its window holds below its part takes what it
/// can, and the others share the rest (max-min fairness). Lanes without data, or beyond the first `carrying` with only
/// acknowledgements to wait for, take nothing.
///
/// The least is two segments for each round trip, as in congestion control (RFC 5681, 3.1). The kernel keeps the moment of the
/// next packet when the bound is lifted: at a byte per second, half an hour away.
pub fn bound_per_lane(bound_bytes_per_s: u64, lanes: &[LaneReading], carrying: u16) -> u64 {
    let least = lanes.iter().map(two_segments).max().unwrap_or(1);
    let (carrying, resting) = lanes.split_at(usize::from(carrying).min(lanes.len()));
    let carrying = carrying.iter().filter(|lane| has_data(lane));
    let reach = carrying.chain(resting.iter().filter(|lane| lane.unsent_bytes > 0)).map(reach).collect();
    equal_parts(bound_bytes_per_s, reach).max(least)
}

/// The bounds of lanes with data if some have their own: the others share the rest.
pub fn beside_own_bounds(per_lane_bytes_per_s: u64, own_bytes_per_s: &[Option<u64>]) -> Vec<u64> {
    let own = |bound: &Option<u64>| bound.filter(|bound| *bound < per_lane_bytes_per_s);
    let left =
        own_bytes_per_s.iter().filter_map(own).fold(0u64, |sum, own| sum.saturating_add(per_lane_bytes_per_s - own));
    let others = own_bytes_per_s.iter().filter(|bound| own(bound).is_none()).count();
    let each = per_lane_bytes_per_s.saturating_add(left / others.max(1) as u64);
    own_bytes_per_s.iter().map(|bound| own(bound).unwrap_or(bound.map_or(each, |bound| bound.min(each)))).collect()
}

/// The bound for each lane when fewer units wait than there are lanes: in proportion to its rest, so that all end at once. With
/// equal parts a few windows would carry the last units, and the link stay idle: 1 Gbit/s x 228 ms for up to 190 ms.
///
/// `left_bytes` has what each lane has taken and not sent; `waiting_bytes` the untaken units, which count for the first lanes to
/// end.
pub fn bounds_at_end(
    bound_bytes_per_s: u64,
    lanes: &[LaneReading],
    left_bytes: &[u64],
    waiting_bytes: &[u64],
) -> Vec<u64> {
    let least = lanes.iter().map(two_segments).max().unwrap_or(1);
    let mut left: Vec<(usize, u64)> = left_bytes.iter().copied().enumerate().take(lanes.len()).collect();
    left.retain(|(_, left)| *left > 0);
    left.sort_unstable_by_key(|(_, left)| *left);
    for ((_, left), waiting) in left.iter_mut().zip(waiting_bytes) {
        *left = left.saturating_add(*waiting);
    }
    // First the lanes furthest below their part; the others share what those leave.
    let slowness = |(lane, left): &(usize, u64)| u128::from(*left) * 1000 / u128::from(reach(&lanes[*lane]).max(1));
    left.sort_by_key(|share| core::cmp::Reverse(slowness(share)));
    // A lane with nothing left may have to repeat a unit.
    let mut bounds = vec![(bound_bytes_per_s / lanes.len().max(1) as u64).max(least); lanes.len()];
    let mut rate_left = bound_bytes_per_s;
    let mut bytes_left: u64 = left.iter().fold(0, |sum, (_, left)| sum.saturating_add(*left));
    for (lane, left) in left {
        let part = u128::from(rate_left) * u128::from(left) / u128::from(bytes_left.max(1));
        let part = u64::try_from(part).unwrap_or(u64::MAX).min(reach(&lanes[lane])).min(rate_left);
        bounds[lane] = part.max(least);
        rate_left -= part;
        bytes_left = bytes_left.saturating_sub(left);
    }
    bounds
}

/// The lanes that get no more units, because the others carry all that waits sooner than these one more.
///
/// A lane that a full queue hit several times regrows slowly: of 128 lanes over 10 Gbit/s x 100 ms with a queue of 10 ms,
/// fourteen carried 0.5 MB/s each, and half of the time went into the last 1 % of 2 GB.
///
/// A lane takes `unit_bytes` of `waiting_bytes` at once. The fastest quarter always carries.
pub fn too_slow_for_more(lanes: &[LaneReading], waiting_bytes: u64, unit_bytes: u64) -> Vec<bool> {
    let rates: Vec<u64> = lanes.iter().map(reach).collect();
    let mut fastest = rates.clone();
    fastest.sort_unstable_by(|a, b| b.cmp(a));
    let fast = fastest.get(fastest.len() / 4).copied().unwrap_or(0).max(1);
    let all = rates.iter().fold(0u64, |sum, rate| sum.saturating_add(*rate)).max(1);
    let rest_us = time_us(waiting_bytes, all) + time_us(unit_bytes, fast);
    let is_slow =
        |(lane, rate): (&LaneReading, &u64)| time_us(unit_bytes, *rate) > TOO_SLOW * rest_us + u128::from(lane.rtt_us);
    lanes.iter().zip(&rates).map(is_slow).collect()
}

/// A lane at the end of a job.
#[derive(Clone, Copy, Debug)]
pub struct EndingLane {
    /// The kernel's counts of its connection.
    pub reading: LaneReading,
    /// The lane has taken these bytes, and not sent them.
    pub left_bytes: u64,
    /// The receiver has not confirmed these bytes: all of them go again if the lane is given up.
    pub again_bytes: u64,
}

/// Tells of each lane whether to give it up at the end of a job, because another would carry the whole unit sooner than it its rest.
///
/// The fastest quarter stays, and lanes whose target does not read: no other lane makes its disk faster. Otherwise a third of the
/// data went twice to a slow disk behind 60 ms.
///
/// `capacity_bytes_per_s` is what the path carries, if it was measured. Until it has carried what is left, a lane is in nobody's way:
/// behind a full link another one would only take the place of the first. Of 32 lanes over 100 Mbit/s x 100 ms, 31 were given up for
/// idle ones that were to be quicker, and 48 MB of 300 went twice. Neither does it pay to send more again than goes meanwhile: where
/// receipts were late, 176 MB of 300 went twice, for the sake of a few segments.
pub fn better_given_up(lanes: &[EndingLane], capacity_bytes_per_s: Option<u64>) -> Vec<bool> {
    let readings = || lanes.iter().map(|lane| &lane.reading);
    let unit_bytes = lanes.iter().map(|lane| lane.left_bytes).max().unwrap_or(0).max(MIN_CHUNK_BYTES);
    let quick_us = first_quarter(readings().map(|lane| sending_us(lane, unit_bytes)));
    let all_left = lanes.iter().fold(0u64, |sum, lane| sum.saturating_add(lane.left_bytes));
    let carries_us = |bytes| capacity_bytes_per_s.map_or(0, |capacity| time_us(bytes, capacity));
    let rest_us = carries_us(all_left);
    // A lane's own round-trip time holds waits after losses; delayed acknowledgements are no reason.
    let others_us = first_quarter(readings().map(|lane| u128::from(lane.rtt_us)));
    let rtt_us = |lane: &LaneReading| u128::from(lane.rtt_us).min(others_us + u128::from(TCP_RTO_MIN_US));
    // The others must know, and then a round trip.
    let another_us = |lane: &LaneReading| quick_us + 2 * rtt_us(lane);
    let waits_us = |lane: &LaneReading| if unacknowledged_bytes(lane) > 0 { u128::from(lane.silent_us) } else { 0 };
    let timed_out = |lane: &LaneReading| waits_us(lane) > another_us(lane) + u128::from(TCP_RTO_MIN_US);
    let all_wait = readings().all(|lane| timed_out(lane) || unacknowledged_bytes(lane) == 0);
    let is_slow = |EndingLane { reading, left_bytes, again_bytes }: &EndingLane| {
        let again_us = carries_us(*again_bytes);
        // The next timeout is at least twice as long (RFC 6298, section 5.5).
        let is_stuck = timed_out(reading) && !all_wait && 2 * waits_us(reading) >= again_us;
        let least_us = another_us(reading).max(rest_us).max(again_us);
        let is_behind = *left_bytes > 0 && sending_us(reading, *left_bytes) > WORTH_GIVING_UP * least_us;
        (is_behind || is_stuck) && !is_held_by_target(reading)
    };
    lanes.iter().map(is_slow).collect()
}

fn first_quarter(values: impl Iterator<Item = u128>) -> u128 {
    let mut values: Vec<u128> = values.collect();
    values.sort_unstable();
    values.get(values.len() / 4).copied().unwrap_or(0)
}

fn unacknowledged_bytes(lane: &LaneReading) -> u64 {
    lane.sent_bytes.saturating_sub(lane.resent_bytes).saturating_sub(lane.acked_bytes)
}

/// The time to send so many bytes; slow start doubles the window each round trip. An idle lane's next packet halves its window
/// for each timeout that passed, down to the first (RFC 2861); the reading still shows the old one.
fn sending_us(lane: &LaneReading, bytes: u64) -> u128 {
    let timeouts = u32::try_from(lane.silent_us / (u64::from(lane.rtt_us) + TCP_RTO_MIN_US)).unwrap_or(u32::MAX);
    let rested_bytes = lane.cwnd_bytes.checked_shr(timeouts).unwrap_or(0).max(lane.cwnd_bytes.min(FIRST_WINDOW_BYTES));
    if !lane.in_slow_start && rested_bytes == lane.cwnd_bytes {
        return time_us(bytes, reach(lane));
    }
    let (mut left, mut window, mut sending_us) = (bytes, rested_bytes.max(1), 0);
    while left > window {
        left -= window;
        window = window.saturating_mul(2);
        sending_us += u128::from(lane.rtt_us);
    }
    sending_us + u128::from(lane.rtt_us) * u128::from(left) / u128::from(window)
}

/// True if the receiver's window often stopped the lane.
fn is_held_by_target(lane: &LaneReading) -> bool {
    lane.busy_us > 0 && lane.receive_window_limited_us.saturating_mul(4) >= lane.busy_us
}

fn time_us(bytes: u64, bytes_per_s: u64) -> u128 {
    u128::from(bytes) * 1_000_000 / u128::from(bytes_per_s.max(1))
}

fn two_segments(lane: &LaneReading) -> u64 {
    if lane.rtt_us == 0 { 1 } else { per_second(2 * u64::from(lane.mss_bytes), u64::from(lane.rtt_us)).max(1) }
}

fn equal_parts(bound_bytes_per_s: u64, mut reach: Vec<u64>) -> u64 {
    reach.sort_unstable();
    let mut left = bound_bytes_per_s;
    let mut lanes_left = reach.len() as u64;
    for reach in reach {
        if reach >= left / lanes_left {
            return (left / lanes_left).max(1);
        }
        left -= reach;
        lanes_left -= 1;
    }
    // Windows hold all lanes: the first to grow may.
    bound_bytes_per_s.max(1)
}

/// True for data under way. Less than a segment may be an artefact.
fn has_data(lane: &LaneReading) -> bool {
    let in_flight_bytes = lane.sent_bytes.saturating_sub(lane.resent_bytes).saturating_sub(lane.acked_bytes);
    lane.unsent_bytes > 0 || in_flight_bytes > u64::from(lane.mss_bytes)
}

/// A lane's rate until the next sample: twice the window in slow start, else little more than it.
fn reach(lane: &LaneReading) -> u64 {
    let rtt_us = u64::from(lane.rtt_us.max(1));
    let doublings = (SAMPLE_US / rtt_us).min(DOUBLINGS_MAX);
    let grown_bytes = if lane.in_slow_start { lane.cwnd_bytes.saturating_mul(2) } else { lane.cwnd_bytes / 4 * 5 };
    per_second(grown_bytes.saturating_mul(1 << doublings), rtt_us)
}

/// A slower lane takes this many times as long: windows grow meanwhile.
const TOO_SLOW: u128 = 2;
/// Linux adds this at least before silence counts as loss (`TCP_RTO_MIN`, RFC 6298). Doubled, the scenario
/// `a_path_that_blackholes_is_found_in_a_second_and_comes_back` fails.
pub(crate) const TCP_RTO_MIN_US: u64 = 200_000;
/// The other lane must be this many times as fast: data under way goes twice.
const WORTH_GIVING_UP: u128 = 2;
/// Doubled, the rate falls 11 % (jitter).
pub(crate) const SAMPLE_US: u64 = 100_000;
/// More doublings make any window large.
const DOUBLINGS_MAX: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(cwnd_bytes: u64, unsent_bytes: u64) -> LaneReading {
        LaneReading { cwnd_bytes, unsent_bytes, rtt_us: 200_000, in_slow_start: true, ..LaneReading::default() }
    }

    #[test]
    fn what_a_lane_with_a_bound_of_its_own_leaves_is_shared() {
        assert_eq!(beside_own_bounds(100, &[None, None, None, Some(10)]), [130, 130, 130, 10]);
        assert_eq!(beside_own_bounds(100, &[Some(200), Some(110), Some(80)]), [110, 110, 80]);
        assert_eq!(beside_own_bounds(100, &[Some(0), Some(50)]), [0, 50]);
    }

    #[test]
    fn equal_lanes_have_equal_parts() {
        assert_eq!(bound_per_lane(800, &vec![lane(1_000_000, 1); 8], 8), 100);
    }

    #[test]
    fn what_new_lanes_cannot_use_yet_goes_to_the_others() {
        let (old, new) = (lane(2_000_000, 1), lane(16_000, 1));
        // A new lane reaches twice 16 kB / 200 ms.
        assert_eq!(bound_per_lane(10_000_000, &[old, old, new, new], 8), (10_000_000 - 2 * 160_000) / 2);
    }

    #[test]
    fn what_lanes_that_lost_cannot_use_goes_to_the_others() {
        let (wide, narrow) = (lane(2_000_000, 1), LaneReading { in_slow_start: false, ..lane(400_000, 1) });
        // A narrow lane reaches a quarter more than 400 kB / 200 ms.
        assert_eq!(bound_per_lane(12_000_000, &[wide, wide, narrow, narrow], 8), (12_000_000 - 2 * 2_500_000) / 2);
    }

    #[test]
    fn resting_lanes_take_nothing() {
        let (busy, resting) = (lane(2_000_000, 1), lane(2_000_000, 0));
        assert_eq!(bound_per_lane(1_000_000, &[busy, resting, resting], 8), 1_000_000);
        assert_eq!(bound_per_lane(1_000_000, &[resting], 8), 1_000_000);
        assert_eq!(bound_per_lane(0, &[busy], 8), 1);
    }

    #[test]
    fn lanes_that_came_to_rest_leave_their_part_at_once() {
        let sent_all = LaneReading { sent_bytes: 1_000_000, mss_bytes: 1448, ..lane(2_000_000, 0) };
        assert_eq!(bound_per_lane(4_000_000, &[sent_all; 4], 4), 1_000_000, "they carry data, and wait for more");
        assert_eq!(bound_per_lane(4_000_000, &[sent_all; 4], 2), 2_000_000);
        let sends_yet = LaneReading { unsent_bytes: 1, ..sent_all };
        assert_eq!(bound_per_lane(4_000_000, &[sent_all, sends_yet], 1), 2_000_000);
    }

    #[test]
    fn at_the_end_all_are_done_at_once() {
        let lanes = vec![lane(1_000_000, 1); 4];
        assert_eq!(bounds_at_end(800, &lanes, &[10, 10, 20, 0], &[]), [200, 200, 400, 200]);
        assert_eq!(bounds_at_end(2900, &lanes, &[10, 30, 10, 40], &[100, 100]), [1100, 300, 1100, 400]);
        // One window holds 100 kB / 200 ms.
        let narrow = LaneReading { in_slow_start: false, ..lane(80_000, 1) };
        assert_eq!(bounds_at_end(2_500_000, &[narrow, lanes[0]], &[1000, 1000], &[]), [500_000, 2_000_000]);
        assert_eq!(bounds_at_end(800, &lanes, &[0; 4], &[]), [200; 4], "nothing is left");
    }

    #[test]
    fn who_is_slower_with_a_unit_than_the_others_with_all_the_rest_gets_none() {
        let narrow = LaneReading { in_slow_start: false, ..lane(16_000, 1) };
        let lanes = [lane(1_000_000, 1), lane(1_000_000, 1), narrow, lane(1_000_000, 1)];
        let slow = |waiting_bytes| too_slow_for_more(&lanes, waiting_bytes, 1 << 20);
        // 10 MB/s each; the narrow one takes ten seconds for a unit.
        assert_eq!(slow(u64::MAX), [false; 4]);
        assert_eq!(slow(300_000_000), [false; 4]);
        assert_eq!(slow(100_000_000), [false, false, true, false]);
        assert_eq!(slow(0), [false, false, true, false]);
        assert_eq!(too_slow_for_more(&[narrow; 4], 1, 1 << 20), [false; 4]);
        assert_eq!(too_slow_for_more(&[], 1, 1), []);
    }

    /// Asks for lanes whose receipts have come.
    fn given_up(lanes: &[LaneReading], left_bytes: &[u64], capacity_bytes_per_s: Option<u64>) -> Vec<bool> {
        let ending = lanes.iter().zip(left_bytes);
        let ending = ending.map(|(reading, left_bytes)| EndingLane {
            reading: *reading,
            left_bytes: *left_bytes,
            again_bytes: 0,
        });
        better_given_up(&ending.collect::<Vec<_>>(), capacity_bytes_per_s)
    }

    #[test]
    fn a_lane_that_would_hold_up_the_end_is_given_up() {
        // 0.1 MB/s, and 10 MB/s; another would bring 1 MiB in half a second.
        let narrow = LaneReading { in_slow_start: false, ..lane(16_000, 1) };
        let lanes = [lane(1_000_000, 1), narrow, narrow, lane(1_000_000, 1)];
        assert_eq!(given_up(&lanes, &[0, 500_000, 50_000, 100_000], None), [false, true, false, false]);
        assert_eq!(given_up(&[narrow; 2], &[500_000; 2], None), [false; 2], "no other is faster");
    }

    /// 100 Mbit/s x 101 ms with losses: each of 32 lanes carries 0.4 MB/s, and an idle one would double its window for a second.
    #[test]
    fn behind_a_full_link_no_lane_is_given_up_for_an_idle_one() {
        let carries = LaneReading { rtt_us: 101_000, in_slow_start: false, ..lane(43_000, 1) };
        let idle = LaneReading { rtt_us: 100_000, ..lane(14_480, 0) };
        let lanes = [[carries; 32], [idle; 32]].concat();
        let left = [[1_500_000; 32], [0; 32]].concat();
        assert_eq!(given_up(&lanes, &left, Some(11_700_000)), [false; 64]);
        let last = [[1_500_000; 1].as_slice(), &[0; 63]].concat();
        assert!(given_up(&lanes, &last, Some(11_700_000))[0], "the others could share its rest");
    }

    #[test]
    fn a_lane_that_waits_for_what_was_lost_at_the_end_is_given_up_unless_the_path_itself_is_silent() {
        let waits =
            |us| LaneReading { sent_bytes: 3_000_000, acked_bytes: 2_000_000, silent_us: us, ..lane(1_000_000, 0) };
        let (done, works) = (LaneReading { sent_bytes: 0, silent_us: 3_000_000, ..lane(1_000_000, 0) }, waits(90_000));
        let stuck = |lanes: &[LaneReading]| given_up(lanes, &vec![0; lanes.len()], None);
        assert_eq!(stuck(&[works, waits(1_500_000), done, works]), [false, true, false, false]);
        assert_eq!(stuck(&[works, waits(400_000), done, works]), [false; 4], "the next acknowledgement may bring it");
        assert_eq!(stuck(&[waits(1_500_000), waits(1_500_000), done]), [false; 3], "all wait");
        assert_eq!(stuck(&[waits(1_500_000)]), [false], "there is no other");
        let delayed = LaneReading { rtt_us: 20_000, ..lane(50_000_000, 1) };
        let near = LaneReading { rtt_us: 50, ..lane(50_000_000, 1) };
        assert_eq!(
            given_up(&[near, delayed], &[1_000_000; 2], None),
            [false; 2],
            "the far host waits with its acknowledgements"
        );
        let inflated = LaneReading { rtt_us: 4_000_000, in_slow_start: false, ..lane(160_000, 1) };
        let wide = lane(1_000_000, 1);
        assert_eq!(given_up(&[wide, wide, inflated, wide], &[0, 0, 500_000, 0], None), [false, false, true, false]);
    }

    /// A slow disk behind 60 ms: all lanes waited empty, and got another unit each.
    #[test]
    fn a_lane_that_begins_again_after_a_rest_is_not_given_up_for_one_that_would_have_to_begin_again_too() {
        let rested = LaneReading { rtt_us: 100_000, in_slow_start: false, silent_us: 2_000_000, ..lane(860_000, 0) };
        let begins = LaneReading { rtt_us: 100_000, ..lane(14_280, 560_000) };
        let lanes = [rested, rested, begins, rested];
        assert_eq!(given_up(&lanes, &[0, 0, 1_090_000, 0], None), [false; 4]);
        let narrow = LaneReading { in_slow_start: false, ..begins };
        let wide = LaneReading { silent_us: 0, ..rested };
        assert_eq!(given_up(&[wide, wide, narrow, wide], &[0, 0, 1_090_000, 0], None), [false, false, true, false]);
    }

    #[test]
    fn a_lane_whose_receipts_are_late_waits_until_all_that_would_go_again_is_the_lesser_evil() {
        let waits =
            |us| LaneReading { sent_bytes: 9_000_000, acked_bytes: 8_900_000, silent_us: us, ..lane(1_000_000, 0) };
        let works = waits(90_000);
        let given_up = |us, again_bytes| {
            let ending = |reading, again_bytes| EndingLane { reading, left_bytes: 0, again_bytes };
            let lanes = [ending(works, 0), ending(waits(us), again_bytes), ending(works, 0)];
            better_given_up(&lanes, Some(10_000_000))[1]
        };
        assert!(given_up(1_500_000, 1_000_000));
        assert!(!given_up(1_500_000, 50_000_000), "five seconds of the whole path");
        assert!(given_up(2_500_000, 50_000_000));
    }

    #[test]
    fn a_lane_that_the_target_keeps_waiting_is_not_given_up() {
        let wide = lane(1_000_000, 0);
        let narrow = |receive_window_limited_us| LaneReading {
            in_slow_start: false,
            busy_us: 3_000_000,
            receive_window_limited_us,
            ..lane(16_000, 1)
        };
        let given_up = |us| given_up(&[wide, wide, narrow(us), wide], &[0, 0, 500_000, 0], None)[2];
        assert!(given_up(0) && given_up(100_000));
        assert!(!given_up(1_500_000));
    }

    #[test]
    fn no_lane_is_held_below_two_segments_for_each_round_trip() {
        let lane = LaneReading { mss_bytes: 1448, ..lane(2_000_000, 1) };
        assert_eq!(bound_per_lane(1, &[lane, lane], 8), 2 * 1448 * 5);
        assert_eq!(bound_per_lane(1_000_000, &[lane, lane], 8), 500_000);
    }
}
