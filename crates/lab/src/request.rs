//! What the lab is to do, as it travels from the command line into the sandbox: a file in the lab's own directory.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::lab::Engine;

/// One run of a lab.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// TOML of [`crate::topology::Topology`].
    pub topology: String,
    /// What carries the packets.
    #[serde(default)]
    pub engine: Engine,
    /// Where the command runs.
    pub host: String,
    /// What to do there.
    pub task: Task,
    /// Hosts, and what is started there first by `sh -c`.
    #[serde(default)]
    pub with: Vec<(String, String)>,
    /// Links by name, and the file that their packets are written to.
    #[serde(default)]
    pub captures: BTreeMap<String, PathBuf>,
    /// Tell what passed each wire, at the end.
    #[serde(default)]
    pub figures: bool,
    /// Of the user's terminal; none when there is none.
    #[serde(default)]
    pub terminal_columns: Option<u16>,
    /// Bytes that files in memory may take, for the size of a guest.
    #[serde(default)]
    pub file_bytes: u64,
    /// The directory of this lab.
    pub directory: PathBuf,
}

/// What happens in a lab.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// A command with its arguments.
    Command(Vec<Word>),
    /// Labs that measure themselves, one after the other; prints a line of JSON for each.
    Calibrate(CalibrateJob),
    /// An experiment: labs one after the other.
    Experiment(Box<ExperimentJob>),
}

/// What is to be calibrated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CalibrateJob {
    /// In order.
    pub labs: Vec<LabJob>,
    /// How often each may be measured until it is what was asked for.
    pub tries: u32,
}

/// A lab to be calibrated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LabJob {
    /// What makes it differ from the others, in words.
    pub asked: Vec<String>,
    /// TOML of [`crate::topology::Topology`].
    pub topology: String,
}

/// An experiment and how it is to be run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExperimentJob {
    /// The name of one of ours, or a file.
    pub experiment: String,
    /// Where results go.
    pub results: PathBuf,
    /// Results of a run to be continued.
    pub resume: Option<PathBuf>,
    /// Where data and copies lie.
    pub work: PathBuf,
    /// Another number of repetitions than the file says.
    pub repeat: Option<u32>,
    /// Only these tools.
    pub tools: Vec<String>,
    /// Another size of the data: files, and bytes of each.
    pub data: Option<(u64, u64)>,
    /// The haul to measure, when it is not the one on the PATH.
    pub haul: Option<PathBuf>,
    /// Further adapters.
    pub rivals: Option<PathBuf>,
}

/// One word of a command, of any bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Word(Vec<u8>);

impl Request {
    /// As a file. JSON, since a word may hold any bytes.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("strings, paths and numbers have a form in JSON")
    }

    /// From a file.
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
    /// As an argument.
    pub fn as_os_str(&self) -> &std::ffi::OsStr {
        std::ffi::OsStr::from_bytes(&self.0)
    }
}
