//! Finds where a program's user keeps things. Only a front end asks the environment.
//!
//! ```text
//!   $XDG_CONFIG_HOME/haul or ~/.config/haul        keys, known daemons
//!   $XDG_STATE_HOME/haul  or ~/.local/state/haul   known paths and routes, last reports
//!   $XDG_CACHE_HOME/haul  or ~/.cache              programs that were brought here
//!   $XDG_RUNTIME_DIR/haul or the state's directory  sockets
//!   $TMPDIR/haul-UID or /tmp/haul-UID              long paths of sockets, and programs without another place
//! ```

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;

use haul_sys::own::{self, NotOurs};
use haul_sys::process;

use crate::{class_policy, network_classes};

/// A user's places; `None`: nowhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// The meaning of `~`.
    pub home: Option<PathBuf>,
    /// Keys and lists.
    pub config: Option<PathBuf>,
    /// Last reports, known paths and routes.
    pub state: Option<PathBuf>,
    /// Sockets.
    pub runtime: Option<PathBuf>,
    /// The last resort, beside other users' directories.
    pub temporary: Option<PathBuf>,
    /// Programs brought here.
    pub cache: Option<PathBuf>,
    /// The ssh session around this process, from sshd: addresses and ports.
    pub ssh_connection: Option<String>,
    /// Policies: the operator's, then the user's.
    pub policy_files: Vec<PathBuf>,
    /// Network classes: the operator's, then the user's.
    pub network_files: Vec<PathBuf>,
    /// The environment for programs.
    pub environment: Environment,
}

/// Variables, maybe secret, so never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    /// Holds these variables.
    pub fn of<K: Into<OsString> + Clone, V: Into<OsString> + Clone>(variables: &[(K, V)]) -> Self {
        Self(variables.iter().cloned().map(|(name, value)| (name.into(), value.into())).collect())
    }

    /// A value.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    /// All variables, by name.
    pub fn all(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.0.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} variables", self.0.len())
    }
}

impl Surroundings {
    /// Reads the environment (XDG Base Directory Specification).
    pub fn of_process() -> Self {
        let environment = Environment(std::env::vars_os().collect());
        Self { environment, ..Self::of(&|name| std::env::var_os(name)) }
    }

    /// The specification ignores relative paths: they depend on where the program runs.
    fn of(environment: &dyn Fn(&str) -> Option<OsString>) -> Self {
        let absolute = |name: &str| environment(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let directory = |variable: &str, at_home: &str| {
            let base = absolute(variable).or_else(|| absolute("HOME").map(|home| home.join(at_home)))?;
            Some(base.join("haul"))
        };
        let config = directory("XDG_CONFIG_HOME", ".config");
        let both = |system: &str, own: &str| {
            let own = config.as_ref().map(|config| config.join(own));
            [Some(PathBuf::from(system)), own].into_iter().flatten().collect()
        };
        Self {
            home: environment("HOME").map(PathBuf::from),
            policy_files: both(class_policy::SYSTEM_FILE, "policy.toml"),
            network_files: both(network_classes::SYSTEM_FILE, "networks.toml"),
            config,
            state: directory("XDG_STATE_HOME", ".local/state"),
            runtime: absolute("XDG_RUNTIME_DIR")
                .map(|base| base.join("haul"))
                .or_else(|| directory("XDG_STATE_HOME", ".local/state")),
            temporary: Some(
                absolute("TMPDIR")
                    .unwrap_or_else(|| PathBuf::from("/tmp"))
                    .join(format!("haul-{}", process::effective_user())),
            ),
            cache: directory("XDG_CACHE_HOME", ".cache"),
            ssh_connection: environment("SSH_CONNECTION").and_then(|words| words.into_string().ok()),
            environment: Environment::default(),
        }
    }

    /// Why nothing is remembered: another user could have planted it.
    pub fn why_nothing_is_kept(&self) -> Option<String> {
        let error = own::check_directory(self.state.as_deref()?).err()?;
        let not_ours = NotOurs::of(&error)?;
        let state = self.state.as_deref()?.display();
        Some(format!(
            "nothing is remembered in {state}, and what is there is not believed: {not_ours}; {}",
            not_ours.remedy()
        ))
    }

    /// A configuration file.
    pub fn config_file(&self, name: &str) -> Option<PathBuf> {
        Some(self.config.as_ref()?.join(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_that_is_no_absolute_path_is_none() {
        let state = |state: Option<&str>, home: Option<&str>| {
            let environment = |name: &str| match name {
                "HOME" => home.map(OsString::from),
                "XDG_STATE_HOME" => state.map(OsString::from),
                _ => None,
            };
            Surroundings::of(&environment).state
        };
        assert_eq!(state(Some("/s"), Some("/h")), Some("/s/haul".into()));
        assert_eq!(state(Some("s"), Some("/h")), Some("/h/.local/state/haul".into()));
        assert_eq!(state(None, Some("/h")), Some("/h/.local/state/haul".into()));
        for home in [None, Some(""), Some("."), Some("h")] {
            assert_eq!(state(Some(""), home), None, "{home:?}");
        }
    }
}
