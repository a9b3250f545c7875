//! Reaches a peer: resolves its name, connects to the fastest address, and lists our own.

use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use haul_sys::interfaces::interfaces;
use haul_sys::poll::{self, Interest};
use haul_sys::socket::set_no_delay;
use socket2::{SockAddr, Socket};

use crate::error::{Attempt, NetError};
use crate::limits;
use crate::policy::{self, Policies};
use crate::way::{Refused, Way};

/// An IP version that the user insists on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
}

impl Family {
    fn has(self, address: &SocketAddr) -> bool {
        match self {
            Family::V4 => address.is_ipv4(),
            Family::V6 => address.is_ipv6(),
        }
    }
}

/// A host's addresses in the system's order, the families in turn.
pub fn resolve(host: &str, port: u16, family: Option<Family>) -> Result<Vec<SocketAddr>, NetError> {
    let failed = |cause| NetError::Resolve { host: host.to_owned(), cause };
    // The resolver wants "[::1]" without brackets.
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let found: Vec<SocketAddr> = (bare, port).to_socket_addrs().map_err(failed)?.collect();
    let mut wanted: Vec<SocketAddr> = Vec::new();
    for address in found {
        if family.is_none_or(|family| family.has(&address)) && !wanted.contains(&address) {
            wanted.push(address);
        }
    }
    if wanted.is_empty() {
        let text = match family {
            None => "it has no address",
            Some(Family::V4) => "it has no IPv4 address",
            Some(Family::V6) => "it has no IPv6 address",
        };
        return Err(failed(io::Error::new(io::ErrorKind::NotFound, text)));
    }
    Ok(in_turn(wanted))
}

/// Ends dials and waits for a change of the network, from another thread.
#[derive(Debug)]
pub struct Cancel {
    watched: UnixStream,
    end: UnixStream,
}

impl Cancel {
    /// A handle that cancels nothing yet.
    pub fn new() -> io::Result<Cancel> {
        UnixStream::pair().map(|(watched, end)| Cancel { watched, end })
    }

    /// Ends dials and waits at once, now and later.
    pub fn cancel(&self) {
        drop(self.end.shutdown(Shutdown::Both));
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.watched.as_fd()
    }
}

/// Connects to the first candidate that answers (RFC 8305), each by its network's policy. The next is tried after 150 ms, or
/// when one fails, while earlier ones go on. All leave by `way`, which may exclude a family.
pub fn dial(
    candidates: &[SocketAddr],
    timeout: Duration,
    policies: &Policies,
    way: &Way,
    cancel: Option<&Cancel>,
) -> Result<TcpStream, NetError> {
    let fitting: Vec<SocketAddr> = candidates.iter().copied().filter(|address| way.fits(address.ip())).collect();
    if fitting.is_empty() {
        return Err(no_candidate(candidates, way));
    }
    let candidates = &fitting[..fitting.len().min(limits::MAX_DIAL_CANDIDATES)];
    let end = Instant::now() + timeout;
    let mut failed: Vec<Attempt> = Vec::new();
    let mut pending: Vec<(SocketAddr, Socket)> = Vec::new();
    let mut untried = candidates.iter().copied();
    let mut next_start = Instant::now();
    let mut more = true;
    loop {
        let now = Instant::now();
        if more && (now >= next_start || pending.is_empty()) && now < end {
            match untried.next() {
                None => more = false,
                Some(address) => match start(address, policies, way) {
                    Ok(socket) => {
                        pending.push((address, socket));
                        next_start = now + limits::DIAL_STAGGER;
                    }
                    Err(Failed::Here(cause) | Failed::Port(cause)) => {
                        failed.push(Attempt { address, cause });
                        next_start = now;
                    }
                    Err(Failed::Way(error)) => return Err(error),
                },
            }
            continue;
        }
        if pending.is_empty() && !more {
            return Err(NetError::Unreachable { attempts: failed });
        }
        if now >= end {
            let late = pending.iter().map(|(address, _)| *address).chain(untried);
            failed.extend(late.map(|address| Attempt {
                address,
                cause: io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {} s", timeout.as_secs_f64())),
            }));
            return Err(NetError::Unreachable { attempts: failed });
        }
        let wake = if more { next_start.min(end) } else { end };
        let mut watched: Vec<_> = pending.iter().map(|(_, socket)| (socket.as_fd(), Interest::Write)).collect();
        watched.extend(cancel.map(|cancel| (cancel.as_fd(), Interest::Read)));
        let ready = poll::wait(&watched, Some(wake.saturating_duration_since(now))).map_err(wait_error)?;
        if cancel.is_some() && ready.last() == Some(&true) {
            return Err(wait_error(io::Error::new(io::ErrorKind::Interrupted, "it is not wanted any more")));
        }
        for at in (0..pending.len()).rev().filter(|at| ready[*at]) {
            let (address, socket) = pending.swap_remove(at);
            match finish(socket) {
                Ok(stream) => return Ok(stream),
                Err(cause) => {
                    failed.push(Attempt { address, cause });
                    next_start = Instant::now();
                }
            }
        }
    }
}

/// Addresses that a peer might reach: no link-local ones, loopback only if alone.
pub fn local_addresses() -> Vec<IpAddr> {
    // Without interfaces there is nothing to offer; the peer finds another way.
    let found = interfaces().unwrap_or_default();
    let usable = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => !ip.is_link_local() && !ip.is_unspecified(),
        IpAddr::V6(ip) => !ip.is_unicast_link_local() && !ip.is_unspecified(),
    };
    let pick = |loopback: bool| -> Vec<IpAddr> {
        let up = found.iter().filter(|interface| interface.up);
        up.flat_map(|interface| interface.addresses.iter().map(|address| (interface.loopback, address.ip)))
            .filter(|(of_loopback, ip)| (*of_loopback || ip.is_loopback()) == loopback)
            .map(|(_, ip)| ip)
            .filter(usable)
            .collect()
    };
    let outside = pick(false);
    if outside.is_empty() { pick(true) } else { outside }
}

/// The address from which the routes reach a peer.
pub fn local_address_towards(peer: IpAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match peer {
        IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = std::net::UdpSocket::bind((any, 0))?;
    // Any port will do: this only looks up the route.
    socket.connect((peer, 9))?;
    Ok(socket.local_addr()?.ip())
}

enum Failed {
    /// The way is unusable for any peer.
    Way(NetError),
    /// The port is unusable; another may be free.
    Port(io::Error),
    Here(io::Error),
}

fn no_candidate(candidates: &[SocketAddr], way: &Way) -> NetError {
    let attempt = |address: &SocketAddr| Attempt {
        address: *address,
        cause: io::Error::new(io::ErrorKind::Unsupported, format!("it has another version of IP than the way {way}")),
    };
    NetError::Unreachable { attempts: candidates.iter().take(limits::MAX_DIAL_CANDIDATES).map(attempt).collect() }
}

fn start(address: SocketAddr, policies: &Policies, way: &Way) -> Result<Socket, Failed> {
    let mut taken = None;
    for port in way.source_ports() {
        match start_from(port, address, policies, way) {
            Err(Failed::Port(cause)) => taken = Some(cause),
            outcome => return outcome,
        }
    }
    let (first, last) = way.ports.unwrap_or_default();
    let cause = taken.map_or_else(String::new, |cause| format!(": {cause}"));
    let text = format!("no port from {first} to {last} of this host is free for it{cause}");
    Err(Failed::Here(io::Error::new(io::ErrorKind::AddrInUse, text)))
}

fn start_from(port: u16, address: SocketAddr, policies: &Policies, way: &Way) -> Result<Socket, Failed> {
    let socket = way.socket(address, port).map_err(|refused| match refused {
        Refused::Socket(cause) => Failed::Here(cause),
        Refused::Port(cause) => Failed::Port(cause),
        Refused::Device(device, cause) => Failed::Way(NetError::Device { device, cause }),
        Refused::Source(address, cause) => Failed::Way(NetError::Source { address, cause }),
    })?;
    policy::prepare(&socket);
    policies.begins(&socket, address.ip());
    match socket.connect(&SockAddr::from(address)) {
        Ok(()) => Ok(socket),
        Err(error) if error.raw_os_error() == Some(EINPROGRESS) => Ok(socket),
        // Another connection from this port to the same peer exists.
        Err(error) if port > 0 && error.kind() == io::ErrorKind::AddrNotAvailable => Err(Failed::Port(error)),
        Err(error) => Err(Failed::Here(error)),
    }
}

fn finish(socket: Socket) -> io::Result<TcpStream> {
    if let Some(error) = socket.take_error()? {
        return Err(error);
    }
    let stream = TcpStream::from(socket);
    // Without a peer it failed, even unreported.
    stream.peer_addr()?;
    stream.set_nonblocking(false)?;
    set_no_delay(&stream, true)?;
    Ok(stream)
}

/// A family without a route costs one step only.
fn in_turn(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first_is_v4 = addresses.first().is_some_and(SocketAddr::is_ipv4);
    let (first, second): (Vec<_>, Vec<_>) = addresses.into_iter().partition(|address| address.is_ipv4() == first_is_v4);
    let mut ordered = Vec::with_capacity(first.len() + second.len());
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    loop {
        let before = ordered.len();
        ordered.extend(first.next());
        ordered.extend(second.next());
        if ordered.len() == before {
            return ordered;
        }
    }
}

/// EINPROGRESS of Linux, except on MIPS and SPARC.
const EINPROGRESS: i32 = 115;

fn wait_error(cause: io::Error) -> NetError {
    NetError::Io { what: "cannot wait for a connection", cause }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use socket2::{Domain, Type};

    use super::*;
    use haul_sys::condition::unmet;

    const TIMEOUT: Duration = Duration::from_secs(5);

    fn refusing() -> (Socket, SocketAddr) {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        (socket, address)
    }

    #[test]
    fn reaches_v4_and_v6() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                unmet(format_args!("this host has no {address}"));
                continue;
            };
            let address = listener.local_addr().unwrap();
            let stream = dial(&[address], TIMEOUT, &Policies::default(), &Way::default(), None).unwrap();
            assert_eq!(stream.peer_addr().unwrap(), address);
            assert!(stream.nodelay().unwrap());
        }
    }

    #[test]
    fn a_dead_first_candidate_falls_to_the_second_at_once() {
        let (_keep, dead) = refusing();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let live = listener.local_addr().unwrap();
        let begin = Instant::now();
        let stream = dial(&[dead, live], TIMEOUT, &Policies::default(), &Way::default(), None).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), live);
        assert!(begin.elapsed() < TIMEOUT / 2);
    }

    #[test]
    fn the_error_lists_each_address_with_its_reason() {
        let (_keep, one) = refusing();
        let (_keep, two) = refusing();
        let error = dial(&[one, two], TIMEOUT, &Policies::default(), &Way::default(), None).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(&format!("{one}: Connection refused")), "{text}");
        assert!(text.contains(&format!("{two}: Connection refused")), "{text}");
        assert!(
            dial(&[], TIMEOUT, &Policies::default(), &Way::default(), None)
                .unwrap_err()
                .to_string()
                .contains("no address")
        );
    }

    fn silent() -> (Socket, Vec<TcpStream>, SocketAddr) {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
        socket.listen(0).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        let mut held = Vec::new();
        for _ in 0..3 {
            match dial(&[address], Duration::from_millis(200), &Policies::default(), &Way::default(), None) {
                Ok(stream) => held.push(stream),
                Err(error) => {
                    assert!(error.to_string().contains("no answer within"), "{error}");
                    return (socket, held, address);
                }
            }
        }
        panic!("the queue of a listener took {} connections", held.len());
    }

    #[test]
    fn a_dial_that_is_not_wanted_any_more_ends_at_once() {
        let (_keep, _held, silent) = silent();
        let cancel = Cancel::new().unwrap();
        let begin = Instant::now();
        std::thread::scope(|scope| {
            let dials = scope.spawn(|| {
                dial(&[silent], Duration::from_secs(3600), &Policies::default(), &Way::default(), Some(&cancel))
            });
            cancel.cancel();
            assert!(dials.join().unwrap().is_err());
        });
        assert!(begin.elapsed() < Duration::from_secs(10));
        assert!(
            dial(&[silent], Duration::from_secs(3600), &Policies::default(), &Way::default(), Some(&cancel)).is_err()
        );
    }

    #[test]
    fn silence_ends_with_the_timeout() {
        let (_keep, _held, silent) = silent();
        let begin = Instant::now();
        assert!(dial(&[silent], Duration::from_millis(300), &Policies::default(), &Way::default(), None).is_err());
        assert!(begin.elapsed() >= Duration::from_millis(300));
    }

    #[test]
    fn a_silent_first_candidate_costs_less_than_two_seconds() {
        const LONG: Duration = Duration::from_secs(60);
        const TRIES: u32 = 5;
        let (_keep, _held, silent) = silent();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let live = listener.local_addr().unwrap();
        let took: Vec<Duration> = (0..TRIES)
            .map(|_| {
                let begin = Instant::now();
                assert_eq!(
                    dial(&[silent, live], LONG, &Policies::default(), &Way::default(), None)
                        .unwrap()
                        .peer_addr()
                        .unwrap(),
                    live
                );
                begin.elapsed()
            })
            .collect();
        assert!(took.iter().any(|took| *took < Duration::from_secs(2)), "{took:?}");
    }

    #[test]
    fn a_connection_leaves_from_the_address_and_by_the_device_that_were_asked_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = listener.local_addr().unwrap();
        let local = Some(IpAddr::from([127, 0, 0, 77]));
        let way = Way { local, ..Way::default() };
        let stream = dial(&[there], TIMEOUT, &Policies::default(), &way, None).unwrap();
        assert_eq!(Some(stream.local_addr().unwrap().ip()), local);
        let way = Way { device: Some("lo".parse().unwrap()), ..way };
        match dial(&[there], TIMEOUT, &Policies::default(), &way, None) {
            Ok(stream) => assert_eq!(Way::of(&stream).unwrap(), way),
            Err(error) => unmet(format_args!("{error}")),
        }
    }

    #[test]
    fn connections_leave_from_the_ports_that_were_asked_for_until_none_is_free() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = listener.local_addr().unwrap();
        let way = Way { local: Some("127.0.0.78".parse().unwrap()), ports: Some((41_000, 41_001)), ..Way::default() };
        let dialled = || dial(&[there], TIMEOUT, &Policies::default(), &way, None);
        let held = [dialled().unwrap(), dialled().unwrap()];
        assert_eq!(held.each_ref().map(|stream| stream.local_addr().unwrap().port()), [41_000, 41_001]);
        let text = dialled().unwrap_err().to_string();
        assert!(text.contains("no port from 41000 to 41001 of this host is free for it"), "{text}");
    }

    #[test]
    fn a_way_that_cannot_be_used_is_named_with_its_cause() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = listener.local_addr().unwrap();
        let told = |way: Way| dial(&[there], TIMEOUT, &Policies::default(), &way, None).unwrap_err().to_string();
        let device = Some("no-such-device".parse().unwrap());
        let text = told(Way { device, ..Way::default() });
        assert!(text.contains("no-such-device") && text.contains("No such device"), "{text}");
        let text = told(Way { local: Some("192.0.2.77".parse().unwrap()), ..Way::default() });
        assert_eq!(text, "cannot connect from 192.0.2.77: this host has no such address");
        let text = told(Way { local: Some("2001:db8::77".parse().unwrap()), ..Way::default() });
        assert!(text.contains(&format!("{there}: it has another version of IP")), "{text}");
    }

    #[test]
    fn candidates_of_another_family_are_left_out() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = listener.local_addr().unwrap();
        let way = Way { local: Some("127.0.0.1".parse().unwrap()), ..Way::default() };
        let stream = dial(&["[::1]:9".parse().unwrap(), there], TIMEOUT, &Policies::default(), &way, None).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), there);
    }

    #[test]
    fn resolves_names_and_addresses_by_family() {
        let found = resolve("127.0.0.1", 7, Some(Family::V4)).unwrap();
        assert_eq!(found, ["127.0.0.1:7".parse().unwrap()]);
        assert_eq!(resolve("[::1]", 7, None).unwrap(), ["[::1]:7".parse().unwrap()]);
        let error = resolve("127.0.0.1", 7, Some(Family::V6)).unwrap_err();
        assert!(error.to_string().contains("no IPv6 address"), "{error}");
    }

    #[test]
    fn families_alternate() {
        let given = ["1.1.1.1:1", "2.2.2.2:1", "[::3]:1"].map(|text| text.parse().unwrap());
        let ordered = in_turn(given.to_vec());
        assert_eq!(ordered, [given[0], given[2], given[1]]);
    }

    #[test]
    fn loopback_is_reached_from_loopback() {
        let loopback = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(local_address_towards(loopback).unwrap(), loopback);
    }

    #[test]
    fn this_host_has_an_address() {
        let addresses = local_addresses();
        assert!(!addresses.is_empty());
        let some_outside = addresses.iter().any(|ip| !ip.is_loopback());
        assert!(!some_outside || addresses.iter().all(|ip| !ip.is_loopback()), "{addresses:?}");
    }
}
