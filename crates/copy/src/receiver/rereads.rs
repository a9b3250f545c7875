//! Holds what `reread.rs` is to read, what came of it, and what was said of it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use haul_engine::integrity::Hash;
use haul_job::Subject;
use haul_store::Draft;
use haul_sys::medium::Way;
use haul_wire::control::Notice;

use haul_channel::convert;
use haul_kept::sync::lock;

use super::disk_threads::DiskThreads;
use super::incoming::Incoming;

pub(super) struct Reread {
    pub(super) incoming: Arc<Incoming>,
    pub(super) part: Arc<Draft>,
    pub(super) chunk: u32,
    pub(super) hash: Hash,
}

#[derive(Default)]
pub(super) struct Rereads {
    state: Mutex<State>,
    work: Condvar,
    threads: DiskThreads,
    read_bytes: AtomicU64,
    medium_bytes: AtomicU64,
    again_bytes: AtomicU64,
    /// Bytes of earlier runs that are not to be read.
    trusted_bytes: AtomicU64,
    repaired_chunks: AtomicU64,
    said: Said,
}

#[derive(Default)]
struct State {
    /// The ledgers of open files bound it: a chunk hardly ever has two places.
    queue: VecDeque<Reread>,
    started: bool,
    /// Threads that give way to nobody were started, too.
    hurries: bool,
    ended: bool,
}

#[derive(Default)]
struct Said {
    way: AtomicBool,
    cached: AtomicBool,
}

impl Rereads {
    pub(super) fn push(&self, rereads: impl IntoIterator<Item = Reread>) {
        lock(&self.state).queue.extend(rereads);
        self.work.notify_all();
    }

    /// Returns true once: the caller starts the threads.
    pub(super) fn starts(&self) -> bool {
        !std::mem::replace(&mut lock(&self.state).started, true)
    }

    /// Returns true once, if there is something to read: the caller starts threads that give way to nobody.
    pub(super) fn starts_to_hurry(&self) -> bool {
        let mut state = lock(&self.state);
        !state.queue.is_empty() && !std::mem::replace(&mut state.hurries, true)
    }

    pub(super) fn started(&self, thread: JoinHandle<()>) {
        self.threads.add(thread);
    }

    pub(super) fn add_again(&self, bytes: u64) {
        self.again_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes of an earlier run by its journal.
    pub(super) fn trust(&self, bytes: u64) {
        self.trusted_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn count_repaired(&self) {
        self.repaired_chunks.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// Returns bytes from the medium, and chunks asked for again.
    pub(super) fn repairs(&self) -> (u64, u64) {
        (self.medium_bytes.load(Ordering::Relaxed), self.repaired_chunks.load(Ordering::Relaxed))
    }

    /// Returns what was found right, and what was not to be read.
    pub(super) fn of_earlier_runs(&self) -> (u64, u64) {
        (self.again_bytes.load(Ordering::Relaxed), self.trusted_bytes.load(Ordering::Relaxed))
    }

    pub(super) fn end(&self) {
        lock(&self.state).ended = true;
        self.work.notify_all();
    }

    pub(super) fn join(&self, is_lost: bool) {
        self.end();
        self.threads.join(is_lost);
    }

    pub(super) fn next(&self) -> Option<Reread> {
        let state = lock(&self.state);
        let idle = |state: &mut State| state.queue.is_empty() && !state.ended;
        let mut state = self.work.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
        if state.ended { None } else { state.queue.pop_front() }
    }

    pub(super) fn add_read(&self, bytes: u64) {
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes read back from another end, which already count as read.
    pub(super) fn add_from_other_end(&self, bytes: u64) {
        self.medium_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes read back from the medium. Returns what to tell: the first time how, and once what no medium gave.
    pub(super) fn add_medium(&self, way: Way, bytes: u64, cached_bytes: u64) -> Vec<Notice> {
        let mut told = Vec::new();
        self.add_read(bytes);
        self.medium_bytes.fetch_add(bytes, Ordering::Relaxed);
        if !self.said.way.swap(true, Ordering::Relaxed) {
            let (choice, reason) = match way {
                Way::Direct => ("direct reads", "past the page cache"),
                Way::Dropped => ("reads after the page cache was emptied", "the file system has no direct reads"),
                Way::Memory => ("reads from memory", "the target has no medium"),
            };
            let (what, choice, reason) = (Subject::Verification, choice.to_owned(), reason.to_owned());
            told.push(convert::chose(what, choice, reason));
            if way == Way::Memory {
                let text =
                    "--verify disk: the target lies in memory (tmpfs), where there is no medium to read back from";
                told.push(Notice::Warning { text: text.to_owned() });
            }
        }
        if cached_bytes > 0 && !self.said.cached.swap(true, Ordering::Relaxed) {
            let text = "--verify disk: the file system of the target has no direct reads and keeps what was written in its cache: \
                        some of it was compared there, and not on the medium";
            told.push(Notice::Warning { text: text.to_owned() });
        }
        told
    }
}
