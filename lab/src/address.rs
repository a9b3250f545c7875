//! Gives hosts addresses, routes and settings.

use std::fmt::Write as _;
use std::io;
use std::time::{Duration, Instant};

use crate::hosts::Hosts;
use crate::limits;
use crate::netem::hardware_address;
use crate::plan::{HostPlan, Plan, WireKind};

/// The kind of the devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// Hosts of a link know their neighbours' hardware addresses from `netem`.
    Ethernet,
    /// TUN devices, without hardware addresses.
    PointToPoint,
}

/// The owner of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// The machine's kernel, whose shared settings stay unchanged.
    Shared,
    /// The lab's own kernel, with all settings on which hosts agree.
    Own,
}

/// Brings all devices up, and writes the settings. Returns those that the kernel has only once and could not set.
pub fn configure(plan: &Plan, hosts: &Hosts, devices: DeviceKind, kernel: Kernel) -> io::Result<Vec<String>> {
    let mut left_out = Vec::new();
    for host in &plan.hosts {
        hosts.set_up(&host.name, "ip", &["-batch", "-"], &ip_batch(plan, host, devices))?;
    }
    for host in &plan.hosts {
        hosts.enter(&host.name, await_addresses)?;
        for (name, value) in &host.sysctls {
            let setting = (name.clone(), value.clone());
            match hosts.enter(&host.name, move || set(&setting.0, &setting.1)) {
                Ok(()) => {}
                Err(error) if name == CONGESTION_CONTROL && error.kind() == io::ErrorKind::PermissionDenied => {
                    let lines = congestion_control_by_route(plan, host, value);
                    hosts.set_up(&host.name, "ip", &["-batch", "-"], &lines)?;
                }
                Err(error) if is_shared(name, &error) => {
                    let alike = plan.hosts.iter().all(|other| other.sysctls.contains(&(name.clone(), value.clone())));
                    if kernel == Kernel::Own && alike {
                        let _ = set(name, value);
                    }
                    let is = read(name);
                    if is.as_deref() != Some(value.as_str()) {
                        let is = is.map_or("is not there".to_owned(), |is| format!("stays at {is}"));
                        let host = &host.name;
                        left_out.push(format!(
                            "{host}: {name} {is} instead of {value}: this kernel has it only once for all hosts"
                        ));
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(left_out)
}

/// Even with nodad an IPv6 address stays tentative, losing packets, until a kernel worker has looked (addrconf.c). The flags
/// are if_inet6's fifth column.
fn await_addresses() -> io::Result<()> {
    const TENTATIVE: u8 = 0x40;
    let start = Instant::now();
    loop {
        let table = std::fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap_or_default();
        let tentative = table.lines().filter(|line| line.starts_with("fd99")).any(|line| {
            let flags = line.split_ascii_whitespace().nth(4).and_then(|flags| u8::from_str_radix(flags, 16).ok());
            flags.is_some_and(|flags| flags & TENTATIVE != 0)
        });
        if !tentative {
            return Ok(());
        }
        if start.elapsed() > limits::ADDRESS_LIMIT {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the kernel does not take an IPv6 address into use"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A namespace's default must be an unrestricted congestion control (tcp_cong.c); a route may name any (ip-route(8),
/// congctl).
fn congestion_control_by_route(plan: &Plan, host: &HostPlan, name: &str) -> String {
    let mut lines = String::new();
    for device in &host.devices {
        let (device, v4, networks) = (&device.name, device.v4, networks(plan, device.wire));
        let _ = write!(
            lines,
            "route replace {} dev {device} proto kernel scope link src {v4} congctl {name}\n\
             route replace {} dev {device} proto kernel metric 256 congctl {name}\n",
            networks.0, networks.1
        );
    }
    for route in &host.routes {
        let networks = networks(plan, route.to_wire);
        let _ = write!(
            lines,
            "route replace {} via {} congctl {name}\nroute replace {} via {} congctl {name}\n",
            networks.0, route.via_v4, networks.1, route.via_v6
        );
    }
    lines
}

fn networks(plan: &Plan, wire: usize) -> (String, String) {
    let (host, device) = plan.wires[wire].ends[0];
    let there = &plan.hosts[host].devices[device];
    let [a, b, c, _] = there.v4.octets();
    let mut v6 = there.v6.segments();
    v6[7] = 0;
    (format!("{a}.{b}.{c}.0/24"), format!("{}/64", std::net::Ipv6Addr::from(v6)))
}

const CONGESTION_CONTROL: &str = "net.ipv4.tcp_congestion_control";

/// net.core belongs to the machine, or is read-only in a host.
fn is_shared(name: &str, error: &io::Error) -> bool {
    name.starts_with("net.core.") && matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound)
}

fn ip_batch(plan: &Plan, host: &HostPlan, devices: DeviceKind) -> String {
    let mut lines = String::from("link set lo up\n");
    for device in &host.devices {
        let (name, v4, v6, mtu) = (&device.name, device.v4, device.v6, device.mtu);
        let queue = limits::DEVICE_QUEUE_PACKETS;
        let _ = write!(lines, "link set {name} mtu {mtu} txqueuelen {queue} up\naddr add {v4}/24 dev {name}\n");
        // Duplicate address detection would take a second.
        if device.mtu >= LEAST_MTU_OF_V6 {
            let _ = writeln!(lines, "addr add {v6}/64 dev {name} nodad");
        }
        let wire = &plan.wires[device.wire];
        if devices == DeviceKind::Ethernet && matches!(wire.kind, WireKind::Link(_)) {
            let other_end = 1 - device.end;
            let (other, its_device) = wire.ends[other_end];
            let other = &plan.hosts[other].devices[its_device];
            let mac = hardware_address(device.wire, other_end);
            let _ = writeln!(lines, "neigh replace {} lladdr {mac} dev {name} nud permanent", other.v4);
            if device.mtu >= LEAST_MTU_OF_V6 {
                let _ = writeln!(lines, "neigh replace {} lladdr {mac} dev {name} nud permanent", other.v6);
            }
        }
    }
    for route in &host.routes {
        let (v4, v6) = networks(plan, route.to_wire);
        let _ = writeln!(lines, "route add {v4} via {}", route.via_v4);
        let first_hop = host.devices.iter().find(|device| device.v6.octets()[..8] == route.via_v6.octets()[..8]);
        if first_hop.is_some_and(|device| device.mtu >= LEAST_MTU_OF_V6) {
            let _ = writeln!(lines, "route add {v6} via {}", route.via_v6);
        }
    }
    lines
}

const LEAST_MTU_OF_V6: u32 = 1280;

fn set(name: &str, value: &str) -> io::Result<()> {
    // Topology::check allows only settings of the network.
    std::fs::write(path(name), value)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot set {name} to {value:?}: {error}")))
}

/// `None`: the host does not see this setting of the whole kernel.
fn read(name: &str) -> Option<String> {
    let text = std::fs::read_to_string(path(name)).ok()?;
    Some(text.trim_end().replace('\t', " "))
}

fn path(name: &str) -> String {
    format!("/proc/sys/{}", name.replace('.', "/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Topology;

    #[test]
    fn a_host_behind_a_router_gets_its_way_there() {
        let topology = Topology::parse(
            "hosts = { a = {}, b = { router = true }, c = {} }\nlinks = [{ ends = ['a', 'b'] }, { ends = ['b', 'c'], mtu = 9000 }]",
        )
        .unwrap();
        let plan = Plan::of(&topology).unwrap();
        assert_eq!(
            ip_batch(&plan, plan.host("c").unwrap(), DeviceKind::PointToPoint),
            "link set lo up\n\
             link set eth0 mtu 9000 txqueuelen 20000 up\n\
             addr add 10.99.1.2/24 dev eth0\n\
             addr add fd99:0:0:1::2/64 dev eth0 nodad\n\
             route add 10.99.0.0/24 via 10.99.1.1\n\
             route add fd99::/64 via fd99:0:0:1::1\n"
        );
        let ethernet = ip_batch(&plan, plan.host("a").unwrap(), DeviceKind::Ethernet);
        assert!(
            ethernet.contains("neigh replace 10.99.0.2 lladdr 02:00:10:99:00:02 dev eth0 nud permanent\n"),
            "{ethernet}"
        );
    }
}
