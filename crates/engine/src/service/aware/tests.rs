//! Single readings that no simulated link brings about by itself.

use super::*;

#[test]
fn a_scout_that_waits_as_long_as_before_and_loses_nothing_more_leads_to_a_trial() {
    let estimate = Estimate { rtt_min_us: 10_000, jitter_us: 700, rate_bytes_per_s: 2_880_000, ..Estimate::default() };
    let mut aware = Aware::new(None);
    aware.recent.best_bytes_per_s = 2_947_000;
    aware.effect = MarkEffect::Helps;
    let raise = Raise { at_us: 0, rate_bytes_per_s: 2_364_000, queueing_us: 7_206 };
    let never = u64::MAX;
    aware.state = State::Raised { raise, calm_since_us: None, trial_at_us: never, trial_in_us: TRIAL_IN_US };
    let mut trial_us = None;
    for at in 1..=30 {
        let gone = u64::from(at > 10_u32) * u64::from(at.saturating_sub(10));
        let marked = LaneReading { delivered_bytes: u64::from(at) * 288_000, ..LaneReading::default() };
        // It loses its packets beside others, and waits long behind our marked ones.
        let scout = LaneReading {
            lane: 1,
            rtt_us: if gone == 0 { 43_000 } else { 35_000 },
            resent_bytes: u64::from(at.min(10)) * 5_600,
            delivered_bytes: gone * 5_600,
            unsent_bytes: 500_000,
            ..LaneReading::default()
        };
        let at_us = u64::from(at) * 100_000;
        let seen = Seen { at_us, estimate: &estimate, lanes: &[marked, scout], may_raise: true, ends: false };
        aware.judge(&seen);
        if trial_us.is_none() && matches!(aware.state, State::Trial(_)) {
            trial_us = Some(at_us);
        }
    }
    assert!(trial_us.is_some_and(|at_us| (1_000_001..2_000_000).contains(&at_us)), "{trial_us:?}");
}

#[test]
fn what_lanes_that_rest_still_send_is_not_taken_by_others() {
    let class_after = |path_bytes_per_s| {
        let estimate = Estimate {
            rtt_min_us: 10_000,
            queueing_us: 6_000,
            rate_bytes_per_s: path_bytes_per_s,
            phase: Phase::Steady,
            ..Estimate::default()
        };
        let mut aware = Aware::new(None);
        aware.recent.best_bytes_per_s = 2_947_000;
        for at in 1..=20 {
            let carries = LaneReading { delivered_bytes: at * 120_000, ..LaneReading::default() };
            let at_us = at * 100_000;
            let seen = Seen { at_us, estimate: &estimate, lanes: &[carries], may_raise: true, ends: false };
            aware.judge(&seen);
        }
        aware.class()
    };
    assert_eq!(class_after(2_900_000), ServiceClass::Normal);
    assert_eq!(class_after(1_200_000), ServiceClass::Priority, "others have the rest");
}

#[test]
fn while_we_hold_back_lanes_that_rest_do_so_too() {
    let mut aware = Aware::new(None);
    assert_eq!(aware.resting_lane_bytes_per_s(), None);
    aware.state = State::HoldBack(HoldBack {
        from_us: 0,
        until_us: 300_000,
        lanes: 3,
        lane_bytes_per_s: 500_000,
        rate_bytes_per_s: 2_500_000,
        queueing_us: 5_700,
        since: None,
        lossy: 0,
    });
    assert!(aware.resting_lane_bytes_per_s() < aware.lane_bytes_per_s());
    assert!(aware.resting_lane_bytes_per_s().is_some());
}

/// Unmarked lanes with a quarter of their rate; each second reading tells repeats.
fn in_trial(resent_percent: u64) -> Aware {
    let estimate = Estimate { rtt_min_us: 10_000, rate_bytes_per_s: 700_000, ..Estimate::default() };
    let mut aware = Aware::new(None);
    aware.effect = MarkEffect::Helps;
    let raise = Raise { at_us: 0, rate_bytes_per_s: 700_000, queueing_us: 7_000 };
    let (from_us, until_us, rate_bytes_per_s) = (0, RATE_US, 2_800_000);
    aware.state = State::Trial(Trial { raise, from_us, until_us, trial_in_us: TRIAL_IN_US, rate_bytes_per_s });
    for at in 1..=4 {
        let sent_bytes = at * 70_000;
        let resent_bytes = sent_bytes / 100 * resent_percent;
        let delivered_bytes = sent_bytes - resent_bytes;
        let lane = LaneReading { sent_bytes, resent_bytes, delivered_bytes, ..LaneReading::default() };
        let seen = Seen { at_us: at * 100_000, estimate: &estimate, lanes: &[lane], may_raise: true, ends: false };
        aware.judge(&seen);
    }
    aware
}

#[test]
fn a_trial_in_which_many_packets_are_lost_finds_others_behind_a_short_queue() {
    assert_eq!(in_trial(30).class(), ServiceClass::Priority);
    assert_eq!(in_trial(0).class(), ServiceClass::Normal);
}

#[test]
fn a_look_that_loses_as_much_again_finds_others_and_repairs_of_before_do_not() {
    let class_after = |lossy_readings: u64| {
        let estimate =
            Estimate { rtt_min_us: 10_000, rtt_us: 18_000, rate_bytes_per_s: 600_000, ..Estimate::default() };
        let (mut aware, mut resent_bytes) = (Aware::new(None), 0);
        aware.state = State::HoldBack(HoldBack {
            from_us: 0,
            until_us: 200_000,
            lanes: 1,
            lane_bytes_per_s: 360_000,
            rate_bytes_per_s: 600_000,
            queueing_us: 2_000,
            since: None,
            lossy: 0,
        });
        for at in 1..=8 {
            // Earlier data makes up for the losses.
            resent_bytes += if at <= lossy_readings { 7_000 } else { 0 };
            let lane = LaneReading {
                sent_bytes: at * 20_000,
                resent_bytes,
                delivered_bytes: at * 20_000,
                unsent_bytes: 500_000,
                ..LaneReading::default()
            };
            let seen = Seen { at_us: at * 100_000, estimate: &estimate, lanes: &[lane], may_raise: true, ends: false };
            aware.judge(&seen);
        }
        aware.class()
    };
    assert_eq!(class_after(8), ServiceClass::Priority);
    assert_eq!(class_after(2), ServiceClass::Normal);
}
