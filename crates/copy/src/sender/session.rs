//! The loop of a sender: what it hears, what it says, and when it gives up.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use haul_channel::channel::{self, Channel, Events, LaneBack, LaneEnd, SessionEvent};
use haul_channel::clock::Clock;
use haul_channel::foreseen::Foreseen;
use haul_channel::lane_addresses::LaneAddresses;
use haul_channel::lane_role::{self, LaneRole};
use haul_channel::lane_threads::{LaneKeeper, Lanes};
use haul_channel::rate_limit::{NewLimit, RateLimit};
use haul_channel::reporter::Watch;
use haul_channel::{convert, stalls};
use haul_engine::at_risk::CHECKPOINT_BYTES;
use haul_engine::integrity::Hash;
use haul_govern::to_server::ToServer;
use haul_govern::tuning::{Move, Tuning, Work as _};
use haul_job::{Error, Fault, Subject};
use haul_net::Stream;
use haul_pump::SendRoute;
use haul_store::SourceTree;
use haul_striping::lending::is_of_mover;
use haul_sys::rights::Access;
use haul_wire::control::{Brought, Control, Notice, OutcomeKind, ReceiverSummary, SenderSummary};

use crate::rights;
use crate::sums::PassingBy;

use super::early_look::EarlyLook;
use super::findings::{Behind, Findings};
use super::job::SenderJob;
use super::lane::Leaving;
use super::resolve::{Resolved, resolve};
use super::server::ServerOfEnd;
use super::state::Shared;
use super::{lane, prover, send_route, surely_wanted, walk};

pub(super) struct Session<'a> {
    pub(super) shared: Arc<Shared>,
    pub(super) lanes: Lanes,
    pub(super) channel: &'a Channel,
    watch: &'a Arc<Watch>,
    clock: Clock,
    pub(super) tuning: Tuning,
    foreseen: Foreseen,
    server: Option<ServerOfEnd>,
    to_server: Option<ToServer>,
    lanes_here: BTreeSet<u16>,
    rate: RateLimit,
    /// The last count of [`Shared::moved`], and when it changed.
    moved: (u64, Instant),
    route_told: bool,
    recorded: Option<Hash>,
    /// `None`: no other job may follow.
    job_number: Option<u64>,
    findings: Findings,
}

impl<'a> Session<'a> {
    pub(super) fn begin(
        job: SenderJob,
        events: &Events,
        channel: &'a Channel,
        watch: &'a Arc<Watch>,
    ) -> Result<Self, Error> {
        let Resolved { sources, recorded, missing } = resolve(&job, channel, watch)?;
        let single_file = sources.is_single_file();
        channel.outbox().send(Control::Begin { single_file });
        job.movers.begins(single_file);
        let wanted = surely_wanted::of(&job, &*sources);
        let search = walk::Search::new(&sources, &job.selection, job.listed.as_ref(), wanted, missing)?;
        let session = Self::over(sources, recorded, job, events, channel, watch);
        walk::start(Arc::clone(&session.shared), search)
            .map_err(|error| Error::new(Fault::FileIo, "cannot start a thread").because(error))?;
        Ok(session)
    }

    pub(super) fn over(
        sources: Arc<dyn SourceTree>,
        recorded: Option<Hash>,
        job: SenderJob,
        events: &Events,
        channel: &'a Channel,
        watch: &'a Arc<Watch>,
    ) -> Self {
        let clock = Clock::new(job.carriage.timeout_ms);
        let foreseen = job.early.as_ref().map(EarlyLook::foreseen).unwrap_or_default();
        let tuning = Tuning::new(&job.carriage, foreseen.clone()).permitted(
            &job.carriage,
            job.permits.clone(),
            job.hooks.clone(),
        );
        let tuning = match &job.remembers {
            Some(paths) => tuning.remembering(paths.clone()),
            None => tuning,
        };
        let rate = RateLimit::of(job.carriage.rate_bytes_per_s);
        let server = ServerOfEnd::of(&*sources, &job.carriage);
        let to_server = job.outbound.clone().and_then(|outbound| {
            let (permits, hooks) = (job.permits.clone(), job.hooks.clone());
            ToServer::new(outbound, &job.carriage, foreseen.clone(), permits, hooks)
        });
        let (another_job, recorded_hash, has_server) = (events.job().is_some(), recorded.is_some(), server.is_some());
        let findings = Findings::of(&job, Behind { another_job, recorded: recorded_hash, server: has_server });
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
            foreseen,
            server,
            to_server,
            lanes_here: BTreeSet::new(),
            rate,
            moved: (0, Instant::now()),
            route_told: false,
            recorded,
            job_number: events.job(),
            findings,
        }
    }

    pub(super) fn turn(&mut self, keeper: &mut dyn LaneKeeper) -> Result<(), Error> {
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
        if let Some(NewLimit(bytes_per_s)) = self.rate.changed(self.watch) {
            self.limit_rate(bytes_per_s);
        }
        self.tune(keeper);
        self.tell_findings();
        Ok(())
    }

    fn tell_findings(&mut self) {
        let (shared, outbox) = (&self.shared, self.channel.outbox());
        if outbox.has_room() && self.findings.are_due(Instant::now(), shared.moved(), || shared.is_listed()) {
            let (path, paths) = self.tuning.summary();
            let time = shared.loads.time_so_far(|lane| shared.last_receipt(lane));
            outbox.send(Control::Findings(SenderSummary { time, path, paths, removed: 0 }));
        }
    }

    pub(super) fn limit_rate(&mut self, bytes_per_s: Option<u64>) {
        self.shared.limit_rate(bytes_per_s);
        self.tuning.limit_rate(bytes_per_s);
        self.to_server.iter_mut().for_each(|to_server| to_server.limit_rate(bytes_per_s));
    }

    pub(super) fn until_summary(
        &mut self,
        events: &Events,
        keeper: &mut dyn LaneKeeper,
        on_other_message: &mut dyn FnMut(Control) -> Result<(), Error>,
    ) -> Result<ReceiverSummary, Error> {
        loop {
            self.turn(keeper)?;
            let Some(event) = events.next(self.tick()) else { continue };
            match event {
                SessionEvent::Control(Control::Summary(summary)) => {
                    if self.shared.on_summary()? {
                        return Ok(summary);
                    }
                }
                SessionEvent::Control(message) => self.on_message(message, on_other_message)?,
                SessionEvent::ControlEnded(why) => return Err(channel::ended(why)),
                SessionEvent::Lane(event) => lane_role::carry_on(self, event, self.channel, keeper)?,
                SessionEvent::Moved(path, chunks) => self.shared.on_moved(path, chunks),
                SessionEvent::Wake => {}
            }
        }
    }

    fn start(
        &mut self,
        stream: Stream,
        lane: u16,
        leaving: impl FnOnce(Stream) -> Leaving + Send + 'static,
    ) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        self.tell_route(stream.cipher().is_some());
        self.shared.rest(self.resting());
        self.lanes.start(stream, lane, move |stream| lane::carry(leaving(stream), lane, &shared))
    }

    fn tick(&self) -> Duration {
        self.to_server.iter().map(ToServer::tick).fold(self.tuning.tick(), Duration::min)
    }

    fn resting(&self) -> Vec<u16> {
        let mut resting = self.tuning.resting();
        resting.extend(self.server.iter().flat_map(ServerOfEnd::resting));
        resting
    }

    fn tell_route(&mut self, encrypted: bool) {
        if std::mem::replace(&mut self.route_told, true) {
            return;
        }
        let asked = send_route::asked_for(&self.shared.job.carriage);
        let (route, reason) = match (asked, encrypted) {
            (Some(route), _) => (route, "asked for"),
            (None, true) => (SendRoute::Copy, "every byte is read to hash it, and so it is sealed here, too"),
            (None, false) => (SendRoute::Copy, "every byte is read to hash it: zero copy saves nothing then"),
        };
        let (what, choice, reason) = (Subject::Route, route.name().to_owned(), reason.to_owned());
        self.shared.notice(convert::chose(what, choice, reason));
    }

    fn follow_target(&mut self) {
        if self.server.is_none()
            && let Some(connections) = self.shared.job.hand_over.as_ref().and_then(|shared| shared.target_connections())
        {
            let carriage = &self.shared.job.carriage;
            self.server = Some(ServerOfEnd::of_target(connections, carriage, &self.lanes_here));
            self.shared.rest(self.resting());
        }
    }

    /// Lets lanes follow the path. The dialling side brings more.
    fn tune(&mut self, keeper: &mut dyn LaneKeeper) {
        self.follow_target();
        if let Some(word) = self.channel.one_way() {
            self.tuning.on_one_way(word);
        }
        let mut turn = self.tuning.turn(&*self.shared);
        if let Some(server) = &mut self.server {
            let of_server = server.turn(Instant::now(), || self.shared.waiting_bytes());
            if let Some(connections) = server.carries_here() {
                self.watch.set_connections(connections);
            }
            turn.work_moves |= of_server.work_moves;
            turn.notices.extend(of_server.notices);
            turn.paths.extend(of_server.path.filter(|_| self.tuning.has_no_path()));
        }
        if let Some(to_server) = &mut self.to_server {
            turn.notices.extend(to_server.turn(&*self.shared));
        }
        let outbox = self.channel.outbox();
        for lane in turn.give_up {
            self.lanes.cut(lane);
        }
        for path in turn.lost {
            self.lanes.cut_path(path);
            outbox.send(Control::PathLost { path });
        }
        for (path, segment_bytes) in turn.smaller_segments {
            // A mover that no large packet reaches is left out.
            if !is_of_mover(path) && !keeper.shrink(path, segment_bytes) {
                outbox.send(Control::SmallerSegments { path, segment_bytes });
            }
            self.lanes.cut_path(path);
            outbox.send(Control::PathLost { path });
        }
        if turn.work_moves || !turn.lanes.is_empty() {
            self.shared.rest(self.resting());
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

    /// A peer that only shows life is as good as dead: progress is judged by what moves.
    fn check_progress(&mut self, has_work: bool) -> Result<(), Error> {
        let passing = self.shared.reading.passing();
        let signs = passing.map_or(0, PassingBy::signs);
        if let Some(passing) = passing.filter(|_| signs > 0) {
            self.watch.on_passing(passing.bytes());
        }
        let moved = self.shared.moved() + signs;
        if moved != self.moved.0 || !(has_work || self.shared.awaits_word()) {
            self.moved = (moved, Instant::now());
            return Ok(());
        }
        let timeout = self.clock.timeout();
        let waited = self.moved.1.elapsed();
        if waited > timeout / 2
            && let Some(notice) = self.shared.reading.storage.notice(timeout)
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

    /// Adds to a stall what the lanes of this side know about it.
    fn with_reason(&self, error: Error) -> Error {
        if error.fault == Fault::Timeout
            && let Some(what) = self.shared.reading.storage.unanswered(self.clock.timeout())
        {
            return Error::new(Fault::Storage, what).because("a read there does not come to its end").try_this(
                "look at that disk or file server; then run the same command again: what is verified is not sent again",
            );
        }
        match self.tuning.black_hole().filter(|_| error.fault == Fault::Timeout) {
            None => error,
            Some(hole) if hole.ever => error
                .because(format!("the far side is alive, but {hole}"))
                .try_this("look at firewalls and routes in between; then run the same command again"),
            Some(hole) => error.because(hole).try_this(
                "set net.ipv4.tcp_mtu_probing=1 at the sending host, or a smaller MTU on its interface (ip link set DEV mtu 1280)",
            ),
        }
    }

    /// With nothing to send, the far side compares, flushes or deletes: only a file's size excuses more time.
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

    /// Whether the far side may read a whole file before it answers: to compare, or to check an earlier run's, as always in
    /// place.
    fn decides_by_reading(&self) -> bool {
        let selection = &self.shared.job.selection;
        let may_be_in_place = selection.inplace || selection.update || selection.ignore_existing;
        let compares = self.shared.reading.compares_sums();
        compares || selection.checksum || selection.verify_disk || (may_be_in_place && !selection.no_resume)
    }

    fn on_message(
        &mut self,
        message: Control,
        on_other_message: &mut dyn FnMut(Control) -> Result<(), Error>,
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
                    self.check_third_party(&outcome.result)?;
                    self.watch.on_outcome(&outcome)?;
                    self.check_recorded(&outcome.result);
                    let failed = matches!(outcome.result, OutcomeKind::Failed { .. });
                    self.shared.settle(outcome.index, failed)?;
                    self.shared.remove_source(&outcome);
                }
            }
            Control::SharedRoot(root) if self.shared.is_shown_the_target() => self.shared.on_target(root)?,
            Control::OpenDraft(draft) if self.shared.job.movers.count() > 0 => self.shared.share(draft)?,
            Control::Named(name) if self.shared.reading.sources.is_single_file() => self.watch.on_name(&name)?,
            Control::Standing(standing) => self.shared.on_standing(&standing)?,
            Control::Again { index, chunk } => self.shared.again(index, chunk)?,
            Control::Void(void) => self.shared.void(&void)?,
            Control::Repair { index, chunk } => self.shared.repair(index, chunk)?,
            Control::ReadAgain { bytes } => {
                self.shared.on_read_again(bytes)?;
                self.watch.on_read_again(bytes);
            }
            Control::Gathers { us } => self.tuning.acknowledgements_wait(us),
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
            // The receiver of an initiator's own copy has no say in it.
            Control::Rate { bytes_per_s } if self.shared.job.far => self.limit_rate(bytes_per_s),
            Control::Abort(abort) => return Err(self.with_reason(convert::error_of(abort))),
            other => on_other_message(other)?,
        }
        Ok(())
    }

    /// Only a receiver in this process, which has the server's sums, can have files sent past this sender.
    fn check_third_party(&self, result: &OutcomeKind) -> Result<(), Error> {
        match result {
            OutcomeKind::Brought { how: Brought::ByServer, .. } if !self.shared.reading.compares_sums() => {
                Err(Error::broke_the_protocol("it says that a server sent it a file"))
            }
            _ => Ok(()),
        }
    }

    /// Disks lose data, and stripes of two recordings may be mixed: verified data need not be what was recorded.
    fn check_recorded(&self, result: &OutcomeKind) {
        let found = match result {
            OutcomeKind::Copied { blake3 } => Some(*blake3),
            // There is none in a dry run, and where another file stays.
            OutcomeKind::Kept { blake3 } | OutcomeKind::Touched { blake3 } | OutcomeKind::Brought { blake3, .. } => {
                *blake3
            }
            _ => None,
        };
        let (Some(recorded), Some(found)) = (self.recorded, found) else { return };
        if recorded != found {
            let hex = |hash| blake3::Hash::from_bytes(hash).to_hex();
            let why = format!(
                "the data differ from the recording: they hash to {}, the recording to {}",
                hex(found),
                hex(recorded)
            );
            let path = self.shared.reading.sources.name_of_single_file().to_vec();
            self.shared.notice(Notice::Failed { path, why });
        }
    }

    /// Lets the lanes finish, or cuts them, and collects their time.
    pub(super) fn end(
        mut self,
        result: Result<ReceiverSummary, Error>,
        events: Events,
    ) -> Result<(SenderSummary, ReceiverSummary), Error> {
        self.shared.finish();
        if result.is_err() {
            self.lanes.cut_all();
        }
        // Nobody may wait for a loop that is over.
        drop(events);
        self.lanes.join();
        let (mut path, mut paths) = self.tuning.summary();
        let mut time = self.shared.loads.time();
        if let Some(of_server) = self.server.as_ref().and_then(ServerOfEnd::summary) {
            path = of_server.summary.clone();
            paths = vec![of_server];
            time = self.server.as_ref().map_or(time, |server| server.time(time));
        }
        let to_target = self.server.as_ref().and_then(ServerOfEnd::carried_to_target);
        let outbound =
            self.shared.job.outbound.as_ref().map(|outbound| outbound.most_sending()).filter(|most| *most > 0);
        path.lanes = to_target.or(outbound).unwrap_or(path.lanes);
        // A short copy is over before a turn.
        let mut untold = self.tuning.untold();
        if let Some(to_server) = &mut self.to_server {
            untold.extend(to_server.untold());
            path.service = to_server.service();
            to_server.release();
        }
        for notice in untold {
            self.shared.notice(notice);
        }
        if self.job_number.is_some() {
            self.tuning.release();
        }
        let receiver = result?;
        if let Some(text) = self.shared.reading.growing.warning() {
            self.shared.notice(Notice::Warning { text: convert::bounded(text) });
        }
        if let Some(sums) = self.shared.reading.sources.sums() {
            self.watch.on_sums(sums);
        }
        let removed = self.shared.removals.removed();
        Ok((SenderSummary { time, path, paths, removed }, receiver))
    }
}

impl LaneRole for Session<'_> {
    fn host(&self) -> &'static str {
        "the sending host"
    }

    fn lanes(&mut self) -> &mut Lanes {
        &mut self.lanes
    }

    fn lane_up(&mut self, lane: u16, stream: Stream) -> Result<(), Error> {
        // A far side had no early look, and its walk began before the first lane came.
        self.foreseen.at_least(self.shared.found_bytes());
        self.tuning.lane_up(lane, stream.probe(), LaneAddresses::of(&stream));
        if stream.tcp_info().is_none() {
            self.lanes_here.insert(lane);
            self.server.iter_mut().for_each(|server| server.lane_up(lane));
        }
        let job = self.job_number;
        self.start(stream, lane, move |stream| Leaving::new(stream, job))
    }

    fn lane_back(&mut self, LaneBack { lane, stream, tags }: LaneBack) -> Result<(), Error> {
        self.tuning.lane_back(lane, stream.probe(), LaneAddresses::of(&stream));
        let job = self.job_number;
        self.start(stream, lane, move |stream| Leaving { stream, tags, job })
    }

    fn lane_down(&mut self, end: &LaneEnd, is_newest: bool) {
        // A replaced lane's work, too, is nobody's now; its successor's units may go twice.
        self.shared.lane_died(end.lane);
        if is_newest {
            self.tuning.lane_down(end.lane);
            self.lanes_here.remove(&end.lane);
            if let Some(server) = &mut self.server {
                server.lane_down(end.lane);
            }
            self.shared.rest(self.resting());
        }
    }

    fn redialled(&mut self, path: u16, outcome: Result<(), String>) {
        self.tuning.lanes_moved(path, outcome);
    }

    fn notice(&self, notice: Notice) {
        self.shared.notice(notice);
    }
}

/// Keeps a far side within its sources, unless links are followed anywhere. Returns what to tell.
fn give_up_rights(job: &SenderJob, sources: &dyn SourceTree) -> Option<Notice> {
    let roots = sources.roots().filter(|_| job.far)?;
    let access = if job.selection.remove_source_files { Access::Write } else { Access::Read };
    let trees: Vec<_> = roots.into_iter().map(|root| (root, access)).collect();
    Some(rights::stay_within(&trees, job.selection.xattrs, false))
}
