//! What a host tells of itself, and the path that it is to fill.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

/// The path to fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Bytes per second.
    pub rate_bytes_per_s: u64,
    /// Round-trip time.
    pub rtt_us: u64,
}

impl Wanted {
    /// Rate x round trip, at least one packet.
    pub fn under_way_bytes(&self) -> u64 {
        let bytes = u128::from(self.rate_bytes_per_s) * u128::from(self.rtt_us) / 1_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX).max(PACKET_BYTES)
    }

    pub(super) fn is_far(&self) -> bool {
        self.rtt_us >= FAR_RTT_US
    }
}

/// The facts that a host told of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// The values of its `SETTINGS`, by name.
    pub settings: BTreeMap<String, Setting>,
    /// Network devices that are up, without loopback.
    pub interfaces: Vec<Interface>,
    /// The processors.
    pub processors: Processors,
    /// All memory.
    pub memory_bytes: Option<u64>,
    /// A page of memory, the unit of `tcp_mem`.
    pub page_bytes: u64,
    /// The rates of a measured disk.
    pub disk: Option<Disk>,
    /// Addresses towards others.
    pub uplinks: Vec<Uplink>,
    /// The gain that MPTCP may add.
    pub multipath: Option<Multipath>,
    /// Whether a connection may have its own retransmission floor; `None`: not tried.
    pub floor_by_connection: Option<bool>,
}

/// A device's first address of a family.
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
    /// The device for packets from this address; `None`: none.
    pub leaves_by: Option<String>,
    /// The effective filter; IPv6 has none.
    pub reverse_path_filter: Option<u8>,
}

/// The gain that the kernel's MPTCP may add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Multipath {
    /// Paths besides the first one.
    pub subflows: u32,
    /// Addresses of a peer that are dialled.
    pub accepted_addresses: u32,
    /// Own addresses that may join; `None`: unknown.
    pub endpoints: Option<Vec<IpAddr>>,
}

/// A setting of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The words, with one space between them.
    pub value: String,
    /// Whether this network namespace can change it.
    pub writable: bool,
}

impl Setting {
    pub(super) fn numbers(&self) -> Option<Vec<u64>> {
        self.value.split(' ').map(|word| word.parse().ok()).collect()
    }

    pub(super) fn three(&self) -> Option<[u64; 3]> {
        self.numbers()?.try_into().ok()
    }
}

impl Host {
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.settings.get(name)?.value.parse().ok()
    }

    pub(super) fn three(&self, name: &str) -> Option<[u64; 3]> {
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
    /// The link's speed.
    pub speed_bytes_per_s: Option<u64>,
    /// The driver; software devices have none.
    pub driver: Option<String>,
    /// Receive queues.
    pub receive_queues: usize,
    /// Transmit queues.
    pub transmit_queues: usize,
    /// The NUMA node.
    pub node: Option<u32>,
    /// Interrupt lines.
    pub interrupts: Vec<Interrupt>,
}

/// An interrupt line of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// The line's number.
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

/// A disk's rates over a short time.
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

pub(super) const PACKET_BYTES: u64 = 1_500;

/// From here a loss costs cubic seconds.
const FAR_RTT_US: u64 = 10_000;
