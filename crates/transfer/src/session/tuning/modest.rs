//! Paths whose class is background: their rate and their lanes follow the queue, ten times as often as others are sampled.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use haul_engine::path::LaneReading;
use haul_engine::service::background::{Background, Doing, Modest, SAMPLE_US};
use haul_job::Subject;
use haul_wire::control::Notice;

use crate::session::convert;

/// The background jobs of a session: one on each path of that class.
pub(super) struct Modesty {
    paths: BTreeMap<u16, OfPath>,
    /// `--rate`.
    most_bytes_per_s: Option<u64>,
    sampled_at: Instant,
}

struct OfPath {
    background: Background,
    now: Modest,
    told: Option<Doing>,
    told_at: Instant,
}

/// Between two readings.
pub(super) const EVERY: Duration = Duration::from_micros(SAMPLE_US);

/// A job that yields and rises does so several times a second; whoever watches need not hear each.
const TELL_EVERY: Duration = Duration::from_secs(5);

impl Modesty {
    pub(super) fn new(most_bytes_per_s: Option<u64>) -> Self {
        Self { paths: BTreeMap::new(), most_bytes_per_s, sampled_at: Instant::now() }
    }

    /// This path is of that class from now on, or no more.
    pub(super) fn set(&mut self, path: u16, is_background: bool, rtt_us: u32) {
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

    pub(super) fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    pub(super) fn has(&self, path: u16) -> bool {
        self.paths.contains_key(&path)
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        !self.is_empty() && now.duration_since(self.sampled_at) >= EVERY
    }

    /// Takes a reading of one path in. True when another number of lanes shall carry data.
    pub(super) fn on_sample(&mut self, path: u16, at_us: u64, lanes: &[LaneReading]) -> bool {
        self.sampled_at = Instant::now();
        let Some(of) = self.paths.get_mut(&path) else { return false };
        let before = std::mem::replace(&mut of.now, of.background.on_sample(at_us, lanes));
        before.lanes != of.now.lanes
    }

    /// What the lanes of a path may send together, in bytes per second.
    pub(super) fn bound(&self, path: u16) -> Option<u64> {
        let rate = self.paths.get(&path)?.now.rate_bytes_per_s;
        Some(self.most_bytes_per_s.map_or(rate, |most| most.min(rate)))
    }

    /// Most lanes of a path that carry data.
    pub(super) fn lanes(&self, path: u16) -> u16 {
        self.paths.get(&path).map_or(u16::MAX, |of| of.now.lanes)
    }

    /// Whether it yields or has what is free, when that is new.
    pub(super) fn told(&mut self) -> Vec<Notice> {
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
