//! One path of several: its tuner, its arrivals, and its last advice.

use alloc::vec::Vec;

use super::arrived::{Arrival, Arrived};
use super::bottleneck::{Held, Seen};
use super::reading::PathReading;
use super::silence::{Silence, Timing};
use crate::path::{Advice, Confidence, LaneReading, Phase, SOURCE_PERMILLE, Sample, Tuner};

/// A path, known also when it is down: it may come back, and the report names it.
#[derive(Clone, Debug)]
pub(super) struct Path {
    pub(super) tuner: Tuner,
    pub(super) is_up: bool,
    pub(super) rests: bool,
    pub(super) silence: Silence,
    pub(super) told: Advice,
    arrived: Arrived,
    arrival: Arrival,
    rtt_deviation_us: u32,
}

impl Path {
    pub(super) fn new(tuner: Tuner) -> Self {
        let told = tuner.first();
        let (silence, arrived, arrival) = (Silence::default(), Arrived::default(), Arrival::default());
        Self { tuner, is_up: true, rests: false, silence, told, arrived, arrival, rtt_deviation_us: 0 }
    }

    pub(super) fn up(&mut self) {
        (self.is_up, self.rests, self.silence) = (true, false, Silence::default());
    }

    pub(super) fn carries(&self) -> bool {
        self.is_up && !self.rests
    }

    /// Takes a reading in, which tells nothing in a trial. True: new advice.
    pub(super) fn on_reading(&mut self, at_us: u64, reading: &PathReading, waiting_bytes: u64, in_trial: bool) -> bool {
        self.arrival = self.arrived.on_reading(at_us, &reading.lanes);
        self.silence.on_arrival(self.arrival, reading.timeouts);
        if self.arrival.bytes > 0 {
            self.rtt_deviation_us = median_deviation_us(&reading.lanes);
        }
        let sample = Sample { at_us, lanes: reading.lanes.clone(), waiting_bytes };
        if in_trial {
            self.tuner.on_disturbed_sample(&sample);
            return false;
        }
        self.tuner.on_sample(&sample).is_some()
    }

    pub(super) fn seen(&self, path: u16) -> Seen {
        let estimate = self.tuner.estimate();
        Seen {
            path,
            us: self.arrival.us,
            bytes: self.arrival.bytes,
            rtt_us: estimate.rtt_us,
            queueing_us: estimate.queueing_us,
            starves: estimate.source_permille > SOURCE_PERMILLE,
            lanes: self.told.lanes,
            remembers_rate: self.tuner.congestion_control() == "bbr",
        }
    }

    pub(super) fn timing(&self) -> Timing {
        Timing { rtt_us: self.tuner.estimate().rtt_us, deviation_us: self.rtt_deviation_us }
    }

    pub(super) fn advice(&self, held: Option<Held>, lanes_most: u16) -> Advice {
        let mut advice = self.tuner.first();
        advice.lanes = advice.lanes.min(lanes_most);
        match held {
            None => {}
            Some(Held::Back(bytes_per_s)) => {
                advice.pacing_bytes_per_s = Some(bytes_per_s);
                advice.reasons.pacing = "held back for a moment, to see whether another path takes its place";
            }
            Some(Held::Up(bytes_per_s)) => {
                advice.pacing_bytes_per_s = advice.pacing_bytes_per_s.map(|bound| bound.saturating_add(bytes_per_s));
                advice.reasons.pacing = "free for a moment, to see whether it takes the place of another path";
            }
        }
        advice
    }

    /// Most of a rate limit that the path can use, beside its part; `None`: unknown.
    pub(super) fn can_use(&self, part_bytes_per_s: u64) -> Option<u64> {
        let estimate = self.tuner.estimate();
        let rate = estimate.rate_bytes_per_s;
        if estimate.confidence == Confidence::Measured {
            return Some(estimate.capacity_bytes_per_s);
        }
        let is_slow = rate < part_bytes_per_s / 5 * 4 && estimate.source_permille <= SOURCE_PERMILLE;
        (is_slow && estimate.phase == Phase::Steady).then_some(rate.saturating_add(rate / 4))
    }
}

fn median_deviation_us(lanes: &[LaneReading]) -> u32 {
    let mut deviations: Vec<u32> = lanes.iter().map(|lane| lane.rtt_deviation_us).collect();
    deviations.sort_unstable();
    deviations.get(deviations.len() / 2).copied().unwrap_or(0)
}
