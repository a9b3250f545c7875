//! The program's adapters, and a user's directory over them.
//!
//! The directory has `*.toml` for tools and `servers/*.toml` for servers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::error::{ExperimentError, file};
use super::rival::{Need, RivalSpec, ServerSpec};
use super::spec::ToolSpec;
use crate::programs;

/// A tool that cannot take part.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct MissingTool {
    /// The experiment's label.
    pub label: String,
    /// The missing program and its package.
    pub why: String,
}

/// All adapters, and the paths of programs.
#[derive(Clone, Debug)]
pub struct Rivals {
    rivals: BTreeMap<String, RivalSpec>,
    servers: BTreeMap<String, ServerSpec>,
    programs: BTreeMap<String, PathBuf>,
}

impl Rivals {
    /// The program's own adapters.
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

    /// Adds a directory's adapters; equal names replace ours.
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

    /// Uses this file as a program: `haul` from a build directory.
    pub fn set_program(&mut self, name: &str, path: PathBuf) {
        let path = std::path::absolute(&path).unwrap_or(path);
        self.programs.insert(name.to_owned(), path);
    }

    /// All adapters, by name.
    pub fn iter(&self) -> impl Iterator<Item = &RivalSpec> {
        self.rivals.values()
    }

    /// Missing needs of an adapter and its server. Unknown names have none.
    pub fn missing_of(&self, rival: &str) -> Vec<Need> {
        let Some(rival) = self.rivals.get(rival) else { return Vec::new() };
        let server = rival.server.as_ref().and_then(|name| self.servers.get(name));
        let needs = rival.needs.iter().chain(server.into_iter().flat_map(|server| &server.needs));
        let missing: std::collections::BTreeSet<&Need> =
            needs.filter(|need| self.program(&need.program).is_none()).collect();
        missing.into_iter().cloned().collect()
    }

    pub(super) fn of_tool(
        &self,
        tool: &ToolSpec,
        files: u32,
    ) -> Result<(&RivalSpec, Option<&ServerSpec>), MissingTool> {
        let missing = |why: String| MissingTool { label: tool.label().to_owned(), why };
        let Some(rival) = self.rivals.get(&tool.rival) else {
            let known: Vec<&str> = self.rivals.keys().map(String::as_str).collect();
            return Err(missing(format!(
                "there is no adapter {:?}; the adapters are {}",
                tool.rival,
                known.join(", ")
            )));
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

    /// Daemons lie in `sbin`, often missing on a user's path.
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
