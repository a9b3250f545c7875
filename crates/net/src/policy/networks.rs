//! Which network class holds for a peer.
//!
//! ```text
//! for each list (the operator's file, the user's, the built-in classes), the first that fits:
//!   its longest prefix -> its interface -> loopback, local: this host's own networks -> near, far: round trip -> rest
//! for each value, the first list whose class has it
//! ```

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use haul_sys::interfaces::{Interface, interfaces};
use haul_sys::routes::{self, Packet};
use haul_sys::tcp_info;
use socket2::SockRef;

use super::class::{FAR, LOCAL, LOOPBACK, NEAR, NetworkClass, REST, Terms};
use super::layers::{Layer, Source};
use super::options::Pacing;
use super::prefix::{BadRow, Prefix, PrefixTable};
use super::values::Policy;

/// The classes of one file, or the built-in ones.
#[derive(Clone, Debug, Default)]
pub struct ClassList {
    classes: Vec<Arc<NetworkClass>>,
    prefixes: PrefixTable<usize>,
    interfaces: HashMap<String, usize>,
    near_rtt_us: Option<u32>,
}

/// Why a class cannot be added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadClass {
    /// One of its networks cannot be added.
    #[error(transparent)]
    Row(#[from] BadRow),
    /// An interface stands in two classes.
    #[error("the interface {0} stands in the list twice")]
    Interface(String),
}

/// Why a peer belongs to a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fits {
    /// The class has this network.
    Prefix(Prefix),
    /// The peer is reached by this interface.
    Interface(String),
    /// The peer is this host.
    Loopback,
    /// The peer is on a network of this host.
    OwnSubnet(Prefix),
    /// The round trip fits.
    Distance,
    /// No other class fits.
    Rest,
}

impl fmt::Display for Fits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fits::Prefix(prefix) => write!(f, "{prefix}"),
            Fits::Interface(name) => write!(f, "interface {name}"),
            Fits::Loopback => f.write_str("this host itself"),
            Fits::OwnSubnet(prefix) => write!(f, "own subnet {prefix}"),
            Fits::Distance => f.write_str("by round trip"),
            Fits::Rest => f.write_str("in no list"),
        }
    }
}

impl ClassList {
    /// Adds a class with its networks and interfaces.
    pub fn add(&mut self, class: NetworkClass, prefixes: &[Prefix], interfaces: &[String]) -> Result<(), BadClass> {
        let at = self.classes.len();
        for prefix in prefixes {
            self.prefixes.insert(*prefix, at)?;
        }
        for name in interfaces {
            if self.interfaces.insert(name.clone(), at).is_some() {
                return Err(BadClass::Interface(name.clone()));
            }
        }
        self.classes.push(Arc::new(class));
        Ok(())
    }

    /// Sets the round trip below which a peer is near.
    pub fn near_below_us(&mut self, rtt_us: u32) {
        self.near_rtt_us = Some(rtt_us);
    }

    /// The classes, in the file's order.
    pub fn classes(&self) -> &[Arc<NetworkClass>] {
        &self.classes
    }

    /// The networks and interfaces of a class, as text.
    pub fn members_of(&self, name: &str) -> Vec<String> {
        let is_it = |at: &usize| self.classes[*at].name == name;
        let mut prefixes: Vec<Prefix> = self.prefixes.rows().filter(|(_, at)| is_it(at)).map(|row| row.0).collect();
        prefixes.sort();
        let mut interfaces: Vec<&String> =
            self.interfaces.iter().filter(|(_, at)| is_it(at)).map(|row| row.0).collect();
        interfaces.sort();
        let interfaces = interfaces.into_iter().map(|name| Fits::Interface(name.clone()).to_string());
        prefixes.iter().map(Prefix::to_string).chain(interfaces).collect()
    }

    fn built_in() -> ClassList {
        let classes = NetworkClass::built_in().into_iter().map(Arc::new).collect();
        ClassList { classes, ..ClassList::default() }
    }

    fn named(&self, name: &str) -> Option<&Arc<NetworkClass>> {
        self.classes.iter().find(|class| class.name == name)
    }

    fn find(&self, peer: &Peer, own: &OwnNetworks) -> Option<(Arc<NetworkClass>, Fits)> {
        let listed = self.prefixes.find(peer.ip).map(|(prefix, at)| (&self.classes[*at], Fits::Prefix(prefix)));
        let by_interface = || {
            let name = peer.interface.as_ref()?;
            Some((&self.classes[*self.interfaces.get(name)?], Fits::Interface(name.clone())))
        };
        let of_own = || match own.find(peer.ip)? {
            fits @ Fits::Loopback => Some((self.named(LOOPBACK)?, fits)),
            fits => Some((self.named(LOCAL)?, fits)),
        };
        let by_distance = || {
            let is_near = peer.rtt_us? < self.near_rtt_us.unwrap_or(NEAR_RTT_US);
            Some((self.named(if is_near { NEAR } else { FAR })?, Fits::Distance))
        };
        let rest = || Some((self.named(REST)?, Fits::Rest));
        let found = listed.or_else(by_interface).or_else(of_own).or_else(by_distance).or_else(rest);
        found.map(|(class, fits)| (Arc::clone(class), fits))
    }
}

/// Within a building a round trip takes less.
pub const NEAR_RTT_US: u32 = 2_000;

/// The lists of classes, the operator's first, and this host's own networks.
#[derive(Clone, Debug, Default)]
pub struct Networks {
    lists: Vec<ClassList>,
    own: OwnNetworks,
}

impl Networks {
    /// Takes these lists, the built-in classes, and a host's own networks.
    pub fn of(mut lists: Vec<ClassList>, own: OwnNetworks) -> Networks {
        lists.push(ClassList::built_in());
        Networks { lists, own }
    }

    /// Takes these lists alone.
    pub fn only(lists: Vec<ClassList>) -> Networks {
        Networks { lists, own: OwnNetworks::default() }
    }

    /// The lists, the built-in classes last.
    pub fn lists(&self) -> &[ClassList] {
        &self.lists
    }

    /// The host's own networks.
    pub fn own(&self) -> &OwnNetworks {
        &self.own
    }

    /// The classes that hold for a peer.
    pub fn find(&self, peer: &Peer) -> Found {
        let found = self.lists.iter().enumerate().filter_map(|(list, classes)| {
            let (class, fits) = classes.find(peer, &self.own)?;
            Some(FoundClass { class, fits, list })
        });
        Found::of(found.collect())
    }

    pub(super) fn peer(&self, socket: impl AsFd, ip: IpAddr, rtt_us: Option<u32>) -> Peer {
        let interface = match self.asks_for_interfaces() {
            true => {
                let local = SockRef::from(&socket).local_addr().ok().and_then(|local| local.as_socket());
                let local = local.map(|local| local.ip().to_canonical()).filter(|ip| !ip.is_unspecified());
                match local {
                    Some(local) => self.own.interface_of(local),
                    None => self.own.interface_towards(ip),
                }
            }
            false => None,
        };
        Peer { ip: ip.to_canonical(), interface, rtt_us }
    }

    /// The facts about an address, without a connection.
    pub fn peer_at(&self, ip: IpAddr) -> Peer {
        let interface = self.asks_for_interfaces().then(|| self.own.interface_towards(ip)).flatten();
        Peer { ip: ip.to_canonical(), interface, rtt_us: None }
    }

    /// Whether a round trip can decide a class.
    pub fn asks_for_distance(&self) -> bool {
        self.lists.iter().any(|list| list.named(NEAR).or_else(|| list.named(FAR)).is_some())
    }

    pub(super) fn prefixes(&self) -> HashSet<Prefix> {
        let named = self.lists.iter().flat_map(|list| list.prefixes.rows().map(|(prefix, _)| prefix));
        let own = self.own.subnets.rows().map(|(prefix, ())| prefix);
        let addresses =
            self.own.addresses.keys().filter_map(|ip| Prefix::new(*ip, if ip.is_ipv4() { 32 } else { 128 }).ok());
        named.chain(own).chain(addresses).collect()
    }

    fn asks_for_interfaces(&self) -> bool {
        self.lists.iter().any(|list| !list.interfaces.is_empty())
    }
}

/// The other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The address.
    pub ip: IpAddr,
    /// The interface of this host.
    pub interface: Option<String>,
    /// The round trip, if measured.
    pub rtt_us: Option<u32>,
}

/// The classes that hold for a peer, one of each list at most, shared by up to ten thousand connections.
#[derive(Clone, Debug, Default)]
pub struct Found(Arc<Known>);

#[derive(Debug, Default)]
struct Known {
    classes: Vec<FoundClass>,
    /// No connection sends faster than its whole class may.
    ceiling: Option<Policy>,
}

/// A class that holds for a peer.
#[derive(Clone, Debug)]
pub struct FoundClass {
    /// The class.
    pub class: Arc<NetworkClass>,
    /// Why it holds.
    pub fits: Fits,
    /// The list's number.
    pub list: usize,
}

impl Found {
    fn of(classes: Vec<FoundClass>) -> Found {
        let pacing = |found: &FoundClass| found.class.policy.pacing.map(|pacing| pacing.bytes_per_s);
        let of_class = classes.iter().find_map(pacing);
        let terms = terms_of(&classes);
        let rate = terms.rate_bytes_per_s.into_iter().chain(terms.rate_per_address_bytes_per_s).min();
        let ceiling = rate.map(|rate| {
            let bytes_per_s = rate.min(of_class.unwrap_or(u64::MAX));
            Policy { pacing: Some(Pacing { bytes_per_s }), ..Policy::default() }
        });
        Found(Arc::new(Known { classes, ceiling }))
    }

    /// The other, if equal, to give this memory back.
    pub(super) fn or_same(self, other: &Found) -> Found {
        let is_same = |(one, other): (&FoundClass, &FoundClass)| {
            Arc::ptr_eq(&one.class, &other.class) && one.fits == other.fits && one.list == other.list
        };
        let (ours, theirs) = (self.classes(), other.classes());
        // The ceiling follows from the classes.
        if ours.len() == theirs.len() && ours.iter().zip(theirs).all(is_same) { other.clone() } else { self }
    }

    /// The classes, the operator's first.
    pub fn classes(&self) -> &[FoundClass] {
        &self.0.classes
    }

    /// The first class, which names all.
    pub fn first(&self) -> Option<&FoundClass> {
        self.classes().first()
    }

    /// The name of the class that holds.
    pub fn name(&self) -> Option<&str> {
        self.first().map(|found| found.class.name.as_str())
    }

    /// The terms that all allow.
    pub fn terms(&self) -> Terms {
        terms_of(self.classes())
    }

    pub(super) fn layers(&self) -> Vec<Layer<'_>> {
        let layer = |policy, found: &FoundClass| Layer { policy, source: Source::Class(Arc::clone(&found.class)) };
        let ceiling = self.0.ceiling.as_ref().zip(self.first()).map(|(ceiling, first)| layer(ceiling, first));
        ceiling.into_iter().chain(self.classes().iter().map(|found| layer(&found.class.policy, found))).collect()
    }
}

fn terms_of(classes: &[FoundClass]) -> Terms {
    classes.iter().fold(Terms::default(), |terms, found| terms.and(found.class.terms))
}

/// The networks that this host is on, with its addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnNetworks {
    subnets: PrefixTable<()>,
    addresses: HashMap<IpAddr, String>,
    names: HashMap<u32, String>,
}

impl OwnNetworks {
    /// The current networks, as the kernel tells.
    pub fn of_host() -> OwnNetworks {
        interfaces().map(|found| OwnNetworks::among(&found)).unwrap_or_default()
    }

    fn among(interfaces: &[Interface]) -> OwnNetworks {
        let mut own = OwnNetworks::default();
        for interface in interfaces.iter().filter(|interface| interface.up) {
            own.names.insert(interface.index, interface.name.clone());
            for address in &interface.addresses {
                let ip = address.ip.to_canonical();
                own.addresses.insert(ip, interface.name.clone());
                if interface.loopback || leads_away(interface) {
                    continue;
                }
                // A full table leaves others out; two interfaces may share a network.
                let _ = Prefix::around(ip, address.prefix_len).map(|prefix| own.subnets.insert(prefix, ()));
            }
        }
        own
    }

    /// The networks.
    pub fn subnets(&self) -> Vec<Prefix> {
        let mut subnets: Vec<Prefix> = self.subnets.rows().map(|(prefix, ())| prefix).collect();
        subnets.sort();
        subnets
    }

    fn find(&self, ip: IpAddr) -> Option<Fits> {
        if ip.is_loopback() || self.addresses.contains_key(&ip) {
            return Some(Fits::Loopback);
        }
        self.subnets.find(ip).map(|(prefix, ())| Fits::OwnSubnet(prefix))
    }

    fn interface_of(&self, local: IpAddr) -> Option<String> {
        self.addresses.get(&local).cloned()
    }

    fn interface_towards(&self, ip: IpAddr) -> Option<String> {
        let route: io::Result<Option<routes::Route>> = routes::route_of(Packet { to: ip, from: None, device: None });
        self.names.get(&route.ok()??.device?).cloned()
    }
}

/// Whether the interface is a tunnel: its peers may be anywhere.
fn leads_away(interface: &Interface) -> bool {
    const TUNNELS: [&str; 10] = ["tun", "wireguard", "ipip", "sit", "gre", "ip6gre", "ip6tnl", "vti", "vti6", "xfrm"];
    interface.point_to_point || interface.kind.as_deref().is_some_and(|kind| TUNNELS.contains(&kind))
}

pub(super) fn rtt_us_of(socket: impl AsFd) -> Option<u32> {
    let info = tcp_info::tcp_info(socket).ok()?;
    Some(info.rtt_min_us.unwrap_or(info.rtt_us)).filter(|rtt_us| *rtt_us > 0)
}

#[cfg(test)]
mod tests {
    use haul_sys::interfaces::InterfaceAddress;

    use super::*;

    fn class(name: &str) -> NetworkClass {
        NetworkClass { name: name.to_owned(), ..NetworkClass::default() }
    }

    fn list(classes: &[(&str, &[&str], &[&str])]) -> ClassList {
        let mut list = ClassList::default();
        for (name, prefixes, interfaces) in classes {
            let prefixes: Vec<Prefix> = prefixes.iter().map(|prefix| prefix.parse().unwrap()).collect();
            let interfaces: Vec<String> = interfaces.iter().map(|name| (*name).to_owned()).collect();
            list.add(class(name), &prefixes, &interfaces).unwrap();
        }
        list
    }

    fn interface(index: u32, name: &str, ip: &str, prefix_len: u8, kind: Option<&str>) -> Interface {
        Interface {
            index,
            name: name.to_owned(),
            up: true,
            running: true,
            loopback: name == "lo",
            point_to_point: false,
            mtu_bytes: 1500,
            kind: kind.map(str::to_owned),
            addresses: vec![InterfaceAddress { ip: ip.parse().unwrap(), prefix_len, settled: true }],
        }
    }

    fn own() -> OwnNetworks {
        OwnNetworks::among(&[
            interface(1, "lo", "127.0.0.1", 8, None),
            interface(2, "eth0", "192.0.2.7", 24, None),
            interface(3, "wg0", "10.9.0.1", 24, Some("wireguard")),
        ])
    }

    fn peer(ip: &str, interface: Option<&str>, rtt_us: Option<u32>) -> Peer {
        Peer { ip: ip.parse().unwrap(), interface: interface.map(str::to_owned), rtt_us }
    }

    #[test]
    fn without_a_file_a_host_has_itself_its_own_networks_and_the_rest() {
        let networks = Networks::of(Vec::new(), own());
        for (ip, name, why) in [
            ("127.0.0.9", LOOPBACK, "this host itself"),
            ("::1", LOOPBACK, "this host itself"),
            ("192.0.2.7", LOOPBACK, "this host itself"),
            ("192.0.2.8", LOCAL, "own subnet 192.0.2.0/24"),
            ("::ffff:192.0.2.8", LOCAL, "own subnet 192.0.2.0/24"),
            ("10.9.0.2", REST, "in no list"),
            ("2001:db8::1", REST, "in no list"),
        ] {
            let found = networks.find(&networks.peer_at(ip.parse().unwrap()));
            assert_eq!((found.name(), found.classes().len()), (Some(name), 1), "{ip}");
            assert_eq!(found.first().unwrap().fits.to_string(), why, "{ip}");
        }
    }

    #[test]
    fn the_longest_prefix_then_the_interface_then_own_networks_then_the_distance() {
        let file = list(&[
            ("inside", &["10.0.0.0/8", "fd00::/8"], &[]),
            ("lab", &["10.1.0.0/16"], &["eth1"]),
            (NEAR, &[], &[]),
            (FAR, &[], &[]),
            (LOCAL, &[], &[]),
        ]);
        let networks = Networks::of(vec![file], own());
        for (who, names) in [
            (peer("10.2.0.1", Some("eth1"), Some(1)), vec!["inside", REST]),
            (peer("10.1.0.1", None, None), vec!["lab", REST]),
            (peer("fd00::1", None, None), vec!["inside", REST]),
            (peer("198.51.100.1", Some("eth1"), Some(9)), vec!["lab", REST]),
            (peer("192.0.2.9", Some("eth0"), Some(9)), vec![LOCAL, LOCAL]),
            (peer("198.51.100.1", None, Some(NEAR_RTT_US - 1)), vec![NEAR, REST]),
            (peer("198.51.100.1", None, Some(NEAR_RTT_US)), vec![FAR, REST]),
            (peer("198.51.100.1", None, None), vec![REST]),
        ] {
            let found = networks.find(&who);
            let told: Vec<&str> = found.classes().iter().map(|found| found.class.name.as_str()).collect();
            assert_eq!(told, names, "{who:?}");
        }
    }

    #[test]
    fn the_users_own_list_narrows_the_operators_and_never_widens_it() {
        let terms = |connections, write| Terms { connections, write, ..Terms::default() };
        let with = |terms| {
            let mut list = ClassList::default();
            list.add(NetworkClass { terms, ..class(REST) }, &[], &[]).unwrap();
            list
        };
        let networks = Networks::of(vec![with(terms(Some(4), Some(false))), with(terms(Some(9), Some(true)))], own());
        let held = networks.find(&peer("198.51.100.1", None, None)).terms();
        assert_eq!((held.connections, held.may_write(), held.may_read()), (Some(4), false, true));
    }
}
