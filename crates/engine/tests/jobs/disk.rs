//! The disk of the target: what a process sees, and what is on the medium.
//!
//! ```text
//!   write, rename, unlink -> seen at once -> flush -> on the medium
//!   kill: what is seen stays.   power cut: what was not flushed is there, or not, or is neither the old nor the new
//! ```
//! Changes of names reach the medium in their order, as with any journaling file system. On some (ext4, xfs) a flush of a file
//! takes them along.

use std::collections::{BTreeMap, BTreeSet};

use haul_wire::limits::BLOCK_BYTES;
use haul_wire::manifest::Time;

use super::chance::Chance;
use super::source::blocks;

pub type Inode = u64;

/// Blocks of data, or, for a journal, bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    pub size: u64,
    pub mtime: Option<Time>,
    pub blocks: Vec<u64>,
    pub bytes: Vec<u8>,
}

#[derive(Debug, Default)]
struct File {
    seen: Image,
    medium: Image,
    /// Blocks that a failed flush has dropped: seen, never on the medium, and no later flush says so.
    forgotten: BTreeSet<usize>,
    forgotten_bytes: bool,
}

#[derive(Clone, Debug)]
enum NameChange {
    Make(String, Inode),
    Rename(String, String),
    Unlink(String),
}

#[derive(Debug)]
pub struct Flush {
    inode: Inode,
    image: Image,
    names: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    Full,
    Broken,
}

#[derive(Debug)]
pub struct Disk {
    files: BTreeMap<Inode, File>,
    names: BTreeMap<String, Inode>,
    medium_names: BTreeMap<String, Inode>,
    /// Not on the medium; numbered from `changes_gone`.
    changes: Vec<NameChange>,
    changes_gone: usize,
    next_inode: Inode,
    /// A flush of a file takes earlier name changes along.
    pub flushes_names: bool,
    pub full_until_us: u64,
    /// 0: none fails.
    pub broken_one_in: u64,
}

impl Disk {
    pub fn new(chance: &mut Chance) -> Self {
        Self {
            files: BTreeMap::new(),
            names: BTreeMap::new(),
            medium_names: BTreeMap::new(),
            changes: Vec::new(),
            changes_gone: 0,
            next_inode: 1,
            flushes_names: chance.one_in(2),
            full_until_us: 0,
            broken_one_in: 0,
        }
    }

    /// Whether a call that needs room goes wrong.
    pub fn trouble(&self, now_us: u64, chance: &mut Chance) -> Result<(), Trouble> {
        if now_us < self.full_until_us {
            return Err(Trouble::Full);
        }
        if self.broken_one_in > 0 && chance.one_in(self.broken_one_in) { Err(Trouble::Broken) } else { Ok(()) }
    }

    pub fn find(&self, name: &str) -> Option<Inode> {
        self.names.get(name).copied()
    }

    pub fn names(&self) -> impl Iterator<Item = (&str, &Image)> {
        self.names.iter().map(|(name, inode)| (name.as_str(), &self.files[inode].seen))
    }

    /// Makes an empty file, or empties one.
    pub fn make(&mut self, name: &str) -> Inode {
        if let Some(inode) = self.find(name) {
            self.file(inode).seen = Image::default();
            return inode;
        }
        let inode = self.next_inode;
        self.next_inode += 1;
        self.files.insert(inode, File::default());
        self.names.insert(name.to_owned(), inode);
        self.changes.push(NameChange::Make(name.to_owned(), inode));
        inode
    }

    pub fn rename(&mut self, from: &str, to: &str) -> bool {
        let Some(inode) = self.names.remove(from) else { return false };
        self.names.insert(to.to_owned(), inode);
        self.changes.push(NameChange::Rename(from.to_owned(), to.to_owned()));
        true
    }

    pub fn unlink(&mut self, name: &str) -> bool {
        let was_there = self.names.remove(name).is_some();
        if was_there {
            self.changes.push(NameChange::Unlink(name.to_owned()));
        }
        was_there
    }

    pub fn seen(&self, inode: Inode) -> &Image {
        &self.files[&inode].seen
    }

    pub fn medium(&self, inode: Inode) -> &Image {
        &self.files[&inode].medium
    }

    pub fn dirty_blocks(&self, inode: Inode) -> u64 {
        let File { seen, medium, .. } = &self.files[&inode];
        let differs = |(at, block): (usize, &u64)| medium.blocks.get(at) != Some(block);
        seen.blocks.iter().enumerate().filter(|at| differs(*at)).count() as u64
    }

    pub fn write_block(&mut self, inode: Inode, at: u64, block: u64, end_bytes: u64) {
        let file = self.file(inode);
        let at = at as usize;
        if file.seen.blocks.len() <= at {
            file.seen.blocks.resize(at + 1, 0);
        }
        file.seen.blocks[at] = block;
        file.seen.size = file.seen.size.max(end_bytes);
        file.forgotten.remove(&at);
    }

    pub fn set_size(&mut self, inode: Inode, size: u64, mtime: Time) {
        let seen = &mut self.file(inode).seen;
        seen.size = size;
        seen.mtime = Some(mtime);
        seen.blocks.resize(blocks(size) as usize, 0);
    }

    pub fn append(&mut self, inode: Inode, bytes: &[u8]) {
        self.file(inode).seen.bytes.extend_from_slice(bytes);
    }

    pub fn cut(&mut self, inode: Inode, length: u64) {
        self.file(inode).seen.bytes.truncate(length as usize);
    }

    pub fn begin_flush(&self, inode: Inode) -> Flush {
        let File { seen, medium, forgotten, forgotten_bytes } = &self.files[&inode];
        let mut image = seen.clone();
        for at in forgotten {
            if let Some(block) = image.blocks.get_mut(*at) {
                *block = medium.blocks.get(*at).copied().unwrap_or(0);
            }
        }
        if *forgotten_bytes {
            image.bytes.clone_from(&medium.bytes);
        }
        let names = if self.flushes_names { self.changes_gone + self.changes.len() } else { 0 };
        Flush { inode, image, names }
    }

    pub fn end_flush(&mut self, flush: Flush) {
        self.file(flush.inode).medium = flush.image;
        self.flush_changes(flush.names);
    }

    /// The kernel reports it once, and holds for clean what it could not write.
    pub fn fail_flush(&mut self, flush: Flush) {
        let file = self.file(flush.inode);
        let medium = &file.medium.blocks;
        let dropped = flush.image.blocks.iter().enumerate().filter(|(at, block)| medium.get(*at) != Some(*block));
        file.forgotten.extend(dropped.map(|(at, _)| at));
        file.forgotten_bytes |= !flush.image.bytes.is_empty();
    }

    pub fn flush_names(&mut self) {
        self.flush_changes(self.changes_gone + self.changes.len());
    }

    fn flush_changes(&mut self, end: usize) {
        let count = end.saturating_sub(self.changes_gone).min(self.changes.len());
        for change in self.changes.drain(..count) {
            match change {
                NameChange::Make(name, inode) => {
                    self.medium_names.insert(name, inode);
                }
                NameChange::Rename(from, to) => {
                    if let Some(inode) = self.medium_names.remove(&from) {
                        self.medium_names.insert(to, inode);
                    }
                }
                NameChange::Unlink(name) => {
                    self.medium_names.remove(&name);
                }
            }
        }
        self.changes_gone += count;
    }

    /// Loses what was not flushed, all or in part, or tears it. `forgets`: none of it is there. `lies`: unfinished files are
    /// shorter than what was flushed of them.
    pub fn power_cut(&mut self, forgets: bool, lies: bool, chance: &mut Chance) {
        let survive = if forgets { 0 } else { chance.below(self.changes.len() as u64 + 1) as usize };
        self.flush_changes(self.changes_gone + survive);
        self.changes.clear();
        self.names = self.medium_names.clone();
        let named: BTreeSet<Inode> = self.names.values().copied().collect();
        self.files.retain(|inode, _| named.contains(inode));
        for file in self.files.values_mut() {
            if !forgets {
                file.medium = after_power_cut(&file.seen, &file.medium, chance);
            }
            if lies && file.medium.mtime.is_none() && chance.one_in(2) {
                let left = chance.below(file.medium.blocks.len() as u64 + 1);
                file.medium.blocks.truncate(left as usize);
                file.medium.size = file.medium.size.min(left * BLOCK_BYTES as u64);
            }
            file.seen = file.medium.clone();
            file.forgotten.clear();
            file.forgotten_bytes = false;
        }
        // Inodes that never reached the medium are given out again.
        self.next_inode = self.files.keys().max().map_or(1, |last| last + 1);
    }

    fn file(&mut self, inode: Inode) -> &mut File {
        self.files.get_mut(&inode).expect("an inode that somebody holds")
    }
}

fn after_power_cut(seen: &Image, medium: &Image, chance: &mut Chance) -> Image {
    let larger = if chance.one_in(2) { seen } else { medium };
    let (size, mtime) = (larger.size, larger.mtime);
    let count = larger.blocks.len();
    let block = |at: usize| {
        let (new, old) = (seen.blocks.get(at).copied(), medium.blocks.get(at).copied().unwrap_or(0));
        match new {
            Some(new) if new != old => match chance.below(4) {
                0 => old,
                1 => chance.bits(),
                _ => new,
            },
            _ => old,
        }
    };
    let blocks = (0..count).map(block).collect();
    Image { size, mtime, blocks, bytes: torn(&seen.bytes, &medium.bytes, chance) }
}

/// Keeps a part of the appended bytes, at times with a damaged byte at the end.
fn torn(seen: &[u8], medium: &[u8], chance: &mut Chance) -> Vec<u8> {
    if !seen.starts_with(medium) {
        return if chance.one_in(2) { seen.to_vec() } else { medium.to_vec() };
    }
    let added = chance.below((seen.len() - medium.len()) as u64 + 1) as usize;
    let mut bytes = seen[..medium.len() + added].to_vec();
    if added > 0 && chance.one_in(3) {
        let at = medium.len() + chance.below(added as u64) as usize;
        bytes[at] ^= 1 << chance.below(8);
    }
    bytes
}
