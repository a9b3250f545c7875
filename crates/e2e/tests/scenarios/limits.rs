//! The limit that a report names, where the test made it: one thing at a time is slow, on hosts and a path that could do more.
//!
//! Rates are far below what the machine can do, so that nothing else is slow; each setting is checked against what was made.

use std::path::Path;

use haul_e2e::{Boxed, Outcome, SlowCpu, SlowDisk, code, needs, plant, scratch};
use serde_json::Value;

/// A path that is not the limit of what is slowed down here.
const FAST: Boxed<'_> = Boxed {
    rate: "1Gbit",
    rtt: "2ms",
    link: "",
    source: "",
    target: "",
    more: "",
    before_source: "",
    before_target: "",
};

/// Copies a new file of so many MiB, and the first remedy has these words.
#[track_caller]
fn check(path: &Boxed, flags: &[&str], mib: u64, limit: &str, remedy: &str) -> Value {
    let dir = scratch();
    let from = dir.path().join("file");
    plant::file(&from, mib << 20, 1);
    named(&path.push(flags, &from, &dir.path().join("copy")), limit, remedy)
}

#[track_caller]
fn named(run: &Outcome, limit: &str, remedy: &str) -> Value {
    let report = run.clone().expect(code::OK).report();
    assert_eq!(report["limit"], limit, "{run}");
    let first = report["remedies"][0].to_string();
    assert!(first.contains(remedy), "{remedy} is not in {first}\n{run}");
    report
}

/// Within 10 %.
#[track_caller]
fn about(told: f64, made: f64, run: &Value) {
    assert!((told / made - 1.0).abs() < 0.1, "{told} is not {made}\n{run:#}");
}

/// Bytes per second from the first byte to the last.
fn rate(report: &Value) -> f64 {
    let of = |name: &str| report[name].as_f64().unwrap_or_default();
    of("bytes_moved") / (of("last_byte_s") - of("first_byte_s"))
}

fn of_path(report: &Value, name: &str) -> f64 {
    report["path"][name].as_f64().unwrap_or_default()
}

/// The number before ` MiB/s` in the words of a remedy.
fn mib_per_s(report: &Value) -> f64 {
    let texts: Vec<&str> =
        report["remedies"].as_array().into_iter().flatten().filter_map(|remedy| remedy["text"].as_str()).collect();
    let text = texts.iter().find(|text| text.contains("faster disks")).expect("a remedy about disks");
    let before = text.split(" MiB/s").next().unwrap_or_default();
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no speed in {text}"))
}

#[test]
fn a_slow_disk_at_the_source() {
    needs!(Boxed, Slow);
    for (rtt, lanes) in [("2ms", "2"), ("60ms", "8")] {
        let (mut disk, dir) = (SlowDisk::mount(120), scratch());
        let from = disk.path().join("file");
        plant::file(&from, 60 << 20, 1);
        disk.slow_down(15 << 20);
        let path = Boxed { rtt, rate: "400Mbit", before_source: &disk.join(), ..FAST };
        let run = path.push(&["--lanes", lanes], &from, &dir.path().join("copy"));
        let report = named(&run, "source storage", "faster disks");
        about(mib_per_s(&report), 15.0, &report);
    }
}

#[test]
fn a_slow_disk_at_the_target() {
    needs!(Boxed, Slow);
    for rtt in ["2ms", "60ms"] {
        let (mut disk, dir) = (SlowDisk::mount(120), scratch());
        let from = dir.path().join("file");
        plant::file(&from, 60 << 20, 1);
        disk.slow_down(10 << 20);
        let path = Boxed { rtt, rate: "400Mbit", before_target: &disk.join(), ..FAST };
        let run = path.push(&[], &from, &disk.path().join("copy"));
        let report = run.clone().expect(code::OK).report();
        // What the disk had not taken when the last byte arrived is flushed: both are its.
        let limit = report["limit"].as_str().unwrap_or_default();
        assert!(["target storage", "flush"].contains(&limit), "{run}");
        named(&run, limit, "--no-flush");
    }
}

#[test]
fn a_slow_processor_at_either_end() {
    needs!(Boxed, Slow);
    let slow = SlowCpu::of(50);
    for rtt in ["2ms", "40ms"] {
        let source = Boxed { rtt, before_source: &slow.join(), ..FAST };
        check(&source, &[], 60, "source CPU", "faster ones");
        let target = Boxed { rtt, before_target: &slow.join(), ..FAST };
        check(&target, &[], 60, "target CPU", "faster ones");
    }
}

#[test]
fn a_small_receive_window() {
    needs!(Boxed);
    for (cc, lanes, most) in [("cubic", 1, 262_144), ("cubic", 2, 524_288)] {
        let target = format!("\"net.ipv4.tcp_rmem\" = \"4096 65536 {most}\"");
        let path = Boxed { rate: "200Mbit", rtt: "60ms", target: &target, ..FAST };
        let lanes_text = lanes.to_string();
        let report = check(&path, &["--lanes", &lanes_text, "--cc", cc], 12, "receive window", "net.ipv4.tcp_rmem");
        // Each lane has a window under way in each round trip.
        let under_way = rate(&report) * of_path(&report, "rtt_min_us") / 1e6 / f64::from(lanes);
        about(of_path(&report, "window_bytes"), under_way, &report);
    }
}

#[test]
fn a_small_send_buffer() {
    needs!(Boxed);
    // What the host lets a process ask for is one setting for all hosts of a machine: this one is told of a smaller one.
    let dir = scratch();
    let small = dir.path().join("wmem_max");
    plant::text(&small, "212992\n");
    let before = format!("mount --bind {} /proc/sys/net/core/wmem_max", small.display());
    let source = "\"net.ipv4.tcp_wmem\" = \"4096 16384 262144\"";
    let path = Boxed { rate: "200Mbit", rtt: "60ms", source, before_source: &before, ..FAST };
    let report = check(&path, &["--lanes", "1", "--cc", "cubic"], 12, "send buffer", "net.ipv4.tcp_wmem");
    let under_way = rate(&report) * of_path(&report, "rtt_min_us") / 1e6;
    about(of_path(&report, "window_bytes"), under_way, &report);
}

#[test]
fn packets_that_are_lost_without_a_queue() {
    needs!(Boxed);
    let path = Boxed { rate: "200Mbit", rtt: "40ms", link: "loss = 0.01", ..FAST };
    let report = check(&path, &["--lanes", "1", "--cc", "cubic"], 4, "loss", "--cc bbr");
    assert!((6_000.0..14_000.0).contains(&of_path(&report, "resent_ppm")), "{report:#}");
}

#[test]
fn a_link_that_is_full() {
    needs!(Boxed);
    for rtt in ["20ms", "60ms"] {
        let path = Boxed { rate: "80Mbit", rtt, ..FAST };
        let report = check(&path, &["--cc", "cubic"], 40, "capacity", "The link is full");
        // 1,538 bytes on the wire carry 1,448.
        about(of_path(&report, "capacity_bytes_per_s"), 80e6 / 8.0 * 1448.0 / 1538.0, &report);
    }
}

#[test]
fn a_link_that_others_fill() {
    needs!(Boxed);
    let more = "[[traffic]]\nkind = \"tcp\"\nfrom = \"source\"\nto = \"target\"\nflows = 4";
    let path = Boxed { rate: "80Mbit", rtt: "40ms", more, ..FAST };
    check(&path, &["--cc", "cubic"], 20, "contention", "Others use the link");
}

/// Without haul: this keeps the helpers honest.
#[test]
fn what_is_slow_is_as_slow_as_it_says() {
    needs!(Slow);
    let mut disk = SlowDisk::mount(64);
    let file = disk.path().join("file");
    plant::file(&file, 20 << 20, 1);
    disk.slow_down(10 << 20);
    let started = std::time::Instant::now();
    assert_eq!(read(&file, &disk), 20 << 20);
    assert!(started.elapsed().as_secs_f64() > 1.5, "{:?}", started.elapsed());
}

fn read(file: &Path, disk: &SlowDisk) -> u64 {
    let script = format!("{}\nwc -c <{}", disk.join(), file.display());
    let run = haul_e2e::Run::new("sh").args(["-c", &script]).run().expect(0);
    run.stdout_text().trim().parse().expect("a number")
}
