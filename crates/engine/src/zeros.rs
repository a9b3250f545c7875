//! Hashes of holes without hashing them.
//!
//! A chaining value of BLAKE3 depends on where in the file its bytes stand, so that zeros have another one at each offset; but there they always
//! have the same. The table has it for each aligned block of 64 MiB of a file's first TiB: 16,384 of 32 bytes are 512 KiB, 5 % of the program.
//! Smaller blocks would find more of a file whose data is scattered, and take more room in proportion; 64 MiB are hashed in 10 ms.
//!
//! `cargo xtask zeros` computes the table anew.

use blake3::hazmat::{self, HasherExt, Mode};

use crate::hash::Hash;
use crate::plan::ChunkLayout;

/// What the table has a value for.
pub const BLOCK_BYTES: u64 = 64 << 20;

/// Where it ends.
pub const TABLE_END_BYTES: u64 = 1 << 40;

static TABLE: &[u8; (TABLE_END_BYTES / BLOCK_BYTES) as usize * HASH_BYTES] = include_bytes!("zeros.bin");

const HASH_BYTES: usize = 32;

/// The whole blocks in which a chunk stands, as start and end in bytes: when all of them is a hole, its hash need not be computed. `None` when the
/// table does not have them, or the file ends before them.
pub fn blocks_around(layout: &ChunkLayout, chunk: u32) -> Option<(u64, u64)> {
    let (offset, length) = layout.range(chunk)?;
    let start = offset - offset % BLOCK_BYTES;
    let end = offset.checked_add(length)?.checked_next_multiple_of(BLOCK_BYTES)?;
    (!layout.is_whole() && end <= layout.size().min(TABLE_END_BYTES)).then_some((start, end))
}

/// The chaining value of a subtree of `length` zeros at `offset`, which is not the whole file.
pub(crate) fn subtree(offset: u64, length: u64) -> Hash {
    if length > BLOCK_BYTES {
        let left = hazmat::left_subtree_len(length);
        let (left, right) = (subtree(offset, left), subtree(offset + left, length - left));
        return hazmat::merge_subtrees_non_root(&left, &right, Mode::Hash);
    }
    if length == BLOCK_BYTES && offset.is_multiple_of(BLOCK_BYTES) && offset < TABLE_END_BYTES {
        let at = usize::try_from(offset / BLOCK_BYTES).expect("16,384 at most") * HASH_BYTES;
        return TABLE[at..][..HASH_BYTES].try_into().expect("32 bytes");
    }
    hashed(offset, length).finalize_non_root()
}

/// A hasher that has seen `length` zeros at `offset`.
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
        let last = TABLE_END_BYTES / BLOCK_BYTES - 1;
        for number in [0, 1, 2, 1599, 8191, 8192, last - 1, last] {
            let offset = number * BLOCK_BYTES;
            assert_eq!(subtree(offset, BLOCK_BYTES), hashed(offset, BLOCK_BYTES).finalize_non_root(), "block {number}");
        }
    }

    #[test]
    fn a_subtree_of_many_blocks_or_beyond_the_table_is_what_hashing_gives() {
        for (offset, length) in [(4 * BLOCK_BYTES, 4 * BLOCK_BYTES), (TABLE_END_BYTES, BLOCK_BYTES), (8 << 20, 8 << 20)]
        {
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
        // Chunks of 256 MiB.
        assert_eq!(around(10 << 40, 1), Some((256 << 20, 512 << 20)));
        assert_eq!(around(10 << 40, 4095), Some((TABLE_END_BYTES - (256 << 20), TABLE_END_BYTES)));
        assert_eq!(around(10 << 40, 4096), None, "beyond the table");
        assert_eq!(around(u64::MAX, u32::from(u16::MAX)), None);
    }
}
