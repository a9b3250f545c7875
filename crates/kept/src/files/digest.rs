//! Computes the hashes that lists of files use.

use std::io;

use aws_lc_rs::digest;
use haul_store::SourceFile;
use haul_wire::hashed::{Algorithm, WantedFile};
use md5::Digest as _;

use crate::files::hash::{Found, front_to_back};

/// A running hash.
pub enum Hasher {
    /// BLAKE3.
    Blake3(Box<blake3::Hasher>),
    /// SHA family.
    Sha(digest::Context),
    /// MD5.
    Md5(md5::Md5),
}

impl Hasher {
    /// Starts a hash.
    pub fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Blake3 => Self::Blake3(Box::default()),
            Algorithm::Sha1 => Self::Sha(digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY)),
            Algorithm::Sha256 => Self::Sha(digest::Context::new(&digest::SHA256)),
            Algorithm::Sha512 => Self::Sha(digest::Context::new(&digest::SHA512)),
            Algorithm::Md5 => Self::Md5(md5::Md5::new()),
        }
    }

    /// Takes bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Blake3(hasher) => drop(hasher.update(bytes)),
            Self::Sha(context) => context.update(bytes),
            Self::Md5(hasher) => hasher.update(bytes),
        }
    }

    /// Returns the hash.
    pub fn finish(self) -> Vec<u8> {
        match self {
            Self::Blake3(hasher) => hasher.finalize().as_bytes().to_vec(),
            Self::Sha(context) => context.finish().as_ref().to_vec(),
            Self::Md5(hasher) => hasher.finalize().to_vec(),
        }
    }
}

/// The outcome of reading.
pub enum Read {
    /// The size, hash, and a wanted second hash.
    All(u64, Vec<u8>, Vec<u8>),
    /// The file has another size: this one, or more if it has grown.
    OtherSize(u64),
    /// The callback ended the reading.
    Stopped,
}

/// Reads a file through `buffer`. `goes_on` gets each piece's bytes; false ends the reading.
///
/// # Errors
/// The file cannot be read, or its size changed meanwhile.
pub fn read(
    file: &SourceFile,
    wanted: &WantedFile,
    buffer: &mut [u8],
    mut goes_on: impl FnMut(u64) -> bool,
) -> io::Result<Read> {
    let size = file.stat()?.size;
    if wanted.size.is_some_and(|wanted| wanted != size) {
        return Ok(Read::OtherSize(size));
    }
    let changed = |found| match wanted.size {
        Some(_) => Ok(Read::OtherSize(found)),
        None => Err(io::Error::other("it changed while it was read")),
    };
    if wanted.algorithm == Algorithm::Blake3 && wanted.or.is_none() {
        return match front_to_back(file, size, buffer, goes_on)? {
            Found::All(hash) => Ok(Read::All(size, hash.to_vec(), Vec::new())),
            Found::OtherSize(found) => changed(found),
            Found::Stopped => Ok(Read::Stopped),
        };
    }
    let (mut hasher, mut or) = (Hasher::new(wanted.algorithm), wanted.or.map(Hasher::new));
    let mut offset = 0;
    // One more byte shows that a file grew; reading on might never end.
    while offset <= size {
        let read = file.read_at(buffer, offset)?;
        if read == 0 {
            break;
        }
        hasher.update(&buffer[..read]);
        if let Some(or) = &mut or {
            or.update(&buffer[..read]);
        }
        offset += read as u64;
        if !goes_on(read as u64) {
            return Ok(Read::Stopped);
        }
    }
    if offset != size {
        return changed(offset);
    }
    Ok(Read::All(size, hasher.finish(), or.map(Hasher::finish).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of BLAKE3's specification, FIPS 180-4, and RFC 1321.
    #[test]
    fn the_hash_of_nothing_is_the_known_one() {
        let begins = |algorithm| Hasher::new(algorithm).finish()[..4].to_vec();
        assert_eq!(begins(Algorithm::Blake3), [0xaf, 0x13, 0x49, 0xb9]);
        assert_eq!(begins(Algorithm::Sha1), [0xda, 0x39, 0xa3, 0xee]);
        assert_eq!(begins(Algorithm::Sha256), [0xe3, 0xb0, 0xc4, 0x42]);
        assert_eq!(begins(Algorithm::Sha512), [0xcf, 0x83, 0xe1, 0x35]);
        assert_eq!(begins(Algorithm::Md5), [0xd4, 0x1d, 0x8c, 0xd9]);
    }
}
