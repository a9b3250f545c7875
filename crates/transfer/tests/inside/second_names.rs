//! Tests files with two names (`--hard-links`) while others stay (`--update`, `--ignore-existing`).

use std::fs::{File, FileTimes};
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, SystemTime};

use haul_job::{Report, Selection};

use crate::scenarios::{Bench, checkpoints_every, run_here};
use haul_copy::receiver::{Bounds, CHECKPOINT_BYTES};

#[derive(Clone, Copy)]
enum Age {
    Older,
    Newer,
}

fn with_two_names() -> Bench {
    let bench = Bench::new();
    bench.write("a", 1000);
    set_time(&bench, "from/a", SystemTime::UNIX_EPOCH + Duration::from_secs(2_000_000_000));
    std::fs::hard_link(bench.from().join("a"), bench.from().join("b")).unwrap();
    std::fs::create_dir(bench.to()).unwrap();
    bench
}

fn set_time(bench: &Bench, name: &str, time: SystemTime) {
    let file = File::options().write(true).open(bench.root().join(name)).unwrap();
    file.set_times(FileTimes::new().set_modified(time)).unwrap();
}

fn put(bench: &Bench, name: &str, age: Age) {
    let path = bench.to().join(name);
    std::fs::write(&path, OTHER).unwrap();
    let seconds = match age {
        Age::Older => 1_000_000_000,
        Age::Newer => 3_000_000_000,
    };
    set_time(bench, &format!("to/{name}"), SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
}

const OTHER: &str = "what somebody else wrote there";

fn run(bench: &Bench, choose: impl FnOnce(&mut Selection)) -> Report {
    let mut job = bench.job();
    job.selection.hard_links = true;
    choose(&mut job.selection);
    let bounds = Bounds { foreign_names: 20, ..checkpoints_every(CHECKPOINT_BYTES) };
    run_here(&job, 2, bounds).unwrap()
}

fn update(selection: &mut Selection) {
    selection.update = true;
}

fn ignore_existing(selection: &mut Selection) {
    selection.ignore_existing = true;
}

fn has_others(bench: &Bench, name: &str) -> bool {
    std::fs::read(bench.to().join(name)).unwrap() == OTHER.as_bytes()
}

fn has_sources(bench: &Bench, name: &str) -> bool {
    std::fs::read(bench.to().join(name)).unwrap() == std::fs::read(bench.from().join("a")).unwrap()
}

#[test]
fn what_stays_at_the_target_gets_no_second_name_of_the_source_and_the_second_name_has_its_file() {
    for choose in [update, ignore_existing] {
        for dry_run in [false, true] {
            let bench = with_two_names();
            put(&bench, "a", Age::Newer);
            let report = run(&bench, |selection| {
                choose(selection);
                selection.dry_run = dry_run;
            });
            assert!(has_others(&bench, "a"));
            let told = (report.failed, report.left_out, report.files_moved, report.files_found);
            assert_eq!(told, (0, 1, 1, 2), "{report:?}");
            assert!(if dry_run { !bench.to().join("b").exists() } else { has_sources(&bench, "b") });
        }
    }
}

#[test]
fn a_newer_or_existing_file_is_not_lost_to_a_hard_link() {
    for (choose, age) in [(update as fn(&mut Selection), Age::Newer), (ignore_existing, Age::Older)] {
        for first_stays in [false, true] {
            let bench = with_two_names();
            put(&bench, "b", age);
            if first_stays {
                put(&bench, "a", age);
            }
            let report = run(&bench, choose);
            assert_eq!((report.failed, report.files_moved), (0, u64::from(!first_stays)), "{report:?}");
            assert!(has_others(&bench, "b"));
            assert!(if first_stays { has_others(&bench, "a") } else { has_sources(&bench, "a") });
        }
    }
}

#[test]
fn an_older_file_makes_way_for_a_hard_link_and_a_first_name_that_is_the_sources_gets_its_second() {
    for choose in [update, ignore_existing] {
        let bench = with_two_names();
        run(&bench, |_| {});
        std::fs::remove_file(bench.to().join("b")).unwrap();
        assert_eq!(run(&bench, choose).failed, 0);
        assert!(has_sources(&bench, "b"));
    }
    let bench = with_two_names();
    put(&bench, "a", Age::Older);
    put(&bench, "b", Age::Older);
    assert_eq!(run(&bench, update).failed, 0);
    let inode = |name| bench.to().join(name).metadata().unwrap().ino();
    assert!(has_sources(&bench, "a") && inode("a") == inode("b"));
}

#[test]
fn however_many_others_stay_at_the_target_the_source_s_own_files_get_their_second_names() {
    for (choose, keeps_all) in [(update as fn(&mut Selection), false), (ignore_existing, true)] {
        for dry_run in [false, true] {
            let bench = with_two_names();
            for number in 0..40 {
                let name = format!("0-stays-{number:02}");
                bench.write(&name, 10);
                put(&bench, &name, Age::Newer);
            }
            // Then a first name that stays, and one with the very time of the source's file.
            let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_500_000_000);
            for (first, second) in [("c", "d"), ("e", "f")] {
                bench.write(first, 2000);
                set_time(&bench, &format!("from/{first}"), long_ago);
                std::fs::hard_link(bench.from().join(first), bench.from().join(second)).unwrap();
                put(&bench, first, Age::Newer);
            }
            set_time(&bench, "to/e", long_ago);
            let report = run(&bench, |selection| {
                choose(selection);
                selection.dry_run = dry_run;
            });
            let failed: Vec<&[u8]> = report.failures.iter().map(|(path, _)| &path[..]).collect();
            let expected: &[&[u8]] = if keeps_all { &[b"d", b"f"] } else { &[b"d"] };
            assert_eq!(failed, expected, "{report:?}");
            assert!(has_others(&bench, "c") && !bench.to().join("d").exists());
            if dry_run {
                continue;
            }
            let inode = |name| bench.to().join(name).metadata().unwrap().ino();
            assert!(has_sources(&bench, "b") && inode("a") == inode("b"));
            match keeps_all {
                true => assert!(has_others(&bench, "e") && !bench.to().join("f").exists()),
                false => assert!(!has_others(&bench, "e") && inode("e") == inode("f")),
            }
        }
    }
}

fn with_two_names_of_a_link() -> Bench {
    let bench = Bench::new();
    std::fs::create_dir_all(bench.from()).unwrap();
    std::os::unix::fs::symlink("nowhere", bench.from().join("a")).unwrap();
    std::fs::hard_link(bench.from().join("a"), bench.from().join("b")).unwrap();
    std::fs::create_dir(bench.to()).unwrap();
    bench
}

#[test]
fn a_symbolic_link_keeps_its_second_name() {
    let bench = with_two_names_of_a_link();
    let inode = |name| bench.to().join(name).symlink_metadata().unwrap().ino();
    // An earlier copy without hard links made two files of them.
    let report = run(&bench, |selection| selection.hard_links = false);
    assert_eq!((report.failed, report.others_made), (0, 2));
    assert_ne!(inode("a"), inode("b"));
    for made in [1, 0] {
        let report = run(&bench, |_| {});
        assert_eq!((report.failed, report.others_made), (0, made), "{report:?}");
        assert_eq!(inode("a"), inode("b"));
        assert_eq!(std::fs::read_link(bench.to().join("b")).unwrap().to_str(), Some("nowhere"));
    }
}

#[test]
fn a_link_that_stays_or_failed_gets_no_second_name_of_the_source() {
    let bench = with_two_names_of_a_link();
    std::os::unix::fs::symlink("elsewhere", bench.to().join("a")).unwrap();
    let report = run(&bench, ignore_existing);
    assert_eq!((report.failed, &report.failures[0].0[..]), (1, &b"b"[..]), "{report:?}");
    assert!(bench.to().join("b").symlink_metadata().is_err());

    let bench = with_two_names_of_a_link();
    std::fs::create_dir_all(bench.to().join("a/inside")).unwrap();
    let report = run(&bench, |_| {});
    assert_eq!(report.failed, 2, "{report:?}");
    assert!(bench.to().join("b").symlink_metadata().is_err());
}

#[test]
fn a_directory_in_the_way_of_anything_is_no_success_whatever_may_stay() {
    for (choose, in_the_way) in [(update as fn(&mut Selection), "a"), (update, "b"), (|_| {}, "b")] {
        for make in [with_two_names, with_two_names_of_a_link] {
            for dry_run in [false, true] {
                let bench = make();
                std::fs::create_dir_all(bench.to().join(in_the_way).join("inside")).unwrap();
                let report = run(&bench, |selection| {
                    choose(selection);
                    selection.dry_run = dry_run;
                });
                let why = report.failures.iter().find(|(path, _)| path == in_the_way.as_bytes());
                assert!(why.is_some_and(|(_, why)| why.contains("directory")), "{in_the_way} {dry_run} {report:?}");
                assert!(bench.to().join(in_the_way).is_dir());
            }
        }
    }
}

#[test]
fn a_directory_in_the_way_stays_with_ignore_existing_and_is_no_failure() {
    for in_the_way in ["a", "b"] {
        let bench = with_two_names();
        std::fs::create_dir(bench.to().join(in_the_way)).unwrap();
        let report = run(&bench, ignore_existing);
        assert_eq!((report.failed, report.left_out), (0, 1), "{report:?}");
        let other = if in_the_way == "a" { "b" } else { "a" };
        assert!(bench.to().join(in_the_way).is_dir() && has_sources(&bench, other));
    }
}
