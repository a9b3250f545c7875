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

pub(super) struct Moves {
    state: Mutex<State>,
    changed: Condvar,
    overtake: Duration,
}

impl Default for Moves {
    fn default() -> Self {
        Self::waiting(OVERTAKE)
    }
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
    /// A lane waits so long for its draft.
    fn waiting(overtake: Duration) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), overtake }
    }

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
            .wait_timeout_while(lock(&self.state), self.overtake, is_missing)
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

#[cfg(test)]
mod tests {
    use haul_engine::integrity;
    use haul_engine::plan::ChunkLayout;
    use haul_wire::RelPath;
    use haul_wire::manifest::{Attributes, Identity, Item, ItemKind};

    use super::*;

    /// Longer than any of this takes on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(60);

    const SIZE: u64 = 1 << 30;

    fn draft(index: u64) -> Arc<Incoming> {
        let identity = Identity { size: SIZE, mtime: Default::default(), ctime: Default::default(), inode: 1 };
        let kind = ItemKind::File { identity, hole_bytes: 0, blake3: None, further_names: 0 };
        let item = Item { path: RelPath::new(b"file".to_vec()).unwrap(), kind, attributes: Attributes::default() };
        Arc::new(Incoming::new(index, Arc::new(item), b"file".to_vec(), identity, false))
    }

    fn deliver(moves: &Moves, incoming: &Arc<Incoming>, chunk: u32, written_bytes: u64) {
        let verified = integrity::by_mover(&ChunkLayout::of(SIZE), chunk, [9; 32]).unwrap();
        moves.deliver(incoming, verified, Receipt { index: incoming.index, chunk, data_bytes: 1 }, written_bytes);
    }

    #[test]
    fn more_drafts_than_a_window_has_items_are_refused() {
        let (moves, one) = (Moves::waiting(Duration::ZERO), draft(0));
        let mut fits = (0..MAX_OPEN_ITEMS as u64).map(|index| {
            moves.open(Arc::new(Incoming::new(index, Arc::clone(&one.item), Vec::new(), one.identity, false)))
        });
        assert!(fits.all(|fits| fits));
        assert!(!moves.open(draft(u64::MAX)));
        moves.close(7);
        assert!(moves.open(draft(u64::MAX)));
    }

    #[test]
    fn a_lane_does_not_wait_for_ever_for_a_draft_that_was_never_shared() {
        let moves = Moves::waiting(Duration::from_millis(20));
        assert!(moves.incoming(3).is_none());
        moves.open(draft(3));
        assert!(moves.incoming(3).is_some());
        moves.close(3);
        assert!(moves.incoming(3).is_none());
        let moves = Moves::waiting(PATIENCE);
        moves.end();
        assert!(moves.incoming(3).is_none(), "at the end at once");
    }

    #[test]
    fn lanes_wait_while_too_much_is_not_flushed_and_files_are_flushed_one_after_the_other() {
        let (moves, files) = (Arc::new(Moves::default()), [draft(0), draft(1)]);
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
