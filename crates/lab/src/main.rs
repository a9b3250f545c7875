//! `haul-lab`: puts any command into an emulated network.
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match haul_lab::uml::command_line::run(&arguments) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "haul-lab: {error}");
            ExitCode::FAILURE
        }
    }
}
