//! Several paths of one job: a tuner for each, and what they decide together.
//!
//! ```text
//!   candidates  addresses of both ends, what was asked for  -> further ways to try
//!   divider     one rate limit, one number of lanes         -> the part of each path
//!   silence     what each path delivers                     -> a path that is dead, while others deliver
//!   bottleneck  rates and queues of all paths               -> a path that adds no capacity rests
//! ```
//! A job with one path has what its [`Tuner`] says, and nothing else.

mod bottleneck;
mod candidates;
mod divider;
mod silence;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use haul_wire::limits::{MAX_LANES, MAX_PATHS};
use haul_wire::summary::PathSummary;

use crate::path::{Advice, Estimate, LaneReading, Remembered, Sample, Tuner, Wishes};

pub use candidates::{Asked, AskedPath, Candidates, Leads, LocalAddress, Refusal, Surroundings, Way, candidates};
pub use divider::{divide_lanes, divide_rate};

/// What is known of a path when its first lane is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Joined {
    /// Its connections took so long to open.
    pub rtt_us_at_connect: u32,
    /// What the job is known to send, at least.
    pub foreseen_bytes: u64,
    /// What an earlier job found of this path.
    pub remembered: Option<Remembered>,
}

/// One reading of the lanes of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathReading {
    /// Number of the path.
    pub path: u16,
    /// Its lanes that are connected, resting ones too, in the order of their numbers.
    pub lanes: Vec<LaneReading>,
    /// The kernel repeated a segment so often in a row without an answer (`tcpi_backoff`); the least of the lanes.
    pub timeouts: u8,
}

/// One reading of all paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathsSample {
    /// When, in microseconds since any fixed start.
    pub at_us: u64,
    /// The paths that are up.
    pub paths: Vec<PathReading>,
    /// See [`Sample::waiting_bytes`].
    pub waiting_bytes: u64,
}

/// What follows from a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathEvent {
    /// The lanes of this path shall do this from now on.
    Advice {
        /// Number of the path.
        path: u16,
        /// For its lanes.
        advice: Advice,
    },
    /// The lanes of this path get no more units, and stay connected.
    Rests {
        /// Number of the path.
        path: u16,
        /// For the user.
        reason: &'static str,
    },
    /// They get units again.
    Resumes {
        /// Number of the path.
        path: u16,
        /// For the user.
        reason: &'static str,
    },
    /// Nothing comes through any more: its lanes shall be cut, so that others carry their units. The path is down from now on, as
    /// after [`Paths::path_down`].
    Dead {
        /// Number of the path.
        path: u16,
        /// How that was seen.
        cause: Death,
    },
}

/// How a path was seen to be dead, while another path delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// Nothing was acknowledged for so long, although data was under way.
    Silent {
        /// Time since the last acknowledgement.
        us: u64,
    },
    /// Each of its lanes repeats the same segment again and again.
    Repeats,
}

/// All paths of a job.
#[derive(Clone, Debug)]
pub struct Paths {
    wishes: Wishes,
    cpus: u16,
    paths: BTreeMap<u16, Path>,
}

/// One path, also after it went down: it may come back, and the report names it.
#[derive(Clone, Debug)]
struct Path {
    tuner: Tuner,
    is_up: bool,
    rests: bool,
    advice: Advice,
}

impl Paths {
    /// For a job with these wishes, between hosts of which the smaller has `cpus` processors. What belongs to a single path
    /// ([`Wishes::remembered`], [`Wishes::foreseen_bytes`]) comes with [`Paths::path_up`].
    pub fn new(wishes: Wishes, cpus: u16) -> Self {
        Self { wishes, cpus, paths: BTreeMap::new() }
    }

    /// The first lane of a path is there. Returns what its lanes shall do until the next sample. A path that comes back under its number
    /// goes on with what was known of it.
    ///
    /// # Panics
    /// If the number is not below [`MAX_PATHS`].
    pub fn path_up(&mut self, path: u16, joined: Joined) -> Advice {
        assert!(path < MAX_PATHS, "a path below {MAX_PATHS}");
        let (wishes, cpus) = (&self.wishes, self.cpus);
        let known = self.paths.entry(path).or_insert_with(|| {
            let wishes =
                Wishes { foreseen_bytes: joined.foreseen_bytes, remembered: joined.remembered, ..wishes.clone() };
            let tuner = Tuner::new(wishes, joined.rtt_us_at_connect, cpus);
            let advice = tuner.first();
            Path { tuner, is_up: true, rests: false, advice }
        });
        known.is_up = true;
        known.advice.clone()
    }

    /// The last lane of a path is gone, or its interface is down.
    pub fn path_down(&mut self, path: u16) -> Vec<PathEvent> {
        if let Some(known) = self.paths.get_mut(&path) {
            (known.is_up, known.rests) = (false, false);
        }
        Vec::new()
    }

    /// The number will be another way's: what was known of the path counts no more.
    pub fn forget(&mut self, path: u16) {
        self.paths.remove(&path);
    }

    /// The congestion control that the lanes of a path have, read back from them.
    pub fn on_granted(&mut self, path: u16, congestion_control: &str) {
        if let Some(path) = self.paths.get_mut(&path) {
            path.tuner.on_granted(congestion_control);
        }
    }

    /// Takes a sample in; says what shall change.
    pub fn on_sample(&mut self, sample: &PathsSample) -> Vec<PathEvent> {
        let mut events = Vec::new();
        for reading in sample.paths.iter().take(usize::from(MAX_PATHS)) {
            let Some(path) = self.paths.get_mut(&reading.path).filter(|path| path.is_up) else { continue };
            let lanes = reading.lanes.clone();
            let sample = Sample { at_us: sample.at_us, lanes, waiting_bytes: sample.waiting_bytes };
            if let Some(advice) = path.tuner.on_sample(&sample) {
                path.advice = advice.clone();
                events.push(PathEvent::Advice { path: reading.path, advice });
            }
        }
        events
    }

    /// What the lanes of a path shall do now.
    pub fn advice(&self, path: u16) -> Option<&Advice> {
        self.paths.get(&path).map(|path| &path.advice)
    }

    /// What is known of a path.
    pub fn estimate(&self, path: u16) -> Option<&Estimate> {
        self.paths.get(&path).map(|path| path.tuner.estimate())
    }

    /// A path, for the report. Also of one that went down.
    pub fn summary(&self, path: u16) -> Option<PathSummary> {
        self.paths.get(&path).map(|path| path.tuner.summary())
    }

    /// What the next job on this path should know.
    pub fn remembered(&self, path: u16) -> Option<Remembered> {
        self.paths.get(&path).and_then(|path| path.tuner.remembered())
    }

    /// Whether the lanes of this path get no units.
    pub fn rests(&self, path: u16) -> bool {
        self.paths.get(&path).is_some_and(|path| path.rests)
    }

    /// The paths that are up, resting ones too.
    pub fn up(&self) -> impl Iterator<Item = u16> {
        self.paths.iter().filter(|(_, path)| path.is_up).map(|(number, _)| *number)
    }

    /// All paths that ever were up.
    pub fn known(&self) -> impl Iterator<Item = u16> {
        self.paths.keys().copied()
    }
}

/// Lanes of one path, so that all paths together have no more than a session may have.
#[allow(dead_code)]
fn lanes_most(paths: usize) -> u16 {
    MAX_LANES / u16::try_from(paths).unwrap_or(MAX_LANES).clamp(1, MAX_PATHS)
}
