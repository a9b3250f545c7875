//! How fast all lanes may send together.
//!
//! ```text
//!   Free       no bound             a queue stands, and the rate grows no more  -> Draining
//!                                   the lanes double, and the rate does not     -> Draining
//!   Draining   below the rate       the queue is gone, or soon will be          -> Holding
//!                                   that, and each time the rate was another    -> Free
//!                                   it is gone sooner than we can drain one     -> as before: it was none
//!                                   it does not shorten, so it is not ours      -> Contended
//!                                   that, but the rate was read in a moment     -> Draining, from what the link delivered since
//!                                   it stands, and we get far less than the link delivers -> Contended
//!   Holding    just below capacity  now and then a little more; without a queue that is the new capacity, twice in a row -> Free
//!                                   a queue stands                              -> Draining; again and again -> Contended
//!   Contended  no bound             no queue any more, or time to look again    -> Free
//!   any        the path proves to be shorter than before we came, by a queue    -> Contended
//! ```
//! What an earlier job found is held from the start, and left for Free when the path proves to carry more.
//!
//! While a queue stands the link is full whatever we do, so that draining costs nothing until the queue is empty. Several
//! lanes of any congestion control keep a queue; a common bound just below the capacity keeps none.
//!
//! What is delivered while the lanes wait for their source is the source's rate: it may raise a capacity, and finds none.

use super::estimate::{Estimator, Phase, per_second, scaled};
use super::sample::Step;
use super::share::SAMPLE_US;

/// Decides the common bound.
#[derive(Clone, Debug)]
pub(super) struct Pacer {
    state: State,
    /// The queue that stands now: since when, and what was delivered.
    standing_us: u64,
    standing_delivered_bytes: u64,
    /// The link at work: since when its queue has not been empty, and what was delivered.
    busy_us: u64,
    busy_delivered_bytes: u64,
    /// The rate of the last step, and what was under way at its end.
    last: (u64, u64),
    /// Times that restraint did not help, since it last did.
    suspicion: u8,
    calm_since_us: u64,
    /// The capacity that was found last, and by which share it changed from one time to the next.
    last_capacity_bytes_per_s: u64,
    variation: f64,
    /// The smallest round-trip time when we came, or when a queue of others was last found in it.
    rtt_min_before_us: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Free,
    Draining(Drain),
    Holding(Hold),
    Contended { until_us: u64 },
}

#[derive(Clone, Copy, Debug)]
struct Drain {
    /// A queue that is gone before was none of ours: what we hold back shows after a round trip, and takes its time.
    ours_from_us: u64,
    /// The bound that was in force when the queue was seen; `None`: no bound.
    before: Option<Hold>,
    /// Read from less than [`THREE_SAMPLES_US`], which may be some percent too much, as much as we would hold back.
    is_rough: bool,
    capacity_bytes_per_s: u64,
    bound_bytes_per_s: u64,
    queueing_us: u32,
    /// Until then the queue should have become shorter, by as much as we hold back; later it should be gone.
    look_us: u64,
    least_fall_us: u32,
    deadline_us: u64,
    /// Most that was delivered while the queue stood and the bound was in force: the link at work. Repairs of what was lost
    /// before may slow the lanes down at times, so that the mean would be too little.
    full_from_us: u64,
    full_bytes_per_s: u64,
    /// For the time after.
    probe_in_us: u64,
    raise: f64,
}

#[derive(Clone, Copy, Debug)]
struct Hold {
    capacity_bytes_per_s: u64,
    bound_bytes_per_s: u64,
    /// The bound lies above the capacity until then, to see whether it is one.
    probing: bool,
    next_us: u64,
    raise: f64,
    /// The capacity is what an earlier job found, and not seen yet.
    remembered: bool,
}

impl Pacer {
    /// `remembered_bytes_per_s`: what an earlier job found the path to carry. So much and no more is asked for, so that the start
    /// makes no queue; once it flows, a little more shows whether that is still the capacity.
    pub(super) fn new(remembered_bytes_per_s: Option<u64>) -> Self {
        let state = remembered_bytes_per_s.map_or(State::Free, |capacity_bytes_per_s| {
            State::Holding(Hold {
                capacity_bytes_per_s,
                bound_bytes_per_s: a_little_below(capacity_bytes_per_s),
                probing: true,
                next_us: u64::MAX,
                raise: RAISE_DOUBTS,
                remembered: true,
            })
        });
        Self {
            state,
            standing_us: 0,
            standing_delivered_bytes: 0,
            busy_us: 0,
            busy_delivered_bytes: 0,
            last: (0, 0),
            suspicion: 0,
            calm_since_us: 0,
            last_capacity_bytes_per_s: 0,
            variation: 0.0,
            rtt_min_before_us: None,
        }
    }

    /// The bound in force; `None`: none.
    pub(super) fn bound_bytes_per_s(&self) -> Option<u64> {
        match &self.state {
            State::Free | State::Contended { .. } => None,
            State::Draining(drain) => Some(drain.bound_bytes_per_s),
            State::Holding(hold) => Some(hold.bound_bytes_per_s),
        }
    }

    /// The most that a single lane takes where others fill the queue; `None`: nobody else is known to be there. A flow that had to yield to our first
    /// lanes takes half a minute to grow back against the one that stays (cubic, 100 Mbit/s x 20 ms, queue of 100 ms: 27 to 67 Mbit/s).
    pub(super) fn share_of_one_lane(&self, estimator: &Estimator) -> Option<u64> {
        self.is_contended().then(|| scaled(estimator.best_rate_bytes_per_s, SHARE_OF_ONE_LANE))
    }

    /// The bound is what an earlier job found, and that was not seen yet.
    pub(super) fn is_remembered(&self) -> bool {
        matches!(self.state, State::Holding(Hold { remembered: true, .. }))
    }

    /// The rate that the path carries, when that was measured.
    pub(super) fn capacity_bytes_per_s(&self) -> Option<u64> {
        match &self.state {
            State::Free | State::Contended { .. } => None,
            State::Draining(drain) => Some(drain.capacity_bytes_per_s),
            State::Holding(hold) => Some(hold.capacity_bytes_per_s),
        }
    }

    /// Others fill the queue.
    pub(super) fn is_contended(&self) -> bool {
        matches!(self.state, State::Contended { .. })
    }

    /// The lanes deliver what the link gives, or the bound allows.
    pub(super) fn is_full(&self, estimator: &Estimator) -> bool {
        let reached = |bound: u64| estimator.now.rate_bytes_per_s >= scaled(bound, REACHED);
        match &self.state {
            State::Free | State::Contended { .. } => false,
            State::Draining(drain) => reached(drain.bound_bytes_per_s),
            State::Holding(hold) => reached(hold.bound_bytes_per_s.min(hold.capacity_bytes_per_s)),
        }
    }

    /// A queue stands, for longer than a burst does.
    pub(super) fn has_standing_queue(&self) -> bool {
        self.standing_us >= TWO_SAMPLES_US
    }

    /// A queue is being drained: what the path carries will be known when it is empty.
    pub(super) fn is_draining(&self) -> bool {
        matches!(self.state, State::Draining(_))
    }

    /// The capacity of the path is known, and kept to.
    pub(super) fn holds(&self) -> bool {
        matches!(self.state, State::Holding(Hold { remembered: false, .. }))
    }

    /// Why the bound is what it is.
    pub(super) fn reason(&self) -> &'static str {
        match &self.state {
            State::Free => "no queue stands",
            State::Draining(_) => "a queue stands: below the rate of the link until it is empty",
            State::Holding(hold) if hold.remembered => "a little below what the path carried the last time",
            State::Holding(hold) if hold.probing => "looking whether the path carries more",
            State::Holding(_) => "a little below what the path carries, so that no queue builds up",
            State::Contended { .. } => "others fill the queue: restraint would only yield the path to them",
        }
    }

    /// Takes one step in, after the estimator has.
    pub(super) fn on_step(&mut self, step: &Step, estimator: &Estimator) {
        // Without acknowledgements the round-trip time is that of before: no queue can be seen, to stand or to be gone.
        if step.delivered_bytes == 0 {
            return;
        }
        self.watch_queue(step, estimator);
        let levels = Levels::of(estimator);
        if self.stood_before(step, estimator) {
            self.contend(step.at_us);
        }
        match self.state {
            State::Free => self.free(step, estimator, levels),
            State::Draining(drain) => self.draining(step, estimator, levels, drain),
            State::Holding(hold) => self.holding(step, estimator, levels, hold),
            State::Contended { until_us } => self.contended(step, estimator, levels, until_us),
        }
        self.last = (per_second(step.delivered_bytes, step.us), in_flight_bytes(step));
    }

    /// Whether the path proves to be shorter than it was before we sent anything, by as much as a queue: then others filled it. Where packets take
    /// different times, the smallest of many is shorter than that of the first few.
    fn stood_before(&mut self, step: &Step, estimator: &Estimator) -> bool {
        let now = &estimator.now;
        let before_us = *self.rtt_min_before_us.get_or_insert(now.rtt_min_us);
        let queue_us = (before_us / 20).max(STOOD_US_MIN);
        let chance_us = step.rtt_deviation_us.saturating_mul(FALL_DEVIATIONS);
        // What the way back has become shorter by held up acknowledgements alone.
        let fell_us = before_us.saturating_sub(now.rtt_min_us).saturating_sub(estimator.way_back_fell_by_us());
        let is_shorter = now.phase == Phase::Steady && fell_us > queue_us.saturating_add(chance_us);
        if is_shorter {
            self.rtt_min_before_us = Some(now.rtt_min_us);
        }
        is_shorter
    }

    /// All that is done on a near path: how long a queue stands.
    pub(super) fn watch_queue(&mut self, step: &Step, estimator: &Estimator) {
        let levels = Levels::of(estimator);
        if levels.queueing_us > levels.high_us && may_be_ours(estimator) {
            self.standing_us = self.standing_us.saturating_add(step.us);
            self.standing_delivered_bytes = self.standing_delivered_bytes.saturating_add(step.delivered_bytes);
        } else {
            (self.standing_us, self.standing_delivered_bytes) = (0, 0);
        }
        if levels.queueing_us > levels.low_us && may_be_ours(estimator) {
            self.busy_us = self.busy_us.saturating_add(step.us);
            self.busy_delivered_bytes = self.busy_delivered_bytes.saturating_add(step.delivered_bytes);
        } else {
            (self.busy_us, self.busy_delivered_bytes) = (0, 0);
        }
    }

    /// The rate that the link delivered while it had a queue, which is all it carries. `None` as long as that was too short to
    /// tell.
    fn link_bytes_per_s(&self) -> Option<u64> {
        (self.busy_us >= THREE_SAMPLES_US).then(|| per_second(self.busy_delivered_bytes, self.busy_us))
    }

    /// While a queue stands the link sends as fast as it can, so what is delivered meanwhile is what it carries, also when the
    /// lanes still double. Lanes of a far path are paced, so a queue is no burst; while they grow it is believed at once, because a
    /// round trip later twice as much is under way.
    fn free(&mut self, step: &Step, estimator: &Estimator, levels: Levels) {
        let is_long = levels.queueing_us > 2 * levels.high_us;
        let least_us = match (estimator.grows(), is_long) {
            (true, true) => 1,
            (true, false) => TWO_SAMPLES_US,
            (false, _) => STANDING_STEADY_US_MIN,
        };
        let levels_off = self.levels_off(step, estimator, levels);
        if self.standing_us < least_us && !levels_off {
            return;
        }
        let now = per_second(step.delivered_bytes, step.us);
        let standing = per_second(self.standing_delivered_bytes, self.standing_us);
        self.drain(step.at_us, levels, now.max(standing), (RAISE_FIRST, levels.probe_us()));
    }

    /// The lanes double, and two steps in a row brought the same, behind a queue that came and went: lanes that double send their windows in the
    /// first half of a round trip. A host that hears late brings little, and then much.
    fn levels_off(&self, step: &Step, estimator: &Estimator, levels: Levels) -> bool {
        let (rate_before, in_flight_before) = self.last;
        let rate = per_second(step.delivered_bytes, step.us);
        estimator.grows()
            && self.busy_us >= TWO_SAMPLES_US
            && estimator.queueing_over(TWO_SAMPLES_US).1 > levels.high_us
            && in_flight_bytes(step) > scaled(in_flight_before, DOUBLES)
            && rate.abs_diff(rate_before) < scaled(rate, LEVEL)
    }

    fn drain(&mut self, at_us: u64, levels: Levels, capacity_bytes_per_s: u64, after: (f64, u64)) {
        let shows_us = at_us.saturating_add(levels.rtt_us);
        let (before, shows_us, is_rough) = match self.state {
            State::Holding(hold) => (Some(hold), shows_us, false),
            State::Draining(drain) => (drain.before, drain.ours_from_us, drain.is_rough),
            State::Free | State::Contended { .. } => (None, shows_us, self.standing_us < THREE_SAMPLES_US),
        };
        let queueing_us = levels.queueing_us;
        let span_us = (4 * levels.rtt_us).max(DRAIN_US_MIN);
        let factor = (1.0 - f64::from(queueing_us) / span_us as f64).clamp(DRAIN_LEAST, DRAIN_MOST);
        let drained_us = (f64::from(queueing_us) / (1.0 - factor)) as u64;
        let soonest_us = (f64::from(queueing_us.saturating_sub(levels.low_us)) / (1.0 - factor) * SOONEST) as u64;
        self.state = State::Draining(Drain {
            ours_from_us: shows_us.max(at_us.saturating_add(soonest_us)),
            before,
            is_rough,
            capacity_bytes_per_s,
            bound_bytes_per_s: scaled(capacity_bytes_per_s, factor).max(1),
            queueing_us,
            look_us: at_us.saturating_add(2 * levels.rtt_us + DRAIN_LOOK_US),
            least_fall_us: (DRAIN_LOOK_US as f64 * (1.0 - factor) * DRAIN_LEAST_SHARE) as u32,
            deadline_us: at_us.saturating_add(2 * drained_us + 4 * levels.rtt_us + DRAIN_SLACK_US),
            full_from_us: at_us.saturating_add(2 * levels.rtt_us),
            full_bytes_per_s: 0,
            raise: after.0,
            probe_in_us: after.1,
        });
    }

    fn draining(&mut self, step: &Step, estimator: &Estimator, levels: Levels, mut drain: Drain) {
        let after = (drain.raise, drain.probe_in_us);
        if levels.queueing_us <= levels.low_us {
            if step.at_us < drain.ours_from_us {
                // It went by itself: a host was busy, or a burst passed. Taken for the link, one late acknowledgement in the ramp would hold
                // 10 Gbit/s at a hundredth for half a minute.
                self.state = drain.before.map_or(State::Free, State::Holding);
            } else {
                self.drained(step.at_us, drain);
            }
            return;
        }
        if step.at_us >= drain.ours_from_us
            && levels.queueing_us <= levels.low_us.saturating_add(falls_yet_us(&drain, levels))
        {
            self.drained(step.at_us, drain);
            return;
        }
        if step.at_us <= drain.full_from_us {
            // What was on its way when the bound came still arrives, and the longer queue needs more restraint.
            if levels.queueing_us > drain.queueing_us {
                let full_from_us = drain.full_from_us;
                self.drain(step.at_us, levels, drain.capacity_bytes_per_s, after);
                let State::Draining(longer) = &mut self.state else { return };
                longer.full_from_us = full_from_us;
                drain = *longer;
            }
        } else if !estimator.is_source_limited() {
            drain.full_bytes_per_s = drain.full_bytes_per_s.max(estimator.now.rate_bytes_per_s);
        }
        drain.full_bytes_per_s = drain.full_bytes_per_s.max(self.link_bytes_per_s().unwrap_or(0));
        self.state = State::Draining(drain);
        let rate = estimator.now.rate_bytes_per_s.max(1);
        let has_fallen = levels.least_us.saturating_add(drain.least_fall_us) <= drain.queueing_us;
        let obeyed = rate >= scaled(drain.bound_bytes_per_s, REACHED);
        // A link with a queue sends as fast as it can. What we do not get of it others do.
        let over_us = (2 * levels.rtt_us).max(DRAIN_LOOK_US);
        let lacks = estimator.rate(0, over_us).is_some_and(|rate| rate < scaled(drain.bound_bytes_per_s, OTHERS_HAVE));
        if step.at_us > drain.look_us
            && levels.least_us > levels.high_us
            && lacks
            && self.variation <= VARIES
            && may_be_ours(estimator)
        {
            self.contend(step.at_us);
        } else if step.at_us > drain.look_us && !has_fallen && obeyed {
            // We held back, and it did not become shorter: it is not ours. Unless what we held back from was too much.
            match self.link_bytes_per_s().filter(|_| drain.is_rough) {
                Some(exact) if exact < drain.capacity_bytes_per_s => {
                    drain.is_rough = false;
                    self.state = State::Draining(drain);
                    self.drain(step.at_us, levels, exact, after);
                }
                _ => self.contend(step.at_us),
            }
        } else if step.at_us > drain.deadline_us {
            if levels.least_us >= drain.queueing_us / 10 * 7 && self.suspect() {
                self.contend(step.at_us);
            } else {
                self.drain(step.at_us, levels, rate.min(drain.capacity_bytes_per_s), after);
            }
        }
    }

    fn drained(&mut self, at_us: u64, drain: Drain) {
        let measured = drain.full_bytes_per_s;
        let capacity = if measured > 0 { measured } else { drain.capacity_bytes_per_s };
        let before = core::mem::replace(&mut self.last_capacity_bytes_per_s, capacity);
        if before > 0 {
            let changed = capacity.abs_diff(before) as f64 / capacity.max(before) as f64;
            self.variation = (self.variation + changed) / 2.0;
        }
        if self.variation > VARIES {
            self.state = State::Free;
            return;
        }
        self.hold(at_us, capacity, (drain.raise, drain.probe_in_us));
    }

    fn hold(&mut self, at_us: u64, capacity_bytes_per_s: u64, (raise, probe_in_us): (f64, u64)) {
        self.calm_since_us = at_us;
        self.state = State::Holding(Hold {
            capacity_bytes_per_s,
            bound_bytes_per_s: a_little_below(capacity_bytes_per_s),
            probing: false,
            next_us: at_us.saturating_add(probe_in_us),
            raise,
            remembered: false,
        });
    }

    fn holding(&mut self, step: &Step, estimator: &Estimator, levels: Levels, mut hold: Hold) {
        let at_us = step.at_us;
        if at_us.saturating_sub(self.calm_since_us) > CALM_US {
            (self.suspicion, self.calm_since_us) = (0, at_us);
        }
        let least_over_us = if hold.raise < RAISE_DOUBTS { THREE_SAMPLES_US } else { TWO_SAMPLES_US };
        let looks_like_one =
            |queueing_us| hold.probing && may_be_ours(estimator) && queueing_us > levels.probe_us_most();
        let is_probe_queue = looks_like_one(estimator.queueing_over(least_over_us).0);
        if is_probe_queue || self.standing_us > (levels.rtt_us / 2).max(STANDING_STEADY_US_MIN) {
            let standing = per_second(self.standing_delivered_bytes, self.standing_us);
            // A queue that is just there: the link was full in this step, if not before.
            let just_now = per_second(step.delivered_bytes, step.us).max(estimator.now.rate_bytes_per_s);
            let rate = if self.standing_us > 0 { standing } else { just_now };
            // What was asked for was not too much a moment ago.
            if !hold.probing && self.suspect() {
                self.contend(at_us);
            } else {
                let capacity = rate.min(hold.bound_bytes_per_s).max(1);
                self.drain(at_us, levels, capacity, (RAISE_LEAST, PROBE_AGAIN_US.max(2 * levels.probe_us())));
            }
            return;
        }
        if looks_like_one(levels.queueing_us) {
            // A queue, or a sample that a busy host delayed: the next ones tell.
            return;
        }
        if hold.remembered {
            self.remembering(step, estimator, levels, hold);
            return;
        }
        if at_us < hold.next_us {
            return;
        }
        if hold.probing && hold.raise >= RAISE_DOUBTS {
            self.state = State::Free;
            return;
        }
        // No queue stands, so the bound may hold the lanes. It binds each of them, and the slower ones leave their part unused: the sum may
        // stay below it.
        let rate = estimator.rate(0, levels.probe_us()).unwrap_or(0);
        if hold.probing {
            hold.capacity_bytes_per_s = hold.capacity_bytes_per_s.max(rate);
            hold.raise *= 2.0;
        }
        hold.bound_bytes_per_s = scaled(hold.bound_bytes_per_s.max(hold.capacity_bytes_per_s), 1.0 + hold.raise);
        (hold.probing, hold.next_us) = (true, at_us.saturating_add(levels.probe_us()));
        self.state = State::Holding(hold);
    }

    /// Lets the rate grow to what an earlier job found, and then raises the bound. If that makes no queue either, the path carries more than
    /// it did, or never held the earlier job: the ramp goes on without a bound.
    fn remembering(&mut self, step: &Step, estimator: &Estimator, levels: Levels, mut hold: Hold) {
        let reached = estimator.now.rate_bytes_per_s >= scaled(hold.bound_bytes_per_s, REACHED);
        if hold.next_us == u64::MAX {
            if !reached && estimator.now.phase == Phase::Ramp {
                return;
            }
            hold.bound_bytes_per_s = scaled(hold.bound_bytes_per_s, 1.0 + hold.raise);
            hold.next_us = step.at_us.saturating_add(levels.probe_us());
            self.state = State::Holding(hold);
        } else if step.at_us >= hold.next_us {
            self.state = State::Free;
        }
    }

    /// Whether restraint failed so often that others must be there.
    fn suspect(&mut self) -> bool {
        self.suspicion = self.suspicion.saturating_add(1);
        self.suspicion >= SUSPICION_MAX
    }

    fn contend(&mut self, at_us: u64) {
        self.state = State::Contended { until_us: at_us.saturating_add(RETRY_US) };
    }

    fn contended(&mut self, step: &Step, estimator: &Estimator, levels: Levels, until_us: u64) {
        let (_, most_us) = estimator.queueing_over((4 * levels.rtt_us).max(GONE_US));
        if step.at_us >= until_us || u64::from(most_us) <= u64::from(levels.low_us) {
            (self.standing_us, self.standing_delivered_bytes) = (0, 0);
            self.state = State::Free;
        }
    }
}

/// The time by which a queue still becomes shorter once nothing is held back any more: what is seen of it is a round trip old. It is 0 where
/// a capacity is not read well enough, or where others may have a part in the queue.
fn falls_yet_us(drain: &Drain, levels: Levels) -> u32 {
    if margin(drain.full_bytes_per_s) > MARGIN_EXACT {
        return 0;
    }
    let held_back =
        1.0 - drain.bound_bytes_per_s as f64 / drain.full_bytes_per_s.max(drain.bound_bytes_per_s).max(1) as f64;
    (levels.rtt_us as f64 * held_back) as u32
}

fn in_flight_bytes(step: &Step) -> u64 {
    step.lanes.iter().fold(0, |sum, lane| sum.saturating_add(lane.in_flight_bytes))
}

/// The rate to ask for on a path of this capacity.
fn a_little_below(capacity_bytes_per_s: u64) -> u64 {
    scaled(capacity_bytes_per_s, 1.0 - margin(capacity_bytes_per_s)).max(1)
}

/// By how much of it a capacity may be wrong.
fn margin(capacity_bytes_per_s: u64) -> f64 {
    let sample_bytes = capacity_bytes_per_s as f64 * SAMPLE_US as f64 / 1e6;
    (MISREAD_BYTES / sample_bytes.max(1.0)).clamp(MARGIN_LEAST, MARGIN_MOST)
}

/// Lanes that wait for their source, or that losses keep slow, make no queue that stands.
fn may_be_ours(estimator: &Estimator) -> bool {
    !estimator.is_source_limited() && !estimator.is_loss_limited()
}

/// Packets of different lanes meet, whatever the bound: a lane sends them in pairs at least (tcp_min_tso_segs). 8 lanes on 20 Mbit/s x
/// 20 ms keep 1.3 packets each in the queue, 6 ms, which no restraint makes shorter. As long as the rate is not known the lanes double,
/// and a queue is theirs.
fn meeting_us(estimator: &Estimator) -> u32 {
    let now = &estimator.now;
    let bytes = scaled(u64::from(now.busy_lanes) * u64::from(estimator.mss_bytes), MEETING_SEGMENTS);
    let us = bytes.saturating_mul(1_000_000).checked_div(now.rate_bytes_per_s).unwrap_or(0);
    u32::try_from(us).unwrap_or(u32::MAX).min(QUEUE_HIGH_US_MAX)
}

/// The levels at which a rate or a delay is much, or little, on this path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Levels {
    pub(super) rtt_us: u64,
    pub(super) queueing_us: u32,
    /// The least of the last samples: a busy host delays some of them, a queue all.
    pub(super) least_us: u32,
    /// Above it a queue stands.
    pub(super) high_us: u32,
    /// Below it none does.
    pub(super) low_us: u32,
}

impl Levels {
    pub(super) fn of(estimator: &Estimator) -> Self {
        let long_us = (estimator.now.rtt_min_us / 8).clamp(QUEUE_HIGH_US_MIN, QUEUE_HIGH_US_MAX);
        let meeting_us = meeting_us(estimator);
        Self {
            rtt_us: u64::from(estimator.now.rtt_us.max(1)),
            queueing_us: estimator.now.queueing_us,
            least_us: estimator.queueing_over(THREE_SAMPLES_US).0.min(estimator.now.queueing_us),
            high_us: long_us.max(meeting_us.saturating_mul(2)),
            low_us: (long_us / 3).max(meeting_us),
        }
    }

    /// A raise shows within a round trip, and so does its queue.
    fn probe_us(&self) -> u64 {
        (2 * self.rtt_us).max(PROBE_US_MIN)
    }

    fn probe_us_most(&self) -> u32 {
        self.high_us / 2
    }
}

/// A queue between 10 ms (jitter of a busy host or a radio link is less) and 20 ms (the goal is a median below 25 ms).
/// Doubled, others keep 14 points less (100 Mbit/s x 20 ms, a cubic flow).
const QUEUE_HIGH_US_MIN: u32 = 10_000;
/// Doubled, the queue is 28 ms longer (10 Mbit/s x 600 ms).
const QUEUE_HIGH_US_MAX: u32 = 20_000;
/// Lanes that repair losses for a while fall short of a bound by less.
const OTHERS_HAVE: f64 = 0.85;
/// The share of the best rate that we ever had. With half of it, others who leave at times leave us 4 % less.
const SHARE_OF_ONE_LANE: f64 = 0.6;
/// The rate of a radio changes each second, and what is found in one second says nothing about the next. From this variation on no capacity
/// is held. Held, 5 to 80 Mbit/s x 30 ms is used to 77 to 96 %; not held, to 92 to 97 % (simulated).
const VARIES: f64 = 0.12;
/// A queue of others that is shorter leaves us room.
const STOOD_US_MIN: u32 = 5_000;
/// The smallest of a million normally distributed times is 2.9 standard deviations below that of 32. A mean deviation is 0.8 of those, and the
/// kernel's reading of it varies by half. With 4, a delay of 100 ms that varies by 10 ms was taken for contended after 19 s (simulated).
const FALL_DEVIATIONS: u32 = 6;
/// Two samples in a row: one may be a burst. After a large raise the queue grows too fast to wait for three.
/// Halved, it takes 92 % longer (100 Mbit/s x 100 ms, down from 10 to 13 s).
const TWO_SAMPLES_US: u64 = 150_000;
/// The segments of each lane that meet in front of a busy link: 1.3 to 1.5 were seen there with 1, 4 and 8 lanes on 20 Mbit/s x 20
/// ms, and a pair is the most.
/// Doubled, others keep 9.9 points less (100 Mbit/s x 50 ms, four cubic flows before us).
const MEETING_SEGMENTS: f64 = 2.0;
/// Five samples: once the ramp is over a queue grows slowly, and a busy host delays what comes back for some of them.
/// Doubled, the queue is 39 ms longer (150 Mbit/s x 60 ms, jitter of 10 ms, 50 Mbit/s from 15 to 25 s).
const STANDING_STEADY_US_MIN: u64 = 450_000;
/// Steps of a link at work differ by less.
const LEVEL: f64 = 0.03;
/// Lanes that double have so much more under way after a sample, also over 500 ms.
/// Twice as far from the whole, the queue is 73 ms longer (50 Mbit/s x 600 ms, loses 1e-4).
const DOUBLES: f64 = 1.1;
/// Three samples: the acknowledgements of many lanes come in bursts, and a busy host delays some.
/// Doubled, the rate falls by 14 % (150 Mbit/s x 60 ms, jitter of 10 ms, 50 Mbit/s from 15 to 25 s).
const THREE_SAMPLES_US: u64 = 250_000;
/// The margin below the capacity is the possible error of the capacity, so that a small queue drains. On fast paths the capacity is
/// right to a thousandth (1 Gbit/s x 228 ms: 941.5 of 941.5 Mbit/s, 10 Gbit/s x 100 ms: 9,415 of 9,415); on slow ones
/// acknowledgements that come together weigh more.
const MARGIN_LEAST: f64 = 0.001;
/// 300 Mbit/s and more are read well enough to reckon on when a queue will be gone.
/// Doubled, the rate falls by 12 % (150 Mbit/s x 60 ms, jitter of 10 ms, 50 Mbit/s from 15 to 25 s).
const MARGIN_EXACT: f64 = 0.002;
/// With less, 20 Mbit/s x 100 ms is taken for contended at times (simulated).
const MARGIN_MOST: f64 = 0.005;
/// Five packets more or less in a sample.
/// Halved, the rate falls by 11 % (150 Mbit/s x 60 ms, jitter of 10 ms, 50 Mbit/s from 15 to 25 s).
const MISREAD_BYTES: f64 = 7_500.0;
/// Shares while a queue drains; below, an error in the estimate would leave the link empty for a round trip.
/// Half as far from the whole, the rate grows by 16 % (150 Mbit/s x 60 ms, jitter of 10 ms, 50 Mbit/s from 15 to 25 s).
const DRAIN_LEAST: f64 = 0.80;
/// Twice as far from the whole, the rate falls by 25 % (1 Gbit/s x 100 ms, two cubic flows from 10 s).
const DRAIN_MOST: f64 = 0.95;
/// The share of its draining time before which a queue of ours cannot be gone.
/// Doubled, the rate falls by 9.4 % (150 Mbit/s x 60 ms, jitter of 10 ms, 50 Mbit/s from 15 to 25 s).
const SOONEST: f64 = 0.4;
/// A queue drains in about this time, or four round trips.
/// Doubled, the rate falls by 15 % (1 Gbit/s x 100 ms, two cubic flows from 10 s).
const DRAIN_US_MIN: u64 = 1_000_000;
/// After two round trips and this time the queue must have become shorter by this share of what we held back.
/// Doubled, the rate falls by 18 % (1 Gbit/s x 100 ms, two cubic flows from 10 s).
pub(super) const DRAIN_LOOK_US: u64 = 1_000_000;
/// Doubled, the rate falls by 40 % (1 Gbit/s x 100 ms, two cubic flows from 10 s).
const DRAIN_LEAST_SHARE: f64 = 0.3;
/// Doubled, others keep 2.7 points more (1 Gbit/s x 100 ms, two cubic flows from 10 s).
const DRAIN_SLACK_US: u64 = 500_000;
/// A bound is reached from here: pacing and lanes that repair losses fall short of it by some percent.
/// Twice as far from the whole, it takes 3.8 % longer (200 Mbit/s x 50 ms, 1 of 1000 overtaken).
const REACHED: f64 = 0.93;
/// Raises of the bound to see whether the path carries more: the first, and the least (later). They double while they succeed.
const RAISE_FIRST: f64 = 0.06;
/// Doubled, the queue is 37 ms longer (1 Gbit/s x 100 ms, loses 1e-3).
const RAISE_LEAST: f64 = 0.03;
/// A raise by this much without a queue shows that the capacity was taken too low.
/// Halved, the queue is 37 ms longer (1 Gbit/s x 100 ms, loses 1e-3).
const RAISE_DOUBTS: f64 = 0.12;
/// A raise lasts two round trips, at least this: long enough for 3 % too much to show as 15 ms of queue.
/// Doubled, it takes 10 % longer (1 Gbit/s x 100 ms, 500 Mbit/s was known).
const PROBE_US_MIN: u64 = 500_000;
/// After a raise that failed.
/// Doubled, the rate falls by 10 % (150 Mbit/s x 60 ms, jitter of 10 ms, 50 Mbit/s from 15 to 25 s).
const PROBE_AGAIN_US: u64 = 5_000_000;
/// Restraint that failed this often, with no calm of [`CALM_US`] between, shows that others are there.
/// Doubled, the rate falls by 18 % (25 Mbit/s x 20 ms, a stream of 16 from 5 to 25 s).
const SUSPICION_MAX: u8 = 3;
/// Calm of this length forgets failures. Not shown in simulation, whose runs are shorter: over hours, single false alarms would add up.
const CALM_US: u64 = 20_000_000;
/// A look whether others have gone comes after this time.
/// Doubled, the queue is 15 ms longer (25 Mbit/s x 20 ms, a stream of 16 from 5 to 25 s).
const RETRY_US: u64 = 20_000_000;
/// Others have gone when nobody has filled the queue for this time.
const GONE_US: u64 = 2_000_000;
