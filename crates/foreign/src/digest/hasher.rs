//! Computes the sums that servers give.

use aws_lc_rs::digest;
use haul_store::SumKind;
use md5::{Digest as _, Md5};
use simd_adler32::Adler32;

/// Takes content from first to last byte.
pub struct Hasher(Kind);

enum Kind {
    Adler32(Adler32),
    Md5(Md5),
    Sha(digest::Context),
}

impl std::fmt::Debug for Hasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hasher")
    }
}

impl Hasher {
    /// Computes a sum of this kind.
    pub fn new(kind: SumKind) -> Hasher {
        Hasher(match kind {
            SumKind::Adler32 => Kind::Adler32(Adler32::new()),
            SumKind::Md5 => Kind::Md5(Md5::new()),
            SumKind::Sha1 => Kind::Sha(digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY)),
            SumKind::Sha256 => Kind::Sha(digest::Context::new(&digest::SHA256)),
            SumKind::Sha512 => Kind::Sha(digest::Context::new(&digest::SHA512)),
        })
    }

    /// Takes the next bytes.
    pub fn update(&mut self, data: &[u8]) {
        match &mut self.0 {
            Kind::Adler32(hasher) => hasher.write(data),
            Kind::Md5(hasher) => hasher.update(data),
            Kind::Sha(hasher) => hasher.update(data),
        }
    }

    /// The sum of all bytes.
    pub fn finish(self) -> Vec<u8> {
        match self.0 {
            Kind::Adler32(hasher) => hasher.finish().to_be_bytes().to_vec(),
            Kind::Md5(hasher) => hasher.finalize().to_vec(),
            Kind::Sha(hasher) => hasher.finish().as_ref().to_vec(),
        }
    }
}

/// Joins the Adler-32 of two adjacent parts, like zlib's `adler32_combine`.
pub(crate) fn joined_adler32(first: u32, second: u32, second_bytes: u64) -> u32 {
    let (a1, b1, a2, b2) = (first & 0xffff, first >> 16, second & 0xffff, second >> 16);
    let length = u32::try_from(second_bytes % u64::from(MODULUS)).expect("below the modulus");
    // Each part begins with a = 1, which counts once in the whole.
    let a = (a1 + a2 + MODULUS - 1) % MODULUS;
    let carried = u64::from(length) * u64::from((a1 + MODULUS - 1) % MODULUS) % u64::from(MODULUS);
    let b = (u64::from(b1) + u64::from(b2) + carried) % u64::from(MODULUS);
    u32::try_from(b).expect("below the modulus") << 16 | a
}

/// The largest prime below 2^16 (RFC 1950).
const MODULUS: u32 = 65_521;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_the_adler32_of_the_whole_together() {
        let data: Vec<u8> = (0..200_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8 | 0x80).collect();
        let sum = |data: &[u8]| simd_adler32::adler32(&data);
        for cut in [0, 1, 5_552, 65_520, 65_521, 65_522, 131_042, 199_999, 200_000] {
            let (first, second) = data.split_at(cut);
            assert_eq!(joined_adler32(sum(first), sum(second), second.len() as u64), sum(&data), "{cut}");
        }
        let ones = [0xff; 65_521 * 2];
        assert_eq!(joined_adler32(sum(&ones), sum(&ones), ones.len() as u64), sum(&[ones, ones].concat()));
    }
}
