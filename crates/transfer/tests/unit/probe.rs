//! Tests both ends of a probe over loopback and socket pairs, and peers that break the rules.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use haul_net::Stream;
use haul_wire::control::{Control, Notice, ProbeArrived, ProbeSent};
use haul_wire::lane::lane_of;

use haul_channel::channel::{Channel, Events, LaneEvent, PING_EVERY, SessionEvent};
use haul_channel::lane_threads::NoKeeper;
use haul_channel::role_context::RoleContext;

use super::*;

const TIME: Duration = Duration::from_millis(600);

struct Person(Arc<AtomicBool>);

impl Observer for Person {
    fn on_event(&self, _: &Event) {}

    fn interrupted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

struct Bench {
    events: Events,
    channel: Channel,
    interrupt: Arc<AtomicBool>,
}

impl Bench {
    fn on(stream: Stream) -> Self {
        let events = Events::new();
        let channel = Channel::open(stream, events.sender(), PING_EVERY).unwrap();
        Self { events, channel, interrupt: Arc::default() }
    }

    fn pair() -> (Self, Self) {
        let (one, two) = Stream::plain_pair().unwrap();
        (Self::on(one), Self::on(two))
    }

    fn lane(&self, stream: Stream, lane: u16) {
        self.events.sender().send(SessionEvent::Lane(LaneEvent::Up(stream, lane))).unwrap();
    }

    fn start(self, side: Side) -> JoinHandle<Result<Measures, Error>> {
        std::thread::spawn(move || {
            let watch = Arc::new(Watch::new(Arc::new(Person(self.interrupt))));
            let carriage = wire::Carriage { timeout_ms: 3_000, ..wire::Carriage::default() };
            let mut on_other_message = |message: Control| Err(haul_kept::faults::unexpected(&message));
            let permits = haul_kept::class_policy::Permits::default();
            let terms = Terms { side, time: TIME, carriage, permits };
            session::run(
                terms,
                RoleContext {
                    events: self.events,
                    channel: &self.channel,
                    watch: &watch,
                    keeper: &mut NoKeeper,
                    on_other_message: &mut on_other_message,
                },
            )
        })
    }
}

fn tcp_pair() -> (Stream, Stream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (Stream::plain_tcp(one), Stream::plain_tcp(listener.accept().unwrap().0))
}

struct Peer {
    channel: Channel,
    events: Events,
}

impl Peer {
    fn facing(side: Side) -> (Self, JoinHandle<Result<Measures, Error>>, Stream) {
        let (own, other) = Bench::pair();
        let (lane, far) = Stream::plain_pair().unwrap();
        other.lane(lane, 0);
        (Self { channel: own.channel, events: own.events }, other.start(side), far)
    }

    fn says(&self, message: Control) {
        self.channel.outbox().send(message);
    }

    fn hears(&self, wanted: impl Fn(&Control) -> bool) {
        loop {
            match self.events.next(Duration::from_secs(20)) {
                Some(SessionEvent::Control(message)) if wanted(&message) => return,
                Some(SessionEvent::ControlEnded(_)) | None => panic!("it never came"),
                Some(_) => {}
            }
        }
    }
}

fn ended(end: JoinHandle<Result<Measures, Error>>) -> Error {
    match end.join().unwrap() {
        Ok(_) => panic!("it went well"),
        Err(error) => error,
    }
}

#[test]
fn both_ends_agree_on_what_moved_each_way() {
    let (initiator, agent) = Bench::pair();
    for lane in 0..2 {
        let (one, two) = tcp_pair();
        initiator.lane(one, lane);
        agent.lane(two, lane);
    }
    let (initiator, agent) = (initiator.start(Side::Initiator), agent.start(Side::Agent));
    let (here, there) = (initiator.join().unwrap().unwrap(), agent.join().unwrap().unwrap());
    assert_eq!((&here.there, &here.back), (&there.there, &there.back));
    // The last acknowledged bytes may still be in the reader's socket when the count is made.
    assert!(here.bytes_moved >= here.there.1.arrived_bytes + here.back.1.arrived_bytes);
    let host = Host::default();
    for measured in [here.there, here.back] {
        let way = way(&host, &host, measured, Asked::default(), LanePath::Direct);
        assert!(way.bytes_per_s > 1_000_000 && way.arrived_bytes > 1_000_000, "{way:?}");
        assert!(way.path.rtt_min_us > 0 && way.mtu_bytes > way.segment_bytes && way.segment_bytes > 500, "{way:?}");
        assert!(way.limit.is_some(), "{way:?}");
    }
}

#[test]
fn what_arrived_is_divided_among_the_paths_as_they_delivered() {
    let (initiator, agent) = Bench::pair();
    for path in 0..2 {
        let (one, two) = tcp_pair();
        initiator.lane(one, lane_of(path, 0));
        agent.lane(two, lane_of(path, 0));
    }
    let (initiator, agent) = (initiator.start(Side::Initiator), agent.start(Side::Agent));
    let (here, _) = (initiator.join().unwrap().unwrap(), agent.join().unwrap().unwrap());
    for measured in [here.there, here.back] {
        let way = way(&Host::default(), &Host::default(), measured, Asked::default(), LanePath::Direct);
        assert_eq!(way.paths.iter().map(|one| one.path.number).collect::<Vec<_>>(), [0, 1]);
        let parts: u64 = way.paths.iter().map(|one| one.bytes_per_s).sum();
        assert!(parts.abs_diff(way.bytes_per_s) <= 2, "{way:?}");
    }
    // A peer that leaves figures out, or says too much, breaks nothing.
    let paths = vec![OnePath::default(), OnePath { number: 1, ..OnePath::default() }];
    for steady_bytes in [vec![], vec![u64::MAX], vec![u64::MAX; 8]] {
        let sender = wire::SenderSummary { paths: paths.clone(), ..wire::SenderSummary::default() };
        let sent = ProbeSent { sender, steady_bytes, ..ProbeSent::default() };
        assert!(each_way(&sent, u64::MAX).iter().all(|one| one.path.number < 2));
    }
}

#[test]
fn lanes_that_are_no_tcp_are_counted_though_nothing_is_known_of_the_path() {
    let (initiator, agent) = Bench::pair();
    let (one, two) = Stream::plain_pair().unwrap();
    initiator.lane(one, 0);
    agent.lane(two, 0);
    let (initiator, agent) = (initiator.start(Side::Initiator), agent.start(Side::Agent));
    let found = initiator.join().unwrap().unwrap();
    agent.join().unwrap().unwrap();
    assert!(found.there.1.steady_bytes_per_s > 0 && found.back.1.steady_bytes_per_s > 0);
    assert_eq!((found.there.0.mtu_bytes, found.there.0.jitter_us), (0, 0));
}

#[test]
fn an_interruption_ends_both_ends() {
    let (initiator, agent) = Bench::pair();
    let (one, two) = tcp_pair();
    initiator.lane(one, 0);
    agent.lane(two, 0);
    initiator.interrupt.store(true, Ordering::Relaxed);
    let (initiator, agent) = (initiator.start(Side::Initiator), agent.start(Side::Agent));
    let error = ended(initiator);
    assert_eq!(error.fault, Fault::Interrupted);
    assert!(error.hint.unwrap().contains("leaves nothing behind"));
    assert_eq!(ended(agent).fault, Fault::Interrupted);
}

#[test]
fn a_peer_that_goes_away_ends_it() {
    let (peer, end, lane) = Peer::facing(Side::Agent);
    drop(lane);
    peer.channel.close(Duration::from_secs(1));
    let error = ended(end);
    assert_eq!(error.fault, Fault::Network);
    assert!(error.hint.unwrap().contains("leaves nothing behind"));
}

#[test]
fn a_peer_that_only_says_it_is_alive_is_not_waited_for() {
    let (_peer, end, _lane) = Peer::facing(Side::Agent);
    let error = ended(end);
    assert_eq!((error.fault, error.what.as_str()), (Fault::Timeout, "the far side sends nothing"));
}

#[test]
fn a_peer_that_does_not_stop_sending_is_cut_off() {
    let (_peer, end, mut lane) = Peer::facing(Side::Agent);
    let start = std::time::Instant::now();
    let sender = std::thread::spawn(move || while lane.write_all(&[0; 10_000]).is_ok() {});
    let error = ended(end);
    assert_eq!(error.cause.unwrap(), "it goes on sending after 0.6 s");
    assert!(start.elapsed() < TIME + Duration::from_secs(15));
    sender.join().unwrap();
}

#[test]
fn words_at_the_wrong_time_break_the_protocol() {
    let check = |side: Side, message: Control, name: &str| {
        let (peer, end, _lane) = Peer::facing(side);
        peer.says(message);
        let error = ended(end);
        assert_eq!((error.fault, error.cause.unwrap()), (Fault::Protocol, format!("unexpected message {name}")));
    };
    check(Side::Initiator, Control::ProbeSent(ProbeSent::default()), "ProbeSent");
    check(Side::Initiator, Control::ProbeArrived(ProbeArrived::default()), "ProbeArrived");
    check(Side::Agent, Control::ProbeArrived(ProbeArrived::default()), "ProbeArrived");
    check(Side::Agent, Control::EndOfManifest, "EndOfManifest");
}

#[test]
fn nobody_makes_a_sender_send_longer_than_agreed() {
    // A peer that reads nothing holds up the lane, not the end of the time.
    let (peer, end, _lane) = Peer::facing(Side::Initiator);
    let start = std::time::Instant::now();
    peer.says(Control::Notice(Notice::Warning { text: "go on".into() }));
    peer.hears(|message| matches!(message, Control::ProbeSent(_)));
    assert!(start.elapsed() >= TIME && start.elapsed() < TIME + Duration::from_secs(5));
    peer.channel.close(Duration::from_secs(1));
    assert_eq!(ended(end).fault, Fault::Network);
}
