//! `haul agent`: the far side of a copy, on standard input and output.

pub mod flags;

use std::process::ExitCode;

use haul_transfer::{AgentOptions, PROTOCOL_VERSION};

use crate::agent::flags::Agent;

pub fn run(typed: &Agent) -> ExitCode {
    if typed.protocol {
        crate::process::output::say(format!("haul-protocol {PROTOCOL_VERSION}\n"));
        return ExitCode::SUCCESS;
    }
    if typed.hooks {
        return ExitCode::from(haul_transfer::keep_hooks(typed.state.as_deref(), &typed.policy));
    }
    let options =
        AgentOptions { port_range: typed.port_range.map(|range| (range.0, range.1)), relay_port: typed.relay };
    ExitCode::from(haul_transfer::agent(&options))
}
