//! Who hears of a recording while it runs.

use std::net::SocketAddr;

use haul_job::Error;

use crate::bench::Interval;

/// The observer of a recording, called from several threads.
pub trait Watcher: Sync {
    /// The stream can come to this address.
    fn on_listening(&self, address: SocketAddr);

    /// An interval is over.
    fn on_interval(&self, interval: &Interval);

    /// A failure that does not end the recording.
    fn on_warning(&self, warning: &Error);

    /// Whether to end now.
    fn interrupted(&self) -> bool;
}
