//! Dials the lanes of a session.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use haul_engine::path::{QUICK_FROM_US, START_LANES_MAX};
use haul_engine::plan;
use haul_net::way::Protocol;
use haul_net::{Applied, NetError, Stream, Way, dial, mptcp};
use haul_wire::lane::{index_of, lane_of};

use crate::kept::hook_words::Outlet;
use crate::reach::lane_terms::{LaneTerms, greet, greet_padded};
use crate::session::channel::SessionEvent;
use crate::sync::lock;

/// One way is tried this long before the next. A path of 300 ms with one lost SYN (1 s) still gets through.
pub(crate) const WAY_TIMEOUT: Duration = Duration::from_secs(3);

/// Pause before the first redial; it doubles with each.
pub(crate) const REDIAL_PAUSE: Duration = Duration::from_millis(200);

/// Lanes dialled at the same time: as many as a job begins with, in most cases. A listener bounds the handshakes it has with one host at once, at 128.
const DIALLING_AT_ONCE: u16 = START_LANES_MAX;

/// A lane that finds no room at the door tries again this often: 0.2 + 0.4 + 0.8 s.
pub(crate) const MAX_KNOCKS: u32 = 3;

/// When the lanes behind the first are dialled.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Further {
    /// As soon as somebody takes the connection of the first: a round trip or two sooner.
    OnceAnswered,
    /// Once the peer has proved its key on the first: where only a peer says who is to be dialled, and nobody else shall be flooded from here.
    OnceProved,
}

/// Brings lanes to one peer by dialling it.
pub(crate) struct Dialler {
    pub(super) terms: LaneTerms,
    /// The path whose lanes it dials. Lanes are counted from 0 on each path here, and get their numbers where they are handed over.
    path: u16,
    way: Way,
    candidates: Mutex<Vec<SocketAddr>>,
    /// When each lane that stands was connected, by its number.
    pub(super) connected: Arc<Mutex<HashMap<u16, Instant>>>,
    /// Its lanes are not wanted any more.
    is_given_up: Arc<AtomicBool>,
    /// A handshake failed that began with padding: something on the way may not like it.
    padding_failed: Arc<AtomicBool>,
    /// Where lanes leave that are dialled from now on: an operator's program grants priority to those alone.
    outlet: Arc<Mutex<Outlet>>,
}

impl Dialler {
    /// For the first path of a session.
    pub(crate) fn new(terms: LaneTerms, candidates: Vec<SocketAddr>) -> Self {
        let way = terms.way.clone();
        Self::on_path(terms, 0, way, candidates)
    }

    /// For a path of a session that leaves this host by this way.
    pub(crate) fn on_path(terms: LaneTerms, path: u16, way: Way, candidates: Vec<SocketAddr>) -> Self {
        Self {
            terms,
            path,
            way,
            candidates: Mutex::new(candidates),
            connected: Arc::default(),
            is_given_up: Arc::default(),
            padding_failed: Arc::default(),
            outlet: Arc::default(),
        }
    }

    /// Hands a lane over to its session, which may have ended meanwhile.
    pub(super) fn hand_over(&self, stream: Stream, index: u16) {
        if !self.is_given_up.load(Ordering::Relaxed) {
            let lane = lane_of(self.path, index);
            lock(&self.connected).insert(lane, Instant::now());
            let _ = self.terms.events.send(SessionEvent::LaneUp(stream, lane));
        }
    }

    /// Brings no more lanes.
    pub(super) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }

    /// Connects one lane from where lanes shall leave, or else by the way of the path: a lane without priority carries data, too.
    fn dial(
        &self,
        index: u16,
        timeout: Duration,
        answered: &mut dyn FnMut(SocketAddr, u32),
    ) -> Result<(Stream, u32), NetError> {
        let outlet = *lock(&self.outlet);
        if !outlet.is_anywhere()
            && let Ok(dialled) = self.dial_by(&outlet.way(&self.way), index, timeout, answered)
        {
            return Ok(dialled);
        }
        self.dial_by(&self.way, index, timeout, answered)
    }

    /// Lanes that are dialled from now on leave from there. These lanes are dialled again, one after the other; each replaces its
    /// predecessor once it stands. False: no thread could be started.
    pub(super) fn leave_from(self: &Arc<Self>, outlet: Outlet, lanes: &[u16]) -> bool {
        *lock(&self.outlet) = outlet;
        if lanes.is_empty() {
            return true;
        }
        let (dialler, way, lanes) = (Arc::clone(self), outlet.way(&self.way), lanes.to_vec());
        let moves = move || {
            let mut outcome = Ok(());
            for index in lanes.into_iter().map(index_of) {
                if dialler.is_over() {
                    return;
                }
                match dialler.dial_by(&way, index, WAY_TIMEOUT, &mut |_, _| {}) {
                    Ok((stream, _)) => dialler.hand_over(stream, index),
                    // The next lane would meet the same.
                    Err(error) => {
                        outcome = Err(error.to_string());
                        break;
                    }
                }
            }
            let _ = dialler.terms.events.send(SessionEvent::LanesMoved { path: dialler.path, outcome });
        };
        self.terms.crew.start(format!("move-{}", self.path), moves).is_ok()
    }

    /// Connects one lane by this way; returns it with its connect time in microseconds. A candidate where somebody else answers is
    /// dropped; the one that works is remembered. `answered` hears of each that takes a connection, before it has proved who it is.
    fn dial_by(
        &self,
        way: &Way,
        index: u16,
        timeout: Duration,
        answered: &mut dyn FnMut(SocketAddr, u32),
    ) -> Result<(Stream, u32), NetError> {
        let lane = lane_of(self.path, index);
        let end = Instant::now() + timeout;
        let mut candidates = lock(&self.candidates).clone();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let start = Instant::now();
            let socket = dial::dial(&candidates, left, &self.terms.wanted().policies, way, self.terms.crew.cancel())?;
            let rtt_us = micros(start.elapsed());
            let address = socket.peer_addr().map_err(|cause| NetError::Io { what: "peer address", cause })?;
            answered(address, rtt_us);
            let mut applied = self.terms.wanted().apply(&socket, plan::NEAR_RTT_US);
            applied.extend(self.without_mptcp(&socket));
            let _watched = self.terms.crew.watches(&socket);
            let pads = self.pads(rtt_us);
            let greeted = if pads { greet_padded(socket, &self.terms, lane) } else { greet(socket, &self.terms, lane) };
            match greeted {
                Ok(stream) => {
                    *lock(&self.candidates) = vec![address];
                    // One lane speaks for all: they are asked for the same.
                    applied.retain(|applied| index == 0 && applied.falls_short);
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

    /// MPTCP was asked for, and this connection goes by TCP.
    fn without_mptcp(&self, socket: &TcpStream) -> Option<Applied> {
        let fallback = mptcp::fallback(socket).filter(|_| self.way.protocol == Protocol::Mptcp)?;
        let (asked, granted) = ("MPTCP".into(), "TCP".into());
        Some(Applied {
            what: "transport",
            asked,
            granted,
            reason: fallback.to_string(),
            refused: true,
            falls_short: true,
        })
    }

    /// Whether a connection begins with padding that fills its first congestion window. The window doubles a round trip sooner
    /// then: worth it for much data on a far path.
    fn pads(&self, rtt_us: u32) -> bool {
        rtt_us >= QUICK_FROM_US && self.terms.sends_much() && !self.padding_failed.load(Ordering::Relaxed)
    }

    /// How many lanes the path begins with, and why. Of those that were asked for, a further path begins with half: the first path has
    /// the others.
    fn first_lanes(&self, address: SocketAddr, rtt_us: u32, cpus: u16) -> (u16, &'static str) {
        match self.terms.carriage.lanes {
            Some(asked) if self.path > 0 => ((asked / 2).max(1), "asked for"),
            _ => self.terms.first_lanes(&self.way, address.ip(), rtt_us, cpus),
        }
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
            advice = self.first_lanes(address, rtt_us, cpus);
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

    /// So many lanes the network class of the far side has at most.
    pub(super) fn lanes_max(&self) -> Option<u16> {
        lock(&self.candidates).iter().filter_map(|candidate| self.terms.lanes_max(candidate.ip())).min()
    }

    /// Nobody wants its lanes any more.
    pub(super) fn is_over(&self) -> bool {
        self.is_given_up.load(Ordering::Relaxed) || self.terms.events.is_over()
    }

    /// Connects one lane, again when the door closes at once: it has so many handshakes with one host, and several jobs may begin together.
    pub(super) fn dial_patiently(&self, index: u16, timeout: Duration) -> Result<Stream, NetError> {
        let mut tries = 0;
        loop {
            match self.dial(index, timeout, &mut |_, _| {}) {
                Err(NetError::HungUp) if tries < MAX_KNOCKS && !self.is_over() => {
                    self.terms.crew.pause(REDIAL_PAUSE * 2u32.pow(tries));
                    tries += 1;
                }
                outcome => return outcome.map(|(stream, _)| stream),
            }
        }
    }

    /// Connects these lanes, some at a time, to `address` or whatever works. Without some of them the job has some lanes less.
    pub(super) fn dial_more(self: &Arc<Self>, lanes: Range<u16>, address: Option<SocketAddr>, timeout: Duration) {
        let dialler = match address {
            Some(address) => Arc::new(Self {
                terms: self.terms.clone(),
                path: self.path,
                way: self.way.clone(),
                candidates: Mutex::new(vec![address]),
                connected: Arc::clone(&self.connected),
                is_given_up: Arc::clone(&self.is_given_up),
                padding_failed: Arc::clone(&self.padding_failed),
                outlet: Arc::clone(&self.outlet),
            }),
            None => Arc::clone(self),
        };
        for first in lanes.clone().take(usize::from(DIALLING_AT_ONCE)) {
            let (dialler, end) = (Arc::clone(&dialler), lanes.end);
            let _ = self.terms.crew.start(format!("dial-{first}"), move || {
                for index in (first..end).step_by(usize::from(DIALLING_AT_ONCE)) {
                    if dialler.is_over() {
                        return;
                    }
                    if let Ok(stream) = dialler.dial_patiently(index, timeout) {
                        dialler.hand_over(stream, index);
                    }
                }
            });
        }
    }
}

pub(crate) fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}
