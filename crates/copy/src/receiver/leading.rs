//! Shows the tree and drafts to other hosts, and enters what they wrote.

use std::sync::Arc;

use haul_engine::integrity;
use haul_job::Error;
use haul_store::StoreError;
use haul_striping::token::Token;
use haul_wire::control::{Control, MovedChunk, OpenDraft, Receipt, SharedRoot};

use haul_kept::faults;

use super::claim::Claimed;
use super::incoming::Incoming;
use super::state::Shared;

/// The number stands for a lane of another host.
const LANE_OF_MOVERS: u16 = u16::MAX;

/// Shows the tree to useful movers, and to a source that removes files (it must be another place), has others deleted, or may
/// contain the target. Such a source waits for it.
///
/// # Errors
/// The tree cannot be shown to a source that removes files.
pub(super) fn show_tree(shared: &Shared) -> Result<(), Error> {
    let selection = &shared.job.selection;
    let has_movers = shared.job.carriage.movers > 0 && !selection.inplace && shared.to.makes_files();
    let is_awaited = selection.shows_target();
    if !has_movers && !is_awaited {
        return Ok(());
    }
    let made = if shared.to.makes_files() { Token::make(shared.to.tree(), has_movers) } else { Ok(None) };
    let shown = match made {
        Ok(Some((token, root))) => {
            let _ = shared.other_hosts.token.set(token);
            Some(root)
        }
        // The movers then wait in vain, and this host works alone.
        Ok(None) => None,
        Err(error) if selection.remove_source_files => return Err(faults::store_error(&error)),
        Err(error) => {
            // Where nothing can be made, nothing is deleted, either.
            if has_movers {
                shared.failed_aside(b"", &error);
            }
            None
        }
    };
    let nowhere = || SharedRoot { path: Vec::new(), inode: 0, token: [0; 32] };
    if let Some(root) = shown.or_else(|| is_awaited.then(nowhere)) {
        shared.outbox.send(Control::SharedRoot(root));
    }
    Ok(())
}

pub(super) fn show_draft(shared: &Shared, incoming: &Incoming) -> Result<(), StoreError> {
    let Some(token) = shared.other_hosts.token.get().filter(|_| shared.job.carriage.movers > 0) else { return Ok(()) };
    if incoming.layout.is_whole() || incoming.inplace {
        return Ok(());
    }
    if let Some(part) = incoming.part(shared.to.tree())?
        && part.id().0 == token.dev()
    {
        let (index, path, size) = (incoming.index, incoming.path.clone(), incoming.identity.size);
        shared.outbox.send(Control::OpenDraft(OpenDraft { index, path, inode: part.id().1, size }));
    }
    Ok(())
}

pub(super) fn moved(shared: &Shared, moved: &MovedChunk) -> Result<(), Error> {
    let Some(incoming) = shared.incoming(moved.index) else { return Ok(()) };
    if incoming.layout.is_whole() || incoming.inplace || incoming.kept.is_some() {
        return Err(Error::broke_the_protocol("another host wrote what was not shared"));
    }
    let verified = integrity::by_mover(&incoming.layout, moved.chunk, moved.hash)
        .map_err(|_| Error::broke_the_protocol("another host wrote a chunk that does not exist"))?;
    let (_, bytes) = incoming.layout.range(moved.chunk).unwrap_or_default();
    if moved.data_bytes > bytes || moved.written_bytes > bytes {
        return Err(Error::broke_the_protocol("another host wrote more than the chunk has"));
    }
    let data_bytes = if incoming.was_lost(moved.chunk) { 0 } else { moved.data_bytes };
    let receipt = Receipt { index: moved.index, chunk: moved.chunk, data_bytes, matched_bytes: 0 };
    let claim = Claimed::take(&incoming, moved.chunk, LANE_OF_MOVERS);
    let incoming: &Arc<Incoming> = &incoming;
    shared.deliver_chunk(incoming, &claim, verified, receipt, moved.written_bytes);
    shared.tally.add_arrived(moved.data_bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use haul_job::Fault;
    use haul_wire::RelPath;
    use haul_wire::limits::MIN_CHUNK_BYTES;
    use haul_wire::manifest::{Attributes, Identity, Item, ItemKind};

    use super::super::state::tests::over;
    use super::*;

    fn asked_for(sizes: &[u64]) -> (Shared, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let shared = over(dir.path());
        for (number, size) in sizes.iter().enumerate() {
            let identity = Identity { size: *size, mtime: Default::default(), ctime: Default::default(), inode: 1 };
            let kind = ItemKind::File { identity, hole_bytes: 0, blake3: None, further_names: 0 };
            let name = format!("file-{number}").into_bytes();
            let path = RelPath::new(name.clone()).unwrap();
            let item = Arc::new(Item { path, kind, attributes: Attributes::default() });
            let index = shared.open_item(&item).unwrap();
            shared.expect(Arc::new(Incoming::new(index, item, name, identity, false)));
        }
        (shared, dir)
    }

    fn chunk(index: u64, chunk: u32) -> MovedChunk {
        MovedChunk { index, chunk, hash: [9; 32], data_bytes: MIN_CHUNK_BYTES, written_bytes: MIN_CHUNK_BYTES }
    }

    #[test]
    fn what_a_mover_cannot_have_written_ends_the_session_and_is_not_entered() {
        let (shared, _dir) = asked_for(&[2 * MIN_CHUNK_BYTES, 4]);
        for wrong in [
            chunk(0, 2),
            chunk(0, u32::MAX),
            chunk(1, 0),
            MovedChunk { data_bytes: MIN_CHUNK_BYTES + 1, ..chunk(0, 0) },
            MovedChunk { written_bytes: u64::MAX, ..chunk(0, 0) },
        ] {
            let error = moved(&shared, &wrong).unwrap_err();
            assert_eq!(error.fault, Fault::Protocol, "{wrong:?}");
        }
        assert_eq!((shared.outbox.take_all(), shared.tally.arrived_bytes()), (Vec::new(), 0));
    }

    #[test]
    fn a_chunk_that_is_told_twice_counts_once_and_one_of_no_open_file_not_at_all() {
        let (shared, _dir) = asked_for(&[2 * MIN_CHUNK_BYTES]);
        for told in [chunk(0, 0), chunk(0, 0), chunk(7, 0), chunk(u64::MAX, 0)] {
            moved(&shared, &told).unwrap();
        }
        let receipts = shared.outbox.take_all().into_iter().filter_map(|message| match message {
            Control::Receipts(receipts) => Some(receipts.len()),
            _ => None,
        });
        assert_eq!(receipts.sum::<usize>(), 1);
    }
}
