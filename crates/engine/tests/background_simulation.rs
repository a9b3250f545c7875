//! A background job on simulated paths: does it leave the path to others, and take it when nobody else wants it?

mod background;
mod simulated;

use background::{Outcome, Setting};
use simulated::flow::Control;
use simulated::link::Link;

fn check(outcome: &Outcome, holds: bool, what: &str) {
    assert!(holds, "{what}\n{}", outcome.course());
}

const RTTS_MS: [u64; 4] = [20, 50, 100, 228];

#[test]
fn alone_it_takes_the_path() {
    for rtt_ms in RTTS_MS {
        let outcome = Setting { seconds: 60, ..Setting::on(Link::new(100.0, rtt_ms)) }.run();
        check(&outcome, outcome.ours(8.0, 58.0) > 0.95, "takes the path");
        check(&outcome, outcome.queueing_ms(8.0) < 1.0, "and keeps no queue");
    }
}

#[test]
fn a_cubic_flow_that_comes_later_keeps_what_it_has_alone() {
    for rtt_ms in RTTS_MS {
        for from_s in [10.0, 10.03, 10.15, 11.0, 20.0] {
            let setting = Setting { seconds: from_s as u64 + 36, ..Setting::on(Link::new(100.0, rtt_ms)) };
            let setting = setting.cubic(from_s, 1e3);
            let alone = setting.clone().without_us().run();
            let beside = setting.run();
            let of = |outcome: &Outcome| outcome.theirs(from_s + 5.0, from_s + 35.0);
            check(&beside, of(&beside) > 0.95 * of(&alone), "keeps its rate");
        }
    }
}

#[test]
fn a_cubic_flow_that_was_there_before_keeps_what_it_has_alone() {
    for rtt_ms in RTTS_MS {
        let setting = Setting { ours_from_s: vec![12.0], seconds: 60, ..Setting::on(Link::new(100.0, rtt_ms)) };
        let setting = setting.cubic(0.0, 1e3);
        let alone = setting.clone().without_us().run();
        let beside = setting.run();
        let of = |outcome: &Outcome| outcome.theirs(12.0, 58.0);
        check(&beside, of(&beside) > 0.95 * of(&alone), "keeps its rate");
    }
}

#[test]
fn once_the_others_have_gone_the_path_is_ours_within_seconds() {
    for rtt_ms in RTTS_MS {
        let outcome = Setting { seconds: 50, ..Setting::on(Link::new(100.0, rtt_ms)) }.cubic(10.0, 30.0).run();
        check(&outcome, outcome.ours(24.0, 30.0) < 0.05, "next to nothing beside them");
        // Their data under way, ten round trips for a newcomer, and the rise.
        let back_s = 36.0 + 14.0 * rtt_ms as f64 / 1e3;
        check(&outcome, outcome.ours(back_s, 48.0) > 0.93, "all of it when they have gone");
    }
}

#[test]
fn what_a_stream_leaves_is_taken_and_the_stream_loses_nothing() {
    let link = Link::new(25.0, 20);
    for mbit_per_s in [8.0, 16.0, 20.0] {
        let setting = Setting { seconds: 60, constant_bytes_per_s: mbit_per_s * 1e6 / 8.0, ..Setting::on(link) };
        let setting = Setting { others: vec![(Control::Constant, 5.0, 1e3)], ..setting };
        let outcome = setting.run();
        let share = mbit_per_s / 25.0;
        check(&outcome, outcome.theirs(10.0, 58.0) > 0.995 * share, "the stream has all its packets");
        check(&outcome, outcome.ours(10.0, 58.0) > 0.7 * (1.0 - share), "we have most of the rest");
    }
}

#[test]
fn short_flows_take_five_percent_longer_at_most() {
    for (rtt_ms, bytes) in [20, 50, 100].into_iter().flat_map(|rtt_ms| [1e5, 1e6].map(|bytes| (rtt_ms, bytes))) {
        let mut setting = Setting { seconds: 45, ..Setting::on(Link::new(100.0, rtt_ms)) };
        setting.short = (0..20).map(|at| (bytes, 10.0 + 1.37 * f64::from(at))).collect();
        let alone = setting.clone().without_us().run();
        let beside = setting.run();
        let mean = |outcome: &Outcome| outcome.took_s.iter().sum::<f64>() / 20.0;
        check(&beside, mean(&beside) < 1.05 * mean(&alone), "they take no longer");
    }
}

#[test]
fn readings_that_a_busy_host_makes_late_cost_little_of_a_free_path() {
    let setting = Setting { seconds: 60, jitter_us: 400, ..Setting::on(Link::new(100.0, 50)) };
    let outcome = setting.run();
    check(&outcome, outcome.ours(8.0, 58.0) > 0.9, "takes the path");
}

#[test]
fn two_of_ours_both_have_a_part() {
    let setting = Setting { seconds: 120, ours_from_s: vec![0.0, 10.0], ..Setting::on(Link::new(100.0, 50)) };
    let outcome = setting.run();
    check(&outcome, (0..2).all(|job| outcome.of(job, 30.0, 119.0) > 0.02), "neither starves");
    check(&outcome, outcome.ours(30.0, 119.0) > 0.7, "together they use the path");
}

proptest::proptest! {
    #[test]
    fn any_readings_give_a_rate_and_lanes(
        readings in proptest::collection::vec((0u64..u64::MAX, 0u32..u32::MAX, 0u32..u32::MAX, 0u64..u64::MAX, 0u64..u64::MAX, 0u16..4), 1..200)
    ) {
        let mut background = haul_engine::service::background::Background::new(20_000, None);
        for (at_us, rtt_us, rtt_min_us, delivered_bytes, resent_bytes, lane) in readings {
            let reading = haul_engine::path::LaneReading {
                lane, rtt_us, rtt_min_us, rtt_deviation_us: rtt_us, delivered_bytes, resent_bytes, unsent_bytes: 1, ..Default::default()
            };
            let advice = background.on_sample(at_us % (1 << 50), &[reading]);
            proptest::prop_assert!(advice.rate_bytes_per_s > 0 && (1..=32).contains(&advice.lanes));
        }
    }
}
