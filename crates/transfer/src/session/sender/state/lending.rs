//! What the leader of a sending end gives to its movers: chunks of large files, as fast as they ask for them.
//!
//! ```text
//!   Takes -> a run of chunks: flying -> Portion to the mover, and to the prover -> receipt
//!                                   `-> returned, or the mover is gone: back to the front, for this host alone
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use haul_engine::schedule::Unit;
use haul_job::Error;
use haul_wire::control::{ChunkProof, ChunkRange, Control, MoverWord, Portion};
use haul_wire::lane::lane_of;
use haul_wire::limits::{MAX_MOVERS, MAX_OPEN_ITEMS, MAX_PATHS};

use super::{Shared, SourceItem, State, broken};

/// Chunks in one portion: movers take turns, and a file is read from its front to its end.
const RUN_CHUNKS: u32 = 8;

/// Chunks that one mover may have without a receipt. One that asks for more is given no more.
const MAX_LENT: usize = MAX_OPEN_ITEMS;

#[derive(Default)]
pub(super) struct Lending {
    movers: BTreeMap<u16, Mover>,
    to_prove: VecDeque<ToProve>,
}

struct Mover {
    /// Chunks that it still takes.
    takes: u32,
    /// When it last had nothing and was given something.
    busy_since: Instant,
}

/// A chunk of which the receiver is to be told the hash.
pub(in crate::session::sender) struct ToProve {
    pub(in crate::session::sender) file: Arc<SourceItem>,
    pub(in crate::session::sender) unit: Unit,
}

/// All chunks of a mover count as carried by its first lane.
fn lane_of_mover(path: u16) -> u16 {
    lane_of(path, 0)
}

/// Whether a path leads from a mover.
pub(in crate::session::sender) fn is_of_mover(path: u16) -> bool {
    (MAX_PATHS - MAX_MOVERS..MAX_PATHS).contains(&path)
}

impl Shared {
    /// Whether other hosts of this end may send for it.
    fn lends(&self) -> bool {
        self.job.carriage.movers > 0 && !self.job.is_mover
    }

    /// Large files may be sent by movers, too.
    pub(super) fn share_before(&self, state: &mut State, index: u64) -> Result<(), Error> {
        if self.lends() && matches!(state.items.open_file(index), Ok(Some(_))) {
            state.items.share(index).map_err(broken)?;
        }
        Ok(())
    }

    /// A mover said something. True: it is a new one.
    pub(in crate::session::sender) fn on_mover_word(&self, path: u16, word: MoverWord) -> Result<bool, Error> {
        if !self.lends() || !is_of_mover(path) {
            return Err(Error::broke_the_protocol("it speaks for a host that is none of this end"));
        }
        let mut state = self.lock();
        match word {
            MoverWord::Takes { chunks } => {
                let is_new = !state.lending.movers.contains_key(&path);
                let mover = state.lending.movers.entry(path).or_insert(Mover { takes: 0, busy_since: Instant::now() });
                mover.takes = mover.takes.saturating_add(chunks);
                self.divide_rate(&state);
                self.lend(&mut state);
                Ok(is_new)
            }
            MoverWord::Returns { index, chunks } => {
                let Ok(Some(file)) = state.items.open_file(index) else { return Ok(false) };
                let count = file.layout.count();
                for ChunkRange { first, count: many } in chunks {
                    for chunk in first..first.saturating_add(many).min(count) {
                        state.items.returned(Unit { index, chunk }, lane_of_mover(path));
                    }
                }
                self.work.notify_all();
                Ok(false)
            }
            MoverWord::Portion(_) | MoverWord::Proofs(_) => {
                Err(Error::broke_the_protocol("a host that does not lead hands out work"))
            }
        }
    }

    /// A mover is no more: what it had without a receipt goes to the others.
    pub(in crate::session::sender) fn mover_gone(&self, path: u16) {
        let mut state = self.lock();
        if state.lending.movers.remove(&path).is_some() {
            state.items.lane_died(lane_of_mover(path));
            self.divide_rate(&state);
            self.work.notify_all();
        }
    }

    /// Movers that have chunks, and of whose chunks none has arrived for so long.
    pub(in crate::session::sender) fn silent_movers(&self, limit: Duration) -> Vec<u16> {
        let state = self.lock();
        let is_silent = |(path, mover): (&u16, &Mover)| {
            let lane = lane_of_mover(*path);
            let last = state.receipts.get(&lane).copied().map_or(mover.busy_since, |at| at.max(mover.busy_since));
            (last.elapsed() > limit && state.items.carried_by(lane) > 0).then_some(*path)
        };
        state.lending.movers.iter().filter_map(is_silent).collect()
    }

    /// Gives movers what they still take, in turns.
    pub(super) fn lend(&self, state: &mut State) {
        let paths: Vec<u16> = state.lending.movers.keys().copied().collect();
        let mut gave = true;
        while std::mem::take(&mut gave) {
            for path in &paths {
                let lane = lane_of_mover(*path);
                let Some(takes) = state.lending.movers.get(path).map(|mover| mover.takes).filter(|takes| *takes > 0)
                else {
                    continue;
                };
                let has = state.items.carried_by(lane);
                let room = u32::try_from(MAX_LENT.saturating_sub(has)).unwrap_or(0);
                let Some((file, chunks)) = state.items.take_run(lane, takes.min(RUN_CHUNKS).min(room)) else {
                    continue;
                };
                if let Some(mover) = state.lending.movers.get_mut(path) {
                    mover.takes -= chunks.count;
                    if has == 0 {
                        mover.busy_since = Instant::now();
                    }
                }
                let units = (chunks.first..chunks.first + chunks.count).map(|chunk| Unit { index: file.index, chunk });
                state.lending.to_prove.extend(units.map(|unit| ToProve { file: Arc::clone(&file), unit }));
                self.to_prove.notify_all();
                let portion = Portion {
                    index: file.index,
                    source: file.origin.source,
                    path: file.origin.path.clone(),
                    identity: file.identity,
                    chunks,
                };
                self.outbox.send(Control::OfMover { path: *path, word: MoverWord::Portion(portion) });
                gave = true;
            }
        }
    }

    /// The next chunk that is to be read and hashed here; `None` at the end. One that is not with a mover any more needs no proof.
    pub(in crate::session::sender) fn next_to_prove(&self) -> Option<ToProve> {
        let mut state = self.lock();
        loop {
            let is_idle = |state: &mut State| !state.finished && state.lending.to_prove.is_empty();
            state = self.to_prove.wait_while(state, is_idle).unwrap_or_else(PoisonError::into_inner);
            if state.finished {
                return None;
            }
            let next = state.lending.to_prove.pop_front().expect("it is not empty");
            if state.items.lane_of(next.unit).is_some() {
                return Some(next);
            }
        }
    }

    /// Tells the receiver what a chunk hashes to. It does not matter on which mover's behalf.
    pub(in crate::session::sender) fn proved(&self, unit: Unit, hash: [u8; 32]) {
        let Unit { index, chunk } = unit;
        self.outbox.proof(ChunkProof { index, chunk, hash });
    }

    /// Each mover has its share of the rate from the start; this host has the rest.
    fn divide_rate(&self, state: &State) {
        let (Some(paced), Some(rate)) = (&self.paced, self.job.carriage.rate_bytes_per_s) else { return };
        let share = rate / (u64::from(self.job.carriage.movers) + 1);
        let movers = u64::try_from(state.lending.movers.len()).unwrap_or(u64::MAX);
        paced.set_rate(rate.saturating_sub(share.saturating_mul(movers)).max(share));
    }
}
