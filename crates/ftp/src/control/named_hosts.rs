//! Which addresses that one server names may be used: as the place where another server sends its data, or as a data node of its own.
//!
//! Data connections show no login, so a server could have anybody connect anywhere (FTP bounce, RFC 2577). An address is used only where it
//! means the same host to both sides, and at a port that is none of a well-known service.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};

/// The address, if data may go there: it was named by one end, or is known of it, and `other` is the host of the other end.
///
/// # Errors
/// [`ErrorKind::Unsupported`]: no data may go there.
pub(crate) fn named(address: SocketAddr, other: IpAddr) -> io::Result<SocketAddr> {
    let refused = |why| Err(io::Error::new(ErrorKind::Unsupported, why));
    if !means_the_same(address.ip(), other) {
        return refused(format!("the address {} of the one end may be another host to {other}", address.ip()));
    }
    if address.port() < FIRST_FREE_PORT {
        return refused(format!("port {} at {} is that of another service", address.port(), address.ip()));
    }
    Ok(address)
}

/// Below it are ports of services that nobody must be made to speak to (RFC 2577).
const FIRST_FREE_PORT: u16 = 1024;

/// Whether an address that is known here means the same host to a server at another one.
fn means_the_same(address: IpAddr, to: IpAddr) -> bool {
    let is_known_to = match scope(address) {
        None => false,
        Some(Scope::Host) => to.is_loopback(),
        Some(Scope::Link) => address == to || to.is_loopback(),
        Some(Scope::Site) => scope(to).is_some_and(|scope| scope != Scope::World),
        Some(Scope::World) => true,
    };
    is_known_to && address.is_ipv4() == to.is_ipv4()
}

/// How far an address means the same host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Host,
    Link,
    Site,
    World,
}

/// `None`: no host has it.
fn scope(address: IpAddr) -> Option<Scope> {
    let (is_link, is_site, is_broadcast) = match address {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.is_private(), v4.is_broadcast()),
        IpAddr::V6(v6) => (v6.is_unicast_link_local(), v6.is_unique_local(), false),
    };
    match address {
        _ if address.is_unspecified() || address.is_multicast() || is_broadcast => None,
        _ if address.is_loopback() => Some(Scope::Host),
        _ if is_link => Some(Scope::Link),
        _ if is_site => Some(Scope::Site),
        _ => Some(Scope::World),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_told_of_no_host_that_it_may_take_for_another_one() {
        let means = |address: &str, to: &str| means_the_same(address.parse().unwrap(), to.parse().unwrap());
        for (address, to) in [
            ("192.0.2.1", "198.51.100.7"),
            ("192.0.2.1", "10.0.0.1"),
            ("10.0.0.1", "10.0.0.2"),
            ("10.0.0.1", "127.0.0.1"),
            ("127.0.0.1", "127.0.0.1"),
            ("127.0.0.1", "127.0.0.2"),
            ("2001:db8::1", "2001:db8::2"),
        ] {
            assert!(means(address, to), "{address} to {to}");
        }
        for (address, to) in [
            ("127.0.0.1", "192.0.2.1"),
            ("127.0.0.1", "10.0.0.1"),
            ("10.0.0.1", "192.0.2.1"),
            ("169.254.1.1", "10.0.0.1"),
            ("169.254.1.1", "169.254.1.2"),
            ("224.0.0.1", "192.0.2.1"),
            ("0.0.0.0", "127.0.0.1"),
            ("::1", "2001:db8::1"),
            ("fe80::1", "fe80::2"),
            ("192.0.2.1", "2001:db8::1"),
        ] {
            assert!(!means(address, to), "{address} to {to}");
        }
    }

    #[test]
    fn a_port_of_a_well_known_service_is_refused() {
        let named = |port| named(SocketAddr::from(([192, 0, 2, 1], port)), IpAddr::from([192, 0, 2, 2]));
        assert!(named(1024).is_ok());
        let why = named(25).unwrap_err();
        assert_eq!(why.kind(), ErrorKind::Unsupported);
        assert!(why.to_string().contains("port 25"), "{why}");
    }
}
