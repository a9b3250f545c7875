//! The files at the target that wait to be looked at, and how much the sender knows of them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use haul_wire::control::Wanted;

use haul_kept::sync::lock;

use super::disk_threads::DiskThreads;
use super::incoming::Incoming;
use super::standing_file::StandingFile;
use crate::pieces::OPEN_PIECES;

/// A file whose pieces are to be told before it is asked for.
pub(super) struct Look {
    pub(super) incoming: Arc<Incoming>,
    pub(super) wanted: Wanted,
}

#[derive(Default)]
pub(super) struct Looks {
    state: Mutex<State>,
    work: Condvar,
    threads: DiskThreads,
    read_bytes: AtomicU64,
}

#[derive(Default)]
struct State {
    /// The open items bound it.
    queue: VecDeque<Look>,
    /// The sender knows so many pieces of open files.
    open_pieces: usize,
    started: bool,
    ended: bool,
}

impl Looks {
    /// Returns true once, to the one who then starts the threads.
    pub(super) fn starts(&self) -> bool {
        !std::mem::replace(&mut lock(&self.state).started, true)
    }

    pub(super) fn push(&self, look: Look) {
        lock(&self.state).queue.push_back(look);
        self.work.notify_one();
    }

    /// Returns `None` when the session is over.
    pub(super) fn next(&self) -> Option<Look> {
        let waits = |state: &mut State| !state.ended && (state.queue.is_empty() || state.open_pieces >= OPEN_PIECES);
        let mut state = self.work.wait_while(lock(&self.state), waits).unwrap_or_else(PoisonError::into_inner);
        if state.ended { None } else { state.queue.pop_front() }
    }

    pub(super) fn add_told(&self, standing: &StandingFile, pieces: usize) {
        standing.told.fetch_add(pieces, Ordering::Relaxed);
        lock(&self.state).open_pieces += pieces;
    }

    /// The file has its outcome, and the sender forgets its pieces.
    pub(super) fn release(&self, standing: &StandingFile) {
        let told = standing.told.swap(0, Ordering::Relaxed);
        lock(&self.state).open_pieces -= told;
        self.work.notify_all();
    }

    pub(super) fn add_thread(&self, thread: JoinHandle<()>) {
        self.threads.add(thread);
    }

    pub(super) fn add_read(&self, bytes: u64) {
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes of standing files that were read to look at them.
    pub(super) fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn end(&self) {
        lock(&self.state).ended = true;
        self.work.notify_all();
    }

    /// Waits for the end of the threads, unless `is_lost` says that they wait for a disk that does not answer.
    pub(super) fn join(&self, is_lost: bool) {
        self.end();
        self.threads.join(is_lost);
    }
}
