//! Gives devices that exist their addresses, routes and settings: the same for every engine.

use crate::netem::{Namespaces, NetemError, Step, hardware_address};
use crate::plan::{HostPlan, Plan, WireKind};

/// A setting that a host could not be given, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingLeftOut {
    /// Host.
    pub host: String,
    /// As for sysctl(8).
    pub name: String,
    /// What was asked for.
    pub value: String,
    /// What the tool said.
    pub why: String,
}

/// What is special about the devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// Neighbours have the hardware addresses that `netem` gave them; hosts of a link need not ask for them.
    Ethernet,
    /// TUN: no hardware addresses.
    PointToPoint,
}

/// Applies the settings, brings `lo` and all devices up and gives them addresses and routes. Settings that this kernel does not
/// have, or has only once for all hosts, come back.
pub fn configure(
    namespaces: &dyn Namespaces,
    plan: &Plan,
    kind: DeviceKind,
) -> Result<Vec<SettingLeftOut>, NetemError> {
    let mut left_out = Vec::new();
    for host in &plan.hosts {
        for (name, value) in &host.sysctls {
            let setting = format!("{name}={value}");
            match namespaces.run(&host.name, "sysctl", &["-q", "-w", &setting]) {
                Ok(_) => {}
                Err(NetemError::Failed { stderr, .. }) => left_out.push(SettingLeftOut {
                    host: host.name.clone(),
                    name: name.clone(),
                    value: value.clone(),
                    why: stderr.trim().to_owned(),
                }),
                Err(error) => return Err(error),
            }
        }
        crate::netem::run_all(namespaces, &steps(plan, host, kind))?;
    }
    Ok(left_out)
}

/// The commands that bring up one host.
pub fn steps(plan: &Plan, host: &HostPlan, kind: DeviceKind) -> Vec<Step> {
    let ip = |words: String| Step::new(&host.name, "ip", words);
    let mut steps = vec![ip("link set dev lo up".to_owned())];
    for device in &host.devices {
        let name = &device.name;
        steps.push(ip(format!("link set dev {name} mtu {} up", device.mtu)));
        steps.push(ip(format!("addr add {}/24 dev {name}", device.v4)));
        // IPv6 waits a second for others to claim the address unless told that nobody does; and it needs an MTU of 1280.
        if device.mtu >= LEAST_MTU_OF_V6 {
            steps.push(ip(format!("-6 addr add {}/64 dev {name} nodad", device.v6)));
        }
        let wire = &plan.wires[device.wire];
        if kind == DeviceKind::Ethernet && matches!(wire.kind, WireKind::Link(_)) {
            let other_end = 1 - device.end;
            let (other, its_device) = wire.ends[other_end];
            let other = &plan.hosts[other].devices[its_device];
            let mac = hardware_address(device.wire, other_end);
            steps.push(ip(format!("neigh replace {} lladdr {mac} dev {name} nud permanent", other.v4)));
            if device.mtu >= LEAST_MTU_OF_V6 {
                steps.push(ip(format!("-6 neigh replace {} lladdr {mac} dev {name} nud permanent", other.v6)));
            }
        }
    }
    for route in &host.routes {
        steps.push(ip(format!("route add 10.99.{}.0/24 via {}", route.to_wire, route.via_v4)));
        let first_hop = host.devices.iter().find(|device| device.v6.octets()[..8] == route.via_v6.octets()[..8]);
        if first_hop.is_some_and(|device| device.mtu >= LEAST_MTU_OF_V6) {
            steps.push(ip(format!("-6 route add fd99:0:0:{:x}::/64 via {}", route.to_wire, route.via_v6)));
        }
    }
    steps
}

/// RFC 8200.
const LEAST_MTU_OF_V6: u32 = 1280;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Topology;

    fn text(kind: DeviceKind) -> String {
        let text = "hosts = { a = {}, b = { router = true }, c = {} }\n\
                    links = [{ ends = ['a', 'b'] }, { ends = ['b', 'c'], mtu = 1000 }]";
        let plan = Plan::of(&Topology::parse(text).unwrap()).unwrap();
        plan.hosts.iter().flat_map(|host| steps(&plan, host, kind)).map(|step| format!("{step}\n")).collect()
    }

    #[test]
    fn a_host_has_addresses_neighbours_and_routes() {
        insta::assert_snapshot!(text(DeviceKind::Ethernet), @r"
a: ip link set dev lo up
a: ip link set dev eth0 mtu 1500 up
a: ip addr add 10.99.0.1/24 dev eth0
a: ip -6 addr add fd99::1/64 dev eth0 nodad
a: ip neigh replace 10.99.0.2 lladdr 02:00:10:99:00:02 dev eth0 nud permanent
a: ip -6 neigh replace fd99::2 lladdr 02:00:10:99:00:02 dev eth0 nud permanent
a: ip route add 10.99.1.0/24 via 10.99.0.2
a: ip -6 route add fd99:0:0:1::/64 via fd99::2
b: ip link set dev lo up
b: ip link set dev eth0 mtu 1500 up
b: ip addr add 10.99.0.2/24 dev eth0
b: ip -6 addr add fd99::2/64 dev eth0 nodad
b: ip neigh replace 10.99.0.1 lladdr 02:00:10:99:00:01 dev eth0 nud permanent
b: ip -6 neigh replace fd99::1 lladdr 02:00:10:99:00:01 dev eth0 nud permanent
b: ip link set dev eth1 mtu 1000 up
b: ip addr add 10.99.1.1/24 dev eth1
b: ip neigh replace 10.99.1.2 lladdr 02:00:10:99:01:02 dev eth1 nud permanent
c: ip link set dev lo up
c: ip link set dev eth0 mtu 1000 up
c: ip addr add 10.99.1.2/24 dev eth0
c: ip neigh replace 10.99.1.1 lladdr 02:00:10:99:01:01 dev eth0 nud permanent
c: ip route add 10.99.0.0/24 via 10.99.1.1
");
    }

    #[test]
    fn a_tun_device_has_no_neighbours() {
        assert!(!text(DeviceKind::PointToPoint).contains("neigh"));
    }
}
