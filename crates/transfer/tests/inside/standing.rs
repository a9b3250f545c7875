//! Tests differing files at the target: only what does not stand there is sent, and the result is the source's file.

use std::collections::HashSet;
use std::fs::{File, FileTimes};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::time::{Duration, SystemTime};

use haul_copy::pieces::Cutter;
use haul_copy::receiver::CHECKPOINT_BYTES;
use haul_job::{Job, Report};
use haul_store::WriteRoute;
use haul_sys::intercept::{Call, Stopped, Verdict, under};
use proptest::prelude::*;

use crate::bad_disk::EIO;
use crate::scenarios::{Bench, random, run_here};

const LANES: u16 = 3;

const SIZE: usize = (3 << 20) + 4_321;

fn bench(source: &[u8], standing: &[u8]) -> Bench {
    let bench = Bench::new();
    std::fs::write(bench.from().join("file"), source).unwrap();
    std::fs::create_dir(bench.to()).unwrap();
    let path = bench.to().join("file");
    std::fs::write(&path, standing).unwrap();
    let long_ago = FileTimes::new().set_modified(SystemTime::now() - Duration::from_secs(1000));
    File::options().write(true).open(path).unwrap().set_times(long_ago).unwrap();
    bench
}

fn copied(bench: &Bench, change: impl FnOnce(&mut Job)) -> Report {
    let mut job = bench.job();
    change(&mut job);
    let report = run_here(&job, LANES, CHECKPOINT_BYTES).unwrap();
    assert_eq!((report.failed, report.files_moved), (0, 1), "{:?}", report.failures);
    bench.assert_equal();
    report
}

/// A change costs beside its bytes the pieces cut in two, and those until two files are cut alike again.
fn around_a_change() -> u64 {
    4 * Cutter::of(SIZE as u64).unwrap().longest_bytes() as u64
}

#[test]
fn of_a_change_of_every_day_only_the_change_is_sent() {
    let before = random(1, SIZE);
    let (head, tail) = before.split_at(SIZE / 2);
    let changed = 100_000;
    let cases = [
        ("a new time", before.clone(), 0),
        ("in the middle", [head, &random(2, changed), &tail[changed..]].concat(), changed),
        ("more at the end", [&before, &random(3, changed)[..]].concat(), changed),
        ("more in front", [&random(4, changed)[..], &before].concat(), changed),
        ("a byte in front", [b"x", &before[..]].concat(), 1),
        ("more in the middle", [head, &random(5, changed), tail].concat(), changed),
        ("less in the middle", [head, &tail[changed..]].concat(), 0),
        ("less at the end", before[..SIZE - changed].to_vec(), 0),
        ("the halves in the other order", [tail, head].concat(), 0),
    ];
    for (case, after, new_bytes) in cases {
        for compress in [false, true] {
            let report = copied(&bench(&after, &before), |job| job.carriage.compress = compress);
            let most = new_bytes as u64 + around_a_change();
            assert!(report.bytes_moved <= most, "{case}: {} bytes were sent, at most {most}", report.bytes_moved);
        }
    }
}

/// No end may take the file for another one too early.
#[test]
fn what_stands_behind_a_long_new_beginning_is_found() {
    let (before, new) = (random(1, 100 << 20), random(2, 70 << 20));
    let report = copied(&bench(&[&new[..], &before].concat(), &before), |_| ());
    let most = new.len() as u64 + 8 * around_a_change();
    assert!(report.bytes_moved <= most, "{} bytes were sent, at most {most}", report.bytes_moved);
}

#[test]
fn a_small_file_is_looked_at_as_well() {
    let before = random(1, 300_000);
    let after = [&before[..], b"a line more"].concat();
    let report = copied(&bench(&after, &before), |_| ());
    assert!(report.bytes_moved < 50_000, "{}", report.bytes_moved);
}

#[test]
fn the_whole_file_is_sent_where_that_is_asked_for() {
    let before = random(1, SIZE);
    let after = [&before[..], b"x"].concat();
    let report = copied(&bench(&after, &before), |job| job.selection.whole_file = true);
    assert_eq!(report.bytes_moved, after.len() as u64);
}

#[test]
fn in_place_only_what_differs_is_written() {
    let before = random(1, SIZE);
    let changed = 100_000;
    let after = [&before[..SIZE / 2], &random(2, changed), &before[SIZE / 2 + changed..]].concat();
    let bench = bench(&after, &before);
    let inode = std::fs::metadata(bench.to().join("file")).unwrap().ino();
    let target = bench.to().join("file");
    let mut written = 0;
    let mut job = bench.job();
    job.selection.inplace = true;
    let decide = |_, stopped: &Stopped| {
        if stopped.file() == target {
            written += stopped.bytes() as u64;
        }
        Verdict::Proceed
    };
    let Some((report, _)) = under(&[Call::Write], decide, move || run_here(&job, LANES, CHECKPOINT_BYTES)) else {
        return;
    };
    assert_eq!(report.unwrap().failed, 0);
    bench.assert_equal();
    assert!(written >= changed as u64 && written <= changed as u64 + around_a_change(), "{written}");
    assert_eq!(std::fs::metadata(&target).unwrap().ino(), inode);
}

/// Somebody writes into the standing file, or cuts it, between the look and the run taken from there.
#[test]
fn a_target_that_changes_while_it_is_compared_costs_its_data_and_nothing_else() {
    let before = random(1, SIZE);
    let after = [&before[..], b"x"].concat();
    for is_cut in [false, true] {
        let bench = bench(&after, &before);
        let path = bench.to().join("file");
        let standing = File::options().read(true).write(true).open(&path).unwrap();
        let job = bench.job();
        let (mut read, mut is_changed) = (0, false);
        let decide = |_, stopped: &Stopped| {
            if stopped.file() != path {
                return Verdict::Proceed;
            }
            read += stopped.bytes();
            if read > SIZE + (1 << 20) && !std::mem::replace(&mut is_changed, true) {
                match is_cut {
                    true => standing.set_len(1000).unwrap(),
                    false => standing.write_all_at(&random(9, 500_000), 0).unwrap(),
                }
            }
            Verdict::Proceed
        };
        let Some((report, _)) = under(&[Call::Read], decide, move || run_here(&job, LANES, CHECKPOINT_BYTES)) else {
            return;
        };
        let report = report.unwrap();
        assert_eq!((report.failed, report.files_moved), (0, 1), "{:?}", report.failures);
        bench.assert_equal();
    }
}

#[test]
fn a_standing_file_that_cannot_be_read_is_replaced_all_the_same() {
    let before = random(1, SIZE);
    let after = [&before[..], b"x"].concat();
    for bad_from in [0, 1_500_000] {
        let bench = bench(&after, &before);
        let path = bench.to().join("file");
        let job = bench.job();
        let decide = |_, stopped: &Stopped| {
            let is_bad = stopped.file() == path && stopped.offset() + stopped.bytes() as u64 > bad_from;
            if is_bad { Verdict::Fail(EIO) } else { Verdict::Proceed }
        };
        let Some((report, _)) = under(&[Call::Read], decide, move || run_here(&job, LANES, CHECKPOINT_BYTES)) else {
            return;
        };
        assert_eq!(report.unwrap().failed, 0);
        bench.assert_equal();
    }
}

#[derive(Clone, Debug)]
enum Edit {
    Insert(usize, u64, usize),
    Delete(usize, usize),
    Overwrite(usize, u64, usize),
    Truncate(usize),
    Zero(usize, usize),
    Move(usize, usize, usize),
}

impl Edit {
    /// Places and lengths are taken modulo what there is. Returns the new bytes.
    fn apply(&self, data: &mut Vec<u8>) -> usize {
        let within = |at: usize, data: &Vec<u8>| at % (data.len() + 1);
        match *self {
            Edit::Insert(at, seed, bytes) => {
                let at = within(at, data);
                data.splice(at..at, random(seed, bytes));
                bytes
            }
            Edit::Delete(at, bytes) => {
                let at = within(at, data);
                data.drain(at..(at + bytes).min(data.len()));
                0
            }
            Edit::Overwrite(at, seed, bytes) => {
                let at = within(at, data);
                let end = (at + bytes).min(data.len());
                data[at..end].copy_from_slice(&random(seed, end - at));
                end - at
            }
            Edit::Truncate(at) => {
                let at = within(at, data);
                data.truncate(at);
                0
            }
            Edit::Zero(at, bytes) => {
                let at = within(at, data);
                let end = (at + bytes).min(data.len());
                data[at..end].fill(0);
                end - at
            }
            Edit::Move(from, to, bytes) => {
                let from = within(from, data);
                let moved: Vec<u8> = data.drain(from..(from + bytes).min(data.len())).collect();
                let to = within(to, data);
                data.splice(to..to, moved);
                0
            }
        }
    }
}

fn any_edit() -> impl Strategy<Value = Edit> {
    let (at, bytes) = (0usize..4_000_000, prop_oneof![1usize..5000, 5000usize..400_000]);
    prop_oneof![
        (at.clone(), any::<u64>(), bytes.clone()).prop_map(|(at, seed, bytes)| Edit::Insert(at, seed, bytes)),
        (at.clone(), bytes.clone()).prop_map(|(at, bytes)| Edit::Delete(at, bytes)),
        (at.clone(), any::<u64>(), bytes.clone()).prop_map(|(at, seed, bytes)| Edit::Overwrite(at, seed, bytes)),
        at.clone().prop_map(Edit::Truncate),
        (at.clone(), bytes.clone()).prop_map(|(at, bytes)| Edit::Zero(at, bytes)),
        (at.clone(), at, bytes).prop_map(|(from, to, bytes)| Edit::Move(from, to, bytes)),
    ]
}

fn make_sparse(path: &std::path::Path, data: &[u8]) {
    let file = File::create(path).unwrap();
    file.set_len(data.len() as u64).unwrap();
    for (at, block) in (0..).step_by(4096).zip(data.chunks(4096)) {
        if block.iter().any(|byte| *byte != 0) {
            file.write_all_at(block, at).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn whatever_was_edited_the_result_is_the_source_and_little_was_sent(
        seed in any::<u64>(),
        size in prop_oneof![60_000usize..1_000_000, 1_000_000usize..4_000_000],
        edits in proptest::collection::vec(any_edit(), 1..6),
        options in 0u8..32,
    ) {
        let bit = |number: u8| options >> number & 1 == 1;
        let mut before = random(seed, size);
        Edit::Zero(size / 3, 200_000).apply(&mut before);
        let mut after = before.clone();
        let new_bytes: usize = edits.iter().map(|edit| edit.apply(&mut after)).sum();
        let bench = bench(&after, &before);
        if bit(0) {
            make_sparse(&bench.from().join("file"), &after);
        }
        let mut job = bench.job();
        job.selection.inplace = bit(1);
        job.selection.sparse = bit(2);
        job.selection.verify_disk = bit(3);
        job.carriage.write_route = bit(4).then_some(WriteRoute::Direct);
        let report = run_here(&job, LANES, CHECKPOINT_BYTES).unwrap();
        prop_assert_eq!(report.failed, 0);
        bench.assert_equal();
        // In place nothing can be taken from elsewhere; and a file that shrank below the least is sent whole.
        let least = 64 << 10;
        if !bit(1) && after.len() >= least {
            let most = new_bytes as u64 + 3 * edits.len() as u64 * around_a_change();
            prop_assert!(report.bytes_moved <= most, "{} bytes were sent, at most {}", report.bytes_moved, most);
        }
    }
}

#[test]
fn a_run_that_was_cut_short_goes_on_with_what_stands_there() {
    let before = random(1, 12 << 20);
    let after = [&before[..6 << 20], &random(2, 100_000), &before[6 << 20..]].concat();
    let bench = bench(&after, &before);
    let job = bench.job();
    // The target's disk fails in the middle of the new file.
    let mut written = 0;
    let part_of = bench.to().join("file");
    let decide = |_, stopped: &Stopped| {
        if stopped.file() != part_of {
            written += stopped.bytes();
        }
        if written > 8 << 20 { Verdict::Fail(EIO) } else { Verdict::Proceed }
    };
    let first = job.clone();
    let Some((report, _)) = under(&[Call::Write], decide, move || run_here(&first, LANES, 1 << 20)) else { return };
    assert_eq!(report.unwrap().failed, 1);
    assert_eq!(std::fs::read(&part_of).unwrap(), before, "the old file stays");
    let report = run_here(&job, LANES, CHECKPOINT_BYTES).unwrap();
    assert_eq!(report.failed, 0);
    bench.assert_equal();
    assert!(report.bytes_moved <= 100_000 + around_a_change() * 4, "{}", report.bytes_moved);
}

#[test]
fn many_files_that_differ_all_arrive() {
    let bench = Bench::new();
    std::fs::create_dir(bench.to()).unwrap();
    let long_ago = FileTimes::new().set_modified(SystemTime::now() - Duration::from_secs(1000));
    let sizes: Vec<usize> = (0..60).map(|number| 20_000 + number * 40_000).collect();
    for (number, size) in sizes.iter().enumerate() {
        let before = random(number as u64, *size);
        let after = [&before[..size / 2], b"an insertion", &before[size / 2..]].concat();
        std::fs::write(bench.from().join(number.to_string()), after).unwrap();
        let path = bench.to().join(number.to_string());
        std::fs::write(&path, before).unwrap();
        File::options().write(true).open(path).unwrap().set_times(long_ago).unwrap();
    }
    let report = run_here(&bench.job(), LANES, CHECKPOINT_BYTES).unwrap();
    assert_eq!((report.failed, report.files_moved), (0, sizes.len() as u64));
    bench.assert_equal();
    let whole: u64 = sizes.iter().map(|size| *size as u64).sum();
    assert!(report.bytes_moved < whole / 4, "{} of {whole}", report.bytes_moved);
    let inodes: HashSet<u64> = sizes
        .iter()
        .enumerate()
        .map(|(number, _)| std::fs::metadata(bench.to().join(number.to_string())).unwrap().ino())
        .collect();
    assert_eq!(inodes.len(), sizes.len());
}
