//! What the kernel tells of the connections to a server.

use std::time::Duration;

use haul_store::ConnectionsNow;

use super::Server;

impl Server {
    /// Reads what the kernel tells of all connections.
    pub(crate) fn now(&self) -> ConnectionsNow {
        let now = self.account().habits.data.now();
        let rtt_min_us = if now.rtt_min_us > 0 { now.rtt_min_us } else { self.account().rtt_us() };
        let (allowed, refusals) = self.pool.allowed();
        let server_allows = u16::try_from(allowed).unwrap_or(u16::MAX);
        let count = u16::try_from(self.pool.open()).unwrap_or(u16::MAX);
        // What a reader sends are commands.
        let words = self.account().words();
        ConnectionsNow {
            count,
            rtt_min_us,
            server_allows,
            refusals,
            sent_bytes: now.sent_bytes.saturating_add(words.sent_bytes),
            resent_bytes: now.resent_bytes.saturating_add(words.resent_bytes),
            resent_segments: now.resent_segments.saturating_add(words.resent_segments),
            ..now
        }
    }

    /// Lets data gather before each read.
    pub(crate) fn gather_reads(&self, pause: Duration) {
        self.account().habits.data.gather_reads(pause);
    }
}
