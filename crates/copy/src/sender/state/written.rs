//! Takes the word of the other end's movers about chunks that they wrote.

use std::time::Duration;

use haul_engine::integrity::Hash;
use haul_engine::schedule::{To, Unit};
use haul_job::Error;
use haul_wire::control::{Control, MovedChunk, OpenDraft};
use haul_wire::lane::path_of;
use haul_wire::limits::MAX_PATHS;

use super::{Shared, State, broken};

impl Shared {
    /// Shares a file that the target's leader has opened with its movers.
    pub(in crate::sender) fn share(&self, draft: OpenDraft) -> Result<(), Error> {
        self.lock().items.share(draft.index).map_err(broken)?;
        self.job.movers.opens(draft);
        Ok(())
    }

    pub(in crate::sender) fn sent(&self, unit: Unit, hash: Hash) {
        if self.job.movers.count() == 0 {
            return;
        }
        let mut state = self.lock();
        if state.items.lane_of(unit).is_some_and(|lane| self.job.movers.to(lane) == To::Mover) {
            state.written.sent(unit, hash);
        }
    }

    pub(in crate::sender) fn on_moved(&self, path: u16, chunks: Vec<MovedChunk>) {
        let has = |lane| path_of(lane) == path && self.job.movers.to(lane) == To::Mover;
        let mut guard = self.lock();
        let State { items, written, .. } = &mut *guard;
        let (chunks, lie) = written.confirms(items, path, chunks, has);
        drop(guard);
        if let Some(lie) = lie {
            self.job.movers.accuse(path, lie.into());
        }
        if !chunks.is_empty() {
            self.count_move();
            self.outbox.send(Control::Moved(chunks));
        }
    }

    /// Leaves out movers that have confirmed nothing of their data for so long.
    pub(in crate::sender) fn accuse_hung_movers(&self, limit: Duration) {
        for path in MAX_PATHS - self.job.movers.count()..MAX_PATHS {
            let mut state = self.lock();
            let carries = state.items.is_carried(|lane| path_of(lane) == path);
            let waited = state.written.silent_for(path, carries);
            drop(state);
            if waited > limit {
                self.job.movers.accuse(path, format!("it has confirmed nothing for {} s", waited.as_secs()));
            }
        }
    }
}
