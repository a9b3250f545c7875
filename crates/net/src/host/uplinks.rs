//! The addresses from which this host reaches others, and how packets leave.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use haul_sys::interfaces::Interface;
use haul_sys::mptcp_paths;
use haul_sys::routes::{Packet, Route, route_of};

use super::{Roots, parsed};
use crate::interfaces::usable;
use crate::limits;

/// One address of a device, first of its family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uplink {
    /// `eth0`
    pub device: String,
    /// The address.
    pub local: IpAddr,
    /// The bits of its network.
    pub prefix_len: u8,
    /// The router behind the device to anywhere.
    pub router: Option<IpAddr>,
    /// The device by which packets from this address leave.
    pub leaves_by: Option<String>,
    /// The reverse path filter: 1 drops packets answered through another device (RFC 3704).
    pub reverse_path_filter: Option<u8>,
}

/// The uplinks of this host; software devices, such as bridges, only with a router.
pub fn uplinks(roots: &Roots) -> io::Result<Vec<Uplink>> {
    let interfaces = usable()?;
    let mut found = Vec::new();
    for interface in &interfaces {
        for of_family in [IpAddr::is_ipv4, IpAddr::is_ipv6] {
            let Some(address) = interface.addresses.iter().find(|address| of_family(&address.ip)) else { continue };
            let router = ask(Some(interface), address.ip)?.and_then(|route| route.gateway);
            if router.is_none() && is_inside(interface) {
                continue;
            }
            let leaves_by = ask(None, address.ip)?.and_then(|route| route.device);
            let named = leaves_by.and_then(|index| interfaces.iter().find(|interface| interface.index == index));
            found.push(Uplink {
                device: interface.name.clone(),
                local: address.ip,
                prefix_len: address.prefix_len,
                router,
                leaves_by: named.map(|interface| interface.name.clone()),
                reverse_path_filter: address.ip.is_ipv4().then(|| filter(roots, &interface.name)).flatten(),
            });
        }
    }
    found.truncate(limits::MAX_DEVICES);
    Ok(found)
}

fn is_inside(interface: &Interface) -> bool {
    interface.kind.as_deref().is_some_and(|kind| !CARRIERS.contains(&kind))
}

/// Software devices that stand for cards of this host.
const CARRIERS: [&str; 6] = ["bond", "ipvlan", "macvlan", "netvsc", "team", "vlan"];

fn ask(by: Option<&Interface>, from: IpAddr) -> io::Result<Option<Route>> {
    let to = if from.is_ipv4() { IpAddr::V4(ANYWHERE_V4) } else { IpAddr::V6(ANYWHERE_V6) };
    route_of(Packet { to, from: Some(from), device: by.map(|interface| interface.index) })
}

/// Addresses of documentation (RFC 5737, RFC 3849): only the default route leads there.
const ANYWHERE_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const ANYWHERE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

/// The larger of the device's setting and that of all (ip-sysctl).
fn filter(roots: &Roots, device: &str) -> Option<u8> {
    let of = |name: &str| parsed::<u8>(&roots.proc.join(format!("sys/net/ipv4/conf/{name}/rp_filter")));
    of(device).max(of("all"))
}

/// The additions of the kernel's MPTCP to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Multipath {
    /// Paths besides the first.
    pub subflows: u32,
    /// Addresses of a peer that are dialled.
    pub accepted_addresses: u32,
    /// Our addresses that may join, if told.
    pub endpoints: Option<Vec<IpAddr>>,
}

/// Asks the kernel, if it has MPTCP.
pub fn multipath() -> Option<Multipath> {
    let limits = mptcp_paths::limits().ok()?;
    let endpoints = mptcp_paths::endpoints().ok();
    Some(Multipath {
        subflows: limits.subflows,
        accepted_addresses: limits.accepted_addresses,
        endpoints: endpoints.map(|endpoints| endpoints.iter().map(|endpoint| endpoint.ip).collect()),
    })
}

#[cfg(test)]
mod tests {
    use haul_sys::own_network::OwnNetwork;

    use super::*;
    use crate::interfaces::tests::await_uplinks;

    #[test]
    fn uplinks_are_told_with_the_way_that_their_packets_take() {
        let Some(host) = OwnNetwork::new() else { return };
        for (device, net) in [("eth1", 1), ("eth2", 2), ("docker0", 3)] {
            match device {
                "docker0" => host.ip("link add docker0 type veth peer name p3"),
                _ => host.ip(&format!("link add {device} type veth peer name p{net}")),
            }
            host.ip(&format!("link set {device} up"));
            host.ip(&format!("link set p{net} up"));
            host.ip(&format!("addr add 10.{net}.0.5/24 dev {device}"));
        }
        host.enter(|| await_uplinks(3));
        host.ip("route add default via 10.1.0.1");
        host.ip("route add default via 10.2.0.1 metric 200");
        host.enter(|| {
            std::fs::write("/proc/sys/net/ipv4/conf/all/rp_filter", "0").unwrap();
            std::fs::write("/proc/sys/net/ipv4/conf/eth2/rp_filter", "1").unwrap();
            let eth1 = Uplink {
                device: "eth1".into(),
                local: [10, 1, 0, 5].into(),
                prefix_len: 24,
                router: Some([10, 1, 0, 1].into()),
                leaves_by: Some("eth1".into()),
                reverse_path_filter: Some(0),
            };
            let eth2 = Uplink {
                device: "eth2".into(),
                local: [10, 2, 0, 5].into(),
                router: Some([10, 2, 0, 1].into()),
                reverse_path_filter: Some(1),
                ..eth1.clone()
            };
            assert_eq!(uplinks(&Roots::default()).unwrap(), [eth1.clone(), eth2.clone()], "docker0 leads nowhere");
            host.ip("route add default via 10.2.0.1 table 102");
            host.ip("rule add from 10.2.0.5 table 102");
            let by_rule = Uplink { leaves_by: Some("eth2".into()), ..eth2 };
            assert_eq!(uplinks(&Roots::default()).unwrap(), [eth1, by_rule]);
        });
    }
}
