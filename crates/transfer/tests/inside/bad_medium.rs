//! Tests whole jobs with `--verify disk` on media that do not give back what was written: bytes change between the flush and
//! the reading back.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use haul_job::{Event, Job, Report, Subject};
use haul_sys::condition::unmet;
use haul_sys::intercept::{Call, Stopped, Verdict, under};

use crate::bad_disk::{CHECKPOINT_BYTES, EIO, ENOSPC, LANES, fill, goes_on, is_part_of, job_of, nothing_is_wrong};
use crate::scenarios::{Bench, Witness, run_here, run_watched};

const MIB: u64 = 1 << 20;
const LARGE_BYTES: u64 = 5_000_000;
const ALL_BYTES: u64 = LARGE_BYTES + 15_000;
const EINVAL: i32 = rustix::io::Errno::INVAL.raw_os_error();

fn verifying(bench: &Bench) -> Job {
    let mut job = job_of(bench);
    job.selection.verify_disk = true;
    job
}

fn rot(file: &Path, at: u64) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(file).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x40], at).unwrap();
    file.sync_all().unwrap();
}

fn run(job: Job, mut decide: impl FnMut(&Stopped, &Path) -> Verdict) -> Option<(Report, Vec<Event>)> {
    let witness = Arc::new(Witness::default());
    let watched = Arc::clone(&witness);
    let of_parts = |_, stopped: &Stopped| {
        let path = stopped.file();
        let is_part = path.file_name().is_some_and(|name| name.as_encoded_bytes().ends_with(b".part"));
        if is_part || stopped.call() != Call::Read { decide(stopped, &path) } else { Verdict::Proceed }
    };
    let work = move || run_watched(&job, LANES, CHECKPOINT_BYTES, &watched);
    let (result, _) = under(&[Call::Read, Call::Open, Call::Rename], of_parts, work)?;
    Some((result.unwrap(), witness.events()))
}

fn reads(stopped: &Stopped, path: &Path, name: &str, offset: u64) -> bool {
    stopped.call() == Call::Read && is_part_of(path, name) && stopped.offset() == offset
}

#[test]
fn a_byte_that_changes_on_the_medium_is_found_and_only_its_chunk_comes_again() {
    let bench = fill(Bench::on_disk());
    let mut faults = vec![("a-large", 2 * MIB, Verdict::Proceed), ("small3", 0, Verdict::Proceed)];
    faults.push(("a-large", 4 * MIB, Verdict::Fail(EIO)));
    let decide = |stopped: &Stopped, path: &Path| {
        let now = faults.iter().position(|(name, offset, _)| reads(stopped, path, name, *offset));
        let Some((_, offset, verdict)) = now.map(|at| faults.remove(at)) else { return Verdict::Proceed };
        if verdict == Verdict::Proceed {
            rot(path, offset + 100);
        }
        verdict
    };
    let Some((report, _)) = run(verifying(&bench), decide) else { return };
    assert!(faults.is_empty(), "{faults:?}");
    assert_eq!((report.failed, report.chunks_repaired), (0, 3), "{:?}", report.failures);
    bench.assert_equal();
    let again = MIB + 3000 + (LARGE_BYTES - 4 * MIB);
    assert_eq!((report.bytes_moved, report.bytes_again), (ALL_BYTES, again));
    // The unreadable chunk is not counted.
    let unread = LARGE_BYTES - 4 * MIB;
    assert_eq!(report.bytes_reread, ALL_BYTES + again - unread);
}

#[test]
fn without_a_look_at_the_medium_the_same_byte_would_stay_wrong() {
    let bench = fill(Bench::on_disk());
    let decide = |stopped: &Stopped, path: &Path| {
        if stopped.call() == Call::Rename && stopped.new_name() == b"a-large" {
            let part = path.join(std::str::from_utf8(&haul_store::part_name(b"a-large")).unwrap());
            rot(&part, 100);
        }
        Verdict::Proceed
    };
    let Some((report, _)) = run(job_of(&bench), decide) else { return };
    assert_eq!((report.failed, report.bytes_reread), (0, 0));
    let (from, to) = (std::fs::read(bench.from().join("a-large")), std::fs::read(bench.to().join("a-large")));
    assert!(from.unwrap() != to.unwrap(), "the fault does what it should");
}

#[test]
fn a_medium_that_never_gives_back_what_was_written_fails_the_file_and_gives_it_no_name() {
    let bench = fill(Bench::on_disk());
    let job = verifying(&bench);
    let decide = |stopped: &Stopped, path: &Path| {
        if reads(stopped, path, "a-large", 2 * MIB) || reads(stopped, path, "small3", 0) {
            rot(path, stopped.offset() + 100);
        }
        Verdict::Proceed
    };
    let Some((report, _)) = run(job.clone(), decide) else { return };
    assert_eq!((report.failed, report.unverified, report.files_moved), (2, 2, 5), "{:?}", report.failures);
    assert!(report.failures.iter().all(|(_, why)| why.contains("does not give back")), "{:?}", report.failures);
    assert_eq!(report.chunks_repaired, 4, "two more tries for each");
    assert!(!bench.to().join("a-large").exists() && !bench.to().join("d1/small3").exists());
    nothing_is_wrong(&bench, &Ok(report), "a bad medium");
    goes_on(&bench, &job, "on a good medium");
}

#[test]
fn what_an_earlier_run_left_is_read_back_too() {
    let bench = fill(Bench::on_disk());
    let end = 4 * MIB;
    let decide = move |_, stopped: &Stopped| {
        let full = is_part_of(&stopped.file(), "a-large") && stopped.offset() >= end;
        if full { Verdict::Fail(ENOSPC) } else { Verdict::Proceed }
    };
    let job = job_of(&bench);
    let Some((result, _)) = under(&[Call::Write], decide, move || run_here(&job, 1, CHECKPOINT_BYTES)) else { return };
    assert!(result.is_err(), "the disk is full");
    let name = haul_store::part_name(b"a-large");
    rot(&bench.to().join(std::str::from_utf8(&name).unwrap()), 100);
    let report = run_here(&verifying(&bench), LANES, CHECKPOINT_BYTES).unwrap();
    assert_eq!((report.failed, report.chunks_repaired), (0, 1), "{:?}", report.failures);
    assert!(report.bytes_kept >= MIB, "it went on: {} bytes kept", report.bytes_kept);
    assert_eq!(report.bytes_read_again, 3 * MIB, "all that was left but the chunk that was wrong");
    bench.assert_equal();
}

#[test]
fn a_file_system_without_direct_reads_is_read_after_its_cache_was_emptied() {
    for refused_at in [Call::Open, Call::Read] {
        let bench = fill(Bench::on_disk());
        let (mut rotten, mut refused) = (false, false);
        let decide = |stopped: &Stopped, path: &Path| {
            let opens = refused_at == Call::Open && stopped.opens_past_the_cache();
            if opens || (refused_at == Call::Read && stopped.call() == Call::Read && is_direct(stopped)) {
                refused = true;
                return Verdict::Fail(EINVAL);
            }
            if reads(stopped, path, "a-large", 2 * MIB) && !std::mem::replace(&mut rotten, true) {
                rot(path, 2 * MIB + 100);
            }
            Verdict::Proceed
        };
        let Some((report, events)) = run(verifying(&bench), decide) else { return };
        if !refused {
            return unmet("the temporary directory lies in memory, or has no direct reads");
        }
        assert_eq!((report.failed, report.chunks_repaired), (0, 1), "{refused_at:?}: {:?}", report.failures);
        bench.assert_equal();
        let chosen = |event: &Event| matches!(event, Event::Chose { what: Subject::Verification, choice, .. } if choice.contains("emptied"));
        assert!(events.iter().any(chosen), "{events:?}");
    }
}

fn is_direct(stopped: &Stopped) -> bool {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", stopped.fd())).unwrap_or_default();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap_or("0");
    let direct = i64::from(rustix::fs::OFlags::DIRECT.bits());
    i64::from_str_radix(flags.trim(), 8).unwrap() & direct != 0
}

#[test]
fn a_target_in_memory_has_no_medium_and_that_is_said_once() {
    let bench = fill(Bench::new());
    if !bench.root().starts_with("/dev/shm") {
        return unmet("no /dev/shm");
    }
    let witness = Arc::new(Witness::default());
    let report = run_watched(&verifying(&bench), LANES, CHECKPOINT_BYTES, &witness).unwrap();
    assert_eq!((report.failed, report.bytes_reread), (0, ALL_BYTES));
    let warned = |event: &&Event| matches!(event, Event::Warning { text } if text.contains("no medium"));
    assert_eq!(witness.events().iter().filter(warned).count(), 1, "{:?}", witness.events());
}

#[test]
fn no_file_has_its_name_before_all_of_it_was_read_back() {
    let bench = fill(Bench::on_disk());
    let mut read: BTreeMap<PathBuf, u64> = BTreeMap::new();
    let mut early = Vec::new();
    let mut named = 0;
    let decide = |stopped: &Stopped, path: &Path| {
        match stopped.call() {
            Call::Read => *read.entry(path.to_owned()).or_default() += stopped.bytes() as u64,
            Call::Rename => {
                let name = stopped.new_name();
                let part = path.join(std::str::from_utf8(&haul_store::part_name(&name)).unwrap());
                let bytes = std::fs::metadata(&part).unwrap().len();
                named += 1;
                if read.get(&part).copied().unwrap_or(0) < bytes {
                    early.push(name);
                }
            }
            _ => {}
        }
        Verdict::Proceed
    };
    let Some((report, _)) = run(verifying(&bench), decide) else { return };
    assert_eq!((report.failed, report.bytes_reread), (0, ALL_BYTES));
    assert!(early.is_empty() && named == 7, "{named} names, too early: {early:?}");
}
