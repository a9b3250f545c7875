//! Dials lanes to a daemon before it has said who it is.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use haul_engine::path::QUICK_FROM_US;
use haul_engine::plan;
use haul_net::{Way, dial};

use crate::dialler::{Dialler, Further, WAY_TIMEOUT, micros};
use crate::lane_terms::LaneTerms;
use crate::paths::{Ahead, First, Wish};
use haul_channel::lane_addresses::LaneAddresses;
use haul_kept::sync::lock;

/// A peer silent for this long is at least so far. Lanes dialled now come two thirds of a round trip earlier on 228 ms. An
/// unknown path then begins with 32 lanes, or 64 for much data and for a pull.
const FAR_AFTER: Duration = Duration::from_millis(80);

/// Lanes dialled before a daemon's control channel stands: saves three round trips, half a second on 1 Gbit/s x 228 ms.
///
/// A path remembered as far gets its lanes at once. On others, the delay of the channel's first answer bounds the distance from
/// below.
pub struct Early {
    outcome: Receiver<Result<Brought, String>>,
    reached: SyncSender<(SocketAddr, u32)>,
    pub dialler: Arc<Dialler>,
    ahead: Arc<Mutex<Vec<Ahead>>>,
    wish: Wish,
    presumed: SocketAddr,
    cpus: u16,
}

pub struct Brought {
    pub first: Option<First>,
    pub lanes: u16,
    pub reason: &'static str,
    pub cipher: &'static str,
}

impl Early {
    pub fn start(terms: LaneTerms, presumed: SocketAddr, cpus: u16, wish: Wish) -> Option<Self> {
        let (sender, outcome) = sync_channel(1);
        let (reached, answer) = sync_channel(1);
        let dialler = Arc::new(Dialler::new(terms, vec![presumed]));
        let ahead = Arc::default();
        let for_thread = Beginning { dialler: Arc::clone(&dialler), ahead: Arc::clone(&ahead), wish: wish.clone() };
        let started = dialler.terms.dial_threads.start("early-lanes".into(), move || {
            let _ = sender.send(for_thread.bring(presumed, cpus, &answer));
        });
        started.is_ok().then_some(Self { outcome, reached, dialler, ahead, wish, presumed, cpus })
    }

    pub fn reached(self, address: SocketAddr, after: Duration) -> Option<Self> {
        if after < Duration::from_micros(u64::from(plan::NEAR_RTT_US)) {
            self.give_up();
            return None;
        }
        let early = if address == self.presumed {
            self
        } else {
            self.give_up();
            Self::start(self.dialler.terms.clone(), address, self.cpus, self.wish.clone())?
        };
        let _ = early.reached.try_send((address, micros(after)));
        Some(early)
    }

    fn give_up(&self) {
        self.dialler.give_up();
        lock(&self.ahead).iter().for_each(Ahead::give_up);
    }

    pub fn brought(self) -> Result<Brought, String> {
        let outcome = self.outcome.recv().unwrap_or_else(|_| Err("its thread broke".into()));
        if outcome.is_err() {
            self.give_up();
        }
        outcome
    }
}

struct Beginning {
    dialler: Arc<Dialler>,
    ahead: Arc<Mutex<Vec<Ahead>>>,
    wish: Wish,
}

impl Beginning {
    fn bring(self, presumed: SocketAddr, cpus: u16, answer: &Receiver<(SocketAddr, u32)>) -> Result<Brought, String> {
        let Self { dialler, ahead, wish } = self;
        let way = &dialler.terms.way;
        let carriage = dialler.terms.carriage_towards(way, presumed.ip());
        let rtt_us = match &carriage.path {
            Some(known) => known.rtt_min_us,
            None => match answer.recv_timeout(FAR_AFTER) {
                Ok((_, rtt_us)) => rtt_us,
                Err(RecvTimeoutError::Timeout) if dialler.terms.may_move_much() => QUICK_FROM_US,
                Err(RecvTimeoutError::Timeout) => micros(FAR_AFTER),
                Err(RecvTimeoutError::Disconnected) => return Err("they are not needed".into()),
            },
        };
        let (dialled, _) = dialler.terms.first_lanes(way, presumed.ip(), rtt_us, cpus);
        dialler.dial_more(1..dialled, None, WAY_TIMEOUT);
        if let Some(first) = first_ends(way, presumed) {
            let mut ahead = lock(&ahead);
            *ahead = Ahead::dial(&dialler.terms, first, presumed.port(), cpus, &wish);
            ahead.iter().filter(|_| dialler.is_over()).for_each(Ahead::give_up);
        }
        let told = RefCell::new(("", 0, "", None));
        let brought = dialler.bring(cpus, WAY_TIMEOUT, dialled, Further::OnceAnswered, &|stream, lanes, reason| {
            *told.borrow_mut() = (stream.cipher_name(), lanes, reason, LaneAddresses::of(stream));
        });
        let (cipher, lanes, reason, addresses) = told.into_inner();
        let (dialled, _) = brought.map_err(|error| error.to_string())?;
        let ahead = std::mem::take(&mut *lock(&ahead));
        let first = addresses.map(|addresses| First { dialler, lanes: dialled, addresses, ahead });
        Ok(Brought { first, lanes, reason, cipher })
    }
}

/// Foretells the first lane's addresses. `None`: of a named interface the kernel chooses the address.
fn first_ends(way: &Way, presumed: SocketAddr) -> Option<LaneAddresses> {
    let local = match (way.local, &way.device) {
        (Some(local), _) => local,
        (None, Some(_)) => return None,
        (None, None) => dial::local_address_towards(presumed.ip()).ok()?,
    };
    Some(LaneAddresses { local: local.to_canonical(), peer: presumed.ip().to_canonical() })
}
