//! Describes this host.

use std::sync::OnceLock;

use haul_engine::remedy::Host;

use crate::convert;

/// The processors of this process.
pub fn cpus() -> u16 {
    static COUNT: OnceLock<u16> = OnceLock::new();
    *COUNT.get_or_init(|| {
        std::thread::available_parallelism().map_or(1, |count| u16::try_from(count.get()).unwrap_or(u16::MAX))
    })
}

/// The host, for the report.
pub fn host_here() -> Host {
    let limits = convert::host_limits(haul_net::host::limits());
    Host { place: haul_job::Here::Disk.to_string(), cpus: cpus(), limits }
}
