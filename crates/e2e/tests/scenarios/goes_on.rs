//! `--retry`: a copy that loses its network, its far side or its login goes on by itself, and gives up at once on what does not mend.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use haul_e2e::{Facets, Lab, Run, assert_same, at, code, needs, plant};
use rustix::process::Signal;

const SIZE: u64 = 300 << 20;
const CUT_AT: u64 = 100 << 20;

/// One large file between `home` and `alpha`, over ssh, with the flag as it is by default.
struct Copy {
    lab: Lab,
    source: PathBuf,
    target: PathBuf,
    is_push: bool,
}

impl Copy {
    fn new(is_push: bool) -> Self {
        let lab = Lab::pair();
        let (from, to) = if is_push { ("home", "alpha") } else { ("alpha", "home") };
        let (source, target) = (lab.data(from).join("file"), lab.data(to).join("copy"));
        plant::file(&source, SIZE, 1);
        Self { lab, source, target, is_push }
    }

    fn command(&self, flags: &[&str]) -> Run {
        let command = self.lab.cp().args(["--rate", "60MB", "--retry", "10m"]).args(flags);
        match self.is_push {
            true => command.arg(&self.source).arg(at("alpha", &self.target)),
            false => command.arg(at("alpha", &self.source)).arg(&self.target),
        }
    }
}

#[test]
fn a_copy_whose_far_side_is_killed_goes_on_and_moves_nothing_twice_but_what_was_under_way() {
    needs!(Namespaces, Haul);
    for is_push in [true, false] {
        let copy = Copy::new(is_push);
        let manifest = copy.lab.data("home").join("manifest");
        let mut running = copy.command(&["--manifest-out", manifest.to_str().expect("it is text")]).start();
        running.when_moved(CUT_AT);
        copy.lab.alpha().kill_haul();
        let run = running.wait().expect(code::OK);
        assert_same(&copy.source, &copy.target, Facets::PLAIN);
        let report = run.report();
        assert_eq!(report["earlier_tries"], 1, "{run}");
        assert_eq!(run.events_named("retry").len(), 1, "{run}");
        assert!(report["earlier_bytes_moved"].as_u64().expect("a number") >= CUT_AT, "{run}");
        // The last try reads what the first one left, and its list has the file once.
        let listed = std::fs::read_to_string(&manifest).expect("the manifest has its name");
        assert_eq!(listed.lines().filter(|line| !line.starts_with('#')).count(), 1, "{listed}");
    }
}

#[test]
fn a_copy_without_network_for_longer_than_its_timeout_goes_on_when_the_cable_is_back() {
    needs!(Namespaces, Haul);
    let copy = Copy::new(true);
    let mut running = copy.command(&["--timeout", "3"]).start();
    running.when_moved(CUT_AT);
    copy.lab.alpha().unplug();
    running.when("the first try is lost", |running| {
        String::from_utf8_lossy(&running.stdout_so_far()).contains("\"event\":\"retry\"")
    });
    copy.lab.alpha().plug();
    running.wait().expect(code::OK);
    assert_same(&copy.source, &copy.target, Facets::PLAIN);
}

#[test]
fn what_waiting_does_not_mend_ends_the_copy_at_once() {
    needs!(Namespaces, Haul);
    let copy = Copy::new(true);
    // Nobody answers there, and nobody did before: perhaps the name is wrong.
    copy.lab.alpha().stop_sshd();
    let default = copy.lab.haul().args(["cp", "--json", "-F"]).arg(copy.lab.ssh_config());
    let run = default.arg(&copy.source).arg(at("alpha", &copy.target)).run().expect_one_of(&[code::SSH, code::NETWORK]);
    assert!(run.events_named("retry").is_empty(), "{run}");
    // A wrong key stays wrong, also where patience was asked for.
    copy.lab.alpha().restart_sshd("AuthorizedKeysFile /dev/null");
    let run = copy.command(&["--retry", "forever", "-o", "BatchMode=yes"]).run();
    let run = run.expect_one_of(&[code::SSH, code::AUTHENTICATION]);
    assert!(run.events_named("retry").is_empty(), "{run}");
}

#[test]
fn patience_that_was_asked_for_waits_for_a_host_that_is_not_there_yet_and_a_signal_ends_it() {
    needs!(Namespaces, Haul);
    let copy = Copy::new(true);
    copy.lab.alpha().stop_sshd();
    let mut waiting = copy.command(&["--retry", "forever"]).start();
    waiting
        .when("it waits", |running| String::from_utf8_lossy(&running.stdout_so_far()).contains("\"event\":\"retry\""));
    let asked = Instant::now();
    waiting.signal(Signal::INT);
    waiting.wait().expect(code::INTERRUPTED);
    assert!(asked.elapsed() < Duration::from_secs(10));
    let mut waiting = copy.command(&["--retry", "5m"]).start();
    waiting
        .when("it waits", |running| String::from_utf8_lossy(&running.stdout_so_far()).contains("\"event\":\"retry\""));
    copy.lab.alpha().restart_sshd("");
    waiting.wait().expect(code::OK);
    assert_same(&copy.source, &copy.target, Facets::PLAIN);
}
