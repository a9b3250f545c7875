//! The rate of a job that yields to everybody: `--background`.
//!
//! ```text
//!   Rise    from little to more, as long as no queue builds up; then -> Drain
//!           up to a little below what the path is known to carry        -> Hold
//!   Hold    a little below what the path carries, so that no queue stands and a short flow of others finds room
//!           now and then a little more: no queue                        -> Rise
//!           a queue                                                     -> Drain
//!   Drain   far below the rate, until the queue is empty: it was ours   -> Hold
//!           it was others who came and went                             -> Rise
//!           it stays although we hold back: others want the path        -> Yield
//!   Yield   next to nothing, until no queue stands for a while          -> Rise
//! ```
//! Delay shows others long before loss does: as in LEDBAT (RFC 6817), LEDBAT++ (draft-irtf-iccrg-ledbat-plus-plus) and TCP-LP.
//! Beside LEDBAT's queue of 60 to 100 ms a new connection leaves slow start too early (HyStart allows 4 to 16 ms), and takes ten
//! seconds and more to grow. So this one keeps no queue, takes 3 ms for others, and learns the path by short raises.
//!
//! Readings should come each [`SAMPLE_US`]: a flow in slow start doubles each round trip, and so does its harm by our delay.

mod delay;
mod delivered;

use crate::path::{LaneReading, MSS_USUAL_BYTES, STOCK_WINDOW_BYTES};
use delay::Delay;
use delivered::Delivered;

/// The time between readings: about the smallest round trip of a far path.
pub const SAMPLE_US: u64 = 10_000;

/// Decides rate and lanes of a background job on one path.
#[derive(Clone, Debug)]
pub struct Background {
    delay: Delay,
    delivered: Delivered,
    state: State,
    rate: f64,
    /// The path's capacity alone: the most behind a queue; 0: unknown.
    capacity: f64,
    raise: Raise,
    /// The least length of the next yield.
    yield_us: u64,
    has_queue: bool,
    /// The part of a round trip that waits for a pair: see [`Background::wait_for_pairs`].
    pairing_us: f64,
    lanes: u16,
    short_of_lanes_since_us: Option<u64>,
}

/// Settings of the lanes from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modest {
    /// Most that all lanes may send together.
    pub rate_bytes_per_s: u64,
    /// Lanes that carry data.
    pub lanes: u16,
    /// How long packets wait on the path.
    pub queue_us: u32,
    /// The present action.
    pub doing: Doing,
}

/// The state, for whoever watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Looking for what is free.
    Rising,
    /// Has what is free.
    Holding,
    /// Holds back to see whose queue it is.
    Draining,
    /// Yields: others want the path.
    Yielding,
}

impl Doing {
    /// Why the rate is what it is.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Rising => "background: no queue stands, so that more may be free",
            Self::Holding => "background: a little below what is free",
            Self::Draining => "background: a queue stands, and it may be that of others",
            Self::Yielding => "background: others want the path",
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum State {
    Rise { next_us: u64 },
    Hold(Hold),
    Drain(Drain),
    Yield { until_us: u64, calm_us: u64 },
}

#[derive(Clone, Copy, Debug)]
struct Hold {
    /// The rate is above the path's known capacity.
    raised: bool,
    /// The time at which all that was sent before has been seen: a queue until then is ours.
    settled_us: u64,
    next_us: u64,
}

#[derive(Clone, Copy, Debug)]
struct Drain {
    delivered: f64,
    /// Earlier readings show what was sent before.
    look_us: u64,
    deadline_us: u64,
    rate: f64,
}

#[derive(Clone, Copy, Debug)]
struct Raise {
    share: f64,
    wait_us: u64,
}

impl Background {
    /// Begins a path whose connections took `rtt_us_at_connect` to open; an earlier job knows `known_bytes_per_s`.
    #[must_use]
    pub fn new(rtt_us_at_connect: u32, known_bytes_per_s: Option<u64>) -> Self {
        let mut background = Self {
            delay: Delay::new(rtt_us_at_connect),
            delivered: Delivered::default(),
            state: State::Rise { next_us: 0 },
            rate: 0.0,
            capacity: known_bytes_per_s.unwrap_or(0) as f64,
            raise: Raise { share: RAISE_LEAST, wait_us: RAISE_WAIT_US_MIN },
            yield_us: YIELD_US_MIN,
            has_queue: false,
            pairing_us: 0.0,
            lanes: 1,
            short_of_lanes_since_us: None,
        };
        background.rate = (10.0 * SEGMENT_BYTES * 1e6 / background.delay.rtt_us() as f64).min(LEAST_MOST);
        background
    }

    /// The settings that hold now.
    #[must_use]
    pub fn advice(&self) -> Modest {
        let doing = match self.state {
            State::Rise { .. } => Doing::Rising,
            State::Hold(_) => Doing::Holding,
            State::Drain(_) => Doing::Draining,
            State::Yield { .. } => Doing::Yielding,
        };
        Modest { rate_bytes_per_s: self.rate.max(1.0) as u64, lanes: self.lanes, queue_us: self.queue_us(), doing }
    }

    /// Takes a reading of all lanes in.
    pub fn on_sample(&mut self, at_us: u64, lanes: &[LaneReading]) -> Modest {
        let rtt_us = self.delay.rtt_us();
        self.delivered.on_sample(at_us, lanes, rtt_us);
        // Resting lanes have only old round trips.
        let carrying = &lanes[..lanes.len().min(usize::from(self.lanes))];
        if !self.delay.on_sample(at_us, carrying, self.delivered.changed()) {
            return self.advice();
        }
        self.wait_for_pairs();
        self.has_queue = self.queue_us() > self.delay.high_us() || self.delivered.suffers();
        match self.state {
            State::Rise { next_us } => self.rise(at_us, next_us),
            State::Hold(hold) => self.hold(at_us, hold),
            State::Drain(drain) => self.drain(at_us, drain),
            State::Yield { until_us, calm_us } => self.yields(at_us, until_us, calm_us),
        }
        self.count_lanes(at_us, lanes);
        self.advice()
    }

    /// Where receivers acknowledge every second segment, a single one waits for the next pair, 20 ms at 1 Mbit/s. The smoothed
    /// round trip follows by an eighth each time.
    fn wait_for_pairs(&mut self) {
        let pair = 2.0 * SEGMENT_BYTES;
        let pairing_us = pair * 1e6 * f64::from(self.lanes) / self.rate.max(1.0);
        let acks = (self.delivered.last_bytes() as f64 / pair / f64::from(self.lanes)).min(64.0) as u32;
        let forgotten = (0..acks).fold(1.0, |rest, _| rest * 0.875);
        self.pairing_us = pairing_us + (self.pairing_us - pairing_us).max(0.0) * forgotten;
    }

    /// The least known wait of packets.
    fn queue_us(&self) -> u32 {
        self.delay.queue_us().saturating_sub(self.pairing_us as u32)
    }

    /// Enough to see when others have gone.
    fn least(&self) -> f64 {
        (self.capacity / YIELD_SHARE).max(2.0 * SEGMENT_BYTES * 1e6 / self.delay.rtt_us().max(1) as f64).min(LEAST_MOST)
    }

    fn rise(&mut self, at_us: u64, next_us: u64) {
        if self.has_queue {
            return self.begin_drain(at_us);
        }
        if at_us < next_us || self.queue_us() > self.delay.low_us() {
            return;
        }
        let most = self.capacity * (1.0 - HEADROOM);
        if self.capacity > 0.0 && self.rate >= most {
            self.rate = most;
            return self.begin_hold(at_us);
        }
        // An unused rate tells nothing.
        if self.delivered.rate() < USED * self.rate && self.delivered.is_complete() {
            return;
        }
        let is_low = if self.capacity > 0.0 { self.rate < self.capacity / 4.0 } else { self.rate < QUICK_MOST };
        self.rate *= if is_low { RISE_QUICK } else { RISE };
        if self.capacity > 0.0 && self.rate > most {
            self.rate = most;
        }
        self.state = State::Rise { next_us: at_us + self.beat_us() };
    }

    fn beat_us(&self) -> u64 {
        (self.delay.rtt_us() + SAMPLE_US).max(BEAT_US_MIN)
    }

    fn begin_hold(&mut self, at_us: u64) {
        let settled_us = at_us + self.delay.rtt_us() + RAISED_US;
        let next_us = at_us + self.raise.wait_us.max(4 * self.delay.rtt_us());
        self.state = State::Hold(Hold { raised: false, settled_us, next_us });
    }

    fn hold(&mut self, at_us: u64, Hold { raised, settled_us, next_us }: Hold) {
        if raised && self.queue_us() > self.delay.low_us() || self.has_queue && at_us < settled_us {
            return self.begin_drain(at_us);
        }
        if self.has_queue {
            return self.begin_yield(at_us);
        }
        if at_us < next_us {
            return;
        }
        if raised && self.delivered.rate() < USED * self.rate {
            // Not used, so it says nothing.
            self.rate /= 1.0 + HEADROOM + self.raise.share;
            self.begin_hold(at_us);
            return;
        }
        if raised {
            // Without a queue the path carries more.
            self.capacity = self.capacity.max(self.rate);
            self.raise.share = (self.raise.share * 2.0).min(RISE - 1.0);
        }
        self.rate *= 1.0 + HEADROOM + self.raise.share;
        let next_us = at_us + self.beat_us() + RAISED_US;
        self.state = State::Hold(Hold { raised: true, settled_us: next_us, next_us });
    }

    fn begin_drain(&mut self, at_us: u64) {
        let delivered = self.delivered.rate().min(self.rate).max(self.least());
        let drain =
            Drain { delivered, look_us: at_us + self.delay.rtt_us() + SAMPLE_US, deadline_us: 0, rate: self.rate };
        self.rate = (delivered - DRAIN * self.capacity.max(delivered)).max(self.least());
        self.state = State::Drain(drain);
    }

    fn drain(&mut self, at_us: u64, mut drain: Drain) {
        drain.delivered = drain.delivered.max(self.delivered.rate().min(drain.rate));
        if at_us < drain.look_us {
            // Earlier packets still lengthen the queue.
            let longer_us = self.delay.rtt_us() + 4 * u64::from(self.delay.queue_us());
            drain.deadline_us = drain.deadline_us.max(at_us + longer_us);
            self.state = State::Drain(drain);
            return;
        }
        if self.queue_us() <= self.delay.low_us() {
            // The link was full, perhaps of others, too.
            let is_all = drain.delivered > ALL * self.capacity;
            if is_all {
                self.capacity = drain.delivered;
            }
            self.rate = (drain.delivered - HEADROOM * self.capacity).max(self.least());
            let wait_us = if is_all { (self.raise.wait_us * 4).min(RAISE_WAIT_US_MAX) } else { RAISE_WAIT_US_MIN };
            self.raise = Raise { share: RAISE_LEAST, wait_us };
            self.begin_hold(at_us);
            return;
        }
        if at_us >= drain.deadline_us {
            self.begin_yield(at_us);
            return;
        }
        self.state = State::Drain(drain);
    }

    fn begin_yield(&mut self, at_us: u64) {
        self.rate = self.least();
        self.raise = Raise { share: RAISE_LEAST, wait_us: RAISE_WAIT_US_MIN };
        // A newcomer's slow start takes ten round trips, and must not meet us again.
        let least_us = SLOW_START_ROUND_TRIPS * self.delay.rtt_us();
        self.state = State::Yield { until_us: at_us + self.yield_us.max(least_us), calm_us: 0 };
        self.yield_us = (self.yield_us * 2).min(YIELD_US_MAX);
    }

    fn yields(&mut self, at_us: u64, until_us: u64, calm_us: u64) {
        if self.queue_us() > self.delay.low_us() {
            self.state = State::Yield { until_us, calm_us: 0 };
            return;
        }
        let since_us = if calm_us == 0 { at_us } else { calm_us };
        let is_calm = at_us.saturating_sub(since_us) >= (2 * self.delay.rtt_us()).max(YIELD_CALM_US);
        self.state = if at_us >= until_us && is_calm {
            State::Rise { next_us: at_us }
        } else {
            State::Yield { until_us, calm_us: since_us }
        };
    }

    /// As few as carry the rate: each has at least two packets under way.
    fn count_lanes(&mut self, at_us: u64, lanes: &[LaneReading]) {
        let in_flight = self.rate * self.delay.rtt_us() as f64 / 1e6;
        let needed = (in_flight * 1.25 / STOCK_WINDOW_BYTES as f64) as u16 + 1;
        let is_stuck = match self.state {
            State::Rise { next_us } => at_us > next_us.saturating_add(self.beat_us()),
            State::Hold(hold) => !hold.raised && at_us > hold.settled_us,
            State::Drain(_) | State::Yield { .. } => false,
        };
        let is_short = is_stuck
            && self.delivered.rate() < USED * self.rate
            && self.queue_us() <= self.delay.low_us()
            && lanes.iter().any(|lane| lane.unsent_bytes > 0);
        let since_us = self.short_of_lanes_since_us.take_if(|_| is_short).unwrap_or(at_us);
        if is_short {
            self.short_of_lanes_since_us = Some(since_us);
            if at_us.saturating_sub(since_us) > SHORT_US.max(8 * self.delay.rtt_us())
                && self.lanes <= needed.saturating_mul(LANES_OVER)
            {
                self.lanes = (self.lanes + self.lanes.div_ceil(2)).min(LANES_MAX);
                self.short_of_lanes_since_us = Some(at_us);
            }
        }
        self.lanes = self.lanes.max(needed.min(LANES_MAX));
        if matches!(self.state, State::Yield { .. }) {
            self.lanes = 1;
        }
    }
}

/// Doubled, others keep 2.5 points less (100 x 50, after a cubic flow).
const SEGMENT_BYTES: f64 = MSS_USUAL_BYTES as f64;
/// Room for raises: "all of a free path" is 95 %. Doubled, others keep 28 points more (100 x 50, queue of 2 ms, a cubic flow).
const HEADROOM: f64 = 0.035;
/// With the headroom twice this above the usual rate. Doubled, the rate grows 64 % (100 x 50, two of ours).
const RAISE_LEAST: f64 = 0.02;
/// Doubled, the rate grows 46 % (100 x 50, two of ours).
const RAISE_WAIT_US_MIN: u64 = 1_000_000;
/// Halved, the rate grows 33 % (100 x 50, two of ours).
const RAISE_WAIT_US_MAX: u64 = 16_000_000;
/// Per beat. Twice as far from 1, the rate falls 50 % (25 x 20, a stream of 16).
const RISE: f64 = 1.35;
/// Doubled, the rate grows 51 % (100 x 50, two of ours).
const RISE_QUICK: f64 = 2.0;
/// An unknown path counts as at least 8 Mbit/s. Doubled, the rate grows 31 % (100 x 50, two of ours).
const QUICK_MOST: f64 = 2e6;
/// Doubled, the rate falls 6.6 % (100 x 20, a cubic flow from 10 to 25 s).
const BEAT_US_MIN: u64 = 40_000;
/// A rate counts as used. Twice as far from 1, others keep 4.6 points more (100 x 50, queue of 2 ms, a cubic flow).
const USED: f64 = 0.85;
/// 2 % too much make 3 ms of queue. Doubled, the rate grows 61 % (100 x 50, after a cubic flow).
const RAISED_US: u64 = 150_000;
/// The share left free while a queue drains. Doubled, the rate grows 42 % (100 x 50, short flows).
const DRAIN: f64 = 0.3;
/// Twice as far from 1, the rate grows 4.6 % (100 x 50, two of ours).
const ALL: f64 = 0.9;
/// Doubled, the rate grows 11 % (100 x 50, two of ours).
const YIELD_SHARE: f64 = 100.0;
/// 8 Mbit/s: a hundredth of 10 Gbit/s would be felt.
const LEAST_MOST: f64 = 1e6;
/// Doubled, the rate falls 12 % (100 x 50, queue of 2 ms, a cubic flow).
const YIELD_US_MIN: u64 = 300_000;
/// Halved, the rate grows 16 % (100 x 50, after a cubic flow).
const YIELD_US_MAX: u64 = 2_400_000;
/// Twenty readings without a queue.
const YIELD_CALM_US: u64 = 200_000;
/// Doubled, the rate grows 50 % (100 x 50, after a cubic flow).
const SLOW_START_ROUND_TRIPS: u64 = 10;
/// Doubled, the rate grows 13 % (100 x 50, loses 1e-3).
const SHORT_US: u64 = 1_000_000;
/// Lanes beyond so many times what windows ask for help only against losses. Doubled, the rate grows 67 % (100 x 50, loses 1e-3).
const LANES_OVER: u16 = 4;
/// As many as a far path begins with.
const LANES_MAX: u16 = 32;
