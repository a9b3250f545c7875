//! The connections to a web server, as a session sees them.

use std::sync::Arc;

use haul_store::{Connections, ConnectionsNow};

use crate::web::served::{Served, Top};

#[derive(Debug)]
pub(crate) struct WebConnections(pub(crate) Arc<Served>);

impl Connections for WebConnections {
    fn now(&self) -> ConnectionsNow {
        let (allowed, refusals) = self.0.bodies.allowed();
        let server_allows = u16::try_from(allowed).unwrap_or(u16::MAX);
        ConnectionsNow { server_allows, refusals, ..self.0.client.pool.now() }
    }

    fn foreseen_bytes(&self) -> Option<u64> {
        let sizes = self.0.sources.iter().map(|top| match top {
            Top::File { version, .. } => Some(version.size),
            Top::Directory { .. } | Top::Contents(_) => None,
        });
        sizes.sum()
    }

    fn allow(&self, count: u16) {
        self.0.bodies.want(count.into());
        self.0.client.pool.spread_over(count);
    }
}
