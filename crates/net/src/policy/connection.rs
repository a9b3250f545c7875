//! The policy of each connection, from its first packet on.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use haul_sys::socket;
use socket2::{Domain, Socket, Type};

use super::apply::{apply, apply_layers};
use super::buffers::apply_buffers;
use super::distance::{Distance, Measured};
use super::granted::{Applied, Granted};
use super::layers::{Layer, Source};
use super::members::{Members, Membership};
use super::networks::{Found, Networks, rtt_us_of};
use super::observed::ObservedClasses;
use super::options::{CongestionControl, Dscp, Keepalive, NoDelay, Pacing, RtoMax, UnsentMax, UserTimeout};
use super::values::{Policy, in_effect};
use crate::{host, limits};

/// The user's wishes (`None`: haul chooses), and the policies for our own connections.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The kernel's name of a congestion control.
    pub congestion_control: Option<String>,
    /// Bytes that one connection may have under way.
    pub window_bytes: Option<u64>,
    /// The time without an acknowledgement, if haul's is too short.
    pub user_timeout: Option<Duration>,
    /// The operator's table.
    pub policies: Arc<Policies>,
}

impl Wanted {
    /// [`Policies::for_data`] with these policies.
    pub fn apply(&self, stream: &TcpStream, near_rtt_us: u32) -> Vec<Applied> {
        self.policies.for_data(stream, self, near_rtt_us).settings
    }

    /// [`Policies::for_requests`] with these policies.
    pub fn apply_for_requests(&self, stream: &TcpStream, near_rtt_us: u32) {
        self.policies.for_requests(stream, self, near_rtt_us);
    }
}

/// A host's policies, and a listener for their outcome.
#[derive(Default)]
pub struct Policies {
    networks: RwLock<Arc<Networks>>,
    /// Asked for by name, whatever the class.
    asked: Policy,
    members: Arc<Members>,
    heard: Option<Heard>,
}

/// The options granted to a socket without a connection.
#[derive(Clone, Debug)]
pub struct Tried {
    /// The requested settings.
    pub settings: Vec<Applied>,
    /// Every option with its value in effect.
    pub in_effect: Vec<(&'static str, String)>,
}

type Heard = Box<dyn Fn(&Granted) + Send + Sync>;

impl Policies {
    /// The policies of these classes.
    pub fn new(networks: Networks) -> Policies {
        Policies { networks: RwLock::new(Arc::new(networks)), ..Policies::default() }
    }

    /// Has `heard` told what was asked and granted.
    pub fn telling(self, heard: impl Fn(&Granted) + Send + Sync + 'static) -> Policies {
        Policies { heard: Some(Box::new(heard)), ..self }
    }

    /// Adds this mark to every connection.
    pub fn marked(&self, mark: Dscp) -> Policies {
        let networks = RwLock::new(self.networks());
        Policies { networks, asked: Policy { dscp: Some(mark), ..Policy::default() }, ..Policies::default() }
    }

    /// The classes.
    pub fn networks(&self) -> Arc<Networks> {
        Arc::clone(&self.networks.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts other classes into force, for new connections.
    pub fn replace(&self, networks: Networks) {
        *self.networks.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(networks);
    }

    /// Counts an accepted connection of these classes.
    pub fn enters(&self, found: Found, peer: IpAddr) -> Membership {
        self.members.enters(found, peer)
    }

    /// Limits later accepted connections, in all and of one address, over all ports.
    pub fn limit(&self, most: u32, most_of_address: u32) {
        self.members.limit(most, most_of_address);
    }

    /// Takes the observations of connections ended since.
    pub fn take_observed(&self) -> ObservedClasses {
        self.members.take_observed()
    }

    /// Tunes a socket before it connects, or once accepted. Returns the peer's classes.
    pub fn begins(&self, socket: impl AsFd, peer: IpAddr) -> Found {
        let found = self.found(&socket, peer, rtt_us_of(&socket));
        let layers = self.layers(&found);
        if layers.iter().any(|layer| *layer.policy != Policy::default()) {
            self.tell(apply_layers(socket.as_fd(), &layers, peer));
        }
        drop(layers);
        found
    }

    /// Tunes a connection for messages, by class and distance: round trips below `near_rtt_us` are near.
    pub fn for_words(&self, stream: &TcpStream, near_rtt_us: u32) -> Granted {
        self.tune_for_words(stream, near_rtt_us, Policy::default())
    }

    /// [`Policies::for_words`] at the side that accepted: it finds a dead host, whatever time-out that asked for.
    pub fn for_accepted_words(&self, stream: &TcpStream, near_rtt_us: u32) -> Granted {
        self.tune_for_words(stream, near_rtt_us, of_haul(None))
    }

    fn tune_for_words(&self, stream: &TcpStream, near_rtt_us: u32, of_haul: Policy) -> Granted {
        let (peer, distance) = (peer_of(stream), Measured::of(stream, near_rtt_us));
        let found = self.found(stream, peer, distance.rtt_us);
        let (by_distance, why) = by_distance(&distance, stream);
        // Words go without the option where the kernel has none.
        let _ = socket::send_messages_soon(stream);
        let mut layers = self.layers(&found);
        layers.push(Layer { policy: &by_distance, source: Source::Haul(why) });
        layers.push(Layer { policy: &of_haul, source: Source::Haul(None) });
        self.tell(apply_layers(stream.as_fd(), &layers, peer))
    }

    /// [`Policies::for_data`] for a client that asks for the data: its requests are words, and sent again soon.
    pub fn for_requests(&self, stream: &TcpStream, wanted: &Wanted, near_rtt_us: u32) -> Granted {
        let granted = self.for_data(stream, wanted, near_rtt_us);
        // Requests go without the option where the kernel has none.
        let _ = socket::send_messages_soon(stream);
        granted
    }

    /// Tunes a connection for data, by the user, the class, and haul's choice for the distance.
    pub fn for_data(&self, stream: &TcpStream, wanted: &Wanted, near_rtt_us: u32) -> Granted {
        let (peer, distance) = (peer_of(stream), Measured::of(stream, near_rtt_us));
        let of_user = Policy {
            congestion_control: wanted.congestion_control.as_deref().map(CongestionControl::named),
            ..Policy::default()
        };
        let (by_distance, why) = by_distance(&distance, stream);
        // A door took it for a connection with words.
        socket::back_off_as_data(stream);
        let mut of_haul = of_haul(distance.class);
        of_haul.user_timeout = wanted.user_timeout.map(UserTimeout).or(of_haul.user_timeout);
        let found = self.found(stream, peer, distance.rtt_us);
        let mut layers = vec![Layer { policy: &of_user, source: Source::User }];
        layers.extend(self.layers(&found));
        layers.push(Layer { policy: &by_distance, source: Source::Haul(why) });
        layers.push(Layer { policy: &of_haul, source: Source::Haul(None) });
        let mut granted = apply_layers(stream.as_fd(), &layers, peer);
        granted.settings.extend(apply_buffers(stream, wanted.window_bytes, distance.class, &host::recent_limits()));
        self.tell(granted)
    }

    /// Tries a data connection's options for such an address on a socket without a connection.
    pub fn tried(&self, found: &Found, peer: IpAddr) -> io::Result<Tried> {
        let peer = peer.to_canonical();
        let domain = if peer.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
        let socket = Socket::new(domain, Type::STREAM, None)?;
        let of_haul = of_haul(None);
        let mut layers = self.layers(found);
        layers.push(Layer { policy: &of_haul, source: Source::Haul(None) });
        let settings = apply_layers(socket.as_fd(), &layers, peer).settings;
        Ok(Tried { settings, in_effect: in_effect(socket.as_fd(), peer) })
    }

    /// The classes of a connection's peer.
    pub fn found(&self, socket: impl AsFd, peer: IpAddr, rtt_us: Option<u32>) -> Found {
        let networks = self.networks();
        networks.find(&networks.peer(socket, peer, rtt_us))
    }

    /// The classes of an open connection's peer.
    pub fn class_of(&self, stream: &TcpStream) -> Found {
        self.found(stream, peer_of(stream), rtt_us_of(stream))
    }

    fn layers<'a>(&'a self, found: &'a Found) -> Vec<Layer<'a>> {
        let asked = Layer { policy: &self.asked, source: Source::User };
        std::iter::once(asked).chain(found.layers()).collect()
    }

    fn tell(&self, granted: Granted) -> Granted {
        if let Some(heard) = &self.heard {
            heard(&granted);
        }
        granted
    }
}

impl fmt::Debug for Policies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policies").field("networks", &self.networks()).finish_non_exhaustive()
    }
}

fn of_haul(class: Option<Distance>) -> Policy {
    let always = Policy {
        no_delay: Some(NoDelay(true)),
        user_timeout: Some(UserTimeout(Duration::from_millis(limits::USER_TIMEOUT_MS.into()))),
        rto_max: Some(RtoMax(limits::RTO_MAX)),
        keepalive: Some(Keepalive { idle: limits::KEEPALIVE_IDLE, interval: limits::KEEPALIVE_INTERVAL }),
        ..Policy::default()
    };
    match class {
        Some(Distance::Far) => Policy {
            pacing: Some(Pacing { bytes_per_s: PACED_BYTES_PER_S }),
            unsent_max: Some(UnsentMax { bytes: limits::UNSENT_BYTES_MAX }),
            ..always
        },
        Some(Distance::Near) | None => always,
    }
}

/// Unpaced slow start sends each window as one burst. On 1 Gbit/s x 228 ms the bursts of 32 lanes stood 40 ms in the queue
/// of a path a third full; cubic saw congestion (HyStart, RFC 9406) and grew slowly. A bound above any rate (100 Gbit/s)
/// spreads each window over the round trip.
const PACED_BYTES_PER_S: u64 = 12_500_000_000;

fn by_distance(distance: &Measured, stream: &TcpStream) -> (Policy, Option<String>) {
    let Ok(now) = socket::congestion_control(stream) else { return (Policy::default(), None) };
    let host = hosts_choice(&now);
    let is_near = distance.class == Some(Distance::Near);
    let (choice, why) = match distance.rtt_us {
        // Over loopback, bbr without the fq queue paces by timers, at 3 to 8 times the CPU.
        Some(rtt_us) if is_near && host == PACED_BY_TIMERS => (
            CongestionControl::first_of(&NEAR_CHOICES),
            format!("near, round trip {rtt_us} us: {PACED_BY_TIMERS} paces by timers, which costs CPU"),
        ),
        Some(rtt_us) => (CongestionControl::named(&host), format!("the host's default, round trip {rtt_us} us")),
        None => (CongestionControl::named(&host), "the host's default, round trip unknown".to_owned()),
    };
    (Policy { congestion_control: Some(choice), ..Policy::default() }, Some(why))
}

/// Tunes a socket before it connects or listens.
///
/// A connection that begins with bbr is paced by timers to its end (Linux: nothing takes back the `sk_pacing_status` of
/// `bbr_init`), over loopback at 12 to 18 % of a verified copy's processor time. [`Policies::for_data`] gives a far one the
/// host's choice.
pub(crate) fn prepare(socket: impl AsFd) {
    if socket::congestion_control(&socket).is_ok_and(|host| host == PACED_BY_TIMERS) {
        let first = CongestionControl::first_of(&NEAR_CHOICES);
        // If the kernel refuses, the host's choice stays.
        apply(&socket, &Policy { congestion_control: Some(first), ..Policy::default() }, Ipv4Addr::UNSPECIFIED.into());
    }
}

/// Sends by a timer for each packet train, without the fq queue.
const PACED_BY_TIMERS: &str = "bbr";
/// Best first. reno is always allowed; cubic by default.
const NEAR_CHOICES: [&str; 2] = ["cubic", "reno"];

fn hosts_choice(now: &str) -> String {
    match &host::recent_limits().congestion_control {
        Some(default) if default == PACED_BY_TIMERS && NEAR_CHOICES.contains(&now) => default.clone(),
        _ => now.to_owned(),
    }
}

fn peer_of(stream: &TcpStream) -> IpAddr {
    // Without a peer the connection is over.
    stream.peer_addr().map_or(Ipv4Addr::UNSPECIFIED.into(), |address| address.ip().to_canonical())
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};
    use std::sync::{Mutex, mpsc};

    use super::super::{ClassList, NetworkClass};
    use super::*;
    use crate::dial::dial;
    use crate::door::{Caller, Door, DoorOptions, Greeter, Greeting};
    use crate::listen::Listener;
    use crate::stream::Stream;
    use crate::way::Way;

    const NEAR_RTT_US: u32 = 5_000;

    fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    fn cc(name: &str) -> Wanted {
        Wanted { congestion_control: Some(name.to_owned()), ..Wanted::default() }
    }

    fn congestion_control_of(applied: &[Applied]) -> &Applied {
        applied.iter().find(|applied| applied.what == "congestion control").unwrap()
    }

    #[test]
    fn a_near_path_avoids_pacing_by_timers() {
        let (near, far) = connected();
        for stream in [&near, &far] {
            let applied = Wanted::default().apply(stream, NEAR_RTT_US);
            let granted = &congestion_control_of(&applied).granted;
            assert_ne!(granted, PACED_BY_TIMERS, "{applied:#?}");
            assert_eq!(granted, &socket::congestion_control(stream).unwrap());
            assert!(applied.iter().any(|applied| applied.granted == "30000 ms"), "{applied:#?}");
        }
    }

    #[test]
    fn the_users_name_wins() {
        let (near, _far) = connected();
        let applied = cc("reno").apply(&near, NEAR_RTT_US);
        assert_eq!(congestion_control_of(&applied).granted, "reno");
    }

    #[test]
    fn a_refused_name_is_told_with_the_setting_that_lifts_it() {
        let (near, _far) = connected();
        let host = socket::congestion_control(&near).unwrap();
        let applied = cc("no-such").apply(&near, NEAR_RTT_US);
        let applied = congestion_control_of(&applied);
        assert_eq!((applied.asked.as_str(), &applied.granted), ("no-such", &host));
        assert!(applied.falls_short && applied.reason.contains("tcp_allowed_congestion_control"), "{applied:?}");
    }

    #[test]
    fn a_window_that_was_asked_for_is_granted_or_told() {
        let (near, _far) = connected();
        let wanted = Wanted { window_bytes: Some(100_000), ..Wanted::default() };
        let applied = wanted.apply(&near, NEAR_RTT_US);
        let buffers: Vec<&str> =
            applied.iter().filter(|applied| applied.asked == "100000 bytes").map(|applied| &*applied.granted).collect();
        assert_eq!(buffers, ["100000 bytes"; 2], "{applied:#?}");
        assert_eq!(socket::send_buffer_bytes(&near).unwrap(), 200_000);
        assert!(applied.iter().all(|applied| !applied.falls_short), "{applied:#?}");
    }

    #[test]
    fn near_ends_where_it_is_told_to() {
        assert_eq!(Distance::of_rtt(NEAR_RTT_US - 1, NEAR_RTT_US), Distance::Near);
        assert_eq!(Distance::of_rtt(NEAR_RTT_US, NEAR_RTT_US), Distance::Far);
    }

    fn table(rows: [(&str, Policy); 2]) -> Networks {
        let mut list = ClassList::default();
        for (prefix, policy) in rows {
            let (name, file) = (prefix.to_owned(), Some(std::path::Path::new("networks.toml").into()));
            let class = NetworkClass { name, policy, file, ..NetworkClass::default() };
            list.add(class, &[prefix.parse().unwrap()], &[]).unwrap();
        }
        Networks::only(vec![list])
    }

    fn marked(dscp: u8) -> Policy {
        Policy { dscp: Dscp::new(dscp), ..Policy::default() }
    }

    fn mark_of(socket: &TcpStream) -> u8 {
        socket::dscp(socket, socket::Family::V4).unwrap()
    }

    #[test]
    fn two_networks_get_two_policies_when_they_are_dialled() {
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let impossible = Policy { congestion_control: Some(CongestionControl::named("no-such")), ..marked(1) };
        let (says, heard) = mpsc::channel();
        let says = Mutex::new(says);
        let policies = Policies::new(table([("127.0.0.0/8", marked(46)), ("127.0.2.0/24", impossible)]))
            .telling(move |granted| says.lock().unwrap().send(granted.clone()).unwrap());
        let dialled =
            |ip: [u8; 4]| dial(&[(ip, port).into()], Duration::from_secs(5), &policies, &Way::default(), None).unwrap();
        let (near, other) = (dialled([127, 0, 0, 1]), dialled([127, 0, 2, 1]));
        assert_eq!((mark_of(&near), mark_of(&other)), (46, 1));
        let (first, second) = (heard.try_recv().unwrap(), heard.try_recv().unwrap());
        assert_eq!(first.class.as_deref(), Some("127.0.0.0/8"));
        assert_eq!(first.falls_short().count(), 0, "{first:#?}");
        let told: Vec<&Applied> = second.falls_short().collect();
        let [short] = told[..] else { panic!("{second:#?}") };
        assert_eq!((short.what, short.asked.as_str()), ("congestion control", "no-such"));
        assert_eq!(short.granted, socket::congestion_control(&other).unwrap());
        assert!(short.reason.contains("network class 127.0.2.0/24"), "{short}");
        let patience = Wanted { user_timeout: Some(Duration::from_secs(62)), ..Wanted::default() };
        policies.for_data(&other, &patience, NEAR_RTT_US);
        assert_eq!(socket::user_timeout_ms(&other).unwrap(), 62_000, "readers of the web may pause for longer");
        let _ = heard.try_recv();
        let wanted = Wanted { policies: Arc::new(policies), ..cc("reno") };
        let applied = wanted.apply(&other, NEAR_RTT_US);
        assert_eq!(congestion_control_of(&applied).granted, "reno", "the user's name wins");
        assert_eq!(mark_of(&other), 1);
        assert!(applied.iter().any(|applied| applied.what == "TCP_USER_TIMEOUT" && applied.granted == "30000 ms"));
        assert_eq!(heard.try_recv().unwrap().settings, applied);
        assert!(!socket::sends_messages_soon(&other).unwrap());
        wanted.apply_for_requests(&other, NEAR_RTT_US);
        assert!(socket::sends_messages_soon(&other).unwrap(), "who asks for data sends words");
        assert_eq!(congestion_control_of(&heard.try_recv().unwrap().settings).granted, "reno");
        wanted.policies.for_words(&near, NEAR_RTT_US);
        assert_eq!(mark_of(&near), 46);
        assert_eq!(socket::user_timeout_ms(&near).unwrap(), 0, "messages have no time-out by haul's own choice");
    }

    #[test]
    fn two_networks_get_two_policies_when_they_are_accepted() {
        let listener = Listener::bind(None, None).unwrap();
        let patience = Policy { user_timeout: Some(UserTimeout(Duration::from_secs(7))), ..marked(10) };
        let policies = Policies::new(table([("127.0.0.1/32", patience), ("127.0.0.2/32", marked(20))]));
        let options = DoorOptions { policies: Arc::new(policies), ..DoorOptions::default() };
        let (tells, arrivals) = mpsc::channel();
        let (tells, port) = (Mutex::new(tells), listener.port());
        let _door = Door::open(listener, Anybody(tells), &options).unwrap();
        let accepted = |last: u8| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.bind(&SocketAddr::from(([127, 0, 0, last], 0)).into()).unwrap();
            socket.connect(&SocketAddr::from(([127, 0, 0, 1], port)).into()).unwrap();
            arrivals.recv_timeout(Duration::from_secs(20)).unwrap()
        };
        let streams = [accepted(1), accepted(2), accepted(3)];
        let socket = |at: usize| streams[at].tcp().unwrap();
        assert_eq!([0, 1, 2].map(|at| mark_of(socket(at))), [10, 20, 0]);
        assert_eq!([0, 1, 2].map(|at| socket::user_timeout_ms(socket(at)).unwrap()), [7_000, 0, 0]);
        streams[0].tune(&Wanted::default(), NEAR_RTT_US);
        streams[1].tune(&Wanted::default(), NEAR_RTT_US);
        streams[2].tune_for_words(NEAR_RTT_US);
        assert_eq!([0, 1, 2].map(|at| socket::user_timeout_ms(socket(at)).unwrap()), [7_000, 30_000, 30_000]);
        assert_eq!([0, 1, 2].map(|at| socket::sends_messages_soon(socket(at)).unwrap()), [false, false, true]);
    }

    struct Anybody(Mutex<mpsc::Sender<Stream>>);

    impl Greeter for Anybody {
        type Guest = Stream;

        fn greet(&self, caller: &Caller) -> Greeting<Stream> {
            Greeting::Admitted(Stream::of(caller))
        }

        fn receive(&self, guest: Stream, _: &Caller) {
            self.0.lock().unwrap().send(guest).unwrap();
        }
    }
}
