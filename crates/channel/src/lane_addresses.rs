//! Holds the two ends of a lane's connection.

use std::fmt;
use std::net::IpAddr;

use haul_net::{Probe, Stream, interfaces};

/// Both addresses, as this side sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneAddresses {
    /// The address here.
    pub local: IpAddr,
    /// The address there, or of its translator.
    pub peer: IpAddr,
}

impl LaneAddresses {
    /// Reads the addresses; `None`: not over TCP.
    pub fn of(stream: &Stream) -> Option<Self> {
        Self::of_probe(&stream.probe())
    }

    /// Reads the addresses of another's stream.
    pub fn of_probe(probe: &Probe) -> Option<Self> {
        let (local, peer) = probe.local_addr().zip(probe.peer_addr())?;
        Some(Self { local: local.ip().to_canonical(), peer: peer.ip().to_canonical() })
    }

    /// The interface with the local address.
    pub fn device(&self) -> Option<String> {
        let found = interfaces::usable().unwrap_or_default();
        let has = |interface: &&interfaces::Interface| {
            interface.addresses.iter().any(|address| address.ip.to_canonical() == self.local)
        };
        found.iter().find(has).map(|interface| interface.name.clone())
    }
}

impl fmt::Display for LaneAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.local, self.peer)
    }
}
