//! Blocks on their way past the page cache wait here between lanes and writers (`writers.rs`).
//!
//! The whole job shares the buffers. A lane takes one only for a block that has arrived, so none waits for the network.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use haul_engine::integrity::Verified;
use haul_store::{Draft, StoreError};
use haul_sys::direct::AlignedBuffer;
use haul_wire::control::Receipt;
use haul_wire::limits::BLOCK_BYTES;

use haul_kept::sync::lock;

use super::claim::Claimed;
use super::disk_threads::DiskThreads;
use super::incoming::Incoming;

/// 64 x 256 KiB = 16 MiB at once: 8 ms of work for a disk of 2 GB/s, longer than a scheduler's turn.
pub const BUFFERS: usize = 64;

/// The lane or the writer that finishes last delivers the chunk.
pub(super) struct Chunk {
    pub(super) incoming: Arc<Incoming>,
    pub(super) part: Arc<Draft>,
    pub(super) claim: Arc<Claimed>,
    /// Unwritten blocks, and one for the lane until it has said how the chunk ended.
    left: AtomicU32,
    end: Mutex<End>,
}

/// A chunk with neither did not arrive whole.
#[derive(Default)]
pub(super) struct End {
    pub(super) verified: Option<(Verified, Receipt, u64)>,
    pub(super) failed: Option<StoreError>,
}

impl Chunk {
    pub(super) fn new(incoming: Arc<Incoming>, part: Arc<Draft>, claim: Arc<Claimed>) -> Arc<Self> {
        Arc::new(Self { incoming, part, claim, left: AtomicU32::new(1), end: Mutex::default() })
    }

    pub(super) fn verified(&self, verified: Verified, receipt: Receipt, data_bytes: u64) -> Option<End> {
        lock(&self.end).verified = Some((verified, receipt, data_bytes));
        self.one_less()
    }

    /// After a failed write the rest need not be written.
    pub(super) fn has_failed(&self) -> bool {
        lock(&self.end).failed.is_some()
    }

    pub(super) fn fail(&self, error: StoreError) {
        lock(&self.end).failed.get_or_insert(error);
    }

    pub(super) fn one_less(&self) -> Option<End> {
        (self.left.fetch_sub(1, Ordering::AcqRel) == 1).then(|| std::mem::take(&mut *lock(&self.end)))
    }
}

pub(super) struct Block {
    pub(super) chunk: Arc<Chunk>,
    pub(super) buffer: AlignedBuffer,
    pub(super) bytes: usize,
    pub(super) offset: u64,
}

#[derive(Default)]
pub(super) struct DirectWriteQueue {
    state: Mutex<State>,
    work: Condvar,
    room: Condvar,
    writers: DiskThreads,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Block>,
    free: Vec<AlignedBuffer>,
    made: usize,
    ended: bool,
}

impl DirectWriteQueue {
    /// Queues a block; waits for a free buffer. Returns false at the end.
    pub(super) fn take(&self, chunk: &Arc<Chunk>, data: &[u8], offset: u64) -> bool {
        let Some(mut buffer) = self.buffer() else { return false };
        buffer[..data.len()].copy_from_slice(data);
        chunk.left.fetch_add(1, Ordering::Relaxed);
        let block = Block { chunk: Arc::clone(chunk), buffer, bytes: data.len(), offset };
        lock(&self.state).queue.push_back(block);
        self.work.notify_one();
        true
    }

    pub(super) fn give_back(&self, buffer: AlignedBuffer) {
        lock(&self.state).free.push(buffer);
        self.room.notify_one();
    }

    pub(super) fn start_once(&self, count: usize, spawn: impl Fn(usize) -> io::Result<JoinHandle<()>>) -> bool {
        self.writers.start_once(count, spawn)
    }

    pub(super) fn end(&self) {
        lock(&self.state).ended = true;
        self.work.notify_all();
        self.room.notify_all();
    }

    /// Waits until all is written, unless the disk is lost.
    pub(super) fn join(&self, is_lost: bool) {
        self.end();
        self.writers.join(is_lost);
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

    pub(super) fn next(&self) -> Option<Block> {
        let state = lock(&self.state);
        let idle = |state: &mut State| state.queue.is_empty() && !state.ended;
        let mut state = self.work.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
        state.queue.pop_front()
    }

    #[cfg(test)]
    pub(super) fn made(&self) -> usize {
        lock(&self.state).made
    }
}
