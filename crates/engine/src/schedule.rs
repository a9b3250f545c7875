//! Which unit a lane carries next, and what becomes of the units of a lane that dies.
//!
//! Wanted -> taken by a lane -> receipt. A unit without receipt goes back to the front of the queue when its lane dies or its
//! data did not verify: there is no second recovery path.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use haul_wire::control::ChunkRange;

use crate::spread::{Places, Spread};

/// A lane's work at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unit {
    /// Manifest index of the file.
    pub index: u64,
    /// The chunk; 0 for a whole file.
    pub chunk: u32,
}

/// Tries for a unit until its file is given up.
pub const MAX_TRIES: u8 = 3;

/// Most chunks of a file repeated because of its medium: a disk with more bad places is no place for it.
pub const MAX_REPAIRS: u32 = 1024;

/// Where a lane leads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum To {
    /// To the host that settles names.
    #[default]
    Leader,
    /// To another host of this end: it writes new chunks of files that the leader has opened.
    Mover,
}

/// The queue of a sender.
#[derive(Debug, Default)]
pub struct Scheduler {
    queue: VecDeque<(u64, ChunkRange)>,
    /// Ranges that movers may write, too; never repeats.
    shared: VecDeque<(u64, ChunkRange)>,
    flying: BTreeMap<Unit, u16>,
    tries: BTreeMap<Unit, u8>,
    spread: Spread,
    places: Places,
}

/// The fate of an unverified unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The unit is queued again.
    Queued,
    /// The unit failed [`MAX_TRIES`] times.
    GiveUp,
    /// Not under way: the peer is confused.
    Unknown,
}

impl Scheduler {
    /// Queues a file or chunks of it.
    pub fn want(&mut self, index: u64, range: ChunkRange) {
        self.queue.push_back((index, range));
    }

    /// [`Scheduler::want`] for chunks that movers may write, too.
    pub fn share(&mut self, index: u64, range: ChunkRange) {
        self.shared.push_back((index, range));
    }

    /// Sets how chunks are spread over lanes.
    pub fn spread(&mut self, spread: Spread) {
        self.spread = spread;
    }

    /// A lane's next unit. Lanes to the leader first take what only they may.
    pub fn take(&mut self, lane: u16, to: To) -> Option<Unit> {
        let queue = if is_shared(&self.queue, to) { &mut self.shared } else { &mut self.queue };
        let (index, chunk) = self.places.take(lane, queue, self.spread)?;
        let unit = Unit { index, chunk };
        self.flying.insert(unit, lane);
        Some(unit)
    }

    /// The end of a lane's run: the file's index, and the next chunk. `None`: no run.
    pub fn run_of(&self, lane: u16) -> Option<(u64, u32)> {
        self.places.run_of(lane, &self.queue).or_else(|| self.places.run_of(lane, &self.shared))
    }

    /// Frees a lane's place.
    pub fn leaves(&mut self, lane: u16) {
        self.places.leave(lane);
    }

    /// Takes chunks of one file for a mover, at most so many.
    pub fn take_run(&mut self, lane: u16, most: u32) -> Option<(u64, ChunkRange)> {
        let (index, range) = self.shared.front_mut()?;
        let run = ChunkRange { first: range.first, count: range.count.min(most) };
        let index = *index;
        range.first += run.count;
        range.count -= run.count;
        if range.count == 0 {
            self.shared.pop_front();
        }
        self.flying.extend((run.first..run.first + run.count).map(|chunk| (Unit { index, chunk }, lane)));
        Some((index, run))
    }

    /// Puts an uncarried unit back in front. False: not this lane's.
    pub fn returned(&mut self, unit: Unit, lane: u16) -> bool {
        let had = self.flying.get(&unit) == Some(&lane);
        if had {
            self.flying.remove(&unit);
            self.put_back(unit);
        }
        had
    }

    /// How many units this lane carries.
    pub fn carried_by(&self, lane: u16) -> usize {
        self.carried_units(lane).count()
    }

    /// The units that this lane carries.
    pub fn carried_units(&self, lane: u16) -> impl Iterator<Item = Unit> {
        self.flying.iter().filter(move |(_, by)| **by == lane).map(|(unit, _)| *unit)
    }

    /// Whether such a lane carries a unit.
    pub fn is_carried(&self, by: impl Fn(u16) -> bool) -> bool {
        self.flying.values().any(|lane| by(*lane))
    }

    fn queue_for(&mut self, to: To) -> &mut VecDeque<(u64, ChunkRange)> {
        if is_shared(&self.queue, to) { &mut self.shared } else { &mut self.queue }
    }

    /// The next range: the file's index, and waiting chunks.
    pub fn next_range(&mut self, to: To) -> Option<(u64, u32)> {
        self.queue_for(to).front().map(|(index, range)| (*index, range.count))
    }

    /// Whether nothing waits for such a lane.
    pub fn has_none(&self, to: To) -> bool {
        self.shared.is_empty() && (to == To::Mover || self.queue.is_empty())
    }

    /// Whether nothing waits for this lane.
    pub fn has_none_for(&self, lane: u16, to: To) -> bool {
        let queue = if is_shared(&self.queue, to) { &self.shared } else { &self.queue };
        !self.places.has_some(lane, queue, self.spread)
    }

    /// The waiting units, in the order of taking.
    pub fn waiting(&self) -> impl Iterator<Item = Unit> {
        let units = |(index, range): &(u64, ChunkRange)| {
            let index = *index;
            (range.first..range.first.saturating_add(range.count)).map(move |chunk| Unit { index, chunk })
        };
        self.queue.iter().chain(&self.shared).flat_map(units)
    }

    /// Waiting files; each repeated part counts.
    pub fn files_waiting(&self) -> usize {
        self.queue.len() + self.shared.len()
    }

    /// Whether the queue is empty.
    pub fn is_drained(&self) -> bool {
        self.queue.is_empty() && self.shared.is_empty()
    }

    /// Units under way.
    pub fn flying(&self) -> usize {
        self.flying.len()
    }

    /// The lane that carries this unit.
    pub fn lane_of(&self, unit: Unit) -> Option<u16> {
        self.flying.get(&unit).copied()
    }

    /// Enters a receipt. False: not under way.
    pub fn receipt(&mut self, unit: Unit) -> bool {
        self.tries.remove(&unit);
        self.flying.remove(&unit).is_some()
    }

    /// Queues an unverified unit, or gives it up.
    pub fn again(&mut self, unit: Unit) -> Retry {
        if self.flying.remove(&unit).is_none() {
            return Retry::Unknown;
        }
        let tries = self.tries.entry(unit).or_insert(1);
        if *tries >= MAX_TRIES {
            self.tries.remove(&unit);
            return Retry::GiveUp;
        }
        *tries += 1;
        self.put_back(unit);
        Retry::Queued
    }

    /// Queues a unit that the target lost. The caller bounds how often.
    pub fn repair(&mut self, unit: Unit) {
        self.flying.remove(&unit);
        self.put_back(unit);
    }

    /// Puts a dead lane's units in front, and returns them.
    pub fn lane_died(&mut self, lane: u16) -> Vec<Unit> {
        self.places.leave(lane);
        let lost: Vec<Unit> = self.flying.iter().filter(|(_, by)| **by == lane).map(|(unit, _)| *unit).collect();
        for unit in lost.iter().rev() {
            self.flying.remove(unit);
            self.put_back(*unit);
        }
        lost
    }

    /// Forgets a file that failed or changed.
    pub fn forget(&mut self, index: u64) {
        self.queue.retain(|(queued, _)| *queued != index);
        self.shared.retain(|(queued, _)| *queued != index);
        self.settled(index);
    }

    /// Forgets a complete file, whose last receipts will not come.
    pub fn settled(&mut self, index: u64) {
        self.places.forget(index);
        let all = Unit { index, chunk: 0 }..=Unit { index, chunk: u32::MAX };
        let units: Vec<Unit> = self.flying.range(all.clone()).map(|(unit, _)| *unit).collect();
        for unit in units {
            self.flying.remove(&unit);
        }
        let tried: Vec<Unit> = self.tries.range(all).map(|(unit, _)| *unit).collect();
        for unit in tried {
            self.tries.remove(&unit);
        }
    }

    fn put_back(&mut self, unit: Unit) {
        self.queue.push_front((unit.index, ChunkRange { first: unit.chunk, count: 1 }));
    }
}

fn is_shared(queue: &VecDeque<(u64, ChunkRange)>, to: To) -> bool {
    to == To::Mover || queue.is_empty()
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;

    fn chunks(first: u32, count: u32) -> ChunkRange {
        ChunkRange { first, count }
    }

    #[test]
    fn large_and_small_files_are_carried_in_the_order_asked_for() {
        let mut scheduler = Scheduler::default();
        scheduler.want(0, chunks(0, 2));
        scheduler.want(1, chunks(0, 1));
        let taken: Vec<Unit> = core::iter::from_fn(|| scheduler.take(0, To::Leader)).collect();
        assert_eq!(taken, [Unit { index: 0, chunk: 0 }, Unit { index: 0, chunk: 1 }, Unit { index: 1, chunk: 0 }]);
        assert!(scheduler.is_drained());
    }

    #[test]
    fn resumes_after_lane_loss_without_resending_receipted_chunks() {
        let mut scheduler = Scheduler::default();
        scheduler.want(9, chunks(0, 6));
        let mine: Vec<Unit> = (0..3).filter_map(|_| scheduler.take(0, To::Leader)).collect();
        let others: Vec<Unit> = (0..2).filter_map(|_| scheduler.take(1, To::Leader)).collect();
        assert!(scheduler.receipt(mine[1]));
        assert_eq!(scheduler.lane_died(0), vec![mine[0], mine[2]]);
        let rest: Vec<Unit> = core::iter::from_fn(|| scheduler.take(1, To::Leader)).collect();
        assert_eq!(rest, [mine[0], mine[2], Unit { index: 9, chunk: 5 }]);
        assert!(others.into_iter().all(|unit| scheduler.receipt(unit)));
    }

    #[test]
    fn a_chunk_that_never_verifies_is_given_up_after_three_tries() {
        let mut scheduler = Scheduler::default();
        scheduler.want(1, chunks(4, 1));
        let unit = scheduler.take(0, To::Leader).unwrap();
        assert_eq!(scheduler.again(unit), Retry::Queued);
        assert_eq!(scheduler.again(unit), Retry::Unknown);
        scheduler.take(0, To::Leader);
        assert_eq!(scheduler.again(unit), Retry::Queued);
        scheduler.take(0, To::Leader);
        assert_eq!(scheduler.again(unit), Retry::GiveUp);
        assert_eq!(scheduler.take(0, To::Leader), None);
    }

    #[test]
    fn a_chunk_that_was_lost_after_its_receipt_is_carried_once_more_and_first() {
        let mut scheduler = Scheduler::default();
        scheduler.want(1, chunks(0, 2));
        let unit = scheduler.take(0, To::Leader).unwrap();
        assert!(scheduler.receipt(unit));
        scheduler.repair(unit);
        assert_eq!(scheduler.take(1, To::Leader), Some(unit));
        assert!(scheduler.receipt(unit));
        assert_eq!(scheduler.take(1, To::Leader), Some(Unit { index: 1, chunk: 1 }));
        assert_eq!(scheduler.take(1, To::Leader), None);
    }

    #[test]
    fn a_mover_gets_fresh_chunks_of_shared_files_and_what_goes_again_is_for_the_leader() {
        let mut scheduler = Scheduler::default();
        scheduler.want(0, chunks(0, 1));
        scheduler.share(1, chunks(0, 3));
        let (leader, mover) = (0, 7 << 8);
        let first = Unit { index: 1, chunk: 0 };
        assert_eq!(scheduler.take(mover, To::Mover), Some(first));
        assert_eq!(scheduler.take(leader, To::Leader), Some(Unit { index: 0, chunk: 0 }), "nobody else may have it");
        assert_eq!(scheduler.take(mover, To::Mover), Some(Unit { index: 1, chunk: 1 }));
        assert_eq!(scheduler.lane_died(mover), [first, Unit { index: 1, chunk: 1 }]);
        assert_eq!(scheduler.take(mover, To::Mover), Some(Unit { index: 1, chunk: 2 }));
        assert!(scheduler.has_none(To::Mover) && !scheduler.has_none(To::Leader));
        assert_eq!(scheduler.take(leader, To::Leader), Some(first));
        assert_eq!(scheduler.again(Unit { index: 1, chunk: 2 }), Retry::Queued);
        assert_eq!(scheduler.take(mover, To::Mover), None);
        scheduler.share(2, chunks(0, 2));
        scheduler.forget(2);
        assert!(scheduler.has_none(To::Mover));
    }

    #[test]
    fn a_mover_gets_runs_of_chunks_and_gives_back_only_what_it_has() {
        let mut scheduler = Scheduler::default();
        scheduler.share(1, chunks(0, 5));
        scheduler.share(2, chunks(7, 2));
        let (leader, mover) = (0, 7 << 8);
        assert_eq!(scheduler.take_run(mover, 3), Some((1, chunks(0, 3))));
        assert_eq!(scheduler.take_run(mover, 9), Some((1, chunks(3, 2))), "of one file at a time");
        assert_eq!(scheduler.take_run(mover, 9), Some((2, chunks(7, 2))));
        assert_eq!((scheduler.take_run(mover, 9), scheduler.carried_by(mover)), (None, 7));
        let unit = Unit { index: 1, chunk: 2 };
        assert!(scheduler.returned(unit, mover) && !scheduler.returned(unit, mover));
        assert_eq!((scheduler.take_run(mover, 9), scheduler.take(leader, To::Leader)), (None, Some(unit)));
        assert!(!scheduler.returned(unit, mover), "another lane has it");
    }

    #[test]
    fn a_forgotten_file_leaves_nothing_behind() {
        let mut scheduler = Scheduler::default();
        scheduler.want(1, chunks(0, 5));
        scheduler.want(2, chunks(0, 1));
        scheduler.take(0, To::Leader);
        scheduler.forget(1);
        assert_eq!(scheduler.flying(), 0);
        assert_eq!(scheduler.take(0, To::Leader), Some(Unit { index: 2, chunk: 0 }));
    }

    proptest! {
        #[test]
        fn every_unit_arrives_whatever_lanes_do(files in 1u64..8, events in proptest::collection::vec((0u16..4, 0u8..4), 1..300)) {
            let mut scheduler = Scheduler::default();
            for index in 0..files {
                scheduler.want(index, chunks(0, 5));
            }
            let mut arrived = alloc::collections::BTreeSet::new();
            let mut carried: Vec<(u16, Unit)> = Vec::new();
            for (lane, event) in events {
                match event {
                    0 => { scheduler.lane_died(lane); carried.retain(|(by, _)| *by != lane); }
                    1 => if let Some(at) = carried.iter().position(|(by, _)| *by == lane) {
                        let (_, unit) = carried.remove(at);
                        prop_assert!(scheduler.receipt(unit));
                        prop_assert!(arrived.insert(unit), "sent again after its receipt");
                    },
                    _ => if let Some(unit) = scheduler.take(lane, To::Leader) { carried.push((lane, unit)); },
                }
            }
            for (_, unit) in carried.drain(..) {
                scheduler.receipt(unit);
                arrived.insert(unit);
            }
            while let Some(unit) = scheduler.take(0, To::Leader) {
                scheduler.receipt(unit);
                prop_assert!(arrived.insert(unit));
            }
            prop_assert_eq!(arrived.len() as u64, files * 5);
        }
    }
}
