//! Holds what the lanes of a session have in common, and greets on a lane.

use std::io::Write;
use std::net::{IpAddr, TcpStream};
use std::sync::Arc;

use haul_engine::path::QUICK_START_WORTH_BYTES;
use haul_net::policy::{Dscp, Wanted};
use haul_net::{Cipher, Identity, NetError, PublicKey, Stream, Way, policy};
use haul_wire::control::Carriage;
use haul_wire::lane::{Hello, LaneHello};

use crate::dial_threads::DialThreads;
use haul_channel::channel::EventSender;
use haul_channel::convert;
use haul_channel::foreseen::Foreseen;
use haul_govern::tuning;
use haul_kept::known_paths::{Direction, KnownPaths};

/// The findings of earlier jobs, and the direction in which they are used.
#[derive(Clone)]
pub struct Memory {
    /// The known paths.
    pub paths: KnownPaths,
    /// Which way the bytes go.
    pub direction: Direction,
}

/// The settings that the lanes of a session share.
#[derive(Clone)]
pub struct LaneTerms {
    /// Random name of the end that lanes are dialled to.
    pub session: [u8; 16],
    /// The key that this end proves.
    pub identity: Arc<Identity>,
    /// The key that the peer must prove.
    pub peer_key: PublicKey,
    /// Ciphers that this end takes, the best first.
    pub ciphers: Vec<Cipher>,
    /// The carriage that was asked for, and what the initiator knows of the path.
    pub carriage: Carriage,
    /// How lanes of the first path leave this host.
    pub way: Way,
    /// The findings of earlier jobs.
    pub memory: Option<Memory>,
    /// How much will be sent from here.
    pub foreseen: Foreseen,
    /// The queue that gets lanes that stand.
    pub events: EventSender,
    /// The threads that bring the lanes.
    pub dial_threads: DialThreads,
    /// The mark of the first packets. A path may drop them, and with them each lane, so only a search for such paths
    /// sets it.
    pub first_mark: Option<Dscp>,
}

impl LaneTerms {
    pub(crate) fn carriage_towards(&self, way: &Way, peer: IpAddr) -> Carriage {
        let known = self.memory.as_ref().and_then(|memory| match way.local {
            Some(local) => memory.paths.between(local, peer, memory.direction),
            None => memory.paths.towards(peer, memory.direction),
        });
        Carriage { path: known.or_else(|| self.carriage.path.clone()), ..self.carriage.clone() }
    }

    /// How many lanes the first path begins with, and why.
    pub fn first_lanes(&self, way: &Way, peer: IpAddr, rtt_us: u32, cpus: u16) -> (u16, &'static str) {
        let advice = tuning::first_lanes(&self.carriage_towards(way, peer), &self.foreseen, rtt_us, cpus);
        match self.lanes_max(peer) {
            Some(most) if most < advice.0 => (most, "the network class of the far side has no more"),
            _ => advice,
        }
    }

    /// The most lanes that the network class of this address allows.
    pub(crate) fn lanes_max(&self, peer: IpAddr) -> Option<u16> {
        let networks = self.dial_threads.policies().networks();
        networks.find(&networks.peer_at(peer)).terms().lanes
    }

    pub(crate) fn of_further_path(&self) -> Self {
        Self { carriage: Carriage { path: None, ..self.carriage.clone() }, ..self.clone() }
    }

    /// Whether this end sends enough to make a quick start worth it.
    pub(crate) fn sends_much(&self) -> bool {
        self.memory.as_ref().is_some_and(|memory| memory.direction == Direction::To)
            && self.foreseen.bytes() >= QUICK_START_WORTH_BYTES
    }

    /// Admits the peer's key alone.
    pub fn admits(&self) -> impl Fn(&PublicKey) -> bool + Send + Sync + use<> {
        let expected = self.peer_key;
        move |key| *key == expected
    }

    /// The settings of every connection.
    pub fn wanted(&self) -> policy::Wanted {
        let policies = match self.first_mark {
            Some(mark) => Arc::new(self.dial_threads.policies().marked(mark)),
            None => self.dial_threads.policies(),
        };
        Wanted { policies, ..convert::wanted(&self.carriage) }
    }
}

/// Shakes hands and says which lane of which session this is.
pub fn greet(transport: impl Into<haul_net::Transport>, terms: &LaneTerms, lane: u16) -> Result<Stream, NetError> {
    let (stream, _) = haul_net::client(transport, &terms.identity, terms.admits(), &terms.ciphers)?;
    introduce(stream, terms, lane)
}

pub(crate) fn greet_padded(socket: TcpStream, terms: &LaneTerms, lane: u16) -> Result<Stream, NetError> {
    let (stream, _) = haul_net::client_padded(socket, &terms.identity, terms.admits(), &terms.ciphers)?;
    introduce(stream, terms, lane)
}

fn introduce(mut stream: Stream, terms: &LaneTerms, lane: u16) -> Result<Stream, NetError> {
    let hello = Hello::Lane(LaneHello { session: terms.session, lane });
    let said = stream.write_all(&hello.encode()).and_then(|()| stream.flush());
    said.map_err(|cause| NetError::Io { what: "cannot greet", cause })?;
    if terms.carriage.clear {
        return stream.into_clear().map_err(|cause| NetError::Io { what: "cannot go on in the clear", cause });
    }
    Ok(stream)
}

#[cfg(test)]
impl LaneTerms {
    pub(crate) fn towards_nobody(events: &haul_channel::channel::Events, dial_threads: DialThreads) -> Self {
        Self {
            first_mark: None,
            session: [0; 16],
            identity: Arc::new(Identity::generate().expect("random numbers")),
            peer_key: PublicKey([1; 32]),
            ciphers: haul_net::preferred_ciphers(None),
            carriage: Carriage::default(),
            way: Way::default(),
            memory: None,
            foreseen: Foreseen::default(),
            events: events.sender(),
            dial_threads,
        }
    }
}
