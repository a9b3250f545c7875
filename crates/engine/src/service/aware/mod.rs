//! Asks for priority while others take the path away, and gives it back.
//!
//! ```text
//!   Normal   no mark                    a queue stands, and we get less than the path carried for us, or than the floor -> Compare
//!                                       a queue stands, and nobody knows what the path carries                      -> HoldBack
//!   HoldBack no mark, and a little less the queue stays: it is not ours                                             -> Compare
//!                                       it goes: what we get is what the path carries                               -> Normal
//!   Compare  marked beside unmarked     marked lanes are quicker                                                    -> Raised
//!                                       they are not, or nothing of theirs arrives                                  -> GivenUp
//!   Raised   all but a scout marked     the scout meets no queue: the others have gone                              -> Normal
//!                                       the scout cannot tell                                                       -> Trial
//!   Trial    no mark for a moment       the queue does not come back                                                -> Normal
//!                                       it comes back, or many are lost                                             -> Raised
//!   GivenUp  no mark                    for good
//! ```
//! Behind a queue a smaller rate means others, or a slower link; the comparison tells which.
//!
//! One lane, the *scout*, stays unmarked at a small rate in the others' queue: its round trips tell whether they are still there.

mod look;
mod reason;
mod recent;
mod seen;

use alloc::vec::Vec;

use haul_wire::service::MarkEffect;

use crate::path::{Confidence, Estimate, LaneReading, Phase, SOURCE_PERMILLE};
use crate::service::ServiceClass;
use crate::service::policy::Policy;
use crate::service::reading::{Allowance, Grant, Reading};
use crate::service::said::Said;

use look::HoldBack;
pub use reason::{Change, Reason};
use recent::{Recent, Sides, has_data, per_second};
use seen::PACKET_BYTES;
pub use seen::Seen;

/// Most lanes with data while priority is asked for, if there were not more before: a policed path looks lossy, and would have
/// many.
pub const LANES_MOST: u16 = 8;

/// Decides for one path.
#[derive(Clone, Debug)]
pub struct Aware {
    floor_bytes_per_s: Option<u64>,
    state: State,
    effect: MarkEffect,
    raises: u32,
    recent: Recent,
    enough: usize,
    /// Contention before the release tells nothing.
    contention_is_new: bool,
    scout_peak_us: u64,
    /// The scout waits less: worth a trial.
    scout_hopes: bool,
    hopes_from_us: u64,
    /// The path's rate behind a queue of our own.
    proved_bytes_per_s: u64,
    /// The job ends: the scout's data would be the last.
    ends: bool,
    /// Lanes with data in the last reading, and until when less arrives because some are done.
    busy: usize,
    fewer_until_us: u64,
    looks_at_us: u64,
    look_in_us: u64,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Normal { pressed_since_us: Option<u64> },
    HoldBack(HoldBack),
    Compare(Raise),
    Raised { raise: Raise, calm_since_us: Option<u64>, trial_at_us: u64, trial_in_us: u64 },
    Trial(Trial),
    GivenUp,
}

#[derive(Clone, Copy, Debug)]
struct Trial {
    raise: Raise,
    from_us: u64,
    until_us: u64,
    trial_in_us: u64,
    rate_bytes_per_s: u64,
}

#[derive(Clone, Copy, Debug)]
struct Raise {
    at_us: u64,
    rate_bytes_per_s: u64,
    queueing_us: u32,
}

impl Aware {
    /// Begins without a mark. With a floor, only lanes that carry it are marked, below it.
    #[must_use]
    pub fn new(floor_bytes_per_s: Option<u64>) -> Self {
        Self {
            floor_bytes_per_s,
            state: State::Normal { pressed_since_us: None },
            effect: MarkEffect::Unknown,
            raises: 0,
            recent: Recent::default(),
            enough: 0,
            contention_is_new: true,
            scout_peak_us: 0,
            scout_hopes: false,
            hopes_from_us: 0,
            proved_bytes_per_s: 0,
            ends: false,
            busy: 0,
            fewer_until_us: 0,
            looks_at_us: 0,
            look_in_us: LOOK_IN_US,
        }
    }

    /// The class now.
    #[must_use]
    pub fn class(&self) -> ServiceClass {
        match self.state {
            State::Compare(_) | State::Raised { .. } | State::Trial(_) => ServiceClass::Priority,
            State::Normal { .. } | State::HoldBack(_) | State::GivenUp => ServiceClass::Normal,
        }
    }

    /// Most that each lane shall send, perhaps less than two segments a round trip, so that many lanes hold back as well.
    #[must_use]
    pub fn lane_bytes_per_s(&self) -> Option<u64> {
        match self.state {
            State::HoldBack(hold) => Some(hold.lane_bytes_per_s),
            _ => None,
        }
    }

    /// [`Aware::lane_bytes_per_s`] for lanes that get nothing new: unbound, they would keep the queue.
    #[must_use]
    pub fn resting_lane_bytes_per_s(&self) -> Option<u64> {
        matches!(self.state, State::HoldBack(_)).then_some(HELD_LANE_LEAST_BYTES_PER_S)
    }

    /// The number of first lanes with the mark.
    #[must_use]
    pub fn marked_lanes(&self, carrying: usize) -> usize {
        match self.state {
            State::Normal { .. } | State::HoldBack(_) | State::GivenUp | State::Trial(_) => 0,
            State::Compare(_) | State::Raised { .. } => {
                let most = if carrying > 1 && !self.ends { carrying - 1 } else { carrying };
                if self.floor_bytes_per_s.is_some() { self.enough.clamp(1, most.max(1)) } else { most }
            }
        }
    }

    /// True if a lane that gets nothing new has the mark: behind others its rest would be the job's last. A floor marks no more
    /// lanes than carry it.
    #[must_use]
    pub fn marks_resting(&self, lane: &LaneReading) -> bool {
        let is_raised = matches!(self.state, State::Compare(_) | State::Raised { .. });
        is_raised && self.floor_bytes_per_s.is_none() && has_data(lane)
    }

    /// Bound of the marked lanes together, a little above the floor.
    #[must_use]
    pub fn marked_bytes_per_s(&self) -> Option<u64> {
        let floor = self.floor_bytes_per_s?;
        (self.class() == ServiceClass::Priority).then(|| floor / 100 * FLOOR_PERCENT)
    }

    /// The rate of the scout, the last lane.
    #[must_use]
    pub fn scout_bytes_per_s(&self, rate_bytes_per_s: u64) -> Option<u64> {
        let is_watching = matches!(self.state, State::Raised { .. }) && self.floor_bytes_per_s.is_none() && !self.ends;
        is_watching.then(|| (rate_bytes_per_s / SCOUT_PART).max(SCOUT_LEAST_BYTES_PER_S))
    }

    /// The effect of the mark.
    #[must_use]
    pub fn effect(&self) -> MarkEffect {
        self.effect
    }

    /// Counts how often the class was raised.
    #[must_use]
    pub fn raises(&self) -> u32 {
        self.raises
    }

    /// Allows the mark from now on.
    pub fn granted(&mut self, at_us: u64) {
        if let State::Compare(raise) = &mut self.state {
            raise.at_us = at_us;
        }
        self.recent.since_change.clear();
    }

    /// Ends the class: somebody refused it.
    pub fn refused(&mut self) {
        self.state = State::GivenUp;
    }

    /// Takes one reading in. Returns a new class.
    pub fn judge(&mut self, seen: &Seen<'_>) -> Option<Change> {
        let marked = self.marked_lanes(seen.lanes.len());
        self.recent.on_sample(seen, marked);
        self.look_for_end(seen);
        self.contention_is_new |= !seen.estimate.contended;
        if !seen.may_raise && self.class() == ServiceClass::Priority {
            return Some(self.release(Reason::NotAllowed));
        }
        match self.state {
            State::Normal { pressed_since_us } => self.normal(seen, pressed_since_us),
            State::HoldBack(hold) => self.hold_back(seen, hold),
            State::Compare(raise) => self.compare(seen, raise),
            State::Raised { .. } => self.raised(seen),
            State::Trial(trial) => self.trial(seen, trial),
            State::GivenUp => None,
        }
    }

    /// Ended lanes have old round trips.
    fn look_for_end(&mut self, seen: &Seen<'_>) {
        let busy = seen.lanes.iter().filter(|lane| has_data(lane)).count();
        if seen.ends && busy < self.busy {
            let heard_us = u64::from(seen.estimate.rtt_us).saturating_mul(2);
            self.fewer_until_us = seen.at_us.saturating_add(2 * RATE_US + heard_us);
        }
        (self.ends, self.busy) = (seen.ends, busy);
    }

    fn some_are_done(&self, at_us: u64) -> bool {
        at_us < self.fewer_until_us
    }

    fn normal(&mut self, seen: &Seen<'_>, pressed_since_us: Option<u64>) -> Option<Change> {
        let reason = self.pressed(seen).filter(|_| seen.may_raise && !seen.lanes.is_empty());
        let since_us = reason.map(|_| pressed_since_us.unwrap_or(seen.at_us));
        self.state = State::Normal { pressed_since_us: since_us };
        let (Some(reason), Some(since_us)) = (reason, since_us) else {
            self.look_whose_queue(seen);
            return None;
        };
        if seen.at_us.saturating_sub(since_us) < PRESSED_US {
            return None;
        }
        Some(self.raise(seen, reason, self.recent.rate_over(RATE_US)))
    }

    fn look_whose_queue(&mut self, seen: &Seen<'_>) {
        let Seen { at_us, estimate, .. } = *seen;
        if !seen.may_raise || seen.lanes.is_empty() || at_us < self.looks_at_us {
            return;
        }
        // At the start one short reading is enough.
        let resends_many = self.looks_at_us == 0 && self.recent.resends_many_over(RATE_US);
        let before_us = if resends_many { RATE_US / 2 * 3 } else { RATE_US * 2 };
        let Some(rate) = self.recent.rate_over(RATE_US).filter(|_| self.recent.rate_over(before_us).is_some()) else {
            return;
        };
        let queueing_us = self.recent.mean_queue_us(RATE_US);
        let is_less = rate < self.recent.best_bytes_per_s / 100 * TAKEN_PERCENT;
        let is_doubtful = is_less || (estimate.contended && self.contention_is_new);
        let is_known = !is_doubtful && rate <= self.proved_bytes_per_s.saturating_add(self.proved_bytes_per_s / 4);
        let shows = queueing_us >= clear_queue_us(estimate) || resends_many;
        if is_known || self.some_are_done(at_us) || !shows || estimate.source_permille > SOURCE_PERMILLE {
            return;
        }
        // Holding back empties the queue in this.
        let drained_us = u64::from(queueing_us) * 200 / (100 - HELD_PERCENT);
        let span_us = (drained_us + 2 * u64::from(estimate.rtt_us)).clamp(RATE_US, HOLD_BACK_US_MOST);
        let lane_bytes_per_s = (rate / 100 * HELD_PERCENT / seen.lanes.len() as u64).max(HELD_LANE_LEAST_BYTES_PER_S);
        self.state = State::HoldBack(HoldBack {
            from_us: at_us,
            until_us: at_us.saturating_add(span_us),
            lanes: seen.lanes.len(),
            lane_bytes_per_s,
            rate_bytes_per_s: rate,
            queueing_us,
            since: None,
            lossy: 0,
        });
    }

    fn hold_back(&mut self, seen: &Seen<'_>, mut hold: HoldBack) -> Option<Change> {
        // A loss is found a round trip later.
        let heard_us = hold.from_us + 2 * u64::from(seen.estimate.rtt_us) + u64::from(hold.queueing_us);
        if hold.since.is_none() && seen.at_us >= heard_us {
            hold.since = Some(self.recent.sent());
            self.state = State::HoldBack(hold);
        }
        // Ended lanes say nothing of the queue.
        let has_tried = !self.some_are_done(seen.at_us);
        let before = Some(hold.rate_bytes_per_s);
        // A short full queue drops rather than delays.
        if has_tried && seen.may_raise && hold.loses_many(self.recent.sent(), seen.estimate.rtt_us) {
            return Some(self.raise(seen, Reason::Filled, before));
        }
        if seen.at_us < hold.until_us {
            return None;
        }
        // Repairs of our own drops are over soon.
        if has_tried
            && seen.may_raise
            && hold.since.is_some_and(|before| self.recent.sent().after(before).resends_many())
        {
            hold.lossy += 1;
            if hold.lossy >= LOSSY_LOOKS {
                return Some(self.raise(seen, Reason::Filled, before));
            }
            hold.since = Some(self.recent.sent());
            hold.until_us = seen.at_us.saturating_add((2 * u64::from(seen.estimate.rtt_us)).max(RATE_US));
            self.state = State::HoldBack(hold);
            return None;
        }
        self.state = State::Normal { pressed_since_us: None };
        self.looks_at_us = seen.at_us.saturating_add(self.look_in_us);
        self.look_in_us = self.look_in_us.saturating_mul(2).min(LOOK_IN_US_MOST);
        if !has_tried {
            return None;
        }
        let least_us = self.recent.least_queue_us(RATE_US / 2);
        let short_us = (hold.queueing_us / 5 * 3).max(clear_queue_us(seen.estimate));
        if seen.may_raise && hold.loses(self.recent.sent(), LOSES_PART) {
            return Some(self.raise(seen, Reason::Filled, before));
        }
        if least_us <= short_us {
            self.proved_bytes_per_s = self.recent.best_bytes_per_s;
            return None;
        }
        // Segments may wait for a pair, or the receiver's timer.
        let pair_us = (2 * u64::from(PACKET_BYTES) * 1_000_000 / hold.lane_bytes_per_s.max(1)).min(DELAYED_ACK_US);
        let is_queue =
            u64::from(least_us) > u64::from(short_us) + pair_us || hold.loses(self.recent.sent(), LOSES_A_LITTLE_PART);
        (seen.may_raise && is_queue).then(|| self.raise(seen, Reason::Filled, before))
    }

    /// `rate_bytes_per_s`: our rate before we held back.
    fn raise(&mut self, seen: &Seen<'_>, reason: Reason, rate_bytes_per_s: Option<u64>) -> Change {
        let rate_bytes_per_s = rate_bytes_per_s.unwrap_or(seen.estimate.rate_bytes_per_s);
        let raise = Raise { at_us: seen.at_us, rate_bytes_per_s, queueing_us: seen.estimate.queueing_us };
        self.raises = self.raises.saturating_add(1);
        (self.scout_peak_us, self.scout_hopes) = (0, false);
        self.hopes_from_us = seen.at_us.saturating_add(TRIAL_IN_US);
        self.enough = self.enough_at_first(seen, rate_bytes_per_s);
        self.state = if self.effect == MarkEffect::Unknown { State::Compare(raise) } else { self.raised_since(raise) };
        self.recent.since_change.clear();
        Change { class: ServiceClass::Priority, reason }
    }

    fn raised_since(&self, raise: Raise) -> State {
        // Only a known capacity tells when marked packets fill the path.
        let trial_in_us = if self.knows_more_than(raise) { TRIAL_IN_US } else { TRIAL_IN_US_UNKNOWN };
        State::Raised { raise, calm_since_us: None, trial_at_us: raise.at_us + trial_in_us, trial_in_us }
    }

    fn knows_more_than(&self, raise: Raise) -> bool {
        self.recent.best_bytes_per_s / 100 * TAKEN_PERCENT > raise.rate_bytes_per_s
    }

    /// Lanes for the floor, at the best rate of each.
    fn enough_at_first(&self, seen: &Seen<'_>, rate_bytes_per_s: u64) -> usize {
        let Some(floor) = self.floor_bytes_per_s else { return usize::MAX };
        let lanes = seen.lanes.len().max(1) as u64;
        let best = self.recent.best_bytes_per_s.max(rate_bytes_per_s).max(1);
        usize::try_from(floor.saturating_mul(lanes).div_ceil(best)).unwrap_or(usize::MAX).max(1)
    }

    fn pressed(&self, seen: &Seen<'_>) -> Option<Reason> {
        let Seen { estimate, .. } = seen;
        if estimate.source_permille > SOURCE_PERMILLE || self.some_are_done(seen.at_us) {
            return None;
        }
        let rate_bytes_per_s = self.recent.rate_over(RATE_US)?;
        let stands = self.recent.mean_queue_us(RATE_US) >= clear_queue_us(estimate);
        let is_loss = estimate.congestion_loss_ppm > 0;
        if let Some(floor_bytes_per_s) = self.floor_bytes_per_s {
            // The last lanes may be too few for the floor.
            let is_below = rate_bytes_per_s < floor_bytes_per_s && !seen.ends;
            let by_path = stands || is_loss || estimate.contended || estimate.phase == Phase::Steady;
            return (is_below && by_path).then_some(Reason::BelowFloor { rate_bytes_per_s, floor_bytes_per_s });
        }
        let remembered = if estimate.confidence == Confidence::Remembered { estimate.capacity_bytes_per_s } else { 0 };
        let before_bytes_per_s = self.recent.best_bytes_per_s.max(remembered);
        // The estimate counts resting lanes, too.
        let rate_bytes_per_s = rate_bytes_per_s.max(estimate.rate_bytes_per_s);
        let is_taken = rate_bytes_per_s < before_bytes_per_s / 100 * CLEARLY_TAKEN_PERCENT;
        (stands && is_taken).then_some(Reason::Taken { rate_bytes_per_s, before_bytes_per_s })
    }

    fn compare(&mut self, seen: &Seen<'_>, raise: Raise) -> Option<Change> {
        let rtt_us = u64::from(seen.estimate.rtt_min_us.max(1));
        let base_us = rtt_us + u64::from(seen.estimate.jitter_us);
        let elapsed_us = seen.at_us.saturating_sub(raise.at_us);
        // The first round trip is from before the marks.
        let from_us = raise.at_us.saturating_add(rtt_us + u64::from(raise.queueing_us));
        let (sides, span_us) = self.recent.sides_since(from_us)?;
        let Sides { marked, unmarked } = sides;
        let marked_rate = per_second(marked.acked_bytes, span_us).unwrap_or(0);
        let all_rate = per_second(marked.acked_bytes.saturating_add(unmarked.acked_bytes), span_us).unwrap_or(0);
        if span_us >= DROPPED_US.max(6 * rtt_us) && marked.acked_bytes == 0 && marked.has_data {
            self.effect = MarkEffect::Dropped;
            return Some(self.give_up(Reason::Dropped));
        }
        if span_us < (COMPARED_ROUND_TRIPS * base_us).max(RATE_US) {
            return None;
        }
        let is_quicker = match unmarked.lanes {
            0 => all_rate > raise.rate_bytes_per_s / 100 * GAIN_PERCENT,
            _ => {
                let waits_less = u64::from(raise.queueing_us / 3).max(u64::from(QUEUE_US_MIN));
                marked.rtt_us.saturating_add(waits_less) <= unmarked.rtt_us
            }
        };
        let harms = all_rate < raise.rate_bytes_per_s / 100 * TAKEN_PERCENT;
        let is_policed = marked.resent_bytes > marked.acked_bytes / POLICED_PART
            && marked.rtt_us <= base_us + u64::from(raise.queueing_us / 2);
        if is_policed && harms && elapsed_us >= TRIAL_IN_US {
            self.effect = MarkEffect::Policed { bytes_per_s: marked_rate };
            return Some(self.give_up(Reason::Policed { rate_bytes_per_s: marked_rate }));
        }
        if is_quicker && !(is_policed && harms) {
            self.effect = if is_policed { MarkEffect::Policed { bytes_per_s: marked_rate } } else { MarkEffect::Helps };
            self.state = self.raised_since(raise);
            return None;
        }
        if elapsed_us < (NO_EFFECT_ROUND_TRIPS * base_us).max(NO_EFFECT_US) {
            return None;
        }
        self.effect = MarkEffect::None;
        Some(self.give_up(Reason::NoEffect))
    }

    fn raised(&mut self, seen: &Seen<'_>) -> Option<Change> {
        let State::Raised { raise, mut calm_since_us, mut trial_at_us, trial_in_us } = self.state else {
            return None;
        };
        let rate = self.recent.rate_over(RATE_US);
        let is_calm = match self.floor_bytes_per_s {
            Some(floor) => self.floor_needs_no_mark(seen, floor),
            None => self.others_are_gone(seen, raise),
        };
        calm_since_us = if is_calm == Some(true) { calm_since_us.or(Some(seen.at_us)) } else { None };
        if calm_since_us.is_some_and(|since_us| seen.at_us.saturating_sub(since_us) >= CALM_US) {
            return Some(self.release(Reason::OthersGone));
        }
        let full = if self.knows_more_than(raise) { self.recent.best_bytes_per_s / 100 * FULL_PERCENT } else { 0 };
        // Our own marked packets may starve the scout, also those of resting lanes, which only the estimate counts.
        let may_starve_it = rate.is_some_and(|rate| rate.max(seen.estimate.rate_bytes_per_s) >= full);
        let hopes = self.scout_hopes && seen.at_us >= self.hopes_from_us;
        if hopes || is_calm.is_none() || (is_calm == Some(false) && may_starve_it) {
            if hopes || seen.at_us >= trial_at_us {
                let span_us = RATE_US.max(3 * u64::from(seen.estimate.rtt_min_us));
                let until_us = seen.at_us.saturating_add(span_us);
                let (from_us, rate_bytes_per_s) = (seen.at_us, rate.unwrap_or(0));
                self.state = State::Trial(Trial { raise, from_us, until_us, trial_in_us, rate_bytes_per_s });
                self.recent.since_change.clear();
                return None;
            }
        } else {
            trial_at_us = trial_at_us.max(seen.at_us);
        }
        self.state = State::Raised { raise, calm_since_us, trial_at_us, trial_in_us };
        None
    }

    fn floor_needs_no_mark(&self, seen: &Seen<'_>, floor: u64) -> Option<bool> {
        let (sides, span_us) = self.recent.sides_since(seen.at_us.saturating_sub(RATE_US))?;
        if sides.unmarked.lanes == 0 {
            return None;
        }
        Some(per_second(sides.unmarked.acked_bytes, span_us).unwrap_or(0) > floor / 100 * FLOOR_PERCENT)
    }

    /// True if unmarked packets go through as the scout sends them; `None`: unknown.
    ///
    /// With 24 of 25 Mbit/s marked by us a packet of the scout waits 12 ms. Behind others' queue it waits 200 ms, or is lost.
    fn others_are_gone(&mut self, seen: &Seen<'_>, raise: Raise) -> Option<bool> {
        let rtt_min_us = u64::from(seen.estimate.rtt_min_us);
        let from_us = seen.at_us.saturating_sub(SCOUTED_US.max(2 * rtt_min_us));
        let (sides, span_us) = self.recent.sides_since(from_us)?;
        let scout = sides.unmarked;
        if scout.lanes == 0 || (scout.acked_bytes == 0 && !scout.has_data) {
            return None;
        }
        let waits_us = scout.rtt_us.saturating_sub(rtt_min_us + u64::from(seen.estimate.jitter_us));
        self.scout_peak_us = self.scout_peak_us.max(waits_us);
        let short_us = u64::from(raise.queueing_us / 3).max(u64::from(QUEUE_US_MIN));
        let sends = self.scout_bytes_per_s(seen.estimate.rate_bytes_per_s).unwrap_or(0);
        let goes_through = per_second(scout.acked_bytes, span_us).unwrap_or(0) >= sends / 100 * GOES_THROUGH_PERCENT;
        // Others that do not yield drop rather than delay.
        let is_quicker = waits_us <= self.scout_peak_us / 4 * 3 || goes_through;
        self.scout_hopes = scout.resent_bytes == 0 && scout.acked_bytes > 0 && is_quicker;
        Some(waits_us <= short_us && goes_through)
    }

    fn trial(&mut self, seen: &Seen<'_>, trial: Trial) -> Option<Change> {
        let Trial { raise, from_us, until_us, trial_in_us, rate_bytes_per_s } = trial;
        let stands = seen.estimate.queueing_us >= (raise.queueing_us / 2).max(QUEUE_US_MIN);
        let heard_us = from_us.saturating_add(RATE_US / 3 + u64::from(seen.estimate.rtt_min_us));
        if seen.at_us < heard_us {
            return None;
        }
        let rate = self.recent.rate_over(RATE_US / 3)?;
        let falls = rate < rate_bytes_per_s / 100 * KEPT_PERCENT;
        let drops = self.recent.resends_many_over(RATE_US / 3);
        // Fewer lanes prove nothing.
        if ((stands || drops) && falls) || self.some_are_done(seen.at_us) {
            let trial_in_us = trial_in_us.saturating_mul(2).min(TRIAL_IN_US_MOST);
            let trial_at_us = seen.at_us.saturating_add(trial_in_us);
            self.state = State::Raised { raise, calm_since_us: None, trial_at_us, trial_in_us };
            self.recent.since_change.clear();
            self.scout_hopes = false;
            self.hopes_from_us = seen.at_us.saturating_add(TRIAL_IN_US);
            return None;
        }
        if seen.at_us < until_us {
            return None;
        }
        Some(self.release(Reason::OthersGone))
    }

    fn release(&mut self, reason: Reason) -> Change {
        self.state = State::Normal { pressed_since_us: None };
        self.contention_is_new = false;
        self.recent.samples.clear();
        self.recent.since_change.clear();
        Change { class: ServiceClass::Normal, reason }
    }

    fn give_up(&mut self, reason: Reason) -> Change {
        self.state = State::GivenUp;
        Change { class: ServiceClass::Normal, reason }
    }
}

impl Policy for Aware {
    fn on_sample(&mut self, reading: &Reading<'_>, allowance: Allowance, say: &mut Vec<Said>) -> Allowance {
        let lanes = reading.carry();
        // Until the program has answered and the lanes have moved, no packet is marked.
        if reading.grant != Grant::Asked && !reading.is_moving {
            let Reading { at_us, estimate, ends, .. } = *reading;
            say.extend(
                self.judge(&Seen { at_us, estimate, lanes, may_raise: allowance.may_raise, ends }).map(Said::Changed),
            );
        }
        let marked = self.marked_lanes(lanes.len());
        Allowance { class: self.class(), marked, bounded: marked, ..allowance }
    }
}

/// Shorter queues may be an artefact of sampling.
fn clear_queue_us(estimate: &Estimate) -> u32 {
    (estimate.rtt_min_us / 8).clamp(QUEUE_US_MIN, CLEAR_QUEUE_US_MOST)
}

/// Looks, comparisons and trials take this at least. Doubled, the rate falls 28 % (25 x 10, one lane, they come and go).
const RATE_US: u64 = 300_000;
/// With [`RATE_US`] and a sample, the class rises within 1.5 s. Doubled, the rate falls 9.5 % (25 x 10, marks ignored).
const PRESSED_US: u64 = 400_000;
/// A shorter queue is a busy host. Doubled, the rate falls 14 % (25 x 20, queue of 2 ms, more than fits).
const QUEUE_US_MIN: u32 = 1_500;
/// Doubled, the rate falls 14 % (100 x 100, they come and go).
const CLEAR_QUEUE_US_MOST: u32 = 5_000;
/// The share to which we hold back. Twice as far from the whole, the rate falls 87 % (25 x 20, queue of 2 ms, more than fits).
const HELD_PERCENT: u64 = 60;
/// A packet each 0.1 s: the kernel keeps its moment when the bound is lifted.
const HELD_LANE_LEAST_BYTES_PER_S: u64 = 15_000;
/// A longer look costs more than the mark brings.
const HOLD_BACK_US_MOST: u64 = 2_000_000;
/// One of so many bytes is lost although we hold back: others fill the queue. Bad radio links lose less.
const LOSES_PART: u64 = 50;
/// The first look may see earlier repairs.
const LOSSY_LOOKS: u8 = 2;
/// One of so many bytes tells where the queue may be ours, or acknowledgements may wait. Halved, the rate falls 24 % (25 x 10, 40
/// MB).
const LOSES_A_LITTLE_PART: u64 = 200;
/// Linux acknowledges a single segment by then (`TCP_DELACK_MIN`). Halved, the scenario
/// `segments_that_wait_for_their_pair_are_no_queue` fails.
const DELAYED_ACK_US: u64 = 40_000;
/// The next look after one that found our own queue. Doubled, the rate falls 36 % (100 x 100, they come and go).
const LOOK_IN_US: u64 = 3_000_000;
/// The longest time between looks: 0.3 s at 60 % each minute cost 0.2 %.
const LOOK_IN_US_MOST: u64 = 60_000_000;
/// Below it, behind a queue, others take the rest: alone we go down to 80 % while a queue drains, less repairs. Twice as far from
/// the whole, the rate falls 18 % (50 x 20, eight cubic flows).
const CLEARLY_TAKEN_PERCENT: u64 = 60;
/// Below it a look tells whose queue it is, and a mark harms. Twice as far from the whole, the rate falls 18 % (100 x 100, they
/// come and go).
const TAKEN_PERCENT: u64 = 85;
/// The class is released when the scout met no queue for so long. Halved, the rate falls 11 % (20 x 20, a circuit of 60 for
/// marks).
const CALM_US: u64 = 800_000;
const SCOUTED_US: u64 = 400_000;
/// If at least 70 % of the scout's packets arrive, nobody else fills the queue.
const GOES_THROUGH_PERCENT: u64 = 70;
const SCOUT_PART: u64 = 50;
/// 20 packets a second, for several round trips in each.
const SCOUT_LEAST_BYTES_PER_S: u64 = 30_000;
/// Halved, the rate falls 3.6 % (100 x 100, they come and go).
const COMPARED_ROUND_TRIPS: u64 = 4;
/// Twice the time in which a timeout repairs a loss.
const DROPPED_US: u64 = 600_000;
/// A gain below a quarter is none.
const GAIN_PERCENT: u64 = 125;
const NO_EFFECT_ROUND_TRIPS: u64 = 10;
/// Doubled, the class changes 2 s later (25 x 10, marks ignored).
const NO_EFFECT_US: u64 = 2_000_000;
/// One of so many marked bytes is lost without a queue.
const POLICED_PART: u64 = 100;
/// Marked lanes may send a tenth more: congestion control goes up and down.
const FLOOR_PERCENT: u64 = 110;
/// From here our packets fill the path. Twice as far from the whole, the rate falls 3.3 % (100 x 100, they come and go).
const FULL_PERCENT: u64 = 95;
/// Lanes have as long to grow, and a hopeful scout waits as long. Doubled, the class changes 3 times less (25 x 10, one lane,
/// they come and go).
const TRIAL_IN_US: u64 = 1_500_000;
/// Doubled, the class changes 2 times less (50 x 20, marked packets may fill it).
const TRIAL_IN_US_UNKNOWN: u64 = 10_000_000;
/// A trial of 0.3 s each 24 s costs 1 %.
const TRIAL_IN_US_MOST: u64 = 24_000_000;
/// Alone we keep this without the mark. Twice as far from the whole, the class changes 2 times more (50 x 20, eight cubic flows).
const KEPT_PERCENT: u64 = 75;

#[cfg(test)]
mod tests;
