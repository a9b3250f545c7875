//! `haul networks`: this host's network classes, and all that holds for one address.

pub mod flags;
mod json;
mod observed;
mod text;

use std::process::ExitCode;

use haul_job::{Error, Fault};
use haul_transfer::{Surroundings, network_classes, networks_observed, networks_shown};

use crate::networks::flags::NetworkFlags;
use crate::process::{ending, output};

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
    let usage = |why: String| Error::new(Fault::Usage, why).try_this("haul-networks(5) shows what a class may hold");
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
