//! What a mover of a sending end was given, and what it asks for.
//!
//! Each portion is an item of its own here, with the number that the leader gave to its file for the lanes. It is gone when each of its chunks
//! has its receipt, or was given back.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use haul_engine::schedule::Unit;
use haul_engine::sending::{Broken, Offered, Sending};
use haul_wire::control::{ChunkRange, Control, MoverWord, Portion, Wanted};
use haul_wire::limits::{MAX_OPEN_ITEMS, MAX_RANGES};

/// The work that a mover of a sending end was given.
pub struct Portions<F> {
    /// The item of each chunk that has no receipt.
    local: BTreeMap<Unit, u64>,
    /// Chunks without receipt of each item.
    left: BTreeMap<u64, u32>,
    /// The files of these, by the number of the leader.
    files: BTreeMap<u64, F>,
    /// Chunks that were asked for and have not come.
    asked: u32,
    /// So many are to wait here.
    ahead: u32,
    /// A lane found nothing while chunks were on their way: more have to wait here.
    starved: bool,
}

impl<F> Default for Portions<F> {
    fn default() -> Self {
        let (local, left, files) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { local, left, files, asked: 0, ahead: AHEAD_AT_FIRST, starved: false }
    }
}

impl<F: Offered + Clone> Portions<F> {
    /// The file of this number, if something of it is here.
    pub fn file(&self, index: u64) -> Option<&F> {
        self.files.get(&index)
    }

    /// The item of a chunk that has no receipt; the chunk has the number of the leader.
    pub fn item_of(&self, unit: Unit) -> Option<u64> {
        self.local.get(&unit).copied()
    }

    /// The leader gave this to this host, which has found the file.
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

    /// The receiver has a chunk. Returns the lane that carried it, if one did; `None` outside of that: the chunk was not here.
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

    /// This host cannot send a file as it was listed. Returns what is to be said: what it has of it goes to the others.
    pub fn give_back(&mut self, items: &mut Sending<F>, index: u64) -> Vec<Control> {
        let units: Vec<Unit> = self.local.range(all_of(index)).map(|(unit, _)| *unit).collect();
        let mut chunks: Vec<ChunkRange> = Vec::new();
        for unit in units {
            if let Some((local, true)) = self.done(unit) {
                items.withdraw(local);
                // It is open: nothing of it was settled.
                let _ = items.settle(local, true);
            }
            match chunks.last_mut() {
                Some(last) if last.first + last.count == unit.chunk => last.count += 1,
                _ => chunks.push(ChunkRange { first: unit.chunk, count: 1 }),
            }
        }
        chunks.chunks(MAX_RANGES).map(|chunks| returns(index, chunks.to_vec())).collect()
    }

    /// What was asked for will not be carried here. Returns what is to be said.
    pub fn decline(&mut self, portion: &Portion) -> Control {
        self.asked = self.asked.saturating_sub(portion.chunks.count);
        returns(portion.index, vec![portion.chunks])
    }

    /// Asks for more once half of what shall wait is taken. `found_nothing`: a lane did.
    pub fn ask_for_more(&mut self, items: &Sending<F>, found_nothing: bool) -> Option<Control> {
        self.starved |= found_nothing && self.asked > 0;
        let chunks = self.wants(items.flying())?;
        Some(Control::OfMover { path: PATH_OF_LEADER, word: MoverWord::Takes { chunks } })
    }

    /// Chunks that no lane has taken, when so many are on lanes.
    fn waiting(&self, flying: usize) -> u32 {
        u32::try_from(self.local.len().saturating_sub(flying)).unwrap_or(u32::MAX)
    }

    /// Chunks come, while so many wait. What waits is to last until more has come. A lane that begins takes much at once; later fewer do,
    /// and what waits here at the end of the job other hosts could send.
    fn adapt(&mut self, waiting: u32) {
        if std::mem::take(&mut self.starved) {
            self.ahead = (self.ahead * 2).min(AHEAD_AT_MOST);
        } else if waiting > self.ahead / 4 {
            self.ahead = (self.ahead - self.ahead / 8).max(AHEAD_AT_FIRST);
        }
    }

    /// How many chunks to ask for now, when so many are on lanes.
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

    /// A chunk of an item is done with. True: it was the last one of its item.
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

/// These chunks are for others.
fn returns(index: u64, chunks: Vec<ChunkRange>) -> Control {
    Control::OfMover { path: PATH_OF_LEADER, word: MoverWord::Returns { index, chunks } }
}

fn all_of(index: u64) -> RangeInclusive<Unit> {
    Unit { index, chunk: 0 }..=Unit { index, chunk: u32::MAX }
}

/// Who passes the word on enters the path of the mover.
const PATH_OF_LEADER: u16 = 0;

/// Chunks that wait for a lane at first. On a path of 1 Gbit/s x 20 ms, 1 MiB each, they last a round trip and a half.
const AHEAD_AT_FIRST: u32 = 4;

/// And at most: 10 Gbit/s x 300 ms, two round trips from the request to the chunk, are 715 chunks of 1 MiB.
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
