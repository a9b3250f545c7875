//! `haul networks`: the network classes of this host, and all that holds for one address.

mod json;
mod observed;
mod text;

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueHint};
use haul_job::{Error, Fault};
use haul_transfer::{Surroundings, network_classes, networks_observed, networks_shown};

use crate::{ending, output, rate};

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
docs/networks.md has all keys.";

/// Prints the table, or what holds for an address.
pub fn run(typed: &NetworkFlags) -> ExitCode {
    match said(typed) {
        Ok(said) => {
            output::say(said);
            ExitCode::SUCCESS
        }
        Err(error) => ending::failed(&error, typed.json),
    }
}

fn said(typed: &NetworkFlags) -> Result<String, Error> {
    let usage = |why: String| Error::new(Fault::Usage, why).try_this("docs/networks.md shows what a class may hold");
    let surroundings = Surroundings::of_process();
    if typed.observed {
        let failed = |error| Error::new(Fault::FileIo, "cannot read what was observed").because(error);
        let classes = networks_observed::observed(&surroundings).map_err(failed)?;
        return Ok(if typed.json { observed::json(&classes) } else { observed::text(&classes) });
    }
    let mut files = surroundings.network_files;
    if let (Some(named), Some(first)) = (&typed.networks, files.first_mut()) {
        if !named.exists() {
            return Err(usage(format!("there is no file {}", named.display())));
        }
        first.clone_from(named);
    }
    let networks = network_classes::load(&files).map_err(|error| usage(error.to_string()))?;
    let Some(address) = typed.address else {
        let table = networks_shown::table(&networks);
        return Ok(if typed.json { json::table(&table) } else { text::table(&table) });
    };
    let rtt_us = typed.rtt.map(|us| u32::try_from(us).unwrap_or(u32::MAX));
    let failed = |error| Error::new(Fault::Network, format!("cannot try the values for {address}")).because(error);
    let shown = networks_shown::of_address(networks, address, rtt_us).map_err(failed)?;
    Ok(if typed.json { json::address(&shown) } else { text::address(&shown) })
}
