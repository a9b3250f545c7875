//! A copy's limit, with the test's reason, and `haul why` afterwards.

use std::time::Duration;

use haul_e2e::outcome::json_lines;
use haul_e2e::{Lab, Outcome, at, code, needs, plant};
use rustix::process::Signal;
use serde_json::Value;

/// The network's parts of `time`.
const NETWORK: [&str; 10] = [
    "ramp",
    "capacity",
    "contention",
    "receive_window",
    "send_buffer",
    "loss",
    "jitter",
    "outage",
    "latency",
    "network",
];

#[track_caller]
fn why(lab: &Lab) -> Value {
    let run = lab.haul().args(["why", "--json"]).run().expect(code::OK);
    serde_json::from_slice(&run.stdout).unwrap_or_else(|error| panic!("{error}\n{run}"))
}

fn share(report: &Value, names: &[&str]) -> f64 {
    names.iter().map(|name| report["time"][*name].as_f64().unwrap_or_else(|| panic!("no share of {name}"))).sum()
}

#[track_caller]
fn kept_as_said(lab: &Lab, run: &Outcome) -> Value {
    let (mut said, kept) = (run.report(), why(lab)["report"].clone());
    for aside in ["event", "at_s"] {
        said.as_object_mut().expect("an object").remove(aside);
    }
    assert_eq!(said, kept, "{run}");
    kept
}

#[test]
fn a_rate_that_was_asked_for_is_the_limit_both_ways() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (here, there) = (lab.data("home").join("file"), lab.data("alpha").join("file"));
    plant::file(&here, 30 << 20, 1);
    // A busy disk's flush would be the limit, and a busy host's login takes two seconds.
    let limited = || lab.cp().args(["--rate", "10MB", "--no-flush"]);
    let pushed = limited().arg(&here).arg(at("alpha", &there)).run().expect(code::OK);
    let report = kept_as_said(&lab, &pushed);
    assert_eq!(report["limit"], "rate limit", "{pushed}");
    assert_eq!((&report["source"]["place"], &report["target"]["place"]), (&"this machine".into(), &"alpha".into()));
    let back = here.with_extension("back");
    let pulled = limited().arg(at("alpha", &there)).arg(&back).run().expect(code::OK);
    let report = kept_as_said(&lab, &pulled);
    assert_eq!(report["limit"], "rate limit", "{pulled}");
    assert_eq!((&report["source"]["place"], &report["target"]["place"]), (&"alpha".into(), &"this machine".into()));
}

/// Longer than the copy without it.
const OUTAGE: Duration = Duration::from_secs(7);

#[test]
fn an_outage_is_named_and_not_called_round_trips() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (here, there) = (lab.data("home").join("file"), lab.data("alpha").join("file"));
    plant::file(&here, 24 << 20, 1);
    let mut copy = lab.cp().args(["--rate", "8MB", "--no-flush"]).arg(&here).arg(at("alpha", &there)).start();
    copy.when("some of it has moved", |copy| {
        let moved = |event: &Value| event["bytes_moved"].as_u64().is_some_and(|bytes| bytes >= 4 << 20);
        json_lines(&copy.stdout_so_far()).iter().any(moved)
    });
    lab.alpha().unplug();
    std::thread::sleep(OUTAGE);
    lab.alpha().plug();
    let run = copy.wait().expect(code::OK);
    let report = kept_as_said(&lab, &run);
    assert_eq!(
        (&report["limit"], &report["limited_by"]),
        (&"outage".into(), &"outages of the network".into()),
        "{run}"
    );
    let outage_s = report["path"]["outage_s"].as_f64().expect("a number");
    assert!(report["path"]["outages"] == 1 && outage_s > OUTAGE.as_secs_f64() * 0.7, "{run}");
    let text = lab.haul().arg("why").run().expect(code::OK).stdout_text();
    for words in ["limited by outages of the network", "passed nothing", "look at the link itself"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn a_tiny_job_is_limited_by_its_start() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (here, there) = (lab.data("home").join("file"), lab.data("alpha"));
    plant::file(&here, 1, 1);
    // The first copy also installs haul, another kind of start.
    lab.cp().arg(&here).arg(at("alpha", there.join("first"))).run().expect(code::OK);
    // A login of two seconds is most of the job on any machine.
    let slow_ssh = lab.data("home").join("slow-ssh");
    plant::text(&slow_ssh, "#!/bin/sh\nsleep 2\nexec ssh \"$@\"\n");
    plant::set_mode(&slow_ssh, 0o755);
    let slow = lab.cp().arg("-S").arg(&slow_ssh).arg("--no-flush").arg(&here).arg(at("alpha", there.join("second")));
    let report = kept_as_said(&lab, &slow.run().expect(code::OK));
    assert_eq!((&report["limit"], &report["limited_by"]), (&"start".into(), &"login and connecting".into()));
    let text = lab.haul().arg("why").run().expect(code::OK).stdout_text();
    // Lines break where figures leave room.
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("limited by login and connecting: ") && words.contains("into one command"), "{text}");
}

#[test]
fn a_slow_link_is_the_networks_and_what_both_hosts_grant_is_told() {
    needs!(Namespaces, Tool("tc"), Haul);
    let lab = Lab::pair();
    let (here, there) = (lab.data("home").join("file"), lab.data("alpha").join("file"));
    plant::file(&here, 12 << 20, 1);
    // 50 Mbit/s: two seconds for the file.
    let shaped = ["qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "50mbit", "burst", "64k", "latency", "100ms"];
    let tc = lab.home().run("tc").args(shaped).run();
    if tc.code() != 0 {
        eprintln!("skipped: this kernel has no token bucket: {}", tc.stderr_text());
        return;
    }
    lab.alpha().run("sysctl").args(["-w", "net.ipv4.tcp_rmem=4096 131072 7654321"]).run().expect(0);
    let run = lab.cp().args(["--no-flush", "--lanes", "2"]).arg(&here).arg(at("alpha", &there)).run().expect(code::OK);
    let report = kept_as_said(&lab, &run);
    assert!(share(&report, &NETWORK) > 0.5, "{run}");
    assert_eq!(report["target"]["tcp_rmem_max_bytes"], 7_654_321, "{run}");
    assert_ne!(report["source"]["tcp_rmem_max_bytes"], 7_654_321, "{run}");
}

#[test]
fn a_copy_that_was_interrupted_is_kept_with_how_far_it_came() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (here, there) = (lab.data("home").join("file"), lab.data("alpha").join("file"));
    plant::file(&here, 200 << 20, 1);
    let mut running = lab.cp().args(["--rate", "20MB"]).arg(&here).arg(at("alpha", &there)).start();
    running.when_moved(10 << 20);
    running.signal(Signal::INT);
    running.wait().expect(code::INTERRUPTED);
    let kept = why(&lab);
    assert_eq!((&kept["error"]["fault"], &kept["report"]), (&"interrupted".into(), &Value::Null));
    assert!(kept["so_far"]["bytes_moved"].as_u64().is_some_and(|bytes| bytes >= 10 << 20), "{kept}");
    let text = lab.haul().arg("why").run().expect(code::OK).stdout_text();
    assert!(text.contains("\nerror: interrupted\n") && text.contains("\nuntil then\n"), "{text}");
}

#[test]
fn nothing_yet_and_a_refused_login() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    lab.haul().arg("why").run().expect(code::USAGE).says(&["no report is kept yet"]);
    let here = lab.data("home").join("file");
    plant::file(&here, 1, 1);
    let nobody = format!("nobody-there@{}", lab.alpha().v4);
    let failed = lab.cp().arg(&here).arg(at(&nobody, "file")).run();
    assert_ne!(failed.code(), code::OK);
    let kept = why(&lab);
    assert_eq!(kept["error"]["exit_code"], failed.code(), "{failed}");
    lab.haul().arg("why").run().expect(code::OK).says(&["error: "]);
    assert!(!lab.alpha().dir.join("state/haul").exists());
}
