//! What the lanes of a session have in common, and how one greets.

use std::io::Write;
use std::net::{IpAddr, TcpStream};
use std::sync::Arc;

use haul_engine::path::QUICK_START_WORTH_BYTES;
use haul_net::policy::{Dscp, Wanted};
use haul_net::{Cipher, Identity, NetError, PublicKey, Stream, Way, policy};
use haul_wire::control::Carriage;
use haul_wire::lane::{Hello, LaneHello};

use crate::kept::known_paths::{Direction, KnownPaths};
use crate::reach::crew::Crew;
use crate::session::channel::EventSender;
use crate::session::foreseen::Foreseen;
use crate::session::{convert, tuning};

/// What earlier jobs found, and the direction in which it is used.
#[derive(Clone)]
pub(crate) struct Memory {
    pub(crate) paths: KnownPaths,
    pub(crate) direction: Direction,
}

/// What the lanes of a session have in common.
#[derive(Clone)]
pub(crate) struct LaneTerms {
    /// Random name of the end that lanes are dialled to.
    pub(crate) session: [u8; 16],
    pub(crate) identity: Arc<Identity>,
    pub(crate) peer_key: PublicKey,
    pub(crate) ciphers: Vec<Cipher>,
    /// What was asked of them, and what the initiator knows of the path.
    pub(crate) carriage: Carriage,
    /// How those of the first path leave this host.
    pub(crate) way: Way,
    /// The direction in which what earlier jobs found of the path shall be used: of the one to the address that is reached.
    pub(crate) memory: Option<Memory>,
    /// How much will be sent from here.
    pub(crate) foreseen: Foreseen,
    pub(crate) events: EventSender,
    /// Its threads bring the lanes.
    pub(crate) crew: Crew,
    /// The mark of their packets from the first on. A path that drops such packets lets no lane come up: only who looks for that asks for it.
    pub(crate) first_mark: Option<Dscp>,
}

impl LaneTerms {
    /// What was asked for, with what is known of the path to this address by this way.
    pub(super) fn carriage_towards(&self, way: &Way, peer: IpAddr) -> Carriage {
        let known = self.memory.as_ref().and_then(|memory| match way.local {
            Some(local) => memory.paths.between(local, peer, memory.direction),
            None => memory.paths.towards(peer, memory.direction),
        });
        Carriage { path: known.or_else(|| self.carriage.path.clone()), ..self.carriage.clone() }
    }

    pub(super) fn first_lanes(&self, way: &Way, peer: IpAddr, rtt_us: u32, cpus: u16) -> (u16, &'static str) {
        let advice = tuning::first_lanes(&self.carriage_towards(way, peer), &self.foreseen, rtt_us, cpus);
        match self.lanes_max(peer) {
            Some(most) if most < advice.0 => (most, "the network class of the far side has no more"),
            _ => advice,
        }
    }

    /// So many lanes the network class of this address has at most.
    pub(super) fn lanes_max(&self, peer: IpAddr) -> Option<u16> {
        let networks = self.crew.policies().networks();
        networks.find(&networks.peer_at(peer)).terms().lanes
    }

    /// The terms of a further path: what the initiator knows is of the first one.
    pub(super) fn of_further_path(&self) -> Self {
        Self { carriage: Carriage { path: None, ..self.carriage.clone() }, ..self.clone() }
    }

    /// What is to be sent from here is worth a quick start.
    pub(super) fn sends_much(&self) -> bool {
        self.memory.as_ref().is_some_and(|memory| memory.direction == Direction::To)
            && self.foreseen.bytes() >= QUICK_START_WORTH_BYTES
    }

    /// The peer's key, and no other.
    pub(super) fn admits(&self) -> impl Fn(&PublicKey) -> bool + Send + Sync + use<> {
        let expected = self.peer_key;
        move |key| *key == expected
    }

    /// What every connection is tuned to.
    pub(super) fn wanted(&self) -> policy::Wanted {
        let policies = match self.first_mark {
            Some(mark) => Arc::new(self.crew.policies().marked(mark)),
            None => self.crew.policies(),
        };
        Wanted { policies, ..convert::wanted(&self.carriage) }
    }
}

/// Shakes hands and says which lane of which session this is.
pub(crate) fn greet(
    transport: impl Into<haul_net::Transport>,
    terms: &LaneTerms,
    lane: u16,
) -> Result<Stream, NetError> {
    let (stream, _) = haul_net::client(transport, &terms.identity, terms.admits(), &terms.ciphers)?;
    introduce(stream, terms, lane)
}

/// [`greet`], with a first flight that fills the window.
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
    /// Of a session whose peer never shakes hands.
    pub(crate) fn towards_nobody(events: &crate::session::channel::Events, crew: Crew) -> Self {
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
            crew,
        }
    }
}
