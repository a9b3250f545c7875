//! What the lab is to do, as it travels from the command line into the sandbox: a file in the lab's own directory.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// One run of a lab.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// TOML of [`crate::topology::Topology`].
    pub topology: String,
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
    /// The directory of this lab.
    pub directory: PathBuf,
}

/// What happens in a lab.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// A command with its arguments.
    Command(Vec<Word>),
    /// The lab measures itself and prints a table.
    Calibrate,
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
