//! The settings of the kernel for connections, as this process sees them.

pub mod devices;
pub mod kept;
pub mod processors;
pub mod settings;
pub mod uplinks;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use crate::limits;

/// Where a host shows itself and keeps its configuration. Tests have others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    /// `/proc`
    pub proc: PathBuf,
    /// `/sys`
    pub sys: PathBuf,
    /// `/etc`
    pub etc: PathBuf,
    /// `/var/lib`
    pub var_lib: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self { proc: "/proc".into(), sys: "/sys".into(), etc: "/etc".into(), var_lib: "/var/lib".into() }
    }
}

/// Settings that bound one TCP connection (tcp(7), socket(7)), if shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// `net.core.rmem_max`: the bound of SO_RCVBUF.
    pub rmem_max_bytes: Option<u64>,
    /// `net.core.wmem_max`: the bound of SO_SNDBUF.
    pub wmem_max_bytes: Option<u64>,
    /// `net.ipv4.tcp_rmem`, third value: how far a receive buffer grows.
    pub tcp_rmem_max_bytes: Option<u64>,
    /// `net.ipv4.tcp_wmem`, third value: how far a send buffer grows.
    pub tcp_wmem_max_bytes: Option<u64>,
    /// The congestion control of new connections.
    pub congestion_control: Option<String>,
    /// The congestion controls without rights.
    pub allowed_congestion_controls: Vec<String>,
}

/// Reads them now.
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

/// [`limits`] of the last second: a look opens six files.
pub(crate) fn recent_limits() -> Arc<Limits> {
    static KEPT: Mutex<Option<(Instant, Arc<Limits>)>> = Mutex::new(None);
    let now = Instant::now();
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((read, limits)) = kept.as_ref()
        && now.saturating_duration_since(*read) < LIMITS_KEPT
    {
        return Arc::clone(limits);
    }
    let limits = Arc::new(limits());
    *kept = Some((now, Arc::clone(&limits)));
    limits
}

const LIMITS_KEPT: Duration = Duration::from_secs(1);

/// Whether this process may choose it. The kernel may load a module.
pub fn may_choose_congestion_control(name: &str) -> bool {
    Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))
        .and_then(|socket| haul_sys::socket::set_congestion_control(&socket, name))
        .is_ok()
}

fn number(setting: &str, nth: usize) -> Option<u64> {
    words(setting).get(nth)?.parse().ok()
}

fn words(setting: &str) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/sys/net/{setting}")).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

fn line(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

fn parsed<T: std::str::FromStr>(path: &Path) -> Option<T> {
    line(path)?.parse().ok()
}

/// Parses `0-3,8`.
fn list(text: &str) -> Vec<u32> {
    let ranges = text.split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
    });
    ranges.flat_map(|(first, last): (u32, u32)| first..=last).take(limits::MAX_PROCESSORS).collect()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read_as_the_kernel_writes_them() {
        assert_eq!(list("0-3,8"), [0, 1, 2, 3, 8]);
        assert_eq!(list("5\n"), [5]);
        assert_eq!(list(""), [0; 0]);
    }

    #[test]
    fn this_host_tells_how_far_buffers_grow_and_what_controls_congestion() {
        let limits = limits();
        assert!(limits.tcp_rmem_max_bytes.is_some_and(|bytes| bytes >= 4096), "{limits:?}");
        assert!(limits.tcp_wmem_max_bytes.is_some_and(|bytes| bytes >= 4096), "{limits:?}");
        let name = limits.congestion_control.clone().expect("every kernel with TCP has one");
        assert!(limits.allowed_congestion_controls.contains(&name), "{limits:?}");
        assert!(may_choose_congestion_control(&name));
        assert!(!may_choose_congestion_control("no-such"));
    }
}
