//! Proof that data arrived as the source read it. Only this module makes a [`Verified`], and the ledger takes nothing else: "done
//! but unverified" does not compile.
//!
//! The hash of a chunk is the chaining value of its subtree in the file's BLAKE3 tree. So chunk hashes, computed in any order by
//! any number of lanes, merge into the hash that `b3sum` prints. Source: BLAKE3 specification, section 2.1; `blake3::hazmat`.

use blake3::hazmat::{self, HasherExt, Mode};
use zeroize::Zeroizing;

use crate::plan::ChunkLayout;
use crate::zeros;

pub use crate::hash::Hash;

/// Stands for a hole's hash, which with its neighbours makes a block in the table of [`zeros`]. Data has it with a chance of
/// 2^-256.
const HOLE: Hash = [0; 32];

/// Hashes one unit as it passes.
pub struct UnitHasher {
    hasher: blake3::Hasher,
    whole: bool,
}

impl UnitHasher {
    /// Begins one chunk of a file.
    pub fn new(layout: &ChunkLayout, chunk: u32) -> Self {
        let mut hasher = blake3::Hasher::new();
        if !layout.is_whole() {
            hasher.set_input_offset(u64::from(chunk) * layout.chunk_bytes());
        }
        Self { hasher, whole: layout.is_whole() }
    }

    /// Takes the next bytes.
    pub fn update(&mut self, data: &[u8]) {
        self.hasher.update(data);
    }

    /// The hash so far. At the end: the file's BLAKE3 for a whole file, else the chunk's chaining value. Asking costs less than 1
    /// % of hashing a block.
    pub fn finish(&self) -> Hash {
        if self.whole { *self.hasher.finalize().as_bytes() } else { self.hasher.finalize_non_root() }
    }
}

/// Proves on a clear lane what its sender says: keyed BLAKE3, with a key of the two ends, for each unit's header and trailer, and
/// each block's header and data.
///
/// A proof covers the number of its unit and block: nobody can repeat, drop or move one. A header is checked before a byte is
/// written, a length before its bytes are awaited (a forged one would block for ever), data before a file or a decompressor gets
/// it.
///
/// Both ends hash a unit anyway, so the tag of a plain block is made of the hash so far. A compressed block's tag covers its
/// bytes on the wire.
pub struct LaneTags {
    key: Zeroizing<[u8; 32]>,
    units: u64,
    blocks: u64,
}

impl LaneTags {
    /// Begins a lane at its first unit.
    pub fn new(key: [u8; 32]) -> Self {
        Self { key: Zeroizing::new(key), units: 0, blocks: 0 }
    }

    /// The tag of the next unit's header.
    pub fn header(&mut self, header: &[u8]) -> Tag {
        self.units += 1;
        self.blocks = 0;
        self.tag(b"header", header)
    }

    /// The tag of the next block's header.
    pub fn block(&mut self, header: &[u8]) -> Tag {
        self.blocks += 1;
        self.tag(b"block", header)
    }

    /// The tag of this block's data; `so_far` is the unit's hash then.
    pub fn data(&self, so_far: &Hash) -> Tag {
        self.tag(b"data", so_far)
    }

    /// The tag of this block as packed.
    pub fn packed(&self, wire: &[u8]) -> Tag {
        self.tag(b"packed", wire)
    }

    /// The tag of this unit's trailer.
    pub fn trailer(&self, trailer: &[u8]) -> Tag {
        self.tag(b"trailer", trailer)
    }

    fn tag(&self, what: &[u8], bytes: &[u8]) -> Tag {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        // Fixed-length numbers and different first letters: no two inputs read the same.
        hasher.update(&self.units.to_le_bytes()).update(&self.blocks.to_le_bytes()).update(what).update(bytes);
        Tag(hasher.finalize())
    }
}

/// A tag, compared in constant time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag(blake3::Hash);

impl Tag {
    /// The bytes that travel.
    pub fn bytes(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }

    /// Whether these are its bytes.
    pub fn is(&self, bytes: [u8; 32]) -> bool {
        self.0 == blake3::Hash::from_bytes(bytes)
    }

    /// Whether these bytes hold it.
    pub fn is_in(&self, bytes: &[u8]) -> bool {
        bytes.try_into().is_ok_and(|bytes| self.is(bytes))
    }
}

/// Proof of a chunk's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified {
    chunk: u32,
    hash: Hash,
}

impl Verified {
    /// Number of the chunk.
    pub fn chunk(&self) -> u32 {
        self.chunk
    }

    /// The chunk's hash.
    pub fn hash(&self) -> Hash {
        self.hash
    }
}

/// The data is not what the source read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch;

/// Proves a chunk that another host of this end has compared.
pub fn by_mover(layout: &ChunkLayout, chunk: u32, hash: Hash) -> Result<Verified, Mismatch> {
    match hash {
        HOLE => hole(layout, chunk).ok_or(Mismatch),
        _ if chunk < layout.count() => Ok(Verified { chunk, hash }),
        _ => Err(Mismatch),
    }
}

/// Compares the target's hash with the source's.
pub fn verify(chunk: u32, computed: Hash, claimed: Hash) -> Result<Verified, Mismatch> {
    if computed == claimed { Ok(Verified { chunk, hash: computed }) } else { Err(Mismatch) }
}

/// Proves a unit of two ends in one process: one buffer, one hash.
pub fn in_one_buffer(chunk: u32, hasher: &UnitHasher) -> Verified {
    Verified { chunk, hash: hasher.finish() }
}

/// Compares the target's data with what was verified.
pub struct Rereading {
    chunk: u32,
    expected: Hash,
    hasher: UnitHasher,
    only_zeros: bool,
}

impl Rereading {
    /// Begins a chunk that had this hash.
    pub fn new(layout: &ChunkLayout, chunk: u32, expected: Hash) -> Self {
        Self { chunk, expected, hasher: UnitHasher::new(layout, chunk), only_zeros: true }
    }

    /// Number of the chunk.
    pub fn chunk(&self) -> u32 {
        self.chunk
    }

    /// Whether the chunk came as a hole, and need not be read as one.
    pub fn expects_hole(&self) -> bool {
        self.expected == HOLE
    }

    /// Takes the next bytes.
    pub fn update(&mut self, data: &[u8]) {
        match self.expects_hole() {
            // No hash was computed then.
            true => self.only_zeros &= data.iter().all(|byte| *byte == 0),
            false => self.hasher.update(data),
        }
    }

    /// The proof, once all was taken.
    pub fn finish(self) -> Result<Verified, Mismatch> {
        match self.expects_hole() {
            true if self.only_zeros => Ok(Verified { chunk: self.chunk, hash: HOLE }),
            true => Err(Mismatch),
            false => verify(self.chunk, self.hasher.finish(), self.expected),
        }
    }
}

/// Proves a hole. `None` if the source has to send its hash, which no table has: see [`zeros::blocks_around`].
pub fn hole(layout: &ChunkLayout, chunk: u32) -> Option<Verified> {
    zeros::blocks_around(layout, chunk).map(|_| Verified { chunk, hash: HOLE })
}

/// The file's BLAKE3 from its chunks' hashes, in order; of a whole file, its one hash.
///
/// # Panics
/// When there are more or fewer hashes than chunks.
pub fn file_hash(layout: &ChunkLayout, hashes: &[Hash]) -> Hash {
    assert_eq!(hashes.len(), layout.count() as usize, "one hash for each chunk");
    if layout.is_whole() {
        return hashes[0];
    }
    let chunks = Chunks { offset: 0, length: layout.size(), chunk_bytes: layout.chunk_bytes(), hashes };
    let (left, right) = chunks.halves();
    *hazmat::merge_subtrees_root(&left.subtree(), &right.subtree(), Mode::Hash).as_bytes()
}

struct Chunks<'a> {
    offset: u64,
    length: u64,
    chunk_bytes: u64,
    hashes: &'a [Hash],
}

impl Chunks<'_> {
    fn halves(&self) -> (Self, Self) {
        let left = hazmat::left_subtree_len(self.length);
        let split = usize::try_from(left / self.chunk_bytes).expect("chunk counts fit");
        let (left_hashes, right_hashes) = self.hashes.split_at(split);
        let right = Self { offset: self.offset + left, length: self.length - left, hashes: right_hashes, ..*self };
        (Self { length: left, hashes: left_hashes, ..*self }, right)
    }

    /// Depth is at most 16, for 65,536 chunks.
    fn subtree(&self) -> Hash {
        if self.hashes.iter().all(|hash| *hash == HOLE) {
            return zeros::subtree(self.offset, self.length);
        }
        if let [only] = self.hashes {
            return *only;
        }
        let (left, right) = self.halves();
        hazmat::merge_subtrees_non_root(&left.subtree(), &right.subtree(), Mode::Hash)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;

    /// Chunks have at least 4 MiB.
    #[test]
    fn chunk_hashes_merge_into_the_hash_of_the_file() {
        const MIB: usize = 1 << 20;
        for size in [0, 1, 4 * MIB, 4 * MIB + 1, 8 * MIB, 12 * MIB + 5, 20 * MIB + 1024] {
            let data: Vec<u8> = (0..size).map(|i| (i.wrapping_mul(2_654_435_761) >> 7) as u8).collect();
            let layout = ChunkLayout::of(size as u64);
            let hashes: Vec<Hash> = (0..layout.count())
                .map(|chunk| {
                    let (offset, length) = layout.range(chunk).unwrap();
                    let mut hasher = UnitHasher::new(&layout, chunk);
                    for piece in data[offset as usize..(offset + length) as usize].chunks(100_000) {
                        hasher.update(piece);
                    }
                    hasher.finish()
                })
                .collect();
            assert_eq!(file_hash(&layout, &hashes), *blake3::hash(&data).as_bytes(), "size {size}");
        }
    }

    /// Chunks of 1 MiB of 200 MiB, also with holes in part of a block.
    #[test]
    fn holes_and_data_merge_into_the_hash_of_the_file() {
        const CHUNK: usize = 1 << 20;
        let layout = ChunkLayout::of(200 * CHUNK as u64);
        for holes in [&[(0, 64)][..], &[(64, 192)], &[(0, 192)], &[(3, 5), (64, 100), (130, 131)]] {
            let is_hole = |chunk: u32| holes.iter().any(|(start, end)| (*start..*end).contains(&chunk));
            let mut plain = blake3::Hasher::new();
            let hashes: Vec<Hash> = (0..layout.count())
                .map(|chunk| {
                    let data = vec![if is_hole(chunk) { 0 } else { chunk as u8 }; CHUNK];
                    plain.update(&data);
                    if is_hole(chunk) {
                        return hole(&layout, chunk).expect("in whole blocks").hash();
                    }
                    let mut hasher = UnitHasher::new(&layout, chunk);
                    hasher.update(&data);
                    hasher.finish()
                })
                .collect();
            assert_eq!(file_hash(&layout, &hashes), *plain.finalize().as_bytes(), "{holes:?}");
        }
        assert!(hole(&layout, 192).is_none(), "the last block is not whole");
    }

    #[test]
    fn a_tag_is_good_for_one_place_of_one_lane() {
        let (mut sends, mut receives) = (LaneTags::new([1; 32]), LaneTags::new([1; 32]));
        let first = sends.header(b"unit");
        assert!(receives.header(b"unit").is(*first.bytes()));
        assert!(receives.trailer(b"hash").is(*sends.trailer(b"hash").bytes()));
        assert!(!receives.trailer(b"hasj").is(*sends.trailer(b"hash").bytes()), "another text");
        assert!(!receives.trailer(b"unit").is(*first.bytes()), "a header is no trailer");
        assert!(!receives.header(b"unit").is(*first.bytes()), "not a second time");
        assert!(!LaneTags::new([2; 32]).header(b"unit").is(*first.bytes()), "nor on another lane");
    }

    #[test]
    fn what_came_as_a_hole_is_right_as_long_as_it_is_zeros() {
        let layout = ChunkLayout::of(100 << 20);
        let expected = hole(&layout, 3).expect("in a whole block");
        let reread = |data: &[u8]| {
            let mut rereading = Rereading::new(&layout, 3, expected.hash());
            rereading.update(data);
            rereading.finish()
        };
        assert_eq!(reread(&[0; 5000]), Ok(expected));
        assert_eq!(reread(&[&[0; 5000][..], &[1]].concat()), Err(Mismatch));
    }

    #[test]
    fn the_tag_of_data_is_good_for_one_block_with_all_that_came_before_it_in_its_unit() {
        let (mut sends, mut receives) = (LaneTags::new([1; 32]), LaneTags::new([1; 32]));
        for tags in [&mut sends, &mut receives] {
            tags.header(b"unit");
            tags.block(b"four");
        }
        let layout = ChunkLayout::of(40 << 20);
        let hashed = |pieces: &[&[u8]]| {
            let mut hasher = UnitHasher::new(&layout, 1);
            pieces.iter().for_each(|piece| hasher.update(piece));
            hasher.finish()
        };
        let (first, packed) = (sends.data(&hashed(&[b"data"])), sends.packed(b"data"));
        assert!(receives.data(&hashed(&[b"data"])).is(*first.bytes()) && receives.packed(b"data").is(*packed.bytes()));
        assert!(!receives.data(&hashed(&[b"dato"])).is(*first.bytes()), "other data");
        assert!(!receives.packed(&hashed(&[b"data"])).is(*first.bytes()), "plain data is not packed data");
        for tags in [&mut sends, &mut receives] {
            tags.block(b"four");
        }
        let second = sends.data(&hashed(&[b"data", b"data"]));
        assert!(!receives.data(&hashed(&[b"data"])).is(*first.bytes()), "not a second time");
        assert!(!receives.data(&hashed(&[b"dato", b"data"])).is(*second.bytes()), "nor behind other data");
        assert!(receives.data(&hashed(&[b"da", b"tadata"])).is(*second.bytes()));
    }

    #[test]
    fn a_flipped_bit_gives_no_proof() {
        assert_eq!(verify(3, [1; 32], [2; 32]), Err(Mismatch));
        assert_eq!(verify(3, [1; 32], [1; 32]).unwrap().chunk(), 3);
    }
}
