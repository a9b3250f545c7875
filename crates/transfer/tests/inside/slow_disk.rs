//! Tests whole jobs on a disk whose flush or write is slow, or never ends: waiting data is bounded, other files go on, and a
//! warning names it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use haul_job::{Error, Event, Fault, Job, Report};
use haul_sys::condition::unmet;
use haul_sys::intercept::{Call, Stopped, Verdict, Watcher, watch_this_thread};
use haul_wire::limits::MIN_CHUNK_BYTES;

use crate::scenarios::{Bench, Witness, run_watched};

const LANES: u16 = 2;

const CHECKPOINT_BYTES: u64 = 4 << 20;

/// Many times the bound of waiting data.
const FILE_BYTES: usize = 40_000_000;

const STILL: Duration = Duration::from_millis(500);

const PATIENCE: Duration = Duration::from_secs(60);

struct Run {
    watcher: Watcher,
    worker: std::thread::JoinHandle<Result<Report, Error>>,
}

impl Run {
    fn start(job: Job, lanes: u16, checkpoint_bytes: u64, witness: &Arc<Witness>) -> Option<Self> {
        let witness = Arc::clone(witness);
        let (sender, receiver) = sync_channel::<io::Result<Watcher>>(1);
        let worker = std::thread::spawn(move || {
            sender.send(watch_this_thread(&[Call::Write, Call::Flush])).unwrap();
            run_watched(&job, lanes, checkpoint_bytes, &witness)
        });
        match receiver.recv().unwrap() {
            Ok(watcher) => Some(Self { watcher, worker }),
            Err(error) => {
                unmet(format_args!("this host does not let us watch system calls: {error}"));
                None
            }
        }
    }

    fn until_flush(&self) -> (Stopped, u64) {
        let mut written = 0;
        loop {
            let stopped = self.next().expect("it comes to a checkpoint");
            match stopped.call() {
                Call::Flush if is_part(&stopped) => return (stopped, written),
                _ => written += self.proceed(stopped),
            }
        }
    }

    fn until_still(&self) -> u64 {
        let end = Instant::now() + PATIENCE;
        let mut written = 0;
        while let Some(stopped) = self.watcher.next(STILL).unwrap() {
            assert!(Instant::now() < end, "it writes without end");
            written += self.proceed(stopped);
        }
        written
    }

    fn until_end(self) -> (Watcher, Result<Report, Error>) {
        while !self.worker.is_finished() {
            if let Some(stopped) = self.watcher.next(Duration::from_millis(1)).unwrap() {
                self.proceed(stopped);
            }
        }
        (self.watcher, self.worker.join().unwrap())
    }

    fn next(&self) -> Option<Stopped> {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end && !self.worker.is_finished() {
            if let Some(stopped) = self.watcher.next(STILL).unwrap() {
                return Some(stopped);
            }
        }
        None
    }

    fn proceed(&self, stopped: Stopped) -> u64 {
        let bytes = if stopped.call() == Call::Write && is_part(&stopped) { stopped.bytes() as u64 } else { 0 };
        self.watcher.answer(stopped, Verdict::Proceed).unwrap();
        bytes
    }
}

fn is_part(stopped: &Stopped) -> bool {
    stopped.file().extension().is_some_and(|extension| extension == "part")
}

fn is_named(witness: &Witness) -> bool {
    let names = |event: &Event| matches!(event, Event::Warning { text } if text.contains("the storage of the target has not answered"));
    witness.events().iter().any(names)
}

fn bench() -> Bench {
    let bench = Bench::new();
    bench.write("large", FILE_BYTES);
    bench
}

#[test]
fn lanes_wait_while_a_flush_holds_up_a_whole_interval() {
    let bench = bench();
    let Some(run) = Run::start(bench.job(), LANES, CHECKPOINT_BYTES, &Arc::default()) else { return };
    let (flush, before) = run.until_flush();
    let behind = run.until_still();
    // A chunk may be under way on each lane when the interval is full.
    let most = CHECKPOINT_BYTES + u64::from(LANES) * MIN_CHUNK_BYTES;
    assert!(
        before + behind <= most,
        "{} bytes are at risk while a flush is waited for, more than {most}",
        before + behind
    );
    assert!(before + behind >= CHECKPOINT_BYTES, "lanes wait for a flush that has only begun");
    run.watcher.answer(flush, Verdict::Proceed).unwrap();
    let (_watcher, result) = run.until_end();
    assert_eq!(result.unwrap().failed, 0);
    bench.assert_equal();
}

#[test]
fn a_flush_that_never_comes_back_is_named_and_ends_the_job() {
    let bench = bench();
    let mut job = bench.job();
    job.carriage.timeout = Duration::from_secs(1);
    let witness = Arc::default();
    let Some(run) = Run::start(job, LANES, CHECKPOINT_BYTES, &witness) else { return };
    let (flush, _) = run.until_flush();
    let (watcher, result) = run.until_end();
    // Either side may give up first. Only the target knows the reason, and has reported it by then.
    let error = result.unwrap_err();
    assert!(matches!(error.fault, Fault::Timeout | Fault::Storage), "{error:?}");
    assert!(is_named(&witness), "{:?}", witness.events());
    watcher.answer(flush, Verdict::Proceed).unwrap();
    let standing: Vec<PathBuf> = std::fs::read_dir(bench.to()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!standing.contains(&bench.to().join("large")), "{standing:?}");
}

#[test]
fn a_flush_that_comes_back_after_the_time_limit_is_waited_for_as_long_as_a_slow_disk_takes_for_an_interval() {
    // A disk of 1 MiB/s may take as long: 17 s may pass.
    const INTERVAL_BYTES: u64 = 16 << 20;
    const LIMIT: Duration = Duration::from_secs(1);
    let bench = bench();
    let mut job = bench.job();
    job.carriage.timeout = LIMIT;
    let witness = Arc::default();
    let Some(run) = Run::start(job, LANES, INTERVAL_BYTES, &witness) else { return };
    let (flush, _) = run.until_flush();
    run.until_still();
    let still = Instant::now();
    while still.elapsed() < LIMIT * 5 / 2 {
        assert!(!run.worker.is_finished(), "it gave up");
        if let Some(stopped) = run.watcher.next(Duration::from_millis(20)).unwrap() {
            run.proceed(stopped);
        }
    }
    assert!(is_named(&witness), "{:?}", witness.events());
    run.watcher.answer(flush, Verdict::Proceed).unwrap();
    let (_watcher, result) = run.until_end();
    assert_eq!(result.unwrap().failed, 0);
    bench.assert_equal();
}

/// Returns how many small files of this directory have their names while a write of a large file hangs.
fn named_while_a_write_hangs(directory: &str, small_files: usize, lanes: u16) -> Option<usize> {
    let bench = Bench::new();
    (0..small_files).for_each(|number| bench.write(&format!("{directory}/{number}"), 20_000));
    bench.write("large", 5_000_000);
    let run = Run::start(bench.job(), lanes, 2 * FILE_BYTES as u64, &Arc::default())?;
    let hung = loop {
        let stopped = run.next().expect("it writes the large file");
        if stopped.call() == Call::Write && is_part(&stopped) && stopped.file().parent() == Some(&bench.to()) {
            break stopped;
        }
        run.proceed(stopped);
    };
    run.until_still();
    let is_named = |number: &usize| bench.to().join(directory).join(number.to_string()).exists();
    let named = (0..small_files).filter(is_named).count();
    run.watcher.answer(hung, Verdict::Proceed).unwrap();
    let (_watcher, result) = run.until_end();
    assert_eq!(result.unwrap().failed, 0);
    bench.assert_equal();
    Some(named)
}

#[test]
fn small_files_that_came_before_get_their_names_while_a_write_of_a_large_one_hangs() {
    let Some(named) = named_while_a_write_hangs("before", 6, 1) else { return };
    assert_eq!(named, 6);
}

#[test]
fn others_go_on_while_a_write_hangs() {
    const FILES: usize = 1000;
    let Some(named) = named_while_a_write_hangs("with", FILES, LANES) else { return };
    // Units behind the chunk on its lane wait with it: as much as its connection holds, a few MB.
    assert!(named >= FILES / 2, "{named} of {FILES}");
}
