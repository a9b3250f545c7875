//! The thread that looks for paths, and dials those that are missing.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use haul_engine::paths::{Asked, LocalAddress, Refusal, Surroundings, Way, candidates};
use haul_job::{Family, Subject};
use haul_net::dial;
use haul_net::interfaces::{NetworkEvent, NetworkWatch};
use haul_wire::control::Notice;
use haul_wire::limits::MAX_CANDIDATES;

use super::ahead::Ahead;
use super::peer_addresses::PeerAddresses;
use super::set::{Due, PathSet, Vain, wake};
use super::ways::{leads, local_addresses, out, way_between};
use crate::reach::attach::greet_link;
use crate::reach::crew::Crew;
use crate::reach::dialler::{Dialler, Further, WAY_TIMEOUT};
use crate::reach::lane_terms::LaneTerms;
use crate::session::channel::{Channel, LinkId, SessionEvent};
use crate::session::convert;
use crate::session::lane_addresses::LaneAddresses;

/// Tells whoever watches, on whichever side that is.
pub(crate) type Tell = Arc<dyn Fn(Notice) + Send + Sync>;

/// The first path of a session, which has lanes.
pub(crate) struct First {
    /// It has dialled them.
    pub(crate) dialler: Arc<Dialler>,
    pub(crate) lanes: u16,
    pub(crate) addresses: LaneAddresses,
    /// Paths that are being dialled together with it.
    pub(crate) ahead: Vec<Ahead>,
}

/// Hears what is no candidate, once for each.
pub(crate) type Refuses = Arc<dyn Fn(&Refusal) + Send + Sync>;

/// What is needed to bring further paths.
pub(crate) struct Bringer {
    pub(crate) terms: LaneTerms,
    pub(crate) asked: Asked,
    /// The only version of IP that may be used.
    pub(crate) family: Option<Family>,
    pub(crate) peer: PeerAddresses,
    /// The control channel, which gets a link on each path.
    pub(crate) channel: Channel,
    /// Where the peer's lanes arrive.
    pub(crate) port: u16,
    /// Of the smaller host.
    pub(crate) cpus: u16,
    /// Most paths to this peer: another has the numbers from here on.
    pub(crate) paths_max: u16,
    pub(crate) tell: Tell,
    pub(crate) refuses: Refuses,
}

/// A host whose changes are not told is looked at this often, and any host this often to be sure.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Addresses come one by one when an interface comes up. After a change this long is waited for more.
const SETTLES: Duration = Duration::from_millis(50);

/// Refusals that are told of one session. A peer may name 64 addresses, and others again and again.
const REFUSED_TOLD_MAX: usize = 2 * MAX_CANDIDATES;

impl Bringer {
    /// Takes the first path over, and those that were dialled together with it, and looks for further ones until the session ends.
    pub(crate) fn start(self, first: First) -> PathSet {
        let First { dialler, lanes, addresses, ahead } = first;
        let way = way_between(addresses, &local_addresses());
        let (wakes, woken) = sync_channel(1);
        let set = PathSet::with_first(way.clone(), dialler, lanes, self.channel.clone(), wakes.clone())
            .at_most(self.paths_max);
        let (same, ahead): (Vec<_>, Vec<_>) = ahead.into_iter().partition(|ahead| ahead.way == way);
        same.iter().for_each(Ahead::give_up);
        ahead.iter().for_each(|ahead| set.adopt(ahead.number, &ahead.way, &ahead.dialler));
        if self.asked != Asked::One && !addresses.peer.is_loopback() {
            let crew = self.terms.crew.clone();
            let for_thread = set.clone();
            // Without a thread the session has one path.
            let _ = crew.start("paths".into(), move || self.run(&for_thread, ahead, &woken, &wakes));
        }
        set
    }

    fn run(self, set: &PathSet, ahead: Vec<Ahead>, woken: &Receiver<()>, wakes: &SyncSender<()>) {
        let bringer = Arc::new(self);
        let mut refused = Refused::default();
        let crew = bringer.terms.crew.clone();
        let at_end = wakes.clone();
        let _ends = crew.on_end(move || wake(&at_end));
        let for_peer = wakes.clone();
        bringer.peer.on_change(move || wake(&for_peer));
        let changed = set.clone();
        on_network_change(&crew, move || changed.try_now(Instant::now()));
        for Ahead { number, way, outcome, .. } in ahead {
            let (bringer, set) = (Arc::clone(&bringer), set.clone());
            let due = Due { number, way };
            let _ = crew.start(format!("path-{number}"), move || {
                let brought = outcome.recv().unwrap_or_else(|_| Err("its thread broke".into()));
                bringer.brought(&set, &due, brought);
            });
        }
        loop {
            Arc::clone(&bringer).look(set, &mut refused);
            let now = Instant::now();
            let wait = set.next_due().map_or(LOOK_EVERY, |due| due.saturating_duration_since(now).min(LOOK_EVERY));
            match woken.recv_timeout(wait.max(SETTLES)) {
                Ok(()) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if bringer.terms.events.is_over() || !crew.pause(SETTLES) {
                return;
            }
        }
    }

    /// Looks what the network is like now, and does what follows from it.
    fn look(self: Arc<Self>, set: &PathSet, refused: &mut Refused) {
        self.look_for_lost(set);
        let locals = local_addresses();
        let has = |way: &Way| locals.iter().any(|local| local.address == way.local && local.interface == way.interface);
        let now = Instant::now();
        let mut remotes = self.peer.get();
        remotes.retain(|remote| self.family.is_none_or(|family| family.has(*remote)));
        let primary = set.up().into_iter().map(|(_, way)| way).next().or_else(|| self.by_routes(&remotes, &locals));
        if let Some(primary) = primary {
            let surroundings = Surroundings { primary: &primary, locals: &locals, remotes: &remotes };
            // What never led anywhere is tried now and then, and does not keep the other addresses of its interface away.
            let in_vain = set.in_vain();
            let is_in_vain = |local: &LocalAddress, remote: IpAddr| {
                let is_it = |way: &Way| way.interface == local.interface && way.local == local.address;
                in_vain.iter().any(|way| is_it(way) && way.remote == remote)
            };
            let is_open = |local: &LocalAddress, remote| !is_in_vain(local, remote) && leads(local, remote);
            let found = candidates(surroundings, &self.asked, &is_open);
            refused.tell_new(found.refused, &self.refuses);
            set.want(std::iter::once(primary.clone()).chain(found.ways).collect(), now);
        }
        for due in set.due(now, has) {
            let (bringer, set) = (Arc::clone(&self), set.clone());
            let _ = self.terms.crew.start(format!("path-{}", due.number), move || bringer.bring(&set, &due));
        }
    }

    /// Looks for paths whose way is gone from this host. A cable that is out for a moment is no reason to give up the only path.
    fn look_for_lost(&self, set: &PathSet) {
        let up = set.up();
        for (number, way) in &up {
            let why = match presence(way) {
                Presence::There => {
                    set.was_there(*number);
                    continue;
                }
                Presence::NoCarrier if up.len() == 1 => continue,
                Presence::NoCarrier => format!("{} is down", way.interface),
                Presence::NoAddress => format!("{} has no address {} any more", way.interface, way.local),
            };
            if set.is_gone(*number) {
                let _ = self.terms.events.try_send(SessionEvent::PathLost { path: *number, why });
            }
        }
    }

    /// While no path stands: the way that the kernel would take now, of which a host that moved may know nothing yet.
    fn by_routes(&self, remotes: &[IpAddr], locals: &[LocalAddress]) -> Option<Way> {
        remotes.iter().find_map(|remote| {
            let local = haul_net::dial::local_address_towards(*remote).ok()?.to_canonical();
            let there = !local.is_loopback() && locals.iter().any(|found| found.address == local);
            there.then(|| way_between(LaneAddresses { local, peer: remote.to_canonical() }, locals))
        })
    }

    fn bring(&self, set: &PathSet, due: &Due) {
        let Due { number, way } = due;
        let there = SocketAddr::new(way.remote, self.port);
        let dialler = Arc::new(Dialler::on_path(self.terms.of_further_path(), *number, self.out(way), vec![there]));
        set.tries(*number, &dialler);
        // At an address where the peer has proved its key, lanes follow as soon as somebody answers. Nobody else is flooded.
        let further = if set.has_reached(way.remote) { Further::OnceAnswered } else { Further::OnceProved };
        let brought = dialler.bring(self.cpus, WAY_TIMEOUT, 1, further, &|_, _, _| {});
        self.brought(set, due, brought.map(|(lanes, _)| lanes));
    }

    /// An attempt on a path has ended, with so many lanes if it was not in vain.
    fn brought(&self, set: &PathSet, due: &Due, brought: Result<u16, impl fmt::Display>) {
        let Due { number, way } = due;
        match brought {
            Ok(lanes) => {
                set.stands(*number, lanes);
                let there = SocketAddr::new(way.remote, self.port);
                set.has_link(*number, self.bring_link(way, there));
                (self.tell)(convert::chose(Subject::Paths, name(*number, way), "it is another way to the far side"));
            }
            Err(error) => {
                if set.failed(*number) == Vain::First {
                    self.tell_vain(way, &error);
                }
            }
        }
    }

    /// Words need not stand still where data does not: the control channel gets a link by this way, too.
    fn bring_link(&self, way: &Way, there: SocketAddr) -> Option<LinkId> {
        let socket =
            dial::dial(&[there], WAY_TIMEOUT, &self.terms.crew.policies(), &self.out(way), self.terms.crew.cancel())
                .ok()?;
        let stream = greet_link(socket, &self.terms).ok()?;
        self.channel.add_link(stream, false)
    }

    fn out(&self, way: &Way) -> haul_net::Way {
        out(way, self.terms.way.protocol)
    }

    /// A way that was asked for is missed; of others few want to know.
    fn tell_vain(&self, way: &Way, why: &dyn fmt::Display) {
        let what = format!("no path by {} from {} to {}", way.interface, way.local, way.remote);
        match self.asked {
            Asked::List(_) => (self.tell)(Notice::Warning { text: format!("{what}: {why}. {}", hint(way)) }),
            Asked::Auto | Asked::One => (self.tell)(convert::chose(Subject::Paths, what, why.to_string())),
        }
    }
}

/// What was refused so far, so that each is told once.
#[derive(Default)]
struct Refused(Vec<Refusal>);

impl Refused {
    fn tell_new(&mut self, refused: Vec<Refusal>, tell: &Refuses) {
        for refusal in refused {
            if self.0.len() < REFUSED_TOLD_MAX && !self.0.contains(&refusal) {
                tell(&refusal);
                self.0.push(refusal);
            }
        }
    }
}

/// `path 1: eth1, 10.0.1.5 to 192.0.2.7`
fn name(number: u16, way: &Way) -> String {
    format!("path {number}: {}, {} to {}", way.interface, way.local, way.remote)
}

/// The usual cause: a host answers by the route that it has for the address of the peer, whichever interface was asked.
fn hint(way: &Way) -> String {
    let Way { interface, local, .. } = way;
    format!(
        "Is there a route by {interface}? ip route add default via GATEWAY dev {interface} table 101; \
         ip rule add from {local} table 101; sysctl net.ipv4.conf.{interface}.rp_filter=2"
    )
}

/// Does this at each change of the network, on a thread of its own, until the session is over.
pub(super) fn on_network_change(crew: &Crew, act: impl Fn() + Send + 'static) {
    let watched = crew.clone();
    // A host that tells of no changes is looked at now and then.
    let _ = crew.start("network-watch".into(), move || {
        let Ok(mut watch) = NetworkWatch::new() else { return };
        loop {
            match watch.wait(None, watched.cancel()) {
                Ok(NetworkEvent::Changed(_)) => act(),
                Ok(NetworkEvent::TimedOut) => {}
                Ok(NetworkEvent::Cancelled) | Err(_) => return,
            }
        }
    });
}

/// What this host still has of a way.
enum Presence {
    There,
    /// The interface is down, or its cable is out.
    NoCarrier,
    /// The address was taken away, or the interface with it.
    NoAddress,
}

/// Also an address on its way out, at which no new connection begins, carries those that it has.
fn presence(way: &Way) -> Presence {
    let Ok(found) = haul_sys::interfaces::interfaces() else { return Presence::There };
    let named = found.iter().find(|interface| interface.name == way.interface);
    match named.filter(|interface| interface.addresses.iter().any(|of| of.ip.to_canonical() == way.local)) {
        None => Presence::NoAddress,
        Some(interface) if interface.up && interface.running => Presence::There,
        Some(_) => Presence::NoCarrier,
    }
}
