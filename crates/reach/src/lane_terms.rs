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

/// Earlier findings.
#[derive(Clone)]
pub struct Memory {
    /// Known paths.
    pub paths: KnownPaths,
    /// Direction of the data.
    pub direction: Direction,
}

/// The lanes' common settings.
#[derive(Clone)]
pub struct LaneTerms {
    /// Random name of the dialled end.
    pub session: [u8; 16],
    /// Our key.
    pub identity: Arc<Identity>,
    /// The peer's key.
    pub peer_key: PublicKey,
    /// Our ciphers, best first.
    pub ciphers: Vec<Cipher>,
    /// The carriage, with known facts.
    pub carriage: Carriage,
    /// The first path's way.
    pub way: Way,
    /// Earlier findings.
    pub memory: Option<Memory>,
    /// Bytes to send.
    pub foreseen: Foreseen,
    /// Queue of standing lanes.
    pub events: EventSender,
    /// Dial threads.
    pub dial_threads: DialThreads,
    /// The first packets' mark, for a search of paths: some drop marked packets.
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

    /// The first lanes, and why.
    pub fn first_lanes(&self, way: &Way, peer: IpAddr, rtt_us: u32, cpus: u16) -> (u16, &'static str) {
        let advice = tuning::first_lanes(&self.carriage_towards(way, peer), &self.expected(), rtt_us, cpus);
        match self.lanes_max(peer) {
            Some(most) if most < advice.0 => (most, "the network class of the far side has no more"),
            _ => advice,
        }
    }

    pub(crate) fn lanes_max(&self, peer: IpAddr) -> Option<u16> {
        let networks = self.dial_threads.policies().networks();
        networks.find(&networks.peer_at(peer)).terms().lanes
    }

    pub(crate) fn of_further_path(&self) -> Self {
        Self { carriage: Carriage { path: None, ..self.carriage.clone() }, ..self.clone() }
    }

    pub(crate) fn sends_much(&self) -> bool {
        self.memory.as_ref().is_some_and(|memory| memory.direction == Direction::To)
            && self.foreseen.bytes() >= QUICK_START_WORTH_BYTES
    }

    /// Whether much data comes, or nobody here knows.
    pub(crate) fn may_move_much(&self) -> bool {
        self.expected().bytes() >= QUICK_START_WORTH_BYTES
    }

    /// Only the far side knows how much it will send. It lets surplus lanes rest, and pads the others if they are worth it.
    fn expected(&self) -> Foreseen {
        match &self.memory {
            Some(Memory { direction: Direction::From, .. }) => Foreseen::of(QUICK_START_WORTH_BYTES),
            _ => self.foreseen.clone(),
        }
    }

    /// Admits only the peer's key.
    pub fn admits(&self) -> impl Fn(&PublicKey) -> bool + Send + Sync + use<> {
        let expected = self.peer_key;
        move |key| *key == expected
    }

    /// Settings of connections.
    pub fn wanted(&self) -> policy::Wanted {
        let policies = match self.first_mark {
            Some(mark) => Arc::new(self.dial_threads.policies().marked(mark)),
            None => self.dial_threads.policies(),
        };
        Wanted { policies, ..convert::wanted(&self.carriage) }
    }
}

/// Shakes hands and names lane and session.
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

#[cfg(test)]
mod tests {
    use haul_channel::channel::Events;
    use haul_kept::surroundings::Surroundings;

    use super::*;
    use crate::dial_threads::DialThreadsOwner;

    #[test]
    fn a_pull_begins_with_as_many_lanes_as_a_push_of_much_data() {
        let (events, owner) = (Events::new(), DialThreadsOwner::new());
        let lanes = |direction, bytes, rtt_us| {
            let memory = Some(Memory { paths: KnownPaths::of(&Surroundings::default()), direction });
            let nobody = LaneTerms::towards_nobody(&events, owner.threads());
            let terms = LaneTerms { memory, foreseen: Foreseen::of(bytes), ..nobody };
            terms.first_lanes(&Way::default(), IpAddr::from([192, 0, 2, 1]), rtt_us, 8).0
        };
        assert_eq!(lanes(Direction::To, 10_000, 228_000), 32);
        assert_eq!(lanes(Direction::To, QUICK_START_WORTH_BYTES, 228_000), 64);
        assert_eq!(lanes(Direction::From, 0, 228_000), 64);
        assert_eq!(lanes(Direction::From, 0, 100_000), 32);
    }
}
