//! A link goes down during a copy: the bar, `--json`, and the report.

use haul_e2e::outcome::json_lines;
use haul_e2e::{Facets, Lab, Run, assert_same, at, code, needs, plant};
use serde_json::Value;

use crate::roaming::OverSsh;

const SIZE: u64 = 24 << 20;

/// One file at 8 MB/s, over ssh. A flush to a busy disk would be a pause, too.
fn copy(lab: &Lab, is_push: bool, flags: &[&str]) -> Run {
    let (from, to) = if is_push { ("home", "alpha") } else { ("alpha", "home") };
    let (source, target) = (lab.data(from).join("file"), lab.data(to).join("copy"));
    plant::file(&source, SIZE, 1);
    let cp = lab.cp().args(["--rate", "8MB", "--no-flush"]).args(flags);
    match is_push {
        true => cp.arg(source).arg(at("alpha", &target)),
        false => cp.arg(at("alpha", &source)).arg(target),
    }
}

fn no_data_s(event: &Value) -> Option<f64> {
    event["no_data_s"].as_f64()
}

#[test]
fn while_a_link_is_down_progress_stands_still_and_says_so_and_the_report_has_its_time() {
    needs!(Namespaces, Haul);
    for is_push in [true, false] {
        let lab = Lab::pair();
        let mut running = copy(&lab, is_push, &[]).start();
        running.when_moved(4 << 20);
        lab.alpha().unplug();
        running.when("it says so", |running| {
            json_lines(&running.stdout_so_far()).iter().filter_map(no_data_s).any(|s| s > 4.0)
        });
        lab.alpha().plug();
        let run = running.wait().expect(code::OK);
        let progress = run.events_named("progress");
        let first = progress.iter().position(|event| no_data_s(event).is_some()).expect("it was said");
        let last = progress.iter().rposition(|event| no_data_s(event).is_some()).expect("it was said");
        let [first, last] = [first, last].map(|at| &progress[at]);
        assert!(no_data_s(first).is_some_and(|s| s >= 2.0), "{first}");
        for event in progress.iter().filter(|event| no_data_s(event).is_some()) {
            let still = ["bytes_moved", "done_share"];
            assert!(still.iter().all(|field| event[*field] == first[*field]), "{event}\nafter\n{first}");
            assert_eq!((&event["rate_bytes_per_s"], &event["eta_s"]), (&0.into(), &Value::Null), "{event}");
        }
        let report = run.report();
        let outages = report["outage_times"].as_array().expect("a list");
        let [outage] = outages.as_slice() else { panic!("{outages:?}\n{run}") };
        let (length_s, told_s) =
            (outage["length_s"].as_f64().expect("a number"), no_data_s(last).expect("it was said"));
        assert!((length_s - told_s).abs() < 0.01 && length_s > 4.0, "{outage}, {last}");
        assert!(outage["began"].as_str().is_some_and(|began| began.ends_with('Z')), "{outage}");
        assert_eq!(report["outage_times_more"], 0, "{run}");
        let why = lab.haul().arg("why").env("TZ", "UTC").run().expect(code::OK).stdout_text();
        let date = outage["began"].as_str().and_then(|began| began.split('T').next()).expect("a date");
        assert!(why.contains(&format!("\n  nothing came          {date} ")), "{why}");
    }
}

#[test]
fn an_outage_that_ends_a_try_is_in_the_report_of_the_job() {
    needs!(Namespaces, Haul);
    let copy = OverSsh::new(true);
    let mut running = copy.command().args(["--retry", "10m", "--timeout", "3"]).start();
    running.when_moved(40 << 20);
    copy.lab.alpha().unplug();
    running.when("the first try is lost", |running| {
        json_lines(&running.stdout_so_far()).iter().any(|event| event["event"] == "retry")
    });
    copy.lab.alpha().plug();
    let run = running.wait().expect(code::OK);
    assert_same(&copy.source, &copy.target, Facets::PLAIN);
    let report = run.report();
    let outages = report["outage_times"].as_array().expect("a list");
    assert!(outages.len() == 1 && outages[0]["length_s"].as_f64().is_some_and(|s| s > 3.0), "{run}");
}

#[test]
fn a_copy_that_an_outage_ends_is_kept_with_its_time() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let mut running = copy(&lab, true, &["--timeout", "4"]).start();
    running.when_moved(4 << 20);
    lab.alpha().unplug();
    running.wait().expect_one_of(&[code::TIMEOUT, code::NETWORK, code::SSH]);
    let kept: Value = serde_json::from_slice(&lab.haul().args(["why", "--json"]).run().stdout).expect("a report");
    let outages = kept["so_far"]["outage_times"].as_array().expect("a list");
    assert!(outages.len() == 1 && outages[0]["length_s"].as_f64().is_some_and(|s| s >= 2.0), "{kept}");
    let why = lab.haul().arg("why").run().expect(code::OK).stdout_text();
    assert!(why.contains("\n  nothing came          20"), "{why}");
}

#[test]
fn the_bar_on_a_terminal_says_for_how_long_nothing_came() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (here, there) = (lab.data("home").join("file"), at("alpha", lab.data("alpha").join("copy")));
    plant::file(&here, SIZE, 1);
    let haul = haul_e2e::binary::find().expect("asked for with needs!");
    let line = format!(
        "stty cols 80 rows 24; '{}' cp --rate 8MB -F '{}' '{}' '{}'",
        haul.display(),
        lab.ssh_config().display(),
        here.display(),
        there.display()
    );
    let terminal = lab.home().run("script").args(["-qec", &line, "/dev/null"]).env("TERM", "xterm");
    let mut running = terminal.start();
    let shown = |running: &haul_e2e::Running| String::from_utf8_lossy(&running.stdout_so_far()).into_owned();
    running.when("it moves", |running| shown(running).contains("Mbit/s)"));
    lab.alpha().unplug();
    running.when("it says so", |running| shown(running).contains("no data for 4 s"));
    lab.alpha().plug();
    let text = running.wait().expect(code::OK).stdout_text();
    let bars: Vec<&str> = text.split('\r').filter(|bar| bar.contains(" %")).collect();
    let silent = bars.iter().filter(|bar| bar.contains("no data for"));
    assert!(silent.clone().all(|bar| !bar.contains("left") && !bar.contains("bit/s")), "{bars:?}");
    let after = bars.iter().rposition(|bar| bar.contains("no data for")).expect("it was said");
    assert!(bars[after..].iter().any(|bar| bar.contains(" left")), "{bars:?}");
}
