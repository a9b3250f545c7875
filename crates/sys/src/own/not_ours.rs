//! The judgement on a file that others may have touched, its words, and the remedy.

use std::path::PathBuf;
use std::{error, fmt, io};

/// The importance of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// The file names programs, grants rights, or is remembered. Others may read it.
    Obeyed,
    /// A key of this host. Only its owner may read it; root's key also a group, or we could not.
    Secret,
    /// A key that its user has named, in any directory: a file that only its owner can read is its own. Root may use any
    /// user's.
    NamedSecret,
}

/// Why something is not only ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotOurs {
    pub(super) culprit: PathBuf,
    pub(super) fault: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The owner is another user.
    Owner { of: u32, us: u32 },
    /// The file may be written by others.
    Writable { mode: u32 },
    /// The file may be read by others.
    Readable { mode: u32 },
    /// The name may be given by others.
    Named,
}

impl NotOurs {
    /// The judgement in an error of this module; `None`: it is the system's error.
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    /// The command to type.
    pub fn remedy(&self) -> String {
        let culprit = self.culprit.display();
        match self.fault {
            Fault::Owner { us, .. } => format!("if it is yours: chown {us} {culprit}; else have the files elsewhere"),
            Fault::Writable { .. } => format!("chmod go-w {culprit}"),
            Fault::Readable { .. } => format!("chmod 600 {culprit}"),
            Fault::Named => "move it into a directory that others cannot write".to_owned(),
        }
    }
}

impl fmt::Display for NotOurs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let culprit = self.culprit.display();
        match self.fault {
            Fault::Owner { of, us } => write!(f, "{culprit} belongs to somebody else (user {of}, and we are {us})"),
            Fault::Writable { mode } => write!(f, "others may write it: {culprit} has mode {:03o}", mode & 0o7777),
            Fault::Readable { mode } => write!(f, "others may read it: {culprit} has mode {:03o}", mode & 0o7777),
            Fault::Named => write!(
                f,
                "others may have given {culprit} this name: it has several, in a directory that they may write"
            ),
        }
    }
}

impl error::Error for NotOurs {}

/// The bits that let group or others write.
pub const OTHERS_WRITE: u32 = 0o022;
