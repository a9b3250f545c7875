//! What movers do with the open items. The host that leads them enters what they say, so it is checked here first.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use haul_engine::integrity::Hash;
use haul_engine::schedule::{To, Unit};
use haul_job::Error;
use haul_wire::control::{Control, MovedChunk, OpenDraft};
use haul_wire::lane::path_of;
use haul_wire::limits::MAX_PATHS;

use super::{Shared, State, broken};

/// What is known of movers that write.
#[derive(Default)]
pub(super) struct Writing {
    /// The hashes of chunks that they were sent, until they say that they wrote them.
    sent: BTreeMap<Unit, Hash>,
    /// When each of them last had nothing to write, or confirmed something.
    confirmed: BTreeMap<u16, Instant>,
}

impl Writing {
    /// Nothing more is awaited of this item.
    pub(super) fn forget(&mut self, index: u64) {
        if !self.sent.is_empty() {
            self.sent.retain(|unit, _| unit.index != index);
        }
    }
}

impl Shared {
    /// The leader of the target has opened a file that movers may write, too.
    pub(in crate::session::sender) fn share(&self, draft: OpenDraft) -> Result<(), Error> {
        self.lock().items.share(draft.index).map_err(broken)?;
        self.job.movers.opens(draft);
        Ok(())
    }

    /// The data of a unit has gone out, and this is its hash.
    pub(in crate::session::sender) fn sent(&self, unit: Unit, hash: Hash) {
        if self.job.movers.count() == 0 {
            return;
        }
        let mut state = self.lock();
        if state.items.lane_of(unit).is_some_and(|lane| self.job.movers.to(lane) == To::Mover) {
            state.writing.sent.insert(unit, hash);
        }
    }

    /// A mover wrote these, on lanes of this path. What has gone to another lane meanwhile is that lane's.
    pub(in crate::session::sender) fn on_moved(&self, path: u16, mut chunks: Vec<MovedChunk>) {
        let mut state = self.lock();
        state.writing.confirmed.insert(path, Instant::now());
        let mut lie = None;
        chunks.retain(|moved| {
            let is_its = lie.is_none() && self.has(&state, path, moved);
            if is_its {
                lie = lie_in(&mut state, moved);
            }
            is_its && lie.is_none()
        });
        drop(state);
        if let Some(lie) = lie {
            self.job.movers.accuse(path, lie.into());
        }
        if !chunks.is_empty() {
            self.count_move();
            self.outbox.send(Control::Moved(chunks));
        }
    }

    fn has(&self, state: &State, path: u16, moved: &MovedChunk) -> bool {
        let lane = state.items.lane_of(Unit { index: moved.index, chunk: moved.chunk });
        lane.is_some_and(|lane| path_of(lane) == path && self.job.movers.to(lane) == To::Mover)
    }

    /// A mover that takes data and confirms none of it for so long is left out.
    pub(in crate::session::sender) fn accuse_hung_movers(&self, limit: Duration) {
        for path in MAX_PATHS - self.job.movers.count()..MAX_PATHS {
            let mut state = self.lock();
            let carries = state.items.is_carried(|lane| path_of(lane) == path);
            let confirmed = state.writing.confirmed.entry(path).or_insert_with(Instant::now);
            if !carries {
                *confirmed = Instant::now();
            }
            let waited = confirmed.elapsed();
            drop(state);
            if waited > limit {
                self.job.movers.accuse(path, format!("it has confirmed nothing for {} s", waited.as_secs()));
            }
        }
    }
}

/// What cannot be true of this.
fn lie_in(state: &mut State, moved: &MovedChunk) -> Option<&'static str> {
    let unit = Unit { index: moved.index, chunk: moved.chunk };
    let file = state.items.open_file(moved.index).ok().flatten()?;
    let bytes = file.layout.range(moved.chunk).map_or(0, |(_, bytes)| bytes);
    if moved.data_bytes > bytes || moved.written_bytes > bytes {
        return Some("it says that it wrote more than it was sent");
    }
    (state.writing.sent.remove(&unit) != Some(moved.hash))
        .then_some("it says that it wrote other data than it was sent")
}
