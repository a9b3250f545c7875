//! When a job asks for priority, and when it gives it back: on links that others use, in virtual time.
#![allow(missing_docs)]

mod simulated;

use haul_engine::service::ServiceClass::{Normal, Priority};
use haul_engine::service::aware::Reason;
use haul_wire::service::MarkEffect;
use simulated::aware::{Course, Shared};
use simulated::flow::Control;
use simulated::link::{Link, Marks};

/// The bottleneck of the published experiment: 25 Mbit/s, 10 ms there and back, 25 kB for each class.
fn published() -> Link {
    Link { queue_bytes: 25_000.0, ..Link::new(25.0, 10) }
}

#[track_caller]
fn within(what: &str, course: &Course, value: Option<f64>, from_s: f64, to_s: f64) {
    assert!(value.is_some_and(|at_s| (from_s..=to_s).contains(&at_s)), "{what}: {value:?}\n{}", course.told());
}

#[test]
fn alone_nothing_is_ever_marked() {
    for link in [
        published(),
        Link::new(25.0, 10),
        Link::new(100.0, 20),
        Link::new(100.0, 100),
        Link::new(1000.0, 50),
        Link::new(20.0, 228),
    ] {
        for seed in 1..=3 {
            for loss in [0.0, 1e-4, 1e-3] {
                let course = Shared { seed, ..Shared::auto(link.loss(loss)) }.run();
                assert!(course.marked_bytes == 0.0, "{link:?} seed {seed} loss {loss}\n{}", course.told());
            }
        }
    }
}

#[test]
fn others_from_the_start_are_noticed_within_seconds_and_priority_pays() {
    for seed in 1..=8 {
        let shared = || Shared { seed, seconds: 34, ..Shared::auto(published()).others(0.96, 0.0, 99.0) };
        let (auto, priority) = (shared().run(), shared().fixed(Priority).run());
        let normal = shared().fixed(Normal).run();
        let rate = |course: &Course| course.rate(0.0, 34.0);
        within("raised", &auto, auto.changed_s(Priority, 0.0), 0.0, 2.0);
        assert!(rate(&auto) > 0.95 * rate(&priority), "{} of {}\n{}", rate(&auto), rate(&priority), auto.told());
        assert!(rate(&auto) > 2.5 * rate(&normal), "{}", normal.told());
        assert!(matches!(auto.effect, MarkEffect::Helps | MarkEffect::Policed { .. }), "{}", auto.told());
    }
}

#[test]
fn others_that_come_raise_the_class_and_others_that_go_release_it() {
    for link in [published(), Link::new(25.0, 10), Link::new(100.0, 20), Link::new(100.0, 100)] {
        for seed in 1..=4 {
            let auto =
                Shared { seed, seconds: 60, ..Shared::auto(link).others(0.9, 10.0, 25.0).others(0.9, 40.0, 50.0) }
                    .run();
            let told = format!("{link:?} seed {seed}");
            // The others' queue goes first, and the scout hears of it a few round trips later.
            let late_s = 15e-6 * link.rtt_us as f64;
            within(&format!("raised, {told}"), &auto, auto.changed_s(Priority, 0.0), 10.0, 11.5);
            within(&format!("released, {told}"), &auto, auto.changed_s(Normal, 0.0), 25.0, 28.0 + late_s);
            within(&format!("raised again, {told}"), &auto, auto.changed_s(Priority, 30.0), 40.0, 41.5);
            within(&format!("released again, {told}"), &auto, auto.changed_s(Normal, 41.5), 50.0, 53.0 + late_s);
            assert_eq!(auto.changes.len(), 4, "it flaps, {told}\n{}", auto.told());
        }
    }
}

#[test]
fn a_link_whose_marked_packets_may_fill_it_releases_the_class_too() {
    // Nothing is left for the scout: only a trial tells.
    for seed in 1..=4 {
        let link = Link::new(50.0, 20);
        let shared = Shared { seed, seconds: 30, ..Shared::auto(link).others(0.9, 8.0, 15.0) };
        let auto = shared.marks(Marks::First(link.bytes_per_s)).run();
        within("raised", &auto, auto.changed_s(Priority, 0.0), 8.0, 9.5);
        within("released", &auto, auto.changed_s(Normal, 0.0), 15.0, 24.0);
    }
}

#[test]
fn one_lane_alone_is_released_by_trials() {
    for seed in 1..=4 {
        let shared = Shared { seed, seconds: 30, lanes: Some(1), ..Shared::auto(published()).others(0.9, 8.0, 15.0) };
        let auto = shared.run();
        within("raised", &auto, auto.changed_s(Priority, 0.0), 8.0, 9.5);
        within("released", &auto, auto.changed_s(Normal, 0.0), 15.0, 24.0);
    }
}

#[test]
fn other_copies_that_share_fairly_are_others_too() {
    for seed in 1..=4 {
        let cubic_others = vec![(8.0, 20.0); 8];
        let auto = Shared { seed, seconds: 30, cubic_others, ..Shared::auto(Link::new(50.0, 20)) }.run();
        within("raised", &auto, auto.changed_s(Priority, 0.0), 8.0, 10.5);
        // Flows that yield come back slowly, and may be taken for gone once or twice.
        assert!(auto.changes.len() <= 6, "it flaps\n{}", auto.told());
        let last = auto.changes.last().map(|(at_s, _)| *at_s);
        within("released", &auto, last, 20.0, 25.0);
    }
}

#[test]
fn a_mark_that_does_nothing_is_given_up() {
    let auto = Shared::auto(published()).marks(Marks::Ignored).others(0.9, 5.0, 99.0).run();
    assert!(matches!(auto.reasons()[..], [Reason::Taken { .. } | Reason::Filled, Reason::NoEffect]), "{}", auto.told());
    assert_eq!(auto.effect, MarkEffect::None);
}

#[test]
fn a_path_that_drops_marked_packets_is_named_and_the_mark_goes() {
    let auto = Shared::auto(published()).marks(Marks::Dropped).others(0.8, 5.0, 99.0).run();
    assert!(matches!(auto.reasons()[..], [Reason::Taken { .. } | Reason::Filled, Reason::Dropped]), "{}", auto.told());
    assert!(auto.rate(15.0, 30.0) > 0.1 * 25e6 / 8.0, "{}", auto.told());
}

#[test]
fn a_path_that_polices_the_mark_below_what_we_had_is_named_and_the_mark_goes() {
    let link = Link::new(100.0, 20);
    let auto = Shared::auto(link).marks(Marks::First(10e6 / 8.0)).others(0.5, 5.0, 99.0).run();
    let named = matches!(auto.reasons()[..], [_, Reason::Policed { rate_bytes_per_s }] if (0.8..1.3).contains(&(rate_bytes_per_s as f64 / 1.25e6)));
    assert!(named, "{}", auto.told());
}

#[test]
fn with_a_floor_only_as_many_lanes_as_carry_it_are_marked() {
    let link = Link::new(100.0, 20);
    let floor = 20e6 / 8.0;
    let auto =
        Shared { lanes: Some(8), floor: Some(Some(floor as u64)), ..Shared::auto(link).others(0.95, 5.0, 99.0) }.run();
    within("raised", &auto, auto.changed_s(Priority, 0.0), 5.0, 6.5);
    assert!(auto.rate(10.0, 30.0) > 0.95 * floor, "{}", auto.told());
    assert!(auto.marked_bytes < 1.15 * floor * 25.0, "{}", auto.told());
    let alone = Shared { lanes: Some(8), floor: Some(Some(floor as u64)), ..Shared::auto(link) }.run();
    assert_eq!(alone.marked_bytes, 0.0, "{}", alone.told());
}

fn with_an_end(link: Link, seed: u64) -> Shared {
    let seconds = 240;
    Shared { seed, seconds, lanes: Some(8), job: Some((40e6, 4e6)), ..Shared::auto(link) }
}

#[test]
fn the_lane_that_watches_does_not_hold_up_the_end_of_a_job() {
    for seed in 1..=4 {
        let shared = || with_an_end(published(), seed).others(0.96, 0.0, 999.0);
        let (auto, priority) = (shared().run(), shared().fixed(Priority).run());
        let (Some(auto_s), Some(priority_s)) = (auto.done_s, priority.done_s) else {
            panic!("seed {seed}: not done\n{}", auto.told())
        };
        assert!(auto_s < 1.06 * priority_s + 1.5, "seed {seed}: {auto_s} s, not {priority_s}\n{}", auto.told());
        assert!(auto.changed_s(Normal, 0.0).is_none(), "seed {seed}\n{}", auto.told());
    }
}

#[test]
fn lanes_that_finish_are_no_sign_of_others() {
    for link in [
        published(),
        Link::new(25.0, 10).queue_ms(200.0),
        Link::new(100.0, 20).queue_ms(200.0).loss(1e-3),
        Link::new(100.0, 100),
        Link::new(1000.0, 50),
    ] {
        for control in [Control::Cubic, Control::Bbr] {
            for seed in 1..=3 {
                for (lanes, units) in [(8, 9.0), (8, 12.0), (4, 5.0), (2, 3.0)] {
                    let (seconds, bytes) = (60, link.bytes_per_s * 10.0);
                    let job = Some((bytes, bytes / units));
                    // Fewer than eight lanes never carry that with losses.
                    let of_eight = (lanes == 8).then_some((link.bytes_per_s * 0.7) as u64);
                    for floor in [None, of_eight] {
                        let shared = Shared { seed, seconds, control, lanes: Some(lanes), job, ..Shared::auto(link) };
                        let auto = Shared { floor: Some(floor), ..shared }.run();
                        // While lanes begin, the rate is below the floor.
                        let late = auto.changed_s(Priority, 5.0);
                        let told = format!("{link:?} {control:?} seed {seed}, {lanes} lanes, {units} units, {floor:?}");
                        assert!(auto.done_s.is_some() && late.is_none(), "{told}\n{}", auto.told());
                    }
                }
            }
        }
    }
}

#[test]
fn what_the_mark_had_of_its_own_says_nothing_of_the_path_without_it() {
    // A circuit for marked packets is wider than what all others share.
    for seed in 1..=4 {
        let link = Link::new(20.0, 20);
        let shared = Shared { seed, seconds: 50, ..Shared::auto(link).others(0.9, 5.0, 20.0) };
        let auto = shared.marks(Marks::Reserved(60e6 / 8.0)).run();
        within("raised", &auto, auto.changed_s(Priority, 0.0), 5.0, 6.5);
        within("released", &auto, auto.changed_s(Normal, 0.0), 20.0, 30.0);
        let released_s = auto.changed_s(Normal, 20.0).unwrap_or(99.0);
        assert!(auto.changed_s(Priority, released_s).is_none(), "nobody is there\n{}", auto.told());
    }
}

#[test]
fn segments_that_wait_for_their_pair_are_no_queue() {
    for (mbit, rtt_ms) in [(2.0, 20), (4.0, 20), (2.0, 50), (8.0, 10)] {
        for lanes in [2, 4, 8] {
            let link = Link::new(mbit, rtt_ms);
            let auto = Shared { seconds: 60, lanes: Some(lanes), pairs_wait: true, ..Shared::auto(link) }.run();
            assert!(auto.changes.is_empty(), "{mbit} Mbit/s x {rtt_ms} ms, {lanes} lanes\n{}", auto.told());
        }
    }
}

#[test]
fn others_who_drop_our_packets_are_noticed_without_a_queue() {
    // Two milliseconds of queue, full at all times.
    for seed in 1..=6 {
        for mbit in [25.0, 100.0] {
            let link = Link::new(mbit, 20).queue_ms(2.0);
            let shared = Shared { seed, whole_packets: true, ..Shared::auto(link) };
            let auto = shared.others(1.1, 0.0, 99.0).run();
            within(&format!("raised, seed {seed}"), &auto, auto.changed_s(Priority, 0.0), 0.0, 3.0);
        }
    }
}

#[test]
fn random_loss_is_no_sign_of_others() {
    for loss in [0.01, 0.03] {
        for seed in 1..=3 {
            let auto = Shared { seed, seconds: 40, ..Shared::auto(Link::new(50.0, 20).loss(loss)) }.run();
            // A class raised without other signs is compared and given up.
            assert!(auto.marked_bytes < 0.1 * auto.rate(0.0, 40.0) * 40.0, "loss {loss} seed {seed}\n{}", auto.told());
        }
    }
}

#[test]
fn others_from_the_start_are_noticed_behind_a_longer_queue_too() {
    for share in [0.96, 0.94] {
        for seed in 1..=4 {
            let link = Link { queue_bytes: 100_000.0, ..published() };
            let shared =
                || Shared { seed, seconds: 36, whole_packets: true, ..Shared::auto(link).others(share, 0.0, 99.0) };
            let (auto, priority) = (shared().run(), shared().fixed(Priority).run());
            let (got, most) = (auto.rate(0.0, 36.0), priority.rate(0.0, 36.0));
            assert!(got > 0.9 * most, "{share}, seed {seed}: {got} of {most}\n{}", auto.told());
        }
    }
}

#[test]
fn others_who_drop_most_of_our_packets_are_noticed_by_the_few_that_a_look_sends() {
    // Lanes with a window of a few packets lose most of them: a look sends fewer than 30.
    for lanes in [2, 8] {
        let raised_s = |seed| {
            let shared = Shared { seed, lanes: Some(lanes), whole_packets: true, ..Shared::auto(published()) };
            let auto = shared.others(3.0, 0.0, 99.0).run();
            within(&format!("raised, {lanes} lanes, seed {seed}"), &auto, auto.changed_s(Priority, 0.0), 0.0, 6.0);
            auto.changed_s(Priority, 0.0)
        };
        // By chance few are lost now and then, and the next look tells.
        let late = (1..=16).map(raised_s).filter(|at_s| at_s.is_none_or(|at_s| at_s > 1.5)).count();
        assert!(late <= 4, "{lanes} lanes: {late} of 16 were late");
    }
}

#[test]
fn where_marked_packets_leave_little_the_class_is_released_in_time_too() {
    for seed in 1..=20 {
        let link = published();
        let shared =
            Shared { seed, seconds: 70, ..Shared::auto(link).others(0.96, 15.0, 35.0).others(0.96, 50.0, 62.0) };
        let auto = shared.marks(Marks::First(0.96 * link.bytes_per_s)).run();
        within("released", &auto, auto.changed_s(Normal, 20.0), 35.0, 38.0);
        within("released again", &auto, auto.changed_s(Normal, 51.0), 62.0, 65.0);
    }
}
