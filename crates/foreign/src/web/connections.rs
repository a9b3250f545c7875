//! The connections to a server, as a session sees them.

use std::sync::Arc;
use std::time::Duration;

use haul_store::{Connections, ConnectionsNow};

use crate::http_client::client::Client;
use crate::web::bodies::Bodies;

#[derive(Debug)]
pub(crate) struct ServerConnections {
    pub(crate) client: Arc<Client>,
    pub(crate) bodies: Arc<Bodies>,
    /// The bytes of all that was named, if known.
    pub(crate) foreseen_bytes: Option<u64>,
}

impl Connections for ServerConnections {
    fn now(&self) -> ConnectionsNow {
        let (allowed, refusals) = self.bodies.allowed();
        let server_allows = u16::try_from(allowed).unwrap_or(u16::MAX);
        ConnectionsNow { server_allows, refusals, ..self.client.pool.now() }
    }

    fn foreseen_bytes(&self) -> Option<u64> {
        self.foreseen_bytes
    }

    fn needs_login(&self) -> bool {
        false
    }

    fn allow(&self, count: u16) {
        self.bodies.want(count.into());
        self.client.pool.spread_over(count);
    }

    fn gather_reads(&self, pause: Duration) {
        self.client.pool.gather_reads(pause);
    }
}
