//! Lists of names and rules in files.

use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use haul_job::{Error, Fault};
use haul_transfer::TypedFile;
use haul_transfer::standard_streams::Input;

use crate::text::printable::printable;

#[derive(Default)]
pub struct Lists {
    /// NUL bytes separate, not newlines.
    pub from0: bool,
    pub stdin_taken_by: Option<&'static str>,
}

impl Lists {
    pub fn read(&mut self, flag: &'static str, file: &OsStr) -> Result<Vec<u8>, Error> {
        let failed = |error: std::io::Error| {
            let name =
                if file == "-" { "standard input".to_owned() } else { format!("'{}'", printable(file.as_bytes())) };
            Error::new(Fault::FileIo, format!("cannot read the list of {flag} from {name}")).because(error)
        };
        let mut bytes = Vec::new();
        if file == "-" {
            if let Some(first) = self.stdin_taken_by.replace(flag) {
                return Err(usage(format!("{first} and {flag} cannot both read standard input")));
            }
            Input::open().and_then(|input| input.take(MAX_LIST_BYTES + 1).read_to_end(&mut bytes)).map_err(failed)?;
        } else {
            TypedFile::read(Path::new(file))
                .and_then(|f| f.take(MAX_LIST_BYTES + 1).read_to_end(&mut bytes))
                .map_err(failed)?;
        }
        if bytes.len() as u64 > MAX_LIST_BYTES {
            return Err(
                usage(format!("the list of {flag} is longer than 1 GiB")).try_this("copy the directories whole")
            );
        }
        Ok(bytes)
    }
}

fn usage(what: impl Into<String>) -> Error {
    Error::new(Fault::Usage, what)
}

/// Both ends look paths up in memory. 1 GiB is ten million paths of a hundred bytes.
const MAX_LIST_BYTES: u64 = 1 << 30;
