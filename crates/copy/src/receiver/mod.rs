//! The side that writes.
//!
//! ```text
//!   loop            items -> decide: keep, make, ask for data
//!   lane threads    data -> temporary file, hash -> verified -> receipt
//!   name threads    small files: one flush for many, final names
//!   settle thread   checkpoints and final names of large files; what has to wait for its turn in the manifest:
//!                   hard links, times of directories, deletions, parts that nobody will go on with
//!   bring threads   files that the sources' server sends to the target's server by itself
//!   look threads    files that stand there and differ are read, so that only the rest is sent
//!   reread threads  what an earlier run left is read again; what the checkpoints flushed is read back from the medium (`--verify disk`)
//! ```

mod abilities;
mod account_rules;
mod arrival;
mod asking;
mod begin;
mod bringing;
mod bye;
mod claim;
mod claims;
mod confirming;
mod decide;
mod delayed;
mod deletion_limit;
mod deletions;
mod destination;
mod direct_write_queue;
mod disk_threads;
mod draft_plan;
mod exposure;
mod file;
mod first_names;
mod flushing;
mod from_reference;
#[cfg(feature = "testing")]
pub mod fuzzing;
mod handed;
mod in_order;
mod incoming;
mod input;
mod itemise;
mod job;
mod lane;
mod leading;
mod left_out;
mod left_to_owners;
mod look;
mod looks;
mod missing_data;
pub mod mover;
mod open_target;
mod owners;
mod put_off;
mod references;
mod rename_queue;
mod rename_threads;
mod reread;
mod rereads;
mod server_sums;
mod settle;
mod special;
mod standing_file;
mod state;
mod tally;
mod tasks;
mod to_bring;
mod twins;
mod write_route;
mod writers;

/// Unpacks a block as a lane does, for the fuzz targets.
#[cfg(feature = "testing")]
pub fn decompress(packed: &[u8]) -> Option<Vec<u8>> {
    lane::decompress(&mut None, packed).ok().map(<[u8]>::to_vec)
}

use std::sync::Arc;
use std::time::{Duration, Instant};

pub use haul_engine::at_risk::CHECKPOINT_BYTES;
use haul_store::LocalTree;
use haul_wire::control::{self as wire, Control, MoverWord, OutcomeKind, ReceiverSummary, SenderSummary, Withdraw};
use haul_wire::lane::lane_of;
use haul_wire::manifest::Packer;

use begin::{BEGIN_DEADLINE, await_begin};
use decide::Decider;
pub use direct_write_queue::BUFFERS;
use haul_channel::channel::{self, Channel, Events, LaneBack, LaneEnd, SessionEvent};
use haul_channel::clock::{Clock, TICK};
use haul_channel::farewell::Ending;
use haul_channel::lane_role::{self, LaneRole};
use haul_channel::lane_threads::{LaneKeeper, Lanes};
use haul_channel::rate_limit::{NewLimit, RateLimit};
use haul_channel::reporter::Watch;
use haul_channel::role_context::RoleContext;
use haul_channel::stalls::{self, MAX_IN_VAIN, Progress};
use haul_channel::{convert, farewell};
use haul_govern::marks_seen::MarksSeen;
use haul_govern::thin_acks::ThinAcks;
use haul_job::{Error, Fault};
use haul_kept::faults;
use haul_net::Stream;
pub use job::{Bounds, OpenTarget, OpenedTarget, ReceiverJob, Target};
use lane::Arriving;
pub use open_target::nothing_to_delete;
use open_target::open_target;
use rename_threads::RenameThreads;
use settle::Settler;
use state::Shared;
pub use writers::WRITERS;

const READ_AGAIN_EVERY: Duration = Duration::from_millis(100);

/// Runs the session to its end.
pub fn run(job: ReceiverJob, mut context: RoleContext<'_>) -> Result<(SenderSummary, ReceiverSummary), Error> {
    let mut clock = Clock::new(job.carriage.timeout_ms);
    let channel = context.channel;
    // Between two hosts the sender may first be sent a long list.
    let longest = if job.listed != wire::Listed::Nothing { job.bounds.search } else { BEGIN_DEADLINE };
    let RoleContext { events, watch, on_other_message, .. } = &mut context;
    let begun = await_begin(events, channel, watch, &mut clock, longest, *on_other_message);
    let ending = Ending::of(&begun, events);
    let result = begun.and_then(|single_file| run_session(job, single_file, context, clock));
    farewell::end(channel, &result, ending);
    result
}

fn run_session(
    mut job: ReceiverJob,
    single_file: bool,
    context: RoleContext<'_>,
    clock: Clock,
) -> Result<(SenderSummary, ReceiverSummary), Error> {
    let RoleContext { events, channel, watch, keeper, on_other_message } = context;
    let asked_for = job.asked_for.take();
    let shared = Arc::new(open_target(job, single_file, channel, watch, &events)?);
    if shared.to.discards() && shared.job.selection.remove_source_files {
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
        shared.finish();
        Error::new(Fault::FileIo, "cannot start a thread").because(error)
    };
    let settler = Settler::start(Arc::clone(&shared)).map_err(no_thread)?;
    let rename_threads = RenameThreads::start(&shared).map_err(no_thread)?;
    let progress = Progress::new(Instant::now());
    let mut session = Session {
        job_number: events.job(),
        rate: RateLimit::of(shared.job.carriage.rate_bytes_per_s),
        decider: Decider::new(Arc::clone(&shared), asked_for),
        packer: Packer::default(),
        lanes: Lanes::new(events.sender(), Arc::clone(watch)),
        marks: MarksSeen::new(false),
        thin_acks: ThinAcks::new(),
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
        left_to_owners_told: false,
        cut: None,
        listed: Some(Instant::now()),
        findings: None,
        leaves_first: false,
    };
    let sender = session.until_end(&events, keeper, on_other_message);
    if session.leaves_first {
        // Their sender learns a round trip later that it may end them.
        session.lanes.cut_all();
    }
    if let Err(error) = &sender {
        // Ends the wait for a sender that does not read.
        session.shared.failure.set(error.clone());
        // Told after the lanes were joined, which must wait neither for the sender nor for the disk.
        session.lanes.cut_all();
        session.shared.disk.exposure.end();
        session.shared.rename_queue.end();
        session.shared.disk.direct_writes.end();
    }
    session.shared.discard_token();
    // Lanes of movers end with a word, which those of this side await.
    session.shared.job.movers.are_done();
    drop(events);
    session.lanes.join();
    // Before what is not safe yet is written down.
    session.shared.disk.direct_writes.join(session.storage_is_lost);
    rename_threads.join(&session.shared, session.storage_is_lost);
    session.shared.finish();
    settler.join(session.storage_is_lost);
    session.shared.rereads.join(session.storage_is_lost);
    session.shared.looks.join(session.storage_is_lost);
    session.shared.to_bring.join(session.storage_is_lost);
    let summary = session.shared.summary();
    sender.map(|sender| (sender, summary))
}

struct Session<'a> {
    /// `None`: no other job may follow.
    job_number: Option<u64>,
    rate: RateLimit,
    shared: Arc<Shared>,
    decider: Decider,
    packer: Packer,
    lanes: Lanes,
    marks: MarksSeen,
    thin_acks: ThinAcks,
    channel: &'a Channel,
    watch: &'a Arc<Watch>,
    clock: Clock,
    progress: Progress,
    storage_is_lost: bool,
    attributes_told: bool,
    read_again: (u64, Instant),
    /// The arrived bytes at the last look.
    looked_at: (u64, Instant),
    set_group_told: bool,
    left_to_owners_told: bool,
    /// Items after this moment are skipped: the peer has gone, and its manifest is too long to finish. The event that ended the
    /// session comes after them.
    cut: Option<Instant>,
    /// The last moment of a manifest that goes on or leaves work; `None` after its end.
    listed: Option<Instant>,
    findings: Option<SenderSummary>,
    leaves_first: bool,
}

impl Session<'_> {
    /// A file that changed at the last moment may come while we say that all is done: then we say so again.
    fn until_end(
        &mut self,
        events: &Events,
        keeper: &mut dyn LaneKeeper,
        on_other_message: &mut dyn FnMut(Control) -> Result<(), Error>,
    ) -> Result<SenderSummary, Error> {
        loop {
            self.until_complete(events, keeper, on_other_message)?;
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
        on_other_message: &mut dyn FnMut(Control) -> Result<(), Error>,
    ) -> Result<(), Error> {
        while self.cut.is_some() || !self.shared.is_complete() {
            self.clock.turn(self.watch, self.channel, &self.shared.failure)?;
            if let Some(NewLimit(bytes_per_s)) = self.rate.changed(self.watch) {
                self.channel.outbox().send(Control::Rate { bytes_per_s });
            }
            self.tell_read_again();
            self.marks.turn();
            if let Some(notice) = self.thin_acks.turn(self.channel) {
                self.shared.notice(notice);
            }
            if self.cut.is_some_and(|since| since.elapsed() > self.clock.silence_limit()) {
                return Err(channel::ended(None));
            }
            let begun = Instant::now();
            self.decider.let_in();
            self.exclude_own_time(begun.elapsed());
            let has_work = self.shared.has_work() || self.decider.holds();
            self.lanes.check(has_work, self.clock.timeout())?;
            self.check_progress(has_work)?;
            self.check_search()?;
            let Some(event) = events.next(TICK) else { continue };
            let begun = Instant::now();
            match event {
                SessionEvent::Control(Control::WantLanes { path, lanes }) => {
                    keeper.want(path, lanes);
                }
                SessionEvent::Control(Control::SmallerSegments { path, segment_bytes }) => {
                    keeper.shrink(path, segment_bytes);
                }
                SessionEvent::Control(message) => self.on_message(message, on_other_message)?,
                SessionEvent::ControlEnded(why) => return Err(channel::ended(why)),
                SessionEvent::Lane(event) => lane_role::carry_on(self, event, self.channel, keeper)?,
                SessionEvent::Wake | SessionEvent::Moved(..) => {}
            }
            self.exclude_own_time(begun.elapsed());
        }
        self.shared.failure.get()
    }

    fn start(
        &mut self,
        stream: Stream,
        lane: u16,
        arriving: impl FnOnce(Stream) -> Arriving + Send + 'static,
    ) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        self.marks.lane_up(lane, &stream);
        self.thin_acks.lane_up(lane, &stream);
        self.lanes.start(stream, lane, move |stream| lane::carry(arriving(stream), lane, &shared))
    }

    /// Leaves out a long turn, in which nobody could use what came. Short turns count, so a flooding peer gains nothing.
    fn exclude_own_time(&mut self, turn: Duration) {
        if turn > TICK {
            self.lanes.exclude_own_time(turn);
            self.progress.exclude_own_time(turn);
        }
    }

    /// A sender that only shows life, or sends a byte now and then, is as good as dead.
    fn check_progress(&mut self, has_work: bool) -> Result<(), Error> {
        let timeout = self.clock.timeout();
        let (bytes, done) = self.shared.moved();
        // The sender may take a while to read outcomes, with a limit of its own.
        let has_work = has_work && self.channel.outbox().has_room();
        let is_stalled = self.progress.is_stalled(has_work, bytes, done, Instant::now(), timeout);
        if self.progress.stands_for(Instant::now()) > timeout / 2
            && let Some(notice) = self.shared.disk.storage.notice(timeout)
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
        // No byte comes while the source reads kept files for a manifest.
        let hashed = timeout + stalls::time_to_store(self.shared.largest_to_hash_bytes());
        if !self.progress.is_stalled(has_work, bytes, done, Instant::now(), hashed) {
            return Ok(());
        }
        if let Some(since) = self.shared.disk.storage.waits_since() {
            return self.check_storage(since);
        }
        Err(Error::new(Fault::Timeout, format!("no data worth the name has arrived for {} s", timeout.as_secs()))
            .because("the far side is alive, but sends next to nothing")
            .try_this("look at its storage; then run the same command again: what is verified is not sent again"))
    }

    /// A sender that finds nothing may search long; one that hashes before it lists may need any time.
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

    /// Judges a time in which our own disk works: the limit, and a checkpoint on the slowest disk.
    fn check_storage(&mut self, since: Instant) -> Result<(), Error> {
        let bytes = self.shared.job.bounds.checkpoint_bytes.min(CHECKPOINT_BYTES);
        if since.elapsed() <= self.clock.timeout() + stalls::time_to_store(bytes) {
            return Ok(());
        }
        self.storage_is_lost = true;
        let what = self.shared.disk.storage.has_not_answered_for(since.elapsed());
        Err(Error::new(Fault::Storage, what).because("a write or flush there does not come to its end").try_this(
            "look at that disk or file server; then run the same command again: what is verified is not sent again",
        ))
    }

    fn on_message(
        &mut self,
        message: Control,
        on_other_message: &mut dyn FnMut(Control) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match message {
            // Names are told by their difference from the one before: behind a gap they would be others.
            Control::Items(_) | Control::EndOfManifest | Control::Withdraw(_) | Control::Findings(_)
                if self.cut.is_some() => {}
            Control::Items(packed) => {
                self.listed = self.listed.map(|_| Instant::now());
                for packed in packed {
                    // Each may take as long as reading a file.
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
            Control::DeleteNothing => self.shared.deletions.forbid(),
            Control::Moved(chunks) if self.shared.other_hosts.token.get().is_some() => {
                for chunk in &chunks {
                    leading::moved(&self.shared, chunk)?;
                }
            }
            Control::Notice(notice) => self.watch.on_notice(notice),
            Control::Counted(counted) => self.watch.on_counted(counted),
            Control::Findings(_) if self.listed.is_some() => {
                return Err(Error::broke_the_protocol("it has findings before the end of its manifest"));
            }
            Control::Findings(summary) => self.findings = Some(summary),
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
            other => on_other_message(other)?,
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
        deletions::delete_noted(&self.shared);
        self.decider.end_loose();
        self.shared.discard_token();
        self.shared.to.flush_remaining_directories()?;
        if let Some(tree) = self.local_target() {
            tree.check_place().map_err(|error| {
                faults::store_error(&error)
                    .try_this("look for the directory where it is now; then run the same command again")
            })?;
        }
        self.tell_attributes();
        self.tell_set_group();
        self.tell_left_to_owners();
        // The idle lanes enter their time at their end, so the summary takes what they told so far.
        self.shared.tally.saw_marks(self.marks.bits());
        self.channel.outbox().send(Control::Summary(self.shared.summary()));
        Ok(())
    }

    /// Tells how far reading has come: otherwise the sender takes us for dead.
    fn tell_read_again(&mut self) {
        if self.looked_at.1.elapsed() >= READ_AGAIN_EVERY {
            let arrived_bytes = self.shared.tally.arrived_bytes();
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

    fn local_target(&self) -> Option<&LocalTree> {
        self.shared.to.tree().local().filter(|_| self.shared.to.makes_files())
    }

    /// Tells once what the target cannot hold, while the sender hears it.
    fn tell_attributes(&mut self) {
        let unsupported = self.local_target().and_then(LocalTree::xattrs_unsupported);
        let Some(name) = unsupported.filter(|_| !std::mem::replace(&mut self.attributes_told, true)) else { return };
        let text = format!(
            "the file system of the target does not hold all attributes or ACLs of what was copied: {name}, for one, is left out"
        );
        self.shared.notice(wire::Notice::Warning { text: convert::bounded(text) });
    }

    fn tell_set_group(&mut self) {
        let lost = self.local_target().and_then(LocalTree::lost_set_group);
        let Some(path) = lost.filter(|_| !std::mem::replace(&mut self.set_group_told, true)) else { return };
        let text = format!(
            "set-group-id bits are not kept where the user at the target is not in the group of the entry: {path}, for one"
        );
        self.shared.notice(wire::Notice::Warning { text: convert::bounded(text) });
    }

    /// Tells once what only other users may change.
    fn tell_left_to_owners(&mut self) {
        let Some(tree) = self.shared.to.tree().local() else { return };
        let left = tree.left_to_owners();
        if !left.is_empty() && !std::mem::replace(&mut self.left_to_owners_told, true) {
            self.shared.notice(wire::Notice::Warning {
                text: convert::bounded(left_to_owners::text(&left, self.shared.to.root())),
            });
        }
    }
}

impl LaneRole for Session<'_> {
    fn host(&self) -> &'static str {
        "the receiving host"
    }

    fn lanes(&mut self) -> &mut Lanes {
        &mut self.lanes
    }

    fn lane_up(&mut self, lane: u16, stream: Stream) -> Result<(), Error> {
        let job = self.job_number;
        self.start(stream, lane, move |stream| Arriving { job, ..Arriving::new(stream) })
    }

    fn lane_back(&mut self, LaneBack { lane, stream, tags }: LaneBack) -> Result<(), Error> {
        let job = self.job_number;
        self.start(stream, lane, move |stream| Arriving { stream, tags, job })
    }

    fn lane_down(&mut self, end: &LaneEnd, is_newest: bool) {
        self.marks.lane_down(end.lane);
        self.thin_acks.lane_down(end.lane);
        // The sender knows lanes that were lost between two jobs; they may be back.
        if is_newest && end.error.is_some() && end.serial > 0 {
            self.shared.tell_sender_on(end.lane, Control::LaneLost { lane: end.lane });
        }
    }

    fn notice(&self, notice: wire::Notice) {
        self.shared.notice(notice);
    }
}
