//! What this host says about itself.

use std::sync::OnceLock;

use haul_engine::remedy::Host;

use crate::session::convert;

/// Processors this process may use.
pub(crate) fn cpus() -> u16 {
    static COUNT: OnceLock<u16> = OnceLock::new();
    *COUNT.get_or_init(|| {
        std::thread::available_parallelism().map_or(1, |count| u16::try_from(count.get()).unwrap_or(u16::MAX))
    })
}

/// This machine, for the report.
pub(crate) fn host_here() -> Host {
    let limits = convert::host_limits(haul_net::host::limits());
    Host { place: haul_job::job::Place::Local.to_string(), cpus: cpus(), limits }
}
