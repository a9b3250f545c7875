//! Keeps the open drafts of a writing mover, and its verified chunks until they are flushed.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use haul_engine::at_risk::CHECKPOINT_BYTES;
use haul_engine::integrity::Verified;
use haul_kept::sync::lock;
use haul_wire::control::{MovedChunk, Receipt};
use haul_wire::limits::MAX_OPEN_ITEMS;

/// A lane may overtake the control message that opens its draft.
const OVERTAKE: Duration = Duration::from_secs(10);

/// A verified chunk, not flushed.
pub type Fresh<D> = (Arc<D>, MovedChunk);

/// The drafts that a mover has open, as its caller's `D`.
pub struct SharedDrafts<D> {
    state: Mutex<State<D>>,
    changed: Condvar,
    overtake: Duration,
}

impl<D> Default for SharedDrafts<D> {
    fn default() -> Self {
        Self::waiting(OVERTAKE)
    }
}

struct State<D> {
    drafts: BTreeMap<u64, Arc<D>>,
    fresh: Vec<Fresh<D>>,
    /// Unflushed data is at most what a receiver may have at risk, and a chunk on each lane.
    unflushed_bytes: u64,
    is_over: bool,
}

impl<D> SharedDrafts<D> {
    fn waiting(overtake: Duration) -> Self {
        let state = State { drafts: BTreeMap::new(), fresh: Vec::new(), unflushed_bytes: 0, is_over: false };
        Self { state: Mutex::new(state), changed: Condvar::new(), overtake }
    }

    /// Opens a draft. Returns false if a window is full.
    pub fn open(&self, index: u64, draft: Arc<D>) -> bool {
        let mut state = lock(&self.state);
        let has_room = state.drafts.len() < MAX_OPEN_ITEMS;
        if has_room {
            state.drafts.insert(index, draft);
        }
        drop(state);
        self.changed.notify_all();
        has_room
    }

    /// Closes a draft.
    pub fn close(&self, index: u64) {
        lock(&self.state).drafts.remove(&index);
    }

    /// An item's open draft.
    pub fn draft(&self, index: u64) -> Option<Arc<D>> {
        let is_missing = |state: &mut State<D>| !state.is_over && !state.drafts.contains_key(&index);
        let (state, _) = self
            .changed
            .wait_timeout_while(lock(&self.state), self.overtake, is_missing)
            .unwrap_or_else(PoisonError::into_inner);
        state.drafts.get(&index).cloned()
    }

    /// Takes a chunk. Waits while too much is not flushed.
    pub fn deliver(&self, draft: &Arc<D>, verified: Verified, receipt: Receipt, written_bytes: u64) {
        let is_full = |state: &mut State<D>| !state.is_over && state.unflushed_bytes >= CHECKPOINT_BYTES;
        let mut state = self.changed.wait_while(lock(&self.state), is_full).unwrap_or_else(PoisonError::into_inner);
        let Receipt { index, chunk, data_bytes, matched_bytes: _ } = receipt;
        let moved = MovedChunk { index, chunk, hash: verified.hash(), data_bytes, written_bytes };
        state.unflushed_bytes += written_bytes;
        state.fresh.push((Arc::clone(draft), moved));
        drop(state);
        self.changed.notify_all();
    }

    /// The chunks to flush, file by file.
    pub fn next(&self) -> Option<Vec<Fresh<D>>> {
        let is_idle = |state: &mut State<D>| !state.is_over && state.fresh.is_empty();
        let mut state = self.changed.wait_while(lock(&self.state), is_idle).unwrap_or_else(PoisonError::into_inner);
        let mut fresh = std::mem::take(&mut state.fresh);
        fresh.sort_by_key(|(_, moved)| moved.index);
        (!state.is_over).then_some(fresh)
    }

    /// Notes flushed chunks.
    pub fn flushed(&self, chunks: &[MovedChunk]) {
        let bytes: u64 = chunks.iter().map(|chunk| chunk.written_bytes).sum();
        lock(&self.state).unflushed_bytes -= bytes;
        self.changed.notify_all();
    }

    /// Ends all waits.
    pub fn end(&self) {
        lock(&self.state).is_over = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use haul_engine::integrity;
    use haul_engine::plan::ChunkLayout;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    const SIZE: u64 = 1 << 30;

    type Draft = u64;

    fn deliver(moves: &SharedDrafts<Draft>, draft: &Arc<Draft>, chunk: u32, written_bytes: u64) {
        let verified = integrity::by_mover(&ChunkLayout::of(SIZE), chunk, [9; 32]).unwrap();
        let receipt = Receipt { index: **draft, chunk, data_bytes: 1, matched_bytes: 0 };
        moves.deliver(draft, verified, receipt, written_bytes);
    }

    #[test]
    fn more_drafts_than_a_window_has_items_are_refused() {
        let moves = SharedDrafts::waiting(Duration::ZERO);
        let opens = |index: Draft| moves.open(index, Arc::new(index));
        assert!((0..MAX_OPEN_ITEMS as u64).all(opens));
        assert!(!opens(u64::MAX));
        moves.close(7);
        assert!(opens(u64::MAX));
    }

    #[test]
    fn a_lane_does_not_wait_for_ever_for_a_draft_that_was_never_shared() {
        let moves = SharedDrafts::waiting(Duration::from_millis(20));
        assert!(moves.draft(3).is_none());
        moves.open(3, Arc::new(()));
        assert!(moves.draft(3).is_some());
        moves.close(3);
        assert!(moves.draft(3).is_none());
        let moves = SharedDrafts::<Draft>::waiting(PATIENCE);
        moves.end();
        assert!(moves.draft(3).is_none(), "at the end at once");
    }

    #[test]
    fn lanes_wait_while_too_much_is_not_flushed_and_files_are_flushed_one_after_the_other() {
        let (moves, files) = (Arc::new(SharedDrafts::default()), [Arc::new(0), Arc::new(1)]);
        deliver(&moves, &files[1], 0, CHECKPOINT_BYTES / 2);
        deliver(&moves, &files[1], 1, 0);
        deliver(&moves, &files[0], 0, CHECKPOINT_BYTES / 2);
        let (told, heard) = std::sync::mpsc::channel();
        let (later, file) = (Arc::clone(&moves), Arc::clone(&files[0]));
        let waits = std::thread::spawn(move || {
            deliver(&later, &file, 1, 1);
            told.send(()).unwrap();
        });
        let fresh: Vec<MovedChunk> = moves.next().unwrap().into_iter().map(|(_, moved)| moved).collect();
        let order: Vec<(u64, u32)> = fresh.iter().map(|moved| (moved.index, moved.chunk)).collect();
        assert_eq!(order, [(0, 0), (1, 0), (1, 1)]);
        assert!(heard.try_recv().is_err(), "what is taken is not flushed yet");
        moves.flushed(&fresh);
        heard.recv_timeout(PATIENCE).unwrap();
        waits.join().unwrap();
        assert_eq!(moves.next().unwrap().len(), 1);
        moves.end();
        assert!(moves.next().is_none());
    }
}
