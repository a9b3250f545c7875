//! Whether a path adds capacity. If two paths share a bottleneck, one of them rests: both together carry no more than one, and take the
//! share of two from the flows of others.
//!
//! ```text
//!   suspicion  two paths see one queue, or the sum of the rates did not grow when a path joined
//!   trial      one of the two sends next to nothing for a few round trips   the others deliver more: again, then it rests
//!                                                                         they do not: it is clear for a while
//!   rest       later it carries data again, and is judged as if it was new
//! ```
//! Paths whose queues are empty are left alone, whatever they share: they take nothing from anybody.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::queues;

/// A path at one sample. Rates are in bytes per second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) path: u16,
    pub(super) us: u64,
    pub(super) bytes: u64,
    pub(super) rtt_us: u32,
    pub(super) queueing_us: u32,
    /// The path waits for its source, or for the limit of the user.
    pub(super) starves: bool,
    /// Lanes that carry data.
    pub(super) lanes: u16,
    /// The lanes measure the rate of the path and keep to it (bbr). After a pause they would be slow for long.
    pub(super) remembers_rate: bool,
}

/// The action that follows from a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// The lanes of the path get no units.
    Rest(u16),
    /// The lanes get units again, to see whether the path adds capacity now.
    Retry(u16),
}

/// How a path is held during a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// To so many bytes per second.
    Back(u64),
    /// The path may take this many bytes per second more than before.
    Up(u64),
}

/// The result of a trial, in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The path that was held back.
    pub path: u16,
    /// The rate that the path lost in the trial.
    pub freed_bytes_per_s: u64,
    /// The rate that the others gained.
    pub taken_bytes_per_s: u64,
    /// The others took so much of it that the paths share a bottleneck.
    pub is_shared: bool,
}

/// All paths that carry data.
#[derive(Clone, Debug, Default)]
pub(super) struct Bottlenecks {
    at_us: u64,
    histories: BTreeMap<u16, History>,
    suspects: BTreeMap<u16, Suspect>,
    trial: Option<Trial>,
    resting: BTreeMap<u16, u64>,
    pub(super) last_verdict: Option<Verdict>,
}

/// The recent past of a path.
#[derive(Clone, Debug)]
struct History {
    steps: VecDeque<Seen>,
    /// The path carries data since then.
    since_us: u64,
    /// The rate that the others delivered before; 0 when they had only begun.
    others_before: u64,
}

/// The suspicion against a path.
#[derive(Clone, Copy, Debug, Default)]
struct Suspect {
    /// Trials that showed a shared bottleneck, less the trials that showed none. The next trial comes at this time.
    score: i8,
    again_us: u64,
    /// Until then the path counts as one with a bottleneck of its own.
    clear_until_us: u64,
    /// The time for which the next verdict that clears it holds.
    clear_us: u64,
    /// The length of the next rest.
    rest_us: u64,
}

#[derive(Clone, Copy, Debug)]
struct Trial {
    path: u16,
    hold_bytes_per_s: u64,
    before: u64,
    others_before: u64,
    measures_from_us: u64,
    ends_us: u64,
    /// Delivered since the measuring began.
    us: u64,
    bytes: u64,
    others_bytes: u64,
}

impl Bottlenecks {
    /// Takes a sample of the paths that carry data in.
    pub(super) fn on_sample(&mut self, at_us: u64, seen: &[Seen]) -> Option<Decision> {
        self.at_us = at_us;
        self.remember(seen);
        if let Some(trial) = self.trial {
            return self.try_on(trial, seen);
        }
        let due = self.resting.iter().find(|(_, until_us)| at_us >= **until_us).map(|(path, _)| *path);
        if let Some(path) = due {
            self.resting.remove(&path);
            let settles_us = self.histories.values().map(History::rtt_us).max().unwrap_or(0) * JOIN_SETTLES_ROUND_TRIPS;
            let suspect = self.suspects.entry(path).or_default();
            // The path shared a bottleneck before, so one more trial is enough.
            (suspect.score, suspect.again_us) = (TRIALS - 1, at_us.saturating_add(settles_us.max(JOIN_SETTLES_US)));
            return Some(Decision::Retry(path));
        }
        if let Some(path) = self.suspect() {
            self.begin(path);
        }
        None
    }

    /// How this path is held now, for a trial.
    pub(super) fn held(&self, path: u16) -> Option<Held> {
        let trial = self.trial?;
        Some(if trial.path == path { Held::Back(trial.hold_bytes_per_s) } else { Held::Up(trial.before) })
    }

    /// A path is down, or something else made it carry data again. A trial says nothing any more.
    pub(super) fn forget(&mut self, path: u16) {
        self.histories.remove(&path);
        self.resting.remove(&path);
        self.trial = None;
    }

    fn remember(&mut self, seen: &[Seen]) {
        self.histories.retain(|path, _| seen.iter().any(|seen| seen.path == *path));
        for seen in seen {
            if !self.histories.contains_key(&seen.path) {
                let others_before = self.others(seen.path, JOIN_US).unwrap_or(0);
                let history = History { steps: VecDeque::new(), since_us: self.at_us, others_before };
                self.histories.insert(seen.path, history);
            }
            if let Some(history) = self.histories.get_mut(&seen.path) {
                if history.steps.len() == STEPS_KEPT {
                    history.steps.pop_front();
                }
                history.steps.push_back(*seen);
            }
        }
    }

    /// Mean rate of all other paths together over so long. `None` if there is no other path, or one of them is younger.
    fn others(&self, path: u16, span_us: u64) -> Option<u64> {
        let mut others = self.histories.iter().filter(|(other, _)| **other != path).peekable();
        others.peek()?;
        others.try_fold(0u64, |sum, (_, history)| Some(sum.saturating_add(history.rate(span_us)?)))
    }

    /// The path that a trial shall hold back.
    fn suspect(&self) -> Option<u16> {
        let again = |(path, suspect): (&u16, &Suspect)| {
            let is_due = suspect.score != 0 && self.at_us >= suspect.again_us && self.may_try(*path);
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
            let are_open = !self.is_clear(one) && !self.is_clear(other) && self.may_try(slower);
            (is_old && are_open && history.sees_queue_of(of_other)).then_some(slower)
        };
        let in_vain = |path: &u16| !self.is_clear(*path) && self.joined_in_vain(*path) && self.may_try(*path);
        again.or_else(|| pairs.find_map(shares)).or_else(|| self.histories.keys().copied().find(in_vain))
    }

    fn is_clear(&self, path: u16) -> bool {
        self.suspects.get(&path).is_some_and(|suspect| self.at_us < suspect.clear_until_us)
    }

    /// Whether a trial of this path would tell something.
    fn may_try(&self, path: u16) -> bool {
        let starves = |history: &History| history.steps.iter().rev().take(STARVES_STEPS).any(|seen| seen.starves);
        let rate = self.histories.get(&path).and_then(|history| history.rate(BEFORE_US));
        let counts =
            rate.zip(self.others(path, BEFORE_US)).is_some_and(|(rate, others)| rate as f64 >= SMALL * others as f64);
        let is_steady = self.histories.values().all(History::has_same_lanes);
        counts && is_steady && !self.histories.values().any(starves)
    }

    /// The path joined when the others had found their rate, and the sum of the rates hardly grew.
    fn joined_in_vain(&self, path: u16) -> bool {
        let Some(history) = self.histories.get(&path) else { return false };
        let age_us = self.at_us.saturating_sub(history.since_us);
        let settled_us = JOIN_SETTLES_US.max(JOIN_SETTLES_ROUND_TRIPS * history.rtt_us());
        let is_time = (settled_us..settled_us + JOIN_US).contains(&age_us);
        let sum =
            history.rate(JOIN_US).zip(self.others(path, JOIN_US)).map(|(rate, others)| rate.saturating_add(others));
        let before = history.others_before;
        is_time && before > 0 && sum.is_some_and(|sum| (sum as f64) < JOIN_GAINS * before as f64)
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
        // First the bytes arrive that are under way. A round trip later the others have taken the place.
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
        // The rates and delays of the trial are not those of usual work.
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
            // If the path shared a bottleneck before, the next look comes soon.
            let least_us = if suspect.rest_us > 0 { CLEAR_US_MIN / 4 } else { CLEAR_US_MIN };
            suspect.clear_us = (2 * suspect.clear_us).clamp(least_us, CLEAR_US_MAX);
            (suspect.score, suspect.clear_until_us) = (0, at_us.saturating_add(suspect.clear_us));
        }
        if suspect.score < TRIALS {
            return None;
        }
        suspect.rest_us = (2 * suspect.rest_us).clamp(REST_US_MIN, REST_US_MAX);
        (suspect.score, suspect.clear_us) = (0, 0);
        let rest_us = suspect.rest_us;
        self.resting.insert(trial.path, at_us.saturating_add(rest_us));
        self.histories.remove(&trial.path);
        Some(Decision::Rest(trial.path))
    }
}

impl History {
    /// Mean over so long; `None` while it is younger.
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

    /// The lanes no longer double.
    fn is_settled(&self, at_us: u64) -> bool {
        let look_us = LOOK_US.max(LOOK_ROUND_TRIPS * self.rtt_us());
        at_us.saturating_sub(self.since_us) >= look_us + RAMP_US.max(RAMP_ROUND_TRIPS * self.rtt_us())
    }

    /// A change of the number of lanes changes the rates, too.
    fn has_same_lanes(&self) -> bool {
        let lately = self.steps.iter().rev().take(SAME_LANES_STEPS);
        let lanes = self.steps.back().map(|seen| seen.lanes);
        lately.map(|seen| Some(seen.lanes)).all(|of_step| of_step == lanes)
    }

    fn remembers_rate(&self) -> bool {
        self.steps.back().is_some_and(|seen| seen.remembers_rate)
    }

    /// Over the last seconds, or ten round trips.
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

fn per_second(bytes: u64, us: u64) -> u64 {
    u64::try_from(u128::from(bytes) * 1_000_000 / u128::from(us.max(1))).unwrap_or(u64::MAX)
}

/// Between two samples.
const SAMPLE_US: u64 = 100_000;
/// Ring of samples: at 100 ms each, ten round trips of 600 ms.
const STEPS_KEPT: usize = 64;
/// Two paths are compared over this time, or so many round trips.
const LOOK_US: u64 = 3_000_000;
const LOOK_ROUND_TRIPS: u64 = 10;
/// The ramps of two paths are alike.
const RAMP_US: u64 = 1_000_000;
const RAMP_ROUND_TRIPS: u64 = 8;
/// If a path waited for its source in one of the last samples, its rate is not its capacity.
const STARVES_STEPS: usize = 3;
/// Samples since the number of lanes changed. The rates settle within a second.
const SAME_LANES_STEPS: usize = 15;
/// Below this share of the rate of the others a trial tells nothing: the rates of the others change by as much by chance. And so slow
/// a path takes little from anybody.
const SMALL: f64 = 0.1;
/// The rate before a path joined, and after.
const JOIN_US: u64 = 1_000_000;
/// Until the lanes of a path have found their rate.
const JOIN_SETTLES_US: u64 = 2_000_000;
const JOIN_SETTLES_ROUND_TRIPS: u64 = 16;
/// A smaller gain is chance.
const JOIN_GAINS: f64 = 1.05;
/// Over a longer round trip a trial would hold a path back for five seconds.
const TRIAL_RTT_US_MOST: u64 = 1_000_000;
/// The rates before a trial.
const BEFORE_US: u64 = 1_000_000;
const BEFORE_ROUND_TRIPS: u64 = 4;
/// The rates in a trial.
const MEASURE_US: u64 = 200_000;
const MEASURE_ROUND_TRIPS: u64 = 2;
/// Share of what a path leaves that the others must take. With one flow of others and two of ours at a bottleneck ours takes half.
const TAKEN: f64 = 0.25;
/// A smaller rate counts as none.
const NOTHING: f64 = 0.05;
/// Rates change by chance, so that so many more trials must show one thing than the other; and the time between.
const TRIALS: i8 = 2;
const AGAIN_US: u64 = 1_000_000;
/// A verdict that clears a path holds so long, then twice as long. A trial of 0.4 s each 20 s costs a path 2 %.
const CLEAR_US_MIN: u64 = 20_000_000;
const CLEAR_US_MAX: u64 = 320_000_000;
/// A rest lasts so long, then twice as long.
const REST_US_MIN: u64 = 60_000_000;
const REST_US_MAX: u64 = 480_000_000;
