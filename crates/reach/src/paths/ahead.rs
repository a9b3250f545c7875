//! Dials further paths together with the first one: otherwise they come two round trips later, 2.5 MB at 500 Mbit/s x 20 ms.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use haul_engine::paths::{Asked, Surroundings, Way, candidates};
use haul_wire::limits::{MAX_MOVERS, MAX_PATHS};

use super::ways::{leads, local_addresses, out, way_between};
use crate::dialler::{Dialler, Further, WAY_TIMEOUT};
use crate::lane_terms::LaneTerms;
use haul_channel::lane_addresses::LaneAddresses;

/// The wanted paths.
#[derive(Clone)]
pub struct Wish {
    /// The user's wish.
    pub asked: Asked,
    pub(crate) remotes: Vec<IpAddr>,
}

/// A path whose lanes are on their way.
pub struct Ahead {
    pub(super) number: u16,
    pub(super) way: Way,
    pub(super) dialler: Arc<Dialler>,
    pub(super) outcome: Receiver<Result<u16, String>>,
}

/// Higher numbers are for later paths and hosts.
const MOST: u16 = MAX_PATHS - MAX_MOVERS;

impl Ahead {
    /// Dials by each way beside the first path. The user named the far side, so an accepted connection suffices for further
    /// lanes.
    pub fn dial(terms: &LaneTerms, first: LaneAddresses, port: u16, cpus: u16, wish: &Wish) -> Vec<Self> {
        let ways = ways_beside(first, wish).into_iter();
        let one = |(number, way): (u16, Way)| {
            let there = vec![SocketAddr::new(way.remote, port)];
            let out = out(&way, terms.way.protocol);
            let dialler = Arc::new(Dialler::on_path(terms.of_further_path(), number, out, there));
            let (sender, outcome) = sync_channel(1);
            let dials = Arc::clone(&dialler);
            let started = terms.dial_threads.start(format!("path-{number}"), move || {
                let brought = dials.bring(cpus, WAY_TIMEOUT, 1, Further::OnceAnswered, &|_, _, _| {});
                let _ = sender.send(brought.map(|(lanes, _)| lanes).map_err(|error| error.to_string()));
            });
            started.is_ok().then_some(Self { number, way, dialler, outcome })
        };
        (1..MOST).zip(ways).filter_map(one).collect()
    }

    /// Stops: the lanes are not wanted.
    pub fn give_up(&self) {
        self.dialler.give_up();
    }
}

fn ways_beside(first: LaneAddresses, wish: &Wish) -> Vec<Way> {
    let Wish { asked, remotes } = wish;
    if *asked == Asked::One || first.peer.is_loopback() {
        return Vec::new();
    }
    let locals = local_addresses();
    let primary = way_between(first, &locals);
    let surroundings = Surroundings { primary: &primary, locals: &locals, remotes };
    let mut ways = candidates(surroundings, asked, &leads).ways;
    ways.retain(|way| way.remote == primary.remote || remotes.contains(&way.remote));
    ways
}
