//! `haul`: the command line. `commands.rs` has the commands, `cp/job.rs` turns flags into a job, `text/failure.rs` has
//! the exit codes.

#![forbid(unsafe_code)]

mod agent;
mod bench;
mod commands;
mod complete;
mod config;
mod cp;
mod detached;
mod dial;
mod diff;
mod far_side;
mod flags;
mod json;
mod key;
mod networks;
mod pages;
mod places;
mod probe;
mod process;
mod progress;
mod record;
mod report;
mod serve;
mod text;
mod token;
mod tune;
mod verify;
mod why;

use std::io::Write as _;
use std::process::ExitCode;

use config::settings::Refused;
use cp::foreign_flags;
use process::{ending, output};
use text::failure;

fn main() -> ExitCode {
    // ssh asks, and nobody is there.
    if haul_transfer::question::refused() {
        return ExitCode::FAILURE;
    }
    ending::end(run())
}

/// 1 means different trees for diff(1) and `haul diff`.
fn usage_code() -> ExitCode {
    let is_word = |word: &std::ffi::OsString| !word.as_encoded_bytes().starts_with(b"-");
    match std::env::args_os().skip(1).find(is_word) {
        Some(command) if command == "diff" => ExitCode::from(diff::TROUBLE),
        _ => ExitCode::from(failure::of_fault(haul_job::Fault::Usage).code),
    }
}

fn run() -> ExitCode {
    match commands::parse(std::env::args_os()) {
        Ok((typed, filters)) => typed.command.run(&filters),
        Err(Refused::Settings { error, json }) => ending::failed(&error, json),
        Err(Refused::CommandLine(error)) => {
            let printed = match foreign_flags::words(&error) {
                Some(words) => std::io::stderr().write_all(words.as_bytes()),
                None => error.print(),
            };
            // Clap's usage errors are 2; ours are 1.
            if error.use_stderr() {
                let _ = printed;
                usage_code()
            } else {
                // The printer takes a failed stream for one that has read enough.
                output::note(output::is_open().and(printed));
                ExitCode::SUCCESS
            }
        }
    }
}
