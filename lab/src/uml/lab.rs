//! The guest's command: haul-lab itself, making the network as outside.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use super::error::UmlError;
use super::job::GuestJob;

pub(super) const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Becomes the command; returns only after a failure.
pub(super) fn run(job: &GuestJob) -> Result<u8, UmlError> {
    let Some((program, arguments)) = job.command.split_first() else {
        return Err(UmlError::Refused { what: "the command".into(), why: "is empty".into() });
    };
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(job.environment.iter().cloned()).env("PATH", path(job));
    // The guest has no host name; some programs and all results need one.
    rustix::system::sethostname(job.host_name.as_bytes())
        .map_err(|error| UmlError::Io { what: "give the guest its name".into(), error: error.into() })?;
    command.current_dir(if Path::new(&job.directory).is_dir() { &job.directory } else { "/" });
    Err(UmlError::Io { what: format!("start {program} in the guest"), error: command.exec() })
}

/// The user's path, then that of `ip` and `sshd`.
fn path(job: &GuestJob) -> String {
    match job.environment.iter().find(|(name, _)| name == "PATH") {
        Some((_, path)) => format!("{path}:{SYSTEM_PATH}"),
        None => SYSTEM_PATH.to_owned(),
    }
}
