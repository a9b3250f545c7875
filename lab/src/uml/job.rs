//! Messages between boot and guest: files that both see.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::error::UmlError;
use crate::request::Request;

/// The guest's task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestJob {
    /// Program and arguments.
    pub command: Vec<String>,
    /// The whole environment.
    pub environment: Vec<(String, String)>,
    /// The machine's host name, which results carry.
    pub host_name: String,
    /// The command's directory, outside `/run` and `/dev`.
    pub directory: String,
}

/// How the command ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GuestStatus {
    /// The command's own exit status.
    Exited(i32),
    /// The signal that ended the command.
    Killed(i32),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum LastWord {
    Ended(GuestStatus),
    GaveUp(String),
}

/// The lab's directory, on the guest's own file system.
const IN_GUEST: &str = "/run/lab";

pub(super) const JOB: &str = "job.json";
pub(super) const STDOUT: &str = "stdout";
pub(super) const STDERR: &str = "stderr";
pub(super) const CONSOLE: &str = "console";
const STATUS: &str = "status.json";
const COMPLAINT: &str = "complaint";

impl GuestStatus {
    /// A shell's status: 128 and the signal for a killed command.
    pub fn code(&self) -> u8 {
        match self {
            GuestStatus::Exited(code) => (code & 0xff) as u8,
            GuestStatus::Killed(signal) => (128 + (signal & 0x7f)) as u8,
        }
    }
}

impl GuestJob {
    /// Makes the job of our own program for this request.
    pub fn of_request(program: &Path, request: &Request) -> GuestJob {
        let request = Request { directory: IN_GUEST.into(), ..request.clone() };
        GuestJob {
            command: vec![program.display().to_string(), "guest-lab".into(), request.to_json()],
            environment: std::env::vars().collect(),
            host_name: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            directory: std::env::current_dir().map_or_else(|_| "/".into(), |path| path.display().to_string()),
        }
    }

    pub(super) fn write(&self, directory: &Path) -> Result<(), UmlError> {
        write(directory, JOB, self)
    }

    pub(super) fn read(directory: &Path) -> Result<GuestJob, UmlError> {
        let path = directory.join(JOB);
        let text = fs::read(&path).map_err(UmlError::io(format!("read {}", path.display())))?;
        serde_json::from_slice(&text).map_err(|error| UmlError::Refused { what: JOB.into(), why: error.to_string() })
    }
}

impl LastWord {
    pub(super) fn write(&self, directory: &Path) -> Result<(), UmlError> {
        write(directory, STATUS, self)
    }

    pub(super) fn read(directory: &Path) -> Option<LastWord> {
        serde_json::from_slice(&fs::read(directory.join(STATUS)).ok()?).ok()
    }
}

/// Leaves for process 1 why the lab could not be made.
pub(super) fn complain(directory: &Path, reason: &str) -> Result<(), UmlError> {
    write(directory, COMPLAINT, &reason)
}

pub(super) fn complaint(directory: &Path) -> Option<String> {
    serde_json::from_slice(&fs::read(directory.join(COMPLAINT)).ok()?).ok()
}

fn write(directory: &Path, name: &str, what: &impl Serialize) -> Result<(), UmlError> {
    let path = directory.join(name);
    let text =
        serde_json::to_vec(what).map_err(|error| UmlError::Refused { what: name.into(), why: error.to_string() })?;
    let written = fs::File::create(&path).and_then(|mut file| {
        file.write_all(&text)?;
        file.sync_all()
    });
    written.map_err(UmlError::io(format!("write {}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_arrives_as_it_was_sent() {
        let directory = tempfile::tempdir().unwrap();
        let job = GuestJob {
            command: vec!["echo".into(), "two words".into()],
            environment: vec![("A".into(), "b=c".into())],
            host_name: "here".into(),
            directory: "/".into(),
        };
        job.write(directory.path()).unwrap();
        assert_eq!(GuestJob::read(directory.path()).unwrap(), job);
        assert_eq!(LastWord::read(directory.path()), None);
    }

    #[test]
    fn a_status_is_what_a_shell_would_say() {
        assert_eq!(GuestStatus::Exited(3).code(), 3);
        assert_eq!(GuestStatus::Killed(9).code(), 137);
    }
}
