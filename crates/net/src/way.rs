//! The way on which a connection leaves this host, if not by the kernel's routes.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::str::FromStr;

use haul_sys::interfaces::{Interface, interfaces};
use haul_sys::outgoing;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::{limits, mptcp};

/// How a connection leaves this host, by default over TCP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Way {
    /// The source address.
    pub local: Option<IpAddr>,
    /// Source ports, first and last; `None`: the kernel picks.
    pub ports: Option<(u16, u16)>,
    /// The device: routes through others do not count.
    pub device: Option<DeviceName>,
    /// The protocol that carries the bytes.
    pub protocol: Protocol,
    /// The largest segment (tcp(7), `TCP_MAXSEG`), where larger packets vanish.
    pub segment_max_bytes: Option<u16>,
}

/// The protocol that carries a connection's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// TCP: one path.
    #[default]
    Tcp,
    /// Multipath TCP (RFC 8684) where both ends and the network have it, else TCP.
    Mptcp,
}

/// The name of a network device, as the kernel allows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceName(String);

impl DeviceName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for DeviceName {
    type Err = BadDeviceName;

    /// The rules are those of `dev_valid_name` in Linux.
    fn from_str(text: &str) -> Result<DeviceName, BadDeviceName> {
        let is_bad = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
        if text.is_empty() || text.len() > NAME_BYTES_MAX || matches!(text, "." | "..") || text.contains(is_bad) {
            return Err(BadDeviceName);
        }
        Ok(DeviceName(text.to_owned()))
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text that no device can be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a network device has a name of 1 to {NAME_BYTES_MAX} characters, without spaces, '/' and ':'")]
pub struct BadDeviceName;

/// IFNAMSIZ without the zero at the end.
const NAME_BYTES_MAX: usize = 15;

impl Way {
    /// Whether source and target have one family.
    pub fn fits(&self, to: IpAddr) -> bool {
        let is_v4 = |ip: IpAddr| ip.to_canonical().is_ipv4();
        self.local.is_none_or(|local| is_v4(local) == is_v4(to))
    }

    /// The way of a connected socket, on the device of its binding, or its source address. MPTCP: the first path; see
    /// [`crate::mptcp::subflows`].
    pub fn of(socket: &TcpStream) -> io::Result<Way> {
        let local = socket.local_addr()?.ip().to_canonical();
        let bound = outgoing::bound_device(socket).ok().flatten();
        let device = match bound {
            Some(name) => Some(name),
            None => device_with(&interfaces()?, local).map(|interface| interface.name.clone()),
        };
        let is_mptcp = mptcp::is_in_use(socket) == Some(true);
        let protocol = if is_mptcp { Protocol::Mptcp } else { Protocol::Tcp };
        let device = device.and_then(|name| name.parse().ok());
        Ok(Way { local: Some(local), device, protocol, ..Way::default() })
    }

    pub(crate) fn source_ports(&self) -> impl Iterator<Item = u16> + use<> {
        let (first, last) = self.ports.unwrap_or((0, 0));
        (first..=last).take(limits::MAX_SOURCE_PORTS_TRIED)
    }

    pub(crate) fn socket(&self, to: SocketAddr, port: u16) -> Result<Socket, Refused> {
        let (domain, kind) = (Domain::for_address(to), Type::STREAM.nonblocking());
        let socket = match self.protocol {
            Protocol::Tcp => Socket::new(domain, kind, Some(socket2::Protocol::TCP)),
            Protocol::Mptcp => mptcp::socket_or_tcp(domain, kind),
        };
        let socket = socket.map_err(Refused::Socket)?;
        if let Some(bytes) = self.segment_max_bytes {
            // It is announced first. MPTCP lacks it.
            drop(socket.set_tcp_mss(bytes.into()));
        }
        if let Some(device) = &self.device {
            let refused = |cause| Refused::Device(device.clone(), cause);
            outgoing::bind_to_device(&socket, device.as_str()).map_err(refused)?;
        }
        if self.local.is_some() || port > 0 {
            if port > 0 {
                // Ports may be used again within a minute, towards other ports.
                socket.set_reuse_address(true).map_err(Refused::Socket)?;
            } else {
                // An older kernel takes a port at once: there are fewer.
                drop(outgoing::pick_port_when_connecting(&socket));
            }
            let any = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
            let local = self.local.unwrap_or(any);
            let from = match (local.to_canonical(), to.is_ipv4()) {
                (IpAddr::V4(local), false) => IpAddr::V6(local.to_ipv6_mapped()),
                (local, _) => local,
            };
            socket.bind(&SockAddr::from(SocketAddr::new(from, port))).map_err(|cause| match cause.kind() {
                io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied if port > 0 => Refused::Port(cause),
                _ => Refused::Source(local, cause),
            })?;
        }
        Ok(socket)
    }
}

pub(crate) enum Refused {
    Socket(io::Error),
    Device(DeviceName, io::Error),
    Source(IpAddr, io::Error),
    Port(io::Error),
}

fn device_with(interfaces: &[Interface], ip: IpAddr) -> Option<&Interface> {
    interfaces.iter().find(|interface| interface.addresses.iter().any(|address| address.ip == ip))
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = match self.protocol {
            Protocol::Tcp => "",
            Protocol::Mptcp => " over MPTCP",
        };
        match (&self.device, self.local) {
            (None, None) => write!(f, "by the kernel's routes{protocol}"),
            (Some(device), None) => write!(f, "by {device}{protocol}"),
            (None, Some(local)) => write!(f, "from {local}{protocol}"),
            (Some(device), Some(local)) => write!(f, "by {device} from {local}{protocol}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_devices_are_as_the_kernel_has_them() {
        for name in ["eth0", "enp0s31f6", "wlan0.7", "br-1a2b3c4d5e6f"] {
            assert_eq!(name.parse::<DeviceName>().unwrap().to_string(), name);
        }
        for name in ["", ".", "..", "a/b", "a b", "eth0:1", "sixteen-letters-", "a\n"] {
            assert!(name.parse::<DeviceName>().is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_source_address_leads_to_its_own_family_only() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let from = |text: &str| Way { local: Some(ip(text)), ..Way::default() };
        assert!(from("10.0.0.1").fits(ip("192.0.2.1")) && from("10.0.0.1").fits(ip("::ffff:192.0.2.1")));
        assert!(!from("10.0.0.1").fits(ip("2001:db8::1")) && !from("2001:db8::2").fits(ip("192.0.2.1")));
        assert!(Way::default().fits(ip("192.0.2.1")) && Way::default().fits(ip("2001:db8::1")));
    }

    #[test]
    fn a_way_is_written_for_people() {
        let way = |device: Option<&str>, local: Option<&str>, protocol| {
            let device = device.map(|name| name.parse().unwrap());
            Way { device, local: local.map(|ip| ip.parse().unwrap()), protocol, ..Way::default() }.to_string()
        };
        assert_eq!(way(None, None, Protocol::Tcp), "by the kernel's routes");
        assert_eq!(way(Some("eth1"), Some("10.0.1.5"), Protocol::Tcp), "by eth1 from 10.0.1.5");
        assert_eq!(way(None, Some("10.0.1.5"), Protocol::Mptcp), "from 10.0.1.5 over MPTCP");
    }
}
