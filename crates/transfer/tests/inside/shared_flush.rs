//! Tests many small files on a disk: one flush of the file system for a batch, names only after it, and every answer to that
//! flush.

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use haul_job::{Error, Fault, Job, Report};
use haul_sys::condition::unmet;
use haul_sys::file_system;
use haul_sys::intercept::{Call, Stopped, Verdict, under};

use crate::bad_disk::{EIO, ENOSPC, LANES, goes_on, is_part_of, nothing_is_wrong};
use crate::scenarios::{Bench, files, run_here};
use haul_copy::receiver::Bounds;

const FILES: usize = 120;

const TOGETHER: usize = 2;

fn bench() -> Option<Bench> {
    let bench = Bench::on_disk();
    let probe = tempfile::tempfile_in(bench.root()).unwrap();
    if !file_system::flush_tells_errors() || !file_system::flush_is_whole(probe.as_fd()) {
        unmet("the temporary directory is on no file system that is flushed at once");
        return None;
    }
    for number in 0..FILES {
        bench.write(&format!("d{}/small{number}", number % 2), number * 8192 / FILES);
    }
    Some(bench)
}

fn run(job: Job, lanes: u16, together: usize) -> impl FnOnce() -> Result<Report, Error> + Send + 'static {
    let bounds = Bounds { flush_together_from_files: together, dirty_bytes_max: u64::MAX, ..Bounds::default() };
    move || run_here(&job, lanes, bounds)
}

#[derive(Debug, PartialEq)]
enum Asked {
    Open(PathBuf),
    Change(PathBuf),
    FlushOne(PathBuf),
    FlushAll(PathBuf),
    Rename(PathBuf),
}

fn asked(stopped: &Stopped) -> Asked {
    use std::os::unix::ffi::OsStrExt as _;
    let path = stopped.file();
    match stopped.call() {
        Call::Open => Asked::Open(path.join(std::ffi::OsStr::from_bytes(&stopped.path()))),
        Call::Flush => Asked::FlushOne(path),
        Call::FlushFileSystem => Asked::FlushAll(path),
        Call::Rename => {
            Asked::Rename(path.join(std::ffi::OsStr::from_bytes(&haul_store::part_name(&stopped.new_name()))))
        }
        _ => Asked::Change(path),
    }
}

const CALLS: [Call; 8] = [
    Call::Open,
    Call::Write,
    Call::Truncate,
    Call::SetMode,
    Call::SetTimes,
    Call::Flush,
    Call::FlushFileSystem,
    Call::Rename,
];

fn log_of(
    bench: &Bench,
    fails: impl Fn(&Asked) -> Option<i32> + Send + 'static,
) -> Option<(Result<Report, Error>, Vec<Asked>)> {
    let mut log = Vec::new();
    let decide = |_, stopped: &Stopped| {
        let asked = asked(stopped);
        let verdict = fails(&asked).map_or(Verdict::Proceed, Verdict::Fail);
        log.push(asked);
        verdict
    };
    let (result, _) = under(&CALLS, decide, run(bench.job(), LANES, TOGETHER))?;
    Some((result, log))
}

fn is_part(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "part")
}

#[test]
fn many_small_files_share_a_flush_and_have_their_names_after_it() {
    let Some(bench) = bench() else { return };
    let Some((result, log)) = log_of(&bench, |_| None) else { return };
    assert_eq!(result.unwrap().failed, 0);
    bench.assert_equal();
    let flushes = log.iter().filter(|asked| match asked {
        Asked::FlushOne(path) | Asked::FlushAll(path) => is_part(path),
        _ => false,
    });
    let flushes = flushes.count();
    // A sender without a processor brings one file after the other.
    assert!(flushes < FILES, "{flushes} flushes for {FILES} files");
    let mut named = 0;
    for (at, asked) in log.iter().enumerate() {
        let Asked::Rename(part) = asked else { continue };
        named += 1;
        let before = &log[..at];
        let changed = before.iter().rposition(|asked| *asked == Asked::Change(part.clone()));
        let changed = changed.expect("its mode is set at least");
        let is_flush_for_it = |(at, asked): (usize, &Asked)| match asked {
            Asked::FlushOne(path) => path == part,
            // Its descriptor reports data lost since it was opened, so it was open before the first write to the other.
            Asked::FlushAll(path) => {
                let opened = log[..changed + at].iter().position(|asked| *asked == Asked::Open(path.clone()));
                let begun = log.iter().position(|asked| *asked == Asked::Change(part.clone()));
                opened < begun
            }
            _ => false,
        };
        assert!(before[changed..].iter().enumerate().any(is_flush_for_it), "{}\n{log:#?}", part.display());
    }
    assert_eq!(named, FILES);
}

#[test]
fn after_a_shared_flush_that_failed_each_file_is_flushed_by_itself() {
    for code in [EIO, ENOSPC] {
        let Some(bench) = bench() else { return };
        let fails = move |asked: &Asked| matches!(asked, Asked::FlushAll(_)).then_some(code);
        let Some((result, log)) = log_of(&bench, fails) else { return };
        // Another program's data was lost, or another user's quota is used up.
        assert_eq!(result.unwrap().failed, 0);
        bench.assert_equal();
        assert!(log.iter().any(|asked| matches!(asked, Asked::FlushAll(_))), "it was tried");
        for (at, asked) in log.iter().enumerate() {
            let Asked::Rename(part) = asked else { continue };
            let flushed = log[..at].contains(&Asked::FlushOne(part.clone()));
            assert!(flushed, "{} has its name before it was flushed\n{log:#?}", part.display());
        }
    }
}

#[test]
fn a_file_whose_data_was_lost_in_a_shared_flush_gets_no_name_and_the_others_do() {
    let Some(bench) = bench() else { return };
    let fails = |asked: &Asked| match asked {
        Asked::FlushAll(_) => Some(EIO),
        Asked::FlushOne(path) => is_part_of(path, "small77").then_some(EIO),
        _ => None,
    };
    let Some((result, _)) = log_of(&bench, fails) else { return };
    nothing_is_wrong(&bench, &result, "one lost");
    let report = result.unwrap();
    assert_eq!((report.failed, report.files_moved), (1, FILES as u64 - 1), "{:?}", report.failures);
    assert!(!bench.to().join("d1/small77").exists());
    let report = goes_on(&bench, &bench.job(), "afterwards");
    assert_eq!(report.files_moved, 1);
}

#[test]
fn a_disk_that_is_full_at_the_shared_flush_ends_the_job() {
    let Some(bench) = bench() else { return };
    let fails = |asked: &Asked| matches!(asked, Asked::FlushAll(_) | Asked::FlushOne(_)).then_some(ENOSPC);
    let Some((result, _)) = log_of(&bench, move |asked| fails(asked).filter(|_| is_flush_of_part(asked))) else {
        return;
    };
    nothing_is_wrong(&bench, &result, "full");
    assert_eq!(result.unwrap_err().fault, Fault::Space);
    goes_on(&bench, &bench.job(), "afterwards");
}

fn is_flush_of_part(asked: &Asked) -> bool {
    matches!(asked, Asked::FlushAll(path) | Asked::FlushOne(path) if is_part(path))
}

#[test]
fn files_read_back_from_the_medium_share_a_flush_too() {
    let Some(bench) = bench() else { return };
    let mut job = bench.job();
    job.selection.verify_disk = true;
    let mut shared = 0;
    let decide = |_, _: &Stopped| {
        shared += 1;
        Verdict::Proceed
    };
    let Some((result, _)) = under(&[Call::FlushFileSystem], decide, run(job, LANES, TOGETHER)) else { return };
    assert_eq!(result.unwrap().failed, 0);
    bench.assert_equal();
    assert!(shared > 0 && shared < FILES / 2, "{shared}");
    assert_eq!(files(&bench.to()).len(), files(&bench.from()).len());
}
