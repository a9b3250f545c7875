//! What the threads of a sender share: the open items, the queue, the rate limit.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use haul_engine::pace::TokenBucket;
use haul_engine::plan::ChunkLayout;
use haul_engine::schedule::{MAX_REPAIRS, MAX_TRIES, Retry, Scheduler, Unit};
use haul_engine::window::Window;
use haul_store::{SourceFile, SourceSet};
use haul_wire::control::{Carriage, ChunkRange, Control, FailureKind, LaneTime, Notice, Withdraw};
use haul_wire::limits::BLOCK_BYTES;
use haul_wire::manifest::{Identity, Item, ItemKind, Packer};

use crate::channel::Outbox;
use crate::convert;
use crate::error::{Error, Fault};
use crate::pump::{Dropped, Routes, SendPump, SendRoute};
use crate::session::{self, Failure};
use crate::stopwatch;
use crate::watch::Watch;

use super::SenderJob;

/// A file of the manifest that is still open.
pub(super) struct SourceItem {
    pub(super) index: u64,
    pub(super) identity: Identity,
    pub(super) layout: ChunkLayout,
    pub(super) sparse: bool,
    source: u32,
    source_path: Vec<u8>,
    item: Item,
    /// It is the second try after a change.
    is_retry: bool,
    /// Only its hash is wanted.
    pub(super) hash_only: AtomicBool,
    /// How often a chunk of it was sent again because the target's medium had lost it.
    repairs: AtomicU32,
    /// Kept open while chunks of a large file are carried.
    file: Mutex<Option<Arc<SourceFile>>>,
}

impl SourceItem {
    /// The open file: shared between the chunks of a large file, opened for the moment for a whole one.
    pub(super) fn open(&self, sources: &SourceSet) -> haul_store::Result<Arc<SourceFile>> {
        if self.layout.is_whole() {
            return sources.open(self.source, &self.source_path).map(Arc::new);
        }
        let mut file = session::lock(&self.file);
        if let Some(file) = &*file {
            return Ok(Arc::clone(file));
        }
        let opened = Arc::new(sources.open(self.source, &self.source_path)?);
        opened.advise_sequential();
        *file = Some(Arc::clone(&opened));
        Ok(opened)
    }
}

struct Open {
    /// `None` for what has no data to send.
    file: Option<Arc<SourceItem>>,
    /// The target said what it wants of it.
    answered: bool,
    settled: bool,
}

impl Open {
    fn new(file: Option<Arc<SourceItem>>) -> Self {
        Self { file, answered: false, settled: false }
    }
}

struct State {
    window: Window<Open>,
    packer: Packer,
    scheduler: Scheduler,
    walk_done: bool,
    finished: bool,
    /// Lanes that the path does not need now.
    resting: Vec<u16>,
    /// When the last receipt for a unit of each lane came.
    receipts: BTreeMap<u16, Instant>,
}

pub(super) struct Shared {
    pub(super) sources: Arc<SourceSet>,
    pub(super) job: SenderJob,
    pub(super) outbox: Arc<Outbox>,
    pub(super) watch: Arc<Watch>,
    pub(super) failure: Failure,
    state: Mutex<State>,
    work: Condvar,
    room: Condvar,
    bucket: Option<Mutex<TokenBucket>>,
    started: Instant,
    time: Mutex<LaneTime>,
    /// Counts writes of lanes, receipts and outcomes.
    moved: AtomicU64,
    /// The route that was asked for, and what is left of it. `None`: the lanes copy through their own buffers.
    routes: Option<(SendRoute, Arc<Routes<SendRoute>>)>,
    route_refused: AtomicBool,
}

/// Whole files that a lane takes at once, so that the lock is not taken for each.
const UNITS_AT_ONCE: usize = 16;

impl Shared {
    pub(super) fn new(sources: Arc<SourceSet>, job: SenderJob, outbox: Arc<Outbox>, watch: Arc<Watch>) -> Self {
        let bucket = job.carriage.rate_bytes_per_s.map(|rate| Mutex::new(TokenBucket::new(rate, 0)));
        // The lanes' own way to copy sends many small files at once.
        let asked = asked_route(&job.carriage).filter(|route| *route != SendRoute::Copy);
        let routes = asked.map(|route| (route, Arc::new(Routes::new(&[route], SendRoute::Copy))));
        let state = State {
            window: Window::default(),
            packer: Packer::default(),
            scheduler: Scheduler::default(),
            walk_done: false,
            finished: false,
            resting: Vec::new(),
            receipts: BTreeMap::new(),
        };
        Self {
            sources,
            job,
            outbox,
            watch,
            failure: Failure::default(),
            state: Mutex::new(state),
            work: Condvar::new(),
            room: Condvar::new(),
            bucket,
            started: Instant::now(),
            time: Mutex::default(),
            moved: AtomicU64::new(0),
            routes,
            route_refused: AtomicBool::new(false),
        }
    }

    /// What moves the blocks of one lane, where that is not the lane itself.
    pub(super) fn pump(&self) -> Option<SendPump> {
        let (_, routes) = self.routes.as_ref()?;
        (routes.current() != SendRoute::Copy).then(|| SendPump::new(Arc::clone(routes), BLOCK_BYTES))
    }

    /// Whether the route that was asked for is still in use. When it was refused that is said, once.
    pub(super) fn keeps_route(&self) -> bool {
        let Some((asked, routes)) = &self.routes else { return false };
        if routes.current() == *asked {
            return true;
        }
        if !self.route_refused.swap(true, Ordering::Relaxed) {
            for dropped in routes.dropped() {
                let Dropped { route, instead, why } = dropped;
                let text = format!("the route {route} cannot be used ({why}): {instead} is used instead");
                self.notice(Notice::Warning { text: convert::bounded(text) });
            }
        }
        false
    }

    /// Tells whoever watches, here and at the other end.
    pub(super) fn notice(&self, notice: Notice) {
        self.watch.on_notice(notice.clone());
        self.outbox.send(Control::Notice(notice));
    }

    /// Something moved: a lane wrote, a receipt or an outcome came.
    pub(super) fn count_move(&self) {
        self.moved.fetch_add(1, Ordering::Relaxed);
    }

    /// How often something moved.
    pub(super) fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    /// Enters the next item of the manifest, as soon as the window has room. False when the session is over.
    pub(super) fn push(&self, item: Item, source: u32, source_path: Vec<u8>) -> Result<bool, Error> {
        let weight = item.weight_bytes() + source_path.len();
        let state = self.lock();
        let mut state = self
            .room
            .wait_while(state, |state| !state.finished && !state.window.has_room(weight))
            .unwrap_or_else(PoisonError::into_inner);
        if state.finished {
            return Ok(false);
        }
        self.watch.on_item(&item)?;
        let packed = state.packer.pack(&item);
        let weight_on_wire = item.weight_bytes();
        let file = source_item(&item, state.window.next_index(), source, source_path, false);
        state.window.push(Open::new(file), weight);
        self.outbox.item(packed, weight_on_wire);
        Ok(true)
    }

    /// The walk is over.
    pub(super) fn walk_done(&self) {
        let mut state = self.lock();
        state.walk_done = true;
        self.watch.on_end_of_manifest();
        self.outbox.send(Control::EndOfManifest);
    }

    /// All of a file is wanted.
    pub(super) fn want_all(&self, index: u64) -> Result<(), Error> {
        let mut state = self.lock();
        let count = state.answer(index)?.layout.count();
        state.scheduler.want(index, ChunkRange { first: 0, count });
        self.work.notify_all();
        Ok(())
    }

    /// Only the hash of a file is wanted.
    pub(super) fn want_hash(&self, index: u64) -> Result<(), Error> {
        let mut state = self.lock();
        state.answer(index)?.hash_only.store(true, Ordering::Relaxed);
        state.scheduler.want(index, ChunkRange { first: 0, count: 1 });
        self.work.notify_all();
        Ok(())
    }

    /// Some chunks of a file are wanted.
    pub(super) fn want_chunks(&self, index: u64, ranges: &[ChunkRange]) -> Result<(), Error> {
        let mut state = self.lock();
        let count = state.answer(index)?.layout.count();
        let mut next = 0;
        for range in ranges {
            let end = range.first.checked_add(range.count).filter(|end| *end <= count);
            match end {
                Some(end) if range.first >= next && range.count > 0 => next = end,
                _ => return Err(broken("it asks for chunks that do not exist")),
            }
            state.scheduler.want(index, *range);
        }
        self.work.notify_all();
        Ok(())
    }

    /// A chunk is verified at the target.
    pub(super) fn on_receipt(&self, index: u64, chunk: u32) {
        self.count_move();
        let (mut state, unit) = (self.lock(), Unit { index, chunk });
        if let Some(lane) = state.scheduler.lane_of(unit) {
            state.receipts.insert(lane, Instant::now());
        }
        state.scheduler.receipt(unit);
    }

    /// A chunk did not verify.
    pub(super) fn again(&self, index: u64, chunk: u32) -> Result<(), Error> {
        let mut state = self.lock();
        match state.scheduler.again(Unit { index, chunk }) {
            Retry::Queued => self.work.notify_all(),
            Retry::GiveUp => {
                let why = format!("chunk {chunk} did not verify in {MAX_TRIES} tries");
                let withdraw = Withdraw { index, why, kind: FailureKind::Unverified, retry: None };
                state.scheduler.forget(index);
                self.outbox.send(Control::Withdraw(withdraw));
            }
            // The file failed or the lane died meanwhile.
            Retry::Unknown => {}
        }
        Ok(())
    }

    /// The target's medium does not give back a chunk that had its receipt. A target may say so only where it was to read back, and not
    /// without end: an honest one gives the file up before.
    pub(super) fn repair(&self, index: u64, chunk: u32) -> Result<(), Error> {
        if !self.job.selection.verify_disk {
            return Err(broken("it reads back what it was not asked to"));
        }
        let mut state = self.lock();
        let open = state.window.get_mut(index).filter(|open| !open.settled);
        let open = open.ok_or_else(|| broken("it wants chunks again of an item that is not open"))?;
        // It was withdrawn meanwhile.
        let Some(file) = &open.file else { return Ok(()) };
        let count = file.layout.count();
        if chunk >= count || file.hash_only.load(Ordering::Relaxed) {
            return Err(broken("it wants chunks again that do not exist"));
        }
        if file.repairs.fetch_add(1, Ordering::Relaxed) >= MAX_REPAIRS.min(count.saturating_mul(u32::from(MAX_TRIES))) {
            return Err(broken("it wants chunks again without end"));
        }
        state.scheduler.repair(Unit { index, chunk });
        self.work.notify_all();
        Ok(())
    }

    /// An item has its outcome.
    pub(super) fn settle(&self, index: u64, failed: bool) -> Result<(), Error> {
        self.count_move();
        let mut state = self.lock();
        let open = state.window.get_mut(index).ok_or_else(|| broken("it settles an item that is not open"))?;
        open.settled = true;
        // The descriptor is not needed any more, even while the item waits for others before it.
        open.file = None;
        if failed {
            state.scheduler.forget(index);
        }
        let mut gone = 0;
        while state.window.front().is_some_and(|open| open.settled) {
            state.window.pop_front();
            gone += 1;
        }
        if gone > 0 {
            self.room.notify_all();
        }
        Ok(())
    }

    /// A lane died; its units go to the others.
    pub(super) fn lane_died(&self, lane: u16) {
        if !self.lock().scheduler.lane_died(lane).is_empty() {
            self.work.notify_all();
        }
    }

    /// Units for a lane; waits for them when `wait`. `None`: nothing now, or (after waiting) never again.
    pub(super) fn take(&self, lane: u16, wait: bool) -> Option<Vec<(Unit, Arc<SourceItem>)>> {
        let mut state = self.lock();
        if wait {
            state = self
                .work
                .wait_while(state, |state| {
                    !state.finished && (state.scheduler.is_drained() || state.resting.contains(&lane))
                })
                .unwrap_or_else(PoisonError::into_inner);
        }
        if state.finished || state.resting.contains(&lane) {
            return None;
        }
        let mut units = Vec::new();
        while units.len() < UNITS_AT_ONCE {
            let Some(unit) = state.scheduler.take(lane) else { break };
            // An item that was settled meanwhile needs no data.
            let Some(file) = state.window.get(unit.index).and_then(|open| open.file.clone()) else {
                state.scheduler.receipt(unit);
                continue;
            };
            let large = !file.layout.is_whole();
            units.push((unit, file));
            if large {
                break;
            }
        }
        (!units.is_empty()).then_some(units)
    }

    /// These lanes get no units until further notice; all others do.
    pub(super) fn rest(&self, lanes: Vec<u16>) {
        let mut state = self.lock();
        if state.resting != lanes {
            state.resting = lanes;
            self.work.notify_all();
        }
    }

    /// Whether a lane was told to rest.
    pub(super) fn rests(&self, lane: u16) -> bool {
        self.lock().resting.contains(&lane)
    }

    /// When the last receipt for a unit of this lane came.
    pub(super) fn last_receipt(&self, lane: u16) -> Option<Instant> {
        self.lock().receipts.get(&lane).copied()
    }

    /// Whether units wait that no lane has taken.
    pub(super) fn has_waiting_units(&self) -> bool {
        !self.lock().scheduler.is_drained()
    }

    /// A wanted file cannot be sent as announced. When it changed, its new state takes the next place in the manifest,
    /// once.
    pub(super) fn withdraw(&self, file: &SourceItem, why: String, kind: FailureKind) -> Result<(), Error> {
        let fresh = (kind == FailureKind::Changed && !file.is_retry).then(|| self.fresh_item(file)).flatten();
        let mut state = self.lock();
        match state.window.get_mut(file.index) {
            // Withdrawn already by another lane, or settled.
            None | Some(Open { file: None, .. }) => return Ok(()),
            Some(open) => open.file = None,
        }
        state.scheduler.forget(file.index);
        let retry = match fresh {
            Some(item) => {
                self.watch.on_item(&item)?;
                let packed = state.packer.pack(&item);
                let weight = item.weight_bytes();
                let index = state.window.next_index();
                let retry = source_item(&item, index, file.source, file.source_path.clone(), true);
                state.window.push(Open::new(retry), weight);
                Some(packed)
            }
            None => None,
        };
        let why = convert::bounded(why);
        self.outbox.send(Control::Withdraw(Withdraw { index: file.index, why, kind, retry }));
        Ok(())
    }

    fn fresh_item(&self, file: &SourceItem) -> Option<Item> {
        let stat = self.sources.open(file.source, &file.source_path).ok()?.stat().ok()?;
        let ItemKind::File { blake3, .. } = &file.item.kind else { return None };
        let kind = ItemKind::File {
            identity: convert::identity(&stat),
            sparse: convert::is_sparse(&stat),
            // Its contents are new; a content comparison has nothing to go by.
            blake3: blake3.map(|_| [0; 32]),
        };
        let xattrs = file.item.attributes.xattrs.clone();
        Some(Item { path: file.item.path.clone(), kind, attributes: convert::attributes(&stat, xattrs) })
    }

    /// Waits as long as the rate limit says.
    pub(super) fn pace(&self, bytes: u64) -> bool {
        let Some(bucket) = &self.bucket else { return false };
        let now_us = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let wait_us = session::lock(bucket).take(bytes, now_us);
        if wait_us > 0 {
            // The rate limit is the one place where a lane sleeps by the clock.
            std::thread::sleep(Duration::from_micros(wait_us));
        }
        wait_us > 0
    }

    /// Whether data is wanted that has no receipt.
    pub(super) fn has_work(&self) -> bool {
        let state = self.lock();
        !state.scheduler.is_drained() || state.scheduler.flying() > 0
    }

    /// Whether the target has something to say: what becomes of an item, or that all is flushed.
    pub(super) fn awaits_word(&self) -> bool {
        let state = self.lock();
        state.walk_done || !state.window.is_empty()
    }

    /// Bytes of the largest file whose outcome is awaited.
    pub(super) fn largest_open_bytes(&self) -> u64 {
        let state = self.lock();
        let indexes = state.window.first_index()..state.window.next_index();
        let files = indexes.filter_map(|index| state.window.get(index)?.file.as_ref());
        files.map(|file| file.identity.size).max().unwrap_or(0)
    }

    /// Whether the walk is over and every item has its outcome.
    pub(super) fn is_finished(&self) -> bool {
        let state = self.lock();
        state.walk_done && state.window.is_empty()
    }

    /// Whether the session is over for the lanes.
    pub(super) fn is_over(&self) -> bool {
        self.lock().finished
    }

    /// Ends the lanes and the walk.
    pub(super) fn finish(&self) {
        self.lock().finished = true;
        self.work.notify_all();
        self.room.notify_all();
    }

    pub(super) fn add_time(&self, lane: &LaneTime) {
        stopwatch::add(&mut session::lock(&self.time), lane);
    }

    pub(super) fn time(&self) -> LaneTime {
        *session::lock(&self.time)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        session::lock(&self.state)
    }
}

impl State {
    /// The file that an answer is about. There is one answer to an item: with more, the queue would grow without bound.
    fn answer(&mut self, index: u64) -> Result<&Arc<SourceItem>, Error> {
        let open = self.window.get_mut(index).filter(|open| !open.settled);
        let open = open.ok_or_else(|| broken("it asks for an item that is not open"))?;
        if std::mem::replace(&mut open.answered, true) {
            return Err(broken("it asks for an item twice"));
        }
        open.file.as_ref().ok_or_else(|| broken("it asks for an item that has no data"))
    }
}

/// The route that was asked for. What is compressed can only be copied.
pub(super) fn asked_route(carriage: &Carriage) -> Option<SendRoute> {
    carriage.route.and_then(convert::route).filter(|_| !carriage.compress)
}

fn source_item(item: &Item, index: u64, source: u32, source_path: Vec<u8>, is_retry: bool) -> Option<Arc<SourceItem>> {
    let ItemKind::File { identity, sparse, .. } = &item.kind else { return None };
    Some(Arc::new(SourceItem {
        index,
        identity: *identity,
        layout: ChunkLayout::of(identity.size),
        sparse: *sparse,
        source,
        source_path,
        item: item.clone(),
        is_retry,
        hash_only: AtomicBool::new(false),
        repairs: AtomicU32::new(0),
        file: Mutex::new(None),
    }))
}

fn broken(why: &str) -> Error {
    Error::new(Fault::Protocol, "the far side broke the protocol").because(why)
}

/// The error of a lane when the session itself failed.
pub(super) fn lane_error(error: &Error) -> io::Error {
    io::Error::other(error.to_string())
}
