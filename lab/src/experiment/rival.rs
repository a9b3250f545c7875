//! Adapters: a few lines of TOML say how a tool is called and how its real server is started. `lab/rivals` has those of
//! the program, and its `README.md` the placeholders.

use std::collections::BTreeMap;

use super::scalar::Scalar;

/// How one tool is called.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RivalSpec {
    /// The name in experiments.
    pub name: String,
    /// One sentence for lists.
    pub about: String,
    /// Programs that must be there.
    #[serde(default)]
    pub needs: Vec<Need>,
    /// Name of its server.
    #[serde(default)]
    pub server: Option<String>,
    /// True: the tool fetches: it runs on the target's host, and its server on the source's host.
    #[serde(default)]
    pub fetches: bool,
    /// Placeholders with their usual values; a tool of an experiment may set others.
    #[serde(default)]
    pub variables: BTreeMap<String, Scalar>,
    /// Files that it reads, made before each sample.
    #[serde(default)]
    pub files: Vec<FileSpec>,
    /// The command line for one file.
    pub command: Vec<String>,
    /// Command line for a directory of files, if it differs; empty if the tool cannot copy several files.
    #[serde(default)]
    pub command_many: Option<Vec<String>>,
    /// Text for each file; together they are the file `{list}`.
    #[serde(default)]
    pub list: Option<String>,
    /// Environment variables.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The check of the result.
    #[serde(default)]
    pub check: Check,
    /// The path of the rate in its JSON output: `end.sum_received.bits_per_second`; bytes if the name ends in
    /// `bytes_per_s`.
    #[serde(default)]
    pub rate_json: Option<String>,
    /// The path of the seconds in its JSON output, if those of the whole command say nothing.
    #[serde(default)]
    pub seconds_json: Option<String>,
    /// The path of the bytes that went with a mark (DSCP), in its JSON output.
    #[serde(default)]
    pub marked_bytes_json: Option<String>,
    /// The path of the changes of its service class, in its JSON output: a list of objects with `at_s` and `class`.
    #[serde(default)]
    pub class_changes_json: Option<String>,
}

/// How one server is started.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSpec {
    /// The name in adapters.
    pub name: String,
    /// Programs that must be there.
    #[serde(default)]
    pub needs: Vec<Need>,
    /// Placeholders with their usual values; a tool of an experiment may set others.
    #[serde(default)]
    pub variables: BTreeMap<String, Scalar>,
    /// Other values for root: many servers must be asked to stay root.
    #[serde(default)]
    pub variables_as_root: BTreeMap<String, Scalar>,
    /// Commands before it starts, each with its own argument list.
    #[serde(default)]
    pub setup: Vec<Vec<String>>,
    /// Its configuration, made before the setup.
    #[serde(default)]
    pub files: Vec<FileSpec>,
    /// The command line, in the foreground, listening on `{port}`.
    pub command: Vec<String>,
    /// Environment variables.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

/// A text file with placeholders.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSpec {
    /// The path, with placeholders.
    pub path: String,
    /// The text, with placeholders.
    pub text: String,
}

/// A program, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Need {
    /// Searched on the path and in the `sbin` directories.
    pub program: String,
    /// Package of Debian and Ubuntu, or another source.
    pub package: String,
}

/// The check of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    /// All files of the source stand below the target, byte for byte, and no other files.
    #[default]
    Files,
    /// Nothing is copied, and nothing is checked.
    None,
}
