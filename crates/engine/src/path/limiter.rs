//! Whether losses without a queue come by chance, or somebody on the way drops what is faster than a limit (RFC 7640, traffic
//! policing).
//!
//! ```text
//!   Unasked   much is lost, and no queue stands           -> Trying
//!             much is lost of marked packets              -> Trying
//!             bbr loses more in a short queue             -> Trying
//!   Trying    a little slower: hardly anything is lost    -> Limited
//!             as much is lost                             -> Chance
//!   Chance    time to look again                          -> Unasked
//!   Limited   now and then a little faster; when something is lost then, as before; when something is lost without that, a little slower
//!             and again and again                         -> Unasked
//! ```
//! Through a policer more lanes, or bbr, bring nothing, and lose a fifth of what they send. In a queue of a quarter of the path bbr
//! loses a seventh, because each lane takes for its own what the others left during its probe.

use super::estimate::{Estimator, bytes_in, scaled};
use super::pacing::{DRAIN_LOOK_US, Levels};
use super::sample::Step;

#[derive(Clone, Debug, Default)]
pub(super) struct Limiter {
    state: State,
    /// When bbr's losses in a short queue may be tried again.
    short_queue_again_us: u64,
}

/// What the limiter needs to know about lanes that losses slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slowed {
    pub(super) marked: Marked,
    /// True for bbr, which does not send less when packets are lost.
    pub(super) ignores_losses: bool,
}

/// Which lanes with data ask for priority. All losses of expedited packets may be a limit's, behind a queue of a few packets (RFC
/// 3246).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Marked {
    /// None does.
    #[default]
    None,
    /// As many as need it; another may watch for others.
    ByNeed,
    /// All do.
    All,
}

impl Marked {
    fn asked_from_ppm(self) -> u32 {
        match self {
            Self::None | Self::All => ASKED_FROM_PPM,
            Self::ByNeed => ASKED_BESIDE_SCOUT_FROM_PPM,
        }
    }

    /// Losses of a million bytes; `None`: none may be a limit's, or too little was seen.
    fn ppm(self, estimator: &Estimator) -> Option<u32> {
        match self {
            Self::None => has_no_queue(estimator).then_some(estimator.now.random_loss_ppm),
            Self::ByNeed | Self::All => {
                let span_us = settles_us(estimator);
                // The first round trips repair earlier losses.
                let has_levelled = estimator.rate(0, span_us + shows_us(estimator)).is_some() && !has_grown(estimator);
                let is_short = longest_queue_us(estimator) <= EXPEDITED_QUEUE_US_MOST;
                (has_levelled && is_short).then(|| estimator.resent_ppm_over(span_us))
            }
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Unasked,
    Trying {
        bound_bytes_per_s: u64,
        loss_ppm_before: u32,
        in_short_queue: bool,
        from_us: u64,
        until_us: u64,
        count: Count,
    },
    Chance {
        until_us: u64,
    },
    Limited {
        passes_bytes_per_s: u64,
        /// The raise of the bound; 0: none.
        raised: f64,
        raises: u8,
        falls: u8,
        from_us: u64,
        until_us: u64,
        count: Count,
    },
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    delivered_bytes: u64,
    resent_bytes: u64,
}

impl Count {
    fn add(&mut self, step: &Step) {
        self.delivered_bytes = self.delivered_bytes.saturating_add(step.delivered_bytes);
        self.resent_bytes = self.resent_bytes.saturating_add(step.resent_bytes);
    }

    /// True if already more is lost than this share of all that a trial can send.
    fn loses_more_than(&self, ppm: u32, bound_bytes_per_s: u64, trial_us: u64) -> bool {
        let most_bytes = scaled(bytes_in(bound_bytes_per_s, trial_us), OVER_BOUND);
        u128::from(self.resent_bytes) * 1_000_000 > u128::from(most_bytes) * u128::from(ppm)
    }

    fn ppm(&self) -> u32 {
        let all = u128::from(self.delivered_bytes.saturating_add(self.resent_bytes)).max(1);
        u32::try_from(u128::from(self.resent_bytes) * 1_000_000 / all).unwrap_or(u32::MAX)
    }
}

impl Limiter {
    #[cfg(test)]
    pub(super) fn holding(passes_bytes_per_s: u64) -> Self {
        let mut limiter = Self::default();
        limiter.hold(0, &Estimator::new(10_000), passes_bytes_per_s, 0, RAISED_AGAIN_US);
        limiter
    }

    pub(super) fn bound_bytes_per_s(&self) -> Option<u64> {
        let bound = match self.state {
            State::Unasked | State::Chance { .. } => return None,
            State::Trying { bound_bytes_per_s, .. } => bound_bytes_per_s,
            State::Limited { passes_bytes_per_s, raised, .. } => scaled(passes_bytes_per_s, 1.0 + raised),
        };
        Some(bound.max(BOUND_BYTES_PER_S_MIN))
    }

    pub(super) fn passes_bytes_per_s(&self) -> Option<u64> {
        match self.state {
            State::Limited { passes_bytes_per_s, .. } => Some(passes_bytes_per_s),
            _ => None,
        }
    }

    /// Enters that losses come by chance, as the ramp showed.
    pub(super) fn enter_chance(&mut self, at_us: u64) {
        if matches!(self.state, State::Unasked) {
            self.state = State::Chance { until_us: at_us.saturating_add(VERDICT_US) };
        }
    }

    /// True if losses are few, or come by chance.
    pub(super) fn lets_more_be_sent(&self, estimator: &Estimator, marked: Marked) -> bool {
        match self.state {
            State::Chance { .. } => true,
            State::Unasked => match (marked, marked.ppm(estimator)) {
                (_, Some(ppm)) => ppm < marked.asked_from_ppm(),
                (Marked::None, None) => true,
                (Marked::ByNeed | Marked::All, None) => false,
            },
            State::Trying { .. } | State::Limited { .. } => false,
        }
    }

    /// Takes one step in, after the estimator. `slowed`: the lanes, if losses may slow them. True when a limit was just found,
    /// whose losses those were.
    pub(super) fn on_step(&mut self, step: &Step, estimator: &Estimator, slowed: Option<Slowed>) -> bool {
        let at_us = step.at_us;
        if matches!(self.state, State::Chance { until_us } if at_us >= until_us) {
            self.state = State::Unasked;
        }
        match &mut self.state {
            State::Unasked | State::Chance { .. } => {
                if let Some(slowed) = slowed {
                    self.ask(at_us, estimator, slowed);
                }
            }
            State::Trying { bound_bytes_per_s, loss_ppm_before, in_short_queue, from_us, until_us, count } => {
                if at_us > *from_us {
                    count.add(step);
                }
                let few_ppm = *loss_ppm_before / FALLS_BY;
                let is_sure = count.loses_more_than(few_ppm, *bound_bytes_per_s, until_us.saturating_sub(*from_us));
                if at_us >= *until_us || is_sure {
                    let is_limited = count.ppm() < few_ppm;
                    let passes_bytes_per_s = *bound_bytes_per_s;
                    if is_limited {
                        self.hold(at_us, estimator, passes_bytes_per_s, 0, settles_us(estimator));
                    } else {
                        let until_us = at_us.saturating_add(VERDICT_US);
                        if *in_short_queue {
                            self.short_queue_again_us = until_us;
                        }
                        self.state = State::Chance { until_us };
                    }
                    return is_limited;
                }
            }
            State::Limited { passes_bytes_per_s, raised, raises, falls, from_us, until_us, count } => {
                if at_us <= *from_us {
                    return false;
                }
                count.add(step);
                let loses = count.ppm() > FEW_PPM && count.resent_bytes > FEW_BYTES;
                let (passes, raised, raises) = (*passes_bytes_per_s, *raised, *raises);
                let (falls, is_over) = (*falls, at_us >= *until_us);
                match (raised > 0.0, loses) {
                    (true, true) => self.hold(at_us, estimator, passes, 0, RAISED_AGAIN_US),
                    (false, true) if falls >= FALLS_MAX => self.state = State::Unasked,
                    // A policer passes at once what was held back before.
                    (false, true) => {
                        let less = scaled(passes, 1.0 / (1.0 + RAISE_LEAST));
                        self.hold(at_us, estimator, less, falls + 1, RAISED_AGAIN_US);
                    }
                    (true, false) if is_over => {
                        let most = scaled(passes, 1.0 + raised);
                        let reached = estimator.now.rate_bytes_per_s.min(most).max(passes);
                        self.raise(at_us, estimator, reached, raises.saturating_add(1));
                    }
                    (false, false) if is_over => self.raise(at_us, estimator, passes, 0),
                    (_, false) => {}
                }
            }
        }
        false
    }

    fn ask(&mut self, at_us: u64, estimator: &Estimator, Slowed { marked, ignores_losses }: Slowed) {
        let is_unasked = matches!(self.state, State::Unasked);
        let of_limit = marked.ppm(estimator).filter(|ppm| is_unasked && *ppm >= marked.asked_from_ppm());
        if let Some(loss_ppm) = of_limit {
            self.try_less(at_us, estimator, loss_ppm, false);
        } else if marked == Marked::None
            && ignores_losses
            && at_us >= self.short_queue_again_us
            && let Some(loss_ppm) = lost_in_short_queue_ppm(estimator)
        {
            self.try_less(at_us, estimator, loss_ppm, true);
        }
    }

    fn try_less(&mut self, at_us: u64, estimator: &Estimator, loss_ppm_before: u32, in_short_queue: bool) {
        let from_us = at_us.saturating_add(shows_us(estimator));
        let now_bytes_per_s = estimator.now.rate_bytes_per_s;
        let bound_bytes_per_s = match in_short_queue {
            // The queue was full, so the rate is the link's.
            true => scaled(now_bytes_per_s, LESS_THAN_LINK),
            false => scaled(estimator.rate(0, settles_us(estimator)).unwrap_or(now_bytes_per_s), LESS),
        };
        self.state = State::Trying {
            bound_bytes_per_s: bound_bytes_per_s.max(1),
            loss_ppm_before,
            in_short_queue,
            from_us,
            until_us: from_us.saturating_add(settles_us(estimator)),
            count: Count::default(),
        };
    }

    fn hold(&mut self, at_us: u64, estimator: &Estimator, passes_bytes_per_s: u64, falls: u8, for_us: u64) {
        let from_us = at_us.saturating_add(shows_us(estimator));
        let (until_us, count) = (from_us.saturating_add(for_us), Count::default());
        let (raised, raises) = (0.0, 0);
        self.state = State::Limited { passes_bytes_per_s, raised, raises, falls, from_us, until_us, count };
    }

    fn raise(&mut self, at_us: u64, estimator: &Estimator, passes_bytes_per_s: u64, nth: u8) {
        self.hold(at_us, estimator, passes_bytes_per_s, 0, settles_us(estimator));
        if let State::Limited { raised, raises, .. } = &mut self.state {
            let doublings = nth.saturating_sub(SMALL_RAISES).min(DOUBLINGS_MAX);
            (*raised, *raises) = (RAISE_LEAST * f64::from(1u32 << doublings), nth);
        }
    }
}

/// A policer has no queue. A very short one carries more when it is full now and then.
fn has_no_queue(estimator: &Estimator) -> bool {
    longest_queue_us(estimator) <= queue_us_most(estimator.now.rtt_min_us)
}

/// The longest queue that is none.
pub(super) fn queue_us_most(rtt_min_us: u32) -> u32 {
    (rtt_min_us / 50).max(QUEUE_US_MIN)
}

/// What lanes that ignore losses lose in a queue too short for the pacer, of a million bytes; `None`: little, or they still grow.
fn lost_in_short_queue_ppm(estimator: &Estimator) -> Option<u32> {
    let is_short = longest_queue_us(estimator) <= Levels::of(estimator).high_us;
    let span_us = shows_us(estimator);
    let has_levelled = match (estimator.rate(0, span_us), estimator.rate(span_us, span_us)) {
        (Some(now), Some(before)) => now <= scaled(before, LEVELLED),
        _ => false,
    };
    let loss_ppm = estimator.resent_ppm_over(span_us);
    (is_short && has_levelled && loss_ppm >= IGNORED_FROM_PPM).then_some(loss_ppm)
}

fn longest_queue_us(estimator: &Estimator) -> u32 {
    estimator.queueing_over(QUEUE_WITHIN_US).1
}

fn has_grown(estimator: &Estimator) -> bool {
    let half_us = settles_us(estimator) / 2;
    match (estimator.rate(0, half_us), estimator.rate(half_us, half_us)) {
        (Some(now), Some(before)) => now > scaled(before, LEVELLED),
        _ => true,
    }
}

/// A loss shows after a round trip, its repair after another.
fn shows_us(estimator: &Estimator) -> u64 {
    (2 * u64::from(estimator.now.rtt_us)).max(SHOWS_US_MIN)
}

fn settles_us(estimator: &Estimator) -> u64 {
    (3 * u64::from(estimator.now.rtt_us)).max(DRAIN_LOOK_US)
}

/// A bound of nothing, after a look in which nothing was delivered, would hold the lanes for ever. Two packets a second tell more.
const BOUND_BYTES_PER_S_MIN: u64 = 3_000;
/// Policers drop 1 % and more of cubic (simulated). A trial is too short for less: 0.3 % of 100 Mbit/s are 26 packets a second.
const ASKED_FROM_PPM: u32 = 3_000;
/// A scout may lose most of its fiftieth (`service/aware`).
const ASKED_BESIDE_SCOUT_FROM_PPM: u32 = 30_000;
/// Random losses for which bbr is chosen are fewer; bbr loses 15 % in a queue of a quarter of the path.
const IGNORED_FROM_PPM: u32 = 20_000;
const SHOWS_US_MIN: u64 = 300_000;
/// A busy host delays by less.
const QUEUE_US_MIN: u32 = 2_000;
const QUEUE_WITHIN_US: u64 = 2_000_000;
/// Our own packets fill longer queues: sixteen stand for 8 ms before 25 Mbit/s.
const EXPEDITED_QUEUE_US_MOST: u32 = 15_000;
/// Steady rates differ by less.
const LEVELLED: f64 = 1.1;
const LESS: f64 = 0.95;
/// The rate behind a full queue is exact, and the queue is gone after a quarter of a second.
const LESS_THAN_LINK: f64 = 0.98;
/// Packets that were paced before a trial arrive within it.
const OVER_BOUND: f64 = 1.1;
/// Losses by chance stay the same share.
const FALLS_BY: u32 = 4;
const RAISE_LEAST: f64 = 0.02;
/// A policer passes unused tokens for seconds of a small raise.
const SMALL_RAISES: u8 = 3;
/// Raises of up to a third find a path without its policer.
const DOUBLINGS_MAX: u8 = 4;
/// After more the limit has changed, or is gone.
const FALLS_MAX: u8 = 3;
/// A rate that passes loses less.
const FEW_PPM: u32 = 3_000;
/// Chance may lose a few packets.
const FEW_BYTES: u64 = 15_000;
/// A raise that loses for a second costs 0.4 % in it.
const RAISED_AGAIN_US: u64 = 5_000_000;
/// Paths change within minutes.
const VERDICT_US: u64 = 60_000_000;

#[cfg(test)]
mod tests {
    use super::super::estimate::Phase;
    use super::*;

    /// Ten steps a second over 25 Mbit/s x 10 ms, a queue of 8 ms; a tenth is lost above a limit.
    fn bound_after(seconds: u64, slowed: Slowed, mut limiter: Limiter) -> Option<u64> {
        let mut estimator = Estimator::new(10_000);
        for at in 1..=seconds * 10 {
            let delivered_bytes = limiter.bound_bytes_per_s().map_or(300_000, |bound| (bound / 10).min(300_000));
            let resent_bytes = if delivered_bytes > 295_000 { 30_000 } else { 0 };
            let rtt_us = if at < 3 { 10_000 } else { 18_000 };
            let (at_us, us, sent_bytes) = (at * 100_000, 100_000, delivered_bytes + resent_bytes);
            let step = Step { at_us, us, delivered_bytes, sent_bytes, resent_bytes, rtt_us, ..Step::default() };
            estimator.on_step(&step);
            limiter.on_step(&step, &estimator, Some(slowed));
        }
        limiter.passes_bytes_per_s()
    }

    /// 1 Gbit/s x 300 ms of which half a percent is lost: a trial took 1.5 s, at a quarter of the rate that bbr has.
    #[test]
    fn losses_that_stay_are_chance_before_the_trial_ends() {
        let (mut estimator, mut limiter) = (Estimator::new(300_000), Limiter::default());
        estimator.now.phase = Phase::Steady;
        let tried = (1..=100).filter(|at| {
            let (at_us, us, rtt_us) = (at * 100_000, 100_000, 300_000);
            let (delivered_bytes, resent_bytes) = (4_000_000, 20_000);
            let sent_bytes = delivered_bytes + resent_bytes;
            let step = Step { at_us, us, delivered_bytes, sent_bytes, resent_bytes, rtt_us, ..Step::default() };
            estimator.on_step(&step);
            let slowed = Slowed { marked: Marked::None, ignores_losses: false };
            limiter.on_step(&step, &estimator, (*at > 20).then_some(slowed));
            limiter.bound_bytes_per_s().is_some()
        });
        assert_eq!(tried.count(), 9, "two round trips until it shows, and a quarter of three");
        assert!(matches!(limiter.state, State::Chance { .. }));
    }

    #[test]
    fn a_limit_before_a_short_queue_is_found_by_marked_lanes() {
        let after = |marked| bound_after(4, Slowed { marked, ignores_losses: false }, Limiter::default());
        assert_eq!(after(Marked::All), Some(2_850_000));
        assert_eq!(after(Marked::None), None);
    }

    #[test]
    fn bbr_is_held_in_a_short_queue_also_after_losses_that_came_by_chance() {
        let bbr = Slowed { marked: Marked::None, ignores_losses: true };
        let chance =
            |short_queue_again_us| Limiter { state: State::Chance { until_us: u64::MAX }, short_queue_again_us };
        assert_eq!(bound_after(3, bbr, chance(0)), Some(2_940_000));
        assert_eq!(bound_after(3, bbr, chance(u64::MAX)), None, "less helped nothing a moment ago");
    }
}
