//! Counts connections by network class and by address, and holds them to their rates.
//!
//! A connection counts once in all, on any port, and in each of its classes: a user's do not widen the operator's.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use haul_sys::{retransmission, tcp_info};

use super::networks::Found;
use super::observed::{self, ObservedClasses};

#[derive(Default)]
pub(super) struct Members {
    present: Mutex<Present>,
    observed: Mutex<ObservedClasses>,
    /// Connections with a second descriptor, to be read at their end.
    watched: AtomicUsize,
}

#[derive(Default)]
struct Present {
    most: Option<u32>,
    most_of_address: Option<u32>,
    all: u32,
    by_source: HashMap<IpAddr, u32>,
    /// Keyed by the list's number and the class.
    classes: HashMap<(usize, String), Count>,
}

#[derive(Default)]
struct Count {
    all: u32,
    by_source: HashMap<IpAddr, OfSource>,
    budget: Option<Weak<Budget>>,
    /// The last connection's facts, shared with equals.
    found: Found,
}

#[derive(Default)]
struct OfSource {
    connections: u32,
    budget: Option<Weak<Budget>>,
}

/// A class, or this host, has all its connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverLimit {
    /// The class; `None`: this host, on all ports.
    pub class: Option<String>,
    /// The connections at once.
    pub limit: u32,
    /// Whether it is the bound of one address.
    pub of_address: bool,
}

impl fmt::Display for OverLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = if self.of_address { "one address" } else { "all addresses" };
        match &self.class {
            Some(class) => write!(f, "network class {class} has at most {} connections of {whose} at once", self.limit),
            None => write!(f, "this host has at most {} connections of {whose} at once", self.limit),
        }
    }
}

/// One connection, counted until dropped.
pub struct Membership {
    members: Arc<Members>,
    source: IpAddr,
    found: Found,
    over: Option<Box<OverLimit>>,
    budgets: Vec<Arc<Budget>>,
    watched: Option<TcpStream>,
}

/// Beyond 1024, second descriptors would cost too much.
const MAX_WATCHED: usize = 1024;

impl Members {
    pub(super) fn enters(self: &Arc<Self>, found: Found, ip: IpAddr) -> Membership {
        let source = source_of(ip.to_canonical());
        let mut present = self.lock();
        let over = present.over_limit(&found, source).map(Box::new);
        let found = present.shared(found);
        let budgets = if over.is_none() { present.count(&found, source) } else { Vec::new() };
        drop(present);
        Membership { members: Arc::clone(self), source, found, over, budgets, watched: None }
    }

    pub(super) fn limit(&self, most: u32, most_of_address: u32) {
        let mut present = self.lock();
        (present.most, present.most_of_address) = (Some(most), Some(most_of_address));
    }

    pub(super) fn take_observed(&self) -> ObservedClasses {
        std::mem::take(&mut *self.observed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn lock(&self) -> MutexGuard<'_, Present> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Present {
    fn over_limit(&self, found: &Found, source: IpAddr) -> Option<OverLimit> {
        let of_source = self.by_source.get(&source).copied().unwrap_or(0);
        let host = [(self.most, self.all, false), (self.most_of_address, of_source, true)].map(|limit| (None, limit));
        let classes = found.classes().iter().flat_map(|found| {
            let (class, terms) = (&found.class.name, found.class.terms);
            let count = self.classes.get(&(found.list, class.clone()));
            let all = count.map_or(0, |count| count.all);
            let of_source = count.and_then(|count| count.by_source.get(&source)).map_or(0, |held| held.connections);
            let limits = [(terms.connections, all, false), (terms.connections_per_address, of_source, true)];
            limits.map(|limit| (Some(class), limit))
        });
        host.into_iter().chain(classes).find_map(|(class, (limit, now, of_address))| {
            let limit = limit.filter(|limit| now >= *limit)?;
            Some(OverLimit { class: class.cloned(), limit, of_address })
        })
    }

    fn shared(&mut self, found: Found) -> Found {
        let Some(first) = found.first() else { return found };
        let Some(count) = self.classes.get_mut(&(first.list, first.class.name.clone())) else { return found };
        let found = found.or_same(&count.found);
        count.found = found.clone();
        found
    }

    fn count(&mut self, found: &Found, source: IpAddr) -> Vec<Arc<Budget>> {
        self.all += 1;
        *self.by_source.entry(source).or_default() += 1;
        let mut budgets = Vec::new();
        for found in found.classes() {
            let terms = found.class.terms;
            let count = self.classes.entry((found.list, found.class.name.clone())).or_default();
            let of_source = count.by_source.entry(source).or_default();
            count.all += 1;
            of_source.connections += 1;
            budgets.extend(terms.rate_bytes_per_s.map(|rate| shared(&mut count.budget, rate)));
            budgets.extend(terms.rate_per_address_bytes_per_s.map(|rate| shared(&mut of_source.budget, rate)));
        }
        budgets
    }

    fn uncount(&mut self, found: &Found, source: IpAddr) {
        self.all = self.all.saturating_sub(1);
        if let Some(count) = self.by_source.get_mut(&source) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.by_source.remove(&source);
            }
        }
        for found in found.classes() {
            let key = (found.list, found.class.name.clone());
            let Some(count) = self.classes.get_mut(&key) else { continue };
            count.all = count.all.saturating_sub(1);
            if let Some(of_source) = count.by_source.get_mut(&source) {
                of_source.connections = of_source.connections.saturating_sub(1);
                if of_source.connections == 0 {
                    count.by_source.remove(&source);
                }
            }
            if count.all == 0 {
                self.classes.remove(&key);
            }
        }
    }
}

/// The shared budget; another rate replaces it for later connections.
fn shared(held: &mut Option<Weak<Budget>>, rate_bytes_per_s: u64) -> Arc<Budget> {
    let now = held.as_ref().and_then(Weak::upgrade).filter(|budget| budget.rate_bytes_per_s == rate_bytes_per_s);
    now.unwrap_or_else(|| {
        let budget = Arc::new(Budget { rate_bytes_per_s, spent_until: Mutex::new(None) });
        *held = Some(Arc::downgrade(&budget));
        budget
    })
}

impl Membership {
    /// The address that counts, or for IPv6 a household's network.
    pub fn source(&self) -> IpAddr {
        self.source
    }

    /// The classes that held when it came.
    pub fn class(&self) -> &Found {
        &self.found
    }

    /// Counts the kernel's view when dropped, for a caller that moves the socket; not of very many.
    pub fn watching(mut self, socket: &TcpStream) -> Membership {
        if self.members.watched.fetch_add(1, Ordering::Relaxed) < MAX_WATCHED {
            self.watched = socket.try_clone().ok();
        }
        if self.watched.is_none() {
            self.members.watched.fetch_sub(1, Ordering::Relaxed);
        }
        self
    }

    /// Why it is not let in.
    pub fn over_limit(&self) -> Option<&OverLimit> {
        self.over.as_deref()
    }

    /// Counts the kernel's figures, once, at the end.
    pub fn observe(&self, socket: impl AsFd) {
        // An older kernel's floor is 200 ms unless the route says otherwise.
        let floor = retransmission::rto_min(&socket).unwrap_or(KERNELS_FLOOR);
        let floor_us = u32::try_from(floor.as_micros()).ok();
        if let (Some(class), Ok(info)) = (self.found.name(), tcp_info::tcp_info(socket)) {
            let mut observed = self.members.observed.lock().unwrap_or_else(PoisonError::into_inner);
            observed::count(&mut observed, class, &info, floor_us);
        }
    }

    /// Whether one of its classes has a rate.
    pub fn has_rate(&self) -> bool {
        !self.budgets.is_empty()
    }

    /// Counts bytes, and returns how long to wait for the rates of its classes.
    pub fn charge(&self, bytes: u64, now: Instant) -> Duration {
        self.budgets.iter().map(|budget| budget.take(bytes, now)).max().unwrap_or_default()
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        if let Some(socket) = self.watched.take() {
            self.observe(&socket);
            self.members.watched.fetch_sub(1, Ordering::Relaxed);
        }
        if self.over.is_none() {
            self.members.lock().uncount(&self.found, self.source);
        }
    }
}

/// `TCP_RTO_MIN` of Linux.
const KERNELS_FLOOR: Duration = Duration::from_millis(200);

/// A rate that several connections share.
struct Budget {
    rate_bytes_per_s: u64,
    /// When all bytes so far are paid for.
    spent_until: Mutex<Option<Instant>>,
}

impl Budget {
    fn take(&self, bytes: u64, now: Instant) -> Duration {
        let costs = Duration::from_secs_f64(bytes as f64 / self.rate_bytes_per_s.max(1) as f64);
        let mut spent_until = self.spent_until.lock().unwrap_or_else(PoisonError::into_inner);
        let idle_since = now.checked_sub(BURST).unwrap_or(now);
        let begins = spent_until.map_or(idle_since, |spent_until| spent_until.max(idle_since));
        let ends = begins + costs;
        *spent_until = Some(ends);
        ends.saturating_duration_since(now)
    }
}

/// After a pause so much goes at once: a block of 256 KiB at 20 Mbit/s.
const BURST: Duration = Duration::from_millis(100);

/// The source that an address counts for: a household with 256 networks of 2^64 IPv6 addresses (RIPE-690) counts once.
pub(crate) fn source_of(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> 72 << 72)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ClassList, NetworkClass, Networks, OwnNetworks, Terms};
    use super::*;

    fn networks(terms: &[Terms]) -> Networks {
        let list = |terms: &Terms| {
            let mut list = ClassList::default();
            list.add(NetworkClass { name: "rest".into(), terms: *terms, ..NetworkClass::default() }, &[], &[]).unwrap();
            list
        };
        Networks::of(terms.iter().map(list).collect(), OwnNetworks::default())
    }

    fn enters(members: &Arc<Members>, networks: &Networks, ip: &str) -> Membership {
        let ip = ip.parse().unwrap();
        members.enters(networks.find(&networks.peer_at(ip)), ip)
    }

    #[test]
    fn connections_count_by_address_and_by_class_until_they_end() {
        let terms = Terms { connections: Some(3), connections_per_address: Some(2), ..Terms::default() };
        let (networks, members) = (networks(&[terms]), Arc::new(Members::default()));
        let first = enters(&members, &networks, "198.51.100.1");
        let _second = enters(&members, &networks, "198.51.100.1");
        let third = enters(&members, &networks, "198.51.100.1");
        assert_eq!(
            third.over_limit().unwrap().to_string(),
            "network class rest has at most 2 connections of one address at once"
        );
        let other = enters(&members, &networks, "2001:db8::1");
        assert_eq!(other.over_limit(), None);
        let full = enters(&members, &networks, "198.51.100.3");
        assert!(full.over_limit().is_some_and(|over| !over.of_address), "{:?}", full.over_limit());
        drop((first, third, full));
        assert_eq!(enters(&members, &networks, "198.51.100.3").over_limit(), None);
        drop(other);
        let house = [enters(&members, &networks, "2001:db8::2"), enters(&members, &networks, "2001:db8:0:1::2")];
        assert!(house.iter().all(|member| member.over_limit().is_none()));
        assert_eq!(
            house[0].class().classes().as_ptr(),
            house[1].class().classes().as_ptr(),
            "the same is known of both"
        );
        drop((_second, house));
        let present = members.lock();
        assert_eq!((present.classes.len(), present.by_source.len(), present.all), (0, 0, 0));
    }

    #[test]
    fn all_connections_of_the_host_are_counted_together() {
        let (classless, members) = (Networks::default(), Arc::new(Members::default()));
        members.limit(3, 2);
        let first = enters(&members, &classless, "198.51.100.1");
        let classes = networks(&[Terms::default()]);
        let _second = enters(&members, &classes, "198.51.100.1");
        let third = enters(&members, &classes, "198.51.100.1");
        assert_eq!(
            third.over_limit().unwrap().to_string(),
            "this host has at most 2 connections of one address at once"
        );
        let other = enters(&members, &classless, "198.51.100.2");
        assert_eq!(other.over_limit(), None);
        assert!(enters(&members, &classless, "198.51.100.3").over_limit().is_some_and(|over| !over.of_address));
        drop((first, third));
        assert_eq!(enters(&members, &classless, "198.51.100.3").over_limit(), None);
    }

    #[test]
    fn the_users_own_class_does_not_widen_the_operators() {
        let one = |connections| Terms { connections: Some(connections), ..Terms::default() };
        let (networks, members) = (networks(&[one(1), one(9)]), Arc::new(Members::default()));
        let _first = enters(&members, &networks, "198.51.100.1");
        assert_eq!(enters(&members, &networks, "198.51.100.2").over_limit().map(|over| over.limit), Some(1));
    }

    #[test]
    fn all_connections_of_a_class_share_its_rate_and_each_address_its_own() {
        let terms = Terms {
            rate_bytes_per_s: Some(1_000_000),
            rate_per_address_bytes_per_s: Some(500_000),
            ..Terms::default()
        };
        let (networks, members) = (networks(&[terms]), Arc::new(Members::default()));
        let [one, same, other] =
            ["198.51.100.1", "198.51.100.1", "198.51.100.2"].map(|ip| enters(&members, &networks, ip));
        let now = Instant::now();
        let ms = |member: &Membership, bytes| member.charge(bytes, now).as_millis();
        assert_eq!(ms(&one, 50_000), 0, "a burst");
        assert_eq!(ms(&same, 100_000), 200, "the address: 0.15 MB at 0.5 MB/s less the burst of 100 ms");
        assert_eq!(ms(&other, 250_000), 400, "its own address: 0.25 MB at 0.5 MB/s");
        assert_eq!(ms(&other, 0), 400, "the class: 0.4 MB at 1 MB/s would be 300 ms");
        assert_eq!(one.charge(0, now + Duration::from_secs(9)), Duration::ZERO);
    }
}
