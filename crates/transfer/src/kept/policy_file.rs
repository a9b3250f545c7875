//! A file in which an operator, or a user, says how networks are used: read whole, with a bound, or not there.

use std::fmt;
use std::fs;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

/// A policy of a thousand rules takes a tenth of it.
const MAX_BYTES: u64 = 1 << 20;

/// Why a file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadPolicy {
    path: PathBuf,
    why: String,
}

impl BadPolicy {
    /// Of this file.
    pub(super) fn of(path: &Path, why: String) -> Self {
        Self { path: path.to_owned(), why }
    }
}

impl fmt::Display for BadPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the policy {} cannot be used: {}", self.path.display(), self.why)
    }
}

/// The text of a file. `None`: it is not there.
pub(super) fn read(path: &Path) -> Result<Option<String>, BadPolicy> {
    let bad = |why: String| BadPolicy::of(path, why);
    let opened = match fs::File::open(path) {
        Ok(opened) => opened,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(bad(error.to_string())),
    };
    let mut text = String::new();
    let read = opened.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(|error| bad(error.to_string()))?;
    if read as u64 > MAX_BYTES {
        return Err(bad(format!("it is longer than {} KiB", MAX_BYTES >> 10)));
    }
    Ok(Some(text))
}
