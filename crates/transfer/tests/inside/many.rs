//! Tests many attributes of a file, and many names.

use haul_sys::condition::unmet;

use crate::scenarios::{Bench, run_here};
use haul_copy::receiver::CHECKPOINT_BYTES;

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
        return unmet(format_args!("a file here does not take {MANY} attributes: {error}"));
    }
    let mut job = bench.job();
    job.selection.xattrs = true;
    let report = run_here(&job, 2, CHECKPOINT_BYTES).unwrap();
    assert_eq!((report.failed, report.files_moved), (0, 2));
    let (many, mut names) = (bench.to().join("many"), vec![0; 64 << 10]);
    let bytes = rustix::fs::listxattr(&many, &mut names).unwrap();
    assert_eq!(names[..bytes].iter().filter(|byte| **byte == 0).count(), MANY);
}

/// Data written in place would appear under the other names, too.
#[test]
fn a_file_with_several_names_at_the_target_is_not_written_in_place() {
    const CHUNKED: usize = 3_000_000;
    let bench = Bench::new();
    for (number, name) in ["small1", "small2", "large1", "large2"].into_iter().enumerate() {
        bench.write(name, if name.starts_with("large") { CHUNKED + number } else { 1000 + number });
    }
    let mut job = bench.job();
    job.selection.inplace = true;
    run_here(&job, 1, CHECKPOINT_BYTES).unwrap();
    for kind in ["small", "large"] {
        let [first, second] = [1, 2].map(|number| bench.to().join(format!("{kind}{number}")));
        std::fs::remove_file(&second).unwrap();
        std::fs::hard_link(first, second).unwrap();
    }
    let report = run_here(&job, 1, CHECKPOINT_BYTES).unwrap();
    assert_eq!((report.failed, report.files_moved, report.files_kept), (0, 2, 2));
    bench.assert_equal();
}
