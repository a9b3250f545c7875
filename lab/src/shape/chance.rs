//! Random numbers that never change for a seed, because experiments' results depend on them.
//!
//! xoshiro256++ 1.0, whose state SplitMix64 fills (D. Blackman, S. Vigna, "Scrambled Linear Pseudorandom Number
//! Generators", ACM TOMS 2021; prng.di.unimi.it, public domain). Not for secrets.

use crate::topology::BurstSpec;

#[derive(Clone, Debug)]
pub(crate) struct Chance {
    state: [u64; 4],
}

/// Each purpose has its own generator, so jitter does not change which packets are lost. Stored results depend on the
/// order: add at the end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    Loss,
    Burst,
    Corruption,
    Duplication,
    Jitter,
    Reordering,
    Backoff,
    Traffic,
    Order,
}

/// Losses in a row, after E. N. Gilbert and E. O. Elliott: a good state, and a bad one that loses all packets.
#[derive(Clone, Debug)]
pub(super) struct Bursts {
    /// Probability, before each packet, of a change from good to bad.
    enter: f64,
    /// Probability of the change back.
    leave: f64,
    bad: bool,
    chance: Chance,
}

impl Chance {
    /// Seed and purpose are mixed in turn, so neighbouring values give unrelated numbers.
    pub fn new(seed: u64, purpose: Purpose) -> Chance {
        let mut seed = seed;
        let mut both = split_mix(&mut seed).wrapping_add(purpose as u64);
        Chance::from_seed(split_mix(&mut both))
    }

    fn from_seed(mut seed: u64) -> Chance {
        Chance { state: std::array::from_fn(|_| split_mix(&mut seed)) }
    }

    /// Any 64 bits.
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A normal number from 0 to twice its mean `most`, deviation 1: the sum of twelve uniform ones (Irwin and Hall).
    pub fn normal(&mut self, most: u32) -> f64 {
        let even = |chance: &mut Chance| (chance.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64);
        let sum: f64 = (0..12).map(|_| even(self)).sum();
        (sum - 6.0 + f64::from(most)).clamp(0.0, 2.0 * f64::from(most))
    }

    /// True with this probability. Draws nothing for 0: switched-off effects cost nothing.
    pub fn happens(&mut self, share: f64) -> bool {
        // The upper 53 bits fill a float exactly: 0 <= x < 1, so a share of 1 is always true.
        share > 0.0 && (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64) < share
    }

    /// From 0 to `most`, equally likely to within most / 2^64.
    pub fn up_to(&mut self, most: u64) -> u64 {
        let scaled = (u128::from(self.bits()) * (u128::from(most) + 1)) >> 64;
        u64::try_from(scaled).unwrap_or(most)
    }
}

impl Bursts {
    /// A row that ends with probability `leave` has 1 / `leave` packets on average. The share of the bad state gives `enter`.
    ///
    /// At least one packet lies between two rows, so rows lose at most length / (length + 1). For more, they get
    /// longer.
    pub fn new(spec: &BurstSpec, seed: u64) -> Bursts {
        let loss = spec.loss.share();
        let wanted = loss / (1.0 - loss) / spec.length;
        let (enter, leave) = match wanted {
            _ if wanted <= 1.0 => (wanted, 1.0 / spec.length),
            _ => (1.0, (1.0 - loss) / loss),
        };
        Bursts { enter, leave, bad: false, chance: Chance::new(seed, Purpose::Burst) }
    }

    /// The fate of the next packet.
    pub fn next_is_lost(&mut self) -> bool {
        let changes = self.chance.happens(if self.bad { self.leave } else { self.enter });
        self.bad ^= changes;
        self.bad
    }
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(GOLDEN_RATIO);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// 2^64 by the golden ratio: its multiples lie far apart.
const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Probability;

    #[test]
    fn the_numbers_are_those_of_the_published_generator() {
        // The authors' C code gives this from the state 1, 2, 3, 4, and from seed 42 through SplitMix64.
        let mut small = Chance { state: [1, 2, 3, 4] };
        assert_eq!([(); 4].map(|()| small.bits()), [41943041, 58720359, 3588806011781223, 3591011842654386]);
        let mut seeded = Chance::from_seed(42);
        let expected = [15021278609987233951, 5881210131331364753, 18149643915985481100];
        assert_eq!([(); 3].map(|()| seeded.bits()), expected);
    }

    #[test]
    fn purposes_and_seeds_do_not_repeat_each_other() {
        let first = |seed, purpose| Chance::new(seed, purpose).bits();
        let mut seen = Vec::new();
        for seed in 0..100 {
            for purpose in [Purpose::Loss, Purpose::Burst, Purpose::Corruption, Purpose::Jitter, Purpose::Reordering] {
                seen.push(first(seed, purpose));
            }
        }
        seen.sort_unstable();
        assert!(seen.windows(2).all(|pair| pair[0] != pair[1]));
        assert_eq!(first(1, Purpose::Loss), 4577072067518496145, "a stored result depends on it");
    }

    #[test]
    fn never_and_always_and_the_ends_of_a_range() {
        let mut chance = Chance::from_seed(1);
        assert!((0..1000).all(|_| !chance.happens(0.0) && chance.happens(1.0)));
        let drawn: Vec<u64> = (0..1000).map(|_| chance.up_to(3)).collect();
        assert!((0..=3).all(|number| drawn.iter().filter(|&&one| one == number).count() > 200), "each about 250 times");
        assert_eq!(chance.up_to(0), 0);
        chance.up_to(u64::MAX);
    }

    #[test]
    fn bursts_have_the_share_and_the_length_asked() {
        // The last share is impossible with rows of two; its rows have 0.9 / 0.1 = 9.
        for (loss, length, length_had) in [(0.01, 5.0, 5.0), (0.1, 1.0, 1.0), (0.3, 20.0, 20.0), (0.9, 2.0, 9.0)] {
            let spec = BurstSpec { loss: Probability::new(loss).unwrap(), length };
            let mut bursts = Bursts::new(&spec, 1);
            let fates: Vec<bool> = (0..2_000_000).map(|_| bursts.next_is_lost()).collect();
            let lost = fates.iter().filter(|&&lost| lost).count() as f64;
            let rows = fates.windows(2).filter(|pair| pair[0] && !pair[1]).count() as f64;
            assert!((lost / 2e6 / loss - 1.0).abs() < 0.03, "{loss} {length}: share {}", lost / 2e6);
            assert!((lost / rows / length_had - 1.0).abs() < 0.03, "{loss} {length}: length {}", lost / rows);
        }
    }
}
