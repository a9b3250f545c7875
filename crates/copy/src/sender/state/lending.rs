//! The leader of a sending end hears its movers, and proves what they send.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use haul_engine::schedule::Unit;
use haul_job::Error;
use haul_striping::lending::{ToProve, is_of_mover};
use haul_wire::control::{ChunkProof, MoverWord};

use super::super::source_item::SourceItem;
use super::{Shared, State};

impl Shared {
    pub(in crate::sender) fn on_mover_word(&self, path: u16, word: MoverWord) -> Result<bool, Error> {
        if !self.lends() || !is_of_mover(path) {
            return Err(Error::broke_the_protocol("it speaks for a host that is none of this end"));
        }
        let mut state = self.lock();
        let state = &mut *state;
        match word {
            MoverWord::Takes { chunks } => {
                let is_new = state.lending.takes(path, chunks, Instant::now());
                self.divide_rate(state);
                self.lend(state);
                Ok(is_new)
            }
            MoverWord::Returns { index, chunks } => {
                state.lending.returned(&mut state.items, path, index, &chunks);
                self.work.notify_all();
                Ok(false)
            }
            MoverWord::Portion(_) | MoverWord::Proofs(_) => {
                Err(Error::broke_the_protocol("a host that does not lead hands out work"))
            }
        }
    }

    pub(in crate::sender) fn mover_gone(&self, path: u16) {
        let mut state = self.lock();
        let state = &mut *state;
        if state.lending.gone(&mut state.items, path) {
            self.divide_rate(state);
            self.work.notify_all();
        }
    }

    /// Movers that have chunks, none of which has arrived for `limit`.
    pub(in crate::sender) fn silent_movers(&self, limit: Duration) -> Vec<u16> {
        let state = self.lock();
        state.lending.silent(&state.items, &state.receipts, limit)
    }

    pub(in crate::sender) fn next_to_prove(&self) -> Option<ToProve<Arc<SourceItem>>> {
        let mut state = self.lock();
        loop {
            let is_idle = |state: &mut State| !state.finished && !state.lending.has_to_prove();
            state = self.to_prove.wait_while(state, is_idle).unwrap_or_else(PoisonError::into_inner);
            if state.finished {
                return None;
            }
            let state = &mut *state;
            if let Some(next) = state.lending.next_to_prove(&state.items) {
                return Some(next);
            }
        }
    }

    /// Tells the receiver a chunk's hash, whichever mover sends it.
    pub(in crate::sender) fn proved(&self, unit: Unit, hash: [u8; 32]) {
        let Unit { index, chunk } = unit;
        self.outbox.proof(ChunkProof { index, chunk, hash });
    }

    pub(in crate::sender) fn limit_rate(&self, bytes_per_s: Option<u64>) {
        let mut state = self.lock();
        state.rate_bytes_per_s = bytes_per_s;
        self.divide_rate(&state);
    }

    fn divide_rate(&self, state: &State) {
        let movers = self.job.carriage.movers;
        self.paced.set_rate(state.rate_bytes_per_s.map(|rate| state.lending.rate_of_leader(rate, movers)));
    }
}
