//! What a mover has open, and what it has verified and not yet flushed (`mover.rs`).

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use haul_engine::integrity::Verified;
use haul_wire::control::{MovedChunk, Receipt};
use haul_wire::limits::MAX_OPEN_ITEMS;

use crate::sync::lock;

use super::CHECKPOINT_BYTES;
use super::incoming::Incoming;

/// A lane may overtake the control message that opens its draft.
const OVERTAKE: Duration = Duration::from_secs(10);

/// A chunk that is to be flushed and told.
pub(super) type Fresh = (Arc<Incoming>, MovedChunk);

#[derive(Default)]
pub(super) struct Moves {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    drafts: BTreeMap<u64, Arc<Incoming>>,
    fresh: Vec<Fresh>,
    /// Bytes that are verified and not flushed: at most what a receiver may have at risk, and a chunk on each lane.
    unflushed_bytes: u64,
    is_over: bool,
}

impl Moves {
    /// False: there are more than a window holds.
    pub(super) fn open(&self, incoming: Arc<Incoming>) -> bool {
        let mut state = lock(&self.state);
        let has_room = state.drafts.len() < MAX_OPEN_ITEMS;
        if has_room {
            state.drafts.insert(incoming.index, incoming);
        }
        drop(state);
        self.changed.notify_all();
        has_room
    }

    pub(super) fn close(&self, index: u64) {
        lock(&self.state).drafts.remove(&index);
    }

    /// The draft of an item. `None`: it is not open (any more).
    pub(super) fn incoming(&self, index: u64) -> Option<Arc<Incoming>> {
        let is_missing = |state: &mut State| !state.is_over && !state.drafts.contains_key(&index);
        let (state, _) = self
            .changed
            .wait_timeout_while(lock(&self.state), OVERTAKE, is_missing)
            .unwrap_or_else(PoisonError::into_inner);
        state.drafts.get(&index).cloned()
    }

    /// Takes a chunk that was written and is verified. Waits while too much is not flushed.
    pub(super) fn deliver(&self, incoming: &Arc<Incoming>, verified: Verified, receipt: Receipt, written_bytes: u64) {
        let is_full = |state: &mut State| !state.is_over && state.unflushed_bytes >= CHECKPOINT_BYTES;
        let mut state = self.changed.wait_while(lock(&self.state), is_full).unwrap_or_else(PoisonError::into_inner);
        let Receipt { index, chunk, data_bytes } = receipt;
        let moved = MovedChunk { index, chunk, hash: verified.hash(), data_bytes, written_bytes };
        state.unflushed_bytes += written_bytes;
        state.fresh.push((Arc::clone(incoming), moved));
        drop(state);
        self.changed.notify_all();
    }

    /// All that is to be flushed, file by file; `None` at the end.
    pub(super) fn next(&self) -> Option<Vec<Fresh>> {
        let is_idle = |state: &mut State| !state.is_over && state.fresh.is_empty();
        let mut state = self.changed.wait_while(lock(&self.state), is_idle).unwrap_or_else(PoisonError::into_inner);
        let mut fresh = std::mem::take(&mut state.fresh);
        fresh.sort_by_key(|(incoming, _)| incoming.index);
        (!state.is_over).then_some(fresh)
    }

    pub(super) fn flushed(&self, chunks: &[MovedChunk]) {
        let bytes: u64 = chunks.iter().map(|chunk| chunk.written_bytes).sum();
        lock(&self.state).unflushed_bytes -= bytes;
        self.changed.notify_all();
    }

    /// Nobody waits any more.
    pub(super) fn end(&self) {
        lock(&self.state).is_over = true;
        self.changed.notify_all();
    }
}
