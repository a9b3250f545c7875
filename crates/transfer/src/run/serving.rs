//! The far side of a session: takes its role from the initiator and carries it out.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use haul_engine::remedy::Asked;
use haul_job::{AskedPaths, Error, Fault};
use haul_net::{Identity, PublicKey, Stream, Way};
use haul_store::{FileList, FileListBuilder, printable};
use haul_wire::control::{self as wire, AgentHello, Control, Dial, Role, Start};
use haul_wire::limits::{MAX_LANES, MAX_LISTED_BYTES};

use crate::faults;
use crate::kept::surroundings::Surroundings;
use crate::reach::attach::{self, LinkDialler};
use crate::reach::crew::Lead;
use crate::reach::dialler::{Dialler, Further};
use crate::reach::lane_terms::LaneTerms;
use crate::reach::paths::{Bringer, PathSet, PeerAddresses, own_addresses, tell_changes};
use crate::run::probe;
use crate::session::channel::{self, Channel, Events, PING_EVERY, SessionEvent};
use crate::session::clock::{START_DEADLINE, TICK};
use crate::session::foreseen::Foreseen;
use crate::session::grant::{Grant, Visit};
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// For other hosts; 0 when there is none that they may use.
    pub open: u16,
    /// For ssh sessions on this host; 0 when there is none.
    pub relay: u16,
}

/// What the far side says about itself.
pub(crate) fn hello(identity: &Identity, ports: Ports, grant: &Grant, surroundings: &Surroundings) -> AgentHello {
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
        addresses: own_addresses(),
        ssh_server,
        ssh_client,
        cpus: cpus(),
        limits: convert::host_limits(haul_net::host::limits()),
        fast_aes: haul_net::preferred_ciphers(None).first() == Some(&haul_net::Cipher::Aes128Gcm),
    }
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
    // First: the threads of the session inherit it.
    let entered = rights::enter(grant, visit.as_deref());
    let events = Events::new();
    let channel = Channel::open(stream, events.sender(), PING_EVERY)
        .map_err(|error| Error::new(Fault::Protocol, "cannot open the control channel").because(error))?;
    channel.outbox().send(Control::AgentHello(hello(identity, ports, grant, surroundings)));
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
        session: start.peer_session,
        identity: Arc::clone(identity),
        peer_key: PublicKey(start.peer_key),
        ciphers,
        carriage: start.carriage.clone(),
        way: Way::default(),
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
    let watch = Arc::new(visit.clone().map_or_else(Watch::silent, |visit| Watch::serving(visit)));
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
    let of_daemon = grant.is_of_daemon();
    let mut aside = |message: Control| match message {
        Control::Dial(request) if dials < MAX_DIALS => {
            dials += 1;
            let (terms, paths, links) = (terms.clone(), Arc::clone(&paths), Arc::clone(&links));
            let (peer, channel) = (peer.clone(), channel.clone());
            let started = lead.crew().start("dial".into(), move || {
                let dialler = FarDialler {
                    terms: &terms,
                    paths: &paths,
                    links: &links,
                    peer: &peer,
                    channel: &channel,
                    of_daemon,
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
    tell_changes(&lead.crew(), channel.outbox());
    let wiring = Wiring { events, channel: &channel, watch: &watch, keeper: &mut keeper, aside: &mut aside };
    run_role(start, grant, surroundings, visit.as_deref(), wiring)
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

fn run_role(
    start: Start,
    grant: &Grant,
    surroundings: &Surroundings,
    visit: Option<&dyn Visit>,
    wiring: Wiring<'_>,
) -> Result<(), Error> {
    let Start { role, selection, carriage, .. } = start;
    let (channel, watch) = (wiring.channel, wiring.watch);
    let result = match role {
        Role::Sender { sources } => {
            let confine = grant.root.clone();
            let sources = Sources::Paths(sources);
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
                selection,
                carriage,
            };
            sender::run(job, wiring)
        }
        Role::Receiver { .. } | Role::Mover { .. } if grant.read_only => {
            let error = Error::new(Fault::Authentication, "the daemon lets this key only read")
                .try_this("ask its operator for `rw` beside your key");
            farewell::abort(channel, &error);
            Err(error)
        }
        // A key that may only read may probe both ways, too: what it sends goes nowhere, and its time is bounded.
        Role::Probe { time_ms } => {
            rights::stay_within(&[], false);
            return probe::serve(time_ms, carriage, wiring);
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
                surroundings: surroundings.clone(),
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

/// Who dials for an initiator.
struct FarDialler<'a> {
    terms: &'a LaneTerms,
    /// Keeps what was dialled.
    paths: &'a Mutex<Option<PathSet>>,
    /// Brings the control channel another link.
    links: &'a Mutex<Option<LinkDialler>>,
    channel: &'a Channel,
    /// Where the other end of the lanes may be reached.
    peer: &'a PeerAddresses,
    of_daemon: bool,
}

impl FarDialler<'_> {
    /// Dials for the initiator. A user with an account here could dial anyway. A client of a daemon must not use the daemon to reach
    /// other hosts beyond need, nor learn from its words which ports are open.
    fn answer(&self, request: &Dial) -> Control {
        let candidates: Vec<SocketAddr> = request.candidates.iter().map(convert::socket_addr).collect();
        let mut terms = self.terms.clone();
        let cpus = tuning::cpus_of_smaller(&terms.carriage);
        terms.carriage.lanes = (request.lanes > 0).then_some(request.lanes.min(MAX_LANES));
        let dialler = Arc::new(Dialler::new(terms.clone(), candidates.clone()));
        let timeout = Duration::from_millis(u64::from(request.timeout_ms)).min(MAX_DIAL_TIME);
        let further = if self.of_daemon { Further::OnceProved } else { Further::OnceAnswered };
        let first = Cell::new(None);
        let told = |stream: &Stream, _, _| first.set(LaneAddresses::of(stream).zip(stream.peer_addr()));
        match dialler.bring(cpus, timeout, 1, further, &told) {
            Ok((lanes, rtt_us)) => {
                if let Some((addresses, reached)) = first.get() {
                    let peer = self.peer.clone();
                    peer.know(candidates.iter().map(SocketAddr::ip));
                    let outbox = Arc::clone(self.channel.outbox());
                    *lock(self.links) = Some(LinkDialler::new(terms.clone(), candidates.clone()));
                    let bringer = Bringer {
                        terms,
                        asked: if request.several_paths { AskedPaths::Auto } else { AskedPaths::One },
                        // The candidates are of the family that the user wants.
                        family: None,
                        peer,
                        channel: self.channel.clone(),
                        port: reached.port(),
                        cpus,
                        paths_max: haul_wire::limits::MAX_PATHS,
                        tell: Arc::new(move |notice| outbox.send(Control::Notice(notice))),
                    };
                    *lock(self.paths) = Some(bringer.start(dialler, lanes, addresses));
                }
                Control::Dialled { lanes, rtt_us }
            }
            Err(error) if !self.of_daemon => Control::DialFailed { why: convert::bounded(error) },
            Err(_) => Control::DialFailed { why: "no address could be reached".into() },
        }
    }
}

#[cfg(test)]
mod tests {
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
