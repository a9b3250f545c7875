//! Each decoder for a while, over changes of kept and honest inputs. `make test` runs it.
//!
//! ```text
//! cargo run -p haul-fuzz --example brief                   all of them; HAUL_FUZZ_SEED=n as another run had it
//! cargo run -p haul-fuzz --example brief -- web FILE...    these inputs, for example one that was found
//! ```
//! A worker for each processor takes decoder after decoder: those that strangers reach for twelve seconds, the others for the
//! rest.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::collections::VecDeque;
use std::process::{ExitCode, exit};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{env, fs, io, panic, thread};

use haul_fuzz::{TARGETS, Target, begins_with, changes};
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

/// All decoders together. More is for `make fuzz`: a change is judged by the cases that main has passed.
const WALL: Duration = Duration::from_secs(60);

/// A stranger's decoder takes this long, others at most.
const FULL_TURN: Duration = Duration::from_secs(12);

/// The shortest turn.
const SHORT_TURN: Duration = Duration::from_secs(1);

/// Decoders of the web, of networks, and of bytes before a peer has proved a key.
const OF_STRANGERS: [&str; 4] = ["handshake", "networks", "web", "web_digests"];

const BATCH: u32 = 32;

const SHRINKS_MAX: u32 = 2_000;

/// The slowest case of long searches took 40 ms.
const CASE_MAX: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    match words.split_first() {
        None => all(),
        Some((name, files)) => match again(name, files) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("cannot run {name} over {}: {error}", files.join(" "));
                ExitCode::FAILURE
            }
        },
    }
}

fn again(name: &str, files: &[String]) -> io::Result<()> {
    let target = TARGETS.iter().find(|(known, _)| *known == name);
    let (_, target) = target.ok_or_else(|| io::Error::other("there is no decoder of this name"))?;
    for file in files {
        target(&fs::read(file)?);
    }
    Ok(())
}

fn all() -> ExitCode {
    let processors = thread::available_parallelism().map_or(1, usize::from).min(TARGETS.len());
    let seed = env::var("HAUL_FUZZ_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(seed_of_now);
    println!("{} decoders on {processors} processors, HAUL_FUZZ_SEED={seed}", TARGETS.len());
    say_the_first_panic_only();
    let begun = Instant::now();
    let turns = Mutex::new(turns(processors));
    let working: Vec<UnderWay> = (0..processors).map(|_| UnderWay::default()).collect();
    let failed = thread::scope(|scope| {
        let work = |under_way| {
            scope.spawn({
                let turns = &turns;
                move || work(turns, seed, under_way)
            })
        };
        let workers: Vec<_> = working.iter().map(work).collect();
        while !workers.iter().all(|worker| worker.is_finished()) {
            working.iter().for_each(UnderWay::end_what_does_not_end);
            thread::sleep(Duration::from_millis(100));
        }
        workers.into_iter().map(|worker| worker.join().unwrap_or(1)).sum::<usize>()
    });
    println!("{} s in all; {failed} decoders failed", begun.elapsed().as_secs());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

struct Turn {
    target: Target,
    time: Duration,
}

/// The longest come first: the workers end together.
fn turns(processors: usize) -> VecDeque<Turn> {
    let (full, others): (Vec<_>, Vec<_>) = TARGETS.into_iter().partition(|(name, _)| OF_STRANGERS.contains(name));
    let left = (WALL * processors as u32).saturating_sub(FULL_TURN * full.len() as u32);
    let share = (left / others.len() as u32).clamp(SHORT_TURN, FULL_TURN);
    let full = full.into_iter().map(|target| Turn { target, time: FULL_TURN });
    full.chain(others.into_iter().map(|target| Turn { target, time: share })).collect()
}

/// Returns the number of failed decoders.
fn work(turns: &Mutex<VecDeque<Turn>>, seed: u64, under_way: &UnderWay) -> usize {
    let mut failed = 0;
    while let Some(turn) = pop(turns) {
        failed += usize::from(!turn.run(seed, under_way));
    }
    failed
}

fn pop(turns: &Mutex<VecDeque<Turn>>) -> Option<Turn> {
    turns.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
}

impl Turn {
    /// Returns whether nothing was found.
    fn run(&self, seed: u64, under_way: &UnderWay) -> bool {
        let (name, target) = self.target;
        let (begun, cases) = (Instant::now(), Cell::new(0u64));
        let changed = changes::changed(begins_with(name));
        let mut found = None;
        for batch in 0.. {
            if begun.elapsed() >= self.time || found.is_some() {
                break;
            }
            let tried = runner(seed, batch).run(&changed, |input| {
                under_way.begin(name, &input);
                target(&input);
                under_way.end();
                cases.set(cases.get() + 1);
                Ok(())
            });
            found = tried.err();
            under_way.end();
        }
        println!("{name:16} {:>9} cases in {:4.1} s", cases.get(), begun.elapsed().as_secs_f64());
        match &found {
            Some(TestError::Fail(why, input)) => tell(name, why.message(), input),
            Some(TestError::Abort(why)) => println!("{name}: {why}"),
            None => {}
        }
        found.is_none()
    }
}

/// The cases of a batch follow from the seed of the run.
fn runner(seed: u64, batch: u64) -> TestRunner {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..16].copy_from_slice(&batch.to_le_bytes());
    let config = Config { cases: BATCH, max_shrink_iters: SHRINKS_MAX, failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

fn seed_of_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Keeps the input, and tells how to run it again.
fn tell(name: &str, why: &str, input: &[u8]) {
    let file = env::temp_dir().join(format!("haul-fuzz-{name}-{:08x}", crc32fast::hash(input)));
    println!("{name}: {why}\n{:?}", String::from_utf8_lossy(input));
    match fs::write(&file, input) {
        Ok(()) => println!("again: cargo run -p haul-fuzz --example brief -- {name} {}", file.display()),
        Err(error) => println!("cannot write {}: {error}", file.display()),
    }
}

#[derive(Default)]
struct UnderWay(Mutex<Option<(Instant, &'static str, Vec<u8>)>>);

impl UnderWay {
    fn begin(&self, name: &'static str, input: &[u8]) {
        *self.case() = Some((Instant::now(), name, input.to_vec()));
    }

    fn end(&self) {
        *self.case() = None;
    }

    fn end_what_does_not_end(&self) {
        if let Some((begun, name, input)) = &*self.case()
            && begun.elapsed() > CASE_MAX
        {
            tell(name, "the decoder does not come back", input);
            exit(1);
        }
    }

    fn case(&self) -> MutexGuard<'_, Option<(Instant, &'static str, Vec<u8>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A shortened input panics again and again.
fn say_the_first_panic_only() {
    let (said, usual) = (AtomicBool::new(false), panic::take_hook());
    panic::set_hook(Box::new(move |panic| {
        if !said.swap(true, Ordering::Relaxed) {
            usual(panic);
        }
    }));
}
