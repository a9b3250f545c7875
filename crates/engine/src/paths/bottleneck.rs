//! Whether a path adds capacity. If two paths share a bottleneck, one of them rests: both together carry no more than one, and
//! take the share of two from the flows of others.
//!
//! ```text
//!   suspicion  two paths see one queue
//!   trial      one of the two sends next to nothing for a few round trips   the others deliver more: again, then it rests
//!                                                                         they do not: it is clear for a while
//!   rest       later it carries data again, and is judged as if it was new
//! ```
//! Paths whose queues are empty take nothing from anybody, and are left alone.
//!
//! The comments of the constants call the simulation "one link of 1000 x 100, the second from 6 s" *one link*.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::queues;
use crate::path::{SAMPLE_US, per_second};

/// A path at one sample. Rates are in bytes per second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) path: u16,
    pub(super) us: u64,
    pub(super) bytes: u64,
    pub(super) rtt_us: u32,
    pub(super) queueing_us: u32,
    /// Waits for its source, or the user's limit.
    pub(super) starves: bool,
    pub(super) lanes: u16,
    /// The lanes use bbr: after a pause they would be slow for long.
    pub(super) remembers_rate: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// The lanes of the path get no units.
    Rest(u16),
    /// The lanes get units again, as a test.
    Retry(u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// At most so many bytes per second.
    Back(u64),
    /// Up by so many bytes per second.
    Up(u64),
}

/// The result of a trial, in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The path that was held back.
    pub path: u16,
    /// The rate that the path lost.
    pub freed_bytes_per_s: u64,
    /// The rate that the others gained.
    pub taken_bytes_per_s: u64,
    /// The others took enough of it.
    pub is_shared: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Bottlenecks {
    at_us: u64,
    histories: BTreeMap<u16, History>,
    suspects: BTreeMap<u16, Suspect>,
    trial: Option<Trial>,
    resting: BTreeMap<u16, u64>,
    pub(super) last_verdict: Option<Verdict>,
}

#[derive(Clone, Debug)]
struct History {
    steps: VecDeque<Seen>,
    since_us: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Suspect {
    /// Trials for a shared bottleneck, less those against it.
    score: i8,
    again_us: u64,
    /// Until this time the path counts as alone.
    clear_until_us: u64,
}

#[derive(Clone, Copy, Debug)]
struct Trial {
    path: u16,
    hold_bytes_per_s: u64,
    before: u64,
    others_before: u64,
    measures_from_us: u64,
    ends_us: u64,
    us: u64,
    bytes: u64,
    others_bytes: u64,
}

impl Bottlenecks {
    pub(super) fn on_sample(&mut self, at_us: u64, seen: &[Seen]) -> Option<Decision> {
        self.at_us = at_us;
        self.remember(seen);
        if let Some(trial) = self.trial {
            return self.try_on(trial, seen);
        }
        let due = self.resting.iter().find(|(_, until_us)| at_us >= **until_us).map(|(path, _)| *path);
        if let Some(path) = due {
            self.resting.remove(&path);
            let settles_us = self.histories.values().map(History::rtt_us).max().unwrap_or(0) * RAMP_ROUND_TRIPS;
            let suspect = self.suspects.entry(path).or_default();
            // After a shared bottleneck one more trial is enough.
            (suspect.score, suspect.again_us) = (TRIALS - 1, at_us.saturating_add(settles_us.max(RAMP_US)));
            return Some(Decision::Retry(path));
        }
        if let Some(path) = self.suspect() {
            self.begin(path);
        }
        None
    }

    pub(super) fn held(&self, path: u16) -> Option<Held> {
        let trial = self.trial?;
        Some(if trial.path == path { Held::Back(trial.hold_bytes_per_s) } else { Held::Up(trial.before) })
    }

    /// Drops a trial that says nothing any more.
    pub(super) fn forget(&mut self, path: u16) {
        self.histories.remove(&path);
        self.resting.remove(&path);
        self.trial = None;
    }

    fn remember(&mut self, seen: &[Seen]) {
        self.histories.retain(|path, _| seen.iter().any(|seen| seen.path == *path));
        for seen in seen {
            if !self.histories.contains_key(&seen.path) {
                self.histories.insert(seen.path, History { steps: VecDeque::new(), since_us: self.at_us });
            }
            if let Some(history) = self.histories.get_mut(&seen.path) {
                if history.steps.len() == STEPS_KEPT {
                    history.steps.pop_front();
                }
                history.steps.push_back(*seen);
            }
        }
    }

    /// Rate of the other paths together; `None`: no other, or a young one.
    fn others(&self, path: u16, span_us: u64) -> Option<u64> {
        let mut others = self.histories.iter().filter(|(other, _)| **other != path).peekable();
        others.peek()?;
        others.try_fold(0u64, |sum, (_, history)| Some(sum.saturating_add(history.rate(span_us)?)))
    }

    fn suspect(&self) -> Option<u16> {
        let again = |(path, suspect): (&u16, &Suspect)| {
            let is_due = suspect.score != 0 && self.at_us >= suspect.again_us && self.may_try();
            is_due.then_some(*path)
        };
        let again = self.suspects.iter().find_map(again);
        let mut pairs = self.histories.iter().flat_map(|(one, history)| {
            let others = self.histories.iter().filter(move |(other, _)| *other > one);
            others.map(move |(other, of_other)| ((*one, history), (*other, of_other)))
        });
        let shares = |((one, history), (other, of_other)): ((u16, &History), (u16, &History))| {
            let slower = if history.rate(BEFORE_US)? < of_other.rate(BEFORE_US)? { one } else { other };
            let is_old = history.is_settled(self.at_us) && of_other.is_settled(self.at_us);
            let are_open = !self.is_clear(one) && !self.is_clear(other) && self.may_try();
            (is_old && are_open && history.sees_queue_of(of_other)).then_some(slower)
        };
        again.or_else(|| pairs.find_map(shares))
    }

    fn is_clear(&self, path: u16) -> bool {
        self.suspects.get(&path).is_some_and(|suspect| self.at_us < suspect.clear_until_us)
    }

    fn may_try(&self) -> bool {
        let starves = |history: &History| history.steps.iter().rev().take(STARVES_STEPS).any(|seen| seen.starves);
        let is_steady = self.histories.values().all(History::has_same_lanes);
        is_steady && !self.histories.values().any(starves)
    }

    fn begin(&mut self, path: u16) {
        let Some(history) = self.histories.get(&path) else { return };
        let rtt_us = self.histories.values().map(History::rtt_us).max().unwrap_or(0);
        if rtt_us > TRIAL_RTT_US_MOST {
            return;
        }
        let before_us = BEFORE_US.max(BEFORE_ROUND_TRIPS * rtt_us);
        let (Some(before), Some(others_before)) = (history.rate(before_us), self.others(path, before_us)) else {
            return;
        };
        let hold_bytes_per_s = if history.remembers_rate() { before / 2 } else { 1 };
        // First bytes under way arrive; a round trip later others have the place.
        let measures_from_us = self.at_us.saturating_add(history.rtt_us() + rtt_us + SAMPLE_US / 2);
        let ends_us = measures_from_us.saturating_add(MEASURE_US.max(MEASURE_ROUND_TRIPS * rtt_us));
        let (us, bytes, others_bytes) = (0, 0, 0);
        let trial =
            Trial { path, hold_bytes_per_s, before, others_before, measures_from_us, ends_us, us, bytes, others_bytes };
        self.trial = Some(trial);
    }

    fn try_on(&mut self, mut trial: Trial, seen: &[Seen]) -> Option<Decision> {
        let us = seen.iter().map(|seen| seen.us).max().unwrap_or(0);
        if self.at_us.saturating_sub(us) >= trial.measures_from_us {
            trial.us = trial.us.saturating_add(us);
            for seen in seen {
                let bytes = if seen.path == trial.path { &mut trial.bytes } else { &mut trial.others_bytes };
                *bytes = bytes.saturating_add(seen.bytes);
            }
        }
        if self.at_us < trial.ends_us || trial.us == 0 {
            self.trial = Some(trial);
            return None;
        }
        self.trial = None;
        self.histories.values_mut().for_each(|history| history.steps.clear());
        self.judge(trial)
    }

    fn judge(&mut self, trial: Trial) -> Option<Decision> {
        let freed = trial.before.saturating_sub(per_second(trial.bytes, trial.us));
        let taken = per_second(trial.others_bytes, trial.us).saturating_sub(trial.others_before);
        let is_shared = freed > 0 && taken as f64 >= TAKEN * freed as f64;
        let verdict = Verdict { path: trial.path, freed_bytes_per_s: freed, taken_bytes_per_s: taken, is_shared };
        self.last_verdict = Some(verdict);
        let nothing_taken = (taken as f64) < NOTHING * freed as f64;
        let at_us = self.at_us;
        let suspect = self.suspects.entry(trial.path).or_default();
        suspect.again_us = at_us.saturating_add(AGAIN_US);
        suspect.score += if is_shared { 1 } else { -1 };
        if nothing_taken || suspect.score <= -TRIALS {
            (suspect.score, suspect.clear_until_us) = (0, at_us.saturating_add(CLEAR_US));
        }
        if suspect.score < TRIALS {
            return None;
        }
        suspect.score = 0;
        self.resting.insert(trial.path, at_us.saturating_add(REST_US));
        self.histories.remove(&trial.path);
        Some(Decision::Rest(trial.path))
    }
}

impl History {
    fn rate(&self, span_us: u64) -> Option<u64> {
        let (mut us, mut bytes) = (0u64, 0u64);
        for seen in self.steps.iter().rev() {
            (us, bytes) = (us.saturating_add(seen.us), bytes.saturating_add(seen.bytes));
            if us >= span_us {
                return Some(per_second(bytes, us));
            }
        }
        None
    }

    fn rtt_us(&self) -> u64 {
        self.steps.back().map_or(0, |seen| u64::from(seen.rtt_us))
    }

    fn is_settled(&self, at_us: u64) -> bool {
        let look_us = LOOK_US.max(LOOK_ROUND_TRIPS * self.rtt_us());
        at_us.saturating_sub(self.since_us) >= look_us + RAMP_US.max(RAMP_ROUND_TRIPS * self.rtt_us())
    }

    fn has_same_lanes(&self) -> bool {
        let lately = self.steps.iter().rev().take(SAME_LANES_STEPS);
        let lanes = self.steps.back().map(|seen| seen.lanes);
        lately.map(|seen| Some(seen.lanes)).all(|of_step| of_step == lanes)
    }

    fn remembers_rate(&self) -> bool {
        self.steps.back().is_some_and(|seen| seen.remembers_rate)
    }

    fn sees_queue_of(&self, other: &History) -> bool {
        let span_us = LOOK_US.max(LOOK_ROUND_TRIPS * self.rtt_us().max(other.rtt_us()));
        let count = usize::try_from(span_us / SAMPLE_US).unwrap_or(STEPS_KEPT).min(STEPS_KEPT);
        let last = |history: &History| history.steps.len().checked_sub(count);
        let (Some(from), Some(of_other)) = (last(self), last(other)) else { return false };
        let delays = self.steps.range(from..).zip(other.steps.range(of_other..));
        let delays: Vec<(u32, u32)> = delays.map(|(one, other)| (one.queueing_us, other.queueing_us)).collect();
        queues::are_one(&delays)
    }
}

/// At 100 ms each: ten round trips of 600 ms.
const STEPS_KEPT: usize = 64;
/// Doubled, the rate falls 7.1 % (one link).
const LOOK_US: u64 = 3_000_000;
/// A queue changes within a few round trips.
const LOOK_ROUND_TRIPS: u64 = 10;
/// Two ramps look alike. Doubled, the scenario `a_foreign_flow_keeps_against_two_paths_what_it_keeps_against_one` fails.
const RAMP_US: u64 = 1_000_000;
/// Slow start fills a path in so many.
const RAMP_ROUND_TRIPS: u64 = 8;
/// A rate is the source's for so long after a wait.
const STARVES_STEPS: usize = 3;
/// Rates settle within a second. Doubled, the rate falls 4.4 % (one link).
const SAME_LANES_STEPS: usize = 15;
/// Longer trials would take five seconds.
const TRIAL_RTT_US_MOST: u64 = 1_000_000;
/// Doubled, the rate falls 3.1 % (one link).
const BEFORE_US: u64 = 1_000_000;
/// Rates differ between round trips.
const BEFORE_ROUND_TRIPS: u64 = 4;
/// Doubled, no path rests (one link).
const MEASURE_US: u64 = 200_000;
/// Doubled, no path rests (one link).
const MEASURE_ROUND_TRIPS: u64 = 2;
/// Beside one flow of others and two of ours, ours takes half.
const TAKEN: f64 = 0.25;
/// A smaller rate counts as none.
const NOTHING: f64 = 0.05;
/// Rates change by chance. Doubled, others keep 4.7 points less (three, of which two meet, and a cubic flow).
const TRIALS: i8 = 2;
/// Doubled, the rate falls 3.6 % (one link).
const AGAIN_US: u64 = 1_000_000;
/// A trial of 0.4 s each 20 s costs 2 %.
const CLEAR_US: u64 = 20_000_000;
/// Doubled, the scenario `a_path_that_rests_is_tried_again_and_soon_rests_again` fails.
const REST_US: u64 = 60_000_000;
