//! The error that ended a whole job, unlike an [`crate::Event::Failed`].

use std::io;
use std::path::Path;

/// An error that ended the job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Error {
    /// The fault, which decides the exit code.
    pub fault: Fault,
    /// The failed act and its object.
    pub what: String,
    /// The system's or the peer's words.
    pub cause: Option<String>,
    /// The advice.
    pub hint: Option<String>,
    /// Whether the far side told us.
    pub far: bool,
}

/// The kinds of such errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The request makes no sense.
    Usage,
    /// No file could be read or written.
    FileIo,
    /// None of the sources is there.
    Missing,
    /// No space or quota at the target.
    Space,
    /// The peer broke the protocol, or has another version.
    Protocol,
    /// Name resolution, refused or unreachable connections.
    Network,
    /// ssh failed (its words stand above ours).
    Ssh,
    /// The account may use sftp alone.
    SftpOnly,
    /// Wrong key, unknown host, refused login.
    Authentication,
    /// No program of ours runs at the far side.
    Install,
    /// Data did not verify after tries.
    Verification,
    /// The peer fell silent, or no payload moved.
    Timeout,
    /// A disk or file server hangs.
    Storage,
    /// SIGINT, SIGTERM, SIGHUP.
    Interrupted,
    /// The daemon has no room for a session or list.
    Busy,
    /// The key has moved its daily bytes.
    Allowance,
}

impl Error {
    /// Makes an error without cause and hint.
    pub fn new(fault: Fault, what: impl Into<String>) -> Self {
        Self { fault, what: what.into(), cause: None, hint: None, far: false }
    }

    /// Makes the error of a broken protocol.
    pub fn broke_the_protocol(why: impl std::fmt::Display) -> Self {
        Self::new(Fault::Protocol, "the far side broke the protocol").because(why)
    }

    /// Makes an error of a disk: no space left is a fault of its own.
    pub fn of_disk(act: &str, path: &Path, error: &io::Error) -> Self {
        let fault = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Fault::Space,
            _ => Fault::FileIo,
        };
        Self::new(fault, format!("cannot {act} {}", path.display())).because(error)
    }

    /// Adds the cause.
    #[must_use]
    pub fn because(mut self, cause: impl std::fmt::Display) -> Self {
        self.cause = Some(cause.to_string());
        self
    }

    /// Adds the place.
    #[must_use]
    pub fn at(mut self, place: &crate::job::Far) -> Self {
        if std::mem::take(&mut self.far) {
            self.what = format!("{place}: {}", self.what);
        }
        self
    }

    /// Adds the hint.
    #[must_use]
    pub fn try_this(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
