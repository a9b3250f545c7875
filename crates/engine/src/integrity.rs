//! Proof that data arrived as the source read it. Only this module makes a [`Verified`], and the ledger takes nothing
//! else: "done but unverified" does not compile.
//!
//! The hash of a chunk is the chaining value of its subtree in the file's BLAKE3 tree, so that the hashes of the chunks,
//! computed in any order by any number of lanes, merge into the very hash that `b3sum` prints for the file.
//! Source: BLAKE3 specification, section 2.1; `blake3::hazmat`.

use blake3::hazmat::{self, HasherExt, Mode};
use zeroize::Zeroizing;

use crate::plan::ChunkLayout;
use crate::zeros;

pub use crate::hash::Hash;

/// Stands in a ledger and a journal for the hash of a chunk that is a hole: with its neighbours it makes a block that the table of [`zeros`] has.
/// No data hashes to it, but by a chance of 2^-256.
const HOLE: Hash = [0; 32];

/// Hashes the data of one unit as it passes.
pub struct UnitHasher {
    hasher: blake3::Hasher,
    whole: bool,
}

impl UnitHasher {
    /// For one chunk of a file.
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

    /// The hash of what was taken so far. Of all its data it is the unit's hash: the file's BLAKE3 for a whole file, else the chunk's chaining
    /// value. Asking in between costs a few compressions, less than a hundredth of hashing a block.
    pub fn finish(&self) -> Hash {
        if self.whole { *self.hasher.finalize().as_bytes() } else { self.hasher.finalize_non_root() }
    }
}

/// Proves on a clear lane what its sender says of a unit. The proof is keyed BLAKE3, with a key that only the two ends have. There is one
/// for the header of the unit, one for the header and one for the data of each block, and one for the trailer.
///
/// Each proof covers the number of its unit and block, so nobody can repeat, drop or move one. The receiver checks a header before it writes
/// a byte. It checks a length before it waits for the bytes, because a forged length would make it wait for ever. It checks data before the
/// data reaches a file or a decompressor.
///
/// Both ends hash the data of a unit anyway. So the tag of a plain block is made of the hash of the unit so far, and no byte is hashed twice. A
/// compressed block is proved by its bytes on the wire.
pub struct LaneTags {
    key: Zeroizing<[u8; 32]>,
    units: u64,
    blocks: u64,
}

impl LaneTags {
    /// For a lane from its first unit on.
    pub fn new(key: [u8; 32]) -> Self {
        Self { key: Zeroizing::new(key), units: 0, blocks: 0 }
    }

    /// The tag of the header of the next unit.
    pub fn header(&mut self, header: &[u8]) -> Tag {
        self.units += 1;
        self.blocks = 0;
        self.tag(b"header", header)
    }

    /// The tag of the header of the next block of the unit that was begun last.
    pub fn block(&mut self, header: &[u8]) -> Tag {
        self.blocks += 1;
        self.tag(b"block", header)
    }

    /// The tag of the data of the block that was begun last: `so_far` is the hash of the unit up to its end.
    pub fn data(&self, so_far: &Hash) -> Tag {
        self.tag(b"data", so_far)
    }

    /// The tag of the block that was begun last, as it is packed on the wire.
    pub fn packed(&self, wire: &[u8]) -> Tag {
        self.tag(b"packed", wire)
    }

    /// The tag of the trailer of the unit that was begun last.
    pub fn trailer(&self, trailer: &[u8]) -> Tag {
        self.tag(b"trailer", trailer)
    }

    fn tag(&self, what: &[u8], bytes: &[u8]) -> Tag {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        // The numbers have a fixed length and the words differ in their first letter: no two inputs read the same.
        hasher.update(&self.units.to_le_bytes()).update(&self.blocks.to_le_bytes()).update(what).update(bytes);
        Tag(hasher.finalize())
    }
}

/// A tag. Comparing takes the same time wherever two differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag(blake3::Hash);

impl Tag {
    /// As it travels.
    pub fn bytes(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }

    /// Whether these are its bytes.
    pub fn is(&self, bytes: [u8; 32]) -> bool {
        self.0 == blake3::Hash::from_bytes(bytes)
    }

    /// Whether this is what stands in these bytes.
    pub fn is_in(&self, bytes: &[u8]) -> bool {
        bytes.try_into().is_ok_and(|bytes| self.is(bytes))
    }
}

/// Proof that a chunk's data is what the source read.
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

/// Proves a chunk that another host of this end has compared with what its sender claimed, and found equal.
pub fn by_mover(layout: &ChunkLayout, chunk: u32, hash: Hash) -> Result<Verified, Mismatch> {
    match hash {
        HOLE => hole(layout, chunk).ok_or(Mismatch),
        _ if chunk < layout.count() => Ok(Verified { chunk, hash }),
        _ => Err(Mismatch),
    }
}

/// Compares what the target computed over the data it received with what the source computed over the data it read.
pub fn verify(chunk: u32, computed: Hash, claimed: Hash) -> Result<Verified, Mismatch> {
    if computed == claimed { Ok(Verified { chunk, hash: computed }) } else { Err(Mismatch) }
}

/// Proves a unit that was read into one buffer, hashed there, and written from there. There is one hash, and nothing to compare: this
/// is for two ends in one process.
pub fn in_one_buffer(chunk: u32, hasher: &UnitHasher) -> Verified {
    Verified { chunk, hash: hasher.finish() }
}

/// Compares what stands at the target now with what was verified of a chunk before.
pub struct Rereading {
    chunk: u32,
    expected: Hash,
    hasher: UnitHasher,
    only_zeros: bool,
}

impl Rereading {
    /// For a chunk that had this hash.
    pub fn new(layout: &ChunkLayout, chunk: u32, expected: Hash) -> Self {
        Self { chunk, expected, hasher: UnitHasher::new(layout, chunk), only_zeros: true }
    }

    /// Number of the chunk.
    pub fn chunk(&self) -> u32 {
        self.chunk
    }

    /// Whether the chunk came as a hole: where it still is one, nothing need be read.
    pub fn expects_hole(&self) -> bool {
        self.expected == HOLE
    }

    /// Takes the next bytes.
    pub fn update(&mut self, data: &[u8]) {
        match self.expects_hole() {
            // No hash was computed of it then.
            true => self.only_zeros &= data.iter().all(|byte| *byte == 0),
            false => self.hasher.update(data),
        }
    }

    /// The proof, once all of the chunk was taken.
    pub fn finish(self) -> Result<Verified, Mismatch> {
        match self.expects_hole() {
            true if self.only_zeros => Ok(Verified { chunk: self.chunk, hash: HOLE }),
            true => Err(Mismatch),
            false => verify(self.chunk, self.hasher.finish(), self.expected),
        }
    }
}

/// A chunk that the source says is a hole needs no more proof than that: the zeros are what was said. `None` where the source has to send a hash,
/// because ours would have to be computed: see [`zeros::blocks_around`].
pub fn hole(layout: &ChunkLayout, chunk: u32) -> Option<Verified> {
    zeros::blocks_around(layout, chunk).map(|_| Verified { chunk, hash: HOLE })
}

/// The file's BLAKE3 from the hashes of all its chunks, in order. For a whole file that is the one hash itself.
///
/// # Panics
/// When there are more or fewer hashes than the layout has chunks: the caller's ledger is broken.
pub fn file_hash(layout: &ChunkLayout, hashes: &[Hash]) -> Hash {
    assert_eq!(hashes.len(), layout.count() as usize, "one hash for each chunk");
    if layout.is_whole() {
        return hashes[0];
    }
    let chunks = Chunks { offset: 0, length: layout.size(), chunk_bytes: layout.chunk_bytes(), hashes };
    let (left, right) = chunks.halves();
    *hazmat::merge_subtrees_root(&left.subtree(), &right.subtree(), Mode::Hash).as_bytes()
}

/// Neighbouring chunks that are a subtree.
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

    /// The chaining value. Depth is at most 16: there are at most 65,536 chunks.
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

    /// Chunks of at least 4 MiB make for large inputs; a few sizes around the edges are enough.
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

    /// Chunks of 1 MiB of a file of 200 MiB: the hash of the file is that of its bytes, also where only part of a block came as a hole.
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
