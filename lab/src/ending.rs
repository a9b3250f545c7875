//! The end of a lab: its result, or the error.

use std::io;
use std::process::ExitCode;

use crate::experiment::ExperimentError;
use crate::topology::TopologyError;

/// How a lab ended.
#[derive(Debug)]
pub struct Ended {
    /// The command's exit status.
    pub code: ExitCode,
    /// The result, for standard output.
    pub text: String,
    /// Counters of each wire, if asked for.
    pub figures: Vec<String>,
}

/// Why a lab could not be made, or go on.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// An error in the request or topology.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// The kernel refused, or a program is missing.
    #[error("cannot {what}: {cause}{}", hint(.cause))]
    Os {
        /// The failed act.
        what: String,
        /// The cause.
        cause: io::Error,
    },
    /// An experiment failed.
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    /// A signal killed the process that carries the packets.
    #[error("the emulator was killed by signal {0}, and everything in the lab went along")]
    Killed(i32),
    /// The command could not run.
    #[error("cannot run {command}: {cause}")]
    Command {
        /// The command's first word.
        command: String,
        /// The cause.
        cause: io::Error,
    },
}

pub(crate) fn os(what: &str, cause: io::Error) -> LabError {
    LabError::Os { what: what.to_owned(), cause }
}

fn hint(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound => {
            "; `haul-lab doctor` says what this machine allows"
        }
        _ => "",
    }
}

/// The lab misses the values asked for.
pub const EXIT_INVALID: u8 = 3;

/// A shell's exit code after Ctrl-C.
pub const EXIT_INTERRUPTED: u8 = 130;
