//! How many lanes carry data.
//!
//! More while windows or losses hold them back and more bring more; fewer once the path is full and fewer suffice. Each change is
//! a trial, judged after new lanes had time to reach their speed, and taken back when it did harm or no good.

use super::estimate::{Estimator, Phase, bytes_in, cube_root, scaled, square_root};
use super::pacing::{DRAIN_LOOK_US, Levels, Pacer};
use super::remember::Remembered;
use super::sample::{FIRST_WINDOW_BYTES, Step};
use crate::plan::NEAR_RTT_US;

/// 128 windows of 2.9 MB fill 10 Gbit/s at 297 ms, and a listener shakes hands with as many at once for one source.
pub const AUTO_LANES_MAX: u16 = 128;

/// Half of a listener's handshakes at once for one source.
pub const START_LANES_MAX: u16 = 64;

/// Two windows of padding for each of [`START_LANES_MAX`] are a 64th of it, if the path is slow after all. On 1 Gbit/s x 228 ms a
/// quick start saves 119 MB a round trip.
pub const QUICK_START_WORTH_BYTES: u64 = 64 * 2 * START_LANES_MAX as u64 * FIRST_WINDOW_BYTES;

#[derive(Clone, Debug)]
pub(super) struct LaneCount {
    pub(super) lanes: u16,
    pub(super) reason: &'static str,
    /// Set by the user, or a near path.
    fixed: bool,
    trial: Option<Trial>,
    /// The count beyond which more gained nothing, and until when it holds.
    ceiling: Option<(u16, u64)>,
    floor: Option<(u16, u64)>,
    next_us: u64,
    /// From then on lanes are given up, step by step, so that the rest can grow into their share.
    yield_us: u64,
    pub(super) others_took: bool,
    plenty_since_us: Option<u64>,
    measured_since_us: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Control {
    /// True for cubic and reno.
    pub(super) is_loss_based: bool,
    /// We may choose another congestion control, which is tried before more lanes are.
    pub(super) may_change: bool,
    pub(super) lets_more_be_sent: bool,
}

#[derive(Clone, Copy, Debug)]
struct Trial {
    before: u16,
    rate_before: u64,
    loss_ppm_before: u32,
    judge_at_us: u64,
}

/// Lanes to begin a far path with. From ten segments, doubling each round trip, 32 lanes take 6 round trips to 1 Gbit/s at 228
/// ms, 8 take 8. Stock windows hold 46 MB in 16 lanes, a third of 10 Gbit/s at 100 ms. With 64 a cubic flow of others on 100
/// Mbit/s x 228 ms kept 23 Mbit/s instead of 49, unless their hellos are padded: the padding's queue tells in time how much is
/// free. With 4, 10 Gbit/s x 20 ms took 0.7 s to fill instead of 0.4.
pub(super) fn at_start(rtt_us: u32, foreseen_bytes: u64) -> u16 {
    match rtt_us {
        0..40_000 => 8,
        40_000..80_000 => 16,
        QUICK_FROM_US.. if foreseen_bytes >= QUICK_START_WORTH_BYTES => START_LANES_MAX,
        _ => 32,
    }
}

/// [`at_start`] for a known path: as many lanes as the earlier job needed, if each has room for a first window. A long path with
/// eight times that room begins with [`START_LANES_MAX`], for a ramp shorter by a round trip.
pub(super) fn at_start_of_known(known: &Remembered, rtt_us: u32) -> u16 {
    let first_windows = bytes_in(known.capacity_bytes_per_s, u64::from(rtt_us)) / FIRST_WINDOW_BYTES;
    let first_windows = u16::try_from(first_windows).unwrap_or(u16::MAX).max(FAR_LANES_MIN);
    let is_roomy = rtt_us >= QUICK_FROM_US && first_windows / 8 >= START_LANES_MAX;
    let usual = if is_roomy { START_LANES_MAX } else { at_start(rtt_us, 0) };
    usual.min(first_windows).max(known.lanes.min(AUTO_LANES_MAX))
}

/// Lanes that carry `rate` with [`SPARE`], and as many as losses ask for. `suffers_loss`: losses count as congestion.
pub(super) fn needed(estimator: &Estimator, rate_bytes_per_s: u64, suffers_loss: bool) -> u16 {
    needed_at(estimator, rate_bytes_per_s, estimator.now.rtt_min_us, suffers_loss)
}

fn needed_at(estimator: &Estimator, rate_bytes_per_s: u64, rtt_us: u32, suffers_loss: bool) -> u16 {
    let now = &estimator.now;
    let window_bytes = if now.window_bytes > 0 { now.window_bytes } else { STOCK_WINDOW_BYTES };
    let spared = scaled(rate_bytes_per_s, SPARE);
    let mut lanes = u64::from(lanes_for(bytes_in(spared, u64::from(rtt_us)), window_bytes));
    if suffers_loss && now.random_loss_ppm > 0 {
        let lane = cubic_bytes_per_s(now.random_loss_ppm, now.rtt_min_us, estimator.mss_bytes).max(1);
        lanes = lanes.max(spared.div_ceil(lane));
    }
    u16::try_from(lanes).unwrap_or(u16::MAX).clamp(1, AUTO_LANES_MAX)
}

fn lanes_for(bytes: u64, window_bytes: u64) -> u16 {
    u16::try_from(bytes.div_ceil(window_bytes.max(1))).unwrap_or(u16::MAX).clamp(1, AUTO_LANES_MAX)
}

/// Lanes with a window worth the name at this rate. Packets of more lanes meet before the link, in a queue that no restraint
/// shortens: 6 ms with 8 lanes of 4 packets on 20 Mbit/s x 20 ms.
fn holds_lanes(estimator: &Estimator, rate_bytes_per_s: u64) -> u16 {
    let least_bytes = LEAST_SEGMENTS * u64::from(estimator.mss_bytes.max(1));
    let lanes = bytes_in(rate_bytes_per_s, u64::from(estimator.now.rtt_min_us)) / least_bytes;
    u16::try_from(lanes).unwrap_or(AUTO_LANES_MAX)
}

/// The rate of a cubic lane under random loss: a mean window of 1.054 (rtt / p)^(3/4) segments (RFC 9438, section 5.1; rtt in
/// seconds), or Reno's 1.22 / sqrt(p) if more.
pub(super) fn cubic_bytes_per_s(loss_ppm: u32, rtt_us: u32, mss_bytes: u32) -> u64 {
    let loss = f64::from(loss_ppm.max(1)) / 1e6;
    let rtt_s = f64::from(rtt_us.max(1)) / 1e6;
    let root = square_root(rtt_s / loss);
    let segments = (1.054 * root * square_root(root)).max(1.22 / square_root(loss));
    (segments * f64::from(mss_bytes) / rtt_s) as u64
}

impl LaneCount {
    pub(super) fn new(lanes: u16, fixed: bool, reason: &'static str) -> Self {
        Self {
            lanes,
            reason,
            fixed,
            trial: None,
            ceiling: None,
            floor: None,
            next_us: 0,
            yield_us: 0,
            others_took: false,
            plenty_since_us: None,
            measured_since_us: None,
        }
    }

    /// Drops the verdicts: somebody has left the path.
    pub(super) fn look_again(&mut self) {
        (self.trial, self.ceiling, self.floor) = (None, None, None);
        self.others_took = false;
    }

    pub(super) fn on_step(&mut self, step: &Step, estimator: &Estimator, pacer: &Pacer, control: Control) {
        let suffers_loss = control.is_loss_based;
        let now = &estimator.now;
        if self.fixed || now.rtt_min_us < NEAR_RTT_US {
            return;
        }
        let levels = Levels::of(estimator);
        let suffice_if_remembered = |capacity| needed(estimator, capacity, suffers_loss) <= self.lanes;
        if self.trial.is_none()
            && !pacer.capacity_bytes_per_s().is_some_and(suffice_if_remembered)
            && is_ramp_short_of_lanes(step, estimator, levels, self.lanes)
        {
            let lanes = self.lanes.saturating_mul(RAMP_FACTOR).min(AUTO_LANES_MAX);
            if lanes > self.lanes {
                let reason = "windows will soon be full, and no queue stands: more of them";
                self.change(step.at_us, estimator, now.rate_bytes_per_s, lanes, reason);
            }
        }
        self.leave_those_that_only_meet(step.at_us, estimator, pacer, suffers_loss);
        if step.at_us < self.next_us {
            return;
        }
        self.next_us = step.at_us.saturating_add((levels.rtt_us).max(DECIDE_US_MIN));
        // Lanes without work say nothing about the path.
        if step.waiting_bytes == 0 || now.source_permille > 500 {
            self.plenty_since_us = None;
            return;
        }
        if pacer.is_contended() {
            self.trial = None;
        }
        if let Some(trial) = self.trial {
            self.judge(step.at_us, estimator, pacer, trial, control);
            return;
        }
        let at_us = step.at_us;
        if pacer.bound_bytes_per_s().is_some() || now.rate_bytes_per_s > scaled(estimator.best_rate_bytes_per_s, ALONE)
        {
            self.others_took = false;
        }
        if pacer.is_contended() || self.others_took {
            self.share(at_us, estimator);
            return;
        }
        let held = now.receive_window_permille.saturating_add(now.send_buffer_permille) > 500;
        if let Some(capacity) = pacer.capacity_bytes_per_s()
            && pacer.is_full(estimator)
        {
            let needed = needed(estimator, capacity, suffers_loss).max(FAR_LANES_MIN);
            if steady_rate(estimator) < scaled(capacity, SUFFICES) {
                self.plenty_since_us = None;
            } else if !pacer.is_draining() {
                let covering = lanes_that_cover(step, bytes_in(steady_rate(estimator), levels.rtt_us));
                self.settle(at_us, estimator, needed.max(covering));
            }
        } else if held && levels.queueing_us <= levels.high_us && !pacer.is_draining() {
            self.grow(step, estimator, now.rate_bytes_per_s, "windows are smaller than the path: more of them");
        } else if pacer.bound_bytes_per_s().is_none()
            && now.phase == Phase::Steady
            && now.congestion_loss_ppm > 0
            && now.random_loss_ppm == 0
        {
            // The queue is too short to tell of whom it is.
            let most_bytes = if covers_regrowth(estimator) { SHORT_QUEUE_WINDOW_BYTES } else { SLOW_WINDOW_BYTES };
            let by_window = bytes_in(now.rate_bytes_per_s, levels.rtt_us).div_ceil(most_bytes);
            let by_window = u16::try_from(by_window).unwrap_or(AUTO_LANES_MAX).min(AUTO_LANES_MAX);
            let needed = needed_at(estimator, now.rate_bytes_per_s, now.rtt_us, suffers_loss);
            self.settle(at_us, estimator, needed.max(by_window).max(FAR_LANES_MIN));
        } else if levels.least_us > levels.low_us || pacer.is_draining() || now.phase == Phase::Ramp {
        } else if control.is_loss_based && !control.may_change && control.lets_more_be_sent && now.random_loss_ppm > 0 {
            // More lanes must gain on the rate that these will fall to.
            let lane = cubic_bytes_per_s(now.random_loss_ppm, now.rtt_min_us, estimator.mss_bytes);
            let rate = now.rate_bytes_per_s.min(lane.saturating_mul(u64::from(self.lanes)));
            self.grow(step, estimator, rate, "packets are lost without a queue: more lanes, each slowed down less");
        }
    }

    /// Gives up lanes on a path that holds few packets, once the capacity has held long enough to find others: a first reading
    /// may be far too low beside them.
    fn leave_those_that_only_meet(&mut self, at_us: u64, estimator: &Estimator, pacer: &Pacer, suffers_loss: bool) {
        let Some(capacity) = pacer.capacity_bytes_per_s().filter(|_| !pacer.is_remembered()) else {
            self.measured_since_us = None;
            return;
        };
        let since_us = *self.measured_since_us.get_or_insert(at_us);
        let most = holds_lanes(estimator, capacity).max(needed(estimator, capacity, suffers_loss)).max(FAR_LANES_MIN);
        if most < self.lanes && at_us.saturating_sub(since_us) > FOUND_OUT_US + 2 * u64::from(estimator.now.rtt_us) {
            (self.lanes, self.reason) = (most, "the path holds few packets: those of more lanes would only meet");
            self.trial = None;
        }
    }

    /// Shares a path. Several lanes take several flows' parts; too few get nothing beside flows that yield to nobody. So lanes go
    /// down above half of our best rate, and up below a third.
    fn share(&mut self, at_us: u64, estimator: &Estimator) {
        let (rate, best) = (estimator.now.rate_bytes_per_s, estimator.best_rate_bytes_per_s);
        self.plenty_since_us = None;
        if at_us < self.yield_us {
            return;
        }
        // Windows must cover the others' queue, too. Its losses may look random: lanes that make up for them would be more than
        // our share.
        let now = &estimator.now;
        // A send buffer grows with its lane.
        let window_bytes = now.window_bytes.max(STOCK_WINDOW_BYTES);
        let needed = lanes_for(bytes_in(scaled(rate, SPARE), u64::from(now.rtt_us)), window_bytes);
        let before = self.lanes;
        if rate < best / 3 && self.lanes < SHARING_LANES_MAX {
            (self.lanes, self.reason) = (self.lanes + 1, "others leave us less than a third");
        } else if needed < self.lanes && (rate > best / 2 || self.lanes > SHARING_LANES_MAX) {
            self.lanes = needed.max((self.lanes / 2).min(SHARING_LANES_MAX));
            self.reason = "others use the path: no more lanes than our share needs";
        }
        if self.lanes != before {
            self.yield_us = at_us.saturating_add((20 * u64::from(estimator.now.rtt_us)).max(YIELD_US_MIN));
        }
    }

    fn grow(&mut self, step: &Step, estimator: &Estimator, rate_before: u64, reason: &'static str) {
        self.plenty_since_us = None;
        let ceiling =
            self.ceiling.filter(|(_, until_us)| step.at_us < *until_us).map_or(AUTO_LANES_MAX, |(lanes, _)| lanes);
        let lanes = self.lanes.saturating_mul(2).min(ceiling);
        if lanes > self.lanes && outlasts_new_lanes(step, estimator) {
            self.change(step.at_us, estimator, rate_before, lanes, reason);
        }
    }

    fn settle(&mut self, at_us: u64, estimator: &Estimator, needed: u16) {
        let rate = steady_rate(estimator);
        let floor = self.floor.filter(|(_, until_us)| at_us < *until_us).map_or(1, |(lanes, _)| lanes);
        if self.lanes < FAR_LANES_MIN {
            self.plenty_since_us = None;
            (self.lanes, self.reason) = (FAR_LANES_MIN, "a far path has at least two");
            return;
        }
        let lanes = needed.max(floor).max(self.lanes - (self.lanes / 4).max(1));
        if u32::from(needed) * 4 > u32::from(self.lanes) * 3 || lanes >= self.lanes {
            self.plenty_since_us = None;
        } else if at_us.saturating_sub(*self.plenty_since_us.get_or_insert(at_us)) > PLENTY_US {
            self.change(at_us, estimator, rate, lanes, "the path is full: fewer lanes suffice, the others rest");
        }
    }

    fn change(&mut self, at_us: u64, estimator: &Estimator, rate_before: u64, lanes: u16, reason: &'static str) {
        let mut settling_us = settling_us(estimator);
        if lanes < self.lanes && estimator.now.congestion_loss_ppm > 0 && covers_regrowth(estimator) {
            // The lanes that stay grow into the room.
            let window_bytes = bytes_in(rate_before, u64::from(estimator.now.rtt_us)) / u64::from(lanes.max(1));
            settling_us = settling_us.max(regrowing_us(window_bytes, estimator.mss_bytes));
        }
        let judge_at_us = at_us.saturating_add(settling_us);
        self.trial = Some(Trial {
            before: self.lanes,
            rate_before,
            loss_ppm_before: estimator.now.random_loss_ppm,
            judge_at_us,
        });
        (self.lanes, self.reason) = (lanes, reason);
    }

    /// True if lanes that began too fast for the losses still slow down. More lanes are right if losses come by chance; if more
    /// lanes lose more, someone limits the rate.
    fn is_slowed_by_chance(&self, estimator: &Estimator, trial: Trial, control: Control) -> bool {
        let (now, before_ppm) = (&estimator.now, trial.loss_ppm_before);
        let lane = cubic_bytes_per_s(now.random_loss_ppm, now.rtt_min_us, estimator.mss_bytes);
        let lanes = lane.saturating_mul(u64::from(self.lanes));
        control.is_loss_based
            && now.random_loss_ppm > 0
            && (now.rate_bytes_per_s / 2 < lanes || lanes < trial.rate_before)
            && (before_ppm == 0 || now.random_loss_ppm <= before_ppm.saturating_add(before_ppm / 2))
    }

    fn judge(&mut self, at_us: u64, estimator: &Estimator, pacer: &Pacer, trial: Trial, control: Control) {
        let grew = self.lanes > trial.before;
        let rate = if grew { estimator.now.rate_bytes_per_s } else { steady_rate(estimator) };
        if grew && rate > scaled(trial.rate_before, GAINED_MUCH) {
            self.trial = None;
            return;
        }
        if !grew && pacer.is_draining() {
            // Lanes held back for a queue say nothing.
            self.trial = Some(Trial { judge_at_us: at_us.saturating_add(2 * steady_us(estimator)), ..trial });
            return;
        }
        if at_us < trial.judge_at_us {
            return;
        }
        self.trial = None;
        // The lanes had time to regrow each, or only as if they were one.
        let regrown = if covers_regrowth(estimator) { u64::from(trial.before.max(1)) } else { 1 };
        let until_us = at_us.saturating_add(VERDICT_US);
        if grew && rate < scaled(trial.rate_before, GAINED) && !self.is_slowed_by_chance(estimator, trial, control) {
            self.ceiling = Some((trial.before, until_us));
            (self.lanes, self.reason) = (trial.before, "more lanes gained nothing");
        } else if grew || rate >= scaled(trial.rate_before, HARMED) {
            // Fewer lanes suffice.
        } else if pacer.bound_bytes_per_s().is_none()
            && estimator.resent_bytes_over(STILL_LOSES_US) > 0
            && bytes_in(trial.rate_before, u64::from(estimator.now.rtt_us)) / regrown < SLOW_WINDOW_BYTES
        {
            // The link is still full, and such small windows would have regrown by now: somebody took what we gave up.
            self.others_took = true;
        } else {
            self.floor = Some((trial.before, until_us));
            (self.lanes, self.reason) = (trial.before, "fewer lanes were slower");
        }
    }
}

/// True if lanes still double, mostly with well over half of what the hosts allow under way. New lanes take two round trips and
/// begin with ten segments, so they are asked for early: 16 lanes at 100 ms have 60 % of 2.9 MB each under way at 2.2 Gbit/s. A
/// send buffer that may grow is no limit.
fn is_ramp_short_of_lanes(step: &Step, estimator: &Estimator, levels: Levels, lanes: u16) -> bool {
    let now = &estimator.now;
    let reaches = |bytes: u64, window_bytes: u64| window_bytes > 0 && bytes > scaled(window_bytes, RAMP_FULL);
    let filled = step.lanes.iter().filter(|lane| {
        reaches(lane.in_flight_bytes, STOCK_WINDOW_BYTES) && reaches(lane.in_flight_bytes, lane.window_bytes)
    });
    now.phase == Phase::Ramp
        && outlasts_new_lanes(step, estimator)
        && levels.queueing_us <= levels.low_us
        && filled.count() > usize::from(lanes / 2)
}

/// True if the waiting data outlasts the start of new lanes. Later ones carry only the last units, slowly: 400 MB over 1 Gbit/s x
/// 228 ms with small windows ended a second later.
fn outlasts_new_lanes(step: &Step, estimator: &Estimator) -> bool {
    step.waiting_bytes > bytes_in(estimator.now.rate_bytes_per_s, settling_us(estimator))
}

/// First lanes whose windows cover these bytes, or all. Bound lanes do not widen their windows (RFC 7661), and would need many
/// round trips if others rested.
fn lanes_that_cover(step: &Step, bytes: u64) -> u16 {
    let mut left = bytes;
    let covering = step.lanes.iter().position(|lane| {
        left = left.saturating_sub(lane.cwnd_bytes);
        left == 0
    });
    covering.and_then(|at| u16::try_from(at + 1).ok()).unwrap_or(AUTO_LANES_MAX)
}

fn steady_us(estimator: &Estimator) -> u64 {
    (4 * u64::from(estimator.now.rtt_us)).max(STEADY_US_MIN)
}

fn steady_rate(estimator: &Estimator) -> u64 {
    estimator.rate(0, steady_us(estimator)).unwrap_or(estimator.now.rate_bytes_per_s)
}

/// True if the short queue keeps the link busy while a few lanes regrow. Otherwise only many lanes, which lose at different
/// times, fill the link.
fn covers_regrowth(estimator: &Estimator) -> bool {
    u64::from(estimator.queue_peak_us) * 8 >= u64::from(estimator.now.rtt_min_us)
}

/// Cubic's time from a loss back to its window, (0.3 W / 0.4)^(1/3) seconds for W segments (RFC 9438, section 4.2), and half as
/// much to grow beyond.
fn regrowing_us(window_bytes: u64, mss_bytes: u32) -> u64 {
    let segments = window_bytes as f64 / f64::from(mss_bytes.max(1));
    (cube_root(0.75 * segments) * 1.5e6) as u64
}

/// Two round trips to begin, the doublings from ten segments to a full window, and two to measure.
fn settling_us(estimator: &Estimator) -> u64 {
    let window_bytes = estimator.now.window_bytes.max(STOCK_WINDOW_BYTES);
    let doublings = (window_bytes / (10 * u64::from(estimator.mss_bytes.max(1)))).max(1).ilog2();
    (u64::from(doublings) + 4).saturating_mul(u64::from(estimator.now.rtt_us)).max(SETTLING_US_MIN)
}

/// Nearer, more handshakes cost more than they save.
pub const QUICK_FROM_US: u32 = 160_000;
/// A stock host's 0.7 of `tcp_wmem[2]` = 4 MiB. Doubled, the rate falls 21 % (two cubic).
pub(crate) const STOCK_WINDOW_BYTES: u64 = 2_900_000;
/// From here cubic takes 8 s to regrow.
const SLOW_WINDOW_BYTES: u64 = 1_000_000;
/// A window filled to this will soon hold the ramp. Twice as far from 1, the queue is 14 ms longer (1 Gbit/s x 228 ms).
const RAMP_FULL: f64 = 0.6;
/// A ramp has time for one request. Doubled, it takes 13 % less time (100 Gbit/s x 60 ms, tuned).
const RAMP_FACTOR: u16 = 4;
/// A short queue covers no more: 7 s from a loss. Halved, the rate falls 8.5 % (two cubic).
const SHORT_QUEUE_WINDOW_BYTES: u64 = 750_000;
/// Windows are not always full. Half as far from 1, the rate falls 6.9 % (two cubic).
const SPARE: f64 = 1.25;
/// Four pairs (tcp_min_tso_segs): three packets behind a loss show it (RFC 5681). Doubled, the rate falls 11 % (200 Mbit/s x 50
/// ms, 1 of 1000 overtaken).
const LEAST_SEGMENTS: u64 = 8;
/// With two round trips the pacer knows whose a queue is, and two samples have shown it.
const FOUND_OUT_US: u64 = DRAIN_LOOK_US + 200_000;
/// While one waits for its disk or repairs a loss, the other has data.
const FAR_LANES_MIN: u16 = 2;
/// Doubled, others keep 3.6 points less (four cubic).
const DECIDE_US_MIN: u64 = 300_000;
/// Doubled, the rate falls 14 % (10 Gbit/s x 228 ms, tuned).
const SETTLING_US_MIN: u64 = 1_500_000;
/// Doubled, others keep 5.4 points less (four cubic).
const PLENTY_US: u64 = 3_000_000;
/// Doubled, the rate falls 26 % (100 Mbit/s x 50 ms, cubic flows from 5 to 20 and 25 to 35 s).
const YIELD_US_MIN: u64 = 2_000_000;
/// We insist on these beside flows that yield to nobody. Doubled, others keep 4.9 points less (300 Mbit/s x 80 ms, a bbr flow).
const SHARING_LANES_MAX: u16 = 8;
/// From this share of the best rate on nobody else can be there.
const ALONE: f64 = 0.9;
/// A flow in a short full queue loses this often.
const STILL_LOSES_US: u64 = 6_000_000;
/// A gain below 5 % is chance. Twice as far from 1, the rate falls 15 % (10 Gbit/s x 228 ms, tuned).
const GAINED: f64 = 1.05;
/// A gain after which the next step need not await the trial's end.
const GAINED_MUCH: f64 = 1.5;
/// A loss of rate below 3 % is chance.
const HARMED: f64 = 0.97;
/// Below this share of the capacity (99 % are asked for) lanes are not too many; else each trial would repeat the last harm.
const SUFFICES: f64 = 0.96;
/// Doubled, others keep 2.3 points less (four cubic).
const STEADY_US_MIN: u64 = 1_000_000;
/// Paths change within minutes.
const VERDICT_US: u64 = 60_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_path_begins_with_no_more_lanes_than_it_holds() {
        let at_start = |mbit_per_s: u64, rtt_ms: u32, lanes| {
            let capacity_bytes_per_s = mbit_per_s * 125_000;
            let known = Remembered { capacity_bytes_per_s, rtt_min_us: rtt_ms * 1000, lanes, ..Remembered::default() };
            at_start_of_known(&known, rtt_ms * 1000)
        };
        assert_eq!(at_start(20, 20, 2), 3, "50 kB hold three first windows");
        assert_eq!(at_start(2, 20, 1), 2);
        assert_eq!(at_start(1000, 20, 5), 8);
        assert_eq!(at_start(100, 228, 5), 32);
        assert_eq!(at_start(1000, 100, 24), 32);
        assert_eq!(at_start(1000, 228, 24), START_LANES_MAX);
        assert_eq!(at_start(10_000, 228, 128), 128, "it needed them in the end");
    }

    #[test]
    fn cubic_under_loss_is_as_slow_as_the_rfc_says() {
        // RFC 9438, table 3 (C = 0.4, RTT 0.1 s): 187 segments at 1e-4, 5,927 at 1e-6, with 1,000-byte segments.
        let segments = |loss_ppm| cubic_bytes_per_s(loss_ppm, 100_000, 1_000) / 10_000;
        assert!((186..=188).contains(&segments(100)), "{}", segments(100));
        assert!((5_900..=6_000).contains(&segments(1)), "{}", segments(1));
    }
}
