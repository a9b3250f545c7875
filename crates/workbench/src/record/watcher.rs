//! Who hears of a recording while it runs.

use std::net::SocketAddr;

use haul_job::Error;

use crate::bench::Interval;

/// Observes a recording, from several threads.
pub trait Watcher: Sync {
    /// Announces the stream's address.
    fn on_listening(&self, address: SocketAddr);

    /// Takes a past interval.
    fn on_interval(&self, interval: &Interval);

    /// Takes a failure that does not end the recording.
    fn on_warning(&self, warning: &Error);

    /// Ends the recording if true.
    fn interrupted(&self) -> bool;
}
