//! A listening port, over MPTCP if possible, which takes TCP, too.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

use haul_sys::reuseport;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::dial::Family;
use crate::error::NetError;
use crate::limits;
use crate::mptcp;
use crate::policy;

/// A TCP port that is listened on.
#[derive(Debug)]
pub struct Listener {
    pub(crate) socket: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Listens on all addresses: IPv6 and IPv4, or IPv4 alone without IPv6. Takes the first free port of the inclusive
    /// range, or any.
    pub fn bind(port_range: Option<(u16, u16)>, family: Option<Family>) -> Result<Listener, NetError> {
        let (first, last) = port_range.unwrap_or((0, 0));
        let mut cause = io::Error::new(io::ErrorKind::InvalidInput, "the range is empty");
        for port in first..=last {
            match bind_port(port, family) {
                Ok(listener) => return Ok(listener),
                Err(error) => cause = error,
            }
        }
        let what = match port_range {
            None => "any port".to_owned(),
            Some((first, last)) if first == last => format!("port {first}"),
            Some((first, last)) => format!("a port from {first} to {last}"),
        };
        Err(NetError::Bind { what, cause })
    }

    /// Listens on one address; `[::]` includes IPv4, port 0 is any.
    pub fn bind_to(address: SocketAddr) -> Result<Listener, NetError> {
        listen_on(address, is_v6_only(address)).map_err(|cause| NetError::Bind { what: address.to_string(), cause })
    }

    /// Takes a socket on which another program, such as systemd, listens.
    pub fn of_socket(socket: TcpListener) -> Result<Listener, NetError> {
        let failed = |cause| NetError::Bind { what: "the socket that was handed over".into(), cause };
        let address = socket.local_addr().map_err(failed)?;
        if !haul_sys::socket::is_listening(&socket).map_err(failed)? {
            return Err(failed(io::Error::other("nobody listens on it")));
        }
        socket.set_nonblocking(false).map_err(failed)?;
        policy::prepare(&socket);
        Ok(Listener { socket, address })
    }

    /// [`Listener::bind_to`] for a free port to be shared in this process.
    pub(crate) fn bind_to_shared(address: SocketAddr, v6_only: bool) -> Result<Listener, NetError> {
        let bound = bind(address, v6_only).and_then(|socket| {
            reuseport::share(&socket)?;
            listen(socket)
        });
        bound.map_err(|cause| NetError::Bind { what: address.to_string(), cause })
    }

    pub(crate) fn of(socket: TcpListener) -> io::Result<Listener> {
        let address = socket.local_addr()?;
        Ok(Listener { socket, address })
    }

    /// The non-blocking socket.
    pub fn into_socket(self) -> Result<TcpListener, NetError> {
        self.socket
            .set_nonblocking(true)
            .map_err(|cause| NetError::Io { what: "cannot start to accept connections", cause })?;
        Ok(self.socket)
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The address; all zeros: all of them.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

fn bind_port(port: u16, family: Option<Family>) -> io::Result<Listener> {
    let v4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    let v6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    match family {
        Some(Family::V4) => listen_on(v4, true),
        Some(Family::V6) => listen_on(v6, true),
        None => match listen_on(v6, false) {
            // IPv4 alone would hide that another program has the port.
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => listen_on(v4, true),
            outcome => outcome,
        },
    }
}

/// All addresses of IPv6 include those of IPv4.
pub(crate) fn is_v6_only(address: SocketAddr) -> bool {
    !address.ip().is_unspecified()
}

fn listen_on(address: SocketAddr, v6_only: bool) -> io::Result<Listener> {
    listen(bind(address, v6_only)?)
}

fn bind(address: SocketAddr, v6_only: bool) -> io::Result<Socket> {
    // A plain TCP caller gets a plain TCP socket in any case.
    let socket = mptcp::socket_or_tcp(Domain::for_address(address), Type::STREAM)?;
    if address.is_ipv6() {
        socket.set_only_v6(v6_only)?;
    }
    if address.port() != 0 {
        // A new process may take the port.
        socket.set_reuse_address(true)?;
    }
    socket.bind(&SockAddr::from(address))?;
    Ok(socket)
}

fn listen(socket: Socket) -> io::Result<Listener> {
    policy::prepare(&socket);
    socket.listen(limits::LISTEN_BACKLOG)?;
    Listener::of(TcpListener::from(socket))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use super::*;
    use crate::dial::dial;
    use crate::policy::Policies;
    use crate::way::Way;
    use haul_sys::condition::unmet;

    const TIMEOUT: Duration = Duration::from_secs(5);

    #[test]
    fn all_addresses_that_are_named_include_those_of_ipv4() {
        let Ok(listener) = Listener::bind_to(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))) else {
            return unmet("this host has no IPv6");
        };
        assert!(std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, listener.port())).is_ok());
    }

    #[test]
    fn a_connection_begins_without_timers_and_far_ones_get_what_the_host_chose() {
        let chosen = crate::host::limits().congestion_control.unwrap();
        let listener = Listener::bind(None, None).unwrap();
        let near = dial(
            &[SocketAddr::from(([127, 0, 0, 1], listener.port()))],
            TIMEOUT,
            &Policies::default(),
            &Way::default(),
            None,
        )
        .unwrap();
        let (far, _) = listener.socket.accept().unwrap();
        let used = |stream| haul_sys::socket::congestion_control(stream).unwrap();
        for stream in [&near, &far] {
            assert_ne!(used(stream), "bbr", "it would be paced by timers");
            let applied = policy::Wanted::default().apply(stream, 0);
            assert_eq!(used(stream), chosen, "{applied:#?}");
        }
    }

    #[test]
    fn both_families_reach_a_listener_on_all_addresses() {
        let listener = Listener::bind(None, None).unwrap();
        for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)] {
            if ip.is_ipv6() && listener.local_addr().is_ipv4() {
                unmet("this host has no IPv6");
                continue;
            }
            dial(&[SocketAddr::new(ip, listener.port())], TIMEOUT, &Policies::default(), &Way::default(), None)
                .unwrap();
        }
    }

    #[test]
    fn a_socket_that_is_handed_over_has_to_listen() {
        let held = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        held.set_nonblocking(true).unwrap();
        let listener = Listener::of_socket(held.try_clone().unwrap()).unwrap();
        assert_eq!(listener.local_addr(), held.local_addr().unwrap());
        let near = SocketAddr::from((Ipv4Addr::LOCALHOST, listener.port()));
        let _caller = dial(&[near], TIMEOUT, &Policies::default(), &Way::default(), None).unwrap();
        listener.socket.accept().unwrap();
        let idle = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        idle.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        assert!(Listener::of_socket(idle.into()).unwrap_err().to_string().contains("nobody listens on it"));
    }

    #[test]
    fn a_range_is_scanned_and_named_when_it_is_full() {
        let taken = Listener::bind(None, None).unwrap();
        let port = taken.port();
        let error = Listener::bind(Some((port, port)), None).unwrap_err();
        assert!(error.to_string().contains(&format!("port {port}")), "{error}");
        let (first, last) = (port, port.saturating_add(20));
        match Listener::bind(Some((first, last)), None) {
            Ok(next) => assert!((first + 1..=last).contains(&next.port())),
            Err(error) => {
                let named = format!("from {first} to {last}");
                assert!(error.to_string().contains(&named), "{error}");
            }
        }
        assert!(Listener::bind(Some((9, 8)), None).is_err());
    }
}
