//! The source: files of a few blocks, each with all the versions that it ever had.
//!
//! A block is one number, which stands for 256 KiB that occur nowhere else.

use haul_engine::integrity::{Hash, UnitHasher};
use haul_engine::plan::ChunkLayout;
use haul_wire::RelPath;
use haul_wire::limits::BLOCK_BYTES;
use haul_wire::manifest::{Attributes, Identity, Item, ItemKind, Time};

use super::chance::{Chance, mix};

#[derive(Clone, Debug)]
pub struct Version {
    pub identity: Identity,
    salt: u64,
}

#[derive(Debug)]
pub struct SourceFile {
    pub name: String,
    pub versions: Vec<Version>,
    pub deleted: bool,
}

impl Version {
    /// Never 0, which stands for zeros.
    pub fn block(&self, at: u64) -> u64 {
        mix(self.salt ^ at.wrapping_mul(0x9e37)) | 1
    }

    pub fn blocks(&self) -> u64 {
        blocks(self.identity.size)
    }

    pub fn is(&self, size: u64, content: &[u64]) -> bool {
        self.identity.size == size
            && content.len() as u64 == self.blocks()
            && content.iter().zip(0..).all(|(block, at)| *block == self.block(at))
    }
}

impl SourceFile {
    pub fn new(number: u64, chance: &mut Chance) -> Self {
        let mut file = Self { name: format!("d/f{number}"), versions: Vec::new(), deleted: false };
        file.change(number, chance);
        file
    }

    /// A deleted file's last version.
    pub fn now(&self) -> &Version {
        self.versions.last().expect("a file has a version")
    }

    /// Writes the file anew, maybe with another size or inode.
    pub fn change(&mut self, number: u64, chance: &mut Chance) {
        let count = self.versions.len() as i64;
        let keeps_size = count > 0 && chance.one_in(2);
        let size = if keeps_size { self.now().identity.size } else { size(chance) };
        let inode = number * 100 + if chance.one_in(2) { count as u64 } else { 0 };
        let time = Time { s: 1_000 + count, ns: 0 };
        self.versions
            .push(Version { identity: Identity { size, mtime: time, ctime: time, inode }, salt: chance.bits() });
    }

    pub fn item(&self) -> Item {
        let identity = self.now().identity;
        let attributes = Attributes { mode: 0o644, mtime: identity.mtime, ..Attributes::default() };
        Item {
            path: path(&self.name),
            kind: ItemKind::File { identity, hole_bytes: 0, blake3: None, further_names: 0 },
            attributes,
        }
    }
}

pub fn path(name: &str) -> RelPath {
    RelPath::new(name.as_bytes().to_vec()).expect("a short name")
}

/// Sizes are at boundaries more often than by chance.
fn size(chance: &mut Chance) -> u64 {
    const MIB: u64 = 1 << 20;
    match chance.below(8) {
        0 => chance.below(3),
        1 | 2 => chance.below(MIB),
        3 => MIB * chance.between(1, 3) + chance.below(3) - 1,
        _ => chance.between(MIB + 1, 7 * MIB),
    }
}

pub fn blocks(size: u64) -> u64 {
    size.div_ceil(BLOCK_BYTES as u64)
}

pub fn places(layout: &ChunkLayout, chunk: u32) -> std::ops::Range<u64> {
    let (start, length) = layout.range(chunk).expect("a chunk of this file");
    start / BLOCK_BYTES as u64..blocks(start + length)
}

pub fn hash_of(layout: &ChunkLayout, chunk: u32, content: impl IntoIterator<Item = u64>) -> Hash {
    let mut hasher = UnitHasher::new(layout, chunk);
    content.into_iter().for_each(|block| hasher.update(&block.to_le_bytes()));
    hasher.finish()
}
