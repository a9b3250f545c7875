//! A file on its way to the target, and what `store` holds of it: the part and its journal.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use haul_engine::arriving::{Arriving, Resumed};
use haul_engine::integrity::{Hash, UnitHasher};
use haul_engine::journal;
use haul_engine::plan::ChunkLayout;
use haul_engine::schedule::Unit;
use haul_wire::control::ChunkRange;
use haul_wire::manifest::Identity;

use super::disk::{Disk, Flush, Inode, Trouble};
use super::run::{Around, Frame};
use super::source;

pub struct Incoming {
    pub index: u64,
    pub name: String,
    pub identity: Identity,
    pub layout: ChunkLayout,
    pub part: Option<Part>,
    pub large: Option<Arriving>,
    /// A whole file that verified, or was given up.
    pub arrived: bool,
    pub spoilt: u32,
    /// The lane that began a chunk last may write it.
    pub claims: BTreeMap<u32, Claim>,
    pub failed: bool,
}

#[derive(Clone, Debug)]
pub struct Part {
    pub inode: Inode,
    pub journal: Option<Inode>,
    pub flush_failed: bool,
}

pub struct Lane {
    pub number: usize,
    pub alive: bool,
    pub frames: VecDeque<Frame>,
    pub unit: Option<Arrival>,
    pub pending: Vec<(usize, Part, Hash)>,
    pub publishing: Vec<(usize, Part, Hash, Flush)>,
    pub busy: bool,
}

pub struct Claim {
    pub number: u64,
    pub lanes: BTreeSet<usize>,
}

pub struct Arrival {
    pub file: Option<usize>,
    pub unit: Unit,
    pub next: u64,
    pub end: u64,
    pub hasher: Option<UnitHasher>,
    pub claim: u64,
    /// Lanes that had the claim before.
    pub voids: BTreeSet<usize>,
    /// `None`: nobody wants it.
    pub part: Option<Part>,
    pub failed: Option<Trouble>,
}

impl Lane {
    pub fn new(number: usize) -> Self {
        Self {
            number,
            alive: true,
            frames: VecDeque::new(),
            unit: None,
            pending: Vec::new(),
            publishing: Vec::new(),
            busy: false,
        }
    }
}

impl Incoming {
    pub fn missing(&self) -> Vec<ChunkRange> {
        self.large.as_ref().map_or_else(Vec::new, Arriving::missing)
    }

    /// Returns the lanes that had the chunk before.
    pub fn claim(&mut self, chunk: u32, claim: u64, lane: usize) -> BTreeSet<usize> {
        let before = self.claims.get(&chunk).map(|before| before.lanes.clone()).unwrap_or_default();
        let lanes = before.iter().copied().chain([lane]).collect();
        self.claims.insert(chunk, Claim { number: claim, lanes });
        before
    }

    pub fn holds(&self, chunk: u32, claim: u64) -> bool {
        self.claims.get(&chunk).is_some_and(|held| held.number == claim)
    }

    /// False if another lane has taken the chunk.
    pub fn lets_go(&mut self, chunk: u32, claim: u64) -> bool {
        let held = self.holds(chunk, claim);
        if held {
            self.claims.remove(&chunk);
        }
        held
    }

    pub fn resume(&mut self, around: &mut Around) -> bool {
        let found = (around.disk.find(&part_name(&self.name)), around.disk.find(&journal_name(&self.name)));
        let (Some(part), Some(journal)) = found else { return false };
        let (bytes, size) = (around.disk.seen(journal).bytes.clone(), around.disk.seen(part).size);
        let resumed = Arriving::resume(self.identity, self.layout, (1, part), size, &bytes, |_, _| true, around.now_us);
        let Some(Resumed { file, keep_bytes }) = resumed else { return false };
        around.disk.cut(journal, keep_bytes);
        let flush = around.disk.begin_flush(journal);
        around.disk.end_flush(flush);
        around.count.resumed += 1;
        self.part = Some(Part { inode: part, journal: Some(journal), flush_failed: false });
        self.large = Some(file);
        true
    }
}

impl Part {
    /// Makes an empty part without a journal.
    pub fn new(name: &str, disk: &mut Disk) -> Self {
        let inode = disk.make(&part_name(name));
        if disk.unlink(&journal_name(name)) {
            disk.flush_names();
        }
        Self { inode, journal: None, flush_failed: false }
    }

    /// The first failure is final.
    pub fn end_flush(&mut self, flush: Flush, around: &mut Around) -> Result<(), Trouble> {
        if self.flush_failed || around.breaks() {
            self.flush_failed = true;
            around.disk.fail_flush(flush);
            return Err(Trouble::Broken);
        }
        around.disk.end_flush(flush);
        Ok(())
    }
}

pub fn part_name(name: &str) -> String {
    name.replace("d/", "d/.") + ".part"
}

pub fn journal_name(name: &str) -> String {
    name.replace("d/", "d/.") + ".journal"
}

/// The journal never claims more than the medium holds.
pub fn judge_journal(disk: &Disk, journal: Inode, part: Inode, name: &str) {
    let Some((header, records)) = journal::decode(&disk.seen(journal).bytes) else { return };
    let layout = ChunkLayout::of(header.identity.size);
    for (chunk, hash) in records {
        let medium = &disk.medium(part).blocks;
        let content = source::places(&layout, chunk).map(|at| medium.get(at as usize).copied().unwrap_or(0));
        let held = source::hash_of(&layout, chunk, content);
        assert_eq!(held, hash, "{name} claims chunk {chunk}, which the medium does not hold");
    }
}
