//! Being reached: one port, and a door behind it that lets in only who proves an admitted key.
//!
//! ```text
//! accept -> room -> handshake in its own thread, within the deadline -> deliver (reads the hello)
//!             |
//!             +-> too many: who came first of those who take most has to leave (`room.rs`)
//! ```

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use haul_sys::poll::{self, Interest};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::cipher::Cipher;
use crate::dial::Family;
use crate::error::NetError;
use crate::identity::Identity;
use crate::limits;
use crate::penalty::Penalties;
use crate::policy;
use crate::public_key::PublicKey;
use crate::room::{Room, Space};
use crate::stream::Stream;
use crate::tls;
use crate::transport::{Link, ShutdownHandle};

/// A TCP port that is listened on.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Listens on all addresses: IPv6 and IPv4 on one socket, IPv4 alone where the host has no IPv6.
    ///
    /// The port is the first free one of the inclusive range, or any that the kernel picks.
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

    /// Listens on one address; port 0 lets the kernel pick.
    pub fn bind_to(address: SocketAddr) -> Result<Listener, NetError> {
        listen_on(address, true).map_err(|cause| NetError::Bind { what: address.to_string(), cause })
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The address, all zeros when it is all of them.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

/// Accepts in a thread of its own and shakes hands in short-lived ones.
///
/// Handshakes are counted, in all and per source address, each must end within a deadline whatever the peer sends, and where there are too
/// many the oldest of the source that has most makes room, so that one stranger does not keep peers out who come from elsewhere.
pub struct Door {
    shared: Arc<Shared>,
    /// Closing it wakes the accepting thread.
    wake: UnixStream,
    port: u16,
}

/// Who may come in, by key and address. Whoever takes his time looks whether the connection was shut down meanwhile: its place is for another then.
pub type Admit = Arc<dyn Fn(&PublicKey, SocketAddr, &ShutdownHandle) -> bool + Send + Sync>;
/// Takes a stream whose peer has proved its key.
pub type Deliver = Arc<dyn Fn(Stream, PublicKey, SocketAddr) + Send + Sync>;

impl Door {
    /// Opens the door. `deliver` is called in the thread of the handshake with what is left of the deadline still set: it
    /// reads the hello, lifts the deadline with `set_deadline(None)` and hands the stream on.
    pub fn open(
        listener: Listener,
        identity: Arc<Identity>,
        admit: Admit,
        ciphers: Vec<Cipher>,
        deliver: Deliver,
    ) -> Result<Door, NetError> {
        let rules = Rules::default();
        Door::open_with(rules, listener, identity, admit, ciphers, deliver)
    }

    fn open_with(
        rules: Rules,
        listener: Listener,
        identity: Arc<Identity>,
        admit: Admit,
        ciphers: Vec<Cipher>,
        deliver: Deliver,
    ) -> Result<Door, NetError> {
        let failed = |cause| NetError::Io { what: "cannot start to accept connections", cause };
        let port = listener.port();
        let (wake, woken) = UnixStream::pair().map_err(failed)?;
        listener.socket.set_nonblocking(true).map_err(failed)?;
        let shared = Arc::new(Shared {
            rules,
            identity,
            admit,
            ciphers,
            deliver,
            closed: AtomicBool::new(false),
            room: Mutex::default(),
            penalties: Mutex::default(),
        });
        let accepting = Arc::clone(&shared);
        thread::Builder::new()
            .name("door".to_owned())
            .spawn(move || accept_until_closed(&listener.socket, &woken, &accepting))
            .map_err(failed)?;
        Ok(Door { shared, wake, port })
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Stops accepting and ends handshakes in progress; delivered streams live on. Waits for nothing.
    pub fn close(&self) {
        self.shared.closed.store(true, Ordering::Release);
        // Fails only when the accepting thread is gone already.
        drop(self.wake.shutdown(Shutdown::Both));
        self.shared.room().closes();
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.close();
    }
}

/// The limits of a door, to be made small by tests.
#[derive(Clone, Copy)]
struct Rules {
    deadline: Duration,
    space: Space,
    max_guests_per_source: usize,
    /// From where key after key was refused.
    max_guests_barred: usize,
    barred_deadline: Duration,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            deadline: limits::HANDSHAKE_DEADLINE,
            space: Space { guests: limits::MAX_HANDSHAKES, young: limits::YOUNG },
            max_guests_per_source: limits::MAX_HANDSHAKES_PER_SOURCE,
            max_guests_barred: limits::MAX_HANDSHAKES_BARRED,
            barred_deadline: limits::BARRED_DEADLINE,
        }
    }
}

struct Shared {
    rules: Rules,
    identity: Arc<Identity>,
    admit: Admit,
    ciphers: Vec<Cipher>,
    deliver: Deliver,
    closed: AtomicBool,
    room: Mutex<Room>,
    penalties: Mutex<Penalties>,
}

impl Shared {
    fn room(&self) -> std::sync::MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn penalties(&self) -> std::sync::MutexGuard<'_, Penalties> {
        self.penalties.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One counted connection; no longer counted when dropped, also by a panic.
struct Guest {
    shared: Arc<Shared>,
    source: IpAddr,
    number: u64,
    deadline: Duration,
}

impl Guest {
    /// Finds room for a connection, or has it closed.
    fn enter(shared: &Arc<Shared>, source: IpAddr, link: &Arc<Link>) -> Option<Guest> {
        let (rules, now) = (shared.rules, Instant::now());
        let hearing = shared.penalties().hearing(source, now);
        let (most, deadline) = match hearing.is_barred {
            true => (rules.max_guests_barred, rules.barred_deadline),
            false => (rules.max_guests_per_source, rules.deadline),
        };
        let most = most.saturating_sub(hearing.refused_lately);
        link.set_deadline(Some(deadline)).ok()?;
        let handle = Stream::over(Arc::clone(link)).shutdown_handle();
        let number = shared.room().enters(source, most, handle.clone(), rules.space, now)?;
        // A door that closed before did not see it.
        if shared.closed.load(Ordering::Acquire) {
            handle.shutdown();
        }
        Some(Guest { shared: Arc::clone(shared), source, number, deadline })
    }

    fn shake_hands(&self, link: Arc<Link>, address: SocketAddr) {
        let shared = &self.shared;
        let (admit, connection) = (Arc::clone(&shared.admit), Stream::over(Arc::clone(&link)).shutdown_handle());
        let admit = move |key: &PublicKey| admit(key, address, &connection);
        let outcome = tls::server_over(link, &shared.identity, admit, &shared.ciphers, self.deadline);
        match &outcome {
            Ok(_) => shared.penalties().admitted(self.source, Instant::now()),
            Err(NetError::WrongKey { .. } | NetError::Unproved) => {
                shared.penalties().refused(self.source, Instant::now())
            }
            Err(_) => {}
        }
        let is_here = outcome.is_ok() && shared.room().has_proved(self.number);
        // A stranger's failure is not worth a word: anybody can cause any number of them.
        if let (Ok((stream, key)), true) = (outcome, is_here) {
            (shared.deliver)(stream, key, address);
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.shared.room().leaves(self.number);
    }
}

fn accept_until_closed(socket: &TcpListener, woken: &UnixStream, shared: &Arc<Shared>) {
    while !shared.closed.load(Ordering::Acquire) {
        let watched = [(socket.as_fd(), Interest::Read), (woken.as_fd(), Interest::Read)];
        match poll::wait(&watched, None).and_then(|_| accept(socket)) {
            Ok(Some((connection, address))) => receive(connection, address, shared),
            Ok(None) => {}
            // Such as EMFILE: the connection stays in the kernel's queue, so poll would report it again at once.
            Err(_) => {
                let woken = [(woken.as_fd(), Interest::Read)];
                drop(poll::wait(&woken, Some(limits::ACCEPT_PAUSE)));
            }
        }
    }
}

fn accept(socket: &TcpListener) -> io::Result<Option<(TcpStream, SocketAddr)>> {
    match socket.accept() {
        Ok(accepted) => Ok(Some(accepted)),
        // Gone before it was accepted, or woken for the other reason.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Closing is all that happens to a connection too many, and to one that finds no thread.
fn receive(connection: TcpStream, address: SocketAddr, shared: &Arc<Shared>) {
    let address = SocketAddr::new(address.ip().to_canonical(), address.port());
    let source = source_of(address.ip());
    if connection.set_nonblocking(false).is_err() || connection.set_nodelay(true).is_err() {
        return;
    }
    let link = Arc::new(Link::new(connection.into()));
    if let Some(guest) = Guest::enter(shared, source, &link) {
        drop(thread::Builder::new().name("handshake".to_owned()).spawn(move || guest.shake_hands(link, address)));
    }
}

/// Whom to count an address to. A household commonly has 256 networks of 2^64 IPv6 addresses each (RIPE-690), and counts once, as it
/// does behind its one IPv4 address. Others have more, and have to make room for whoever takes less than each of their sources.
fn source_of(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> 72 << 72)),
    }
}

fn bind_port(port: u16, family: Option<Family>) -> io::Result<Listener> {
    let v4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    let v6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    match family {
        Some(Family::V4) => listen_on(v4, true),
        Some(Family::V6) => listen_on(v6, true),
        None => match listen_on(v6, false) {
            // Another program has the port: IPv4 alone would only hide that.
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => listen_on(v4, true),
            outcome => outcome,
        },
    }
}

fn listen_on(address: SocketAddr, v6_only: bool) -> io::Result<Listener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(v6_only)?;
    }
    if address.port() != 0 {
        // A port that served a moment ago may serve again while old connections wait for their end.
        socket.set_reuse_address(true)?;
    }
    socket.bind(&SockAddr::from(address))?;
    // Inherited by what is accepted.
    policy::prepare(&socket);
    socket.listen(limits::LISTEN_BACKLOG)?;
    let socket = TcpListener::from(socket);
    let address = socket.local_addr()?;
    Ok(Listener { socket, address })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::sync::mpsc::{self, Receiver};
    use std::time::Instant;

    use super::*;
    use crate::cipher::preferred_ciphers;
    use crate::dial::dial;
    use haul_sys::condition::unmet;

    const TIMEOUT: Duration = Duration::from_secs(5);

    struct House {
        door: Door,
        server_key: PublicKey,
        peer: Identity,
        arrivals: Receiver<(Stream, PublicKey)>,
    }

    impl House {
        fn with(rules: Rules) -> House {
            let peer = Identity::generate().unwrap();
            let peer_key = peer.public();
            let admit =
                Arc::new(move |key: &PublicKey, from: SocketAddr, _: &_| *key == peer_key && from.ip().is_loopback());
            House::that_admits(rules, peer, admit)
        }

        fn that_admits(rules: Rules, peer: Identity, admit: Admit) -> House {
            let server = Identity::generate().unwrap();
            let server_key = server.public();
            let (tell, arrivals) = mpsc::channel();
            let tell = Mutex::new(tell);
            let door = Door::open_with(
                rules,
                Listener::bind_to(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap(),
                Arc::new(server),
                admit,
                preferred_ciphers(None),
                Arc::new(move |stream, key, _| {
                    stream.set_deadline(None).unwrap();
                    tell.lock().unwrap().send((stream, key)).unwrap();
                }),
            )
            .unwrap();
            House { door, server_key, peer, arrivals }
        }

        fn knock(&self) -> TcpStream {
            dial(&[SocketAddr::from((Ipv4Addr::LOCALHOST, self.door.port()))], TIMEOUT).unwrap()
        }

        /// From another address of this host.
        fn knock_from(&self, last: u8) -> TcpStream {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
            socket.bind(&SocketAddr::from(([127, 0, 0, last], 0)).into()).unwrap();
            socket.connect(&SocketAddr::from((Ipv4Addr::LOCALHOST, self.door.port())).into()).unwrap();
            socket.into()
        }

        fn wait_for_guests(&self, count: usize) {
            let end = Instant::now() + 10 * TIMEOUT;
            while self.door.shared.room().count() != count {
                assert!(Instant::now() < end, "there are not {count} guests");
                std::thread::yield_now();
            }
        }

        fn enter(&self) -> Stream {
            let key = self.server_key;
            let ciphers = preferred_ciphers(None);
            let (stream, _) = tls::client(self.knock(), &self.peer, move |shown| *shown == key, &ciphers).unwrap();
            stream
        }

        fn check_peer_gets_in(&self) {
            let mut near = self.enter();
            let (mut far, key) = self.arrivals.recv_timeout(TIMEOUT).unwrap();
            assert_eq!(key, self.peer.public());
            near.write_all(b"hello").unwrap();
            near.flush().unwrap();
            far.read_exact(&mut [0; 5]).unwrap();
        }
    }

    /// The door closes it: end of file, or a reset when something we sent was not read.
    fn check_is_closed(mut socket: TcpStream) {
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut rest = Vec::new();
        match socket.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}"),
        }
    }

    #[test]
    fn silent_strangers_do_not_keep_the_peer_out() {
        let house = House::with(Rules::default());
        let strangers: Vec<TcpStream> = (0..20).map(|_| house.knock()).collect();
        house.check_peer_gets_in();
        drop(strangers);
    }

    #[test]
    fn garbage_is_closed_and_an_unknown_key_is_not_delivered() {
        let house = House::with(Rules::default());
        let mut stranger = house.knock();
        stranger.write_all(&[b'x'; 600]).unwrap();
        check_is_closed(stranger);
        let unknown = Identity::generate().unwrap();
        let ciphers = preferred_ciphers(None);
        let (mut stream, _) = tls::client(house.knock(), &unknown, |_| true, &ciphers).unwrap();
        assert!(stream.read(&mut [0]).is_err());
        assert!(house.arrivals.try_recv().is_err());
        house.check_peer_gets_in();
    }

    /// No time makes anybody old: who comes first stays.
    const ALWAYS_YOUNG: Duration = Duration::from_secs(3_600);

    #[test]
    fn strangers_from_a_few_addresses_who_take_all_there_is_keep_nobody_out_who_comes_from_elsewhere() {
        let space = Space { guests: 16, young: ALWAYS_YOUNG };
        let house = House::with(Rules { space, max_guests_per_source: 4, ..Rules::default() });
        let held: Vec<TcpStream> = (0..16).map(|at| house.knock_from(2 + at / 4)).collect();
        house.wait_for_guests(16);
        house.check_peer_gets_in();
        // Who had to leave comes back, and takes his own place.
        let again: Vec<TcpStream> = (0..16).map(|at| house.knock_from(2 + at / 4)).collect();
        house.check_peer_gets_in();
        drop((held, again));
    }

    #[test]
    fn a_stranger_who_takes_all_that_one_address_may_have_keeps_nobody_out_who_comes_from_there() {
        let space = Space { young: Duration::ZERO, ..Rules::default().space };
        let house = House::with(Rules { space, max_guests_per_source: 4, ..Rules::default() });
        let held: Vec<TcpStream> = (0..4).map(|_| house.knock()).collect();
        house.wait_for_guests(4);
        house.check_peer_gets_in();
        let [oldest, ..] = <[TcpStream; 4]>::try_from(held).unwrap();
        check_is_closed(oldest);
    }

    #[test]
    fn who_waits_to_be_let_in_learns_that_its_place_is_for_another() {
        let space = Space { young: Duration::ZERO, ..Rules::default().space };
        let rules = Rules { space, max_guests_per_source: 1, ..Rules::default() };
        let (says, said) = mpsc::channel();
        let admit = Arc::new(move |_: &PublicKey, _, connection: &ShutdownHandle| {
            says.send("waits").unwrap();
            let end = Instant::now() + 10 * TIMEOUT;
            while !connection.is_shut_down() && Instant::now() < end {
                std::thread::yield_now();
            }
            says.send(if connection.is_shut_down() { "leaves" } else { "knows nothing" }).unwrap();
            false
        });
        let house = House::that_admits(rules, Identity::generate().unwrap(), admit);
        let waiting = house.enter();
        assert_eq!(said.recv_timeout(10 * TIMEOUT), Ok("waits"));
        let another = house.knock();
        assert_eq!(said.recv_timeout(20 * TIMEOUT), Ok("leaves"));
        house.wait_for_guests(1);
        drop((waiting, another));
    }

    #[test]
    fn a_key_that_is_refused_is_charged_and_who_shows_key_after_key_does_not_keep_the_right_one_out() {
        const FEW: usize = 3;
        let space = Space { young: Duration::ZERO, ..Rules::default().space };
        // The key that was refused last keeps its place.
        let rules = Rules { space, max_guests_barred: FEW + 1, barred_deadline: ALWAYS_YOUNG, ..Rules::default() };
        let house = House::with(rules);
        let (unknown, ciphers) = (Identity::generate().unwrap(), preferred_ciphers(None));
        let (source, start) = (IpAddr::from(Ipv4Addr::LOCALHOST), Instant::now());
        // That it is refused comes with the first thing that is read.
        let (mut stream, _) = tls::client(house.knock(), &unknown, |_| true, &ciphers).unwrap();
        assert!(stream.read(&mut [0]).is_err());
        house.wait_for_guests(0);
        assert!(house.door.shared.penalties().owed(source, start) > Duration::ZERO, "a wrong key is charged");
        // The same again and again, a second apart.
        let refuse_often = || {
            let penalties = || house.door.shared.penalties();
            (2..100).for_each(|second| penalties().refused(source, start + Duration::from_secs(second)));
        };
        refuse_often();
        assert!(house.door.shared.penalties().hearing(source, Instant::now()).is_barred);
        let mut held: Vec<TcpStream> = (0..FEW).map(|_| house.knock()).collect();
        house.wait_for_guests(FEW);
        let one_more = house.knock();
        check_is_closed(held.remove(0));
        // While its thread is still leaving there is no room for another.
        house.wait_for_guests(FEW);
        house.check_peer_gets_in();
        check_is_closed(held.remove(0));
        drop((held, one_more));
        house.wait_for_guests(0);
        refuse_often();
        let held: Vec<TcpStream> = (0..=FEW).map(|_| house.knock()).collect();
        house.wait_for_guests(FEW + 1);
        drop(held);
        house.check_peer_gets_in();
    }

    #[test]
    fn who_shows_a_key_that_somebody_else_holds_is_charged_whether_it_may_come_in_or_not() {
        for listed in [true, false] {
            let house = House::with(Rules::default());
            let shown = if listed { house.peer.public() } else { Identity::generate().unwrap().public() };
            let (poser, start) = (Identity::generate().unwrap().posing_as(shown), Instant::now());
            let (mut stream, _) = tls::client(house.knock(), &poser, |_| true, &preferred_ciphers(None)).unwrap();
            assert!(stream.read(&mut [0]).is_err());
            house.wait_for_guests(0);
            assert!(house.arrivals.try_recv().is_err());
            let owed = house.door.shared.penalties().owed(IpAddr::from(Ipv4Addr::LOCALHOST), start);
            assert!(owed > Duration::ZERO, "listed: {listed}");
        }
    }

    #[test]
    fn who_is_silent_where_key_after_key_was_refused_is_gone_soon() {
        let rules = Rules { deadline: ALWAYS_YOUNG, barred_deadline: Duration::from_millis(300), ..Rules::default() };
        let house = House::with(rules);
        let (source, now) = (IpAddr::from(Ipv4Addr::LOCALHOST), Instant::now());
        (0..100).for_each(|at| house.door.shared.penalties().refused(source, now + Duration::from_secs(at)));
        check_is_closed(house.knock());
    }

    #[test]
    fn one_byte_at_a_time_is_cut_at_the_deadline() {
        let house = House::with(Rules { deadline: Duration::from_millis(300), ..Rules::default() });
        let mut stranger = house.knock();
        let begin = Instant::now();
        // The header of a record that would be legal, and then its content, drop by drop.
        let record = [&[22, 3, 1, 2, 0][..], &[1; 512]].concat();
        let cut = record.iter().any(|byte| {
            std::thread::sleep(Duration::from_millis(20));
            stranger.write_all(&[*byte]).is_err()
        });
        let took = begin.elapsed();
        assert!(cut && took < Duration::from_secs(3), "{took:?}");
        assert!(took >= Duration::from_millis(300), "{took:?}");
    }

    #[test]
    fn too_many_from_one_source_are_closed_at_once_and_room_comes_back() {
        let space = Space { young: ALWAYS_YOUNG, ..Rules::default().space };
        let house = House::with(Rules { space, max_guests_per_source: 2, ..Rules::default() });
        let held = [house.knock(), house.knock()];
        check_is_closed(house.knock());
        drop(held);
        house.wait_for_guests(0);
        house.check_peer_gets_in();
    }

    #[test]
    fn a_closed_door_ends_handshakes_and_spares_delivered_streams() {
        let house = House::with(Rules::default());
        let mut near = house.enter();
        let (mut far, _) = house.arrivals.recv_timeout(TIMEOUT).unwrap();
        let stranger = house.knock();
        let end = Instant::now() + TIMEOUT;
        while house.door.shared.room().count() == 0 {
            assert!(Instant::now() < end, "the stranger was not received");
            std::thread::yield_now();
        }
        house.door.close();
        check_is_closed(stranger);
        near.write_all(b"still here").unwrap();
        near.flush().unwrap();
        far.read_exact(&mut [0; 10]).unwrap();
        // The port is free again once the accepting thread has seen it.
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, house.door.port()));
        let end = Instant::now() + TIMEOUT;
        while dial(&[address], TIMEOUT).is_ok() {
            assert!(Instant::now() < end, "the door still accepts");
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_ipv6_networks_of_a_household_count_as_one_source() {
        let source = |text: &str| source_of(text.parse().unwrap());
        assert_eq!(source("2001:db8::1"), source("2001:db8:0:ff::ffff:2"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:100::1"));
        assert_ne!(source("192.0.2.1"), source("192.0.2.2"));
    }

    #[test]
    fn a_connection_begins_without_timers_and_far_ones_get_what_the_host_chose() {
        let chosen = crate::host::limits().congestion_control.unwrap();
        let listener = Listener::bind(None, None).unwrap();
        let near = dial(&[SocketAddr::from(([127, 0, 0, 1], listener.port()))], TIMEOUT).unwrap();
        let (far, _) = listener.socket.accept().unwrap();
        let used = |stream| haul_sys::socket::congestion_control(stream).unwrap();
        for stream in [&near, &far] {
            assert_ne!(used(stream), policy::PACED_BY_TIMERS);
            // No round trip is shorter than that.
            let applied = policy::apply(stream, &policy::Wanted::default(), 0);
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
            dial(&[SocketAddr::new(ip, listener.port())], TIMEOUT).unwrap();
        }
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
