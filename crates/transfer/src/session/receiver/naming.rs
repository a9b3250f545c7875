//! Whole files that wait for their final names, of all lanes.
//!
//! A batch is flushed once it is large, or a lane has nothing else to do. The next batch gathers meanwhile, so a slow disk has
//! large batches. Lanes go on. They wait while too many files have no name: each file is open, and a death costs all of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use haul_engine::integrity::Hash;
use haul_store::Draft;

use crate::sync::lock;

use super::incoming::Incoming;

/// A whole file that is verified and has no name yet.
pub(super) struct Nameless {
    pub(super) incoming: Arc<Incoming>,
    pub(super) part: Arc<Draft>,
    pub(super) blake3: Hash,
}

/// The files that wait for their names, and those that are about to get them.
pub(super) struct Naming {
    state: Mutex<State>,
    /// Whoever gives names waits for a batch.
    due: Condvar,
    /// Lanes wait for others to have their names.
    room: Condvar,
    max_files: usize,
    /// As many as wait in the state: a lane looks often.
    waiting: AtomicU64,
}

struct State {
    waiting: Vec<Nameless>,
    waiting_bytes: u64,
    /// When the first of them came.
    since: Option<Instant>,
    /// A lane has nothing to do but to wait.
    is_idle: bool,
    /// The disk has some time for others between two flushes.
    rest_until: Option<Instant>,
    /// Without names, waiting or in a batch.
    files: usize,
    bytes: u64,
    /// The session is over: lanes do not wait any more.
    over: bool,
    /// And nothing follows.
    finished: bool,
}

/// So many share a flush: from here on more of them do not make it cheaper for each (measured on ext4, XFS and btrfs).
const BATCH_FILES: usize = 1024;

/// And no more bytes. Two batches, 64 MiB, are the most that a death costs of whole files.
const BATCH_BYTES: u64 = 32 << 20;

/// So many batches have no names: one is flushed, one gathers.
const BATCHES: usize = 2;

/// At most this share of the files that the process may have open.
const SHARE: u64 = 4;

/// A file waits no longer for others.
const GATHER_MAX: Duration = Duration::from_millis(250);

/// While lanes have nothing to do, the disk flushes for a fifth of the time, and no pause is longer than this.
const REST: u32 = 4;
const REST_MAX: Duration = Duration::from_millis(100);

/// Files larger than this begin their way to the disk before their batch is full. For smaller ones the call costs more than it brings.
const EARLY_FROM_BYTES: u64 = 256 << 10;

impl Naming {
    /// `may_be_open`: how many files the process may have open at once.
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

    /// One more has all but its name.
    pub(super) fn add(&self, nameless: Nameless, flush: bool) {
        let bytes = nameless.incoming.identity.size;
        if flush && bytes >= EARLY_FROM_BYTES {
            nameless.part.start_writeback(0, bytes);
        }
        let mut state = self.lock();
        state.files += 1;
        state.bytes += bytes;
        state.waiting_bytes += bytes;
        state.waiting.push(nameless);
        self.waiting.fetch_add(1, Ordering::Relaxed);
        if state.waiting.len() == 1 {
            state.since = Some(Instant::now());
            self.due.notify_one();
        } else if self.is_batch(&state) {
            self.due.notify_one();
        }
    }

    /// A lane has nothing else to do, or begins something that may take long: what waits need not wait for more.
    pub(super) fn hurry(&self) {
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut state = self.lock();
        if !std::mem::replace(&mut state.is_idle, true) {
            self.due.notify_one();
        }
    }

    /// Whether [`Naming::await_room`] would wait.
    pub(super) fn is_full(&self) -> bool {
        self.has_no_room(&self.lock())
    }

    /// Waits while too many files have no names, until the session is over.
    pub(super) fn await_room(&self) {
        let waited = self.room.wait_while(self.lock(), |state| self.has_no_room(state));
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// No lane waits any more.
    pub(super) fn end(&self) {
        self.lock().over = true;
        self.room.notify_all();
    }

    /// No lane is left: what waits gets its names, and then the threads end.
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

    /// How long what waits may still wait for more.
    fn due_in(&self, state: &State, now: Instant) -> Duration {
        if state.finished || self.is_batch(state) {
            return Duration::ZERO;
        }
        let last = state.since.map_or(Duration::ZERO, |since| (since + GATHER_MAX).saturating_duration_since(now));
        let rest = state.rest_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        if state.is_idle { last.min(rest) } else { last }
    }

    /// All that wait, as soon as that is due; `None` when nothing follows.
    pub(super) fn next(&self) -> Option<Vec<Nameless>> {
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

    /// All that wait, also when they are none.
    #[cfg(feature = "fuzzing")]
    pub(super) fn take(&self) -> Vec<Nameless> {
        self.take_from(&mut self.lock())
    }

    fn take_from(&self, state: &mut State) -> Vec<Nameless> {
        (state.waiting_bytes, state.since, state.is_idle) = (0, None, false);
        self.waiting.store(0, Ordering::Relaxed);
        std::mem::take(&mut state.waiting)
    }

    /// These wait on: they were too many.
    pub(super) fn put_back(&self, batch: Vec<Nameless>) {
        if batch.is_empty() {
            return;
        }
        let mut state = self.lock();
        state.waiting_bytes += batch.iter().map(|nameless| nameless.incoming.identity.size).sum::<u64>();
        self.waiting.fetch_add(batch.len() as u64, Ordering::Relaxed);
        // Since long ago: they are due.
        state.since = Instant::now().checked_sub(GATHER_MAX);
        state.waiting.splice(0..0, batch);
        self.due.notify_one();
    }

    pub(super) fn rest_after(&self, flush: Duration) {
        self.lock().rest_until = Some(Instant::now() + (flush * REST).min(REST_MAX));
    }

    /// They have their names, or never will.
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
    use crate::session::receiver::state::tests::over;

    fn nameless(shared: &crate::session::receiver::state::Shared, number: u64, size: u64) -> Nameless {
        let identity = Identity { size, mtime: Default::default(), ctime: Default::default(), inode: number };
        let kind = ItemKind::File { identity, hole_bytes: 0, blake3: None, further_names: 0 };
        let name = format!("file{number}").into_bytes();
        let item = Item { path: RelPath::new(name.clone()).unwrap(), kind, attributes: Attributes::default() };
        let incoming = Arc::new(Incoming::new(number, Arc::new(item), name, identity, false));
        let part = incoming.whole_part(shared.tree()).unwrap().unwrap();
        Nameless { incoming, part, blake3: [0; 32] }
    }

    #[test]
    fn no_more_wait_than_a_share_of_what_may_be_open_and_half_of_them_are_a_batch() {
        let dir = tempfile::tempdir().unwrap();
        let shared = over(dir.path());
        let naming = Naming::new(32);
        for number in 0..8 {
            assert!(!naming.is_full());
            assert_eq!(naming.is_batch(&naming.lock()), number >= 4, "{number}");
            naming.add(nameless(&shared, number, 1), false);
        }
        assert!(naming.is_full());
        let batch = naming.next().unwrap();
        assert!(batch.len() == 8 && naming.is_full(), "they are open still");
        naming.remove(8, 8);
        assert!(!naming.is_full());
        naming.finish();
        assert!(naming.next().is_none());
    }

    #[test]
    fn a_death_costs_two_batches_of_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let shared = over(dir.path());
        let naming = Naming::new(1 << 20);
        let mut bytes = 0;
        while !naming.is_full() {
            naming.add(nameless(&shared, bytes, 1 << 20), false);
            bytes += 1 << 20;
        }
        assert_eq!(bytes, 64 << 20);
        naming.end();
        naming.await_room();
    }

    #[test]
    fn what_waits_is_due_when_a_lane_is_idle_and_the_disk_has_rested() {
        let dir = tempfile::tempdir().unwrap();
        let shared = over(dir.path());
        let naming = Naming::new(1 << 20);
        naming.hurry();
        naming.add(nameless(&shared, 1, 1), false);
        let due_in = |naming: &Naming| {
            let state = naming.lock();
            naming.due_in(&state, state.since.unwrap())
        };
        assert_eq!(due_in(&naming), GATHER_MAX, "nothing waited when the lane was idle");
        naming.hurry();
        assert_eq!(due_in(&naming), Duration::ZERO);
        naming.rest_after(Duration::from_secs(1));
        let rest = due_in(&naming);
        assert!((REST_MAX..=GATHER_MAX).contains(&rest), "{rest:?}");
        let batch = naming.next().unwrap();
        naming.put_back(batch);
        let state = naming.lock();
        assert_eq!(naming.due_in(&state, Instant::now()), Duration::ZERO, "it was too many, and has waited");
    }
}
