//! Connects the lanes of a session.
//!
//! Direct -> reversed (the far side connects to us) -> inside further ssh sessions. The first way that works is taken;
//! the report says which. All lanes are TLS 1.3 between keys that travelled over the control channel.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use haul_engine::path::{AUTO_LANES_MAX, QUICK_FROM_US, QUICK_START_WORTH_BYTES, START_LANES_MAX};
use haul_engine::plan;
use haul_net::{Cipher, Identity, NetError, PublicKey, Stream, dial, policy};
use haul_wire::control::{Carriage, Control, Dial};
use haul_wire::lane::{Hello, LaneHello};
use haul_wire::limits::MAX_LANES;

use crate::channel::{EventSender, Outbox, SessionEvent};
use crate::convert;
use crate::error::{Error, Fault};
use crate::event::Event;
use crate::far::Visit;
use crate::known_paths::{self, Direction};
use crate::sender::early_look::Foreseen;
use crate::session::{self, LaneKeeper};
use crate::ssh::SshLanes;
use crate::tuning;
use crate::watch::Watch;

/// One way is tried this long before the next. A path of 300 ms with one lost SYN (1 s) still gets through.
const WAY_TIMEOUT: Duration = Duration::from_secs(3);

/// Nothing is wrong, but it may be slower, and few would guess why.
const THROUGH_SSH: &str = "neither host reaches a port of the other (-v says more): the data goes through ssh, which carries less. To use a range \
                           that a firewall lets through: --port-range FIRST-LAST";

/// A peer that has not answered by then is at least so far away, and lanes to it need not wait for its answer: they come two thirds of a
/// round trip earlier where it takes 228 ms. From here on a path that is not known begins with 32, or with 64 for a job that sends much.
const FAR_AFTER: Duration = Duration::from_millis(80);

/// A lost lane is dialled again this often before the others have to do without it.
const MAX_REDIALS: u32 = 5;

/// A lane that stood for so long was of use, and its losses are counted anew. Where the receiver reads a large file for minutes, kernels end the
/// lanes that wait for it every 30 s (`USER_TIMEOUT_MS`), and a door that cannot hand them over every 10 s (`HAND_OVER`).
const STOOD: Duration = Duration::from_secs(5);

/// Pause before the first redial; it doubles with each.
const REDIAL_PAUSE: Duration = Duration::from_millis(200);

/// Lanes dialled at the same time: as many as a job begins with, in most cases. A listener bounds the handshakes it has with one host at once, at 128.
const DIALLING_AT_ONCE: u16 = START_LANES_MAX;

/// A lane that finds no room at the door tries again this often: 0.2 + 0.4 + 0.8 s.
const MAX_KNOCKS: u32 = 3;

/// ssh sessions opened at the same time: sshd begins to refuse at ten that are not logged in yet (MaxStartups).
const SSH_AT_ONCE: u16 = 3;

const CIPHER_REASON: &str = "what both processors do well, or asked for";

/// What the lanes of a session have in common.
#[derive(Clone)]
pub(crate) struct LaneTerms {
    /// Random name of the end that lanes are dialled to.
    pub(crate) session: [u8; 16],
    pub(crate) identity: Arc<Identity>,
    pub(crate) peer_key: PublicKey,
    pub(crate) ciphers: Vec<Cipher>,
    /// What was asked of them, and what the initiator knows of the path.
    pub(crate) carriage: Carriage,
    /// The direction in which what earlier jobs found of the path shall be used: of the one to the address that is reached.
    pub(crate) memory: Option<Direction>,
    /// How much will be sent from here.
    pub(crate) foreseen: Foreseen,
    pub(crate) events: EventSender,
    /// Counts for the session, at a far side: it does so until nobody dials any more.
    pub(crate) _visit: Option<Arc<dyn Visit>>,
}

/// When the lanes behind the first are dialled.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Further {
    /// As soon as somebody takes the connection of the first: a round trip or two sooner.
    OnceAnswered,
    /// Once the peer has proved its key on the first: where only a peer says who is to be dialled, and nobody else shall be flooded from here.
    OnceProved,
}

/// How the lanes went, for the report.
#[derive(Default)]
pub(crate) struct LaneRecord {
    pub(crate) path: Mutex<String>,
    pub(crate) cipher: Mutex<String>,
}

/// Brings lanes to one peer by dialling it.
pub(crate) struct Dialler {
    terms: LaneTerms,
    candidates: Mutex<Vec<SocketAddr>>,
    /// When each lane was last connected.
    connected: Arc<Mutex<HashMap<u16, Instant>>>,
    /// Its lanes are not wanted any more.
    is_given_up: Arc<AtomicBool>,
    /// A handshake failed that began with padding: something on the way may not like it.
    padding_failed: Arc<AtomicBool>,
}

impl Dialler {
    pub(crate) fn new(terms: LaneTerms, candidates: Vec<SocketAddr>) -> Self {
        Self {
            terms,
            candidates: Mutex::new(candidates),
            connected: Arc::default(),
            is_given_up: Arc::default(),
            padding_failed: Arc::default(),
        }
    }

    /// Hands a lane over to its session, which may have ended meanwhile.
    fn hand_over(&self, stream: Stream, lane: u16) {
        if !self.is_given_up.load(Ordering::Relaxed) {
            session::lock(&self.connected).insert(lane, Instant::now());
            let _ = self.terms.events.send(SessionEvent::LaneUp(stream, lane));
        }
    }

    /// Connects one lane; returns it with its connect time in microseconds. A candidate where somebody else answers is
    /// dropped; the one that works is remembered. `answered` hears of each that takes a connection, before it has proved who it is.
    fn dial(
        &self,
        lane: u16,
        timeout: Duration,
        answered: &mut dyn FnMut(SocketAddr, u32),
    ) -> Result<(Stream, u32), NetError> {
        let end = Instant::now() + timeout;
        let mut candidates = session::lock(&self.candidates).clone();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let start = Instant::now();
            let socket = dial::dial(&candidates, left, &self.terms.wanted().policies)?;
            let rtt_us = micros(start.elapsed());
            let address = socket.peer_addr().map_err(|cause| NetError::Io { what: "peer address", cause })?;
            answered(address, rtt_us);
            let mut applied = self.terms.wanted().apply(&socket, plan::NEAR_RTT_US);
            let pads = self.pads(rtt_us);
            let greeted = if pads { greet_padded(socket, &self.terms, lane) } else { greet(socket, &self.terms, lane) };
            match greeted {
                Ok(stream) => {
                    *session::lock(&self.candidates) = vec![address];
                    // One lane speaks for all: they are asked for the same.
                    applied.retain(|applied| lane == 0 && applied.falls_short);
                    if !applied.is_empty() {
                        let _ = self.terms.events.send(SessionEvent::FallsShort(applied));
                    }
                    return Ok((stream, rtt_us));
                }
                Err(error) => {
                    self.padding_failed.fetch_or(pads, Ordering::Relaxed);
                    candidates.retain(|candidate| *candidate != address);
                    if candidates.is_empty() || Instant::now() >= end {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// What a connection that will send much begins with beyond its words: as much as it may have under way, so that it may have twice as much
    /// under way a round trip sooner.
    fn pads(&self, rtt_us: u32) -> bool {
        rtt_us >= QUICK_FROM_US && self.terms.sends_much() && !self.padding_failed.load(Ordering::Relaxed)
    }

    /// Connects the first lane and, once its connect time says how far the path is, as many more as that needs, all at once. Those
    /// below `dialled` are on their way already. Returns the number of all and the RTT.
    pub(crate) fn bring(
        self: &Arc<Self>,
        cpus: u16,
        timeout: Duration,
        dialled: u16,
        further: Further,
        told: &dyn Fn(&Stream, u16, &'static str),
    ) -> Result<(u16, u32), NetError> {
        let mut advice = (dialled, "");
        let (first, rtt_us) = self.dial(0, timeout, &mut |address, rtt_us| {
            advice = self.terms.first_lanes(address.ip(), rtt_us, cpus);
            if further == Further::OnceAnswered {
                // Where somebody else answers, they find that out like the first.
                self.dial_more(dialled..advice.0, Some(address), timeout);
            }
        })?;
        if further == Further::OnceProved {
            self.dial_more(dialled..advice.0, None, timeout);
        }
        told(&first, advice.0, advice.1);
        self.hand_over(first, 0);
        Ok((advice.0.max(dialled), rtt_us))
    }

    /// Connects one lane, again when the door closes at once: it has so many handshakes with one host, and several jobs may begin together.
    fn dial_patiently(&self, lane: u16, timeout: Duration) -> Result<Stream, NetError> {
        let mut tries = 0;
        loop {
            match self.dial(lane, timeout, &mut |_, _| {}) {
                Err(NetError::HungUp) if tries < MAX_KNOCKS && !self.terms.events.is_over() => {
                    // Backing off is waiting by the clock on purpose.
                    std::thread::sleep(REDIAL_PAUSE * 2u32.pow(tries));
                    tries += 1;
                }
                outcome => return outcome.map(|(stream, _)| stream),
            }
        }
    }

    /// Connects these lanes, some at a time, to `address` or whatever works. Without some of them the job has some lanes less.
    fn dial_more(self: &Arc<Self>, lanes: Range<u16>, address: Option<SocketAddr>, timeout: Duration) {
        let dialler = match address {
            Some(address) => Arc::new(Self {
                terms: self.terms.clone(),
                candidates: Mutex::new(vec![address]),
                connected: Arc::clone(&self.connected),
                is_given_up: Arc::clone(&self.is_given_up),
                padding_failed: Arc::clone(&self.padding_failed),
            }),
            None => Arc::clone(self),
        };
        for first in lanes.clone().take(usize::from(DIALLING_AT_ONCE)) {
            let (dialler, end) = (Arc::clone(&dialler), lanes.end);
            let _ = std::thread::Builder::new().name(format!("dial-{first}")).spawn(move || {
                for lane in (first..end).step_by(usize::from(DIALLING_AT_ONCE)) {
                    if dialler.terms.events.is_over() {
                        return;
                    }
                    if let Ok(stream) = dialler.dial_patiently(lane, timeout) {
                        dialler.hand_over(stream, lane);
                    }
                }
            });
        }
    }
}

impl LaneTerms {
    /// What was asked for, with what is known of the path to this address.
    fn carriage_towards(&self, peer: IpAddr) -> Carriage {
        let known = self.memory.and_then(|direction| known_paths::find_towards(peer, direction));
        Carriage { path: known.or_else(|| self.carriage.path.clone()), ..self.carriage.clone() }
    }

    fn first_lanes(&self, peer: IpAddr, rtt_us: u32, cpus: u16) -> (u16, &'static str) {
        tuning::first_lanes(&self.carriage_towards(peer), &self.foreseen, rtt_us, cpus)
    }

    /// What is to be sent from here is worth a quick start.
    fn sends_much(&self) -> bool {
        self.memory == Some(Direction::To) && self.foreseen.bytes() >= QUICK_START_WORTH_BYTES
    }

    /// The peer's key, and no other.
    fn admits(&self) -> impl Fn(&PublicKey) -> bool + Send + Sync + use<> {
        let expected = self.peer_key;
        move |key| *key == expected
    }

    /// What every connection is tuned to.
    fn wanted(&self) -> policy::Wanted {
        convert::wanted(&self.carriage)
    }
}

/// Shakes hands and says which lane of which session this is.
pub(crate) fn greet(
    transport: impl Into<haul_net::Transport>,
    terms: &LaneTerms,
    lane: u16,
) -> Result<Stream, NetError> {
    let (stream, _) = haul_net::client(transport, &terms.identity, terms.admits(), &terms.ciphers)?;
    introduce(stream, terms, lane)
}

/// [`greet`], with a first flight that fills the window.
fn greet_padded(socket: TcpStream, terms: &LaneTerms, lane: u16) -> Result<Stream, NetError> {
    let (stream, _) = haul_net::client_padded(socket, &terms.identity, terms.admits(), &terms.ciphers)?;
    introduce(stream, terms, lane)
}

fn introduce(mut stream: Stream, terms: &LaneTerms, lane: u16) -> Result<Stream, NetError> {
    let hello = Hello::Lane(LaneHello { session: terms.session, lane });
    let said = stream.write_all(&hello.encode()).and_then(|()| stream.flush());
    said.map_err(|cause| NetError::Io { what: "cannot greet", cause })?;
    if terms.carriage.clear {
        return stream.into_clear().map_err(|cause| NetError::Io { what: "cannot go on in the clear", cause });
    }
    Ok(stream)
}

/// Dials a lane again when it was lost, and further lanes when they would be of use.
pub(crate) struct Redialler {
    dialler: Arc<Dialler>,
    /// Lanes that were ever asked for.
    lanes: u16,
    losses: Arc<Mutex<Losses>>,
}

/// How often each lane was lost since it last stood.
#[derive(Default)]
struct Losses(HashMap<u16, u32>);

impl Losses {
    /// A lane was lost that had stood for so long: the pause before it is dialled again, if it is.
    fn pause_after(&mut self, lane: u16, stood: Duration) -> Option<Duration> {
        let losses = self.0.entry(lane).or_insert(0);
        if stood >= STOOD {
            *losses = 0;
        }
        *losses += 1;
        (*losses <= MAX_REDIALS).then(|| REDIAL_PAUSE * 2u32.pow(*losses - 1))
    }
}

impl Redialler {
    /// `lanes` were dialled.
    pub(crate) fn new(dialler: Arc<Dialler>, lanes: u16) -> Self {
        Self { dialler, lanes, losses: Arc::default() }
    }
}

impl LaneKeeper for Redialler {
    fn lane_lost(&mut self, lane: u16) {
        let connected = session::lock(&self.dialler.connected).remove(&lane);
        let stood = connected.map_or(Duration::ZERO, |connected| connected.elapsed());
        let mut pause = session::lock(&self.losses).pause_after(lane, stood);
        let (dialler, losses) = (Arc::clone(&self.dialler), Arc::clone(&self.losses));
        let _ = std::thread::Builder::new().name(format!("redial-{lane}")).spawn(move || {
            while let Some(before_it) = pause {
                // Backing off is waiting by the clock on purpose.
                std::thread::sleep(before_it);
                if dialler.terms.events.is_over() {
                    return;
                }
                match dialler.dial_patiently(lane, WAY_TIMEOUT) {
                    Ok(stream) => return dialler.hand_over(stream, lane),
                    // Nobody else would hear that there is no such lane yet.
                    Err(_) => pause = session::lock(&losses).pause_after(lane, Duration::ZERO),
                }
            }
        });
    }

    fn want(&mut self, lanes: u16) -> bool {
        // The peer, who may ask too, opens no more here than the user allows, or we ever would.
        let lanes = lanes.min(self.dialler.terms.carriage.lanes.unwrap_or(AUTO_LANES_MAX));
        if lanes > self.lanes {
            self.dialler.dial_more(self.lanes..lanes, None, WAY_TIMEOUT);
            self.lanes = lanes;
        }
        true
    }
}

/// Lanes to a daemon, on their way while its control channel is still being set up. On 1 Gbit/s x 228 ms that is three round trips, half a
/// second in which nothing else would move. The daemon lets them wait for the session that they name.
///
/// A path that is remembered as a far one gets its lanes at once. Any other shows how far it is at least by how late the control channel's
/// first answer is.
pub(crate) struct Early {
    outcome: Receiver<Result<Brought, String>>,
    /// Tells the thread, as long as it has dialled nobody, where the daemon was reached, and after how many microseconds.
    reached: SyncSender<(SocketAddr, u32)>,
    dialler: Arc<Dialler>,
    presumed: SocketAddr,
    cpus: u16,
}

struct Brought {
    dialler: Arc<Dialler>,
    dialled: u16,
    /// So many of them are to carry.
    lanes: u16,
    reason: &'static str,
    cipher: &'static str,
}

impl Early {
    /// For a daemon that is about to be reached at `presumed`. `None` without a thread: then the lanes follow later.
    pub(crate) fn start(terms: LaneTerms, presumed: SocketAddr, cpus: u16) -> Option<Self> {
        let (sender, outcome) = sync_channel(1);
        let (reached, answer) = sync_channel(1);
        let dialler = Arc::new(Dialler::new(terms, vec![presumed]));
        let for_thread = Arc::clone(&dialler);
        let started = std::thread::Builder::new().name("early-lanes".into()).spawn(move || {
            // The session may have failed meanwhile.
            let _ = sender.send(Self::bring(for_thread, presumed, cpus, &answer));
        });
        started.is_ok().then_some(Self { outcome, reached, dialler, presumed, cpus })
    }

    fn bring(
        dialler: Arc<Dialler>,
        presumed: SocketAddr,
        cpus: u16,
        answer: &Receiver<(SocketAddr, u32)>,
    ) -> Result<Brought, String> {
        let carriage = dialler.terms.carriage_towards(presumed.ip());
        let rtt_us = match &carriage.path {
            Some(known) => known.rtt_min_us,
            None => match answer.recv_timeout(FAR_AFTER) {
                Ok((_, rtt_us)) => rtt_us,
                // Should it be nearer, some of them rest: handshakes are nothing beside so much data.
                Err(RecvTimeoutError::Timeout) if dialler.terms.sends_much() => QUICK_FROM_US,
                Err(RecvTimeoutError::Timeout) => micros(FAR_AFTER),
                Err(RecvTimeoutError::Disconnected) => return Err("they are not needed".into()),
            },
        };
        let (dialled, _) = dialler.terms.first_lanes(presumed.ip(), rtt_us, cpus);
        dialler.dial_more(1..dialled, None, WAY_TIMEOUT);
        let told = RefCell::new(("", 0, ""));
        let brought = dialler.bring(cpus, WAY_TIMEOUT, dialled, Further::OnceAnswered, &|stream, lanes, reason| {
            *told.borrow_mut() = (stream.cipher_name(), lanes, reason);
        });
        let (cipher, lanes, reason) = told.into_inner();
        let (dialled, _) = brought.map_err(|error| error.to_string())?;
        Ok(Brought { dialler, dialled, lanes, reason, cipher })
    }

    /// The daemon was reached, after so long. `None`: it is near, and its lanes can wait until it has said who it is.
    pub(crate) fn reached(self, address: SocketAddr, after: Duration) -> Option<Self> {
        if after < Duration::from_micros(u64::from(plan::NEAR_RTT_US)) {
            self.give_up();
            return None;
        }
        let early = if address == self.presumed {
            self
        } else {
            self.give_up();
            Self::start(self.dialler.terms.clone(), address, self.cpus)?
        };
        // It may not have waited for that.
        let _ = early.reached.try_send((address, micros(after)));
        Some(early)
    }

    fn give_up(&self) {
        self.dialler.is_given_up.store(true, Ordering::Relaxed);
    }

    fn brought(self) -> Result<Brought, String> {
        self.outcome.recv().unwrap_or_else(|_| Err("its thread broke".into()))
    }
}

fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

/// Everything the initiator needs to get lanes to one far side.
pub(crate) struct LanePlan {
    pub(crate) terms: LaneTerms,
    pub(crate) cpus: u16,
    /// Where the far side may be reached.
    pub(crate) candidates: Vec<SocketAddr>,
    /// Where it may reach us, once we listen.
    pub(crate) own_addresses: Vec<IpAddr>,
    /// Listening here was prepared on this port.
    pub(crate) own_port: Option<u16>,
    /// Messages of the far side about its dialling.
    pub(crate) answers: Receiver<Control>,
    pub(crate) outbox: Arc<Outbox>,
    /// Lanes inside ssh sessions, when the far side was reached over ssh.
    pub(crate) over_ssh: Option<SshLanes>,
    pub(crate) only_over_ssh: bool,
    pub(crate) record: Arc<LaneRecord>,
    pub(crate) watch: Arc<Watch>,
    /// They may be here already.
    pub(crate) early: Option<Early>,
}

/// Replaces lost lanes by the way that worked; until one did there is nothing to replace.
#[derive(Clone, Default)]
pub(crate) struct Keeper(Arc<Mutex<Option<Box<dyn LaneKeeper>>>>);

impl Keeper {
    fn set(&self, keeper: impl LaneKeeper + 'static) {
        *session::lock(&self.0) = Some(Box::new(keeper));
    }
}

impl LaneKeeper for Keeper {
    fn lane_lost(&mut self, lane: u16) {
        if let Some(keeper) = session::lock(&self.0).as_mut() {
            keeper.lane_lost(lane);
        }
    }

    fn want(&mut self, lanes: u16) -> bool {
        session::lock(&self.0).as_mut().is_some_and(|keeper| keeper.want(lanes))
    }
}

impl LanePlan {
    /// Connects in a thread of its own; the session starts meanwhile.
    pub(crate) fn start(self) -> Keeper {
        let keeper = Keeper::default();
        let for_thread = keeper.clone();
        let events = self.terms.events.clone();
        let started = std::thread::Builder::new().name("lanes".into()).spawn(move || self.connect(&for_thread));
        if let Err(error) = started {
            let error = Error::new(Fault::FileIo, "cannot start a thread").because(error);
            let _ = events.try_send(SessionEvent::NoLanes(error));
        }
        keeper
    }

    fn connect(mut self, keeper: &Keeper) {
        let mut reasons = Vec::new();
        // When they did not get through, the ways are tried one after the other as ever.
        if let Some(Ok(brought)) = self.early.take().map(Early::brought) {
            self.tell("direct", brought.cipher, brought.lanes, brought.reason);
            keeper.set(Redialler::new(brought.dialler, brought.dialled));
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
        let _ = self.terms.events.send(SessionEvent::NoLanes(error));
    }

    fn direct(&self, keeper: &Keeper) -> Result<(), String> {
        if self.candidates.is_empty() {
            return Err("the far side cannot listen".into());
        }
        let dialler = Arc::new(Dialler::new(self.terms.clone(), self.candidates.clone()));
        let told = |stream: &Stream, lanes: u16, reason: &'static str| {
            self.tell("direct", stream.cipher_name(), lanes, reason)
        };
        let brought = dialler.bring(self.cpus, WAY_TIMEOUT, 1, Further::OnceAnswered, &told);
        let (lanes, _) = brought.map_err(|error| error.to_string())?;
        keeper.set(Redialler::new(dialler, lanes));
        Ok(())
    }

    fn reversed(&self) -> Result<(), String> {
        let port = self.own_port.ok_or("cannot listen here")?;
        let candidates = self.own_addresses.iter().map(|ip| convert::candidate(SocketAddr::new(*ip, port))).collect();
        let timeout_ms = u32::try_from(WAY_TIMEOUT.as_millis()).expect("seconds");
        let lanes = self.terms.carriage.lanes.unwrap_or(0);
        self.outbox.send(Control::Dial(Dial { candidates, lanes, timeout_ms }));
        match self.answers.recv_timeout(WAY_TIMEOUT * 2) {
            Ok(Control::Dialled { lanes, .. }) => {
                let reason = "the far side cannot be reached from here, but reaches us";
                self.tell_path("direct, reversed", reason);
                self.tell_chose("lanes", lanes.to_string(), "chosen by the side that connects");
                Ok(())
            }
            Ok(Control::DialFailed { why }) => Err(why),
            Ok(_) | Err(_) => Err("the far side did not answer".into()),
        }
    }

    fn inside_ssh(&self, keeper: &Keeper, reasons: &[String]) -> Result<(), String> {
        let over_ssh = self.over_ssh.clone().ok_or("the far side was not reached over ssh")?;
        let lanes = self.terms.carriage.lanes.unwrap_or(plan::SSH_LANES).clamp(1, MAX_LANES);
        let first = over_ssh.connect(&self.terms, 0, false).map_err(|error| error.to_string())?;
        let why = if self.only_over_ssh { "asked for".into() } else { reasons.join("; ") };
        self.record_cipher(first.cipher_name());
        self.tell_path("ssh", &why);
        if !self.only_over_ssh {
            self.watch.tell(&Event::Warning { text: THROUGH_SSH.into() });
        }
        self.tell_chose("lanes", lanes.to_string(), "each an ssh session of its own, with a window of 2 MiB");
        let _ = self.terms.events.send(SessionEvent::LaneUp(first, 0));
        for first in 1..lanes.min(SSH_AT_ONCE + 1) {
            let (over_ssh, terms) = (over_ssh.clone(), self.terms.clone());
            let _ = std::thread::Builder::new().name(format!("dial-{first}")).spawn(move || {
                for lane in (first..lanes).step_by(usize::from(SSH_AT_ONCE)) {
                    // Nobody is asked for a password again; sshd may limit its sessions. The lanes that are up suffice.
                    let Ok(stream) = over_ssh.connect(&terms, lane, true) else { return };
                    let _ = terms.events.send(SessionEvent::LaneUp(stream, lane));
                }
            });
        }
        keeper.set(over_ssh.keeper(self.terms.clone()));
        Ok(())
    }

    fn tell(&self, path: &str, cipher: &'static str, lanes: u16, reason: &str) {
        self.record_cipher(cipher);
        self.tell_path(path, "the far side can be reached from here");
        self.tell_chose("lanes", lanes.to_string(), reason);
    }

    fn record_cipher(&self, name: &'static str) {
        *session::lock(&self.record.cipher) = name.to_owned();
        let clear = self.terms.carriage.clear;
        let reason = if clear { "asked for: everybody on the way can read the data" } else { CIPHER_REASON };
        self.tell_chose("cipher", name.to_owned(), reason);
    }

    fn tell_path(&self, path: &str, reason: &str) {
        *session::lock(&self.record.path) = path.to_owned();
        self.tell_chose("lane path", path.to_owned(), reason);
    }

    fn tell_chose(&self, what: &'static str, choice: String, reason: &str) {
        self.watch.tell(&Event::Chose { what, choice, reason: reason.to_owned() });
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::channel::Events;

    impl LaneTerms {
        /// Of a session whose peer never shakes hands.
        pub(crate) fn towards_nobody(events: &Events) -> Self {
            Self {
                session: [0; 16],
                identity: Arc::new(Identity::generate().unwrap()),
                peer_key: PublicKey([1; 32]),
                ciphers: haul_net::preferred_ciphers(None),
                carriage: Carriage::default(),
                memory: None,
                foreseen: Foreseen::default(),
                events: events.sender(),
                _visit: None,
            }
        }
    }

    /// The door has no room for a while, or the path is gone: longer than one round of knocks (1.4 s) takes.
    #[test]
    fn a_lost_lane_that_cannot_be_dialled_at_once_is_dialled_again() {
        let door = TcpListener::bind("127.0.0.1:0").unwrap();
        let events = Events::new();
        let terms = LaneTerms::towards_nobody(&events);
        let dialler = Arc::new(Dialler::new(terms, vec![door.local_addr().unwrap()]));
        let (tells, told) = sync_channel(0);
        // Each connection is closed at once.
        std::thread::spawn(move || while tells.send(door.accept().unwrap().1).is_ok() {});
        Redialler::new(dialler, 1).lane_lost(0);
        for knock in 0..2 + MAX_KNOCKS {
            assert!(told.recv_timeout(Duration::from_secs(30)).is_ok(), "knock {knock}");
        }
    }

    #[test]
    fn a_lane_that_stood_is_dialled_again_however_often_it_was_lost() {
        let mut losses = Losses::default();
        let pause = |tries: u32| Some(REDIAL_PAUSE * 2u32.pow(tries));
        for _ in 0..100 {
            assert_eq!(losses.pause_after(0, STOOD), pause(0));
        }
        // One that does not stand is given up, and no other with it.
        for tries in 1..MAX_REDIALS {
            assert_eq!(losses.pause_after(0, STOOD / 2), pause(tries));
        }
        for _ in 0..100 {
            assert_eq!(losses.pause_after(0, STOOD / 2), None);
        }
        assert_eq!(losses.pause_after(1, Duration::ZERO), pause(0));
    }
}
