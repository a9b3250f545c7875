//! All chunks of one file with their receipts.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

use haul_wire::control::ChunkRange;
use haul_wire::limits::MAX_RANGES;

use crate::integrity::{self, Hash, Verified};
use crate::plan::ChunkLayout;

/// The verified chunks of one file, and which the journal lacks.
#[derive(Debug)]
pub struct Ledger {
    layout: ChunkLayout,
    /// 33 bytes a chunk, 2.1 MiB for the largest file.
    hashes: Vec<Option<Hash>>,
    missing: u32,
    unjournaled: Vec<u32>,
    /// Chunks read back from the medium; else empty.
    on_medium: Vec<bool>,
    found: u32,
    unread: BTreeMap<u32, Unread>,
}

/// Why a chunk has to be read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// Anybody may have changed an earlier run's chunk.
    Earlier,
    /// The file looks different from what was written.
    Doubted,
}

/// The change that a proof made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// New; chunks are still missing.
    Partial,
    /// None is missing; some have to be read first.
    Arrived,
    /// New, and the last one.
    Complete,
    /// Was there already.
    Duplicate,
}

impl Ledger {
    /// Begins a file of which nothing is there.
    pub fn new(layout: ChunkLayout) -> Self {
        let count = layout.count();
        Self {
            layout,
            hashes: vec![None; count as usize],
            missing: count,
            unjournaled: Vec::new(),
            on_medium: Vec::new(),
            found: 0,
            unread: BTreeMap::new(),
        }
    }

    /// Begins with an earlier journal's chunks; unknown ones are ignored. `journal_holds`: it stays; otherwise it is written
    /// anew.
    pub fn resume(layout: ChunkLayout, journaled: impl IntoIterator<Item = (u32, Hash)>, journal_holds: bool) -> Self {
        let mut ledger = Self::new(layout);
        for (chunk, hash) in journaled {
            if let Some(slot) = ledger.hashes.get_mut(chunk as usize) {
                if slot.is_none() {
                    ledger.missing -= 1;
                    if !journal_holds {
                        ledger.unjournaled.push(chunk);
                    }
                }
                *slot = Some(hash);
            }
        }
        ledger
    }

    /// The layout of the file.
    pub fn layout(&self) -> &ChunkLayout {
        &self.layout
    }

    /// Whether this chunk is not verified yet.
    pub fn is_missing(&self, chunk: u32) -> bool {
        self.hashes.get(chunk as usize).is_some_and(Option::is_none)
    }

    /// Enters a proof.
    pub fn record(&mut self, verified: Verified) -> Recorded {
        let slot = &mut self.hashes[verified.chunk() as usize];
        if slot.is_some() {
            return Recorded::Duplicate;
        }
        *slot = Some(verified.hash());
        self.missing -= 1;
        self.unjournaled.push(verified.chunk());
        match self.missing {
            0 if self.unread.is_empty() => Recorded::Complete,
            0 => Recorded::Arrived,
            _ => Recorded::Partial,
        }
    }

    /// Makes all chunks count only once read.
    pub fn read_all_again(&mut self) {
        self.unread = self.present().map(|(chunk, _)| (chunk, Unread::Earlier)).collect();
    }

    /// Makes chunks count only once read. Returns those that are there, with their hashes.
    pub fn doubt(&mut self, chunks: &[u32]) -> Vec<(u32, Hash)> {
        let there: Vec<(u32, Hash)> =
            chunks.iter().filter_map(|chunk| Some((*chunk, (*self.hashes.get(*chunk as usize)?)?))).collect();
        for (chunk, _) in &there {
            self.unread.entry(*chunk).or_insert(Unread::Doubted);
        }
        there
    }

    /// The chunks to be read, with their hashes.
    pub fn to_be_read(&self) -> Vec<(u32, Hash)> {
        self.present().filter(|(chunk, _)| self.unread.contains_key(chunk)).collect()
    }

    /// Why this chunk must be read; `None`: it counts.
    pub fn unread(&self, chunk: u32) -> Option<Unread> {
        self.unread.get(&chunk).copied()
    }

    /// Enters that a chunk stands there. Returns why it was read; `None`: without need, or lost.
    pub fn was_read(&mut self, verified: Verified) -> Option<Unread> {
        let chunk = verified.chunk();
        if self.hashes[chunk as usize] != Some(verified.hash()) {
            return None;
        }
        self.unread.remove(&chunk)
    }

    /// Enters that the medium gives it back. False: lost meanwhile.
    pub fn found_on_medium(&mut self, verified: Verified) -> bool {
        let chunk = verified.chunk() as usize;
        if self.hashes[chunk] != Some(verified.hash()) {
            return false;
        }
        if self.on_medium.is_empty() {
            self.on_medium = vec![false; self.hashes.len()];
        }
        let before = core::mem::replace(&mut self.on_medium[chunk], true);
        self.found += u32::from(!before);
        self.unread.remove(&verified.chunk());
        true
    }

    /// Whether the medium gave this chunk back.
    pub fn was_found(&self, chunk: u32) -> bool {
        self.on_medium.get(chunk as usize).is_some_and(|found| *found)
    }

    /// Whether nothing is missing or to be read.
    pub fn is_complete(&self) -> bool {
        self.missing == 0 && self.unread.is_empty()
    }

    /// Whether the medium gives everything back.
    pub fn is_on_medium(&self) -> bool {
        self.missing == 0 && self.found == self.layout.count()
    }

    /// Marks a chunk as missing: the journal is written anew with [`Ledger::journaled`]. False: it was missing.
    pub fn lose(&mut self, chunk: u32) -> bool {
        let Some(slot) = self.hashes.get_mut(chunk as usize) else { return false };
        if slot.take().is_none() {
            return false;
        }
        self.missing += 1;
        self.unread.remove(&chunk);
        if self.was_found(chunk) {
            self.on_medium[chunk as usize] = false;
            self.found -= 1;
        }
        self.unjournaled.retain(|unjournaled| *unjournaled != chunk);
        true
    }

    /// The verified chunks, in ascending order.
    pub fn present(&self) -> impl Iterator<Item = (u32, Hash)> + '_ {
        (0u32..).zip(&self.hashes).filter_map(|(chunk, hash)| Some((chunk, (*hash)?)))
    }

    /// Verified chunks not yet read back.
    pub fn to_be_found(&self) -> Vec<(u32, Hash)> {
        self.present().filter(|(chunk, _)| !self.was_found(*chunk)).collect()
    }

    /// The chunks of checkpoints that still hold.
    pub fn journaled(&self) -> Vec<(u32, Hash)> {
        let waiting: BTreeSet<u32> = self.unjournaled.iter().copied().collect();
        self.present().filter(|(chunk, _)| !waiting.contains(chunk)).collect()
    }

    /// Chunks still missing.
    pub fn missing(&self) -> u32 {
        self.missing
    }

    /// Missing chunks in ascending ranges, at most [`MAX_RANGES`]: the last gaps come again.
    pub fn missing_ranges(&self) -> Vec<ChunkRange> {
        let mut ranges: Vec<ChunkRange> = Vec::new();
        for (chunk, hash) in (0u32..).zip(&self.hashes) {
            if hash.is_some() {
                continue;
            }
            let full = ranges.len() == MAX_RANGES;
            match ranges.last_mut() {
                Some(last) if full || last.first + last.count == chunk => last.count = chunk + 1 - last.first,
                _ => ranges.push(ChunkRange { first: chunk, count: 1 }),
            }
        }
        ranges
    }

    /// Takes chunks for the journal, after a flush.
    pub fn take_unjournaled(&mut self) -> Vec<(u32, Hash)> {
        let chunks = core::mem::take(&mut self.unjournaled);
        chunks.into_iter().map(|chunk| (chunk, self.hashes[chunk as usize].expect("recorded"))).collect()
    }

    /// Whether a checkpoint would have anything to enter.
    pub fn has_unjournaled(&self) -> bool {
        !self.unjournaled.is_empty()
    }

    /// The BLAKE3 of a complete file.
    pub fn file_hash(&self) -> Option<Hash> {
        if !self.unread.is_empty() {
            return None;
        }
        let hashes: Option<Vec<Hash>> = self.hashes.iter().copied().collect();
        hashes.map(|hashes| integrity::file_hash(&self.layout, &hashes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(chunks: u64) -> ChunkLayout {
        ChunkLayout::of(chunks * haul_wire::limits::MIN_CHUNK_BYTES)
    }

    fn proof(chunk: u32) -> Verified {
        integrity::verify(chunk, [7; 32], [7; 32]).unwrap()
    }

    #[test]
    fn a_file_is_complete_with_its_last_chunk_in_any_order() {
        let mut ledger = Ledger::new(layout(3));
        assert_eq!(ledger.record(proof(2)), Recorded::Partial);
        assert_eq!(ledger.record(proof(0)), Recorded::Partial);
        assert_eq!(ledger.record(proof(0)), Recorded::Duplicate);
        assert_eq!(ledger.file_hash(), None);
        assert_eq!(ledger.missing_ranges(), [ChunkRange { first: 1, count: 1 }]);
        assert_eq!(ledger.record(proof(1)), Recorded::Complete);
        assert!(ledger.file_hash().is_some());
    }

    #[test]
    fn resumes_with_what_the_journal_vouches_for() {
        let mut ledger = Ledger::resume(layout(10), [(0, [1; 32]), (3, [1; 32]), (99, [1; 32])], true);
        assert_eq!(ledger.missing(), 8);
        assert_eq!(ledger.missing_ranges(), [ChunkRange { first: 1, count: 2 }, ChunkRange { first: 4, count: 6 }]);
        assert!(ledger.take_unjournaled().is_empty(), "what the journal holds is not entered again");
    }

    #[test]
    fn a_journal_that_claimed_too_much_is_written_anew() {
        let mut ledger = Ledger::resume(layout(3), [(1, [1; 32])], false);
        assert_eq!(ledger.take_unjournaled(), [(1, [1; 32])]);
    }

    #[test]
    fn a_checkpoint_enters_each_chunk_once() {
        let mut ledger = Ledger::new(layout(3));
        ledger.record(proof(1));
        assert_eq!(ledger.take_unjournaled(), [(1, [7; 32])]);
        assert!(!ledger.has_unjournaled());
        ledger.record(proof(2));
        assert_eq!(ledger.take_unjournaled(), [(2, [7; 32])]);
    }

    #[test]
    fn a_chunk_that_the_medium_lost_is_missing_until_it_was_read_back() {
        let mut ledger = Ledger::new(layout(3));
        (0..3).for_each(|chunk| _ = ledger.record(proof(chunk)));
        ledger.take_unjournaled();
        assert!(!ledger.is_on_medium());
        assert!((0..2).all(|chunk| ledger.found_on_medium(proof(chunk))));
        assert!(ledger.lose(2));
        assert!(!ledger.lose(2) && !ledger.lose(99));
        assert!(!ledger.found_on_medium(proof(2)), "what was read before it was lost");
        assert_eq!(ledger.missing_ranges(), [ChunkRange { first: 2, count: 1 }]);
        assert_eq!(ledger.journaled(), [(0, [7; 32]), (1, [7; 32])], "the journal is written anew, without it");
        assert_eq!(ledger.record(proof(2)), Recorded::Complete);
        assert!(!ledger.is_on_medium(), "written again, and not yet read back");
        assert_eq!(ledger.journaled().len(), 2, "and not flushed");
        assert_eq!(ledger.to_be_found(), [(2, [7; 32])]);
        assert!(ledger.found_on_medium(proof(2)));
        assert!(ledger.is_on_medium());
    }

    #[test]
    fn what_an_earlier_run_left_counts_once_it_was_read_again() {
        let mut ledger = Ledger::resume(layout(3), [(0, [7; 32]), (2, [7; 32])], true);
        ledger.read_all_again();
        assert_eq!(ledger.record(proof(1)), Recorded::Arrived);
        assert_eq!((ledger.file_hash(), ledger.to_be_read()), (None, alloc::vec![(0, [7; 32]), (2, [7; 32])]));
        let other = integrity::verify(0, [8; 32], [8; 32]).unwrap();
        assert_eq!(ledger.was_read(other), None, "another hash than it had");
        assert_eq!(ledger.was_read(proof(0)), Some(Unread::Earlier));
        assert_eq!(ledger.was_read(proof(0)), None);
        assert!(!ledger.is_complete());
        assert!(ledger.lose(2) && ledger.unread(2).is_none());
        assert_eq!(ledger.missing_ranges(), [ChunkRange { first: 2, count: 1 }]);
        assert_eq!(ledger.record(proof(2)), Recorded::Complete);
        assert_eq!(ledger.doubt(&[1, 99]), [(1, [7; 32])]);
        assert!(!ledger.is_complete());
        assert_eq!(ledger.was_read(proof(1)), Some(Unread::Doubted));
        assert!(ledger.is_complete() && ledger.file_hash().is_some());
    }

    #[test]
    fn scattered_gaps_are_rounded_up_to_the_limit() {
        let every_other = (0..20_000).step_by(2).map(|chunk| (chunk, [0; 32]));
        let ranges = Ledger::resume(layout(20_000), every_other, true).missing_ranges();
        assert_eq!(ranges.len(), MAX_RANGES);
        let last = ranges.last().unwrap();
        assert_eq!(last.first + last.count, 20_000);
    }
}
