//! The messages between boot and guest: files in a directory that both see.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::error::UmlError;
use crate::request::Request;

/// The task of the guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestJob {
    /// Program and arguments.
    pub command: Vec<String>,
    /// The whole environment; nothing is inherited.
    pub environment: Vec<(String, String)>,
    /// The guest has the host name of the machine, because results carry it.
    pub host_name: String,
    /// The command's directory; it must lie outside `/run` and `/dev`.
    pub directory: String,
}

/// How the command ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GuestStatus {
    /// The command ended by itself.
    Exited(i32),
    /// A signal ended the command.
    Killed(i32),
}

/// The final status of the guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum LastWord {
    /// The command ran.
    Ended(GuestStatus),
    /// The command could not be run.
    GaveUp(String),
}

/// The lab's own directory in the guest, on a file system of the guest alone.
const IN_GUEST: &str = "/run/lab";

pub(super) const JOB: &str = "job.json";
pub(super) const STDOUT: &str = "stdout";
pub(super) const STDERR: &str = "stderr";
pub(super) const CONSOLE: &str = "console";
const STATUS: &str = "status.json";
const COMPLAINT: &str = "complaint";

impl GuestStatus {
    /// As in a shell: 128 and the signal for a killed command.
    pub fn code(&self) -> u8 {
        match self {
            GuestStatus::Exited(code) => (code & 0xff) as u8,
            GuestStatus::Killed(signal) => (128 + (signal & 0x7f)) as u8,
        }
    }
}

impl GuestJob {
    /// Makes the job for our own program, which makes the lab of the request and does its task.
    pub fn of_request(program: &Path, request: &Request) -> GuestJob {
        let request = Request { directory: IN_GUEST.into(), ..request.clone() };
        GuestJob {
            command: vec![program.display().to_string(), "guest-lab".into(), request.to_json()],
            environment: std::env::vars().collect(),
            host_name: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            directory: std::env::current_dir().map_or_else(|_| "/".into(), |path| path.display().to_string()),
        }
    }

    /// Writes it to the guest's path.
    pub(super) fn write(&self, directory: &Path) -> Result<(), UmlError> {
        write(directory, JOB, self)
    }

    /// Reads the job that [`GuestJob::write`] wrote.
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

    /// `None` if the guest did not write it.
    pub(super) fn read(directory: &Path) -> Option<LastWord> {
        serde_json::from_slice(&fs::read(directory.join(STATUS)).ok()?).ok()
    }
}

/// Leaves the reason why the lab could not be made, for process 1.
pub(super) fn complain(directory: &Path, reason: &str) -> Result<(), UmlError> {
    write(directory, COMPLAINT, &reason)
}

/// The reason that [`complain`] left.
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
