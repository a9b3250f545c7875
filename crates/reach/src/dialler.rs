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

use crate::lane_terms::{LaneTerms, greet, greet_padded};
use haul_channel::channel::{LaneEvent, SessionEvent};
use haul_kept::hook_words::Outlet;
use haul_kept::sync::lock;

/// The time for one way. A path of 300 ms with one lost SYN (1 s) still gets through.
pub const WAY_TIMEOUT: Duration = Duration::from_secs(3);

/// The first pause; it doubles with each redial.
pub(crate) const REDIAL_PAUSE: Duration = Duration::from_millis(200);

/// The usual number of first lanes. A listener bounds the handshakes with one host at 128.
const DIALLING_AT_ONCE: u16 = START_LANES_MAX;

/// A lane without room at the door tries again after 0.2 + 0.4 + 0.8 s.
pub(crate) const MAX_KNOCKS: u32 = 3;

/// When further lanes are dialled.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Further {
    /// Once the first connection is accepted: a round trip or two sooner.
    OnceAnswered,
    /// Once the peer proved its key: its word alone must not make us flood another host.
    OnceProved,
}

/// Dials lanes to one peer.
pub struct Dialler {
    /// The agreed terms.
    pub terms: LaneTerms,
    path: u16,
    way: Way,
    candidates: Mutex<Vec<SocketAddr>>,
    /// The moment when each lane was connected, by number.
    pub connected: Arc<Mutex<HashMap<u16, Instant>>>,
    is_given_up: Arc<AtomicBool>,
    /// A device on the way may not like padding.
    padding_failed: Arc<AtomicBool>,
    /// An operator's program grants priority only to lanes that leave here.
    outlet: Arc<Mutex<Outlet>>,
    segment_max_bytes: Arc<Mutex<Option<u16>>>,
}

impl Dialler {
    /// Dials a session's first path.
    pub fn new(terms: LaneTerms, candidates: Vec<SocketAddr>) -> Self {
        let way = terms.way.clone();
        Self::on_path(terms, 0, way, candidates)
    }

    /// Dials a path that leaves this host by `way`.
    pub fn on_path(terms: LaneTerms, path: u16, way: Way, candidates: Vec<SocketAddr>) -> Self {
        Self {
            terms,
            path,
            way,
            candidates: Mutex::new(candidates),
            connected: Arc::default(),
            is_given_up: Arc::default(),
            padding_failed: Arc::default(),
            outlet: Arc::default(),
            segment_max_bytes: Arc::default(),
        }
    }

    pub(crate) fn hand_over(&self, stream: Stream, index: u16) {
        if !self.is_given_up.load(Ordering::Relaxed) {
            let lane = lane_of(self.path, index);
            lock(&self.connected).insert(lane, Instant::now());
            let _ = self.terms.events.send(SessionEvent::Lane(LaneEvent::Up(stream, lane)));
        }
    }

    /// Stops bringing lanes.
    pub fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }

    /// Connects one lane from the outlet, or else by the way of the path, without priority.
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

    /// Makes new lanes announce this largest segment, which bounds both ends.
    pub(crate) fn shrink(&self, segment_bytes: u16) {
        let mut largest = lock(&self.segment_max_bytes);
        *largest = Some(largest.map_or(segment_bytes, |bytes| bytes.min(segment_bytes)));
    }

    /// Sets the outlet of new lanes, and redials `lanes`. Returns false without a thread.
    pub fn leave_from(self: &Arc<Self>, outlet: Outlet, lanes: &[u16]) -> bool {
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
                    Err(error) => {
                        outcome = Err(error.to_string());
                        break;
                    }
                }
            }
            let _ = dialler.terms.events.send(SessionEvent::Lane(LaneEvent::Redialled { path: dialler.path, outcome }));
        };
        self.terms.dial_threads.start(format!("move-{}", self.path), moves).is_ok()
    }

    /// Returns a lane and its connect time in microseconds. Drops candidates where another host answers; remembers the one that
    /// works. `answered` is told of accepting addresses, before the proof of a key.
    fn dial_by(
        &self,
        way: &Way,
        index: u16,
        timeout: Duration,
        answered: &mut dyn FnMut(SocketAddr, u32),
    ) -> Result<(Stream, u32), NetError> {
        let lane = lane_of(self.path, index);
        let way = &Way { segment_max_bytes: *lock(&self.segment_max_bytes), ..way.clone() };
        let end = Instant::now() + timeout;
        let mut candidates = lock(&self.candidates).clone();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let start = Instant::now();
            let socket =
                dial::dial(&candidates, left, &self.terms.wanted().policies, way, self.terms.dial_threads.cancel())?;
            let rtt_us = micros(start.elapsed());
            let address = socket.peer_addr().map_err(|cause| NetError::Io { what: "peer address", cause })?;
            answered(address, rtt_us);
            let mut applied = self.terms.wanted().apply(&socket, plan::NEAR_RTT_US);
            applied.extend(self.without_mptcp(&socket));
            let _watched = self.terms.dial_threads.watches(&socket);
            let pads = self.pads(rtt_us);
            let greeted = if pads { greet_padded(socket, &self.terms, lane) } else { greet(socket, &self.terms, lane) };
            match greeted {
                Ok(stream) => {
                    *lock(&self.candidates) = vec![address];
                    applied.retain(|applied| index == 0 && applied.falls_short);
                    if !applied.is_empty() {
                        let _ = self.terms.events.send(SessionEvent::Lane(LaneEvent::FallsShort(applied)));
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

    /// Padding fills the first congestion window, which then doubles a round trip sooner: for much data on a far path.
    fn pads(&self, rtt_us: u32) -> bool {
        rtt_us >= QUICK_FROM_US && self.terms.sends_much() && !self.padding_failed.load(Ordering::Relaxed)
    }

    /// The first lanes of the path, and why. A further path gets half of the requested number.
    fn first_lanes(&self, address: SocketAddr, rtt_us: u32, cpus: u16) -> (u16, &'static str) {
        match self.terms.carriage.lanes {
            Some(asked) if self.path > 0 => ((asked / 2).max(1), "asked for"),
            _ => self.terms.first_lanes(&self.way, address.ip(), rtt_us, cpus),
        }
    }

    /// Connects the first lane, and then as many as its connect time asks for. Lanes below `dialled` are on their way. Returns
    /// their number and the RTT.
    pub fn bring(
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

    pub(crate) fn lanes_max(&self) -> Option<u16> {
        lock(&self.candidates).iter().filter_map(|candidate| self.terms.lanes_max(candidate.ip())).min()
    }

    /// Whether lanes are unwanted.
    pub fn is_over(&self) -> bool {
        self.is_given_up.load(Ordering::Relaxed) || self.terms.events.is_over()
    }

    /// Tries again when the door closes at once: several jobs may begin together.
    pub(crate) fn dial_patiently(&self, index: u16, timeout: Duration) -> Result<Stream, NetError> {
        let mut tries = 0;
        loop {
            match self.dial(index, timeout, &mut |_, _| {}) {
                Err(NetError::HungUp) if tries < MAX_KNOCKS && !self.is_over() => {
                    self.terms.dial_threads.pause(REDIAL_PAUSE * 2u32.pow(tries));
                    tries += 1;
                }
                outcome => return outcome.map(|(stream, _)| stream),
            }
        }
    }

    /// Connects lanes, some at a time, to `address` or any candidate; failures are left out.
    pub(crate) fn dial_more(self: &Arc<Self>, lanes: Range<u16>, address: Option<SocketAddr>, timeout: Duration) {
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
                segment_max_bytes: Arc::clone(&self.segment_max_bytes),
            }),
            None => Arc::clone(self),
        };
        for first in lanes.clone().take(usize::from(DIALLING_AT_ONCE)) {
            let (dialler, end) = (Arc::clone(&dialler), lanes.end);
            let _ = self.terms.dial_threads.start(format!("dial-{first}"), move || {
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
