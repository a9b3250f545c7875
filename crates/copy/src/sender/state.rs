//! What the threads of a sender share: the open items, the queue, the rate limit.

mod lending;
mod pacing;
mod portions;
mod removing;
mod to_come;
mod written;

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use haul_engine::schedule::{MAX_REPAIRS, MAX_TRIES, Retry, To, Unit};
use haul_engine::sending::{Broken, Sending};
use haul_engine::spread::Spread;
use haul_job::{Error, Fault};
use haul_store::{Access, SourceFile, SourceTree};
use haul_wire::control::{Control, Counted, FailureKind, Notice, Standing, Void, Wanted, Withdraw};
use haul_wire::limits::MIN_CHUNK_BYTES;
use haul_wire::manifest::{Item, ItemKind, Packer};

use haul_channel::channel::Outbox;
use haul_channel::convert;
use haul_channel::disk_watch::Storage;
use haul_channel::failure::Failure;
use haul_channel::reporter::Watch;
use haul_channel::teller::Teller;
use haul_kept::files::sparse;
use haul_kept::sync::lock;

use haul_striping::lending::Lending;
use haul_striping::portions::Portions;
use haul_striping::written::Written;

use crate::sums::SumsToCompare;

use super::announcer::Announcer;
use super::changes::ChangesLeft;
use super::found::Found;
use super::growing::Growing;
use super::job::SenderJob;
use super::lane_loads::LaneLoads;
use super::limits::UNITS_AHEAD;
use super::paced::Paced;
use super::read_again::ReadAgain;
use super::read_ahead_budget::ReadAheadBudget;
use super::removals::Removals;
use super::send_route::ChosenRoute;
use super::source_item::{Origin, SourceItem};
use super::standing_budget::StandingBudget;

/// A file that changed, as it is now.
struct Fresh {
    item: Item,
    changes_left: ChangesLeft,
}

struct State {
    items: Sending<Arc<SourceItem>>,
    packer: Packer,
    finished: bool,
    found: Found,
    /// What a count of the sources has found.
    counted: Counted,
    /// The walk has waited for room.
    is_ahead: bool,
    /// Lanes that the path does not need now.
    resting: Vec<u16>,
    /// When the last receipt for a unit of each lane came.
    receipts: BTreeMap<u16, Instant>,
    /// Since when lanes have all units, and no new one can follow.
    all_taken: Option<Instant>,
    /// The limit of the rate, of all hosts of this end together.
    rate_bytes_per_s: Option<u64>,
    /// The chunks that other hosts of this end send.
    lending: Lending<Arc<SourceItem>>,
    /// The chunks that movers of the other end write.
    written: Written,
    /// On a host of this end that does not lead: what it was given.
    portions: Portions<Arc<SourceItem>>,
}

/// What a lane takes at once.
pub(super) type Units = Vec<(Unit, Arc<SourceItem>)>;

/// How files are read.
pub(super) struct Reading {
    pub(super) sources: Arc<dyn SourceTree>,
    pub(super) storage: Storage,
    pub(super) route: ChosenRoute,
    pub(super) read_ahead: ReadAheadBudget,
    pub(super) growing: Growing,
    /// The receiver in the same process compares with these.
    sums: Option<Arc<SumsToCompare>>,
}

impl Reading {
    /// Whether the receiver reads complete drafts once more.
    pub(super) fn compares_sums(&self) -> bool {
        self.sums.is_some()
    }

    /// A chunk of a file was read: what its server says of it is there for the receiver before the file can be complete.
    pub(super) fn enter_sum(&self, file: &SourceItem, open: &SourceFile) {
        if let Some(sums) = self.sums.as_ref().filter(|_| !file.layout.is_whole())
            && let Some(sum) = open.server_sum()
        {
            sums.enter(file.index, sum);
        }
    }
}

/// The schedule is behind one lock; each other part has its own, and nobody who holds one takes that of the schedule.
pub(super) struct Shared {
    pub(super) job: SenderJob,
    pub(super) reading: Reading,
    pub(super) announcer: Announcer,
    pub(super) loads: LaneLoads,
    pub(super) removals: Removals,
    read_again: ReadAgain,
    standing: StandingBudget,
    paced: Paced,
    pub(super) failure: Failure,
    pub(super) watch: Arc<Watch>,
    pub(super) outbox: Arc<Outbox>,
    teller: Teller,
    /// Counts writes of lanes, receipts and outcomes, and what was read again.
    moved: AtomicU64,
    state: Mutex<State>,
    work: Condvar,
    /// Chunks that another host sends wait for their proof.
    to_prove: Condvar,
    room: Condvar,
}

/// Whole files that a lane takes at once, so that the lock is not taken for each.
const UNITS_AT_ONCE: usize = 16;

impl Shared {
    pub(super) fn new(sources: Arc<dyn SourceTree>, job: SenderJob, outbox: Arc<Outbox>, watch: Arc<Watch>) -> Self {
        let teller = Teller::new(Arc::clone(&watch), Arc::clone(&outbox));
        let state = State {
            items: Sending::default(),
            packer: Packer::default(),
            finished: false,
            found: Found::default(),
            counted: Counted::default(),
            is_ahead: false,
            resting: Vec::new(),
            receipts: BTreeMap::new(),
            all_taken: None,
            rate_bytes_per_s: job.carriage.rate_bytes_per_s,
            lending: Lending::default(),
            written: Written::default(),
            portions: Portions::default(),
        };
        Self {
            reading: Reading {
                sources,
                storage: Storage::of("source"),
                route: ChosenRoute::of(&job.carriage, teller.clone()),
                read_ahead: ReadAheadBudget::new(teller.clone()),
                growing: Growing::new(job.selection.growing),
                sums: job.sources.sums(),
            },
            announcer: Announcer::new(&job.selection, teller.clone()),
            loads: LaneLoads::default(),
            removals: Removals::new(&job.selection),
            read_again: ReadAgain::default(),
            standing: StandingBudget::default(),
            paced: Paced::new(job.carriage.rate_bytes_per_s),
            failure: Failure::default(),
            job,
            watch,
            outbox,
            teller,
            moved: AtomicU64::new(0),
            state: Mutex::new(state),
            work: Condvar::new(),
            to_prove: Condvar::new(),
            room: Condvar::new(),
        }
    }

    /// Tells whoever watches, here and at the other end.
    pub(super) fn notice(&self, notice: Notice) {
        self.teller.notice(notice);
    }

    /// The target has read so much of what earlier runs left.
    pub(super) fn on_read_again(&self, bytes: u64) -> Result<(), Error> {
        if self.read_again.told(bytes).map_err(broken)? {
            self.count_move();
        }
        Ok(())
    }

    /// Something moved: a lane wrote, a receipt or an outcome came.
    pub(super) fn count_move(&self) {
        self.moved.fetch_add(1, Ordering::Relaxed);
    }

    /// How often something moved.
    pub(super) fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    /// Waits until the target has shown its tree, if it has reason to. Nothing is listed or sent before: at its end the target hides
    /// it. False when the session is over.
    pub(super) fn await_target(&self) -> Result<bool, Error> {
        let limit = Duration::from_millis(self.job.carriage.timeout_ms.into());
        let waits = |state: &mut State| !state.finished && self.removals.await_the_target();
        let (state, waited) =
            self.room.wait_timeout_while(self.lock(), limit, waits).unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() && !state.finished {
            let what = format!("the target has not shown its directory for {} s", limit.as_secs());
            return Err(
                Error::new(Fault::Timeout, what).try_this("look at its storage, then run the same command again")
            );
        }
        Ok(!state.finished)
    }

    /// Enters the next item of the manifest, as soon as the window has room. False when the session is over.
    pub(super) fn push(&self, item: Item, origin: Origin) -> Result<bool, Error> {
        let weight = item.weight_bytes() + origin.path.len();
        let state = self.lock();
        let mut state = self
            .room
            .wait_while(state, |state| {
                let waits = !state.finished && !state.items.has_room(weight);
                state.is_ahead |= waits;
                waits
            })
            .unwrap_or_else(PoisonError::into_inner);
        if state.finished {
            return Ok(false);
        }
        self.watch.on_item(&item)?;
        let weight_on_wire = item.weight_bytes();
        let early = self.job.early.as_ref();
        let packed = state.packer.pack(&self.announcer.as_told(&item, &origin));
        self.removals.expect(state.items.next_index(), &item, &origin);
        let file = SourceItem::listed(
            &item,
            state.items.next_index(),
            origin,
            early,
            ChangesLeft::AT_FIRST,
            self.job.carriage.cut,
        );
        self.read_again.offer(&item);
        if let ItemKind::File { identity, .. } = &item.kind {
            state.found.file(identity.size);
        }
        state.items.push(file, weight);
        self.outbox.item(packed, weight_on_wire);
        Ok(true)
    }

    /// Whether a rule may leave the first name of a file alone, and not its further names.
    pub(super) fn may_leave_first_names(&self) -> bool {
        let selection = &self.job.selection;
        selection.update || selection.ignore_existing || selection.existing
    }

    /// Whether the walk has ever been further than the window reaches.
    pub(super) fn walk_is_ahead(&self) -> bool {
        self.lock().is_ahead
    }

    /// So much there is, as far as it was counted.
    pub(super) fn counted(&self, counted: Counted) {
        self.lock().counted = counted;
        self.watch.on_counted(counted);
        self.outbox.send(Control::Counted(counted));
    }

    /// The walk is over.
    pub(super) fn walk_done(&self) {
        let mut state = self.lock();
        state.items.walk_done();
        self.watch.on_end_of_manifest();
        self.outbox.send(Control::EndOfManifest);
    }

    /// Whether the manifest has ended.
    pub(super) fn is_listed(&self) -> bool {
        self.lock().items.is_listed()
    }

    /// The target said what it wants of a file.
    pub(super) fn want(&self, index: u64, wanted: &Wanted) -> Result<(), Error> {
        let mut state = self.lock();
        self.share_before(&mut state, index)?;
        let file = state.items.want(index, wanted).map_err(broken)?;
        file.hash_only.store(matches!(wanted, Wanted::Hash), Ordering::Relaxed);
        state.all_taken = None;
        // It was decided, maybe after long reading; each is asked for once.
        self.count_move();
        self.lend(&mut state);
        self.work.notify_all();
        Ok(())
    }

    /// Whether other hosts of this end may send for it.
    fn lends(&self) -> bool {
        self.job.carriage.movers > 0 && !self.job.is_mover
    }

    /// Large files may be sent by movers, too.
    fn share_before(&self, state: &mut State, index: u64) -> Result<(), Error> {
        if self.lends() && matches!(state.items.open_file(index), Ok(Some(_))) {
            state.items.share(index).map_err(broken)?;
        }
        Ok(())
    }

    /// Gives movers what they still take.
    fn lend(&self, state: &mut State) {
        for portion in state.lending.lend(&mut state.items, Instant::now()) {
            self.to_prove.notify_all();
            self.outbox.send(portion);
        }
    }

    /// On a mover: asks its leader for more. `found_nothing`: a lane did.
    fn ask_for_more(&self, state: &mut State, found_nothing: bool) {
        if self.job.is_mover
            && let Some(asked) = state.portions.ask_for_more(&state.items, found_nothing)
        {
            self.outbox.send(asked);
        }
    }

    /// On a mover: it cannot send this file as it was listed.
    fn give_back(&self, index: u64) {
        let mut state = self.lock();
        let state = &mut *state;
        for said in state.portions.give_back(&mut state.items, index) {
            self.outbox.send(said);
        }
        self.ask_for_more(state, false);
    }

    /// The target tells what stands there of a file that it will ask for.
    pub(super) fn on_standing(&self, standing: &Standing) -> Result<(), Error> {
        self.count_move();
        let state = self.lock();
        // It may have been withdrawn or settled meanwhile.
        let Ok(Some(file)) = state.items.open_file(standing.index).map(|file| file.cloned()) else { return Ok(()) };
        drop(state);
        self.standing.enter(&file, standing, self.job.carriage.path.as_ref()).map_err(broken)
    }

    /// A chunk is verified at the target.
    pub(super) fn on_receipt(&self, index: u64, chunk: u32) {
        self.count_move();
        let mut state = self.lock();
        if let Some(lane) = state.items.on_receipt(Unit { index, chunk }) {
            state.receipts.insert(lane, Instant::now());
        }
    }

    /// A chunk did not verify.
    pub(super) fn again(&self, index: u64, chunk: u32) -> Result<(), Error> {
        let mut state = self.lock();
        if let Ok(Some(file)) = state.items.open_file(index)
            && let Some(early) = &file.early
        {
            early.doubt();
        }
        if let Ok(Some(file)) = state.items.open_file(index)
            && let Some(standing) = file.standing.get()
        {
            standing.distrust(chunk);
        }
        match state.items.again(Unit { index, chunk }) {
            Retry::Queued => self.work.notify_all(),
            Retry::GiveUp => {
                let why = format!("chunk {chunk} did not verify in {MAX_TRIES} tries");
                let withdraw = Withdraw { index, why, kind: FailureKind::Unverified, retry: None };
                self.outbox.send(Control::Withdraw(withdraw));
            }
            // The file failed or the lane died meanwhile.
            Retry::Unknown => {}
        }
        Ok(())
    }

    /// What this lane brings of a chunk does not count at the target, because a lane that was given up had the chunk last and died. If
    /// this lane still carries it, it goes again. That is no failed try: a lane that is lost says nothing about the data.
    pub(super) fn void(&self, void: &Void) -> Result<(), Error> {
        let Void { index, chunk, lane } = *void;
        let mut state = self.lock();
        let unit = Unit { index, chunk };
        // Otherwise another lane carries it by now, and that data counts; or nobody awaits it any more.
        if let Ok(Some(file)) = state.items.open_file(index)
            && state.items.lane_of(unit) == Some(lane)
        {
            if file.voids.fetch_add(1, Ordering::Relaxed) >= MAX_REPAIRS.saturating_add(file.layout.count()) {
                return Err(broken(Broken("its lanes lose chunks without end")));
            }
            state.items.repair(unit);
            self.work.notify_all();
        }
        Ok(())
    }

    /// A chunk does not stand at the target as it was verified, though it had its receipt or was not asked for. A target may say so
    /// once for each chunk, because an earlier run may have left all of them, and a few times more. An honest target gives the file
    /// up before the bound.
    pub(super) fn repair(&self, index: u64, chunk: u32) -> Result<(), Error> {
        let mut state = self.lock();
        // It was withdrawn meanwhile.
        let Some(file) = state.items.open_file(index).map_err(broken)? else { return Ok(()) };
        let count = file.layout.count();
        if chunk >= count || file.hash_only.load(Ordering::Relaxed) {
            return Err(broken(Broken("it wants chunks again that do not exist")));
        }
        let most = MAX_REPAIRS.min(count.saturating_mul(u32::from(MAX_TRIES))).saturating_add(count);
        if file.repairs.fetch_add(1, Ordering::Relaxed) >= most {
            return Err(broken(Broken("it wants chunks again without end")));
        }
        if let Some(standing) = file.standing.get() {
            standing.distrust(chunk);
        }
        state.items.repair(Unit { index, chunk });
        self.work.notify_all();
        Ok(())
    }

    /// An item has its outcome.
    pub(super) fn settle(&self, index: u64, failed: bool) -> Result<(), Error> {
        self.count_move();
        self.job.movers.closes(index);
        let mut state = self.lock();
        state.written.forget(index);
        if let Ok(Some(file)) = state.items.open_file(index) {
            let bytes = file.identity.size;
            self.standing.release(file);
            state.found.settled(bytes);
        }
        if state.items.settle(index, failed).map_err(broken)? > 0 {
            self.room.notify_all();
        }
        Ok(())
    }

    /// A lane died; its units go to the others.
    pub(super) fn lane_died(&self, lane: u16) {
        if self.lock().items.lane_died(lane) {
            self.work.notify_all();
        }
    }

    /// Units for a lane; waits so long for them. `None`: nothing by then, or (when it is over) never again.
    pub(super) fn take(&self, lane: u16, wait: Duration) -> Option<Units> {
        self.take_of(lane, wait, false)
    }

    /// [`Shared::take`] for a lane that has waited in vain: it may also take what another lane has begun, where that is slower than it should
    /// be.
    pub(super) fn take_after_all(&self, lane: u16, wait: Duration) -> Option<Units> {
        self.take_of(lane, wait, true)
    }

    fn take_of(&self, lane: u16, wait: Duration, has_waited: bool) -> Option<Units> {
        let to = self.job.movers.to(lane);
        let has_none =
            |state: &State| !state.finished && (state.items.has_none_for(lane, to) || state.resting.contains(&lane));
        let mut state = self.lock();
        let lanes = self.loads.carrying().saturating_sub(u32::try_from(state.resting.len()).unwrap_or(u32::MAX));
        state.items.spread(match self.reading.sources.access() {
            _ if self.job.carriage.in_order => Spread::OneLane,
            Access::Random => Spread::InTurn,
            Access::Runs { .. } if has_waited => Spread::Runs { lanes, worth: 0 },
            Access::Runs { jump_bytes } => {
                let worth = u32::try_from(jump_bytes / MIN_CHUNK_BYTES).unwrap_or(u32::MAX);
                Spread::Runs { lanes, worth }
            }
            Access::Sequential => Spread::OneLane,
        });
        if !wait.is_zero() {
            let waited = self.work.wait_timeout_while(state, wait, |state| has_none(state));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if state.finished || state.resting.contains(&lane) {
            return None;
        }
        let units = state.items.take_share(lane, to, lanes, UNITS_AT_ONCE);
        self.ask_for_more(&mut state, units.is_empty());
        if state.all_taken.is_none() && state.items.is_all_taken() {
            state.all_taken = Some(Instant::now());
        }
        (!units.is_empty()).then_some(units)
    }

    /// The end of the run of which this lane has taken a chunk last (see [`Sending::run_of`]).
    pub(super) fn run_of(&self, lane: u16) -> Option<(u64, u32)> {
        self.lock().items.run_of(lane)
    }

    /// Another host of the target's end writes what this lane brings. What stands there was not told by it.
    pub(super) fn is_to_mover(&self, lane: u16) -> bool {
        self.job.movers.to(lane) == To::Mover
    }

    /// One more chunk of this file for a lane that still carries one. `None`: the rest is for the other lanes.
    pub(super) fn take_ahead(&self, lane: u16, index: u64) -> Option<(Unit, Arc<SourceItem>)> {
        let lanes = self.loads.carrying();
        let left = lanes.saturating_mul(u32::try_from(UNITS_AHEAD).expect("a few"));
        let mut state = self.lock();
        if state.finished || state.resting.contains(&lane) {
            return None;
        }
        let taken = state.items.take_ahead(lane, self.job.movers.to(lane), index, left);
        self.ask_for_more(&mut state, false);
        taken
    }

    /// A lane begins to carry: what it leaves of the processors is not for hashing ahead. See [`LaneLoads::begin`].
    pub(super) fn lane_begins(&self, lane: u16) -> Arc<AtomicU64> {
        if let Some(early) = &self.job.early {
            early.stop();
        }
        self.loads.begin(lane)
    }

    /// From which size on it is looked at what the page cache has of a file. `None` with a route that was asked for: it reads in its own way.
    pub(super) fn direct_from_bytes(&self) -> Option<u64> {
        self.job.carriage.route.is_none().then_some(self.job.direct_from_bytes)
    }

    /// These lanes get no units until further notice; all others do.
    pub(super) fn rest(&self, mut lanes: Vec<u16>) {
        // What nobody else may carry must not wait for the others.
        if self.job.movers.count() > 0 {
            lanes.retain(|lane| self.job.movers.to(*lane) == To::Mover);
        }
        let mut state = self.lock();
        if state.resting != lanes {
            lanes.iter().for_each(|lane| state.items.leaves(*lane));
            state.resting = lanes;
            self.work.notify_all();
        }
    }

    /// Whether a lane was told to rest.
    pub(super) fn rests(&self, lane: u16) -> bool {
        self.lock().resting.contains(&lane)
    }

    /// Since when lanes have all units, and no new one can follow.
    pub(super) fn all_taken(&self) -> Option<Instant> {
        self.lock().all_taken
    }

    /// When the last receipt for a unit of this lane came.
    pub(super) fn last_receipt(&self, lane: u16) -> Option<Instant> {
        self.lock().receipts.get(&lane).copied()
    }

    /// A wanted file cannot be sent as announced. When it changed, its new state takes the next place in the manifest,
    /// as often as [`ChangesLeft`] says.
    pub(super) fn withdraw(&self, file: &SourceItem, why: String, kind: FailureKind) -> Result<(), Error> {
        if self.job.is_mover {
            self.give_back(file.index);
            return Ok(());
        }
        let fresh = (kind == FailureKind::Changed).then(|| self.fresh_item(file)).flatten();
        self.job.movers.closes(file.index);
        let mut state = self.lock();
        state.written.forget(file.index);
        // Otherwise withdrawn already by another lane, or settled.
        if !state.items.withdraw(file.index) {
            return Ok(());
        }
        self.standing.release(file);
        let retry = match fresh {
            Some(Fresh { item, changes_left }) => {
                self.watch.on_item(&item)?;
                let packed = state.packer.pack(&self.announcer.as_told(&item, &file.origin));
                let weight = item.weight_bytes();
                let index = state.items.next_index();
                self.removals.expect(index, &item, &file.origin);
                let retry =
                    SourceItem::listed(&item, index, file.origin.clone(), None, changes_left, self.job.carriage.cut);
                self.read_again.offer(&item);
                state.items.push_retry(retry, weight);
                Some(packed)
            }
            None => None,
        };
        let why = convert::bounded(why);
        self.outbox.send(Control::Withdraw(Withdraw { index: file.index, why, kind, retry }));
        Ok(())
    }

    /// The file as it is now; `None` when it is gone or cannot be read, or has changed too often.
    fn fresh_item(&self, file: &SourceItem) -> Option<Fresh> {
        let open = self.reading.sources.open(file.origin.source, &file.origin.path).ok()?;
        let stat = open.stat().ok()?;
        let changes_left = file.changes_left.after(&file.identity, &convert::identity(&stat))?;
        let listed = file.listed.as_ref()?;
        let ItemKind::File { blake3, further_names, .. } = &listed.kind else { return None };
        let kind = ItemKind::File {
            identity: convert::identity(&stat),
            hole_bytes: sparse::look(&stat, || self.reading.sources.open(file.origin.source, &file.origin.path).ok()),
            // Its contents are new; a content comparison has nothing to go by.
            blake3: blake3.map(|_| [0; 32]),
            further_names: *further_names,
        };
        let selection = &self.job.selection;
        // After the times: should they change in between, it has changed once more.
        let xattrs = open.attributes(selection.xattrs, selection.acls).ok()?;
        let mut attributes = convert::attributes(&stat, convert::xattrs(xattrs));
        self.announcer.name_owners(&mut attributes, false);
        Some(Fresh { item: Item { path: listed.path.clone(), kind, attributes }, changes_left })
    }

    /// Whether data is wanted that has no receipt.
    pub(super) fn has_work(&self) -> bool {
        self.lock().items.has_work()
    }

    /// Whether the target has something to say: what becomes of an item, or that all is flushed.
    pub(super) fn awaits_word(&self) -> bool {
        self.lock().items.awaits_word()
    }

    /// Whether the target has yet to say what it wants of files of so many bytes in all.
    pub(super) fn awaits_answers(&self, least_bytes: u64) -> bool {
        self.lock().items.awaits_answers(least_bytes)
    }

    /// Bytes of the largest file whose outcome is awaited.
    pub(super) fn largest_open_bytes(&self) -> u64 {
        self.lock().items.largest_open_bytes()
    }

    /// Bytes that the target confirmed of files whose outcome is awaited: it may have to flush them.
    pub(super) fn confirmed_open_bytes(&self) -> u64 {
        self.lock().items.confirmed_open_bytes()
    }

    /// The target said that all is flushed; false: of what it knew by then.
    pub(super) fn on_summary(&self) -> Result<bool, Error> {
        let told = self.lock().items.on_summary();
        told.map_err(|Broken(_)| Error::new(Fault::Protocol, "the far side ended with items open"))
    }

    /// Whether the session is over for the lanes.
    pub(super) fn is_over(&self) -> bool {
        self.lock().finished
    }

    /// Ends the lanes and the walk.
    pub(super) fn finish(&self) {
        self.lock().finished = true;
        self.paced.end();
        self.work.notify_all();
        self.to_prove.notify_all();
        self.room.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn broken(Broken(why): Broken) -> Error {
    Error::broke_the_protocol(why)
}

/// The error of a lane when the session itself failed.
pub(super) fn lane_error(error: &Error) -> io::Error {
    io::Error::other(error.to_string())
}
