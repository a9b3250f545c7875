//! Files with holes, over whatever stands at the target.

use std::fs::{File, FileTimes};
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, SystemTime};

use haul_wire::limits::BLOCK_BYTES;

use crate::receiver::CHECKPOINT_BYTES;
use crate::scenarios::{Bench, run_here};

/// What stands at the target under the name of a file with holes: nothing, or other bytes, so many more or less than the file has.
const STANDING: [Option<i64>; 4] = [None, Some(0), Some(-100_000), Some(100_000)];

/// Of each block whether it is data: all there are of files that travel whole, and of one that travels in chunks.
fn patterns() -> Vec<Vec<bool>> {
    let of = |blocks: u32| (0..1 << blocks).map(move |bits: u32| (0..blocks).map(|at| bits >> at & 1 == 1).collect());
    let large = [[true, false], [false, true]].map(|halves| halves.into_iter().flat_map(|half| [half; 6]).collect());
    of(1).chain(of(2)).chain(of(4)).chain(large).collect()
}

/// One file for each pattern and for each of what stands where it goes. Those in which the last data is short end within a block.
fn with_patterns() -> Bench {
    let bench = Bench::new();
    std::fs::create_dir(bench.to()).unwrap();
    let long_ago = FileTimes::new().set_modified(SystemTime::now() - Duration::from_secs(1000));
    for (number, pattern) in patterns().into_iter().enumerate() {
        for (standing, more_bytes) in STANDING.into_iter().enumerate() {
            let size = (pattern.len() * BLOCK_BYTES) as u64 - if number % 2 == 0 { 0 } else { 5000 };
            let name = format!("{number}-{standing}");
            let file = File::create(bench.from().join(&name)).unwrap();
            file.set_len(size).unwrap();
            for at in (0..pattern.len()).filter(|at| pattern[*at]) {
                // The first and the last block of the file stand for themselves; in others data is only at the end.
                let (start, end) = ((at * BLOCK_BYTES) as u64, ((at + 1) * BLOCK_BYTES) as u64);
                file.write_all_at(&[at as u8 + 1; 4096], end.min(size) - 4096).unwrap();
                if at % 2 == 1 {
                    file.write_all_at(&[7; 100], start).unwrap();
                }
            }
            if let Some(more_bytes) = more_bytes {
                let there = vec![0xaa; size.saturating_add_signed(more_bytes) as usize];
                std::fs::write(bench.to().join(&name), there).unwrap();
                File::options().write(true).open(bench.to().join(&name)).unwrap().set_times(long_ago).unwrap();
            }
        }
    }
    bench
}

#[test]
fn nothing_of_what_stood_there_shows_through_a_hole() {
    for options in 0..8 {
        let bench = with_patterns();
        let mut job = bench.job();
        job.selection.inplace = options & 1 == 1;
        job.selection.sparse = options & 2 == 0;
        job.selection.verify_disk = options & 4 != 0;
        let report = run_here(&job, 2, CHECKPOINT_BYTES).unwrap();
        assert_eq!((report.failed, report.files_moved), (0, (patterns().len() * STANDING.len()) as u64), "{options}");
        bench.assert_equal();
    }
}
