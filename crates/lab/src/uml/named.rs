//! Namespaces by name, as `ip netns` keeps them: for a guest, where we are root and `/run` is ours.

use std::process::Command;

use crate::netem::{Namespaces, NetemError, WIRES};
use crate::plan::Plan;

/// One per host; the middle of the wires is where we are ourselves.
#[derive(Debug)]
pub struct NamedNamespaces(());

impl NamedNamespaces {
    /// Makes the namespaces of a plan's hosts.
    pub fn make(plan: &Plan) -> Result<NamedNamespaces, NetemError> {
        let namespaces = NamedNamespaces(());
        for host in &plan.hosts {
            namespaces.run(WIRES, "ip", &["netns", "add", &host.name])?;
        }
        Ok(namespaces)
    }

    /// A command that will run in the host.
    pub fn command(&self, host: &str, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", host, program]);
        command
    }
}

impl Namespaces for NamedNamespaces {
    fn run(&self, host: &str, program: &str, args: &[&str]) -> Result<String, NetemError> {
        // ip and tc enter a namespace themselves; that saves a program and its mounts.
        let mut command = match (host, program) {
            (WIRES, _) => Command::new(program),
            (_, "ip" | "tc") => {
                let mut command = Command::new(program);
                command.args(["-n", host]);
                command
            }
            _ => self.command(host, program),
        };
        let output = command.args(args).output().map_err(|error| NetemError::NotStarted {
            host: host.to_owned(),
            program: program.to_owned(),
            error,
        })?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(NetemError::Failed {
                host: host.to_owned(),
                command: format!("{program} {}", args.join(" ")),
                stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            }),
        }
    }

    fn reference(&self, host: &str) -> String {
        host.to_owned()
    }
}
