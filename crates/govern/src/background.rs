//! Makes the rate and the lanes of background paths follow the queue, in ten times as many samples as others.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use haul_engine::path::LaneReading;
use haul_engine::service::background::{Background, Doing, Modest, SAMPLE_US};
use haul_job::Subject;
use haul_wire::control::Notice;

use haul_channel::convert;

pub(crate) struct BackgroundShare {
    paths: BTreeMap<u16, OfPath>,
    most_bytes_per_s: Option<u64>,
    sampled_at: Instant,
}

struct OfPath {
    background: Background,
    now: Modest,
    told: Option<Doing>,
    told_at: Instant,
}

pub(crate) const EVERY: Duration = Duration::from_micros(SAMPLE_US);

/// A job yields several times a second.
const TELL_EVERY: Duration = Duration::from_secs(5);

impl BackgroundShare {
    pub fn new(most_bytes_per_s: Option<u64>) -> Self {
        Self { paths: BTreeMap::new(), most_bytes_per_s, sampled_at: Instant::now() }
    }

    pub fn limit_rate(&mut self, most_bytes_per_s: Option<u64>) {
        self.most_bytes_per_s = most_bytes_per_s;
    }

    pub fn set(&mut self, path: u16, is_background: bool, rtt_us: u32) {
        if !is_background {
            self.paths.remove(&path);
        } else {
            self.paths.entry(path).or_insert_with(|| {
                let background = Background::new(rtt_us, None);
                let now = background.advice();
                OfPath { background, now, told: None, told_at: Instant::now() }
            });
        }
    }

    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    pub fn has(&self, path: u16) -> bool {
        self.paths.contains_key(&path)
    }

    pub fn is_due(&self, now: Instant) -> bool {
        !self.is_empty() && now.duration_since(self.sampled_at) >= EVERY
    }

    /// True: another number of lanes shall carry data.
    pub(crate) fn on_sample(&mut self, path: u16, at_us: u64, lanes: &[LaneReading]) -> bool {
        self.sampled_at = Instant::now();
        let Some(of) = self.paths.get_mut(&path) else { return false };
        let before = std::mem::replace(&mut of.now, of.background.on_sample(at_us, lanes));
        before.lanes != of.now.lanes
    }

    /// A path's bound, in bytes per second.
    pub fn bound(&self, path: u16) -> Option<u64> {
        let rate = self.paths.get(&path)?.now.rate_bytes_per_s;
        Some(self.most_bytes_per_s.map_or(rate, |most| most.min(rate)))
    }

    pub fn lanes(&self, path: u16) -> u16 {
        self.paths.get(&path).map_or(u16::MAX, |of| of.now.lanes)
    }

    /// Reports yielding, or having what is free.
    pub fn told(&mut self) -> Vec<Notice> {
        let mut notices = Vec::new();
        for of in self.paths.values_mut() {
            let doing = of.now.doing;
            let is_over = matches!(doing, Doing::Holding | Doing::Yielding) && of.told_at.elapsed() >= TELL_EVERY;
            if is_over && of.told != Some(doing) {
                (of.told, of.told_at) = (Some(doing), Instant::now());
                let rate = format!("{:.1} Mbit/s", of.now.rate_bytes_per_s as f64 * 8e-6);
                notices.push(convert::chose(Subject::Class, rate, doing.reason()));
            }
        }
        notices
    }
}
