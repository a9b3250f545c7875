//! Thirty thousand jobs on networks and disks that fail in every way at any moment, in virtual time. See `jobs`.

mod jobs;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use jobs::run::{Count, job};

/// `HAUL_SEEDS` takes more or fewer, `HAUL_SEED` one alone, step by step.
const SEEDS: u64 = 30_000;

#[test]
fn every_job_ends_with_whole_files_whatever_fails() {
    let number = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().expect("a number"));
    if let Some(seed) = number("HAUL_SEED") {
        eprintln!("{:#?}", job(seed, true));
        return;
    }
    let seeds = number("HAUL_SEEDS").unwrap_or(SEEDS);
    let next = AtomicU64::new(0);
    let work = || {
        let mut total = Count::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                return total;
            }
            match catch_unwind(AssertUnwindSafe(|| job(seed, false))) {
                Ok(count) => total.add(&count),
                Err(why) => {
                    next.store(seeds, Ordering::Relaxed);
                    let text = why.downcast_ref::<String>().cloned();
                    let text = text.or(why.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                    panic!(
                        "seed {seed}: {}\nHAUL_SEED={seed} cargo test -p haul-engine --test job_simulation -- --nocapture",
                        text.unwrap_or_default()
                    );
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let total = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut total = Count::default();
        for worker in workers {
            match worker.join() {
                Ok(count) => total.add(&count),
                Err(why) => std::panic::resume_unwind(why),
            }
        }
        total
    });
    println!("{seeds} jobs: {total:#?}");
    // A simulation in which nothing happens shows nothing.
    assert!(
        seeds < SEEDS || total.faults.values().all(|count| *count > seeds / 10) && total.faults.len() == 12,
        "{total:?}"
    );
    let rare =
        [total.resumed, total.waits, total.spoilt, total.withdrawn, total.disk_failures, total.again_bytes >> 20];
    assert!(seeds < SEEDS || rare.iter().all(|count| *count > seeds / 20), "{total:?}");
}

#[test]
fn the_same_seed_is_the_same_job() {
    for seed in 0..20 {
        assert_eq!(job(seed, false), job(seed, false), "seed {seed}");
    }
}
