//! The floor of the retransmission timeout on this host's own networks, where a connection cannot have a floor of its own.

use alloc::format;
use alloc::vec::Vec;

use super::finding::{Finding, Matters};
use super::host::{Host, Uplink};
use super::uplinks::network;

/// None where haul sets the floor for each connection, or where there is no network.
pub(super) fn findings(host: &Host) -> Vec<Finding> {
    if host.floor_by_connection != Some(false) || host.uplinks.is_empty() {
        return Vec::new();
    }
    let why = "A lost packet at the end of a file waits for it. Before Linux 6.16 a program cannot set it: its route can. \
               net.ipv4.tcp_rto_min_us (Linux 6.11) would hold for far hosts, too.";
    let finding = Finding::by_hand(
        "retransmission timeout",
        "at least 200 ms",
        Some("at least 50 ms on own networks".into()),
        Matters::WouldHelp,
        why,
    );
    Vec::from([host.uplinks.iter().fold(finding, |finding, uplink| finding.command(route(uplink)))])
}

fn route(Uplink { device, local, prefix_len, .. }: &Uplink) -> alloc::string::String {
    let network = network(*local, *prefix_len);
    match local.is_ipv4() {
        true => format!("ip route change {network} dev {device} proto kernel scope link src {local} rto_min 50ms"),
        false => format!("ip -6 route change {network} dev {device} proto kernel rto_min 50ms"),
    }
}
