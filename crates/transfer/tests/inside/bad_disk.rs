//! Tests whole jobs on disks that fail: at each operation once, from some operation on, only at the flush, only at the close.
//!
//! `haul_sys::intercept` watches system calls, so the code is the one that users run. No final name may show wrong data,
//! success means equal trees, and the same command on a good disk brings the rest.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use haul_engine::journal;
use haul_engine::plan::ChunkLayout;
use haul_job::{Error, Fault, Job, Report};
use haul_store::WriteRoute;
use haul_sys::condition::unmet;
use haul_sys::intercept::{Call, Stopped, Verdict, Watcher, under, watch_this_thread};

use crate::past_cache::{disk, is_direct};
use crate::scenarios::{Bench, files, is_part, run_here};

pub const WRITING: [Call; 11] = [
    Call::Write,
    Call::Flush,
    Call::FlushFileSystem,
    Call::Rename,
    Call::Unlink,
    Call::MakeDir,
    Call::Link,
    Call::Symlink,
    Call::Truncate,
    Call::SetMode,
    Call::SetTimes,
];

pub const LANES: u16 = 2;

pub const CHECKPOINT_BYTES: u64 = 1 << 20;

const LARGE_BYTES: u64 = 5_000_000;

const PATIENCE: Duration = Duration::from_secs(60);

pub const ENOSPC: i32 = rustix::io::Errno::NOSPC.raw_os_error();
/// A few tries for each of 12 entries: 13 calls were counted at most. Endless tries come to thousands.
const TRIED_AT_MOST: usize = 36;

pub const EDQUOT: i32 = rustix::io::Errno::DQUOT.raw_os_error();
pub const EIO: i32 = rustix::io::Errno::IO.raw_os_error();
const EROFS: i32 = rustix::io::Errno::ROFS.raw_os_error();
const ENOLCK: i32 = rustix::io::Errno::NOLCK.raw_os_error();
const ESTALE: i32 = rustix::io::Errno::STALE.raw_os_error();
const EINTR: i32 = rustix::io::Errno::INTR.raw_os_error();

fn varied() -> Bench {
    fill(Bench::new())
}

pub fn fill(bench: Bench) -> Bench {
    bench.write("a-large", LARGE_BYTES as usize);
    for number in 0..6 {
        bench.write(&format!("d{}/small{number}", number % 2), number * 1000);
    }
    std::os::unix::fs::symlink("a-large", bench.from().join("link")).unwrap();
    std::fs::hard_link(bench.from().join("d0/small2"), bench.from().join("second-name")).unwrap();
    bench
}

pub fn job_of(bench: &Bench) -> Job {
    let mut job = bench.job();
    job.selection.hard_links = true;
    job
}

fn run(job: Job) -> impl FnOnce() -> Result<Report, Error> + Send + 'static {
    move || run_here(&job, LANES, CHECKPOINT_BYTES)
}

#[track_caller]
pub fn nothing_is_wrong(bench: &Bench, result: &Result<Report, Error>, what: &str) {
    if bench.to().exists() {
        let right = files(&bench.from());
        let wrong: Vec<PathBuf> = files(&bench.to())
            .into_iter()
            .filter(|file| !is_part(&file.0) && !right.contains(file))
            .map(|(path, _)| path)
            .collect();
        assert!(wrong.is_empty(), "{what}: {wrong:?}");
    }
    if result.as_ref().is_ok_and(|report| report.failed == 0) {
        bench.assert_equal();
    }
}

#[track_caller]
pub fn goes_on(bench: &Bench, job: &Job, what: &str) -> Report {
    let report = run_here(job, LANES, CHECKPOINT_BYTES).unwrap_or_else(|error| panic!("{what}: {error:?}"));
    assert_eq!(report.failed, 0, "{what}: {:?}", report.failures);
    bench.assert_equal();
    report
}

fn at_each_operation(code: i32, lasting: bool, judge: impl Fn(&Result<Report, Error>, &str)) {
    let bench = varied();
    let Some((_, count)) = under(&WRITING, |_, _| Verdict::Proceed, run(job_of(&bench))) else { return };
    assert!(count > 60, "only {count} operations");
    bench.assert_equal();
    for at in 0..count {
        let bench = varied();
        let job = job_of(&bench);
        let mut failed = None;
        let decide = |number: usize, stopped: &Stopped| {
            if number == at || (lasting && number > at) {
                failed.get_or_insert_with(|| (stopped.call(), stopped.file()));
                return Verdict::Fail(code);
            }
            Verdict::Proceed
        };
        let (result, done) = under(&WRITING, decide, run(job.clone())).expect("it was possible before");
        // The order of threads differs, so a run may have fewer operations than the first.
        let Some((call, path)) = failed else { continue };
        let what = format!("{call:?} of {}, operation {at} of {count}, error {code}", path.display());
        if lasting {
            let tried = done - at;
            assert!(tried <= TRIED_AT_MOST, "{what}: {tried} operations on a disk that takes nothing");
        }
        nothing_is_wrong(&bench, &result, &what);
        judge(&result, &what);
        goes_on(&bench, &job, &what);
    }
}

#[test]
fn without_space_from_any_operation_on_the_job_ends_and_goes_on_later() {
    at_each_operation(ENOSPC, true, |result, what| {
        let Some(error) = end_of_a_dead_disk(result, what) else { return };
        assert_eq!(error.fault, Fault::Space, "{what}: {error:?}");
        assert!(error.hint.as_deref().unwrap_or_default().contains("free some space"), "{what}: {error:?}");
    });
}

/// Returns the job's error. `None`: every file had its name before, and only a directory's time or flush failed.
#[track_caller]
fn end_of_a_dead_disk<'a>(result: &'a Result<Report, Error>, what: &str) -> Option<&'a Error> {
    match result {
        Err(error) => Some(error),
        Ok(report) => {
            assert!(report.failed > 0 && report.files_moved == 7, "{what}: {report:?}");
            None
        }
    }
}

#[test]
fn space_that_is_found_missing_only_at_the_flush_or_the_close_ends_the_job() {
    for (name, call) in
        [("a-large", Call::Flush), ("small3", Call::Flush), ("a-large", Call::Close), ("small3", Call::Close)]
    {
        for (code, words) in [(ENOSPC, "No space left"), (EDQUOT, "uota")] {
            let bench = varied();
            let mut failed = false;
            let decide = |_, stopped: &Stopped| match is_part_of(&stopped.file(), name) {
                true => {
                    failed = true;
                    Verdict::Fail(code)
                }
                false => Verdict::Proceed,
            };
            let Some((result, _)) = under(&[call], decide, run(job_of(&bench))) else { return };
            let what = format!("{call:?} of {name}, error {code}");
            assert!(failed, "{what} never came");
            nothing_is_wrong(&bench, &result, &what);
            let error = result.unwrap_err();
            assert_eq!(error.fault, Fault::Space, "{what}: {error:?}");
            assert!(error.to_string().contains(words), "{what}: {error}");
            assert!(!files(&bench.to()).iter().any(|(path, _)| path.ends_with(name)), "{what}: it has its name");
            goes_on(&bench, &job_of(&bench), &what);
        }
    }
}

#[test]
fn a_quota_that_is_used_up_says_so_in_its_own_words() {
    let bench = varied();
    let decide =
        |_, stopped: &Stopped| if stopped.call() == Call::Write { Verdict::Fail(EDQUOT) } else { Verdict::Proceed };
    let Some((result, _)) = under(&WRITING, decide, run(job_of(&bench))) else { return };
    let error = result.unwrap_err();
    assert_eq!(error.fault, Fault::Space);
    assert!(error.to_string().contains("uota"), "{error}");
    goes_on(&bench, &job_of(&bench), "afterwards");
}

#[test]
fn one_failed_operation_fails_one_entry_and_never_none() {
    at_each_operation(EIO, false, |result, what| {
        if what.starts_with("MakeDir") && what.contains(", operation 0 ")
            || what.starts_with("Flush") && what.contains(", operation 1 ")
        {
            return assert_eq!(result.as_ref().unwrap_err().fault, Fault::FileIo, "{what}");
        }
        // The names of the tree's top are flushed last, so this fails the whole job.
        let Ok(report) = result else { return assert!(what.starts_with("Flush"), "{what} ends the job: {result:?}") };
        // A directory fails with its contents, and a first name with its second one.
        assert!((1..=5).contains(&report.failed), "{what}: {:?}", report.failures);
    });
}

#[test]
fn a_target_that_becomes_read_only_ends_the_job() {
    at_each_operation(EROFS, true, |result, what| {
        let Some(error) = end_of_a_dead_disk(result, what) else { return };
        assert_eq!(error.fault, Fault::FileIo, "{what}: {error:?}");
        assert!(error.to_string().contains("Read-only"), "{what}: {error:?}");
    });
}

#[test]
fn short_writes_short_reads_and_interruptions_change_nothing() {
    for (bench, job) in by_each_route() {
        let route = job.carriage.write_route;
        let (mut turn, mut short, mut past_cache) = (0, BTreeMap::new(), 0);
        let decide = |_, stopped: &Stopped| {
            let call = stopped.call();
            let moves = matches!(call, Call::Read | Call::Write) && stopped.bytes() > 1;
            let is_past_cache = call == Call::Write && is_direct(stopped);
            turn += 1;
            let verdict = match turn % 3 {
                // Past the page cache a disk takes whole blocks only, also in a short write.
                0 if is_past_cache => Verdict::Short((stopped.bytes() / 2).next_multiple_of(4096).min(stopped.bytes())),
                0 if moves => Verdict::Short(stopped.bytes() / 2),
                1 if moves && !is_past_cache => Verdict::Short(1),
                2 => Verdict::Fail(EINTR),
                _ => return Verdict::Proceed,
            };
            past_cache += usize::from(is_past_cache);
            *short.entry((call, matches!(verdict, Verdict::Short(_)))).or_insert(0) += 1;
            verdict
        };
        let calls = [Call::Read, Call::Write, Call::Flush, Call::Truncate, Call::Allocate, Call::Open];
        let Some((result, _)) = under(&calls, decide, run(job)) else { return };
        assert_eq!(result.unwrap().failed, 0, "{route:?}");
        bench.assert_equal();
        for met in [(Call::Read, true), (Call::Write, true), (Call::Read, false), (Call::Write, false)] {
            assert!(short.contains_key(&met), "{route:?}: no {met:?} in {short:?}");
        }
        assert_eq!(past_cache > 0, route.is_some(), "{route:?}: {past_cache}");
    }
}

#[test]
fn a_source_that_cannot_be_read_at_some_place_fails_alone_and_is_never_filled_with_zeros() {
    const BAD_FROM: u64 = 1_500_000;
    let bench = varied();
    let source = bench.from().join("a-large");
    let mut failed_at = Vec::new();
    let decide = |_, stopped: &Stopped| {
        if stopped.file() != source || stopped.offset() + stopped.bytes() as u64 <= BAD_FROM {
            return Verdict::Proceed;
        }
        failed_at.push(stopped.offset());
        Verdict::Fail(EIO)
    };
    let Some((result, _)) = under(&[Call::Read], decide, run(job_of(&bench))) else { return };
    let report = result.unwrap();
    let [(path, why)] = &report.failures[..] else { panic!("{:?}", report.failures) };
    assert_eq!(path, b"a-large");
    let at = why.split("cannot read at byte ").nth(1).and_then(|rest| rest.split_once(": Input/output error"));
    let at: u64 = at.expect("the place, and why").0.parse().unwrap();
    assert!(failed_at.contains(&at), "{why}: reads failed at {failed_at:?}");
    assert!(!bench.to().join("a-large").exists());
    assert_eq!(report.files_moved, 6, "the others arrived");
    goes_on(&bench, &job_of(&bench), "afterwards");
}

#[test]
fn a_flush_that_failed_once_is_final_for_its_file() {
    let bench = varied();
    let mut failed = false;
    let decide = |_, stopped: &Stopped| {
        let part = is_part_of(&stopped.file(), "a-large");
        if part && !std::mem::replace(&mut failed, true) { Verdict::Fail(EIO) } else { Verdict::Proceed }
    };
    let Some((result, _)) = under(&[Call::Flush], decide, run(job_of(&bench))) else { return };
    let report = result.unwrap();
    assert!(failed, "it is flushed");
    assert_eq!((report.failed, report.files_moved), (1, 6), "{:?}", report.failures);
    assert!(!bench.to().join("a-large").exists());
    let report = goes_on(&bench, &job_of(&bench), "afterwards");
    assert_eq!((report.files_moved, report.bytes_moved), (1, LARGE_BYTES), "{report:?}");
}

#[test]
fn a_file_system_without_locks_is_written_all_the_same() {
    let bench = varied();
    let (result, asked) = match under(&[Call::Lock], |_, _| Verdict::Fail(ENOLCK), run(job_of(&bench))) {
        Some(done) => done,
        None => return,
    };
    assert!(asked > 0, "locks are asked for");
    assert_eq!(result.unwrap().failed, 0);
    bench.assert_equal();
    let bench = varied();
    let decide = |_, stopped: &Stopped| match stopped.call() {
        Call::Lock => Verdict::Fail(ENOLCK),
        _ if is_part_of(&stopped.file(), "a-large") && stopped.offset() >= 4 << 20 => Verdict::Fail(ENOSPC),
        _ => Verdict::Proceed,
    };
    let Some((result, _)) = under(&[Call::Lock, Call::Write], decide, run(job_of(&bench))) else { return };
    assert!(result.is_err());
    let Some((result, _)) = under(&[Call::Lock], |_, _| Verdict::Fail(ENOLCK), run(job_of(&bench))) else { return };
    let report = result.unwrap();
    assert!(report.failed == 0 && report.bytes_kept > 0, "{report:?}");
    bench.assert_equal();
}

#[test]
fn a_handle_that_went_stale_costs_its_own_entry_at_most() {
    let count = {
        let bench = varied();
        let Some((_, count)) = under(&HANDLES, |_, _| Verdict::Proceed, run(job_of(&bench))) else { return };
        count
    };
    assert!(count > 20, "only {count} operations");
    for at in 0..count {
        let bench = varied();
        let job = job_of(&bench);
        let decide = |number, _: &Stopped| if number == at { Verdict::Fail(ESTALE) } else { Verdict::Proceed };
        let (result, _) = under(&HANDLES, decide, run(job.clone())).expect("it was possible before");
        let what = format!("operation {at} of {count}");
        nothing_is_wrong(&bench, &result, &what);
        if let Ok(report) = &result {
            assert!(report.failed <= 5, "{what}: {:?}", report.failures);
        }
        goes_on(&bench, &job, &what);
    }
}

/// A network file system fails these with `ESTALE` when another host has removed or replaced the file behind a handle.
const HANDLES: [Call; 4] = [Call::Open, Call::Rename, Call::Flush, Call::MakeDir];

#[test]
fn an_error_that_comes_only_with_the_close_is_seen() {
    let bench = varied();
    let mut job = job_of(&bench);
    job.selection.flush = false;
    let decide = |_, stopped: &Stopped| {
        let part = is_part_of(&stopped.file(), "small3");
        if part { Verdict::Fail(EIO) } else { Verdict::Proceed }
    };
    let Some((result, _)) = under(&[Call::Close], decide, run(job)) else { return };
    let report = result.unwrap();
    assert_eq!(report.failed, 1, "{:?}", report.failures);
    assert!(!bench.to().join("d1/small3").exists());
    goes_on(&bench, &job_of(&bench), "afterwards");
}

#[test]
fn a_read_that_hangs_holds_up_its_own_file_only() {
    let bench = varied();
    let (source, target) = (bench.from().join("a-large"), bench.to());
    let (mut held, mut others_arrived) = (false, false);
    let (sender, receiver) = sync_channel::<io::Result<Watcher>>(1);
    let job = job_of(&bench);
    let worker = std::thread::spawn(move || {
        sender.send(watch_this_thread(&[Call::Read])).unwrap();
        run(job)()
    });
    let Ok(watcher) = receiver.recv().unwrap() else { return unmet("this host does not let us watch system calls") };
    let mut hanging = Vec::new();
    let end = Instant::now() + PATIENCE;
    while !worker.is_finished() {
        assert!(Instant::now() < end, "it hangs");
        // Six small files and the symbolic link have their names; the hard link waits for earlier entries.
        let all_others = || target.exists() && files(&target).iter().filter(|(path, _)| !is_part(path)).count() == 7;
        if !hanging.is_empty() && all_others() {
            for stopped in hanging.drain(..) {
                watcher.answer(stopped, Verdict::Proceed).unwrap();
            }
            others_arrived = true;
        }
        let Some(stopped) = watcher.next(Duration::from_millis(1)).unwrap() else { continue };
        if stopped.file() == source && !held && stopped.offset() == 0 {
            held = true;
            hanging.push(stopped);
            continue;
        }
        watcher.answer(stopped, Verdict::Proceed).unwrap();
    }
    assert!(others_arrived, "nothing was held");
    assert_eq!(worker.join().unwrap().unwrap().failed, 0);
    bench.assert_equal();
}

#[test]
fn of_two_names_that_are_one_at_the_target_the_first_stays_and_the_second_fails() {
    let bench = Bench::new();
    bench.write("README", 1000);
    bench.write("readme", 2000);
    let to = bench.to();
    let mut first = None;
    let decide = |_, stopped: &Stopped| {
        let name = String::from_utf8(stopped.new_name()).unwrap();
        match &first {
            None => first = Some(name),
            // Such a file system shows the first file under the second name. The first rename went on a moment ago.
            Some(first) if *first != name => {
                let until = Instant::now() + Duration::from_secs(20);
                while std::fs::rename(to.join(first), to.join(&name)).is_err() && Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            Some(_) => {}
        }
        Verdict::Proceed
    };
    let Some((result, _)) = under(&[Call::Rename], decide, run(bench.job())) else { return };
    let report = result.unwrap();
    let first = first.unwrap();
    let second = if first == "README" { "readme" } else { "README" };
    let [(path, why)] = &report.failures[..] else { panic!("{:?}", report.failures) };
    assert_eq!((path.as_slice(), report.failed, report.files_moved), (second.as_bytes(), 1, 1));
    assert!(why.contains("takes both for one"), "{why}");
    let (kept, sent) = (std::fs::read(bench.to().join(second)), std::fs::read(bench.from().join(first)));
    assert_eq!(kept.unwrap(), sent.unwrap());
}

#[derive(Debug, PartialEq)]
enum Asked {
    Write(PathBuf, u64, u64),
    Flush(PathBuf),
    Rename(PathBuf, PathBuf),
    Claim(PathBuf, Vec<(u64, u64)>),
}

fn orders_of_a_job() -> Vec<Vec<Asked>> {
    by_each_route().filter_map(|(bench, job)| order_of_a_job(&bench, job)).collect()
}

/// Writes through the page cache, and past it if there is a disk.
fn by_each_route() -> impl Iterator<Item = (Bench, Job)> {
    let cached = varied();
    let job = job_of(&cached);
    let past_cache = disk().map(|bench| {
        let bench = fill(bench);
        let mut job = job_of(&bench);
        job.carriage.write_route = Some(WriteRoute::Direct);
        (bench, job)
    });
    std::iter::once((cached, job)).chain(past_cache)
}

fn order_of_a_job(bench: &Bench, job: Job) -> Option<Vec<Asked>> {
    use std::os::unix::ffi::OsStrExt;
    let goes_past_cache = job.carriage.write_route == Some(WriteRoute::Direct);
    let mut past_cache_bytes = 0;
    let mut log = Vec::new();
    let decide = |_, stopped: &Stopped| {
        let path = stopped.file();
        match stopped.call() {
            Call::Write => {
                past_cache_bytes += if is_direct(stopped) { stopped.bytes() } else { 0 };
                log.push(Asked::Write(path, stopped.offset(), stopped.bytes() as u64));
                return Verdict::Short(stopped.bytes());
            }
            Call::Truncate => log.push(Asked::Write(path, 0, 0)),
            Call::Flush => {
                log.extend(claim_of(&path));
                log.push(Asked::Flush(path));
            }
            Call::Rename => {
                let name = stopped.new_name();
                let part = path.join(std::ffi::OsStr::from_bytes(&haul_store::part_name(&name)));
                log.push(Asked::Rename(part, path.join(std::ffi::OsStr::from_bytes(&name))));
            }
            _ => {}
        }
        Verdict::Proceed
    };
    let calls = [Call::Write, Call::Truncate, Call::Flush, Call::Rename];
    let (result, _) = under(&calls, decide, run(job))?;
    assert_eq!(result.unwrap().failed, 0);
    bench.assert_equal();
    assert_eq!(past_cache_bytes > 4_900_000, goes_past_cache, "{past_cache_bytes} bytes went past the page cache");
    Some(log)
}

fn claim_of(path: &Path) -> Option<Asked> {
    let part = path.to_str()?.strip_suffix(".journal").map(|stem| PathBuf::from(format!("{stem}.part")))?;
    let (header, records) = journal::decode(&std::fs::read(path).unwrap())?;
    let layout = ChunkLayout::of(header.identity.size);
    Some(Asked::Claim(part, records.into_iter().filter_map(|(chunk, _)| layout.range(chunk)).collect()))
}

#[test]
fn a_journal_claims_only_what_was_flushed_before() {
    for log in orders_of_a_job() {
        check_claims(&log);
    }
}

#[track_caller]
fn check_claims(log: &[Asked]) {
    let mut claims = 0;
    for (at, asked) in log.iter().enumerate() {
        let Asked::Claim(part, ranges) = asked else { continue };
        let journal = part.with_extension("journal");
        let written = log[..at].iter().rposition(|asked| matches!(asked, Asked::Write(path, ..) if *path == journal));
        let before = &log[..written.expect("it was written")];
        let flushed = before.iter().rposition(|asked| *asked == Asked::Flush(part.clone()));
        let safe = &before[..flushed.expect("its part was flushed before")];
        for (start, length) in ranges {
            let within = |offset: &u64| (*start..start + length).contains(offset);
            let bytes: u64 = safe
                .iter()
                .filter_map(|asked| match asked {
                    Asked::Write(path, offset, bytes) if path == part && within(offset) => Some(*bytes),
                    _ => None,
                })
                .sum();
            assert_eq!(bytes, *length, "claimed at {start}, and not flushed\n{log:#?}");
            claims += 1;
        }
    }
    assert!(claims > 0, "{log:#?}");
}

#[test]
fn data_is_flushed_before_it_has_a_name_and_names_before_the_job_ends() {
    for log in orders_of_a_job() {
        check_names(&log);
    }
}

#[track_caller]
fn check_names(log: &[Asked]) {
    let mut renamed = 0;
    for (at, asked) in log.iter().enumerate() {
        let Asked::Rename(part, name) = asked else { continue };
        renamed += 1;
        let is_write = |asked: &Asked| matches!(asked, Asked::Write(path, ..) if path == part);
        let last_write = log[..at].iter().rposition(is_write).unwrap_or(0);
        let flushed = log[last_write..at].contains(&Asked::Flush(part.clone()));
        assert!(flushed, "{} has its name before its data is flushed\n{log:#?}", name.display());
        let directory = name.parent().unwrap().to_path_buf();
        assert!(log[at..].contains(&Asked::Flush(directory)), "the name {} is never flushed\n{log:#?}", name.display());
    }
    assert_eq!(renamed, 7, "{log:#?}");
}

#[test]
fn names_in_a_directory_that_the_job_only_writes_into_are_flushed_or_the_job_has_failed() {
    let bench = varied();
    std::fs::create_dir(bench.to()).unwrap();
    let mut job = job_of(&bench);
    job.sources[0].path = bench.from().join("d1/small3").into_os_string().into_encoded_bytes();
    let to = bench.to();
    let decide = |_, stopped: &Stopped| if stopped.file() == to { Verdict::Fail(EIO) } else { Verdict::Proceed };
    let Some((result, _)) = under(&[Call::Flush], decide, run(job.clone())) else { return };
    let error = result.unwrap_err();
    assert_eq!(error.fault, Fault::FileIo, "{error:?}");
    assert_eq!(run(job)().unwrap().failed, 0);
}

#[test]
fn what_an_earlier_run_named_is_flushed_before_the_next_one_ends() {
    let bench = varied();
    assert_eq!(run(job_of(&bench))().unwrap().failed, 0);
    // The run counts as dead before it flushed the directories.
    let mut flushed = Vec::new();
    let note = |_, stopped: &Stopped| {
        flushed.push(stopped.file());
        Verdict::Proceed
    };
    let Some((result, _)) = under(&[Call::Flush], note, run(job_of(&bench))) else { return };
    assert_eq!(result.unwrap().files_moved, 0, "all is there");
    for directory in ["", "d0", "d1"] {
        assert!(flushed.iter().any(|path| *path == bench.to().join(directory)), "{directory:?}: {flushed:?}");
    }
}

pub fn is_part_of(path: &Path, name: &str) -> bool {
    use std::os::unix::ffi::OsStrExt;
    path.file_name().is_some_and(|found| found.as_bytes() == haul_store::part_name(name.as_bytes()))
}
