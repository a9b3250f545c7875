//! The judgement on a file that others may have put there or changed: what it depends on, its words, and the remedy.

use std::path::PathBuf;
use std::{error, fmt, io};

/// The importance of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// The file names programs, grants rights, or is remembered. Others may read it.
    Obeyed,
    /// The file is a key of this host. Only its owner may read it; root's key also a group, without which we could not
    /// read it.
    Secret,
    /// The file is a key that its user has named. Like [`Weight::Secret`], but in any directory: only its owner can
    /// have made a file that its owner alone can read. Root may be told to use the file of any user.
    NamedSecret,
}

/// Why something is not only ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotOurs {
    /// The file, link or directory at fault.
    pub(super) culprit: PathBuf,
    pub(super) fault: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The culprit belongs to another user.
    Owner { of: u32, us: u32 },
    /// Others may write it.
    Writable { mode: u32 },
    /// Others may read it.
    Readable { mode: u32 },
    /// Others may have given it this name.
    Named,
}

impl NotOurs {
    /// The judgement in an error of this module. `None`: it is the system's error.
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

/// Writable for the group or for all.
pub const OTHERS_WRITE: u32 = 0o022;
