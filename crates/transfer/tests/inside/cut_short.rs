//! Tests jobs that are cut short anywhere, while their trees change, and that go on with any options.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{File, FileTimes};
use std::io::Write;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use haul_engine::journal;
use haul_engine::plan::ChunkLayout;
use haul_job::{Fault, Job};
use haul_store::journal_name;
use haul_sys::intercept::{Call, Stopped, Verdict, under};
use proptest::prelude::*;

use crate::bad_disk::{EIO, ENOSPC, WRITING, fill};
use crate::changing::{Change, SIZES, any_change, change, choose, name};
use crate::scenarios::{Bench, files, run_here};

const CHECKPOINT_BYTES: u64 = 1 << 20;

const UPDATE: u8 = 1;
const IGNORE_EXISTING: u8 = 2;

#[derive(Clone, Copy, Debug)]
enum Damage {
    Append,
    Cut(u32),
    Scribble(u32),
    Delete,
}

#[derive(Clone, Debug)]
struct Attempt {
    options: u16,
    lanes: u16,
    operations: usize,
    changes: Vec<(usize, Change)>,
    damages: Vec<(usize, Damage)>,
}

fn any_attempt() -> impl Strategy<Value = Attempt> {
    let damage = prop_oneof![
        Just(Damage::Append),
        (0u32..1000).prop_map(Damage::Cut),
        (0u32..1000).prop_map(Damage::Scribble),
        Just(Damage::Delete),
    ];
    let changes = proptest::collection::vec(any_change(), 0..3);
    let damages = proptest::collection::vec((any::<usize>(), damage), 0..3);
    (any::<u16>(), 1u16..4, 0usize..250, changes, damages).prop_map(|(options, lanes, operations, changes, damages)| {
        Attempt { options, lanes, operations, changes, damages }
    })
}

#[derive(Default)]
struct Whole(HashSet<String>);

impl Whole {
    fn look(&mut self, root: &Path) {
        self.0.extend(files(root).into_iter().map(|(_, content)| content));
    }
}

/// Only haul writes into a part, whose journal is believed. A whole file becomes another whole file.
fn damage(bench: &Bench, number: usize, damage: Damage, whole: &mut Whole) {
    let standing = files(&bench.to());
    let Some((found, content)) = standing.get(number % standing.len().max(1)) else { return };
    let path = bench.to().join(found);
    let open = || File::options().write(true).open(&path).unwrap();
    let size = std::fs::metadata(&path).unwrap().len();
    let is = |what: &str| found.extension().is_some_and(|extension| extension == what);
    let at = |share: u32| size * u64::from(share) / 1000;
    match damage {
        Damage::Append => File::options().append(true).open(&path).unwrap().write_all(b"more").unwrap(),
        Damage::Cut(share) => open().set_len(at(share)).unwrap(),
        Damage::Scribble(_) if is("part") => {}
        // Without its journal nobody knows what was whole.
        Damage::Delete if is("journal") => {}
        Damage::Scribble(share) => open().write_all_at(b"other bytes", at(share)).unwrap(),
        Damage::Delete => std::fs::remove_file(&path).unwrap(),
    }
    if whole.0.contains(content) && path.exists() {
        whole.0.insert(blake3::hash(&std::fs::read(path).unwrap()).to_string());
    }
}

fn run_short(job: Job, lanes: u16, operations: usize) -> bool {
    let decide = move |number, _: &Stopped| if number >= operations { Verdict::Fail(EIO) } else { Verdict::Proceed };
    under(&WRITING, decide, move || drop(run_here(&job, lanes, CHECKPOINT_BYTES))).is_some()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(16) })]

    #[test]
    fn what_was_cut_short_anywhere_is_finished_whatever_is_asked_for_then(
        attempts in proptest::collection::vec(any_attempt(), 1..4),
        keeps in 0u8..4,
        stands in any::<bool>(),
        options in any::<u16>(),
    ) {
        let bench = Bench::new();
        for (number, size) in SIZES.iter().enumerate() {
            bench.write(&name(number), *size);
        }
        std::fs::hard_link(bench.from().join(name(0)), bench.from().join("d2/z")).unwrap();
        let job = |options| {
            let mut job = bench.job();
            choose(&mut job, options);
            // An unfinished file without a mark cannot be told from others, so these stay the same in every run.
            job.selection.update = keeps & UPDATE != 0;
            job.selection.ignore_existing = keeps & IGNORE_EXISTING != 0;
            job
        };
        let mut whole = Whole::default();
        whole.look(&bench.from());
        if stands {
            run_here(&bench.job(), 2, CHECKPOINT_BYTES).unwrap();
            for number in 0..SIZES.len() {
                change(&bench, number, Change::Append, 99);
            }
            whole.look(&bench.from());
        }
        let mut serial = 0;
        for attempt in &attempts {
            if !run_short(job(attempt.options), attempt.lanes, attempt.operations) {
                return Ok(());
            }
            for (number, what) in &attempt.changes {
                serial += 1;
                change(&bench, *number, *what, serial);
                whole.look(&bench.from());
            }
            for (number, what) in attempt.damages.iter().filter(|_| bench.to().exists()) {
                damage(&bench, *number, *what, &mut whole);
            }
        }
        let report = run_here(&job(options), 3, CHECKPOINT_BYTES).unwrap();
        // If a first name stays, the second would show content that it never had.
        let has_no_first = |why: &str| keeps != 0 && why.contains("stays at the target as it is there");
        let failed: Vec<_> = report.failures.iter().map(|(path, _)| Path::new(OsStr::from_bytes(path))).collect();
        prop_assert!(report.failures.iter().all(|(_, why)| has_no_first(why)), "{:?}", report.failures);
        prop_assert_eq!(report.failed, failed.len() as u64, "{:?}", report.failures);
        let untouched = attempts.iter().all(|attempt| attempt.damages.is_empty());
        let must_be_equal = keeps == 0 || (keeps == UPDATE && untouched);
        let to = files(&bench.to());
        for (path, content) in files(&bench.from()) {
            let found = to.iter().find(|(found, _)| *found == path).map(|(_, content)| content);
            // A file in place that could not be finished has its mark beside it.
            let mark = path.with_file_name(OsStr::from_bytes(&journal_name(path.file_name().unwrap().as_bytes())));
            if failed.contains(&&*path) && (found.is_none() || bench.to().join(mark).exists()) {
                continue;
            }
            let is_right = found.is_some_and(|found| *found == content || (!must_be_equal && whole.0.contains(found)));
            prop_assert!(is_right, "{:?} is {:?} and not {}", path, found, content);
        }
    }
}

fn half_in_place(bench: &Bench, job: &Job) -> bool {
    bench.write("large", LARGE_BYTES as usize);
    let file = bench.to().join("large");
    let decide = |_, stopped: &Stopped| match stopped.file() == file && claimed(bench).len() > 1 {
        true => Verdict::Fail(ENOSPC),
        false => Verdict::Proceed,
    };
    let job = job.clone();
    let Some((result, _)) = under(&[Call::Write], decide, move || run_here(&job, 2, CHECKPOINT_BYTES)) else {
        return false;
    };
    assert_eq!(result.unwrap_err().fault, Fault::Space);
    true
}

fn claimed(bench: &Bench) -> Vec<u32> {
    let journal = bench.to().join(OsStr::from_bytes(&journal_name(b"large")));
    let found = std::fs::read(journal).ok().and_then(|bytes| journal::decode(&bytes));
    found.map_or_else(Vec::new, |(_, records)| records.into_iter().map(|(chunk, _)| chunk).collect())
}

const LARGE_BYTES: u64 = 16_000_001;

#[test]
fn what_somebody_wrote_into_a_file_that_was_begun_in_place_does_not_stay() {
    let bench = Bench::new();
    let mut job = bench.job();
    job.selection.inplace = true;
    if !half_in_place(&bench, &job) {
        return;
    }
    let (start, _) = ChunkLayout::of(LARGE_BYTES).range(claimed(&bench)[0]).unwrap();
    let open = File::options().write(true).open(bench.to().join("large")).unwrap();
    open.write_all_at(b"other bytes", start + 100).unwrap();
    let report = run_here(&job, 2, CHECKPOINT_BYTES).unwrap();
    assert!(report.failed == 0 && report.bytes_kept > 0, "untouched files are not sent again: {report:?}");
    bench.assert_equal();
    assert_eq!(files(&bench.to()).len(), 1, "nothing is left beside it");
}

#[test]
fn a_file_that_was_begun_in_place_is_neither_newer_nor_existing() {
    for (update, ignore_existing) in [(true, false), (false, true)] {
        let bench = Bench::new();
        let mut job = bench.job();
        (job.selection.update, job.selection.ignore_existing) = (update, ignore_existing);
        let beside = job.clone();
        job.selection.inplace = true;
        if !half_in_place(&bench, &job) {
            return;
        }
        let report = run_here(&beside, 2, CHECKPOINT_BYTES).unwrap();
        assert_eq!((report.failed, report.files_moved), (0, 1), "{report:?}");
        bench.assert_equal();
        assert_eq!(files(&bench.to()).len(), 1, "nothing is left beside it");
        File::options().append(true).open(bench.to().join("large")).unwrap().write_all(b"more").unwrap();
        assert_eq!(run_here(&job, 2, CHECKPOINT_BYTES).unwrap().files_moved, 0);
    }
}

/// Rule P2: after a power cut a file's time says that all of it is there.
#[test]
fn in_place_data_is_flushed_before_the_file_gets_its_time() {
    let bench = fill(Bench::new());
    let mut job = bench.job();
    job.selection.inplace = true;
    let (mut unflushed, mut dated) = (HashSet::new(), 0);
    let note = |_, stopped: &Stopped| {
        let path = stopped.file();
        match stopped.call() {
            Call::Write | Call::Truncate => drop(unflushed.insert(path)),
            Call::Flush => drop(unflushed.remove(&path)),
            _ => {
                assert!(!unflushed.contains(&path), "{} has its time before its data is flushed", path.display());
                dated += usize::from(path.is_file());
            }
        }
        Verdict::Proceed
    };
    let calls = [Call::Write, Call::Truncate, Call::Flush, Call::SetTimes];
    let Some((result, _)) = under(&calls, note, move || run_here(&job, 2, CHECKPOINT_BYTES)) else { return };
    assert_eq!(result.unwrap().failed, 0);
    bench.assert_equal();
    assert_eq!(dated, 8);
}

fn written_and_not_flushed() -> (Bench, Job) {
    let bench = Bench::new();
    bench.write("small", 70_000);
    std::fs::create_dir(bench.to()).unwrap();
    std::fs::copy(bench.from().join("small"), bench.to().join("small")).unwrap();
    let long_ago = SystemTime::now() - Duration::from_secs(1000);
    let found = File::options().write(true).open(bench.to().join("small")).unwrap();
    found.set_times(FileTimes::new().set_modified(long_ago)).unwrap();
    let mut job = bench.job();
    job.selection.checksum = true;
    (bench, job)
}

#[test]
fn what_was_found_equal_is_flushed_before_it_gets_its_time() {
    let (bench, job) = written_and_not_flushed();
    let file = bench.to().join("small");
    let mut order = Vec::new();
    let note = |_, stopped: &Stopped| {
        if stopped.file() == file {
            order.push(stopped.call());
        }
        Verdict::Proceed
    };
    let calls = [Call::Flush, Call::SetTimes];
    let Some((result, _)) = under(&calls, note, move || run_here(&job, 2, CHECKPOINT_BYTES)) else { return };
    assert_eq!((result.as_ref().unwrap().failed, result.unwrap().files_moved), (0, 0));
    assert_eq!(order, calls);
}

#[test]
fn what_was_found_equal_and_cannot_be_flushed_has_failed_and_does_not_get_its_time() {
    let (bench, job) = written_and_not_flushed();
    let file = bench.to().join("small");
    let modified = |path: &Path| path.metadata().unwrap().modified().unwrap();
    let before = modified(&file);
    let fail = |_, stopped: &Stopped| if stopped.file() == file { Verdict::Fail(EIO) } else { Verdict::Proceed };
    let Some((result, _)) = under(&[Call::Flush], fail, move || run_here(&job, 2, CHECKPOINT_BYTES)) else { return };
    let report = result.unwrap();
    assert!(report.failed == 1 && report.failures[0].1.contains("flush"), "{report:?}");
    assert_eq!(modified(&file), before);
}
