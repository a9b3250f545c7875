//! Effects of chance on a transmitted packet.

use std::time::Duration;

use super::chance::{Bursts, Chance, Purpose};
use crate::limits;
use crate::topology::DirectionSpec;
use crate::units::{Probability, Time};

/// A large segment shares one fate, with one packet's probability. The lost share is as asked, but in pieces of up to
/// 64 KiB, so TCP halves its window less often. Loss experiments use single packets.
#[derive(Clone, Debug)]
pub(super) struct Fates {
    loss: f64,
    corrupt: f64,
    duplicate: f64,
    reorder: f64,
    reorder_by: Duration,
    delay: Duration,
    jitter_ns: u64,
    spread: Duration,
    bursts: Option<Bursts>,
    loss_chance: Chance,
    corrupt_chance: Chance,
    duplicate_chance: Chance,
    reorder_chance: Chance,
    jitter_chance: Chance,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fate {
    /// Changes a bit: this number modulo the number of bits.
    pub flipped_bit: Option<u64>,
    /// A copy follows directly.
    pub is_duplicated: bool,
    /// Delay and jitter.
    pub delay: Duration,
    /// The additional delay for reordering.
    pub held_back: Option<Duration>,
}

impl Fates {
    pub fn new(spec: &DirectionSpec, seed: u64) -> Fates {
        let jitter = spec.jitter.unwrap_or_default().0.min(limits::MAX_DELAY);
        Fates {
            loss: share(spec.loss),
            corrupt: share(spec.corrupt),
            duplicate: share(spec.duplicate),
            reorder: share(spec.reorder),
            reorder_by: spec.reorder_by.map_or(limits::DEFAULT_REORDER_TIME, |time| time.0),
            delay: spec.delay.unwrap_or_default().0,
            jitter_ns: u64::try_from(jitter.as_nanos()).unwrap_or(u64::MAX),
            spread: spec.spread.unwrap_or_default().0,
            bursts: spec.burst.map(|burst| Bursts::new(&burst, seed)),
            loss_chance: Chance::new(seed, Purpose::Loss),
            corrupt_chance: Chance::new(seed, Purpose::Corruption),
            duplicate_chance: Chance::new(seed, Purpose::Duplication),
            reorder_chance: Chance::new(seed, Purpose::Reordering),
            jitter_chance: Chance::new(seed, Purpose::Jitter),
        }
    }

    /// `None` is a loss, alone or in a burst. Drawing both for every packet keeps them independent.
    pub fn next(&mut self) -> Option<Fate> {
        let alone = self.loss_chance.happens(self.loss);
        let in_burst = self.bursts.as_mut().is_some_and(Bursts::next_is_lost);
        if alone || in_burst {
            return None;
        }
        let is_corrupted = self.corrupt_chance.happens(self.corrupt);
        let jitter_ns = if self.jitter_ns > 0 { self.jitter_chance.up_to(self.jitter_ns) } else { 0 };
        let mut held_back = self.reorder_chance.happens(self.reorder).then_some(self.reorder_by);
        if !self.spread.is_zero() {
            let spread = self.spread.mul_f64(self.jitter_chance.normal(limits::SPREADS_MOST));
            held_back = Some(held_back.unwrap_or_default() + spread);
        }
        Some(Fate {
            flipped_bit: is_corrupted.then(|| self.corrupt_chance.bits()),
            is_duplicated: self.duplicate_chance.happens(self.duplicate),
            delay: self.delay() + Duration::from_nanos(jitter_ns),
            held_back,
        })
    }

    /// The smallest delay of any packet.
    pub fn delay(&self) -> Duration {
        self.delay.saturating_sub(self.spread * limits::SPREADS_MOST)
    }

    pub fn set_delay(&mut self, delay: Time) {
        self.delay = delay.0;
    }

    pub fn set_loss(&mut self, loss: Probability) {
        self.loss = loss.share();
    }
}

fn share(probability: Option<Probability>) -> f64 {
    probability.unwrap_or_default().share()
}
