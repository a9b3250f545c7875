//! The tuner on simulated paths: does it fill them, keep them free of queues, and leave others their share?

mod several;
mod simulated;

use haul_engine::path::{AUTO_LANES_MAX, Remembered, START_LANES_MAX};
use haul_wire::summary::PathTime;

use simulated::flow::Control;
use simulated::link::Link;
use simulated::run::{Outcome, Setting};

fn check(outcome: &Outcome, holds: bool, what: &str) {
    let advice: String =
        outcome.advice.iter().map(|(at, advice)| format!("{:6.1} s {advice:?}\n", *at as f64 / 1e6)).collect();
    assert!(holds, "{what}\n{}{advice}{:?}", outcome.course(), outcome.tuner.summary());
}

fn mostly(outcome: &Outcome, of: impl Fn(&PathTime) -> u64) -> bool {
    let time = outcome.tuner.summary().time;
    of(&time) * 2 > time.total_us()
}

#[test]
fn stock_hosts_fill_a_gigabit_at_228_ms() {
    let outcome = Setting::on(Link::new(1000.0, 228)).run();
    check(&outcome, outcome.utilisation() > 0.95, "fills the link");
    check(&outcome, outcome.queueing_ms(0.0) < 25.0, "no queue stands");
    check(&outcome, outcome.variation(8.0) < 0.1, "the rate is steady");
    check(&outcome, (12..=20).contains(&outcome.lanes()), "as many lanes as the windows need, and some to spare");
    check(&outcome, mostly(&outcome, |time| time.capacity_us), "the link is named");
    let summary = outcome.tuner.summary();
    check(&outcome, summary.rate_variation_permille < 150, "the summary says that it was steady");
    check(&outcome, summary.capacity_bytes_per_s.abs_diff(125_000_000) < 6_000_000, "the capacity was found");
}

#[test]
fn the_ramp_to_a_gigabit_takes_ten_round_trips() {
    for rtt_ms in [20, 100, 228] {
        let outcome = Setting::on(Link::new(1000.0, rtt_ms)).seconds(20).run();
        let reached_s = outcome.reaches_s(0.9).unwrap_or(f64::INFINITY);
        check(&outcome, reached_s < (10.0 * rtt_ms as f64 / 1e3).max(0.6), "90 % in time");
    }
}

#[test]
fn a_short_slow_path_is_as_fast_as_with_one_lane() {
    let link = Link::new(20.0, 20);
    let one = Setting { plain_lanes: Some(1), ..Setting::on(link) }.run();
    for pairs in [false, true] {
        let ours = Setting { pairs, ..Setting::on(link) }.run();
        check(&ours, ours.rate(0.0, 10.0) > 0.96 * one.rate(0.0, 10.0), "no slower, a short copy too");
        check(&ours, ours.rate(0.0, 60.0) > 0.98 * one.rate(0.0, 60.0), "no slower");
        check(&ours, ours.queueing_ms(0.0) < one.queueing_ms(0.0), "and with less of a queue");
        check(&ours, ours.tuner.summary().time.contention_us == 0, "packets of ours that meet are not those of others");
    }
}

#[test]
fn packets_of_ours_that_meet_make_no_short_copy_over_a_slow_path_slower() {
    for rtt_ms in [40, 60, 80, 100] {
        let link = Link::new(20.0, rtt_ms);
        let one = Setting { plain_lanes: Some(1), ..Setting::on(link).seconds(10) }.run();
        let ours = Setting { pairs: true, ..Setting::on(link).seconds(10) }.run();
        check(&ours, ours.rate(0.0, 10.0) > 0.99 * one.rate(0.0, 10.0), "no slower");
        check(&ours, ours.tuner.summary().time.contention_us == 0, "they are not those of others");
    }
}

#[test]
fn a_capacity_that_was_first_read_too_high_is_no_sign_of_others() {
    for rtt_ms in [40, 80, 100] {
        // Six or seven in a sample: 5 % too much, all that would be held back.
        let outcome = Setting { clumps_us: 15_000, ..Setting::on(Link::new(20.0, rtt_ms)).seconds(20) }.run();
        check(&outcome, outcome.rate(0.0, 9.0) > 0.98 * outcome.link.bytes_per_s, "fills the link");
        check(&outcome, outcome.tuner.summary().time.contention_us == 0, "nobody else is there");
    }
}

#[test]
fn a_foreign_cubic_flow_keeps_a_third() {
    for rtt_ms in [20, 50] {
        for seed in 1..=4 {
            let mut setting = Setting::on(Link::new(100.0, rtt_ms)).foreign(Control::Cubic, 0, 1000).seconds(120);
            setting.seed = seed;
            let outcome = setting.run();
            let theirs = outcome.foreign_rate(20.0, 120.0) / outcome.link.bytes_per_s;
            check(&outcome, theirs > 1.0 / 3.0, "they keep a third");
            let ours = outcome.rate(20.0, 120.0) / outcome.link.bytes_per_s;
            check(&outcome, ours > 0.3, "so do we");
            check(&outcome, outcome.lanes() <= 2, "one window suffices");
            check(&outcome, mostly(&outcome, |time| time.contention_us), "others are named");
        }
    }
}

#[test]
fn others_are_named_in_a_job_that_is_over_soon_after_they_are_found() {
    for (late_s, seed) in [0, 1, 2, 10].into_iter().flat_map(|late_s| (1..=4).map(move |seed| (late_s, seed))) {
        let mut setting = Setting { late_s, seed, ..Setting::on(Link::new(80.0, 40)).only_cubic().seconds(9) };
        setting.foreign = vec![(Control::Cubic, 0, 1_000_000_000); 4];
        let outcome = setting.run();
        check(&outcome, mostly(&outcome, |time| time.contention_us), "they filled the queue from the start");
    }
}

#[test]
fn a_foreign_cubic_flow_that_was_there_before_keeps_a_third() {
    for rtt_ms in [20, 50] {
        let mut setting = Setting::on(Link::new(100.0, rtt_ms)).foreign(Control::Cubic, 0, 1000).seconds(120);
        setting.late_s = 20;
        let outcome = setting.run();
        let theirs = outcome.foreign_rate(40.0, 140.0) / outcome.link.bytes_per_s;
        check(&outcome, (0.33..0.7).contains(&theirs), "they keep a third, and leave us one");
    }
}

#[test]
fn a_queue_that_stood_before_us_is_known_to_be_of_others_when_it_gets_shorter() {
    for (mbit_per_s, rtt_ms, late_s) in [(100.0, 20, 10), (100.0, 50, 20), (300.0, 50, 10)] {
        let link = Link::new(mbit_per_s, rtt_ms).queue_ms(100.0);
        let mut setting = Setting::on(link).only_cubic().foreign(Control::Cubic, 0, 1000).seconds(30);
        setting.late_s = late_s;
        let outcome = setting.run();
        let yields = outcome.advice.iter().find(|(_, advice)| advice.reasons.lanes.starts_with("others use the path"));
        let after_s = yields.map(|(at_us, _)| *at_us as f64 / 1e6 - late_s as f64);
        check(&outcome, after_s.is_some_and(|after_s| after_s < 7.0), "the lanes become fewer");
    }
}

#[test]
fn a_foreign_cubic_flow_keeps_a_third_of_a_link_with_a_short_queue() {
    for (mbit_per_s, late_s) in [(100.0, 0), (100.0, 20), (300.0, 0)] {
        let link = Link::new(mbit_per_s, 50).queue_ms(10.0);
        let mut setting = Setting::on(link).foreign(Control::Cubic, 0, 1000).seconds(120);
        setting.late_s = late_s;
        let outcome = setting.run();
        let end_s = outcome.end_s();
        let theirs = outcome.foreign_rate(end_s - 80.0, end_s) / outcome.link.bytes_per_s;
        check(&outcome, (0.33..0.7).contains(&theirs), "they keep a third, and leave us one");
    }
}

#[test]
fn a_short_queue_is_no_sign_of_others() {
    for link in [Link::new(1000.0, 100).queue_ms(5.0), Link::new(300.0, 50).queue_ms(10.0)] {
        let outcome = Setting::on(link).run();
        check(&outcome, outcome.utilisation() > 0.9 && !outcome.tuner.estimate().contended, "the link is ours");
    }
}

#[test]
fn a_full_link_whose_queue_stays_short_is_named() {
    // Each of four or eight lanes has this at its own device: 2 ms in all, and 8 ms.
    for (mbit_per_s, rtt_ms, lanes, waiting_bytes) in [(1000.0, 1, 4.0, 64e3), (100.0, 5, 8.0, 12.5e3)] {
        let link = Link::new(mbit_per_s, rtt_ms).queue_ms(20.0);
        let in_flight_most = link.bytes_per_s * rtt_ms as f64 / 1e3 / lanes + waiting_bytes;
        let outcome = Setting { in_flight_most, ..Setting::on(link) }.seconds(20).run();
        check(&outcome, outcome.utilisation() > 0.9, "it is full");
        check(&outcome, outcome.queueing_ms(0.0) < 10.0, "with a short queue");
        check(&outcome, mostly(&outcome, |time| time.capacity_us), "the link is named");
    }
}

#[test]
fn lanes_that_nothing_holds_but_the_round_trip_say_so() {
    let mut setting = Setting { in_flight_most: 100e3, ..Setting::on(Link::new(1000.0, 100)) };
    setting.wishes.lanes = Some(2);
    let outcome = setting.seconds(20).run();
    check(&outcome, mostly(&outcome, |time| time.latency_us), "no queue, no window, no loss");
}

#[test]
fn what_a_stream_that_yields_to_nobody_leaves_is_the_capacity() {
    let link = Link::new(25.0, 20).queue_ms(100.0);
    let mut setting = Setting::on(link).foreign(Control::Constant, 0, 1000);
    setting.constant_bytes_per_s = 2e6;
    let outcome = setting.run();
    check(&outcome, outcome.utilisation() > 0.34, "all of the 9 of 25 Mbit/s that are left");
    // A queue counts only if it is taken for others': then we do not hold back either.
}

#[test]
fn noise_on_the_round_trip_times_is_no_queue() {
    for rtt_ms in [20, 100] {
        let mut setting = Setting::on(Link::new(1000.0, rtt_ms));
        setting.jitter_us = 5_000;
        let outcome = setting.run();
        check(&outcome, outcome.utilisation() > 0.95, "the link is used");
        check(&outcome, outcome.queueing_ms(0.0) < 25.0, "without a queue");
    }
}

/// 5 ms of deviation each way once looked like a queue of 29 ms.
#[test]
fn packets_that_take_different_times_are_neither_a_queue_nor_others() {
    for (mbit_per_s, rtt_ms, packets_vary_us) in [(200.0, 50, 7_000.0), (200.0, 50, 3_000.0), (100.0, 100, 10_000.0)] {
        for seed in 1..=4 {
            let setting = Setting { packets_vary_us, seed, ..Setting::on(Link::new(mbit_per_s, rtt_ms)) };
            let outcome = setting.only_cubic().seconds(20).run();
            check(&outcome, outcome.rate(0.0, 5.0) > 0.8 * outcome.link.bytes_per_s, "the ramp is as short as without");
            check(&outcome, outcome.utilisation() > 0.95, "the link is used");
            check(&outcome, outcome.queueing_ms(5.0) < 25.0, "without a queue");
            check(&outcome, outcome.tuner.summary().time.contention_us == 0, "nobody else is there");
        }
    }
}

/// The windows are cut in both cases. The peers tell which packets arrived twice.
#[test]
fn jitter_is_named_where_what_counts_as_lost_was_only_overtaken() {
    let link = Link::new(1000.0, 100).loss(1e-3);
    for are_only_late in [true, false] {
        let setting = Setting { packets_vary_us: 7_000.0, are_only_late, ..Setting::on(link).only_cubic().seconds(20) };
        let outcome = setting.run();
        let time = outcome.tuner.summary().time;
        check(&outcome, time.contention_us == 0, "nobody else is there");
        let (named, other) =
            if are_only_late { (time.jitter_us, time.loss_us) } else { (time.loss_us, time.jitter_us) };
        check(&outcome, named * 2 > time.total_us() && other == 0, "what cuts the windows is named");
    }
}

/// An address lookup or a waking radio begins the smoothed round-trip time.
#[test]
fn a_first_round_trip_that_is_far_longer_than_the_rest_is_no_queue() {
    for (mbit_per_s, rtt_ms, first_rtt_ms) in [(1000.0, 228, 456), (1000.0, 228, 900), (200.0, 50, 1000)] {
        let usual = Setting::on(Link::new(mbit_per_s, rtt_ms)).seconds(20);
        let late = Setting { first_rtt_us: first_rtt_ms * 1000, ..usual.clone() }.run();
        let usual = usual.run();
        check(&late, late.rate(0.0, 5.0) > 0.9 * usual.rate(0.0, 5.0), "the ramp goes on");
        let first_bound = late.points.iter().find_map(|point| point.bound).unwrap_or(u64::MAX);
        check(&late, first_bound as f64 > 0.8 * late.link.bytes_per_s, "no capacity was read from it");
        check(&late, late.tuner.summary().time.contention_us == 0, "nobody else is there");
    }
}

#[test]
fn what_a_busy_host_hears_late_is_no_queue() {
    let gigabit = Link::new(1000.0, 100);
    let paths = [Link::new(100.0, 20), gigabit, Link::new(1000.0, 228), Link::new(10_000.0, 100)];
    // Each lane for itself, and all at once in some samples.
    for (jitter_us, stalls) in [(20_000, (0.0, 0)), (0, (0.1, 50_000)), (0, (0.3, 50_000)), (0, (0.6, 20_000))] {
        for (link, seed) in paths.into_iter().flat_map(|link| (1..=8).map(move |seed| (link, seed))) {
            let outcome = Setting { jitter_us, stalls, seed, ..Setting::on(link).tuned() }.seconds(30).run();
            check(&outcome, outcome.rate(0.0, 30.0) > 0.85 * link.bytes_per_s, "the ramp goes on behind it");
            check(&outcome, outcome.queueing_ms(0.0) < 30.0, "and queues are seen all the same");
        }
    }
    // A host hardly ever free is still quick enough.
    let slow = |seed| {
        let setting = Setting { stalls: (0.6, 50_000), seed, ..Setting::on(gigabit) }.seconds(30).run();
        setting.rate(0.0, 30.0) / gigabit.bytes_per_s
    };
    let shares: Vec<f64> = (1..=8).map(slow).collect();
    assert!(shares.iter().all(|share| *share > 0.6), "{shares:?}");
}

#[test]
fn the_path_is_taken_back_when_others_are_gone() {
    let outcome = Setting::on(Link::new(100.0, 50)).foreign(Control::Cubic, 0, 40).seconds(120).run();
    check(&outcome, outcome.rate(80.0, 120.0) > 0.95 * outcome.link.bytes_per_s, "all of the link");
    check(&outcome, outcome.queueing_ms(80.0) < 25.0, "without a queue");
}

#[test]
fn noise_on_the_round_trip_times_does_not_hide_that_losses_hold_a_lane() {
    for (seed, jitter_us) in [(1, 0), (1, 10_000), (2, 10_000), (3, 10_000), (4, 10_000)] {
        let mut setting = Setting::on(Link::new(200.0, 40).loss(0.01)).only_cubic().seconds(20);
        (setting.seed, setting.jitter_us, setting.wishes.lanes) = (seed, jitter_us, Some(1));
        let outcome = setting.run();
        check(&outcome, mostly(&outcome, |time| time.loss_us), "loss is named");
        check(&outcome, !outcome.tuner.estimate().contended, "nobody else is there");
    }
}

#[test]
fn random_loss_is_met_with_bbr_where_that_is_allowed() {
    for (loss, share) in [(1e-4, 0.9), (1e-3, 0.85)] {
        let outcome = Setting::on(Link::new(1000.0, 100).loss(loss)).run();
        check(&outcome, outcome.utilisation() > share, "the link is used");
        check(&outcome, outcome.tuner.summary().congestion_control == "bbr", "bbr was chosen");
        check(&outcome, outcome.queueing_ms(0.0) < 25.0, "no queue stands");
    }
}

#[test]
fn what_a_host_refuses_is_neither_told_nor_reckoned_with() {
    let lossy = Setting::on(Link::new(1000.0, 100).loss(1e-4));
    let refused = Setting { refuses_choice: true, ..lossy.clone() }.run();
    check(&refused, refused.tuner.summary().congestion_control == "cubic", "the report has what the lanes have");
    let kept = refused.tuner.remembered().map(|remembered| remembered.congestion_control);
    check(&refused, kept.as_deref() == Some("cubic"), "so does the next job");
    check(&refused, refused.lanes() >= START_LANES_MAX && refused.utilisation() > 0.9, "lanes do what bbr would");
    let asked = refused.advice.iter().filter(|(_, advice)| advice.congestion_control.as_deref() == Some("bbr"));
    let times: Vec<u64> = asked.map(|(at_us, _)| *at_us).collect();
    check(&refused, times.len() == 1, "it is asked for once");
}

#[test]
fn a_congestion_control_that_was_asked_for_in_vain_is_not_told() {
    let mut setting = Setting { refuses_choice: true, ..Setting::on(Link::new(100.0, 20)).seconds(5) };
    setting.wishes.congestion_control = Some("bbr".into());
    let outcome = setting.run();
    check(&outcome, outcome.tuner.summary().congestion_control == "cubic", "the report has what the lanes have");
}

#[test]
fn random_loss_is_met_with_lanes_where_only_cubic_is_allowed() {
    for (loss, share) in [(1e-5, 0.92), (1e-4, 0.9), (1e-3, 0.3)] {
        let outcome = Setting::on(Link::new(1000.0, 100).loss(loss)).only_cubic().run();
        check(&outcome, outcome.utilisation() > share, "the link is used");
        if loss == 1e-3 {
            check(&outcome, outcome.lanes() == AUTO_LANES_MAX, "all lanes are needed");
            check(&outcome, mostly(&outcome, |time| time.loss_us), "loss is named");
        }
    }
}

#[test]
fn a_capacity_that_halves_or_doubles_is_followed() {
    for (before, after) in [(1000.0, 500.0), (500.0, 1000.0)] {
        for rtt_ms in [20, 100] {
            let outcome = Setting::on(Link::new(before, rtt_ms)).rate_from(30, after).seconds(80).run();
            let share = outcome.rate(50.0, 80.0) * 8e-6 / after;
            check(&outcome, share > 0.93, "the new rate is reached in 20 s, and kept");
            check(&outcome, outcome.queueing_ms(35.0) < 25.0, "without a queue");
        }
    }
}

#[test]
fn small_windows_are_met_with_lanes_and_named() {
    let link = Link::new(10_000.0, 100);
    let outcome = Setting::on(link).windows(256e3, 45e6).run();
    check(
        &outcome,
        outcome.lanes() == AUTO_LANES_MAX && mostly(&outcome, |time| time.send_buffer_us),
        "the send buffer",
    );
    let outcome = Setting::on(link).windows(45e6, 256e3).run();
    check(
        &outcome,
        outcome.lanes() == AUTO_LANES_MAX && mostly(&outcome, |time| time.receive_window_us),
        "the receive window",
    );
    let outcome = Setting::on(Link::new(1000.0, 100)).windows(256e3, 45e6).run();
    check(&outcome, outcome.utilisation() > 0.95 && outcome.lanes() == 64, "64 windows of 256 kB suffice");
}

/// Late lanes took the last units, and were slower with them.
#[test]
fn lanes_that_would_come_too_late_are_not_asked_for() {
    let endless = Setting::on(Link::new(1000.0, 228)).windows(256e3, 45e6);
    let first = endless.clone().run();
    let lanes_at_first = first.points[0].lanes;
    let asked =
        first.advice.iter().find(|(_, advice)| advice.lanes > lanes_at_first).expect("more lanes than at first");
    let asked_s = asked.0 as f64 / 1e6;
    for (seconds_left, is_worth_it) in [(0.5, false), (1.5, false), (8.0, true)] {
        let job_bytes = first.link.bytes_per_s.min(first.rate(asked_s - 0.5, asked_s)) * (asked_s + seconds_left);
        let outcome = Setting { job_bytes, ..endless.clone() }.seconds(20).run();
        let has_more = outcome.advice.iter().any(|(_, advice)| advice.lanes > lanes_at_first);
        check(&outcome, has_more == is_worth_it, "more lanes only where they have time to help");
    }
}

#[test]
fn lanes_that_were_asked_for_stay() {
    let mut setting = Setting::on(Link::new(1000.0, 228));
    setting.wishes.lanes = Some(3);
    let outcome = setting.run();
    check(&outcome, outcome.points.iter().all(|point| point.lanes == 3), "three");
    check(&outcome, mostly(&outcome, |time| time.send_buffer_us), "and what that costs");
}

#[test]
fn lanes_that_never_came_are_not_told() {
    let outcome = Setting { lanes_most: 4, ..Setting::on(Link::new(1000.0, 100)) }.run();
    check(&outcome, outcome.lanes() > 4, "more are advised");
    check(&outcome, outcome.tuner.summary().lanes == 4, "four carried data");
    let kept = outcome.tuner.remembered().map(|remembered| remembered.lanes);
    check(&outcome, kept.is_none_or(|lanes| lanes == 4), "and no others were of use");
}

#[test]
fn a_near_path_is_left_alone() {
    for mbit_per_s in [100.0, 10_000.0] {
        let outcome = Setting::on(Link::new(mbit_per_s, 1)).seconds(10).run();
        check(&outcome, outcome.advice.len() == 1, "no advice but the first");
        let first = &outcome.advice[0].1;
        check(&outcome, first.lanes == 4 && first.pacing_bytes_per_s.is_none(), "the simple rule");
        check(&outcome, outcome.tuner.remembered().is_none(), "nothing to remember");
    }
}

#[test]
fn a_slow_source_changes_nothing_and_is_not_called_network() {
    let mut setting = Setting::on(Link::new(1000.0, 100));
    setting.supply = 20e6;
    let outcome = setting.run();
    check(&outcome, outcome.advice.len() == 1, "no advice but the first");
    let time = outcome.tuner.summary().time;
    let all_us = 60_000_000 * 16;
    check(&outcome, time.total_us() < all_us / 10, "hardly any time is the network's");
}

#[test]
fn the_end_of_a_job_says_nothing_about_the_path() {
    for (mbit_per_s, rtt_ms) in [(1000.0, 100), (100.0, 20)] {
        let link = Link::new(mbit_per_s, rtt_ms);
        let setting = Setting { job_bytes: 20.0 * link.bytes_per_s, ..Setting::on(link) };
        let outcome = setting.seconds(30).run();
        let sent = outcome.points.last().map_or(0.0, |point| point.acked);
        check(&outcome, (sent / (20.0 * link.bytes_per_s) - 1.0).abs() < 1e-3, "all of it arrived");
        let last_us =
            outcome.points.iter().rev().find(|point| point.acked < 0.98 * sent).map_or(0, |point| point.at_us);
        check(&outcome, outcome.advice.iter().all(|(at_us, _)| *at_us < last_us + 1_000_000), "nothing is changed");
        let summary = outcome.tuner.summary();
        check(&outcome, summary.rate_variation_permille < 100, "the rate was steady");
        check(&outcome, mostly(&outcome, |time| time.capacity_us), "the link is named");
        let kept = outcome.tuner.remembered().map_or(0.0, |remembered| remembered.capacity_bytes_per_s as f64);
        check(&outcome, (0.95..1.05).contains(&(kept / link.bytes_per_s)), "what it carries is kept");
    }
}

#[test]
fn what_arrives_behind_a_gap_counts_when_it_arrives() {
    for seed in 1..=3 {
        let mut setting = Setting::on(Link::new(100.0, 228).loss(1e-4)).only_cubic();
        (setting.seed, setting.wishes.lanes) = (seed, Some(1));
        let even = setting.clone().run().tuner.summary();
        let outcome = Setting { gaps: true, ..setting }.run();
        let told = outcome.tuner.summary();
        let difference = told.rate_variation_permille.abs_diff(even.rate_variation_permille);
        check(&outcome, difference < 20, "the rate is as steady as without gaps");
    }
}

#[test]
fn after_an_outage_the_path_is_used_as_without_the_loop_at_least() {
    for (mbit_per_s, rtt_ms) in [(100.0, 50), (1000.0, 228), (20.0, 20)] {
        let link = Link::new(mbit_per_s, rtt_ms);
        for at_ms in [200, 500, 900, 1_200, 1_700, 2_200, 3_000, 10_050] {
            let cut = Setting::on(link).outage(at_ms, at_ms + 5_000).seconds(60);
            let plain = Setting { plain_lanes: Some(16), ..cut.clone() }.run();
            let outcome = cut.run();
            let back_s = (at_ms + 5_000) as f64 / 1e3;
            let (ours, theirs) = (outcome.rate(back_s, back_s + 12.0), plain.rate(back_s, back_s + 12.0));
            check(&outcome, ours > 0.8 * theirs, "congestion control alone would not have come back sooner");
            check(&outcome, outcome.rate(50.0, 60.0) > 0.9 * link.bytes_per_s, "the link is used again");
            check(&outcome, !outcome.tuner.estimate().contended, "nobody else is blamed");
        }
    }
}

#[test]
fn what_a_source_gives_in_bursts_is_no_capacity() {
    // A busy host reads round trips with noise.
    let paths = [(400.0, 60, 15.7e6), (400.0, 20, 15.7e6), (1000.0, 228, 40e6), (100.0, 40, 5e6)];
    for ((mbit_per_s, rtt_ms, supply), jitter_us) in paths.into_iter().flat_map(|path| [(path, 0), (path, 10_000)]) {
        let mut setting = Setting::on(Link::new(mbit_per_s, rtt_ms)).bursts(supply);
        setting.jitter_us = jitter_us;
        let outcome = setting.run();
        let share = outcome.rate(20.0, 60.0) / supply;
        check(&outcome, share > 0.97, "all that the source gives");
        let bounds = outcome.points.iter().filter_map(|point| point.bound);
        check(&outcome, bounds.min().is_none_or(|least| least as f64 > 1.2 * supply), "nothing holds it back");
        check(&outcome, outcome.tuner.remembered().is_none(), "what the path carries was not seen");
        let time = outcome.tuner.summary().time;
        let all_us = 60_000_000 * u64::from(outcome.lanes());
        check(&outcome, time.capacity_us + time.contention_us < all_us / 10, "the link is not blamed");
    }
}

#[test]
fn a_source_that_was_slow_leaves_no_bound_behind() {
    for rtt_ms in [20, 60, 228] {
        let outcome = Setting::on(Link::new(400.0, rtt_ms)).bursts(10e6).supply_from(20, 1e9).run();
        let share = outcome.rate(30.0, 60.0) / outcome.link.bytes_per_s;
        check(&outcome, share > 0.93, "the link is used");
        let before = Setting::on(Link::new(400.0, rtt_ms)).bursts(1e9).supply_from(20, 10e6).supply_from(40, 1e9).run();
        let share = before.rate(45.0, 60.0) / before.link.bytes_per_s;
        check(&before, share > 0.93, "and again");
    }
}

#[test]
fn a_rate_limit_is_a_capacity() {
    let mut setting = Setting::on(Link::new(1000.0, 100));
    setting.supply = 10e6;
    setting.wishes.rate_bytes_per_s = Some(10_000_000);
    let outcome = setting.run();
    check(&outcome, outcome.advice.len() == 1, "no advice but the first");
    let first = &outcome.advice[0].1;
    check(&outcome, first.lanes == 2 && first.pacing_bytes_per_s == Some(10_500_000), "few lanes, evenly");
}

#[test]
fn a_rate_limit_is_not_remembered_and_a_path_below_it_is() {
    for (mbit_per_s, is_kept) in [(1000.0, false), (56.0, true)] {
        let mut setting = Setting::on(Link::new(mbit_per_s, 100));
        setting.wishes.rate_bytes_per_s = Some(10_000_000);
        let outcome = setting.run();
        let kept = outcome.tuner.remembered().map(|remembered| remembered.capacity_bytes_per_s as f64);
        check(&outcome, kept.is_some() == is_kept, "what is kept was seen");
        check(&outcome, kept.is_none_or(|kept| (0.9..1.1).contains(&(kept / outcome.link.bytes_per_s))), "of the link");
    }
}

#[test]
fn what_was_remembered_gives_the_start() {
    let setting = Setting::on(Link::new(10_000.0, 100));
    let first = setting.clone().run();
    let remembered: Remembered = first.tuner.remembered().unwrap();
    check(&first, remembered.lanes > 40, "many lanes were needed");
    let second = setting.remembered(remembered).run();
    let (cold_s, warm_s) = (first.reaches_s(0.9).unwrap(), second.reaches_s(0.9).unwrap());
    check(&second, warm_s < 0.7 * cold_s, "the second job ramps faster");
}

#[test]
fn nothing_of_a_slow_first_round_trip_is_remembered() {
    for (mbit_per_s, rtt_ms, first_rtt_ms) in [(1000.0, 228, 456), (1000.0, 228, 900), (200.0, 50, 1000)] {
        for seconds in [1, 2, 3, 5, 20] {
            let setting = Setting::on(Link::new(mbit_per_s, rtt_ms)).seconds(seconds);
            let outcome = Setting { first_rtt_us: first_rtt_ms * 1000, ..setting }.run();
            let Some(known) = outcome.tuner.remembered() else { continue };
            check(&outcome, known.rtt_min_us < outcome.link.rtt_us as u32 * 11 / 10, "the way without the wait");
            check(
                &outcome,
                known.capacity_bytes_per_s as f64 > 0.8 * outcome.link.bytes_per_s,
                "no less than it carries",
            );
        }
    }
}

fn second_job(link: Link, before_mbit_per_s: f64) -> Outcome {
    let first = Setting::on(Link::new(before_mbit_per_s, link.rtt_us / 1000)).run();
    Setting::on(link).remembered(first.tuner.remembered().unwrap()).seconds(20).run()
}

#[test]
fn what_was_remembered_keeps_the_start_from_a_queue() {
    for rtt_ms in [20, 100, 228] {
        let outcome = second_job(Link::new(1000.0, rtt_ms), 1000.0);
        let reached_s = outcome.reaches_s(0.9).unwrap_or(f64::INFINITY);
        check(&outcome, reached_s < (9.0 * rtt_ms as f64 / 1e3).max(0.5), "90 % in time");
        let most_us = outcome.points.iter().map(|point| point.queueing_us as u64).max();
        // 12 % more for the half second until that is seen.
        check(&outcome, most_us < Some(65_000), "no burst, and the look for more is short");
        check(&outcome, outcome.rate(4.0, 20.0) > 0.96 * outcome.link.bytes_per_s, "and the link is used");
    }
}

#[test]
fn what_was_remembered_is_left_when_the_path_carries_more_or_less() {
    for (before, after) in [(100.0, 1000.0), (500.0, 1000.0), (1000.0, 500.0)] {
        let outcome = second_job(Link::new(after, 100), before);
        check(&outcome, outcome.rate(5.0, 20.0) > 0.93 * outcome.link.bytes_per_s, "the link is used");
        check(&outcome, outcome.queueing_ms(0.0) < 25.0, "without a queue");
        check(&outcome, !outcome.tuner.estimate().contended, "nobody else is there");
    }
}

#[test]
fn what_was_remembered_is_not_told_as_seen() {
    let first = Setting::on(Link::new(1000.0, 100)).run();
    let mut setting = Setting::on(first.link).remembered(first.tuner.remembered().unwrap()).seconds(20);
    setting.supply = 20e6;
    let outcome = setting.run();
    let told = outcome.tuner.summary().capacity_bytes_per_s as f64;
    // At first the source fills the send buffers, too.
    check(&outcome, (20e6..40e6).contains(&told), "only what was delivered was seen");
    check(&outcome, outcome.tuner.remembered().is_none(), "and it is no news");
}

fn cell(setting: Setting) -> String {
    let outcome = setting.seconds(45).run();
    let reached = outcome.reaches_s(0.9).map_or("-".into(), |s| format!("{s:.1} s"));
    let (share, queueing_ms) = (100.0 * outcome.utilisation(), outcome.queueing_ms(0.0));
    format!("{share:4.0} % {queueing_ms:3.0} ms {:3} {reached:>7}", outcome.lanes())
}

#[test]
fn a_table_of_paths_with_short_queues_and_uneven_delays() {
    let fat = Setting::on(Link::new(1e4, 100));
    let radio = Setting::on(Link::new(200.0, 50));
    let long = Setting::on(Link::new(1e3, 228));
    let rows = [
        ("10 Gbit/s x 100 ms, queue of a tenth", Setting { link: fat.link.queue_ms(10.0), ..fat }),
        ("200 Mbit/s x 50 ms, packets vary by 7 ms", Setting { packets_vary_us: 7_000.0, ..radio }),
        ("1 Gbit/s x 228 ms, the first packet takes 900 ms", Setting { first_rtt_us: 900_000, ..long }),
    ];
    let lines = rows.map(|(name, setting)| format!("{name:50} {}\n", cell(setting.only_cubic())));
    insta::assert_snapshot!(format!(
        "Stock hosts, only cubic: share of the link over the last 30 of 45 s, median queueing delay, lanes at the end, time to 90 %.\n\n{}",
        lines.concat()
    ));
}

#[test]
fn a_table_of_paths() {
    let mut rows = Vec::new();
    for rtt_ms in [20, 100, 228] {
        for mbit_per_s in [20.0, 100.0, 1e3, 1e4, 1e5] {
            for loss in [0.0, 1e-5, 1e-4, 1e-3] {
                // Little happens on slow paths with little loss, and on paths that no host fills.
                if loss == 1e-5 && mbit_per_s < 1e3 || loss > 0.0 && mbit_per_s > 1e4 {
                    continue;
                }
                let stock = Setting::on(Link::new(mbit_per_s, rtt_ms).loss(loss));
                let settings =
                    [stock.clone(), stock.clone().tuned(), stock.clone().only_cubic(), stock.only_cubic().tuned()];
                rows.push((format!("{mbit_per_s:6} {rtt_ms:5} {loss:6.0e} "), settings));
            }
        }
    }
    let texts = |rows: &[(String, [Setting; 4])]| {
        let lines = rows.iter().map(|(name, settings)| {
            let cells: Vec<String> = settings.iter().map(|setting| cell(setting.clone())).collect();
            format!("{name} {}\n", cells.join("  "))
        });
        lines.collect::<String>()
    };
    let (first, second) = rows.split_at(rows.len() / 2);
    let (first, second) = std::thread::scope(|scope| {
        let second = scope.spawn(|| texts(second));
        (texts(first), second.join().unwrap())
    });
    let mut table = String::from(
        "Share of the link over the last 30 of 45 s, median queueing delay, lanes at the end, time to 90 %.\n\n",
    );
    table += "Mbit/s    ms   loss ";
    for column in ["stock hosts", "64 MB", "stock, only cubic", "64 MB, only cubic"] {
        table += &format!(" {column:>26} ");
    }
    insta::assert_snapshot!(format!("{}\n{first}{second}", table.trim_end()));
}

/// A link of a radio with another rate each second, and the mean of these.
fn radio(rtt_ms: u64, seed: u64) -> (Setting, f64) {
    const SECONDS: u64 = 60;
    let mut state = seed;
    let mut rates = Vec::new();
    for _ in 0..SECONDS {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        rates.push(5.0 + 75.0 * (state >> 33) as f64 / f64::from(1u32 << 31));
    }
    let mut link = Link::new(rates[0], rtt_ms);
    link.queue_bytes = 1e6;
    let mut setting = Setting::on(link).only_cubic().seconds(SECONDS);
    setting.changes = rates.iter().enumerate().map(|(s, rate)| (s as u64 * 1_000_000, rate * 125_000.0)).collect();
    (setting, rates.iter().sum::<f64>() / SECONDS as f64 * 125_000.0)
}

#[test]
fn a_link_with_another_rate_each_second_is_not_held_to_what_it_carried_in_a_slow_one() {
    for (rtt_ms, seed) in [30, 50].into_iter().flat_map(|rtt_ms| (1..=3).map(move |seed| (rtt_ms, seed))) {
        let (setting, mean_bytes_per_s) = radio(rtt_ms, seed);
        let plain = Setting { plain_lanes: Some(16), ..setting.clone() }.run();
        let outcome = setting.run();
        check(&outcome, outcome.rate(0.0, 60.0) > 0.9 * mean_bytes_per_s, "most of what it carries");
        check(&outcome, outcome.queueing_ms(5.0) < plain.queueing_ms(5.0), "with a shorter queue than plain lanes");
    }
}

#[test]
fn what_a_policer_lets_through_is_found_and_no_more_is_sent() {
    let paths =
        [(100.0, 228, 50.0, 500e3), (100.0, 50, 50.0, 500e3), (300.0, 40, 200.0, 1e6), (1000.0, 20, 100.0, 200e3)];
    for (mbit_per_s, rtt_ms, policed, burst_bytes) in paths {
        for only_cubic in [false, true] {
            let setting = Setting::on(Link::new(mbit_per_s, rtt_ms).policer(policed, burst_bytes)).seconds(40);
            let outcome = if only_cubic { setting.only_cubic() } else { setting }.run();
            let share = outcome.rate(0.0, 40.0) / (policed * 125_000.0);
            check(&outcome, share > 0.95, "what it lets through is used");
            let resent_ppm = outcome.tuner.summary().resent_ppm;
            check(&outcome, resent_ppm < 30_000, "little is sent again, most of it in the ramp");
            check(&outcome, mostly(&outcome, |time| time.capacity_us), "what it lets through is named as the limit");
        }
    }
}

#[test]
fn losses_by_chance_are_taken_for_no_policer() {
    for (loss, seed) in [(5e-3, 1), (5e-3, 2), (2e-2, 1), (2e-2, 2)] {
        let outcome = Setting { seed, ..Setting::on(Link::new(100.0, 50).loss(loss)) }.seconds(40).run();
        check(&outcome, outcome.utilisation() > 0.9, "bbr does not mind");
        check(&outcome, outcome.tuner.summary().congestion_control == "bbr", "it is chosen");
    }
}
