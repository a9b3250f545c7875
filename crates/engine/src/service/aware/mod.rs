//! Asks for priority while others take the path away, and gives it back.
//!
//! ```text
//!   Normal   no mark                    a queue stands, and we get less than the path carried for us, or than the floor -> Compare
//!                                       a queue stands, and nobody knows what the path carries                      -> HoldBack
//!   HoldBack no mark, and a little less the queue stays: it is not ours                                             -> Compare
//!                                       it goes: what we get is what the path carries                               -> Normal
//!   Compare  marked beside unmarked     marked lanes are quicker                                                    -> Raised
//!                                       they are not                                                                -> GivenUp
//!                                       nothing of theirs arrives                                                   -> GivenUp
//!   Raised   all but a scout marked     the scout meets no queue: the others have gone                              -> Normal
//!                                       the scout cannot tell                                                       -> Trial
//!   Trial    no mark for a moment       the queue does not come back                                                -> Normal
//!                                       it comes back                                                               -> Raised
//!   GivenUp  no mark                    for good
//! ```
//! A queue that stands means that the link is busy. So who gets less of it than before shares it with others, or the link has become
//! slower; the comparison tells which.
//!
//! One lane stays unmarked as a *scout*, at a small rate. It stands in the queue of the others. So its round trips show whether they
//! are still there.

mod look;
mod reason;
mod recent;

use haul_wire::service::MarkEffect;

use crate::path::{Confidence, Estimate, LaneReading, Phase};
use crate::service::ServiceClass;

use look::HoldBack;
pub use reason::{Change, Reason};
use recent::{Recent, Side, Sides, has_data, per_second};

/// One reading of a path.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// When, in microseconds since any fixed start.
    pub at_us: u64,
    /// The estimate of the path.
    pub estimate: &'a Estimate,
    /// The lanes that carry data, in the order of their numbers.
    pub lanes: &'a [LaneReading],
    /// Priority is possible: allowed, and not refused.
    pub may_raise: bool,
    /// No unit waits for a lane: what they have is the last of the job.
    pub ends: bool,
}

/// Lanes that carry data while priority is asked for are no more than these, or than there were before. What is policed looks like a path that
/// loses packets, for which many lanes would be of use.
pub const LANES_MOST: u16 = 8;

/// Decides for one path.
#[derive(Clone, Debug)]
pub struct Aware {
    floor_bytes_per_s: Option<u64>,
    state: State,
    effect: MarkEffect,
    raises: u32,
    recent: Recent,
    /// The number of marked lanes, when there is a floor.
    enough: usize,
    /// Contention that was seen before the release tells nothing after it.
    contention_is_new: bool,
    /// When it was released the last time, and how long the others have to be away before it is released again.
    released_us: Option<u64>,
    calm_us: u64,
    /// Longest wait of the scout's packets since the class was raised.
    scout_peak_us: u64,
    /// The scout waits less than before: worth a trial.
    scout_hopes: bool,
    hopes_from_us: u64,
    /// The rate that the path carried with a queue that was ours: it carries no more.
    proved_bytes_per_s: u64,
    /// Towards the end of a job nobody watches: what the scout has to carry would be the last.
    ends: bool,
    /// Lanes with data in the last reading, and until when less arrives because some of them are done.
    busy: usize,
    fewer_until_us: u64,
    /// When the queue is looked at again, and how long after that.
    looks_at_us: u64,
    look_in_us: u64,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Normal { pressed_since_us: Option<u64> },
    HoldBack(HoldBack),
    Compare(Raise),
    Raised { raise: Raise, calm_since_us: Option<u64>, more_at_us: u64, trial_at_us: u64, trial_in_us: u64 },
    Trial(Trial),
    GivenUp,
}

/// A trial: nothing is marked for a moment.
#[derive(Clone, Copy, Debug)]
struct Trial {
    raise: Raise,
    from_us: u64,
    until_us: u64,
    trial_in_us: u64,
    /// With the mark.
    rate_bytes_per_s: u64,
}

/// The state when the class was raised.
#[derive(Clone, Copy, Debug)]
struct Raise {
    at_us: u64,
    rate_bytes_per_s: u64,
    queueing_us: u32,
}

impl Aware {
    /// With a floor: only below it, and only as many lanes as carry it.
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
            released_us: None,
            calm_us: CALM_US,
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

    /// Each lane shall send so much at most, for a moment. Below two segments for each round trip, too, so that many lanes hold back as well.
    #[must_use]
    pub fn lane_bytes_per_s(&self) -> Option<u64> {
        match self.state {
            State::HoldBack(hold) => Some(hold.lane_bytes_per_s),
            _ => None,
        }
    }

    /// The same, of each lane that gets nothing new: it would take what the others leave, and no queue would go.
    #[must_use]
    pub fn resting_lane_bytes_per_s(&self) -> Option<u64> {
        matches!(self.state, State::HoldBack(_)).then_some(HELD_LANE_LEAST_BYTES_PER_S)
    }

    /// The number of lanes with data that have the mark: the first ones.
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

    /// A lane that gets nothing new has the mark for what it still has: behind the queue of others that would be the last of the job. With a
    /// floor, no more lanes are marked than carry it.
    #[must_use]
    pub fn marks_resting(&self, lane: &LaneReading) -> bool {
        let is_raised = matches!(self.state, State::Compare(_) | State::Raised { .. });
        is_raised && self.floor_bytes_per_s.is_none() && has_data(lane)
    }

    /// The rate that the marked lanes may send together: what the floor needs, and a little more.
    #[must_use]
    pub fn marked_bytes_per_s(&self) -> Option<u64> {
        let floor = self.floor_bytes_per_s?;
        (self.class() == ServiceClass::Priority).then(|| floor / 100 * FLOOR_PERCENT)
    }

    /// The last of the lanes is the scout, and may send so much.
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

    /// The number of times that the class was raised.
    #[must_use]
    pub fn raises(&self) -> u32 {
        self.raises
    }

    /// The mark is allowed only from now on: somebody had to be asked first.
    pub fn granted(&mut self, at_us: u64) {
        if let State::Compare(raise) = &mut self.state {
            raise.at_us = at_us;
        }
        self.recent.since_change.clear();
    }

    /// Ends the class: whoever had to be asked has refused it.
    pub fn refused(&mut self) {
        self.state = State::GivenUp;
    }

    /// Takes one reading in. Returns a change of the class.
    pub fn on_sample(&mut self, seen: &Seen<'_>) -> Option<Change> {
        let marked = self.marked_lanes(seen.lanes.len());
        self.recent.on_sample(seen, marked);
        self.look_for_end(seen);
        self.contention_is_new |= !seen.estimate.contended;
        if !seen.may_raise && self.class() == ServiceClass::Priority {
            return Some(self.release(seen.at_us, Reason::NotAllowed));
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

    /// Lanes that are done send nothing, and their last round trips tell nothing of the queue now.
    fn look_for_end(&mut self, seen: &Seen<'_>) {
        let busy = seen.lanes.iter().filter(|lane| has_data(lane)).count();
        if seen.ends && busy < self.busy {
            let heard_us = u64::from(seen.estimate.rtt_us).saturating_mul(2);
            self.fewer_until_us = seen.at_us.saturating_add(2 * RATE_US + heard_us);
        }
        (self.ends, self.busy) = (seen.ends, busy);
    }

    /// True if less arrives because lanes are done.
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

    /// A queue stands, or packets are lost, and nobody knows what the path carries: holding back shows whose queue it is.
    fn look_whose_queue(&mut self, seen: &Seen<'_>) {
        let Seen { at_us, estimate, .. } = *seen;
        if !seen.may_raise || seen.lanes.is_empty() || at_us < self.looks_at_us {
            return;
        }
        // At the start nobody waits for more to be sure.
        let resends_many = self.looks_at_us == 0 && self.recent.resends_many_over(RATE_US);
        let before_us = if resends_many { RATE_US / 2 * 3 } else { RATE_US * 2 };
        let (Some(rate), Some(before)) = (self.recent.rate_over(RATE_US), self.recent.rate_over(before_us)) else {
            return;
        };
        let queueing_us = self.recent.mean_queue_us(RATE_US);
        let grows = rate > before / 100 * GROWS_PERCENT;
        let is_less = rate < self.recent.best_bytes_per_s / 100 * TAKEN_PERCENT;
        let is_doubtful = is_less || (estimate.contended && self.contention_is_new);
        let is_known = !is_doubtful && rate <= self.proved_bytes_per_s.saturating_add(self.proved_bytes_per_s / 4);
        let shows = queueing_us >= clear_queue_us(estimate) || resends_many || self.recent.loses_over(LOOK_IN_US / 2);
        if is_known || grows || self.some_are_done(at_us) || !shows || estimate.source_permille > SOURCE_PERMILLE {
            return;
        }
        // Until what we hold back has emptied the queue, and each lane has heard of that eight times: so often a smoothed round trip needs.
        let drained_us = u64::from(queueing_us) * 200 / (100 - HELD_PERCENT);
        let heard_us = HEARD_PACKETS * seen.lanes.len() as u64 * u64::from(PACKET_BYTES) * 1_000_000 / rate.max(1);
        let span_us =
            (drained_us.max(heard_us) + 2 * u64::from(estimate.rtt_us)).clamp(HOLD_BACK_US_MIN, HOLD_BACK_US_MOST);
        let lane_bytes_per_s = (rate / 100 * HELD_PERCENT / seen.lanes.len() as u64).max(HELD_LANE_LEAST_BYTES_PER_S);
        self.state = State::HoldBack(HoldBack {
            from_us: at_us,
            until_us: at_us.saturating_add(span_us),
            lanes: seen.lanes.len(),
            lane_bytes_per_s,
            rate_bytes_per_s: rate,
            queueing_us,
            since: None,
        });
    }

    fn hold_back(&mut self, seen: &Seen<'_>, mut hold: HoldBack) -> Option<Change> {
        // What is lost is found out a round trip later, and sent again.
        let heard_us = hold.from_us + 2 * u64::from(seen.estimate.rtt_us) + u64::from(hold.queueing_us);
        if hold.since.is_none() && seen.at_us >= heard_us {
            hold.since = Some(self.recent.sent());
            self.state = State::HoldBack(hold);
        }
        let has_tried = self.has_tried(seen, hold);
        let before = Some(hold.rate_bytes_per_s);
        // A queue that is short and full shows by what it drops, not by what waits.
        if has_tried && seen.may_raise && hold.loses_many(self.recent.sent(), seen.estimate.rtt_us) {
            return Some(self.raise(seen, Reason::Filled, before));
        }
        if seen.at_us < hold.until_us {
            return None;
        }
        // What the first packets met is still being repaired, or is lost again: what follows tells which.
        let longer_us = seen.at_us.saturating_add(RATE_US);
        if hold.resends_many(self.recent.sent()) && longer_us <= hold.from_us.saturating_add(HOLD_BACK_US_MOST) {
            (hold.since, hold.until_us) = (Some(self.recent.sent()), longer_us);
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
        // With as little as we send now, segments wait for their pair, or for the timer of the receiver.
        let pair_us = (2 * u64::from(PACKET_BYTES) * 1_000_000 / hold.lane_bytes_per_s.max(1)).min(DELAYED_ACK_US);
        let is_queue =
            u64::from(least_us) > u64::from(short_us) + pair_us || hold.loses(self.recent.sent(), LOSES_A_LITTLE_PART);
        (seen.may_raise && is_queue).then(|| self.raise(seen, Reason::Filled, before))
    }

    /// True if we held back for long enough to tell. Other lanes than before are no trial, for a new one fills the queue by itself.
    fn has_tried(&self, seen: &Seen<'_>, hold: HoldBack) -> bool {
        let Some(rate) = self.recent.rate_over(RATE_US / 2) else { return false };
        let before = hold.rate_bytes_per_s.max(1);
        let held_back_us = seen.at_us.saturating_sub(hold.from_us).saturating_sub(u64::from(seen.estimate.rtt_us));
        let shorter_us = u128::from(before.saturating_sub(rate)) * u128::from(held_back_us) / u128::from(before);
        let is_same = self.recent.same_since_us <= hold.from_us && !self.some_are_done(seen.at_us);
        is_same && shorter_us >= u128::from(hold.queueing_us)
    }

    /// `rate_bytes_per_s`: what we got, before we held back.
    fn raise(&mut self, seen: &Seen<'_>, reason: Reason, rate_bytes_per_s: Option<u64>) -> Change {
        let rate_bytes_per_s = rate_bytes_per_s.unwrap_or(seen.estimate.rate_bytes_per_s);
        let raise = Raise { at_us: seen.at_us, rate_bytes_per_s, queueing_us: seen.estimate.queueing_us };
        if self.released_us.is_some_and(|at_us| seen.at_us.saturating_sub(at_us) < FLAPS_US) {
            // It was released too early, so it stays longer this time.
            self.calm_us = (self.calm_us * 2).min(CALM_US_MOST);
        } else {
            self.calm_us = CALM_US;
        }
        self.raises = self.raises.saturating_add(1);
        (self.scout_peak_us, self.scout_hopes) = (0, false);
        self.hopes_from_us = seen.at_us.saturating_add(HOPES_AGAIN_US.saturating_mul(self.calm_us / CALM_US));
        self.enough = self.enough_at_first(seen, rate_bytes_per_s);
        // What was found out holds: there is nothing to compare again.
        self.state = if self.effect == MarkEffect::Unknown { State::Compare(raise) } else { self.raised_since(raise) };
        self.recent.since_change.clear();
        Change { class: ServiceClass::Priority, reason }
    }

    fn raised_since(&self, raise: Raise) -> State {
        // Only who knows what the path carries knows when it is full of marked packets.
        let trial_in_us = if self.knows_more_than(raise) { TRIAL_IN_US } else { TRIAL_IN_US_UNKNOWN };
        let (calm_since_us, more_at_us) = (None, raise.at_us.saturating_add(MORE_EVERY_US));
        State::Raised { raise, calm_since_us, more_at_us, trial_at_us: raise.at_us + trial_in_us, trial_in_us }
    }

    /// The path carried more before than when the class was raised.
    fn knows_more_than(&self, raise: Raise) -> bool {
        self.recent.best_bytes_per_s / 100 * TAKEN_PERCENT > raise.rate_bytes_per_s
    }

    /// Lanes that carry the floor, if each carries as much as the path gave us per lane at its best.
    fn enough_at_first(&self, seen: &Seen<'_>, rate_bytes_per_s: u64) -> usize {
        let Some(floor) = self.floor_bytes_per_s else { return usize::MAX };
        let lanes = seen.lanes.len().max(1) as u64;
        let best = self.recent.best_bytes_per_s.max(rate_bytes_per_s).max(1);
        usize::try_from(floor.saturating_mul(lanes).div_ceil(best)).unwrap_or(usize::MAX).max(1)
    }

    /// Why priority is needed now, if it is.
    fn pressed(&self, seen: &Seen<'_>) -> Option<Reason> {
        let Seen { estimate, .. } = seen;
        if estimate.source_permille > SOURCE_PERMILLE || self.some_are_done(seen.at_us) {
            return None;
        }
        let rate_bytes_per_s = self.recent.rate_over(RATE_US)?;
        let stands = self.recent.mean_queue_us(RATE_US) >= clear_queue_us(estimate);
        let is_loss = estimate.congestion_loss_ppm > 0;
        if let Some(floor_bytes_per_s) = self.floor_bytes_per_s {
            // The last lanes may be too few for the floor, whatever the network does.
            let is_below = rate_bytes_per_s < floor_bytes_per_s && !seen.ends;
            let by_path = stands || is_loss || estimate.contended || estimate.phase == Phase::Steady;
            return (is_below && by_path).then_some(Reason::BelowFloor { rate_bytes_per_s, floor_bytes_per_s });
        }
        let remembered = if estimate.confidence == Confidence::Remembered { estimate.capacity_bytes_per_s } else { 0 };
        let before_bytes_per_s = self.recent.best_bytes_per_s.max(remembered);
        // What lanes that rest still send is not taken by others. Only the estimate counts it.
        let rate_bytes_per_s = rate_bytes_per_s.max(estimate.rate_bytes_per_s);
        let is_taken = rate_bytes_per_s < before_bytes_per_s / 100 * CLEARLY_TAKEN_PERCENT;
        (stands && is_taken).then_some(Reason::Taken { rate_bytes_per_s, before_bytes_per_s })
    }

    /// A few round trips of marked lanes beside unmarked ones.
    fn compare(&mut self, seen: &Seen<'_>, raise: Raise) -> Option<Change> {
        let rtt_us = u64::from(seen.estimate.rtt_min_us.max(1));
        let base_us = rtt_us + u64::from(seen.estimate.jitter_us);
        let elapsed_us = seen.at_us.saturating_sub(raise.at_us);
        // What left before the marks came back in the first round trip.
        let from_us = raise.at_us.saturating_add(rtt_us + u64::from(raise.queueing_us));
        let (sides, span_us) = self.recent.sides_since(from_us)?;
        let Sides { marked, unmarked } = sides;
        let marked_rate = per_second(marked.acked_bytes, span_us).unwrap_or(0);
        let all_rate = per_second(marked.acked_bytes.saturating_add(unmarked.acked_bytes), span_us).unwrap_or(0);
        if span_us >= DROPPED_US.max(6 * rtt_us) && marked.acked_bytes == 0 && marked.has_data {
            self.effect = MarkEffect::Dropped;
            return Some(self.give_up(Reason::Dropped));
        }
        if span_us < (COMPARED_ROUND_TRIPS * base_us).max(COMPARED_US_MIN) {
            return None;
        }
        let is_quicker = match unmarked.lanes {
            0 => all_rate > raise.rate_bytes_per_s / 100 * GAIN_PERCENT,
            lanes => {
                let each = |side: Side| side.acked_bytes / side.lanes.max(1);
                let waits_less = u64::from(raise.queueing_us / 3).max(u64::from(QUEUE_US_MIN));
                marked.rtt_us.saturating_add(waits_less) <= unmarked.rtt_us
                    || (each(marked) > each(unmarked) / 100 * GAIN_PERCENT && lanes > 0 && unmarked.has_data)
            }
        };
        let harms = all_rate < raise.rate_bytes_per_s / 100 * HARM_PERCENT;
        let is_policed = marked.resent_bytes > marked.acked_bytes / POLICED_PART
            && marked.rtt_us <= base_us + u64::from(raise.queueing_us / 2);
        if is_policed && harms && elapsed_us >= HARM_US {
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
        let State::Raised { raise, mut calm_since_us, mut more_at_us, mut trial_at_us, trial_in_us } = self.state
        else {
            return None;
        };
        let rate = self.recent.rate_over(RATE_US);
        if let Some(floor) = self.floor_bytes_per_s
            && seen.at_us >= more_at_us
        {
            more_at_us = seen.at_us.saturating_add(MORE_EVERY_US.max(8 * u64::from(seen.estimate.rtt_us)));
            self.fit_to(floor);
        }
        let is_calm = match self.floor_bytes_per_s {
            Some(floor) => self.floor_needs_no_mark(seen, floor),
            None => self.others_are_gone(seen, raise),
        };
        calm_since_us = if is_calm == Some(true) { calm_since_us.or(Some(seen.at_us)) } else { None };
        if calm_since_us.is_some_and(|since_us| seen.at_us.saturating_sub(since_us) >= self.calm_us) {
            return Some(self.release(seen.at_us, Reason::OthersGone));
        }
        let full = if self.knows_more_than(raise) { self.recent.best_bytes_per_s / 100 * FULL_PERCENT } else { 0 };
        // Our own marked packets may fill the link, and leave nothing for the scout.
        // So do those of lanes that rest and still send, which only the estimate counts.
        let may_starve_it = rate.is_some_and(|rate| rate.max(seen.estimate.rate_bytes_per_s) >= full);
        let hopes = self.scout_hopes && seen.at_us >= self.hopes_from_us;
        if hopes || is_calm.is_none() || (is_calm == Some(false) && may_starve_it) {
            if hopes || seen.at_us >= trial_at_us {
                // Others that yielded to the marked packets come back step by step.
                let patience = self.calm_us / CALM_US;
                let span_us = TRIAL_US.saturating_mul(patience).max(3 * u64::from(seen.estimate.rtt_min_us));
                let until_us = seen.at_us.saturating_add(span_us);
                let (from_us, rate_bytes_per_s) = (seen.at_us, rate.unwrap_or(0));
                self.state = State::Trial(Trial { raise, from_us, until_us, trial_in_us, rate_bytes_per_s });
                self.recent.since_change.clear();
                return None;
            }
        } else {
            trial_at_us = trial_at_us.max(seen.at_us);
        }
        self.state = State::Raised { raise, calm_since_us, more_at_us, trial_at_us, trial_in_us };
        None
    }

    /// One lane more while the floor is not reached and the rate does not grow; one less when the others carry it.
    fn fit_to(&mut self, floor: u64) {
        let (Some(rate), Some(before)) = (self.recent.rate_over(RATE_US), self.recent.rate_over(2 * RATE_US)) else {
            return;
        };
        let grows = rate > before / 100 * GROWS_A_LITTLE_PERCENT;
        if rate < floor && !grows {
            self.enough = self.enough.saturating_add(1);
        }
    }

    /// The unmarked lanes alone carry the floor.
    fn floor_needs_no_mark(&self, seen: &Seen<'_>, floor: u64) -> Option<bool> {
        let (sides, span_us) = self.recent.sides_since(seen.at_us.saturating_sub(RATE_US))?;
        if sides.unmarked.lanes == 0 {
            return None;
        }
        Some(per_second(sides.unmarked.acked_bytes, span_us).unwrap_or(0) > floor / 100 * FLOOR_PERCENT)
    }

    /// Whether unmarked packets go through as the scout sends them. `None`: no unmarked lane tells.
    ///
    /// What our own marked packets leave of the link may be little: of 25 Mbit/s, 24 are marked, and a packet of the scout waits 12 ms. Behind
    /// the queue of others it waits 200 ms there, or is lost.
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
        let short_us = u64::from(raise.queueing_us / 3).max(u64::from(QUEUE_US_MIN)).max(self.scout_peak_us / 4);
        let sends = self.scout_bytes_per_s(seen.estimate.rate_bytes_per_s).unwrap_or(0);
        let goes_through = per_second(scout.acked_bytes, span_us).unwrap_or(0) >= sends / 100 * GOES_THROUGH_PERCENT;
        // Behind others that do not yield, its packets are lost rather than late.
        let is_quicker = waits_us <= self.scout_peak_us / 4 * 3 || goes_through;
        self.scout_hopes = scout.resent_bytes == 0 && scout.acked_bytes > 0 && is_quicker;
        Some(waits_us <= short_us && scout.resent_bytes == 0 && goes_through)
    }

    /// Without marks for a moment: the others take the path away again, if they are there.
    fn trial(&mut self, seen: &Seen<'_>, trial: Trial) -> Option<Change> {
        let Trial { raise, from_us, until_us, trial_in_us, rate_bytes_per_s } = trial;
        let stands = seen.estimate.queueing_us >= (raise.queueing_us / 2).max(QUEUE_US_MIN);
        let heard_us = from_us.saturating_add(TRIAL_US / 3 + u64::from(seen.estimate.rtt_min_us));
        if seen.at_us < heard_us {
            return None;
        }
        let rate = self.recent.rate_over(TRIAL_US / 3)?;
        let falls = rate < rate_bytes_per_s / 100 * KEPT_PERCENT;
        // With fewer lanes than before the trial shows nothing.
        if (stands && falls) || self.some_are_done(seen.at_us) {
            let trial_in_us = trial_in_us.saturating_mul(2).min(TRIAL_IN_US_MOST);
            let (trial_at_us, more_at_us) = (seen.at_us.saturating_add(trial_in_us), seen.at_us);
            self.state = State::Raised { raise, calm_since_us: None, more_at_us, trial_at_us, trial_in_us };
            self.recent.since_change.clear();
            self.scout_hopes = false;
            self.hopes_from_us = seen.at_us.saturating_add(HOPES_AGAIN_US.saturating_mul(self.calm_us / CALM_US));
            return None;
        }
        if seen.at_us < until_us {
            return None;
        }
        Some(self.release(seen.at_us, Reason::OthersGone))
    }

    fn release(&mut self, at_us: u64, reason: Reason) -> Change {
        self.state = State::Normal { pressed_since_us: None };
        self.released_us = Some(at_us);
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

/// A queue of this length is not a matter of when samples were taken.
fn clear_queue_us(estimate: &Estimate) -> u32 {
    (estimate.rtt_min_us / 8).clamp(QUEUE_US_MIN, CLEAR_QUEUE_US_MOST)
}

/// The rate now is a mean over this time.
const RATE_US: u64 = 300_000;
/// The need has to last this long. With [`RATE_US`] before it and a sample, the class is raised within 1.5 s.
const PRESSED_US: u64 = 400_000;
/// Lanes that wait for data that often have no need of the network.
const SOURCE_PERMILLE: u16 = 300;
/// Shorter than this is no queue, but a busy host.
const QUEUE_US_MIN: u32 = 1_500;
const CLEAR_QUEUE_US_MOST: u32 = 5_000;
/// We hold back to this share for a moment.
const HELD_PERCENT: u64 = 60;
/// A packet each tenth of a second: the kernel keeps the moment of the next one when the bound is lifted.
const HELD_LANE_LEAST_BYTES_PER_S: u64 = 15_000;
/// For so long.
const HOLD_BACK_US_MIN: u64 = 300_000;
const HOLD_BACK_US_MOST: u64 = 2_000_000;
/// A smoothed round trip has forgotten two thirds of what was before after so many acknowledgements (RFC 6298).
const HEARD_PACKETS: u64 = 8;
const PACKET_BYTES: u32 = 1_500;
/// One of so many bytes is lost although we hold back: others fill the queue. More than what a bad radio link loses.
const LOSES_PART: u64 = 50;
/// One of so many: where a queue may be one of ours, or acknowledgements that wait, this tells.
const LOSES_A_LITTLE_PART: u64 = 200;
/// Fewer bytes tell nothing of losses.
const LOSES_OF_BYTES: u64 = 30 * PACKET_BYTES as u64;
/// A receiver acknowledges a single segment after this time at the latest (Linux, `TCP_DELACK_MIN`).
const DELAYED_ACK_US: u64 = 40_000;
/// The lanes still grow.
const GROWS_PERCENT: u64 = 115;
/// The next look after one that found a queue of our own, and the longest time between two.
const LOOK_IN_US: u64 = 3_000_000;
const LOOK_IN_US_MOST: u64 = 60_000_000;
/// Below this share of what the path carried for us, behind a queue, others take the rest. Nothing of our own holds us back so far:
/// the pacer goes down to 80 % while a queue of ours drains, and what is repaired comes on top.
const CLEARLY_TAKEN_PERCENT: u64 = 60;
/// Below this share, holding back shows whose queue it is.
const TAKEN_PERCENT: u64 = 85;
/// The scout meets no queue for this time before the class is released; longer after it was released too early.
const CALM_US: u64 = 800_000;
const CALM_US_MOST: u64 = 10_000_000;
/// Raised again so soon after a release: the release was too early.
const FLAPS_US: u64 = 5_000_000;
/// The scout is judged by this time.
const SCOUTED_US: u64 = 400_000;
/// If at least this share of the scout's packets arrives, nobody else fills the queue.
const GOES_THROUGH_PERCENT: u64 = 70;
/// The scout's part of the rate.
const SCOUT_PART: u64 = 50;
/// At least so much, so that its round trips are smoothed over several in each second: 20 packets.
const SCOUT_LEAST_BYTES_PER_S: u64 = 30_000;
/// Marked and unmarked lanes are compared over so many round trips, and at least so long.
const COMPARED_ROUND_TRIPS: u64 = 4;
const COMPARED_US_MIN: u64 = 300_000;
/// Twice the time that a loss takes to be repaired by a timeout.
const DROPPED_US: u64 = 600_000;
/// A gain of less than a quarter is no gain.
const GAIN_PERCENT: u64 = 125;
/// Below this share of the rate before, the mark harms.
const HARM_PERCENT: u64 = 85;
/// Lanes have so long to grow before they are blamed.
const HARM_US: u64 = 1_500_000;
/// The further wait before the mark is said to do nothing.
const NO_EFFECT_ROUND_TRIPS: u64 = 10;
const NO_EFFECT_US: u64 = 2_000_000;
/// One of so many marked bytes is lost without a queue.
const POLICED_PART: u64 = 100;
/// Between two lanes more, to carry a floor.
const MORE_EVERY_US: u64 = 800_000;
/// While the rate grows by this much, the marked lanes may still reach a floor.
const GROWS_A_LITTLE_PERCENT: u64 = 102;
/// Marked lanes may send a tenth more than the floor, which the ups and downs of congestion control need.
const FLOOR_PERCENT: u64 = 110;
/// The rate is what the path carried for us: it is full of our packets.
const FULL_PERCENT: u64 = 95;
/// The first trial without marks, and the longest time between two.
const TRIAL_IN_US: u64 = 1_500_000;
const TRIAL_IN_US_UNKNOWN: u64 = 10_000_000;
const TRIAL_IN_US_MOST: u64 = 24_000_000;
/// A scout that waits less than before is worth a trial, but not more often.
const HOPES_AGAIN_US: u64 = 1_500_000;
/// This share of the rate stays without the mark, if nobody else is there.
const KEPT_PERCENT: u64 = 75;
/// A trial takes this long, or three round trips.
const TRIAL_US: u64 = 300_000;

#[cfg(test)]
mod tests;
