//! The far side of a session: takes its role from the initiator and carries it out.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use haul_engine::paths::{Refusal, is_reachable};
use haul_engine::remedy::Asked;
use haul_job::{AskedPaths, Error, Fault, Transport};
use haul_net::{Identity, PublicKey, Stream};
use haul_store::{FileList, FileListBuilder, printable};
use haul_wire::control::{self as wire, Address, AgentHello, Control, Dial, Role, Start};
use haul_wire::limits::{MAX_LANES, MAX_LISTED_BYTES, MAX_MOVERS};

use crate::faults;
use crate::kept::class_policy::{Permits, Sending};
use crate::kept::surroundings::Surroundings;
use crate::place;
use crate::reach::attach::{self, LinkDialler};
use crate::reach::crew::Lead;
use crate::reach::dialler::{Dialler, Further};
use crate::reach::lane_terms::LaneTerms;
use crate::reach::paths::{Bringer, First, PathSet, PeerAddresses, own_addresses, tell_changes, way_of};
use crate::run::probe;
use crate::session::channel::{self, Channel, Events, PING_EVERY, SessionEvent};
use crate::session::clock::{START_DEADLINE, TICK};
use crate::session::foreseen::Foreseen;
use crate::session::grant::{Grant, Visit};
use crate::session::hooks::{self, Hooks};
use crate::session::host_facts::cpus;
use crate::session::lane_addresses::LaneAddresses;
use crate::session::lane_threads::LaneKeeper;
use crate::session::movers::Movers;
use crate::session::receiver::{self, ReceiverJob, Target};
use crate::session::reporter::{Ends, Watch};
use crate::session::sender::{self, SenderJob, Sources};
use crate::session::stalls::Progress;
use crate::session::wiring::Wiring;
use crate::session::{convert, farewell, rights, tuning};
use crate::sync::lock;

pub use crate::reach::desk::Desk;

/// The longest that an initiator may have its far side wait for something: a day, the most that our command line takes as `--timeout`. With
/// the 49 days of 32 bits a key could keep a session of a daemon, with all its lanes, for so long without a byte.
const MAX_TIMEOUT_MS: u32 = 24 * 60 * 60 * 1000;

/// The longest that an agent waits for what it is to do. Between two hosts somebody may be thinking about the password of the other one.
const LONGEST_LOGIN: Duration = Duration::from_millis(MAX_TIMEOUT_MS as u64);

/// Each dial takes a thread. An initiator asks at most twice: to reach another host, and to reach itself.
const MAX_DIALS: u32 = 4;

/// And so long at most, though the session be over: an initiator asks for three seconds, and a path of 300 ms on which each SYN is lost twice
/// needs seven.
const MAX_DIAL_TIME: Duration = Duration::from_secs(10);

/// Where the lanes of a far side arrive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// For other hosts; 0 when there is none that they may use.
    pub open: u16,
    /// For ssh sessions on this host; 0 when there is none.
    pub relay: u16,
    /// Which of its addresses the far side names to its peers, and dials from when they ask for it.
    pub paths: AskedPaths,
}

/// What the far side says about itself.
pub(crate) fn hello(identity: &Identity, ports: &Ports, grant: &Grant, surroundings: &Surroundings) -> AgentHello {
    // In a daemon that was started from an ssh session it would be the operator's, and no business of a peer.
    let ssh = surroundings.ssh_connection.as_deref().filter(|_| !grant.is_of_daemon()).unwrap_or_default();
    let mut words = ssh.split(' ');
    let ssh_client = words.next().and_then(|word| word.parse().ok()).map(convert::address);
    let ssh_server = words.nth(1).and_then(|word| word.parse().ok()).map(convert::address);
    AgentHello {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        key: identity.public().0,
        port: ports.open,
        relay_port: ports.relay,
        addresses: named_addresses(&ports.paths),
        ssh_server,
        ssh_client,
        cpus: cpus(),
        limits: convert::host_limits(haul_net::host::limits()),
        fast_aes: haul_net::preferred_ciphers(None).first() == Some(&haul_net::Cipher::Aes128Gcm),
    }
}

/// A far side that shall have one path names no address: its peer knows one.
fn named_addresses(paths: &AskedPaths) -> Vec<Address> {
    if *paths == AskedPaths::One { Vec::new() } else { own_addresses(paths) }
}

/// Serves one initiator on a control channel to its end. Lanes arrive at `desk`, whose listener has `port`.
pub fn serve_control(
    stream: Stream,
    identity: &Arc<Identity>,
    desk: &Arc<Desk>,
    ports: Ports,
    grant: &Grant,
    surroundings: &Surroundings,
    visit: Option<Arc<dyn Visit>>,
) -> Result<(), Error> {
    let awaited = desk.await_session();
    let is_from_here = stream.peer_addr().is_none_or(|peer| peer.ip().to_canonical().is_loopback());
    // What may be asked of networks is read while it can be.
    let sending = Sending { user: grant.user.clone(), key: grant.key };
    let permits = Permits::of(surroundings, sending);
    let hooks = permits.hooks().and_then(|commands| Hooks::begin(&commands, surroundings.state.clone()));
    hooks::give_back_what_is_left(surroundings.state.as_deref());
    let served = Served { surroundings, permits, hooks };
    // First: the threads of the session inherit it.
    let entered = rights::enter(grant, visit.as_deref());
    let events = Events::new();
    let channel = Channel::open(stream, events.sender(), PING_EVERY)
        .map_err(|error| Error::new(Fault::Protocol, "cannot open the control channel").because(error))?;
    channel.outbox().send(Control::AgentHello(hello(identity, &ports, grant, surroundings)));
    let start = match entered.and_then(|()| await_start(&events, &channel, grant.is_of_daemon())) {
        Ok(start) => bounded(start),
        Err(error) => {
            farewell::abort(&channel, &error);
            return Err(error);
        }
    };
    if let Some(visit) = &visit {
        visit.on_role(&start.role);
    }
    if start.carriage.clear && !grant.clear {
        let error = Error::new(Fault::Authentication, "the daemon encrypts all data connections of this key")
            .try_this("leave --cipher none out, or ask its operator for `clear` beside your key");
        farewell::abort(&channel, &error);
        return Err(error);
    }
    let ciphers = convert::ciphers(&start.carriage.ciphers);
    let lead = Lead::new();
    let terms = LaneTerms {
        first_mark: None,
        policies: Arc::default(),
        session: start.peer_session,
        identity: Arc::clone(identity),
        peer_key: PublicKey(start.peer_key),
        ciphers,
        carriage: start.carriage.clone(),
        way: way_of(&ports.paths, Transport::Tcp),
        // What is known of the path is the initiator's to say.
        memory: None,
        foreseen: Foreseen::default(),
        events: events.sender(),
        crew: lead.crew(),
    };
    let (wanted, clear) = (convert::wanted(&terms.carriage), terms.carriage.clear);
    let expecting = desk
        .expect(start.session, terms.peer_key, events.sender(), wanted, clear)
        .inspect_err(|error| farewell::abort(&channel, error))?;
    drop(awaited);
    let paths = Arc::new(Mutex::new(None));
    let peer = PeerAddresses::default();
    let watch = Arc::new(visit.clone().map_or_else(Watch::silent, Watch::serving));
    let links = Arc::new(Mutex::new(None));
    if start.links {
        expecting.takes_links(terms.peer_key, &channel);
        let (links, watch): (Arc<Mutex<Option<LinkDialler>>>, _) = (Arc::clone(&links), Arc::clone(&watch));
        let dialler =
            move || lock(&links).clone().map(|links| links.towards(watch.addresses_of(0).map(|ends| ends.peer)));
        // Without the thread the loss of the channel is the end of the session.
        let _ = attach::keep(&channel, &lead.crew(), dialler);
    }
    let mut dials = 0;
    let mut keeper = FarKeeper(Arc::clone(&paths));
    let allowed = match grant.is_of_daemon() {
        true if is_from_here => Allowed::ClientHere,
        true => Allowed::Client,
        false => Allowed::User,
    };
    let mut aside = |message: Control| match message {
        Control::Dial(request) if dials < MAX_DIALS => {
            dials += 1;
            let (terms, paths, links) = (terms.clone(), Arc::clone(&paths), Arc::clone(&links));
            let (peer, channel, visit) = (peer.clone(), channel.clone(), visit.clone());
            let asked = if request.several_paths { ports.paths.clone() } else { AskedPaths::One };
            let started = lead.crew().start("dial".into(), move || {
                let dialler = FarDialler {
                    terms: &terms,
                    allowed: &allowed,
                    asked: &asked,
                    visit: visit.as_ref(),
                    paths: &paths,
                    links: &links,
                    peer: &peer,
                    channel: &channel,
                };
                channel.outbox().send(dialler.answer(&request));
            });
            started.map_err(|error| Error::new(Fault::FileIo, "cannot start a thread").because(error))
        }
        Control::Addresses(addresses) => {
            peer.tell(&addresses);
            Ok(())
        }
        Control::Admit { key } if expecting.also(PublicKey(key)) => Ok(()),
        other => Err(faults::unexpected(&other)),
    };
    if ports.paths != AskedPaths::One {
        tell_changes(&lead.crew(), channel.outbox(), ports.paths.clone());
    }
    let wiring = Wiring { events, channel: &channel, watch: &watch, keeper: &mut keeper, aside: &mut aside };
    run_role(start, grant, &served, visit.as_deref(), wiring)
}

/// What an initiator asks for, as far as it may.
fn bounded(mut start: Start) -> Start {
    start.carriage.timeout_ms = start.carriage.timeout_ms.min(MAX_TIMEOUT_MS);
    start
}

/// Whether to give up an initiator that has not said what it wants. It was `waited` for, and completely silent for `silence`. An
/// agent ends with its ssh in any case.
fn is_given_up(waited: Duration, silence: Duration, of_daemon: bool) -> bool {
    let longest = if of_daemon { START_DEADLINE } else { LONGEST_LOGIN };
    waited > longest || silence > START_DEADLINE
}

fn await_start(events: &Events, channel: &Channel, of_daemon: bool) -> Result<Start, Error> {
    let begun = Instant::now();
    loop {
        // Often enough to find a silence.
        match events.next(PING_EVERY) {
            Some(SessionEvent::Control(Control::Start(start))) => return Ok(start),
            Some(SessionEvent::Control(Control::Abort(abort))) => return Err(convert::error_of(abort)),
            Some(SessionEvent::Control(other)) => return Err(faults::unexpected(&other)),
            Some(SessionEvent::ControlEnded(why)) => return Err(channel::ended(why)),
            Some(_) | None => {}
        }
        if is_given_up(begun.elapsed(), channel.silence(), of_daemon) {
            return Err(Error::new(Fault::Timeout, "the initiator did not say what it wants"));
        }
    }
}

/// Receives the list of `--files-from`. Other events wait for the session. Fails if next to nothing of the list comes for
/// `limit`.
fn await_list(
    selection: &wire::Selection,
    events: &Events,
    visit: Option<&dyn Visit>,
    limit: Duration,
) -> Result<Option<Arc<FileList>>, Error> {
    if selection.listed == wire::Listed::Nothing {
        return Ok(None);
    }
    let (mut list, mut early) = (FileListBuilder::default(), Vec::new());
    let mut progress = Progress::new(None, Instant::now());
    loop {
        let listed_bytes = u64::try_from(list.weight_bytes()).unwrap_or(u64::MAX);
        if progress.is_stalled(true, listed_bytes, 0, Instant::now(), limit) {
            return Err(Error::new(Fault::Timeout, "the initiator did not say all that it wants"));
        }
        match events.next(TICK) {
            Some(SessionEvent::Control(Control::Listed(paths))) if paths.is_empty() => break,
            Some(SessionEvent::Control(Control::Listed(paths))) => {
                for path in paths {
                    list.add(&path).map_err(|fault| {
                        Error::broke_the_protocol(format!("it lists {}: {fault}", printable(&path)))
                    })?;
                }
                if list.weight_bytes() > MAX_LISTED_BYTES {
                    return Err(Error::broke_the_protocol("it lists more than agreed"));
                }
                if visit.is_some_and(|visit| !visit.on_list(list.weight_bytes())) {
                    return Err(Error::new(Fault::Busy, "the daemon has no room for so long a list of files")
                        .because("other sessions of it hold lists, too")
                        .try_this("copy directories whole, or try again later"));
                }
            }
            Some(SessionEvent::Control(Control::Abort(abort))) => return Err(convert::error_of(abort)),
            Some(SessionEvent::Control(other)) => return Err(faults::unexpected(&other)),
            Some(SessionEvent::ControlEnded(why)) => return Err(channel::ended(why)),
            // One that is too many is closed here, and may be dialled again later.
            Some(event) if early.len() < usize::from(MAX_LANES) => early.push(event),
            Some(_) | None => {}
        }
    }
    events.put_back(early);
    Ok(Some(Arc::new(list.finish(selection.listed == wire::Listed::Trees))))
}

/// Where a far side works, and what it may ask of networks.
struct Served<'a> {
    surroundings: &'a Surroundings,
    permits: Permits,
    hooks: Option<Hooks>,
}

fn run_role(
    start: Start,
    grant: &Grant,
    served: &Served<'_>,
    visit: Option<&dyn Visit>,
    wiring: Wiring<'_>,
) -> Result<(), Error> {
    let Served { surroundings, permits, hooks } = served;
    let (permits, hooks) = (permits.clone(), hooks.clone());
    let Start { role, selection, carriage, .. } = start;
    let (channel, watch) = (wiring.channel, wiring.watch);
    let result = match role {
        Role::Sender { .. } | Role::SourceMover { .. } => {
            let is_mover = matches!(role, Role::SourceMover { .. });
            let (Role::Sender { sources } | Role::SourceMover { sources }) = role else {
                unreachable!("one of the two")
            };
            let confine = grant.root.clone();
            let sources = Sources::Paths(sources);
            // A mover is told each file by its leader.
            let selection = wire::Selection {
                listed: if is_mover { wire::Listed::Nothing } else { selection.listed },
                ..selection
            };
            let listed = await_list(&selection, &wiring.events, visit, START_DEADLINE)
                .inspect_err(|error| farewell::abort(channel, error))?;
            let (expand_globs, remembers, far) = (true, None, true);
            let direct_from_bytes = haul_store::DIRECT_FROM_BYTES;
            let job = SenderJob {
                sources,
                listed,
                confine,
                expand_globs,
                remembers,
                home: surroundings.home.clone(),
                direct_from_bytes,
                far,
                early: None,
                movers: Movers::default(),
                is_mover,
                selection,
                carriage,
                permits,
                hooks,
            };
            if is_mover { sender::mover::run(job, wiring) } else { sender::run(job, wiring) }
        }
        Role::Receiver { .. } | Role::Mover { .. } if grant.read_only => {
            Err(only_reads()).inspect_err(|error| farewell::abort(channel, error))
        }
        Role::Place { question } if grant.read_only && question.writes() => {
            Err(only_reads()).inspect_err(|error| farewell::abort(channel, error))
        }
        Role::Place { question } => {
            return place::serve(&question, carriage.timeout_ms, (grant, surroundings), wiring);
        }
        // A key that may only read may probe both ways, too: what it sends goes nowhere, and its time is bounded.
        Role::Probe { time_ms } => {
            rights::stay_within(&[], false);
            return probe::serve(time_ms, carriage, permits, wiring);
        }
        role @ (Role::Receiver { .. } | Role::Mover { .. }) => {
            let leads = matches!(role, Role::Receiver { .. });
            let (Role::Receiver { target } | Role::Mover { target }) = role else { unreachable!("one of the two") };
            let (target, confine) = (Target::Path(target), grant.root.clone());
            let bounds = receiver::Bounds::default();
            let (asked_for, far) = (None, true);
            let job = ReceiverJob {
                target,
                confine,
                asked_for,
                far,
                selection,
                carriage,
                bounds,
                movers: Movers::default(),
                surroundings: (*surroundings).clone(),
            };
            if leads { receiver::run(job, wiring) } else { receiver::mover::run(job, wiring) }
        }
    };
    match result {
        Ok((sender, receiver)) => {
            watch.report(&Ends { sender, receiver, ..Ends::default() }, Asked::default(), false);
            Ok(())
        }
        Err(error) => {
            watch.tell_progress();
            Err(error)
        }
    }
}

fn only_reads() -> Error {
    Error::new(Fault::Authentication, "the daemon lets this key only read")
        .try_this("ask its operator for `rw` beside your key")
}

/// A far side that dialled brings lost lanes back itself.
struct FarKeeper(Arc<Mutex<Option<PathSet>>>);

impl LaneKeeper for FarKeeper {
    fn lane_lost(&mut self, lane: u16) {
        if let Some(paths) = lock(&self.0).as_mut() {
            paths.lane_lost(lane);
        }
    }

    fn want(&mut self, path: u16, lanes: u16) -> bool {
        lock(&self.0).as_mut().is_some_and(|paths| paths.want(path, lanes))
    }
}

/// Whose words a dial follows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Allowed {
    /// Of a user with an account here, who could dial anyway.
    User,
    /// Of a client of a daemon, which must not use the daemon to reach other hosts beyond need, nor learn from its words which ports
    /// are open. What is open on the daemon's own host for this host alone is not dialled.
    Client,
    /// Of a client of a daemon on the same host.
    ClientHere,
}

impl Allowed {
    /// Why this address is not dialled, of a list that begins with the port `port`.
    fn refusal(self, candidate: SocketAddr, port: u16) -> Option<String> {
        let address = candidate.ip().to_canonical();
        let is_another_host = is_reachable(address) || (self == Allowed::ClientHere && address.is_loopback());
        match self {
            Allowed::User => None,
            Allowed::Client | Allowed::ClientHere if !is_another_host => {
                Some(Refusal::NotReachable(address).to_string())
            }
            Allowed::Client | Allowed::ClientHere => (candidate.port() != port)
                .then(|| format!("{candidate} is not dialled: the lanes of a session have one port, which is {port}")),
        }
    }
}

/// Who dials for an initiator.
struct FarDialler<'a> {
    terms: &'a LaneTerms,
    allowed: &'a Allowed,
    /// Which paths may be used.
    asked: &'a AskedPaths,
    /// Hears of what is refused.
    visit: Option<&'a Arc<dyn Visit>>,
    /// Keeps what was dialled.
    paths: &'a Mutex<Option<PathSet>>,
    /// Brings the control channel another link.
    links: &'a Mutex<Option<LinkDialler>>,
    channel: &'a Channel,
    /// Where the other end of the lanes may be reached.
    peer: &'a PeerAddresses,
}

impl FarDialler<'_> {
    fn answer(&self, request: &Dial) -> Control {
        let candidates = self.allowed(request);
        let mut terms = self.terms.clone();
        let cpus = tuning::cpus_of_smaller(&terms.carriage);
        terms.carriage.lanes = (request.lanes > 0).then_some(request.lanes.min(MAX_LANES));
        let dialler = Arc::new(Dialler::new(terms.clone(), candidates.clone()));
        let timeout = Duration::from_millis(u64::from(request.timeout_ms)).min(MAX_DIAL_TIME);
        let is_user = *self.allowed == Allowed::User;
        let further = if is_user { Further::OnceAnswered } else { Further::OnceProved };
        let first = Cell::new(None);
        let told = |stream: &Stream, _, _| first.set(LaneAddresses::of(stream).zip(stream.peer_addr()));
        match dialler.bring(cpus, timeout, 1, further, &told) {
            Ok((lanes, rtt_us)) => {
                if let Some((addresses, reached)) = first.get() {
                    let peer = self.peer.clone();
                    peer.know(candidates.iter().map(SocketAddr::ip));
                    *lock(self.links) = Some(LinkDialler::new(terms.clone(), candidates.clone()));
                    let bringer = self.bringer(terms, peer, reached.port(), cpus);
                    *lock(self.paths) = Some(bringer.start(First { dialler, lanes, addresses, ahead: Vec::new() }));
                }
                Control::Dialled { lanes, rtt_us }
            }
            Err(error) if is_user => Control::DialFailed { why: convert::bounded(error) },
            Err(_) => Control::DialFailed { why: "no address could be reached".into() },
        }
    }

    /// The addresses of a request that are dialled; the others are told to who watches.
    fn allowed(&self, request: &Dial) -> Vec<SocketAddr> {
        let candidates: Vec<SocketAddr> = request.candidates.iter().map(convert::socket_addr).collect();
        let Some(port) = candidates.first().map(SocketAddr::port) else { return candidates };
        let is_allowed = |candidate: &SocketAddr| {
            let refusal = self.allowed.refusal(*candidate, port);
            if let (Some(why), Some(visit)) = (&refusal, self.visit) {
                visit.on_refused(why);
            }
            refusal.is_none()
        };
        candidates.into_iter().filter(is_allowed).collect()
    }

    fn bringer(&self, terms: LaneTerms, peer: PeerAddresses, port: u16, cpus: u16) -> Bringer {
        let (outbox, visit) = (Arc::clone(self.channel.outbox()), self.visit.cloned());
        Bringer {
            terms,
            asked: self.asked.clone(),
            // The candidates are of the family that the user wants.
            family: None,
            peer,
            channel: self.channel.clone(),
            port,
            cpus,
            // The last ones are those of other hosts of this end.
            paths_max: haul_wire::limits::MAX_PATHS - self.terms.carriage.movers.min(MAX_MOVERS),
            tell: Arc::new(move |notice| outbox.send(Control::Notice(notice))),
            refuses: Arc::new(move |refusal| {
                if let Some(visit) = &visit {
                    visit.on_refused(&refusal.to_string());
                }
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use haul_job::AskedPath;
    use haul_wire::control::{Carriage, Selection};

    use super::*;

    /// Longer than any of this takes on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Says this again and again until a far side that awaits its list ends, and how that was.
    fn ends_while(limit: Duration, say: impl Fn() -> SessionEvent + Send) -> Result<Option<Arc<FileList>>, Error> {
        let events = Events::new();
        let sender = events.sender();
        let selection = Selection { listed: wire::Listed::Paths, ..Selection::default() };
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let begun = Instant::now();
                while sender.send(say()).is_ok() {
                    assert!(begun.elapsed() < PATIENCE, "it listens for ever");
                    std::thread::sleep(limit / 5);
                }
            });
            let result = await_list(&selection, &events, None, limit);
            drop(events);
            result
        })
    }

    #[test]
    fn a_client_of_a_daemon_does_not_reach_what_only_the_host_of_the_daemon_reaches() {
        let refused = |allowed: Allowed, to: &str| allowed.refusal(to.parse().unwrap(), 7).is_some();
        for to in ["127.0.0.1:7", "[::1]:7", "[::ffff:127.0.0.1]:7", "[fe80::1]:7", "224.0.0.1:7", "192.0.2.1:22"] {
            assert!(refused(Allowed::Client, to), "{to}");
            assert!(!refused(Allowed::User, to), "{to}: ssh has an account, who may dial anyway");
        }
        assert!(!refused(Allowed::Client, "192.0.2.1:7") && !refused(Allowed::Client, "[2001:db8::1]:7"));
        assert!(!refused(Allowed::ClientHere, "127.0.0.1:7") && refused(Allowed::ClientHere, "[fe80::1]:7"));
    }

    #[test]
    fn a_far_side_names_the_addresses_that_it_is_set_to() {
        let all = named_addresses(&AskedPaths::Auto);
        assert_eq!(named_addresses(&AskedPaths::One), []);
        let Some(first) = all.first().copied() else { return };
        let list = |path| AskedPaths::List(vec![path]);
        // Where there is nothing but loopback, an address of that is named, which is no interface for paths.
        let of_one = named_addresses(&list(AskedPath::Local(convert::ip(first))));
        assert!(of_one == [first] || convert::ip(first).is_loopback(), "{of_one:?}");
        assert_eq!(named_addresses(&list(AskedPath::Interface("no-such-0".into()))), []);
    }

    fn start(timeout_ms: u32) -> Start {
        let carriage = Carriage { timeout_ms, ..Carriage::default() };
        let role = Role::Receiver { target: Vec::new() };
        Start {
            session: [0; 16],
            peer_session: [1; 16],
            peer_key: [0; 32],
            links: true,
            role,
            selection: Selection::default(),
            carriage,
        }
    }

    #[test]
    fn nobody_keeps_a_far_side_waiting_for_weeks() {
        assert_eq!(bounded(start(u32::MAX)).carriage.timeout_ms, MAX_TIMEOUT_MS);
        assert_eq!(bounded(start(60_000)).carriage.timeout_ms, 60_000);
    }

    #[test]
    fn an_agent_waits_for_a_long_login_at_the_other_host_and_a_daemon_does_not() {
        let check = |waited, silence, of_daemon, expected| {
            let [waited, silence] = [waited, silence].map(Duration::from_secs);
            assert_eq!(is_given_up(waited, silence, of_daemon), expected, "{waited:?} {silence:?} {of_daemon}");
        };
        for of_daemon in [false, true] {
            check(60, 2, of_daemon, false);
            check(61, 61, of_daemon, true);
        }
        check(61, 2, true, true);
        check(3600, 2, false, false);
        check(25 * 3600, 2, false, true);
    }

    #[test]
    fn lanes_that_come_before_the_list_is_told_are_bounded() {
        let events = Events::new();
        let sender = events.sender();
        let selection = Selection { listed: wire::Listed::Paths, ..Selection::default() };
        let brings = std::thread::spawn(move || {
            // What belongs to a lane and takes no descriptor.
            (0..2 * MAX_LANES).for_each(|_| sender.send(SessionEvent::FallsShort(Vec::new())).unwrap());
            sender.send(SessionEvent::Control(Control::Listed(vec![b"data".to_vec()]))).unwrap();
            sender.send(SessionEvent::Control(Control::Listed(Vec::new()))).unwrap();
        });
        assert!(await_list(&selection, &events, None, PATIENCE).unwrap().is_some());
        brings.join().unwrap();
        let kept = std::iter::from_fn(|| events.next(Duration::ZERO)).count();
        assert_eq!(kept, usize::from(MAX_LANES));
    }

    #[test]
    fn a_list_that_does_not_come_is_not_waited_for_whatever_else_does() {
        const LIMIT: Duration = Duration::from_millis(500);
        let error = ends_while(LIMIT, || SessionEvent::FallsShort(Vec::new())).unwrap_err();
        assert_eq!(error.fault, Fault::Timeout, "{error:?}");
        // A name now and then is no list either.
        let error = ends_while(LIMIT, || SessionEvent::Control(Control::Listed(vec![b"x".to_vec()]))).unwrap_err();
        assert_eq!(error.fault, Fault::Timeout, "{error:?}");
    }
}
