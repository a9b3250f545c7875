//! What movers do with the open items.

use haul_engine::schedule::Unit;
use haul_job::Error;
use haul_wire::control::{Control, MovedChunk, OpenDraft};
use haul_wire::lane::path_of;

use super::{Shared, broken};

impl Shared {
    /// The leader of the target has opened a file that movers may write, too.
    pub(in crate::session::sender) fn share(&self, draft: OpenDraft) -> Result<(), Error> {
        self.lock().items.share(draft.index).map_err(broken)?;
        self.job.movers.opens(draft);
        Ok(())
    }

    /// A mover wrote these, on lanes of this path. What has gone to another lane meanwhile is that lane's.
    pub(in crate::session::sender) fn on_moved(&self, path: u16, mut chunks: Vec<MovedChunk>) {
        let state = self.lock();
        chunks.retain(|MovedChunk { index, chunk, .. }| {
            let lane = state.items.lane_of(Unit { index: *index, chunk: *chunk });
            lane.is_some_and(|lane| path_of(lane) == path)
        });
        drop(state);
        self.count_move();
        self.outbox.send(Control::Moved(chunks));
    }
}
