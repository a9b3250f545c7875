//! The flags of `haul networks`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use haul_job::rate;

/// `haul networks`
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct NetworkFlags {
    /// Show all that holds for this address, who asks for it, and what the kernel of this host grants
    #[arg(value_name = "ADDRESS")]
    pub address: Option<IpAddr>,
    /// The round trip to ADDRESS, with its unit, as ping shows it: 228ms, 80us; it tells near from far
    #[arg(long, value_name = "TIME", value_parser = rate::parse_rtt_us, allow_hyphen_values = true, requires = "address")]
    pub rtt: Option<u64>,
    /// Show what `haul serve` of this user has observed of each class: round trips, timeouts, and the best floor
    #[arg(long, conflicts_with_all = ["address", "networks"])]
    pub observed: bool,
    /// The file of the operator; /etc/haul/networks.toml without this flag
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub networks: Option<PathBuf>,
    /// One JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

const HELP: &str = "\
A class says how connections of some networks are treated: timeouts, congestion
control, marks, and what they may do. Classes stand in /etc/haul/networks.toml,
and in ~/.config/haul/networks.toml, which is never wider. Without them there
are loopback, local (this host's own subnets) and rest.
  [class.inside]
  networks = [\"10.0.0.0/8\", \"fd00::/8\"]   # the longest prefix wins
  rto-min-ms = 50
  connections-per-address = 20
haul-networks(5) has all keys.";
