//! Looks for paths, and dials those that are missing, on one thread.

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
use crate::attach::greet_link;
use crate::dial_threads::DialThreads;
use crate::dialler::{Dialler, Further, WAY_TIMEOUT};
use crate::lane_terms::LaneTerms;
use haul_channel::channel::{Channel, LaneEvent, LinkId, SessionEvent};
use haul_channel::convert;
use haul_channel::lane_addresses::LaneAddresses;

/// Tells the user of either side.
pub type Tell = Arc<dyn Fn(Notice) + Send + Sync>;

/// The first path, with lanes.
pub struct First {
    /// The dialler.
    pub dialler: Arc<Dialler>,
    /// The lanes.
    pub lanes: u16,
    /// The addresses.
    pub addresses: LaneAddresses,
    /// Paths dialled with it.
    pub ahead: Vec<Ahead>,
}

pub(crate) type Refuses = Arc<dyn Fn(&Refusal) + Send + Sync>;

/// The means to bring paths.
pub struct Bringer {
    /// Agreed terms.
    pub terms: LaneTerms,
    /// The user's paths.
    pub asked: Asked,
    /// The only version of IP to use.
    pub family: Option<Family>,
    /// Addresses of the peer.
    pub peer: PeerAddresses,
    /// The channel, which gets a link on each path.
    pub channel: Channel,
    /// The port of lanes.
    pub port: u16,
    /// Processors of the smaller host.
    pub cpus: u16,
    /// The most paths. Higher numbers belong to other peers.
    pub paths_max: u16,
    /// Hears of paths.
    pub tell: Tell,
    /// Hears of refused addresses.
    pub refuses: Refuses,
}

/// Some hosts report no changes of their network.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Addresses of a new interface come one by one.
const SETTLES: Duration = Duration::from_millis(50);

/// A peer may name 64 addresses, and others again and again.
const REFUSED_TOLD_MAX: usize = 2 * MAX_CANDIDATES;

impl Bringer {
    /// Takes over dialled paths, and looks for others until the session's end.
    pub fn start(self, first: First) -> PathSet {
        let First { dialler, lanes, addresses, ahead } = first;
        let way = way_between(addresses, &local_addresses());
        let (wakes, woken) = sync_channel(1);
        let set = PathSet::with_first(way.clone(), dialler, lanes, self.channel.clone(), wakes.clone())
            .at_most(self.paths_max);
        let (same, ahead): (Vec<_>, Vec<_>) = ahead.into_iter().partition(|ahead| ahead.way == way);
        same.iter().for_each(Ahead::give_up);
        ahead.iter().for_each(|ahead| set.adopt(ahead.number, &ahead.way, &ahead.dialler));
        if self.asked != Asked::One && !addresses.peer.is_loopback() {
            let dial_threads = self.terms.dial_threads.clone();
            let for_thread = set.clone();
            let _ = dial_threads.start("paths".into(), move || self.run(&for_thread, ahead, &woken, &wakes));
        }
        set
    }

    fn run(self, set: &PathSet, ahead: Vec<Ahead>, woken: &Receiver<()>, wakes: &SyncSender<()>) {
        let bringer = Arc::new(self);
        let mut refused = Refused::default();
        let dial_threads = bringer.terms.dial_threads.clone();
        let at_end = wakes.clone();
        let _ends = dial_threads.on_end(move || wake(&at_end));
        let for_peer = wakes.clone();
        bringer.peer.on_change(move || wake(&for_peer));
        let changed = set.clone();
        on_network_change(&dial_threads, move || changed.try_now(Instant::now()));
        for Ahead { number, way, outcome, .. } in ahead {
            let (bringer, set) = (Arc::clone(&bringer), set.clone());
            let due = Due { number, way };
            let _ = dial_threads.start(format!("path-{number}"), move || {
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
            if bringer.terms.events.is_over() || !dial_threads.pause(SETTLES) {
                return;
            }
        }
    }

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
            let _ = self.terms.dial_threads.start(format!("path-{}", due.number), move || bringer.bring(&set, &due));
        }
    }

    /// Reports lost ways. An only path survives a short outage.
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
                let _ = self.terms.events.try_send(SessionEvent::Lane(LaneEvent::PathLost { path: *number, why }));
            }
        }
    }

    /// Finds the kernel's present way: a host that moved may know no other.
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
        // Without a proved key another host may answer, which we must not flood.
        let further = if set.has_reached(way.remote) { Further::OnceAnswered } else { Further::OnceProved };
        let brought = dialler.bring(self.cpus, WAY_TIMEOUT, 1, further, &|_, _, _| {});
        self.brought(set, due, brought.map(|(lanes, _)| lanes));
    }

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

    /// Control messages use it while another path stands still.
    fn bring_link(&self, way: &Way, there: SocketAddr) -> Option<LinkId> {
        let socket = dial::dial(
            &[there],
            WAY_TIMEOUT,
            &self.terms.dial_threads.policies(),
            &self.out(way),
            self.terms.dial_threads.cancel(),
        )
        .ok()?;
        let stream = greet_link(socket, &self.terms).ok()?;
        self.channel.add_link(stream, false)
    }

    fn out(&self, way: &Way) -> haul_net::Way {
        out(way, self.terms.way.protocol)
    }

    fn tell_vain(&self, way: &Way, why: &dyn fmt::Display) {
        let what = format!("no path by {} from {} to {}", way.interface, way.local, way.remote);
        match self.asked {
            Asked::List(_) => (self.tell)(Notice::Warning { text: format!("{what}: {why}. {}", hint(way)) }),
            Asked::Auto | Asked::One => (self.tell)(convert::chose(Subject::Paths, what, why.to_string())),
        }
    }
}

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

fn name(number: u16, way: &Way) -> String {
    format!("path {number}: {}, {} to {}", way.interface, way.local, way.remote)
}

/// Names the usual cause: a host answers by its route, whichever interface received the packet.
fn hint(way: &Way) -> String {
    let Way { interface, local, .. } = way;
    format!(
        "Is there a route by {interface}? ip route add default via GATEWAY dev {interface} table 101; \
         ip rule add from {local} table 101; sysctl net.ipv4.conf.{interface}.rp_filter=2"
    )
}

pub(super) fn on_network_change(dial_threads: &DialThreads, act: impl Fn() + Send + 'static) {
    let watched = dial_threads.clone();
    let _ = dial_threads.start("network-watch".into(), move || {
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

enum Presence {
    There,
    NoCarrier,
    NoAddress,
}

/// A withdrawn address still carries its connections.
fn presence(way: &Way) -> Presence {
    let Ok(found) = haul_sys::interfaces::interfaces() else { return Presence::There };
    let named = found.iter().find(|interface| interface.name == way.interface);
    match named.filter(|interface| interface.addresses.iter().any(|of| of.ip.to_canonical() == way.local)) {
        None => Presence::NoAddress,
        Some(interface) if interface.up && interface.running => Presence::There,
        Some(_) => Presence::NoCarrier,
    }
}
