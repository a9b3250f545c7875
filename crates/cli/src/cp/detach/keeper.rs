//! What keeps a detached copy alive: systemd, as the user's service, or nothing, as a session of its own.
//!
//! systemd ends a user's services with the last login, unless the user lingers (`loginctl enable-linger`). A session
//! goes on, so a service is only for users who linger.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeper {
    Service,
    Session,
}

#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub runtime: Option<PathBuf>,
    pub user: Option<OsString>,
    /// Where systemd notes who lingers.
    pub lingerers: PathBuf,
}

impl Facts {
    pub fn of_process() -> Self {
        Self {
            runtime: std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from),
            user: std::env::var_os("USER").filter(|user| !user.as_encoded_bytes().contains(&b'/')),
            lingerers: PathBuf::from("/var/lib/systemd/linger"),
        }
    }
}

impl Keeper {
    pub fn choose(facts: &Facts) -> Self {
        let has_manager = facts.runtime.as_ref().is_some_and(|at| at.join("systemd/private").exists());
        let lingers = facts.user.as_ref().is_some_and(|user| facts.lingerers.join(user).exists());
        if has_manager && lingers { Self::Service } else { Self::Session }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::Session => "session",
        }
    }

    /// Starts the process of copy `id`, which leaves the terminal by itself.
    pub fn start(self, id: u32, program: &Path, arguments: &[OsString]) -> io::Result<()> {
        let mut command = match self {
            Self::Session => Command::new(program),
            Self::Service => {
                let mut command = Command::new("systemd-run");
                command.args(service(id)).arg(program);
                command
            }
        };
        command.args(arguments).env("SSH_ASKPASS_REQUIRE", "never");
        command.stdin(Stdio::null()).stdout(Stdio::null());
        match self {
            Self::Session => command.stderr(Stdio::null()).spawn().map(drop),
            Self::Service => {
                let output = command.stderr(Stdio::piped()).output()?;
                let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                if output.status.success() { Ok(()) } else { Err(io::Error::other(said)) }
            }
        }
    }
}

/// The arguments of systemd-run. `--setenv=NAME` takes our value, and shows it to nobody.
fn service(id: u32) -> Vec<OsString> {
    let words = ["--user", "--quiet", "--collect", "--same-dir", "--property=KillMode=mixed"];
    let named = [format!("--unit=haul-copy-{id}-{}", std::process::id()), format!("--description=haul copy {id}")];
    let environment = HANDED_ON.into_iter().filter(|name| std::env::var_os(name).is_some());
    let words = words.iter().map(|word| (*word).to_owned()).chain(named);
    let words = words.chain(environment.map(|name| format!("--setenv={name}")));
    words.chain(["--".to_owned()]).map(OsString::from).collect()
}

const HANDED_ON: [&str; 15] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "TZ",
    "SSH_AUTH_SOCK",
    "SSH_ASKPASS_REQUIRE",
    "KRB5CCNAME",
    "XDG_CONFIG_HOME",
    "XDG_STATE_HOME",
    "XDG_CACHE_HOME",
    "XDG_RUNTIME_DIR",
    "TMPDIR",
];

pub fn arguments(typed: impl IntoIterator<Item = OsString>, id: u32) -> Vec<OsString> {
    let mut words: Vec<OsString> = typed.into_iter().skip(1).collect();
    let after_cp = words.iter().position(|word| word == OsStr::new("cp")).map_or(0, |at| at + 1);
    words.insert(after_cp, OsString::from(format!("--detached-as={id}")));
    words
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_service_is_for_users_who_linger_and_have_a_manager() {
        let dir = tempfile::tempdir().unwrap();
        let (runtime, lingerers) = (dir.path().join("run"), dir.path().join("linger"));
        let facts = Facts { runtime: Some(runtime.clone()), user: Some("alice".into()), lingerers: lingerers.clone() };
        assert_eq!(Keeper::choose(&facts), Keeper::Session);
        fs::create_dir_all(runtime.join("systemd")).unwrap();
        fs::write(runtime.join("systemd/private"), "").unwrap();
        assert_eq!(Keeper::choose(&facts), Keeper::Session, "its services would end with the login");
        fs::create_dir(&lingerers).unwrap();
        fs::write(lingerers.join("alice"), "").unwrap();
        assert_eq!(Keeper::choose(&facts), Keeper::Service);
        assert_eq!(Keeper::choose(&Facts { user: None, ..facts }), Keeper::Session);
    }

    #[test]
    fn no_value_of_the_environment_stands_in_an_argument() {
        let words = service(7);
        assert!(
            words.iter().filter_map(|word| word.to_str()?.strip_prefix("--setenv=")).all(|name| !name.contains('='))
        );
        assert_eq!(words.last().unwrap(), "--");
    }

    #[test]
    fn the_process_gets_the_same_command_with_its_number() {
        let typed = ["haul", "cp", "--detach", "-v", "a", "cp"].map(OsString::from);
        assert_eq!(arguments(typed, 3), ["cp", "--detached-as=3", "--detach", "-v", "a", "cp"]);
    }
}
