//! What a death would cost: bytes that arrived and verified, and that neither a journal nor a final name vouches for yet.
//!
//! ```text
//!   a chunk verifies -> fresh -> (a checkpoint or the final flush takes it) -> settling -> (through) safe
//! ```
//! At half an interval of fresh bytes a checkpoint is due; at a whole one, of fresh and settling together, arriving waits.

/// A death costs at most this, and a chunk under way on each lane. At 10 Gbit/s the disk has 100 ms for a flush of one half.
pub const CHECKPOINT_BYTES: u64 = 256 << 20;

/// The bytes of a job that are at risk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtRisk {
    interval_bytes: u64,
    fresh_bytes: u64,
    settling_bytes: u64,
}

impl AtRisk {
    /// Begins with nothing at risk; allows `interval_bytes`, and what is under way then.
    pub fn new(interval_bytes: u64) -> Self {
        Self { interval_bytes: interval_bytes.max(1), fresh_bytes: 0, settling_bytes: 0 }
    }

    /// Verified bytes that nothing vouches for.
    pub fn bytes(&self) -> u64 {
        self.fresh_bytes + self.settling_bytes
    }

    /// Whether a checkpoint is due, of the freshest files.
    pub fn is_due(&self) -> bool {
        self.fresh_bytes >= self.interval_bytes.div_ceil(2)
    }

    /// Whether arriving waits: for a checkpoint that is due, or half an interval settling.
    pub fn is_full(&self) -> bool {
        self.bytes() >= self.interval_bytes
    }

    /// Enters a verified chunk's bytes of data.
    pub fn enter(&mut self, bytes: u64) {
        self.fresh_bytes += bytes;
    }

    /// Takes fresh bytes for a flush.
    pub fn begin(&mut self, bytes: u64) {
        self.fresh_bytes -= bytes;
        self.settling_bytes += bytes;
    }

    /// Takes out bytes that are safe or given up.
    pub fn end(&mut self, bytes: u64) {
        self.settling_bytes -= bytes;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn half_an_interval_is_flushed_while_the_other_half_arrives() {
        let mut at_risk = AtRisk::new(100);
        at_risk.enter(49);
        assert!(!at_risk.is_due());
        at_risk.enter(1);
        assert!(at_risk.is_due() && !at_risk.is_full());
        at_risk.begin(50);
        at_risk.enter(49);
        assert!(!at_risk.is_due() && !at_risk.is_full(), "the lanes go on while it is flushed");
        at_risk.enter(1);
        assert!(at_risk.is_full(), "and wait when that takes too long");
        at_risk.end(50);
        assert!(!at_risk.is_full());
    }

    proptest! {
        #[test]
        fn nobody_waits_without_a_reason(interval in 0u64..1000, steps in proptest::collection::vec((0u8..3, 0u64..300), 0..200)) {
            let mut at_risk = AtRisk::new(interval);
            for (step, bytes) in steps {
                match step {
                    0 => at_risk.enter(bytes),
                    1 => at_risk.begin(bytes.min(at_risk.fresh_bytes)),
                    _ => at_risk.end(bytes.min(at_risk.settling_bytes)),
                }
                prop_assert!(!at_risk.is_full() || at_risk.is_due() || at_risk.settling_bytes > 0);
            }
        }
    }
}
