//! Tests files with holes, over any file that stands at the target.

use std::fs::{File, FileTimes};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use haul_job::{Error, Report};
use haul_store::part_name;
use haul_sys::intercept::{Call, Stopped, Verdict, under};
use haul_wire::limits::BLOCK_BYTES;

use crate::bad_disk::{CHECKPOINT_BYTES as SOON_BYTES, ENOSPC, LANES};
use crate::scenarios::{Bench, run_here};
use haul_copy::receiver::CHECKPOINT_BYTES;

const STANDING: [Option<i64>; 4] = [None, Some(0), Some(-100_000), Some(100_000)];

/// Tells of each block whether it is data: all patterns of files that travel whole, and some of one in chunks.
fn patterns() -> Vec<Vec<bool>> {
    let of = |blocks: u32| (0..1 << blocks).map(move |bits: u32| (0..blocks).map(|at| bits >> at & 1 == 1).collect());
    let large = [[true, false], [false, true]].map(|halves| halves.into_iter().flat_map(|half| [half; 6]).collect());
    of(1).chain(of(2)).chain(of(4)).chain(large).collect()
}

fn with_patterns() -> Bench {
    let bench = Bench::new();
    std::fs::create_dir(bench.to()).unwrap();
    let long_ago = FileTimes::new().set_modified(SystemTime::now() - Duration::from_secs(1000));
    for (number, pattern) in patterns().into_iter().enumerate() {
        for (standing, more_bytes) in STANDING.into_iter().enumerate() {
            let size = (pattern.len() * BLOCK_BYTES) as u64 - if number % 2 == 0 { 0 } else { 5000 };
            let name = format!("{number}-{standing}");
            let file = File::create(bench.from().join(&name)).unwrap();
            file.set_len(size).unwrap();
            for at in (0..pattern.len()).filter(|at| pattern[*at]) {
                // Data marks the outer end of the first and last block, and the end of others.
                let (start, end) = ((at * BLOCK_BYTES) as u64, ((at + 1) * BLOCK_BYTES) as u64);
                file.write_all_at(&[at as u8 + 1; 4096], end.min(size) - 4096).unwrap();
                if at % 2 == 1 {
                    file.write_all_at(&[7; 100], start).unwrap();
                }
            }
            if let Some(more_bytes) = more_bytes {
                let there = vec![0xaa; size.saturating_add_signed(more_bytes) as usize];
                std::fs::write(bench.to().join(&name), there).unwrap();
                File::options().write(true).open(bench.to().join(&name)).unwrap().set_times(long_ago).unwrap();
            }
        }
    }
    bench
}

#[test]
fn nothing_of_what_stood_there_shows_through_a_hole() {
    for options in 0..8 {
        let bench = with_patterns();
        let mut job = bench.job();
        job.selection.inplace = options & 1 == 1;
        job.selection.sparse = options & 2 == 0;
        job.selection.verify_disk = options & 4 != 0;
        let report = run_here(&job, 2, CHECKPOINT_BYTES).unwrap();
        assert_eq!((report.failed, report.files_moved), (0, (patterns().len() * STANDING.len()) as u64), "{options}");
        bench.assert_equal();
    }
}

type Layout = (u64, Vec<(u64, usize)>);

/// Returns the names, and the KiB of data in each.
fn with_small_holes(bench: &Bench) -> Vec<(String, u64)> {
    let every = |size: u64, step: u64, bytes: usize, first: u64| -> Layout {
        (size, (first..size).step_by(usize::try_from(step).unwrap()).map(|at| (at, bytes)).collect())
    };
    let layouts: [Layout; 6] = [
        every(64 << 10, 8 << 10, 4 << 10, 0),
        every(900 << 10, 8 << 10, 4 << 10, 4 << 10),
        every(5 << 20, 8 << 10, 4 << 10, 4 << 10),
        every(4 << 20, 128 << 10, 64 << 10, 0),
        (3_000_000, vec![(2 << 20, 4096)]),
        (700_123, vec![(0, 70_000)]),
    ];
    let make = |(number, (size, pieces)): (usize, Layout)| {
        let name = number.to_string();
        let file = File::create(bench.from().join(&name)).unwrap();
        file.set_len(size).unwrap();
        pieces.iter().for_each(|(at, bytes)| file.write_all_at(&vec![number as u8 + 1; *bytes], *at).unwrap());
        let end = |(at, bytes): &(u64, usize)| (at + *bytes as u64).min(size);
        (name, pieces.iter().map(|piece| end(piece) - piece.0).sum::<u64>() >> 10)
    };
    layouts.into_iter().enumerate().map(make).collect()
}

#[test]
fn holes_of_a_block_of_the_file_system_stay_holes_whatever_way_the_data_takes() {
    for options in 0..16 {
        let bench = Bench::new();
        let files = with_small_holes(&bench);
        let kib = |dir: &Path, name: &str| std::fs::metadata(dir.join(name)).unwrap().blocks() / 2;
        if files.iter().any(|(name, data_kib)| kib(&bench.from(), name) > data_kib + SLACK_KIB) {
            return eprintln!("skipped: the file system of the temporary directory makes no small holes");
        }
        let mut job = bench.job();
        job.selection.inplace = options & 1 == 1;
        job.carriage.compress = options & 2 != 0;
        job.carriage.write_route = (options & 4 != 0).then_some(haul_store::WriteRoute::Direct);
        if options & 8 != 0 {
            // A standing file must neither show through a hole nor keep its space.
            std::fs::create_dir(bench.to()).unwrap();
            for (name, _) in &files {
                std::fs::write(bench.to().join(name), vec![0xaa; 6_000_000]).unwrap();
            }
        }
        let report = run_here(&job, 2, CHECKPOINT_BYTES).unwrap();
        assert_eq!((report.failed, report.files_moved), (0, files.len() as u64), "{options}");
        bench.assert_equal();
        for (name, data_kib) in &files {
            let found = kib(&bench.to(), name);
            assert!(
                found <= data_kib + data_kib / 10 + SLACK_KIB,
                "{options}: {name} takes {found} KiB, not {data_kib}"
            );
        }
    }
}

#[test]
fn what_is_no_hole_at_the_source_is_written_though_it_is_zeros() {
    let bench = Bench::new();
    std::fs::write(bench.from().join("swap"), vec![0; 3 << 20]).unwrap();
    run_here(&bench.job(), 2, CHECKPOINT_BYTES).unwrap();
    let stat = std::fs::metadata(bench.to().join("swap")).unwrap();
    assert!(stat.blocks() * 512 >= 3 << 20, "only {} blocks are taken", stat.blocks());
}

/// Makes holes as in large disk images. Returns the part's path.
fn every_second_block(bench: &Bench) -> PathBuf {
    let file = File::create(bench.from().join("image")).unwrap();
    file.set_len(IMAGE_BYTES).unwrap();
    (0..IMAGE_BYTES).step_by(8 << 10).for_each(|at| file.write_all_at(&[5; 4 << 10], at).unwrap());
    bench.to().join(std::str::from_utf8(&part_name(b"image")).unwrap())
}

fn watched(
    bench: &Bench,
    part: &Path,
    call: Call,
    mut decide: impl FnMut(&Stopped) -> Verdict,
) -> Option<Result<Report, Error>> {
    let job = bench.job();
    let decide = |_, stopped: &Stopped| match stopped.file() == part {
        true => decide(stopped),
        false => Verdict::Proceed,
    };
    Some(under(&[call], decide, move || run_here(&job, 1, SOON_BYTES))?.0)
}

#[test]
fn small_holes_are_no_reason_to_read_a_part_again() {
    let bench = Bench::new();
    let part = every_second_block(&bench);
    let mut reads = 0;
    let count = |_: &Stopped| {
        reads += 1;
        Verdict::Proceed
    };
    let Some(result) = watched(&bench, &part, Call::Read, count) else { return };
    assert_eq!((result.unwrap().failed, reads), (0, 0));
    bench.assert_equal();
}

#[test]
fn a_hole_that_somebody_makes_beside_small_holes_is_found() {
    let bench = Bench::new();
    let part = every_second_block(&bench);
    let mut done = false;
    let punch_once = |_: &Stopped| {
        if !std::mem::replace(&mut done, true) {
            let file = File::options().write(true).open(&part).unwrap();
            assert!(haul_sys::file::punch(file.as_fd(), 1 << 20, 4 << 10).unwrap());
        }
        Verdict::Proceed
    };
    let Some(result) = watched(&bench, &part, Call::SetTimes, punch_once) else { return };
    let report = result.unwrap();
    assert_eq!((report.failed, report.chunks_repaired), (0, 1), "{:?}", report.failures);
    bench.assert_equal();
}

#[test]
fn a_part_with_small_holes_is_gone_on_with() {
    let bench = Bench::new();
    let part = every_second_block(&bench);
    let full = |stopped: &Stopped| match stopped.offset() >= 4 << 20 {
        true => Verdict::Fail(ENOSPC),
        false => Verdict::Proceed,
    };
    let Some(result) = watched(&bench, &part, Call::Write, full) else { return };
    assert!(result.is_err(), "the disk is full");
    let report = run_here(&bench.job(), LANES, SOON_BYTES).unwrap();
    assert_eq!((report.failed, report.chunks_repaired), (0, 0));
    // A busy host may not have recorded the last whole chunk when the disk was full.
    assert!([3 << 20, 4 << 20].contains(&report.bytes_read_again), "{} bytes", report.bytes_read_again);
    bench.assert_equal();
    let kib = std::fs::metadata(bench.to().join("image")).unwrap().blocks() / 2;
    assert!(kib <= (IMAGE_BYTES >> 11) + SLACK_KIB, "{kib} KiB");
}

const IMAGE_BYTES: u64 = 5 << 20;

/// Data may begin within a block, and a file system needs blocks to find its blocks.
const SLACK_KIB: u64 = 40;
