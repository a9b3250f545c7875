//! Whole files of all lanes wait here for their final names.
//!
//! A batch is flushed once it is large, or a lane is idle; the next gathers meanwhile, so a slow disk has large batches. Lanes
//! wait only while too many files have no name: each is open, and a death costs all of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use haul_engine::integrity::Hash;
use haul_store::Draft;

use haul_kept::sync::lock;

use super::incoming::Incoming;

pub(super) struct AwaitingName {
    pub(super) incoming: Arc<Incoming>,
    pub(super) part: Arc<Draft>,
    pub(super) blake3: Hash,
}

pub(super) struct RenameQueue {
    state: Mutex<State>,
    due: Condvar,
    room: Condvar,
    max_files: usize,
    /// A copy of the state's count: a lane looks often.
    waiting: AtomicU64,
}

struct State {
    waiting: Vec<AwaitingName>,
    waiting_bytes: u64,
    since: Option<Instant>,
    is_idle: bool,
    /// Leaves the disk time for others between two flushes.
    rest_until: Option<Instant>,
    files: usize,
    bytes: u64,
    over: bool,
    finished: bool,
}

/// More files do not make a shared flush cheaper for each (measured on ext4, XFS and btrfs).
const BATCH_FILES: usize = 1024;

/// Two batches, 64 MiB, are the most that a death costs of whole files.
const BATCH_BYTES: u64 = 32 << 20;

/// One is flushed while one gathers.
const BATCHES: usize = 2;

/// Waiting files take at most this share of the open-file limit.
const SHARE: u64 = 4;

const GATHER_MAX: Duration = Duration::from_millis(250);

/// While lanes are idle, the disk flushes for a fifth of the time, with pauses no longer than this.
const REST: u32 = 4;
const REST_MAX: Duration = Duration::from_millis(100);

/// Larger files begin their way to the disk before their batch is full; for smaller ones the call costs more than it brings.
const EARLY_FROM_BYTES: u64 = 256 << 10;

impl RenameQueue {
    pub(super) fn new(may_be_open: u64) -> Self {
        let share = usize::try_from(may_be_open / SHARE).unwrap_or(usize::MAX);
        let state = State {
            waiting: Vec::new(),
            waiting_bytes: 0,
            since: None,
            is_idle: false,
            rest_until: None,
            files: 0,
            bytes: 0,
            over: false,
            finished: false,
        };
        Self {
            state: Mutex::new(state),
            due: Condvar::new(),
            room: Condvar::new(),
            max_files: share.clamp(1, BATCHES * BATCH_FILES),
            waiting: AtomicU64::new(0),
        }
    }

    pub(super) fn add(&self, awaiting_name: AwaitingName, flush: bool) {
        let bytes = awaiting_name.incoming.identity.size;
        if flush && bytes >= EARLY_FROM_BYTES {
            awaiting_name.part.start_writeback(0, bytes);
        }
        let mut state = self.lock();
        state.files += 1;
        state.bytes += bytes;
        state.waiting_bytes += bytes;
        state.waiting.push(awaiting_name);
        self.waiting.fetch_add(1, Ordering::Relaxed);
        if state.waiting.len() == 1 {
            state.since = Some(Instant::now());
            self.due.notify_one();
        } else if self.is_batch(&state) {
            self.due.notify_one();
        }
    }

    /// Ends gathering: a lane is idle, or begins something that may take long.
    pub(super) fn hurry(&self) {
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut state = self.lock();
        if !std::mem::replace(&mut state.is_idle, true) {
            self.due.notify_one();
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.has_no_room(&self.lock())
    }

    pub(super) fn await_room(&self) {
        let waited = self.room.wait_while(self.lock(), |state| self.has_no_room(state));
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn end(&self) {
        self.lock().over = true;
        self.room.notify_all();
    }

    /// Ends the threads once waiting files have names: no lane is left.
    pub(super) fn finish(&self) {
        self.lock().finished = true;
        self.due.notify_all();
    }

    fn has_no_room(&self, state: &State) -> bool {
        let is_full = state.files >= self.max_files || state.bytes >= BATCH_BYTES * BATCHES as u64;
        is_full && !state.over
    }

    fn is_batch(&self, state: &State) -> bool {
        let most = (self.max_files / BATCHES).clamp(1, BATCH_FILES);
        state.waiting.len() >= most || state.waiting_bytes >= BATCH_BYTES
    }

    fn due_in(&self, state: &State, now: Instant) -> Duration {
        if state.finished || self.is_batch(state) {
            return Duration::ZERO;
        }
        let last = state.since.map_or(Duration::ZERO, |since| (since + GATHER_MAX).saturating_duration_since(now));
        let rest = state.rest_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        if state.is_idle { last.min(rest) } else { last }
    }

    /// Returns all waiting files once due; `None` at the end.
    pub(super) fn next(&self) -> Option<Vec<AwaitingName>> {
        let mut state = self.lock();
        loop {
            if state.waiting.is_empty() {
                if state.finished {
                    return None;
                }
                state = self.due.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let due_in = self.due_in(&state, Instant::now());
            if due_in.is_zero() {
                return Some(self.take_from(&mut state));
            }
            let waited = self.due.wait_timeout(state, due_in);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    #[cfg(feature = "testing")]
    pub(super) fn take(&self) -> Vec<AwaitingName> {
        self.take_from(&mut self.lock())
    }

    fn take_from(&self, state: &mut State) -> Vec<AwaitingName> {
        (state.waiting_bytes, state.since, state.is_idle) = (0, None, false);
        self.waiting.store(0, Ordering::Relaxed);
        std::mem::take(&mut state.waiting)
    }

    /// Takes back the rest of a batch that was too large.
    pub(super) fn put_back(&self, batch: Vec<AwaitingName>) {
        if batch.is_empty() {
            return;
        }
        let mut state = self.lock();
        state.waiting_bytes += batch.iter().map(|awaiting_name| awaiting_name.incoming.identity.size).sum::<u64>();
        self.waiting.fetch_add(batch.len() as u64, Ordering::Relaxed);
        // They count as waiting since long ago: they are due.
        state.since = Instant::now().checked_sub(GATHER_MAX);
        state.waiting.splice(0..0, batch);
        self.due.notify_one();
    }

    pub(super) fn rest_after(&self, flush: Duration) {
        self.lock().rest_until = Some(Instant::now() + (flush * REST).min(REST_MAX));
    }

    pub(super) fn remove(&self, files: usize, bytes: u64) {
        let mut state = self.lock();
        state.files -= files;
        state.bytes -= bytes;
        drop(state);
        self.room.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

#[cfg(test)]
mod tests {
    use haul_wire::RelPath;
    use haul_wire::manifest::{Attributes, Identity, Item, ItemKind};

    use super::*;
    use crate::receiver::state::tests::over;

    fn awaiting_name(shared: &crate::receiver::state::Shared, number: u64, size: u64) -> AwaitingName {
        let identity = Identity { size, mtime: Default::default(), ctime: Default::default(), inode: number };
        let kind = ItemKind::File { identity, hole_bytes: 0, blake3: None, further_names: 0 };
        let name = format!("file{number}").into_bytes();
        let item = Item { path: RelPath::new(name.clone()).unwrap(), kind, attributes: Attributes::default() };
        let incoming = Arc::new(Incoming::new(number, Arc::new(item), name, identity, false));
        let part = incoming.whole_part(shared.to.tree()).unwrap().unwrap();
        AwaitingName { incoming, part, blake3: [0; 32] }
    }

    #[test]
    fn no_more_wait_than_a_share_of_what_may_be_open_and_half_of_them_are_a_batch() {
        let dir = tempfile::tempdir().unwrap();
        let shared = over(dir.path());
        let rename_queue = RenameQueue::new(32);
        for number in 0..8 {
            assert!(!rename_queue.is_full());
            assert_eq!(rename_queue.is_batch(&rename_queue.lock()), number >= 4, "{number}");
            rename_queue.add(awaiting_name(&shared, number, 1), false);
        }
        assert!(rename_queue.is_full());
        let batch = rename_queue.next().unwrap();
        assert!(batch.len() == 8 && rename_queue.is_full(), "they are open still");
        rename_queue.remove(8, 8);
        assert!(!rename_queue.is_full());
        rename_queue.finish();
        assert!(rename_queue.next().is_none());
    }

    #[test]
    fn a_death_costs_two_batches_of_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let shared = over(dir.path());
        let rename_queue = RenameQueue::new(1 << 20);
        let mut bytes = 0;
        while !rename_queue.is_full() {
            rename_queue.add(awaiting_name(&shared, bytes, 1 << 20), false);
            bytes += 1 << 20;
        }
        assert_eq!(bytes, 64 << 20);
        rename_queue.end();
        rename_queue.await_room();
    }

    #[test]
    fn what_waits_is_due_when_a_lane_is_idle_and_the_disk_has_rested() {
        let dir = tempfile::tempdir().unwrap();
        let shared = over(dir.path());
        let rename_queue = RenameQueue::new(1 << 20);
        rename_queue.hurry();
        rename_queue.add(awaiting_name(&shared, 1, 1), false);
        let due_in = |rename_queue: &RenameQueue| {
            let state = rename_queue.lock();
            rename_queue.due_in(&state, state.since.unwrap())
        };
        assert_eq!(due_in(&rename_queue), GATHER_MAX, "nothing waited when the lane was idle");
        rename_queue.hurry();
        assert_eq!(due_in(&rename_queue), Duration::ZERO);
        rename_queue.rest_after(Duration::from_secs(1));
        let rest = due_in(&rename_queue);
        assert!((REST_MAX..=GATHER_MAX).contains(&rest), "{rest:?}");
        let batch = rename_queue.next().unwrap();
        rename_queue.put_back(batch);
        let state = rename_queue.lock();
        assert_eq!(rename_queue.due_in(&state, Instant::now()), Duration::ZERO, "it was too many, and has waited");
    }
}
