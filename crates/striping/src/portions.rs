//! What a mover of a sending end was given, and what it asks for.
//!
//! Each portion is an item with the leader's number of its file, until each chunk has its receipt or was given back.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use haul_engine::schedule::Unit;
use haul_engine::sending::{Broken, Offered, Sending};
use haul_wire::control::{ChunkRange, Control, MoverWord, Portion, Wanted};
use haul_wire::limits::{MAX_OPEN_ITEMS, MAX_RANGES};

/// A sending mover's portions.
pub struct Portions<F> {
    local: BTreeMap<Unit, u64>,
    left: BTreeMap<u64, u32>,
    files: BTreeMap<u64, F>,
    asked: u32,
    ahead: u32,
    /// A lane found nothing while chunks were on their way: more have to wait.
    starved: bool,
}

impl<F> Default for Portions<F> {
    fn default() -> Self {
        let (local, left, files) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { local, left, files, asked: 0, ahead: AHEAD_AT_FIRST, starved: false }
    }
}

impl<F: Offered + Clone> Portions<F> {
    /// The file, if partly here.
    pub fn file(&self, index: u64) -> Option<&F> {
        self.files.get(&index)
    }

    /// The item of an open chunk.
    pub fn item_of(&self, unit: Unit) -> Option<u64> {
        self.local.get(&unit).copied()
    }

    /// Takes a portion of a found file.
    ///
    /// # Errors
    /// The leader gives what does not exist, or more than was asked for.
    pub fn take_on(&mut self, items: &mut Sending<F>, portion: &Portion, file: F) -> Result<(), Broken> {
        let ChunkRange { first, count } = portion.chunks;
        let end = first.checked_add(count).filter(|end| *end <= file.layout().count() && count > 0);
        let end = end.ok_or(Broken("it gives chunks that do not exist"))?;
        self.asked = self.asked.checked_sub(count).ok_or(Broken("it gives more than was asked for"))?;
        self.adapt(self.waiting(items.flying()));
        let units = || (first..end).map(|chunk| Unit { index: portion.index, chunk });
        if units().any(|unit| self.local.contains_key(&unit)) {
            return Err(Broken("it gives a chunk twice"));
        }
        self.files.insert(portion.index, file.clone());
        let local = items.push(Some(file), 0);
        self.local.extend(units().map(|unit| (unit, local)));
        self.left.insert(local, count);
        items.want(local, &Wanted::Chunks(vec![portion.chunks])).map(drop)
    }

    /// Notes a receipt. Returns the lane that carried the chunk, if one did; the outer `None`: the chunk was not here.
    ///
    /// # Errors
    /// The chunk cannot be settled.
    pub fn arrived(&mut self, items: &mut Sending<F>, unit: Unit) -> Result<Option<Option<u16>>, Broken> {
        let Some((local, is_last)) = self.done(unit) else { return Ok(None) };
        let lane = items.on_receipt(Unit { index: local, ..unit });
        if is_last {
            items.settle(local, false)?;
        }
        Ok(Some(lane))
    }

    /// Gives a file back. Returns what is to be said.
    pub fn give_back(&mut self, items: &mut Sending<F>, index: u64) -> Vec<Control> {
        let units: Vec<Unit> = self.local.range(all_of(index)).map(|(unit, _)| *unit).collect();
        let mut chunks: Vec<ChunkRange> = Vec::new();
        for unit in units {
            if let Some((local, true)) = self.done(unit) {
                items.withdraw(local);
                let _ = items.settle(local, true);
            }
            match chunks.last_mut() {
                Some(last) if last.first + last.count == unit.chunk => last.count += 1,
                _ => chunks.push(ChunkRange { first: unit.chunk, count: 1 }),
            }
        }
        chunks.chunks(MAX_RANGES).map(|chunks| returns(index, chunks.to_vec())).collect()
    }

    /// Declines a portion. Returns what is to be said.
    pub fn decline(&mut self, portion: &Portion) -> Control {
        self.asked = self.asked.saturating_sub(portion.chunks.count);
        returns(portion.index, vec![portion.chunks])
    }

    /// Asks for more once half is taken. `found_nothing`: a lane did.
    pub fn ask_for_more(&mut self, items: &Sending<F>, found_nothing: bool) -> Option<Control> {
        self.starved |= found_nothing && self.asked > 0;
        let chunks = self.wants(items.flying())?;
        Some(Control::OfMover { path: PATH_OF_LEADER, word: MoverWord::Takes { chunks } })
    }

    fn waiting(&self, flying: usize) -> u32 {
        u32::try_from(self.local.len().saturating_sub(flying)).unwrap_or(u32::MAX)
    }

    /// Adapts the stock, which is to last until more has come. A lane that begins takes much at once; later fewer wait, since
    /// other hosts could send them at the job's end.
    fn adapt(&mut self, waiting: u32) {
        if std::mem::take(&mut self.starved) {
            self.ahead = (self.ahead * 2).min(AHEAD_AT_MOST);
        } else if waiting > self.ahead / 4 {
            self.ahead = (self.ahead - self.ahead / 8).max(AHEAD_AT_FIRST);
        }
    }

    fn wants(&mut self, flying: usize) -> Option<u32> {
        let waiting = self.waiting(flying);
        let in_hand = waiting.saturating_add(self.asked);
        if in_hand > self.ahead / 2 || self.local.len() >= MAX_OPEN_ITEMS {
            return None;
        }
        let chunks = self.ahead - in_hand;
        self.asked += chunks;
        Some(chunks)
    }

    /// Finishes a chunk. Returns true for the last one of its item.
    fn done(&mut self, unit: Unit) -> Option<(u64, bool)> {
        let local = self.local.remove(&unit)?;
        let left = self.left.get_mut(&local)?;
        *left -= 1;
        let is_last = *left == 0;
        if is_last {
            self.left.remove(&local);
        }
        if self.local.range(all_of(unit.index)).next().is_none() {
            self.files.remove(&unit.index);
        }
        Some((local, is_last))
    }
}

fn returns(index: u64, chunks: Vec<ChunkRange>) -> Control {
    Control::OfMover { path: PATH_OF_LEADER, word: MoverWord::Returns { index, chunks } }
}

fn all_of(index: u64) -> RangeInclusive<Unit> {
    Unit { index, chunk: 0 }..=Unit { index, chunk: u32::MAX }
}

/// The host that passes the word on enters the mover's path.
const PATH_OF_LEADER: u16 = 0;

/// Chunks that wait at first: of 1 MiB each, a round trip and a half at 1 Gbit/s x 20 ms.
const AHEAD_AT_FIRST: u32 = 4;

/// The most chunks that wait: 10 Gbit/s x 300 ms, two round trips, are 715 chunks of 1 MiB.
const AHEAD_AT_MOST: u32 = 1024;

#[cfg(test)]
mod tests {
    use haul_engine::plan::ChunkLayout;

    use super::*;

    #[derive(Clone)]
    struct File;

    impl Offered for File {
        fn layout(&self) -> ChunkLayout {
            ChunkLayout::of(0)
        }
    }

    #[test]
    fn more_waits_where_lanes_starve_and_less_where_it_is_not_needed() {
        let mut portions = Portions::<File>::default();
        assert_eq!((portions.wants(0), portions.wants(0)), (Some(AHEAD_AT_FIRST), None), "it has asked already");
        for _ in 0..20 {
            portions.starved = true;
            portions.adapt(0);
        }
        assert_eq!(portions.ahead, AHEAD_AT_MOST);
        portions.adapt(AHEAD_AT_MOST / 4);
        assert_eq!(portions.ahead, AHEAD_AT_MOST, "they last just long enough");
        for _ in 0..100 {
            portions.adapt(AHEAD_AT_MOST);
        }
        assert!(portions.ahead < 8, "{}", portions.ahead);
    }
}
