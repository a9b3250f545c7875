//! Outages in virtual time: the bar stands, then goes on.

use std::time::Duration;

use haul_job::Progress;

use crate::progress::outlook::{Left, Outlook};

/// Tenths of a second until an outage is known.
const KNOWN_AFTER: u64 = 20;

#[derive(Debug)]
struct Shown {
    tenth: u64,
    no_data: bool,
    left: Left,
    bytes_per_s: Option<f64>,
}

/// 400 MB at 10 MB/s take 40 s without the outage; `from` and `long` are tenths of a second.
fn copy(from: u64, long: u64) -> Vec<Shown> {
    let (mut outlook, mut shown) = (Outlook::default(), Vec::new());
    for tenth in 0..400 + long {
        let out = tenth.saturating_sub(from).min(long);
        let bytes_moved = (tenth - out) * 1_000_000;
        let no_data = (out >= KNOWN_AFTER && tenth < from + long).then(|| Duration::from_millis(out * 100));
        let progress = Progress {
            files_found: 1,
            files_left: 1,
            bytes_found: 400_000_000,
            bytes_moved,
            bytes_left: 400_000_000 - bytes_moved,
            found_all: true,
            no_data_for: no_data,
            ..Progress::default()
        };
        let at = Duration::from_millis(tenth * 100);
        outlook.add(at, &progress);
        let left = outlook.left(at, &progress);
        shown.push(Shown { tenth, no_data: no_data.is_some(), left, bytes_per_s: outlook.bytes_per_s() });
    }
    shown
}

#[test]
fn the_bar_stands_still_while_nothing_comes_and_has_no_time_left() {
    let shown = copy(100, 300);
    let out: Vec<&Shown> = shown.iter().filter(|shown| shown.no_data).collect();
    assert_eq!(out.len() as u64, 300 - KNOWN_AFTER);
    for shown in &out {
        assert_eq!(shown.left.done, out[0].left.done, "{shown:?}");
        assert_eq!((shown.left.time, shown.bytes_per_s), (None, Some(0.0)), "{shown:?}");
    }
}

#[test]
fn after_an_outage_rate_and_time_are_those_of_before() {
    for long in [25, 70, 600] {
        let shown = copy(100, long);
        for shown in shown.iter().skip(100 + long as usize) {
            let rate = shown.bytes_per_s.expect("it moves");
            assert!((rate / 1e7 - 1.0).abs() < 0.03, "{long}: {shown:?}");
            let truth = (400 + long - shown.tenth) as f64 / 10.0;
            let left = shown.left.time.expect("it moves").as_secs_f64();
            assert!((left - truth).abs() < 1.0, "{long}: {truth}: {shown:?}");
            let done = (shown.tenth - long) as f64 / 400.0;
            assert!((shown.left.done.unwrap() - done).abs() < 0.03, "{long}: {done}: {shown:?}");
        }
    }
}

#[test]
fn an_outage_that_ends_a_try_does_not_move_the_bar() {
    let mut outlook = Outlook::default();
    let all = Progress { files_found: 1, bytes_found: 400_000_000, found_all: true, ..Progress::default() };
    let at = |tenth: u64| Duration::from_millis(tenth * 100);
    let mut before = None;
    for tenth in 0..500_u64 {
        let bytes_moved = tenth.min(200) * 1_000_000;
        let no_data_for = tenth.checked_sub(200).filter(|out| *out >= KNOWN_AFTER).map(at);
        let progress = Progress { bytes_moved, bytes_left: 400_000_000 - bytes_moved, no_data_for, ..all };
        outlook.add(at(tenth), &progress);
        before = outlook.left(at(tenth), &progress).done;
    }
    outlook.broke_off(at(500));
    let done = |outlook: &mut Outlook, tenth: u64| {
        let bytes_moved = tenth.saturating_sub(560) * 1_000_000;
        let bytes_left = 200_000_000 - bytes_moved;
        let progress = Progress { bytes_moved, bytes_kept: 200_000_000, bytes_left, ..all };
        outlook.add(at(tenth), &progress);
        outlook.left(at(tenth), &progress).done.unwrap()
    };
    for tenth in 520..=700 {
        let (shown, truth) = (done(&mut outlook, tenth), 0.5 + tenth.saturating_sub(560) as f64 / 400.0);
        assert!((shown - truth).abs() < 0.05, "{tenth}: {shown}, {truth}, {before:?}");
    }
}
