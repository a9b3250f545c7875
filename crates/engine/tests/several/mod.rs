//! Several paths of one job: are all used, is a shared link shared fairly, and does the job survive the death of a path?

use haul_engine::paths::PathEvent;

use super::simulated::flow::Control;
use super::simulated::link::Link;
use super::simulated::several::{Outcome, Several};

fn check(outcome: &Outcome, holds: bool, what: &str) {
    assert!(holds, "{what}\n{}", outcome.course());
}

fn share_of_all(outcome: &Outcome) -> f64 {
    outcome.rate(0.0, outcome.end_s()) / outcome.links.iter().map(|link| link.bytes_per_s).sum::<f64>()
}

fn rests(event: &PathEvent) -> bool {
    matches!(event, PathEvent::Rests { .. })
}

fn resumes(event: &PathEvent) -> bool {
    matches!(event, PathEvent::Resumes { .. })
}

/// Shows figures with `cargo test -- --nocapture`.
fn show(what: &str, figure: f64, outcome: &Outcome) {
    let trials: Vec<bool> = outcome.verdicts.iter().map(|(_, verdict)| verdict.is_shared).collect();
    println!(
        "{what}: {figure:.4}, rests at {:?}, resumes at {:?}, trials {trials:?}",
        outcome.times(rests),
        outcome.times(resumes)
    );
}

fn dies(event: &PathEvent) -> bool {
    matches!(event, PathEvent::Dead { .. })
}

#[test]
fn paths_with_links_of_their_own_carry_together_what_each_carries_alone() {
    for links in [
        [Link::new(500.0, 10), Link::new(500.0, 10)],
        [Link::new(500.0, 1), Link::new(500.0, 1)],
        [Link::new(500.0, 10), Link::new(200.0, 80).loss(1e-4)],
        [Link::new(1000.0, 228), Link::new(1000.0, 150)],
        [Link::new(100.0, 20).queue_ms(5.0), Link::new(100.0, 20).queue_ms(5.0)],
    ] {
        let alone = links.iter().map(|link| Several::over(&[*link]).seconds(20).run().rate(0.0, 20.0));
        let alone: f64 = alone.sum();
        let together = Several::over(&links).seconds(20).run();
        show(&format!("own {links:?}"), together.rate(0.0, 20.0) / alone, &together);
        check(&together, together.rate(0.0, 20.0) > 0.99 * alone, "nothing is lost");
        check(&together, together.times(rests).is_empty(), "none rests");
    }
}

#[test]
fn over_one_link_two_paths_carry_what_one_carries() {
    let links = [
        Link::new(500.0, 20),
        Link::new(1000.0, 100),
        Link::new(100.0, 50).queue_ms(10.0),
        Link::new(100.0, 20),
        Link::new(500.0, 1),
    ];
    for link in links {
        let one = Several::sharing(link, 1).seconds(40).run();
        let two = Several::sharing(link, 2).seconds(40).run();
        show(&format!("one link {link:?}"), share_of_all(&two) / share_of_all(&one), &two);
        check(&two, share_of_all(&two) > 0.98 * share_of_all(&one), "nothing is lost");
        check(&two, two.times(rests).len() <= 1, "nothing flaps");
    }
}

#[test]
fn a_foreign_flow_keeps_against_two_paths_what_it_keeps_against_one() {
    for (mbit_per_s, rtt_ms, from_s) in [(100.0, 20, 0), (100.0, 20, 10), (300.0, 50, 0)] {
        let run = |paths, seed| {
            let several = Several::sharing(Link::new(mbit_per_s, rtt_ms), paths).seed(seed).seconds(60);
            several.foreign(0, Control::Cubic, from_s, 1000).run()
        };
        let theirs = |outcome: &Outcome| outcome.foreign_rate(20.0, 60.0) / outcome.links[0].bytes_per_s;
        let (mut against_one, mut against_two) = (0.0, 0.0);
        for seed in 1..=3 {
            let (one, two) = (run(1, seed), run(2, seed));
            check(&two, two.times(rests).len() == 1, "one path rests, and nothing flaps");
            check(&two, two.times(rests)[0] < from_s as f64 + 8.0, "it rests soon");
            check(&two, theirs(&two) > 1.0 / 3.0, "they keep a third");
            show(
                &format!("foreign {mbit_per_s} x {rtt_ms} from {from_s} s, alone {:.3}", theirs(&one)),
                theirs(&two),
                &two,
            );
            (against_one, against_two) = (against_one + theirs(&one), against_two + theirs(&two));
        }
        assert!(against_two > 0.93 * against_one, "{mbit_per_s} x {rtt_ms}: {against_two} of {against_one}");
    }
}

#[test]
fn a_path_that_rests_is_tried_again_and_soon_rests_again() {
    let several = Several::sharing(Link::new(100.0, 20), 2).foreign(0, Control::Cubic, 0, 1000).seconds(90);
    let outcome = several.run();
    show("tried again", share_of_all(&outcome), &outcome);
    let (rests, resumes) = (outcome.times(rests), outcome.times(resumes));
    check(&outcome, (rests.len(), resumes.len()) == (2, 1), "once");
    check(&outcome, resumes[0] - rests[0] > 59.0 && rests[1] - resumes[0] < 6.0, "late, and not for long");
}

#[test]
fn a_path_that_joins_late_rests_when_it_adds_nothing() {
    let shared = Several::sharing(Link::new(1000.0, 100), 2).joins(1, 6_000).seconds(40).run();
    show("late, shared", share_of_all(&shared), &shared);
    check(&shared, shared.times(rests).len() == 1 && shared.times(rests)[0] < 16.0, "it rests");
    let own = Several::over(&[Link::new(500.0, 20), Link::new(200.0, 20)]).joins(1, 6_000).seconds(30).run();
    check(&own, own.verdicts.is_empty(), "a path that adds something is not held back for a trial");
}

#[test]
fn paths_that_each_meet_others_elsewhere_all_go_on() {
    for seed in 1..=3 {
        let several = Several::over(&[Link::new(100.0, 20); 2]).seed(seed).seconds(60);
        let outcome = several.foreign(0, Control::Cubic, 0, 1000).foreign(1, Control::Cubic, 0, 1000).run();
        show("elsewhere", share_of_all(&outcome), &outcome);
        check(&outcome, outcome.times(rests).is_empty(), "none rests");
        check(&outcome, outcome.verdicts.len() <= 4, "they are held back for a moment now and then");
    }
}

#[test]
fn of_three_paths_those_that_meet_are_found() {
    let mut several = Several::over(&[Link::new(100.0, 20), Link::new(200.0, 30)]).foreign(0, Control::Cubic, 0, 1000);
    several.routes.push(several.routes[0]);
    let outcome = several.seconds(40).run();
    show("three", share_of_all(&outcome), &outcome);
    let resting: Vec<u16> = outcome.paths.up().filter(|path| outcome.paths.rests(*path)).collect();
    check(&outcome, resting == [0] || resting == [2], "one of the two that meet rests");
    check(&outcome, outcome.rate_of(1, 10.0, 40.0) > 0.97 * outcome.links[1].bytes_per_s, "the third is left alone");
}

#[test]
fn a_path_that_rests_carries_at_once_when_the_other_is_gone() {
    let several = Several::sharing(Link::new(100.0, 20), 2).foreign(0, Control::Cubic, 0, 1000).seconds(20);
    let resting = several.clone().run().paths;
    let left = (0..2).find(|path| !resting.rests(*path)).unwrap_or(0);
    let outcome = several.goes_down(usize::from(left), 12_000).run();
    check(&outcome, outcome.times(resumes) == [12.0], "it resumes");
    check(&outcome, outcome.longest_stall_ms() <= 200, "nothing stalls");
}

#[test]
fn a_path_that_blackholes_is_found_in_a_second_and_comes_back() {
    for (rtts, dead, most_s) in [([10, 40], 1, 1.2), ([80, 40], 0, 1.2), ([228, 150], 0, 2.0), ([1, 1], 1, 1.2)] {
        let links = rtts.map(|rtt_ms| Link::new(500.0, rtt_ms));
        let outcome = Several::over(&links).outage(dead, 8_000, 16_000).seconds(22).run();
        let before = outcome.rate(5.0, 8.0);
        show(&format!("hole {rtts:?} {:?}", outcome.times(dies)), outcome.rate(18.0, 22.0) / before, &outcome);
        let times = outcome.times(dies);
        check(&outcome, times.len() == 1 && (8.0..8.0 + most_s).contains(&times[0]), "found in time, and once");
        check(&outcome, outcome.longest_stall_ms() <= 200, "the other one goes on");
        check(&outcome, outcome.rate(18.0, 22.0) > 0.9 * before, "both carry again");
    }
}

#[test]
fn no_path_is_cut_while_none_delivers() {
    let alone = Several::over(&[Link::new(500.0, 20)]).outage(0, 5_000, 15_000).seconds(25).run();
    check(&alone, alone.times(dies).is_empty(), "it waits");
    let both = Several::over(&[Link::new(500.0, 20), Link::new(500.0, 40)]).seconds(25);
    let both = both.outage(0, 5_000, 15_000).outage(1, 5_000, 15_000).run();
    check(&both, both.times(dies).is_empty(), "both are silent, so the cause is elsewhere");
    check(&both, both.rate(17.0, 25.0) > 0.9 * both.rate(2.0, 5.0), "both go on");
}

#[test]
fn a_rate_limit_is_divided_by_what_each_path_can_use() {
    let mut several = Several::over(&[Link::new(500.0, 20), Link::new(100.0, 20)]).seconds(15);
    several.wishes.rate_bytes_per_s = Some(50_000_000);
    let outcome = several.run();
    let bounds = &outcome.points[outcome.points.len() - 1].bounds;
    let all: u64 = bounds.iter().flatten().sum();
    check(&outcome, (50_000_000..=52_600_000).contains(&all), "all of it is given");
    check(&outcome, outcome.rate(5.0, 15.0) > 0.95 * 50e6, "what the slow path cannot use goes to the other");
}

#[test]
fn a_limit_of_the_rate_that_changes_is_followed() {
    for links in [&[Link::new(500.0, 50)][..], &[Link::new(500.0, 10)], &[Link::new(300.0, 20), Link::new(200.0, 40)]] {
        let mut several = Several::over(links).seconds(45);
        several.wishes.rate_bytes_per_s = Some(2_000_000);
        let outcome = several.limited(10, None).limited(30, Some(5_000_000)).run();
        let all = links.iter().map(|link| link.bytes_per_s).sum::<f64>();
        check(&outcome, outcome.rate(2.0, 10.0) < 2.3e6, "it holds");
        check(&outcome, outcome.rate(18.0, 30.0) > 0.9 * all, "it is lifted");
        check(&outcome, outcome.rate(35.0, 45.0) < 5.8e6, "and holds again");
    }
}

#[test]
fn lanes_that_were_asked_for_are_divided_and_each_path_has_one() {
    for (asked, expected) in [(1, [1, 1]), (9, [5, 4])] {
        let mut several = Several::over(&[Link::new(500.0, 20), Link::new(100.0, 1)]).joins(1, 2_000).seconds(5);
        several.wishes.lanes = Some(asked);
        let outcome = several.run();
        check(&outcome, outcome.points[10].lanes == [asked, 0], "the first path has all of them");
        check(&outcome, outcome.points[40].lanes == expected, "then they are divided");
    }
}
