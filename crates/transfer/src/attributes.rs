//! Extended attributes that the target does not take, or that change while their file is read.

use std::path::Path;
use std::sync::Arc;

use haul_sys::intercept::{Call, Stopped, Verdict};
use rustix::fs::XattrFlags;

use crate::bad_disk::under;
use crate::receiver::CHECKPOINT_BYTES;
use crate::scenarios::{Bench, Witness, run_watched, warnings};

const ENOTSUP: i32 = rustix::io::Errno::OPNOTSUPP.raw_os_error();

/// False where a file here takes no attributes.
fn set(path: &Path, name: &str, value: &[u8]) -> bool {
    let Err(error) = rustix::fs::setxattr(path, name, value, XattrFlags::empty()) else { return true };
    assert!(std::env::var_os("CI").is_none(), "a file here takes no attributes: {error}");
    eprintln!("skipped: a file here takes no attributes: {error}");
    false
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
