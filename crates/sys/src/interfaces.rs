//! The network interfaces and their addresses, by rtnetlink(7).

use std::io;
use std::net::IpAddr;

use crate::netlink::{Message, Netlink, Subsystem, attribute, u32_at};

/// One interface, up or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The kernel's number.
    pub index: u32,
    /// The name of the interface.
    pub name: String,
    /// The operator has switched it on.
    pub up: bool,
    /// A cable or radio link, if needed, is connected (IFF_LOWER_UP).
    pub running: bool,
    /// The interface leads back to this host.
    pub loopback: bool,
    /// The interface has one peer, like a tunnel.
    pub point_to_point: bool,
    /// The largest packet.
    pub mtu_bytes: u32,
    /// The kind of a software device, such as `bridge`, `veth`, `tun`.
    pub kind: Option<String>,
    /// The addresses, in the kernel's order.
    pub addresses: Vec<InterfaceAddress>,
}

/// One address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The address.
    pub ip: IpAddr,
    /// The bits of its network.
    pub prefix_len: u8,
    /// Whether new connections may begin here: neither tentative, duplicate nor deprecated.
    pub settled: bool,
}

/// All interfaces of this host.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let mut found = Netlink::list(Subsystem::Route, libc::RTM_GETLINK, &[0; LINK_BYTES], interface)?;
    for (index, address) in Netlink::list(Subsystem::Route, libc::RTM_GETADDR, &[0; ADDRESS_BYTES], address)? {
        if let Some(interface) = found.iter_mut().find(|interface| interface.index == index) {
            interface.addresses.push(address);
        }
    }
    Ok(found)
}

/// `struct ifinfomsg`: family 0, type 2, index 4, flags 8.
fn interface(message: Message<'_>) -> Option<Interface> {
    if message.kind != libc::RTM_NEWLINK {
        return None;
    }
    let (index, flags) = (u32_at(message.body, 4)?, u32_at(message.body, 8)?);
    let fields = message.body.get(LINK_BYTES..)?;
    let has = |flag: libc::c_int| flags & flag.cast_unsigned() != 0;
    let about = attribute(fields, libc::IFLA_LINKINFO).unwrap_or_default();
    Some(Interface {
        index,
        name: text(attribute(fields, libc::IFLA_IFNAME)?)?,
        up: has(libc::IFF_UP),
        running: has(libc::IFF_RUNNING) && has(IFF_LOWER_UP),
        loopback: has(libc::IFF_LOOPBACK),
        point_to_point: has(libc::IFF_POINTOPOINT),
        mtu_bytes: u32_at(attribute(fields, libc::IFLA_MTU)?, 0)?,
        kind: attribute(about, IFLA_INFO_KIND).and_then(text),
        addresses: Vec::new(),
    })
}

/// `struct ifaddrmsg`: family 0, prefix length 1, flags 2, scope 3, index 4. Returns the index and the address.
fn address(message: Message<'_>) -> Option<(u32, InterfaceAddress)> {
    if message.kind != libc::RTM_NEWADDR {
        return None;
    }
    let (prefix_len, index) = (*message.body.get(1)?, u32_at(message.body, 4)?);
    let fields = message.body.get(ADDRESS_BYTES..)?;
    // If both are there, IFA_ADDRESS is the other end.
    let ip = ip(attribute(fields, IFA_LOCAL).or_else(|| attribute(fields, IFA_ADDRESS))?)?;
    let flags = match attribute(fields, IFA_FLAGS) {
        Some(flags) => u32_at(flags, 0)?,
        None => u32::from(*message.body.get(2)?),
    };
    Some((index, InterfaceAddress { ip, prefix_len, settled: flags & UNSETTLED == 0 }))
}

pub(crate) fn ip(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

fn text(bytes: &[u8]) -> Option<String> {
    let bytes = bytes.split(|byte| *byte == 0).next()?;
    std::str::from_utf8(bytes).ok().filter(|text| !text.is_empty()).map(str::to_owned)
}

const LINK_BYTES: usize = 16;
const ADDRESS_BYTES: usize = 8;

/// From `linux/if.h`, `if_link.h` and `if_addr.h`.
const IFF_LOWER_UP: libc::c_int = 1 << 16;
const IFLA_INFO_KIND: u16 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;
/// IFA_F_DADFAILED, IFA_F_DEPRECATED, IFA_F_TENTATIVE.
const UNSETTLED: u32 = 0x08 | 0x20 | 0x40;

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::own_network::in_own_network;

    #[test]
    fn the_loopback_interface_has_its_address() {
        let found = interfaces().unwrap();
        let loopback = found.iter().find(|interface| interface.loopback).unwrap();
        assert!(loopback.name == "lo" && loopback.index > 0 && loopback.mtu_bytes > 0, "{loopback:?}");
        assert!(loopback.addresses.iter().all(|address| address.ip.is_loopback() || loopback.up), "{loopback:?}");
    }

    #[test]
    fn interfaces_tell_name_mtu_addresses_and_whether_they_are_connected() {
        in_own_network(|ip| {
            ip("link add one type veth peer name two");
            ip("link set one mtu 1400 up");
            ip("addr add 10.1.2.3/24 dev one");
            ip("addr add 2001:db8::7/64 dev one nodad");
            let of = |name: &str| interfaces().unwrap().into_iter().find(|interface| interface.name == name).unwrap();
            let one = of("one");
            assert_eq!((one.up, one.running, one.loopback, one.mtu_bytes), (true, false, false, 1400), "{one:?}");
            assert_eq!(one.kind.as_deref(), Some("veth"));
            let listed: Vec<_> =
                one.addresses.iter().map(|address| (address.ip.to_string(), address.prefix_len)).collect();
            assert!(listed.contains(&("10.1.2.3".to_owned(), 24)), "{listed:?}");
            assert!(listed.contains(&("2001:db8::7".to_owned(), 64)), "{listed:?}");
            assert!(!of("two").up);
            ip("link set two up");
            let begun = Instant::now();
            while !(of("one").running && of("two").running) {
                assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", of("one"));
                std::thread::sleep(Duration::from_millis(10));
            }
            ip("addr add 10.9.0.1 peer 10.9.0.2/32 dev two");
            assert!(of("two").addresses.iter().any(|address| address.ip == IpAddr::from([10, 9, 0, 1])));
        });
    }

    #[test]
    fn an_address_that_is_on_its_way_out_is_not_settled() {
        in_own_network(|ip| {
            ip("link add one type veth peer name two");
            ip("link set one up");
            ip("addr add 2001:db8::1/64 dev one nodad preferred_lft 0");
            ip("addr add 2001:db8::2/64 dev one nodad");
            let found = interfaces().unwrap();
            let one = found.iter().find(|interface| interface.name == "one").unwrap();
            let settled =
                |text: &str| one.addresses.iter().find(|a| a.ip == text.parse::<IpAddr>().unwrap()).unwrap().settled;
            assert!(!settled("2001:db8::1") && settled("2001:db8::2"), "{one:?}");
        });
    }

    #[test]
    fn malformed_messages_are_no_interfaces() {
        for length in 0..64 {
            let body = vec![0xff; length];
            for kind in [libc::RTM_NEWLINK, libc::RTM_NEWADDR, 0] {
                let message = Message { kind, flags: 0, sequence: 0, body: &body };
                assert!(interface(message).is_none() && address(message).is_none());
            }
        }
    }
}
