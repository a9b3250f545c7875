//! Writes past the page cache, behind the back of the lanes.
//!
//! ```text
//!   lane: block -> hash -> a free buffer -> queue          last block of the chunk: its hash holds
//!   writer: the next of the queue -> a direct write                           last write: the chunk is delivered
//! ```
//! A direct write returns when the disk has the bytes, so the lanes do not wait for it: several writers do, and the disk is not idle between
//! two writes. The buffers are those of the whole job. A lane takes one only for a block that has arrived, so that none is held while its
//! lane waits for the network.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use haul_engine::integrity::Verified;
use haul_store::{Part, StoreError};
use haul_sys::direct::AlignedBuffer;
use haul_wire::control::Receipt;
use haul_wire::limits::BLOCK_BYTES;

use super::claim::Claimed;
use super::incoming::Incoming;
use super::state::Shared;
use crate::sync::lock;

/// Blocks that are filled or written at once: 64 x 256 KiB = 16 MiB. A disk of 2 GB/s has work for 8 ms, longer than a scheduler's turn.
pub(crate) const BUFFERS: usize = 64;

/// Writes on their way at once: on a virtual disk of 1.8 GB/s four of a block each were as fast as eight, or four of 2 MiB.
pub(crate) const WRITERS: usize = 4;

/// A chunk on its way past the page cache; delivered by whoever is last: the lane, or a writer.
pub(super) struct Chunk {
    pub(super) incoming: Arc<Incoming>,
    pub(super) part: Arc<Part>,
    /// The right to write it.
    pub(super) claim: Arc<Claimed>,
    /// Blocks that are not written yet, and one for the lane until it has said how the chunk ended.
    left: AtomicU32,
    end: Mutex<End>,
}

#[derive(Default)]
struct End {
    /// Its hash holds.
    verified: Option<(Verified, Receipt, u64)>,
    /// The first error of the target.
    failed: Option<StoreError>,
}

impl Chunk {
    pub(super) fn new(incoming: Arc<Incoming>, part: Arc<Part>, claim: Arc<Claimed>) -> Arc<Self> {
        Arc::new(Self { incoming, part, claim, left: AtomicU32::new(1), end: Mutex::default() })
    }

    /// The lane has all of it, and its hash holds.
    pub(super) fn verified(self: Arc<Self>, verified: Verified, receipt: Receipt, data_bytes: u64, shared: &Shared) {
        lock(&self.end).verified = Some((verified, receipt, data_bytes));
        self.one_less(shared);
    }

    /// Whether a write of it has failed: then the rest need not be written.
    pub(super) fn has_failed(&self) -> bool {
        lock(&self.end).failed.is_some()
    }

    /// A write of it has failed.
    pub(super) fn fail(&self, error: StoreError) {
        lock(&self.end).failed.get_or_insert(error);
    }

    fn one_less(&self, shared: &Shared) {
        if self.left.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let End { verified, failed } = std::mem::take(&mut *lock(&self.end));
        match (failed, verified) {
            (Some(error), _) => shared.fail(&self.incoming, &error),
            (None, Some((verified, receipt, data_bytes))) => {
                shared.deliver_chunk(&self.incoming, &self.claim, verified, receipt, data_bytes);
            }
            // It did not arrive whole.
            (None, None) => {}
        }
    }
}

/// A block on its way.
struct Block {
    chunk: Arc<Chunk>,
    buffer: AlignedBuffer,
    bytes: usize,
    offset: u64,
}

/// The buffers and the writers of a job.
#[derive(Default)]
pub(super) struct Behind {
    state: Mutex<State>,
    /// Blocks to write, or the end.
    work: Condvar,
    /// A buffer is free, or the end.
    room: Condvar,
    writers: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Block>,
    free: Vec<AlignedBuffer>,
    /// Buffers there are, free or not.
    made: usize,
    started: bool,
    ended: bool,
}

impl Behind {
    /// Takes a block, to be written when its turn comes; waits while no buffer is free. False once nothing is taken any more.
    pub(super) fn write(&self, chunk: &Arc<Chunk>, data: &[u8], offset: u64, shared: &Arc<Shared>) -> io::Result<bool> {
        self.start(shared)?;
        let Some(mut buffer) = self.buffer() else { return Ok(false) };
        buffer[..data.len()].copy_from_slice(data);
        chunk.left.fetch_add(1, Ordering::Relaxed);
        let block = Block { chunk: Arc::clone(chunk), buffer, bytes: data.len(), offset };
        lock(&self.state).queue.push_back(block);
        self.work.notify_one();
        Ok(true)
    }

    /// No block is taken any more, and nobody waits for a buffer.
    pub(super) fn end(&self) {
        lock(&self.state).ended = true;
        self.work.notify_all();
        self.room.notify_all();
    }

    /// Waits until what was taken is written, where `is_lost` does not say that the disk does not answer.
    pub(super) fn join(&self, is_lost: bool) {
        self.end();
        for writer in lock(&self.writers).drain(..) {
            if !is_lost || writer.is_finished() {
                // A panic was reported by the panic hook.
                let _ = writer.join();
            }
        }
    }

    /// The writers, when the first block comes: most jobs have none for them.
    fn start(&self, shared: &Arc<Shared>) -> io::Result<()> {
        if std::mem::replace(&mut lock(&self.state).started, true) {
            return Ok(());
        }
        for number in 0..WRITERS {
            let shared = Arc::clone(shared);
            let run = move || shared.behind.run(&shared);
            let writer = std::thread::Builder::new().name(format!("write {number}")).spawn(run);
            match writer {
                Ok(writer) => lock(&self.writers).push(writer),
                // One is enough.
                Err(_) if number > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn buffer(&self) -> Option<AlignedBuffer> {
        let state = lock(&self.state);
        let full = |state: &mut State| state.free.is_empty() && state.made == BUFFERS && !state.ended;
        let mut state = self.room.wait_while(state, full).unwrap_or_else(PoisonError::into_inner);
        if state.ended {
            return None;
        }
        let free = state.free.pop();
        state.made += usize::from(free.is_none());
        drop(state);
        Some(free.unwrap_or_else(|| AlignedBuffer::new(BLOCK_BYTES)))
    }

    fn run(&self, shared: &Shared) {
        while let Some(Block { chunk, buffer, bytes, offset }) = self.next() {
            let write = || shared.storage.during(|| chunk.part.write_past_cache(&buffer[..bytes], offset));
            // Nothing is written once another lane has the chunk.
            if !chunk.has_failed()
                && let Some(Err(error)) = chunk.claim.while_held(write)
            {
                chunk.fail(error);
            }
            // Before the delivery, which waits for a disk where it is time for a checkpoint.
            lock(&self.state).free.push(buffer);
            self.room.notify_one();
            chunk.one_less(shared);
        }
    }

    /// The next block; `None` when nothing follows.
    fn next(&self) -> Option<Block> {
        let state = lock(&self.state);
        let idle = |state: &mut State| state.queue.is_empty() && !state.ended;
        let mut state = self.work.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
        state.queue.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use haul_wire::RelPath;
    use haul_wire::manifest::{Attributes, Identity, Item, ItemKind};

    use super::super::state::tests::over;
    use super::*;

    /// A file of three chunks and its part.
    fn incoming(shared: &Shared) -> (Arc<Incoming>, Arc<Part>) {
        let identity = Identity { size: 3 << 20, mtime: Default::default(), ctime: Default::default(), inode: 1 };
        let kind = ItemKind::File { identity, sparse: false, blake3: None, further_names: 0 };
        let path = RelPath::new(b"file".to_vec()).unwrap();
        let item = Arc::new(Item { path, kind, attributes: Attributes::default() });
        let incoming = Arc::new(Incoming::new(0, item, b"file".to_vec(), identity, false));
        let part = incoming.part(shared.tree()).unwrap().unwrap();
        (incoming, part)
    }

    fn chunk_of(incoming: &Arc<Incoming>, part: &Arc<Part>, number: u32) -> Arc<Chunk> {
        Chunk::new(Arc::clone(incoming), Arc::clone(part), Arc::new(Claimed::take(incoming, number)))
    }

    #[test]
    fn blocks_of_a_lane_that_lost_its_chunk_are_not_written_when_their_turn_comes() {
        let dir = tempfile::tempdir().unwrap();
        let shared = Arc::new(over(dir.path()));
        let (incoming, part) = incoming(&shared);
        // No writer comes: what is taken waits.
        lock(&shared.behind.state).started = true;
        let given_up = chunk_of(&incoming, &part, 1);
        assert!(shared.behind.write(&given_up, &[1; 100], 1 << 20, &shared).unwrap());
        let other = chunk_of(&incoming, &part, 1);
        assert!(shared.behind.write(&other, &[2; 100], 1 << 20, &shared).unwrap());
        // And one that comes late.
        assert!(shared.behind.write(&given_up, &[3; 100], 1 << 20, &shared).unwrap());
        shared.behind.end();
        shared.behind.run(&shared);
        let mut found = [0; 200];
        assert_eq!(part.read_at(&mut found, 1 << 20).unwrap(), 100);
        assert_eq!(found[..100], [2; 100]);
    }

    #[test]
    fn whoever_waits_for_a_buffer_is_let_go_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let shared = Arc::new(over(dir.path()));
        let (incoming, part) = incoming(&shared);
        lock(&shared.behind.state).started = true;
        let chunk = chunk_of(&incoming, &part, 0);
        for block in 0..BUFFERS as u64 {
            assert!(shared.behind.write(&chunk, &[7; 10], block * 10, &shared).unwrap());
        }
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| shared.behind.write(&chunk, &[7; 10], 0, &shared).unwrap());
            shared.behind.end();
            assert!(!waits.join().unwrap());
        });
        assert_eq!(lock(&shared.behind.state).made, BUFFERS);
    }
}
