//! A running network: hosts, links of any engine, traffic, timed events.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::address::{self, DeviceKind, Kernel};
use crate::calibrate::{self, Effort, Table};
pub use crate::engine::Engine;
use crate::experiment::{ByteCounters, Testbed};
use crate::hosts::Hosts;
use crate::netem::{self, WIRES};
use crate::network::Network;
use crate::plan::Plan;
use crate::topology::Topology;
use crate::traffic::Traffic;

/// Hosts and links that live until dropped.
pub struct Lab {
    // Order of their end: links close devices while hosts still exist.
    traffic: Option<Traffic>,
    links: Links,
    hosts: Arc<Hosts>,
    topology: Topology,
    plan: Plan,
    engine: Engine,
    left_out: Vec<String>,
    disbelief: Option<String>,
}

enum Links {
    Emulated(Network),
    /// Dropping the sender ends the events' thread.
    Netem(Mutex<Option<Sender<()>>>),
}

impl Lab {
    /// Makes everything; `names` lies over `/etc/hosts`.
    pub fn make(
        topology: &Topology,
        engine: Engine,
        captures: &BTreeMap<String, PathBuf>,
        names: &Path,
    ) -> io::Result<Lab> {
        let plan = Plan::of(topology).map_err(io::Error::other)?;
        fs::write(names, names_of(&plan))?;
        let hosts = Arc::new(Hosts::make(&plan)?);
        let links = match engine {
            Engine::Emulated => Links::Emulated(Network::start(topology, &plan, &hosts, captures)?),
            Engine::Virtual | Engine::Uml => {
                netem::make_wires(&*hosts, topology, &plan).map_err(io::Error::other)?;
                Links::Netem(Mutex::new(None))
            }
        };
        let left_out = match engine {
            Engine::Emulated => address::configure(&plan, &hosts, DeviceKind::PointToPoint, Kernel::Shared)?,
            Engine::Virtual | Engine::Uml => address::configure(&plan, &hosts, DeviceKind::Ethernet, Kernel::Own)?,
        };
        let topology = topology.clone();
        Ok(Lab { traffic: None, links, hosts, topology, plan, engine, left_out, disbelief: None })
    }

    /// Starts the traffic.
    pub fn start_traffic(&mut self) -> io::Result<()> {
        self.traffic = Some(Traffic::start(&self.topology, &self.plan, &self.hosts)?);
        let _ = self.fault();
        Ok(())
    }

    /// The command begins: events count from the first call.
    pub fn begin(&self) -> io::Result<()> {
        match &self.links {
            Links::Emulated(network) => network.begin(),
            Links::Netem(playing) if !self.topology.events.is_empty() => {
                let mut playing = playing.lock().unwrap_or_else(PoisonError::into_inner);
                if playing.is_some() {
                    return Ok(());
                }
                let (stop, stopped) = channel();
                *playing = Some(stop);
                let (hosts, topology, plan) = (Arc::clone(&self.hosts), self.topology.clone(), self.plan.clone());
                let start = Instant::now();
                std::thread::Builder::new().name("events".into()).spawn(move || {
                    for event in netem::events_in_order(&topology) {
                        let at = start + topology.events[event].at.0;
                        let wait = at.saturating_duration_since(Instant::now());
                        if stopped.recv_timeout(wait) == Err(RecvTimeoutError::Disconnected) {
                            return;
                        }
                        let _ = netem::apply_event(&*hosts, &topology, &plan, event);
                    }
                })?;
            }
            Links::Netem(_) => {}
        }
        Ok(())
    }

    /// Measures the lab until done or interrupted.
    pub fn calibrate(&mut self, interrupted: &Arc<AtomicBool>) -> io::Result<Table> {
        let effort = match self.engine {
            Engine::Emulated => Effort::EMULATED,
            Engine::Virtual => Effort::VIRTUAL,
            Engine::Uml => Effort::UML,
        };
        let fault = || match &self.links {
            Links::Emulated(network) => network.fault(),
            Links::Netem(_) => None,
        };
        let table = calibrate::run(&self.topology, &self.plan, &self.hosts, effort, &fault, interrupted)?;
        if !table.holds() {
            self.disbelief = Some("the lab is not what was asked for, see calibration.md".into());
        }
        Ok(table)
    }

    /// Starts a command on a host, with only its user's rights.
    pub fn spawn(&self, host: &str, command: Command) -> io::Result<Child> {
        self.hosts.spawn(host, command)
    }

    /// The hosts' namespaces.
    pub fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// Why measurements since the last call are invalid.
    pub fn fault(&self) -> Option<String> {
        // Asking both makes their answers belong to this call.
        let emulator = match &self.links {
            Links::Emulated(network) => network.fault(),
            Links::Netem(_) => None,
        };
        let traffic = self.traffic.as_ref().and_then(Traffic::fault);
        emulator.or(traffic).or_else(|| self.disbelief.clone())
    }

    /// The links' counters so far, as lines.
    pub fn figures(&self) -> Vec<String> {
        match &self.links {
            Links::Emulated(network) => network.figures(),
            Links::Netem(_) => {
                let shown = netem::Namespaces::run(&*self.hosts, WIRES, "tc", &["-s", "qdisc", "show"]);
                shown.unwrap_or_default().lines().map(str::to_owned).collect()
            }
        }
    }

    /// Settings that hosts lack, in words.
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Links::Netem(playing) = &self.links {
            *playing.lock().unwrap_or_else(PoisonError::into_inner) = None;
            netem::remove_wires(&*self.hosts, &self.topology, &self.plan);
        }
    }
}

/// Lines of `/etc/hosts`. Some servers need the machine's own name.
fn names_of(plan: &Plan) -> String {
    let mut names = plan.hosts_file();
    let uname = rustix::system::uname();
    let own = uname.nodename().to_string_lossy();
    if !own.is_empty() && plan.host(&own).is_none() {
        names.push_str(&format!("127.0.1.1 {own}\n"));
    }
    names
}

impl Testbed for Lab {
    fn spawn(&self, host: &str, command: Command) -> io::Result<Child> {
        Lab::spawn(self, host, command)
    }

    fn address(&self, host: &str) -> Option<Ipv4Addr> {
        self.plan.host(host)?.devices.first().map(|device| device.v4)
    }

    fn fault(&self) -> Option<String> {
        Lab::fault(self)
    }

    fn begin(&self) -> io::Result<()> {
        Lab::begin(self)
    }

    fn bytes_of_others(&self) -> Option<u64> {
        self.traffic.as_ref().and_then(Traffic::tcp_bytes)
    }

    fn counters(&self, host: &str) -> Option<ByteCounters> {
        self.plan.host(host)?;
        Some(ByteCounters { path: self.hosts.device_counters(host), loopback: false })
    }

    fn engine(&self) -> &str {
        self.engine.word()
    }
}
