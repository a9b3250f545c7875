//! Tests large files on a disk, which go past the page cache, whatever happens to the disk.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use haul_engine::journal::HEADER_BYTES;
use haul_job::{Event, Fault, Job, Subject};
use haul_store::WriteRoute;
use haul_sys::condition::unmet;
use haul_sys::intercept::{Call, Stopped, Verdict, under};
use haul_sys::{direct, medium};

use crate::bad_disk::{EDQUOT, EIO, ENOSPC};
use crate::scenarios::{Bench, Witness, files, is_part, run_here, run_watched};
use haul_copy::receiver::Bounds;

const LANES: u16 = 3;

const SIZE: usize = (9 << 20) + 12_345;

const BOUNDS: Bounds = Bounds {
    checkpoint_bytes: 2 << 20,
    past_cache_from_bytes: 1,
    search: std::time::Duration::MAX,
    flush_together_from_files: usize::MAX,
    dirty_bytes_max: u64::MAX,
    idle_items: u64::MAX,
    foreign_names: usize::MAX,
};

/// The disk may be too busy for a trial of routes.
pub fn job_by(bench: &Bench, route: WriteRoute) -> Job {
    let mut job = bench.job();
    job.carriage.write_route = Some(route);
    job
}

pub fn disk() -> Option<Bench> {
    let bench = Bench::on_disk();
    let has_direct = direct::is_possible(tempfile::tempfile_in(bench.root()).unwrap().as_fd());
    if !has_direct {
        unmet("the temporary directory is on no disk with direct I/O");
    }
    has_direct.then_some(bench)
}

fn cached_bytes(path: &Path) -> usize {
    let file = File::open(path).unwrap();
    medium::resident_bytes(file.as_fd(), 0, SIZE).unwrap()
}

#[test]
fn a_large_file_arrives_equal_and_leaves_the_page_cache_to_others() {
    let Some(bench) = disk() else { return };
    bench.write("large", SIZE);
    let witness = Arc::new(Witness::default());
    let report = run_watched(&job_by(&bench, WriteRoute::Direct), LANES, BOUNDS, &witness).unwrap();
    assert_eq!(report.failed, 0);
    // Only the end, which is no whole block of a disk, goes through the cache.
    let cached = cached_bytes(&bench.to().join("large"));
    assert!(cached <= 1 << 20, "{cached} bytes of {SIZE}");
    bench.assert_equal();
    let chose =
        |event: &Event| matches!(event, Event::Chose { what: Subject::WriteRoute, choice, .. } if choice == "direct");
    assert_eq!(witness.events().iter().filter(|event| chose(event)).count(), 1, "told once");
}

#[test]
fn through_the_page_cache_when_told_so() {
    let Some(bench) = disk() else { return };
    bench.write("large", SIZE);
    run_here(&job_by(&bench, WriteRoute::Copy), LANES, BOUNDS).unwrap();
    bench.assert_equal();
}

pub fn is_direct(call: &Stopped) -> bool {
    let told = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", call.fd())).unwrap_or_default();
    let flags = told.lines().find_map(|line| line.strip_prefix("flags:")).map(str::trim);
    flags.is_some_and(|flags| u64::from_str_radix(flags, 8).unwrap() & O_DIRECT != 0)
}

const O_DIRECT: u64 = rustix::fs::OFlags::DIRECT.bits() as u64;

#[test]
fn a_disk_that_fills_behind_the_backs_of_the_lanes_ends_the_job_and_nothing_stands_under_the_name() {
    let Some(bench) = disk() else { return };
    bench.write("large", SIZE);
    let job = job_by(&bench, WriteRoute::Direct);
    let decide = |_, call: &Stopped| match call.offset() > 5 << 20 && is_direct(call) {
        true => Verdict::Fail(ENOSPC),
        false => Verdict::Proceed,
    };
    let work = move || run_here(&job, LANES, BOUNDS);
    let Some((result, _)) = under(&[Call::Write], decide, work) else { return };
    assert_eq!(result.unwrap_err().fault, Fault::Space);
    assert!(!bench.to().join("large").exists());
    let report = run_here(&job_by(&bench, WriteRoute::Direct), LANES, BOUNDS).unwrap();
    assert_eq!(report.failed, 0);
    bench.assert_equal();
    assert!(files(&bench.to()).iter().all(|file| !is_part(&file.0)));
}

#[test]
fn a_disk_without_room_for_a_large_file_ends_the_job_before_any_of_it_is_written() {
    for (code, words) in [(ENOSPC, "No space left"), (EDQUOT, "quota")] {
        let Some(bench) = disk() else { return };
        bench.write("large", SIZE);
        let job = job_by(&bench, WriteRoute::Direct);
        let mut written = 0;
        let decide = |_, call: &Stopped| match call.call() {
            Call::Allocate => Verdict::Fail(code),
            _ => {
                written += call.bytes();
                Verdict::Proceed
            }
        };
        let work = move || run_here(&job, LANES, BOUNDS);
        let Some((result, _)) = under(&[Call::Allocate, Call::Write], decide, work) else { return };
        let error = result.unwrap_err();
        assert_eq!((error.fault, written), (Fault::Space, 0), "{error:?}");
        assert!(error.to_string().contains(words), "{error}");
        assert!(!bench.to().join("large").exists());
        let report = run_here(&job_by(&bench, WriteRoute::Direct), LANES, BOUNDS).unwrap();
        assert_eq!(report.failed, 0);
        bench.assert_equal();
        assert!(files(&bench.to()).iter().all(|file| !is_part(&file.0)));
    }
}

#[test]
fn a_file_system_that_refuses_direct_writes_after_all_gets_them_through_the_cache() {
    const EINVAL: i32 = rustix::io::Errno::INVAL.raw_os_error();
    let Some(bench) = disk() else { return };
    bench.write("large", SIZE);
    let job = job_by(&bench, WriteRoute::Direct);
    let refused = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&refused);
    let decide = move |_, call: &Stopped| {
        let refuses = is_direct(call);
        counted.fetch_add(usize::from(refuses), Ordering::Relaxed);
        if refuses { Verdict::Fail(EINVAL) } else { Verdict::Proceed }
    };
    let work = move || run_here(&job, LANES, BOUNDS);
    let Some((result, _)) = under(&[Call::Write], decide, work) else { return };
    assert_eq!(result.unwrap().failed, 0);
    bench.assert_equal();
    // These were on their way when the first was refused.
    assert!((1..=8).contains(&refused.load(Ordering::Relaxed)), "{refused:?}");
}

/// On a busy machine the journal may claim nothing before the file is complete.
const TRIES_MAX: usize = 10;

#[test]
fn an_interrupted_large_file_goes_on_where_its_journal_ends() {
    for _ in 0..TRIES_MAX {
        let Some(bench) = disk() else { return };
        bench.write("large", SIZE);
        let job = job_by(&bench, WriteRoute::Direct);
        // Until the journal claims something, at most an interval comes, and what is under way.
        let mut claimed = false;
        let decide = move |_, call: &Stopped| match claimed {
            true => Verdict::Fail(EIO),
            false => {
                let is_journal = call.file().extension().is_some_and(|extension| extension == "journal");
                claimed = is_journal && call.offset() >= HEADER_BYTES as u64;
                Verdict::Proceed
            }
        };
        let work = move || run_here(&job, 1, BOUNDS);
        let Some((result, _)) = under(&[Call::Write], decide, work) else { return };
        if result.unwrap().failed == 0 {
            continue;
        }
        let report = run_here(&job_by(&bench, WriteRoute::Direct), LANES, BOUNDS).unwrap();
        assert!(report.bytes_kept >= 1 << 20, "{report:?}");
        bench.assert_equal();
        return;
    }
    panic!("the journal vouched for nothing before the file was complete");
}
