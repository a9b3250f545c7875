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
mod floor;
mod machine;
mod reach;
#[cfg(test)]
mod scenarios;
mod stack;
mod uplinks;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

pub use figures::{rate_text, rtt_text, size_text};
pub use reach::{LANES, Reach};

/// The path that the host is to fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Bytes per second.
    pub rate_bytes_per_s: u64,
    /// Round-trip time.
    pub rtt_us: u64,
}

impl Wanted {
    /// The bytes under way when the path is full: rate x round trip. At least one packet.
    pub fn under_way_bytes(&self) -> u64 {
        let bytes = u128::from(self.rate_bytes_per_s) * u128::from(self.rtt_us) / 1_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX).max(PACKET_BYTES)
    }

    /// Whether losses and growth cost many round trips of waiting.
    fn is_far(&self) -> bool {
        self.rtt_us >= FAR_RTT_US
    }
}

/// The facts that a host told of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// The values of those [`SETTINGS`] that it has, by name.
    pub settings: BTreeMap<String, Setting>,
    /// Network devices that are up, without loopback.
    pub interfaces: Vec<Interface>,
    /// The processors.
    pub processors: Processors,
    /// Memory, all of it.
    pub memory_bytes: Option<u64>,
    /// A page of memory, the unit of `tcp_mem`.
    pub page_bytes: u64,
    /// The rates of a disk, when it was measured.
    pub disk: Option<Disk>,
    /// The addresses from which it reaches others.
    pub uplinks: Vec<Uplink>,
    /// The gain that MPTCP may add to a connection.
    pub multipath: Option<Multipath>,
    /// Whether a connection may have a floor of the retransmission timeout of its own; `None`: it was not tried.
    pub floor_by_connection: Option<bool>,
}

/// One address of a device, the first of its family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uplink {
    /// `eth0`
    pub device: String,
    /// The address.
    pub local: IpAddr,
    /// Bits of its network.
    pub prefix_len: u8,
    /// The router behind the device.
    pub router: Option<IpAddr>,
    /// The device by which packets from this address leave; `None`: by no device.
    pub leaves_by: Option<String>,
    /// The reverse path filter in effect; IPv6 has none.
    pub reverse_path_filter: Option<u8>,
}

/// The gain that the kernel's MPTCP may add to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Multipath {
    /// Paths besides the first one.
    pub subflows: u32,
    /// Addresses of a peer that are dialled.
    pub accepted_addresses: u32,
    /// Addresses of this host that may join; `None`: haul is not told.
    pub endpoints: Option<Vec<IpAddr>>,
}

/// A setting of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The words, with one space between them.
    pub value: String,
    /// Whether it can be changed from this network namespace.
    pub writable: bool,
}

impl Setting {
    /// The numbers; `None` when there are other words among them.
    fn numbers(&self) -> Option<Vec<u64>> {
        self.value.split(' ').map(|word| word.parse().ok()).collect()
    }

    /// The three numbers.
    fn three(&self) -> Option<[u64; 3]> {
        self.numbers()?.try_into().ok()
    }
}

impl Host {
    fn number(&self, name: &str) -> Option<u64> {
        self.settings.get(name)?.value.parse().ok()
    }

    fn three(&self, name: &str) -> Option<[u64; 3]> {
        self.settings.get(name)?.three()
    }
}

/// A network device that is up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// `eth0`
    pub name: String,
    /// Largest packet.
    pub mtu_bytes: Option<u64>,
    /// The speed that the link runs at.
    pub speed_bytes_per_s: Option<u64>,
    /// Name of its driver; devices made of software have none.
    pub driver: Option<String>,
    /// Queues for packets that come in.
    pub receive_queues: usize,
    /// Queues for packets that go out.
    pub transmit_queues: usize,
    /// The part of the machine that it is plugged into.
    pub node: Option<u32>,
    /// Where its interrupts go.
    pub interrupts: Vec<Interrupt>,
}

/// An interrupt line of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// The interface's number.
    pub number: u32,
    /// Processors that may take it.
    pub processors: Vec<u32>,
}

/// The processors of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processors {
    /// How many this process may use.
    pub count: usize,
    /// NUMA nodes with their processors.
    pub nodes: BTreeMap<u32, Vec<u32>>,
    /// Frequency governors that are set, each once.
    pub governors: Vec<String>,
}

/// The rates that a disk reached for a short time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// The directory that was asked for.
    pub directory: String,
    /// To the medium.
    pub write_bytes_per_s: u64,
    /// From the medium.
    pub read_bytes_per_s: u64,
    /// Past the page cache.
    pub direct: bool,
}

/// Findings for a host, and what they are worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// Rate x round trip.
    pub under_way_bytes: u64,
    /// The findings, the most important first.
    pub findings: Vec<Finding>,
    /// As the host is.
    pub now: Reach,
    /// With everything that is advised.
    pub then: Reach,
}

impl Advice {
    /// The findings that sysctl can set, whether or not from here.
    pub fn changes(&self) -> impl Iterator<Item = (&Finding, &str)> {
        self.findings.iter().filter_map(|finding| match &finding.remedy {
            Remedy::Sysctl { .. } => Some((finding, finding.advised.as_deref()?)),
            Remedy::ByHand | Remedy::None => None,
        })
    }
}

/// One thing looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// `net.ipv4.tcp_rmem`, `eth0 mtu`
    pub setting: String,
    /// The present value; `None`: this host does not tell.
    pub now: Option<String>,
    /// The advised value; `None`: as it is, or nothing that can be set helps.
    pub advised: Option<String>,
    /// Why, with the arithmetic.
    pub why: String,
    /// Whether it matters for what is wanted.
    pub matters: Matters,
    /// The remedy, which says who can change it.
    pub remedy: Remedy,
    /// Commands for what is no sysctl.
    pub commands: Vec<String>,
}

/// Whether a finding matters for what is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Matters {
    /// The wanted rate is not reached as it is.
    Yes,
    /// The value costs some of the rate, or processor time, or some time at the start.
    WouldHelp,
    /// As it should be.
    Fine,
    /// The host does not tell.
    NotTold,
}

/// The person or program that can change a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// A setting of the kernel.
    Sysctl {
        /// Whether it can be changed from this network namespace.
        here: bool,
    },
    /// A person, with the commands of the finding or with hardware.
    ByHand,
    /// No change is needed.
    None,
}

impl Finding {
    fn fine(setting: &str, now: impl Into<String>, why: impl Into<String>) -> Self {
        Self::new(setting, Some(now.into()), None, Matters::Fine, why.into(), Remedy::None)
    }

    fn not_told(setting: &str, why: impl Into<String>) -> Self {
        Self::new(setting, None, None, Matters::NotTold, why.into(), Remedy::None)
    }

    /// A setting of the kernel that should have another value.
    fn sysctl(name: &str, now: &Setting, advised: String, matters: Matters, mut why: String) -> Self {
        if !now.writable {
            why.push_str(" It cannot be changed from this network namespace: set it on the host.");
        }
        let remedy = Remedy::Sysctl { here: now.writable };
        Self::new(name, Some(now.value.clone()), Some(advised), matters, why, remedy)
    }

    fn by_hand(
        setting: &str,
        now: impl Into<String>,
        advised: Option<String>,
        matters: Matters,
        why: impl Into<String>,
    ) -> Self {
        Self::new(setting, Some(now.into()), advised, matters, why.into(), Remedy::ByHand)
    }

    fn new(
        setting: &str,
        now: Option<String>,
        advised: Option<String>,
        matters: Matters,
        why: String,
        remedy: Remedy,
    ) -> Self {
        Self { setting: setting.into(), now, advised, why, matters, remedy, commands: Vec::new() }
    }

    fn command(mut self, command: String) -> Self {
        self.commands.push(command);
        self
    }
}

/// Looks at a host with a path in mind.
pub fn advise(host: &Host, wanted: Wanted) -> Advice {
    let mut findings = buffers::findings(host, wanted);
    findings.extend(stack::findings(host, wanted));
    findings.extend(machine::findings(host, wanted));
    findings.extend(uplinks::findings(host));
    findings.extend(floor::findings(host));
    // Stable: within a group the order is that of the looking.
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

/// The settings of the kernel that are looked at; what is advised is advised for some of these.
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

/// A packet of ordinary size on Ethernet.
const PACKET_BYTES: u64 = 1_500;

/// From here on a loss costs cubic seconds rather than moments.
const FAR_RTT_US: u64 = 10_000;

/// 10 Gbit/s: from here on packets of 1500 bytes and single queues cost more than one processor has.
const FAST_BYTES_PER_S: u64 = 1_250_000_000;
