//! Tests parts that another process changes, and targets that are moved: parts are read again before the name, and a foreign
//! file gets none.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use haul_job::{Error, Fault, Job, Report};
use haul_store::part_name;
use haul_sys::file;
use haul_sys::intercept::{Call, Stopped, Verdict, under};

use crate::bad_disk::{CHECKPOINT_BYTES, ENOSPC, LANES, fill, goes_on, is_part_of, job_of};
use crate::scenarios::{Bench, run_here};

const MIB: u64 = 1 << 20;
const LARGE_BYTES: u64 = 5_000_000;
const SMALL_BYTES: u64 = 15_000;

type Act = fn(&Path);

fn open(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

fn flip(path: &Path) {
    let mut byte = [0];
    open(path).read_exact_at(&mut byte, MIB + 100).unwrap();
    open(path).write_all_at(&[byte[0] ^ 0x40], MIB + 100).unwrap();
}

fn make_zeros(path: &Path) {
    open(path).write_all_at(&[0; 4096], MIB + 4096).unwrap();
}

fn make_hole(path: &Path) {
    assert!(file::punch(open(path).as_fd(), MIB, MIB).unwrap());
}

fn cut_and_grow(path: &Path) {
    let bytes = open(path).metadata().unwrap().len();
    open(path).set_len(MIB + 5).unwrap();
    open(path).set_len(bytes).unwrap();
}

fn make_all_zeros(path: &Path) {
    let bytes = open(path).metadata().unwrap().len();
    open(path).write_all_at(&vec![0; bytes as usize], 0).unwrap();
}

fn part(bench: &Bench, name: &str) -> PathBuf {
    bench.to().join(std::str::from_utf8(&part_name(name.as_bytes())).unwrap())
}

fn half_done() -> Option<Bench> {
    let bench = fill(Bench::new());
    let decide = |_, stopped: &Stopped| {
        let full = is_part_of(&stopped.file(), "a-large") && stopped.offset() >= 4 * MIB;
        if full { Verdict::Fail(ENOSPC) } else { Verdict::Proceed }
    };
    let job = job_of(&bench);
    let (result, _) = under(&[Call::Write], decide, move || run_here(&job, 1, CHECKPOINT_BYTES))?;
    assert!(result.is_err(), "the disk is full");
    Some(bench)
}

#[test]
fn what_somebody_wrote_into_a_part_between_two_runs_comes_again() {
    for (act, wrong) in [(flip as Act, 1), (make_zeros, 1), (make_hole, 1), (cut_and_grow, 3), (make_all_zeros, 4)] {
        for verify_disk in [false, true] {
            let Some(bench) = half_done() else { return };
            act(&part(&bench, "a-large"));
            let mut job = job_of(&bench);
            job.selection.verify_disk = verify_disk;
            let report = run_here(&job, LANES, CHECKPOINT_BYTES).unwrap();
            assert_eq!((report.failed, report.chunks_repaired), (0, wrong), "{:?}", report.failures);
            bench.assert_equal();
            assert_eq!(report.bytes_read_again, (4 - wrong) * MIB);
            let missing = LARGE_BYTES - (4 - wrong) * MIB;
            let of_small = report.bytes_moved.checked_sub(missing);
            assert!(of_small.is_some_and(|bytes| bytes <= SMALL_BYTES), "only what is missing moves: {report:?}");
        }
    }
}

#[test]
fn a_journal_is_trusted_where_that_is_asked_for_and_that_is_said() {
    let Some(bench) = half_done() else { return };
    flip(&part(&bench, "a-large"));
    let mut job = job_of(&bench);
    job.selection.trust_journal = true;
    let report = run_here(&job, LANES, CHECKPOINT_BYTES).unwrap();
    assert_eq!((report.failed, report.bytes_read_again, report.bytes_trusted), (0, 0, 4 * MIB));
    let (from, to) = (std::fs::read(bench.from().join("a-large")), std::fs::read(bench.to().join("a-large")));
    assert!(from.unwrap() != to.unwrap(), "the fault does what it should");
}

#[test]
fn a_part_that_is_complete_is_read_before_it_gets_its_name() {
    for act in [flip as Act, |_| {}] {
        let bench = fill(Bench::new());
        let decide = |_, stopped: &Stopped| match stopped.new_name() == b"a-large" {
            true => Verdict::Fail(ENOSPC),
            false => Verdict::Proceed,
        };
        let job = job_of(&bench);
        // The job is slow, so all of the file is in the journal.
        let work = move || run_here(&job, 1, 1);
        let Some((result, _)) = under(&[Call::Rename], decide, work) else { return };
        assert!(result.is_err());
        act(&part(&bench, "a-large"));
        goes_on(&bench, &job_of(&bench), "afterwards");
    }
}

#[test]
fn holes_of_whole_blocks_are_read_back_like_data() {
    let bench = Bench::new();
    let source = File::create(bench.from().join("disk")).unwrap();
    source.set_len(200 * MIB).unwrap();
    source.write_all_at(&[7; 3_000_000], 130 * MIB).unwrap();
    let mut job = bench.job();
    job.selection.verify_disk = true;
    let report = run_here(&job, LANES, CHECKPOINT_BYTES).unwrap();
    assert_eq!((report.failed, report.chunks_repaired), (0, 0), "{:?}", report.failures);
    bench.assert_equal();
}

fn while_it_runs(
    bench: &Bench,
    mut job: Job,
    verify_disk: bool,
    name: &'static str,
    call: Call,
    act: Act,
) -> Option<Result<Report, Error>> {
    job.selection.verify_disk = verify_disk;
    let mut done = false;
    let part_of_it = part_in(bench, name);
    let decide = |_, stopped: &Stopped| {
        let is_it = match call {
            Call::Rename => stopped.new_name() == Path::new(name).file_name().unwrap().as_encoded_bytes(),
            _ => stopped.file() == part_of_it,
        };
        if is_it && !std::mem::replace(&mut done, true) {
            act(&part_of_it);
        }
        Verdict::Proceed
    };
    let (result, _) = under(&[call], decide, move || run_here(&job, LANES, CHECKPOINT_BYTES))?;
    assert!(done, "{call:?} of {name} never came");
    Some(result)
}

fn part_in(bench: &Bench, name: &str) -> PathBuf {
    let path = bench.to().join(name);
    let part = part_name(path.file_name().unwrap().as_encoded_bytes());
    path.with_file_name(std::str::from_utf8(&part).unwrap())
}

fn replace_by_file(part: &Path) {
    std::fs::rename(part, part.with_extension("kept")).unwrap();
    std::fs::write(part, b"somebody else's").unwrap();
}

fn replace_by_directory(part: &Path) {
    std::fs::rename(part, part.with_extension("kept")).unwrap();
    std::fs::create_dir(part).unwrap();
}

fn remove(part: &Path) {
    std::fs::remove_file(part).unwrap();
}

#[test]
fn a_part_that_is_replaced_during_the_copy_does_not_get_the_name() {
    for (name, verify_disk) in [("a-large", false), ("a-large", true), ("d1/small3", false), ("d1/small3", true)] {
        for act in [replace_by_file as Act, replace_by_directory, remove] {
            let bench = fill(Bench::new());
            let Some(result) = while_it_runs(&bench, job_of(&bench), verify_disk, name, Call::SetTimes, act) else {
                return;
            };
            let report = result.unwrap();
            assert_eq!((report.failed, report.files_moved), (1, 6), "{name}: {:?}", report.failures);
            assert!(report.failures[0].1.contains("somebody else"), "{:?}", report.failures);
            assert!(!bench.to().join(name).exists(), "{name} has a name");
        }
    }
}

#[test]
fn what_takes_the_place_of_a_part_in_the_last_moment_is_no_success() {
    for name in ["a-large", "d1/small3"] {
        for act in [replace_by_file as Act, replace_by_directory] {
            let bench = fill(Bench::new());
            let Some(result) = while_it_runs(&bench, job_of(&bench), false, name, Call::Rename, act) else { return };
            let report = result.unwrap();
            assert_eq!((report.failed, report.files_moved), (1, 6), "{name}: {:?}", report.failures);
            assert!(report.failures[0].1.contains("put another file there"), "{:?}", report.failures);
        }
    }
}

#[test]
fn a_part_that_is_cut_or_hollowed_out_during_the_copy_is_mended_before_it_gets_its_name() {
    for act in [make_hole as Act, cut_and_grow, |path| open(path).set_len(MIB + 5).unwrap()] {
        for (verify_disk, call) in [(false, Call::Truncate), (false, Call::SetTimes), (true, Call::SetTimes)] {
            let bench = fill(Bench::new());
            let result = while_it_runs(&bench, job_of(&bench), verify_disk, "a-large", call, act);
            let Some(result) = result else { return };
            let report = result.unwrap();
            assert_eq!(report.failed, 0, "{call:?}: {:?}", report.failures);
            assert!(report.chunks_repaired >= 1, "{report:?}");
            bench.assert_equal();
        }
    }
}

#[test]
fn a_small_file_whose_part_is_cut_does_not_get_the_name() {
    let bench = fill(Bench::new());
    let act = |path: &Path| open(path).set_len(100).unwrap();
    let Some(result) = while_it_runs(&bench, job_of(&bench), false, "d1/small3", Call::SetTimes, act) else { return };
    let report = result.unwrap();
    assert_eq!((report.failed, report.files_moved), (1, 6), "{:?}", report.failures);
    assert!(report.failures[0].1.contains("cut or extended"), "{:?}", report.failures);
    assert!(!bench.to().join("d1/small3").exists());
}

#[test]
fn a_target_that_is_not_where_it_was_at_the_end_is_an_error_that_says_so() {
    let moves: [Act; 3] = [
        |to| std::fs::rename(to, to.with_extension("elsewhere")).unwrap(),
        |to| {
            std::fs::rename(to, to.with_extension("elsewhere")).unwrap();
            std::fs::create_dir(to).unwrap();
        },
        |to| {
            std::fs::rename(to, to.with_extension("elsewhere")).unwrap();
            std::fs::write(to, b"a file").unwrap();
        },
    ];
    for act in moves {
        let bench = fill(Bench::new());
        let (mut done, to) = (false, bench.to());
        let decide = |_, stopped: &Stopped| {
            if stopped.new_name() == b"a-large" && !std::mem::replace(&mut done, true) {
                act(&to);
            }
            Verdict::Proceed
        };
        let job = job_of(&bench);
        let work = move || run_here(&job, LANES, CHECKPOINT_BYTES);
        let Some((result, _)) = under(&[Call::Rename], decide, work) else { return };
        let error = result.unwrap_err();
        assert_eq!(error.fault, Fault::FileIo, "{error:?}");
        assert!(error.to_string().contains("unmounted during the copy"), "{error}");
        assert!(bench.to().with_extension("elsewhere").join("a-large").exists());
    }
}

#[test]
fn a_directory_that_is_moved_away_during_the_copy_has_failed() {
    let bench = fill(Bench::new());
    let mut done = false;
    let decide = |_, stopped: &Stopped| {
        if stopped.new_name() == b"small3" && !std::mem::replace(&mut done, true) {
            std::fs::rename(bench.to().join("d1"), bench.to().with_extension("elsewhere")).unwrap();
        }
        Verdict::Proceed
    };
    let job = job_of(&bench);
    let Some((result, _)) = under(&[Call::Rename], decide, move || run_here(&job, LANES, CHECKPOINT_BYTES)) else {
        return;
    };
    let report = result.unwrap();
    assert!(report.failed >= 1 && !bench.to().join("d1").exists(), "{report:?}");
    assert!(report.failures.iter().any(|(path, _)| path == b"d1"), "{:?}", report.failures);
}
