//! The queue, as the lanes see it: round trip now, less the smallest.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::path::LaneReading;

#[derive(Clone, Debug)]
pub(super) struct Delay {
    now_us: u32,
    /// A changed path is known again after [`SPANS`] of them.
    spans: VecDeque<Span>,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    from_us: u64,
    rtt_us: u32,
    deviation_us: u32,
}

impl Delay {
    pub(super) fn new(rtt_us: u32) -> Self {
        Self { now_us: rtt_us.max(1), spans: VecDeque::new() }
    }

    /// False if nothing came back since.
    pub(super) fn on_sample(&mut self, at_us: u64, lanes: &[LaneReading], changed: &[u16]) -> bool {
        let heard = || lanes.iter().filter(|lane| lane.rtt_us > 0 && changed.contains(&lane.lane));
        let mut rtts: Vec<u32> = heard().map(|lane| lane.rtt_us).collect();
        rtts.sort_unstable();
        let Some(rtt_us) = rtts.get(rtts.len() / 4).copied() else { return false };
        self.now_us = rtt_us;
        let deviation_us = heard().map(|lane| lane.rtt_deviation_us).min().unwrap_or(0);
        let least_us = heard().map(|lane| lane.rtt_min_us).filter(|us| *us > 0).min().unwrap_or(rtt_us);
        // Scattered packets' smallest lies below the usual.
        let base_us = rtt_us.min(least_us.saturating_add(deviation_us.min(NOISE_US_MAX) * 2));
        match self.spans.back_mut() {
            Some(span) if at_us < span.from_us.saturating_add(SPAN_US) => {
                span.rtt_us = span.rtt_us.min(base_us);
                span.deviation_us = span.deviation_us.min(deviation_us);
            }
            _ => self.spans.push_back(Span { from_us: at_us, rtt_us: base_us, deviation_us }),
        }
        if self.spans.len() > SPANS {
            self.spans.pop_front();
        }
        true
    }

    /// The smallest known, at first the connection's.
    fn base_us(&self) -> u32 {
        self.spans.iter().map(|span| span.rtt_us).min().unwrap_or(self.now_us)
    }

    pub(super) fn rtt_us(&self) -> u64 {
        u64::from(self.now_us)
    }

    pub(super) fn queue_us(&self) -> u32 {
        self.now_us.saturating_sub(self.base_us())
    }

    fn noise_us(&self) -> u32 {
        self.spans.iter().rev().take(2).map(|span| span.deviation_us).min().unwrap_or(0).min(NOISE_US_MAX)
    }

    pub(super) fn high_us(&self) -> u32 {
        HIGH_US + 2 * self.noise_us()
    }

    pub(super) fn low_us(&self) -> u32 {
        LOW_US + self.noise_us()
    }
}

const SPAN_US: u64 = 30_000_000;
/// Ten minutes in all, as in LEDBAT (RFC 6817, `BASE_HISTORY`).
const SPANS: usize = 20;
/// HyStart leaves slow start at 4 ms of queue. Doubled, others keep 5.7 points less (100 x 50, queue of 2 ms, a cubic flow).
const HIGH_US: u32 = 1_000;
/// Doubled, others keep 23 points more (100 x 50, queue of 2 ms, a cubic flow).
const LOW_US: u32 = 500;
/// More is a queue's deviation. Not shown in simulation.
const NOISE_US_MAX: u32 = 5_000;
