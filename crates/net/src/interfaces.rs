//! The interfaces that connections can leave by, and their changes.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

pub use haul_sys::interfaces::{Interface, InterfaceAddress};
use haul_sys::route_events::{RouteEvents, Woken};
pub use haul_sys::routes::Route;
use haul_sys::routes::{self, Packet};

use crate::dial::Cancel;
use crate::limits;
use crate::way::Way;

/// The interfaces to other hosts: up, connected, with settled addresses, neither loopback nor link-local.
pub fn usable() -> io::Result<Vec<Interface>> {
    let mut found = haul_sys::interfaces::interfaces()?;
    found.retain_mut(|interface| {
        interface.addresses.retain(|address| address.settled && leads_out(address.ip));
        interface.up && interface.running && !interface.loopback && !interface.addresses.is_empty()
    });
    found.truncate(limits::MAX_DEVICES);
    Ok(found)
}

fn leads_out(ip: IpAddr) -> bool {
    let is_link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !(is_link_local || ip.is_loopback() || ip.is_unspecified() || ip.is_multicast())
}

/// One way for each address of these interfaces.
pub fn ways(interfaces: &[Interface]) -> Vec<Way> {
    let of = |interface: &Interface| -> Vec<Way> {
        let device = interface.name.parse().ok();
        let way =
            |address: &InterfaceAddress| Way { local: Some(address.ip), device: device.clone(), ..Way::default() };
        interface.addresses.iter().map(way).collect()
    };
    interfaces.iter().flat_map(of).collect()
}

/// The route of a connection from this interface and address. `None`: bound there, a connection gets no answer.
pub fn route(interface: &Interface, from: IpAddr, to: IpAddr) -> io::Result<Option<Route>> {
    routes::route_of(Packet { to, from: Some(from), device: Some(interface.index) })
}

/// Reports changes of [`usable`] interfaces.
#[derive(Debug)]
pub struct NetworkWatch {
    events: RouteEvents,
    ways: Vec<Way>,
}

/// Why a wait ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkEvent {
    /// Something has changed.
    Changed(Change),
    /// The time is over.
    TimedOut,
    /// The wait was cancelled.
    Cancelled,
}

/// The changes; both empty: a route, or nothing of interest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Usable now.
    pub came: Vec<Way>,
    /// No longer usable: interface, cable or address gone.
    pub went: Vec<Way>,
}

impl NetworkWatch {
    /// Receives every change from now on.
    pub fn new() -> io::Result<NetworkWatch> {
        // In this order no change is missed.
        let events = RouteEvents::subscribe()?;
        Ok(NetworkWatch { events, ways: ways(&usable()?) })
    }

    /// The usable ways, as of the last event.
    pub fn ways(&self) -> &[Way] {
        &self.ways
    }

    /// Waits for a change, by default endlessly.
    pub fn wait(&mut self, timeout: Option<Duration>, cancel: Option<&Cancel>) -> io::Result<NetworkEvent> {
        match self.events.wait(timeout, cancel.map(Cancel::as_fd))? {
            Woken::TimedOut => Ok(NetworkEvent::TimedOut),
            Woken::Cancelled => Ok(NetworkEvent::Cancelled),
            Woken::Changed => {
                let now = ways(&usable()?);
                let missing = |from: &[Way], of: &[Way]| of.iter().filter(|way| !from.contains(way)).cloned().collect();
                let change = Change { came: missing(&self.ways, &now), went: missing(&now, &self.ways) };
                self.ways = now;
                Ok(NetworkEvent::Changed(change))
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::net::TcpListener;

    use haul_sys::own_network::OwnNetwork;

    use super::*;
    use crate::dial::dial;
    use crate::policy::Policies;

    const SOON: Option<Duration> = Some(Duration::from_secs(20));
    const TIMEOUT: Duration = Duration::from_secs(5);

    /// Waits for so many: the kernel notices a cable late.
    pub(crate) fn await_uplinks(count: usize) {
        let mut watch = NetworkWatch::new().unwrap();
        while usable().unwrap().len() < count {
            let event = watch.wait(SOON, None).unwrap();
            assert_ne!(event, NetworkEvent::TimedOut, "{:?}", usable());
        }
    }

    /// Two hosts and cables: networks 10.1.0.0/24 and 10.2.0.0/24, client .1, server .2.
    fn two_hosts() -> Option<(OwnNetwork, OwnNetwork)> {
        let (client, server) = (OwnNetwork::new()?, OwnNetwork::new()?);
        for net in [1, 2] {
            client.connect(&format!("eth{net}"), &server, &format!("eth{net}"));
            for (host, number) in [(&client, 1), (&server, 2)] {
                host.ip(&format!("addr add 10.{net}.0.{number}/24 dev eth{net}"));
                host.ip(&format!("link set eth{net} up"));
            }
        }
        client.enter(|| await_uplinks(2));
        server.enter(|| await_uplinks(2));
        Some((client, server))
    }

    fn way(device: &str, local: &str) -> Way {
        Way { local: Some(local.parse().unwrap()), device: Some(device.parse().unwrap()), ..Way::default() }
    }

    fn next(watch: &mut NetworkWatch) -> Change {
        loop {
            match watch.wait(SOON, None).unwrap() {
                NetworkEvent::Changed(change) if change == Change::default() => continue,
                NetworkEvent::Changed(change) => return change,
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn interfaces_and_addresses_that_come_and_go_are_told_as_ways() {
        let Some((client, server)) = two_hosts() else { return };
        client.enter(|| {
            let mut watch = NetworkWatch::new().unwrap();
            assert_eq!(watch.ways(), [way("eth1", "10.1.0.1"), way("eth2", "10.2.0.1")]);
            let went = |ways: &[Way]| Change { went: ways.to_vec(), ..Change::default() };
            let came = |ways: &[Way]| Change { came: ways.to_vec(), ..Change::default() };
            server.ip("link set eth2 down");
            assert_eq!(next(&mut watch), went(&[way("eth2", "10.2.0.1")]));
            server.ip("link set eth2 up");
            assert_eq!(next(&mut watch), came(&[way("eth2", "10.2.0.1")]));
            client.ip("addr add 10.2.0.7/24 dev eth2");
            assert_eq!(next(&mut watch), came(&[way("eth2", "10.2.0.7")]));
            client.ip("addr del 10.2.0.1/24 dev eth2");
            assert_eq!(next(&mut watch).went[0], way("eth2", "10.2.0.1"));
            client.ip("link del eth1");
            assert!(next(&mut watch).went.contains(&way("eth1", "10.1.0.1")));
            let cancel = Cancel::new().unwrap();
            cancel.cancel();
            let ended = std::iter::repeat_with(|| watch.wait(None, Some(&cancel)).unwrap()).take(3);
            assert!(ended.into_iter().any(|event| event == NetworkEvent::Cancelled));
        });
    }

    #[test]
    fn each_way_leads_over_its_own_interface_even_against_the_routes() {
        let Some((client, server)) = two_hosts() else { return };
        server.ip("addr add 192.0.2.1/32 dev lo");
        client.ip("route add default via 10.1.0.2");
        client.ip("route add default via 10.2.0.2 metric 200");
        let listener = server.enter(|| TcpListener::bind("0.0.0.0:0").unwrap());
        let there = std::net::SocketAddr::from(([192, 0, 2, 1], listener.local_addr().unwrap().port()));
        client.enter(|| {
            for way in ways(&usable().unwrap()) {
                let stream = dial(&[there], TIMEOUT, &Policies::default(), &way, None).unwrap();
                assert_eq!(listener.accept().unwrap().1.ip(), way.local.unwrap());
                assert_eq!(Way::of(&stream).unwrap(), way);
            }
        });
    }

    #[test]
    fn an_interface_without_a_route_to_the_peer_is_told_before_anything_is_sent() {
        let Some((client, _server)) = two_hosts() else { return };
        client.ip("route add default via 10.1.0.2");
        client.enter(|| {
            let interfaces = usable().unwrap();
            let route = |device: &str, local: &str| {
                let interface = interfaces.iter().find(|interface| interface.name == device).unwrap();
                route(interface, local.parse().unwrap(), "192.0.2.1".parse().unwrap()).unwrap()
            };
            assert_eq!(route("eth1", "10.1.0.1").unwrap().gateway, Some("10.1.0.2".parse().unwrap()));
            assert_eq!(route("eth2", "10.2.0.1"), None);
        });
    }
}
