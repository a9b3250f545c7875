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
use std::thread::JoinHandle;

use super::direct_write_queue::{Block, Chunk, End};
use super::state::Shared;

/// On a virtual disk of 1.8 GB/s four writes of a block were as fast as eight, or four of 2 MiB.
pub const WRITERS: usize = 4;

/// Returns false at the end of the job.
pub(super) fn write(shared: &Arc<Shared>, chunk: &Arc<Chunk>, data: &[u8], offset: u64) -> bool {
    write_by(shared, chunk, (data, offset), |number| {
        let for_thread = Arc::clone(shared);
        std::thread::Builder::new().name(format!("write {number}")).spawn(move || run(&for_thread))
    })
}

/// Most jobs have no blocks for writers, so the first block starts them.
fn write_by(
    shared: &Shared,
    chunk: &Arc<Chunk>,
    (data, offset): (&[u8], u64),
    spawn: impl Fn(usize) -> io::Result<JoinHandle<()>>,
) -> bool {
    let queue = &shared.disk.direct_writes;
    let has_writers = queue.start_once(WRITERS, spawn);
    let is_queued = queue.take(chunk, data, offset);
    // Without a writer the lane does its work: one block for each that it queues.
    if is_queued
        && !has_writers
        && let Some(block) = queue.next()
    {
        write_block(shared, block);
    }
    is_queued
}

fn run(shared: &Shared) {
    while let Some(block) = shared.disk.direct_writes.next() {
        write_block(shared, block);
    }
}

fn write_block(shared: &Shared, Block { chunk, buffer, bytes, offset }: Block) {
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

    /// A writer that leaves its work to the test.
    fn idle(_: usize) -> io::Result<JoinHandle<()>> {
        std::thread::Builder::new().spawn(|| {})
    }

    #[test]
    fn where_no_writer_can_start_the_lanes_write() {
        let dir = tempfile::tempdir().unwrap();
        let shared = Arc::new(over(dir.path()));
        let (incoming, part) = incoming(&shared);
        let chunk = chunk_of(&incoming, &part, 0);
        for block in 0..=BUFFERS as u64 {
            let none = |_| Err(io::ErrorKind::WouldBlock.into());
            assert!(write_by(&shared, &chunk, (&[block as u8; 10], block * 10), none));
        }
        let mut found = [0; 10];
        assert_eq!(part.read_at(&mut found, BUFFERS as u64 * 10).unwrap(), 10);
        assert_eq!((found, shared.disk.direct_writes.made()), ([BUFFERS as u8; 10], 1));
    }

    #[test]
    fn blocks_of_a_lane_that_lost_its_chunk_are_not_written_when_their_turn_comes() {
        let dir = tempfile::tempdir().unwrap();
        let shared = Arc::new(over(dir.path()));
        let (incoming, part) = incoming(&shared);
        let write = |chunk: &Arc<Chunk>, data: &[u8], offset| write_by(&shared, chunk, (data, offset), idle);
        let given_up = chunk_of(&incoming, &part, 1);
        assert!(write(&given_up, &[1; 100], 1 << 20));
        let other = chunk_of(&incoming, &part, 1);
        assert!(write(&other, &[2; 100], 1 << 20));
        assert!(write(&given_up, &[3; 100], 1 << 20));
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
        let write = |chunk: &Arc<Chunk>, data: &[u8], offset| write_by(&shared, chunk, (data, offset), idle);
        let chunk = chunk_of(&incoming, &part, 0);
        for block in 0..BUFFERS as u64 {
            assert!(write(&chunk, &[7; 10], block * 10));
        }
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| write(&chunk, &[7; 10], 0));
            shared.disk.direct_writes.end();
            assert!(!waits.join().unwrap());
        });
        assert_eq!(shared.disk.direct_writes.made(), BUFFERS);
    }
}
