//! Runs a copy between two other hosts: this machine passes control messages on and keeps the tally. With `-3`, or when neither
//! reaches the other, the lanes run through here, too.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use haul_job::{AskedPaths, Carriage, Error, Event, Far, Fault, Job, LanePath, Subject};
use haul_net::{Identity, Stream};
use haul_wire::control::{self as wire, Control, Dial, Notice, ReceiverSummary, Role, SenderSummary};
use haul_wire::limits::BLOCK_BYTES;
use haul_wire::manifest::Packer;

use crate::order::Order;
use haul_channel::channel::{self, Channel, Events, LaneEvent, SessionEvent};
use haul_channel::clock::{Clock, TICK};
use haul_channel::failure::Failure;
use haul_channel::foreseen::Foreseen;
use haul_channel::lane_threads::LaneKeeper;
use haul_channel::rate_limit::{NewLimit, RateLimit};
use haul_channel::reporter::{Ends, Watch};
use haul_channel::{convert, farewell, host_facts};
use haul_copy::asked_for::AskedFor;
use haul_kept::faults;
use haul_kept::sync::lock;
use haul_reach::dial_threads::DialThreadsOwner;
use haul_reach::lane_plan::{Keeper, LaneRecord};
use haul_reach::lane_rendezvous::LaneRendezvous;
use haul_reach::paths::{PeerAddresses, first_way};
use haul_reach::remote::{self, Assignment, Remote};
use haul_reach::{connect, lane_door};

const DIAL_TIMEOUT_MS: u32 = 3_000;

const ANSWER_TIMEOUT: Duration = Duration::from_secs(8);

/// Each event may take 3 MiB (`MAX_BATCH_ITEMS`); others wait at their channels.
const MERGED_EVENTS: usize = 8;

/// Shorter than the sender's shortest limit: `--timeout` counts seconds.
const DELETIONS_EVERY: Duration = Duration::from_millis(500);

pub(crate) fn run(order: Order<'_>, source: &Far, target: &Far) -> Result<Ends, Error> {
    let Order { job, surroundings, watch, hash_kept } = order;
    let reach = |place| connect::connect(place, job, surroundings, watch, None, Foreseen::default());
    let (mut sender, mut receiver) = if is_reached_last(source) && !is_reached_last(target) {
        let receiver = reach(target)?;
        (reach(source)?, receiver)
    } else {
        (reach(source)?, reach(target)?)
    };
    let children = [sender.take_child(), receiver.take_child()];
    let result = relay(job, sender, receiver, watch, hash_kept);
    for child in children.into_iter().flatten() {
        child.end();
    }
    result
}

/// A daemon waits a minute for its task. An agent waits while the user types the other host's password, or our program is on
/// its way there.
fn is_reached_last(place: &Far) -> bool {
    match place {
        Far::Haul { .. } => true,
        Far::Ssh { .. } => false,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    Sender,
    Receiver,
}

fn relay(job: &Job, sender: Remote, receiver: Remote, watch: &Arc<Watch>, hash_kept: bool) -> Result<Ends, Error> {
    let asked_for = AskedFor::of(job)?;
    let identity = Arc::new(Identity::generate().map_err(|error| faults::net_error(&error))?);
    let through_here = job.carriage.through_here;
    // A daemon knows us by the login's key, which our lanes prove.
    let key_for = |remote: &Remote, peer: &Remote| match (&remote.identity, through_here) {
        (Some(ours), true) => ours.public(),
        (None, true) => identity.public(),
        (_, false) => peer.key(),
    };
    let cpus = sender.far_end.cpus().min(receiver.far_end.cpus());
    let assigned =
        // The key is mostly the other host's, which may not bring links.
        |peer: &Remote, peer_key, role| {
            let (peer_session, path, links, stays) = (peer.session, None, false, false);
            Assignment { peer_session, peer_key, links, stays, role, path, cpus, others: 0 }
        };
    // The receiver starts first: a sender's list may take longer than a daemon waits.
    let role = Role::Receiver { target: job.target.path.clone() };
    receiver.start(assigned(&sender, key_for(&receiver, &sender), role), job, hash_kept, watch)?;
    let role = Role::Sender { sources: job.source_paths() };
    sender.start(assigned(&receiver, key_for(&sender, &receiver), role), job, hash_kept, watch)?;
    let (source, target) = (sender.place.clone(), receiver.place.clone());
    let hosts = Ends { source: sender.host(), target: receiver.host(), ..Ends::default() };

    let (merged, events) = sync_channel(MERGED_EVENTS);
    let (to_lanes, answers) = sync_channel(4);
    let route = Route {
        identity,
        through_here,
        answers,
        sender: Side::of(&sender, &receiver, job),
        receiver: Side::of(&receiver, &sender, job),
        record: Arc::new(LaneRecord::default()),
        watch: Arc::clone(watch),
        merged: merged.clone(),
    };
    let record = Arc::clone(&route.record);
    let (sender_channel, receiver_channel) = (sender.channel.clone(), receiver.channel.clone());
    let hub = Arc::new(Hub { sender_lanes: Mutex::new(None), receiver_lanes: Mutex::new(None) });
    forward(From::Sender, sender.events, merged.clone())?;
    forward(From::Receiver, receiver.events, merged)?;
    if !job.selection.dry_run {
        let (job, hub) = (job.clone(), Arc::clone(&hub));
        std::thread::Builder::new()
            .name("lanes".into())
            .spawn(move || route.connect(&job, &hub))
            .map_err(|error| Error::new(Fault::FileIo, "cannot start a thread").because(error))?;
    }
    let mut relay = Relay {
        packer: Packer::default(),
        asked_for,
        watch,
        source: &source,
        target: &target,
        sender: sender_channel,
        receiver: receiver_channel,
        to_lanes,
        ends: hosts,
        said_bye: false,
        told_of_deletion: None,
        rate: RateLimit::of(job.carriage.rate_bytes_per_s),
    };
    let timeout_ms = u32::try_from(job.carriage.timeout.as_millis()).unwrap_or(u32::MAX);
    let result = relay.until_bye(&events, Clock::new(timeout_ms));
    match &result {
        Ok(()) => {
            relay.sender.close(farewell::FAREWELL);
            relay.receiver.close(farewell::FAREWELL);
        }
        Err(error) => {
            farewell::abort(&relay.sender, error);
            farewell::abort(&relay.receiver, error);
        }
    }
    let mut ends = relay.ends;
    ends.lane_path = *lock(&record.path);
    ends.cipher = lock(&record.cipher).clone();
    result.map(|()| ends)
}

fn forward(from: From, events: Events, merged: SyncSender<(From, SessionEvent)>) -> Result<(), Error> {
    std::thread::Builder::new()
        .name("relay-events".into())
        .spawn(move || {
            loop {
                let Some(event) = events.next(Duration::from_secs(1)) else { continue };
                let last = matches!(event, SessionEvent::ControlEnded(_));
                if merged.send((from, event)).is_err() || last {
                    return;
                }
            }
        })
        .map(drop)
        .map_err(|error| Error::new(Fault::FileIo, "cannot start a thread").because(error))
}

struct Relay<'a> {
    packer: Packer,
    asked_for: AskedFor,
    watch: &'a Arc<Watch>,
    source: &'a Far,
    target: &'a Far,
    sender: Channel,
    receiver: Channel,
    to_lanes: SyncSender<(From, Control)>,
    ends: Ends,
    said_bye: bool,
    told_of_deletion: Option<Instant>,
    rate: RateLimit,
}

impl Relay<'_> {
    fn until_bye(&mut self, events: &Receiver<(From, SessionEvent)>, mut clock: Clock) -> Result<(), Error> {
        let failure = Failure::default();
        while !self.said_bye {
            for (channel, place) in [(&self.sender, self.source), (&self.receiver, self.target)] {
                clock.check_peer(channel).map_err(|error| Error { far: true, ..error }.at(place))?;
            }
            clock.note_peer(&self.receiver);
            clock.turn(self.watch, &self.sender, &failure)?;
            if let Some(NewLimit(bytes_per_s)) = self.rate.changed(self.watch) {
                self.sender.outbox().send(Control::Rate { bytes_per_s });
            }
            let (from, event) = match events.recv_timeout(TICK) {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Err(channel::ended(None)),
            };
            match event {
                SessionEvent::Control(message) => self.pass_on(from, message)?,
                SessionEvent::ControlEnded(why) => return Err(channel::ended(why)),
                SessionEvent::Lane(LaneEvent::NoMore(error)) => return Err(error),
                SessionEvent::Lane(_) | SessionEvent::Moved(..) | SessionEvent::Wake => {}
            }
        }
        if self.watch.all_settled() {
            Ok(())
        } else {
            Err(Error::new(Fault::Protocol, "the two hosts ended with items open"))
        }
    }

    fn pass_on(&mut self, from: From, message: Control) -> Result<(), Error> {
        match (from, &message) {
            (From::Sender, Control::Items(items)) => {
                for packed in items {
                    self.item(packed.clone())?;
                }
            }
            (From::Sender, Control::Withdraw(withdraw)) => {
                if let Some(packed) = &withdraw.retry {
                    self.item(packed.clone())?;
                }
            }
            (From::Sender, Control::EndOfManifest) => self.watch.on_end_of_manifest(),
            (From::Sender, Control::Counted(counted)) => {
                self.watch.on_counted(*counted);
                return Ok(());
            }
            (From::Receiver, Control::Answers(answers)) => {
                answers.iter().for_each(|answer| self.watch.on_answer(answer.index, &answer.wanted));
            }
            (From::Receiver, Control::Receipts(receipts)) => {
                receipts.iter().try_for_each(|receipt| self.watch.on_receipt(receipt))?;
            }
            (From::Receiver, Control::Outcomes(outcomes)) => {
                outcomes.iter().try_for_each(|outcome| self.watch.on_outcome(outcome))?;
            }
            (From::Receiver, Control::ReadAgain { bytes }) => self.watch.on_read_again(*bytes),
            // The sending host knows whether it sends a single file.
            (From::Receiver, Control::Named(name)) => self.watch.on_name(name)?,
            (From::Receiver, Control::Summary(summary)) => self.ends.receiver = ReceiverSummary::clone(summary),
            (From::Sender, Control::Bye(summary)) => {
                self.ends.sender = SenderSummary::clone(summary);
                self.said_bye = true;
            }
            (_, Control::Notice(notice)) => {
                self.watch.on_notice(notice.clone());
                if from == From::Receiver && matches!(notice, Notice::Deleted { .. }) {
                    self.tell_sender_of_deletion();
                }
                return Ok(());
            }
            (From::Sender, Control::PathNow(path)) => {
                self.watch.on_path(path);
                return Ok(());
            }
            // A receiver at another host waits for the Bye, which this side needs as well.
            (From::Sender, Control::Findings(_)) => return Ok(()),
            // The other host may dial it.
            (_, Control::Addresses(_)) => {}
            (_, Control::Dialled { .. } | Control::DialFailed { .. }) => {
                // The thread that asked may have gone on.
                let _ = self.to_lanes.try_send((from, message));
                return Ok(());
            }
            (_, Control::Abort(abort)) => {
                let place = match from {
                    From::Sender => &self.source,
                    From::Receiver => &self.target,
                };
                return Err(convert::error_of(abort.clone()).at(place));
            }
            (
                From::Sender,
                Control::Begin { .. }
                | Control::LaneLost { .. }
                | Control::PathLost { .. }
                | Control::WantLanes { .. }
                | Control::SmallerSegments { .. }
                | Control::DeleteNothing,
            )
            | (
                From::Receiver,
                Control::Again { .. }
                | Control::Void(_)
                | Control::Repair { .. }
                | Control::Standing(_)
                | Control::SharedRoot(_)
                | Control::LaneLost { .. }
                | Control::PathLost { .. },
            ) => {}
            (_, other) => return Err(faults::unexpected(other)),
        }
        let to = match from {
            From::Sender => &self.receiver,
            From::Receiver => &self.sender,
        };
        to.outbox().send(message);
        Ok(())
    }

    /// Tells the sender of deletions without names: a long one is no standstill.
    fn tell_sender_of_deletion(&mut self) {
        if self.told_of_deletion.is_none_or(|told| told.elapsed() >= DELETIONS_EVERY) {
            self.told_of_deletion = Some(Instant::now());
            self.sender.outbox().send(Control::Notice(Notice::Deleted { path: Vec::new(), is_directory: false }));
        }
    }

    fn item(&mut self, packed: haul_wire::manifest::PackedItem) -> Result<(), Error> {
        let item = self
            .packer
            .unpack(packed)
            .map_err(|fault| Error::new(Fault::Protocol, "the sending host broke the protocol").because(fault))?;
        self.asked_for.check(&item).map_err(|error| Error { far: true, ..error }.at(self.source))?;
        self.watch.on_item(&item)
    }
}

struct Side {
    remote: Arc<RemoteView>,
    candidates: Vec<SocketAddr>,
    channel: Channel,
}

struct RemoteView {
    /// The random names of its end, and of the end that it takes us for when lanes run through here.
    session: [u8; 16],
    peer_session: [u8; 16],
    key: haul_net::PublicKey,
    ciphers: Vec<haul_net::Cipher>,
    identity: Option<Arc<Identity>>,
    our_addresses: Vec<std::net::IpAddr>,
    cpus: u16,
    ssh: Option<(haul_reach::ssh::SshTarget, u16)>,
}

impl Side {
    fn of(remote: &Remote, peer: &Remote, job: &Job) -> Self {
        let view = RemoteView {
            session: remote.session,
            peer_session: peer.session,
            key: remote.key(),
            ciphers: remote::agreed_ciphers(&job.carriage, &remote.far_end),
            identity: remote.identity.clone(),
            our_addresses: remote.our_addresses(),
            cpus: remote.far_end.cpus(),
            ssh: remote.ssh.clone().zip(remote.far_end.relay_port()),
        };
        Self {
            remote: Arc::new(view),
            candidates: remote.candidates(job.carriage.family),
            channel: remote.channel.clone(),
        }
    }

    fn dial(&self, candidates: &[SocketAddr], carriage: &Carriage) {
        let candidates = candidates.iter().copied().map(convert::candidate).collect();
        let (lanes, several_paths) = (carriage.lanes.unwrap_or(0), carriage.paths != AskedPaths::One);
        self.channel.outbox().send(Control::Dial(Dial {
            candidates,
            lanes,
            several_paths,
            timeout_ms: DIAL_TIMEOUT_MS,
        }));
    }
}

struct Route {
    identity: Arc<Identity>,
    through_here: bool,
    answers: Receiver<(From, Control)>,
    sender: Side,
    receiver: Side,
    record: Arc<LaneRecord>,
    watch: Arc<Watch>,
    merged: SyncSender<(From, SessionEvent)>,
}

struct Hub {
    sender_lanes: Mutex<Option<Keeper>>,
    receiver_lanes: Mutex<Option<Keeper>>,
}

impl Route {
    fn connect(self, job: &Job, hub: &Arc<Hub>) {
        let mut reasons = Vec::new();
        if !self.through_here && !job.carriage.lanes_over_ssh {
            let ways = [
                (From::Sender, &self.sender, &self.receiver, LanePath::Direct),
                (From::Receiver, &self.receiver, &self.sender, LanePath::Reversed),
            ];
            for (who, dials, reached, path) in ways {
                dials.dial(&reached.candidates, &job.carriage);
                match self.answer(who) {
                    Ok(lanes) => {
                        *lock(&self.record.cipher) =
                            dials.remote.ciphers.first().map_or_else(String::new, |c| c.name().to_owned());
                        self.tell(path, "the two hosts reach each other");
                        self.watch.set_lanes(lanes);
                        return;
                    }
                    Err(why) => reasons.push(format!("{}: {why}", path.name())),
                }
            }
        }
        let why = if self.through_here { "asked for".to_owned() } else { reasons.join("; ") };
        if let Err(error) = self.through_this_machine(job, hub, &why) {
            let error = error.because(format!("{why}; through here: no way either"));
            let _ = self.merged.send((From::Sender, SessionEvent::Lane(LaneEvent::NoMore(error))));
        }
    }

    fn answer(&self, who: From) -> Result<u16, String> {
        let end = Instant::now() + ANSWER_TIMEOUT;
        loop {
            match self.answers.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok((from, Control::Dialled { lanes, .. })) if from == who => return Ok(lanes),
                Ok((from, Control::DialFailed { why })) if from == who => return Err(why),
                Ok(_) => {}
                Err(_) => return Err("no answer".into()),
            }
        }
    }

    /// We can read the data, as the one who started both ends may anyway.
    fn through_this_machine(&self, job: &Job, hub: &Arc<Hub>, why: &str) -> Result<(), Error> {
        let out = self.lanes_to(&self.sender, job)?;
        let into = self.lanes_to(&self.receiver, job)?;
        *lock(&hub.sender_lanes) = Some(out.keeper.clone());
        *lock(&hub.receiver_lanes) = Some(into.keeper.clone());
        self.tell(LanePath::ThroughHere, why);
        let mut waiting = Waiting { lanes: lanes_between(job), halves: Vec::new() };
        let mut has_joined = false;
        // Ends with the process or with both queues.
        loop {
            let mut progressed = false;
            for (is_out, side) in [(true, &out), (false, &into)] {
                match side.events.next(TICK) {
                    Some(SessionEvent::Lane(LaneEvent::Up(stream, lane))) => {
                        progressed |= waiting.place(lane, is_out, stream)
                    }
                    Some(SessionEvent::Lane(LaneEvent::NoMore(error))) if !has_joined => return Err(error),
                    Some(_) | None => {}
                }
            }
            while let Some((lane, from, to)) = waiting.pair() {
                self.watch.lane_up(0, None);
                if !std::mem::replace(&mut has_joined, true) {
                    *lock(&self.record.cipher) = from.cipher_name().to_owned();
                }
                let (mut out_keeper, mut into_keeper) = (out.keeper.clone(), into.keeper.clone());
                let watch = Arc::clone(&self.watch);
                let started = std::thread::Builder::new().name(format!("relay-{lane}")).spawn(move || {
                    let carried = pump(from, to);
                    watch.lane_down(0);
                    if carried.is_err() {
                        out_keeper.lane_lost(lane);
                        into_keeper.lane_lost(lane);
                    }
                });
                started.map_err(|error| Error::new(Fault::FileIo, "cannot start a thread").because(error))?;
            }
            if !progressed && Arc::strong_count(hub) == 1 {
                return Ok(());
            }
        }
    }

    fn lanes_to(&self, side: &Side, job: &Job) -> Result<RelayedLanes, Error> {
        let events = Events::new();
        // Both sides need the same number, so it is fixed before either path is known.
        let carriage = wire::Carriage { lanes: Some(lanes_between(job)), ..convert::carriage(job, &[]) };
        let (view, dial_owner) = (&side.remote, DialThreadsOwner::new());
        let identity = view.identity.as_ref().unwrap_or(&self.identity);
        side.channel.outbox().send(Control::Admit { key: identity.public().0 });
        let rendezvous = Arc::new(LaneRendezvous::default());
        let door =
            lane_door::open_door(identity, &rendezvous, job.carriage.port_range, dial_owner.threads().policies());
        let expecting =
            rendezvous.expect(view.peer_session, view.key, events.sender(), convert::wanted(&carriage), false)?;
        let terms = haul_reach::lane_terms::LaneTerms {
            first_mark: None,
            session: view.session,
            identity: Arc::clone(identity),
            peer_key: view.key,
            ciphers: view.ciphers.clone(),
            carriage,
            way: first_way(&job.carriage),
            memory: None,
            foreseen: Foreseen::default(),
            events: events.sender(),
            dial_threads: dial_owner.threads(),
        };
        let (_to_plan, answers) = sync_channel(1);
        let plan = haul_reach::lane_plan::LanePlan {
            terms,
            cpus: host_facts::cpus().min(view.cpus),
            candidates: side.candidates.clone(),
            own_addresses: view.our_addresses.clone(),
            own_port: None,
            answers,
            channel: side.channel.clone(),
            over_ssh: view.ssh.clone().map(|(target, port)| haul_reach::ssh::SshLanes {
                target,
                port,
                watch: Arc::clone(&self.watch),
            }),
            only_over_ssh: job.carriage.lanes_over_ssh,
            asked: AskedPaths::One,
            family: None,
            peer: PeerAddresses::default(),
            record: Arc::new(LaneRecord::default()),
            watch: Arc::new(Watch::silent()),
            paths_max: 1,
            early: None,
            presumed: None,
        };
        let keeper = plan.start();
        Ok(RelayedLanes { events, keeper, _door: door, _expecting: expecting, _dial_owner: dial_owner })
    }

    fn tell(&self, path: LanePath, reason: &str) {
        *lock(&self.record.path) = Some(path);
        let choice = path.name().to_owned();
        self.watch.tell(&Event::Chose { what: Subject::LanePath, choice, reason: reason.to_owned() });
    }
}

const RELAYED_LANES: u16 = 4;

fn lanes_between(job: &Job) -> u16 {
    job.carriage.lanes.unwrap_or(RELAYED_LANES)
}

struct RelayedLanes {
    events: Events,
    keeper: Keeper,
    _door: Option<haul_net::Door>,
    _expecting: haul_reach::lane_rendezvous::Expecting,
    /// The owner is dropped after the events, for which its threads may wait.
    _dial_owner: DialThreadsOwner,
}

/// Each lane waits for that of the same number to the other host.
struct Waiting {
    lanes: u16,
    halves: Vec<(u16, Option<Stream>, Option<Stream>)>,
}

impl Waiting {
    /// Returns false for a lane that was not asked for: it would wait here for ever, with its descriptor.
    fn place(&mut self, lane: u16, is_out: bool, stream: Stream) -> bool {
        if lane >= self.lanes {
            return false;
        }
        let at = self.halves.iter().position(|(number, ..)| *number == lane).unwrap_or_else(|| {
            self.halves.push((lane, None, None));
            self.halves.len() - 1
        });
        let slot = if is_out { &mut self.halves[at].1 } else { &mut self.halves[at].2 };
        *slot = Some(stream);
        true
    }

    fn pair(&mut self) -> Option<(u16, Stream, Stream)> {
        let at = self.halves.iter().position(|(_, from, to)| from.is_some() && to.is_some())?;
        let (lane, from, to) = self.halves.swap_remove(at);
        from.zip(to).map(|(from, to)| (lane, from, to))
    }
}

fn pump(mut from: Stream, mut to: Stream) -> io::Result<()> {
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        let read = from.read(&mut block)?;
        if read == 0 {
            return to.finish_write();
        }
        to.write_all(&block[..read])?;
        if !from.has_input() {
            to.flush()?;
        }
    }
}

#[cfg(test)]
#[path = "../tests/unit/relay.rs"]
mod tests;
