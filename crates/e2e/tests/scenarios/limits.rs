//! The report's limit is the test's: one thing is slow, all else fast.
//!
//! Rates are far below the machine's, and each setting is measured without haul.

use std::path::Path;

use haul_e2e::{Boxed, Outcome, SlowCpu, SlowDisk, code, needs, plant, scratch};
use serde_json::Value;

const FAST: Boxed<'_> = Boxed {
    rate: "1Gbit",
    rtt: "2ms",
    link: "",
    source: "",
    target: "",
    more: "",
    before_source: "",
    before_target: "",
    is_light: false,
};

/// Copies a new file of `mib` MiB, and checks the first remedy's words.
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
    within(0.1, told, made, run);
}

#[track_caller]
fn within(share: f64, told: f64, made: f64, run: &Value) {
    assert!((told / made - 1.0).abs() < share, "{told} is not {made}\n{run:#}");
}

/// A lane's bytes in flight, by its lasting rate: a window each round trip.
fn under_way(report: &Value) -> f64 {
    let lanes = report["lanes"].as_f64().unwrap_or_default();
    of_path(report, "capacity_bytes_per_s") * of_path(report, "rtt_min_us") / 1e6 / lanes
}

fn of_path(report: &Value, name: &str) -> f64 {
    report["path"][name].as_f64().unwrap_or_default()
}

fn mib_per_s(report: &Value) -> f64 {
    let texts: Vec<&str> =
        report["remedies"].as_array().into_iter().flatten().filter_map(|remedy| remedy["text"].as_str()).collect();
    let text = texts.iter().find(|text| text.contains("faster disks")).expect("a remedy about disks");
    let before = text.split(" MiB/s").next().unwrap_or_default();
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no speed in {text}"))
}

#[track_caller]
fn slow_source(rtt: &str, lanes: &str, tolerance: f64) {
    let (mut disk, dir) = (SlowDisk::mount(120), scratch());
    let from = disk.path().join("file");
    plant::file(&from, 75 << 20, 1);
    disk.slow_down(15 << 20);
    let path = Boxed { rtt, rate: "400Mbit", before_source: &disk.join(), ..FAST };
    let run = path.push(&["--cc", "cubic", "--lanes", lanes], &from, &dir.path().join("copy"));
    let report = named(&run, "source storage", "faster disks");
    within(tolerance, mib_per_s(&report), 15.0, &report);
}

#[test]
fn a_slow_disk_at_the_source_of_a_near_path() {
    needs!(Boxed, Slow);
    slow_source("1ms", "2", 0.15);
}

#[test]
fn a_slow_disk_at_the_source_of_a_far_path() {
    needs!(Boxed, Slow);
    // The job is short: the ramp counts as the disk's time.
    slow_source("60ms", "8", 0.3);
}

#[track_caller]
fn slow_target(rtt: &str, tolerance: f64) {
    let (mut disk, dir) = (SlowDisk::mount(120), scratch());
    let from = dir.path().join("file");
    plant::file(&from, 75 << 20, 1);
    disk.slow_down(10 << 20);
    let path = Boxed { rtt, rate: "400Mbit", before_target: &disk.join(), ..FAST };
    let run = path.push(&["--cc", "cubic"], &from, &disk.path().join("copy"));
    let report = run.clone().expect(code::OK).report();
    // Slow writes and the final flush both count as the disk.
    let limit = report["limit"].as_str().unwrap_or_default();
    assert!(["target storage", "flush"].contains(&limit), "{run}");
    named(&run, limit, "--no-flush");
    within(tolerance, mib_per_s(&report), 10.0, &report);
}

#[test]
fn a_slow_disk_at_the_target_of_a_near_path() {
    needs!(Boxed, Slow);
    slow_target("1ms", 0.15);
}

#[test]
fn a_slow_disk_at_the_target_of_a_far_path() {
    needs!(Boxed, Slow);
    slow_target("60ms", 0.3);
}

/// A twentieth of a quick processor fills 1 Gbit/s.
const SLOW_CPU_PERMILLE: u32 = 25;

#[track_caller]
fn slow_processor_at_the_source(rtt: &str) {
    let slow = SlowCpu::of(SLOW_CPU_PERMILLE);
    let path = Boxed { rtt, before_source: &slow.join(), is_light: true, ..FAST };
    check(&path, &["--cc", "cubic"], 60, "source CPU", "faster ones");
}

#[test]
fn a_slow_processor_at_the_source_of_a_near_path() {
    needs!(Boxed, Slow);
    slow_processor_at_the_source("2ms");
}

#[test]
fn a_slow_processor_at_the_source_of_a_far_path() {
    needs!(Boxed, Slow);
    slow_processor_at_the_source("40ms");
}

#[track_caller]
fn slow_processor_at_the_target(rtt: &str) {
    let slow = SlowCpu::of(SLOW_CPU_PERMILLE);
    let path = Boxed { rtt, before_target: &slow.join(), is_light: true, ..FAST };
    check(&path, &["--cc", "cubic"], 30, "target CPU", "faster ones");
}

#[test]
fn a_slow_processor_at_the_target_of_a_near_path() {
    needs!(Boxed, Slow);
    slow_processor_at_the_target("2ms");
}

#[test]
fn a_slow_processor_at_the_target_of_a_far_path() {
    needs!(Boxed, Slow);
    slow_processor_at_the_target("40ms");
}

#[track_caller]
fn small_receive_window(lanes: &str, most_bytes: u32) {
    let target = format!("\"net.ipv4.tcp_rmem\" = \"4096 65536 {most_bytes}\"");
    let path = Boxed { rate: "200Mbit", rtt: "60ms", target: &target, ..FAST };
    let report = check(&path, &["--lanes", lanes, "--cc", "cubic"], 12, "receive window", "net.ipv4.tcp_rmem");
    about(of_path(&report, "window_bytes"), under_way(&report), &report);
    // Data is half to three quarters of the buffer, by packet size.
    let share = of_path(&report, "window_bytes") / f64::from(most_bytes);
    assert!((0.45..0.8).contains(&share), "{share}\n{report:#}");
}

#[test]
fn a_small_receive_window_of_one_lane() {
    needs!(Boxed);
    small_receive_window("1", 262_144);
}

#[test]
fn a_small_receive_window_of_two_lanes() {
    needs!(Boxed);
    small_receive_window("2", 524_288);
}

#[test]
fn a_small_send_buffer() {
    needs!(Boxed);
    // All hosts of a machine share the maximum, so this host is told a smaller one.
    let dir = scratch();
    let small = dir.path().join("wmem_max");
    plant::text(&small, "212992\n");
    let before = format!("mount --bind {} /proc/sys/net/core/wmem_max", small.display());
    let source = "\"net.ipv4.tcp_wmem\" = \"4096 16384 262144\"";
    let path = Boxed { rate: "200Mbit", rtt: "60ms", source, before_source: &before, ..FAST };
    let report = check(&path, &["--lanes", "1", "--cc", "cubic"], 12, "send buffer", "net.ipv4.tcp_wmem");
    // The peak in flight is softer: a send buffer is no window.
    within(0.25, of_path(&report, "window_bytes"), under_way(&report), &report);
}

#[test]
fn packets_that_are_lost_without_a_queue() {
    needs!(Boxed);
    let path = Boxed { rate: "200Mbit", rtt: "20ms", link: "loss = 0.01", ..FAST };
    let report = check(&path, &["--lanes", "1", "--cc", "cubic"], 4, "loss", "--cc bbr");
    assert!((6_000.0..14_000.0).contains(&of_path(&report, "resent_ppm")), "{report:#}");
}

#[track_caller]
fn full_link(rtt: &str) {
    let path = Boxed { rate: "80Mbit", rtt, ..FAST };
    let report = check(&path, &["--cc", "cubic"], 30, "capacity", "The link is full");
    // 1,538 bytes on the wire carry 1,448.
    about(of_path(&report, "capacity_bytes_per_s"), 80e6 / 8.0 * 1448.0 / 1538.0, &report);
}

#[test]
fn a_near_link_that_is_full() {
    needs!(Boxed);
    full_link("20ms");
}

#[test]
fn a_far_link_that_is_full() {
    needs!(Boxed);
    full_link("60ms");
}

#[test]
fn a_link_that_others_fill() {
    needs!(Boxed);
    let more = "[[traffic]]\nkind = \"tcp\"\nfrom = \"source\"\nto = \"target\"\nflows = 4";
    let path = Boxed { rate: "80Mbit", rtt: "40ms", more, ..FAST };
    // A shorter copy may end before it knows whose the queue is.
    check(&path, &["--cc", "cubic"], 60, "contention", "Others use the link");
}

/// Checks the helpers themselves, without haul.
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
    let script = format!("{}\ncat {} | wc -c", disk.join(), file.display());
    let run = haul_e2e::Run::new("sh").args(["-c", &script]).run().expect(0);
    run.stdout_text().trim().parse().expect("a number")
}
