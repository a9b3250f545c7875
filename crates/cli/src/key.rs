//! `haul key`: the identity for haul:// connections.

use std::process::ExitCode;

use haul_transfer::{Error, Fault};

use crate::args::Key;
use crate::failure;

/// Makes or shows a key.
pub fn run(_typed: &Key) -> ExitCode {
    let error =
        Error::new(Fault::Usage, "haul key is not in this build").try_this("copy over ssh, which has keys of its own");
    eprint!("{}", failure::text(&error));
    ExitCode::from(failure::of_fault(error.fault).code)
}
