//! The rate limit: a token bucket over all lanes of a sender.

/// Tokens are bytes; time is in microseconds since any start.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    rate_bytes_per_s: u64,
    /// Negative in debt.
    level_bytes: i64,
    at_us: u64,
}

/// A pause is made up for by a burst of at most this.
const BURST_US: u64 = 50_000;

impl TokenBucket {
    /// Makes a full bucket.
    pub fn new(rate_bytes_per_s: u64, now_us: u64) -> Self {
        let mut bucket = Self { rate_bytes_per_s: rate_bytes_per_s.max(1), level_bytes: 0, at_us: now_us };
        bucket.level_bytes = bucket.burst_bytes();
        bucket
    }

    /// Sets the rate. A debt stays.
    pub fn set_rate(&mut self, rate_bytes_per_s: u64, now_us: u64) {
        self.take(0, now_us);
        self.rate_bytes_per_s = rate_bytes_per_s.max(1);
    }

    /// Takes `bytes` and returns the microseconds to wait. Debt lets a block pass that is larger than the bucket, at the same
    /// mean rate.
    pub fn take(&mut self, bytes: u64, now_us: u64) -> u64 {
        let gained = self.bytes_in(now_us.saturating_sub(self.at_us));
        self.level_bytes = self.level_bytes.saturating_add(gained).min(self.burst_bytes());
        self.at_us = self.at_us.max(now_us);
        self.level_bytes = self.level_bytes.saturating_sub(i64::try_from(bytes).unwrap_or(i64::MAX));
        if self.level_bytes >= 0 {
            return 0;
        }
        let debt = u128::from(self.level_bytes.unsigned_abs());
        u64::try_from(debt * 1_000_000 / u128::from(self.rate_bytes_per_s)).unwrap_or(u64::MAX)
    }

    fn bytes_in(&self, us: u64) -> i64 {
        i64::try_from(u128::from(us) * u128::from(self.rate_bytes_per_s) / 1_000_000).unwrap_or(i64::MAX)
    }

    fn burst_bytes(&self) -> i64 {
        self.bytes_in(BURST_US)
    }
}

/// One host's part of a limit, besides the leader of `movers`: at least a byte, so that none stands still.
#[must_use]
pub const fn share_of_rate(bytes_per_s: u64, movers: u16) -> u64 {
    let share = bytes_per_s / (movers as u64 + 1);
    if share == 0 { 1 } else { share }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_rate_holds_for_any_block_size() {
        for block in [1_000u64, 100_000, 10_000_000] {
            let (rate, mut now, mut sent) = (62_500_000u64, 0u64, 0u64);
            let mut bucket = TokenBucket::new(rate, now);
            while now < 10_000_000 {
                now += bucket.take(block, now);
                sent += block;
            }
            let most = rate * now / 1_000_000 + rate / 20 + block;
            assert!(sent <= most && sent + 2 * block >= rate * now / 1_000_000, "block {block}: {sent} in {now} us");
        }
    }

    #[test]
    fn another_rate_holds_from_its_moment_on() {
        let mut bucket = TokenBucket::new(1_000_000, 0);
        bucket.set_rate(500_000, 0);
        assert_eq!(bucket.take(525_000, 0), 1_000_000, "less the 50 ms that were there");
    }

    #[test]
    fn a_pause_is_not_made_up_for() {
        let mut bucket = TokenBucket::new(1_000_000, 0);
        assert_eq!(bucket.take(50_000, 3_600_000_000), 0);
        assert!(bucket.take(50_000, 3_600_000_000) > 0);
    }
}
