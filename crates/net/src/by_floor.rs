//! A port with a listener for each floor of the retransmission timeout: a connection has its network class's floor from the
//! first packet on.
//!
//! ```text
//! SYN -> program of the kernel: the network of the source -> listener with its floor
//!                               -> in no network          -> the first listener, with the kernel's floor
//! ```
//! Before Linux 6.16 there are no floors, and the port has one listener.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use haul_sys::retransmission;
use haul_sys::reuseport::{self, MAX_ROWS, Row};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::error::NetError;
use crate::limits;
use crate::listen::{Listener, is_v6_only};
use crate::policy::{self, Networks};

/// Floors beside the kernel's own. A site has one or two.
const FLOORS: usize = 3;

/// Keeps a port's listeners in step with the network classes.
#[derive(Debug)]
pub struct ByFloor {
    sockets: Vec<TcpListener>,
}

impl Listener {
    /// Listens on one address for each floor, first also with MPTCP. `[::]` includes IPv4.
    pub fn bind_by_floor(
        address: SocketAddr,
        networks: &Networks,
    ) -> Result<(Vec<Listener>, Option<ByFloor>), NetError> {
        let first = Listener::bind_to_shared(address, is_v6_only(address))?;
        let address = first.local_addr();
        match further(address).and_then(|further| ByFloor::of(further, networks)) {
            Ok((further, by_floor)) => Ok((std::iter::once(first).chain(further).collect(), Some(by_floor))),
            Err(_) => Ok((vec![first], None)),
        }
    }
}

/// Plain TCP: the kernel takes the program from no other.
fn further(address: SocketAddr) -> io::Result<Vec<TcpListener>> {
    let listen = |_| {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        if address.is_ipv6() {
            socket.set_only_v6(is_v6_only(address))?;
        }
        socket.set_reuse_address(true)?;
        reuseport::share(&socket)?;
        // Older kernels have no floor.
        retransmission::set_rto_min(&socket, KERNELS)?;
        socket.bind(&SockAddr::from(address))?;
        policy::prepare(&socket);
        socket.listen(limits::LISTEN_BACKLOG)?;
        Ok(TcpListener::from(socket))
    };
    (0..FLOORS).map(listen).collect()
}

/// Whether the kernel has floors, if a socket can tell.
pub fn floor_by_connection() -> Option<bool> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).ok()?;
    Some(retransmission::set_rto_min(&socket, KERNELS).is_ok())
}

const KERNELS: Duration = Duration::from_millis(200);

impl ByFloor {
    fn of(further: Vec<TcpListener>, networks: &Networks) -> io::Result<(Vec<Listener>, ByFloor)> {
        let sockets = further.iter().map(TcpListener::try_clone).collect::<io::Result<_>>()?;
        let by_floor = ByFloor { sockets };
        by_floor.follow(networks)?;
        let listeners = further.into_iter().map(Listener::of).collect::<io::Result<_>>()?;
        Ok((listeners, by_floor))
    }

    /// Gives later connections these floors. Networks or floors beyond the room begin with the kernel's.
    pub fn follow(&self, networks: &Networks) -> io::Result<()> {
        let rows = networks.floors(MAX_ROWS);
        let mut floors: Vec<Duration> = Vec::new();
        for floor in rows.iter().filter_map(|(_, floor)| *floor).filter(|floor| *floor < KERNELS) {
            // The first connection that asks for it logs a refusal.
            let is_new = !floors.contains(&floor);
            let free = self.sockets.get(floors.len()).filter(|_| is_new);
            if free.is_some_and(|socket| retransmission::set_rto_min(socket, floor).is_ok()) {
                floors.push(floor);
            }
        }
        let listener = |floor: Option<Duration>| {
            let at = floor.and_then(|floor| floors.iter().position(|known| *known == floor));
            at.map_or(0, |at| at as u16 + 1)
        };
        let row = |(prefix, floor): (policy::Prefix, Option<Duration>)| Row {
            network: prefix.first(),
            length: prefix.length(),
            listener: listener(floor),
        };
        let rows: Vec<Row> = rows.into_iter().map(row).collect();
        match self.sockets.first() {
            Some(socket) => reuseport::choose_by_source(socket, &rows),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::os::fd::AsFd;

    use haul_sys::condition::unmet;
    use haul_sys::tcp_info;

    use super::*;
    use crate::policy::{ClassList, NetworkClass, OwnNetworks, Policy, RtoMin};

    fn networks(classes: &[(&str, u64)]) -> Networks {
        let mut list = ClassList::default();
        for (network, floor_ms) in classes {
            let policy = Policy { rto_min: Some(RtoMin(Duration::from_millis(*floor_ms))), ..Policy::default() };
            let class = NetworkClass { name: (*network).into(), policy, ..NetworkClass::default() };
            list.add(class, &[network.parse().unwrap()], &[]).unwrap();
        }
        Networks::of(vec![list], OwnNetworks::default())
    }

    fn first_timeout_ms(listeners: &[Listener], from: Ipv4Addr) -> u32 {
        let caller = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        caller.bind(&SocketAddr::from((from, 0)).into()).unwrap();
        caller.connect(&listeners[0].local_addr().into()).unwrap();
        let waiting = listeners.iter().find_map(|listener| {
            listener.socket.set_nonblocking(true).unwrap();
            listener.socket.accept().ok()
        });
        let (accepted, _) = waiting.expect("one of them has it");
        tcp_info::tcp_info(accepted.as_fd()).unwrap().rto_us / 1000
    }

    #[test]
    fn a_connection_has_the_floor_of_its_network_from_its_first_packet_on() {
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let classes = [("127.0.1.0/24", 60), ("127.0.2.0/24", 100), ("127.0.0.0/8", 200)];
        let (listeners, by_floor) = Listener::bind_by_floor(loopback, &networks(&classes)).unwrap();
        let Some(by_floor) = by_floor else {
            assert_eq!(listeners.len(), 1);
            return unmet("this kernel has no floor for a connection");
        };
        let timeout = |host: [u8; 4]| first_timeout_ms(&listeners, host.into());
        assert!((60..90).contains(&timeout([127, 0, 1, 1])), "{}", timeout([127, 0, 1, 1]));
        assert!((100..130).contains(&timeout([127, 0, 2, 1])), "{}", timeout([127, 0, 2, 1]));
        assert!(timeout([127, 0, 0, 1]) >= 200);
        by_floor.follow(&networks(&[("127.0.1.0/24", 150), ("127.0.0.0/8", 60)])).unwrap();
        assert!((150..180).contains(&timeout([127, 0, 1, 1])), "{}", timeout([127, 0, 1, 1]));
        assert!((60..90).contains(&timeout([127, 0, 2, 1])), "{}", timeout([127, 0, 2, 1]));
    }

    #[test]
    fn all_addresses_include_those_of_ipv4() {
        let all = SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, 0));
        let Ok((listeners, _by_floor)) = Listener::bind_by_floor(all, &networks(&[])) else {
            return unmet("this host has no IPv6");
        };
        let port = listeners[0].local_addr().port();
        assert!(std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
    }

    #[test]
    fn the_port_is_taken_for_everybody_else() {
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let (listeners, _by_floor) = Listener::bind_by_floor(loopback, &networks(&[])).unwrap();
        let again = Listener::bind_by_floor(listeners[0].local_addr(), &networks(&[]));
        assert!(again.is_err_and(|error| error.to_string().contains("in use")));
    }
}
