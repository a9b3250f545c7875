//! What the steps mean: rate, queue, windows, loss.

use alloc::collections::VecDeque;

use super::sample::Step;
use super::way_back::{OneWay, WayBack};

/// The state of the path. Rates are of all lanes together; 0 means unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Whether the lanes still grow to the speed of the path.
    pub phase: Phase,
    /// The limit that holds the lanes now.
    pub limit: Limit,
    /// How the capacity was found.
    pub confidence: Confidence,
    /// Bytes acknowledged per second, over the last round trips.
    pub rate_bytes_per_s: u64,
    /// The rate that the path carries for us; with [`Confidence::AtLeast`] it may carry more.
    pub capacity_bytes_per_s: u64,
    /// Smallest round-trip time seen.
    pub rtt_min_us: u32,
    /// Smoothed round-trip time now: a quarter of the lanes have a smaller one.
    pub rtt_us: u32,
    /// Time that packets stand in queues now: smoothed round-trip time less the smallest, and less [`Estimate::jitter_us`]. What acknowledgements wait
    /// on the way back is not in it, where that is known.
    pub queueing_us: u32,
    /// By so much the usual round-trip time of an empty path is longer than the smallest: its packets take different times.
    pub jitter_us: u32,
    /// Most bytes one lane had under way when its send buffer or the receive window held it; 0 while that never happened.
    pub window_bytes: u64,
    /// Lost while no queue stood, of a million bytes sent then.
    pub random_loss_ppm: u32,
    /// Lost while a queue stood, of a million bytes sent then.
    pub congestion_loss_ppm: u32,
    /// Most of what was sent again had only been overtaken, so that jitter cuts the windows, and not loss.
    pub overtaken: bool,
    /// Others fill the queue that we left empty.
    pub contended: bool,
    /// Somebody on the way drops what is faster than a limit, and the lanes keep to it.
    pub is_limited: bool,
    /// Share of the lanes' busy time that the receive window held them, in parts per thousand, lately.
    pub receive_window_permille: u16,
    /// The same for the send buffer.
    pub send_buffer_permille: u16,
    /// Lately, the share of time in which the lanes had nothing to send, in parts per thousand. The rate is then that of the source, and
    /// says nothing about the path.
    pub source_permille: u16,
    /// Lanes that were busy lately.
    pub busy_lanes: u16,
}

/// Whether the lanes still grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// The rate grows to the speed of the path.
    #[default]
    Ramp,
    /// The rate has levelled off.
    Steady,
}

/// The limit that holds the lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Limit {
    /// No limit is seen.
    #[default]
    Unknown,
    Capacity,
    Contention,
    ReceiveWindow,
    SendBuffer,
    Loss,
    /// Packets overtake each other, and count as lost.
    Jitter,
    /// The source, the target or the rate limit: lanes wait for data.
    Source,
}

/// How a capacity was found, from the least sure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// Not at all.
    #[default]
    None,
    /// An earlier job found it.
    Remembered,
    /// The path delivered this much; nothing says that more is impossible.
    AtLeast,
    /// More was tried, and stood in a queue.
    Measured,
}

/// Gathers steps into an estimate.
#[derive(Clone, Debug)]
pub(super) struct Estimator {
    pub(super) now: Estimate,
    recent: VecDeque<Past>,
    /// Smallest smoothed round-trip time seen, which is that of an empty path.
    rtt_usual_us: u32,
    /// Longest queueing delay seen.
    pub(super) queue_peak_us: u32,
    /// Until then a loss belongs to the queue that stood before.
    queue_lingers_until_us: u64,
    random: Losses,
    congestion: Losses,
    /// Smallest round-trip time that the path had when losses began to count as random; 0 before the first sample.
    rtt_min_of_losses_us: u32,
    losses_halved_at_us: u64,
    pub(super) mss_bytes: u32,
    pub(super) best_rate_bytes_per_s: u64,
    /// The best rate was as much as the source gave.
    pub(super) best_is_of_source: bool,
    pub(super) resent_bytes: u64,
    pub(super) sent_bytes: u64,
    way_back: WayBack,
}

/// One step, as far as it is remembered.
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
    /// Steps in which something was lost.
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

    /// Takes in how long a word of the far side took to here.
    pub(super) fn on_one_way(&mut self, at_us: u64, word: OneWay) {
        self.way_back.on_word(at_us, word);
    }

    /// By how much the way back has become shorter than it was when we came.
    pub(super) fn way_back_fell_by_us(&self) -> u32 {
        self.way_back.fell_by_us()
    }

    /// Takes one step in.
    pub(super) fn on_step(&mut self, step: &Step) {
        self.round_trips(step);
        self.losses(step);
        self.windows(step);
        self.tally(step);
    }

    /// Takes in a step that tells nothing about the path: only what the lanes do in it counts, and nothing from before it afterwards.
    pub(super) fn on_disturbed_step(&mut self, step: &Step) {
        self.recent.clear();
        self.tally(step);
    }

    /// Forgets the losses so far: the packets meet other queues from now on.
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

    /// Lanes wait for data so often that the rate is the source's. Such a rate can raise the estimate of a path. It cannot lower it
    /// (draft-cardwell-iccrg-delivery-rate-estimation, application-limited samples). A queue at that time is a burst, or belongs to
    /// somebody else.
    pub(super) fn is_source_limited(&self) -> bool {
        self.now.source_permille > SOURCE_PERMILLE
    }

    /// Losses without a queue keep the lanes slower than they have been. What stands then is not theirs: acknowledgements that a busy
    /// host delays, or others.
    pub(super) fn is_loss_limited(&self) -> bool {
        let now = &self.now;
        now.phase == Phase::Steady
            && now.random_loss_ppm > 0
            && now.rate_bytes_per_s < scaled(self.best_rate_bytes_per_s, SLOWED_BY_LOSS)
    }

    /// The lanes double, or have just done so: in the ramp, and after a bound was lifted.
    pub(super) fn grows(&self) -> bool {
        let span_us = (2 * u64::from(self.now.rtt_us)).max(RATE_US_MIN);
        let has_grown = match (self.rate(0, span_us), self.rate(span_us, span_us)) {
            (Some(now), Some(before)) => now > scaled(before, GROWTH),
            _ => true,
        };
        self.now.phase == Phase::Ramp || has_grown
    }

    /// Mean rate in bytes per second over `span_us` that ended `ago_us` ago; `None` while less was seen.
    pub(super) fn rate(&self, ago_us: u64, span_us: u64) -> Option<u64> {
        rate_of(&self.recent, ago_us, span_us)
    }

    /// Smallest and largest queueing delay over the last `span_us`.
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

    /// Bytes sent again over the last `span_us`.
    pub(super) fn resent_bytes_over(&self, span_us: u64) -> u64 {
        self.within(span_us).fold(0, |sum, past| sum.saturating_add(past.resent_bytes))
    }

    /// The bytes that were sent again over the last `span_us`, of a million that arrived or were sent again.
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

    /// Smoothed and smallest round-trip time. While nothing comes back the last one stands.
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

    /// A loss is random when no queue stood since a few round trips: repairing what a full queue dropped takes that long.
    fn losses(&mut self, step: &Step) {
        self.sent_bytes = self.sent_bytes.saturating_add(step.sent_bytes);
        self.resent_bytes = self.resent_bytes.saturating_add(step.resent_bytes);
        if step.mss_bytes > 0 {
            self.mss_bytes = step.mss_bytes;
        }
        // Half of the longest queue seen: some are short. Less than a hundredth of a long round trip is jitter.
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
        // A probe for a tail that was not lost arrives twice, too, where packets keep their order.
        self.now.overtaken =
            self.now.jitter_us > QUEUE_US_MIN && (random.in_vain_bytes + congestion.in_vain_bytes) * 2.0 > resent_bytes;
    }

    /// Where others filled the queue before we came, the path never looked empty. Once it has been seen emptier, by more than a queue, what
    /// was lost before met their queue.
    fn judge_losses_again(&mut self, queue_us: u32) {
        let before_us = self.rtt_min_of_losses_us;
        if before_us == 0 || self.now.rtt_min_us.saturating_add(queue_us) < before_us {
            self.rtt_min_of_losses_us = self.now.rtt_min_us;
            self.congestion.take(&mut self.random);
        }
    }

    /// Learns windows: what a lane had under way when a window held it.
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

    /// Busy time of the lanes over the last `span_us`, and of it: held by receive window, send buffer; all time of lanes that carry
    /// data, and of it: without data.
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

/// The part of a round-trip time that is neither the way nor a queue. The smallest of many packets that take different times is far
/// below the usual. And a smoothed time begins with the first packet, which may have waited for an address or a radio, and forgets
/// it by an eighth with each further one (RFC 6298). In both cases single packets deviate; a queue delays all of them alike. The
/// jitter is at most what was seen without a queue.
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

/// A share of a time.
fn permille(us: u64, of_us: u64) -> u16 {
    u16::try_from(us.saturating_mul(1000) / of_us.max(1)).unwrap_or(1000).min(1000)
}

/// Bytes per second.
pub(crate) fn per_second(bytes: u64, us: u64) -> u64 {
    u64::try_from(u128::from(bytes) * 1_000_000 / u128::from(us.max(1))).unwrap_or(u64::MAX)
}

/// Bytes that pass in a time at a rate.
pub(super) fn bytes_in(rate_bytes_per_s: u64, us: u64) -> u64 {
    u64::try_from(u128::from(rate_bytes_per_s) * u128::from(us) / 1_000_000).unwrap_or(u64::MAX)
}

/// A rate or size times a factor.
pub(super) fn scaled(value: u64, factor: f64) -> u64 {
    (value as f64 * factor) as u64
}

/// Square root by Newton's method: `core` has none. Relative error below 1e-9 for what occurs here.
pub(crate) fn square_root(value: f64) -> f64 {
    if !value.is_finite() || value <= 0.0 {
        return 0.0;
    }
    // Half the exponent is a start within a factor of two; each turn doubles the digits.
    let mut root = f64::from_bits((value.to_bits() >> 1) + (0x3ff << 51));
    for _ in 0..6 {
        root = (root + value / root) / 2.0;
    }
    root
}

/// Cube root: each turn divides the error of the exponent by four. Relative error below 1e-4 from 1e-6 to 1e12.
pub(super) fn cube_root(value: f64) -> f64 {
    let mut root = 1.0;
    for _ in 0..10 {
        root = square_root(square_root(value * root));
    }
    root
}

/// The smallest of thousands of packets lies so many of the kernel's mean deviations below the usual one. Four standard deviations are five mean
/// ones, and the kernel weighs a time that falls by a quarter, so it tells less than half: 2.5 ms, where the smallest was 28 ms below.
/// Halved, the rate falls by 61 % (200 Mbit/s x 50 ms, 1 of 1000 overtaken).
const SMALLEST_DEVIATIONS: u32 = 12;
/// Lanes that the network holds have next to nothing of this; a slow source that gives in bursts leaves them without data for half
/// of the time and more.
pub(crate) const SOURCE_PERMILLE: u16 = 250;
/// Over two round trips; slow start gives 4, and what grows after a loss less.
const GROWTH: f64 = 1.25;
/// Share of the best rate below which lanes that lose packets are slow for that.
const SLOWED_BY_LOSS: f64 = 0.7;
/// Ring of steps: at 100 ms each, three round trips of 4 s.
const STEPS_KEPT: usize = 128;
/// A rate over less than this says more about bursts than about the path.
/// Doubled, it takes 5.3 % longer (1 Gbit/s x 100 ms, 500 Mbit/s was known).
const RATE_US_MIN: u64 = 300_000;
/// Less delay than this is jitter, not a queue.
const QUEUE_US_MIN: u32 = 2_000;
/// Losses are forgotten by half in this time: 10 Mbit/s send some 8,000 packets in it, enough to see 1 of 1,000.
/// Halved, the rate falls by 9.2 % (150 Mbit/s x 60 ms, jitter of 10 ms, 50 Mbit/s from 15 to 25 s).
const LOSS_HALF_LIFE_US: u64 = 10_000_000;
/// Losses in fewer steps than this may be chance.
/// Doubled, others keep 3.7 points less (100 Mbit/s x 50 ms, four cubic flows before us).
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
