//! A command of the host's own tools, and its failures.

use std::fmt;

/// The namespace of the wires' middle; no host's name.
pub const WIRES: &str = "(wires)";

/// Why the kernel cannot make a network.
#[derive(Debug, thiserror::Error)]
pub enum NetemError {
    /// A tool failed.
    #[error("{command} failed in {host}: {stderr}{}", hint(stderr))]
    Failed {
        /// Host, or [`WIRES`].
        host: String,
        /// The command with arguments.
        command: String,
        /// The tool's error output.
        stderr: String,
    },
    /// A tool could not start.
    #[error("cannot run {program} in {host}: {error}; it comes with the package {}", package(program))]
    NotStarted {
        /// Host, or [`WIRES`].
        host: String,
        /// The program.
        program: String,
        /// The system's error.
        error: std::io::Error,
    },
    /// The kernel cannot do this.
    #[error("{what}: {why}")]
    Unsupported {
        /// The topology's part.
        what: String,
        /// The alternative.
        why: String,
    },
}

/// A command and its namespace, shown as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Host, or [`WIRES`].
    pub host: String,
    /// `ip`, `tc` or `sysctl`.
    pub program: &'static str,
    /// Arguments.
    pub args: Vec<String>,
}

impl Step {
    /// Splits at single spaces: none of our words contains one.
    pub(crate) fn new(host: &str, program: &'static str, words: impl AsRef<str>) -> Step {
        let args = words.as_ref().split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect();
        Step { host: host.to_owned(), program, args }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {}", self.host, self.program, self.args.join(" "))
    }
}

pub(super) fn middle(wire: usize, end: usize) -> String {
    format!("w{wire}.{end}")
}

pub(super) fn up(device: &str) -> Step {
    Step::new(WIRES, "ip", format!("link set dev {device} up"))
}

pub(super) fn redirect(from: &str, to: &str) -> [Step; 2] {
    let filter = format!(
        "filter add dev {from} parent ffff: protocol all prio 1 u32 match u32 0 0 action mirred egress redirect dev {to}"
    );
    [Step::new(WIRES, "tc", format!("qdisc add dev {from} handle ffff: ingress")), Step::new(WIRES, "tc", filter)]
}

fn hint(stderr: &str) -> &'static str {
    match stderr {
        _ if stderr.contains("Specified qdisc kind is unknown") || stderr.contains("Specified qdisc not found") => {
            "\n  hint:  this kernel has no such queue; the engine emulated needs none"
        }
        _ if stderr.contains("cannot mix duplicating netems") => {
            "\n  hint:  this kernel cannot double packets on a link that also reorders them, or has bursts of losses; the engine \
             emulated can"
        }
        _ if stderr.contains("Unknown device type") => "\n  hint:  this kernel has no such device: load its module",
        _ if stderr.contains("Operation not permitted") => "\n  hint:  this needs root in a namespace",
        _ => "",
    }
}

fn package(program: &str) -> &'static str {
    match program {
        "sysctl" => "procps",
        _ => "iproute2",
    }
}
