//! What this host grants a connection: the settings of the kernel, as this process sees them.

use std::fs;

/// Settings that bound one TCP connection (tcp(7), socket(7)). `None`: this host does not tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// `net.core.rmem_max`: most that a process may ask for with SO_RCVBUF.
    pub rmem_max_bytes: Option<u64>,
    /// `net.core.wmem_max`: most that a process may ask for with SO_SNDBUF.
    pub wmem_max_bytes: Option<u64>,
    /// `net.ipv4.tcp_rmem`, third value: how far the kernel lets a receive buffer grow by itself.
    pub tcp_rmem_max_bytes: Option<u64>,
    /// `net.ipv4.tcp_wmem`, third value: how far the kernel lets a send buffer grow by itself.
    pub tcp_wmem_max_bytes: Option<u64>,
    /// The congestion control of new connections.
    pub congestion_control: Option<String>,
    /// Those that a process without rights may choose.
    pub allowed_congestion_controls: Vec<String>,
}

/// Reads them now: they may change while the program runs.
pub fn limits() -> Limits {
    Limits {
        rmem_max_bytes: number("core/rmem_max", 0),
        wmem_max_bytes: number("core/wmem_max", 0),
        tcp_rmem_max_bytes: number("ipv4/tcp_rmem", 2),
        tcp_wmem_max_bytes: number("ipv4/tcp_wmem", 2),
        congestion_control: words("ipv4/tcp_congestion_control").pop(),
        allowed_congestion_controls: words("ipv4/tcp_allowed_congestion_control"),
    }
}

fn number(setting: &str, nth: usize) -> Option<u64> {
    words(setting).get(nth)?.parse().ok()
}

/// Empty where the kernel has no such setting, or keeps it from this network namespace.
fn words(setting: &str) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/sys/net/{setting}")).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_tells_how_far_buffers_grow_and_what_controls_congestion() {
        let limits = limits();
        assert!(limits.tcp_rmem_max_bytes.is_some_and(|bytes| bytes >= 4096), "{limits:?}");
        assert!(limits.tcp_wmem_max_bytes.is_some_and(|bytes| bytes >= 4096), "{limits:?}");
        let name = limits.congestion_control.clone().expect("every kernel with TCP has one");
        assert!(limits.allowed_congestion_controls.contains(&name), "{limits:?}");
    }
}
