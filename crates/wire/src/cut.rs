//! How files are cut into chunks: the target's rule, which both roles follow.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use crate::limits::{MAX_CHUNKS_PER_FILE, MIN_CHUNK_BYTES};

/// How files are cut. Stores of objects differ in least part and most parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cut {
    least_chunk_bytes: u64,
    most_chunks: u32,
}

/// A file of 16 EiB has chunks of 16 PiB, within 64 bits.
const FEWEST_MOST_CHUNKS: u32 = 1024;

/// One lane holds a chunk.
const MAX_LEAST_CHUNK_BYTES: u64 = 1 << 30;

impl Cut {
    /// The rule of disks, and of targets without one.
    pub const USUAL: Cut = Cut { least_chunk_bytes: MIN_CHUNK_BYTES, most_chunks: MAX_CHUNKS_PER_FILE };

    /// Makes a rule: chunks of at least this power of two, at most so many. `None`: not allowed.
    pub const fn new(least_chunk_bytes: u64, most_chunks: u32) -> Option<Cut> {
        let is_good = least_chunk_bytes.is_power_of_two()
            && least_chunk_bytes >= MIN_CHUNK_BYTES
            && least_chunk_bytes <= MAX_LEAST_CHUNK_BYTES
            && most_chunks >= FEWEST_MOST_CHUNKS
            && most_chunks <= MAX_CHUNKS_PER_FILE;
        if is_good { Some(Cut { least_chunk_bytes, most_chunks }) } else { None }
    }

    /// The smallest chunk, a power of two.
    pub fn least_chunk_bytes(self) -> u64 {
        self.least_chunk_bytes
    }

    /// Most chunks of a file.
    pub fn most_chunks(self) -> u32 {
        self.most_chunks
    }
}

impl Default for Cut {
    fn default() -> Self {
        Self::USUAL
    }
}

impl<'de> Deserialize<'de> for Cut {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (least, most) = Deserialize::deserialize(deserializer)?;
        Cut::new(least, most).ok_or_else(|| D::Error::custom("no target cuts files so"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_of_a_peer_is_one_that_layouts_can_follow() {
        let decode = |least: u64, most: u32| {
            let bytes = postcard::to_allocvec(&(least, most)).unwrap();
            postcard::from_bytes::<Cut>(&bytes).ok()
        };
        let bytes = postcard::to_allocvec(&Cut::USUAL).unwrap();
        assert_eq!(postcard::from_bytes(&bytes), Ok(Cut::USUAL));
        assert_eq!(decode(8 << 20, 10_000), Cut::new(8 << 20, 10_000));
        assert!(Cut::new(8 << 20, 10_000).is_some());
        for (least, most) in
            [(0, 10_000), (3 << 20, 10_000), (1 << 19, 10_000), (1 << 31, 10_000), (1 << 20, 0), (1 << 20, 65_537)]
        {
            assert_eq!(decode(least, most), None, "{least} {most}");
        }
    }
}
