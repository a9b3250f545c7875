//! The network of a job inside the guest, and the command in it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use super::job::{GuestStatus, Job, Task};
use super::{NamedNamespaces, UmlError};
use crate::configure::{DeviceKind, SettingLeftOut, configure};
use crate::netem::{self, Namespaces as _, WIRES};
use crate::plan::Plan;
use crate::topology::Topology;

/// Where tools lie that an ordinary user's PATH may leave out.
pub(super) const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Makes the network and runs the command; its status as a shell would say it.
pub(super) fn run(job: &Job) -> Result<u8, UmlError> {
    let Some((program, arguments)) = job.command.split_first() else {
        return Err(UmlError::Refused { what: "the command".into(), why: "is empty".into() });
    };
    let mut command = match &job.task {
        Task::Bare => Command::new(program),
        Task::Lab { topology, host } => {
            let namespaces = make_lab(topology, host)?;
            namespaces.command(host, program)
        }
    };
    command.args(arguments).env_clear().envs(job.environment.iter().cloned()).env("PATH", path(job));
    // A directory that only the host has is no reason to fail.
    command.current_dir(if Path::new(&job.directory).is_dir() { &job.directory } else { "/" });
    if let Task::Bare = job.task {
        return Err(UmlError::Io { what: format!("start {program} in the guest"), error: command.exec() });
    }
    let status = command.status().map_err(UmlError::io(format!("start {program} in the guest")))?;
    Ok(match (status.code(), status.signal()) {
        (Some(code), _) => GuestStatus::Exited(code),
        (None, signal) => GuestStatus::Killed(signal.unwrap_or(0)),
    }
    .code())
}

/// The user's, and behind it where `ip` and `sshd` are.
fn path(job: &Job) -> String {
    match job.environment.iter().find(|(name, _)| name == "PATH") {
        Some((_, path)) => format!("{path}:{SYSTEM_PATH}"),
        None => SYSTEM_PATH.to_owned(),
    }
}

fn make_lab(text: &str, host: &str) -> Result<Arc<NamedNamespaces>, UmlError> {
    let refuse = |what: &str, why: String| UmlError::Refused { what: what.to_owned(), why };
    let topology = Topology::parse(text).map_err(|error| refuse("topology", error.to_string()))?;
    let plan = Plan::of(&topology).map_err(|error| refuse("topology", error.to_string()))?;
    if plan.host(host).is_none() {
        return Err(refuse("the command's host", format!("the topology has no host {host:?}")));
    }
    if !topology.traffic.is_empty() {
        let why = "this way of running a command has none: run haul-lab itself as a bare task, which starts it";
        return Err(refuse("cross traffic", why.to_owned()));
    }
    let namespaces = NamedNamespaces::make(&plan)?;
    // The middle of the wires is the guest's first namespace.
    namespaces.run(WIRES, "ip", &["link", "set", "lo", "up"])?;
    netem::make_wires(&namespaces, &topology, &plan)?;
    let left_out = configure(&namespaces, &plan, DeviceKind::Ethernet)?;
    for line in set_for_all(&left_out) {
        let _ = writeln!(std::io::stderr(), "warning: {line}");
    }
    give_names(&plan)?;
    let namespaces = Arc::new(namespaces);
    if !topology.events.is_empty() {
        let namespaces = Arc::clone(&namespaces);
        thread::spawn(move || play_events(&namespaces, &topology, &plan));
    }
    Ok(namespaces)
}

/// Settings that the kernel has only once. The guest is ours, so they are set, unless hosts want them different.
fn set_for_all(left_out: &[SettingLeftOut]) -> Vec<String> {
    let mut wanted: BTreeMap<&str, Vec<&SettingLeftOut>> = BTreeMap::new();
    for setting in left_out {
        wanted.entry(&setting.name).or_default().push(setting);
    }
    let mut lines = Vec::new();
    for (name, settings) in wanted {
        let Some(first) = settings.first() else { continue };
        if settings.iter().any(|setting| setting.value != first.value) {
            lines.push(format!(
                "{name} is the same for all hosts in this kernel, and they want it different: left as it is"
            ));
            continue;
        }
        let path = Path::new("/proc/sys").join(name.replace('.', "/"));
        if let Err(error) = fs::write(&path, &first.value) {
            lines.push(format!("{name} cannot be {} on {}: {error} ({})", first.value, first.host, first.why));
        }
    }
    lines
}

/// Names of hosts resolve, and no others: there is no way out, and waiting for a name server would take a command's time.
fn give_names(plan: &Plan) -> Result<(), UmlError> {
    for (name, text) in [("hosts", plan.hosts_file()), ("resolv.conf", String::new())] {
        let ours = Path::new("/run").join(format!("haul-lab-{name}"));
        let theirs = Path::new("/etc").join(name);
        fs::write(&ours, text).map_err(UmlError::io(format!("write {} in the guest", ours.display())))?;
        // A dangling link, as resolv.conf may be one to a file below /run, needs nothing in front.
        if theirs.exists() {
            let mounted = rustix::mount::mount_bind(&ours, &theirs).map_err(std::io::Error::from);
            mounted.map_err(UmlError::io(format!("put a file before {} in the guest", theirs.display())))?;
        }
    }
    Ok(())
}

/// Each at its time since the lab stood.
fn play_events(namespaces: &NamedNamespaces, topology: &Topology, plan: &Plan) {
    let start = Instant::now();
    for event in netem::events_in_order(topology) {
        let at = start + topology.events[event].at.0;
        thread::sleep(at.saturating_duration_since(Instant::now()));
        if let Err(error) = netem::apply_event(namespaces, topology, plan, event) {
            let _ = writeln!(std::io::stderr(), "warning: event at {}: {error}", topology.events[event].at);
        }
    }
}
