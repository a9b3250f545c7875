//! Tests control channels over several links that are cut, fall silent, and come back.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use haul_job::{Event, Fault, Observer};
use haul_net::{ReadHalf, Stream, WriteHalf};
use haul_wire::codec;
use haul_wire::control::{Control, Notice};
use proptest::prelude::*;

use haul_channel::channel::{Channel, Events, Health, PING_EVERY, SessionEvent};
use haul_channel::links::MAX_LINKS;

const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Default)]
pub struct Fate(Arc<AtomicU8>);

const CUT: u8 = 1;
const SWALLOW: u8 = 2;

impl Fate {
    pub fn cut(&self) {
        self.0.store(CUT, Ordering::Release);
    }

    pub fn swallow(&self) {
        self.0.store(SWALLOW, Ordering::Release);
    }

    fn get(&self) -> u8 {
        self.0.load(Ordering::Acquire)
    }

    pub fn link(&self, bytes: usize) -> (Stream, Stream) {
        let (near, before) = Stream::plain_pair().unwrap();
        let (behind, far) = Stream::plain_pair().unwrap();
        let ends = [before.shutdown_handle(), behind.shutdown_handle()];
        let ((from_near, to_near), (from_far, to_far)) = (before.split(), behind.split());
        for (from, to) in [(from_near, to_far), (from_far, to_near)] {
            let (fate, ends) = (self.clone(), ends.clone());
            std::thread::spawn(move || {
                fate.pass(from, to, bytes);
                ends.iter().for_each(haul_net::ShutdownHandle::shutdown);
            });
        }
        let fate = self.clone();
        std::thread::spawn(move || {
            while fate.get() != CUT && !ends[0].is_shut_down() {
                std::thread::sleep(Duration::from_millis(1));
            }
            ends.iter().for_each(haul_net::ShutdownHandle::shutdown);
        });
        (near, far)
    }

    fn pass(&self, mut from: ReadHalf, mut to: WriteHalf, bytes: usize) {
        let (mut block, mut passed) = ([0; 5000], 0);
        while let Ok(read @ 1..) = from.read(&mut block) {
            match self.get() {
                CUT => return,
                SWALLOW => continue,
                _ => {}
            }
            let keep = read.min(bytes - passed);
            passed += keep;
            if to.write_all(&block[..keep]).is_err() || passed == bytes {
                return;
            }
        }
    }
}

struct End {
    channel: Channel,
    events: Events,
    heard: Vec<Control>,
    ended: Option<Option<String>>,
}

impl End {
    fn on(stream: Stream, ping_every: Duration) -> Self {
        let events = Events::new();
        let channel = Channel::open(stream, events.sender(), ping_every).unwrap();
        channel.set_attended();
        Self { channel, events, heard: Vec::new(), ended: None }
    }

    fn listen(&mut self, limit: Duration) {
        let mut limit = limit;
        while let Some(event) = self.events.next(limit) {
            limit = Duration::ZERO;
            match event {
                SessionEvent::Control(message) => self.heard.push(message),
                SessionEvent::ControlEnded(why) => self.ended = Some(why),
                _ => panic!("a channel brings no lanes"),
            }
        }
    }

    fn has_lost_all(&self) -> bool {
        matches!(self.channel.attend(Duration::ZERO).1, Health::Lost(_))
    }

    fn says(&self, messages: &[Control]) {
        messages.iter().for_each(|message| self.channel.outbox().send(message.clone()));
    }
}

fn ends(fate: &Fate, bytes: usize) -> (End, End) {
    let (near, far) = fate.link(bytes);
    (End::on(near, PING_EVERY), End::on(far, PING_EVERY))
}

fn add_link(near: &End, far: &End, fate: &Fate, bytes: usize) {
    let (one, two) = fate.link(bytes);
    near.channel.add_link(one, false);
    far.channel.add_link(two, true);
}

fn words(count: u64) -> Vec<Control> {
    (0..count).map(|index| Control::Again { index, chunk: 7 }).collect()
}

fn until(near: &mut End, far: &mut End, mut done: impl FnMut(&mut End, &mut End) -> bool) {
    let begun = Instant::now();
    loop {
        near.listen(Duration::from_millis(2));
        far.listen(Duration::ZERO);
        if done(near, far) {
            return;
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "{} and {} messages came; {:?}, {:?}",
            near.heard.len(),
            far.heard.len(),
            near.channel.attend(Duration::ZERO).1,
            far.channel.attend(Duration::ZERO).1
        );
    }
}

fn close(ends: [End; 2]) {
    ends.iter().for_each(|end| end.channel.close(Duration::ZERO));
}

#[derive(Clone, Debug)]
struct Burst {
    sizes: Vec<usize>,
    moves: bool,
    adds: bool,
}

fn bursts() -> impl Strategy<Value = Vec<Burst>> {
    let sizes = proptest::collection::vec(prop_oneof![4 => 0..200usize, 1 => 0..4000usize], 0..60);
    let burst = (sizes, any::<bool>(), any::<bool>());
    proptest::collection::vec(burst.prop_map(|(sizes, moves, adds)| Burst { sizes, moves, adds }), 1..12)
}

fn messages(bursts: &[Burst], whose: &str) -> Vec<Vec<Control>> {
    let mut number = 0;
    let mut message = |size: usize| {
        number += 1;
        Control::Notice(Notice::Warning { text: format!("{whose}{number}{}", "x".repeat(size)) })
    };
    bursts.iter().map(|burst| burst.sizes.iter().map(|size| message(*size)).collect()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn whatever_becomes_of_the_links_each_message_arrives_once_and_in_its_order(
        (ours, theirs) in (bursts(), bursts()),
        cuts in proptest::collection::vec(1..30_000usize, 12),
    ) {
        let mut cuts = cuts.into_iter();
        let mut link_bytes = move || cuts.next().unwrap_or(usize::MAX);
        let fate = Fate::default();
        let (mut near, mut far) = ends(&fate, link_bytes());
        let (from_near, from_far) = (messages(&ours, "near "), messages(&theirs, "far "));
        for turn in 0..ours.len().max(theirs.len()) {
            for (end, bursts, said) in [(&near, &ours, &from_near), (&far, &theirs, &from_far)] {
                if let Some((burst, said)) = bursts.get(turn).zip(said.get(turn)) {
                    end.says(said);
                    if let Some(speaks_on) = end.channel.speaks_on().filter(|_| burst.moves) {
                        end.channel.avoid(speaks_on);
                    }
                    if burst.adds {
                        add_link(&near, &far, &fate, link_bytes());
                    }
                }
            }
            near.listen(Duration::from_millis(1));
            far.listen(Duration::ZERO);
        }
        let (from_near, from_far) = (from_near.concat(), from_far.concat());
        until(&mut near, &mut far, |near, far| {
            if near.has_lost_all() || far.has_lost_all() {
                add_link(near, far, &fate, link_bytes());
                std::thread::sleep(Duration::from_millis(5));
            }
            assert_eq!((&near.ended, &far.ended), (&None, &None));
            near.heard.len() >= from_far.len() && far.heard.len() >= from_near.len()
        });
        prop_assert!(near.heard == from_far && far.heard == from_near);
        close([near, far]);
    }
}

#[test]
fn a_link_that_swallows_everything_is_left_and_nothing_is_missing() {
    let (first, second) = (Fate::default(), Fate::default());
    let (mut near, mut far) = ends(&first, usize::MAX);
    add_link(&near, &far, &second, usize::MAX);
    near.says(&words(10));
    until(&mut near, &mut far, |_, far| far.heard.len() == 10);
    first.swallow();
    let begun = Instant::now();
    near.says(&words(10));
    far.says(&words(10));
    until(&mut near, &mut far, |near, far| near.heard.len() == 10 && far.heard.len() == 20);
    assert!(begun.elapsed() >= Duration::from_millis(500), "it was not given up at the first late ping");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert!(near.channel.speaks_on() == far.channel.speaks_on());
    assert!(near.channel.silence() < Duration::from_secs(1));
    close([near, far]);
}

#[test]
fn who_notices_alone_that_a_link_is_dead_takes_the_other_end_along() {
    let (first, second) = (Fate::default(), Fate::default());
    let (mut near, mut far) = ends(&first, usize::MAX);
    add_link(&near, &far, &second, usize::MAX);
    until(&mut near, &mut far, |near, _| {
        near.channel.avoid(near.channel.speaks_on().unwrap());
        near.channel.speaks_on() != Some(haul_channel::channel::LinkId::FIRST)
    });
    until(&mut near, &mut far, |near, far| near.channel.speaks_on() == far.channel.speaks_on());
    close([near, far]);
}

#[test]
fn all_links_are_gone_for_a_while_and_what_was_said_meanwhile_arrives() {
    let fate = Fate::default();
    let (mut near, mut far) = ends(&fate, usize::MAX);
    add_link(&near, &far, &fate, usize::MAX);
    near.says(&words(100));
    fate.cut();
    until(&mut near, &mut far, |near, far| near.has_lost_all() && far.has_lost_all());
    far.says(&words(50));
    assert_eq!((&near.ended, &far.ended), (&None, &None));
    let fate = Fate::default();
    add_link(&near, &far, &fate, usize::MAX);
    until(&mut near, &mut far, |near, far| near.heard == words(50) && far.heard == words(100));
    [&near, &far].iter().for_each(|end| end.channel.give_up());
    fate.cut();
    until(&mut near, &mut far, |near, far| near.ended.is_some() && far.ended.is_some());
    close([near, far]);
}

#[test]
fn a_link_that_the_peer_ends_without_a_word_is_refused_and_carries_nothing() {
    let fate = Fate::default();
    let (mut near, mut far) = ends(&fate, usize::MAX);
    let (one, two) = Stream::plain_pair().unwrap();
    let id = near.channel.add_link(one, false).unwrap();
    assert_eq!(near.channel.proof(id, Duration::from_millis(10)), haul_channel::channel::Proof::Silent);
    drop(two);
    assert_eq!(near.channel.proof(id, PATIENCE), haul_channel::channel::Proof::Refused);
    near.says(&words(10));
    until(&mut near, &mut far, |_, far| far.heard.len() == 10);
    close([near, far]);
}

#[test]
fn a_peer_that_brings_links_without_end_has_a_few_of_them() {
    let fate = Fate::default();
    let (mut near, mut far) = ends(&fate, usize::MAX);
    let mut peers = Vec::new();
    for _ in 0..10 * MAX_LINKS {
        let (one, two) = Stream::plain_pair().unwrap();
        near.channel.add_link(one, true);
        peers.push(two);
        assert!(near.channel.links() <= MAX_LINKS);
    }
    far.says(&words(10));
    until(&mut near, &mut far, |near, _| near.heard.len() == 10);
    close([near, far]);
}

#[test]
fn a_gap_and_a_confirmation_of_what_was_never_said_break_the_protocol() {
    let frame = |number: u64, message: &Control| {
        let mut bytes = number.to_be_bytes().to_vec();
        codec::encode(message, &mut bytes).unwrap();
        bytes
    };
    let word = Control::Again { index: 0, chunk: 7 };
    for (bytes, why) in [
        (frame(1, &word), "message 1 came before 0"),
        (frame(u64::MAX, &word), "came before 0"),
        (frame(0, &Control::Ping { received: 1, turn: 0, sent_us: 0 }), "never sent"),
        (vec![0; 12], "control frame of 0 bytes"),
    ] {
        let fate = Fate::default();
        let (mut near, mut far) = ends(&fate, usize::MAX);
        let (one, mut two) = Stream::plain_pair().unwrap();
        near.channel.add_link(one, true);
        two.write_all(&bytes).and_then(|()| two.flush()).unwrap();
        until(&mut near, &mut far, |near, _| near.ended.is_some());
        let said = near.ended.clone().flatten().unwrap_or_default();
        assert!(said.contains(why), "{said:?}");
        close([near, far]);
    }
}

fn ends_after(stream: Stream, peer: Stream, end_of_peer: impl FnOnce(Stream)) -> Duration {
    let (dial_owner, events) = (haul_reach::dial_threads::DialThreadsOwner::new(), Events::new());
    let channel = Channel::open(stream, events.sender(), PING_EVERY).unwrap();
    channel.set_dialled();
    haul_reach::attach::keep(&channel, &dial_owner.threads(), || None).unwrap();
    let (lane, lane_peer) = Stream::plain_pair().unwrap();
    let _carried = events.sender().carries(lane.probe());
    let begun = Instant::now();
    drop(peer);
    end_of_peer(lane_peer);
    assert!(matches!(events.next(PATIENCE), Some(SessionEvent::ControlEnded(None))));
    channel.close(Duration::ZERO);
    begun.elapsed()
}

#[test]
fn who_was_killed_is_told_from_one_whose_ssh_has_died() {
    const WAITS: Duration = Duration::from_millis(700);
    let lane_ends_later = |lane: Stream| {
        std::thread::sleep(WAITS);
        drop(lane);
    };
    let (pipe, peer) = Stream::plain_pair().unwrap();
    assert!(ends_after(pipe, peer, lane_ends_later) >= WAITS, "a lane lived, and a link might have come");
    let (pipe, peer) = Stream::plain_pair().unwrap();
    assert!(ends_after(pipe, peer, drop) < WAITS);
    // Only the process itself ends a direct connection.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = Stream::plain_tcp(std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap());
    let direct = Stream::plain_tcp(listener.accept().unwrap().0);
    let mut held = None;
    assert!(ends_after(direct, peer, |lane| held = Some(lane)) < WAITS);
}

type Act = (u64, Box<dyn FnOnce() + Send>);

#[derive(Default)]
pub struct Watcher {
    at: std::sync::Mutex<Option<Act>>,
}

impl Watcher {
    fn acting(bytes: u64, act: impl FnOnce() + Send + 'static) -> Self {
        Self { at: std::sync::Mutex::new(Some((bytes, Box::new(act)))) }
    }
}

impl Observer for Watcher {
    fn on_event(&self, event: &Event) {
        let Event::Progress(progress) = event else { return };
        let mut at = self.at.lock().unwrap();
        if let Some((_, act)) = at.take_if(|(bytes, _)| progress.bytes_moved >= *bytes) {
            act();
        }
    }

    fn interrupted(&self) -> bool {
        false
    }
}

mod jobs {
    use std::thread::JoinHandle;

    use haul_job::{Error, Far, Job, Report};
    use haul_net::{Door, Identity};

    use super::*;
    use crate::scenarios::Bench;
    use haul_channel::grant::Grant;
    use haul_channel::id;
    use haul_channel::reporter::Watch;
    use haul_kept::surroundings::Surroundings;
    use haul_reach::lane_door;
    use haul_reach::lane_rendezvous::LaneRendezvous;
    use haul_reach::remote::Remote;
    use haul_transfer::joined::{Joined, Side};
    use haul_transfer::order::Order;
    use haul_transfer::serving::{Ports, serve_control};

    const FILE_BYTES: usize = 30_000_000;

    struct FarSide {
        end: JoinHandle<Result<(), Error>>,
        near: Stream,
        door: Option<Door>,
    }

    fn far_side(fate: &Fate) -> FarSide {
        let (near, far) = fate.link(usize::MAX);
        let (identity, rendezvous) = (Arc::new(Identity::generate().unwrap()), Arc::new(LaneRendezvous::default()));
        let door = lane_door::open_door(&identity, &rendezvous, None, Arc::default()).unwrap();
        let ports = Ports { open: door.port(), ..Ports::default() };
        let end = std::thread::spawn(move || {
            serve_control(far, &identity, &rendezvous, ports, &Grant::default(), &Surroundings::default(), None)
        });
        FarSide { end, near, door: Some(door) }
    }

    fn job(bench: &Bench) -> Job {
        bench.write("file", FILE_BYTES);
        (0..50).for_each(|number| bench.write(&format!("d/small{number}"), 1000 + number));
        let mut job = bench.job();
        (job.carriage.lanes, job.carriage.timeout) = (Some(2), Duration::from_secs(15));
        job.carriage.rate_bytes_per_s = Some(15_000_000);
        job
    }

    fn run(job: &Job, side: Side, near: Stream, watcher: Watcher) -> Result<Report, Error> {
        run_as(job, side, near, watcher, id::random_id().unwrap())
    }

    fn run_as(job: &Job, side: Side, near: Stream, watcher: Watcher, session: [u8; 16]) -> Result<Report, Error> {
        let watch = Arc::new(Watch::new(Arc::new(watcher)));
        let place = Far::Ssh { user: None, host: "dtn".into(), port: None };
        let remote = Remote::meet(&place, near, session, Events::new(), &watch)?;
        let order = Order { job, surroundings: &Surroundings::default(), watch: &watch, hash_kept: false };
        let mut joined = Joined::new(remote, side, None, &watch);
        let ends = joined.run(order, false);
        joined.close();
        let ends = ends?;
        Ok(watch.report(&ends, Default::default(), false).unwrap())
    }

    #[test]
    fn the_control_connection_is_cut_in_the_middle_and_the_job_ends_well() {
        let ends_well = |side, swallow: bool| {
            let bench = Bench::new();
            let (fate, job) = (Fate::default(), job(&bench));
            let far = far_side(&fate);
            let watcher = Watcher::acting(FILE_BYTES as u64 / 4, move || match swallow {
                true => fate.swallow(),
                false => fate.cut(),
            });
            let report = run(&job, side, far.near, watcher).unwrap();
            far.end.join().unwrap().unwrap();
            bench.assert_equal();
            assert_eq!((report.files_moved, report.failed), (51, 0), "{report:?}");
        };
        std::thread::scope(|scope| {
            for side in [Side::Sender, Side::Receiver] {
                for swallow in [false, true] {
                    scope.spawn(move || ends_well(side, swallow));
                }
            }
        });
    }

    /// The stranger knows the session and proves another key.
    #[test]
    fn a_stranger_brings_no_link_of_a_session() {
        let bench = Bench::new();
        let fate = Fate::default();
        let far = far_side(&fate);
        let (session, port) = (id::random_id().unwrap(), far.door.as_ref().unwrap().port());
        let (tells, told) = std::sync::mpsc::sync_channel(1);
        let watcher = Watcher::acting(FILE_BYTES as u64 / 4, move || {
            let socket = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
            let stranger = Arc::new(Identity::generate().unwrap());
            let ciphers = haul_net::preferred_ciphers(None);
            let (mut link, _) = haul_net::client(socket, &stranger, |_| true, &ciphers).unwrap();
            let hello = haul_wire::lane::Hello::Link { session };
            link.write_all(&hello.encode()).and_then(|()| link.flush()).unwrap();
            link.set_deadline(Some(PATIENCE)).unwrap();
            tells.send(link.read(&mut [0; 1]).map_or(0, |read| read)).unwrap();
        });
        run_as(&job(&bench), Side::Sender, far.near, watcher, session).unwrap();
        far.end.join().unwrap().unwrap();
        assert_eq!(told.recv().unwrap(), 0, "it heard something");
        bench.assert_equal();
    }

    /// The port is closed, as after the end of the process, while the lanes live on.
    #[test]
    fn a_far_side_that_cannot_be_dialled_any_more_is_given_up_at_once() {
        let bench = Bench::new();
        let (fate, mut job) = (Fate::default(), job(&bench));
        job.carriage.timeout = PATIENCE;
        let mut far = far_side(&fate);
        let door = far.door.take();
        let watcher = Watcher::acting(FILE_BYTES as u64 / 4, move || {
            drop(door);
            fate.cut();
        });
        let begun = Instant::now();
        let error = run(&job, Side::Sender, far.near, watcher).unwrap_err();
        assert_eq!(error.fault, Fault::Network, "{error:?}");
        let error = far.end.join().unwrap().unwrap_err();
        assert_eq!(error.fault, Fault::Network, "{error:?}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    }
}
