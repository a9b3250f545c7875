//! The route that a packet would take, by rtnetlink(7). Nothing is sent.

use std::io;
use std::net::IpAddr;

use crate::interfaces::ip;
use crate::netlink::{ACKNOWLEDGE, Message, Netlink, Subsystem, attribute, push_attribute, u32_at};

/// The packet to route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The target address.
    pub to: IpAddr,
    /// The source address, by which rules may route; `None`: the kernel chooses.
    pub from: Option<IpAddr>,
    /// The device that its socket is bound to.
    pub device: Option<u32>,
}

/// A route of the kernel's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The device that the packet leaves by; `None`: one of several.
    pub device: Option<u32>,
    /// The router; `None`: several, or the same network.
    pub gateway: Option<IpAddr>,
}

/// The route in this host's tables for a packet, if any. Without one, a bound socket sends IPv4 as to a neighbour
/// (`ip_route_output_key_hash_rcu`), and fails after three seconds.
pub fn route_of(packet: Packet) -> io::Result<Option<Route>> {
    let to = packet.to.to_canonical();
    let mut found = None;
    let asked =
        Netlink::open(Subsystem::Route, 0)?.ask(libc::RTM_GETROUTE, ACKNOWLEDGE, &question(packet, to), |answer| {
            found = found.or_else(|| route(answer));
        });
    match asked {
        // With an IPv6 source the device is a wish (`ip6_route_output_flags`): another in the answer means no route.
        Ok(()) => {
            Ok(found.filter(|route| packet.device.is_none() || route.device.is_none() || route.device == packet.device))
        }
        // No route, or one that refuses: unreachable, prohibit, blackhole (ip-route(8)).
        Err(error) if NO_ROUTE.contains(&error.raw_os_error().unwrap_or_default()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// `struct rtmsg`: family 0, target length 1, source length 2, TOS 3, table 4, protocol 5, scope 6, type 7, flags 8.
fn question(packet: Packet, to: IpAddr) -> Vec<u8> {
    let mut body = vec![0; ROUTE_BYTES];
    body[0] = if to.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 } as u8;
    body[1] = bits(to);
    body[8..ROUTE_BYTES].copy_from_slice(&FROM_THE_TABLE.to_ne_bytes());
    push_attribute(&mut body, libc::RTA_DST, &octets(to));
    if let Some(from) = packet.from.map(|from| from.to_canonical()).filter(|from| from.is_ipv4() == to.is_ipv4()) {
        body[2] = bits(from);
        push_attribute(&mut body, libc::RTA_SRC, &octets(from));
    }
    if let Some(device) = packet.device {
        push_attribute(&mut body, libc::RTA_OIF, &device.to_ne_bytes());
    }
    body
}

fn route(answer: Message<'_>) -> Option<Route> {
    if answer.kind != libc::RTM_NEWROUTE {
        return None;
    }
    let fields = answer.body.get(ROUTE_BYTES..)?;
    Some(Route {
        device: attribute(fields, libc::RTA_OIF).and_then(|device| u32_at(device, 0)),
        gateway: attribute(fields, libc::RTA_GATEWAY).and_then(ip),
    })
}

fn bits(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

const ROUTE_BYTES: usize = 12;
/// RTM_F_FIB_MATCH (Linux 4.13). Older kernels ignore it, and guess a neighbour.
const FROM_THE_TABLE: u32 = 0x2000;
const NO_ROUTE: [i32; 4] = [libc::ENETUNREACH, libc::EHOSTUNREACH, libc::EACCES, libc::EINVAL];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interfaces::interfaces;
    use crate::own_network::in_own_network;

    #[test]
    fn a_device_without_a_route_to_the_target_is_told_apart_from_one_with_a_router() {
        in_own_network(|call_ip| {
            for (device, far, net) in [("one", "p1", 1), ("two", "p2", 2)] {
                call_ip(&format!("link add {device} type veth peer name {far}"));
                call_ip(&format!("link set {device} up"));
                call_ip(&format!("link set {far} up"));
                call_ip(&format!("addr add 10.{net}.0.1/24 dev {device}"));
                call_ip(&format!("addr add 2001:db8:{net}::1/64 dev {device} nodad"));
            }
            call_ip("route add default via 10.1.0.254");
            call_ip("route add default via 2001:db8:1::254");
            call_ip("route add blackhole 198.51.100.0/24");
            let index = |name: &str| interfaces().unwrap().iter().find(|device| device.name == name).unwrap().index;
            let (one, two) = (index("one"), index("two"));
            let ask = |to: &str, device| route_of(Packet { to: to.parse().unwrap(), from: None, device }).unwrap();
            for (to, router) in [("192.0.2.1", "10.1.0.254"), ("2001:db8:99::1", "2001:db8:1::254")] {
                let by_router = Some(Route { device: Some(one), gateway: Some(router.parse().unwrap()) });
                assert_eq!(ask(to, None), by_router);
                assert_eq!(ask(to, Some(one)), by_router);
                assert_eq!(ask(to, Some(two)), None, "{to}");
            }
            let bound = |from: &str, to: &str| {
                let (to, from) = (to.parse().unwrap(), Some(from.parse().unwrap()));
                route_of(Packet { to, from, device: Some(two) }).unwrap()
            };
            assert_eq!(bound("10.2.0.1", "192.0.2.1"), None, "the router is on the other device");
            assert_eq!(bound("2001:db8:2::1", "2001:db8:99::1"), None, "the router is on the other device");
            for neighbour in ["10.2.0.9", "2001:db8:2::9"] {
                assert_eq!(ask(neighbour, None), Some(Route { device: Some(two), gateway: None }));
            }
            assert_eq!(ask("198.51.100.1", None), None);
            call_ip("route add default via 10.2.0.254 table 7");
            call_ip("rule add from 10.2.0.1 table 7");
            let from = |from: &str| {
                let packet = Packet { to: [192, 0, 2, 1].into(), from: Some(from.parse().unwrap()), device: None };
                route_of(packet).unwrap().unwrap().device
            };
            assert_eq!((from("10.1.0.1"), from("10.2.0.1")), (Some(one), Some(two)));
        });
    }

    #[test]
    fn malformed_answers_are_no_route() {
        for length in 0..ROUTE_BYTES {
            let body = vec![0xff; length];
            assert_eq!(route(Message { kind: libc::RTM_NEWROUTE, flags: 0, sequence: 0, body: &body }), None);
        }
    }
}
