//! Figures of forty paths, ours and theirs: a rule earns its place when one of them is worse without it.

mod background;
mod simulated;

use haul_engine::paths::PathEvent;
use haul_engine::service::ServiceClass::{Normal, Priority};
use simulated::aware::{Course, Shared};
use simulated::flow::Control::{self, Bbr, Constant, Cubic};
use simulated::link::{Link, Marks};
use simulated::run::{Outcome, Setting};
use simulated::several::{self, Several};

/// Each figure is a mean over these.
const SEEDS: u64 = 3;
const SECONDS: u64 = 45;

fn paths() -> Vec<(&'static str, Setting)> {
    let on = |mbit_per_s: f64, rtt_ms: u64| Setting::on(Link::new(mbit_per_s, rtt_ms));
    let near = |mbit_per_s: f64, rtt_us: u64| Setting::on(Link::new(mbit_per_s, 1).rtt_us(rtt_us).queue_ms(2.0));
    let queue = |setting: Setting, ms: f64| Setting { link: setting.link.queue_ms(ms), ..setting };
    let loss = |setting: Setting, loss: f64| Setting { link: setting.link.loss(loss), ..setting };
    let policed = |setting: Setting, mbit_per_s: f64, burst: f64| Setting {
        link: setting.link.policer(mbit_per_s, burst),
        ..setting
    };
    let slow_source = Setting { supply: 10e6, ..on(400.0, 60).bursts(10e6).supply_from(20, 1e9) };
    let known = |before: f64, setting: Setting| {
        let first = Setting::on(Link::new(before, setting.link.rtt_us / 1000)).seconds(20).run();
        setting.remembered(first.tuner.remembered().expect("it was steady"))
    };
    vec![
        ("10 Mbit/s x 30 ms, queue of 500 ms", queue(on(10.0, 30), 500.0)),
        ("10 Mbit/s x 600 ms", on(10.0, 600)),
        ("50 Mbit/s x 600 ms, loses 1e-4", loss(on(50.0, 600), 1e-4)),
        ("20 Mbit/s x 20 ms, queue of 300 ms", queue(on(20.0, 20), 300.0)),
        ("20 Mbit/s x 60 ms, packets in pairs", Setting { pairs: true, ..on(20.0, 60) }),
        ("20 Mbit/s x 80 ms, acks in clumps", Setting { clumps_us: 15_000, ..on(20.0, 80) }),
        ("100 Mbit/s x 5 ms", on(100.0, 5)),
        ("100 Mbit/s x 20 ms, queue of 5 ms", queue(on(100.0, 20), 5.0)),
        ("100 Mbit/s x 50 ms, queue of 500 ms", queue(on(100.0, 50), 500.0)),
        ("100 Mbit/s x 228 ms, policed to 50", policed(on(100.0, 228), 50.0, 200e3)),
        ("300 Mbit/s x 40 ms, policed to 200, only cubic", policed(on(300.0, 40), 200.0, 1e6).only_cubic()),
        (
            "150 Mbit/s x 60 ms, jitter of 10 ms, 50 Mbit/s from 15 to 25 s",
            Setting { jitter_us: 10_000, ..on(150.0, 60).rate_from(15, 50.0).rate_from(25, 150.0) },
        ),
        ("200 Mbit/s x 50 ms, packets vary by 7 ms", Setting { packets_vary_us: 7e3, ..on(200.0, 50) }),
        (
            "200 Mbit/s x 50 ms, 1 of 1000 overtaken",
            Setting { packets_vary_us: 7e3, are_only_late: true, ..loss(on(200.0, 50), 1e-3).only_cubic() },
        ),
        ("100 Mbit/s x 100 ms, down from 10 to 13 s", on(100.0, 100).outage(10_000, 13_000)),
        ("1 Gbit/s x 0.2 ms", near(1e3, 200)),
        ("1 Gbit/s x 2 ms", near(1e3, 2_000)),
        ("400 Mbit/s x 60 ms, slow source until 20 s", slow_source),
        ("1 Gbit/s x 100 ms, loses 1e-4, only cubic", loss(on(1e3, 100), 1e-4).only_cubic()),
        ("1 Gbit/s x 100 ms, loses 1e-3", loss(on(1e3, 100), 1e-3)),
        ("1 Gbit/s x 100 ms, queue of 5 ms", queue(on(1e3, 100), 5.0)),
        ("1 Gbit/s x 300 ms, loses 5e-3", loss(on(1e3, 300), 5e-3)),
        ("1 Gbit/s x 100 ms, busy host", Setting { stalls: (0.3, 50_000), ..on(1e3, 100) }),
        ("1 Gbit/s x 150 ms, windows of 256 kB", on(1e3, 150).windows(256e3, 256e3)),
        ("1 Gbit/s x 228 ms", on(1e3, 228)),
        ("1 Gbit/s x 228 ms, first packet takes 900 ms", Setting { first_rtt_us: 900_000, ..on(1e3, 228) }),
        ("1 Gbit/s x 100 ms, 500 Mbit/s was known", known(500.0, on(1e3, 100))),
        ("500 Mbit/s x 100 ms, 1 Gbit/s was known", known(1e3, on(500.0, 100))),
        ("10 Gbit/s x 100 ms, it was known", known(1e4, on(1e4, 100))),
        ("10 Gbit/s x 0.2 ms", near(1e4, 200).tuned()),
        ("10 Gbit/s x 20 ms, loses 1e-4, tuned, only cubic", loss(on(1e4, 20), 1e-4).tuned().only_cubic()),
        ("10 Gbit/s x 30 ms, loses 1e-5, only cubic", loss(on(1e4, 30), 1e-5).only_cubic()),
        ("10 Gbit/s x 100 ms, queue of 10 ms, only cubic", queue(on(1e4, 100), 10.0).only_cubic()),
        ("10 Gbit/s x 228 ms, tuned", on(1e4, 228).tuned()),
        ("100 Gbit/s x 60 ms, tuned", on(1e5, 60).tuned()),
        ("100 Mbit/s x 20 ms, a cubic flow", on(100.0, 20).foreign(Cubic, 0, 999)),
        ("100 Mbit/s x 50 ms, cubic flows from 5 to 20 and 25 to 35 s", {
            on(100.0, 50).foreign(Cubic, 5, 20).foreign(Cubic, 25, 35)
        }),
        ("100 Mbit/s x 50 ms, four cubic flows before us", Setting { late_s: 8, ..many(on(100.0, 50), Cubic, 4) }),
        ("300 Mbit/s x 50 ms, queue of 10 ms, a cubic flow", queue(on(300.0, 50), 10.0).foreign(Cubic, 0, 999)),
        ("300 Mbit/s x 80 ms, a bbr flow", on(300.0, 80).foreign(Bbr, 0, 999)),
        ("1 Gbit/s x 100 ms, two cubic flows from 10 s", many(on(1e3, 100), Cubic, 2).foreign(Cubic, 10, 30)),
        (
            "25 Mbit/s x 20 ms, a stream of 16 from 5 to 25 s",
            Setting { constant_bytes_per_s: 2e6, ..on(25.0, 20).foreign(Constant, 5, 25) },
        ),
    ]
}

fn many(setting: Setting, control: Control, flows: u64) -> Setting {
    (0..flows).fold(setting, |setting, _| setting.foreign(control, 0, 999))
}

/// Seconds until so many seconds of the link have arrived, rate from 15 s on, and theirs; queue in ms: median, and one of twenty
/// is longer; lanes.
fn figures(outcome: &Outcome, late_s: f64) -> Vec<f64> {
    let bytes_per_s = outcome.link.policer.map_or(outcome.link.bytes_per_s, |(rate, _)| rate);
    let took_s = |seconds: f64| {
        let found = outcome.points.iter().find(|point| point.acked >= seconds * bytes_per_s);
        found.map_or(SECONDS as f64, |point| point.at_us as f64 / 1e6 - late_s)
    };
    let mut queue_ms: Vec<f64> = outcome.points.iter().map(|point| point.queueing_us / 1e3).collect();
    queue_ms.sort_by(f64::total_cmp);
    let end_s = outcome.end_s();
    vec![
        took_s(1.0),
        took_s(5.0),
        outcome.rate(late_s + 15.0, end_s) / bytes_per_s * 100.0,
        outcome.foreign_rate(late_s, end_s).max(0.0) / bytes_per_s * 100.0,
        queue_ms[queue_ms.len() / 2],
        queue_ms[queue_ms.len() * 19 / 20],
        f64::from(outcome.lanes()),
    ]
}

fn rests(event: &PathEvent) -> bool {
    matches!(event, PathEvent::Rests { .. })
}

fn several_paths() -> Vec<(&'static str, Several)> {
    let over = |links: [(f64, u64); 2]| Several::over(&links.map(|(mbit_per_s, rtt_ms)| Link::new(mbit_per_s, rtt_ms)));
    let mut three = over([(100.0, 20), (200.0, 30)]).foreign(0, Cubic, 0, 999);
    three.routes.push(three.routes[0]);
    vec![
        ("500 x 10 and 200 x 80", over([(500.0, 10), (200.0, 80)])),
        ("1000 x 228 and 1000 x 150", over([(1000.0, 228), (1000.0, 150)])),
        ("one link of 500 x 20", Several::sharing(Link::new(500.0, 20), 2)),
        ("one link of 100 x 20, a cubic flow", Several::sharing(Link::new(100.0, 20), 2).foreign(0, Cubic, 0, 999)),
        ("one link of 300 x 50, a cubic flow", Several::sharing(Link::new(300.0, 50), 2).foreign(0, Cubic, 5, 999)),
        ("a cubic flow on each of 100 x 20", {
            over([(100.0, 20), (100.0, 20)]).foreign(0, Cubic, 0, 999).foreign(1, Cubic, 0, 999)
        }),
        ("three, of which two meet, and a cubic flow", three),
        ("500 x 10 and 500 x 40, which drops all from 8 to 16 s", {
            over([(500.0, 10), (500.0, 40)]).outage(1, 8_000, 16_000)
        }),
        ("500 x 20 and from 6 s 200 x 20", over([(500.0, 20), (200.0, 20)]).joins(1, 6_000)),
        ("one link of 1000 x 100, the second from 6 s", Several::sharing(Link::new(1e3, 100), 2).joins(1, 6_000)),
    ]
}

/// Rate and theirs, in percent of all links, and rests.
fn figures_of_several(outcome: &several::Outcome) -> Vec<f64> {
    let all: f64 = outcome.links.iter().map(|link| link.bytes_per_s).sum();
    let (rate, theirs) = (outcome.rate(0.0, 40.0), outcome.foreign_rate(10.0, 40.0));
    vec![rate / all * 100.0, theirs / all * 100.0, outcome.times(rests).len() as f64]
}

fn background_jobs() -> Vec<(&'static str, background::Setting)> {
    let on = |mbit_per_s: f64, rtt_ms: u64| background::Setting::on(Link::new(mbit_per_s, rtt_ms));
    let short = (0..20).map(|at| (1e6, 10.0 + 1.37 * f64::from(at))).collect();
    let stream = background::Setting { constant_bytes_per_s: 2e6, ..on(25.0, 20) };
    vec![
        ("100 x 20, alone", on(100.0, 20)),
        ("100 x 228, alone", on(100.0, 228)),
        ("1000 x 50, alone", on(1000.0, 50)),
        ("10 x 50, alone", on(10.0, 50)),
        ("100 x 50, loses 1e-3", background::Setting::on(Link::new(100.0, 50).loss(1e-3))),
        ("100 x 50, busy host", background::Setting { jitter_us: 400, ..on(100.0, 50) }),
        ("100 x 50, packets vary by 2 ms", background::Setting { packets_vary_us: 2e3, ..on(100.0, 50) }),
        ("100 x 20, a cubic flow from 10 to 25 s", on(100.0, 20).cubic(10.0, 25.0)),
        ("100 x 100, a cubic flow from 10 to 25 s", on(100.0, 100).cubic(10.0, 25.0)),
        (
            "100 x 50, after a cubic flow",
            background::Setting { ours_from_s: vec![8.0], ..on(100.0, 50).cubic(0.0, 999.0) },
        ),
        ("100 x 50, queue of 2 ms, a cubic flow", {
            background::Setting::on(Link::new(100.0, 50).queue_ms(2.0)).cubic(10.0, 999.0)
        }),
        ("25 x 20, a stream of 16", background::Setting { others: vec![(Constant, 5.0, 999.0)], ..stream }),
        ("100 x 50, short flows", background::Setting { short, ..on(100.0, 50) }),
        ("100 x 50, two of ours", background::Setting { ours_from_s: vec![0.0, 5.0], ..on(100.0, 50) }),
    ]
}

/// Our share, theirs from 10 to 25 s and to the end, our queue in ms, and how long short flows took.
fn figures_of_background(outcome: &background::Outcome) -> Vec<f64> {
    let took_s = outcome.took_s.iter().fold(0.0, |sum, took_s| sum + took_s) / outcome.took_s.len().max(1) as f64;
    vec![
        outcome.ours(0.0, 39.0) * 100.0,
        outcome.theirs(10.0, 25.0) * 100.0,
        outcome.theirs(25.0, 39.0) * 100.0,
        outcome.queueing_ms(8.0),
        took_s,
    ]
}

fn jobs_that_ask() -> Vec<(&'static str, Shared)> {
    let published = Link { queue_bytes: 25_000.0, ..Link::new(25.0, 10) };
    let auto = |link: Link| Shared { seconds: 40, ..Shared::auto(link) };
    let come_and_go = |link: Link| auto(link).others(0.9, 5.0, 15.0).others(0.9, 25.0, 32.0);
    let cubic_others = vec![(8.0, 20.0); 8];
    let job = Some((40e6, 4e6));
    let policed = Marks::First(1.25e6);
    vec![
        ("25 x 10, alone", auto(published)),
        ("25 x 10, others from the start", auto(published).others(0.96, 0.0, 99.0)),
        ("25 x 10, others from the start with priority", auto(published).others(0.96, 0.0, 99.0).fixed(Priority)),
        ("25 x 10, others from the start, not asked", auto(published).others(0.96, 0.0, 99.0).fixed(Normal)),
        ("25 x 10, they come and go", come_and_go(published)),
        ("100 x 20, they come and go", come_and_go(Link::new(100.0, 20))),
        ("100 x 100, they come and go", come_and_go(Link::new(100.0, 100))),
        ("100 x 20, loses 1e-3, they come and go", come_and_go(Link::new(100.0, 20).loss(1e-3))),
        ("25 x 10, one lane, they come and go", Shared { lanes: Some(1), ..come_and_go(published) }),
        ("50 x 20, marked packets may fill it", come_and_go(Link::new(50.0, 20)).marks(Marks::First(50e6 / 8.0))),
        ("50 x 20, eight cubic flows", Shared { cubic_others, ..auto(Link::new(50.0, 20)) }),
        ("25 x 10, marks ignored", auto(published).marks(Marks::Ignored).others(0.9, 5.0, 99.0)),
        ("25 x 10, marks dropped", auto(published).marks(Marks::Dropped).others(0.8, 5.0, 99.0)),
        ("100 x 20, marks policed to 10", auto(Link::new(100.0, 20)).marks(policed).others(0.5, 5.0, 99.0)),
        ("20 x 20, a circuit of 60 for marks", come_and_go(Link::new(20.0, 20)).marks(Marks::Reserved(7.5e6))),
        ("100 x 20, a floor of 20", {
            Shared { lanes: Some(8), floor: Some(Some(2_500_000)), ..come_and_go(Link::new(100.0, 20)) }
        }),
        ("25 x 10, 40 MB", Shared { lanes: Some(8), job, ..auto(published).others(0.96, 0.0, 999.0) }),
        ("25 x 20, queue of 2 ms, more than fits", {
            Shared { whole_packets: true, ..auto(Link::new(25.0, 20).queue_ms(2.0)).others(1.1, 0.0, 99.0) }
        }),
        ("50 x 20, loses 3 %", auto(Link::new(50.0, 20).loss(0.03))),
    ]
}

/// Rate in percent of the link, first raise and release in seconds, changes, marked part in percent.
fn figures_of_class(course: &Course, bytes_per_s: f64, seconds: f64) -> Vec<f64> {
    let end_s = course.done_s.unwrap_or(seconds);
    let raised_s = course.changed_s(Priority, 0.0);
    vec![
        course.rate(0.0, end_s) / bytes_per_s * 100.0,
        raised_s.unwrap_or(seconds),
        raised_s.and_then(|at_s| course.changed_s(Normal, at_s)).unwrap_or(seconds),
        course.changes.len() as f64,
        course.marked_bytes / bytes_per_s / end_s * 100.0,
    ]
}

fn table<T: Sync>(
    title: &str,
    columns: &[&str],
    rows: &[(&'static str, T)],
    of: impl Fn(&T, u64) -> Vec<f64> + Sync,
) -> String {
    let mean = |row: &(&'static str, T)| {
        let runs: Vec<Vec<f64>> = (1..=SEEDS).map(|seed| of(&row.1, seed)).collect();
        (0..runs[0].len()).map(|at| runs.iter().map(|run| run[at]).sum::<f64>() / SEEDS as f64).collect::<Vec<f64>>()
    };
    let (first, second) = rows.split_at(rows.len() / 2);
    let mut means: Vec<Vec<f64>> = Vec::new();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| second.iter().map(mean).collect::<Vec<_>>());
        means.extend(first.iter().map(mean));
        means.extend(second.join().unwrap());
    });
    let heads: Vec<String> = columns.iter().map(|column| format!("{column:>10}")).collect();
    let mut text = format!("{title:60}{}\n", heads.concat());
    for ((name, _), means) in rows.iter().zip(means) {
        let exact: Vec<String> = means.iter().map(|mean| format!("{mean:.4}")).collect();
        println!("figures\t{title}: {name}\t{}", exact.join("\t"));
        let cells: Vec<String> = means.iter().map(|mean| format!("{mean:10.1}")).collect();
        text += &format!("{name:60}{}\n", cells.concat());
    }
    text
}

#[test]
fn a_table_of_forty_paths() {
    insta::assert_snapshot!(table(
        "normal",
        &["1 s", "5 s", "rate %", "theirs %", "median ms", "95 % ms", "lanes"],
        &paths(),
        |setting, seed| {
            let late_s = setting.late_s as f64;
            figures(&Setting { seed, ..setting.clone() }.seconds(SECONDS).run(), late_s)
        }
    ));
}

#[test]
fn bbr_sends_little_again_through_a_queue_of_a_quarter_of_the_path() {
    for ((mbit_per_s, seconds), seed) in
        [(100.0, 26), (1000.0, 4)].into_iter().flat_map(|path| (1..=4).map(move |seed| (path, seed)))
    {
        let mut setting = Setting { seed, ..Setting::on(Link::new(mbit_per_s, 20).queue_ms(5.0)).seconds(seconds) };
        setting.wishes.host_congestion_control = "bbr".into();
        let outcome = setting.run();
        let resent_ppm = outcome.tuner.summary().resent_ppm;
        assert!(resent_ppm < 50_000, "most of it in the ramp: {resent_ppm}\n{}", outcome.course());
        let rate = outcome.rate(1.0, seconds as f64);
        assert!(rate > 0.97 * outcome.link.bytes_per_s, "the link is used\n{}", outcome.course());
    }
}

#[test]
fn a_table_of_several_paths() {
    insta::assert_snapshot!(table("several", &["rate %", "theirs %", "rests"], &several_paths(), |several, seed| {
        figures_of_several(&several.clone().seed(seed).seconds(40).run())
    }));
}

#[test]
fn a_table_of_background_jobs() {
    insta::assert_snapshot!(table(
        "background",
        &["ours %", "theirs %", "later %", "median ms", "short s"],
        &background_jobs(),
        |setting, seed| figures_of_background(&background::Setting { seed, ..setting.clone() }.run())
    ));
}

#[test]
fn a_table_of_jobs_that_ask_for_priority() {
    insta::assert_snapshot!(table(
        "auto",
        &["rate %", "raised s", "left s", "changes", "marked %"],
        &jobs_that_ask(),
        |shared, seed| {
            let course = Shared { seed, ..shared.clone() }.run();
            figures_of_class(&course, shared.link.bytes_per_s, shared.seconds as f64)
        }
    ));
}
