//! Several paths of one job: a tuner for each, and what they decide together.
//!
//! ```text
//!   candidates  addresses of both ends, what was asked for  -> further ways to try
//!   one         samples of a path                           -> its advice, what arrived on it
//!   divider     one rate limit, one number of lanes         -> the part of each path
//!   arrived     counters of the lanes of a path             -> what arrived
//!   silence     what arrived                                -> a path that is dead, while others deliver
//!   queues      delays of two paths                         -> whether they are of one queue
//!   bottleneck  rates and queues of all paths               -> a path that adds no capacity rests
//! ```
//! With one path, the advice is that of its [`Tuner`], unchanged.

mod arrived;
mod bottleneck;
mod candidates;
mod divider;
mod one;
mod queues;
mod reading;
mod silence;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use haul_wire::limits::{MAX_LANES, MAX_PATHS};
use haul_wire::summary::PathSummary;

use crate::path::{Advice, Estimate, Marked, OneWay, Remembered, Tuner, Wishes};
use bottleneck::{Bottlenecks, Decision};
use one::Path;
pub use reading::PathReading;
pub use silence::Death;

pub use bottleneck::Verdict;
pub use candidates::{
    Asked, AskedPath, Candidates, Leads, LocalAddress, Refusal, Surroundings, Way, candidates, is_reachable,
};
pub use divider::{divide_lanes, divide_rate};

/// The facts about a path when its first lane is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Joined {
    /// The time that its connections took to open.
    pub rtt_us_at_connect: u32,
    /// The least that the job is known to send.
    pub foreseen_bytes: u64,
    /// The findings of an earlier job on this path.
    pub remembered: Option<Remembered>,
}

/// One reading of all paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathsSample {
    /// When, in microseconds since any fixed start.
    pub at_us: u64,
    /// The paths that are up.
    pub paths: Vec<PathReading>,
    /// See [`crate::path::Sample::waiting_bytes`].
    pub waiting_bytes: u64,
}

/// The consequence of a sample.
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
    /// The lanes get units again.
    Resumes {
        /// Number of the path.
        path: u16,
        /// For the user.
        reason: &'static str,
    },
    /// The path is dead: nothing comes through any more. Its lanes shall be cut, so that others carry their units. The path is down
    /// from now on, as after [`Paths::path_down`].
    Dead {
        /// Number of the path.
        path: u16,
        /// How that was seen.
        cause: Death,
    },
}

/// All paths of a job.
#[derive(Clone, Debug)]
pub struct Paths {
    wishes: Wishes,
    cpus: u16,
    paths: BTreeMap<u16, Path>,
    bottlenecks: Bottlenecks,
    /// The part of each path of the rate limit, and when it is divided anew.
    parts: BTreeMap<u16, u64>,
    divides_at_us: u64,
}

impl Paths {
    /// For a job with these wishes, between hosts of which the smaller has `cpus` processors. What belongs to a single path
    /// ([`Wishes::remembered`], [`Wishes::foreseen_bytes`]) comes with [`Paths::path_up`].
    pub fn new(wishes: Wishes, cpus: u16) -> Self {
        let (paths, bottlenecks, parts) = (BTreeMap::new(), Bottlenecks::default(), BTreeMap::new());
        Self { wishes, cpus, paths, bottlenecks, parts, divides_at_us: 0 }
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
            Path::new(Tuner::new(wishes, joined.rtt_us_at_connect, cpus))
        });
        known.up();
        self.divide();
        let lanes_most = self.lanes_most();
        let Some(known) = self.paths.get_mut(&path) else { unreachable!("it was entered above") };
        known.told = known.advice(None, lanes_most);
        known.told.clone()
    }

    /// The last lane of a path is gone, or its interface is down. Paths that rest carry data again.
    pub fn path_down(&mut self, path: u16) -> Vec<PathEvent> {
        let Some(known) = self.paths.get_mut(&path).filter(|known| known.is_up) else { return Vec::new() };
        (known.is_up, known.rests) = (false, false);
        self.bottlenecks.forget(path);
        self.resume_all("another path is gone")
    }

    /// The number will be used for another way, so nothing of the old path holds any more.
    pub fn forget(&mut self, path: u16) {
        self.paths.remove(&path);
        self.bottlenecks.forget(path);
    }

    /// The congestion control that the lanes of a path have, read back from them.
    pub fn on_granted(&mut self, path: u16, congestion_control: &str) {
        if let Some(path) = self.paths.get_mut(&path) {
            path.tuner.on_granted(congestion_control);
        }
    }

    /// Takes in how long a word of the far side took to here. With several paths nobody knows which one it took.
    pub fn on_one_way(&mut self, at_us: u64, word: OneWay) {
        let mut up = self.paths.values_mut().filter(|path| path.is_up);
        if let (Some(path), None) = (up.next(), up.next()) {
            path.tuner.on_one_way(at_us, word);
        }
    }

    /// Takes a sample in; says what shall change.
    pub fn on_sample(&mut self, sample: &PathsSample) -> Vec<PathEvent> {
        if sample.at_us >= self.divides_at_us {
            self.divide();
            self.divides_at_us = sample.at_us.saturating_add(DIVIDE_EVERY_US);
        }
        let mut has_new_advice = Vec::new();
        for reading in sample.paths.iter().take(usize::from(MAX_PATHS)) {
            let in_trial = self.bottlenecks.held(reading.path).is_some();
            let Some(path) = self.paths.get_mut(&reading.path).filter(|path| path.is_up) else { continue };
            if path.on_reading(sample.at_us, reading, sample.waiting_bytes, in_trial) {
                has_new_advice.push(reading.path);
            }
        }
        let mut events = self.look_for_dead();
        events.extend(self.look_for_bottlenecks(sample.at_us));
        events.extend(self.tell(&has_new_advice));
        events
    }

    /// See [`Tuner::class_changed`].
    pub fn class_changed(&mut self, path: u16, is_priority: bool) {
        if let Some(path) = self.paths.get_mut(&path) {
            path.tuner.class_changed(is_priority);
        }
    }

    /// Which lanes of a path ask for priority now, also from its beginning: none while a trial takes the mark off.
    pub fn marked_are(&mut self, path: u16, marked: Marked) {
        if let Some(path) = self.paths.get_mut(&path) {
            path.tuner.marked_are(marked);
        }
    }

    /// The settings that the lanes of a path take now.
    pub fn advice(&self, path: u16) -> Option<&Advice> {
        self.paths.get(&path).map(|path| &path.told)
    }

    /// The estimate of a path.
    pub fn estimate(&self, path: u16) -> Option<&Estimate> {
        self.paths.get(&path).map(|path| path.tuner.estimate())
    }

    /// A path, for the report. Also of one that went down.
    pub fn summary(&self, path: u16) -> Option<PathSummary> {
        self.paths.get(&path).map(|path| path.tuner.summary())
    }

    /// The findings about a path for the next job.
    pub fn remembered(&self, path: u16) -> Option<Remembered> {
        self.paths.get(&path).and_then(|path| path.tuner.remembered())
    }

    /// The limit of the rate from now on.
    pub fn limit_rate(&mut self, rate_bytes_per_s: Option<u64>) {
        self.wishes.rate_bytes_per_s = rate_bytes_per_s;
        self.parts.clear();
        for path in self.paths.values_mut() {
            path.tuner.limit_rate(rate_bytes_per_s);
        }
        self.divide();
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

    /// The result of the last look for a shared bottleneck.
    pub fn last_verdict(&self) -> Option<Verdict> {
        self.bottlenecks.last_verdict
    }

    /// The advice of each path, if it changed.
    fn tell(&mut self, has_new_advice: &[u16]) -> Vec<PathEvent> {
        let lanes_most = self.lanes_most();
        let mut events = Vec::new();
        for (number, path) in self.paths.iter_mut().filter(|(_, path)| path.is_up) {
            let advice = path.advice(self.bottlenecks.held(*number), lanes_most);
            if has_new_advice.contains(number) || advice != path.told {
                path.told = advice.clone();
                events.push(PathEvent::Advice { path: *number, advice });
            }
        }
        events
    }

    /// Divides what the user asked for among the paths that carry data.
    fn divide(&mut self) {
        let carrying: Vec<u16> =
            self.paths.iter().filter(|(_, path)| path.carries()).map(|(number, _)| *number).collect();
        if let Some(rate) = self.wishes.rate_bytes_per_s {
            self.divide_rate(rate, &carrying);
        }
        let Some(lanes) = self.wishes.lanes else { return };
        let parts = divide_lanes(lanes, u16::try_from(carrying.len()).unwrap_or(MAX_PATHS));
        for (number, lanes) in carrying.iter().zip(parts) {
            if let Some(path) = self.paths.get_mut(number) {
                path.tuner.ask_for_lanes(lanes);
            }
        }
    }

    fn divide_rate(&mut self, rate: u64, carrying: &[u16]) {
        let can_use: Vec<Option<u64>> = carrying
            .iter()
            .map(|number| self.paths[number].can_use(self.parts.get(number).copied().unwrap_or(rate)))
            .collect();
        let parts: BTreeMap<u16, u64> = carrying.iter().copied().zip(divide_rate(rate, &can_use)).collect();
        let is_as_before = parts.len() == self.parts.len()
            && parts.iter().all(|(number, part)| {
                self.parts.get(number).is_some_and(|before| part.abs_diff(*before) <= before / SAME_PART)
            });
        if is_as_before {
            return;
        }
        for (number, part) in &parts {
            if let Some(path) = self.paths.get_mut(number) {
                path.tuner.limit_rate(Some(*part));
            }
        }
        self.parts = parts;
    }

    /// Cuts the paths that are silent while another delivers. If a path is in doubt, the paths that rest carry data again, and so show
    /// whether it is dead.
    fn look_for_dead(&mut self) -> Vec<PathEvent> {
        let carrying = || self.paths.iter().filter(|(_, path)| path.carries());
        let dead_beside = |witnesses: &dyn Fn(u16) -> bool| -> Vec<(u16, Death)> {
            let of = |(number, path): (&u16, &Path)| {
                let others = carrying().filter(|(other, _)| *other != number && witnesses(**other));
                let heard_us = others.map(|(_, other)| other.silence.heard_us()).min()?;
                path.silence.death(path.timing(), heard_us).map(|cause| (*number, cause))
            };
            carrying().filter_map(of).collect()
        };
        // Who is silent itself is no witness: where all fall silent together, the cause is elsewhere.
        let silent = dead_beside(&|_| true);
        let dead = dead_beside(&|other| silent.iter().all(|(silent, _)| *silent != other));
        let is_doubtful = carrying().any(|(_, path)| path.silence.is_doubtful(path.timing()));
        let mut events = Vec::new();
        if is_doubtful {
            events.extend(self.resume_all("another path is silent"));
        }
        for (path, cause) in dead {
            events.push(PathEvent::Dead { path, cause });
            events.extend(self.path_down(path));
        }
        events
    }

    fn look_for_bottlenecks(&mut self, at_us: u64) -> Option<PathEvent> {
        if self.up().count() < 2 {
            return None;
        }
        let rates =
            self.paths.values().filter(|path| path.carries()).map(|path| path.tuner.estimate().rate_bytes_per_s);
        let rate = rates.fold(0, u64::saturating_add);
        let is_limited = self.wishes.rate_bytes_per_s.is_some_and(|limit| rate >= limit / 10 * 8);
        let carrying = self.paths.iter().filter(|(_, path)| path.carries());
        let mut seen: Vec<_> = carrying.map(|(number, path)| path.seen(*number)).collect();
        seen.iter_mut().for_each(|seen| seen.starves |= is_limited);
        match self.bottlenecks.on_sample(at_us, &seen)? {
            Decision::Rest(path) => {
                self.paths.get_mut(&path)?.rests = true;
                let others = self.paths.values_mut().filter(|path| path.carries());
                others.for_each(|other| other.tuner.look_again());
                self.divide();
                Some(PathEvent::Rests { path, reason: "it meets another path at a bottleneck, and adds no capacity" })
            }
            Decision::Retry(path) => {
                self.paths.get_mut(&path)?.rests = false;
                self.divide();
                Some(PathEvent::Resumes { path, reason: "to see whether it adds capacity now" })
            }
        }
    }

    fn resume_all(&mut self, reason: &'static str) -> Vec<PathEvent> {
        let mut events = Vec::new();
        for (number, path) in self.paths.iter_mut().filter(|(_, path)| path.is_up && path.rests) {
            path.rests = false;
            self.bottlenecks.forget(*number);
            events.push(PathEvent::Resumes { path: *number, reason });
        }
        self.divide();
        events
    }

    /// Lanes of one path, so that all paths together have no more than a session may have.
    fn lanes_most(&self) -> u16 {
        let paths = u16::try_from(self.up().count()).unwrap_or(MAX_PATHS);
        MAX_LANES / paths.clamp(1, MAX_PATHS)
    }
}

/// Between two divisions of the rate limit.
const DIVIDE_EVERY_US: u64 = 1_000_000;
/// Parts that differ by less than this share (5 %) are the same.
const SAME_PART: u64 = 20;
