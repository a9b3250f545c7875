//! What a mover of a sending end was given, and what it asks for.
//!
//! Each portion is an item of its own here, with the number that the leader gave to its file for the lanes. It is gone when each of its chunks
//! has its receipt, or was given back.

use std::collections::BTreeMap;
use std::sync::Arc;

use haul_engine::schedule::Unit;
use haul_job::Error;
use haul_wire::control::{ChunkRange, Control, MoverWord, Portion, Void, Wanted};
use haul_wire::limits::MAX_OPEN_ITEMS;

use super::{Shared, SourceItem, State, broken};

/// Chunks that wait for a lane at first. On a path of 1 Gbit/s x 20 ms, 1 MiB each, they last a round trip and a half.
const AHEAD_AT_FIRST: u32 = 4;

/// And at most: 10 Gbit/s x 300 ms, two round trips from the request to the chunk, are 715 chunks of 1 MiB.
const AHEAD_AT_MOST: u32 = 1024;

pub(super) struct Portions {
    /// The item of each chunk that has no receipt.
    local: BTreeMap<Unit, u64>,
    /// Chunks without receipt of each item.
    left: BTreeMap<u64, u32>,
    /// The files of these, by the number of the leader.
    files: BTreeMap<u64, Arc<SourceItem>>,
    /// Chunks that were asked for and have not come.
    asked: u32,
    /// So many are to wait here.
    ahead: u32,
    /// A lane found nothing while chunks were on their way: more have to wait here.
    starved: bool,
}

impl Default for Portions {
    fn default() -> Self {
        let (local, left, files) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { local, left, files, asked: 0, ahead: AHEAD_AT_FIRST, starved: false }
    }
}

impl Portions {
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

fn all_of(index: u64) -> std::ops::RangeInclusive<Unit> {
    Unit { index, chunk: 0 }..=Unit { index, chunk: u32::MAX }
}

impl Shared {
    /// The file of a portion, as far as it is known here.
    pub(in crate::session::sender) fn file_of(&self, portion: &Portion) -> Arc<SourceItem> {
        let known = self.lock().portions.files.get(&portion.index).cloned();
        let is_same = |file: &Arc<SourceItem>| file.identity == portion.identity && file.origin.path == portion.path;
        known.filter(is_same).unwrap_or_else(|| SourceItem::of_portion(portion))
    }

    /// The leader gave this to this host, which has found the file.
    pub(in crate::session::sender) fn take_on(&self, portion: &Portion, file: Arc<SourceItem>) -> Result<(), Error> {
        let ChunkRange { first, count } = portion.chunks;
        let end = first.checked_add(count).filter(|end| *end <= file.layout.count() && count > 0);
        let end = end.ok_or_else(|| Error::broke_the_protocol("it gives chunks that do not exist"))?;
        let mut state = self.lock();
        let state = &mut *state;
        let portions = &mut state.portions;
        portions.asked = portions
            .asked
            .checked_sub(count)
            .ok_or_else(|| Error::broke_the_protocol("it gives more than was asked for"))?;
        let waiting = portions.waiting(state.items.flying());
        portions.adapt(waiting);
        let units = || (first..end).map(|chunk| Unit { index: portion.index, chunk });
        if units().any(|unit| portions.local.contains_key(&unit)) {
            return Err(Error::broke_the_protocol("it gives a chunk twice"));
        }
        portions.files.insert(portion.index, Arc::clone(&file));
        let local = state.items.push(Some(file), 0);
        portions.local.extend(units().map(|unit| (unit, local)));
        portions.left.insert(local, count);
        state.items.want(local, &Wanted::Chunks(vec![portion.chunks])).map_err(broken)?;
        self.ask_for_more(state, false);
        self.count_move();
        self.work.notify_all();
        Ok(())
    }

    /// The receiver has it.
    pub(in crate::session::sender) fn portion_arrived(&self, unit: Unit) -> Result<(), Error> {
        let mut state = self.lock();
        let state = &mut *state;
        let Some((local, is_last)) = state.portions.done(unit) else { return Ok(()) };
        self.count_move();
        if let Some(lane) = state.items.on_receipt(Unit { index: local, ..unit }) {
            state.receipts.insert(lane, std::time::Instant::now());
        }
        if is_last {
            state.items.settle(local, false).map_err(broken)?;
        }
        self.ask_for_more(state, false);
        Ok(())
    }

    /// See [`Shared::void`]; the chunk has the number of the leader.
    pub(in crate::session::sender) fn portion_void(&self, void: &Void) -> Result<(), Error> {
        let unit = Unit { index: void.index, chunk: void.chunk };
        let local = self.lock().portions.local.get(&unit).copied();
        local.map_or(Ok(()), |index| self.void(&Void { index, ..*void }))
    }

    /// This host cannot send this file as it was listed: what it has of it goes to the others.
    pub(super) fn give_back(&self, index: u64) {
        let mut state = self.lock();
        let state = &mut *state;
        let units: Vec<Unit> = state.portions.local.range(all_of(index)).map(|(unit, _)| *unit).collect();
        let mut chunks: Vec<ChunkRange> = Vec::new();
        for unit in units {
            if let Some((local, true)) = state.portions.done(unit) {
                state.items.withdraw(local);
                // It is open: nothing of it was settled.
                let _ = state.items.settle(local, true);
            }
            match chunks.last_mut() {
                Some(last) if last.first + last.count == unit.chunk => last.count += 1,
                _ => chunks.push(ChunkRange { first: unit.chunk, count: 1 }),
            }
        }
        self.returns(index, chunks);
        self.ask_for_more(state, false);
    }

    /// These chunks are for others.
    pub(in crate::session::sender) fn returns(&self, index: u64, chunks: Vec<ChunkRange>) {
        for chunks in chunks.chunks(haul_wire::limits::MAX_RANGES) {
            self.outbox.send(Control::OfMover { path: 0, word: MoverWord::Returns { index, chunks: chunks.to_vec() } });
        }
    }

    /// What was asked for and will not be carried here.
    pub(in crate::session::sender) fn declines(&self, portion: &Portion) {
        let mut state = self.lock();
        state.portions.asked = state.portions.asked.saturating_sub(portion.chunks.count);
        self.returns(portion.index, vec![portion.chunks]);
        self.ask_for_more(&mut state, false);
    }

    /// On a mover: asks for more once half of what shall wait is taken.
    pub(in crate::session::sender) fn ask(&self) {
        self.ask_for_more(&mut self.lock(), false);
    }

    pub(super) fn ask_for_more(&self, state: &mut State, found_nothing: bool) {
        if !self.job.is_mover {
            return;
        }
        let flying = state.items.flying();
        state.portions.starved |= found_nothing && state.portions.asked > 0;
        if let Some(chunks) = state.portions.wants(flying) {
            self.outbox.send(Control::OfMover { path: 0, word: MoverWord::Takes { chunks } });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_waits_where_lanes_starve_and_less_where_it_is_not_needed() {
        let mut portions = Portions::default();
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
