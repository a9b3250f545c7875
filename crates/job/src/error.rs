//! The error that ended a whole job. A failed file is not such an error but an [`crate::Event::Failed`].

use std::io;
use std::path::Path;

/// An error that ended the job: what failed, on what, why, what to try.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Error {
    /// The kind of fault, which decides the exit code.
    pub fault: Fault,
    /// The failed act and its object, in one line.
    pub what: String,
    /// Why, when known: the system's or the peer's words.
    pub cause: Option<String>,
    /// A hint what to try.
    pub hint: Option<String>,
    /// True if it happened at the far side, which told us.
    pub far: bool,
}

/// The kinds of errors that end a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The request makes no sense.
    Usage,
    /// Files could not be read or written at all (source missing, target not a directory, no space).
    FileIo,
    /// None of the sources is there.
    Missing,
    /// No space or quota left at the target.
    Space,
    /// The peer broke the protocol, or speaks another version.
    Protocol,
    /// Name resolution, refused or unreachable connections.
    Network,
    /// ssh could not start or ended early (its own words stand above ours).
    Ssh,
    /// The account may use sftp alone, so no program of ours can run there.
    SftpOnly,
    /// Wrong key, unknown host, login refused.
    Authentication,
    /// The far side has no program of ours and ours does not run there.
    Install,
    /// Data did not verify after repeated tries.
    Verification,
    /// The peer fell silent, or no payload moved for too long.
    Timeout,
    /// A disk or file server does not answer.
    Storage,
    /// SIGINT, SIGTERM, SIGHUP.
    Interrupted,
    /// The daemon has no room for one more session, or for so long a list.
    Busy,
    /// The daemon lets a key move so many bytes a day, and they are moved.
    Allowance,
}

impl Error {
    /// An error without cause and hint.
    pub fn new(fault: Fault, what: impl Into<String>) -> Self {
        Self { fault, what: what.into(), cause: None, hint: None, far: false }
    }

    /// The peer said or sent what nobody may.
    pub fn broke_the_protocol(why: impl std::fmt::Display) -> Self {
        Self::new(Fault::Protocol, "the far side broke the protocol").because(why)
    }

    /// An error of a disk or a file system: no space left is a fault of its own.
    pub fn of_disk(act: &str, path: &Path, error: &io::Error) -> Self {
        let fault = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Fault::Space,
            _ => Fault::FileIo,
        };
        Self::new(fault, format!("cannot {act} {}", path.display())).because(error)
    }

    /// Adds why.
    #[must_use]
    pub fn because(mut self, cause: impl std::fmt::Display) -> Self {
        self.cause = Some(cause.to_string());
        self
    }

    /// Says at which place it happened, when the far side said so.
    #[must_use]
    pub fn at(mut self, place: &crate::job::Far) -> Self {
        if std::mem::take(&mut self.far) {
            self.what = format!("{place}: {}", self.what);
        }
        self
    }

    /// Adds what to try.
    #[must_use]
    pub fn try_this(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
