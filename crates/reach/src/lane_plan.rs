//! Connects the lanes of a session.
//!
//! Direct -> reversed (the far side connects to us) -> inside further ssh sessions. The first way that works is taken;
//! the report says which. All lanes are TLS 1.3 between keys that travelled over the control channel.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};

use haul_engine::path::QUICK_FROM_US;
use haul_engine::paths::{Asked, Refusal};
use haul_job::{Error, Event, Family, Fault, Job, LanePath, Subject};
use haul_net::{Identity, Stream};
use haul_wire::control::{Carriage, Control, Dial, Notice};
use haul_wire::limits::MAX_PATHS;

use crate::dialler::{Dialler, Further, WAY_TIMEOUT, micros};
use crate::early_lanes::Early;
use crate::lane_terms::{LaneTerms, Memory};
use crate::paths::{self, Bringer, First, PeerAddresses};
use crate::remote::{self, Remote};
use crate::ssh::SshLanes;
use haul_channel::channel::{Channel, LaneEvent, SessionEvent};
use haul_channel::lane_addresses::LaneAddresses;
use haul_channel::lane_threads::LaneKeeper;
use haul_channel::reporter::Watch;
use haul_channel::{convert, host_facts};
use haul_kept::faults;
use haul_kept::hook_words::Outlet;
use haul_kept::sync::lock;

/// Few would guess why the copy is slower.
const THROUGH_SSH: &str = "neither host reaches a port of the other (-v says more): the data goes through ssh, which carries less. To use a range \
                           that a firewall lets through: --port-range FIRST-LAST";

const CIPHER_REASON: &str = "fast on both processors, or asked for";

/// The lanes, for the report.
#[derive(Default)]
pub struct LaneRecord {
    /// The way, once known.
    pub path: Mutex<Option<LanePath>>,
    /// Cipher of the first lane.
    pub cipher: Mutex<String>,
}

/// The initiator's means to get lanes.
pub struct LanePlan {
    /// Agreed terms.
    pub terms: LaneTerms,
    /// Processors of the smaller host.
    pub cpus: u16,
    /// The far side's addresses.
    pub candidates: Vec<SocketAddr>,
    /// Our addresses.
    pub own_addresses: Vec<IpAddr>,
    /// The port that we can open.
    pub own_port: Option<u16>,
    /// Answers about dialling.
    pub answers: Receiver<Control>,
    /// The control channel.
    pub channel: Channel,
    /// Lanes inside ssh.
    pub over_ssh: Option<SshLanes>,
    /// Whether only ssh may carry them.
    pub only_over_ssh: bool,
    /// The user's paths.
    pub asked: Asked,
    /// The only version of IP to use.
    pub family: Option<Family>,
    /// The far side's own addresses.
    pub peer: PeerAddresses,
    /// The record for the report.
    pub record: Arc<LaneRecord>,
    /// Hears which way was taken.
    pub watch: Arc<Watch>,
    /// The most paths.
    pub paths_max: u16,
    /// Lanes that may be here.
    pub early: Option<Early>,
    /// The presumed host.
    pub presumed: Option<Presumed>,
}

/// A host that is dialled with all first lanes at once: a round trip sooner than once it accepted the first.
#[derive(Clone, Copy)]
pub struct Presumed {
    address: SocketAddr,
    rtt_us: u32,
}

impl Presumed {
    /// `None`: the user did not name the address, or the distance is not known.
    fn of(remote: &Remote, terms: &LaneTerms, first: Option<&SocketAddr>) -> Option<Self> {
        let address = *first.filter(|first| remote.is_named(first.ip()))?;
        let known = terms.carriage_towards(&terms.way, address.ip()).path.map(|known| known.rtt_min_us);
        // A login bounds the round trip from above alone, so nearer paths would get too many.
        let by_login = || remote.round_trip_at_most.map(micros).filter(|rtt_us| *rtt_us >= QUICK_FROM_US);
        Some(Self { address, rtt_us: known.or_else(by_login)? })
    }

    fn dial(&self, dialler: &Arc<Dialler>, cpus: u16) -> u16 {
        let (lanes, _) = dialler.terms.first_lanes(&dialler.terms.way, self.address.ip(), self.rtt_us, cpus);
        dialler.dial_more(1..lanes, Some(self.address), WAY_TIMEOUT);
        lanes
    }
}

/// Replaces lost lanes by the way that worked.
#[derive(Clone, Default)]
pub struct Keeper(Arc<Mutex<Option<Box<dyn LaneKeeper>>>>);

impl Keeper {
    fn set(&self, keeper: impl LaneKeeper + 'static) {
        *lock(&self.0) = Some(Box::new(keeper));
    }
}

impl LaneKeeper for Keeper {
    fn lane_lost(&mut self, lane: u16) {
        if let Some(keeper) = lock(&self.0).as_mut() {
            keeper.lane_lost(lane);
        }
    }

    fn want(&mut self, path: u16, lanes: u16) -> bool {
        lock(&self.0).as_mut().is_some_and(|keeper| keeper.want(path, lanes))
    }

    fn shrink(&mut self, path: u16, segment_bytes: u16) -> bool {
        lock(&self.0).as_mut().is_some_and(|keeper| keeper.shrink(path, segment_bytes))
    }

    fn leave_from(&mut self, path: u16, outlet: Outlet, lanes: &[u16]) -> bool {
        lock(&self.0).as_mut().is_some_and(|keeper| keeper.leave_from(path, outlet, lanes))
    }
}

impl LanePlan {
    /// Connects in a thread.
    pub fn start(self) -> Keeper {
        let keeper = Keeper::default();
        let for_thread = keeper.clone();
        let events = self.terms.events.clone();
        let dial_threads = self.terms.dial_threads.clone();
        let started = dial_threads.start("lanes".into(), move || self.connect(&for_thread));
        if let Err(error) = started {
            let error = Error::new(Fault::FileIo, "cannot start a thread").because(error);
            let _ = events.try_send(SessionEvent::Lane(LaneEvent::NoMore(error)));
        }
        keeper
    }

    fn connect(mut self, keeper: &Keeper) {
        let mut reasons = Vec::new();
        if let Some(Ok(brought)) = self.early.take().map(Early::brought) {
            self.tell(LanePath::Direct, brought.cipher, brought.lanes, brought.reason);
            self.keep(keeper, brought.first);
            return;
        }
        if !self.only_over_ssh {
            match self.direct(keeper) {
                Ok(()) => return,
                Err(why) => reasons.push(format!("direct: {why}")),
            }
            match self.reversed() {
                Ok(()) => return,
                Err(why) => reasons.push(format!("reversed: {why}")),
            }
        }
        match self.inside_ssh(keeper, &reasons) {
            Ok(()) => return,
            Err(why) => reasons.push(format!("over ssh: {why}")),
        }
        let error = Error::new(Fault::Network, "no data connection between the two hosts")
            .because(reasons.join("; "))
            .try_this("open a port range in the firewall and name it with --port-range FIRST-LAST");
        let _ = self.terms.events.send(SessionEvent::Lane(LaneEvent::NoMore(error)));
    }

    fn direct(&self, keeper: &Keeper) -> Result<(), String> {
        if self.candidates.is_empty() {
            return Err("the far side cannot listen".into());
        }
        let dialler = Arc::new(Dialler::new(self.terms.clone(), self.candidates.clone()));
        let addresses = Cell::new(None);
        let told = |stream: &Stream, lanes: u16, reason: &'static str| {
            addresses.set(LaneAddresses::of(stream));
            self.tell(LanePath::Direct, stream.cipher_name(), lanes, reason)
        };
        let dialled = self.presumed.map_or(1, |presumed| presumed.dial(&dialler, self.cpus));
        let brought = dialler.bring(self.cpus, WAY_TIMEOUT, dialled, Further::OnceAnswered, &told);
        let (lanes, _) = brought.map_err(|error| {
            // Another way's lanes have the same numbers.
            dialler.give_up();
            error.to_string()
        })?;
        if let Some((presumed, reached)) = self.presumed.zip(addresses.get())
            && presumed.address.ip().to_canonical() != reached.peer
        {
            dialler.dial_more(1..dialled, Some(SocketAddr::new(reached.peer, presumed.address.port())), WAY_TIMEOUT);
        }
        self.keep(keeper, addresses.get().map(|addresses| First { dialler, lanes, addresses, ahead: Vec::new() }));
        Ok(())
    }

    fn keep(&self, keeper: &Keeper, first: Option<First>) {
        let port = self.candidates.first().map(SocketAddr::port);
        let Some((first, port)) = first.zip(port) else { return };
        let (watch, told) = (Arc::clone(&self.watch), Arc::clone(&self.watch));
        let bringer = Bringer {
            terms: self.terms.clone(),
            asked: self.asked.clone(),
            family: self.family,
            peer: self.peer.clone(),
            channel: self.channel.clone(),
            port,
            cpus: self.cpus,
            paths_max: self.paths_max,
            tell: Arc::new(move |notice| watch.on_notice(notice)),
            refuses: Arc::new(move |refusal| told.on_notice(refused(refusal))),
        };
        keeper.set(bringer.start(first));
    }

    fn reversed(&self) -> Result<(), String> {
        let port = self.own_port.ok_or("cannot listen here")?;
        let candidates = self.own_addresses.iter().map(|ip| convert::candidate(SocketAddr::new(*ip, port))).collect();
        let timeout_ms = u32::try_from(WAY_TIMEOUT.as_millis()).expect("seconds");
        let lanes = self.terms.carriage.lanes.unwrap_or(0);
        let several_paths = self.asked != Asked::One;
        self.channel.outbox().send(Control::Dial(Dial { candidates, lanes, several_paths, timeout_ms }));
        match self.answers.recv_timeout(WAY_TIMEOUT * 2) {
            Ok(Control::Dialled { lanes, .. }) => {
                paths::tell_changes(&self.terms.dial_threads, self.channel.outbox(), self.asked.clone());
                let reason = "the far side cannot be reached from here, but reaches us";
                self.tell_path(LanePath::Reversed, reason);
                self.tell_chose(Subject::Lanes, lanes.to_string(), "chosen by the side that connects");
                Ok(())
            }
            Ok(Control::DialFailed { why }) => Err(why),
            Ok(_) | Err(_) => Err("the far side did not answer".into()),
        }
    }

    fn inside_ssh(&self, keeper: &Keeper, reasons: &[String]) -> Result<(), String> {
        let over_ssh = self.over_ssh.clone().ok_or("the far side was not reached over ssh")?;
        let why = if self.only_over_ssh { "asked for".into() } else { reasons.join("; ") };
        let told = |first: &Stream, lanes: u16| {
            self.record_cipher(first.cipher_name());
            self.tell_path(LanePath::Ssh, &why);
            if !self.only_over_ssh {
                self.watch.tell(&Event::Warning { text: THROUGH_SSH.into() });
            }
            self.tell_chose(
                Subject::Lanes,
                lanes.to_string(),
                "each an ssh session of its own, with a window of 2 MiB",
            );
        };
        over_ssh.bring(&self.terms, 0, false, &told).map_err(|error| error.to_string())?;
        keeper.set(over_ssh.keeper(self.terms.clone()));
        Ok(())
    }

    fn tell(&self, path: LanePath, cipher: &'static str, lanes: u16, reason: &str) {
        self.record_cipher(cipher);
        self.tell_path(path, "the far side can be reached from here");
        self.tell_chose(Subject::Lanes, lanes.to_string(), reason);
    }

    fn record_cipher(&self, name: &'static str) {
        *lock(&self.record.cipher) = name.to_owned();
        let clear = self.terms.carriage.clear;
        let reason = if clear { "asked for: everybody on the way can read the data" } else { CIPHER_REASON };
        self.tell_chose(Subject::Cipher, name.to_owned(), reason);
    }

    fn tell_path(&self, path: LanePath, reason: &str) {
        *lock(&self.record.path) = Some(path);
        self.tell_chose(Subject::LanePath, path.name().to_owned(), reason);
    }

    fn tell_chose(&self, what: Subject, choice: String, reason: &str) {
        self.watch.tell(&Event::Chose { what, choice, reason: reason.to_owned() });
    }
}

/// Collects the common terms of lanes.
pub fn lane_terms(
    remote: &Remote,
    job: &Job,
    session: [u8; 16],
    identity: &Arc<Identity>,
    carriage: &Carriage,
    memory: Option<Memory>,
) -> LaneTerms {
    LaneTerms {
        first_mark: None,
        session,
        identity: Arc::clone(identity),
        peer_key: remote.key(),
        ciphers: remote::agreed_ciphers(&job.carriage, &remote.far_end),
        carriage: carriage.clone(),
        way: paths::first_way(&job.carriage),
        memory,
        foreseen: remote.foreseen.clone(),
        events: remote.events.sender(),
        dial_threads: remote.dial_owner.threads(),
    }
}

/// Collects the plan of lanes.
pub fn lane_plan(
    remote: &Remote,
    job: &Job,
    terms: LaneTerms,
    own_port: Option<u16>,
    answers: std::sync::mpsc::Receiver<Control>,
    record: &Arc<LaneRecord>,
    watch: &Arc<Watch>,
) -> LanePlan {
    let candidates = paths::first_candidates(&job.carriage, remote.candidates(job.carriage.family));
    LanePlan {
        presumed: Presumed::of(remote, &terms, candidates.first()),
        terms,
        cpus: host_facts::cpus().min(remote.far_end.cpus()),
        candidates,
        own_addresses: paths::offered(&job.carriage.paths, remote.our_addresses()),
        own_port,
        answers,
        channel: remote.channel.clone(),
        over_ssh: remote.ssh_lanes(watch),
        only_over_ssh: job.carriage.lanes_over_ssh,
        asked: paths::asked(&job.carriage),
        family: job.carriage.family,
        peer: remote.peer_addresses(),
        record: Arc::clone(record),
        watch: Arc::clone(watch),
        paths_max: MAX_PATHS,
        early: None,
    }
}

/// The user misses a requested path; few care about one that the far side names.
fn refused(refusal: &Refusal) -> Notice {
    match refusal {
        Refusal::NotHere(_) | Refusal::NoRemote(_) | Refusal::BeyondLimit(_) => {
            Notice::Warning { text: refusal.to_string() }
        }
        Refusal::NotReachable(_) | Refusal::Ours(_) | Refusal::TooMany(_) => {
            convert::chose(Subject::Paths, refusal.to_string(), "the far side names it")
        }
    }
}

/// Passes answers about dialling to the plan.
pub fn dial_answers() -> (std::sync::mpsc::Receiver<Control>, impl FnMut(Control) -> Result<(), Error>) {
    let (sender, receiver) = sync_channel(1);
    let answered = AtomicBool::new(false);
    let on_other_message = move |message: Control| match message {
        Control::Dialled { .. } | Control::DialFailed { .. } if !answered.swap(true, Ordering::Relaxed) => {
            let _ = sender.try_send(message);
            Ok(())
        }
        other => Err(faults::unexpected(&other)),
    };
    (receiver, on_other_message)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use haul_channel::channel::{Events, PING_EVERY};
    use haul_net::Listener;

    use super::*;
    use crate::dial_threads::DialThreadsOwner;
    use crate::lane_door::{LOOPBACK, open_door_on};
    use crate::lane_rendezvous::LaneRendezvous;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn lanes_that_were_dialled_at_once_where_nobody_listens_follow_the_first_one() {
        let (events, owner, there) = (Events::new(), DialThreadsOwner::new(), Events::new());
        let identity = Arc::new(Identity::generate().unwrap());
        let nobody = LaneTerms::towards_nobody(&events, owner.threads());
        let terms = LaneTerms { peer_key: identity.public(), ..nobody };
        let rendezvous = Arc::new(LaneRendezvous::default());
        let key = terms.identity.public();
        let _expecting = rendezvous.expect(terms.session, key, there.sender(), terms.wanted(), false).unwrap();
        let listener = Listener::bind_to(LOOPBACK).unwrap();
        let port = listener.port();
        let _door = open_door_on(listener, &identity, &rendezvous, owner.threads().policies()).unwrap();
        let (near, _far) = Stream::plain_pair().unwrap();
        let channel = Channel::open(near, events.sender(), PING_EVERY).unwrap();
        let (empty, listening) = (SocketAddr::from(([127, 0, 0, 2], port)), SocketAddr::from(([127, 0, 0, 1], port)));
        let (_, answers) = sync_channel(1);
        let plan = LanePlan {
            terms,
            cpus: 1,
            candidates: vec![empty, listening],
            own_addresses: Vec::new(),
            own_port: None,
            answers,
            channel: channel.clone(),
            over_ssh: None,
            only_over_ssh: false,
            asked: Asked::One,
            family: None,
            peer: PeerAddresses::default(),
            record: Arc::default(),
            watch: Arc::new(Watch::silent()),
            paths_max: 1,
            early: None,
            presumed: Some(Presumed { address: empty, rtt_us: QUICK_FROM_US }),
        };
        let _keeper = plan.start();
        let mut up = BTreeSet::new();
        while up.len() < 32 {
            match events.next(PATIENCE).expect("all lanes come") {
                SessionEvent::Lane(LaneEvent::Up(_, lane)) => assert!(up.insert(lane), "{lane} came twice"),
                SessionEvent::Lane(LaneEvent::NoMore(error)) => panic!("{error:?}"),
                _ => {}
            }
        }
        assert_eq!(up, (0..32).collect());
        channel.close(Duration::ZERO);
    }
}
