//! `haul`: the command line. `args.rs` has the flags, `job.rs` turns them into a job, `failure.rs` has the exit codes.

#![forbid(unsafe_code)]

mod account_map;
mod after;
mod agent;
mod args;
mod batch;
mod batch_flag;
mod batch_lines;
mod bench;
mod chmod;
mod class;
mod complete;
mod config;
mod config_flags;
mod copy;
mod cp_help;
mod detached;
mod diff;
mod due;
mod ending;
mod endpoint;
mod examples;
mod failure;
mod figures;
mod filter_rules;
mod headings;
mod itemise;
mod job;
mod json;
mod json_text;
mod kept;
mod key;
mod limit;
mod live;
mod log_file;
mod manifest_out;
mod neighbours;
mod networks;
mod notify;
mod outlook;
mod output;
mod pages;
mod place;
mod printable;
mod probe;
mod progress;
mod reach;
mod record;
mod relative;
mod report;
mod retry;
mod rsync_rules;
mod serve;
mod service;
mod signals;
mod speaker;
mod stats;
mod token;
mod tune;
mod usual;
mod verify;
mod why;

use std::io::Write as _;
use std::process::ExitCode;

use args::Command;
use config::Refused;
use haul_job::rate;

fn main() -> ExitCode {
    ending::end(run())
}

/// diff(1) has 1 for trees that differ, and so has `haul diff`.
fn usage_code() -> ExitCode {
    let is_word = |word: &std::ffi::OsString| !word.as_encoded_bytes().starts_with(b"-");
    match std::env::args_os().skip(1).find(is_word) {
        Some(command) if command == "diff" => ExitCode::from(diff::TROUBLE),
        _ => ExitCode::from(failure::of_fault(haul_job::Fault::Usage).code),
    }
}

fn run() -> ExitCode {
    match config::parse(std::env::args_os()) {
        Ok((typed, filters)) => match &typed.command {
            Command::Cp(cp) if cp.batch.batch.is_some() => batch::run(cp),
            Command::Cp(cp) => copy::run(cp, &filters),
            Command::Place(typed) => place::run(typed),
            Command::Status(typed) => detached::commands::status(typed),
            Command::Stop(typed) => detached::commands::stop(typed),
            Command::Log(typed) => detached::commands::log(typed),
            Command::Why(typed) => why::run(typed),
            Command::Verify(typed) => verify::run(typed),
            Command::Diff(typed) => diff::run(typed, &filters),
            Command::Key(typed) => key::run(typed),
            Command::Serve(typed) => serve::run(typed),
            Command::Token(typed) => token::run(typed),
            Command::Networks(typed) => networks::run(typed),
            Command::Probe(typed) => probe::run(typed),
            Command::Bench(typed) => bench::run(typed),
            Command::Record(typed) => record::run(typed),
            Command::Tune(typed) => tune::run(typed),
            Command::Config(typed) => config::run(typed),
            Command::Agent(typed) => agent::run(typed),
            Command::Completions(typed) => pages::completions(typed.shell),
            Command::Complete(typed) => complete::run(typed),
            Command::Man(typed) => pages::man(typed.directory.as_deref()),
        },
        Err(Refused::Settings { error, json }) => ending::failed(&error, json),
        Err(Refused::CommandLine(error)) => {
            let printed = match neighbours::words(&error) {
                Some(words) => std::io::stderr().write_all(words.as_bytes()),
                None => error.print(),
            };
            // Help and version are a success. All other errors of clap are usage errors: 1 for us, 2 for clap.
            if error.use_stderr() {
                let _ = printed;
                usage_code()
            } else {
                // The printer takes a stream that cannot be written for one that has read enough.
                output::note(output::is_open().and(printed));
                ExitCode::SUCCESS
            }
        }
    }
}
