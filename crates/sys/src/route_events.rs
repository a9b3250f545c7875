//! Reports changes of this host's network: a link, an address, a route (rtnetlink(7)).

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use crate::netlink::{Netlink, PACKET_BYTES, Received, Subsystem, messages};
use crate::poll::{self, Interest};

/// A subscription to changes of this thread's network, readable at one.
#[derive(Debug)]
pub struct RouteEvents(Netlink);

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The network has changed, once or more.
    Changed,
    /// The time is over.
    TimedOut,
    /// The other descriptor is readable.
    Cancelled,
}

impl RouteEvents {
    /// Receives every change from now on. Needs no rights.
    pub fn subscribe() -> io::Result<RouteEvents> {
        Netlink::open(Subsystem::Route, GROUPS).map(RouteEvents)
    }

    /// Waits for a change, the end of `timeout`, or a readable `cancel`.
    pub fn wait(&self, timeout: Option<Duration>, cancel: Option<BorrowedFd<'_>>) -> io::Result<Woken> {
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut buffer = vec![0; PACKET_BYTES];
        loop {
            let mut watched = vec![(self.as_fd(), Interest::Read)];
            watched.extend(cancel.map(|cancel| (cancel, Interest::Read)));
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let ready = poll::wait(&watched, left)?;
            if ready.get(1) == Some(&true) {
                return Ok(Woken::Cancelled);
            }
            if ready[0] && self.take(&mut buffer)? {
                return Ok(Woken::Changed);
            }
            if end.is_some_and(|end| Instant::now() >= end) {
                return Ok(Woken::TimedOut);
            }
        }
    }

    fn take(&self, buffer: &mut [u8]) -> io::Result<bool> {
        let mut changed = false;
        for _ in 0..MAX_PACKETS {
            match self.0.receive(buffer)? {
                Received::Packet(packet) => changed |= tells_a_change(packet),
                Received::Nothing => break,
                Received::Overrun => changed = true,
            }
        }
        Ok(changed)
    }
}

impl AsFd for RouteEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn tells_a_change(packet: &[u8]) -> bool {
    messages(packet).any(|message| KINDS.contains(&message.kind))
}

/// RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV4_ROUTE, RTMGRP_IPV6_IFADDR, RTMGRP_IPV6_ROUTE of rtnetlink(7). IPv6's rules
/// mostly change with a route.
const GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x100 | 0x400;

const KINDS: [u16; 6] = [
    libc::RTM_NEWLINK,
    libc::RTM_DELLINK,
    libc::RTM_NEWADDR,
    libc::RTM_DELADDR,
    libc::RTM_NEWROUTE,
    libc::RTM_DELROUTE,
];

/// The packets of one wait. The rest of a flood comes with the next.
const MAX_PACKETS: u32 = 1_024;

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::own_network::in_own_network;

    /// A change is reported within a system call; no busy host takes 20 s.
    const SOON: Option<Duration> = Some(Duration::from_secs(20));
    const NOW: Option<Duration> = Some(Duration::ZERO);

    #[test]
    fn links_addresses_and_routes_that_come_and_go_are_told() {
        in_own_network(|ip| {
            ip("link add one type veth peer name two");
            ip("link set two up");
            let events = RouteEvents::subscribe().unwrap();
            assert_eq!(events.wait(NOW, None).unwrap(), Woken::TimedOut, "what was before is not told");
            for change in [
                "link set one up",
                "addr add 10.1.0.1/24 dev one",
                "route add 10.2.0.0/16 dev one",
                "route del 10.2.0.0/16 dev one",
                "addr del 10.1.0.1/24 dev one",
                "addr add 2001:db8::1/64 dev one nodad",
                "link set one down",
                "link del one",
            ] {
                ip(change);
                assert_eq!(events.wait(SOON, None).unwrap(), Woken::Changed, "{change}");
                while events.wait(Some(Duration::from_millis(50)), None).unwrap() == Woken::Changed {}
            }
        });
    }

    #[test]
    fn more_changes_than_the_socket_holds_are_a_change() {
        in_own_network(|ip| {
            ip("link add one type veth peer name two");
            let events = RouteEvents::subscribe().unwrap();
            // The kernel grants its minimum: two packets.
            crate::socket::set_receive_buffer_bytes(&events, 0).unwrap();
            for _ in 0..50 {
                ip("link set one up");
                ip("link set one down");
            }
            assert!(matches!(events.0.receive(&mut [0; PACKET_BYTES]).unwrap(), Received::Overrun));
            for _ in 0..50 {
                ip("link set one up");
                ip("link set one down");
            }
            assert_eq!(events.wait(SOON, None).unwrap(), Woken::Changed);
            while events.wait(Some(Duration::from_millis(50)), None).unwrap() == Woken::Changed {}
            ip("link del one");
            assert_eq!(events.wait(SOON, None).unwrap(), Woken::Changed, "it goes on afterwards");
        });
    }

    #[test]
    fn a_wait_that_is_not_wanted_any_more_ends_at_once() {
        let events = RouteEvents::subscribe().unwrap();
        let (watched, end) = UnixStream::pair().unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                // The host may change its network meanwhile.
                while events.wait(None, Some(watched.as_fd())).unwrap() == Woken::Changed {}
            });
            drop(end);
            waits.join().unwrap();
        });
        assert_eq!(events.wait(None, Some(watched.as_fd())).unwrap(), Woken::Cancelled);
    }

    #[test]
    fn malformed_packets_and_messages_of_no_interest_are_no_change() {
        assert!(!tells_a_change(&[]));
        for byte in [0, 1, 16, 0xff] {
            for length in 0..64 {
                assert!(!tells_a_change(&vec![byte; length]), "{length} x {byte}");
            }
        }
        let mut link = vec![0; 16];
        link[0] = 16;
        link[4] = libc::RTM_NEWLINK as u8;
        assert!(tells_a_change(&link));
        link[4] = 28;
        assert!(!tells_a_change(&link), "a neighbour");
    }
}
