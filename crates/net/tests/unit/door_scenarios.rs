//! Doors, with a greeter that speaks TLS and with one that reads a line.

use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use super::*;
use crate::cipher::preferred_ciphers;
use crate::dial::dial;
use crate::identity::Identity;
use crate::key_greeter::{Admit, Deliver, KeyGreeter};
use crate::limits::REFUSED_KEY;
use crate::public_key::PublicKey;
use crate::stream::Stream;
use crate::tls;
use crate::way::Way;

fn listener() -> Listener {
    Listener::bind_to(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap()
}

fn in_lobby(rules: Rules) -> DoorOptions {
    DoorOptions { lobby: Arc::new(Lobby::with(rules)), ..DoorOptions::default() }
}

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
        let deliver: Deliver = Arc::new(move |stream, key, _| {
            stream.set_deadline(None).unwrap();
            tell.lock().unwrap().send((stream, key)).unwrap();
        });
        let greeter = KeyGreeter { identity: Arc::new(server), admit, ciphers: preferred_ciphers(None), deliver };
        let door = Door::open(listener(), greeter, &in_lobby(rules)).unwrap();
        House { door, server_key, peer, arrivals }
    }

    fn knock(&self) -> TcpStream {
        dial(
            &[SocketAddr::from((Ipv4Addr::LOCALHOST, self.door.port()))],
            TIMEOUT,
            &Policies::default(),
            &Way::default(),
            None,
        )
        .unwrap()
    }

    fn knock_from(&self, last: u8) -> TcpStream {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, last], 0)).into()).unwrap();
        socket.connect(&SocketAddr::from((Ipv4Addr::LOCALHOST, self.door.port())).into()).unwrap();
        socket.into()
    }

    fn wait_for_guests(&self, count: usize) {
        let end = Instant::now() + 10 * TIMEOUT;
        while self.door.lobby.room().count() != count {
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

const ALWAYS_YOUNG: Duration = Duration::from_secs(3_600);

#[test]
fn strangers_from_a_few_addresses_who_take_all_there_is_keep_nobody_out_who_comes_from_elsewhere() {
    let space = Space { guests: 16, young: ALWAYS_YOUNG };
    let house = House::with(Rules { space, max_guests_per_source: 4, ..Rules::default() });
    let held: Vec<TcpStream> = (0..16).map(|at| house.knock_from(2 + at / 4)).collect();
    house.wait_for_guests(16);
    house.check_peer_gets_in();
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
    let (mut stream, _) = tls::client(house.knock(), &unknown, |_| true, &ciphers).unwrap();
    assert!(stream.read(&mut [0]).is_err());
    house.wait_for_guests(0);
    assert!(house.door.lobby.penalties().owed(source, start) > Duration::ZERO, "a wrong key is charged");
    let refuse_often = || {
        let penalties = || house.door.lobby.penalties();
        (2..100).for_each(|second| penalties().refused(source, REFUSED_KEY, start + Duration::from_secs(second)));
    };
    refuse_often();
    assert!(house.door.lobby.penalties().hearing(source, Instant::now()).is_barred);
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
        let owed = house.door.lobby.penalties().owed(IpAddr::from(Ipv4Addr::LOCALHOST), start);
        assert!(owed > Duration::ZERO, "listed: {listed}");
    }
}

#[test]
fn who_is_silent_where_key_after_key_was_refused_is_gone_soon() {
    let rules = Rules { deadline: ALWAYS_YOUNG, barred_deadline: Duration::from_millis(300), ..Rules::default() };
    let house = House::with(rules);
    let (source, now) = (IpAddr::from(Ipv4Addr::LOCALHOST), Instant::now());
    (0..100).for_each(|at| house.door.lobby.penalties().refused(source, REFUSED_KEY, now + Duration::from_secs(at)));
    check_is_closed(house.knock());
}

#[test]
fn one_byte_at_a_time_is_cut_at_the_deadline() {
    let house = House::with(Rules { deadline: Duration::from_millis(300), ..Rules::default() });
    let mut stranger = house.knock();
    let begin = Instant::now();
    // A legal record's header, and then its content, drop by drop.
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
    while house.door.lobby.room().count() == 0 {
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
    while dial(&[address], TIMEOUT, &Policies::default(), &Way::default(), None).is_ok() {
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

/// A greeter without TLS or keys: it expects one line.
struct LineGreeter {
    arrivals: Mutex<mpsc::Sender<Stream>>,
}

impl Greeter for LineGreeter {
    type Guest = Stream;

    fn greet(&self, caller: &Caller) -> Greeting<Stream> {
        let (mut line, mut stream) = (String::new(), Stream::of(caller));
        match BufReader::new((&mut stream).take(80)).read_line(&mut line) {
            Ok(1..) if line == "let me in\n" => Greeting::Admitted(stream),
            Ok(1..) if line == "just looking\n" => Greeting::Anonymous(stream),
            Ok(1..) => Greeting::Refused { penalty: LINE_PENALTY },
            _ => Greeting::Gone,
        }
    }

    fn receive(&self, guest: Stream, _: &Caller) {
        guest.set_deadline(None).unwrap();
        self.arrivals.lock().unwrap().send(guest).unwrap();
    }
}

const LINE_PENALTY: Duration = Duration::from_secs(30);

struct Annex {
    door: Door,
    arrivals: Receiver<Stream>,
}

impl Annex {
    fn of(house: &House) -> Annex {
        let (tell, arrivals) = mpsc::channel();
        let options = DoorOptions { lobby: Arc::clone(&house.door.lobby), ..DoorOptions::default() };
        let door = Door::open(listener(), LineGreeter { arrivals: Mutex::new(tell) }, &options).unwrap();
        Annex { door, arrivals }
    }

    fn say(&self, line: &str) -> TcpStream {
        let mut near = dial(
            &[SocketAddr::from((Ipv4Addr::LOCALHOST, self.door.port()))],
            TIMEOUT,
            &Policies::default(),
            &Way::default(),
            None,
        )
        .unwrap();
        near.write_all(line.as_bytes()).unwrap();
        near
    }

    fn check_peer_gets_in(&self) {
        let mut near = self.say("let me in\n");
        let mut far = self.arrivals.recv_timeout(TIMEOUT).unwrap();
        near.write_all(b"hello").unwrap();
        far.read_exact(&mut [0; 5]).unwrap();
    }
}

#[test]
fn a_second_kind_of_greeter_has_the_same_door() {
    let house = House::with(Rules { deadline: Duration::from_millis(300), ..Rules::default() });
    let annex = Annex::of(&house);
    let silent = annex.say("");
    annex.check_peer_gets_in();
    check_is_closed(silent);
    check_is_closed(annex.say("let us in\n"));
    house.wait_for_guests(0);
    assert!(annex.arrivals.try_recv().is_err());
}

#[test]
fn what_one_greeter_refuses_is_charged_at_all_doors_of_the_lobby() {
    let house = House::with(Rules { barred_deadline: Duration::from_millis(300), ..Rules::default() });
    let annex = Annex::of(&house);
    let (source, start) = (IpAddr::from(Ipv4Addr::LOCALHOST), Instant::now());
    let hearing = || house.door.lobby.penalties().hearing(source, start);
    assert!(!hearing().is_barred);
    check_is_closed(annex.say("let us in\n"));
    house.wait_for_guests(0);
    assert!(house.door.lobby.penalties().owed(source, start) >= LINE_PENALTY);
    assert!(hearing().is_barred, "its greeter says how much a refusal costs");
    drop(annex.say("just looking\n"));
    annex.arrivals.recv_timeout(TIMEOUT).unwrap();
    assert!(hearing().is_barred, "who proves nothing earns no trust");
    check_is_closed(house.knock());
    house.check_peer_gets_in();
    assert!(!hearing().is_barred, "who proves a key is trusted at both");
    check_is_closed(annex.say("let us in\n"));
    house.wait_for_guests(0);
    assert!(!hearing().is_barred);
}

#[test]
fn guests_of_all_doors_share_one_room() {
    let space = Space { young: Duration::ZERO, ..Rules::default().space };
    let house = House::with(Rules { space, max_guests_per_source: 2, ..Rules::default() });
    let annex = Annex::of(&house);
    // Doors accept in their own threads: only seats make the order certain.
    let oldest = annex.say("");
    house.wait_for_guests(1);
    let second = house.knock();
    house.wait_for_guests(2);
    annex.check_peer_gets_in();
    check_is_closed(oldest);
    house.wait_for_guests(1);
    house.check_peer_gets_in();
    drop(second);
}

#[test]
fn a_door_that_closes_ends_no_greeting_of_another() {
    let house = House::with(Rules::default());
    let annex = Annex::of(&house);
    let (mut near, stranger) = (annex.say("let me"), house.knock());
    house.wait_for_guests(2);
    house.door.close();
    check_is_closed(stranger);
    near.write_all(b" in\n").unwrap();
    annex.arrivals.recv_timeout(TIMEOUT).unwrap();
    annex.check_peer_gets_in();
}
