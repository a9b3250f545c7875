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

/// Facts known at a path's first lane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Joined {
    /// The time that its connections took to open.
    pub rtt_us_at_connect: u32,
    /// The least known to be sent.
    pub foreseen_bytes: u64,
    /// An earlier job's findings.
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
    /// New advice for a path.
    Advice {
        /// Number of the path.
        path: u16,
        /// For its lanes.
        advice: Advice,
    },
    /// The path's lanes get no more units, and stay connected.
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
    /// The path is down, as after [`Paths::path_down`]. The caller cuts its lanes: others carry their units.
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
    parts: BTreeMap<u16, u64>,
    divides_at_us: u64,
}

impl Paths {
    /// Begins a job; the smaller host has `cpus` processors. [`Wishes::remembered`] and [`Wishes::foreseen_bytes`] come with
    /// [`Paths::path_up`].
    pub fn new(wishes: Wishes, cpus: u16) -> Self {
        let (paths, bottlenecks, parts) = (BTreeMap::new(), Bottlenecks::default(), BTreeMap::new());
        Self { wishes, cpus, paths, bottlenecks, parts, divides_at_us: 0 }
    }

    /// Enters a path's first lane, perhaps again. Returns its advice until the next sample.
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

    /// Enters a path's end. Resting paths carry data again.
    pub fn path_down(&mut self, path: u16) -> Vec<PathEvent> {
        let Some(known) = self.paths.get_mut(&path).filter(|known| known.is_up) else { return Vec::new() };
        (known.is_up, known.rests) = (false, false);
        self.bottlenecks.forget(path);
        self.resume_all("another path is gone")
    }

    /// Forgets a path whose number is reused.
    pub fn forget(&mut self, path: u16) {
        self.paths.remove(&path);
        self.bottlenecks.forget(path);
    }

    /// Enters the congestion control read back from lanes.
    pub fn on_granted(&mut self, path: u16, congestion_control: &str) {
        if let Some(path) = self.paths.get_mut(&path) {
            path.tuner.on_granted(congestion_control);
        }
    }

    /// Takes in a far word's time. Of several paths nobody knows its way.
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

    /// Sets which lanes ask for priority: none while a trial takes the mark off.
    pub fn marked_are(&mut self, path: u16, marked: Marked) {
        if let Some(path) = self.paths.get_mut(&path) {
            path.tuner.marked_are(marked);
        }
    }

    /// The lanes' settings now.
    pub fn advice(&self, path: u16) -> Option<&Advice> {
        self.paths.get(&path).map(|path| &path.told)
    }

    /// The estimate of a path.
    pub fn estimate(&self, path: u16) -> Option<&Estimate> {
        self.paths.get(&path).map(|path| path.tuner.estimate())
    }

    /// A path for the report, also a lost one.
    pub fn summary(&self, path: u16) -> Option<PathSummary> {
        self.paths.get(&path).map(|path| path.tuner.summary())
    }

    /// The findings for the next job.
    pub fn remembered(&self, path: u16) -> Option<Remembered> {
        self.paths.get(&path).and_then(|path| path.tuner.remembered())
    }

    /// Sets the limit of the rate.
    pub fn limit_rate(&mut self, rate_bytes_per_s: Option<u64>) {
        self.wishes.rate_bytes_per_s = rate_bytes_per_s;
        self.parts.clear();
        for path in self.paths.values_mut() {
            path.tuner.limit_rate(rate_bytes_per_s);
        }
        self.divide();
    }

    /// Whether its lanes get no units.
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

    /// The last look for a shared bottleneck.
    pub fn last_verdict(&self) -> Option<Verdict> {
        self.bottlenecks.last_verdict
    }

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

    /// Cuts paths that are silent while another delivers. In doubt, resting ones carry data again as witnesses.
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
        // Silent paths are no witnesses: the cause may be elsewhere.
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

    fn lanes_most(&self) -> u16 {
        let paths = u16::try_from(self.up().count()).unwrap_or(MAX_PATHS);
        MAX_LANES / paths.clamp(1, MAX_PATHS)
    }
}

const DIVIDE_EVERY_US: u64 = 1_000_000;
/// Parts that differ by less than 5 % are the same.
const SAME_PART: u64 = 20;
