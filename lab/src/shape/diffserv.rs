//! DiffServ: four classes by DSCP, each with its queue.
//!
//! - *Expedited* (EF, and the network's CS6 and CS7) goes first. A token bucket polices it (RFC 3246), so it cannot
//!   shut out the rest: `ef_rate` in the long run, [`limits::EF_BURST_TIME`] of it at once.
//! - *Assured* (AF, and CS2 to CS5) and *best effort* share the rest by weight.
//! - *Lower effort* (LE, and CS1) goes when nothing else waits (RFC 8622), and may starve, on purpose.
//!
//! Each queue has a quarter of the direction's bytes: no class takes another's room. For EF at half the link that is 50 ms at
//! its own rate. Drop precedence within AF is not modelled, and CS6 is in EF's class.

use super::fifo::{Fifo, Waiting};
use super::payload::{Nanos, Payload};
use crate::limits;
use crate::topology::DiffServSpec;
use crate::units::Rate;

/// A packet's treatment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// First, up to a rate.
    Expedited,
    /// A guaranteed share.
    Assured,
    /// The rest.
    BestEffort,
    /// Waits for all other.
    LowerEffort,
}

#[derive(Clone, Debug)]
pub(super) struct Classes<P> {
    spec: DiffServSpec,
    expedited: Fifo<P>,
    assured: Fifo<P>,
    best_effort: Fifo<P>,
    lower_effort: Fifo<P>,
    policer: TokenBucket,
    turn: Turn,
}

/// Counts bits in 10^9ths: each nanosecond adds a whole number.
///
/// A packet passes while any token is left, and may overdraw: the rate holds in the long run for any size.
#[derive(Clone, Debug)]
struct TokenBucket {
    bits_per_s: i128,
    most: i128,
    tokens: i128,
    filled_at: Nanos,
}

/// Deficit round robin (Shreedhar and Varghese, 1995) for two classes: the millionths of bytes that assured lacks against its
/// share. The class with the deficit is next. Only bytes sent while both wait count, so no class saves up turns.
#[derive(Clone, Debug)]
struct Turn {
    share_ppm: i64,
    deficit: i64,
}

impl Class {
    /// By code point (RFC 4594, RFC 8622); unknown ones are best effort (RFC 2474).
    pub fn of(dscp: u8) -> Class {
        match dscp {
            // EF, admitted voice (RFC 5865), CS6, CS7.
            46 | 44 | 48 | 56 => Class::Expedited,
            // AF1x to AF4x, and CS2 to CS5. RFC 4594 gives them queues of the same kind.
            10 | 12 | 14 | 18 | 20 | 22 | 26 | 28 | 30 | 34 | 36 | 38 | 16 | 24 | 32 | 40 => Class::Assured,
            // LE, and CS1, its earlier code point.
            1 | 8 => Class::LowerEffort,
            _ => Class::BestEffort,
        }
    }
}

impl<P: Payload> Classes<P> {
    /// For this rate, with `bytes` in all.
    pub fn new(spec: &DiffServSpec, rate: Option<Rate>, bytes: u64) -> Classes<P> {
        let fifo = || Fifo::new(bytes / limits::DIFFSERV_QUEUES);
        Classes {
            spec: *spec,
            expedited: fifo(),
            assured: fifo(),
            best_effort: fifo(),
            lower_effort: fifo(),
            policer: TokenBucket::new(ef_bits_per_s(spec, rate)),
            turn: Turn::new(spec.af_share.map_or(0.5, |share| share.share())),
        }
    }

    pub fn police(&mut self, now: Nanos, packet: &P) -> bool {
        Class::of(packet.dscp()) != Class::Expedited || self.policer.take(now, packet.wire_bytes())
    }

    pub fn push(&mut self, frame: Waiting<P>) -> bool {
        match Class::of(frame.item.dscp()) {
            Class::Expedited => self.expedited.push(frame),
            Class::Assured => self.assured.push(frame),
            Class::BestEffort => self.best_effort.push(frame),
            Class::LowerEffort => self.lower_effort.push(frame),
        }
    }

    pub fn pop(&mut self) -> Option<Waiting<P>> {
        if let Some(frame) = self.expedited.pop() {
            return Some(frame);
        }
        if self.assured.is_empty() || self.best_effort.is_empty() {
            return self.assured.pop().or_else(|| self.best_effort.pop()).or_else(|| self.lower_effort.pop());
        }
        match self.turn.is_assured() {
            true => self.assured.pop().inspect(|frame| self.turn.served_assured(frame.wire_bytes)),
            false => self.best_effort.pop().inspect(|frame| self.turn.served_best_effort(frame.wire_bytes)),
        }
    }

    pub fn len(&self) -> usize {
        self.expedited.len() + self.assured.len() + self.best_effort.len() + self.lower_effort.len()
    }

    pub fn bytes(&self) -> u64 {
        self.expedited.bytes() + self.assured.bytes() + self.best_effort.bytes() + self.lower_effort.bytes()
    }

    pub fn resize(&mut self, now: Nanos, rate: Option<Rate>, bytes: u64) {
        for fifo in [&mut self.expedited, &mut self.assured, &mut self.best_effort, &mut self.lower_effort] {
            fifo.set_limit(bytes / limits::DIFFSERV_QUEUES);
        }
        self.policer.set_rate(now, ef_bits_per_s(&self.spec, rate));
    }
}

impl TokenBucket {
    fn new(bits_per_s: u64) -> TokenBucket {
        let (bits_per_s, most) = (i128::from(bits_per_s), burst(bits_per_s));
        TokenBucket { bits_per_s, most, tokens: most, filled_at: Nanos::ZERO }
    }

    fn take(&mut self, now: Nanos, bytes: u64) -> bool {
        self.fill(now);
        let passes = self.tokens > 0;
        if passes {
            self.tokens -= i128::from(bytes) * 8 * TOKENS_PER_BIT;
        }
        passes
    }

    fn fill(&mut self, now: Nanos) {
        let passed_ns = i128::from(now.0.saturating_sub(self.filled_at.0));
        self.tokens = self.most.min(self.tokens + passed_ns * self.bits_per_s);
        self.filled_at = now;
    }

    fn set_rate(&mut self, now: Nanos, bits_per_s: u64) {
        self.fill(now);
        self.bits_per_s = i128::from(bits_per_s);
        self.most = burst(bits_per_s);
        self.tokens = self.tokens.min(self.most);
    }
}

impl Turn {
    fn new(share: f64) -> Turn {
        Turn { share_ppm: (share * PPM as f64).round() as i64, deficit: 0 }
    }

    fn is_assured(&self) -> bool {
        self.deficit >= 0
    }

    fn served_assured(&mut self, bytes: u64) {
        self.deficit -= i64::try_from(bytes).unwrap_or(i64::MAX / PPM) * (PPM - self.share_ppm);
    }

    fn served_best_effort(&mut self, bytes: u64) {
        self.deficit += i64::try_from(bytes).unwrap_or(i64::MAX / PPM) * self.share_ppm;
    }
}

/// Defaults to half of the link. The topology refuses a link without a rate, which here would let everything pass.
fn ef_bits_per_s(spec: &DiffServSpec, rate: Option<Rate>) -> u64 {
    let half = rate.map_or(MAX_BITS_PER_S, |rate| rate.bits_per_s().div_ceil(2));
    spec.ef_rate.map_or(half, Rate::bits_per_s).min(MAX_BITS_PER_S)
}

fn burst(bits_per_s: u64) -> i128 {
    // The nanoseconds of 50 ms are far below 2^63; the product stays below 2^60 x 2^26.
    i128::from(bits_per_s) * i128::try_from(limits::EF_BURST_TIME.as_nanos()).unwrap_or(i128::from(i64::MAX))
}

const TOKENS_PER_BIT: i128 = 1_000_000_000;
const PPM: i64 = 1_000_000;
/// Higher than any writable rate (9 x 10^15), and small enough for the bucket's arithmetic.
const MAX_BITS_PER_S: u64 = 1 << 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_point_has_its_class() {
        let of = |class| (0..64).filter(|&dscp| Class::of(dscp) == class).collect::<Vec<u8>>();
        assert_eq!(of(Class::Expedited), [44, 46, 48, 56]);
        assert_eq!(of(Class::Assured), [10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34, 36, 38, 40]);
        assert_eq!(of(Class::LowerEffort), [1, 8]);
        assert_eq!(of(Class::BestEffort).len(), 64 - 4 - 16 - 2);
    }

    #[test]
    fn a_bucket_gives_its_burst_at_once_and_its_rate_for_ever() {
        // 8 Mbit/s is 1000 bytes a millisecond. The burst is 50 ms of them, and the last packet overdraws.
        let mut bucket = TokenBucket::new(8_000_000);
        assert_eq!((0..100).filter(|_| bucket.take(Nanos::ZERO, 1000)).count(), 50);
        let passed = (1..=10_000).filter(|tick| bucket.take(Nanos(tick * 100_000), 1000)).count();
        assert_eq!(passed, 1000, "1 s at ten times the rate");
        assert!(bucket.take(Nanos(100_000_000_000), 70_000), "larger than the burst, and still it passes");
        assert!(!bucket.take(Nanos(100_000_000_000), 1));
        bucket.set_rate(Nanos(100_000_000_000), 80_000_000);
        assert!(bucket.take(Nanos(100_002_000_001), 1), "the debt of 20,000 bytes is paid ten times as fast");
    }

    #[test]
    fn two_share_by_weight_even_when_one_is_given_nothing() {
        for (share, expected) in [(0.5, 500), (0.9, 900), (0.01, 10), (1.0, 1000), (0.0, 1)] {
            let mut turn = Turn::new(share);
            let mut assured = 0;
            for _ in 0..1000 {
                match turn.is_assured() {
                    true => (turn.served_assured(1538), assured += 1).0,
                    false => turn.served_best_effort(1538),
                }
            }
            assert!(i32::abs(assured - expected) <= 1, "{share}: {assured} of 1000");
        }
    }
}
