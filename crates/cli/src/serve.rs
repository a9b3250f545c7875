//! `haul serve`: the daemon.

use std::process::ExitCode;

use haul_transfer::{Error, Fault};

use crate::args::Serve;
use crate::failure;

/// Serves until a signal ends it.
pub fn run(_typed: &Serve) -> ExitCode {
    let error =
        Error::new(Fault::Usage, "haul serve is not in this build").try_this("copy over ssh: haul cp SRC host:path");
    eprint!("{}", failure::text(&error));
    ExitCode::from(failure::of_fault(error.fault).code)
}
