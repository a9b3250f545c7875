//! Lanes to a daemon that are dialled before it has said who it is.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use haul_engine::path::QUICK_FROM_US;
use haul_engine::plan;
use haul_net::{Way, dial};

use crate::reach::dialler::{Dialler, Further, WAY_TIMEOUT, micros};
use crate::reach::lane_terms::LaneTerms;
use crate::reach::paths::{Ahead, First, Wish};
use crate::session::lane_addresses::LaneAddresses;
use crate::sync::lock;

/// A peer without an answer after this time is at least so far away, and its lanes are dialled at once: on 228 ms they come two
/// thirds of a round trip earlier. An unknown path then begins with 32 lanes, or with 64 for a job that sends much.
const FAR_AFTER: Duration = Duration::from_millis(80);

/// Lanes to a daemon, on their way while its control channel is still being set up. On 1 Gbit/s x 228 ms that is three round trips, half a
/// second in which nothing else would move. The daemon lets them wait for the session that they name.
///
/// A path that is remembered as a far one gets its lanes at once. Any other shows how far it is at least by how late the control channel's
/// first answer is.
pub(crate) struct Early {
    outcome: Receiver<Result<Brought, String>>,
    /// Tells the thread, as long as it has dialled nobody, where the daemon was reached, and after how many microseconds.
    reached: SyncSender<(SocketAddr, u32)>,
    pub(super) dialler: Arc<Dialler>,
    /// Further paths that are dialled together with these lanes.
    ahead: Arc<Mutex<Vec<Ahead>>>,
    wish: Wish,
    presumed: SocketAddr,
    cpus: u16,
}

pub(super) struct Brought {
    /// The path of these lanes; `None` when they are not known to run over TCP.
    pub(super) first: Option<First>,
    /// So many of them are to carry.
    pub(super) lanes: u16,
    pub(super) reason: &'static str,
    pub(super) cipher: &'static str,
}

impl Early {
    /// For a daemon that is about to be reached at `presumed`, over the paths that are asked for. `None` without a thread: then the
    /// lanes follow later.
    pub(crate) fn start(terms: LaneTerms, presumed: SocketAddr, cpus: u16, wish: Wish) -> Option<Self> {
        let (sender, outcome) = sync_channel(1);
        let (reached, answer) = sync_channel(1);
        let dialler = Arc::new(Dialler::new(terms, vec![presumed]));
        let ahead = Arc::default();
        let for_thread = Beginning { dialler: Arc::clone(&dialler), ahead: Arc::clone(&ahead), wish: wish.clone() };
        let started = dialler.terms.crew.start("early-lanes".into(), move || {
            // The session may have failed meanwhile.
            let _ = sender.send(for_thread.bring(presumed, cpus, &answer));
        });
        started.is_ok().then_some(Self { outcome, reached, dialler, ahead, wish, presumed, cpus })
    }

    /// The daemon was reached after this time. `None`: it is near, and its lanes wait for its first words.
    pub(crate) fn reached(self, address: SocketAddr, after: Duration) -> Option<Self> {
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
        // It may not have waited for that.
        let _ = early.reached.try_send((address, micros(after)));
        Some(early)
    }

    fn give_up(&self) {
        self.dialler.give_up();
        lock(&self.ahead).iter().for_each(Ahead::give_up);
    }

    pub(super) fn brought(self) -> Result<Brought, String> {
        let outcome = self.outcome.recv().unwrap_or_else(|_| Err("its thread broke".into()));
        if outcome.is_err() {
            self.give_up();
        }
        outcome
    }
}

/// What the thread that dials has.
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
                // Should it be nearer, some of them rest: handshakes are nothing beside so much data.
                Err(RecvTimeoutError::Timeout) if dialler.terms.sends_much() => QUICK_FROM_US,
                Err(RecvTimeoutError::Timeout) => micros(FAR_AFTER),
                Err(RecvTimeoutError::Disconnected) => return Err("they are not needed".into()),
            },
        };
        let (dialled, _) = dialler.terms.first_lanes(way, presumed.ip(), rtt_us, cpus);
        dialler.dial_more(1..dialled, None, WAY_TIMEOUT);
        if let Some(first) = first_ends(way, presumed) {
            let mut ahead = lock(&ahead);
            *ahead = Ahead::dial(&dialler.terms, first, presumed.port(), cpus, &wish);
            // These lanes may have been given up before.
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

/// Where the first lane will lead. `None`: of an interface that the user named, the kernel has yet to choose the address.
fn first_ends(way: &Way, presumed: SocketAddr) -> Option<LaneAddresses> {
    let local = match (way.local, &way.device) {
        (Some(local), _) => local,
        (None, Some(_)) => return None,
        (None, None) => dial::local_address_towards(presumed.ip()).ok()?,
    };
    Some(LaneAddresses { local: local.to_canonical(), peer: presumed.ip().to_canonical() })
}
