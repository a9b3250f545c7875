//! Makes a topology's devices, addresses and routes.
//!
//! Link or segment n (from 0, links first) has the networks `10.99.n.0/24` and `fd99:0:0:n::/64`, with hosts 1, 2, ... in
//! order. A name is its first device's address. Packets take the fewest hops, then the first link.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::topology::{Topology, TopologyError};

/// A planned network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// In the order of [`Topology::hosts`].
    pub hosts: Vec<HostPlan>,
    /// The links, then the segments.
    pub wires: Vec<WirePlan>,
}

/// One host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPlan {
    /// The name.
    pub name: String,
    /// Devices, by wire.
    pub devices: Vec<Device>,
    /// Routes to networks that the host is not on.
    pub routes: Vec<Route>,
    /// Settings by dotted name, for `/proc/sys`.
    pub sysctls: Vec<(String, String)>,
}

/// A host's network device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// `eth0`, `eth1`, ...
    pub name: String,
    /// Index in [`Plan::wires`].
    pub wire: usize,
    /// 0 or 1 on a link, the host's number on a segment.
    pub end: usize,
    /// The address, in a network of 24 bits.
    pub v4: Ipv4Addr,
    /// The address, in a network of 64 bits.
    pub v6: Ipv6Addr,
    /// Bytes of the largest IP packet.
    pub mtu: u32,
}

/// A route to other hosts' network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The wire of that network.
    pub to_wire: usize,
    /// The neighbour's address.
    pub via_v4: Ipv4Addr,
    /// The neighbour's address.
    pub via_v6: Ipv6Addr,
}

/// Link or segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WirePlan {
    /// The name.
    pub name: String,
    /// Which link or segment.
    pub kind: WireKind,
    /// Hosts by index in [`Plan::hosts`], with their devices'.
    pub ends: Vec<(usize, usize)>,
}

/// The kind of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireKind {
    /// Index in [`Topology::links`].
    Link(usize),
    /// Index in [`Topology::segments`].
    Segment(usize),
}

impl Plan {
    /// Plans a network. Fails if no router connects hosts with traffic.
    pub fn of(topology: &Topology) -> Result<Plan, TopologyError> {
        let mut plan = Plan { hosts: Vec::new(), wires: Vec::new() };
        let mut index = BTreeMap::new();
        for (name, spec) in &topology.hosts {
            index.insert(name.as_str(), plan.hosts.len());
            let preset = spec.preset.map_or(&[][..], |preset| preset.sysctls());
            let mut sysctls: BTreeMap<String, String> =
                preset.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            sysctls.extend(spec.sysctl.iter().map(|(name, value)| (name.clone(), value.text())));
            if spec.router {
                sysctls.insert("net.ipv4.ip_forward".into(), "1".into());
                sysctls.insert("net.ipv6.conf.all.forwarding".into(), "1".into());
            }
            let sysctls = sysctls.into_iter().collect();
            plan.hosts.push(HostPlan { name: name.clone(), devices: Vec::new(), routes: Vec::new(), sysctls });
        }
        for (number, link) in topology.links.iter().enumerate() {
            let ends: Vec<usize> = link.ends.iter().map(|name| index[name.as_str()]).collect();
            plan.add_wire(link.name(), WireKind::Link(number), &ends, link.mtu);
        }
        for (number, segment) in topology.segments.iter().enumerate() {
            let ends: Vec<usize> = segment.hosts.iter().map(|name| index[name.as_str()]).collect();
            plan.add_wire(segment.name.clone(), WireKind::Segment(number), &ends, segment.mtu);
        }
        let forwards: Vec<bool> = topology.hosts.values().map(|spec| spec.router).collect();
        for host in 0..plan.hosts.len() {
            plan.hosts[host].routes = plan.routes_from(host, &forwards);
        }
        for traffic in &topology.traffic {
            let (from, to) = traffic.ends();
            if plan.way(index[from], index[to]).is_none() {
                return Err(TopologyError::Impossible {
                    what: format!("traffic from {from} to {to}"),
                    why: "there is no route: connect them, or make a host between them a router".into(),
                });
            }
        }
        Ok(plan)
    }

    /// A host by name.
    pub fn host(&self, name: &str) -> Option<&HostPlan> {
        self.hosts.iter().find(|host| host.name == name)
    }

    /// Names and addresses, as lines of `/etc/hosts`.
    pub fn hosts_file(&self) -> String {
        let mut text = String::from("127.0.0.1 localhost\n::1 localhost ip6-localhost\n");
        for host in &self.hosts {
            if let Some(device) = host.devices.first() {
                text.push_str(&format!("{} {}\n{} {}\n", device.v4, host.name, device.v6, host.name));
            }
        }
        text
    }

    fn way(&self, from: usize, to: usize) -> Option<()> {
        let wire = self.hosts[to].devices.first()?.wire;
        let near = self.hosts[from].devices.iter().any(|device| device.wire == wire);
        (near || self.hosts[from].routes.iter().any(|route| route.to_wire == wire)).then_some(())
    }

    fn add_wire(&mut self, name: String, kind: WireKind, hosts: &[usize], mtu: u32) {
        let wire = self.wires.len();
        let number = u8::try_from(wire).expect("Topology::check bounds the number of wires");
        let mut ends = Vec::new();
        for (end, &host) in hosts.iter().enumerate() {
            let last = u8::try_from(end + 1).expect("Topology::check bounds the hosts of a segment");
            let devices = &mut self.hosts[host].devices;
            ends.push((host, devices.len()));
            devices.push(Device {
                name: format!("eth{}", devices.len()),
                wire,
                end,
                v4: Ipv4Addr::new(10, 99, number, last),
                v6: Ipv6Addr::new(0xfd99, 0, 0, number.into(), 0, 0, 0, last.into()),
                mtu,
            });
        }
        self.wires.push(WirePlan { name, kind, ends });
    }

    /// Breadth first, so the first way to a network is a shortest.
    fn routes_from(&self, host: usize, forwards: &[bool]) -> Vec<Route> {
        let mut via: Vec<Option<Route>> = vec![None; self.wires.len()];
        let mut reached_wire = vec![false; self.wires.len()];
        let mut reached_host = vec![false; self.hosts.len()];
        reached_host[host] = true;
        let mut queue: VecDeque<(usize, Option<(Ipv4Addr, Ipv6Addr)>)> = VecDeque::from([(host, None)]);
        while let Some((at, first)) = queue.pop_front() {
            for device in &self.hosts[at].devices {
                if std::mem::replace(&mut reached_wire[device.wire], true) {
                    continue;
                }
                if let Some((via_v4, via_v6)) = first {
                    via[device.wire] = Some(Route { to_wire: device.wire, via_v4, via_v6 });
                }
                for &(next, its_device) in &self.wires[device.wire].ends {
                    if !forwards[next] || std::mem::replace(&mut reached_host[next], true) {
                        continue;
                    }
                    let neighbour = &self.hosts[next].devices[its_device];
                    queue.push_back((next, first.or(Some((neighbour.v4, neighbour.v6)))));
                }
            }
        }
        via.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Result<Plan, TopologyError> {
        Plan::of(&Topology::parse(text).unwrap())
    }

    #[test]
    fn two_hosts_on_a_link_need_no_route() {
        let plan = plan("hosts = { client = {}, server = {} }\n[[links]]\nends = ['client', 'server']").unwrap();
        assert_eq!(plan.hosts_file().lines().nth(2), Some("10.99.0.1 client"));
        assert_eq!(plan.host("server").unwrap().devices[0].v6.to_string(), "fd99::2");
        assert!(plan.hosts.iter().all(|host| host.routes.is_empty()));
    }

    #[test]
    fn routers_are_gone_through_and_hosts_are_not() {
        let chain = |middle: &str| {
            plan(&format!(
                "hosts = {{ a = {{}}, b = {middle}, c = {{}} }}\nlinks = [{{ ends = ['a', 'b'] }}, {{ ends = ['b', 'c'] }}]\n\
                 traffic = [{{ kind = 'tcp', from = 'a', to = 'c' }}]"
            ))
        };
        let through = chain("{ router = true }").unwrap();
        let route = &through.host("a").unwrap().routes[0];
        assert_eq!((route.to_wire, route.via_v4.to_string().as_str()), (1, "10.99.0.2"));
        assert!(through.host("b").unwrap().sysctls.contains(&("net.ipv4.ip_forward".into(), "1".into())));
        assert!(chain("{}").unwrap_err().to_string().contains("there is no route"));
    }

    #[test]
    fn a_segment_joins_many() {
        let plan = plan(
            "hosts = { a = {}, b = {}, c = {}, r = { router = true }, out = {} }\n\
             links = [{ ends = ['r', 'out'] }]\n\
             segments = [{ name = 'lan', hosts = ['a', 'b', 'c', 'r'], rate = '10Mbit' }]",
        )
        .unwrap();
        assert_eq!(plan.wires[1].ends.len(), 4);
        assert_eq!(plan.host("out").unwrap().routes[0].via_v4.to_string(), "10.99.0.1");
        assert_eq!(plan.host("c").unwrap().routes[0].via_v4.to_string(), "10.99.1.4");
    }
}
