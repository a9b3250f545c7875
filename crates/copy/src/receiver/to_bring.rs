//! Queues the files that the sources' server is to bring, for `bringing.rs`.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use haul_engine::compare::Existing;
use haul_kept::sync::lock;
use haul_store::{Stat, TargetTree, ThirdParty};
use haul_wire::manifest::{Identity, Item};

use super::disk_threads::DiskThreads;

/// A file whose data is to come, whichever way.
pub(super) struct WantedFile {
    pub(super) index: u64,
    pub(super) item: Arc<Item>,
    pub(super) path: Vec<u8>,
    pub(super) identity: Identity,
    pub(super) inplace: bool,
    pub(super) standing: Option<Stat>,
    pub(super) existing: Existing,
}

#[derive(Default)]
pub(super) struct ToBring {
    by: Option<Arc<dyn ThirdParty>>,
    state: Mutex<State>,
    work: Condvar,
    threads: DiskThreads,
}

#[derive(Default)]
struct State {
    /// The open items bound it.
    queue: VecDeque<WantedFile>,
    ended: bool,
}

impl ToBring {
    /// Asks the target's end once.
    pub(super) fn to(tree: &dyn TargetTree) -> Self {
        Self { by: tree.third_party(), ..Self::default() }
    }

    pub(super) fn by(&self) -> Option<&Arc<dyn ThirdParty>> {
        self.by.as_ref()
    }

    pub(super) fn start_once(&self, count: usize, spawn: impl Fn(usize) -> io::Result<JoinHandle<()>>) -> bool {
        self.threads.start_once(count, spawn)
    }

    /// Gives the file back if nobody brings anything any more.
    pub(super) fn push(&self, file: WantedFile) -> Option<WantedFile> {
        let mut state = lock(&self.state);
        if state.ended {
            return Some(file);
        }
        state.queue.push_back(file);
        self.work.notify_one();
        None
    }

    pub(super) fn next(&self) -> Option<WantedFile> {
        let is_idle = |state: &mut State| state.queue.is_empty() && !state.ended;
        let mut state = self.work.wait_while(lock(&self.state), is_idle).unwrap_or_else(PoisonError::into_inner);
        if state.ended { None } else { state.queue.pop_front() }
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
