//! The flags of `haul dial`.

use clap::Args;

use crate::flags::values::parse_port;

/// `haul dial`
#[derive(Debug, Args)]
pub struct Dial {
    /// Over IPv4 only
    #[arg(short = '4', conflicts_with = "v6")]
    pub v4: bool,
    /// Over IPv6 only
    #[arg(short = '6')]
    pub v6: bool,
    /// How long the host may take to accept the connection
    #[arg(long, value_name = "S")]
    pub timeout_s: Option<u64>,
    /// Let the kernel probe the connection while it is idle
    #[arg(long)]
    pub keepalive: bool,
    /// The host
    pub host: String,
    /// The port of its sshd
    #[arg(value_parser = parse_port)]
    pub port: u16,
}
