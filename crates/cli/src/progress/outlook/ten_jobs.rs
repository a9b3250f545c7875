//! Ten kinds of jobs in virtual time, and how far the bar says they are at each tenth.
//!
//! a job with seeded noise -> totals ten times a second -> the bar -> compared with what came
//!
//! Rates, stalls and costs are as in `docs/proof/measured.md` and the lab; each job lasts a minute or more.

use std::time::Duration;

use haul_job::Progress;

use crate::progress::outlook::{Foreknown, Outlook, Usual};

/// The bar's error at any tenth.
const WITHIN: f64 = 0.03;

const SEEDS: u64 = 12;

/// splitmix64: equal on each machine.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// About 1, as rates and costs vary each tenth of a second.
    fn about(&mut self, by: f64) -> f64 {
        1.0 + by * (2.0 * self.next() - 1.0)
    }
}

struct Run {
    chance: Chance,
    tenths: u64,
    now: Progress,
    told: Vec<(Duration, Told)>,
}

enum Told {
    Totals(Progress),
    BrokeOff,
}

impl Run {
    fn new(seed: u64, files: u64, bytes: u64) -> Self {
        let now = Progress {
            files_found: files,
            files_left: files,
            bytes_found: bytes,
            bytes_left: bytes,
            found_all: true,
            ..Progress::default()
        };
        Self { chance: Chance(seed), tenths: 0, now, told: Vec::new() }
    }

    fn at(&self) -> Duration {
        Duration::from_millis(self.tenths * 100)
    }

    fn tick(&mut self, files: f64, bytes: f64) {
        self.tenths += 1;
        let (files, bytes) = ((files as u64).min(self.now.files_left), (bytes as u64).min(self.now.bytes_left));
        self.now.files_done += files;
        self.now.files_left -= files;
        self.now.bytes_moved += bytes;
        self.now.bytes_left -= bytes;
        self.told.push((self.at(), Told::Totals(self.now)));
    }

    fn silence(&mut self, seconds: f64) {
        self.tenths += (seconds * 10.0) as u64;
    }

    fn has_bytes(&self) -> bool {
        self.now.bytes_left > 0
    }

    fn shown(&self, file_cost: Option<f64>) -> (Vec<f64>, f64) {
        let whole = self.at().as_secs_f64();
        let usual = file_cost.map(|bytes_per_file| Usual { bytes_per_s: 1e9, bytes_per_file });
        let mut outlook = Outlook::default().with(Foreknown { usual, ..Foreknown::default() });
        let (mut shown, mut done) = (Vec::new(), 0.0);
        let mut told = self.told.iter().peekable();
        for tenth in 1..10 {
            let until = Duration::from_secs_f64(whole * f64::from(tenth) / 10.0);
            while let Some((at, what)) = told.next_if(|(at, _)| *at <= until) {
                match what {
                    Told::BrokeOff => outlook.broke_off(*at),
                    Told::Totals(progress) => {
                        outlook.add(*at, progress);
                        if at.subsec_millis() % 500 == 0 {
                            done = outlook.left(*at, progress).done.unwrap_or(0.0);
                        }
                    }
                }
            }
            shown.push(done);
        }
        let errors = (1..10).zip(&shown).map(|(tenth, done)| (f64::from(tenth) / 10.0 - done).abs());
        let worst = errors.fold(0.0, f64::max);
        (shown, worst)
    }
}

const MB: f64 = 1e6;

fn one_file(seed: u64) -> Run {
    let mut run = Run::new(seed, 1, 60_000_000_000);
    while run.has_bytes() {
        let bytes = 100.0 * MB * run.chance.about(0.3);
        run.tick(0.0, bytes);
    }
    run.tick(1.0, 0.0);
    run
}

/// A million files of some KiB. The walk stays within its window; a count of the sources comes first.
fn a_million_small(seed: u64) -> Run {
    const FILES: u64 = 1_000_000;
    const BYTES_EACH: f64 = 6_000.0;
    let mut run = Run::new(seed, FILES, FILES * BYTES_EACH as u64);
    let mut counted = 0.0;
    while run.now.files_left > 0 {
        counted += 20_000.0 * run.chance.about(0.2);
        let files = 1_200.0 * run.chance.about(0.4);
        run.tick(files, files * BYTES_EACH);
        // The whole is judged by what was seen, and directories differ.
        let seen = (counted / FILES as f64).min(1.0);
        if seen < 1.0 {
            let wrong = 1.0 + 0.2 * (1.0 - seen) * (2.0 * run.chance.next() - 1.0);
            let last = run.told.last_mut().expect("it was told");
            last.1 = Told::Totals(rough(run.now, wrong, seen));
        }
    }
    run
}

fn rough(now: Progress, wrong: f64, seen: f64) -> Progress {
    let of = |all: u64, left: u64| ((all as f64 * wrong) as u64).saturating_sub(all - left);
    Progress {
        files_left: of(now.files_found, now.files_left),
        bytes_left: of(now.bytes_found, now.bytes_left),
        files_found: (now.files_found as f64 * wrong) as u64,
        bytes_found: (now.bytes_found as f64 * wrong) as u64,
        found_all: false,
        seen_ppm: (seen * 1e6) as u32,
        ..now
    }
}

/// A tenth of the image is data; holes take no time.
fn sparse(seed: u64) -> Run {
    let mut run = Run::new(seed, 1, 6_000_000_000);
    while run.has_bytes() {
        let bytes = if run.chance.next() < 0.1 { 0.0 } else { 10.0 * MB * run.chance.about(0.3) };
        run.tick(0.0, bytes);
    }
    run
}

/// `--rate 40Mbit`, chunks of 4 MiB.
fn rate_limited(seed: u64) -> Run {
    let mut run = Run::new(seed, 80, 400_000_000);
    let (mut budget, mut in_file) = (run.chance.next() * 4.0 * MB, 0.0);
    while run.has_bytes() {
        budget += 0.5 * MB;
        let mut bytes = 0.0;
        if budget >= 4.2 * MB {
            budget -= 4.2 * MB;
            bytes = 4.2 * MB;
        }
        in_file += bytes;
        let files = (in_file / (5.0 * MB)).floor();
        in_file -= files * 5.0 * MB;
        run.tick(files, bytes);
    }
    run.tick(80.0, 0.0);
    run
}

/// The disk's cache fills at the path's speed, then stands still until written.
fn slow_target(seed: u64) -> Run {
    let mut run = Run::new(seed, 40, 20_000_000_000);
    while run.has_bytes() {
        let pause = (22.0 * run.chance.about(0.2)) as u64;
        for tenth in 0..pause + 3 {
            let bytes = if tenth < 3 { 85.0 * MB * run.chance.about(0.1) } else { 0.0 };
            let done = (run.now.bytes_moved / 500_000_000).saturating_sub(run.now.files_done) as f64;
            run.tick(done, bytes);
        }
    }
    run.tick(40.0, 0.0);
    run
}

/// Two thirds lie there, and are read again beside what comes, at the target's speed.
fn resume(seed: u64) -> Run {
    let mut run = Run::new(seed, 1, 30_000_000_000);
    run.now.bytes_kept = 20_000_000_000;
    run.now.bytes_left = 10_000_000_000;
    run.now.bytes_to_read_again = 20_000_000_000;
    // Odd seeds have a quick path and a slow disk.
    let (moves, reads) = if seed % 2 == 1 { (40.0, 30.0) } else { (12.0, 60.0) };
    while run.has_bytes() || run.now.bytes_to_read_again > 0 {
        let read = ((reads * MB * run.chance.about(0.2)) as u64).min(run.now.bytes_to_read_again);
        run.now.bytes_to_read_again -= read;
        run.now.bytes_read_again += read;
        let bytes = moves * MB * run.chance.about(0.2);
        run.tick(0.0, bytes);
    }
    run
}

/// Forty seconds of small files at 100 microseconds each, then a minute of data at 1 GB/s.
fn small_then_large(seed: u64) -> Run {
    let mut run = Run::new(seed, 400_010, 400_000_000 + 60_000_000_000);
    while run.now.files_left > 10 {
        let files = (1_000.0 * run.chance.about(0.2)).min((run.now.files_left - 10) as f64);
        run.tick(files, files * 1_000.0);
    }
    while run.has_bytes() {
        let bytes = 100.0 * MB * run.chance.about(0.2);
        run.tick(0.0, bytes);
    }
    run.tick(10.0, 0.0);
    run
}

fn over_ssh(seed: u64) -> Run {
    let mut run = Run::new(seed, 50, 6_000_000_000);
    run.silence(1.5);
    let mut rate = 0.2;
    while run.has_bytes() {
        rate = f64::min(rate * 1.6, 10.0);
        let bytes = rate * MB * run.chance.about(0.3);
        let done = (run.now.bytes_moved / 120_000_000).saturating_sub(run.now.files_done) as f64;
        run.tick(done, bytes);
    }
    run.tick(50.0, 0.0);
    run
}

/// The server lists two thousand files a second; only the share of directories seen tells the whole.
fn slow_listing(seed: u64) -> Run {
    const DIRECTORIES: usize = 300;
    let mut chance = Chance(seed);
    let sizes: Vec<f64> = (0..DIRECTORIES).map(|_| 500.0 * chance.about(0.6)).collect();
    let files: f64 = sizes.iter().sum();
    let mut run = Run::new(seed, files as u64, (files * 20_000.0) as u64);
    let (mut seen, mut directory, mut inside) = (0.0, 0, 0.0);
    while run.now.files_left > 0 {
        let listed = 200.0 * run.chance.about(0.4);
        seen += listed;
        inside += listed;
        while directory < DIRECTORIES && inside >= sizes[directory] {
            inside -= sizes[directory];
            directory += 1;
        }
        run.tick(listed, listed * 20_000.0);
        if directory < DIRECTORIES {
            let share = (directory as f64 + inside / sizes[directory]) / DIRECTORIES as f64;
            // Below a hundredth, only what was found counts.
            let wrong = if share < 0.01 { seen / files } else { seen / share / files };
            let last = run.told.last_mut().expect("it was told");
            last.1 = Told::Totals(rough(run.now, wrong, share));
        }
    }
    run
}

/// The network goes twice, for seconds. What came counts as kept in the next try.
fn with_retries(seed: u64) -> Run {
    let mut run = Run::new(seed, 1, 12_000_000_000);
    for lost_at in [3_000_000_000, 8_000_000_000, u64::MAX] {
        while run.has_bytes() && run.now.bytes_kept + run.now.bytes_moved < lost_at {
            let bytes = 10.0 * MB * run.chance.about(0.3);
            run.tick(0.0, bytes);
        }
        if !run.has_bytes() {
            break;
        }
        run.told.push((run.at(), Told::BrokeOff));
        run.silence(1.0);
        let there = run.now.bytes_kept + run.now.bytes_moved;
        let login = Progress {
            files_found: 0,
            files_left: 0,
            bytes_found: 0,
            bytes_left: 0,
            found_all: false,
            ..Progress::default()
        };
        run.told.push((run.at(), Told::Totals(login)));
        run.silence(0.5);
        run.now = Progress { bytes_kept: there, bytes_moved: 0, bytes_left: 12_000_000_000 - there, ..run.now };
    }
    run
}

type Kind = (&'static str, fn(u64) -> Run);

const KINDS: [Kind; 9] = [
    ("one file", one_file),
    ("a million small files", a_million_small),
    ("sparse", sparse),
    ("rate limited", rate_limited),
    ("slow target", slow_target),
    ("resume", resume),
    ("over ssh", over_ssh),
    ("listing slower than copying", slow_listing),
    ("with retries", with_retries),
];

#[track_caller]
fn check(name: &str, seed: u64, run: &Run, file_cost: Option<f64>, within: f64) {
    let (shown, worst) = run.shown(file_cost);
    let shown: Vec<String> = shown.iter().map(|done| format!("{:.1}", done * 100.0)).collect();
    assert!(worst <= within, "{name}, seed {seed}, {:?}: wrong by {worst:.3}: {shown:?}", run.at());
}

#[test]
fn the_bar_is_within_three_percent_of_the_truth_at_every_tenth_of_each_kind_of_job() {
    for (name, job) in KINDS {
        for seed in 0..SEEDS {
            check(name, seed, &job(seed), None, WITHIN);
        }
    }
}

/// The change is known before a third of the rest has come.
#[test]
fn a_rate_that_changes_for_good_is_followed() {
    for seed in 0..SEEDS {
        let mut run = Run::new(seed, 1, 6_000_000_000);
        while run.has_bytes() {
            let rate = if run.now.bytes_left > 3_000_000_000 { 10.0 } else { 5.0 };
            let bytes = rate * MB * run.chance.about(0.3);
            run.tick(0.0, bytes);
        }
        // 30 s, then 60 s: from the second part's middle on.
        let (shown, _) = run.shown(None);
        for (tenth, done) in (1..10).zip(&shown).skip(5) {
            let error = (f64::from(tenth) / 10.0 - done).abs();
            assert!(error < 0.06, "seed {seed}: {shown:?}");
        }
    }
}

/// Earlier copies on the path tell the cost of large files.
#[test]
fn small_files_before_large_ones_are_known_as_well_where_the_path_was_used_before() {
    for seed in 0..SEEDS {
        let run = small_then_large(seed);
        // 100 microseconds at 1 GB/s, by two other copies.
        let file_cost = 100_000.0 * Chance(seed ^ 0xff).about(0.1);
        check("small then large", seed, &run, Some(file_cost), WITHIN);
        check("small then large, on a new path", seed, &run, None, 0.2);
    }
}
