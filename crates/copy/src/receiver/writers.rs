//! Writers write past the page cache, beside the lanes.
//!
//! ```text
//!   lane: block -> hash -> a free buffer -> queue          last block of the chunk: its hash holds
//!   writer: the next of the queue -> a direct write                           last write: the chunk is delivered
//! ```
//! A direct write returns when the disk has the bytes. Several writers wait for it instead of lanes, which keeps the disk busy
//! between two writes.

use std::io;
use std::sync::Arc;

use super::direct_write_queue::{Block, Chunk, End};
use super::state::Shared;

/// On a virtual disk of 1.8 GB/s four writes of a block were as fast as eight, or four of 2 MiB.
pub const WRITERS: usize = 4;

pub(super) fn write(shared: &Arc<Shared>, chunk: &Arc<Chunk>, data: &[u8], offset: u64) -> io::Result<bool> {
    if shared.disk.direct_writes.starts() {
        start(shared)?;
    }
    Ok(shared.disk.direct_writes.take(chunk, data, offset))
}

/// Most jobs have no blocks for writers.
fn start(shared: &Arc<Shared>) -> io::Result<()> {
    for number in 0..WRITERS {
        let for_thread = Arc::clone(shared);
        let writer = std::thread::Builder::new().name(format!("write {number}")).spawn(move || run(&for_thread));
        match writer {
            Ok(writer) => shared.disk.direct_writes.started(writer),
            Err(_) if number > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn run(shared: &Shared) {
    while let Some(Block { chunk, buffer, bytes, offset }) = shared.disk.direct_writes.next() {
        let write = || shared.disk.storage.during(|| chunk.part.write_past_cache(&buffer[..bytes], offset));
        if !chunk.has_failed()
            && let Some(Err(error)) = chunk.claim.while_held(write)
        {
            chunk.fail(error);
        }
        // The buffer goes back before the delivery, which may wait for a checkpoint.
        shared.disk.direct_writes.give_back(buffer);
        deliver(shared, &chunk, chunk.one_less());
    }
}

pub(super) fn deliver(shared: &Shared, chunk: &Chunk, ended: Option<End>) {
    let Some(End { failed, verified }) = ended else { return };
    match (failed, verified) {
        (Some(error), _) => shared.fail(&chunk.incoming, &error),
        (None, Some((verified, receipt, data_bytes))) => {
            shared.deliver_chunk(&chunk.incoming, &chunk.claim, verified, receipt, data_bytes);
        }
        (None, None) => {}
    }
}

#[cfg(test)]
mod tests {
    use haul_store::Draft;
    use haul_wire::RelPath;
    use haul_wire::manifest::{Attributes, Identity, Item, ItemKind};

    use super::super::claim::Claimed;
    use super::super::direct_write_queue::BUFFERS;
    use super::super::incoming::Incoming;
    use super::super::state::tests::over;
    use super::*;

    fn incoming(shared: &Shared) -> (Arc<Incoming>, Arc<Draft>) {
        let identity = Identity { size: 3 << 20, mtime: Default::default(), ctime: Default::default(), inode: 1 };
        let kind = ItemKind::File { identity, hole_bytes: 0, blake3: None, further_names: 0 };
        let path = RelPath::new(b"file".to_vec()).unwrap();
        let item = Arc::new(Item { path, kind, attributes: Attributes::default() });
        let incoming = Arc::new(Incoming::new(0, item, b"file".to_vec(), identity, false));
        let part = incoming.part(shared.to.tree()).unwrap().unwrap();
        (incoming, part)
    }

    fn chunk_of(incoming: &Arc<Incoming>, part: &Arc<Draft>, number: u32) -> Arc<Chunk> {
        Chunk::new(Arc::clone(incoming), Arc::clone(part), Arc::new(Claimed::take(incoming, number, 0)))
    }

    #[test]
    fn blocks_of_a_lane_that_lost_its_chunk_are_not_written_when_their_turn_comes() {
        let dir = tempfile::tempdir().unwrap();
        let shared = Arc::new(over(dir.path()));
        let (incoming, part) = incoming(&shared);
        assert!(shared.disk.direct_writes.starts());
        let given_up = chunk_of(&incoming, &part, 1);
        assert!(write(&shared, &given_up, &[1; 100], 1 << 20).unwrap());
        let other = chunk_of(&incoming, &part, 1);
        assert!(write(&shared, &other, &[2; 100], 1 << 20).unwrap());
        assert!(write(&shared, &given_up, &[3; 100], 1 << 20).unwrap());
        shared.disk.direct_writes.end();
        run(&shared);
        let mut found = [0; 200];
        assert_eq!(part.read_at(&mut found, 1 << 20).unwrap(), 100);
        assert_eq!(found[..100], [2; 100]);
    }

    #[test]
    fn whoever_waits_for_a_buffer_is_let_go_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let shared = Arc::new(over(dir.path()));
        let (incoming, part) = incoming(&shared);
        assert!(shared.disk.direct_writes.starts());
        let chunk = chunk_of(&incoming, &part, 0);
        for block in 0..BUFFERS as u64 {
            assert!(write(&shared, &chunk, &[7; 10], block * 10).unwrap());
        }
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| write(&shared, &chunk, &[7; 10], 0).unwrap());
            shared.disk.direct_writes.end();
            assert!(!waits.join().unwrap());
        });
        assert_eq!(shared.disk.direct_writes.made(), BUFFERS);
    }
}
