//! A command's last words and exit code.

use std::io::{self, Write as _};
use std::process::ExitCode;

use haul_job::Error;

use crate::json::error;
use crate::process::output;
use crate::text::failure;

/// Tells why a command failed. `json` is one line on standard output; text goes to standard error.
pub fn failed(error: &Error, json: bool) -> ExitCode {
    if json {
        output::tell(error, || output::say(error::only_line(error)));
    } else {
        // A user who closed standard error wants no messages.
        let _ = write!(io::stderr(), "{}", failure::text(error));
    }
    ExitCode::from(failure::of_fault(error.fault).code)
}

/// Lost output turns success into an error; other failures keep their code.
pub fn end(code: ExitCode) -> ExitCode {
    output::note(output::Out.flush());
    let Some(error) = output::lost() else { return code };
    let _ = write!(io::stderr(), "{}", failure::text(&error));
    if code == ExitCode::SUCCESS { ExitCode::from(failure::of_fault(error.fault).code) } else { code }
}
