//! The end of a lab: its result, or the error.

use std::io;
use std::process::ExitCode;

use crate::experiment::ExperimentError;
use crate::topology::TopologyError;

/// How a lab ended.
#[derive(Debug)]
pub struct Ended {
    /// The exit status of the command.
    pub code: ExitCode,
    /// The result, for standard output.
    pub text: String,
    /// Counters of each wire, if they were asked for.
    pub figures: Vec<String>,
}

/// Why a lab could not be made, or could not go on.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The request or its topology.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// The kernel, or a needed program.
    #[error("cannot {what}: {cause}{}", hint(.cause))]
    Os {
        /// The failed act.
        what: String,
        /// Why.
        cause: io::Error,
    },
    /// An experiment.
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    /// The process that makes the lab and carries the packets.
    #[error("the emulator was killed by signal {0}, and everything in the lab went along")]
    Killed(i32),
    /// The command.
    #[error("cannot run {command}: {cause}")]
    Command {
        /// Its first word.
        command: String,
        /// Why.
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

/// The lab misses the values asked for: see the table.
pub const EXIT_INVALID: u8 = 3;

/// The exit code of a shell after Ctrl-C.
pub const EXIT_INTERRUPTED: u8 = 130;
