//! Chores of the repository. `cargo xtask tidy` checks arrows between crates and files, links, and the house style, also as a
//! test. `cargo xtask zeros` computes a committed table.
#![forbid(unsafe_code)]

mod arrows;
mod circles;
mod faults;
mod findings;
mod links;
mod paths;
mod ratchet;
mod rules;
mod source;
mod tidy;
mod toolchain;
mod zeros;

use std::process::ExitCode;

fn main() -> ExitCode {
    let task = std::env::args().nth(1);
    match task.as_deref() {
        Some("tidy") => tidy::run(),
        Some("zeros") => zeros::run(std::env::args().nth(2).as_deref()),
        _ => {
            eprintln!("usage: cargo xtask tidy | zeros [TiB]");
            ExitCode::from(1)
        }
    }
}
