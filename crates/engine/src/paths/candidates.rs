//! Which further ways between two hosts are worth a try.
//!
//! A way is a pair of a local and a remote address. A further one must bring a new local interface or remote subnet: otherwise it
//! takes the same cables. Pairs in one subnet come first: they need no router.
//!
//! A peer is not trusted with the addresses that it names: few are looked at, and loopback, link-local, multicast and our own are
//! refused. So it can neither make us scan a network, nor reach services for this host alone.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use haul_wire::limits::{MAX_CANDIDATES, MAX_PATHS};

/// An address of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalAddress {
    /// Name of the interface.
    pub interface: String,
    /// The address.
    pub address: IpAddr,
    /// Length of its subnet's prefix.
    pub prefix_len: u8,
    /// The interface leads to this host only.
    pub is_loopback: bool,
}

/// A way from one host to the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// The interface.
    pub interface: String,
    /// Address at this end.
    pub local: IpAddr,
    /// Address at the other end.
    pub remote: IpAddr,
}

/// The ways that the user asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Asked {
    /// All useful ways.
    #[default]
    Auto,
    /// One path.
    One,
    /// Only these ways.
    List(Vec<AskedPath>),
}

/// One path that the user asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AskedPath {
    /// Through this interface.
    Interface(String),
    /// From this address.
    Local(IpAddr),
    /// From one address to another, perhaps unnamed by the peer.
    Pair(IpAddr, IpAddr),
}

/// The facts before any further way is tried.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// The way that the session has.
    pub primary: &'a Way,
    /// The addresses of this host.
    pub locals: &'a [LocalAddress],
    /// The addresses that the peer tells.
    pub remotes: &'a [IpAddr],
}

/// Ways to try, best first, and refusals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidates {
    /// At most [`MAX_PATHS`] less one.
    pub ways: Vec<Way>,
    /// At most [`MAX_CANDIDATES`], and one for each asked path.
    pub refused: Vec<Refusal>,
}

/// Why something is no candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Loopback, link-local, multicast, or unassigned.
    NotReachable(IpAddr),
    /// The peer names an address of this host.
    Ours(IpAddr),
    /// The peer names so many; those beyond [`MAX_CANDIDATES`] were not looked at.
    TooMany(usize),
    /// No interface to others has it.
    NotHere(AskedPath),
    /// The peer has none of its family.
    NoRemote(AskedPath),
    /// A session has fewer paths.
    BeyondLimit(AskedPath),
}

impl fmt::Display for AskedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AskedPath::Interface(name) => f.write_str(name),
            AskedPath::Local(local) => write!(f, "{local}"),
            AskedPath::Pair(local, remote) => write!(f, "{local}={remote}"),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NotReachable(address) => write!(f, "{address} leads to no other host, and is not dialled"),
            Refusal::Ours(address) => write!(f, "{address} is an address of this host too, and is not dialled"),
            Refusal::TooMany(count) => write!(f, "of {count} addresses the first {MAX_CANDIDATES} count"),
            Refusal::NotHere(path) => write!(f, "no path by {path}: no interface of this host that is up has it"),
            Refusal::NoRemote(path) => write!(f, "no path by {path}: the other host has no address that it leads to"),
            Refusal::BeyondLimit(path) => write!(f, "no path by {path}: a session has at most {MAX_PATHS}"),
        }
    }
}

/// Whether a route leads from an interface's address to another.
pub type Leads<'a> = &'a dyn Fn(&LocalAddress, IpAddr) -> bool;

/// The further ways worth a try. A pair without a route is none, unless the user names both.
pub fn candidates(surroundings: Surroundings<'_>, asked: &Asked, leads: Leads<'_>) -> Candidates {
    let mut refused = Vec::new();
    let remotes = match asked {
        Asked::One => return Candidates::default(),
        Asked::Auto | Asked::List(_) => believable(surroundings, &mut refused),
    };
    let usable = |local: &&LocalAddress| !local.is_loopback && is_reachable(local.address.to_canonical());
    let locals = surroundings.locals.iter().filter(usable).take(LOCALS_MAX);
    let locals = locals.map(|local| LocalAddress { address: local.address.to_canonical(), ..local.clone() }).collect();
    let primary = Way {
        local: surroundings.primary.local.to_canonical(),
        remote: surroundings.primary.remote.to_canonical(),
        ..surroundings.primary.clone()
    };
    let mut choice = Choice { family: primary.remote, locals, remotes, ways: Vec::from([primary]), leads };
    match asked {
        Asked::One => {}
        Asked::Auto => while choice.is_open() && choice.add_best(|_| true, Choice::is_new) {},
        Asked::List(list) => list.iter().for_each(|path| refused.extend(choice.add_asked(path))),
    }
    choice.ways.remove(0);
    Candidates { ways: choice.ways, refused }
}

fn believable(surroundings: Surroundings<'_>, refused: &mut Vec<Refusal>) -> Vec<IpAddr> {
    if surroundings.remotes.len() > MAX_CANDIDATES {
        refused.push(Refusal::TooMany(surroundings.remotes.len()));
    }
    let mut remotes = Vec::from([surroundings.primary.remote.to_canonical()]);
    for remote in surroundings.remotes.iter().take(MAX_CANDIDATES) {
        let remote = remote.to_canonical();
        if !is_reachable(remote) {
            refused.push(Refusal::NotReachable(remote));
        } else if surroundings.locals.iter().any(|local| local.address.to_canonical() == remote) {
            refused.push(Refusal::Ours(remote));
        } else if !remotes.contains(&remote) {
            remotes.push(remote);
        }
    }
    remotes.retain(|remote| is_reachable(*remote));
    remotes
}

struct Choice<'a> {
    family: IpAddr,
    locals: Vec<LocalAddress>,
    remotes: Vec<IpAddr>,
    ways: Vec<Way>,
    leads: Leads<'a>,
}

impl Choice<'_> {
    fn is_open(&self) -> bool {
        self.ways.len() < usize::from(MAX_PATHS)
    }

    fn add_best(
        &mut self,
        suits_local: impl Fn(&LocalAddress) -> bool,
        suits: fn(&Self, &LocalAddress, IpAddr) -> bool,
    ) -> bool {
        let locals = self.locals.iter().filter(|local| suits_local(local));
        let pairs = locals.flat_map(|local| self.remotes.iter().map(move |remote| (local, *remote)));
        let pairs = pairs.filter(|(local, remote)| {
            is_same_family(local.address, *remote) && suits(self, local, *remote) && !self.has(local.address, *remote)
        });
        let mut pairs: Vec<(&LocalAddress, IpAddr)> = pairs.collect();
        pairs.sort_by_key(|(local, remote)| self.order(local, *remote));
        // Each question is a system call.
        let Some((local, remote)) = pairs.into_iter().find(|(local, remote)| (self.leads)(local, *remote)) else {
            return false;
        };
        let way = Way { interface: local.interface.clone(), local: local.address, remote };
        self.ways.push(way);
        true
    }

    fn order(&self, local: &LocalAddress, remote: IpAddr) -> [bool; 4] {
        [
            !contains(local, remote),
            self.has_interface(&local.interface),
            self.ways.iter().any(|way| way.remote == remote),
            !is_same_family(remote, self.family),
        ]
    }

    /// True for a new interface or subnet. IPv4 and IPv6, or two addresses in one subnet, usually share a cable.
    fn is_new(&self, local: &LocalAddress, remote: IpAddr) -> bool {
        let leads_there = |way: &Way| way.remote == remote || self.share_subnet(way.remote, remote);
        !self.has_interface(&local.interface)
            || (is_same_family(remote, self.family) && !self.ways.iter().any(leads_there))
    }

    fn add_asked(&mut self, asked: &AskedPath) -> Option<Refusal> {
        let is_asked = |local: &LocalAddress| match asked {
            AskedPath::Interface(name) => local.interface == *name,
            AskedPath::Local(address) | AskedPath::Pair(address, _) => local.address == address.to_canonical(),
        };
        let Some(local) = self.locals.iter().find(|local| is_asked(local)).cloned() else {
            return Some(Refusal::NotHere(asked.clone()));
        };
        let is_there = match asked {
            AskedPath::Interface(name) => self.has_interface(name),
            AskedPath::Local(_) => self.ways.iter().any(|way| way.local == local.address),
            AskedPath::Pair(_, remote) => self.has(local.address, remote.to_canonical()),
        };
        if is_there {
            return None;
        }
        if !self.is_open() {
            return Some(Refusal::BeyondLimit(asked.clone()));
        }
        if let AskedPath::Pair(_, remote) = asked {
            let remote = remote.to_canonical();
            if !is_reachable(remote) || self.locals.iter().any(|local| local.address == remote) {
                return Some(Refusal::NotReachable(remote));
            }
            if !is_same_family(local.address, remote) {
                return Some(Refusal::NoRemote(asked.clone()));
            }
            self.ways.push(Way { interface: local.interface, local: local.address, remote });
            return None;
        }
        (!self.add_best(is_asked, |_, _, _| true)).then(|| Refusal::NoRemote(asked.clone()))
    }

    fn has(&self, local: IpAddr, remote: IpAddr) -> bool {
        self.ways.iter().any(|way| way.local == local && way.remote == remote)
    }

    fn has_interface(&self, name: &str) -> bool {
        self.ways.iter().any(|way| way.interface == name)
    }

    /// Foreign subnets are taken for the usual size.
    fn share_subnet(&self, one: IpAddr, other: IpAddr) -> bool {
        let usual = if one.is_ipv4() { 24 } else { 64 };
        let ours = self.locals.iter().find(|local| contains(local, one));
        is_same_subnet(one, other, ours.map_or(usual, |local| local.prefix_len))
    }
}

/// Whether this may be another host: not loopback, link-local, multicast or reserved.
pub fn is_reachable(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => is_reachable_v4(v4),
        IpAddr::V6(v6) => is_reachable_v6(v6),
    }
}

fn is_reachable_v4(address: Ipv4Addr) -> bool {
    let [first, ..] = address.octets();
    // 0.0.0.0/8 is this network (RFC 1122), 240.0.0.0/4 reserved, with the broadcast.
    first != 0 && first < 240 && !address.is_loopback() && !address.is_link_local() && !address.is_multicast()
}

fn is_reachable_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    // ::/96 has loopback, the unspecified address, and old IPv4 forms (RFC 4291).
    segments[..6] != [0; 6] && !address.is_unicast_link_local() && !address.is_multicast()
}

fn is_same_family(one: IpAddr, other: IpAddr) -> bool {
    one.is_ipv4() == other.is_ipv4()
}

fn contains(local: &LocalAddress, remote: IpAddr) -> bool {
    is_same_subnet(local.address, remote, local.prefix_len)
}

fn is_same_subnet(one: IpAddr, other: IpAddr, prefix_len: u8) -> bool {
    let (one, other, bits) = match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => (u128::from(one.to_bits()), u128::from(other.to_bits()), 32),
        (IpAddr::V6(one), IpAddr::V6(other)) => (one.to_bits(), other.to_bits(), 128),
        _ => return false,
    };
    let host_bits = bits - u32::from(prefix_len).min(bits);
    (one ^ other).checked_shr(host_bits).unwrap_or(0) == 0
}

/// Hosts of containers may have thousands; a way takes all pairs with the peer's: 256 x 65.
const LOCALS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn local(text: &str) -> LocalAddress {
        let (interface, rest) = text.split_once(' ').unwrap();
        let (address, prefix_len) = rest.split_once('/').unwrap();
        LocalAddress {
            interface: interface.to_string(),
            address: ip(address),
            prefix_len: prefix_len.parse().unwrap(),
            is_loopback: interface == "lo",
        }
    }

    fn found(locals: &[&str], remotes: &[&str], asked: &Asked) -> Candidates {
        let locals: Vec<LocalAddress> = locals.iter().map(|text| local(text)).collect();
        let remotes: Vec<IpAddr> = remotes.iter().map(|text| ip(text)).collect();
        let primary = Way { interface: locals[0].interface.clone(), local: locals[0].address, remote: remotes[0] };
        candidates(Surroundings { primary: &primary, locals: &locals, remotes: &remotes }, asked, &|_, _| true)
    }

    fn ways(found: &Candidates) -> Vec<String> {
        found.ways.iter().map(|way| alloc::format!("{} {} {}", way.interface, way.local, way.remote)).collect()
    }

    fn check(locals: &[&str], remotes: &[&str], asked: &Asked, expected: &[&str]) {
        let found = found(locals, remotes, asked);
        assert_eq!(ways(&found), expected, "{locals:?} to {remotes:?}, {asked:?}: {:?}", found.refused);
    }

    #[test]
    fn each_further_interface_at_either_end_is_a_way() {
        let (eth0, eth1) = ("eth0 10.0.0.5/24", "eth1 10.0.1.5/24");
        check(&[eth0, eth1], &["192.0.2.7"], &Asked::Auto, &["eth1 10.0.1.5 192.0.2.7"]);
        check(&[eth0], &["192.0.2.7", "198.51.100.7"], &Asked::Auto, &["eth0 10.0.0.5 198.51.100.7"]);
        check(&[eth0, eth1], &["10.0.0.7", "10.0.1.7"], &Asked::Auto, &["eth1 10.0.1.5 10.0.1.7"]);
        check(&["eth0 10.0.0.5/24", "wlan0 10.0.0.6/24"], &["10.0.0.7"], &Asked::Auto, &["wlan0 10.0.0.6 10.0.0.7"]);
    }

    #[test]
    fn pairs_in_one_subnet_come_first() {
        let locals = ["eth0 10.0.0.5/24", "eth1 10.0.1.5/24", "eth2 10.0.2.5/24"];
        let remotes = ["10.0.0.7", "10.0.9.7", "10.0.2.7"];
        check(&locals, &remotes, &Asked::Auto, &["eth2 10.0.2.5 10.0.2.7", "eth1 10.0.1.5 10.0.9.7"]);
    }

    #[test]
    fn what_goes_through_the_same_cables_is_no_way() {
        let both = ["eth0 10.0.0.5/24", "eth0 2001:db8::5/64"];
        check(&both, &["10.9.0.7", "2001:db8:9::7"], &Asked::Auto, &[]);
        check(&both[1..], &["2001:db8:9::7", "2001:db8:9::8", "10.9.0.7"], &Asked::Auto, &[]);
        check(&["eth0 10.0.0.5/16"], &["10.0.0.7", "10.0.3.7"], &Asked::Auto, &[]);
        check(&["eth0 10.0.0.5/24"], &["10.9.0.7"], &Asked::Auto, &[]);
    }

    #[test]
    fn an_interface_with_the_other_family_only_is_a_way() {
        let locals = ["eth0 10.0.0.5/24", "wwan0 2001:db8::5/64"];
        check(&locals, &["10.9.0.7", "2001:db8:9::7"], &Asked::Auto, &["wwan0 2001:db8::5 2001:db8:9::7"]);
    }

    #[test]
    fn a_user_names_interfaces_addresses_and_pairs() {
        let locals = ["eth0 10.0.0.5/24", "eth1 10.0.1.5/24", "eth2 10.0.2.5/24"];
        let interface = |name: &str| AskedPath::Interface(name.to_string());
        let asked = |list: &[AskedPath]| Asked::List(list.to_vec());
        let eth1 = "eth1 10.0.1.5 10.9.0.7";
        check(&locals, &["10.9.0.7"], &asked(&[interface("eth0"), interface("eth1")]), &[eth1]);
        check(&locals, &["10.9.0.7"], &asked(&[AskedPath::Local(ip("10.0.1.5"))]), &[eth1]);
        let pair = AskedPath::Pair(ip("10.0.2.5"), ip("10.8.0.9"));
        check(&locals, &["10.9.0.7"], &asked(&[pair.clone(), pair]), &["eth2 10.0.2.5 10.8.0.9"]);
        check(&locals, &["10.9.0.7"], &Asked::One, &[]);
    }

    #[test]
    fn what_a_user_cannot_have_is_told() {
        let gone = AskedPath::Interface("eth9".to_string());
        let other_family = AskedPath::Pair(ip("10.0.0.5"), ip("2001:db8::7"));
        let to_loopback = AskedPath::Pair(ip("10.0.0.5"), ip("127.0.0.1"));
        let asked = Asked::List(vec![gone.clone(), other_family.clone(), to_loopback]);
        let found = found(&["eth0 10.0.0.5/24"], &["10.9.0.7"], &asked);
        let expected =
            [Refusal::NotHere(gone), Refusal::NoRemote(other_family), Refusal::NotReachable(ip("127.0.0.1"))];
        assert_eq!((found.ways, found.refused), (vec![], expected.to_vec()));
    }

    #[test]
    fn a_peer_that_names_somebody_else_or_us_is_refused() {
        for (named, refusal) in [
            ("127.0.0.1", Refusal::NotReachable(ip("127.0.0.1"))),
            ("::ffff:127.0.0.2", Refusal::NotReachable(ip("127.0.0.2"))),
            ("::127.0.0.1", Refusal::NotReachable(ip("::127.0.0.1"))),
            ("::1", Refusal::NotReachable(ip("::1"))),
            ("0.0.0.0", Refusal::NotReachable(ip("0.0.0.0"))),
            ("169.254.169.254", Refusal::NotReachable(ip("169.254.169.254"))),
            ("fe80::1", Refusal::NotReachable(ip("fe80::1"))),
            ("224.0.0.1", Refusal::NotReachable(ip("224.0.0.1"))),
            ("255.255.255.255", Refusal::NotReachable(ip("255.255.255.255"))),
            ("172.17.0.1", Refusal::Ours(ip("172.17.0.1"))),
        ] {
            let locals = ["eth0 10.0.0.5/24", "docker0 172.17.0.1/16"];
            let found = found(&locals, &["192.0.2.7", named], &Asked::Auto);
            assert_eq!(found.refused, [refusal]);
            assert_eq!(ways(&found), ["docker0 172.17.0.1 192.0.2.7"]);
        }
    }

    #[test]
    fn a_peer_that_names_ten_thousand_addresses_gets_few_tries() {
        let remotes: Vec<String> =
            (0..10_000u32).map(|at| Ipv4Addr::from_bits(0xc633_0000 + 256 * at).to_string()).collect();
        let remotes: Vec<&str> = remotes.iter().map(String::as_str).collect();
        let found = found(&["eth0 10.0.0.5/24"], &remotes, &Asked::Auto);
        assert_eq!(found.ways.len(), usize::from(MAX_PATHS) - 1);
        assert_eq!(found.refused, [Refusal::TooMany(10_000)]);
    }

    fn any_ip() -> impl Strategy<Value = IpAddr> {
        let few = (0u32..8, 0u32..3).prop_map(|(net, host)| Ipv4Addr::from_bits(0x0a00_0001 + 256 * net + host).into());
        let odd = prop::sample::select(vec!["127.0.0.1", "::1", "fe80::1", "::ffff:10.0.1.1", "ff02::1", "0.0.0.0"]);
        prop_oneof![4 => few, 1 => odd.prop_map(ip), 1 => any::<IpAddr>()]
    }

    prop_compose! {
        fn any_local()(at in 0u8..10, address in any_ip(), prefix_len: u8, is_loopback in prop::bool::weighted(0.1)) -> LocalAddress {
            LocalAddress { interface: alloc::format!("eth{at}"), address, prefix_len, is_loopback }
        }
    }

    fn any_asked() -> impl Strategy<Value = Asked> {
        let path = prop_oneof![
            (0u8..10).prop_map(|at| AskedPath::Interface(alloc::format!("eth{at}"))),
            any_ip().prop_map(AskedPath::Local),
            (any_ip(), any_ip()).prop_map(|(local, remote)| AskedPath::Pair(local, remote)),
        ];
        prop_oneof![2 => Just(Asked::Auto), 1 => prop::collection::vec(path, 0..20).prop_map(Asked::List)]
    }

    proptest! {
        #[test]
        fn ways_are_few_different_and_lead_to_others(
            locals in prop::collection::vec(any_local(), 1..20),
            remotes in prop::collection::vec(any_ip(), 1..100),
            asked in any_asked(),
        ) {
            let primary = Way { interface: locals[0].interface.clone(), local: locals[0].address, remote: remotes[0] };
            let found = candidates(Surroundings { primary: &primary, locals: &locals, remotes: &remotes }, &asked, &|_, _| true);
            prop_assert!(found.ways.len() < usize::from(MAX_PATHS));
            prop_assert!(found.refused.len() <= MAX_CANDIDATES + 1 + 20);
            for (at, way) in found.ways.iter().enumerate() {
                prop_assert!(!found.ways[..at].contains(way) && *way != primary, "{way:?} twice");
                prop_assert!(is_same_family(way.local, way.remote));
                for address in [way.local, way.remote] {
                    prop_assert!(is_reachable(address) && !address.is_loopback() && !address.is_multicast());
                }
                let is_ours = |local: &&LocalAddress| local.address.to_canonical() == way.local && local.interface == way.interface;
                prop_assert!(locals.iter().any(|local| is_ours(&local) && !local.is_loopback));
            }
        }

        #[test]
        fn with_one_interface_and_one_remote_address_there_is_no_further_way(
            addresses in prop::collection::vec(any_local(), 1..5), remote in any_ip(), list: bool
        ) {
            let only = |local: LocalAddress| LocalAddress { interface: "eth0".to_string(), ..local };
            let locals: Vec<LocalAddress> = addresses.into_iter().map(only).collect();
            let primary = Way { interface: "eth0".to_string(), local: locals[0].address, remote };
            let asked = if list { Asked::List(vec![AskedPath::Interface("eth0".to_string())]) } else { Asked::Auto };
            let found = candidates(Surroundings { primary: &primary, locals: &locals, remotes: &[remote] }, &asked, &|_, _| true);
            prop_assert_eq!(found.ways, vec![]);
        }
    }
}
