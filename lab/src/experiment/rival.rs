//! Adapters tell in TOML how a tool and its real server start. `lab/rivals` has the program's own; its `README.md` has the
//! placeholders.

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
    /// Required programs.
    #[serde(default)]
    pub needs: Vec<Need>,
    /// The server's name.
    #[serde(default)]
    pub server: Option<String>,
    /// The tool fetches: it runs on the target's host, its server on the source's.
    #[serde(default)]
    pub fetches: bool,
    /// Placeholders and usual values, which experiments may override.
    #[serde(default)]
    pub variables: BTreeMap<String, Scalar>,
    /// Files that it reads, made before each sample.
    #[serde(default)]
    pub files: Vec<FileSpec>,
    /// The command line for one file.
    pub command: Vec<String>,
    /// The command line for a directory, if it differs; empty: impossible.
    #[serde(default)]
    pub command_many: Option<Vec<String>>,
    /// Text for each file, together the file `{list}`.
    #[serde(default)]
    pub list: Option<String>,
    /// Environment variables.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The check of the result.
    #[serde(default)]
    pub check: Check,
    /// Path of the rate in its JSON output: `end.sum_received.bits_per_second`, or bytes in `..._bytes_per_s`.
    #[serde(default)]
    pub rate_json: Option<String>,
    /// Path of the seconds in its JSON output.
    #[serde(default)]
    pub seconds_json: Option<String>,
    /// Path of the marked bytes (DSCP) in its JSON output.
    #[serde(default)]
    pub marked_bytes_json: Option<String>,
    /// Path of class changes in its JSON output, as `at_s` and `class`.
    #[serde(default)]
    pub class_changes_json: Option<String>,
}

/// How one server is started.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSpec {
    /// The name in adapters.
    pub name: String,
    /// Required programs.
    #[serde(default)]
    pub needs: Vec<Need>,
    /// Placeholders and usual values, which experiments may override.
    #[serde(default)]
    pub variables: BTreeMap<String, Scalar>,
    /// Values for root: many servers must be asked to stay root.
    #[serde(default)]
    pub variables_as_root: BTreeMap<String, Scalar>,
    /// Commands before the start, as argument lists.
    #[serde(default)]
    pub setup: Vec<Vec<String>>,
    /// Configuration, made before the setup.
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

/// A program and its origin.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Need {
    /// Searched on the path and in `sbin`.
    pub program: String,
    /// Debian's package, or another source.
    pub package: String,
}

/// The check of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    /// All files stand below the target, byte for byte, and no others.
    #[default]
    Files,
    /// No check; nothing is copied.
    None,
}
