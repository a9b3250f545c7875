//! Jobs with a great many of something.

use crate::receiver::CHECKPOINT_BYTES;
use crate::scenarios::{Bench, run_here};

/// As many as a file system gives, far more than most have.
#[test]
fn a_file_with_hundreds_of_attributes_has_all_of_them_at_the_target() {
    const MANY: usize = 1000;
    let bench = Bench::new();
    bench.write("many", 10);
    bench.write("other", 10);
    let set = |number: usize| {
        let name = format!("user.{number}");
        rustix::fs::setxattr(bench.from().join("many"), name, b"", rustix::fs::XattrFlags::empty())
    };
    if let Err(error) = (0..MANY).try_for_each(set) {
        assert!(std::env::var_os("CI").is_none(), "a file here does not take {MANY} attributes: {error}");
        eprintln!("skipped: a file here does not take {MANY} attributes: {error}");
        return;
    }
    let mut job = bench.job();
    job.selection.xattrs = true;
    let report = run_here(&job, 2, CHECKPOINT_BYTES).unwrap();
    assert_eq!((report.failed, report.files_moved), (0, 2));
    let (many, mut names) = (bench.to().join("many"), vec![0; 64 << 10]);
    let bytes = rustix::fs::listxattr(&many, &mut names).unwrap();
    assert_eq!(names[..bytes].iter().filter(|byte| **byte == 0).count(), MANY);
}
