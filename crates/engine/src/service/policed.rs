//! Whether a path polices the mark: lets so much of it through, and drops the rest.
//!
//! ```text
//!   all lanes are marked: packets are lost, and no queue stands   -> the mark is taken off for a moment
//!     they were lost, and the lanes found a limit a while ago     -> the same
//!     losses stay                                                 -> the path loses packets, whatever their mark
//!     losses end, and more gets through                           -> policed: the mark harms, and goes
//!     losses end, and no more gets through                        -> policed: others want the rest, and the mark stays
//!     far less gets through                                       -> the mark stays
//! ```
//! A router out of room lets its queue grow first; a policer drops at once (RFC 3246 demands one for EF).

use alloc::vec::Vec;

use crate::path::LaneReading;

use super::ServiceClass;
use super::policy::Policy;
use super::reading::{Allowance, Reading};
use super::said::{Policing, Said};

/// Watches the marked lanes of a path. Its finding holds for the session.
#[derive(Clone, Debug, Default)]
pub struct Policed {
    state: State,
    before: Totals,
    trials: u8,
    /// The fastest window with losses.
    lost: Option<Window>,
    /// When the lanes first kept to a limit.
    kept_since_us: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    New,
    /// Windows in a row with losses and no queue.
    Watches {
        since_us: u64,
        windows: u8,
    },
    /// Without the mark; `with_mark` is from before.
    Trial {
        begun_us: u64,
        since_us: Option<u64>,
        with_mark: Window,
    },
    Known(Policing),
    Over,
}

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    arrived_bytes: u64,
    lost_bytes: u64,
    span_us: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    lanes: usize,
    arrived_bytes: u64,
    lost_bytes: u64,
}

impl Policed {
    /// Takes a reading of lanes, marked as [`Policed::is_trial`] says. `keeps_to_limit`: they send only what passes. True once,
    /// when known.
    pub fn watch_marked(&mut self, at_us: u64, lanes: &[LaneReading], keeps_to_limit: bool) -> bool {
        let now = Totals::of(lanes);
        match self.state {
            State::New => self.watch(at_us, now, 0),
            State::Watches { since_us, windows } => {
                if keeps_to_limit {
                    self.kept_since_us.get_or_insert(at_us);
                }
                self.watches(at_us, now, lanes, since_us, windows);
            }
            State::Trial { begun_us, since_us: None, with_mark } => {
                // The first round trips repeat losses of before.
                if at_us.saturating_sub(begun_us) >= SETTLES_US.max(SETTLES_ROUND_TRIPS * rtt_us(lanes)) {
                    self.before = now;
                    self.state = State::Trial { begun_us, since_us: Some(at_us), with_mark };
                }
            }
            State::Trial { begun_us, since_us: Some(since_us), with_mark } => {
                let is_over = at_us.saturating_sub(begun_us) >= TRIAL_US_MAX.max(GROWS_ROUND_TRIPS * rtt_us(lanes));
                match now.since(self.before, at_us.saturating_sub(since_us)) {
                    Some(without) => return self.tries(at_us, now, lanes, with_mark, without, is_over),
                    None if is_over => self.again(at_us, now),
                    None => {
                        self.before = now;
                        self.state = State::Trial { begun_us, since_us: Some(at_us), with_mark };
                    }
                }
            }
            State::Known(_) | State::Over => {}
        }
        false
    }

    /// Whether the mark is off for a moment.
    pub fn is_trial(&self) -> bool {
        matches!(self.state, State::Trial { .. })
    }

    /// Pauses the watch of unmarked lanes.
    pub fn rests(&mut self) {
        if !matches!(self.state, State::Known(_) | State::Over) {
            self.state = State::New;
        }
    }

    /// The policer that was found.
    pub fn found(&self) -> Option<Policing> {
        if let State::Known(policing) = self.state { Some(policing) } else { None }
    }

    /// Whether the mark lets less through.
    pub fn harms(&self) -> bool {
        self.found().is_some_and(|policing| policing.harms)
    }

    fn watch(&mut self, at_us: u64, now: Totals, windows: u8) {
        self.before = now;
        self.state = State::Watches { since_us: at_us, windows };
    }

    fn watches(&mut self, at_us: u64, now: Totals, lanes: &[LaneReading], since_us: u64, windows: u8) {
        let span_us = at_us.saturating_sub(since_us);
        if span_us < WINDOW_US.max(WINDOW_ROUND_TRIPS * rtt_us(lanes)) {
            return;
        }
        let Some(window) = now.since(self.before, span_us) else { return self.watch(at_us, now, 0) };
        if window.loses(LOST_PART) && self.lost.is_none_or(|lost| window.rate() >= lost.rate()) {
            self.lost = Some(window);
        }
        if let (Some(kept_since_us), Some(lost)) = (self.kept_since_us, self.lost) {
            let is_due = at_us.saturating_sub(kept_since_us) >= KEPT_US && self.trials < TRIALS;
            return if is_due { self.try_without(at_us, lost) } else { self.watch(at_us, now, 0) };
        }
        if !window.loses(LOST_PART) || queue_stands(lanes) {
            return self.watch(at_us, now, 0);
        }
        if windows + 1 < WINDOWS {
            return self.watch(at_us, now, windows + 1);
        }
        self.try_without(at_us, window);
    }

    fn try_without(&mut self, at_us: u64, with_mark: Window) {
        self.trials += 1;
        self.kept_since_us = None;
        self.state = State::Trial { begun_us: at_us, since_us: None, with_mark };
    }

    fn tries(
        &mut self,
        at_us: u64,
        now: Totals,
        lanes: &[LaneReading],
        with_mark: Window,
        without: Window,
        is_over: bool,
    ) -> bool {
        let would_lose = u128::from(without.arrived_bytes) * u128::from(with_mark.lost_bytes)
            / u128::from(with_mark.arrived_bytes.max(1));
        let mss_bytes = lanes.iter().map(|lane| u64::from(lane.mss_bytes)).max().unwrap_or(0).max(1);
        let says_enough = would_lose >= u128::from(CERTAIN_SEGMENTS * mss_bytes);
        let window_us = WINDOW_US.max(WINDOW_ROUND_TRIPS * rtt_us(lanes));
        if without.span_us >= window_us / 2 && without.rate() < with_mark.rate() / 100 * FAR_LESS_PERCENT {
            // Beside others the mark gains, policed or not.
            self.state = State::Over;
            return false;
        }
        if without.span_us < window_us || !(says_enough || is_over) {
            return false;
        }
        let lost = u128::from(without.lost_bytes);
        // Twice as much through may lose some in a queue of its own.
        let is_much_more = without.rate() / 2 > with_mark.rate();
        let is_policed = lost * FEWER_LOSSES <= would_lose || (is_much_more && lost <= would_lose);
        if !says_enough || !is_policed {
            self.again(at_us, now);
            return false;
        }
        let harms = without.rate() > with_mark.rate() / 100 * MORE_PERCENT;
        if !harms && !is_over && !others_want_the_rest(lanes, without) {
            return false;
        }
        self.state = State::Known(Policing { bytes_per_s: with_mark.rate(), harms });
        true
    }

    /// Begins again: others may have caused the losses.
    fn again(&mut self, at_us: u64, now: Totals) {
        if self.trials < TRIALS {
            self.watch(at_us, now, 0);
        } else {
            self.state = State::Over;
        }
    }
}

impl Policy for Policed {
    fn on_sample(&mut self, reading: &Reading<'_>, allowance: Allowance, say: &mut Vec<Said>) -> Allowance {
        if self.harms() {
            return allowance.without_mark();
        }
        let is_marked = allowance.marked > 0 && allowance.class == ServiceClass::Priority;
        if !is_marked || !reading.may_mark(allowance.class) || reading.is_moving {
            self.rests();
            return allowance;
        }
        if self.watch_marked(reading.at_us, reading.lanes, reading.estimate.is_limited) {
            say.extend(self.found().map(Said::Policed));
        }
        match () {
            () if self.is_trial() => Allowance { marked: 0, ..allowance },
            () if self.harms() => allowance.without_mark(),
            () => allowance,
        }
    }
}

impl Totals {
    fn of(lanes: &[LaneReading]) -> Self {
        let sum = |of: fn(&LaneReading) -> u64| lanes.iter().map(of).fold(0, u64::saturating_add);
        Self {
            lanes: lanes.len(),
            arrived_bytes: sum(|lane| lane.acked_bytes),
            lost_bytes: sum(|lane| lane.resent_bytes.saturating_sub(lane.resent_in_vain_bytes)),
        }
    }

    /// `None`: other lanes came or went.
    fn since(self, before: Self, span_us: u64) -> Option<Window> {
        let is_same = self.lanes == before.lanes && self.arrived_bytes >= before.arrived_bytes;
        is_same.then(|| Window {
            arrived_bytes: self.arrived_bytes - before.arrived_bytes,
            lost_bytes: self.lost_bytes.saturating_sub(before.lost_bytes),
            span_us,
        })
    }
}

impl Window {
    fn loses(self, part: u64) -> bool {
        self.lost_bytes > 0 && self.lost_bytes >= self.arrived_bytes / part
    }

    fn rate(self) -> u64 {
        let rate = u128::from(self.arrived_bytes) * 1_000_000 / u128::from(self.span_us.max(1));
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}

fn rtt_us(lanes: &[LaneReading]) -> u64 {
    lanes.iter().map(|lane| u64::from(lane.rtt_us)).max().unwrap_or(0)
}

/// Without losses and without a queue the lanes may only not have grown yet.
fn others_want_the_rest(lanes: &[LaneReading], without: Window) -> bool {
    without.loses(LOST_PART) || queue_stands(lanes)
}

fn queue_stands(lanes: &[LaneReading]) -> bool {
    let least_us = lanes.iter().map(|lane| u64::from(lane.rtt_min_us)).filter(|us| *us > 0).min().unwrap_or(0);
    let seen = lanes.iter().map(|lane| u64::from(lane.rtt_us)).filter(|us| *us > 0);
    let (sum, count) = seen.fold((0, 0), |(sum, count), us| (sum + us, count + 1));
    count > 0 && sum / count > least_us + (least_us / 4).max(QUEUE_US)
}

const WINDOW_US: u64 = 1_000_000;
/// A loss shows a round trip later.
const WINDOW_ROUND_TRIPS: u64 = 10;

/// A start has losses of its own.
const WINDOWS: u8 = 2;

/// At 10 Mbit/s and 50 ms one cubic connection loses one in 1,000, four one in 70.
const LOST_PART: u64 = 500;

/// A shorter queue is one of bursts.
const QUEUE_US: u64 = 5_000;

/// Segments that the mark would lose in the trial: of 12, chance leaves 3 or fewer in 1 case of 400.
const CERTAIN_SEGMENTS: u64 = 12;
/// By chance a quarter stays in 1 case of 400.
const FEWER_LOSSES: u128 = 4;

const SETTLES_US: u64 = 300_000;
/// Five round trips find and repair earlier losses.
const SETTLES_ROUND_TRIPS: u64 = 5;

const TRIAL_US_MAX: u64 = 4_000_000;
/// bbr that met a policer keeps to its rate for 48 round trips (`bbr_lt_bw_max_rtts` in Linux), and then probes once in eight.
const GROWS_ROUND_TRIPS: u64 = 80;

/// Further trials would only cost.
const TRIALS: u8 = 2;

/// Lanes that keep to a limit lose nothing, and a trial costs a second: it can wait.
const KEPT_US: u64 = 4_000_000;

/// Half of the rate shows others: single seconds differ by less.
const FAR_LESS_PERCENT: u64 = 50;

/// Rates differ by less from second to second.
const MORE_PERCENT: u64 = 110;

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1_448;

    /// Bytes per second and losses per million, with the mark and without.
    struct Path {
        with_mark: (u64, u64),
        without: (u64, u64),
        rtt_us: u32,
    }

    impl Path {
        /// Sends for half a minute. Returns when it was known, and how long the mark was off, in seconds.
        fn runs(&self, watch: &mut Policed) -> (Option<f64>, f64) {
            let (mut arrived, mut lost, mut off_s) = (0, 0, 0.0);
            for tenth in 0..300 {
                let (rate, loss_ppm) = if watch.is_trial() { self.without } else { self.with_mark };
                off_s += if watch.is_trial() { 0.1 } else { 0.0 };
                arrived += rate / 10;
                lost += rate / 10 * loss_ppm / 1_000_000;
                let lane = |number| LaneReading {
                    lane: number,
                    acked_bytes: arrived / 4,
                    resent_bytes: lost / 4 / MSS * MSS,
                    rtt_us: self.rtt_us,
                    rtt_min_us: 20_000,
                    mss_bytes: 1_448,
                    ..LaneReading::default()
                };
                if watch.watch_marked(tenth * 100_000, &[lane(0), lane(1), lane(2), lane(3)], false) {
                    return (Some(tenth as f64 / 10.0), off_s);
                }
            }
            (None, off_s)
        }
    }

    /// Without losses since the second second, when lanes found a limit.
    fn runs_limited(with_mark: (u64, u64), without: (u64, u64)) -> (Policed, f64) {
        let (mut watch, mut arrived, mut lost, mut off_s) = (Policed::default(), 0, 0, 0.0);
        for tenth in 0..300 {
            let is_limited = tenth > 20 && !watch.is_trial();
            let (rate, loss_ppm) = match (watch.is_trial(), is_limited) {
                (true, _) => without,
                (false, true) => (with_mark.0, 0),
                (false, false) => with_mark,
            };
            off_s += if watch.is_trial() { 0.1 } else { 0.0 };
            arrived += rate / 10;
            lost += rate / 10 * loss_ppm / 1_000_000;
            let lane = LaneReading {
                acked_bytes: arrived,
                resent_bytes: lost,
                rtt_us: 29_000,
                rtt_min_us: 20_000,
                mss_bytes: 1_448,
                ..LaneReading::default()
            };
            watch.watch_marked(tenth * 100_000, &[lane], is_limited);
        }
        (watch, off_s)
    }

    const TEN: u64 = 1_250_000;

    #[test]
    fn a_policer_is_known_by_losses_that_end_without_the_mark() {
        let mut watch = Policed::default();
        let path = Path { with_mark: (TEN, 20_000), without: (9 * TEN, 0), rtt_us: 21_000 };
        let (known_s, off_s) = path.runs(&mut watch);
        assert!(known_s.is_some_and(|known_s| known_s < 5.0) && off_s < 2.0, "{known_s:?} {off_s}");
        assert_eq!(watch.found(), Some(Policing { bytes_per_s: TEN, harms: true }));
    }

    #[test]
    fn a_mark_that_harms_is_found_by_lanes_that_keep_to_its_limit_too() {
        let (watch, off_s) = runs_limited((TEN, 20_000), (9 * TEN, 0));
        assert!(watch.harms() && off_s < 2.0, "{watch:?} {off_s}");
        let (watch, off_s) = runs_limited((2 * TEN, 200_000), (TEN / 2, 300_000));
        assert!(watch.found().is_none() && off_s < 2.0, "the mark gains: {watch:?} {off_s}");
        let (watch, off_s) = runs_limited((TEN, 0), (TEN, 0));
        assert!(watch.found().is_none() && off_s == 0.0, "nothing was lost: {watch:?}");
    }

    /// bbr kept to the policer's rate for a second of the trial, and was judged by it.
    #[test]
    fn lanes_that_have_not_grown_yet_are_no_sign_of_others() {
        let (mut watch, mut arrived, mut lost, mut off) = (Policed::default(), 0, 0, 0);
        let known = (0..300).find(|tenth| {
            let rate = if off > 14 { 4 * TEN } else { TEN };
            (arrived, off) = (arrived + rate / 10, off + u64::from(watch.is_trial()));
            lost += if watch.is_trial() { 0 } else { rate / 50 };
            let lane = LaneReading {
                acked_bytes: arrived,
                resent_bytes: lost,
                rtt_us: 21_000,
                rtt_min_us: 20_000,
                mss_bytes: 1_448,
                ..LaneReading::default()
            };
            watch.watch_marked(tenth * 100_000, &[lane], false)
        });
        assert!(known.is_some() && watch.harms(), "{known:?} {watch:?}");
    }

    #[test]
    fn a_mark_that_gains_beside_others_stays_and_its_policer_is_named() {
        let mut watch = Policed::default();
        let path = Path { with_mark: (TEN, 20_000), without: (TEN / 2, 1_000), rtt_us: 21_000 };
        assert!(path.runs(&mut watch).0.is_some());
        assert!(!watch.harms() && watch.found().is_some());
    }

    #[test]
    fn a_path_that_loses_packets_whatever_their_mark_is_tried_twice_and_left_alone() {
        let mut watch = Policed::default();
        let path = Path { with_mark: (TEN, 10_000), without: (TEN, 10_000), rtt_us: 21_000 };
        let (known_s, off_s) = path.runs(&mut watch);
        assert!(known_s.is_none() && off_s < 6.0, "{off_s}");
    }

    #[test]
    fn losses_of_a_full_queue_and_a_path_without_losses_are_no_reason_for_a_trial() {
        for (loss_ppm, rtt_us) in [(20_000, 60_000), (0, 21_000), (100, 21_000)] {
            let path = Path { with_mark: (TEN, loss_ppm), without: (TEN, 0), rtt_us };
            assert_eq!(path.runs(&mut Policed::default()), (None, 0.0));
        }
    }
}
