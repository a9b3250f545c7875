//! Further paths that are dialled together with the first one.
//!
//! A path that is looked for when the first one stands comes two round trips after it: 40 ms on 20 ms. With 500 Mbit/s that is
//! 2.5 MB that the job sends later.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use haul_engine::paths::{Asked, Surroundings, Way, candidates};
use haul_wire::limits::{MAX_MOVERS, MAX_PATHS};

use super::ways::{leads, local_addresses, out, way_between};
use crate::reach::dialler::{Dialler, Further, WAY_TIMEOUT};
use crate::reach::lane_terms::LaneTerms;
use crate::session::lane_addresses::LaneAddresses;

/// Which paths are wanted.
#[derive(Clone)]
pub(crate) struct Wish {
    /// By the user.
    pub(crate) asked: Asked,
    /// The addresses that the name of the far side has.
    pub(crate) remotes: Vec<IpAddr>,
}

/// A further path whose lanes are on their way.
pub(crate) struct Ahead {
    pub(super) number: u16,
    pub(super) way: Way,
    pub(super) dialler: Arc<Dialler>,
    /// How many lanes it begins with, or why there are none.
    pub(super) outcome: Receiver<Result<u16, String>>,
}

/// Numbers from here on are for paths that are found later, and for further hosts.
const MOST: u16 = MAX_PATHS - MAX_MOVERS;

impl Ahead {
    /// Dials by each way beside the first path, which leads between the addresses `first`. The user named the far side, so its lanes are
    /// dialled as soon as somebody answers there, like those of the first path.
    pub(crate) fn dial(terms: &LaneTerms, first: LaneAddresses, port: u16, cpus: u16, wish: &Wish) -> Vec<Self> {
        let ways = ways_beside(first, wish).into_iter();
        let one = |(number, way): (u16, Way)| {
            let there = vec![SocketAddr::new(way.remote, port)];
            let out = out(&way, terms.way.protocol);
            let dialler = Arc::new(Dialler::on_path(terms.of_further_path(), number, out, there));
            let (sender, outcome) = sync_channel(1);
            let dials = Arc::clone(&dialler);
            let started = terms.crew.start(format!("path-{number}"), move || {
                let brought = dials.bring(cpus, WAY_TIMEOUT, 1, Further::OnceAnswered, &|_, _, _| {});
                // The session may be over.
                let _ = sender.send(brought.map(|(lanes, _)| lanes).map_err(|error| error.to_string()));
            });
            started.is_ok().then_some(Self { number, way, dialler, outcome })
        };
        (1..MOST).zip(ways).filter_map(one).collect()
    }

    /// Its lanes are not wanted.
    pub(crate) fn give_up(&self) {
        self.dialler.give_up();
    }
}

/// The further ways to the addresses that the name of the far side has.
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
