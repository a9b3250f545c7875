//! What the steps mean: rate, queue, windows, loss.

use alloc::collections::VecDeque;

use super::sample::Step;
use super::way_back::{OneWay, WayBack};

/// The state of the path. Rates are of all lanes together; 0 means unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Whether the lanes still grow.
    pub phase: Phase,
    /// The limit that holds the lanes now.
    pub limit: Limit,
    /// How the capacity was found.
    pub confidence: Confidence,
    /// Acknowledged over the last round trips.
    pub rate_bytes_per_s: u64,
    /// The path's rate; with [`Confidence::AtLeast`] perhaps more.
    pub capacity_bytes_per_s: u64,
    /// Smallest round-trip time seen.
    pub rtt_min_us: u32,
    /// Smoothed round-trip time: a quarter of the lanes have a smaller one.
    pub rtt_us: u32,
    /// Smoothed round-trip time less the smallest, [`Estimate::jitter_us`], and the known wait of acknowledgements.
    pub queueing_us: u32,
    /// An empty path's usual round-trip time less the smallest.
    pub jitter_us: u32,
    /// Most that a lane had under way while a buffer or window held it, in bytes; 0: never.
    pub window_bytes: u64,
    /// Loss without a queue, of a million bytes.
    pub random_loss_ppm: u32,
    /// Loss behind a queue, of a million bytes.
    pub congestion_loss_ppm: u32,
    /// Most repeats had only been overtaken: jitter cuts the windows.
    pub overtaken: bool,
    /// Others fill the queue that we left empty.
    pub contended: bool,
    /// A policer's limit, which the lanes keep to.
    pub is_limited: bool,
    /// Share of recent busy time that the receive window held the lanes, in parts per thousand.
    pub receive_window_permille: u16,
    /// The same for the send buffer.
    pub send_buffer_permille: u16,
    /// Recent share of time without data, in parts per thousand: the rate is the source's.
    pub source_permille: u16,
    /// Lanes that were busy lately.
    pub busy_lanes: u16,
}

/// Whether the lanes still grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// The rate still grows.
    #[default]
    Ramp,
    /// The rate has levelled off.
    Steady,
}

/// The limit that holds the lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Limit {
    #[default]
    Unknown,
    Capacity,
    Contention,
    ReceiveWindow,
    SendBuffer,
    Loss,
    /// Packets overtake each other, and count as lost.
    Jitter,
    /// Lanes wait for data: source, target or rate limit.
    Source,
}

/// How a capacity was found, least sure first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// No capacity was found.
    #[default]
    None,
    /// An earlier job found it.
    Remembered,
    /// The path delivered this much.
    AtLeast,
    /// More was tried, and stood in a queue.
    Measured,
}

#[derive(Clone, Debug)]
pub(super) struct Estimator {
    pub(super) now: Estimate,
    recent: VecDeque<Past>,
    rtt_usual_us: u32,
    pub(super) queue_peak_us: u32,
    /// Until then a loss belongs to the queue before.
    queue_lingers_until_us: u64,
    random: Losses,
    congestion: Losses,
    /// Smallest round-trip time when losses began to count as random.
    rtt_min_of_losses_us: u32,
    losses_halved_at_us: u64,
    pub(super) mss_bytes: u32,
    pub(super) best_rate_bytes_per_s: u64,
    pub(super) best_is_of_source: bool,
    pub(super) resent_bytes: u64,
    pub(super) sent_bytes: u64,
    way_back: WayBack,
}

#[derive(Clone, Copy, Debug)]
struct Past {
    us: u64,
    delivered_bytes: u64,
    resent_bytes: u64,
    queueing_us: u32,
    busy_us: u64,
    receive_window_us: u64,
    send_buffer_us: u64,
    lanes_us: u64,
    starved_us: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Losses {
    sent_bytes: f64,
    resent_bytes: f64,
    in_vain_bytes: f64,
    steps: f64,
}

impl Losses {
    fn add(&mut self, step: &Step) {
        self.sent_bytes += step.sent_bytes as f64;
        self.resent_bytes += step.resent_bytes as f64;
        self.in_vain_bytes += step.resent_in_vain_bytes as f64;
        self.steps += f64::from(u8::from(step.resent_bytes > 0));
    }

    fn take(&mut self, other: &mut Losses) {
        let Losses { sent_bytes, resent_bytes, in_vain_bytes, steps } = core::mem::take(other);
        self.sent_bytes += sent_bytes;
        self.resent_bytes += resent_bytes;
        self.in_vain_bytes += in_vain_bytes;
        self.steps += steps;
    }

    fn halve(&mut self) {
        self.sent_bytes /= 2.0;
        self.resent_bytes /= 2.0;
        self.in_vain_bytes /= 2.0;
        self.steps /= 2.0;
    }

    fn ppm(&self) -> u32 {
        if self.steps < LOSS_STEPS_MIN || self.sent_bytes <= 0.0 {
            return 0;
        }
        (self.resent_bytes / self.sent_bytes * 1e6).min(1e6) as u32
    }
}

impl Estimator {
    pub(super) fn new(rtt_us_at_connect: u32) -> Self {
        Self {
            now: Estimate { rtt_min_us: rtt_us_at_connect, rtt_us: rtt_us_at_connect, ..Estimate::default() },
            recent: VecDeque::new(),
            rtt_usual_us: u32::MAX,
            queue_peak_us: 0,
            queue_lingers_until_us: 0,
            random: Losses::default(),
            congestion: Losses::default(),
            rtt_min_of_losses_us: 0,
            losses_halved_at_us: 0,
            mss_bytes: MSS_USUAL_BYTES,
            best_rate_bytes_per_s: 0,
            best_is_of_source: false,
            resent_bytes: 0,
            sent_bytes: 0,
            way_back: WayBack::default(),
        }
    }

    pub(super) fn on_one_way(&mut self, at_us: u64, word: OneWay) {
        self.way_back.on_word(at_us, word);
    }

    pub(super) fn way_back_fell_by_us(&self) -> u32 {
        self.way_back.fell_by_us()
    }

    pub(super) fn on_step(&mut self, step: &Step) {
        self.round_trips(step);
        self.losses(step);
        self.windows(step);
        self.tally(step);
    }

    /// Takes in a step that tells only what the lanes do; the past counts no more.
    pub(super) fn on_disturbed_step(&mut self, step: &Step) {
        self.recent.clear();
        self.tally(step);
    }

    /// Forgets the losses: packets meet other queues now.
    pub(super) fn forget_losses(&mut self) {
        (self.random, self.congestion) = (Losses::default(), Losses::default());
        self.recent.clear();
    }

    fn tally(&mut self, step: &Step) {
        self.remember(step);
        let rtt_us = u64::from(self.now.rtt_us.max(1));
        let now = &mut self.now;
        now.busy_lanes = u16::try_from(step.lanes.len()).unwrap_or(u16::MAX);
        now.rate_bytes_per_s = rate_of(&self.recent, 0, (2 * rtt_us).max(RATE_US_MIN)).unwrap_or(0);
        let [busy, receive_window, send_buffer, lanes, starved] = self.shares_over((3 * rtt_us).max(RATE_US_MIN));
        self.now.receive_window_permille = permille(receive_window, busy);
        self.now.send_buffer_permille = permille(send_buffer, busy);
        self.now.source_permille = permille(starved, lanes);
        if self.now.rate_bytes_per_s > self.best_rate_bytes_per_s {
            (self.best_rate_bytes_per_s, self.best_is_of_source) =
                (self.now.rate_bytes_per_s, self.is_source_limited());
        }
    }

    /// True if the rate is the source's. Such a rate can raise the estimate of a path, but not lower it
    /// (draft-cardwell-iccrg-delivery-rate-estimation, application-limited samples). A queue then is a burst, or somebody else's.
    pub(super) fn is_source_limited(&self) -> bool {
        self.now.source_permille > SOURCE_PERMILLE
    }

    /// True if losses without a queue slow the lanes. A queue then is not theirs.
    pub(super) fn is_loss_limited(&self) -> bool {
        let now = &self.now;
        now.phase == Phase::Steady
            && now.random_loss_ppm > 0
            && now.rate_bytes_per_s < scaled(self.best_rate_bytes_per_s, SLOWED_BY_LOSS)
    }

    /// True in the ramp, and after a bound was lifted.
    pub(super) fn grows(&self) -> bool {
        let span_us = (2 * u64::from(self.now.rtt_us)).max(RATE_US_MIN);
        let has_grown = match (self.rate(0, span_us), self.rate(span_us, span_us)) {
            (Some(now), Some(before)) => now > scaled(before, GROWTH),
            _ => true,
        };
        self.now.phase == Phase::Ramp || has_grown
    }

    /// Mean rate over `span_us` that ended `ago_us` ago; `None`: not seen.
    pub(super) fn rate(&self, ago_us: u64, span_us: u64) -> Option<u64> {
        rate_of(&self.recent, ago_us, span_us)
    }

    pub(super) fn queueing_over(&self, span_us: u64) -> (u32, u32) {
        let mut left = span_us;
        let (mut least, mut most) = (u32::MAX, 0);
        for past in self.recent.iter().rev() {
            least = least.min(past.queueing_us);
            most = most.max(past.queueing_us);
            left = left.saturating_sub(past.us);
            if left == 0 {
                break;
            }
        }
        (least.min(most), most)
    }

    pub(super) fn resent_bytes_over(&self, span_us: u64) -> u64 {
        self.within(span_us).fold(0, |sum, past| sum.saturating_add(past.resent_bytes))
    }

    pub(super) fn resent_ppm_over(&self, span_us: u64) -> u32 {
        let resent = u128::from(self.resent_bytes_over(span_us));
        let delivered = self.within(span_us).fold(0, |sum, past| sum + u128::from(past.delivered_bytes));
        u32::try_from(resent * 1_000_000 / (resent + delivered).max(1)).unwrap_or(u32::MAX)
    }

    fn within(&self, span_us: u64) -> impl Iterator<Item = &Past> {
        let mut left = span_us;
        self.recent.iter().rev().take_while(move |past| {
            let is_within = left > 0;
            left = left.saturating_sub(past.us);
            is_within
        })
    }

    fn round_trips(&mut self, step: &Step) {
        let now = &mut self.now;
        if step.rtt_min_us > 0 {
            now.rtt_min_us = if now.rtt_min_us == 0 { step.rtt_min_us } else { now.rtt_min_us.min(step.rtt_min_us) };
        }
        if step.rtt_us > 0 {
            now.rtt_us = step.rtt_us;
            self.rtt_usual_us = self.rtt_usual_us.min(step.rtt_us);
            now.jitter_us = jitter_us(self.rtt_usual_us.saturating_sub(now.rtt_min_us), step.rtt_deviation_us);
            now.queueing_us = step.rtt_us.saturating_sub(now.rtt_min_us).saturating_sub(now.jitter_us);
            let back_us = self.way_back.queue_us(step.at_us, now.rtt_min_us);
            now.queueing_us = now.queueing_us.saturating_sub(back_us);
        }
        self.queue_peak_us = self.queue_peak_us.max(now.queueing_us);
    }

    /// A loss is random if no queue stood for a few round trips: repairs take that long.
    fn losses(&mut self, step: &Step) {
        self.sent_bytes = self.sent_bytes.saturating_add(step.sent_bytes);
        self.resent_bytes = self.resent_bytes.saturating_add(step.resent_bytes);
        if step.mss_bytes > 0 {
            self.mss_bytes = step.mss_bytes;
        }
        // Half of the longest queue, because some are short. Less than a hundredth of a long round trip is jitter.
        let least_us = (self.now.rtt_min_us / 100).max(QUEUE_US_MIN / 2);
        let queue_us = (self.now.rtt_min_us / 20).max(QUEUE_US_MIN).min((self.queue_peak_us / 2).max(least_us));
        self.judge_losses_again(queue_us);
        if self.now.queueing_us > queue_us {
            self.queue_lingers_until_us = step.at_us.saturating_add(4 * u64::from(self.now.rtt_us));
        }
        let kind = if step.at_us < self.queue_lingers_until_us { &mut self.congestion } else { &mut self.random };
        kind.add(step);
        if step.at_us.saturating_sub(self.losses_halved_at_us) > LOSS_HALF_LIFE_US {
            self.losses_halved_at_us = step.at_us;
            self.random.halve();
            self.congestion.halve();
        }
        self.now.random_loss_ppm = self.random.ppm();
        self.now.congestion_loss_ppm = self.congestion.ppm();
        let [random, congestion] = [self.random, self.congestion];
        let resent_bytes = random.resent_bytes + congestion.resent_bytes;
        // An unneeded tail probe arrives twice, too, where packets keep their order.
        self.now.overtaken =
            self.now.jitter_us > QUEUE_US_MIN && (random.in_vain_bytes + congestion.in_vain_bytes) * 2.0 > resent_bytes;
    }

    /// Drops random losses once the path is seen emptier by a queue: they met that of others.
    fn judge_losses_again(&mut self, queue_us: u32) {
        let before_us = self.rtt_min_of_losses_us;
        if before_us == 0 || self.now.rtt_min_us.saturating_add(queue_us) < before_us {
            self.rtt_min_of_losses_us = self.now.rtt_min_us;
            self.congestion.take(&mut self.random);
        }
    }

    fn windows(&mut self, step: &Step) {
        let full = step.lanes.iter().filter(|lane| lane.send_buffer_full || lane.receive_window_full);
        let Some(most) = full.map(|lane| lane.in_flight_bytes).max() else { return };
        self.now.window_bytes = self.now.window_bytes.max(most);
    }

    fn remember(&mut self, step: &Step) {
        let sum = |of: &dyn Fn(&super::sample::LaneStep) -> u64| step.lanes.iter().map(of).fold(0, u64::saturating_add);
        let past = Past {
            us: step.us,
            delivered_bytes: step.delivered_bytes,
            resent_bytes: step.resent_bytes,
            queueing_us: self.now.queueing_us,
            busy_us: sum(&|lane| lane.busy_us),
            receive_window_us: sum(&|lane| {
                if lane.receive_window_full { lane.busy_us } else { lane.receive_window_us }
            }),
            send_buffer_us: sum(&|lane| {
                let is_held = lane.send_buffer_full && !lane.receive_window_full;
                if is_held { lane.busy_us.saturating_sub(lane.receive_window_us) } else { 0 }
            }),
            lanes_us: step.lanes_us,
            starved_us: step.starved_us,
        };
        if self.recent.len() == STEPS_KEPT {
            self.recent.pop_front();
        }
        self.recent.push_back(past);
    }

    /// Sums over `span_us`: busy, held by receive window, held by send buffer; time with data, waiting for data.
    fn shares_over(&self, span_us: u64) -> [u64; 5] {
        let mut left = span_us;
        let mut sums = [0u64; 5];
        for past in self.recent.iter().rev() {
            let parts = [past.busy_us, past.receive_window_us, past.send_buffer_us, past.lanes_us, past.starved_us];
            for (sum, part) in sums.iter_mut().zip(parts) {
                *sum = sum.saturating_add(part);
            }
            left = left.saturating_sub(past.us);
            if left == 0 {
                break;
            }
        }
        sums
    }
}

/// The part of a round-trip time that is neither way nor queue. The smallest of scattered packets is far below the usual, and a
/// smoothed time begins with a first packet that may have waited for an address or a radio (forgotten by an eighth with each, RFC
/// 6298). In both cases single packets deviate; a queue delays all alike.
fn jitter_us(seen_us: u32, deviation_us: u32) -> u32 {
    deviation_us.saturating_mul(SMALLEST_DEVIATIONS).min(seen_us)
}

fn rate_of(recent: &VecDeque<Past>, ago_us: u64, span_us: u64) -> Option<u64> {
    let (mut skipped, mut us, mut acked) = (0u64, 0u64, 0u64);
    for past in recent.iter().rev() {
        if skipped < ago_us {
            skipped = skipped.saturating_add(past.us);
            continue;
        }
        us = us.saturating_add(past.us);
        acked = acked.saturating_add(past.delivered_bytes);
        if us >= span_us {
            return Some(per_second(acked, us));
        }
    }
    None
}

fn permille(us: u64, of_us: u64) -> u16 {
    u16::try_from(us.saturating_mul(1000) / of_us.max(1)).unwrap_or(1000).min(1000)
}

pub(crate) fn per_second(bytes: u64, us: u64) -> u64 {
    u64::try_from(u128::from(bytes) * 1_000_000 / u128::from(us.max(1))).unwrap_or(u64::MAX)
}

pub(super) fn bytes_in(rate_bytes_per_s: u64, us: u64) -> u64 {
    u64::try_from(u128::from(rate_bytes_per_s) * u128::from(us) / 1_000_000).unwrap_or(u64::MAX)
}

pub(super) fn scaled(value: u64, factor: f64) -> u64 {
    (value as f64 * factor) as u64
}

/// Newton's method, because `core` has no square root. Relative error below 1e-9 here.
pub(crate) fn square_root(value: f64) -> f64 {
    if !value.is_finite() || value <= 0.0 {
        return 0.0;
    }
    // Right within a factor of two; each turn doubles the digits.
    let mut root = f64::from_bits((value.to_bits() >> 1) + (0x3ff << 51));
    for _ in 0..6 {
        root = (root + value / root) / 2.0;
    }
    root
}

/// Each turn divides the exponent's error by four. Relative error below 1e-4 from 1e-6 to 1e12.
pub(super) fn cube_root(value: f64) -> f64 {
    let mut root = 1.0;
    for _ in 0..10 {
        root = square_root(square_root(value * root));
    }
    root
}

/// Mean deviations between the smallest of thousands of packets and the usual: four standard are five mean ones, and the kernel
/// reads less than half (2.5 ms where the smallest was 28 ms below). Halved, the rate falls 61 % (200 Mbit/s x 50 ms, 1 of 1000
/// overtaken).
const SMALLEST_DEVIATIONS: u32 = 12;
/// Lanes held by the network wait almost never; a source in bursts makes them wait for half of the time.
pub(crate) const SOURCE_PERMILLE: u16 = 250;
/// Slow start gives 4 over two round trips, regrowth after a loss less.
const GROWTH: f64 = 1.25;
const SLOWED_BY_LOSS: f64 = 0.7;
/// At 100 ms each: three round trips of 4 s.
const STEPS_KEPT: usize = 128;
/// Shorter rates show bursts. Doubled, it takes 5.3 % longer (1 Gbit/s x 100 ms, 500 Mbit/s was known).
const RATE_US_MIN: u64 = 300_000;
/// Delay below this is jitter.
const QUEUE_US_MIN: u32 = 2_000;
/// 10 Mbit/s send 8,000 packets in it, enough for 1 loss of 1,000. Halved, the rate falls 9.2 % (jitter).
const LOSS_HALF_LIFE_US: u64 = 10_000_000;
/// Losses in few steps are chance. Doubled, others keep 3.7 points less (four cubic).
const LOSS_STEPS_MIN: f64 = 2.5;
/// Ethernet without jumbo frames, with timestamps.
pub(crate) const MSS_USUAL_BYTES: u32 = 1448;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_are_right() {
        for value in [1e-12, 0.01, 0.5, 1.0, 2.0, 9.0, 1e6, 3e18] {
            let root = square_root(value);
            assert!((root * root / value - 1.0).abs() < 1e-9, "{value}: {root}");
        }
        for value in [1e-6, 0.5, 8.0, 1e12] {
            let root = cube_root(value);
            assert!((root * root * root / value - 1.0).abs() < 1e-3, "{value}: {root}");
        }
        assert_eq!(cube_root(0.0), 0.0);
        assert_eq!(square_root(-1.0), 0.0);
        assert_eq!(square_root(f64::NAN), 0.0);
    }

    #[test]
    fn a_loss_is_random_only_when_no_queue_stood() {
        let mut estimator = Estimator::new(50_000);
        let mut at_us = 0;
        let mut run = |estimator: &mut Estimator, rtt_us: u32, resent_bytes: u64, steps: u32| {
            for _ in 0..steps {
                at_us += 100_000;
                let step = Step { at_us, us: 100_000, sent_bytes: 1_000_000, resent_bytes, rtt_us, ..Step::default() };
                estimator.on_step(&step);
            }
        };
        run(&mut estimator, 90_000, 10_000, 20);
        assert_eq!(estimator.now.random_loss_ppm, 0);
        assert_eq!(estimator.now.congestion_loss_ppm, 10_000);
        run(&mut estimator, 50_500, 0, 20);
        assert_eq!(estimator.now.random_loss_ppm, 0);
        run(&mut estimator, 50_500, 100, 40);
        assert!((20..=100).contains(&estimator.now.random_loss_ppm), "{}", estimator.now.random_loss_ppm);
    }

    #[test]
    fn acknowledgements_that_wait_on_the_way_back_are_no_queue_of_ours() {
        let mut estimator = Estimator::new(30_000);
        let mut queueing = |waits_back_us: u32, waits_out_us: u32, from_s: u64| {
            for at_us in (1..=20).map(|step| from_s * 1_000_000 + step * 100_000) {
                let rtt_us = 30_000 + waits_back_us + waits_out_us;
                estimator.on_one_way(at_us, OneWay { sent_us: at_us, took_us: 7_000_000 + i64::from(waits_back_us) });
                estimator.on_step(&Step { at_us, us: 100_000, sent_bytes: 1_000_000, rtt_us, ..Step::default() });
            }
            estimator.now.queueing_us
        };
        assert_eq!(queueing(0, 0, 0), 0);
        assert_eq!(queueing(70_000, 0, 2), 0, "others fill the uplink");
        assert_eq!(queueing(70_000, 25_000, 4), 25_000);
        assert_eq!(queueing(0, 25_000, 6), 25_000);
    }
}
