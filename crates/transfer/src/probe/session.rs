//! Runs one end of a probe: it sends and receives, or receives and sends, over the same lanes. The sending side keeps the time,
//! and the other checks it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use haul_job::{Error, Fault};
use haul_net::{Probe as LaneProbe, Stream};
use haul_wire::control::{Carriage, Control, Notice, ProbeArrived, ProbeSent, SenderSummary};
use haul_wire::summary::OnePath;

use haul_channel::channel::{self, Channel, Events, LaneEnd, SessionEvent};
use haul_channel::clock::{Clock, TICK};
use haul_channel::failure::Failure;
use haul_channel::foreseen::Foreseen;
use haul_channel::lane_addresses::LaneAddresses;
use haul_channel::lane_role::{self, LaneRole};
use haul_channel::lane_threads::{LaneKeeper, Lanes, NoKeeper};
use haul_channel::reporter::Watch;
use haul_channel::role_context::RoleContext;
use haul_channel::{convert, farewell};
use haul_govern::marks_seen::MarksSeen;
use haul_govern::tuning::{Endless, Tuning};
use haul_kept::class_policy::Permits;
use haul_kept::faults;

use super::arrivals::Arrivals;
use super::flow::{self, Flow};

/// Gives data under way time to arrive before the other direction.
const DRAIN: Duration = Duration::from_secs(2);

/// Extra time for a sender or an answer: [`DRAIN`], seconds of queue, one round trip.
const GRACE: Duration = Duration::from_secs(10);

/// The longest wait for a sign of life, or a first byte, that a peer may ask for.
const TIMEOUT_MAX_MS: u32 = 60_000;

const READ_EVERY: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Sends first.
    Initiator,
    /// Receives first.
    Agent,
}

/// Both ends' views of a direction.
pub(super) type Measured = (ProbeSent, ProbeArrived);

pub(super) struct Measures {
    pub(super) there: Measured,
    pub(super) back: Measured,
    pub(super) bytes_moved: u64,
}

pub(super) struct Terms {
    pub(super) side: Side,
    pub(super) time: Duration,
    pub(super) carriage: Carriage,
    pub(super) permits: Permits,
}

pub(super) type Aside<'a> = &'a mut dyn FnMut(Control) -> Result<(), Error>;

pub(super) fn run(terms: Terms, context: RoleContext<'_>) -> Result<Measures, Error> {
    let RoleContext { events, channel, watch, keeper, on_other_message } = context;
    let clock = Clock::new(terms.carriage.timeout_ms.min(TIMEOUT_MAX_MS));
    let mut end = End {
        side: terms.side,
        flow: Arc::default(),
        lanes: Lanes::new(events.sender(), Arc::clone(watch)),
        probes: Vec::new(),
        tuning: None,
        time: terms.time,
        carriage: terms.carriage,
        permits: terms.permits,
        // An initiator that connected has marked its lanes.
        marks: MarksSeen::new(terms.side == Side::Agent),
        events,
        channel,
        watch,
        clock,
        keeper,
        on_other_message,
    };
    let result = end.both_ways();
    let bytes_moved = end.flow.sent_bytes().saturating_add(end.flow.arrived_bytes());
    // The peer must not see the lanes go first.
    farewell::close(channel, &result);
    end.flow.finish();
    end.lanes.cut_all();
    let End { events, lanes, .. } = end;
    // No thread may wait for a loop that is over.
    drop(events);
    lanes.join();
    result.map(|(there, back)| Measures { there, back, bytes_moved })
}

struct End<'a> {
    side: Side,
    flow: Arc<Flow>,
    lanes: Lanes,
    probes: Vec<(u16, LaneProbe, Option<LaneAddresses>)>,
    tuning: Option<Tuning>,
    time: Duration,
    carriage: Carriage,
    permits: Permits,
    marks: MarksSeen,
    events: Events,
    channel: &'a Channel,
    watch: &'a Arc<Watch>,
    clock: Clock,
    keeper: &'a mut dyn LaneKeeper,
    on_other_message: Aside<'a>,
}

enum Word {
    Sent(Box<ProbeSent>),
    Arrived(ProbeArrived),
}

impl End<'_> {
    fn both_ways(&mut self) -> Result<(Measured, Measured), Error> {
        Ok(match self.side {
            Side::Initiator => (self.send()?, self.receive()?),
            Side::Agent => {
                let there = self.receive()?;
                (there, self.send()?)
            }
        })
    }

    fn send(&mut self) -> Result<Measured, Error> {
        while self.probes.is_empty() {
            self.silent_turn()?;
        }
        let tuning = Tuning::new(&self.carriage, Foreseen::default());
        let mut tuning = tuning.permitted(&self.carriage, self.permits.clone(), None);
        self.probes.iter().for_each(|(lane, probe, addresses)| tuning.lane_up(*lane, probe.clone(), *addresses));
        self.flow.rest(tuning.resting());
        self.tuning = Some(tuning);
        self.flow.send(true);
        let (start, mut readings, mut read_at) = (Instant::now(), Readings::default(), Instant::now());
        let mut half = None;
        while start.elapsed() < self.time {
            self.silent_turn()?;
            self.tune();
            if start.elapsed() >= self.time / 2 {
                half.get_or_insert_with(|| self.delivered_bytes());
            }
            if read_at.elapsed() >= READ_EVERY {
                read_at = Instant::now();
                self.probes.iter().for_each(|(_, probe, _)| readings.add(probe));
            }
        }
        self.flow.send(false);
        let (path, paths) = self.tuning.take().map(|tuning| tuning.summary()).unwrap_or_default();
        // A path that went down and came back counts on.
        let half = half.unwrap_or_default();
        let before = |path: &OnePath| half.get(&path.number).copied().unwrap_or_default();
        let steady_bytes = paths.iter().map(|path| path.delivered_bytes.saturating_sub(before(path))).collect();
        let drained_by = Instant::now() + DRAIN;
        while Instant::now() < drained_by && self.probes.iter().any(|(_, probe, _)| is_under_way(probe)) {
            self.silent_turn()?;
        }
        let sender = SenderSummary { time: self.flow.sending_time(), path, paths, removed: 0 };
        let sent = ProbeSent { steady_bytes, ..readings.summary(sender) };
        self.channel.outbox().send(Control::ProbeSent(sent.clone()));
        let answered_by = Instant::now() + GRACE;
        loop {
            match self.turn()? {
                Some(Word::Arrived(arrived)) => return Ok((sent, arrived)),
                Some(Word::Sent(sent)) => return Err(faults::unexpected(&Control::ProbeSent(*sent))),
                None if Instant::now() > answered_by => {
                    return Err(again(Error::new(Fault::Timeout, "the far side does not say what arrived")));
                }
                None => {}
            }
        }
    }

    fn receive(&mut self) -> Result<Measured, Error> {
        let (begun, mut arrivals) = (Instant::now(), Arrivals::default());
        loop {
            let word = self.turn()?;
            self.marks.turn();
            let (now, bytes) = (Instant::now(), self.flow.arrived_bytes());
            arrivals.note(now, bytes);
            match word {
                Some(Word::Sent(sent)) => {
                    let arrived = arrivals.summary(self.time, bytes, self.flow.receiving_time());
                    let arrived = ProbeArrived { marks_seen: self.marks.bits(), ..arrived };
                    self.channel.outbox().send(Control::ProbeArrived(arrived));
                    return Ok((*sent, arrived));
                }
                Some(Word::Arrived(arrived)) => return Err(faults::unexpected(&Control::ProbeArrived(arrived))),
                None => {}
            }
            match arrivals.elapsed(now) {
                None if begun.elapsed() > self.clock.timeout() => {
                    return Err(again(Error::new(Fault::Timeout, "the far side sends nothing")));
                }
                Some(elapsed) if elapsed > self.time + GRACE => {
                    let limit_s = self.time.as_secs_f64();
                    return Err(Error::broke_the_protocol(format!("it goes on sending after {limit_s} s")));
                }
                _ => {}
            }
        }
    }

    /// Does a turn in which the peer may not speak about a direction.
    fn silent_turn(&mut self) -> Result<(), Error> {
        match self.turn()? {
            None => Ok(()),
            Some(Word::Sent(sent)) => Err(faults::unexpected(&Control::ProbeSent(*sent))),
            Some(Word::Arrived(arrived)) => Err(faults::unexpected(&Control::ProbeArrived(arrived))),
        }
    }

    fn turn(&mut self) -> Result<Option<Word>, Error> {
        self.clock.turn(self.watch, self.channel, &Failure::default()).map_err(again)?;
        self.lanes.check(true, self.clock.timeout()).map_err(|error| match error.fault {
            Fault::Timeout => again(error),
            _ => error,
        })?;
        let Some(event) = self.events.next(TICK) else { return Ok(None) };
        match event {
            SessionEvent::Control(Control::ProbeSent(sent)) => return Ok(Some(Word::Sent(Box::new(sent)))),
            SessionEvent::Control(Control::ProbeArrived(arrived)) => return Ok(Some(Word::Arrived(arrived))),
            SessionEvent::Control(Control::WantLanes { path, lanes }) => {
                self.keeper.want(path, lanes);
            }
            SessionEvent::Control(Control::SmallerSegments { path, segment_bytes }) => {
                self.keeper.shrink(path, segment_bytes);
            }
            SessionEvent::Control(Control::PathLost { path }) => self.lanes.cut_path(path),
            SessionEvent::Control(Control::PathNow(path)) => self.watch.on_path(&path),
            SessionEvent::Control(Control::Notice(notice)) => self.watch.on_notice(notice),
            SessionEvent::Control(Control::Abort(abort)) => return Err(convert::error_of(abort)),
            SessionEvent::Control(message) => (self.on_other_message)(message)?,
            SessionEvent::ControlEnded(why) => return Err(again(channel::ended(why))),
            SessionEvent::Lane(event) => lane_role::carry_on(self, event, self.channel, &mut NoKeeper)?,
            SessionEvent::Moved(..) | SessionEvent::Wake => {}
        }
        Ok(None)
    }

    fn delivered_bytes(&self) -> BTreeMap<u16, u64> {
        self.tuning.as_ref().map(Tuning::delivered_bytes).unwrap_or_default()
    }

    fn tune(&mut self) {
        let Some(tuning) = &mut self.tuning else { return };
        if let Some(word) = self.channel.one_way() {
            tuning.on_one_way(word);
        }
        let turn = tuning.turn(&Endless);
        let outbox = self.channel.outbox();
        for path in turn.lost {
            self.lanes.cut_path(path);
            outbox.send(Control::PathLost { path });
        }
        for (path, segment_bytes) in turn.smaller_segments {
            if !self.keeper.shrink(path, segment_bytes) {
                outbox.send(Control::SmallerSegments { path, segment_bytes });
            }
            self.lanes.cut_path(path);
            outbox.send(Control::PathLost { path });
        }
        if turn.work_moves || !turn.lanes.is_empty() {
            self.flow.rest(tuning.resting());
        }
        for (path, lanes) in turn.lanes {
            if !self.keeper.want(path, lanes) {
                outbox.send(Control::WantLanes { path, lanes });
            }
        }
        for notice in turn.notices {
            self.watch.on_notice(notice.clone());
            outbox.send(Control::Notice(notice));
        }
        for path in turn.paths {
            self.watch.on_path(&path);
            outbox.send(Control::PathNow(path));
        }
    }
}

/// Lost lanes are not brought back: in a few seconds that would measure the loss, not the path.
impl LaneRole for End<'_> {
    fn host(&self) -> &'static str {
        if self.side == Side::Initiator { "this host" } else { "the far host" }
    }

    fn lanes(&mut self) -> &mut Lanes {
        &mut self.lanes
    }

    fn lane_up(&mut self, lane: u16, stream: Stream) -> Result<(), Error> {
        let (probe, addresses) = (stream.probe(), LaneAddresses::of(&stream));
        self.marks.lane_up(lane, &stream);
        if let Some(tuning) = &mut self.tuning {
            tuning.lane_up(lane, probe.clone(), addresses);
            self.flow.rest(tuning.resting());
        }
        self.probes.retain(|(other, ..)| *other != lane);
        self.probes.push((lane, probe, addresses));
        let flow = Arc::clone(&self.flow);
        self.lanes.start(stream, lane, move |stream| flow::carry(stream, lane, &flow).map(|()| None))
    }

    fn lane_down(&mut self, end: &LaneEnd, is_newest: bool) {
        if is_newest {
            self.probes.retain(|(other, ..)| *other != end.lane);
            if let Some(tuning) = &mut self.tuning {
                tuning.lane_down(end.lane);
                self.flow.rest(tuning.resting());
            }
        }
    }

    fn notice(&self, notice: Notice) {
        self.watch.on_notice(notice);
    }
}

#[derive(Default)]
struct Readings {
    deviation_us: u64,
    count: u64,
    mtu_bytes: u32,
    segment_bytes: u32,
}

impl Readings {
    fn add(&mut self, probe: &LaneProbe) {
        let Some(info) = probe.tcp_info() else { return };
        self.deviation_us += u64::from(info.rtt_var_us);
        self.count += 1;
        (self.mtu_bytes, self.segment_bytes) = (info.path_mtu_bytes, info.snd_mss_bytes);
    }

    fn summary(&self, sender: SenderSummary) -> ProbeSent {
        let jitter_us = u32::try_from(self.deviation_us.checked_div(self.count).unwrap_or(0)).unwrap_or(u32::MAX);
        let Self { mtu_bytes, segment_bytes, .. } = *self;
        ProbeSent { sender, jitter_us, mtu_bytes, segment_bytes, steady_bytes: Vec::new() }
    }
}

/// An unknown count means none.
fn is_under_way(probe: &LaneProbe) -> bool {
    let Some(info) = probe.tcp_info() else { return false };
    let sent = info.bytes_sent.unwrap_or(0).saturating_sub(info.bytes_retrans.unwrap_or(0));
    info.notsent_bytes.unwrap_or(0) > 0 || sent > info.bytes_acked.unwrap_or(u64::MAX)
}

/// A probe leaves nothing that could be continued.
pub(super) fn again(error: Error) -> Error {
    error.try_this("run the same command again: a probe leaves nothing behind on either side")
}
