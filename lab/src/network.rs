//! Makes a planned network of TUN devices.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use haul_sys::tun::{Offload, Tun};

use crate::emulator::{Change, Emulated, LabClock, Watched, Wire};
use crate::frame::Frame;
use crate::hosts::Hosts;
use crate::limits;
use crate::pcap::Capture;
use crate::plan::{Plan, WireKind, WirePlan};
use crate::shape::{Counters, Direction, LinkChange, Nanos, Segment};
use crate::topology::{DirectionSpec, Topology};
use crate::units::{Size, Time};

/// A network that runs until dropped.
pub struct Network {
    stop: Arc<AtomicBool>,
    wires: Vec<(String, Arc<Watched>)>,
    threads: Vec<JoinHandle<()>>,
    clock: LabClock,
    began: Arc<OnceLock<Nanos>>,
}

impl Network {
    /// Makes the devices and starts the emulator. `captures`: links and files.
    pub fn start(
        topology: &Topology,
        plan: &Plan,
        hosts: &Hosts,
        captures: &BTreeMap<String, PathBuf>,
    ) -> io::Result<Network> {
        let clock = LabClock::start();
        let stop = Arc::new(AtomicBool::new(false));
        let (wires, threads) = Default::default();
        let mut network = Network { stop, wires, threads, clock, began: Arc::default() };
        let parts = Parts { topology, plan, hosts, began: Arc::clone(&network.began) };
        let mut ready = Vec::new();
        for (number, planned) in plan.wires.iter().enumerate() {
            let capture = match captures.get(&planned.name) {
                Some(path) => Some(Capture::create(path).map_err(|error| about(&path.display().to_string(), &error))?),
                None => None,
            };
            let seed = topology.seed.wrapping_add((number as u64).wrapping_mul(SEED_STEP));
            ready.push(parts.emulated(planned, seed, capture)?);
        }
        for (planned, wire) in plan.wires.iter().zip(ready) {
            network.wires.push((planned.name.clone(), Arc::clone(&wire.watched)));
            let stop = Arc::clone(&network.stop);
            let name = format!("wire-{}", network.threads.len());
            network.threads.push(std::thread::Builder::new().name(name).spawn(move || {
                drop(wire.run(clock, &stop));
            })?);
        }
        Ok(network)
    }

    /// The command begins: times of events count from now.
    pub fn begin(&self) {
        let _ = self.began.set(self.clock.now());
    }

    /// Counters so far, a line for each direction.
    pub fn figures(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (name, watched) in &self.wires {
            for (counters, way) in watched.counters().iter().zip(["forth", "back"]) {
                lines.push(format!("{name} {way}: {}", line(counters)));
            }
        }
        lines
    }

    /// Why measurements since the last call are invalid.
    pub fn fault(&self) -> Option<String> {
        let mut fault = None;
        for (name, watched) in &self.wires {
            let lateness = watched.take_lateness();
            if lateness.late as f64 > lateness.delivered as f64 * limits::MOST_LATE_SHARE {
                fault = Some(format!(
                    "the emulator was short of processor time: {} of {} packets on {name} were over {} ms late, the latest {} ms",
                    lateness.late,
                    lateness.delivered,
                    limits::LATE.as_millis(),
                    lateness.latest_us / 1000
                ));
            }
        }
        for (name, watched) in &self.wires {
            if watched.counters().iter().any(|counters| counters.overflowed > 0) {
                fault =
                    Some(format!("more was on the way on {name} than the lab holds: rate x delay is too large for it"));
            }
        }
        if let Some(at) = self.threads.iter().position(JoinHandle::is_finished) {
            fault = Some(format!("the emulator of {} has ended", self.wires[at].0));
        }
        fault
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

struct Parts<'a> {
    topology: &'a Topology,
    plan: &'a Plan,
    hosts: &'a Hosts,
    began: Arc<OnceLock<Nanos>>,
}

impl Parts<'_> {
    fn emulated(&self, planned: &WirePlan, seed: u64, capture: Option<Capture>) -> io::Result<Emulated> {
        let offload = match planned.kind {
            WireKind::Link(index) => {
                let link = &self.topology.links[index];
                let changes_bits = |direction: DirectionSpec| direction.corrupt.is_some_and(|share| !share.is_never());
                match (changes_bits(link.forth()) || changes_bits(link.back()), link.has_large_segments()) {
                    // The receiver finds a changed bit by its checksum.
                    (true, _) => Offload::None,
                    (false, true) => Offload::Segmentation,
                    (false, false) => Offload::Checksum,
                }
            }
            WireKind::Segment(_) => Offload::None,
        };
        let mut devices = Vec::new();
        for &(host, device) in &planned.ends {
            let (host, device) = (&self.plan.hosts[host], self.plan.hosts[host].devices[device].name.clone());
            let made = self.hosts.enter(&host.name, move || Tun::create(&device, offload));
            devices.push(made.map_err(|error| about("/dev/net/tun", &error))?);
        }
        let wire = match planned.kind {
            WireKind::Link(index) => {
                let link = &self.topology.links[index];
                let rtt = link.rtt();
                for direction in [link.forth(), link.back()] {
                    check_held(&planned.name, &direction)?;
                }
                let directions = Box::new([
                    Direction::new(&link.forth(), rtt, seed),
                    Direction::new(&link.back(), rtt, seed ^ BACK),
                ]);
                Wire::Link {
                    directions,
                    changes: changes(self.topology, &planned.name),
                    began: Arc::clone(&self.began),
                }
            }
            WireKind::Segment(index) => {
                let medium = Box::new(Segment::new(&self.topology.segments[index], seed));
                Wire::Segment { medium, route: Box::new(routing(self.plan, planned)) }
            }
        };
        let has_header = offload != Offload::None;
        Ok(Emulated { devices, has_header, wire, capture, watched: Arc::default() })
    }
}

fn check_held(link: &str, direction: &DirectionSpec) -> io::Result<()> {
    let Some(rate) = direction.rate else { return Ok(()) };
    let spread = direction.spread.unwrap_or_default().0 * limits::SPREADS_MOST;
    let longest = Time(direction.delay.unwrap_or_default().0 + direction.jitter.unwrap_or_default().0 + spread);
    let held = Size { bytes: rate.bytes_in(longest.0) };
    let most = Size { bytes: limits::MAX_IN_FLIGHT_BYTES };
    match held.bytes <= most.bytes {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "link {link}: {rate} x {longest} are {held} on the way, and the engine emulated holds {most}: use --engine virtual"
        ))),
    }
}

fn changes(topology: &Topology, link: &str) -> VecDeque<Change> {
    let events = topology.events.iter().filter(|event| event.link == link);
    let mut changes: Vec<_> = events
        .map(|event| Change {
            at: Nanos(u64::try_from(event.at.0.as_nanos()).unwrap_or(u64::MAX)),
            link: LinkChange::from(event),
            carrier: event.unplugged.map(|unplugged| !unplugged),
        })
        .collect();
    changes.sort_by_key(|change| change.at);
    changes.into()
}

/// The station with the address, or the neighbour to which the sender routes.
fn routing(plan: &Plan, segment: &WirePlan) -> impl Fn(usize, &Frame) -> Option<usize> + Send + use<> {
    let wire = plan.wires.iter().position(|other| other.name == segment.name);
    let via: Vec<BTreeMap<usize, usize>> = segment
        .ends
        .iter()
        .map(|&(host, _)| {
            let routes = plan.hosts[host].routes.iter();
            routes.map(|route| (route.to_wire, usize::from(route.via_v4.octets()[3]))).collect()
        })
        .collect();
    move |from, frame| {
        let (to_wire, number) = frame.destination()?;
        let station = if Some(to_wire) == wire { number } else { *via[from].get(&to_wire)? };
        (1..=via.len()).contains(&station).then(|| station - 1)
    }
}

fn line(counters: &Counters) -> String {
    let mut text = format!("{} packets in, {} out", counters.offered, counters.delivered);
    let told = [
        (counters.lost, "lost"),
        (counters.lost_down, "lost while down"),
        (counters.dropped, "dropped by a full queue"),
        (counters.policed, "policed"),
        (counters.overflowed, "beyond what the lab holds"),
        (counters.duplicated, "duplicated"),
        (counters.corrupted, "corrupted"),
        (counters.reordered, "reordered"),
        (counters.collisions, "collisions"),
        (counters.gave_up, "given up after collisions"),
    ];
    for (count, what) in told.into_iter().filter(|(count, _)| *count > 0) {
        text.push_str(&format!(", {count} {what}"));
    }
    let (most, longest) = (Size { bytes: counters.waiting_bytes_max }, Time(counters.waiting_time_max));
    text.push_str(&format!("; at most {most} and {longest} waiting"));
    text
}

fn about(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// An odd factor gives neighbouring wires unrelated seeds (the increment of SplitMix64).
const SEED_STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const BACK: u64 = 0x5555_5555_5555_5555;
