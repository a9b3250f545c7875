//! Hashes of holes without hashing them.
//!
//! BLAKE3 mixes the number of each KiB in, so zeros have another chaining value at each offset, always the same there. A table
//! holds these; beyond its end zeros are hashed like data.
//!
//! The table has aligned blocks of 64 MiB in a file's first TiB (512 KiB), then of 1 GiB (32 KiB a TiB). Smaller ones would find
//! more holes in scattered data, and take more room; 64 MiB are hashed in 10 ms, 1 GiB in 170 ms.
//!
//! `cargo xtask zeros` computes the table anew.

use blake3::hazmat::{self, HasherExt, Mode};

use crate::hash::Hash;
use crate::plan::ChunkLayout;

/// The table's blocks in a file's first TiB.
pub const BLOCK_BYTES: u64 = 64 << 20;

const LARGE_BLOCK_BYTES: u64 = 1 << 30;

const LARGE_FROM_BYTES: u64 = 1 << 40;

/// The end of the table.
pub const TABLE_END_BYTES: u64 = LARGE_FROM_BYTES + LARGE_BLOCKS * LARGE_BLOCK_BYTES;

const BLOCKS: u64 = LARGE_FROM_BYTES / BLOCK_BYTES;
const LARGE_BLOCKS: u64 = (TABLE.len() / HASH_BYTES) as u64 - BLOCKS;

const TABLE: &[u8] = include_bytes!("zeros.bin");

const HASH_BYTES: usize = 32;

/// The table's block length here.
pub fn block_bytes(offset: u64) -> u64 {
    if offset < LARGE_FROM_BYTES { BLOCK_BYTES } else { LARGE_BLOCK_BYTES }
}

/// The whole blocks around a chunk, from start to end: as one hole their hash is known. `None` beyond table or file.
pub fn blocks_around(layout: &ChunkLayout, chunk: u32) -> Option<(u64, u64)> {
    let (offset, length) = layout.range(chunk)?;
    // Both are powers of two: no chunk crosses the first TiB's end.
    let block = block_bytes(offset);
    let start = offset - offset % block;
    let end = offset.checked_add(length)?.checked_next_multiple_of(block)?;
    (!layout.is_whole() && end <= layout.size().min(TABLE_END_BYTES)).then_some((start, end))
}

/// Chaining value of `length` zeros at `offset`, not a whole file.
pub(crate) fn subtree(offset: u64, length: u64) -> Hash {
    let block = block_bytes(offset);
    if length > block {
        let left = hazmat::left_subtree_len(length);
        let (left, right) = (subtree(offset, left), subtree(offset + left, length - left));
        return hazmat::merge_subtrees_non_root(&left, &right, Mode::Hash);
    }
    if length == block && offset.is_multiple_of(block) && offset < TABLE_END_BYTES {
        let number = match offset.checked_sub(LARGE_FROM_BYTES) {
            None => offset / BLOCK_BYTES,
            Some(behind) => BLOCKS + behind / LARGE_BLOCK_BYTES,
        };
        let at = usize::try_from(number).expect("less than the table has") * HASH_BYTES;
        return TABLE[at..][..HASH_BYTES].try_into().expect("32 bytes");
    }
    hashed(offset, length).finalize_non_root()
}

pub(crate) fn hashed(offset: u64, length: u64) -> blake3::Hasher {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset(offset);
    let mut left = length;
    while left > 0 {
        let part = left.min(ZEROS.len() as u64);
        hasher.update(&ZEROS[..usize::try_from(part).expect("64 KiB at most")]);
        left -= part;
    }
    hasher
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_what_hashing_gives() {
        for number in [0, 1, 2, 1599, 8191, 8192, BLOCKS - 2, BLOCKS - 1] {
            let offset = number * BLOCK_BYTES;
            assert_eq!(subtree(offset, BLOCK_BYTES), hashed(offset, BLOCK_BYTES).finalize_non_root(), "block {number}");
        }
        for number in [0, 1023, LARGE_BLOCKS / 2, LARGE_BLOCKS - 1] {
            let offset = LARGE_FROM_BYTES + number * LARGE_BLOCK_BYTES;
            let computed = hashed(offset, LARGE_BLOCK_BYTES).finalize_non_root();
            assert_eq!(subtree(offset, LARGE_BLOCK_BYTES), computed, "large block {number}");
        }
    }

    #[test]
    fn a_subtree_of_many_blocks_or_beyond_the_table_is_what_hashing_gives() {
        for (offset, length) in [
            (4 * BLOCK_BYTES, 4 * BLOCK_BYTES),
            (LARGE_FROM_BYTES, BLOCK_BYTES),
            (LARGE_FROM_BYTES + LARGE_BLOCK_BYTES, LARGE_BLOCK_BYTES / 2),
            (TABLE_END_BYTES, BLOCK_BYTES),
            (8 << 20, 8 << 20),
        ] {
            assert_eq!(subtree(offset, length), hashed(offset, length).finalize_non_root(), "{length} at {offset}");
        }
    }

    #[test]
    fn a_chunk_has_blocks_around_it_where_the_table_and_the_file_reach() {
        const GIB: u64 = 1 << 30;
        let around = |size, chunk| blocks_around(&ChunkLayout::of(size), chunk);
        assert_eq!(around(GIB, 0), Some((0, BLOCK_BYTES)));
        assert_eq!(around(GIB, 65), Some((BLOCK_BYTES, 2 * BLOCK_BYTES)));
        assert_eq!(around(GIB + 1, 1024), None, "the last block is not whole");
        assert_eq!(around(GIB, 1024), None, "there is no such chunk");
        assert_eq!(around(BLOCK_BYTES, 3), Some((0, BLOCK_BYTES)));
        assert_eq!(around(1 << 20, 0), None, "a file of one chunk travels whole");
        assert_eq!(around(10 << 40, 1), Some((256 << 20, 512 << 20)));
        assert_eq!(around(10 << 40, 4095), Some((LARGE_FROM_BYTES - (256 << 20), LARGE_FROM_BYTES)));
        assert_eq!(around(10 << 40, 4097), Some((LARGE_FROM_BYTES, LARGE_FROM_BYTES + GIB)));
        let last = |size: u64| ChunkLayout::of(size).count() - 1;
        assert_eq!(around(TABLE_END_BYTES, last(TABLE_END_BYTES)), Some((TABLE_END_BYTES - GIB, TABLE_END_BYTES)));
        assert_eq!(around(TABLE_END_BYTES - 1, last(TABLE_END_BYTES)), None, "the last block is not whole");
        assert_eq!(around(2 * TABLE_END_BYTES, last(2 * TABLE_END_BYTES)), None, "beyond the table");
        assert_eq!(around(u64::MAX, u32::from(u16::MAX)), None);
    }
}
