//! Tests extended attributes that change while their file is read, cannot be read, are too many, or are refused by the target.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use haul_job::Report;
use haul_sys::condition::unmet;
use haul_sys::intercept::{Call, Stopped, Verdict, under};
use rustix::fs::XattrFlags;

use crate::bad_disk::EIO;
use crate::scenarios::{Bench, Witness, run_here, run_watched, warnings};
use haul_copy::receiver::CHECKPOINT_BYTES;

const EACCES: i32 = rustix::io::Errno::ACCESS.raw_os_error();
const ENODATA: i32 = rustix::io::Errno::NODATA.raw_os_error();
const ENOTSUP: i32 = rustix::io::Errno::OPNOTSUPP.raw_os_error();

fn set(path: &Path, name: &str, value: &[u8]) -> bool {
    let Err(error) = rustix::fs::setxattr(path, name, value, XattrFlags::empty()) else { return true };
    assert!(std::env::var_os("CI").is_none(), "a file here takes no attributes: {error}");
    eprintln!("skipped: a file here takes no attributes: {error}");
    false
}

fn get(path: &Path, name: &str) -> Vec<u8> {
    let mut value = vec![0; 100];
    let length = rustix::fs::getxattr(path, name, &mut value[..]).unwrap();
    value.truncate(length);
    value
}

fn changed_at(path: &Path) -> (i64, i64) {
    let found = path.metadata().unwrap();
    (found.ctime(), found.ctime_nsec())
}

/// Changes only the attributes of a file while it is read. `verdict` answers the call that lists them again.
fn changed_while_read(verdict: Verdict) -> Option<(Bench, Report)> {
    let bench = Bench::new();
    bench.write("file", 10_000);
    let source = bench.from().join("file");
    if !set(&source, "user.kind", b"older") {
        return None;
    }
    let mut job = bench.job();
    job.selection.xattrs = true;
    let mut changed = false;
    let decide = |_, stopped: &Stopped| {
        if stopped.file() != source {
            return Verdict::Proceed;
        }
        if stopped.call() == Call::ListAttributes {
            return verdict;
        }
        if !std::mem::replace(&mut changed, true) {
            // A file system's clock may stand still for some milliseconds.
            let before = changed_at(&source);
            while changed_at(&source) == before {
                assert!(set(&source, "user.kind", b"newer"));
            }
        }
        Verdict::Proceed
    };
    let run = move || run_here(&job, 1, CHECKPOINT_BYTES).unwrap();
    let (report, _) = under(&[Call::Read, Call::ListAttributes], decide, run)?;
    assert!(changed);
    Some((bench, report))
}

#[test]
fn a_file_that_is_sent_again_has_the_attributes_of_that_moment() {
    let Some((bench, report)) = changed_while_read(Verdict::Proceed) else { return };
    assert_eq!((report.failed, report.files_moved), (0, 1), "{report:?}");
    bench.assert_equal();
    assert_eq!(get(&bench.to().join("file"), "user.kind"), b"newer");
}

#[test]
fn a_file_that_changed_and_whose_attributes_cannot_be_read_again_has_failed() {
    let Some((bench, report)) = changed_while_read(Verdict::Fail(EIO)) else { return };
    assert_eq!((report.failed, report.files_moved), (1, 0), "{report:?}");
    assert!(report.failures[0].1.contains("it changed while it was read"), "{report:?}");
    assert_eq!(std::fs::read_dir(bench.to()).unwrap().count(), 0);
}

fn place_of(stopped: &Stopped) -> PathBuf {
    match &stopped.path()[..] {
        b"" => stopped.file(),
        // The kernel follows this path through /proc.
        path => std::fs::canonicalize(OsStr::from_bytes(path)).unwrap_or_default(),
    }
}

const LISTING: [Call; 2] = [Call::ListAttributes, Call::ListAttributesOfPath];
const GETTING: [Call; 2] = [Call::GetAttribute, Call::GetAttributeOfPath];

/// Copies `d/file` and `d/other` onto older versions with other attributes, while `calls` about `of` fail with `code`.
fn unreadable(of: &str, calls: &[Call], code: i32, follow_links: bool) -> Option<(Bench, Report)> {
    let bench = Bench::new();
    for name in ["d/file", "d/other"] {
        bench.write(name, 1000);
        std::fs::create_dir_all(bench.to().join("d")).unwrap();
        std::fs::write(bench.to().join(name), "older").unwrap();
    }
    for name in ["d", "d/file", "d/other"] {
        let (from, to) = (bench.from().join(name), bench.to().join(name));
        if !set(&from, "user.kind", b"source's") || !set(&to, "user.own", b"target's") {
            return None;
        }
    }
    let mut job = bench.job();
    (job.selection.xattrs, job.selection.follow_links) = (true, follow_links);
    let place = bench.from().join(of);
    let decide = |_, stopped: &Stopped| match place_of(stopped) == place {
        true => Verdict::Fail(code),
        false => Verdict::Proceed,
    };
    let (report, _) = under(calls, decide, move || run_here(&job, 1, CHECKPOINT_BYTES).unwrap())?;
    Some((bench, report))
}

fn has(path: &Path, name: &str) -> bool {
    size_of(path, name).is_some()
}

fn size_of(path: &Path, name: &str) -> Option<usize> {
    rustix::fs::getxattr(path, name, &mut [0_u8; 64 << 10][..]).ok()
}

#[test]
fn a_file_whose_attributes_cannot_be_read_fails_and_what_stands_at_the_target_stays_whole() {
    for (calls, code) in [(LISTING, EIO), (LISTING, EACCES), (GETTING, EIO), (GETTING, EACCES)] {
        for follow_links in [false, true] {
            let Some((bench, report)) = unreadable("d/file", &calls, code, follow_links) else { return };
            let (file, other) = (bench.to().join("d/file"), bench.to().join("d/other"));
            assert_eq!((report.failed, report.vanished, report.files_moved), (1, 0, 1), "{report:?}");
            let [(path, why)] = &report.failures[..] else { panic!("{report:?}") };
            assert!(path == b"d/file" && why.contains("cannot read the attributes of d/file: "), "{why}");
            assert_eq!(std::fs::read(&file).unwrap(), b"older");
            assert!(has(&file, "user.own") && !has(&file, "user.kind"));
            assert!(has(&other, "user.kind") && !has(&other, "user.own"));
            assert!(has(&bench.to().join("d"), "user.kind"));
        }
    }
}

#[test]
fn a_directory_whose_attributes_cannot_be_read_fails_and_keeps_those_that_it_has_at_the_target() {
    for calls in [LISTING, GETTING] {
        let Some((bench, report)) = unreadable("d", &calls, EIO, false) else { return };
        assert_eq!((report.failed, report.vanished, report.files_moved), (1, 0, 2), "{report:?}");
        let [(path, why)] = &report.failures[..] else { panic!("{report:?}") };
        assert!(path == b"d" && why.contains("cannot read the attributes of d: "), "{why}");
        let directory = bench.to().join("d");
        assert!(has(&directory, "user.own") && !has(&directory, "user.kind"));
        let modified = |path: PathBuf| path.metadata().unwrap().modified().unwrap();
        assert_eq!(modified(bench.from().join("d")), modified(directory), "all else is as at the source");
        assert!(has(&bench.to().join("d/file"), "user.kind"));
    }
}

#[test]
fn what_has_more_attributes_than_can_travel_fails_and_what_stands_at_the_target_keeps_its_own() {
    const KIB: usize = 1 << 10;
    for (of, of_60_kib) in [("d/file", 4), ("d/file", 5), ("d", 5)] {
        let bench = Bench::new();
        bench.write("d/file", 1000);
        std::fs::create_dir_all(bench.to().join("d")).unwrap();
        std::fs::write(bench.to().join("d/file"), "older").unwrap();
        let (there, place) = (bench.to().join(of), bench.from().join(of));
        if !set(&there, "user.1", b"target's") {
            return;
        }
        for number in 0..of_60_kib {
            if let Err(error) =
                rustix::fs::setxattr(&place, format!("user.{number}"), &[7; 60 * KIB], XattrFlags::empty())
            {
                return unmet(format_args!("a file here takes no attributes of {of_60_kib} x 60 KiB: {error}"));
            }
        }
        let mut job = bench.job();
        job.selection.xattrs = true;
        let report = run_here(&job, 1, CHECKPOINT_BYTES).unwrap();
        if of_60_kib == 4 {
            assert_eq!((report.failed, &report.failures[..]), (0, &[][..]), "they fit");
            assert!((0..of_60_kib).all(|number| size_of(&there, &format!("user.{number}")) == Some(60 * KIB)));
            bench.assert_equal();
            continue;
        }
        assert_eq!((report.failed, report.files_moved), (1, u64::from(of == "d")), "{report:?}");
        let [(path, why)] = &report.failures[..] else { panic!("{report:?}") };
        assert!(path == of.as_bytes() && why.contains("user.4") && why.contains("256 KiB"), "{why}");
        assert_eq!((get(&there, "user.1"), size_of(&there, "user.0")), (b"target's".to_vec(), None));
        let content = std::fs::read(bench.to().join("d/file")).unwrap();
        assert_eq!(content == b"older", of == "d/file");
    }
}

#[test]
fn an_attribute_that_is_gone_when_it_is_read_is_just_not_there() {
    for of in ["d", "d/file"] {
        let Some((bench, report)) = unreadable(of, &GETTING, ENODATA, false) else { return };
        assert_eq!((report.failed, report.files_moved), (0, 2), "{report:?}");
        let there = bench.to().join(of);
        assert!(!has(&there, "user.kind") && !has(&there, "user.own"));
    }
}

#[test]
fn a_target_that_does_not_hold_attributes_is_told_of_once() {
    for takes_them in [true, false] {
        let bench = Bench::new();
        for name in ["d/one", "d/two", "three"] {
            bench.write(name, 10);
            if !["user.first", "user.second"].iter().all(|attribute| set(&bench.from().join(name), attribute, b"value"))
            {
                return;
            }
        }
        if !set(&bench.from().join("d"), "user.first", b"value") {
            return;
        }
        let mut job = bench.job();
        job.selection.xattrs = true;
        let witness = Arc::<Witness>::default();
        let run = {
            let witness = Arc::clone(&witness);
            move || run_watched(&job, 2, CHECKPOINT_BYTES, &witness).unwrap()
        };
        let decide = move |_, _: &Stopped| if takes_them { Verdict::Proceed } else { Verdict::Fail(ENOTSUP) };
        let Some((report, calls)) = under(&[Call::SetAttribute], decide, run) else { return };
        assert_eq!((report.failed, report.files_moved, calls), (0, 3, 7));
        bench.assert_equal();
        let events = witness.events();
        match (takes_them, &warnings(&events)[..]) {
            (true, []) => {}
            (false, [text]) => assert!(text.contains("user.") && text.contains("does not hold"), "{text}"),
            (_, told) => panic!("{takes_them}: {told:?}"),
        }
    }
}
