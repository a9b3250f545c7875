//! `--retry`: a copy that loses network, far side or login goes on, and gives up at once on what does not mend.

use std::time::{Duration, Instant};

use haul_e2e::{Facets, Lab, assert_same, at, code, needs, plant};
use rustix::process::Signal;

use crate::roaming::OverSsh;

const CUT_AT: u64 = 100 << 20;

/// The harness itself asks for no patience.
const PATIENT: [&str; 2] = ["--retry", "10m"];

#[test]
fn a_copy_whose_far_side_is_killed_goes_on_and_moves_nothing_twice_but_what_was_under_way() {
    needs!(Namespaces, Haul);
    for is_push in [true, false] {
        let copy = OverSsh::new(is_push);
        let manifest = copy.lab.data("home").join("manifest");
        let mut running =
            copy.command().args(PATIENT).args(["--manifest-out", manifest.to_str().expect("it is text")]).start();
        running.when_moved(CUT_AT);
        copy.lab.alpha().kill_haul();
        let run = running.wait().expect(code::OK);
        assert_same(&copy.source, &copy.target, Facets::PLAIN);
        let report = run.report();
        assert_eq!(report["earlier_tries"], 1, "{run}");
        assert_eq!(run.events_named("retry").len(), 1, "{run}");
        assert!(report["earlier_bytes_moved"].as_u64().expect("a number") >= CUT_AT, "{run}");
        // The last try reads the first one's rest, and lists the file once.
        let listed = std::fs::read_to_string(&manifest).expect("the manifest has its name");
        assert_eq!(listed.lines().filter(|line| !line.starts_with('#')).count(), 1, "{listed}");
    }
}

#[test]
fn a_copy_without_network_for_longer_than_its_timeout_goes_on_when_the_cable_is_back() {
    needs!(Namespaces, Haul);
    let copy = OverSsh::new(true);
    let mut running = copy.command().args(PATIENT).args(["--timeout", "3"]).start();
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
    let copy = OverSsh::new(true);
    // Nobody ever answered there: the name may be wrong.
    copy.lab.alpha().stop_sshd();
    let default = copy.lab.haul().args(["cp", "--json", "-F"]).arg(copy.lab.ssh_config());
    let run = default.arg(&copy.source).arg(at("alpha", &copy.target)).run().expect_one_of(&[code::SSH, code::NETWORK]);
    assert!(run.events_named("retry").is_empty(), "{run}");
    // A wrong key stays wrong, however patient.
    copy.lab.alpha().restart_sshd("AuthorizedKeysFile /dev/null");
    let run = copy.command().args(["--retry", "forever", "-o", "BatchMode=yes"]).run();
    let run = run.expect_one_of(&[code::SSH, code::AUTHENTICATION]);
    assert!(run.events_named("retry").is_empty(), "{run}");
}

#[test]
fn patience_that_was_asked_for_waits_for_a_host_that_is_not_there_yet_and_a_signal_ends_it() {
    needs!(Namespaces, Haul);
    let copy = OverSsh::new(true);
    copy.lab.alpha().stop_sshd();
    let mut waiting = copy.command().args(["--retry", "forever"]).start();
    waiting
        .when("it waits", |running| String::from_utf8_lossy(&running.stdout_so_far()).contains("\"event\":\"retry\""));
    let asked = Instant::now();
    waiting.signal(Signal::INT);
    waiting.wait().expect(code::INTERRUPTED);
    assert!(asked.elapsed() < Duration::from_secs(10));
    let mut waiting = copy.command().args(["--retry", "5m"]).start();
    waiting
        .when("it waits", |running| String::from_utf8_lossy(&running.stdout_so_far()).contains("\"event\":\"retry\""));
    copy.lab.alpha().restart_sshd("");
    waiting.wait().expect(code::OK);
    assert_same(&copy.source, &copy.target, Facets::PLAIN);
}

fn logins_of_two_copies(lab: &Lab, flags: &[&str], config: &std::path::Path) -> usize {
    let before = lab.alpha().sshd_log().matches("Accepted publickey").count();
    for number in 0..2 {
        let source = lab.data("home").join("small");
        plant::file(&source, 100_000 + number, number);
        let target = lab.data("alpha").join(format!("small-{number}"));
        let run =
            lab.haul().args(["cp", "--json", "-F"]).arg(config).args(flags).arg(&source).arg(at("alpha", &target));
        run.run().expect(code::OK);
        assert_same(&source, &target, Facets::PLAIN);
    }
    lab.alpha().sshd_log().matches("Accepted publickey").count() - before
}

#[test]
fn the_second_copy_within_a_minute_needs_no_login_unless_the_user_wants_one() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    assert_eq!(logins_of_two_copies(&lab, &["--no-keep-login"], &lab.ssh_config()), 2);
    let own = lab.data("home").join("own-config");
    let text = std::fs::read_to_string(lab.ssh_config()).expect("the lab made it");
    std::fs::write(&own, format!("ControlMaster no\n{text}")).expect("own directory");
    assert_eq!(logins_of_two_copies(&lab, &[], &own), 2);
    assert_eq!(logins_of_two_copies(&lab, &["-o", "ControlPath=none"], &lab.ssh_config()), 2);
    assert_eq!(logins_of_two_copies(&lab, &[], &lab.ssh_config()), 1);
    // Only an ssh connection is left at the far side, and carries the next copy after the far side was killed.
    lab.alpha().expect_no_haul_left(Duration::from_secs(10));
    assert_eq!(logins_of_two_copies(&lab, &[], &lab.ssh_config()), 0);
    for master in lab.home().processes_named("ssh") {
        lab.home().kill(master);
    }
    assert_eq!(logins_of_two_copies(&lab, &[], &lab.ssh_config()), 1, "a dead connection is no obstacle");
}
