//! What is to be read again, what came of it, and what was said of it (`reread.rs` reads).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use haul_engine::integrity::Hash;
use haul_job::Subject;
use haul_store::Draft;
use haul_sys::medium::Way;
use haul_wire::control::Notice;

use crate::session::convert;
use crate::sync::lock;

use super::incoming::Incoming;

/// A chunk to be read, with the hash that it has to have.
pub(super) struct Reread {
    pub(super) incoming: Arc<Incoming>,
    pub(super) part: Arc<Draft>,
    pub(super) chunk: u32,
    pub(super) hash: Hash,
}

/// What is to be read, who reads it, and what came of it.
#[derive(Default)]
pub(super) struct Rereads {
    state: Mutex<State>,
    work: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Read in any way so far.
    read_bytes: AtomicU64,
    /// From the medium.
    medium_bytes: AtomicU64,
    /// Of earlier runs, and right.
    again_bytes: AtomicU64,
    /// Of earlier runs, and not to be read.
    trusted_bytes: AtomicU64,
    repaired_chunks: AtomicU64,
    /// What was said of how the medium is read.
    said: Said,
}

#[derive(Default)]
struct State {
    /// Bounded like the ledgers of the files that are open: hardly ever has a chunk two places in it.
    queue: VecDeque<Reread>,
    started: bool,
    /// Threads that give way to nobody were started, too.
    hurries: bool,
    ended: bool,
}

/// What is said once for a job.
#[derive(Default)]
struct Said {
    way: AtomicBool,
    cached: AtomicBool,
}

impl Rereads {
    /// These are to be read.
    pub(super) fn push(&self, rereads: impl IntoIterator<Item = Reread>) {
        lock(&self.state).queue.extend(rereads);
        self.work.notify_all();
    }

    /// True once: the threads are to be started.
    pub(super) fn starts(&self) -> bool {
        !std::mem::replace(&mut lock(&self.state).started, true)
    }

    /// True once, when there is something to read: threads that give way to nobody are to be started.
    pub(super) fn starts_to_hurry(&self) -> bool {
        let mut state = lock(&self.state);
        !state.queue.is_empty() && !std::mem::replace(&mut state.hurries, true)
    }

    /// One of the threads, to be waited for.
    pub(super) fn started(&self, thread: JoinHandle<()>) {
        lock(&self.threads).push(thread);
    }

    /// So many bytes of an earlier run were read again, and are right.
    pub(super) fn add_again(&self, bytes: u64) {
        self.again_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many bytes of an earlier run count as its journal says.
    pub(super) fn trust(&self, bytes: u64) {
        self.trusted_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A chunk was asked for again.
    pub(super) fn count_repaired(&self) {
        self.repaired_chunks.fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes that were read in any way.
    pub(super) fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that were read from the medium, and chunks that were asked for again.
    pub(super) fn repairs(&self) -> (u64, u64) {
        (self.medium_bytes.load(Ordering::Relaxed), self.repaired_chunks.load(Ordering::Relaxed))
    }

    /// Bytes of earlier runs that were read and found right, and bytes that were not to be read.
    pub(super) fn of_earlier_runs(&self) -> (u64, u64) {
        (self.again_bytes.load(Ordering::Relaxed), self.trusted_bytes.load(Ordering::Relaxed))
    }

    /// Nothing is read any more.
    pub(super) fn end(&self) {
        lock(&self.state).ended = true;
        self.work.notify_all();
    }

    /// Waits for the end of the threads, where `is_lost` does not say that they wait for a disk that does not answer.
    pub(super) fn join(&self, is_lost: bool) {
        self.end();
        for thread in lock(&self.threads).drain(..) {
            if !is_lost || thread.is_finished() {
                // A panic was reported by the panic hook; the session ends by its timeout.
                let _ = thread.join();
            }
        }
    }

    /// The next chunk; `None` when the session is over.
    pub(super) fn next(&self) -> Option<Reread> {
        let state = lock(&self.state);
        let idle = |state: &mut State| state.queue.is_empty() && !state.ended;
        let mut state = self.work.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
        if state.ended { None } else { state.queue.pop_front() }
    }

    pub(super) fn add_read(&self, bytes: u64) {
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes were read back from the medium. Returns what to tell: the first time how, and once what could not be read
    /// from a medium.
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
