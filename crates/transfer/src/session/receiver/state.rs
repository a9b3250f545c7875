//! What the threads of a receiver share: the open items, the work for the settle thread, what to flush.

#[cfg(test)]
pub(super) mod tests;

mod fence;
mod further_names;
mod left_out;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use haul_engine::compare::Rules;
use haul_engine::integrity::Verified;
use haul_engine::journal;
use haul_engine::receiving::Receiving;
use haul_engine::window::Overflow;
use haul_job::{Error, Fault};
use haul_store::{Draft, Filter, Kind, Metadata, Stat, StoreError, TargetTree, WriteRoute, printable};
use haul_wire::control::{
    Changes, Control, FailureKind, LaneTime, Notice, Outcome, OutcomeKind, Receipt, ReceiverSummary,
};
use haul_wire::manifest::Item;

use crate::faults;
use crate::kept::known_routes::KnownRoutes;
use crate::session::channel::{EventSender, Outbox, SessionEvent};
use crate::session::clock::Clock;
use crate::session::disk_watch::Storage;
use crate::session::failure::Failure;
use crate::session::reporter::Watch;
use crate::session::{convert, stopwatch};
use crate::sync::lock;

use super::ReceiverJob;
use super::behind::Behind;
use super::claim::Claimed;
use super::exposure::Exposure;
use super::first_names::{Bar, FirstNames};
use super::flushing::Flushing;
use super::in_order::InOrder;
use super::incoming::{Incoming, Lost, Progressed};
use super::moves::Moves;
use super::naming::Naming;
use super::references::References;
use super::rereads::Rereads;
use super::token::Token;
use super::write_route::WriteRoutes;

/// Work for the settle thread.
pub(super) enum Task {
    Checkpoint(Arc<Incoming>),
    /// Too much is at risk: checkpoints of the files with the most.
    Relieve,
    Publish(Arc<Incoming>),
    /// This chunk does not stand there as it was verified.
    Lost(Arc<Incoming>, u32),
    InOrder(u64, InOrder),
}

struct State {
    items: Receiving<Arc<Incoming>, InOrder>,
    /// Where hard links are kept.
    first_names: Option<FirstNames>,
    tasks: VecDeque<Task>,
    /// Directories in which a name changed since they were last flushed.
    dirty: HashSet<Vec<u8>>,
    /// In what open items differ from what stood here.
    changes: HashMap<u64, Changes>,
    finished: bool,
}

pub(super) struct Shared {
    tree: Arc<dyn TargetTree>,
    /// Nothing is made, and what arrives is let go.
    lets_go: bool,
    pub(super) job: ReceiverJob,
    pub(super) rules: Rules,
    pub(super) filter: Filter,
    pub(super) failure: Failure,
    pub(super) outbox: Arc<Outbox>,
    pub(super) watch: Arc<Watch>,
    rename_to: Option<Vec<u8>>,
    events: EventSender,
    state: Mutex<State>,
    work: Condvar,
    time: Mutex<LaneTime>,
    /// A bit for each mark that arrived.
    marks_seen: AtomicU64,
    arrived_bytes: AtomicU64,
    /// Entries that `--delete` has taken so far.
    deletions: AtomicU64,
    /// The sender could not list all of its sources.
    deletes_nothing: AtomicBool,
    /// Counts chunks that verified, items that have their outcome, checkpoints and deletions.
    done: AtomicU64,
    pub(super) exposure: Exposure,
    pub(super) storage: Storage,
    pub(super) naming: Naming,
    pub(super) flushing: Flushing,
    pub(super) behind: Behind,
    write_routes: WriteRoutes,
    pub(super) rereads: Rereads,
    /// By what other hosts of this end know the tree, where they write into it.
    pub(super) token: OnceLock<Token>,
    /// The root of the target as it was typed.
    pub(super) root: Vec<u8>,
    /// Trees that may have a file already.
    pub(super) references: References,
    /// This host leads nothing: it writes into what another host has made.
    pub(super) moves: Option<Moves>,
}

impl Shared {
    pub(super) fn new(
        tree: Arc<dyn TargetTree>,
        rename_to: Option<Vec<u8>>,
        job: ReceiverJob,
        outbox: Arc<Outbox>,
        watch: Arc<Watch>,
        events: EventSender,
    ) -> Result<Self, Error> {
        let filter = convert::filter_of_receiver(&job.selection)?;
        let state = State {
            items: Receiving::default(),
            first_names: job.selection.hard_links.then(|| FirstNames::new(job.bounds.foreign_names)),
            tasks: VecDeque::new(),
            dirty: HashSet::new(),
            changes: HashMap::new(),
            finished: false,
        };
        Ok(Self {
            rules: convert::rules(&job.selection),
            lets_go: !tree.abilities().keeps,
            tree,
            exposure: Exposure::new(job.bounds.checkpoint_bytes),
            storage: Storage::of("target"),
            naming: Naming::new(haul_sys::process::open_file_limit().unwrap_or(u64::MAX)),
            flushing: Flushing::new(job.bounds.flush_together_from_files, job.bounds.dirty_bytes_max),
            behind: Behind::default(),
            write_routes: WriteRoutes::new(
                job.carriage.write_route.and_then(convert::write_route),
                KnownRoutes::of(&job.surroundings, job.far),
            ),
            job,
            filter,
            failure: Failure::default(),
            outbox,
            watch,
            rename_to,
            events,
            state: Mutex::new(state),
            work: Condvar::new(),
            time: Mutex::default(),
            marks_seen: AtomicU64::new(0),
            arrived_bytes: AtomicU64::new(0),
            deletions: AtomicU64::new(0),
            deletes_nothing: AtomicBool::new(false),
            done: AtomicU64::new(0),
            rereads: Rereads::default(),
            token: OnceLock::new(),
            root: Vec::new(),
            references: References::default(),
            moves: None,
        })
    }

    /// Of a host that leads nothing.
    pub(super) fn of_mover(self) -> Self {
        Self { moves: Some(Moves::default()), ..self }
    }

    /// What a mover has open.
    ///
    /// # Panics
    /// Where this host is none.
    pub(super) fn moves(&self) -> &Moves {
        self.moves.as_ref().expect("a mover")
    }

    /// The file by which movers know the tree is not needed any more.
    pub(super) fn discard_token(&self) {
        if let Some(token) = self.token.get() {
            token.discard();
        }
    }

    /// Whether what arrives is verified and let go.
    pub(super) fn lets_go(&self) -> bool {
        self.lets_go
    }

    /// Whether this job makes anything.
    pub(super) fn makes_files(&self) -> bool {
        !self.lets_go && !self.job.selection.dry_run
    }

    /// Where files are made.
    pub(super) fn tree(&self) -> &dyn TargetTree {
        &*self.tree
    }

    /// Fails when what stands at this path is another entry of this job, whose name the file system takes for the same.
    pub(super) fn check_twin(&self, standing: &Stat, path: &[u8]) -> Result<(), StoreError> {
        self.tree.local().map_or(Ok(()), |tree| tree.check_twin(standing, path))
    }

    /// What stands at this path stays, and counts as placed by this job.
    pub(super) fn keep(&self, standing: &Stat, path: &[u8]) {
        if let Some(tree) = self.tree.local() {
            tree.keep(standing, path);
        }
    }

    /// Where an item goes: its path, or the new name of the single file.
    pub(super) fn target_path(&self, item: &Item) -> Vec<u8> {
        match &self.rename_to {
            Some(name) => name.clone(),
            None => item.path.as_bytes().to_vec(),
        }
    }

    /// A single file gets another name here.
    pub(super) fn is_renamed(&self) -> bool {
        self.rename_to.is_some()
    }

    pub(super) fn metadata(&self, item: &Item) -> Metadata {
        convert::metadata(&item.attributes, &self.job.selection)
    }

    /// Opens the next item of the manifest.
    pub(super) fn open_item(&self, item: &Item) -> Result<u64, Error> {
        self.watch.on_item(item)?;
        let mut state = self.lock();
        let opened = state.items.open(item.weight_bytes());
        let index = opened.map_err(|Overflow| Error::broke_the_protocol("it keeps more items open than agreed"))?;
        if let Some(first_names) = &mut state.first_names {
            first_names.open(index, item);
        }
        Ok(index)
    }

    /// Whether this item can take the place of `of` (see [`Receiving::takes_place`]).
    pub(super) fn takes_place(&self, index: u64, of: u64) -> bool {
        self.lock().items.takes_place(index, of)
    }

    /// Data of this item is asked for.
    pub(super) fn expect(&self, incoming: Arc<Incoming>) {
        self.lock().items.expect(incoming.index, incoming);
    }

    /// The item waits for its turn.
    pub(super) fn in_order(&self, index: u64, what: InOrder) {
        let mut state = self.lock();
        state.items.in_order(index, what);
        self.queue_front(&mut state);
    }

    /// Another file stands at the source by now where this item was.
    pub(super) fn replaced(&self, item: &Item) {
        if let Some(first_names) = &mut self.lock().first_names {
            first_names.replaced(item);
        }
    }

    /// See [`FirstNames::stays_foreign`].
    pub(super) fn stays_foreign(&self, item: &Item, has_time: bool) {
        if let Some(first_names) = &mut self.lock().first_names {
            first_names.stays_foreign(item, has_time);
        }
    }

    /// Why no hard link may lead to the file with this first name: something else stands there, or will.
    pub(super) fn bars_hard_links(&self, first: &[u8]) -> Option<Bar> {
        self.lock().first_names.as_ref().and_then(|first_names| first_names.bars(first))
    }

    /// The file that data on a lane belongs to; `None` when it is not awaited (any more).
    pub(super) fn incoming(&self, index: u64) -> Option<Arc<Incoming>> {
        if let Some(moves) = &self.moves {
            return moves.incoming(index);
        }
        self.lock().items.data(index).cloned()
    }

    /// A chunk, or a whole file, verified. Once the item has its outcome nobody may speak of it any more: its file failed
    /// meanwhile on another lane.
    pub(super) fn receipt(&self, receipt: Receipt) {
        let state = self.lock();
        let Some(incoming) = state.items.data(receipt.index) else { return };
        if !incoming.layout.is_whole() {
            self.job.movers.receipt(receipt);
        }
        self.done.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = self.watch.on_receipt(&receipt) {
            self.failure.set(error);
        }
        self.outbox.receipt(receipt);
    }

    /// Enters a chunk that was written and is verified, and tells of it.
    pub(super) fn deliver_chunk(
        &self,
        incoming: &Arc<Incoming>,
        claim: &Claimed,
        verified: Verified,
        receipt: Receipt,
        data_bytes: u64,
    ) {
        if let Some(moves) = &self.moves {
            moves.deliver(incoming, verified, receipt, data_bytes);
            return self.count_done();
        }
        let record = || incoming.record(verified, data_bytes, &self.exposure, || self.receipt(receipt));
        match claim.while_held(record).unwrap_or(Progressed::Void) {
            Progressed::Waiting | Progressed::Void => {}
            Progressed::Checkpoint => self.queue(Task::Checkpoint(Arc::clone(incoming))),
            // What is not read back yet comes before the name.
            Progressed::Complete if self.verifies_disk() => self.queue(Task::Checkpoint(Arc::clone(incoming))),
            Progressed::Complete => self.queue(Task::Publish(Arc::clone(incoming))),
        }
        if self.exposure.becomes_due() {
            self.queue(Task::Relieve);
        }
    }

    /// Whether a file is written past the page cache; it has room on the disk then. Without a flush nobody waits for the disk: then memory
    /// is faster.
    pub(super) fn goes_past_cache(&self, incoming: &Incoming, draft: &Draft) -> Result<bool, StoreError> {
        // A late write of a mover could overtake that of the leader, which gets what did not verify here.
        if self.moves.is_some() {
            return Ok(false);
        }
        let is_large = incoming.identity.size >= self.job.bounds.past_cache_from_bytes && self.job.selection.flush;
        if !is_large && !self.write_routes.is_forced() {
            return Ok(false);
        }
        let Some(part) = draft.local().filter(|part| part.goes_past_cache()) else {
            self.write_routes.refused().into_iter().for_each(|notice| self.notice(notice));
            return Ok(false);
        };
        if self.write_routes.choose(part, &self.storage, |notice| self.notice(notice)) == WriteRoute::Copy {
            return Ok(false);
        }
        // What is there already has room, or is a hole that may stay one.
        if !incoming.sparse() && !incoming.inplace {
            part.allocate(incoming.identity.size)?;
        }
        Ok(true)
    }

    /// Whether an earlier run, or this one before the source changed, began to write the file in place and did not finish it. Asked only
    /// where a file that is not like the source's may stay.
    pub(super) fn is_unfinished(&self, path: &[u8], stat: &Stat) -> bool {
        let journal = || self.tree().journal_of_file(path, journal::HEADER_BYTES);
        let file = (stat.id.dev, stat.id.ino);
        self.rules.may_keep_others()
            && stat.kind == Kind::File
            && journal().is_some_and(|head| journal::is_unfinished(&head, file, stat.size, convert::time(stat.mtime)))
    }

    /// The item has its outcome. A second one is void.
    pub(super) fn settle(&self, index: u64, result: OutcomeKind) {
        self.settle_all(std::iter::once((index, result)));
    }

    /// [`Shared::settle`] for a batch. Waits as [`Shared::notice_in_time`] does: reasons of failures may be long.
    pub(super) fn settle_all(&self, outcomes: impl Iterator<Item = (u64, OutcomeKind)>) {
        self.await_listener();
        let mut state = self.lock();
        for (index, result) in outcomes {
            if !state.items.settle(index) {
                continue;
            }
            self.done.fetch_add(1, Ordering::Relaxed);
            if let Some(first_names) = &mut state.first_names {
                first_names.settle(index, &result);
            }
            let changes = state.changes.remove(&index).unwrap_or_default();
            let outcome = Outcome { index, result, changes };
            if let Err(error) = self.watch.on_outcome(&outcome) {
                self.failure.set(error);
            }
            self.outbox.outcome(outcome);
        }
        self.queue_front(&mut state);
    }

    /// Lets settled items go; what waits for its turn at the front gets it.
    fn queue_front(&self, state: &mut State) {
        if let Some((index, what)) = state.items.next_in_order() {
            state.tasks.push_back(Task::InOrder(index, what));
            self.work.notify_one();
        }
        if state.items.is_complete() {
            // The loop looks anyway at its next tick; a full queue wakes it as well.
            let _ = self.events.try_send(SessionEvent::Wake);
        }
    }

    /// Work for the settle thread.
    pub(super) fn queue(&self, task: Task) {
        self.lock().tasks.push_back(task);
        self.work.notify_one();
    }

    /// The next work for the settle thread; `None` when the session is over.
    pub(super) fn next_task(&self) -> Option<Task> {
        let state = self.lock();
        let mut state = self
            .work
            .wait_while(state, |state| state.tasks.is_empty() && !state.finished)
            .unwrap_or_else(PoisonError::into_inner);
        if state.finished { None } else { state.tasks.pop_front() }
    }

    /// [`Shared::next_task`] where nobody waits.
    #[cfg(feature = "fuzzing")]
    pub(super) fn try_task(&self) -> Option<Task> {
        self.lock().tasks.pop_front()
    }

    /// Whether what was written is read back from the medium before it counts.
    pub(super) fn verifies_disk(&self) -> bool {
        self.job.selection.verify_disk && !self.lets_go
    }

    /// Further chunks of this file that do not stand there as they were verified: one new journal does for all.
    pub(super) fn more_lost(&self, incoming: &Arc<Incoming>) -> Vec<u32> {
        let mut more = Vec::new();
        self.lock().tasks.retain(|task| match task {
            Task::Lost(other, chunk) if Arc::ptr_eq(other, incoming) => {
                more.push(*chunk);
                false
            }
            _ => true,
        });
        more
    }

    /// Whether what an earlier run left counts as its journal says.
    pub(super) fn trusts_journal(&self) -> bool {
        self.job.selection.trust_journal && !self.verifies_disk()
    }

    /// A chunk, or a whole file, does not stand there as it was verified: the sender sends it again, or the file is given up.
    pub(super) fn lost(&self, incoming: &Incoming, chunk: u32, lost: Lost) {
        match lost {
            Lost::Void => {}
            Lost::Again => {
                self.rereads.count_repaired();
                self.outbox.send(Control::Repair { index: incoming.index, chunk });
            }
            Lost::TooOften => {
                let path = shown(&incoming.path);
                self.give_up(
                    incoming,
                    format!("the target does not give back what was written of {path}, however often"),
                );
            }
        }
    }

    /// Large files that are not complete: their progress is worth a last checkpoint.
    pub(super) fn unfinished(&self) -> Vec<Arc<Incoming>> {
        self.lock().items.all_data().cloned().collect()
    }

    /// A name changed in the directory of `path`.
    pub(super) fn name_changed(&self, path: &[u8]) {
        self.lock().dirty.insert(parent(path).to_vec());
    }

    /// Removes parts that nobody will go on with, unless this job makes none.
    pub(super) fn sweep(&self, sweep: impl FnOnce(&dyn TargetTree) -> bool) -> bool {
        self.makes_files() && !self.job.selection.inplace && sweep(&*self.tree)
    }

    /// A name changed in the root of the tree.
    pub(super) fn root_changed(&self) {
        self.lock().dirty.insert(Vec::new());
    }

    /// Whether names changed in this directory since the last flush; they count as flushed from now on.
    pub(super) fn take_dirty(&self, directory: &[u8]) -> bool {
        self.lock().dirty.remove(directory)
    }

    /// Flushes directories that have no end in the manifest (the target itself, when single entries are copied into it).
    pub(super) fn flush_remaining_directories(&self) -> Result<(), Error> {
        let dirty: Vec<Vec<u8>> = self.lock().dirty.drain().collect();
        if self.job.selection.flush {
            for directory in dirty {
                self.tree().flush_dir(&directory).map_err(|error| faults::store_error_in(&error, &self.root))?;
            }
        }
        Ok(())
    }

    /// The file cannot be written.
    pub(super) fn fail(&self, incoming: &Incoming, error: &StoreError) {
        if self.moves.is_some() {
            return self.failure.set(faults::store_error_in(error, &self.root));
        }
        // The part of a twin is of no use to a later run, which would refuse it again.
        incoming.abandon(!error.is_twin(), &self.exposure);
        self.fail_item(incoming.index, error);
    }

    /// The entry cannot be written. When nothing can be written any more the whole job ends: every further entry would fail, too.
    pub(super) fn fail_item(&self, index: u64, error: &StoreError) {
        if let Some(end) = end_of_job(error, &self.root) {
            self.failure.set(end);
        }
        let kind = convert::failure_kind(error);
        self.settle(index, OutcomeKind::Failed { why: convert::bounded(error.seen_from(&self.root)), kind });
    }

    /// Data of this file does not verify, again and again.
    pub(super) fn unverified(&self, incoming: &Incoming) {
        let why = format!("the data of {} does not verify, however often it is sent", shown(&incoming.path));
        self.give_up(incoming, why);
    }

    fn give_up(&self, incoming: &Incoming, why: String) {
        if self.moves.is_some() {
            return self.failure.set(Error::new(Fault::Verification, why));
        }
        incoming.abandon(true, &self.exposure);
        self.settle(incoming.index, OutcomeKind::Failed { why: convert::bounded(why), kind: FailureKind::Unverified });
    }

    /// What arrived of this file is void: the source changed, or gave up.
    pub(super) fn abandon(&self, index: u64) {
        if let Some(incoming) = self.incoming(index) {
            incoming.abandon(false, &self.exposure);
        }
    }

    pub(super) fn notice(&self, notice: Notice) {
        self.watch.on_notice(notice.clone());
        self.outbox.send(Control::Notice(notice));
    }

    /// [`Shared::notice`] for frequent notices. The thread waits until the peer has read earlier ones. The loop may be that thread,
    /// and hears nothing meanwhile: so a peer that reads nothing ends the session from here.
    pub(super) fn notice_in_time(&self, notice: Notice) {
        self.await_listener();
        self.notice(notice);
    }

    fn await_listener(&self) {
        if self.outbox.has_room() {
            return;
        }
        let limit = Clock::new(self.job.carriage.timeout_ms).silence_limit();
        if !self.outbox.await_room(|| self.is_over(), limit) {
            let what = format!("the far side has read nothing of what it was told for {} s", limit.as_secs());
            self.failure.set(
                Error::new(Fault::Timeout, what)
                    .try_this("run the same command again to go on: what is verified is not sent again"),
            );
        }
    }

    /// Whether nothing that is still done for this session is of use to anybody. Once it is so it stays so.
    pub(super) fn is_over(&self) -> bool {
        self.lock().finished || self.watch.interrupted() || self.failure.get().is_err() || self.outbox.has_ended()
    }

    /// Something failed beside the items themselves. For threads that may wait.
    pub(super) fn failed_aside(&self, path: &[u8], error: &StoreError) {
        self.notice_in_time(Notice::Failed { path: path.to_vec(), why: convert::bounded(error.seen_from(&self.root)) });
    }

    pub(super) fn failed_item(&self, index: u64, why: String) {
        self.settle(index, OutcomeKind::Failed { why: convert::bounded(why), kind: FailureKind::Io });
    }

    pub(super) fn manifest_done(&self) {
        self.lock().items.end_of_manifest();
    }

    /// Whether every item has its outcome and none will follow.
    pub(super) fn is_complete(&self) -> bool {
        self.lock().items.is_complete()
    }

    /// Whether one more entry may be deleted; it counts from now on.
    pub(super) fn may_delete(&self) -> bool {
        let most = self.job.selection.max_delete.unwrap_or(u64::MAX);
        self.deletions
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| (taken < most).then_some(taken + 1))
            .is_ok()
    }

    /// From now on all stays that stands here, whatever the manifest lacks.
    pub(super) fn delete_nothing(&self) {
        self.deletes_nothing.store(true, Ordering::Relaxed);
    }

    pub(super) fn deletes_nothing(&self) -> bool {
        self.deletes_nothing.load(Ordering::Relaxed)
    }

    /// Whether something that was listed is not settled.
    pub(super) fn has_open_items(&self) -> bool {
        self.lock().items.open_items() > 0
    }

    /// Whether data is awaited.
    pub(super) fn has_work(&self) -> bool {
        self.lock().items.has_work()
    }

    /// Bytes of the largest file that is there already, and of which only the hash is awaited.
    pub(super) fn largest_to_hash_bytes(&self) -> u64 {
        let state = self.lock();
        let kept = state.items.all_data().filter(|incoming| incoming.kept.is_some());
        kept.map(|incoming| incoming.identity.size).max().unwrap_or(0)
    }

    pub(super) fn finish(&self) {
        self.lock().finished = true;
        self.work.notify_all();
        self.rereads.end();
    }

    pub(super) fn add_time(&self, lane: &LaneTime) {
        stopwatch::add(&mut lock(&self.time), lane);
    }

    pub(super) fn add_arrived(&self, bytes: u64) {
        self.arrived_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Something was finished that is neither a chunk nor an item.
    pub(super) fn count_done(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    /// Payload that arrived.
    pub(super) fn arrived(&self) -> u64 {
        self.arrived_bytes.load(Ordering::Relaxed)
    }

    /// Payload that arrived or was read back, and what was finished with it.
    pub(super) fn moved(&self) -> (u64, u64) {
        (self.arrived() + self.rereads.read_bytes(), self.done.load(Ordering::Relaxed))
    }

    /// A bit for each mark that arrived.
    pub(super) fn saw_marks(&self, bits: u64) {
        self.marks_seen.fetch_or(bits, Ordering::Relaxed);
    }

    pub(super) fn summary(&self) -> ReceiverSummary {
        let time = *lock(&self.time);
        let (reread_bytes, repaired_chunks) = self.rereads.repairs();
        let (read_again_bytes, trusted_bytes) = self.rereads.of_earlier_runs();
        let arrived_bytes = self.arrived_bytes.load(Ordering::Relaxed);
        let marks_seen = self.marks_seen.load(Ordering::Relaxed);
        ReceiverSummary {
            time,
            arrived_bytes,
            reread_bytes,
            repaired_chunks,
            read_again_bytes,
            trusted_bytes,
            marks_seen,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// The error of the job that this error of one entry means.
fn end_of_job(error: &StoreError, root: &[u8]) -> Option<Error> {
    (error.is_no_space() || error.is_read_only()).then(|| faults::store_error_in(error, root))
}

/// The directory that a path stands in.
pub(super) fn parent(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => &path[..slash],
        None => b"",
    }
}

/// For messages.
pub(super) fn shown(path: &[u8]) -> String {
    if path.is_empty() { ".".to_owned() } else { printable(path) }
}
