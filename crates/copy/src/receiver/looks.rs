//! Queues the files at the target to look at, and counts the sender's knowledge of them.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use haul_wire::control::Wanted;

use haul_kept::sync::lock;

use super::disk_threads::DiskThreads;
use super::incoming::Incoming;
use super::standing_file::StandingFile;
use crate::pieces::OPEN_PIECES;

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
    open_pieces: usize,
    ended: bool,
}

impl Looks {
    pub(super) fn start_once(&self, count: usize, spawn: impl Fn(usize) -> io::Result<JoinHandle<()>>) -> bool {
        self.threads.start_once(count, spawn)
    }

    pub(super) fn push(&self, look: Look) {
        lock(&self.state).queue.push_back(look);
        self.work.notify_one();
    }

    pub(super) fn next(&self) -> Option<Look> {
        let waits = |state: &mut State| !state.ended && (state.queue.is_empty() || state.open_pieces >= OPEN_PIECES);
        let mut state = self.work.wait_while(lock(&self.state), waits).unwrap_or_else(PoisonError::into_inner);
        if state.ended { None } else { state.queue.pop_front() }
    }

    pub(super) fn add_told(&self, standing: &StandingFile, pieces: usize) {
        standing.told.fetch_add(pieces, Ordering::Relaxed);
        lock(&self.state).open_pieces += pieces;
    }

    pub(super) fn release(&self, standing: &StandingFile) {
        let told = standing.told.swap(0, Ordering::Relaxed);
        lock(&self.state).open_pieces -= told;
        self.work.notify_all();
    }

    pub(super) fn add_read(&self, bytes: u64) {
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn end(&self) {
        lock(&self.state).ended = true;
        self.work.notify_all();
    }

    pub(super) fn join(&self, is_lost: bool) {
        self.end();
        self.threads.join(is_lost);
    }
}
