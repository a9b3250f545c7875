//! Runs the lanes of one side of a session, each with its thread.

use std::collections::BTreeSet;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use haul_job::{Error, Fault};
use haul_net::{Applied, ShutdownHandle, Stream};
use haul_wire::control::{Control, Notice};
use haul_wire::lane::path_of;
use haul_wire::limits::MAX_LANES;

use crate::channel::{Channel, EventSender, LaneBack, LaneEnd};
use crate::farewell::FAREWELL;
use crate::lane_addresses::LaneAddresses;
use crate::reporter::Watch;
use haul_kept::hook_words::Outlet;
use haul_kept::sync::lock;

/// Brings lost lanes back, on the dialling side.
pub trait LaneKeeper: Send {
    /// Takes a lost lane.
    fn lane_lost(&mut self, lane: u16);

    /// Brings lanes of this path. Returns false if this side cannot.
    fn want(&mut self, path: u16, lanes: u16) -> bool;

    /// Sets new lanes' largest segment. Returns false if this side cannot.
    fn shrink(&mut self, path: u16, segment_bytes: u16) -> bool;

    /// Sets where new lanes of a path leave, and redials `lanes`; [`LaneEvent::Redialled`] answers. Returns false if this side
    /// cannot.
    fn leave_from(&mut self, path: u16, outlet: Outlet, lanes: &[u16]) -> bool;
}

/// The keeper of a side that does not dial.
pub struct NoKeeper;

impl LaneKeeper for NoKeeper {
    fn lane_lost(&mut self, _lane: u16) {}

    fn want(&mut self, _path: u16, _lanes: u16) -> bool {
        false
    }

    fn shrink(&mut self, _path: u16, _segment_bytes: u16) -> bool {
        false
    }

    fn leave_from(&mut self, _path: u16, _outlet: Outlet, _lanes: &[u16]) -> bool {
        false
    }
}

/// The lane threads that have not ended.
#[derive(Default)]
pub struct Running {
    count: Mutex<usize>,
    ended: Condvar,
    /// Lanes at the job's end are not cut: they may carry the next one.
    back: Mutex<BTreeSet<u64>>,
}

struct Alive {
    lane: u16,
    serial: u64,
    shutdown: ShutdownHandle,
}

/// A faulty line makes a lane without TLS break the protocol now and then; a peer that does it this often is hostile.
const MAX_BROKEN_LANES: usize = 16;

/// The lanes of one side.
pub struct Lanes {
    alive: Vec<Alive>,
    started: u64,
    /// Ended threads are joined early: each keeps its stack until then.
    threads: Vec<JoinHandle<()>>,
    running: Arc<Running>,
    none_since: Instant,
    given_up: Option<Error>,
    broken: Option<(usize, String)>,
    told_short: Vec<&'static str>,
    events: EventSender,
    watch: Arc<Watch>,
}

impl Lanes {
    /// Begins without lanes.
    pub fn new(events: EventSender, watch: Arc<Watch>) -> Self {
        Self {
            alive: Vec::new(),
            started: 0,
            told_short: Vec::new(),
            threads: Vec::new(),
            running: Arc::default(),
            none_since: Instant::now(),
            given_up: None,
            broken: None,
            events,
            watch,
        }
    }

    /// Starts a lane's thread. `carry` returns the lane for another job; an error: it ended early.
    pub fn start(
        &mut self,
        stream: Stream,
        lane: u16,
        carry: impl FnOnce(Stream) -> io::Result<Option<LaneBack>> + Send + 'static,
    ) -> Result<(), Error> {
        if self.alive.len() >= usize::from(MAX_LANES) && !self.alive.iter().any(|alive| alive.lane == lane) {
            // All paths together have a limit of their own.
            return Ok(());
        }
        let (shutdown, addresses) = (stream.shutdown_handle(), LaneAddresses::of(&stream));
        self.cut(lane);
        self.forget(lane);
        self.started += 1;
        let serial = self.started;
        let events = self.events.clone();
        let carried = events.carries(stream.probe());
        let running = Arc::clone(&self.running);
        *lock(&running.count) += 1;
        let thread = std::thread::Builder::new()
            .name(format!("lane-{lane}"))
            .spawn(move || {
                // A panic costs this lane, not the session: its units go back, and the panic hook reported it.
                let result = catch_unwind(AssertUnwindSafe(|| carry(stream)))
                    .unwrap_or_else(|_| Err(io::Error::other("the thread of this lane panicked")));
                let error = match result {
                    Ok(back) => {
                        if let Some(back) = back {
                            lock(&running.back).insert(serial);
                            events.lane_back(back);
                        }
                        None
                    }
                    Err(error) => Some(error),
                };
                drop(carried);
                *lock(&running.count) -= 1;
                running.ended.notify_all();
                events.lane_down(LaneEnd { lane, serial, error });
            })
            .map_err(|error| Error::new(Fault::FileIo, "cannot start a thread for a lane").because(error))?;
        self.alive.push(Alive { lane, serial, shutdown });
        self.threads.push(thread);
        self.watch.lane_up(path_of(lane), addresses);
        Ok(())
    }

    /// Notes a thread's end. Returns false if another lane has its number.
    pub fn ended(&mut self, end: &LaneEnd) -> bool {
        if let Some(error) = end.error.as_ref().filter(|error| error.kind() == io::ErrorKind::InvalidData) {
            let count = self.broken.as_ref().map_or(0, |(count, _)| *count) + 1;
            self.broken = Some((count, error.to_string()));
        }
        self.join_ended();
        let is_newest = !self.alive.iter().any(|alive| alive.lane == end.lane && alive.serial != end.serial);
        if is_newest {
            self.forget(end.lane);
        }
        if self.alive.is_empty() {
            self.none_since = Instant::now();
        }
        is_newest
    }

    fn forget(&mut self, lane: u16) {
        let before = self.alive.len();
        self.alive.retain(|alive| alive.lane != lane);
        (self.alive.len()..before).for_each(|_| self.watch.lane_down(path_of(lane)));
    }

    /// Warns both users once for each setting.
    pub fn tell_short(&mut self, short: &[Applied], host: &str, channel: &Channel) {
        for applied in short {
            if !self.told_short.contains(&applied.what) {
                self.told_short.push(applied.what);
                let notice = Notice::Warning { text: format!("{host}: {applied}") };
                self.watch.on_notice(notice.clone());
                channel.outbox().send(Control::Notice(notice));
            }
        }
    }

    /// Leaves out time in which the loop was busy.
    pub fn exclude_own_time(&mut self, busy: Duration) {
        self.none_since += busy;
    }

    fn join_ended(&mut self) {
        let (ended, running) = std::mem::take(&mut self.threads).into_iter().partition(JoinHandle::is_finished);
        self.threads = running;
        let ended: Vec<JoinHandle<()>> = ended;
        for thread in ended {
            let _ = thread.join();
        }
    }

    /// Ends a lane's thread.
    pub fn cut(&mut self, lane: u16) {
        self.cut_those(|alive| alive.lane == lane);
    }

    /// Ends the threads of a path.
    pub fn cut_path(&mut self, path: u16) {
        self.cut_those(|alive| path_of(alive.lane) == path);
    }

    fn cut_those(&self, which: impl Fn(&Alive) -> bool) {
        let back = lock(&self.running.back);
        let cut = self.alive.iter().filter(|alive| which(alive) && !back.contains(&alive.serial));
        cut.for_each(|alive| alive.shutdown.shutdown());
    }

    /// Notes that no lanes will come.
    pub fn give_up(&mut self, why: Error) {
        self.given_up = Some(why);
    }

    /// Fails if work remains, but no lane is left or will come.
    pub fn check(&self, has_work: bool, timeout: Duration) -> Result<(), Error> {
        if let Some((count, why)) = &self.broken
            && *count >= MAX_BROKEN_LANES
        {
            return Err(Error::broke_the_protocol(format!("on {count} lanes, last: {why}")));
        }
        if !self.alive.is_empty() || !has_work {
            return Ok(());
        }
        match &self.given_up {
            Some(error) => Err(error.clone()),
            None if self.none_since.elapsed() > timeout => {
                let error = Error::new(Fault::Timeout, "no data connection could be kept")
                    .try_this("run the same command again: what is verified is not sent again");
                Err(match &self.broken {
                    Some((_, why)) => error.because(format!("the last ones brought data that makes no sense: {why}")),
                    None => error,
                })
            }
            None => Ok(()),
        }
    }

    /// Ends all lanes at once.
    pub fn cut_all(&mut self) {
        self.cut_those(|_| true);
    }

    /// Joins the threads. Slow ones are cut: nothing is at stake any more.
    pub fn join(mut self) {
        let count = lock(&self.running.count);
        drop(self.running.ended.wait_timeout_while(count, FAREWELL, |count| *count > 0));
        self.cut_all();
        drop(self.events);
        // The session does not wait for a thread at a hung disk.
        let count = lock(&self.running.count);
        let left = self.running.ended.wait_timeout_while(count, FAREWELL, |count| *count > 0);
        let all_ended = *left.unwrap_or_else(PoisonError::into_inner).0 == 0;
        for thread in self.threads.into_iter().filter(|thread| all_ended || thread.is_finished()) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use haul_job::{Event, Observer};

    use super::*;
    use crate::channel::{Events, LaneEvent, PING_EVERY, SessionEvent};

    struct Deaf;

    impl Observer for Deaf {
        fn on_event(&self, _: &Event) {}

        fn interrupted(&self) -> bool {
            false
        }
    }

    #[test]
    fn lanes_that_come_and_go_leave_no_threads() {
        let events = Events::new();
        let mut lanes = Lanes::new(events.sender(), Arc::new(Watch::silent()));
        for _ in 0..200 {
            let (stream, _peer) = Stream::plain_pair().unwrap();
            lanes.start(stream, 0, |_stream| Ok(None)).unwrap();
            let Some(SessionEvent::Lane(LaneEvent::Down(end))) = events.next(FAREWELL) else {
                panic!("nobody was told")
            };
            assert!(end.error.is_none() && lanes.ended(&end));
        }
        assert!(lanes.threads.len() < 20, "{} threads", lanes.threads.len());
    }

    #[test]
    fn lanes_that_break_the_protocol_without_end_end_the_session() {
        let events = Events::new();
        let mut lanes = Lanes::new(events.sender(), Arc::new(Watch::silent()));
        for number in 0..MAX_BROKEN_LANES {
            assert!(lanes.check(true, FAREWELL).is_ok(), "after {number}");
            let (stream, _peer) = Stream::plain_pair().unwrap();
            let nonsense = io::Error::new(io::ErrorKind::InvalidData, "no such chunk");
            lanes.start(stream, 0, move |_stream| Err(nonsense)).unwrap();
            let Some(SessionEvent::Lane(LaneEvent::Down(end))) = events.next(FAREWELL) else {
                panic!("nobody was told")
            };
            assert!(lanes.ended(&end));
            if number == 0 {
                let error = lanes.check(true, Duration::ZERO).unwrap_err();
                assert_eq!(error.fault, Fault::Timeout);
                assert!(error.cause.unwrap().contains("no such chunk"));
            }
        }
        let error = lanes.check(true, FAREWELL).unwrap_err();
        assert_eq!(error.fault, Fault::Protocol, "{error:?}");
        assert!(error.cause.unwrap().contains("no such chunk"));
    }

    #[test]
    fn where_the_first_lane_leads_is_seen_and_not_told() {
        let (events, watch) = (Events::new(), Arc::new(Watch::new(Arc::new(Deaf))));
        let mut lanes = Lanes::new(events.sender(), Arc::clone(&watch));
        let (pair, _peer) = Stream::plain_pair().unwrap();
        lanes.start(pair, 0, |_stream| Ok(None)).unwrap();
        assert_eq!(watch.addresses_of(0), None);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        lanes.start(Stream::plain_tcp(tcp), 1, |_stream| Ok(None)).unwrap();
        let loopback = std::net::IpAddr::from([127, 0, 0, 1]);
        assert_eq!(watch.addresses_of(0), Some(LaneAddresses { local: loopback, peer: loopback }));
    }

    #[test]
    fn the_end_of_a_lane_that_was_replaced_is_not_the_end_of_its_successor() {
        let (events, watch) = (Events::new(), Arc::new(Watch::new(Arc::new(Deaf))));
        let mut lanes = Lanes::new(events.sender(), Arc::clone(&watch));
        let until_cut = |mut stream: Stream| std::io::Read::read(&mut stream, &mut [0]).map(|_| None);
        let ((old, _old_peer), (new, _new_peer)) = (Stream::plain_pair().unwrap(), Stream::plain_pair().unwrap());
        lanes.start(old, 0, until_cut).unwrap();
        lanes.start(new, 0, until_cut).unwrap();
        let Some(SessionEvent::Lane(LaneEvent::Down(end))) = events.next(FAREWELL) else {
            panic!("the old one was not cut")
        };
        assert!(!lanes.ended(&end));
        assert!(lanes.check(true, Duration::ZERO).is_ok(), "its successor is alive");
        lanes.cut(0);
        let Some(SessionEvent::Lane(LaneEvent::Down(end))) = events.next(FAREWELL) else {
            panic!("the new one was not cut")
        };
        assert!(lanes.ended(&end));
    }

    #[test]
    fn what_the_host_does_not_grant_is_told_once() {
        let (near, far) = Stream::plain_pair().unwrap();
        let (events, theirs) = (Events::new(), Events::new());
        let channel = Channel::open(near, events.sender(), PING_EVERY).unwrap();
        let _far = Channel::open(far, theirs.sender(), PING_EVERY).unwrap();
        let mut lanes = Lanes::new(events.sender(), Arc::new(Watch::silent()));
        let (what, reason) = ("send buffer", "so it is".to_owned());
        let short = [Applied {
            what,
            asked: "2 bytes".into(),
            granted: "1 bytes".into(),
            reason,
            refused: true,
            falls_short: true,
        }];
        lanes.tell_short(&short, "the far host", &channel);
        lanes.tell_short(&short, "the far host", &channel);
        channel.close(FAREWELL);
        let text = "the far host: send buffer: 2 bytes asked for, 1 bytes granted: so it is".to_owned();
        let Some(SessionEvent::Control(first)) = theirs.next(FAREWELL) else { panic!("nobody was told") };
        assert_eq!(first, Control::Notice(Notice::Warning { text }));
        assert!(matches!(theirs.next(FAREWELL), Some(SessionEvent::ControlEnded(_))));
    }

    #[test]
    fn a_lane_whose_thread_panics_is_a_lane_that_died() {
        let events = Events::new();
        let mut lanes = Lanes::new(events.sender(), Arc::new(Watch::new(Arc::new(Deaf))));
        let (stream, mut peer) = Stream::plain_pair().unwrap();
        lanes.start(stream, 3, |_stream| panic!("as if an invariant were broken")).unwrap();
        let Some(SessionEvent::Lane(LaneEvent::Down(end))) = events.next(FAREWELL) else { panic!("nobody was told") };
        assert_eq!(end.error.as_ref().unwrap().to_string(), "the thread of this lane panicked");
        assert!(lanes.ended(&end));
        assert_eq!(std::io::Read::read(&mut peer, &mut [0]).unwrap(), 0, "the peer sees its end");
    }
}
