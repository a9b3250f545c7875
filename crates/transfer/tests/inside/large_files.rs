//! Tests large files: uncached data is read past the page cache and leaves nothing there; cached data is read from it.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use haul_job::{Error, Event, Job, Observer, Report, Subject};
use haul_net::Stream;
use haul_store::WriteRoute;
use haul_sys::cached::CacheProbe;
use haul_sys::condition::unmet;
use haul_sys::intercept::{Call, Stopped, Verdict, Watcher, watch_this_thread};
use haul_sys::{file, medium};
use proptest::prelude::*;

use crate::scenarios::{self, Bench, Witness, files};
use haul_channel::reporter::Watch;
use haul_copy::receiver::Bounds;

/// Allows two stretches, and is not a multiple of anything.
const FILE_BYTES: usize = (24 << 20) + 1_234;

const FROM_BYTES: u64 = 2 << 20;

const ASKED_BYTES: u64 = 2 * 4096;

const TRIES: usize = 5;

const PAST: &str = "past the page cache";
const THROUGH: &str = "through the page cache, and dropped from it";

fn bench(bytes: usize) -> Option<Bench> {
    let bench = Bench::on_disk();
    bench.write("large", bytes);
    let opened = source(&bench);
    let in_memory = medium::lies_in_memory(opened.as_fd()).unwrap();
    if in_memory || !(0..TRIES).any(|_| make_cold(&bench, 0)) {
        unmet("the temporary directory lies in memory, or nobody says what of it is cached");
        return None;
    }
    Some(bench)
}

fn source(bench: &Bench) -> File {
    File::options().read(true).write(true).open(bench.from().join("large")).unwrap()
}

/// Returns false if it cannot be seen.
fn make_cold(bench: &Bench, from: u64) -> bool {
    let opened = source(bench);
    file::flush_all(opened.as_fd()).unwrap();
    file::drop_cache(opened.as_fd(), from, u64::MAX >> 2);
    CacheProbe::new(opened.as_fd()).cached_bytes(from, FILE_BYTES as u64).is_ok_and(|cached| cached == 0)
}

fn cached_bytes(bench: &Bench) -> u64 {
    let opened = source(bench);
    CacheProbe::new(opened.as_fd()).cached_bytes(0, opened.metadata().unwrap().len()).unwrap()
}

/// A virtual machine may hand pages back to its host at any moment; a reader that drops them does so every time.
#[track_caller]
fn once_at_least(scenario: impl Fn() -> Result<(), String>) {
    let failures: Vec<String> = (0..TRIES).map_while(|_| scenario().err()).collect();
    assert!(failures.len() < TRIES, "{failures:#?}");
}

/// Writes through the page cache: these tests are about the reader.
fn job(bench: &Bench) -> Job {
    let mut job = bench.job();
    job.carriage.write_route = Some(WriteRoute::Copy);
    job
}

fn copy(job: &Job, lanes: u16, from_bytes: u64) -> (Report, Vec<Event>) {
    let witness = Arc::new(Witness::default());
    let report = run(job, lanes, from_bytes, Arc::clone(&witness) as Arc<dyn Observer>).unwrap();
    (report, witness.events())
}

fn run(job: &Job, lanes: u16, from_bytes: u64, observer: Arc<dyn Observer>) -> Result<Report, Error> {
    let watch = Arc::new(Watch::new(observer));
    let lanes: Vec<_> = (0..lanes).map(|_| Stream::plain_pair().unwrap()).collect();
    let bounds = Bounds { past_cache_from_bytes: from_bytes, ..Bounds::default() };
    let ends = scenarios::here_over(job, &watch, false, lanes, bounds)?;
    Ok(watch.report(&ends, Default::default(), false).unwrap())
}

fn readings(events: &[Event]) -> Vec<&str> {
    fn choice(event: &Event) -> Option<&str> {
        match event {
            Event::Chose { what: Subject::Reading, choice, .. } => Some(choice),
            _ => None,
        }
    }
    events.iter().filter_map(choice).collect()
}

/// Some hosts forbid reading past the page cache.
fn assert_read_past(events: &[Event]) {
    match readings(events)[..] {
        [PAST] => {}
        [THROUGH] if std::env::var_os("CI").is_none() => eprintln!("this host has no rings or no direct reads"),
        ref other => panic!("{other:?}"),
    }
}

fn copy_refused(job: Job, call: Call, refuses: impl Fn(&Stopped) -> Option<i32>) -> Option<(Report, Vec<Event>)> {
    let (sender, receiver) = sync_channel::<std::io::Result<Watcher>>(1);
    let worker = std::thread::spawn(move || {
        sender.send(watch_this_thread(&[call])).unwrap();
        copy(&job, 2, FROM_BYTES)
    });
    let watcher = match receiver.recv().unwrap() {
        Ok(watcher) => watcher,
        Err(error) => {
            unmet(format_args!("this host does not let us watch system calls: {error}"));
            return None;
        }
    };
    let mut refused = 0;
    while !worker.is_finished() {
        if let Some(stopped) = watcher.next(Duration::from_millis(1)).unwrap() {
            let verdict = refuses(&stopped).map_or(Verdict::Proceed, Verdict::Fail);
            refused += u32::from(verdict != Verdict::Proceed);
            watcher.answer(stopped, verdict).unwrap();
        }
    }
    assert!(refused > 0, "nothing was refused");
    Some(worker.join().unwrap())
}

#[test]
fn a_large_file_that_is_not_in_the_page_cache_arrives_and_leaves_nothing_there() {
    let Some(bench) = bench(FILE_BYTES) else { return };
    let (report, events) = copy(&job(&bench), 2, FROM_BYTES);
    let cached = cached_bytes(&bench);
    assert!(cached <= ASKED_BYTES, "{cached} bytes stay in the page cache");
    assert_read_past(&events);
    assert_eq!((report.files_moved, report.failed), (1, 0));
    bench.assert_equal();
}

#[test]
fn a_large_file_in_the_page_cache_is_read_from_there() {
    once_at_least(|| {
        let Some(bench) = bench(FILE_BYTES) else { return Ok(()) };
        files(&bench.from());
        let (_, events) = copy(&job(&bench), 2, FROM_BYTES);
        bench.assert_equal();
        stays_cached(&bench, &events)
    });
}

fn stays_cached(bench: &Bench, events: &[Event]) -> Result<(), String> {
    let (readings, cached) = (readings(events), cached_bytes(bench));
    match readings.is_empty() && cached >= FILE_BYTES as u64 {
        true => Ok(()),
        false => Err(format!("read {readings:?}, {cached} bytes stay in the page cache")),
    }
}

#[test]
fn of_a_file_that_is_half_in_the_page_cache_that_half_stays_there() {
    once_at_least(|| {
        let Some(bench) = bench(FILE_BYTES) else { return Ok(()) };
        files(&bench.from());
        let half = 16 << 20;
        assert!(make_cold(&bench, half));
        let (_, events) = copy(&job(&bench), 3, FROM_BYTES);
        let cached = cached_bytes(&bench);
        assert_read_past(&events);
        bench.assert_equal();
        assert!(cached <= half + ASKED_BYTES, "{cached} bytes stay in the page cache");
        if cached < half { Err(format!("only {cached} bytes stay in the page cache")) } else { Ok(()) }
    });
}

#[test]
fn small_files_and_routes_that_were_asked_for_are_read_as_ever() {
    once_at_least(|| {
        let Some(bench) = bench(FILE_BYTES) else { return Ok(()) };
        let (_, events) = copy(&job(&bench), 2, FILE_BYTES as u64 + 1);
        stays_cached(&bench, &events)?;
        assert!(make_cold(&bench, 0));
        std::fs::remove_dir_all(bench.to()).unwrap();
        let mut job = job(&bench);
        job.carriage.route = Some(haul_pump::SendRoute::Copy);
        let (_, events) = copy(&job, 2, FROM_BYTES);
        stays_cached(&bench, &events)
    });
}

#[test]
fn without_rings_a_large_file_is_dropped_from_the_page_cache_behind_the_reader() {
    const FORBIDDEN: i32 = 1;
    let Some(bench) = bench(FILE_BYTES) else { return };
    let Some((_, events)) = copy_refused(job(&bench), Call::MakeRing, |_| Some(FORBIDDEN)) else { return };
    assert_eq!(readings(&events), [THROUGH]);
    let cached = cached_bytes(&bench);
    assert!(cached <= ASKED_BYTES, "{cached} bytes stay in the page cache");
    bench.assert_equal();
}

#[test]
fn without_direct_reads_a_large_file_is_dropped_from_the_page_cache_behind_the_reader() {
    const INVALID: i32 = 22;
    let Some(bench) = bench(FILE_BYTES) else { return };
    let refuses = |stopped: &Stopped| stopped.opens_past_the_cache().then_some(INVALID);
    let Some((_, events)) = copy_refused(job(&bench), Call::Open, refuses) else { return };
    assert_eq!(readings(&events), [THROUGH]);
    let cached = cached_bytes(&bench);
    assert!(cached <= ASKED_BYTES, "{cached} bytes stay in the page cache");
    bench.assert_equal();
}

#[test]
fn holes_of_a_large_file_are_neither_read_nor_sent() {
    let Some(bench) = bench(FILE_BYTES) else { return };
    let opened = source(&bench);
    for at in (0..FILE_BYTES as u64).step_by(3 << 20) {
        if !file::punch(opened.as_fd(), at, 1 << 20).unwrap() {
            return eprintln!("skipped: the file system of the temporary directory makes no holes");
        }
    }
    assert!(make_cold(&bench, 0));
    let blocks = opened.metadata().unwrap().blocks();
    let (_, events) = copy(&job(&bench), 2, FROM_BYTES);
    assert!(cached_bytes(&bench) <= ASKED_BYTES);
    assert_read_past(&events);
    let written = std::fs::metadata(bench.to().join("large")).unwrap().blocks();
    assert!(written <= blocks + 64, "{written} blocks of {blocks}");
    bench.assert_equal();
}

struct Cutter {
    path: PathBuf,
    to_bytes: u64,
    is_cut: AtomicBool,
    events: Mutex<Vec<Event>>,
}

impl Observer for Cutter {
    fn on_event(&self, event: &Event) {
        let moved = matches!(event, Event::Progress(progress) if progress.bytes_moved > 0);
        if moved && !self.is_cut.swap(true, Ordering::Relaxed) {
            File::options().write(true).open(&self.path).unwrap().set_len(self.to_bytes).unwrap();
        }
        self.events.lock().unwrap().push(event.clone());
    }

    fn interrupted(&self) -> bool {
        false
    }
}

#[test]
fn a_large_file_that_is_cut_while_it_is_read_is_sent_again_as_it_is_then() {
    for inplace in [false, true] {
        let Some(bench) = bench(FILE_BYTES) else { return };
        let mut job = job(&bench);
        job.selection.inplace = inplace;
        job.carriage.rate_bytes_per_s = Some(2 * FILE_BYTES as u64);
        let to_bytes = FILE_BYTES as u64 / 2 + 777;
        let path = bench.from().join("large");
        let cutter = Arc::new(Cutter { path, to_bytes, is_cut: AtomicBool::new(false), events: Mutex::default() });
        let report = run(&job, 4, FROM_BYTES, Arc::clone(&cutter) as Arc<dyn Observer>).unwrap();
        assert!(cutter.is_cut.load(Ordering::Relaxed), "it was copied before it was cut");
        let counts = (report.files_moved, report.failed, report.unverified);
        assert_eq!(counts, (1, 0, 0), "in place: {inplace}: {:?}", report.failures);
        assert_eq!(std::fs::metadata(bench.to().join("large")).unwrap().len(), to_bytes);
        bench.assert_equal();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_large_file_of_any_size_arrives(
        size in 1usize..9_000_000,
        writes in proptest::collection::vec((0u64..9_000_000, 1usize..300_000), 0..6),
        lanes in 1u16..6,
        compress in any::<bool>(),
    ) {
        let Some(bench) = bench(size) else { return Ok(()) };
        let opened = source(&bench);
        if !writes.is_empty() {
            opened.set_len(0).unwrap();
            for (at, len) in &writes {
                opened.write_all_at(&vec![7; *len], *at).unwrap();
            }
        }
        make_cold(&bench, 0);
        let mut job = job(&bench);
        job.carriage.compress = compress;
        let (report, _) = copy(&job, lanes, 1);
        prop_assert_eq!((report.files_moved, report.failed), (1, 0));
        bench.assert_equal();
    }
}
