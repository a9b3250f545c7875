//! The task of a lab on its way from the command line into the sandbox: a file in the lab's own directory.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::engine::Engine;

/// One run of a lab.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// TOML of [`crate::topology::Topology`].
    pub topology: String,
    /// The engine that carries the packets.
    #[serde(default)]
    pub engine: Engine,
    /// The host of the command.
    pub host: String,
    /// The act there.
    pub task: Task,
    /// Hosts, and the commands that are started there first by `sh -c`.
    #[serde(default)]
    pub with: Vec<(String, String)>,
    /// Links by name, and the capture files of their packets.
    #[serde(default)]
    pub captures: BTreeMap<String, PathBuf>,
    /// Print the counters of each wire at the end.
    #[serde(default)]
    pub figures: bool,
    /// Width of the user's terminal; `None` without a terminal.
    #[serde(default)]
    pub terminal_columns: Option<u16>,
    /// The most bytes of files in memory, for the size of a guest.
    #[serde(default)]
    pub file_bytes: u64,
    /// The directory of this lab.
    pub directory: PathBuf,
}

/// The task in a lab.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// A command with its arguments.
    Command(Vec<Word>),
    /// Labs that measure themselves, one after the other. Prints a line of JSON for each.
    Calibrate(CalibrateJob),
    /// An experiment: labs one after the other.
    Experiment(Box<ExperimentJob>),
}

/// A calibration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CalibrateJob {
    /// The labs in order.
    pub labs: Vec<LabJob>,
    /// The most measurements of each lab until its values are right.
    pub tries: u32,
}

/// A lab to be calibrated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LabJob {
    /// The parameters in which it differs from the others, in words.
    pub asked: Vec<String>,
    /// TOML of [`crate::topology::Topology`].
    pub topology: String,
}

/// An experiment and how it is to be run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExperimentJob {
    /// The name of a built-in experiment, or a file.
    pub experiment: String,
    /// Where results go.
    pub results: PathBuf,
    /// The results of the run to continue.
    pub resume: Option<PathBuf>,
    /// The directory for data and copies.
    pub work: PathBuf,
    /// Overrides the number of repetitions.
    pub repeat: Option<u32>,
    /// The only tools to run; empty: all.
    pub tools: Vec<String>,
    /// Overrides the data: files, and bytes of each.
    pub data: Option<(u64, u64)>,
    /// The haul to measure, if it is not the one on the PATH.
    pub haul: Option<PathBuf>,
    /// Further adapters.
    pub rivals: Option<PathBuf>,
}

/// One word of a command, of any bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Word(Vec<u8>);

impl Request {
    /// The request as a file. JSON, because a word may hold any bytes.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("strings, paths and numbers have a form in JSON")
    }

    /// Reads a request from a file.
    pub fn from_json(text: &str) -> Result<Request, serde_json::Error> {
        serde_json::from_str(text)
    }
}

impl From<OsString> for Word {
    fn from(word: OsString) -> Word {
        Word(word.into_vec())
    }
}

impl Word {
    /// The word as an argument.
    pub fn as_os_str(&self) -> &std::ffi::OsStr {
        std::ffi::OsStr::from_bytes(&self.0)
    }
}
