//! Knows a far side by its own words, or by the proved key of a daemon that has not spoken yet.

use std::sync::{Arc, OnceLock};

use haul_engine::remedy::Host;
use haul_job::{Error, Far, Fault};
use haul_net::PublicKey;
use haul_wire::control::{AgentHello, Control};

use haul_channel::host_facts;
use haul_kept::faults;
use haul_kept::trusted_keys::KnownHosts;

/// A far side's facts.
#[derive(Clone)]
pub enum FarEnd {
    /// Words of its own.
    Said(AgentHello),
    /// A proved key: the first words take a round trip more.
    Presumed(Introduction),
}

impl FarEnd {
    /// The key on lanes.
    pub fn key(&self) -> PublicKey {
        match self {
            Self::Said(hello) => PublicKey(hello.key),
            Self::Presumed(later) => later.key,
        }
    }

    /// The port of lanes; 0: none.
    pub fn port(&self) -> u16 {
        match self {
            Self::Said(hello) => hello.port,
            Self::Presumed(later) => later.port,
        }
    }

    /// The port of lanes inside ssh.
    pub fn relay_port(&self) -> Option<u16> {
        self.said().map(|hello| hello.relay_port).filter(|port| *port != 0)
    }

    /// The greeting, if any.
    pub fn said(&self) -> Option<&AgentHello> {
        match self {
            Self::Said(hello) => Some(hello),
            Self::Presumed(later) => later.said.get(),
        }
    }

    /// Processors. A silent daemon counts as our equal, and itself looks whether it has fewer.
    pub fn cpus(&self) -> u16 {
        self.said().map_or_else(host_facts::cpus, |hello| hello.cpus)
    }

    /// The host, for the report.
    pub fn host(&self, place: &Far) -> Host {
        let place = place.to_string();
        match self.said() {
            Some(hello) => Host { place, cpus: hello.cpus, limits: hello.limits.clone() },
            None => Host { place, ..Host::default() },
        }
    }

    /// Takes a presumed daemon's greeting, once.
    pub fn on_hello(&self, hello: AgentHello) -> Result<(), Error> {
        match self {
            Self::Said(_) => Err(faults::unexpected(&Control::AgentHello(hello))),
            Self::Presumed(later) => later.on_hello(hello),
        }
    }

    /// Explains an error, maybe as a refusal.
    pub fn explain(&self, error: Error) -> Error {
        match self {
            Self::Presumed(later) if self.said().is_none() => {
                later.known.explain_refusal(&later.host, later.port, error)
            }
            Self::Presumed(_) | Self::Said(_) => error,
        }
    }
}

/// A proved key, and later words.
#[derive(Clone)]
pub struct Introduction {
    said: Arc<OnceLock<AgentHello>>,
    known: Arc<KnownHosts>,
    host: String,
    port: u16,
    key: PublicKey,
}

impl Introduction {
    /// Notes a proved key under this name.
    pub fn new(known: Arc<KnownHosts>, host: &str, port: u16, key: PublicKey) -> Self {
        Self { said: Arc::default(), known, host: host.to_owned(), port, key }
    }

    fn on_hello(&self, hello: AgentHello) -> Result<(), Error> {
        if hello.key != self.key.0 {
            return Err(Error::new(Fault::Protocol, "the daemon names another key than it has proved"));
        }
        self.said.set(hello).map_err(|hello| faults::unexpected(&Control::AgentHello(hello)))
    }
}
