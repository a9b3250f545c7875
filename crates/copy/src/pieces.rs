//! Cuts a file into pieces where its content says so.
//!
//! A cut depends only on the bytes since the cut before, so both ends soon cut shared data alike, wherever it stands: FastCDC
//! (Xia et al., USENIX ATC 2016).

use fastcdc::v2020::FastCDC;
use haul_wire::standing::{LONGEST_IN_MEANS, MAX_MEAN_BYTES, MIN_MEAN_BYTES, Piece};

/// Fine enough: pieces of 32 KiB for 2 GB, listed in 700 KB.
const ENOUGH_PIECES: u64 = 64 << 10;

/// The most pieces of a large file, whose list takes 24 MiB at the sender; pieces then exceed [`MAX_FINE_BYTES`].
pub const MOST_PIECES: u64 = 512 << 10;

/// The most pieces of open files before a receiver tells of no further file.
pub const OPEN_PIECES: usize = MOST_PIECES as usize;

/// A change of one byte sends a piece, which should be small beside a chunk of 1 MiB.
const MAX_FINE_BYTES: u64 = 256 << 10;

const SHORTEST_IN_MEANS: u32 = 4;

/// The bytes without a match after which no end looks on. Data put in front of a file is shorter; in the longest files a look
/// costs more than it may save.
pub fn barren_bytes(size: u64) -> u64 {
    (size / 2).clamp(BARREN_BYTES_MIN, BARREN_BYTES_MAX)
}

const BARREN_BYTES_MIN: u64 = 64 << 20;
const BARREN_BYTES_MAX: u64 = 1 << 30;

/// Cuts one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cutter {
    mean_bytes: u32,
}

impl Cutter {
    /// Makes a cutter for a file of `size` bytes; `None`: too many pieces.
    pub fn of(size: u64) -> Option<Self> {
        let fine = size.div_ceil(ENOUGH_PIECES).next_power_of_two().min(MAX_FINE_BYTES);
        let mean = fine.max(size.div_ceil(MOST_PIECES).next_power_of_two()).max(u64::from(MIN_MEAN_BYTES));
        u32::try_from(mean).ok().filter(|mean| *mean <= MAX_MEAN_BYTES).map(|mean_bytes| Self { mean_bytes })
    }

    /// Makes a cutter with a peer's mean, within [`haul_wire::standing::Standing`].
    pub fn with_mean(mean_bytes: u32) -> Self {
        Self { mean_bytes }
    }

    /// Mean bytes of a piece.
    pub fn mean_bytes(self) -> u32 {
        self.mean_bytes
    }

    /// Most bytes of a piece.
    pub fn longest_bytes(self) -> usize {
        (self.mean_bytes * LONGEST_IN_MEANS) as usize
    }

    /// The length of the first piece of `data`, at least one byte. `data` has [`Cutter::longest_bytes`], or ends the file.
    pub fn first(self, data: &[u8]) -> usize {
        let (least, mean) = ((self.mean_bytes / SHORTEST_IN_MEANS) as usize, self.mean_bytes as usize);
        let (_, end) = FastCDC::new(data, least, mean, self.longest_bytes()).cut(0, data.len());
        end
    }
}

/// The piece, named by its digest.
pub fn piece(data: &[u8]) -> Piece {
    let hash = blake3::hash(data);
    let digest = *hash.as_bytes().first_chunk().expect("a hash has 32 bytes");
    Piece { bytes: u32::try_from(data.len()).expect("a piece has at most 16 MiB"), digest }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(seed: u64, count: usize) -> Vec<u8> {
        let mut data = vec![0; count];
        blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut data);
        data
    }

    fn cut(cutter: Cutter, mut data: &[u8]) -> Vec<Piece> {
        let mut pieces = Vec::new();
        while !data.is_empty() {
            let (first, rest) = data.split_at(cutter.first(data));
            pieces.push(piece(first));
            data = rest;
        }
        pieces
    }

    #[test]
    fn a_byte_in_front_changes_the_first_pieces_only() {
        let cutter = Cutter::of(1 << 20).unwrap();
        let before = bytes(1, 1 << 20);
        let after = [&[7], &before[..]].concat();
        let known: std::collections::HashSet<_> = cut(cutter, &before).into_iter().map(|piece| piece.digest).collect();
        let new: usize = cut(cutter, &after)
            .iter()
            .filter(|piece| !known.contains(&piece.digest))
            .map(|piece| piece.bytes as usize)
            .sum();
        assert!(new <= 4 * cutter.longest_bytes(), "{new}");
    }

    #[test]
    fn pieces_have_their_bounds_and_leave_nothing_out() {
        let cutter = Cutter::of(1 << 20).unwrap();
        for data in [bytes(2, 300_000), vec![0; 300_000], bytes(3, 1), bytes(4, 2048)] {
            let pieces = cut(cutter, &data);
            assert_eq!(pieces.iter().map(|piece| piece.bytes as usize).sum::<usize>(), data.len());
            assert!(pieces.iter().all(|piece| piece.bytes >= 1 && piece.bytes as usize <= cutter.longest_bytes()));
        }
    }

    #[test]
    fn a_larger_file_has_longer_pieces_and_the_largest_is_not_cut() {
        let mean = |size| Cutter::of(size).map(|cutter| cutter.mean_bytes());
        assert_eq!(mean(0), Some(8 << 10));
        assert_eq!(mean(2_000_000_000), Some(32 << 10));
        assert_eq!(mean(64 << 30), Some(256 << 10));
        assert_eq!(mean(1 << 40), Some(2 << 20));
        assert_eq!((mean(2 << 40), mean((2 << 40) + 1)), (Some(4 << 20), None));
    }
}
