//! What all sessions of a key may move together.

use std::time::{Duration, Instant};

use haul_e2e::{Facets, assert_same, code, needs, plant};
use rustix::process::Signal;

use crate::Stage;

/// Long before a copy is tried again.
const SOON: Duration = Duration::from_secs(20);

#[test]
fn a_rate_holds_both_ways_and_a_day_ends_the_copies_of_a_key_also_after_a_new_start() {
    needs!(Haul);
    let mut stage = Stage::new("rw rate=8Mbit day=5M");
    plant::file(&stage.at("file"), 2_000_000, 1);
    let cp = |from: &str, to: &str| stage.cp().args([from, to]).run();
    for (from, to) in [("file", stage.url("in")), (stage.url("in").as_str(), "back".to_owned())] {
        let begun = Instant::now();
        cp(from, &to).expect(code::OK);
        assert!(begun.elapsed() > Duration::from_millis(1_800), "2 MB at 8 Mbit/s take 2 s: {:?}", begun.elapsed());
    }
    assert_same(&stage.at("file"), &stage.at("back"), Facets::CONTENTS);
    let begun = Instant::now();
    let retried = stage.cp().args(["--retry", "1h", "file", &stage.url("third")]).limit(SOON).run().expect(code::BUSY);
    retried.says(&["all the bytes that it may in a day", "5242880 bytes a day", "after midnight UTC (in "]);
    assert!(begun.elapsed() < SOON, "waiting does not help: {:?}", begun.elapsed());
    assert!(!stage.at("offered/third").exists());
    stage.eventually_logs("may in a day");
    stage.stop(Signal::TERM).expect(code::OK);
    stage.start();
    stage.cp().args(["file", &stage.url("third")]).run().expect(code::BUSY);
    // Looking, and finding all in place, moves nothing.
    stage.haul("client").args(["ls", &stage.url("in")]).run().expect(code::OK);
    stage.cp().args(["-t", "file", &stage.url("in")]).run().expect(code::OK);
    // What is there costs nothing.
    stage.authorize("rw day=1G", &stage.at("offered"));
    stage.cp().args(["file", &stage.url("in")]).run().expect(code::OK);
}

#[test]
fn the_log_may_be_json() {
    needs!(Haul);
    let mut stage = Stage::new("rw");
    stage.stop(Signal::TERM).expect(code::OK);
    let mut daemon = stage.haul("server").args(["serve", "--json", "--listen", &stage.host()]).start();
    daemon.when("it listens", |daemon| crate::said(daemon, "listening on"));
    stage.daemon = Some(daemon);
    plant::text(&stage.at("file"), "words\n");
    stage.cp().args(["file", &stage.url("in")]).run().expect(code::OK);
    stage.eventually_logs("ended well");
    let log = stage.log();
    let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let ended = lines.iter().find(|line| line["message"].as_str().is_some_and(|text| text.contains("ended well")));
    let ended = ended.expect("it is told");
    assert_eq!((&ended["session"], &ended["bytes"], &ended["files"]), (&1.into(), &6.into(), &1.into()), "{ended}");
    assert_eq!(ended["level"], "info");
    assert!(ended["client"].as_str().is_some_and(|client| client.starts_with("client (127.")), "{ended}");
}
