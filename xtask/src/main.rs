//! Chores of the repository. `cargo xtask tidy` checks what the compiler cannot: the arrows between crates and the house
//! style. It runs as a test, too.
#![forbid(unsafe_code)]

mod arrows;
mod faults;
mod ratchet;
mod rules;
mod source;
mod tidy;

use std::process::ExitCode;

fn main() -> ExitCode {
    let task = std::env::args().nth(1);
    match task.as_deref() {
        Some("tidy") => tidy::run(),
        _ => {
            eprintln!("usage: cargo xtask tidy");
            ExitCode::from(1)
        }
    }
}
