//! `haul probe`: figures on a path of known rate, kinds of user, an early end.

use std::fs;
use std::time::Duration;

use haul_e2e::compare::names_below;
use haul_e2e::{Lab, Outcome, Run, code, eventually, needs};
use rustix::process::Signal;
use serde_json::Value;

use crate::daemon::Daemon;

fn probe(lab: &Lab, args: &[&str]) -> Run {
    lab.haul().args(["probe", "-F"]).arg(lab.ssh_config()).args(args)
}

fn found(outcome: &Outcome) -> Value {
    serde_json::from_slice(&outcome.stdout).unwrap_or_else(|error| panic!("{error}\n{outcome}"))
}

/// Limits a host's outgoing rate. False: this kernel has no token bucket.
fn shape(lab: &Lab, host: &str, rate: &str) -> bool {
    let shaped = ["qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "64k", "latency", "50ms"];
    let tc = lab.host(host).run("tc").args(shaped).run();
    if tc.code() != 0 {
        eprintln!("skipped: this kernel has no token bucket: {}", tc.stderr_text());
    }
    tc.code() == 0
}

#[test]
fn finds_the_rate_of_each_direction_within_a_tenth() {
    needs!(Namespaces, Tool("tc"), Haul);
    let lab = Lab::pair();
    if !shape(&lab, "home", "100mbit") || !shape(&lab, "alpha", "40mbit") {
        return;
    }
    let outcome = probe(&lab, &["--json", "--time", "4", "alpha"]).run().expect(code::OK);
    let object = found(&outcome);
    for (way, link_bytes_per_s) in [("there", 12_500_000.0), ("back", 5_000_000.0)] {
        let rate = object[way]["rate_bytes_per_s"].as_f64().expect("a number");
        let off = (rate / link_bytes_per_s - 1.0_f64).abs();
        assert!(off < 0.1, "{way}: {rate} of {link_bytes_per_s} bytes/s\n{outcome}");
        assert_eq!(object[way]["mtu_bytes"], 1500, "{outcome}");
        assert!(object[way]["path"]["rtt_min_us"].as_u64().is_some_and(|us| us > 0), "{outcome}");
        assert!(object[way]["path"]["lanes"].as_u64().is_some_and(|lanes| lanes > 0), "{outcome}");
    }
    assert_eq!((&object["event"], &object["schema"]), (&"probe".into(), &2.into()));
    assert_eq!((&object["here"]["place"], &object["far"]["place"]), (&"this machine".into(), &"alpha".into()));
}

#[test]
fn says_it_to_a_person_and_leaves_nothing_behind() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let outcome = probe(&lab, &["--time", "1", "--lanes", "2", "alpha"]).run().expect(code::OK);
    for words in ["alpha: 1.00 s each way, direct", "carried", "1 TB takes", "path MTU", "tcp_rmem, largest"] {
        assert!(outcome.stdout_text().contains(words), "{words}\n{outcome}");
    }
    assert_eq!(outcome.stderr_text(), "", "{outcome}");
    for host in ["home", "alpha"] {
        lab.host(host).expect_no_haul_left(Duration::from_secs(10));
        for part in ["state", "config", "data", "home"] {
            let left = names_below(&lab.host(host).dir.join(part));
            assert!(left.is_empty(), "{host} has {left:?} in {part}");
        }
    }
}

#[test]
fn both_keys_of_a_daemon_may_probe_it_both_ways() {
    needs!(Namespaces, Haul);
    for access in ["rw", "ro"] {
        let daemon = Daemon::start(access);
        let url = daemon.url("");
        let outcome = daemon.haul("probe").args(["--time", "1"]).arg(url.trim_end_matches('/')).run().expect(code::OK);
        let object = found(&outcome);
        for way in ["there", "back"] {
            assert!(object[way]["rate_bytes_per_s"].as_u64().is_some_and(|rate| rate > 100_000), "{outcome}");
        }
        assert_eq!(fs::read_dir(&daemon.offered).expect("own directory").count(), 0);
    }
}

#[test]
fn a_host_that_nobody_knows_is_an_error_in_words() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    probe(&lab, &["no-such-host"]).run().expect(code::NETWORK).says(&["cannot find the host"]);
    probe(&lab, &["haul://no-such-host.invalid"]).run().expect(code::AUTHENTICATION).says(&["haul key generate"]);
    probe(&lab, &["alpha:data"]).run().expect(code::USAGE).says(&["a probe has no path"]);
    let json = probe(&lab, &["--json", "./alpha"]).run().expect(code::USAGE);
    assert_eq!(json.events_named("error").len(), 1, "{json}");
}

#[test]
fn ctrl_c_ends_both_sides() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let running = probe(&lab, &["--time", "60", "alpha"]).start();
    eventually("data flows", Duration::from_secs(20), || !lab.alpha().haul_processes().is_empty());
    running.signal(Signal::INT);
    running.wait().expect(code::INTERRUPTED).says(&["interrupted", "leaves nothing behind"]);
    lab.alpha().expect_no_haul_left(Duration::from_secs(15));
}

#[test]
fn a_far_side_that_dies_ends_it() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let running = probe(&lab, &["--time", "60", "alpha"]).start();
    // ssh and lanes; earlier, only the attempt to start the agent may run.
    eventually("the lanes are up", Duration::from_secs(20), || established(&lab) > 1);
    lab.alpha().kill_haul();
    let outcome = running.wait();
    assert!([code::NETWORK, code::SSH].contains(&outcome.code()), "{outcome}");
}

#[test]
fn a_cable_that_is_pulled_ends_it_in_time() {
    needs!(Namespaces, Haul);
    let daemon = Daemon::start("ro");
    let running = daemon.haul("probe").args(["--time", "60"]).arg(daemon.url("")).start();
    let connections = || established(&daemon.lab);
    eventually("it runs", Duration::from_secs(20), || connections() > 1);
    daemon.lab.alpha().unplug();
    let outcome = running.wait();
    assert_eq!(outcome.code(), code::TIMEOUT, "{outcome}");
    assert!(outcome.elapsed < Duration::from_secs(40), "{outcome}");
}

fn established(lab: &Lab) -> usize {
    let table = lab.home().run("cat").arg("/proc/net/tcp").run().expect(code::OK).stdout_text();
    table.lines().filter(|line| line.split_ascii_whitespace().nth(3) == Some("01")).count()
}
