//! Dials from the far side, for an initiator that accepts no connections.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use haul_engine::paths::{Refusal, is_reachable};
use haul_job::AskedPaths;
use haul_net::Stream;
use haul_wire::control::{Control, Dial};
use haul_wire::limits::{MAX_LANES, MAX_MOVERS, MAX_PATHS};

use haul_channel::channel::Channel;
use haul_channel::convert;
use haul_channel::grant::Visit;
use haul_channel::lane_addresses::LaneAddresses;
use haul_channel::lane_threads::LaneKeeper;
use haul_govern::tuning;
use haul_kept::hook_words::Outlet;
use haul_kept::sync::lock;
use haul_reach::attach::LinkDialler;
use haul_reach::dialler::{Dialler, Further};
use haul_reach::lane_terms::LaneTerms;
use haul_reach::paths::{Bringer, First, PathSet, PeerAddresses};

/// An initiator asks for three seconds. A path of 300 ms that loses each SYN twice needs seven.
const MAX_DIAL_TIME: Duration = Duration::from_secs(10);

/// Brings lost lanes back from a far side that dialled.
pub(crate) struct FarKeeper(pub(super) Arc<Mutex<Option<PathSet>>>);

impl LaneKeeper for FarKeeper {
    fn lane_lost(&mut self, lane: u16) {
        if let Some(paths) = lock(&self.0).as_mut() {
            paths.lane_lost(lane);
        }
    }

    fn want(&mut self, path: u16, lanes: u16) -> bool {
        lock(&self.0).as_mut().is_some_and(|paths| paths.want(path, lanes))
    }

    fn shrink(&mut self, path: u16, segment_bytes: u16) -> bool {
        lock(&self.0).as_mut().is_some_and(|paths| paths.shrink(path, segment_bytes))
    }

    fn leave_from(&mut self, path: u16, outlet: Outlet, lanes: &[u16]) -> bool {
        lock(&self.0).as_mut().is_some_and(|paths| paths.leave_from(path, outlet, lanes))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allowed {
    /// A user has an account here, and could dial anyway.
    User,
    /// A client must not reach other hosts through a daemon beyond need, nor learn open ports. Ports for the daemon's own host
    /// alone are not dialled.
    Client,
    /// A client on the daemon's own host.
    ClientHere,
}

impl Allowed {
    /// Why this address is not dialled, in a list whose first port is `port`.
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

pub(crate) struct FarDialler<'a> {
    pub(crate) terms: &'a LaneTerms,
    pub(crate) allowed: &'a Allowed,
    pub(crate) asked: &'a AskedPaths,
    pub(crate) visit: Option<&'a Arc<dyn Visit>>,
    pub(crate) paths: &'a Mutex<Option<PathSet>>,
    pub(crate) links: &'a Mutex<Option<LinkDialler>>,
    pub(crate) channel: &'a Channel,
    pub(crate) peer: &'a PeerAddresses,
}

impl FarDialler<'_> {
    pub(crate) fn answer(&self, request: &Dial) -> Control {
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
            family: None,
            peer,
            channel: self.channel.clone(),
            port,
            cpus,
            // The last numbers belong to other hosts of this end.
            paths_max: MAX_PATHS - self.terms.carriage.movers.min(MAX_MOVERS),
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
    use super::*;

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
}
