//! The end of a command: its last words and its exit code.

use std::io::{self, Write as _};
use std::process::ExitCode;

use haul_job::Error;

use crate::json::error;
use crate::process::output;
use crate::text::failure;

/// Tells why a command failed, and gives its exit code. `json` is one line on standard output; text goes to standard error.
pub fn failed(error: &Error, json: bool) -> ExitCode {
    if json {
        output::tell(error, || output::say(error::only_line(error)));
    } else {
        // A user who has closed standard error wants no messages.
        let _ = write!(io::stderr(), "{}", failure::text(error));
    }
    ExitCode::from(failure::of_fault(error.fault).code)
}

/// The exit code of a command that ends with `code`. Lost output turns a success into an error; any other failure keeps its code.
pub fn end(code: ExitCode) -> ExitCode {
    output::note(output::Out.flush());
    let Some(error) = output::lost() else { return code };
    let _ = write!(io::stderr(), "{}", failure::text(&error));
    if code == ExitCode::SUCCESS { ExitCode::from(failure::of_fault(error.fault).code) } else { code }
}
