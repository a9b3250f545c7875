//! Describes ways as this host has them.

use std::net::IpAddr;

use haul_engine::paths::{LocalAddress, Way};
use haul_job::Transport;
use haul_net::interfaces;

use haul_channel::lane_addresses::LaneAddresses;

pub(super) fn out(way: &Way, protocol: Transport) -> haul_net::Way {
    haul_net::Way { local: Some(way.local), device: way.interface.parse().ok(), protocol, ..haul_net::Way::default() }
}

pub(super) fn way_between(addresses: LaneAddresses, locals: &[LocalAddress]) -> Way {
    let found = locals.iter().find(|local| local.address == addresses.local);
    let interface = found.map(|local| local.interface.clone()).unwrap_or_default();
    Way { interface, local: addresses.local, remote: addresses.peer }
}

pub(super) fn local_addresses() -> Vec<LocalAddress> {
    let found = interfaces::usable().unwrap_or_default();
    let of = |interface: &interfaces::Interface| -> Vec<LocalAddress> {
        let addresses = interface.addresses.iter().map(|address| LocalAddress {
            interface: interface.name.clone(),
            address: address.ip.to_canonical(),
            prefix_len: address.prefix_len,
            is_loopback: interface.loopback,
        });
        addresses.collect()
    };
    found.iter().flat_map(of).collect()
}

/// Whether the interface has a route there; if the kernel does not tell, it is tried.
pub(super) fn leads(local: &LocalAddress, remote: IpAddr) -> bool {
    let found = interfaces::usable().unwrap_or_default();
    let Some(interface) = found.iter().find(|interface| interface.name == local.interface) else { return true };
    !matches!(interfaces::route(interface, local.address, remote), Ok(None))
}
