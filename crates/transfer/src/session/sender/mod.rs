//! The side that reads.
//!
//! ```text
//!   walk thread     sources -> items -> window, control channel
//!   loop            answers -> scheduler;  receipts, outcomes -> window, tally
//!   lane threads    scheduler -> read, hash, send
//! ```

mod ahead;
mod changes;
mod counting;
mod deletions;
pub(crate) mod early_look;
mod found;
mod lane;
mod limits;
pub(crate) mod mover;
mod owners;
mod prover;
mod read_again;
mod removals;
mod source_item;
mod state;
mod walk;
mod walk_options;
mod young_stamp;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use early_look::EarlyLook;
use haul_engine::integrity::Hash;
use haul_job::{Error, Fault, Subject};
use haul_net::Stream;
use haul_pump::SendRoute;
use haul_store::{FileList, ResolveOptions, SourceSet, SourceTree, StoreError};
use haul_sys::rights::Access;
use haul_wire::control::{self as wire, Control, Notice, OutcomeKind, ReceiverSummary, SenderSummary};
use lane::Leaving;
use state::Shared;

use crate::faults;
use crate::kept::class_policy::Permits;
use crate::kept::known_paths::KnownPaths;
use crate::session::channel::{self, Channel, Events, LaneBack, SessionEvent};
use crate::session::clock::Clock;
use crate::session::farewell::Ending;
use crate::session::hooks::Hooks;
use crate::session::lane_addresses::LaneAddresses;
use crate::session::lane_threads::{LaneKeeper, Lanes};
use crate::session::movers::Movers;
use crate::session::receiver::CHECKPOINT_BYTES;
use crate::session::reporter::Watch;
use crate::session::tuning::{Move, Tuning};
use crate::session::wiring::Wiring;
use crate::session::{convert, farewell, rights, stalls};

/// What a sender reads.
pub(crate) enum Sources {
    /// What stands at these paths.
    Paths(Vec<Vec<u8>>),
    /// A tree that is open already.
    Open(OpenSource),
}

/// A tree that was opened before the session.
pub(crate) struct OpenSource {
    pub(crate) tree: Arc<dyn SourceTree>,
    /// What its only file has to hash to, where that is known.
    pub(crate) recorded: Option<Hash>,
    /// What is to be told of it.
    pub(crate) warning: Option<String>,
}

impl OpenSource {
    /// Nothing more is known of it.
    pub(crate) fn of(tree: Arc<dyn SourceTree>) -> Self {
        Self { tree, recorded: None, warning: None }
    }
}

/// What a sender has to do.
pub(crate) struct SenderJob {
    pub(crate) sources: Sources,
    /// Only these paths of the one source.
    pub(crate) listed: Option<Arc<FileList>>,
    /// All sources lie beneath this directory (a daemon's client).
    pub(crate) confine: Option<PathBuf>,
    /// Sources come from afar: wildcards are ours to expand.
    pub(crate) expand_globs: bool,
    /// What earlier jobs of this host found of the path shall be used.
    pub(crate) remembers: Option<KnownPaths>,
    /// What `~` means in a path.
    pub(crate) home: Option<PathBuf>,
    /// Files of so many bytes are read past the page cache, as far as they are not in it.
    pub(crate) direct_from_bytes: u64,
    /// What was hashed before there were lanes.
    pub(crate) early: Option<EarlyLook>,
    /// Further hosts of the far end, which this side has reached.
    pub(crate) movers: Movers,
    /// It runs for a peer, and gives up what lies outside of its sources.
    pub(crate) far: bool,
    /// Another host of this end leads: it says which chunks are to be sent.
    pub(crate) is_mover: bool,
    pub(crate) selection: wire::Selection,
    pub(crate) carriage: wire::Carriage,
    /// What may be asked of networks.
    pub(crate) permits: Permits,
    /// And how, where a mark is not enough.
    pub(crate) hooks: Option<Hooks>,
}

/// Runs the session to its end.
pub(crate) fn run(job: SenderJob, wiring: Wiring<'_>) -> Result<(SenderSummary, ReceiverSummary), Error> {
    let Wiring { events, channel, watch, keeper, aside } = wiring;
    let begun = Session::begin(job, &events, channel, watch);
    let ending = Ending::of(&begun, &events);
    let result = begun.and_then(|mut session| {
        let result = session.until_summary(&events, keeper, aside);
        session.end(result, events)
    });
    if let Ok((sender, _)) = &result {
        channel.outbox().send(Control::Bye(sender.clone()));
    }
    farewell::end(channel, &result, ending);
    result
}

struct Session<'a> {
    shared: Arc<Shared>,
    lanes: Lanes,
    channel: &'a Channel,
    watch: &'a Arc<Watch>,
    clock: Clock,
    tuning: Tuning,
    /// The last count of [`Shared::moved`], and when it changed.
    moved: (u64, Instant),
    /// That the storage does not answer is said once.
    route_told: bool,
    /// What the only file has to hash to: it was hashed when it was recorded.
    recorded: Option<Hash>,
    /// Another job may follow.
    stays: bool,
}

impl<'a> Session<'a> {
    fn begin(job: SenderJob, events: &Events, channel: &'a Channel, watch: &'a Arc<Watch>) -> Result<Self, Error> {
        let Resolved { sources, recorded, missing } = resolve(&job, channel, watch)?;
        let single_file = sources.is_single_file();
        channel.outbox().send(Control::Begin { single_file });
        job.movers.begins(single_file);
        let search = walk::Search::new(&sources, &job.selection, job.listed.as_ref(), missing)?;
        let session = Self::over(sources, recorded, job, events, channel, watch);
        walk::start(Arc::clone(&session.shared), search)
            .map_err(|error| Error::new(Fault::FileIo, "cannot start a thread").because(error))?;
        Ok(session)
    }

    /// Where another host leads, nothing is listed.
    fn of_mover(job: SenderJob, events: &Events, channel: &'a Channel, watch: &'a Arc<Watch>) -> Result<Self, Error> {
        let Resolved { sources, recorded, .. } =
            resolve(&job, channel, watch).map_err(|error| mover::has_others(&error.what))?;
        Ok(Self::over(sources, recorded, job, events, channel, watch))
    }

    fn over(
        sources: Arc<dyn SourceTree>,
        recorded: Option<Hash>,
        job: SenderJob,
        events: &Events,
        channel: &'a Channel,
        watch: &'a Arc<Watch>,
    ) -> Self {
        let clock = Clock::new(job.carriage.timeout_ms);
        let foreseen = job.early.as_ref().map(EarlyLook::foreseen).unwrap_or_default();
        let tuning =
            Tuning::new(&job.carriage, foreseen).permitted(&job.carriage, job.permits.clone(), job.hooks.clone());
        let tuning = match &job.remembers {
            Some(paths) => tuning.remembering(paths.clone()),
            None => tuning,
        };
        // Before the threads that work on files.
        let notice = give_up_rights(&job, &*sources);
        let shared = Arc::new(Shared::new(sources, job, Arc::clone(channel.outbox()), Arc::clone(watch)));
        if let Some(notice) = notice {
            shared.notice(notice);
        }
        let lanes = Lanes::new(events.sender(), Arc::clone(watch));
        Self {
            shared,
            lanes,
            channel,
            watch,
            clock,
            tuning,
            moved: (0, Instant::now()),
            route_told: false,
            recorded,
            stays: events.stay(),
        }
    }

    /// What the loop does besides its events.
    fn turn(&mut self, keeper: &mut dyn LaneKeeper) -> Result<(), Error> {
        self.clock.turn(self.watch, self.channel, &self.shared.failure)?;
        let has_work = self.shared.has_work();
        self.lanes.check(has_work, self.clock.timeout())?;
        self.check_progress(has_work)?;
        // Sooner than the whole job would be given up.
        for path in self.shared.silent_movers(self.clock.timeout() / 2) {
            self.channel.outbox().send(Control::PathLost { path });
            self.shared.mover_gone(path);
        }
        self.shared.accuse_hung_movers(self.clock.timeout() / 2);
        self.tune(keeper);
        Ok(())
    }

    fn until_summary(
        &mut self,
        events: &Events,
        keeper: &mut dyn LaneKeeper,
        aside: &mut dyn FnMut(Control) -> Result<(), Error>,
    ) -> Result<ReceiverSummary, Error> {
        loop {
            self.turn(keeper)?;
            let Some(event) = events.next(self.tuning.tick()) else { continue };
            match event {
                SessionEvent::Control(Control::Summary(summary)) => {
                    if self.shared.on_summary()? {
                        return Ok(summary);
                    }
                }
                SessionEvent::Control(message) => self.on_message(message, aside)?,
                SessionEvent::ControlEnded(why) => return Err(channel::ended(why)),
                event => self.on_lane_event(event, keeper)?,
            }
        }
    }

    fn on_lane_event(&mut self, event: SessionEvent, keeper: &mut dyn LaneKeeper) -> Result<(), Error> {
        match event {
            SessionEvent::LaneUp(stream, lane) => {
                self.tuning.lane_up(lane, stream.probe(), LaneAddresses::of(&stream));
                let stays = self.stays;
                self.start(stream, lane, move |stream| Leaving::new(stream, stays))?;
            }
            SessionEvent::LaneBack(LaneBack { lane, stream, tags }) => {
                self.tuning.lane_back(lane, stream.probe(), LaneAddresses::of(&stream));
                let stays = self.stays;
                self.start(stream, lane, move |stream| Leaving { stream, tags, stays })?;
            }
            SessionEvent::LaneDown(end) => {
                // Also of one that another has followed: what it had taken is nobody's now. Its successor's units may go twice.
                self.shared.lane_died(end.lane);
                if self.lanes.ended(&end) {
                    self.tuning.lane_down(end.lane);
                    self.shared.rest(self.tuning.resting());
                    if end.error.is_some() {
                        keeper.lane_lost(end.lane);
                    }
                }
            }
            SessionEvent::FallsShort(short) => self.lanes.tell_short(&short, "the sending host", self.channel),
            SessionEvent::NoLanes(error) => self.lanes.give_up(error),
            SessionEvent::PathLost { path, why } => self.lose_path(path, why),
            SessionEvent::LanesMoved { path, outcome } => self.tuning.lanes_moved(path, outcome),
            SessionEvent::Moved(path, chunks) => self.shared.on_moved(path, chunks),
            // The loop hears what the far side says.
            SessionEvent::Wake | SessionEvent::Control(_) | SessionEvent::ControlEnded(_) => {}
        }
        Ok(())
    }

    /// Starts the thread of a lane.
    fn start(
        &mut self,
        stream: Stream,
        lane: u16,
        leaving: impl FnOnce(Stream) -> Leaving + Send + 'static,
    ) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        self.tell_route(stream.cipher().is_some());
        self.shared.rest(self.tuning.resting());
        self.lanes.start(stream, lane, move |stream| lane::carry(leaving(stream), lane, &shared))
    }

    /// Who brings the lanes knows that this path leads nowhere: its units go to the others.
    fn lose_path(&mut self, path: u16, why: String) {
        self.lanes.cut_path(path);
        self.channel.outbox().send(Control::PathLost { path });
        self.shared.notice(convert::path_lost(path, &why));
    }

    /// Which way the bytes take through this host, once it is known what the lanes are.
    fn tell_route(&mut self, encrypted: bool) {
        if std::mem::replace(&mut self.route_told, true) {
            return;
        }
        let asked = state::asked_route(&self.shared.job.carriage);
        let (route, reason) = match (asked, encrypted) {
            (Some(route), _) => (route, "asked for"),
            (None, true) => (SendRoute::Copy, "every byte is read to hash it, and so it is sealed here, too"),
            (None, false) => (SendRoute::Copy, "every byte is read to hash it: zero copy saves nothing then"),
        };
        let (what, choice, reason) = (Subject::Route, route.name().to_owned(), reason.to_owned());
        self.shared.notice(convert::chose(what, choice, reason));
    }

    /// Lets the lanes follow the path. More lanes are brought by whoever dials.
    fn tune(&mut self, keeper: &mut dyn LaneKeeper) {
        let turn = self.tuning.turn(&*self.shared);
        let outbox = self.channel.outbox();
        for lane in turn.give_up {
            // Its units go to the others, as those of any lane that dies.
            self.lanes.cut(lane);
        }
        for path in turn.lost {
            self.lanes.cut_path(path);
            outbox.send(Control::PathLost { path });
        }
        if turn.work_moves || !turn.lanes.is_empty() {
            self.shared.rest(self.tuning.resting());
        }
        for (path, lanes) in turn.lanes {
            if !keeper.want(path, lanes) {
                outbox.send(Control::WantLanes { path, lanes });
            }
        }
        for Move { path, outlet, lanes } in turn.moves {
            if !keeper.leave_from(path, outlet, &lanes) {
                self.tuning.lanes_moved(path, Err("this side does not open the connections".into()));
            }
        }
        for notice in turn.notices {
            self.watch.on_notice(notice.clone());
            outbox.send(Control::Notice(notice));
        }
        for path in self.shared.as_paced(turn.paths) {
            self.watch.on_path(&path);
            outbox.send(Control::PathNow(path));
        }
    }

    /// A peer that only says that it is alive is as good as dead: progress is judged on what moves.
    fn check_progress(&mut self, has_work: bool) -> Result<(), Error> {
        let moved = self.shared.moved();
        if moved != self.moved.0 || !(has_work || self.shared.awaits_word()) {
            self.moved = (moved, Instant::now());
            return Ok(());
        }
        let timeout = self.clock.timeout();
        let waited = self.moved.1.elapsed();
        if waited > timeout / 2
            && let Some(notice) = self.shared.storage.notice(timeout)
        {
            self.shared.notice(notice);
        }
        if waited <= timeout {
            return Ok(());
        }
        if !has_work {
            return self.check_decisions(waited);
        }
        // The far side stops reading while too many confirmed bytes are not on its disk. It also lets in no lane while it reads
        // another file that stands there.
        let unsafe_bytes = self.shared.confirmed_open_bytes().min(CHECKPOINT_BYTES);
        let reads = self.decides_by_reading() && self.shared.awaits_answers(1);
        let read_bytes = if reads { self.shared.largest_open_bytes() } else { 0 };
        if waited <= timeout + stalls::time_to_store(unsafe_bytes.max(read_bytes)) {
            return Ok(());
        }
        let error = Error::new(Fault::Timeout, format!("no data has moved for {} s", timeout.as_secs()))
            .because("the far side is alive, but takes and confirms nothing")
            .try_this("look at its storage; then run the same command again: what is verified is not sent again");
        Err(self.with_reason(error))
    }

    /// A stall, on whichever side it was noticed, with what the lanes of this side know about it.
    fn with_reason(&self, error: Error) -> Error {
        if error.fault == Fault::Timeout
            && let Some(what) = self.shared.storage.unanswered(self.clock.timeout())
        {
            return Error::new(Fault::Storage, what).because("a read there does not come to its end").try_this(
                "look at that disk or file server; then run the same command again: what is verified is not sent again",
            );
        }
        match self.tuning.swallowed().filter(|_| error.fault == Fault::Timeout) {
            None => error,
            Some(swallowed) if swallowed.ever => error
                .because(format!("the far side is alive, but {swallowed}"))
                .try_this("look at firewalls and routes in between; then run the same command again"),
            Some(swallowed) => error.because(swallowed).try_this(
                "set net.ipv4.tcp_mtu_probing=1 at the sending host, or a smaller MTU on its interface (ip link set DEV mtu 1280)",
            ),
        }
    }

    /// Nothing is to be sent, so the far side compares, flushes or deletes: all that it may take longer for is the size of a file.
    fn check_decisions(&self, waited: Duration) -> Result<(), Error> {
        let largest = self.shared.largest_open_bytes();
        let bytes = if self.decides_by_reading() { largest } else { largest.min(CHECKPOINT_BYTES) };
        if waited <= self.clock.timeout() + stalls::time_to_store(bytes) {
            return Ok(());
        }
        Err(Error::new(Fault::Timeout, format!("the far side has decided nothing for {} s", waited.as_secs()))
            .because("it is alive, but answers nothing")
            .try_this("look at its storage; then run the same command again: what is verified is not sent again"))
    }

    /// Whether the far side may have to read a whole file before it answers: to compare it, or to check what an earlier run left.
    /// A file that was begun in place is always checked.
    fn decides_by_reading(&self) -> bool {
        let selection = &self.shared.job.selection;
        let may_be_in_place = selection.inplace || selection.update || selection.ignore_existing;
        selection.checksum || selection.verify_disk || (may_be_in_place && !selection.no_resume)
    }

    fn on_message(
        &mut self,
        message: Control,
        aside: &mut dyn FnMut(Control) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match message {
            Control::Answers(answers) => {
                for answer in answers {
                    self.watch.on_answer(answer.index, &answer.wanted);
                    self.shared.want(answer.index, &answer.wanted)?;
                }
            }
            Control::Receipts(receipts) => {
                for receipt in receipts {
                    self.watch.on_receipt(&receipt)?;
                    self.shared.on_receipt(receipt.index, receipt.chunk);
                }
            }
            Control::Outcomes(outcomes) => {
                for outcome in outcomes {
                    self.watch.on_outcome(&outcome)?;
                    self.check_recorded(&outcome.result);
                    let failed = matches!(outcome.result, OutcomeKind::Failed { .. });
                    self.shared.settle(outcome.index, failed)?;
                    self.shared.remove_source(&outcome);
                }
            }
            Control::SharedRoot(root) if self.shared.is_shown_the_target() => self.shared.on_target(root)?,
            Control::OpenDraft(draft) if self.shared.job.movers.count() > 0 => self.shared.share(draft)?,
            Control::Named(name) if self.shared.sources.is_single_file() => self.watch.on_name(&name)?,
            Control::Again { index, chunk } => self.shared.again(index, chunk)?,
            Control::Void(void) => self.shared.void(&void)?,
            Control::Repair { index, chunk } => self.shared.repair(index, chunk)?,
            Control::ReadAgain { bytes } => {
                self.shared.on_read_again(bytes)?;
                self.watch.on_read_again(bytes);
            }
            Control::LaneLost { lane } => {
                self.lanes.cut(lane);
                self.shared.lane_died(lane);
            }
            Control::OfMover { path, word } => {
                if self.shared.on_mover_word(path, word)? {
                    prover::start(&self.shared)
                        .map_err(|error| Error::new(Fault::FileIo, "cannot start a thread").because(error))?;
                }
            }
            Control::PathLost { path } => {
                self.lanes.cut_path(path);
                self.shared.mover_gone(path);
            }
            Control::Notice(notice) => {
                // A large directory takes its time, and says what goes.
                if self.shared.job.selection.delete && matches!(notice, Notice::Deleted { .. }) {
                    self.shared.count_move();
                }
                self.watch.on_notice(notice);
            }
            Control::Abort(abort) => return Err(self.with_reason(convert::error_of(abort))),
            other => aside(other)?,
        }
        Ok(())
    }

    /// Disks lose data, and stripes of two recordings may have come together: what was sent, and verified, need not be what was recorded.
    fn check_recorded(&self, result: &OutcomeKind) {
        let found = match result {
            OutcomeKind::Copied { blake3 } => Some(*blake3),
            // None in a dry run, which reads nothing, and where another file stays.
            OutcomeKind::Kept { blake3 } | OutcomeKind::Touched { blake3 } | OutcomeKind::Brought { blake3, .. } => {
                *blake3
            }
            _ => None,
        };
        let (Some(recorded), Some(found)) = (self.recorded, found) else { return };
        if recorded != found {
            let hex = |hash| blake3::Hash::from_bytes(hash).to_hex();
            let why = format!(
                "the stripes differ from the recording: they hash to {}, the recording to {}",
                hex(found),
                hex(recorded)
            );
            let path = self.shared.sources.name_of_single_file().to_vec();
            self.shared.notice(Notice::Failed { path, why });
        }
    }

    /// Lets the lanes finish, or cuts them, and collects where their time went.
    fn end(
        mut self,
        result: Result<ReceiverSummary, Error>,
        events: Events,
    ) -> Result<(SenderSummary, ReceiverSummary), Error> {
        self.shared.finish();
        if result.is_err() {
            self.lanes.cut_all();
        }
        // Whoever still wants to report an event must not wait for a loop that is over.
        drop(events);
        self.lanes.join();
        let (path, paths) = self.tuning.summary();
        if self.stays {
            self.tuning.let_go();
        }
        let receiver = result?;
        let removed = self.shared.removals.removed();
        Ok((SenderSummary { time: self.shared.time(), path, paths, removed }, receiver))
    }
}

/// Keeps a far side within its sources, unless its links are to be followed wherever they lead. What to tell of it.
fn give_up_rights(job: &SenderJob, sources: &dyn SourceTree) -> Option<Notice> {
    let roots = sources.roots().filter(|_| job.far)?;
    let access = if job.selection.remove_source_files { Access::Write } else { Access::Read };
    let trees: Vec<_> = roots.into_iter().map(|root| (root, access)).collect();
    Some(rights::stay_within(&trees, job.selection.xattrs, false))
}

/// How the user's own paths on this machine are understood.
fn resolve_options(home: Option<PathBuf>, follow_links: bool) -> ResolveOptions {
    ResolveOptions { home, follow_links, ..ResolveOptions::default() }
}

/// What a sender reads, found and open.
struct Resolved {
    sources: Arc<dyn SourceTree>,
    /// What the only file has to hash to, where that is known.
    recorded: Option<Hash>,
    /// Why the first of those that are not there is not.
    missing: Option<String>,
}

fn resolve(job: &SenderJob, channel: &Channel, watch: &Watch) -> Result<Resolved, Error> {
    let paths = match &job.sources {
        Sources::Paths(paths) => paths,
        Sources::Open(OpenSource { tree, recorded, warning }) => {
            if let Some(text) = warning {
                let notice = Notice::Warning { text: convert::bounded(text) };
                watch.on_notice(notice.clone());
                channel.outbox().send(Control::Notice(notice));
            }
            return Ok(Resolved { sources: Arc::clone(tree), recorded: *recorded, missing: None });
        }
    };
    let options = ResolveOptions {
        expand_globs: job.expand_globs,
        confine: job.confine.clone(),
        ..resolve_options(job.home.clone(), job.selection.follow_links)
    };
    let (sources, missing) = SourceSet::resolve_lossy(paths, &options);
    if let Some(error) = missing.iter().find(|error| error.is_out_of_files()) {
        return Err(faults::store_error(error));
    }
    if sources.is_empty() {
        return Err(match missing.first() {
            Some(error) => faults::store_error(error),
            None => Error::new(Fault::Usage, "no source was named"),
        });
    }
    // Where another host leads it has told of them.
    for error in missing.iter().filter(|_| !job.is_mover) {
        let notice = Notice::Failed { path: error.path.clone(), why: convert::bounded(error) };
        watch.on_notice(notice.clone());
        channel.outbox().send(Control::Notice(notice));
    }
    let missing = missing.first().map(StoreError::to_string);
    Ok(Resolved { sources: Arc::new(sources), recorded: None, missing })
}
