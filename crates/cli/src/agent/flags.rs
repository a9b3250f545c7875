//! The flags of `haul agent`.

use std::path::PathBuf;

use clap::Args;

use crate::flags::values::{PortRange, parse_port, parse_port_range};

/// `haul agent`
#[derive(Debug, Args)]
pub struct Agent {
    /// Ports for the lanes
    #[arg(long, value_name = "FIRST-LAST", value_parser = parse_port_range)]
    pub port_range: Option<PortRange>,
    /// Carry one lane between standard input/output and this local port
    #[arg(long, value_name = "PORT", value_parser = parse_port)]
    pub relay: Option<u16>,
    /// Name the version of the protocol and end
    #[arg(long)]
    pub protocol: bool,
    /// Keep the hooks of a session
    #[arg(long, conflicts_with = "relay")]
    pub hooks: bool,
    /// Where --hooks keeps its records
    #[arg(long, value_name = "DIR", requires = "hooks")]
    pub state: Option<PathBuf>,
    /// The policies that name the hooks
    #[arg(long, value_name = "FILE", requires = "hooks")]
    pub policy: Vec<PathBuf>,
}
