//! Reads an operator's or a user's file about the use of networks.

use std::fmt;
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use haul_sys::own::{self, NotOurs, Weight};

/// A thousand rules take a tenth of it.
const MAX_BYTES: u64 = 1 << 20;

/// A bad policy, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadPolicy {
    path: PathBuf,
    why: String,
}

impl BadPolicy {
    /// Makes the error.
    pub fn of(path: &Path, why: String) -> Self {
        Self { path: path.to_owned(), why }
    }
}

impl fmt::Display for BadPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the policy {} cannot be used: {}", self.path.display(), self.why)
    }
}

fn why_not(error: &io::Error) -> String {
    match NotOurs::of(error) {
        Some(not_ours) => format!("{not_ours}; {}", not_ours.remedy()),
        None => error.to_string(),
    }
}

/// Reads the file. It names programs and grants rights, so no other user may write it. `None`: missing.
pub fn read(path: &Path) -> Result<Option<String>, BadPolicy> {
    let bad = |why: String| BadPolicy::of(path, why);
    let opened = match own::open(path, Weight::Obeyed) {
        Ok(opened) => opened,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(bad(why_not(&error))),
    };
    let mut text = String::new();
    let read = opened.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(|error| bad(error.to_string()))?;
    if read as u64 > MAX_BYTES {
        return Err(bad(format!("it is longer than {} KiB", MAX_BYTES >> 10)));
    }
    Ok(Some(text))
}
