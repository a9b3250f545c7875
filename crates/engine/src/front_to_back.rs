//! The BLAKE3 of a file that is read from front to back, and whose holes are not read.
//!
//! Blocks of 64 MiB, and larger ones of zeros, are subtrees of the BLAKE3 tree. A block is merged once something follows: one
//! value is kept for each level.

use alloc::boxed::Box;
use alloc::vec::Vec;

use blake3::hazmat::{self, HasherExt, Mode};

use crate::integrity::Hash;
use crate::zeros::{self, BLOCK_BYTES};

/// Hashes a file as it is read.
pub struct FileHasher {
    /// Left subtrees, largest first.
    left: Vec<Hash>,
    blocks: u64,
    block: Block,
}

enum Block {
    /// The hasher, and its bytes so far.
    Data(Box<blake3::Hasher>, u64),
    /// A power of two, at least a block.
    Zeros(u64),
}

impl Default for FileHasher {
    fn default() -> Self {
        Self { left: Vec::new(), blocks: 0, block: Block::Data(Box::default(), 0) }
    }
}

impl FileHasher {
    /// Takes the next bytes.
    pub fn update(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            self.begin_block_if_full();
            let Block::Data(hasher, seen) = &mut self.block else { unreachable!("a block of zeros is full") };
            let room = usize::try_from(BLOCK_BYTES - *seen).unwrap_or(usize::MAX);
            let (now, later) = data.split_at(data.len().min(room));
            hasher.update(now);
            *seen += now.len() as u64;
            data = later;
        }
    }

    /// Most zeros to skip here. [`zeros::block_bytes`] cost nothing.
    pub fn skippable(offset: u64) -> u64 {
        let large = zeros::block_bytes(offset);
        if offset.is_multiple_of(large) { large } else { BLOCK_BYTES }
    }

    /// Takes zeros: [`BLOCK_BYTES`], or [`FileHasher::skippable`].
    ///
    /// # Panics
    /// When they do not begin at a multiple of their number.
    pub fn skip(&mut self, length: u64) {
        self.begin_block_if_full();
        let is_aligned = (self.blocks * BLOCK_BYTES).is_multiple_of(length) && length.is_power_of_two();
        assert!(matches!(self.block, Block::Data(_, 0)) && is_aligned, "blocks are aligned");
        self.block = Block::Zeros(length);
    }

    /// The file's BLAKE3.
    pub fn finish(mut self) -> Hash {
        let Some(first) = self.left.first().copied() else {
            let hasher = match self.block {
                Block::Data(hasher, _) => *hasher,
                // The table has no whole files.
                Block::Zeros(length) => zeros::hashed(0, length),
            };
            return *hasher.finalize().as_bytes();
        };
        let mut right = self.value();
        for left in self.left.drain(1..).rev() {
            right = hazmat::merge_subtrees_non_root(&left, &right, Mode::Hash);
        }
        *hazmat::merge_subtrees_root(&first, &right, Mode::Hash).as_bytes()
    }

    fn begin_block_if_full(&mut self) {
        if matches!(self.block, Block::Data(_, seen) if seen < BLOCK_BYTES) {
            return;
        }
        let mut value = self.value();
        let new = match self.block {
            Block::Data(..) => 1,
            Block::Zeros(length) => length / BLOCK_BYTES,
        };
        self.blocks += new;
        // Each halving of their number completes a subtree, less those inside.
        for _ in new.trailing_zeros()..self.blocks.trailing_zeros() {
            let left = self.left.pop().expect("an even number of blocks is a subtree and its neighbour");
            value = hazmat::merge_subtrees_non_root(&left, &value, Mode::Hash);
        }
        self.left.push(value);
        let mut hasher = Box::<blake3::Hasher>::default();
        hasher.set_input_offset(self.blocks * BLOCK_BYTES);
        self.block = Block::Data(hasher, 0);
    }

    /// The last block's chaining value; it is never empty.
    fn value(&self) -> Hash {
        match &self.block {
            Block::Data(hasher, _) => hasher.finalize_non_root(),
            Block::Zeros(length) => zeros::subtree(self.blocks * BLOCK_BYTES, *length),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        // A case hashes up to 400 MB, twice.
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn a_file_with_holes_has_the_hash_of_its_bytes(
            blocks in proptest::collection::vec(any::<bool>(), 0..6), tail in 0usize..3_000_000, piece in 100_000usize..5_000_000
        ) {
            let zeros = vec![0; BLOCK_BYTES as usize];
            let data: Vec<u8> = (0..BLOCK_BYTES as usize).map(|at| (at.wrapping_mul(2_654_435_761) >> 7) as u8).collect();
            let (mut with_holes, mut plain) = (FileHasher::default(), blake3::Hasher::new());
            for (is_hole, bytes) in blocks.iter().map(|is_hole| (*is_hole, if *is_hole { &zeros } else { &data })) {
                plain.update(bytes);
                if is_hole {
                    with_holes.skip(BLOCK_BYTES);
                } else {
                    bytes.chunks(piece).for_each(|piece| with_holes.update(piece));
                }
            }
            plain.update(&data[..tail]);
            data[..tail].chunks(piece).for_each(|piece| with_holes.update(piece));
            prop_assert_eq!(with_holes.finish(), *plain.finalize().as_bytes());
        }
    }

    #[test]
    fn large_blocks_of_zeros_are_merged_as_chunks_are() {
        use crate::integrity::{self, UnitHasher};
        use crate::plan::ChunkLayout;
        for size in [(1 << 40) + (3 << 30), (5 << 40) + (1 << 30)] {
            let (layout, data) = (ChunkLayout::of(size), vec![7; BLOCK_BYTES as usize]);
            let mut file = FileHasher::default();
            file.update(&data);
            let mut offset = BLOCK_BYTES;
            while offset < size {
                let length = FileHasher::skippable(offset);
                file.skip(length);
                offset += length;
            }
            let hashes: Vec<Hash> = (0..layout.count())
                .map(|chunk| {
                    let (offset, length) = layout.range(chunk).unwrap();
                    let seen = data.len().saturating_sub(usize::try_from(offset).unwrap());
                    if seen == 0 {
                        return integrity::hole(&layout, chunk).expect("in a whole block").hash();
                    }
                    let mut hasher = UnitHasher::new(&layout, chunk);
                    let length = usize::try_from(length).unwrap();
                    hasher.update(&data[..length.min(seen)]);
                    hasher.update(&vec![0; length - length.min(seen)]);
                    hasher.finish()
                })
                .collect();
            assert_eq!(file.finish(), integrity::file_hash(&layout, &hashes), "{size}");
        }
    }
}
