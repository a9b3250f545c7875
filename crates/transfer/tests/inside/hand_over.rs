//! Tests copies whose two ends share a buffer.

use std::sync::{Arc, Mutex};

use haul_channel::reporter::Watch;
use haul_job::{Event, Observer};
use haul_net::Stream;
use haul_transfer::here::LanePairs;

use crate::scenarios::{Bench, Lane, checkpoints_every, here_over};

const CHECKPOINT_BYTES: u64 = 1 << 20;

struct AtFirstData<F>(Mutex<Option<F>>);

impl<F: FnOnce() + Send> Observer for AtFirstData<F> {
    fn on_event(&self, event: &Event) {
        if let Event::Progress(progress) = event
            && progress.bytes_moved > 0
            && let Some(act) = self.0.lock().unwrap().take()
        {
            act();
        }
    }

    fn interrupted(&self) -> bool {
        false
    }
}

#[test]
fn data_between_two_paths_of_one_host_passes_no_connection() {
    let bench = Bench::with_tree();
    let watch = Arc::new(Watch::new(Arc::new(AtFirstData(Mutex::new(Some(|| ()))))));
    // The lane's end fits, and no file of 500 bytes.
    let lanes = LanePairs::handing_over(vec![Lane::Cut(500).pair()]);
    let ends = here_over(&bench.job(), &watch, false, lanes, checkpoints_every(CHECKPOINT_BYTES)).unwrap();
    let report = watch.report(&ends, Default::default(), false).unwrap();
    assert_eq!((report.failed, report.files_moved), (0, 201));
    bench.assert_equal();
}

#[test]
fn a_receiver_that_ends_its_half_of_a_lane_within_a_chunk_gets_the_chunk_over_another() {
    let bench = Bench::new();
    bench.write("large", 21_000_001);
    let mut job = bench.job();
    job.carriage.rate_bytes_per_s = Some(16 << 20);
    let ((sender, near), (far, receiver)) = (Stream::plain_pair().unwrap(), Stream::plain_pair().unwrap());
    let watch = Arc::new(Watch::new(Arc::new(AtFirstData(Mutex::new(Some(move || drop((near, far))))))));
    let lanes = LanePairs::handing_over(vec![(sender, receiver), Lane::Good.pair()]);
    let ends = here_over(&job, &watch, false, lanes, checkpoints_every(CHECKPOINT_BYTES)).unwrap();
    let report = watch.report(&ends, Default::default(), false).unwrap();
    assert_eq!((report.failed, report.files_moved), (0, 1));
    bench.assert_equal();
}
