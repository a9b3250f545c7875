//! The side that writes.
//!
//! ```text
//!   loop            items -> decide: keep, make, ask for data
//!   lane threads    data -> temporary file, hash -> verified -> receipt
//!   name threads    small files: one flush for many, final names
//!   settle thread   checkpoints and final names of large files; what has to wait for its turn in the manifest:
//!                   hard links, times of directories, deletions, parts that nobody will go on with
//!   reread threads  what an earlier run left is read again; what the checkpoints flushed is read back from the medium (`--verify disk`)
//! ```

mod abilities;
mod account_rules;
mod behind;
mod bye;
mod claim;
mod claims;
mod confirming;
mod decide;
mod delayed;
mod exposure;
mod first_names;
mod flushing;
mod from_reference;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod hollow;
mod in_order;
mod incoming;
mod input;
mod itemise;
mod lane;
mod leading;
mod left_out;
pub(crate) mod mover;
mod moves;
mod namers;
mod naming;
mod owners;
mod proofs;
mod references;
mod reread;
mod rereads;
mod settle;
mod special;
mod state;
mod token;
mod twins;
mod write_route;
mod writers;

/// A block as a lane takes it; for the fuzz targets.
#[cfg(feature = "fuzzing")]
pub(crate) fn decompress(packed: &[u8]) -> Option<Vec<u8>> {
    lane::decompress(&mut None, packed).ok().map(<[u8]>::to_vec)
}

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) use haul_engine::at_risk::CHECKPOINT_BYTES;
use haul_engine::flush_choice::DIRTY_BYTES_MAX;
use haul_store::{DIRECT_FROM_BYTES, LocalTree, Nowhere, StoreError, TargetOptions, TargetTree};
use haul_wire::RelPath;
use haul_wire::control::{self as wire, Control, MoverWord, OutcomeKind, ReceiverSummary, SenderSummary, Withdraw};
use haul_wire::lane::lane_of;
use haul_wire::limits::MAX_LANES;
use haul_wire::manifest::Packer;

use crate::faults;
use crate::kept::surroundings::Surroundings;
use crate::session::asked_for::AskedFor;
use crate::session::channel::{self, Channel, Events, LaneBack, SessionEvent};
use crate::session::clock::{Clock, TICK};
use crate::session::farewell::Ending;
use crate::session::lane_threads::{LaneKeeper, Lanes};
use crate::session::marks_seen::MarksSeen;
use crate::session::movers::Movers;
use crate::session::reporter::Watch;
use crate::session::stalls::{self, MAX_IN_VAIN, Progress};
use crate::session::wiring::Wiring;
use crate::session::{convert, failure, farewell};
#[cfg(test)]
pub(crate) use behind::BUFFERS;
use decide::Decider;
use haul_job::{Error, Fault};
use haul_net::Stream;
use lane::Arriving;
use namers::Namers;
use references::References;
use settle::Settler;
use state::{Shared, parent};
#[cfg(test)]
pub(crate) use writers::WRITERS;

/// A sender opens its sources within this time, or within the session's own limit where that is longer.
const BEGIN_DEADLINE: Duration = Duration::from_secs(60);

/// Where a receiver puts what arrives.
pub(crate) enum Target {
    /// What this path means.
    Path(Vec<u8>),
    /// A tree that is open already.
    Open(Arc<dyn TargetTree>),
}

/// What a receiver has to do.
pub(crate) struct ReceiverJob {
    pub(crate) target: Target,
    /// The target lies beneath this directory (a daemon's client).
    pub(crate) confine: Option<PathBuf>,
    /// A sender that brings anything else is refused. `None`: who chose the sender sees to that.
    pub(crate) asked_for: Option<AskedFor>,
    /// It runs for a peer, and gives up what lies outside of its tree.
    pub(crate) far: bool,
    pub(crate) selection: wire::Selection,
    pub(crate) carriage: wire::Carriage,
    pub(crate) bounds: Bounds,
    /// Further hosts of the far end that send, which this side has reached.
    pub(crate) movers: Movers,
    /// Where its user keeps things.
    pub(crate) surroundings: Surroundings,
}

/// As often as progress is told to a person.
const READ_AGAIN_EVERY: Duration = Duration::from_millis(100);

/// The limits of a receiver.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    /// See [`CHECKPOINT_BYTES`].
    pub(crate) checkpoint_bytes: u64,
    /// See [`DIRECT_FROM_BYTES`].
    pub(crate) past_cache_from_bytes: u64,
    /// See [`MAX_SEARCH`].
    pub(crate) search: Duration,
    /// See [`FLUSH_TOGETHER_FROM_FILES`].
    pub(crate) flush_together_from_files: usize,
    /// See [`DIRTY_BYTES_MAX`].
    pub(crate) dirty_bytes_max: u64,
    /// Most items of a job that make nothing here, or stand in no directory of the manifest.
    pub(crate) idle_items: u64,
    /// See [`FirstNames`](first_names::FirstNames).
    pub(crate) foreign_names: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            checkpoint_bytes: CHECKPOINT_BYTES,
            past_cache_from_bytes: DIRECT_FROM_BYTES,
            search: MAX_SEARCH,
            flush_together_from_files: FLUSH_TOGETHER_FROM_FILES,
            dirty_bytes_max: DIRTY_BYTES_MAX,
            idle_items: MAX_IDLE_ITEMS,
            foreign_names: MAX_FOREIGN,
        }
    }
}

/// Most items of a job that leave nothing here (skipped, failed, ends of nothing), or that stand in no directory of the
/// manifest. The disk bounds all other items, because a name comes once.
const MAX_IDLE_ITEMS: u64 = 1 << 24;

/// Files that are remembered because another one stays at the target under their name: 16 MiB.
const MAX_FOREIGN: usize = 1 << 20;

/// So many small files are worth a flush of their whole file system, which writes what others have written there, too.
const FLUSH_TOGETHER_FROM_FILES: usize = 16;

/// A sender may search this long through a tree in which nothing is selected: some hundred million entries. It only says that
/// it is alive meanwhile. After that it counts as a sender that has nothing to copy.
const MAX_SEARCH: Duration = Duration::from_secs(24 * 60 * 60);

/// Runs the session to its end.
pub(crate) fn run(job: ReceiverJob, mut wiring: Wiring<'_>) -> Result<(SenderSummary, ReceiverSummary), Error> {
    let mut clock = Clock::new(job.carriage.timeout_ms);
    let channel = wiring.channel;
    // Between two hosts the sender may be sent a long list first, over a slow path.
    let longest = if job.selection.listed != wire::Listed::Nothing { job.bounds.search } else { BEGIN_DEADLINE };
    let Wiring { events, watch, aside, .. } = &mut wiring;
    let begun = await_begin(events, channel, watch, &mut clock, longest, *aside);
    let ending = Ending::of(&begun, events);
    let result = begun.and_then(|single_file| run_session(job, single_file, wiring, clock));
    farewell::end(channel, &result, ending);
    result
}

fn run_session(
    mut job: ReceiverJob,
    single_file: bool,
    wiring: Wiring<'_>,
    clock: Clock,
) -> Result<(SenderSummary, ReceiverSummary), Error> {
    let Wiring { events, channel, watch, keeper, aside } = wiring;
    // It walks along with the manifest; all else of the job is shared.
    let asked_for = job.asked_for.take();
    let shared = Arc::new(open_target(job, single_file, channel, watch, &events)?);
    if shared.lets_go() && shared.job.selection.remove_source_files {
        return Err(Error::new(
            Fault::Usage,
            "the target keeps nothing, and --remove-source-files removes the sources",
        )
        .try_this("leave the flag out, or name a target that keeps what it gets"));
    }
    // Before the threads that work on files.
    if let Some(notice) = shared.give_up_rights() {
        shared.notice(notice);
    }
    leading::show_tree(&shared)?;
    let no_thread = |error: std::io::Error| {
        // Those that were started end.
        shared.finish();
        Error::new(Fault::FileIo, "cannot start a thread").because(error)
    };
    let settler = Settler::start(Arc::clone(&shared)).map_err(no_thread)?;
    let namers = Namers::start(&shared).map_err(no_thread)?;
    let progress = Progress::new(shared.job.carriage.rate_bytes_per_s, Instant::now());
    let mut session = Session {
        decider: Decider::new(Arc::clone(&shared), asked_for),
        packer: Packer::default(),
        lanes: Lanes::new(events.sender(), Arc::clone(watch)),
        // Copies connect without a mark.
        marks: MarksSeen::new(false),
        shared,
        channel,
        watch,
        clock,
        progress,
        storage_is_lost: false,
        attributes_told: false,
        read_again: (0, Instant::now()),
        looked_at: (0, Instant::now()),
        set_group_told: false,
        cut: None,
        listed: Some(Instant::now()),
    };
    let sender = session.until_end(&events, keeper, aside);
    if let Err(error) = &sender {
        // Who waits for the sender to read what it was told, waits no longer.
        session.shared.failure.set(error.clone());
        // The sender learns of it only after the lanes were joined: they must not wait for it, nor for the disk.
        session.lanes.cut_all();
        session.shared.exposure.end();
        session.shared.naming.end();
        session.shared.behind.end();
    }
    session.shared.discard_token();
    // Their lanes end with a word of theirs, for which those of this side wait.
    session.shared.job.movers.are_done();
    drop(events);
    session.lanes.join();
    // Before what is not safe yet is written down.
    session.shared.behind.join(session.storage_is_lost);
    namers.join(&session.shared, session.storage_is_lost);
    session.shared.finish();
    settler.join(session.storage_is_lost);
    session.shared.rereads.join(session.storage_is_lost);
    let summary = session.shared.summary();
    sender.map(|sender| (sender, summary))
}

/// The sender first opens its sources; only then is it known what the target's name means.
fn await_begin(
    events: &Events,
    channel: &Channel,
    watch: &Watch,
    clock: &mut Clock,
    longest: Duration,
    aside: &mut dyn FnMut(Control) -> Result<(), Error>,
) -> Result<bool, Error> {
    let failure = failure::Failure::default();
    let start = Instant::now();
    // Lanes may be up before the session is; they are let in when it begins.
    let mut early = Vec::new();
    loop {
        clock.turn(watch, channel, &failure)?;
        if start.elapsed() > clock.timeout().max(longest) {
            return Err(Error::new(Fault::Timeout, "the far side did not say that its sources are open")
                .try_this("look at its storage; then run the same command again"));
        }
        match events.next(TICK) {
            Some(SessionEvent::Control(Control::Begin { single_file })) => {
                events.put_back(early);
                return Ok(single_file);
            }
            Some(SessionEvent::Control(Control::Notice(notice))) => watch.on_notice(notice),
            Some(SessionEvent::Control(Control::Abort(abort))) => {
                events.put_back(early);
                return Err(convert::error_of(abort));
            }
            Some(SessionEvent::Control(message)) => aside(message)?,
            Some(SessionEvent::ControlEnded(why)) => return Err(channel::ended(why)),
            // One that is too many is closed here, and may be dialled again later.
            Some(
                event @ (SessionEvent::LaneUp(..)
                | SessionEvent::LaneBack(_)
                | SessionEvent::LaneDown(_)
                | SessionEvent::FallsShort(_)),
            ) if early.len() < usize::from(MAX_LANES) => early.push(event),
            Some(
                SessionEvent::LaneUp(..)
                | SessionEvent::LaneBack(_)
                | SessionEvent::LaneDown(_)
                | SessionEvent::FallsShort(_),
            ) => {}
            Some(SessionEvent::NoLanes(error)) => return Err(error),
            Some(SessionEvent::PathLost { .. } | SessionEvent::LanesMoved { .. } | SessionEvent::Moved(..)) => {}
            Some(SessionEvent::Wake) | None => {}
        }
    }
}

fn open_target(
    job: ReceiverJob,
    single_file: bool,
    channel: &Channel,
    watch: &Arc<Watch>,
    events: &Events,
) -> Result<Shared, Error> {
    let shared = |tree: Arc<dyn TargetTree>, name, job| {
        Shared::new(tree, name, job, Arc::clone(channel.outbox()), Arc::clone(watch), events.sender())
    };
    let path = match &job.target {
        Target::Path(path) => path,
        Target::Open(tree) => {
            abilities::check(tree.abilities())?;
            return shared(Arc::clone(tree), None, job);
        }
    };
    let options = TargetOptions {
        confine: job.confine.clone(),
        home: job.surroundings.home.clone(),
        make: job.selection.make_target,
        single_file,
        dry_run: job.selection.dry_run,
        xattrs: job.selection.xattrs,
        acls: job.selection.acls,
        read_only: false,
    };
    let failed = |error: StoreError| faults::store_error(&error);
    if haul_store::is_null_device(path, &options).map_err(failed)? {
        if job.selection.delete {
            return Err(nothing_to_delete(&haul_store::printable(path)));
        }
        return shared(Arc::new(Nowhere), None, job);
    }
    let (tree, rename_to) = LocalTree::open(path, &options).map_err(failed)?;
    let warning = delayed::prepare(&tree, &job.selection, &options).map_err(failed)?;
    if let Some(backup) = job.selection.backup.as_ref().filter(|_| !options.dry_run) {
        tree.keep_backups(&backup.suffix, &backup.directory, &options).map_err(failed)?;
    }
    if let Some(name) = &rename_to {
        // It was checked to be one.
        let name = RelPath::new(name.clone()).map_err(|fault| Error::new(Fault::Usage, fault.to_string()))?;
        watch.on_name(&name)?;
        channel.outbox().send(Control::Named(name));
    }
    // A file with a new name stands in the directory in front of it.
    let root = if rename_to.is_some() { parent(path).to_vec() } else { path.clone() };
    let (references, notices) = References::open(&tree, &job.selection, &options)?;
    let mut shared = shared(Arc::new(tree), rename_to, job)?;
    shared.references = references;
    shared.root = root;
    let warning = warning.map(|text| wire::Notice::Warning { text: convert::bounded(text) });
    notices.into_iter().chain(warning).for_each(|notice| shared.notice(notice));
    Ok(shared)
}

/// Where nothing is kept.
pub(crate) fn nothing_to_delete(target: &str) -> Error {
    Error::new(Fault::Usage, format!("there is nothing to delete at {target}")).try_this("leave --delete out")
}

struct Session<'a> {
    shared: Arc<Shared>,
    decider: Decider,
    packer: Packer,
    lanes: Lanes,
    marks: MarksSeen,
    channel: &'a Channel,
    watch: &'a Arc<Watch>,
    clock: Clock,
    progress: Progress,
    /// It is not waited for any more.
    storage_is_lost: bool,
    attributes_told: bool,
    /// What was last said to be read again, and when.
    read_again: (u64, Instant),
    /// What had arrived when it was last looked at, and when that was.
    looked_at: (u64, Instant),
    /// That a set-group-id bit is missing.
    set_group_told: bool,
    /// Since when no further items are looked at: the peer has gone, and its manifest was too long to finish. The event that ended
    /// the session comes after the items.
    cut: Option<Instant>,
    /// When the manifest last went on, or something of it was still to be done; `None` once it has ended.
    listed: Option<Instant>,
}

impl Session<'_> {
    /// A file that changed at the last moment may come once more while we say that all is done: then we say so again.
    fn until_end(
        &mut self,
        events: &Events,
        keeper: &mut dyn LaneKeeper,
        aside: &mut dyn FnMut(Control) -> Result<(), Error>,
    ) -> Result<SenderSummary, Error> {
        loop {
            self.until_complete(events, keeper, aside)?;
            self.summarise()?;
            if let Some(summary) = self.until_bye(events)? {
                return Ok(summary);
            }
        }
    }

    fn until_complete(
        &mut self,
        events: &Events,
        keeper: &mut dyn LaneKeeper,
        aside: &mut dyn FnMut(Control) -> Result<(), Error>,
    ) -> Result<(), Error> {
        while self.cut.is_some() || !self.shared.is_complete() {
            self.clock.turn(self.watch, self.channel, &self.shared.failure)?;
            self.tell_read_again();
            self.marks.turn();
            if self.cut.is_some_and(|since| since.elapsed() > self.clock.silence_limit()) {
                return Err(channel::ended(None));
            }
            let begun = Instant::now();
            self.decider.let_in();
            self.forgive(begun.elapsed());
            let has_work = self.shared.has_work() || self.decider.holds();
            self.lanes.check(has_work, self.clock.timeout())?;
            self.check_progress(has_work)?;
            self.check_search()?;
            let Some(event) = events.next(TICK) else { continue };
            let begun = Instant::now();
            match event {
                SessionEvent::Control(Control::WantLanes { path, lanes }) => {
                    // Where this side cannot bring any, those that are there have to do.
                    keeper.want(path, lanes);
                }
                SessionEvent::Control(message) => self.on_message(message, aside)?,
                SessionEvent::ControlEnded(why) => return Err(channel::ended(why)),
                SessionEvent::LaneUp(stream, lane) => {
                    let stays = events.stay();
                    self.start(stream, lane, move |stream| Arriving { stays, ..Arriving::new(stream) })?;
                }
                SessionEvent::LaneBack(LaneBack { lane, stream, tags }) => {
                    let stays = events.stay();
                    self.start(stream, lane, move |stream| Arriving { stream, tags, stays })?;
                }
                SessionEvent::LaneDown(end) => {
                    self.marks.lane_down(end.lane);
                    if self.lanes.ended(&end) && end.error.is_some() {
                        // Of those that were lost between two jobs the sender knows; they may be back by now.
                        if end.serial > 0 {
                            self.shared.tell_sender_on(end.lane, Control::LaneLost { lane: end.lane });
                        }
                        keeper.lane_lost(end.lane);
                    }
                }
                SessionEvent::FallsShort(short) => self.lanes.tell_short(&short, "the receiving host", self.channel),
                SessionEvent::NoLanes(error) => self.lanes.give_up(error),
                SessionEvent::PathLost { path, why } => {
                    // Its units have to come by the others, as the sender is told.
                    self.lanes.cut_path(path);
                    self.channel.outbox().send(Control::PathLost { path });
                    self.shared.notice(convert::path_lost(path, &why));
                }
                SessionEvent::Wake | SessionEvent::LanesMoved { .. } | SessionEvent::Moved(..) => {}
            }
            self.forgive(begun.elapsed());
        }
        self.shared.failure.get()
    }

    /// Starts the thread of a lane.
    fn start(
        &mut self,
        stream: Stream,
        lane: u16,
        arriving: impl FnOnce(Stream) -> Arriving + Send + 'static,
    ) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        self.marks.lane_up(lane, &stream);
        self.lanes.start(stream, lane, move |stream| lane::carry(arriving(stream), lane, &shared))
    }

    /// What this turn took nobody could use to bring a lane, or what is awaited. Short turns are as nothing, so that a peer that floods the
    /// loop with words gains nothing by it.
    fn forgive(&mut self, turn: Duration) {
        if turn > TICK {
            self.lanes.forgive(turn);
            self.progress.forgive(turn);
        }
    }

    /// A sender that only says that it is alive, or sends a byte now and then, is as good as dead.
    fn check_progress(&mut self, has_work: bool) -> Result<(), Error> {
        let timeout = self.clock.timeout();
        let (bytes, done) = self.shared.moved();
        // The sender may take a while to read outcomes before more items are settled. That has a limit of its own.
        let has_work = has_work && self.channel.outbox().has_room();
        let is_stalled = self.progress.is_stalled(has_work, bytes, done, Instant::now(), timeout);
        if self.progress.stands_for(Instant::now()) > timeout / 2
            && let Some(notice) = self.shared.storage.notice(timeout)
        {
            self.shared.notice(notice);
        }
        if self.progress.is_in_vain(Instant::now()) {
            let what =
                format!("data has come for {} h, and not one chunk of it was complete", MAX_IN_VAIN.as_secs() / 3600);
            return Err(Error::new(Fault::Network, what)
                .because("every connection is cut before it has carried one")
                .try_this("look at firewalls and address translation in between; --lanes 1 leaves one connection all of the path"));
        }
        if !is_stalled {
            return Ok(());
        }
        // No byte comes while the source reads what is there already, for a manifest.
        let hashed = timeout + stalls::time_to_store(self.shared.largest_to_hash_bytes());
        if !self.progress.is_stalled(has_work, bytes, done, Instant::now(), hashed) {
            return Ok(());
        }
        if let Some(since) = self.shared.storage.waits_since() {
            return self.check_storage(since);
        }
        Err(Error::new(Fault::Timeout, format!("no data worth the name has arrived for {} s", timeout.as_secs()))
            .because("the far side is alive, but sends next to nothing")
            .try_this("look at its storage; then run the same command again: what is verified is not sent again"))
    }

    /// A sender that finds nothing may search for a long time. A sender that hashes each file before it lists it may need any
    /// time.
    fn check_search(&mut self) -> Result<(), Error> {
        let ReceiverJob { bounds, selection, .. } = &self.shared.job;
        let Some(since) = self.listed.filter(|_| !selection.checksum) else { return Ok(()) };
        if self.shared.has_open_items() {
            self.listed = Some(Instant::now());
        } else if since.elapsed() > bounds.search {
            let what = format!("the far side has found nothing to copy for {} s", bounds.search.as_secs());
            return Err(
                Error::new(Fault::Timeout, what).try_this("look at its storage; then run the same command again")
            );
        }
        Ok(())
    }

    /// Nothing comes while our own disk has something to do: for as long as the limit, and what a checkpoint takes on the slowest disk.
    fn check_storage(&mut self, since: Instant) -> Result<(), Error> {
        let bytes = self.shared.job.bounds.checkpoint_bytes.min(CHECKPOINT_BYTES);
        if since.elapsed() <= self.clock.timeout() + stalls::time_to_store(bytes) {
            return Ok(());
        }
        self.storage_is_lost = true;
        let what = self.shared.storage.has_not_answered_for(since.elapsed());
        Err(Error::new(Fault::Storage, what).because("a write or flush there does not come to its end").try_this(
            "look at that disk or file server; then run the same command again: what is verified is not sent again",
        ))
    }

    fn on_message(
        &mut self,
        message: Control,
        aside: &mut dyn FnMut(Control) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match message {
            // Names are told by what they do not share with the one before: behind a gap they would be others.
            Control::Items(_) | Control::EndOfManifest | Control::Withdraw(_) if self.cut.is_some() => {}
            Control::Items(packed) => {
                self.listed = self.listed.map(|_| Instant::now());
                for packed in packed {
                    // Each may take as long as a file takes to be read.
                    if self.shared.is_over() {
                        self.cut = Some(Instant::now());
                        break;
                    }
                    let item = self.packer.unpack(packed).map_err(Error::broke_the_protocol)?;
                    self.decider.on_item(item)?;
                }
            }
            Control::EndOfManifest => {
                self.listed = None;
                self.watch.on_end_of_manifest();
                self.shared.manifest_done();
            }
            Control::Withdraw(withdraw) => self.on_withdraw(withdraw)?,
            Control::DeleteNothing => self.shared.delete_nothing(),
            Control::Moved(chunks) if self.shared.token.get().is_some() => {
                for chunk in &chunks {
                    leading::moved(&self.shared, chunk)?;
                }
            }
            Control::Notice(notice) => self.watch.on_notice(notice),
            Control::Counted(counted) => self.watch.on_counted(counted),
            Control::PathNow(path) => self.watch.on_path(&path),
            Control::PathLost { path } => {
                self.lanes.cut_path(path);
                if self.shared.is_by_mover(lane_of(path, 0)) {
                    self.shared.accuse(lane_of(path, 0), "none of its data has arrived for long");
                }
            }
            Control::OfMover { word: MoverWord::Proofs(proofs), .. } if self.shared.job.movers.count() > 0 => {
                self.shared.confirm(&proofs);
            }
            Control::OfMover { path, word: word @ MoverWord::Portion(_) } if self.shared.job.movers.count() > 0 => {
                self.shared.job.movers.tell(path, Control::OfMover { path, word });
            }
            Control::Abort(abort) => return Err(convert::error_of(abort)),
            other => aside(other)?,
        }
        Ok(())
    }

    fn on_withdraw(&mut self, withdraw: Withdraw) -> Result<(), Error> {
        let Withdraw { index, why, kind, retry } = withdraw;
        if let Some(packed) = retry {
            let item = self.packer.unpack(packed).map_err(Error::broke_the_protocol)?;
            return self.decider.on_retry(item, index);
        }
        self.shared.abandon(index);
        self.shared.settle(index, OutcomeKind::Failed { why, kind });
        Ok(())
    }

    fn summarise(&mut self) -> Result<(), Error> {
        delayed::give_names(&self.shared)?;
        self.decider.end_loose();
        self.shared.discard_token();
        self.shared.flush_remaining_directories()?;
        if let Some(tree) = self.local_target() {
            tree.check_place().map_err(|error| {
                faults::store_error(&error)
                    .try_this("look for the directory where it is now; then run the same command again")
            })?;
        }
        self.tell_attributes();
        self.tell_set_group();
        // The lanes are idle now; their time is entered when they end, so the summary is taken from what they told so far.
        self.shared.saw_marks(self.marks.bits());
        self.channel.outbox().send(Control::Summary(self.shared.summary()));
        Ok(())
    }

    /// Says now and then how far reading what earlier runs left has come: the sender would else take us for dead.
    fn tell_read_again(&mut self) {
        if self.looked_at.1.elapsed() >= READ_AGAIN_EVERY {
            let arrived_bytes = self.shared.arrived();
            if arrived_bytes == self.looked_at.0 {
                reread::hurry(&self.shared);
            }
            self.looked_at = (arrived_bytes, Instant::now());
        }
        let (bytes, _) = self.shared.rereads.of_earlier_runs();
        if bytes > self.read_again.0 && self.read_again.1.elapsed() >= READ_AGAIN_EVERY {
            self.read_again = (bytes, Instant::now());
            self.watch.on_read_again(bytes);
            self.channel.outbox().send(Control::ReadAgain { bytes });
        }
    }

    /// The tree of this host that something is made in.
    fn local_target(&self) -> Option<&LocalTree> {
        self.shared.tree().local().filter(|_| self.shared.makes_files())
    }

    /// Says once what the target does not hold, while the sender still hears it.
    fn tell_attributes(&mut self) {
        let unsupported = self.local_target().and_then(LocalTree::xattrs_unsupported);
        let Some(name) = unsupported.filter(|_| !std::mem::replace(&mut self.attributes_told, true)) else { return };
        let text = format!(
            "the file system of the target does not hold all attributes or ACLs of what was copied: {name}, for one, is left out"
        );
        self.shared.notice(wire::Notice::Warning { text: convert::bounded(text) });
    }

    /// Says once that the kernel left a bit out.
    fn tell_set_group(&mut self) {
        let lost = self.local_target().and_then(LocalTree::lost_set_group);
        let Some(path) = lost.filter(|_| !std::mem::replace(&mut self.set_group_told, true)) else { return };
        let text = format!(
            "set-group-id bits are not kept where the user at the target is not in the group of the entry: {path}, for one"
        );
        self.shared.notice(wire::Notice::Warning { text: convert::bounded(text) });
    }
}
