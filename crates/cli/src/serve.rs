//! `haul serve`: the daemon.

use std::process::ExitCode;
use std::sync::atomic::Ordering;

use haul_daemon::Options;
use haul_transfer::Error;

use crate::args::Serve;
use crate::endpoint::HAUL_PORT;
use crate::{failure, signals};

/// Serves until a signal ends it; that is a success.
pub fn run(typed: &Serve) -> ExitCode {
    let stop = signals::watch();
    let result = haul_daemon::serve(&meant(typed), &|| stop.load(Ordering::Relaxed));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn meant(typed: &Serve) -> Options {
    Options {
        listen: typed.listen,
        port: typed.port.unwrap_or(HAUL_PORT),
        identity: typed.identity.clone(),
        authorized_keys: typed.authorized_keys.clone(),
        quiet: typed.quiet,
    }
}

fn failed(error: &Error) -> ExitCode {
    eprint!("{}", failure::text(error));
    ExitCode::from(failure::of_fault(error.fault).code)
}
