//! The limits and endpoints of the kernel's MPTCP path manager (ip-mptcp(8)).

use std::io;
use std::net::IpAddr;

use crate::interfaces::ip;
use crate::netlink::{ACKNOWLEDGE, DUMP, Message, Netlink, Subsystem, attribute, push_attribute, u16_at, u32_at};

/// The limits on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Subflows besides the first.
    pub subflows: u32,
    /// Announced addresses of a peer that are dialled.
    pub accepted_addresses: u32,
}

/// An address of this host that connections may add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The address.
    pub ip: IpAddr,
    /// The number of its device, if given.
    pub device: Option<u32>,
    /// Connections that this host dials join from there.
    pub subflow: bool,
    /// Peers are told of the address.
    pub signal: bool,
}

/// The limits in this thread's network, or `Unsupported`.
pub fn limits() -> io::Result<Limits> {
    let (netlink, family) = path_manager()?;
    let mut limits = Limits::default();
    netlink.ask(family, ACKNOWLEDGE, &command(GET_LIMITS), |answer| {
        let fields = answer.body.get(GENERIC_BYTES..).unwrap_or_default();
        let number = |kind| attribute(fields, kind).and_then(|value| u32_at(value, 0)).unwrap_or_default();
        limits = Limits { subflows: number(SUBFLOWS), accepted_addresses: number(RECEIVED_ADDRESSES) };
    })?;
    Ok(limits)
}

/// The endpoints, told only to administrators of the network.
pub fn endpoints() -> io::Result<Vec<Endpoint>> {
    let (netlink, family) = path_manager()?;
    let mut found = Vec::new();
    netlink.ask(family, DUMP, &command(GET_ADDRESSES), |answer| found.extend(endpoint(answer)))?;
    Ok(found)
}

fn endpoint(answer: Message<'_>) -> Option<Endpoint> {
    let fields = attribute(answer.body.get(GENERIC_BYTES..)?, ADDRESS)?;
    let flags = attribute(fields, FLAGS).and_then(|flags| u32_at(flags, 0)).unwrap_or_default();
    let device = attribute(fields, DEVICE).and_then(|device| u32_at(device, 0));
    Some(Endpoint {
        ip: ip(attribute(fields, ADDRESS_V4).or_else(|| attribute(fields, ADDRESS_V6))?)?,
        device: device.filter(|device| *device != 0),
        subflow: flags & IS_SUBFLOW != 0,
        signal: flags & IS_SIGNAL != 0,
    })
}

fn path_manager() -> io::Result<(Netlink, u16)> {
    let netlink = Netlink::open(Subsystem::Generic, 0)?;
    let mut question = command(GET_FAMILY);
    push_attribute(&mut question, FAMILY_NAME, b"mptcp_pm\0");
    let mut family = None;
    let asked = netlink.ask(CONTROL, ACKNOWLEDGE, &question, |answer| {
        let fields = answer.body.get(GENERIC_BYTES..).unwrap_or_default();
        family = attribute(fields, FAMILY_ID).and_then(|id| u16_at(id, 0));
    });
    match (asked, family) {
        (Ok(()), Some(family)) => Ok((netlink, family)),
        (Err(error), _) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Err(io::Error::new(io::ErrorKind::Unsupported, "this kernel has no MPTCP")),
    }
}

/// `struct genlmsghdr`: the command, and the version, 1 for both families.
fn command(command: u8) -> Vec<u8> {
    vec![command, 1, 0, 0]
}

const GENERIC_BYTES: usize = 4;

/// From `linux/genetlink.h`.
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// From `linux/mptcp_pm.h`.
const GET_ADDRESSES: u8 = 3;
const GET_LIMITS: u8 = 6;
const ADDRESS: u16 = 1;
const RECEIVED_ADDRESSES: u16 = 2;
const SUBFLOWS: u16 = 3;
const ADDRESS_V4: u16 = 3;
const ADDRESS_V6: u16 = 4;
const FLAGS: u16 = 6;
const DEVICE: u16 = 7;
const IS_SIGNAL: u32 = 1;
const IS_SUBFLOW: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::unmet;
    use crate::own_network::in_own_network;

    #[test]
    fn limits_and_endpoints_are_told_as_they_were_set() {
        in_own_network(|call_ip| {
            if let Err(error) = limits() {
                return unmet(error);
            }
            assert_eq!(endpoints().unwrap(), []);
            call_ip("mptcp limits set subflows 5 add_addr_accepted 3");
            assert_eq!(limits().unwrap(), Limits { subflows: 5, accepted_addresses: 3 });
            call_ip("mptcp endpoint add 127.0.0.7 dev lo subflow");
            call_ip("mptcp endpoint add 2001:db8::1 signal");
            let told = endpoints().unwrap();
            let of = |ip: &str, device, subflow, signal| Endpoint { ip: ip.parse().unwrap(), device, subflow, signal };
            assert_eq!(told, [of("127.0.0.7", Some(1), true, false), of("2001:db8::1", None, false, true)]);
        });
    }

    #[test]
    fn malformed_answers_are_no_endpoint() {
        for length in 0..32 {
            let body = vec![1; length];
            assert_eq!(endpoint(Message { kind: 0, flags: 0, sequence: 1, body: &body }), None);
        }
    }
}
