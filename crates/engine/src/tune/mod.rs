//! What a host should be set to for a rate over a round-trip time, with the arithmetic.
//!
//! ```text
//!   Host (facts) + Wanted (rate, round trip)  -> buffers   how much one connection may have under way
//!                                             -> stack     the rest of TCP, queues, congestion control
//!                                             -> machine   interfaces, interrupts, processors, disk
//!                                             -> uplinks   several interfaces at once: routes, filters, MPTCP
//!                                             -> reach     what one connection and many reach, now and then
//!   -> Advice: findings, what matters first
//! ```
//! Nothing is ever lowered. A setting that the host does not tell is a finding, too: it is named and nothing is advised.

mod buffers;
mod figures;
mod finding;
mod floor;
mod host;
mod machine;
mod reach;
#[cfg(test)]
#[path = "../../tests/unit/tune_scenarios.rs"]
mod scenarios;
mod stack;
mod uplinks;

use alloc::vec::Vec;

pub use figures::{rate_text, rtt_text, size_text};
pub use finding::{Finding, Matters, Remedy};
pub use host::{Disk, Host, Interface, Interrupt, Multipath, Processors, Setting, Uplink, Wanted};
pub use reach::{LANES, Reach};

/// Findings, and what they are worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// Rate x round trip.
    pub under_way_bytes: u64,
    /// The findings, the most important first.
    pub findings: Vec<Finding>,
    /// As the host is.
    pub now: Reach,
    /// With all advice.
    pub then: Reach,
}

impl Advice {
    /// Findings that sysctl can set, perhaps elsewhere.
    pub fn changes(&self) -> impl Iterator<Item = (&Finding, &str)> {
        self.findings.iter().filter_map(|finding| match &finding.remedy {
            Remedy::Sysctl { .. } => Some((finding, finding.advised.as_deref()?)),
            Remedy::ByHand | Remedy::None => None,
        })
    }
}

/// Looks at a host for a path.
pub fn advise(host: &Host, wanted: Wanted) -> Advice {
    let mut findings = buffers::findings(host, wanted);
    findings.extend(stack::findings(host, wanted));
    findings.extend(machine::findings(host, wanted));
    findings.extend(uplinks::findings(host));
    findings.extend(floor::findings(host));
    // Stable within a group.
    findings.sort_by_key(|finding| finding.matters);
    let mut advice = Advice {
        under_way_bytes: wanted.under_way_bytes(),
        findings,
        now: Reach::of(host, wanted),
        then: Reach::default(),
    };
    let mut tuned = host.clone();
    for (finding, value) in advice.changes() {
        if let Some(setting) = tuned.settings.get_mut(&finding.setting) {
            setting.value = value.into();
        }
    }
    advice.then = Reach::of(&tuned, wanted);
    advice
}

/// The kernel settings that are looked at.
pub const SETTINGS: [&str; 18] = [
    "net.core.default_qdisc",
    "net.core.netdev_max_backlog",
    "net.core.optmem_max",
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.ipv4.tcp_allowed_congestion_control",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_wmem",
    "net.mptcp.enabled",
];
