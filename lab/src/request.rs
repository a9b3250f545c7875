//! A lab's task for the sandbox, as a file.

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
    /// The engine.
    #[serde(default)]
    pub engine: Engine,
    /// The command's host.
    pub host: String,
    /// The task.
    pub task: Task,
    /// Commands for `sh -c`, started first on these hosts.
    #[serde(default)]
    pub with: Vec<(String, String)>,
    /// Capture files by link.
    #[serde(default)]
    pub captures: BTreeMap<String, PathBuf>,
    /// Prints the wires' counters at the end.
    #[serde(default)]
    pub figures: bool,
    /// The terminal's width, if any.
    #[serde(default)]
    pub terminal_columns: Option<u16>,
    /// The most bytes of files in memory, for a guest's size.
    #[serde(default)]
    pub file_bytes: u64,
    /// The lab's directory.
    pub directory: PathBuf,
}

/// The task in a lab.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// A command with arguments.
    Command(Vec<Word>),
    /// Labs that measure themselves, with a line of JSON each.
    Calibrate(CalibrateJob),
    /// An experiment.
    Experiment(Box<ExperimentJob>),
}

/// A calibration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CalibrateJob {
    /// The labs in order.
    pub labs: Vec<LabJob>,
    /// The most measurements of each lab.
    pub tries: u32,
}

/// A lab to calibrate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LabJob {
    /// The lab's own parameters, in words.
    pub asked: Vec<String>,
    /// TOML of [`crate::topology::Topology`].
    pub topology: String,
}

/// An experiment and its options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExperimentJob {
    /// A built-in name, or a file.
    pub experiment: String,
    /// The directory of results.
    pub results: PathBuf,
    /// The results to continue.
    pub resume: Option<PathBuf>,
    /// The directory for data and copies.
    pub work: PathBuf,
    /// Sets the repetitions.
    pub repeat: Option<u32>,
    /// Tools to run; empty: all.
    pub tools: Vec<String>,
    /// Sets the data: files, and bytes of each.
    pub data: Option<(u64, u64)>,
    /// The haul to measure, instead of the PATH's.
    pub haul: Option<PathBuf>,
    /// Further adapters.
    pub rivals: Option<PathBuf>,
}

/// A word of any bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Word(Vec<u8>);

impl Request {
    /// JSON, because a word may hold any bytes.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("strings, paths and numbers have a form in JSON")
    }

    /// Reads a request.
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
