//! Blocks on their way past the page cache: the queue between lanes and writers (`writers.rs`).
//!
//! The buffers are those of the whole job. A lane takes one only for a block that has arrived, so that none is held while
//! its lane waits for the network.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use haul_engine::integrity::Verified;
use haul_store::{Draft, StoreError};
use haul_sys::direct::AlignedBuffer;
use haul_wire::control::Receipt;
use haul_wire::limits::BLOCK_BYTES;

use crate::sync::lock;

use super::claim::Claimed;
use super::incoming::Incoming;

/// Blocks that are filled or written at once: 64 x 256 KiB = 16 MiB. A disk of 2 GB/s has work for 8 ms, longer than a scheduler's turn.
pub(crate) const BUFFERS: usize = 64;

/// A chunk on its way past the page cache; delivered by whoever is last: the lane, or a writer.
pub(super) struct Chunk {
    pub(super) incoming: Arc<Incoming>,
    pub(super) part: Arc<Draft>,
    /// The right to write it.
    pub(super) claim: Arc<Claimed>,
    /// Blocks that are not written yet, and one for the lane until it has said how the chunk ended.
    left: AtomicU32,
    end: Mutex<End>,
}

/// How a chunk ended. Neither: it did not arrive whole.
#[derive(Default)]
pub(super) struct End {
    /// Its hash holds.
    pub(super) verified: Option<(Verified, Receipt, u64)>,
    /// The first error of the target.
    pub(super) failed: Option<StoreError>,
}

impl Chunk {
    pub(super) fn new(incoming: Arc<Incoming>, part: Arc<Draft>, claim: Arc<Claimed>) -> Arc<Self> {
        Arc::new(Self { incoming, part, claim, left: AtomicU32::new(1), end: Mutex::default() })
    }

    /// The lane has all of it, and its hash holds. Returns how the chunk ended, if nothing else of it is on its way.
    pub(super) fn verified(&self, verified: Verified, receipt: Receipt, data_bytes: u64) -> Option<End> {
        lock(&self.end).verified = Some((verified, receipt, data_bytes));
        self.one_less()
    }

    /// Whether a write of it has failed: then the rest need not be written.
    pub(super) fn has_failed(&self) -> bool {
        lock(&self.end).failed.is_some()
    }

    /// A write of it has failed.
    pub(super) fn fail(&self, error: StoreError) {
        lock(&self.end).failed.get_or_insert(error);
    }

    /// One block less is on its way. Returns how the chunk ended, if that was the last one.
    pub(super) fn one_less(&self) -> Option<End> {
        (self.left.fetch_sub(1, Ordering::AcqRel) == 1).then(|| std::mem::take(&mut *lock(&self.end)))
    }
}

/// A block on its way.
pub(super) struct Block {
    pub(super) chunk: Arc<Chunk>,
    pub(super) buffer: AlignedBuffer,
    pub(super) bytes: usize,
    pub(super) offset: u64,
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
    pub(super) fn take(&self, chunk: &Arc<Chunk>, data: &[u8], offset: u64) -> bool {
        let Some(mut buffer) = self.buffer() else { return false };
        buffer[..data.len()].copy_from_slice(data);
        chunk.left.fetch_add(1, Ordering::Relaxed);
        let block = Block { chunk: Arc::clone(chunk), buffer, bytes: data.len(), offset };
        lock(&self.state).queue.push_back(block);
        self.work.notify_one();
        true
    }

    /// A block was written, or need not be written any more.
    pub(super) fn give_back(&self, buffer: AlignedBuffer) {
        lock(&self.state).free.push(buffer);
        self.room.notify_one();
    }

    /// True once: the writers are to be started.
    pub(super) fn starts(&self) -> bool {
        !std::mem::replace(&mut lock(&self.state).started, true)
    }

    /// One of the writers, to be waited for.
    pub(super) fn started(&self, writer: JoinHandle<()>) {
        lock(&self.writers).push(writer);
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

    /// The next block; `None` when nothing follows.
    pub(super) fn next(&self) -> Option<Block> {
        let state = lock(&self.state);
        let idle = |state: &mut State| state.queue.is_empty() && !state.ended;
        let mut state = self.work.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
        state.queue.pop_front()
    }

    /// Buffers that were made so far.
    #[cfg(test)]
    pub(super) fn made(&self) -> usize {
        lock(&self.state).made
    }
}
