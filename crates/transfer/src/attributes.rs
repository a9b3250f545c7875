//! Extended attributes that change while their file is read, or that the target does not take.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use haul_sys::intercept::{Call, Stopped, Verdict};
use rustix::fs::XattrFlags;

use crate::bad_disk::{EIO, path_of, under};
use crate::event::Report;
use crate::receiver::CHECKPOINT_BYTES;
use crate::scenarios::{Bench, Witness, run_here, run_watched, warnings};

const ENOTSUP: i32 = rustix::io::Errno::OPNOTSUPP.raw_os_error();

/// False where a file here takes no attributes.
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

/// The attributes of a file change while it is read, its contents do not; `verdict` is about the call that lists them again. `None` where the
/// host does not let us watch, or a file takes no attributes.
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
        if path_of(stopped) != source {
            return Verdict::Proceed;
        }
        if stopped.call() == Call::ListAttributes {
            return verdict;
        }
        if !std::mem::replace(&mut changed, true) {
            // The clock of a file system may stand still for some milliseconds.
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
