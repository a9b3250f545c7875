//! What a receiver does for the other hosts of its end: it shows them its tree and its drafts, and enters what they wrote.

use std::sync::Arc;

use haul_engine::integrity;
use haul_job::Error;
use haul_store::StoreError;
use haul_wire::control::{Control, MovedChunk, OpenDraft, Receipt};

use super::claim::Claimed;
use super::incoming::Incoming;
use super::state::Shared;
use super::token::Token;

/// Stands for the lanes of other hosts where a lane of this one would stand.
const LANE_OF_MOVERS: u16 = u16::MAX;

/// Shows the tree to movers, if there are any and they can be of use.
pub(super) fn show_tree(shared: &Shared) {
    if shared.job.carriage.movers == 0 || shared.job.selection.inplace || !shared.makes_files() {
        return;
    }
    match Token::make(shared.tree()) {
        Ok(Some((token, root))) => {
            shared.outbox.send(Control::SharedRoot(root));
            let _ = shared.token.set(token);
        }
        // Then this host does it alone, as the movers wait in vain.
        Ok(None) => {}
        Err(error) => shared.failed_aside(b"", &error),
    }
}

/// Tells movers of a large file that will be asked for.
pub(super) fn show_draft(shared: &Shared, incoming: &Incoming) -> Result<(), StoreError> {
    let Some(token) = shared.token.get() else { return Ok(()) };
    if incoming.layout.is_whole() || incoming.inplace {
        return Ok(());
    }
    if let Some(part) = incoming.part(shared.tree())?
        && part.id().0 == token.dev()
    {
        let (index, path, size) = (incoming.index, incoming.path.clone(), incoming.identity.size);
        shared.outbox.send(Control::OpenDraft(OpenDraft { index, path, inode: part.id().1, size }));
    }
    Ok(())
}

/// Enters a chunk that a mover wrote.
pub(super) fn moved(shared: &Shared, moved: &MovedChunk) -> Result<(), Error> {
    // It failed or was withdrawn meanwhile.
    let Some(incoming) = shared.incoming(moved.index) else { return Ok(()) };
    if incoming.layout.is_whole() || incoming.inplace || incoming.kept.is_some() {
        return Err(Error::broke_the_protocol("another host wrote what was not shared"));
    }
    let verified = integrity::by_mover(&incoming.layout, moved.chunk, moved.hash)
        .map_err(|_| Error::broke_the_protocol("another host wrote a chunk that does not exist"))?;
    let data_bytes = if incoming.was_lost(moved.chunk) { 0 } else { moved.data_bytes };
    let receipt = Receipt { index: moved.index, chunk: moved.chunk, data_bytes };
    let claim = Claimed::take(&incoming, moved.chunk, LANE_OF_MOVERS);
    let incoming: &Arc<Incoming> = &incoming;
    shared.deliver_chunk(incoming, &claim, verified, receipt, moved.written_bytes);
    shared.add_arrived(moved.data_bytes);
    Ok(())
}
