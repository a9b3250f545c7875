//! Applies `--paths` and `--transport` to the first path, which stands before any other is looked for.

use std::net::{IpAddr, SocketAddr};

use haul_engine::paths::{Asked, AskedPath};
use haul_job::{Carriage, Transport};
use haul_net::{DeviceName, Way, interfaces};

/// The first path's way.
pub fn first_way(carriage: &Carriage) -> Way {
    way_of(&carriage.paths, carriage.transport)
}

/// The way of these paths and this protocol.
pub fn way_of(asked: &Asked, protocol: Transport) -> Way {
    first_of(asked).map_or(Way { protocol, ..Way::default() }, |path| way_along(path, protocol))
}

/// The ways of all paths that the user names, the first one first. Over MPTCP each connection has several paths anyway.
pub fn named_ways(carriage: &Carriage) -> Vec<Way> {
    match (&carriage.paths, carriage.transport) {
        (Asked::List(list), Transport::Tcp) => list.iter().map(|path| way_along(path, Transport::Tcp)).collect(),
        _ => vec![first_way(carriage)],
    }
}

fn way_along(path: &AskedPath, protocol: Transport) -> Way {
    let any = Way { protocol, ..Way::default() };
    match path {
        AskedPath::Interface(name) => Way { device: name.parse().ok(), ..any },
        AskedPath::Local(local) | AskedPath::Pair(local, _) => {
            Way { local: Some(*local), device: device_of(*local), ..any }
        }
    }
}

/// Candidates, or the requested address.
pub fn first_candidates(carriage: &Carriage, candidates: Vec<SocketAddr>) -> Vec<SocketAddr> {
    match (first_asked(carriage), candidates.first()) {
        (Some(AskedPath::Pair(_, remote)), Some(any)) => vec![SocketAddr::new(*remote, any.port())],
        _ => candidates,
    }
}

/// Whether the user names the far address.
pub fn names_remote(carriage: &Carriage) -> bool {
    matches!(first_asked(carriage), Some(AskedPath::Pair(..)))
}

/// The paths to look for. Over MPTCP the kernels look, unless the user names some.
pub fn asked(carriage: &Carriage) -> Asked {
    match (&carriage.paths, carriage.transport) {
        (Asked::Auto, Transport::Mptcp) => Asked::One,
        (asked, _) => asked.clone(),
    }
}

/// Our addresses for the far side.
pub fn offered(asked: &Asked, addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    let Asked::List(list) = asked else { return addresses };
    let found = interfaces::usable().unwrap_or_default();
    let on = |name: &str, address: IpAddr| {
        let named = found.iter().filter(|interface| interface.name == name);
        named.flat_map(|interface| &interface.addresses).any(|of| of.ip.to_canonical() == address)
    };
    let is_asked = |address: &IpAddr| {
        list.iter().any(|path| match path {
            AskedPath::Interface(name) => on(name, *address),
            AskedPath::Local(local) | AskedPath::Pair(local, _) => local == address,
        })
    };
    addresses.into_iter().filter(is_asked).collect()
}

fn device_of(local: IpAddr) -> Option<DeviceName> {
    let found = interfaces::usable().unwrap_or_default();
    let has = |interface: &&interfaces::Interface| interface.addresses.iter().any(|of| of.ip.to_canonical() == local);
    found.iter().find(has).and_then(|interface| interface.name.parse().ok())
}

fn first_asked(carriage: &Carriage) -> Option<&AskedPath> {
    first_of(&carriage.paths)
}

fn first_of(asked: &Asked) -> Option<&AskedPath> {
    match asked {
        Asked::List(list) => list.first(),
        Asked::Auto | Asked::One => None,
    }
}
