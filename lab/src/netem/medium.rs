//! A segment that several hosts share, as a hub with one queue.
//!
//! ```text
//! port --\                                                  /--> port
//! port ---> redirect to "in" [netem: rate, delay] = "out" ---bridge, floods--> port
//! port --/                                                  \--> port
//! ```
//! All hosts hear every frame, the sender too; devices take only their own.

use crate::limits;
use crate::topology::SegmentSpec;

use super::step::{NetemError, Step, WIRES, middle, redirect, up};

pub(super) fn steps(wire: usize, segment: &SegmentSpec, seed: Option<u64>) -> Result<Vec<Step>, NetemError> {
    if u64::from(segment.mtu) > 1500 && segment.rate.bits_per_s() <= 10_000_000 {
        return Err(NetemError::Unsupported {
            what: format!("segment {}", segment.name),
            why: "an Ethernet of 10 Mbit/s has frames of 1500 bytes at most: leave its MTU out".to_owned(),
        });
    }
    let (hub, entrance, exit) = (format!("w{wire}"), format!("w{wire}.in"), format!("w{wire}.out"));
    let ip = |words: String| Step::new(WIRES, "ip", words);
    let mtu = segment.mtu;
    let mut steps = vec![
        ip(format!("link add {hub} mtu {mtu} type bridge stp_state 0 mcast_snooping 0")),
        ip(format!("link add {entrance} mtu {mtu} type veth peer name {exit} mtu {mtu}")),
        up(&hub),
        up(&entrance),
        up(&exit),
    ];
    for (number, device) in (0..segment.hosts.len()).map(|end| middle(wire, end)).chain([exit]).enumerate() {
        steps.push(ip(format!("link set dev {device} master {hub}")));
        // A bridge that learned addresses would send no frame back to the port that all come from.
        steps.push(ip(format!("link set dev {device} type bridge_slave learning off flood on mcast_flood on")));
        if number < segment.hosts.len() {
            steps.extend(redirect(&device, &entrance));
        }
    }
    let queue = segment.queue.map_or(segment.rate.bytes_in(limits::DEFAULT_QUEUE_TIME), |queue| queue.bytes);
    let waiting = limits::netem_packets(queue, mtu).saturating_mul(segment.hosts.len() as u32);
    let on_the_way = limits::netem_packets(segment.rate.bytes_in(segment.delay.0), mtu);
    let seed =
        seed.map_or(String::new(), |seed| format!(" seed {}", seed.wrapping_mul(1009).wrapping_add(2 * wire as u64)));
    let netem = format!(
        "qdisc replace dev {entrance} root handle 1: netem limit {} delay {}us rate {}bit {}{seed}",
        waiting.saturating_add(on_the_way),
        segment.delay.0.as_micros(),
        segment.rate.bits_per_s(),
        limits::NETEM_OVERHEAD_BYTES,
    );
    steps.push(Step::new(WIRES, "tc", netem));
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Topology;

    #[test]
    fn all_ports_feed_one_queue() {
        let text = "hosts = { a = {}, b = {} }\nsegments = [{ name = 'lan', hosts = ['a', 'b'], rate = '10Mbit' }]";
        let steps = steps(0, &Topology::parse(text).unwrap().segments[0], None).unwrap();
        let text: String = steps.iter().map(|step| format!("{step}\n")).collect();
        insta::assert_snapshot!(text, @r"
(wires): ip link add w0 mtu 1500 type bridge stp_state 0 mcast_snooping 0
(wires): ip link add w0.in mtu 1500 type veth peer name w0.out mtu 1500
(wires): ip link set dev w0 up
(wires): ip link set dev w0.in up
(wires): ip link set dev w0.out up
(wires): ip link set dev w0.0 master w0
(wires): ip link set dev w0.0 type bridge_slave learning off flood on mcast_flood on
(wires): tc qdisc add dev w0.0 handle ffff: ingress
(wires): tc filter add dev w0.0 parent ffff: protocol all prio 1 u32 match u32 0 0 action mirred egress redirect dev w0.in
(wires): ip link set dev w0.1 master w0
(wires): ip link set dev w0.1 type bridge_slave learning off flood on mcast_flood on
(wires): tc qdisc add dev w0.1 handle ffff: ingress
(wires): tc filter add dev w0.1 parent ffff: protocol all prio 1 u32 match u32 0 0 action mirred egress redirect dev w0.in
(wires): ip link set dev w0.out master w0
(wires): ip link set dev w0.out type bridge_slave learning off flood on mcast_flood on
(wires): tc qdisc replace dev w0.in root handle 1: netem limit 165 delay 0us rate 10000000bit 24
");
    }
}
