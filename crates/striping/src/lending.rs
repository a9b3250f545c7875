//! What the leader of a sending end gives to its movers: chunks of large files, as fast as they ask for them.
//!
//! ```text
//!   Takes -> a run of chunks: flying -> Portion to the mover, and to the prover -> receipt
//!                                   `-> returned, or the mover is gone: back to the front, for this host alone
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use haul_engine::pace::share_of_rate;
use haul_engine::schedule::Unit;
use haul_engine::sending::{Offered, Sending};
use haul_wire::control::{ChunkRange, Control, MoverWord, Portion};
use haul_wire::lane::lane_of;
use haul_wire::limits::{MAX_MOVERS, MAX_OPEN_ITEMS, MAX_PATHS};

/// A file whose chunks movers may send.
pub trait Lendable: Offered {
    /// The chunks, as a mover is told.
    fn portion(&self, chunks: ChunkRange) -> Portion;
}

/// The work that movers of a sending end have.
pub struct Lending<F> {
    movers: BTreeMap<u16, Mover>,
    to_prove: VecDeque<ToProve<F>>,
}

struct Mover {
    takes: u32,
    /// The last time when the mover had nothing and was given something.
    busy_since: Instant,
}

/// A chunk to prove to the receiver.
#[derive(Clone)]
pub struct ToProve<F> {
    /// The file.
    pub file: F,
    /// The chunk, by the manifest.
    pub unit: Unit,
}

impl<F> Default for Lending<F> {
    fn default() -> Self {
        Self { movers: BTreeMap::new(), to_prove: VecDeque::new() }
    }
}

impl<F: Lendable + Clone> Lending<F> {
    /// Notes a mover's wish. Returns true for a new mover.
    pub fn takes(&mut self, path: u16, chunks: u32, now: Instant) -> bool {
        let is_new = !self.movers.contains_key(&path);
        let mover = self.movers.entry(path).or_insert(Mover { takes: 0, busy_since: now });
        mover.takes = mover.takes.saturating_add(chunks);
        is_new
    }

    /// Gives movers chunks, in turns. Returns what is to be sent.
    pub fn lend(&mut self, items: &mut Sending<F>, now: Instant) -> Vec<Control> {
        let paths: Vec<u16> = self.movers.keys().copied().collect();
        let mut said = Vec::new();
        loop {
            let before = said.len();
            said.extend(paths.iter().filter_map(|path| self.lend_to(*path, items, now)));
            if said.len() == before {
                return said;
            }
        }
    }

    fn lend_to(&mut self, path: u16, items: &mut Sending<F>, now: Instant) -> Option<Control> {
        let mover = self.movers.get_mut(&path).filter(|mover| mover.takes > 0)?;
        let lane = lane_of_mover(path);
        let has = items.carried_by(lane);
        let room = u32::try_from(MAX_LENT.saturating_sub(has)).unwrap_or(0);
        let (file, chunks) = items.take_run(lane, mover.takes.min(RUN_CHUNKS).min(room))?;
        mover.takes -= chunks.count;
        if has == 0 {
            mover.busy_since = now;
        }
        let portion = file.portion(chunks);
        let units = (chunks.first..chunks.first + chunks.count).map(|chunk| Unit { index: portion.index, chunk });
        self.to_prove.extend(units.map(|unit| ToProve { file: file.clone(), unit }));
        Some(Control::OfMover { path, word: MoverWord::Portion(portion) })
    }

    /// Takes chunks back from a mover.
    pub fn returned(&self, items: &mut Sending<F>, path: u16, index: u64, ranges: &[ChunkRange]) {
        let Ok(Some(count)) = items.open_file(index).map(|file| file.map(|file| file.layout().count())) else { return };
        for ChunkRange { first, count: many } in ranges {
            for chunk in *first..first.saturating_add(*many).min(count) {
                items.returned(Unit { index, chunk }, lane_of_mover(path));
            }
        }
    }

    /// Forgets a mover: the others get its chunks without receipts. Returns false if it had none.
    pub fn gone(&mut self, items: &mut Sending<F>, path: u16) -> bool {
        let was_there = self.movers.remove(&path).is_some();
        if was_there {
            items.lane_died(lane_of_mover(path));
        }
        was_there
    }

    /// Movers none of whose chunks has arrived for `limit`.
    pub fn silent(&self, items: &Sending<F>, receipts: &BTreeMap<u16, Instant>, limit: Duration) -> Vec<u16> {
        let is_silent = |(path, mover): (&u16, &Mover)| {
            let lane = lane_of_mover(*path);
            let last = receipts.get(&lane).map_or(mover.busy_since, |at| mover.busy_since.max(*at));
            (last.elapsed() > limit && items.carried_by(lane) > 0).then_some(*path)
        };
        self.movers.iter().filter_map(is_silent).collect()
    }

    /// Whether chunks wait for proof.
    pub fn has_to_prove(&self) -> bool {
        !self.to_prove.is_empty()
    }

    /// The next chunk to hash here, if still with its mover.
    pub fn next_to_prove(&mut self, items: &Sending<F>) -> Option<ToProve<F>> {
        loop {
            let next = self.to_prove.pop_front()?;
            if items.lane_of(next.unit).is_some() {
                return Some(next);
            }
        }
    }

    /// The leader's part of a rate: each mover that was asked for has its share.
    pub fn rate_of_leader(&self, rate_bytes_per_s: u64, movers_asked: u16) -> u64 {
        let share = share_of_rate(rate_bytes_per_s, movers_asked);
        let movers = u64::try_from(self.movers.len()).unwrap_or(u64::MAX);
        rate_bytes_per_s.saturating_sub(share.saturating_mul(movers)).max(share)
    }
}

impl<F: Lendable> Lendable for Arc<F> {
    fn portion(&self, chunks: ChunkRange) -> Portion {
        F::portion(self, chunks)
    }
}

/// Whether a path leads from a mover.
pub fn is_of_mover(path: u16) -> bool {
    (MAX_PATHS - MAX_MOVERS..MAX_PATHS).contains(&path)
}

/// Counts a mover's chunks as carried by its first lane.
fn lane_of_mover(path: u16) -> u16 {
    lane_of(path, 0)
}

/// Chunks of a portion: movers take turns, and a file is read in order.
const RUN_CHUNKS: u32 = 8;

/// The most chunks of one mover without a receipt.
const MAX_LENT: usize = MAX_OPEN_ITEMS;
