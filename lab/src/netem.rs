//! Makes a plan's wires from the kernel's veth pairs and the netem qdisc of `tc`.
//!
//! A wire's middle lies in a namespace of its own, [`WIRES`], outside both hosts:
//!
//! ```text
//! client: eth0 ======= w0.0 --redirect--> [netem: rate, queue, delay, loss] w0.1 ======= eth0 :server
//!                      w0.0 [netem] <--redirect-- w0.1
//! ```
//!
//! So the sender's stack does not learn of drops, and a host may have any qdisc. With DiffServ, loss or duplication, a second
//! pair follows, because one netem applies chance before the rate: a lost packet would take no time on the wire, a duplicate
//! twice. `qdisc`, `diffserv` and `medium` hold the commands' text.
//!
//! A shared segment is a hub with one netem, and all hosts hear it. **Contention for a half-duplex medium is not modelled**:
//! the shared rate is right, its division and the delays are wrong. The engine emulated is right.

mod diffserv;
mod medium;
mod qdisc;
mod step;

use crate::plan::{Plan, WireKind};
use crate::topology::{DirectionSpec, EventSpec, LinkSpec, Topology};
use crate::units::Probability;
use qdisc::OneWay;

pub use diffserv::FourRates;
pub use step::{NetemError, Step, WIRES};
use step::{middle, redirect, up};

/// Runs the host's own tools (ip, tc, sysctl).
pub trait Namespaces {
    /// Runs a program in the host's network namespace, or in [`WIRES`]; `Err` has its stderr.
    fn run(&self, host: &str, program: &str, args: &[&str]) -> Result<String, NetemError>;
    /// The namespace for `ip link set X netns ...`: a process id, name or path.
    fn reference(&self, host: &str) -> String;
}

/// Makes all wires between empty namespaces; addresses follow.
pub fn make_wires(namespaces: &dyn Namespaces, topology: &Topology, plan: &Plan) -> Result<(), NetemError> {
    let seed = seed_of(namespaces, topology)?;
    run_all(namespaces, &wires(topology, plan, seed, &|host| namespaces.reference(host))?)
}

/// Removes the wires' middle, and so the hosts' devices: a removed namespace keeps names for a while.
pub fn remove_wires(namespaces: &dyn Namespaces, topology: &Topology, plan: &Plan) {
    let Ok(steps) = wires(topology, plan, None, &|host| namespaces.reference(host)) else { return };
    for step in steps {
        if let [link, add, name, ..] = &step.args[..]
            && (link == "link" && add == "add")
        {
            // A pair's other end goes with it.
            let _ = namespaces.run(&step.host, "ip", &["link", "del", name]);
        }
    }
}

/// Makes this event of [`Topology::events`] happen, after all earlier ones.
pub fn apply_event(
    namespaces: &dyn Namespaces,
    topology: &Topology,
    plan: &Plan,
    event: usize,
) -> Result<(), NetemError> {
    let seed = seed_of(namespaces, topology)?;
    run_all(namespaces, &event_steps(topology, plan, event, seed))
}

/// Indices of [`Topology::events`] by time, in stable order.
pub fn events_in_order(topology: &Topology) -> Vec<usize> {
    let mut order: Vec<usize> = (0..topology.events.len()).collect();
    order.sort_by_key(|&event| topology.events[event].at);
    order
}

/// Runs commands up to the first failure.
pub fn run_all(namespaces: &dyn Namespaces, steps: &[Step]) -> Result<(), NetemError> {
    for step in steps {
        let args: Vec<&str> = step.args.iter().map(String::as_str).collect();
        namespaces.run(&step.host, step.program, &args)?;
    }
    Ok(())
}

/// All commands that make the wires, with `ip`'s names of namespaces.
pub fn wires(
    topology: &Topology,
    plan: &Plan,
    seed: Option<u64>,
    reference: &dyn Fn(&str) -> String,
) -> Result<Vec<Step>, NetemError> {
    let mut steps = Vec::new();
    for (number, wire) in plan.wires.iter().enumerate() {
        for (end, &(host, device)) in wire.ends.iter().enumerate() {
            let (host, device) = (&plan.hosts[host], &plan.hosts[host].devices[device]);
            let (ours, mtu, mac) = (middle(number, end), device.mtu, hardware_address(number, end));
            let there = reference(&host.name);
            let pair = format!(
                "link add {ours} mtu {mtu} type veth peer name {} netns {there} mtu {mtu} address {mac}",
                device.name
            );
            steps.push(Step::new(WIRES, "ip", pair));
            steps.push(up(&ours));
        }
        steps.extend(single_packets(topology, plan, number));
        match wire.kind {
            WireKind::Link(link) => {
                let link = &topology.links[link];
                steps.extend(link_steps(number, link, stages(topology, link), seed));
            }
            WireKind::Segment(segment) => {
                steps.extend(medium::steps(number, &topology.segments[segment], seed)?);
            }
        }
    }
    Ok(steps)
}

/// Queue, rate and fate apply to packets, not to segments of 64 KiB, unless segments pass whole.
fn single_packets(topology: &Topology, plan: &Plan, wire: usize) -> Vec<Step> {
    if let WireKind::Link(link) = plan.wires[wire].kind
        && qdisc::segments_stay_whole(&topology.links[link])
    {
        return Vec::new();
    }
    let ends = plan.wires[wire].ends.iter();
    ends.map(|&(host, device)| {
        let host = &plan.hosts[host];
        Step::new(&host.name, "ip", format!("link set dev {} gso_max_segs 1", host.devices[device].name))
    })
    .collect()
}

fn link_steps(wire: usize, link: &LinkSpec, stages: Stages, seed: Option<u64>) -> Vec<Step> {
    let mut steps = Vec::new();
    let (near, far) = (middle(wire, 0), middle(wire, 1));
    if stages == Stages::RateThenFate {
        let (near_inner, far_inner) = (inner(wire, 0), inner(wire, 1));
        let mtu = link.mtu;
        let pair = format!("link add {near_inner} mtu {mtu} type veth peer name {far_inner} mtu {mtu}");
        steps.extend([Step::new(WIRES, "ip", pair), up(&near_inner), up(&far_inner)]);
        for (from, to) in [(&near, &near_inner), (&near_inner, &near), (&far, &far_inner), (&far_inner, &far)] {
            steps.extend(redirect(from, to));
        }
    } else {
        steps.extend(redirect(&near, &far));
        steps.extend(redirect(&far, &near));
    }
    for towards in [1, 0] {
        steps.extend(direction_steps(wire, link, stages, towards, Change::Made, seed));
    }
    steps
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stages {
    One,
    /// Rate and queue, or classes, come first, on the inner pair; then delay and fate.
    RateThenFate,
}

fn stages(topology: &Topology, link: &LinkSpec) -> Stages {
    let happens = |share: Option<Probability>| share.is_some_and(|share| !share.is_never());
    let name = link.name();
    let will_lose = topology.events.iter().any(|event| event.link == name && happens(event.loss));
    let needs_two = |direction: DirectionSpec| {
        let chance = happens(direction.loss) || happens(direction.duplicate) || direction.burst.is_some();
        let apart = chance || will_lose || direction.spread.is_some() || qdisc::is_shorter_than_the_way(&direction);
        direction.diffserv.is_some() || (direction.rate.is_some() && apart)
    };
    match needs_two(link.forth()) || needs_two(link.back()) {
        true => Stages::RateThenFate,
        false => Stages::One,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Made,
    Up,
    Down,
}

fn direction_steps(
    wire: usize,
    link: &LinkSpec,
    stages: Stages,
    towards: usize,
    change: Change,
    seed: Option<u64>,
) -> Vec<Step> {
    let down = change == Change::Down;
    let direction = if towards == 1 { link.forth() } else { link.back() };
    let device = middle(wire, towards);
    let seed = seed.map(|seed| seed.wrapping_mul(1009).wrapping_add((2 * wire + towards) as u64));
    let one_way = OneWay::new(link, direction.clone(), down, seed);
    let mut lines = Vec::new();
    let entrance = inner(wire, 1 - towards);
    match (stages, direction.diffserv) {
        (Stages::RateThenFate, Some(classes)) => {
            let classes = diffserv::lines(&entrance, &direction, &classes, link.rtt(), link.mtu);
            if change == Change::Made {
                lines.push(diffserv::frame(&entrance));
                lines.extend(classes);
                lines.extend(diffserv::filters(&entrance));
            } else {
                lines.extend(classes);
            }
            lines.extend(one_way.after_the_rate(&device, down));
        }
        (Stages::RateThenFate, None) => {
            lines.push(one_way.rate_alone(&entrance));
            lines.extend(one_way.after_the_rate(&device, false));
        }
        (Stages::One, _) => lines.extend(one_way.lines(&device)),
    }
    lines.into_iter().map(|line| Step::new(WIRES, "tc", line)).collect()
}

/// The commands of an event.
pub fn event_steps(topology: &Topology, plan: &Plan, event: usize, seed: Option<u64>) -> Vec<Step> {
    let name = &topology.events[event].link;
    let (link, down) = link_after(topology, event);
    let number = plan.wires.iter().position(|wire| &wire.name == name && matches!(wire.kind, WireKind::Link(_)));
    let Some((link, number)) = link.zip(number) else { return Vec::new() };
    let change = if down { Change::Down } else { Change::Up };
    let stages =
        topology.links.iter().find(|made| &made.name() == name).map_or(Stages::One, |made| stages(topology, made));
    let mut steps = direction_steps(number, &link, stages, 1, change, seed);
    steps.extend(direction_steps(number, &link, stages, 0, change, seed));
    if let Some(unplugged) = topology.events[event].unplugged {
        let state = if unplugged { "down" } else { "up" };
        steps.extend([0, 1].map(|end| Step::new(WIRES, "ip", format!("link set dev {} {state}", middle(number, end)))));
    }
    steps
}

fn link_after(topology: &Topology, event: usize) -> (Option<LinkSpec>, bool) {
    let name = &topology.events[event].link;
    let mut link = topology.links.iter().find(|link| &link.name() == name).cloned();
    let mut down = false;
    for index in events_in_order(topology) {
        let happened = &topology.events[index];
        if &happened.link == name {
            down = happened.down.unwrap_or(down);
            if let Some(link) = &mut link {
                change(link, happened);
            }
        }
        if index == event {
            break;
        }
    }
    (link, down)
}

/// Changes both directions alike; the queue keeps its bytes.
fn change(link: &mut LinkSpec, event: &EventSpec) {
    let rtt = link.rtt();
    let (mut forth, mut back) = (link.forth(), link.back());
    for direction in [&mut forth, &mut back] {
        let queue = direction.queue_bytes(rtt);
        if event.rate.is_some() || event.delay.is_some() {
            direction.queue = Some(crate::units::Size { bytes: queue });
        }
        direction.rate = event.rate.or(direction.rate);
        direction.delay = event.delay.or(direction.delay);
        direction.loss = event.loss.or(direction.loss);
    }
    link.rtt = None;
    link.both = forth;
    link.back = back;
}

fn inner(wire: usize, end: usize) -> String {
    format!("w{wire}.{end}i")
}

/// Known addresses, locally administered, save hosts from asking.
pub fn hardware_address(wire: usize, end: usize) -> String {
    format!("02:00:10:99:{wire:02x}:{:02x}", end + 1)
}

/// iproute2 6.7 and later give netem a seed; otherwise the kernel chooses.
fn seed_of(namespaces: &dyn Namespaces, topology: &Topology) -> Result<Option<u64>, NetemError> {
    let version = namespaces.run(WIRES, "tc", &["-V"])?;
    Ok(takes_seed(&version).then_some(topology.seed))
}

fn takes_seed(version: &str) -> bool {
    let number = version.split("iproute2-").nth(1).unwrap_or_default();
    let mut parts = number.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= (6, 7)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: &str = "hosts = { client = {}, server = {} }\n\
        [[links]]\nname = 'wan'\nends = ['client', 'server']\nrate = '1Gbit'\nrtt = '100ms'\nqueue = '1538kB'\n";

    fn read(text: &str) -> (Topology, Plan) {
        let topology = Topology::parse(text).unwrap();
        let plan = Plan::of(&topology).unwrap();
        (topology, plan)
    }

    fn lines(steps: &[Step]) -> String {
        steps.iter().map(|step| format!("{step}\n")).collect()
    }

    #[test]
    fn a_link_is_two_pairs_and_two_queues_outside_both_hosts() {
        let (topology, plan) = read(&LINK.replace("1538kB", "15380kB"));
        let steps = wires(&topology, &plan, None, &|host| host.to_owned()).unwrap();
        insta::assert_snapshot!(lines(&steps), @r"
(wires): ip link add w0.0 mtu 1500 type veth peer name eth0 netns client mtu 1500 address 02:00:10:99:00:01
(wires): ip link set dev w0.0 up
(wires): ip link add w0.1 mtu 1500 type veth peer name eth0 netns server mtu 1500 address 02:00:10:99:00:02
(wires): ip link set dev w0.1 up
client: ip link set dev eth0 gso_max_segs 1
server: ip link set dev eth0 gso_max_segs 1
(wires): tc qdisc add dev w0.0 handle ffff: ingress
(wires): tc filter add dev w0.0 parent ffff: protocol all prio 1 u32 match u32 0 0 action mirred egress redirect dev w0.1
(wires): tc qdisc add dev w0.1 handle ffff: ingress
(wires): tc filter add dev w0.1 parent ffff: protocol all prio 1 u32 match u32 0 0 action mirred egress redirect dev w0.0
(wires): tc qdisc replace dev w0.1 root handle 1: netem limit 14064 delay 50000us rate 1000000000bit 24 loss random 0%
(wires): tc qdisc replace dev w0.0 root handle 1: netem limit 14064 delay 50000us rate 1000000000bit 24 loss random 0%
");
    }

    #[test]
    fn events_add_up_and_a_link_that_is_down_loses_all() {
        let text = format!(
            "{LINK}\n[[events]]\nat = '9s'\nlink = 'wan'\ndown = true\n[[events]]\nat = '5s'\nlink = 'wan'\nrate = '100Mbit'\n\
             [[events]]\nat = '10s'\nlink = 'wan'\ndown = false\nloss = '1%'"
        );
        let (topology, plan) = read(&text);
        assert_eq!(events_in_order(&topology), [1, 0, 2]);
        let text: String = [1, 0, 2].map(|event| lines(&event_steps(&topology, &plan, event, None)[..2])).concat();
        insta::assert_snapshot!(text, @r"
(wires): tc qdisc replace dev w0.0i root handle 1: netem limit 1000 delay 0us rate 100000000bit 24 loss random 0%
(wires): tc qdisc replace dev w0.1 root handle 1: netem limit 174536 delay 50000us loss random 0%
(wires): tc qdisc replace dev w0.0i root handle 1: netem limit 1000 delay 0us rate 100000000bit 24 loss random 100%
(wires): tc qdisc replace dev w0.1 root handle 1: netem limit 174536 delay 50000us loss random 0%
(wires): tc qdisc replace dev w0.0i root handle 1: netem limit 1000 delay 0us rate 100000000bit 24 loss random 0%
(wires): tc qdisc replace dev w0.1 root handle 1: netem limit 174536 delay 50000us loss random 1%
");
    }

    #[test]
    fn a_cable_that_is_pulled_takes_the_carrier_from_both_hosts() {
        let text = format!(
            "{LINK}\n[[events]]\nat = '1s'\nlink = 'wan'\nunplugged = true\n[[events]]\nat = '2s'\nlink = 'wan'\nunplugged = false"
        );
        let (topology, plan) = read(&text);
        let steps: String = [0, 1].map(|event| lines(&event_steps(&topology, &plan, event, None))).concat();
        let of_the_cable: String =
            steps.lines().filter(|line| !line.contains("qdisc")).map(|line| format!("{line}\n")).collect();
        insta::assert_snapshot!(of_the_cable, @r"
(wires): ip link set dev w0.0 down
(wires): ip link set dev w0.1 down
(wires): ip link set dev w0.0 up
(wires): ip link set dev w0.1 up
");
        assert!(!steps.contains("100%"), "only a black hole loses silently: {steps}");
    }

    #[test]
    fn classes_wait_before_the_delay() {
        let (topology, plan) = read(&LINK.replace("queue", "diffserv = {}\nqueue"));
        let steps = wires(&topology, &plan, None, &|host| host.to_owned()).unwrap();
        let redirects: Vec<Step> =
            steps.into_iter().filter(|step| step.args.contains(&"mirred".to_owned())).take(2).collect();
        insta::assert_snapshot!(lines(&redirects), @r"
(wires): tc filter add dev w0.0 parent ffff: protocol all prio 1 u32 match u32 0 0 action mirred egress redirect dev w0.0i
(wires): tc filter add dev w0.0i parent ffff: protocol all prio 1 u32 match u32 0 0 action mirred egress redirect dev w0.0
");
    }

    /// A lost packet takes its time on the wire, a duplicate none, as in our emulator.
    #[test]
    fn chance_begins_behind_the_rate() {
        for more in ["loss = '1%'", "burst = { loss = '1%', length = 3 }", "duplicate = '1%'", "back = { loss = '1%' }"]
        {
            let (topology, plan) = read(&LINK.replace("queue", &format!("{more}\nqueue")));
            let steps = lines(&wires(&topology, &plan, None, &|host| host.to_owned()).unwrap());
            let with_rate: Vec<&str> = steps.lines().filter(|line| line.contains(" rate ")).collect();
            assert_eq!(
                with_rate,
                ["w0.0i", "w0.1i"].map(|device| format!(
                    "(wires): tc qdisc replace dev {device} root handle 1: netem limit 1000 delay 0us rate 1000000000bit 24 loss random 0%"
                )),
                "{more}"
            );
            let with_delay =
                steps.lines().filter(|line| line.contains("dev w0.1 root") && line.contains(" delay 50000us"));
            assert_eq!(with_delay.count(), 1, "{steps}");
        }
    }

    #[test]
    fn a_seed_goes_to_tools_that_know_what_it_is() {
        assert!(takes_seed("tc utility, iproute2-6.15.0, libbpf 1.5.0"));
        assert!(!takes_seed("tc utility, iproute2-6.1.0, libbpf 1.1.2"));
        assert!(!takes_seed("something else"));
    }
}
