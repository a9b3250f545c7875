//! Tests sources that change while they are read, with any options.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use haul_job::{Event, Job, Observer, Report, Selection};
use haul_net::Stream;
use haul_sys::intercept::{Call, Stopped, Verdict, under};
use haul_wire::limits::BLOCK_BYTES;
use proptest::prelude::*;

use crate::scenarios::{self, Bench, checkpoints_every, files, run_here};
use haul_channel::reporter::Watch;
use haul_copy::receiver::CHECKPOINT_BYTES;

#[derive(Clone, Copy, Debug)]
pub enum Change {
    Append,
    /// The number is in thousandths of the file's size.
    Cut(u32),
    Replace(u32),
    Delete,
}

#[derive(Default)]
struct Seen(HashMap<PathBuf, HashSet<String>>);

impl Seen {
    fn look(&mut self, bench: &Bench) {
        for (name, content) in files(&bench.from()) {
            self.0.entry(name).or_default().insert(content);
        }
    }
}

/// Files that change twice, are gone, or of which another name was replaced, may fail so.
const EXPECTED: [&str; 4] =
    ["it changed while it was read", "it grew while it was read", "No such file", "or is another file by now"];

pub const SIZES: [usize; 8] = [9_000_001, 0, 10, 5_000, 70_000, 1_300_000, 20_000, 6_000_000];

pub fn name(number: usize) -> String {
    format!("d{}/f{number}", number % 3)
}

pub fn change(bench: &Bench, number: usize, change: Change, serial: u8) {
    let path = bench.from().join(name(number));
    let Ok(size) = std::fs::metadata(&path).map(|found| found.len()) else { return };
    match change {
        Change::Append => File::options().append(true).open(&path).unwrap().write_all(&[serial; 100]).unwrap(),
        Change::Cut(share) => {
            File::options().write(true).open(&path).unwrap().set_len(size * u64::from(share) / 1000).unwrap();
        }
        Change::Replace(size) => {
            let new = bench.root().join("new");
            std::fs::write(&new, vec![serial; size as usize]).unwrap();
            std::fs::rename(new, path).unwrap();
        }
        Change::Delete => std::fs::remove_file(path).unwrap(),
    }
}

pub fn any_change() -> impl Strategy<Value = (usize, Change)> {
    let what = prop_oneof![
        Just(Change::Append),
        (0u32..1000).prop_map(Change::Cut),
        prop_oneof![0u32..10_000, 4_000_000u32..10_000_000].prop_map(Change::Replace),
        Just(Change::Delete),
    ];
    (0usize..SIZES.len(), what)
}

pub fn choose(job: &mut Job, options: u16) {
    let bit = |number: u32| options >> number & 1 == 1;
    let selection = &mut job.selection;
    selection.inplace = bit(0);
    selection.hard_links = bit(1);
    selection.sparse = bit(2);
    selection.checksum = bit(3);
    selection.verify_disk = bit(4);
    selection.delete = bit(5);
    selection.no_resume = bit(6);
    selection.flush = bit(7);
    job.carriage.compress = bit(8);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(12) })]

    #[test]
    fn a_changing_source_never_becomes_a_mixture(
        changes in proptest::collection::vec((any_change(), 0u64..80), 1..8),
        lanes in 1u16..6,
        options in any::<u16>(),
        stands in any::<bool>(),
    ) {
        let bench = Bench::new();
        for (number, size) in SIZES.iter().enumerate() {
            bench.write(&name(number), *size);
        }
        std::fs::hard_link(bench.from().join(name(0)), bench.from().join("d2/z")).unwrap();
        std::fs::hard_link(bench.from().join(name(4)), bench.from().join("d0/a")).unwrap();
        let mut job = bench.job();
        choose(&mut job, options);
        job.carriage.rate_bytes_per_s = Some(60_000_000);
        let seen = Mutex::new(Seen::default());
        seen.lock().unwrap().look(&bench);
        if stands {
            run(&bench, &job, lanes);
            for number in 0..SIZES.len() {
                change(&bench, number, Change::Append, 99);
            }
        }
        seen.lock().unwrap().look(&bench);
        let report = std::thread::scope(|scope| {
            scope.spawn(|| {
                for (serial, ((number, what), pause_ms)) in changes.iter().enumerate() {
                    std::thread::sleep(Duration::from_millis(*pause_ms));
                    change(&bench, *number, *what, serial as u8);
                    seen.lock().unwrap().look(&bench);
                }
            });
            run(&bench, &job, lanes)
        });
        let seen = seen.into_inner().unwrap();
        for (path, why) in &report.failures {
            let is_expected = EXPECTED.iter().any(|part| why.contains(part));
            prop_assert!(is_expected, "{}: {why}", String::from_utf8_lossy(path));
        }
        if !job.selection.inplace {
            for (found, content) in files(&bench.to()) {
                prop_assert!(is_part(&found) || seen.0[&found].contains(&content), "{found:?} is a mixture");
            }
        }
        let again = run(&bench, &job, lanes);
        prop_assert_eq!(again.failed, 0, "{:?}", again.failures);
        let (from, to) = (files(&bench.from()), files(&bench.to()));
        let lacks: Vec<_> = from.iter().filter(|file| !to.contains(file)).collect();
        prop_assert!(lacks.is_empty(), "{lacks:?}");
        if job.selection.delete {
            prop_assert_eq!(from.len(), to.len(), "{:?}", to);
        }
    }
}

#[test]
fn files_that_never_stop_growing_are_copied_as_they_were_listed_when_that_is_asked_for() {
    const FILES: [(&str, usize); 2] = [("log", 5_000), ("recording", 3_000_000)];
    for growing in [false, true] {
        let bench = Arc::new(Bench::new());
        FILES.iter().for_each(|(name, size)| bench.write(name, *size));
        let listed = files(&bench.from());
        let mut job = bench.job();
        job.selection.growing = growing;
        let source = bench.from();
        let grow = move |_, stopped: &Stopped| {
            if stopped.file().starts_with(&source) {
                File::options().append(true).open(stopped.file()).unwrap().write_all(&[7; 100]).unwrap();
            }
            Verdict::Proceed
        };
        let run = {
            let (bench, job) = (Arc::clone(&bench), job.clone());
            move || run(&bench, &job, 2)
        };
        let Some((report, _)) = under(&[Call::Read], grow, run) else { return };
        if growing {
            assert_eq!((report.failed, report.files_moved), (0, 2), "{report:?}");
            assert_eq!(files(&bench.to()), listed);
        } else {
            assert_eq!(report.failed, 2, "{report:?}");
            assert!(
                report.failures.iter().all(|(_, why)| why.contains("--growing copies what was there")),
                "{report:?}"
            );
        }
    }
}

#[test]
fn a_manifest_has_what_is_at_the_target_also_of_a_file_that_changes_after_it_was_found_there() {
    for new_bytes in [5_000, 6_000] {
        let bench = Arc::new(Bench::new());
        bench.write("file", 5_000);
        let source = bench.from().join("file");
        let long_ago = SystemTime::now() - Duration::from_secs(1000);
        File::options().write(true).open(&source).unwrap().set_modified(long_ago).unwrap();
        let job = bench.job();
        run_here(&job, 1, CHECKPOINT_BYTES).unwrap();
        let mut changed = false;
        let change = |_, stopped: &Stopped| {
            if stopped.file() == source && !std::mem::replace(&mut changed, true) {
                std::fs::write(&source, vec![1; new_bytes]).unwrap();
            }
            Verdict::Proceed
        };
        let run = {
            let (bench, job) = (Arc::clone(&bench), job.clone());
            move || run(&bench, &job, 2)
        };
        let Some((report, _)) = under(&[Call::Read], change, run) else { return };
        assert!(changed);
        assert_eq!((report.failed, report.files_moved), (0, 1), "{report:?}");
        bench.assert_equal();
    }
}

#[test]
fn a_manifest_has_no_line_for_another_file_that_stays_at_the_target() {
    let choices: [fn(&mut Selection); 2] =
        [|selection| selection.ignore_existing = true, |selection| selection.update = true];
    for keep in choices {
        let bench = Bench::new();
        bench.write("file", 1000);
        bench.write("other", 1000);
        std::fs::create_dir(bench.to()).unwrap();
        std::fs::write(bench.to().join("other"), "what somebody else wrote there").unwrap();
        let newer = SystemTime::now() + Duration::from_secs(1000);
        File::options().write(true).open(bench.to().join("other")).unwrap().set_modified(newer).unwrap();
        let mut job = bench.job();
        keep(&mut job.selection);
        let report = run(&bench, &job, 2);
        assert_eq!((report.files_moved, report.left_out, report.failed), (1, 1, 0), "{report:?}");
    }
}

#[test]
fn a_file_that_is_read_for_a_manifest_for_longer_than_the_time_limit_is_waited_for() {
    const SIZE: usize = 16 << 20;
    // A machine that stands still for longer is taken for a host that is gone.
    const LIMIT: Duration = Duration::from_secs(5);
    let bench = Arc::new(Bench::new());
    bench.write("large", SIZE);
    let mut job = bench.job();
    job.carriage.timeout = LIMIT;
    run_here(&job, 1, CHECKPOINT_BYTES).unwrap();
    let source = bench.from().join("large");
    let slow = move |_, stopped: &Stopped| {
        if stopped.file() == source {
            // All blocks together take longer than the limit; the target allows a second for each MiB.
            std::thread::sleep(LIMIT * 3 / 2 / (SIZE / BLOCK_BYTES) as u32);
        }
        Verdict::Proceed
    };
    let run = {
        let bench = Arc::clone(&bench);
        move || run(&bench, &job, 1)
    };
    let Some((report, reads)) = under(&[Call::Read], slow, run) else { return };
    assert_eq!((report.failed, report.files_moved, report.files_kept), (0, 0, 1), "{report:?}");
    assert!(reads >= SIZE / BLOCK_BYTES, "{reads}");
}

#[test]
fn many_small_files_that_take_longer_than_the_time_limit_together_are_waited_for() {
    const FILES: u32 = 40;
    const LIMIT: Duration = Duration::from_secs(5);
    let bench = Arc::new(Bench::new());
    (0..FILES).for_each(|number| bench.write(&format!("small{number}"), 100));
    let mut job = bench.job();
    job.carriage.timeout = LIMIT;
    for kept in [0, u64::from(FILES)] {
        let source = bench.from();
        let slow = move |_, stopped: &Stopped| {
            if stopped.file().starts_with(&source) {
                std::thread::sleep(LIMIT * 3 / 2 / FILES);
            }
            Verdict::Proceed
        };
        let run = {
            let (bench, job) = (Arc::clone(&bench), job.clone());
            move || run(&bench, &job, 1)
        };
        let Some((report, reads)) = under(&[Call::Read], slow, run) else { return };
        assert_eq!((report.failed, report.files_kept), (0, kept), "{report:?}");
        assert!(reads >= FILES as usize, "{reads}");
    }
}

fn is_part(path: &Path) -> bool {
    path.file_name().unwrap().as_encoded_bytes().starts_with(b".haul-")
}

#[derive(Default)]
struct Lister(Mutex<HashMap<PathBuf, String>>);

impl Observer for Lister {
    fn on_event(&self, event: &Event) {
        if let Event::Manifest(line) = event {
            let path = PathBuf::from(OsStr::from_bytes(&line.path));
            let twice = self.0.lock().unwrap().insert(path, blake3::Hash::from_bytes(line.blake3).to_string());
            assert_eq!(twice, None, "{:?} is listed twice", line.path);
        }
    }

    fn wants_manifest(&self) -> bool {
        true
    }
}

fn run(bench: &Bench, job: &Job, lanes: u16) -> Report {
    let lister = Arc::<Lister>::default();
    let watch = Arc::new(Watch::new(Arc::clone(&lister) as Arc<dyn Observer>));
    let lanes: Vec<_> = (0..lanes).map(|_| Stream::plain_pair().unwrap()).collect();
    let ends = scenarios::here_over(job, &watch, true, lanes, checkpoints_every(2_000_000)).unwrap();
    let found: HashMap<PathBuf, String> = files(&bench.to()).into_iter().collect();
    for (path, content) in lister.0.lock().unwrap().iter() {
        assert_eq!(Some(content), found.get(path), "{path:?}");
    }
    watch.report(&ends, Default::default(), false).unwrap()
}
