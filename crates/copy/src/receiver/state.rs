//! What the threads of a receiver share: the open items, the work for the settle thread, what to flush.

#[cfg(test)]
pub(super) mod tests;

mod fence;
mod left_out;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use haul_engine::compare::Rules;
use haul_engine::integrity::Verified;
use haul_engine::journal;
use haul_engine::receiving::Receiving;
use haul_engine::window::Overflow;
use haul_job::{Error, Fault};
use haul_store::{Draft, Filter, Kind, Metadata, Stat, StoreError, SumDiffers, WriteRoute};
use haul_striping::shared_drafts::SharedDrafts;
use haul_striping::token::Token;
use haul_wire::control::{Control, FailureKind, Notice, Outcome, OutcomeKind, Receipt, ReceiverSummary};
use haul_wire::manifest::Item;

use haul_channel::channel::{EventSender, Outbox, SessionEvent};
use haul_channel::clock::Clock;
use haul_channel::convert;
use haul_channel::disk_watch::Storage;
use haul_channel::failure::Failure;
use haul_channel::reporter::Watch;
use haul_channel::stopwatch::{Stopwatch, Waiting};
use haul_kept::faults;
use haul_kept::known_routes::KnownRoutes;
use haul_kept::sync::lock;

use super::claim::Claimed;
use super::deletion_limit::DeletionLimit;
use super::destination::{Destination, shown};
use super::direct_write_queue::DirectWriteQueue;
use super::exposure::Exposure;
use super::first_names::SharedFirstNames;
use super::flushing::Flushing;
use super::in_order::InOrder;
use super::incoming::{Incoming, Lost, Progressed};
use super::itemise::NotedChanges;
use super::job::ReceiverJob;
use super::looks::Looks;
use super::put_off::PutOff;
use super::references::References;
use super::rename_queue::RenameQueue;
use super::rereads::Rereads;
use super::tally::Tally;
use super::tasks::{Task, Tasks};
use super::to_bring::ToBring;
use super::write_route::WriteRoutes;

struct Open {
    items: Receiving<Arc<Incoming>, InOrder>,
    finished: bool,
}

pub(super) struct Disk {
    pub(super) exposure: Exposure,
    pub(super) storage: Storage,
    pub(super) flushing: Flushing,
    pub(super) direct_writes: DirectWriteQueue,
    pub(super) write_routes: WriteRoutes,
}

pub(super) struct Comparison {
    pub(super) rules: Rules,
    pub(super) filter: Filter,
    pub(super) references: References,
}

#[derive(Default)]
pub(super) struct OtherHosts {
    /// The file by which writing movers know the tree.
    pub(super) token: OnceLock<Token>,
    /// On a mover: drafts of the leader.
    pub(super) drafts: Option<SharedDrafts<Incoming>>,
}

/// Each part has its own lock. The holder of the open items' lock may take another; nobody else takes two.
pub(super) struct Shared {
    pub(super) job: ReceiverJob,
    pub(super) to: Destination,
    pub(super) comparison: Comparison,
    pub(super) disk: Disk,
    pub(super) rename_queue: RenameQueue,
    pub(super) rereads: Rereads,
    pub(super) looks: Looks,
    pub(super) to_bring: ToBring,
    pub(super) tasks: Tasks,
    pub(super) first_names: SharedFirstNames,
    pub(super) changes: NotedChanges,
    pub(super) deletions: DeletionLimit,
    pub(super) put_off: PutOff,
    pub(super) tally: Tally,
    pub(super) other_hosts: OtherHosts,
    pub(super) failure: Failure,
    pub(super) outbox: Arc<Outbox>,
    pub(super) watch: Arc<Watch>,
    events: EventSender,
    open: Mutex<Open>,
}

impl Shared {
    pub(super) fn new(
        to: Destination,
        job: ReceiverJob,
        outbox: Arc<Outbox>,
        watch: Arc<Watch>,
        events: EventSender,
    ) -> Result<Self, Error> {
        let comparison = Comparison {
            rules: convert::rules(&job.selection),
            filter: convert::filter_of_receiver(&job.selection)?,
            references: References::default(),
        };
        // What goes up in order is safe only as a whole: no checkpoint would free a waiting lane.
        let checkpoint_bytes = if job.carriage.in_order { u64::MAX } else { job.bounds.checkpoint_bytes };
        let disk = Disk {
            exposure: Exposure::new(checkpoint_bytes),
            storage: Storage::of("target"),
            flushing: Flushing::new(job.bounds.flush_together_from_files, job.bounds.dirty_bytes_max),
            direct_writes: DirectWriteQueue::default(),
            write_routes: WriteRoutes::new(
                job.carriage.write_route.and_then(convert::write_route),
                KnownRoutes::of(&job.surroundings, job.far),
            ),
        };
        Ok(Self {
            comparison,
            disk,
            rename_queue: RenameQueue::new(haul_sys::process::open_file_limit().unwrap_or(u64::MAX)),
            rereads: Rereads::default(),
            looks: Looks::default(),
            to_bring: ToBring::to(to.tree()),
            tasks: Tasks::default(),
            first_names: SharedFirstNames::new(job.selection.hard_links, job.bounds.foreign_names),
            changes: NotedChanges::new(job.selection.itemise),
            deletions: DeletionLimit::new(job.selection.max_delete),
            put_off: PutOff::default(),
            tally: Tally::default(),
            other_hosts: OtherHosts::default(),
            failure: Failure::default(),
            to,
            job,
            outbox,
            watch,
            events,
            open: Mutex::new(Open { items: Receiving::default(), finished: false }),
        })
    }

    pub(super) fn of_mover(self) -> Self {
        let other_hosts = OtherHosts { drafts: Some(SharedDrafts::default()), ..self.other_hosts };
        Self { other_hosts, ..self }
    }

    /// The open drafts of a mover.
    ///
    /// # Panics
    /// Where this host is none.
    pub(super) fn drafts(&self) -> &SharedDrafts<Incoming> {
        self.other_hosts.drafts.as_ref().expect("a mover")
    }

    pub(super) fn discard_token(&self) {
        if let Some(token) = self.other_hosts.token.get() {
            token.discard();
        }
    }

    pub(super) fn metadata(&self, item: &Item) -> Metadata {
        convert::metadata(&item.attributes, &item.kind, &self.job.selection)
    }

    /// Whether a dry run would change metadata. Fails where setting it would.
    pub(super) fn foresee_metadata(&self, path: &[u8], now: &Stat, metadata: &Metadata) -> Result<bool, StoreError> {
        let Some(tree) = self.to.tree().local() else { return Ok(true) };
        tree.foresee_metadata(path, now, metadata).map(|applied| applied.changed)
    }

    pub(super) fn foresee_link(&self, path: &[u8], now: &Stat, item: &Item) -> Result<(), StoreError> {
        self.foresee_metadata(path, now, &self.metadata(item)).map(drop)
    }

    pub(super) fn open_item(&self, item: &Item) -> Result<u64, Error> {
        self.watch.on_item(item)?;
        let mut state = self.lock();
        let opened = state.items.open(item.weight_bytes());
        let index = opened.map_err(|Overflow| Error::broke_the_protocol("it keeps more items open than agreed"))?;
        self.first_names.open(index, item);
        Ok(index)
    }

    /// Whether this item can take the place of `of` (see [`Receiving::takes_place`]).
    pub(super) fn takes_place(&self, index: u64, of: u64) -> bool {
        self.lock().items.takes_place(index, of)
    }

    pub(super) fn expect(&self, incoming: Arc<Incoming>) {
        self.lock().items.expect(incoming.index, incoming);
    }

    pub(super) fn in_order(&self, index: u64, what: InOrder) {
        let mut state = self.lock();
        state.items.in_order(index, what);
        self.queue_front(&mut state);
    }

    /// The file of a lane's data; `None`: not awaited.
    pub(super) fn incoming(&self, index: u64) -> Option<Arc<Incoming>> {
        if let Some(moves) = &self.other_hosts.drafts {
            return moves.draft(index);
        }
        self.lock().items.data(index).cloned()
    }

    /// Notes a verified chunk or whole file. After the outcome nobody may speak of the item.
    pub(super) fn receipt(&self, receipt: Receipt) {
        let state = self.lock();
        let Some(incoming) = state.items.data(receipt.index) else { return };
        if !incoming.layout.is_whole() {
            self.job.movers.receipt(receipt);
        }
        self.tally.count_done();
        if let Err(error) = self.watch.on_receipt(&receipt) {
            self.failure.set(error);
        }
        self.outbox.receipt(receipt);
    }

    /// Waits while the unsafe data would cost more than an interval at a death.
    pub(super) fn await_room(&self, watch: &mut Stopwatch) {
        if self.disk.exposure.is_full() || self.rename_queue.is_full() {
            self.rename_queue.hurry();
            self.disk.exposure.await_room();
            self.rename_queue.await_room();
            watch.lap(Waiting::Storage);
        }
    }

    pub(super) fn deliver_chunk(
        &self,
        incoming: &Arc<Incoming>,
        claim: &Claimed,
        verified: Verified,
        receipt: Receipt,
        data_bytes: u64,
    ) {
        if let Some(moves) = &self.other_hosts.drafts {
            moves.deliver(incoming, verified, receipt, data_bytes);
            return self.tally.count_done();
        }
        let record = || incoming.record(verified, data_bytes, &self.disk.exposure, || self.receipt(receipt));
        match claim.while_held(record).unwrap_or(Progressed::Void) {
            Progressed::Waiting | Progressed::Void => {}
            Progressed::Checkpoint => self.tasks.push(Task::Checkpoint(Arc::clone(incoming))),
            // Reading back comes before the name.
            Progressed::Complete if self.verifies_disk() => self.tasks.push(Task::Checkpoint(Arc::clone(incoming))),
            Progressed::Complete => self.tasks.push(Task::Publish(Arc::clone(incoming))),
        }
        if self.disk.exposure.becomes_due() {
            self.tasks.push(Task::Relieve);
        }
    }

    /// Whether a file goes past the page cache, with its room on the disk. Without a flush, memory is faster.
    pub(super) fn goes_past_cache(&self, incoming: &Incoming, draft: &Draft) -> Result<bool, StoreError> {
        // A mover's late write could overtake the leader's, which gets what did not verify here.
        if self.other_hosts.drafts.is_some() {
            return Ok(false);
        }
        let is_large = incoming.identity.size >= self.job.bounds.past_cache_from_bytes && self.job.selection.flush;
        if !is_large && !self.disk.write_routes.is_forced() {
            return Ok(false);
        }
        let Some(part) = draft.local().filter(|part| part.goes_past_cache()) else {
            self.disk.write_routes.refused().into_iter().for_each(|notice| self.notice(notice));
            return Ok(false);
        };
        if self.disk.write_routes.choose(part, &self.disk.storage, |notice| self.notice(notice)) == WriteRoute::Copy {
            return Ok(false);
        }
        // What is there has room, or is a hole that may stay.
        if !incoming.sparse() && !incoming.inplace {
            part.allocate(incoming.identity.size)?;
        }
        Ok(true)
    }

    /// Whether an unfinished file was left in place, by an earlier run or before the source changed. Asked where a file unlike
    /// the source's may stay.
    pub(super) fn is_unfinished(&self, path: &[u8], stat: &Stat) -> bool {
        let journal = || self.to.tree().journal_of_file(path, journal::HEADER_BYTES);
        let file = (stat.id.dev, stat.id.ino);
        self.comparison.rules.may_keep_others()
            && stat.kind == Kind::File
            && journal().is_some_and(|head| journal::is_unfinished(&head, file, stat.size, convert::time(stat.mtime)))
    }

    /// Settles an item; a second outcome is void.
    pub(super) fn settle(&self, index: u64, result: OutcomeKind) {
        self.settle_all(std::iter::once((index, result)));
    }

    /// [`Shared::settle`] for a batch. Waits as [`Shared::notice_in_time`], since reasons of failures may be long.
    pub(super) fn settle_all(&self, outcomes: impl Iterator<Item = (u64, OutcomeKind)>) {
        self.await_listener();
        let mut state = self.lock();
        for (index, result) in outcomes {
            let standing = state.items.data(index).cloned();
            if let Some(standing) = standing.as_ref().and_then(|incoming| incoming.standing.as_ref()) {
                self.looks.release(standing);
            }
            if !state.items.settle(index) {
                continue;
            }
            if let Some(sums) = &self.job.sums {
                sums.forget(index);
            }
            self.tally.count_done();
            self.first_names.settle(index, &result);
            let changes = self.changes.take(index);
            let outcome = Outcome { index, result, changes };
            if let Err(error) = self.watch.on_outcome(&outcome) {
                self.failure.set(error);
            }
            self.outbox.outcome(outcome);
        }
        self.queue_front(&mut state);
    }

    /// Lets settled items go, and queues the front's turn.
    fn queue_front(&self, state: &mut Open) {
        if let Some((index, what)) = state.items.next_in_order() {
            self.tasks.push(Task::InOrder(index, what));
        }
        if state.items.is_complete() {
            // The loop looks at its next tick anyway; a full queue wakes it as well.
            let _ = self.events.try_send(SessionEvent::Wake);
        }
    }

    pub(super) fn verifies_disk(&self) -> bool {
        self.job.selection.verify_disk && !self.to.discards()
    }

    pub(super) fn trusts_journal(&self) -> bool {
        self.job.selection.trust_journal && !self.verifies_disk()
    }

    /// Notes a loss: the sender sends the data again, or the file is given up.
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

    pub(super) fn unfinished(&self) -> Vec<Arc<Incoming>> {
        self.lock().items.all_data().cloned().collect()
    }

    pub(super) fn fail(&self, incoming: &Incoming, error: &StoreError) {
        if self.other_hosts.drafts.is_some() {
            return self.failure.set(faults::store_error_in(error, self.to.root()));
        }
        // A later run would refuse a twin's part again.
        incoming.abandon(!error.is_twin(), &self.disk.exposure);
        self.fail_item(incoming.index, error);
    }

    /// Fails an entry. Ends the job when nothing can be written any more.
    pub(super) fn fail_item(&self, index: u64, error: &StoreError) {
        if let Some(end) = end_of_job(error, self.to.root()) {
            self.failure.set(end);
        }
        let kind = convert::failure_kind(error);
        self.settle(index, OutcomeKind::Failed { why: convert::bounded(error.seen_from(self.to.root())), kind });
    }

    pub(super) fn unverified(&self, incoming: &Incoming) {
        let why = format!("the data of {} does not verify, however often it is sent", shown(&incoming.path));
        self.give_up(incoming, why);
    }

    fn give_up(&self, incoming: &Incoming, why: String) {
        if self.other_hosts.drafts.is_some() {
            return self.failure.set(Error::new(Fault::Verification, why));
        }
        incoming.abandon(true, &self.disk.exposure);
        self.settle(incoming.index, OutcomeKind::Failed { why: convert::bounded(why), kind: FailureKind::Unverified });
    }

    /// Fails a draft that differs from the server's own sum: no later run may go on with it.
    pub(super) fn differs(&self, incoming: &Incoming, differs: SumDiffers) {
        incoming.abandon(false, &self.disk.exposure);
        let why = convert::bounded(format!("{}: {differs}", shown(&incoming.path)));
        self.settle(incoming.index, OutcomeKind::Failed { why, kind: FailureKind::Unverified });
    }

    /// Discards the data of a file that changed, or was given up.
    pub(super) fn abandon(&self, index: u64) {
        if let Some(incoming) = self.incoming(index) {
            incoming.abandon(false, &self.disk.exposure);
        }
    }

    pub(super) fn notice(&self, notice: Notice) {
        self.watch.on_notice(notice.clone());
        self.outbox.send(Control::Notice(notice));
    }

    /// [`Shared::notice`] for frequent notices: waits until the peer has read earlier ones. The loop may be what waits, so a
    /// peer that reads nothing ends the session from here.
    pub(super) fn notice_in_time(&self, notice: Notice) {
        self.await_listener();
        self.notice(notice);
    }

    /// Waits until the peer has read the queue. One that reads nothing ends the session.
    pub(super) fn await_listener(&self) {
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

    /// Whether further work of this session is useless; stays true.
    pub(super) fn is_over(&self) -> bool {
        self.lock().finished || self.watch.interrupted() || self.failure.get().is_err() || self.outbox.has_ended()
    }

    /// Notes a failure beside the items; the thread may wait.
    pub(super) fn failed_aside(&self, path: &[u8], error: &StoreError) {
        self.notice_in_time(Notice::Failed {
            path: path.to_vec(),
            why: convert::bounded(error.seen_from(self.to.root())),
        });
    }

    pub(super) fn failed_item(&self, index: u64, why: String) {
        self.settle(index, OutcomeKind::Failed { why: convert::bounded(why), kind: FailureKind::Io });
    }

    pub(super) fn manifest_done(&self) {
        self.lock().items.end_of_manifest();
    }

    pub(super) fn is_complete(&self) -> bool {
        self.lock().items.is_complete()
    }

    pub(super) fn has_open_items(&self) -> bool {
        self.lock().items.open_items() > 0
    }

    pub(super) fn has_work(&self) -> bool {
        self.lock().items.has_work()
    }

    /// Bytes of the largest file of which only the hash is awaited.
    pub(super) fn largest_to_hash_bytes(&self) -> u64 {
        let state = self.lock();
        let kept = state.items.all_data().filter(|incoming| incoming.kept.is_some());
        kept.map(|incoming| incoming.identity.size).max().unwrap_or(0)
    }

    pub(super) fn finish(&self) {
        self.lock().finished = true;
        self.tasks.end();
        self.rereads.end();
        self.looks.end();
        self.to_bring.end();
    }

    pub(super) fn moved(&self) -> (u64, u64) {
        (self.tally.arrived_bytes() + self.rereads.read_bytes() + self.looks.read_bytes(), self.tally.done())
    }

    pub(super) fn summary(&self) -> ReceiverSummary {
        let (reread_bytes, repaired_chunks) = self.rereads.repairs();
        let (read_again_bytes, trusted_bytes) = self.rereads.of_earlier_runs();
        ReceiverSummary {
            time: self.tally.time(),
            arrived_bytes: self.tally.arrived_bytes(),
            reread_bytes,
            repaired_chunks,
            read_again_bytes,
            trusted_bytes,
            marks_seen: self.tally.marks_seen(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        lock(&self.open)
    }
}

fn end_of_job(error: &StoreError, root: &[u8]) -> Option<Error> {
    (error.is_no_space() || error.is_read_only() || error.is_lost()).then(|| faults::store_error_in(error, root))
}
