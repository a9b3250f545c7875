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
//! A capacity that an earlier job found is held from the start.
//!
//! While a queue stands the link is full whatever we do, so draining costs nothing until the queue is empty. Several lanes of any
//! congestion control keep a queue; a common bound just below the capacity keeps none.
//!
//! While the lanes wait for their source, the delivered rate is the source's: it may raise a capacity, and finds none.

use super::estimate::{Estimator, Phase, per_second, scaled};
use super::sample::Step;
use super::share::SAMPLE_US;

#[derive(Clone, Debug)]
pub(super) struct Pacer {
    state: State,
    standing_us: u64,
    standing_delivered_bytes: u64,
    /// Since when the link's queue is not empty.
    busy_us: u64,
    busy_delivered_bytes: u64,
    last: (u64, u64),
    /// Times that restraint failed in a row.
    suspicion: u8,
    calm_since_us: u64,
    last_capacity_bytes_per_s: u64,
    variation: f64,
    /// The smallest round-trip time when we came, or others' queue last stood in it.
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
    /// A queue gone earlier was not ours: restraint shows after a round trip.
    ours_from_us: u64,
    before: Option<Hold>,
    /// The rate was read over less than [`THREE_SAMPLES_US`]: wrong by up to what we hold back.
    is_rough: bool,
    capacity_bytes_per_s: u64,
    bound_bytes_per_s: u64,
    queueing_us: u32,
    look_us: u64,
    least_fall_us: u32,
    deadline_us: u64,
    /// From here the most that is delivered behind the queue counts. A mean would be too little, because of repairs.
    full_from_us: u64,
    full_bytes_per_s: u64,
    probe_in_us: u64,
    raise: f64,
}

#[derive(Clone, Copy, Debug)]
struct Hold {
    capacity_bytes_per_s: u64,
    bound_bytes_per_s: u64,
    probing: bool,
    next_us: u64,
    raise: f64,
    /// An earlier job's capacity, not yet seen.
    remembered: bool,
}

impl Pacer {
    /// Begins at an earlier job's rate, without a queue; a raise then checks it.
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

    pub(super) fn bound_bytes_per_s(&self) -> Option<u64> {
        match &self.state {
            State::Free | State::Contended { .. } => None,
            State::Draining(drain) => Some(drain.bound_bytes_per_s),
            State::Holding(hold) => Some(hold.bound_bytes_per_s),
        }
    }

    /// Most of a single lane beside others; `None`: nobody is known. A flow that yielded to our first lanes needs half a minute
    /// to regrow against the one that stays (cubic, 100 Mbit/s x 20 ms, queue of 100 ms: 27 to 67 Mbit/s).
    pub(super) fn share_of_one_lane(&self, estimator: &Estimator) -> Option<u64> {
        self.is_contended().then(|| scaled(estimator.best_rate_bytes_per_s, SHARE_OF_ONE_LANE))
    }

    pub(super) fn is_remembered(&self) -> bool {
        matches!(self.state, State::Holding(Hold { remembered: true, .. }))
    }

    pub(super) fn capacity_bytes_per_s(&self) -> Option<u64> {
        match &self.state {
            State::Free | State::Contended { .. } => None,
            State::Draining(drain) => Some(drain.capacity_bytes_per_s),
            State::Holding(hold) => Some(hold.capacity_bytes_per_s),
        }
    }

    pub(super) fn is_contended(&self) -> bool {
        matches!(self.state, State::Contended { .. })
    }

    pub(super) fn is_full(&self, estimator: &Estimator) -> bool {
        let reached = |bound: u64| estimator.now.rate_bytes_per_s >= scaled(bound, REACHED);
        match &self.state {
            State::Free | State::Contended { .. } => false,
            State::Draining(drain) => reached(drain.bound_bytes_per_s),
            State::Holding(hold) => reached(hold.bound_bytes_per_s.min(hold.capacity_bytes_per_s)),
        }
    }

    /// True for a queue longer than a burst.
    pub(super) fn has_standing_queue(&self) -> bool {
        self.standing_us >= TWO_SAMPLES_US
    }

    pub(super) fn is_draining(&self) -> bool {
        matches!(self.state, State::Draining(_))
    }

    pub(super) fn holds(&self) -> bool {
        matches!(self.state, State::Holding(Hold { remembered: false, .. }))
    }

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

    pub(super) fn on_step(&mut self, step: &Step, estimator: &Estimator) {
        // Without acknowledgements no queue can be seen.
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

    /// True if the path is shorter, by a queue, than before we came: others filled it. The smallest of many scattered packets is
    /// shorter than that of a few.
    fn stood_before(&mut self, step: &Step, estimator: &Estimator) -> bool {
        let now = &estimator.now;
        let before_us = *self.rtt_min_before_us.get_or_insert(now.rtt_min_us);
        let queue_us = (before_us / 20).max(STOOD_US_MIN);
        let chance_us = step.rtt_deviation_us.saturating_mul(FALL_DEVIATIONS);
        // A longer way back held up acknowledgements alone.
        let fell_us = before_us.saturating_sub(now.rtt_min_us).saturating_sub(estimator.way_back_fell_by_us());
        let is_shorter = now.phase == Phase::Steady && fell_us > queue_us.saturating_add(chance_us);
        if is_shorter {
            self.rtt_min_before_us = Some(now.rtt_min_us);
        }
        is_shorter
    }

    /// Measures how long a queue stands: all that a near path needs.
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

    /// The link's rate behind a queue; `None`: too short.
    fn link_bytes_per_s(&self) -> Option<u64> {
        (self.busy_us >= THREE_SAMPLES_US).then(|| per_second(self.busy_delivered_bytes, self.busy_us))
    }

    /// Looks for a queue, which on a far path is no burst: lanes are paced. While lanes grow it counts at once, because a round
    /// trip later twice as much is under way.
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

    /// True if lanes double and two steps brought the same, behind a queue that came and went: they send in the first half of a
    /// round trip. A late host brings little, then much.
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
                // A busy host, or a burst. Taken for the link, one late acknowledgement in the ramp would hold 10 Gbit/s at a
                // hundredth for half a minute.
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
            // Earlier packets still arrive: a longer queue needs more restraint.
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
        // A link with a queue is full: others get what we miss.
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
            // The queue is not ours, unless the rate was read too high.
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
            // A new queue: the link was full in this step.
            let just_now = per_second(step.delivered_bytes, step.us).max(estimator.now.rate_bytes_per_s);
            let rate = if self.standing_us > 0 { standing } else { just_now };
            // The same bound made no queue before.
            if !hold.probing && self.suspect() {
                self.contend(at_us);
            } else {
                let capacity = rate.min(hold.bound_bytes_per_s).max(1);
                self.drain(at_us, levels, capacity, (RAISE_LEAST, PROBE_AGAIN_US.max(2 * levels.probe_us())));
            }
            return;
        }
        if looks_like_one(levels.queueing_us) {
            // A busy host may have delayed one sample.
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
        // Slower lanes leave their part unused: the sum may stay below the bound.
        let rate = estimator.rate(0, levels.probe_us()).unwrap_or(0);
        if hold.probing {
            hold.capacity_bytes_per_s = hold.capacity_bytes_per_s.max(rate);
            hold.raise *= 2.0;
        }
        hold.bound_bytes_per_s = scaled(hold.bound_bytes_per_s.max(hold.capacity_bytes_per_s), 1.0 + hold.raise);
        (hold.probing, hold.next_us) = (true, at_us.saturating_add(levels.probe_us()));
        self.state = State::Holding(hold);
    }

    /// Grows to the earlier job's rate, then raises the bound. Without a queue the path carries more, or never held that job: the
    /// ramp goes on.
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

    /// Counts a failure of restraint. True: others must be there.
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

/// The time by which a queue still shrinks without restraint: it is seen a round trip late. 0 if the capacity is rough, or others
/// may share it.
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

fn a_little_below(capacity_bytes_per_s: u64) -> u64 {
    scaled(capacity_bytes_per_s, 1.0 - margin(capacity_bytes_per_s)).max(1)
}

fn margin(capacity_bytes_per_s: u64) -> f64 {
    let sample_bytes = capacity_bytes_per_s as f64 * SAMPLE_US as f64 / 1e6;
    (MISREAD_BYTES / sample_bytes.max(1.0)).clamp(MARGIN_LEAST, MARGIN_MOST)
}

/// Lanes that wait for their source, or are slowed by losses, keep no queue.
fn may_be_ours(estimator: &Estimator) -> bool {
    !estimator.is_source_limited() && !estimator.is_loss_limited()
}

/// The wait of packets that meet, whatever the bound: a lane sends pairs (tcp_min_tso_segs). 6 ms with 8 lanes on 20 Mbit/s x 20
/// ms. At an unknown rate lanes double, and a queue is theirs.
fn meeting_us(estimator: &Estimator) -> u32 {
    let now = &estimator.now;
    let bytes = scaled(u64::from(now.busy_lanes) * u64::from(estimator.mss_bytes), MEETING_SEGMENTS);
    let us = bytes.saturating_mul(1_000_000).checked_div(now.rate_bytes_per_s).unwrap_or(0);
    u32::try_from(us).unwrap_or(u32::MAX).min(QUEUE_HIGH_US_MAX)
}

/// The limits of what is much, or little, on this path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Levels {
    pub(super) rtt_us: u64,
    pub(super) queueing_us: u32,
    /// The least of some samples: a queue delays all.
    pub(super) least_us: u32,
    pub(super) high_us: u32,
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

    /// A raise, and its queue, show within it.
    fn probe_us(&self) -> u64 {
        (2 * self.rtt_us).max(PROBE_US_MIN)
    }

    fn probe_us_most(&self) -> u32 {
        self.high_us / 2
    }
}

/// Above the jitter of hosts and radios, for a median below 25 ms. Doubled, others keep 14 points less (100 Mbit/s x 20 ms, a
/// cubic flow).
const QUEUE_HIGH_US_MIN: u32 = 10_000;
/// Doubled, the queue is 28 ms longer (10 Mbit/s x 600 ms).
const QUEUE_HIGH_US_MAX: u32 = 20_000;
/// Repairs fall short of a bound by less.
const OTHERS_HAVE: f64 = 0.85;
/// With half of our best rate, others who leave at times leave us 4 % less.
const SHARE_OF_ONE_LANE: f64 = 0.53;
/// A radio's rate changes each second. Held, 5 to 80 Mbit/s x 30 ms is used to 77 to 96 %; not held, to 92 to 97 % (simulated).
const VARIES: f64 = 0.12;
/// A shorter queue of others leaves us room.
const STOOD_US_MIN: u32 = 5_000;
/// The smallest of a million normal times is 2.9 standard deviations below that of 32; a mean deviation is 0.8 of those, and the
/// kernel's varies by half. With 4, 100 ms that vary by 10 ms counted as contended after 19 s (simulated).
const FALL_DEVIATIONS: u32 = 6;
/// Two samples: one may be a burst; after a large raise the queue grows too fast for three. Halved, it takes 92 % longer (100
/// Mbit/s x 100 ms, down from 10 to 13 s).
const TWO_SAMPLES_US: u64 = 150_000;
/// At most a pair of each lane meets; 1.3 to 1.5 were seen with 1, 4 and 8 lanes on 20 Mbit/s x 20 ms. Doubled, others keep 9.9
/// points less (four cubic).
const MEETING_SEGMENTS: f64 = 2.0;
/// Five samples: a busy host delays some, and after the ramp queues grow slowly. Doubled, the queue is 39 ms longer (jitter).
const STANDING_STEADY_US_MIN: u64 = 450_000;
/// A working link varies by less.
const LEVEL: f64 = 0.03;
/// Doubling lanes reach this in a sample, also over 500 ms. Twice as far from 1, the queue is 73 ms longer (50 Mbit/s x 600 ms,
/// loses 1e-4).
const DOUBLES: f64 = 1.1;
/// Three samples: acknowledgements of many lanes come in bursts. Doubled, the rate falls 14 % (jitter).
const THREE_SAMPLES_US: u64 = 250_000;
/// Below the capacity by its possible error, a small queue drains. Fast paths are read to a thousandth (1 Gbit/s x 228 ms: 941.5
/// of 941.5 Mbit/s); slow ones less well.
const MARGIN_LEAST: f64 = 0.001;
/// 300 Mbit/s and more tell well enough when a queue ends. Doubled, the rate falls 12 % (jitter).
const MARGIN_EXACT: f64 = 0.002;
/// With less, 20 Mbit/s x 100 ms counts as contended at times (simulated).
const MARGIN_MOST: f64 = 0.005;
/// Five packets in a sample. Halved, the rate falls 11 % (jitter).
const MISREAD_BYTES: f64 = 7_500.0;
/// A smaller share would leave a link empty for a round trip after an error. Half as far from 1, the rate grows 16 % (jitter).
const DRAIN_LEAST: f64 = 0.80;
/// Twice as far from 1, the rate falls 25 % (two cubic).
const DRAIN_MOST: f64 = 0.95;
/// No queue of ours drains sooner. Doubled, the rate falls 9.4 % (jitter).
const SOONEST: f64 = 0.4;
/// A queue drains in this, or four round trips. Doubled, the rate falls 15 % (two cubic).
const DRAIN_US_MIN: u64 = 1_000_000;
/// Time for [`DRAIN_LEAST_SHARE`], besides two round trips. Doubled, the rate falls 18 % (two cubic).
pub(super) const DRAIN_LOOK_US: u64 = 1_000_000;
/// Least part of what we held back by which the queue must be shorter. Doubled, the rate falls 40 % (two cubic).
const DRAIN_LEAST_SHARE: f64 = 0.3;
/// Doubled, others keep 2.7 points more (two cubic).
const DRAIN_SLACK_US: u64 = 500_000;
/// Pacing and repairs fall short of a bound by some percent. Twice as far from 1, it takes 3.8 % longer (200 Mbit/s x 50 ms, 1 of
/// 1000 overtaken).
const REACHED: f64 = 0.93;
/// The first raise of the bound; raises double while they succeed.
const RAISE_FIRST: f64 = 0.06;
/// Doubled, the queue is 37 ms longer (1 Gbit/s x 100 ms, loses 1e-3).
const RAISE_LEAST: f64 = 0.03;
/// A raise by this much without a queue: the capacity was too low. Halved, the queue is 37 ms longer (1 Gbit/s x 100 ms, loses
/// 1e-3).
const RAISE_DOUBTS: f64 = 0.12;
/// A raise of 3 % too much then makes 15 ms of queue. Doubled, it takes 10 % longer (1 Gbit/s x 100 ms, 500 Mbit/s was known).
const PROBE_US_MIN: u64 = 500_000;
/// The wait after a failed raise. Doubled, the rate falls 10 % (jitter).
const PROBE_AGAIN_US: u64 = 5_000_000;
/// Failures of restraint without [`CALM_US`] between that show others. Doubled, the rate falls 18 % (25 Mbit/s x 20 ms, a stream
/// of 16 from 5 to 25 s).
const SUSPICION_MAX: u8 = 3;
/// Calm of this length forgets failures: over hours, single false alarms would add up. Simulated runs are shorter.
const CALM_US: u64 = 20_000_000;
/// The time until a look whether others have gone. Doubled, the queue is 15 ms longer (25 Mbit/s x 20 ms, a stream of 16 from 5
/// to 25 s).
const RETRY_US: u64 = 20_000_000;
/// The time without a queue that shows that others have gone.
const GONE_US: u64 = 2_000_000;
