//! Networks by address: a prefix, and a table in which the longest prefix wins.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::limits;

/// A network: `10.0.0.0/8`, `2001:db8::/32`, or one address. Mapped IPv4 (`::ffff:10.0.0.0/104`) is IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    network: IpAddr,
    length: u8,
}

/// A text or numbers that name no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPrefix {
    /// An unreadable address.
    #[error("'{0}' is not an IP address with the length of a prefix, such as 10.0.0.0/8")]
    Text(String),
    /// The prefix is longer than an address.
    #[error("a prefix of {address} has at most {max} bits")]
    Length {
        /// The address.
        address: IpAddr,
        /// The most bits.
        max: u8,
    },
    /// The address has bits behind the prefix: a slip, or a host.
    #[error("{given} has bits behind its prefix; the network is {meant}")]
    HostBits {
        /// The given text.
        given: String,
        /// The network without those bits.
        meant: Prefix,
    },
}

impl Prefix {
    /// The network of this address and length.
    pub fn new(address: IpAddr, length: u8) -> Result<Prefix, BadPrefix> {
        let max = bits_of(address);
        if length > max {
            return Err(BadPrefix::Length { address, max });
        }
        let (network, length) = match (address, address.to_canonical()) {
            // Shorter prefixes reach beyond IPv4.
            (IpAddr::V6(_), canonical @ IpAddr::V4(_)) if length >= MAPPED_BITS => (canonical, length - MAPPED_BITS),
            _ => (address, length),
        };
        let meant = Prefix { network: masked(network, length), length };
        match meant.network == network {
            true => Ok(meant),
            false => Err(BadPrefix::HostBits { given: format!("{address}/{length}"), meant }),
        }
    }

    /// The network of this length around an address, unless one address or everything.
    pub fn around(address: IpAddr, length: u8) -> Option<Prefix> {
        let is_network = length > 0 && length < bits_of(address);
        is_network.then(|| Prefix::new(masked(address, length), length).ok()).flatten()
    }

    /// Whether the address lies in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.network.is_ipv4() && masked(address, self.length) == self.network
    }

    /// The first address.
    pub fn first(&self) -> IpAddr {
        self.network
    }

    pub(super) fn next(&self) -> Option<IpAddr> {
        match self.network {
            IpAddr::V4(ip) => {
                let size = 1u32.checked_shl(32 - u32::from(self.length))?;
                ip.to_bits().checked_add(size).map(|bits| Ipv4Addr::from_bits(bits).into())
            }
            IpAddr::V6(ip) => {
                let size = 1u128.checked_shl(128 - u32::from(self.length))?;
                ip.to_bits().checked_add(size).map(|bits| Ipv6Addr::from_bits(bits).into())
            }
        }
    }

    /// The bits that all its addresses share.
    pub fn length(&self) -> u8 {
        self.length
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.length)
    }
}

impl FromStr for Prefix {
    type Err = BadPrefix;

    fn from_str(text: &str) -> Result<Prefix, BadPrefix> {
        let bad = || BadPrefix::Text(text.to_owned());
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let length = match length {
            // "08" and "+8" are slips.
            Some(length) if length == "0" || length.starts_with(|first| ('1'..='9').contains(&first)) => {
                length.parse().map_err(|_| bad())?
            }
            Some(_) => return Err(bad()),
            None => bits_of(address),
        };
        Prefix::new(address, length)
    }
}

/// Mapped IPv4 begins with `::ffff`, 96 bits.
const MAPPED_BITS: u8 = 96;

fn bits_of(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn masked(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            Ipv4Addr::from_bits(ip.to_bits() & mask).into()
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            Ipv6Addr::from_bits(ip.to_bits() & mask).into()
        }
    }
}

/// A table by network. The longest prefix wins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixTable<T> {
    rows: HashMap<Prefix, T>,
    /// The rows of this family (true: IPv4) and length, to be tried in turn.
    lengths: BTreeMap<(bool, u8), usize>,
}

/// Why a row was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRow {
    /// The network has a row.
    #[error("{0} stands in the table twice")]
    Twice(Prefix),
    /// See [`limits::MAX_PREFIXES`].
    #[error("the table has more than {} networks", limits::MAX_PREFIXES)]
    Full,
}

impl<T> Default for PrefixTable<T> {
    fn default() -> Self {
        PrefixTable { rows: HashMap::new(), lengths: BTreeMap::new() }
    }
}

impl<T> PrefixTable<T> {
    /// Adds a row.
    pub fn insert(&mut self, prefix: Prefix, row: T) -> Result<(), BadRow> {
        if self.rows.contains_key(&prefix) {
            return Err(BadRow::Twice(prefix));
        }
        if self.rows.len() >= limits::MAX_PREFIXES {
            return Err(BadRow::Full);
        }
        self.rows.insert(prefix, row);
        *self.lengths.entry((prefix.network.is_ipv4(), prefix.length)).or_default() += 1;
        Ok(())
    }

    /// The row of the smallest network around the address.
    pub fn find(&self, address: IpAddr) -> Option<(Prefix, &T)> {
        let address = address.to_canonical();
        let lengths = self.lengths.range((address.is_ipv4(), 0)..=(address.is_ipv4(), u8::MAX)).rev();
        lengths.into_iter().find_map(|(&(_, length), _)| {
            let prefix = Prefix { network: masked(address, length), length };
            self.rows.get(&prefix).map(|row| (prefix, row))
        })
    }

    /// All rows, in no order.
    pub fn rows(&self) -> impl Iterator<Item = (Prefix, &T)> {
        self.rows.iter().map(|(prefix, row)| (*prefix, row))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn networks_are_read_and_written() {
        for (text, written) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("192.0.2.7", "192.0.2.7/32"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("2001:DB8::1", "2001:db8::1/128"),
            ("::/0", "::/0"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:0:0/96", "0.0.0.0/0"),
            ("::ffff:192.0.2.7", "192.0.2.7/32"),
        ] {
            assert_eq!(prefix(text).to_string(), written);
        }
        for text in [
            "",
            "/8",
            "10.0.0.0/",
            "10.0.0.0/-1",
            "10.0.0.0/+8",
            "10.0.0.0/08",
            "10.0.0/8",
            "a.example/8",
            "10.0.0.0/8/8",
        ] {
            assert_eq!(text.parse::<Prefix>(), Err(BadPrefix::Text(text.to_owned())));
        }
        let why = |text: &str| text.parse::<Prefix>().unwrap_err().to_string();
        assert_eq!(why("10.0.0.0/33"), "a prefix of 10.0.0.0 has at most 32 bits");
        assert_eq!(why("::/129"), "a prefix of :: has at most 128 bits");
        assert_eq!(why("10.1.2.3/8"), "10.1.2.3/8 has bits behind its prefix; the network is 10.0.0.0/8");
        // Mapped IPv4 lies in `::/64`, and counts as IPv4 only.
        assert!(!prefix("::/64").contains("10.0.0.1".parse().unwrap()));
    }

    #[test]
    fn ipv4_in_the_form_of_ipv6_is_ipv4() {
        let mapped: IpAddr = "::ffff:10.1.2.3".parse().unwrap();
        assert!(prefix("10.0.0.0/8").contains(mapped) && !prefix("::/0").contains(mapped));
        let mut table = PrefixTable::default();
        table.insert(prefix("10.0.0.0/8"), "ten").unwrap();
        assert_eq!(table.find(mapped), Some((prefix("10.0.0.0/8"), &"ten")));
        assert_eq!(table.insert(prefix("::ffff:10.0.0.0/104"), "again"), Err(BadRow::Twice(prefix("10.0.0.0/8"))));
    }

    #[test]
    fn a_table_has_an_end() {
        let mut table = PrefixTable::default();
        for at in 0..limits::MAX_PREFIXES {
            let address = IpAddr::from(Ipv4Addr::from_bits(at as u32));
            table.insert(Prefix::new(address, 32).unwrap(), at).unwrap();
        }
        assert_eq!(table.insert(prefix("::/0"), 0), Err(BadRow::Full));
    }

    fn address() -> impl Strategy<Value = IpAddr> {
        let v4 = (0..4u32, 0..4u32).prop_map(|(high, low)| IpAddr::from(Ipv4Addr::from_bits(high << 30 | low)));
        let v6 = (0..4u128, 0..4u128).prop_map(|(high, low)| IpAddr::from(Ipv6Addr::from_bits(high << 126 | low)));
        let mapped = (0..4u32).prop_map(|low| IpAddr::from(Ipv4Addr::from_bits(low).to_ipv6_mapped()));
        prop_oneof![v4, v6, mapped, any::<IpAddr>()]
    }

    fn around(address: IpAddr, length: u8) -> Prefix {
        let address = address.to_canonical();
        let length = length.min(bits_of(address));
        Prefix::new(masked(address, length), length).unwrap()
    }

    proptest! {
        #[test]
        fn the_longest_prefix_wins_as_in_a_naive_search(
            networks in prop::collection::vec((address(), prop_oneof![0..=4u8, 28..=32u8, 124..=128u8]), 0..40),
            sought in address(),
        ) {
            let mut table = PrefixTable::default();
            let mut rows: Vec<(Prefix, usize)> = Vec::new();
            for (at, (address, length)) in networks.into_iter().enumerate() {
                let prefix = around(address, length);
                let is_new = rows.iter().all(|(other, _)| *other != prefix);
                prop_assert_eq!(table.insert(prefix, at).is_ok(), is_new);
                if is_new {
                    rows.push((prefix, at));
                }
            }
            let containing = rows.iter().filter(|(prefix, _)| prefix.contains(sought));
            let naive = containing.max_by_key(|(prefix, _)| prefix.length());
            prop_assert_eq!(table.find(sought), naive.map(|(prefix, at)| (*prefix, at)));
        }

        #[test]
        fn a_network_survives_its_text_and_contains_what_shares_its_bits(
            address in address(), length in 0..=128u8, other in address(),
        ) {
            let prefix = around(address, length);
            prop_assert_eq!(prefix.to_string().parse(), Ok(prefix));
            prop_assert!(prefix.contains(address));
            let bits = |ip: IpAddr| match ip.to_canonical() {
                IpAddr::V4(ip) => (0..32).map(|at| ip.to_bits() << at >> 31 == 1).collect::<Vec<bool>>(),
                IpAddr::V6(ip) => (0..128).map(|at| ip.to_bits() << at >> 127 == 1).collect(),
            };
            let (ours, theirs, length) = (bits(address), bits(other), usize::from(prefix.length()));
            let shares = ours.len() == theirs.len() && ours[..length] == theirs[..length];
            prop_assert_eq!(prefix.contains(other), shares);
        }

        #[test]
        fn no_text_is_read_as_another_network(text in "[0-9a-f:./+ -]{0,24}") {
            if let Ok(prefix) = text.parse::<Prefix>() {
                prop_assert_eq!(prefix.to_string().parse(), Ok(prefix));
            }
        }
    }
}
