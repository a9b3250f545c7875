//! The hashes that people keep lists of.

use aws_lc_rs::digest;
use haul_wire::place::Algorithm;
use md5::Digest as _;

/// One hash on its way.
pub(super) enum Hasher {
    Blake3(Box<blake3::Hasher>),
    Sha(digest::Context),
    Md5(md5::Md5),
}

impl Hasher {
    pub(super) fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Blake3 => Self::Blake3(Box::default()),
            Algorithm::Sha256 => Self::Sha(digest::Context::new(&digest::SHA256)),
            Algorithm::Sha512 => Self::Sha(digest::Context::new(&digest::SHA512)),
            Algorithm::Md5 => Self::Md5(md5::Md5::new()),
        }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Blake3(hasher) => drop(hasher.update(bytes)),
            Self::Sha(context) => context.update(bytes),
            Self::Md5(hasher) => hasher.update(bytes),
        }
    }

    pub(super) fn finish(self) -> Vec<u8> {
        match self {
            Self::Blake3(hasher) => hasher.finalize().as_bytes().to_vec(),
            Self::Sha(context) => context.finish().as_ref().to_vec(),
            Self::Md5(hasher) => hasher.finalize().to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of no bytes: the specification of BLAKE3, FIPS 180-4, RFC 1321.
    #[test]
    fn the_hash_of_nothing_is_the_known_one() {
        let begins = |algorithm| Hasher::new(algorithm).finish()[..4].to_vec();
        assert_eq!(begins(Algorithm::Blake3), [0xaf, 0x13, 0x49, 0xb9]);
        assert_eq!(begins(Algorithm::Sha256), [0xe3, 0xb0, 0xc4, 0x42]);
        assert_eq!(begins(Algorithm::Sha512), [0xcf, 0x83, 0xe1, 0x35]);
        assert_eq!(begins(Algorithm::Md5), [0xd4, 0x1d, 0x8c, 0xd9]);
    }
}
