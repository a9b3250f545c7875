//! What is known of a far side: its own words, or the proved key of a daemon that has not spoken yet.

use std::sync::{Arc, OnceLock};

use haul_engine::remedy::Host;
use haul_job::{Error, Fault, Place};
use haul_net::PublicKey;
use haul_wire::control::{AgentHello, Control};

use crate::faults;
use crate::kept::trusted_keys::KnownHosts;
use crate::session::host_facts;

/// What is known of a far side.
#[derive(Clone)]
pub(crate) enum FarEnd {
    /// It has said who it is.
    Said(AgentHello),
    /// The session with it has begun already: its first words take a round trip.
    Presumed(Introduction),
}

impl FarEnd {
    /// The key that its end of the lanes proves.
    pub(crate) fn key(&self) -> PublicKey {
        match self {
            Self::Said(hello) => PublicKey(hello.key),
            Self::Presumed(later) => later.key,
        }
    }

    /// The port where its lanes arrive; 0: nobody can connect to it.
    pub(crate) fn port(&self) -> u16 {
        match self {
            Self::Said(hello) => hello.port,
            Self::Presumed(later) => later.port,
        }
    }

    /// The port on its own host for lanes inside ssh sessions. None: it has named none.
    pub(crate) fn relay_port(&self) -> Option<u16> {
        self.said().map(|hello| hello.relay_port).filter(|port| *port != 0)
    }

    /// What it has said by now.
    pub(crate) fn said(&self) -> Option<&AgentHello> {
        match self {
            Self::Said(hello) => Some(hello),
            Self::Presumed(later) => later.said.get(),
        }
    }

    /// The processors of its host, if it has told them. A daemon that has not spoken looks itself whether it has fewer
    /// than we tell it.
    pub(crate) fn cpus(&self) -> u16 {
        self.said().map_or_else(host_facts::cpus, |hello| hello.cpus)
    }

    /// Its host, for the report.
    pub(crate) fn host(&self, place: &Place) -> Host {
        let place = place.to_string();
        match self.said() {
            Some(hello) => Host { place, cpus: hello.cpus, limits: hello.limits.clone() },
            None => Host { place, ..Host::default() },
        }
    }

    /// It says who it is in the middle of the session. A daemon that was not waited for may do that once.
    pub(crate) fn on_hello(&self, hello: AgentHello) -> Result<(), Error> {
        match self {
            Self::Said(_) => Err(faults::unexpected(&Control::AgentHello(hello))),
            Self::Presumed(later) => later.on_hello(hello),
        }
    }

    /// An error of the session, which may be a refusal as long as the daemon has said nothing.
    pub(crate) fn explain(&self, error: Error) -> Error {
        match self {
            Self::Presumed(later) if self.said().is_none() => {
                later.known.explain_refusal(&later.host, later.port, error)
            }
            Self::Presumed(_) | Self::Said(_) => error,
        }
    }
}

/// A daemon whose first words nobody waits for: its proved key, and later its words.
#[derive(Clone)]
pub(crate) struct Introduction {
    said: Arc<OnceLock<AgentHello>>,
    known: Arc<KnownHosts>,
    host: String,
    port: u16,
    key: PublicKey,
}

impl Introduction {
    /// Of a daemon that was reached under this name, and has proved this key.
    pub(crate) fn new(known: Arc<KnownHosts>, host: &str, port: u16, key: PublicKey) -> Self {
        Self { said: Arc::default(), known, host: host.to_owned(), port, key }
    }

    fn on_hello(&self, hello: AgentHello) -> Result<(), Error> {
        if hello.key != self.key.0 {
            return Err(Error::new(Fault::Protocol, "the daemon names another key than it has proved"));
        }
        self.said.set(hello).map_err(|hello| faults::unexpected(&Control::AgentHello(hello)))
    }
}
