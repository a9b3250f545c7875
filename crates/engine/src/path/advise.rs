//! Samples in, advice out.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use haul_wire::limits::MAX_LANES;
use haul_wire::summary::{PathService, PathSummary};

use super::estimate::{Confidence, Estimate, Estimator, Limit, Phase, scaled};
use super::held::Held;
use super::lanes::{Control, LaneCount, at_start, at_start_of_known, needed};
use super::limiter::{Limiter, Marked, Slowed};
use super::pacing::{Levels, Pacer};
use super::ramp_losses::RampLosses;
use super::remember::Remembered;
use super::sample::{Sample, Step, Steps};
use super::silence::Silence;
use super::way_back::OneWay;
use crate::plan::{self, NEAR_RTT_US};
use crate::service::aware::LANES_MOST;

/// The user's wishes, the host's limits, and an earlier job's findings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Asked for: never changed.
    pub lanes: Option<u16>,
    /// Asked for: never changed.
    pub congestion_control: Option<String>,
    /// The user's limit, over all lanes.
    pub rate_bytes_per_s: Option<u64>,
    /// An ordinary user's choices on the sending host.
    pub allowed_congestion_controls: Vec<String>,
    /// The sending host's default.
    pub host_congestion_control: String,
    /// The least known to be sent.
    pub foreseen_bytes: u64,
    /// An earlier job's findings.
    pub remembered: Option<Remembered>,
}

/// Settings of the lanes from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// Lanes that carry data; others rest, connected.
    pub lanes: u16,
    /// Bound of all lanes with data; `None` lifts it.
    pub pacing_bytes_per_s: Option<u64>,
    /// Congestion control of all lanes; `None`: each keeps its own.
    pub congestion_control: Option<String>,
    /// Why, for the user.
    pub reasons: Reasons,
}

/// A reason for each part of an [`Advice`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Reasons {
    pub lanes: &'static str,
    pub pacing: &'static str,
    pub congestion_control: &'static str,
}

/// The closed loop of one transfer.
#[derive(Clone, Debug)]
pub struct Tuner {
    wishes: Wishes,
    cpus: u16,
    is_near: bool,
    steps: Steps,
    silence: Silence,
    estimator: Estimator,
    pacer: Pacer,
    limiter: Limiter,
    ramp_losses: RampLosses,
    /// Findings without the mark while there is one, and the reverse.
    limiter_of_others: Limiter,
    lanes: LaneCount,
    connected: u16,
    held: Held,
    congestion_control: String,
    congestion_control_reason: &'static str,
    is_switched: bool,
    switches: u8,
    given: Advice,
    lanes_most: Option<u16>,
    marked: Marked,
}

impl Tuner {
    /// Begins a path whose connections took `rtt_us_at_connect` to open; the smaller host has `cpus` processors.
    pub fn new(wishes: Wishes, rtt_us_at_connect: u32, cpus: u16) -> Self {
        let is_near = rtt_us_at_connect < NEAR_RTT_US;
        let remembered = wishes.remembered.as_ref().filter(|remembered| !is_near && remembered.fits(rtt_us_at_connect));
        let mut estimator = Estimator::new(rtt_us_at_connect);
        if let Some(remembered) = remembered {
            estimator.now.capacity_bytes_per_s = remembered.capacity_bytes_per_s;
            estimator.now.confidence = Confidence::Remembered;
        }
        let (count, reason) = first_lanes(&wishes, remembered, &estimator, rtt_us_at_connect, cpus);
        let lanes = LaneCount::new(count, is_near || wishes.lanes.is_some(), reason);
        let mut congestion_control = wishes.host_congestion_control.clone();
        let mut congestion_control_reason = "what the host chooses";
        let mut is_switched = false;
        if let Some(asked) = &wishes.congestion_control {
            (congestion_control, congestion_control_reason) = (asked.clone(), ASKED_REASON);
        } else if remembered.is_some_and(|remembered| {
            remembered.congestion_control == BBR
                && remembered.random_loss_ppm >= LOSS_PPM_MIN
                && wishes.may_choose_bbr()
        }) {
            (congestion_control, congestion_control_reason) =
                (BBR.to_string(), "the path loses packets without a queue");
            is_switched = true;
        }
        let switched = is_switched.then(|| congestion_control.clone());
        let pacer = Pacer::new(remembered.map(|remembered| remembered.capacity_bytes_per_s));
        let limit = wishes.rate_bound().filter(|_| !is_near);
        let pacing_bytes_per_s = least(pacer.bound_bytes_per_s(), limit);
        let given = Advice {
            lanes: count,
            pacing_bytes_per_s,
            congestion_control: wishes.congestion_control.clone().or(switched),
            reasons: Reasons {
                lanes: reason,
                pacing: match pacing_bytes_per_s {
                    _ if is_near => NEAR_REASON,
                    None => "the path is not known yet",
                    bound if bound == limit => RATE_REASON,
                    Some(_) => pacer.reason(),
                },
                congestion_control: congestion_control_reason,
            },
        };
        Self {
            wishes,
            cpus,
            is_near,
            steps: Steps::default(),
            silence: Silence::default(),
            estimator,
            pacer,
            limiter: Limiter::default(),
            ramp_losses: RampLosses::default(),
            limiter_of_others: Limiter::default(),
            lanes,
            connected: 0,
            held: Held::new(),
            congestion_control,
            congestion_control_reason,
            is_switched,
            switches: 0,
            given,
            lanes_most: None,
            marked: Marked::None,
        }
    }

    /// Advice before any sample.
    pub fn first(&self) -> Advice {
        self.given.clone()
    }

    /// Takes in a far word's time, perhaps again.
    pub fn on_one_way(&mut self, at_us: u64, word: OneWay) {
        self.estimator.on_one_way(at_us, word);
    }

    /// Takes a sample in; `Some`: a change.
    pub fn on_sample(&mut self, sample: &Sample) -> Option<Advice> {
        self.connected = u16::try_from(sample.lanes.len()).unwrap_or(u16::MAX);
        let step = self.steps.to(sample, self.given.lanes)?;
        let now = &self.estimator.now;
        if self.silence.on_step(&step, now.rtt_us, now.rtt_min_us) {
            self.estimator.on_disturbed_step(&step);
            self.estimate_on_step();
            let outage_us = self.silence.outage_us(self.estimator.now.rtt_us);
            let passes = self.limiter.passes_bytes_per_s();
            self.held.on_step(&step, &self.estimator, &self.pacer, passes, outage_us);
            return self.changed();
        }
        self.estimator.on_step(&step);
        if !self.is_near && self.estimator.now.rtt_min_us < NEAR_RTT_US {
            return Some(self.turn_near());
        }
        self.pacer_on_step(&step);
        self.phase_on_step(&step);
        if !self.is_near {
            self.ramp_losses.on_step(&step, &self.estimator);
            self.look_for_a_limit(&step);
            self.choose_congestion_control();
            let control = Control {
                lets_more_be_sent: self.limiter.lets_more_be_sent(&self.estimator, self.marked),
                is_loss_based: self.congestion_control != BBR,
                may_change: self.wishes.may_choose_bbr() && self.switches < SWITCHES_MAX,
            };
            if self.marked != Marked::None && self.limiter.bound_bytes_per_s().is_some() {
                // The limit of marked packets is known: more or fewer lanes change nothing.
                self.lanes.look_again();
            } else {
                self.lanes.on_step(&step, &self.estimator, &self.pacer, control);
            }
            self.lanes.lanes = self.lanes_most.map_or(self.lanes.lanes, |most| self.lanes.lanes.min(most));
        }
        self.estimate_on_step();
        self.held.on_step(&step, &self.estimator, &self.pacer, self.limiter.passes_bytes_per_s(), None);
        self.changed()
    }

    /// Takes in a sample of lanes that others held, which tells nothing about the path.
    pub(crate) fn on_disturbed_sample(&mut self, sample: &Sample) {
        let Some(step) = self.steps.to(sample, self.given.lanes) else { return };
        self.estimator.on_disturbed_step(&step);
    }

    pub(crate) fn congestion_control(&self) -> &str {
        &self.congestion_control
    }

    pub(crate) fn limit_rate(&mut self, rate_bytes_per_s: Option<u64>) {
        if core::mem::replace(&mut self.wishes.rate_bytes_per_s, rate_bytes_per_s) != rate_bytes_per_s {
            (self.limiter, self.limiter_of_others) = (Limiter::default(), Limiter::default());
        }
    }

    /// Forgets capacity and losses: another class meets other queues. With priority the lanes become no more: a policed path
    /// looks lossy.
    pub fn class_changed(&mut self, is_priority: bool) {
        self.pacer = Pacer::new(None);
        self.lanes.look_again();
        self.estimator.forget_losses();
        if self.is_switched && !self.wishes.host_congestion_control.is_empty() {
            self.switch(self.wishes.host_congestion_control.clone(), "another class meets other queues", false);
        }
        self.marked_are(if is_priority { Marked::ByNeed } else { Marked::None });
        let most = self.lanes.lanes.max(LANES_MOST);
        self.lanes_most = is_priority.then_some(most);
    }

    /// Sets which lanes ask for priority. What passes with the mark is kept for its return.
    pub fn marked_are(&mut self, marked: Marked) {
        let before = core::mem::replace(&mut self.marked, marked);
        if (before == Marked::None) != (marked == Marked::None) {
            core::mem::swap(&mut self.limiter, &mut self.limiter_of_others);
        }
        if before == Marked::All && marked == Marked::None {
            // A policer met the marked packets alone.
            self.estimator.forget_losses();
            self.look_again();
        }
    }

    pub(crate) fn ask_for_lanes(&mut self, lanes: u16) {
        let lanes = lanes.clamp(1, MAX_LANES);
        if self.wishes.lanes != Some(lanes) {
            self.wishes.lanes = Some(lanes);
            self.lanes = LaneCount::new(lanes, true, ASKED_REASON);
            if self.is_near {
                (self.given.lanes, self.given.reasons.lanes) = (lanes, ASKED_REASON);
            }
        }
    }

    pub(crate) fn look_again(&mut self) {
        if !self.pacer.is_contended() {
            self.pacer = Pacer::new(None);
            self.lanes.look_again();
        }
    }

    /// Enters the congestion control read back from the lanes. A refused one is not asked for again.
    pub fn on_granted(&mut self, congestion_control: &str) {
        if self.congestion_control == congestion_control {
            return;
        }
        if self.is_switched {
            (self.is_switched, self.switches) = (false, SWITCHES_MAX);
            self.congestion_control_reason = REFUSED_REASON;
        } else if self.wishes.congestion_control.is_none() && self.switches == 0 {
            // The route may have one of its own (ip-route(8), congctl), or our policy for near ones.
            self.wishes.host_congestion_control = congestion_control.to_string();
        }
        self.congestion_control = congestion_control.to_string();
    }

    /// The estimate of the path.
    pub fn estimate(&self) -> &Estimate {
        &self.estimator.now
    }

    /// The path, for the report.
    pub fn summary(&self) -> PathSummary {
        let now = &self.estimator.now;
        let resent = u128::from(self.estimator.resent_bytes) * 1_000_000 / u128::from(self.estimator.sent_bytes.max(1));
        PathSummary {
            rtt_min_us: now.rtt_min_us,
            queueing_us: self.held.queueing_us(),
            resent_ppm: u32::try_from(resent).unwrap_or(u32::MAX),
            capacity_bytes_per_s: match now.confidence {
                // An earlier job's capacity was not seen in this one.
                Confidence::Remembered => self.estimator.best_rate_bytes_per_s,
                Confidence::None | Confidence::AtLeast | Confidence::Measured => now.capacity_bytes_per_s,
            },
            window_bytes: now.window_bytes,
            lanes: self.carrying_lanes(),
            congestion_control: self.congestion_control.clone(),
            rate_variation_permille: self.held.rate_variation_permille(),
            time: self.held.time,
            outages: self.held.outages,
            known: None,
            // The caller that marks fills this in.
            service: PathService::default(),
        }
    }

    /// The findings for the next job; `None` for a guess, and for near paths.
    pub fn remembered(&self) -> Option<Remembered> {
        let now = &self.estimator.now;
        let is_known =
            matches!(now.confidence, Confidence::AtLeast | Confidence::Measured) && now.phase == Phase::Steady;
        let is_of_source = now.confidence == Confidence::AtLeast && self.estimator.best_is_of_source;
        // A user's limit hides the path beyond it.
        let is_of_limit =
            self.wishes.rate_bytes_per_s.is_some_and(|rate| now.capacity_bytes_per_s >= scaled(rate, RATE_REACHED));
        let has_lanes = self.carrying_lanes() > 0;
        (is_known && has_lanes && !is_of_source && !is_of_limit && !self.is_near && !self.pacer.is_contended()).then(
            || Remembered {
                rtt_min_us: now.rtt_min_us,
                capacity_bytes_per_s: now.capacity_bytes_per_s,
                lanes: self.carrying_lanes(),
                random_loss_ppm: now.random_loss_ppm,
                congestion_control: self.congestion_control.clone(),
            },
        )
    }

    fn carrying_lanes(&self) -> u16 {
        self.lanes.lanes.min(self.connected)
    }

    /// A busy host made the connect slow.
    fn turn_near(&mut self) -> Advice {
        self.is_near = true;
        let (lanes, reason) = match self.wishes.lanes {
            Some(_) => (self.lanes.lanes, self.lanes.reason),
            None => {
                let near = plan::near_lanes(None, self.cpus);
                (near.lanes, near.reason)
            }
        };
        self.lanes = LaneCount::new(lanes, true, reason);
        self.pacer = Pacer::new(None);
        self.given.lanes = lanes;
        self.given.pacing_bytes_per_s = None;
        self.given.reasons = Reasons { lanes: reason, pacing: NEAR_REASON, ..self.given.reasons };
        self.given.clone()
    }

    fn pacer_on_step(&mut self, step: &Step) {
        if self.is_near {
            self.pacer.watch_queue(step, &self.estimator);
        } else {
            self.pacer.on_step(step, &self.estimator);
        }
    }

    fn phase_on_step(&mut self, step: &Step) {
        let estimator = &mut self.estimator;
        if estimator.now.phase == Phase::Steady || step.lanes.is_empty() {
            return;
        }
        let span_us = (2 * u64::from(estimator.now.rtt_us)).max(RAMP_US_MIN);
        let levelled = match (estimator.rate(0, span_us), estimator.rate(span_us, span_us)) {
            (Some(now), Some(before)) => before > 0 && now < scaled(before, RAMP_GROWTH),
            _ => false,
        };
        if levelled || self.pacer.is_full(estimator) {
            estimator.now.phase = Phase::Steady;
        }
    }

    /// Chooses bbr, which ignores losses, where losses without a queue slow the lanes. Beside others it is given back: its harm
    /// depends on the buffer between.
    fn choose_congestion_control(&mut self) {
        let now = &self.estimator.now;
        if self.wishes.congestion_control.is_some() || self.switches >= SWITCHES_MAX {
            return;
        }
        if self.is_switched && self.pacer.is_contended() && !self.wishes.host_congestion_control.is_empty() {
            self.switch(
                self.wishes.host_congestion_control.clone(),
                "others use the path: what the host chooses",
                false,
            );
            return;
        }
        let is_slow = now.random_loss_ppm >= LOSS_PPM_MIN && self.may_be_slowed();
        if is_slow
            && self.limiter.lets_more_be_sent(&self.estimator, self.marked)
            && self.congestion_control != BBR
            && self.wishes.may_choose_bbr()
        {
            self.switch(BBR.to_string(), "packets are lost without a queue; bbr keeps its rate then", true);
        }
    }

    fn may_be_slowed(&self) -> bool {
        let now = &self.estimator.now;
        let is_known = now.phase == Phase::Steady || self.ramp_losses.are_chance();
        is_known && now.source_permille < 500 && !self.pacer.is_full(&self.estimator) && !self.pacer.is_contended()
    }

    fn look_for_a_limit(&mut self, step: &Step) {
        if self.ramp_losses.are_chance() && self.estimator.now.phase == Phase::Ramp {
            self.limiter.enter_chance(step.at_us);
        }
        let lanes = Slowed { marked: self.marked, ignores_losses: self.congestion_control == BBR };
        let slowed = (self.may_be_slowed() && !self.reaches_rate_limit()).then_some(lanes);
        if self.limiter.on_step(step, &self.estimator, slowed) {
            self.estimator.forget_losses();
        }
    }

    fn reaches_rate_limit(&self) -> bool {
        let rate = self.estimator.now.rate_bytes_per_s;
        self.wishes.rate_bytes_per_s.is_some_and(|limit| rate >= scaled(limit, RATE_REACHED))
    }

    fn switch(&mut self, name: String, reason: &'static str, is_switched: bool) {
        (self.congestion_control, self.congestion_control_reason) = (name, reason);
        self.is_switched = is_switched;
        self.switches += 1;
    }

    fn estimate_on_step(&mut self) {
        let now = &mut self.estimator.now;
        now.contended = self.pacer.is_contended() || self.lanes.others_took;
        now.is_limited = self.limiter.passes_bytes_per_s().is_some();
        let found = self.pacer.capacity_bytes_per_s().filter(|_| !self.pacer.is_remembered());
        if let Some(capacity) = self.limiter.passes_bytes_per_s().or(found) {
            (now.capacity_bytes_per_s, now.confidence) = (capacity, Confidence::Measured);
        } else if self.estimator.best_rate_bytes_per_s > now.capacity_bytes_per_s {
            now.capacity_bytes_per_s = self.estimator.best_rate_bytes_per_s;
            now.confidence = now.confidence.max(Confidence::AtLeast);
        }
        let levels = Levels::of(&self.estimator);
        let is_full = self.estimator.now.is_limited || self.pacer.is_full(&self.estimator);
        let now = &mut self.estimator.now;
        now.limit = if now.contended {
            Limit::Contention
        } else if now.source_permille > 500 {
            Limit::Source
        } else if is_full || levels.queueing_us > levels.high_us {
            Limit::Capacity
        } else if now.receive_window_permille > 500 {
            Limit::ReceiveWindow
        } else if now.send_buffer_permille > 500 {
            Limit::SendBuffer
        } else if now.random_loss_ppm > 0 && now.phase == Phase::Steady {
            if now.overtaken { Limit::Jitter } else { Limit::Loss }
        } else {
            Limit::Unknown
        };
    }

    fn changed(&mut self) -> Option<Advice> {
        if self.is_near {
            return None;
        }
        let limit = self.wishes.rate_bound();
        let share = self.pacer.share_of_one_lane(&self.estimator).filter(|_| self.lanes.lanes == 1);
        let limited = self.limiter.bound_bytes_per_s();
        let pacing_bytes_per_s = [self.pacer.bound_bytes_per_s(), share, limited, limit].into_iter().flatten().min();
        let switched = self.is_switched || self.switches > 0;
        let congestion_control = match &self.wishes.congestion_control {
            Some(asked) => Some(asked.clone()),
            None => switched.then(|| self.congestion_control.clone()),
        };
        let reasons = Reasons {
            lanes: self.lanes.reason,
            pacing: match pacing_bytes_per_s {
                Some(_) if pacing_bytes_per_s == limit => RATE_REASON,
                Some(_) if pacing_bytes_per_s == share => SHARE_REASON,
                Some(_) if pacing_bytes_per_s == limited => LIMITED_REASON,
                _ => self.pacer.reason(),
            },
            congestion_control: self.congestion_control_reason,
        };
        let lanes = self.lanes.lanes;
        let same = (lanes, pacing_bytes_per_s, &congestion_control)
            == (self.given.lanes, self.given.pacing_bytes_per_s, &self.given.congestion_control);
        if same {
            return None;
        }
        self.given = Advice { lanes, pacing_bytes_per_s, congestion_control, reasons };
        Some(self.given.clone())
    }
}

impl Wishes {
    fn may_choose_bbr(&self) -> bool {
        self.congestion_control.is_none() && self.allowed_congestion_controls.iter().any(|name| name == BBR)
    }

    /// Only spreads the data evenly: the limit itself is kept elsewhere, over payload.
    fn rate_bound(&self) -> Option<u64> {
        self.rate_bytes_per_s.map(|rate| scaled(rate, RATE_MARGIN).max(1))
    }
}

fn least(bound: Option<u64>, limit: Option<u64>) -> Option<u64> {
    [bound, limit].into_iter().flatten().min()
}

fn first_lanes(
    wishes: &Wishes,
    remembered: Option<&Remembered>,
    estimator: &Estimator,
    rtt_us: u32,
    cpus: u16,
) -> (u16, &'static str) {
    if let Some(asked) = wishes.lanes {
        return (asked.clamp(1, MAX_LANES), ASKED_REASON);
    }
    if rtt_us < NEAR_RTT_US {
        let near = plan::near_lanes(None, cpus);
        return (near.lanes, near.reason);
    }
    let usual = at_start(rtt_us, wishes.foreseen_bytes);
    if let Some(rate) = wishes.rate_bytes_per_s {
        let limited = needed(estimator, rate, false).saturating_mul(2).max(2);
        if limited < usual {
            return (limited, "as many windows as the rate limit needs");
        }
    }
    match remembered {
        Some(remembered) => (at_start_of_known(remembered, rtt_us), "as many as filled this path the last time"),
        None => (usual, "far path: many windows in flight at once, and a quick start"),
    }
}

const BBR: &str = "bbr";
const ASKED_REASON: &str = "asked for";
/// Two of a million slow cubic down to 420 Mbit/s per lane at 100 ms.
const LOSS_PPM_MIN: u32 = 2;
/// Twice there and back: nothing flaps.
const SWITCHES_MAX: u8 = 4;
/// Doubled, the rate falls 17 % (300 Mbit/s x 50 ms, queue of 10 ms, a cubic flow).
const RAMP_US_MIN: u64 = 300_000;
/// Slow start gives 4 over two round trips.
const RAMP_GROWTH: f64 = 1.25;
const NEAR_REASON: &str = "near path: the processors are the limit";
const REFUSED_REASON: &str = "the host does not grant another one";
/// Records and headers add some percent.
const RATE_MARGIN: f64 = 1.05;
/// Pacing and repairs fall short of a limit by some percent.
const RATE_REACHED: f64 = 0.9;
const LIMITED_REASON: &str = "somebody on the way drops what is faster, or a trial shall tell";
const SHARE_REASON: &str = "others use the path: little more than half of it";
const RATE_REASON: &str = "the rate limit that was asked for, spread evenly";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lost_in_another_class_is_no_reason_for_bbr() {
        let allowed_congestion_controls = ["cubic", BBR].map(ToString::to_string).to_vec();
        let host_congestion_control = "cubic".to_string();
        let wishes = Wishes { allowed_congestion_controls, host_congestion_control, ..Wishes::default() };
        let mut tuner = Tuner::new(wishes, 10_000, 4);
        tuner.switch(BBR.to_string(), "packets are lost", true);
        tuner.class_changed(true);
        assert_eq!(tuner.congestion_control(), "cubic");
    }

    #[test]
    fn what_passes_with_the_mark_holds_again_when_the_mark_comes_back() {
        let mut tuner = Tuner::new(Wishes::default(), 10_000, 4);
        tuner.marked_are(Marked::All);
        tuner.limiter = Limiter::holding(1_000_000);
        tuner.pacer = Pacer::new(Some(1_000_000));
        tuner.marked_are(Marked::None);
        assert_eq!(tuner.limiter.passes_bytes_per_s(), None, "a trial sends what it can");
        assert_eq!(tuner.pacer.bound_bytes_per_s(), None, "that was the limit's queue");
        tuner.marked_are(Marked::All);
        assert_eq!(tuner.limiter.passes_bytes_per_s(), Some(1_000_000));
    }
}
