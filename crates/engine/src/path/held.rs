//! What held the lanes while they waited for the network, and how steady the rate was: for the report.

use haul_wire::summary::{Outages, PathTime};

use super::estimate::{Estimator, Phase, scaled, square_root};
use super::pacing::{Levels, Pacer};
use super::sample::{LaneStep, Step};

#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) time: PathTime,
    pub(super) outages: Outages,
    is_out: bool,
    /// Time booked to the capacity, whose queue may prove to be others'.
    unsettled_us: u64,
    /// Time booked to losses that looked like a queue's, though none stood.
    unsettled_loss_us: u64,
    kept_to_us: u64,
    queueing: Histogram,
    second_us: u64,
    second_delivered_bytes: u64,
    seconds: f64,
    mean: f64,
    squares: f64,
}

impl Held {
    pub(super) fn new() -> Self {
        Self {
            time: PathTime::default(),
            outages: Outages::default(),
            is_out: false,
            unsettled_us: 0,
            unsettled_loss_us: 0,
            kept_to_us: 0,
            queueing: Histogram { counts: [0; BUCKETS] },
            second_us: 0,
            second_delivered_bytes: 0,
            seconds: 0.0,
            mean: 0.0,
            squares: 0.0,
        }
    }

    /// Takes one step in, after estimator and pacer. `outage_us`: nothing came through; `passes_bytes_per_s`: a policer's limit.
    pub(super) fn on_step(
        &mut self,
        step: &Step,
        estimator: &Estimator,
        pacer: &Pacer,
        passes_bytes_per_s: Option<u64>,
        outage_us: Option<u64>,
    ) {
        // All has arrived: the target takes nothing more.
        let outage_us = outage_us.filter(|_| step.lanes.iter().any(|lane| lane.in_flight_bytes > 0));
        self.on_outage(step, outage_us);
        if step.rtt_us > 0 {
            self.queueing.add(estimator.now.queueing_us);
        }
        self.settle(step, estimator, pacer.holds() || passes_bytes_per_s.is_some());
        let bound = [pacer.bound_bytes_per_s(), passes_bytes_per_s].into_iter().flatten().min();
        for lane in &step.lanes {
            self.add(lane, step, estimator, pacer, bound);
        }
        self.add_rate(step, estimator);
    }

    pub(super) fn queueing_us(&self) -> u32 {
        self.queueing.median()
    }

    pub(super) fn rate_variation_permille(&self) -> u32 {
        if self.seconds < 3.0 || self.mean <= 0.0 {
            return 0;
        }
        (square_root(self.squares / self.seconds) / self.mean * 1000.0) as u32
    }

    fn on_outage(&mut self, step: &Step, outage_us: Option<u64>) {
        if let Some(us) = outage_us {
            let is_new = !self.is_out;
            self.outages.count = self.outages.count.saturating_add(is_new.into());
            self.outages.us = self.outages.us.saturating_add(if is_new { us } else { step.us });
        }
        self.is_out = outage_us.is_some();
    }

    /// Settles whose a queue was. One that restraint does not shorten was never ours; if ours drains for good, the capacity held
    /// us.
    fn settle(&mut self, step: &Step, estimator: &Estimator, is_kept_to: bool) {
        self.kept_to_us = if is_kept_to { self.kept_to_us.saturating_add(step.us) } else { 0 };
        if estimator.now.contended {
            self.time.capacity_us = self.time.capacity_us.saturating_sub(self.unsettled_us);
            self.time.loss_us = self.time.loss_us.saturating_sub(self.unsettled_loss_us);
            let of_others_us = self.unsettled_us.saturating_add(self.unsettled_loss_us);
            self.time.contention_us = self.time.contention_us.saturating_add(of_others_us);
        }
        if estimator.now.contended || self.kept_to_us > SETTLED_US {
            (self.unsettled_us, self.unsettled_loss_us) = (0, 0);
        }
    }

    /// Books the receive window's time as the kernel tells, the rest under the first cause that applies.
    fn add(&mut self, lane: &LaneStep, step: &Step, estimator: &Estimator, pacer: &Pacer, bound: Option<u64>) {
        let add = |sum: &mut u64, us: u64| *sum = sum.saturating_add(us);
        let now = &estimator.now;
        let time = &mut self.time;
        if self.is_out {
            return add(&mut time.outage_us, lane.busy_us);
        }
        add(&mut time.receive_window_us, lane.receive_window_us);
        let rest_us = lane.busy_us.saturating_sub(lane.receive_window_us);
        let lost = if now.overtaken { &mut time.jitter_us } else { &mut time.loss_us };
        let share = bound.unwrap_or(u64::MAX) / u64::from(now.busy_lanes.max(1));
        let is_paced = super::estimate::per_second(lane.delivered_bytes, step.us) >= scaled(share, PACED);
        if now.phase == Phase::Ramp && !lane.send_buffer_full && !lane.wants_data {
            add(&mut time.ramp_us, rest_us);
        } else if lane.wants_data && estimator.is_source_limited() {
            // The lane waits for data.
        } else if now.contended {
            add(&mut time.contention_us, rest_us);
        } else if pacer.has_standing_queue() || is_paced {
            add(&mut time.capacity_us, rest_us);
            add(&mut self.unsettled_us, rest_us);
        } else if lane.receive_window_full {
            add(&mut time.receive_window_us, rest_us);
        } else if lane.send_buffer_full {
            add(&mut time.send_buffer_us, rest_us);
        } else if lane.wants_data {
            // The lane waits for data.
        } else if now.random_loss_ppm > 0 {
            add(lost, rest_us);
        } else if pacer.is_full(estimator) || has_short_queue(estimator) {
            add(&mut time.capacity_us, rest_us);
            add(&mut self.unsettled_us, rest_us);
        } else if now.congestion_loss_ppm > 0 {
            // A full link would have a queue.
            add(lost, rest_us);
            if !now.overtaken {
                add(&mut self.unsettled_loss_us, rest_us);
            }
        } else {
            add(&mut time.latency_us, rest_us);
        }
    }

    /// Leaves out the ramp, and the end, when work runs out.
    fn add_rate(&mut self, step: &Step, estimator: &Estimator) {
        if estimator.now.phase == Phase::Ramp || step.waiting_bytes == 0 {
            (self.second_us, self.second_delivered_bytes) = (0, 0);
            return;
        }
        self.second_us = self.second_us.saturating_add(step.us);
        self.second_delivered_bytes = self.second_delivered_bytes.saturating_add(step.delivered_bytes);
        if self.second_us < 1_000_000 {
            return;
        }
        let rate = self.second_delivered_bytes as f64 / self.second_us as f64;
        (self.second_us, self.second_delivered_bytes) = (0, 0);
        self.seconds += 1.0;
        let difference = rate - self.mean;
        self.mean += difference / self.seconds;
        self.squares += difference * (rate - self.mean);
    }
}

/// Buckets an eighth of a power of two wide: 6 % off at most.
#[derive(Clone, Debug)]
struct Histogram {
    counts: [u32; BUCKETS],
}

/// 8 for each power of two.
const BUCKETS: usize = 256;

impl Histogram {
    fn add(&mut self, us: u32) {
        let count = &mut self.counts[Self::bucket(us)];
        *count = count.saturating_add(1);
    }

    fn median(&self) -> u32 {
        let all: u64 = self.counts.iter().map(|count| u64::from(*count)).sum();
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            if seen * 2 >= all && seen > 0 {
                return Self::middle(bucket);
            }
        }
        0
    }

    /// Up to 7 each value has one; above, the three bits below the highest tell.
    fn bucket(us: u32) -> usize {
        let power = us.max(1).ilog2();
        if power < 3 {
            return us as usize;
        }
        (power as usize - 2) * 8 + ((us >> (power - 3)) & 7) as usize
    }

    fn middle(bucket: usize) -> u32 {
        if bucket < 8 {
            return bucket as u32;
        }
        let shift = bucket as u64 / 8 - 1;
        let low = (8 + bucket as u64 % 8) << shift;
        u32::try_from(low + (1 << shift) / 2).unwrap_or(u32::MAX)
    }
}

/// True for a queue in all samples that is longer than the way. The kernel's bound at its own device (TCP small queues,
/// `tcp_limit_output_bytes`) may keep it too short to be held against anybody.
fn has_short_queue(estimator: &Estimator) -> bool {
    let levels = Levels::of(estimator);
    !estimator.is_source_limited() && levels.least_us > levels.low_us.min(estimator.now.rtt_min_us.max(QUEUE_US_MIN))
}

/// Busy hosts add less.
const QUEUE_US_MIN: u32 = 500;

/// Others' queue comes back within this time.
const SETTLED_US: u64 = 2_000_000;

/// From here a lane is held by its bound.
const PACED: f64 = 0.85;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_found_within_six_percent() {
        for us in [0u32, 1, 7, 8, 9, 100, 12_345, 1_000_000, u32::MAX] {
            let mut histogram = Histogram { counts: [0; BUCKETS] };
            histogram.add(0);
            histogram.add(us);
            histogram.add(us);
            let median = f64::from(histogram.median());
            assert!((median - f64::from(us)).abs() <= f64::from(us) / 16.0, "{us}: {median}");
        }
    }
}
