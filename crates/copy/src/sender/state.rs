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

use crate::sums::{PassingBy, SumsToCompare};

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

struct Fresh {
    item: Item,
    changes_left: ChangesLeft,
}

struct State {
    items: Sending<Arc<SourceItem>>,
    packer: Packer,
    finished: bool,
    found: Found,
    counted: Counted,
    /// The walk has waited for room.
    is_ahead: bool,
    /// Lanes that the path does not need now.
    resting: Vec<u16>,
    /// The last receipt of each lane.
    receipts: BTreeMap<u16, Instant>,
    /// The moment when lanes had all units, and no new one could follow.
    all_taken: Option<Instant>,
    /// The limit of all hosts of this end together.
    rate_bytes_per_s: Option<u64>,
    /// The chunks that movers of this end send.
    lending: Lending<Arc<SourceItem>>,
    /// The chunks that movers of the other end write.
    written: Written,
    /// The portions of a mover of this end.
    portions: Portions<Arc<SourceItem>>,
}

pub(super) type Units = Vec<(Unit, Arc<SourceItem>)>;

pub(super) struct Reading {
    pub(super) sources: Arc<dyn SourceTree>,
    pub(super) storage: Storage,
    pub(super) route: ChosenRoute,
    pub(super) read_ahead: ReadAheadBudget,
    pub(super) growing: Growing,
    sums: Option<Arc<SumsToCompare>>,
}

impl Reading {
    pub(super) fn compares_sums(&self) -> bool {
        self.sums.is_some()
    }

    pub(super) fn passing(&self) -> Option<&PassingBy> {
        self.sums.as_ref().map(|sums| sums.passing())
    }

    /// Enters the server's sum for a read chunk, before the receiver can complete the file.
    pub(super) fn enter_sum(&self, file: &SourceItem, open: &SourceFile) {
        if let Some(sums) = self.sums.as_ref().filter(|_| !file.layout.is_whole())
            && let Some(sum) = open.server_sum()
        {
            sums.enter(file.index, sum);
        }
    }
}

/// The schedule and each other part have locks of their own. A holder of another lock never takes the schedule's.
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
    /// Counts writes of lanes, receipts, outcomes, and what was read again.
    moved: AtomicU64,
    state: Mutex<State>,
    work: Condvar,
    to_prove: Condvar,
    room: Condvar,
}

/// Whole files under one taking of the lock.
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

    pub(super) fn notice(&self, notice: Notice) {
        self.teller.notice(notice);
    }

    pub(super) fn on_read_again(&self, bytes: u64) -> Result<(), Error> {
        if self.read_again.told(bytes).map_err(broken)? {
            self.count_move();
        }
        Ok(())
    }

    /// Notes that a lane wrote, or a receipt or an outcome came.
    pub(super) fn count_move(&self) {
        self.moved.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    /// Waits for the target's tree, if the target has reason to show it, before anything is listed or sent: at its end the
    /// target hides it. Returns false when the session is over.
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

    /// Enters an item once the window has room. Returns false when the session is over.
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

    /// Whether a rule may leave out only a file's first name.
    pub(super) fn may_leave_first_names(&self) -> bool {
        let selection = &self.job.selection;
        selection.update || selection.ignore_existing || selection.existing
    }

    pub(super) fn walk_is_ahead(&self) -> bool {
        self.lock().is_ahead
    }

    pub(super) fn counted(&self, counted: Counted) {
        self.lock().counted = counted;
        self.watch.on_counted(counted);
        self.outbox.send(Control::Counted(counted));
    }

    pub(super) fn walk_done(&self) {
        let mut state = self.lock();
        state.items.walk_done();
        self.watch.on_end_of_manifest();
        self.outbox.send(Control::EndOfManifest);
    }

    pub(super) fn is_listed(&self) -> bool {
        self.lock().items.is_listed()
    }

    pub(super) fn want(&self, index: u64, wanted: &Wanted) -> Result<(), Error> {
        let mut state = self.lock();
        self.share_before(&mut state, index)?;
        let file = state.items.want(index, wanted).map_err(broken)?;
        file.hash_only.store(matches!(wanted, Wanted::Hash), Ordering::Relaxed);
        state.all_taken = None;
        // The decision may have taken long reading; each file is asked for once.
        self.count_move();
        self.lend(&mut state);
        self.work.notify_all();
        Ok(())
    }

    fn lends(&self) -> bool {
        self.job.carriage.movers > 0 && !self.job.is_mover
    }

    fn share_before(&self, state: &mut State, index: u64) -> Result<(), Error> {
        if self.lends() && matches!(state.items.open_file(index), Ok(Some(_))) {
            state.items.share(index).map_err(broken)?;
        }
        Ok(())
    }

    fn lend(&self, state: &mut State) {
        for portion in state.lending.lend(&mut state.items, Instant::now()) {
            self.to_prove.notify_all();
            self.outbox.send(portion);
        }
    }

    /// Asks, on a mover, the leader for more. `found_nothing`: a lane did.
    fn ask_for_more(&self, state: &mut State, found_nothing: bool) {
        if self.job.is_mover
            && let Some(asked) = state.portions.ask_for_more(&state.items, found_nothing)
        {
            self.outbox.send(asked);
        }
    }

    /// Gives back, on a mover, a file that cannot be sent as listed.
    fn give_back(&self, index: u64) {
        let mut state = self.lock();
        let state = &mut *state;
        for said in state.portions.give_back(&mut state.items, index) {
            self.outbox.send(said);
        }
        self.ask_for_more(state, false);
    }

    /// Takes what stands at the target of a file it will ask for.
    pub(super) fn on_standing(&self, standing: &Standing) -> Result<(), Error> {
        self.count_move();
        let state = self.lock();
        let Ok(Some(file)) = state.items.open_file(standing.index).map(|file| file.cloned()) else { return Ok(()) };
        drop(state);
        self.standing.enter(&file, standing, self.job.carriage.path.as_ref()).map_err(broken)
    }

    pub(super) fn on_receipt(&self, index: u64, chunk: u32) {
        self.count_move();
        let mut state = self.lock();
        if let Some(lane) = state.items.on_receipt(Unit { index, chunk }) {
            state.receipts.insert(lane, Instant::now());
        }
    }

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
            Retry::Unknown => {}
        }
        Ok(())
    }

    /// Sends a chunk again whose last lane, given up, died after this one: its data does not count. The try is not counted,
    /// since a lost lane says nothing about the data.
    pub(super) fn void(&self, void: &Void) -> Result<(), Error> {
        let Void { index, chunk, lane } = *void;
        let mut state = self.lock();
        let unit = Unit { index, chunk };
        // Otherwise another lane carries it, and that data counts; or nobody awaits it.
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

    /// Sends a chunk again that does not stand as verified, though it had its receipt or was not asked for. A target may say so
    /// once for each chunk, as an earlier run may have left all of them, and a few times more. An honest one gives the file up
    /// before the bound.
    pub(super) fn repair(&self, index: u64, chunk: u32) -> Result<(), Error> {
        let mut state = self.lock();
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

    pub(super) fn lane_died(&self, lane: u16) {
        if self.lock().items.lane_died(lane) {
            self.work.notify_all();
        }
    }

    /// Takes units for a lane; waits so long. Returns `None` if there are none by then, or (when it is over) never again.
    pub(super) fn take(&self, lane: u16, wait: Duration) -> Option<Units> {
        self.take_of(lane, wait, false)
    }

    /// [`Shared::take`] for a lane that waited in vain: it may take what a too slow lane has begun.
    pub(super) fn take_after_all(&self, lane: u16, wait: Duration) -> Option<Units> {
        self.take_of(lane, wait, true)
    }

    /// The order that suits both ends, where the target wants one.
    fn in_order(&self) -> Access {
        let hand_over = self.job.hand_over.as_ref();
        let target = hand_over.and_then(|shared| shared.target_access());
        if matches!(target, Some(Access::Runs { .. })) && hand_over.is_some_and(|shared| shared.begins_runs()) {
            self.work.notify_all();
        }
        match (self.reading.sources.access(), target.unwrap_or(Access::Sequential)) {
            (Access::Runs { jump_bytes }, Access::Runs { jump_bytes: of_target }) => {
                Access::Runs { jump_bytes: jump_bytes.max(of_target) }
            }
            (Access::Random, access @ Access::Runs { .. }) => access,
            _ => Access::Sequential,
        }
    }

    fn take_of(&self, lane: u16, wait: Duration, has_waited: bool) -> Option<Units> {
        let to = self.job.movers.to(lane);
        let has_none =
            |state: &State| !state.finished && (state.items.has_none_for(lane, to) || state.resting.contains(&lane));
        let mut state = self.lock();
        let lanes = self.loads.carrying().saturating_sub(u32::try_from(state.resting.len()).unwrap_or(u32::MAX));
        let access = match self.job.carriage.in_order {
            true => self.in_order(),
            false => self.reading.sources.access(),
        };
        state.items.spread(match access {
            Access::Random => Spread::InTurn,
            // A connection to a target costs more than it would bring at the end.
            Access::Runs { .. } if has_waited && !self.job.carriage.in_order => Spread::Runs { lanes, worth: 0 },
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

    /// The end of this lane's last run (see [`Sending::run_of`]).
    pub(super) fn run_of(&self, lane: u16) -> Option<(u64, u32)> {
        self.lock().items.run_of(lane)
    }

    /// Whether a mover of the target writes this lane's data. It has not told what stands there.
    pub(super) fn is_to_mover(&self, lane: u16) -> bool {
        self.job.movers.to(lane) == To::Mover
    }

    /// Takes one more chunk of this file for a lane that still carries one. `None`: the rest is for other lanes.
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

    /// Notes that a lane carries: the processors are not for hashing ahead. See [`LaneLoads::begin`].
    pub(super) fn lane_begins(&self, lane: u16) -> Arc<AtomicU64> {
        if let Some(early) = &self.job.early {
            early.stop();
        }
        self.loads.begin(lane)
    }

    /// The size from which the page cache is looked up. `None`: a requested route reads in its own way.
    pub(super) fn direct_from_bytes(&self) -> Option<u64> {
        self.job.carriage.route.is_none().then_some(self.job.direct_from_bytes)
    }

    pub(super) fn rest(&self, mut lanes: Vec<u16>) {
        // What nobody else may carry must not wait.
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

    pub(super) fn rests(&self, lane: u16) -> bool {
        self.lock().resting.contains(&lane)
    }

    pub(super) fn all_taken(&self) -> Option<Instant> {
        self.lock().all_taken
    }

    pub(super) fn last_receipt(&self, lane: u16) -> Option<Instant> {
        self.lock().receipts.get(&lane).copied()
    }

    /// Withdraws a wanted file. A changed one is announced anew in the next place of the manifest, as often as [`ChangesLeft`]
    /// says.
    pub(super) fn withdraw(&self, file: &SourceItem, why: String, kind: FailureKind) -> Result<(), Error> {
        if self.job.is_mover {
            self.give_back(file.index);
            return Ok(());
        }
        let fresh = (kind == FailureKind::Changed).then(|| self.fresh_item(file)).flatten();
        self.job.movers.closes(file.index);
        let mut state = self.lock();
        state.written.forget(file.index);
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

    /// The file as it is now; `None`: gone, unreadable, or changed too often.
    fn fresh_item(&self, file: &SourceItem) -> Option<Fresh> {
        let open = self.reading.sources.open(file.origin.source, &file.origin.path).ok()?;
        let stat = open.stat().ok()?;
        let changes_left = file.changes_left.after(&file.identity, &convert::identity(&stat))?;
        let listed = file.listed.as_ref()?;
        let ItemKind::File { blake3, further_names, .. } = &listed.kind else { return None };
        let kind = ItemKind::File {
            identity: convert::identity(&stat),
            hole_bytes: sparse::look(&stat, || self.reading.sources.open(file.origin.source, &file.origin.path).ok()),
            // New contents give a comparison nothing to go by.
            blake3: blake3.map(|_| [0; 32]),
            further_names: *further_names,
        };
        let selection = &self.job.selection;
        // Attributes come after the times: a change in between then counts once more.
        let xattrs = open.attributes(selection.xattrs, selection.acls).ok()?;
        let mut attributes = convert::attributes(&stat, convert::xattrs(xattrs));
        self.announcer.name_owners(&mut attributes, false);
        Some(Fresh { item: Item { path: listed.path.clone(), kind, attributes }, changes_left })
    }

    pub(super) fn has_work(&self) -> bool {
        self.lock().items.has_work()
    }

    /// Whether the target owes a word: an outcome, or that all is flushed.
    pub(super) fn awaits_word(&self) -> bool {
        self.lock().items.awaits_word()
    }

    /// Whether the target has yet to answer for so many bytes in all.
    pub(super) fn awaits_answers(&self, least_bytes: u64) -> bool {
        self.lock().items.awaits_answers(least_bytes)
    }

    pub(super) fn largest_open_bytes(&self) -> u64 {
        self.lock().items.largest_open_bytes()
    }

    /// Confirmed bytes of open files: the target may have to flush them.
    pub(super) fn confirmed_open_bytes(&self) -> u64 {
        self.lock().items.confirmed_open_bytes()
    }

    /// Notes that all is flushed; false: of what the target knew by then.
    pub(super) fn on_summary(&self) -> Result<bool, Error> {
        let told = self.lock().items.on_summary();
        told.map_err(|Broken(_)| Error::new(Fault::Protocol, "the far side ended with items open"))
    }

    pub(super) fn is_over(&self) -> bool {
        self.lock().finished
    }

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

pub(super) fn lane_error(error: &Error) -> io::Error {
    io::Error::other(error.to_string())
}
