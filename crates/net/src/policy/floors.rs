//! Floors of the retransmission timeout by address, for listeners: the kernel makes the first estimate before a program can.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use super::networks::{Fits, Networks};
use super::prefix::Prefix;

impl Networks {
    /// At most `most` networks with their classes' floors (`None`: the kernel's), the longest prefix first. A class by
    /// interface is that of the route there; a class by distance is not known yet.
    pub fn floors(&self, most: usize) -> Vec<(Prefix, Option<Duration>)> {
        let loopback = [(IpAddr::from(Ipv4Addr::new(127, 0, 0, 0)), 8), (Ipv6Addr::LOCALHOST.into(), 128)];
        let everybody = [(IpAddr::from(Ipv4Addr::UNSPECIFIED), 0), (Ipv6Addr::UNSPECIFIED.into(), 0)];
        let known = loopback.into_iter().chain(everybody).filter_map(|(ip, length)| Prefix::new(ip, length).ok());
        let mut prefixes: Vec<Prefix> = self.prefixes().into_iter().chain(known).collect();
        prefixes.sort_by_key(|prefix| (std::cmp::Reverse(prefix.length()), *prefix));
        prefixes.dedup();
        prefixes.truncate(most);
        let floor = |prefix: &Prefix| Some((*prefix, self.floor_of(one_of(*prefix, &prefixes)?)));
        prefixes.iter().filter_map(floor).collect()
    }

    fn floor_of(&self, ip: IpAddr) -> Option<Duration> {
        let found = self.find(&self.peer_at(ip));
        // By distance it may be near or far.
        if self.asks_for_distance() && found.classes().iter().any(|class| class.fits == Fits::Rest) {
            return None;
        }
        found.classes().iter().find_map(|found| found.class.policy.rto_min).map(|floor| floor.0)
    }
}

/// An address of the network outside these smaller ones.
fn one_of(prefix: Prefix, all: &[Prefix]) -> Option<IpAddr> {
    let inside = |inner: &&Prefix| inner.length() > prefix.length() && prefix.contains(inner.first());
    let smaller: Vec<&Prefix> = all.iter().filter(inside).collect();
    let behind = smaller.iter().filter_map(|inner| inner.next()).filter(|ip| prefix.contains(*ip));
    let mut candidates = std::iter::once(prefix.first()).chain(behind);
    candidates.find(|ip| smaller.iter().all(|inner| !inner.contains(*ip)))
}

#[cfg(test)]
mod tests {
    use super::super::{ClassList, NetworkClass, OwnNetworks, Policy, RtoMin};
    use super::*;

    fn list(classes: &[(&str, &[&str], Option<u64>)]) -> ClassList {
        let mut list = ClassList::default();
        for (name, networks, floor_ms) in classes {
            let policy = Policy { rto_min: floor_ms.map(|ms| RtoMin(Duration::from_millis(ms))), ..Policy::default() };
            let networks: Vec<Prefix> = networks.iter().map(|network| network.parse().unwrap()).collect();
            list.add(NetworkClass { name: (*name).into(), policy, ..NetworkClass::default() }, &networks, &[]).unwrap();
        }
        list
    }

    fn told(networks: &Networks) -> Vec<String> {
        let word = |floor: Option<Duration>| floor.map_or("-".to_owned(), |floor| floor.as_millis().to_string());
        networks.floors(100).into_iter().map(|(prefix, floor)| format!("{prefix} {}", word(floor))).collect()
    }

    #[test]
    fn each_network_has_the_floor_of_its_class_the_longest_prefix_first() {
        let classes: [(&str, &[&str], _); 3] = [
            ("a", &["10.0.0.0/8"], Some(100)),
            ("b", &["10.0.0.0/24", "2001:db8::/32"], Some(20)),
            ("c", &["10.9.0.0/16"], None),
        ];
        let networks = Networks::of(vec![list(&classes)], OwnNetworks::default());
        assert_eq!(
            told(&networks),
            [
                "::1/128 50",
                "2001:db8::/32 20",
                "10.0.0.0/24 20",
                "10.9.0.0/16 -",
                "10.0.0.0/8 100",
                "127.0.0.0/8 50",
                "0.0.0.0/0 -",
                "::/0 -"
            ]
        );
    }

    #[test]
    fn who_is_in_no_network_has_the_floor_of_the_rest_unless_the_distance_decides() {
        let rest = list(&[("rest", &[], Some(120))]);
        let networks = Networks::only(vec![rest.clone()]);
        assert!(told(&networks).contains(&"0.0.0.0/0 120".to_owned()));
        let networks = Networks::only(vec![rest, list(&[("near", &[], Some(20))])]);
        assert!(told(&networks).contains(&"0.0.0.0/0 -".to_owned()));
    }

    #[test]
    fn a_network_that_smaller_ones_fill_needs_no_row_of_its_own() {
        let halves = list(&[("a", &["10.0.0.0/8"], Some(100)), ("b", &["10.0.0.0/9", "10.128.0.0/9"], Some(20))]);
        let rows = told(&Networks::only(vec![halves]));
        assert!(
            rows.contains(&"10.128.0.0/9 20".to_owned()) && !rows.contains(&"10.0.0.0/8 100".to_owned()),
            "{rows:?}"
        );
    }
}
