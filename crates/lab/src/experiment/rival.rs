//! Adapters: how a tool is called and how its real server is started, as a few lines of TOML each.
//!
//! Those in `crates/lab/rivals` are part of the program; a user's directory adds more or replaces them (`DIR/*.toml` for
//! tools, `DIR/servers/*.toml` for servers). `crates/lab/rivals/README.md` lists the placeholders.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::error::{ExperimentError, file};
use super::spec::{Scalar, ToolSpec};
use crate::programs;

/// How one tool is called.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RivalSpec {
    /// For experiments.
    pub name: String,
    /// One sentence for lists.
    pub about: String,
    /// Programs that must be there.
    #[serde(default)]
    pub needs: Vec<Need>,
    /// Name of the server that it talks to.
    #[serde(default)]
    pub server: Option<String>,
    /// True: it fetches, so it runs on the host that gets the data and its server on the one that has it.
    #[serde(default)]
    pub fetches: bool,
    /// Placeholders with their usual values; a tool of an experiment may set others.
    #[serde(default)]
    pub variables: BTreeMap<String, Scalar>,
    /// Files that it reads, made before each sample.
    #[serde(default)]
    pub files: Vec<FileSpec>,
    /// Command line for one file.
    pub command: Vec<String>,
    /// Command line for a directory of files, where it differs; empty when it cannot.
    #[serde(default)]
    pub command_many: Option<Vec<String>>,
    /// Text for each file; all of them together are the file `{list}`.
    #[serde(default)]
    pub list: Option<String>,
    /// Environment variables.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// How the result is checked.
    #[serde(default)]
    pub check: Check,
    /// Where in its JSON output the rate stands: `end.sum_received.bits_per_second`. In bits per second, or in bytes where the name ends in
    /// `bytes_per_s`.
    #[serde(default)]
    pub rate_json: Option<String>,
}

/// How one server is started.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSpec {
    /// For adapters.
    pub name: String,
    /// Programs that must be there.
    #[serde(default)]
    pub needs: Vec<Need>,
    /// Placeholders with their usual values; a tool of an experiment may set others.
    #[serde(default)]
    pub variables: BTreeMap<String, Scalar>,
    /// Other values for root, who must often be asked to stay root.
    #[serde(default)]
    pub variables_as_root: BTreeMap<String, Scalar>,
    /// Commands before it starts, each with its own argument list.
    #[serde(default)]
    pub setup: Vec<Vec<String>>,
    /// Its configuration, made before the setup.
    #[serde(default)]
    pub files: Vec<FileSpec>,
    /// In the foreground, listening on `{port}`.
    pub command: Vec<String>,
    /// Environment variables.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

/// A text file with placeholders.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSpec {
    /// With placeholders.
    pub path: String,
    /// With placeholders.
    pub text: String,
}

/// A program, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Need {
    /// Looked for on the path and in the `sbin` directories.
    pub program: String,
    /// Package of Debian and Ubuntu, or another word on where it is to be had.
    pub package: String,
}

/// How a result is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    /// All files of the source stand below the target, byte for byte, and nothing else does.
    #[default]
    Files,
    /// Nothing is copied.
    None,
}

/// A tool that cannot take part, and why.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct MissingTool {
    /// As in the experiment.
    pub label: String,
    /// For people: what is missing and which package has it.
    pub why: String,
}

/// All adapters, and where programs are.
#[derive(Clone, Debug)]
pub struct Rivals {
    rivals: BTreeMap<String, RivalSpec>,
    servers: BTreeMap<String, ServerSpec>,
    programs: BTreeMap<String, PathBuf>,
}

impl Rivals {
    /// The adapters that are part of the program.
    pub fn built_in() -> Result<Rivals, ExperimentError> {
        let mut all = Rivals { rivals: BTreeMap::new(), servers: BTreeMap::new(), programs: BTreeMap::new() };
        for (name, text) in super::builtin::RIVALS {
            all.add_rival(&format!("the built-in adapter {name}"), text)?;
        }
        for (name, text) in super::builtin::SERVERS {
            all.add_server(&format!("the built-in server {name}"), text)?;
        }
        Ok(all)
    }

    /// Adds those of a directory; one with the same name replaces ours.
    pub fn add_dir(&mut self, dir: &Path) -> Result<(), ExperimentError> {
        for path in toml_files(dir)? {
            let text = std::fs::read_to_string(&path).map_err(file("read", &path))?;
            self.add_rival(&path.display().to_string(), &text)?;
        }
        let servers = dir.join("servers");
        if servers.is_dir() {
            for path in toml_files(&servers)? {
                let text = std::fs::read_to_string(&path).map_err(file("read", &path))?;
                self.add_server(&path.display().to_string(), &text)?;
            }
        }
        Ok(())
    }

    /// Uses this file for a program instead of looking for it: `haul` from a build directory.
    pub fn set_program(&mut self, name: &str, path: PathBuf) {
        // Tools run in directories of their own.
        let path = std::path::absolute(&path).unwrap_or(path);
        self.programs.insert(name.to_owned(), path);
    }

    /// All adapters, by name.
    pub fn iter(&self) -> impl Iterator<Item = &RivalSpec> {
        self.rivals.values()
    }

    /// What of an adapter (with its server) is not there; empty when it can run. Unknown names have no needs.
    pub fn missing_of(&self, rival: &str) -> Vec<Need> {
        let Some(rival) = self.rivals.get(rival) else { return Vec::new() };
        let server = rival.server.as_ref().and_then(|name| self.servers.get(name));
        let needs = rival.needs.iter().chain(server.into_iter().flat_map(|server| &server.needs));
        let missing: std::collections::BTreeSet<&Need> =
            needs.filter(|need| self.program(&need.program).is_none()).collect();
        missing.into_iter().cloned().collect()
    }

    /// The adapter and server of a tool, or why it cannot take part with so many files.
    pub(super) fn of_tool(
        &self,
        tool: &ToolSpec,
        files: u32,
    ) -> Result<(&RivalSpec, Option<&ServerSpec>), MissingTool> {
        let missing = |why: String| MissingTool { label: tool.label().to_owned(), why };
        let Some(rival) = self.rivals.get(&tool.rival) else {
            let known: Vec<&str> = self.rivals.keys().map(String::as_str).collect();
            return Err(missing(format!("there is no adapter {:?}; there is {}", tool.rival, known.join(", "))));
        };
        let server = match &rival.server {
            Some(name) => match self.servers.get(name) {
                Some(server) => Some(server),
                None => return Err(missing(format!("its adapter wants the server {name:?}, which does not exist"))),
            },
            None => None,
        };
        let mut lacks = self.missing_of(&tool.rival);
        lacks.extend(tool.needs.iter().filter(|need| self.program(&need.program).is_none()).cloned());
        if !lacks.is_empty() {
            let lacks: Vec<String> =
                lacks.iter().map(|need| format!("{} (in {})", need.program, need.package)).collect();
            return Err(missing(format!("not installed: {}", lacks.join(", "))));
        }
        if files > 1 && rival.command_many.as_ref().is_some_and(Vec::is_empty) {
            return Err(missing("it copies one file only".into()));
        }
        Ok((rival, server))
    }

    /// Where a program is. Daemons lie in `sbin`, which is often not on the path of a user.
    pub(super) fn program(&self, name: &str) -> Option<PathBuf> {
        if let Some(path) = self.programs.get(name) {
            return path.is_file().then(|| path.clone());
        }
        if name.contains('/') {
            return Some(PathBuf::from(name)).filter(|path| path.is_file());
        }
        programs::find(name)
    }

    fn add_rival(&mut self, what: &str, text: &str) -> Result<(), ExperimentError> {
        let rival: RivalSpec = parse(what, text)?;
        self.rivals.insert(rival.name.clone(), rival);
        Ok(())
    }

    fn add_server(&mut self, what: &str, text: &str) -> Result<(), ExperimentError> {
        let server: ServerSpec = parse(what, text)?;
        self.servers.insert(server.name.clone(), server);
        Ok(())
    }
}

fn parse<T: serde::de::DeserializeOwned>(what: &str, text: &str) -> Result<T, ExperimentError> {
    toml::from_str(text).map_err(|error| ExperimentError::Syntax { what: what.to_owned(), why: error.to_string() })
}

fn toml_files(dir: &Path) -> Result<Vec<PathBuf>, ExperimentError> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(file("read", dir))? {
        let path = entry.map_err(file("read", dir))?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_adapters_are_whole() {
        let rivals = Rivals::built_in().unwrap();
        for rival in rivals.iter() {
            assert!(!rival.about.is_empty() && !rival.command.is_empty(), "{}", rival.name);
            if let Some(server) = &rival.server {
                assert!(rivals.servers.contains_key(server), "{} wants {server}", rival.name);
            }
        }
        assert!(rivals.rivals.len() >= 12);
    }

    #[test]
    fn a_directory_adds_and_replaces() {
        let dir = tempfile::tempdir().unwrap();
        let text = "name = 'scp'\nabout = 'Mine.'\nneeds = [{ program = 'no-such-scp', package = 'mine' }]\ncommand = ['no-such-scp']";
        std::fs::write(dir.path().join("mine.toml"), text).unwrap();
        let mut rivals = Rivals::built_in().unwrap();
        rivals.add_dir(dir.path()).unwrap();
        assert_eq!(rivals.missing_of("scp")[0].package, "mine");
        std::fs::write(dir.path().join("bad.toml"), "name = 1").unwrap();
        assert!(rivals.add_dir(dir.path()).unwrap_err().to_string().contains("bad.toml"));
    }
}
