//! The lanes of one side of a session, each with its thread.

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

use crate::kept::hook_words::Outlet;
use crate::session::channel::{Channel, EventSender, LaneBack, LaneEnd};
use crate::session::farewell::FAREWELL;
use crate::session::lane_addresses::LaneAddresses;
use crate::session::reporter::Watch;
use crate::sync::lock;

/// Brings lanes back that were lost: the side that dials does, the other waits.
pub(crate) trait LaneKeeper: Send {
    /// This lane ended before its time.
    fn lane_lost(&mut self, lane: u16);

    /// So many lanes of this path would be of use. False: this side cannot bring any.
    fn want(&mut self, path: u16, lanes: u16) -> bool;

    /// Lanes of a path that are dialled from now on leave this host there, and these lanes are dialled again for that. The answer comes as
    /// [`SessionEvent::LanesMoved`]. False: this side cannot.
    fn leave_from(&mut self, path: u16, outlet: Outlet, lanes: &[u16]) -> bool;
}

/// A side that does not dial.
pub(crate) struct NoKeeper;

impl LaneKeeper for NoKeeper {
    fn lane_lost(&mut self, _lane: u16) {}

    fn want(&mut self, _path: u16, _lanes: u16) -> bool {
        false
    }

    fn leave_from(&mut self, _path: u16, _outlet: Outlet, _lanes: &[u16]) -> bool {
        false
    }
}

/// Counts the threads of lanes that have not ended.
#[derive(Default)]
pub(crate) struct Running {
    count: Mutex<usize>,
    ended: Condvar,
    /// Lanes that came to the end of the job, by their serial numbers. They are not cut: they may carry the next job.
    back: Mutex<BTreeSet<u64>>,
}

/// A lane that carries data.
struct Alive {
    lane: u16,
    serial: u64,
    shutdown: ShutdownHandle,
}

/// So many lanes of a session may break the protocol. A faulty line does that to a lane without TLS now and then. A peer that
/// does it again and again is hostile.
const MAX_BROKEN_LANES: usize = 16;

/// The lanes of one side, each with its thread.
pub(crate) struct Lanes {
    /// At most one of each number.
    alive: Vec<Alive>,
    started: u64,
    /// Threads that may still run. Ended threads are joined as lanes come and go: each keeps its stack until then.
    threads: Vec<JoinHandle<()>>,
    running: Arc<Running>,
    none_since: Instant,
    given_up: Option<Error>,
    /// Lanes on which the peer said what makes no sense, and the last of it.
    broken: Option<(usize, String)>,
    /// Settings of which the user knows that this host does not grant them.
    told_short: Vec<&'static str>,
    events: EventSender,
    watch: Arc<Watch>,
}

impl Lanes {
    pub(crate) fn new(events: EventSender, watch: Arc<Watch>) -> Self {
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

    /// Starts the thread of a new lane. `carry` returns when the lane is at its end, with the lane if it can carry another job; an error means
    /// before its time.
    pub(crate) fn start(
        &mut self,
        stream: Stream,
        lane: u16,
        carry: impl FnOnce(Stream) -> io::Result<Option<LaneBack>> + Send + 'static,
    ) -> Result<(), Error> {
        if self.alive.len() >= usize::from(MAX_LANES) && !self.alive.iter().any(|alive| alive.lane == lane) {
            // Each path may have so many, but all of them together may not. It is closed here.
            return Ok(());
        }
        let (shutdown, addresses) = (stream.shutdown_handle(), LaneAddresses::of(&stream));
        // A lane that comes back before its end was noticed: the old one is as good as dead.
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
                // A panic costs this lane, and not the session: its units go back to the queue, as with any lane that dies.
                // The panic hook has reported it.
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

    /// A lane's thread ended. False: another lane has its number by now.
    pub(crate) fn ended(&mut self, end: &LaneEnd) -> bool {
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

    /// Tells the user, wherever he is, once for each setting. `host` says in his words which one it is.
    pub(crate) fn tell_short(&mut self, short: &[Applied], host: &str, channel: &Channel) {
        for applied in short {
            if !self.told_short.contains(&applied.what) {
                self.told_short.push(applied.what);
                let notice = Notice::Warning { text: format!("{host}: {applied}") };
                self.watch.on_notice(notice.clone());
                channel.outbox().send(Control::Notice(notice));
            }
        }
    }

    /// For so long nobody looked whether a lane came.
    pub(crate) fn forgive(&mut self, busy: Duration) {
        self.none_since += busy;
    }

    fn join_ended(&mut self) {
        let (ended, running) = std::mem::take(&mut self.threads).into_iter().partition(JoinHandle::is_finished);
        self.threads = running;
        let ended: Vec<JoinHandle<()>> = ended;
        for thread in ended {
            // It caught its own panic.
            let _ = thread.join();
        }
    }

    /// Makes a lane's thread end.
    pub(crate) fn cut(&mut self, lane: u16) {
        self.cut_those(|alive| alive.lane == lane);
    }

    /// Makes the threads of all lanes of a path end.
    pub(crate) fn cut_path(&mut self, path: u16) {
        self.cut_those(|alive| path_of(alive.lane) == path);
    }

    fn cut_those(&self, which: impl Fn(&Alive) -> bool) {
        let back = lock(&self.running.back);
        let cut = self.alive.iter().filter(|alive| which(alive) && !back.contains(&alive.serial));
        cut.for_each(|alive| alive.shutdown.shutdown());
    }

    /// Nobody will bring further lanes.
    pub(crate) fn give_up(&mut self, why: Error) {
        self.given_up = Some(why);
    }

    /// With work to do and no lane left, and nobody bringing one, the session is over.
    pub(crate) fn check(&self, has_work: bool, timeout: Duration) -> Result<(), Error> {
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
    pub(crate) fn cut_all(&mut self) {
        self.cut_those(|_| true);
    }

    /// Waits for the lanes' threads: nothing is at stake any more, so those that do not end by themselves soon are cut.
    pub(crate) fn join(mut self) {
        let count = lock(&self.running.count);
        drop(self.running.ended.wait_timeout_while(count, FAREWELL, |count| *count > 0));
        self.cut_all();
        drop(self.events);
        // A thread that waits for a hung disk ends when the disk answers. The session ends now.
        let count = lock(&self.running.count);
        let left = self.running.ended.wait_timeout_while(count, FAREWELL, |count| *count > 0);
        let all_ended = *left.unwrap_or_else(PoisonError::into_inner).0 == 0;
        for thread in self.threads.into_iter().filter(|thread| all_ended || thread.is_finished()) {
            // It caught its own panic.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use haul_job::{Event, Observer};

    use super::*;
    use crate::session::channel::{Events, PING_EVERY, SessionEvent};

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
            let Some(SessionEvent::LaneDown(end)) = events.next(FAREWELL) else { panic!("nobody was told") };
            assert!(end.error.is_none() && lanes.ended(&end));
        }
        // The last ones may still be on their way out.
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
            let Some(SessionEvent::LaneDown(end)) = events.next(FAREWELL) else { panic!("nobody was told") };
            assert!(lanes.ended(&end));
            if number == 0 {
                // With nobody to bring another one, the reason is told.
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
        let Some(SessionEvent::LaneDown(end)) = events.next(FAREWELL) else { panic!("the old one was not cut") };
        assert!(!lanes.ended(&end));
        assert!(lanes.check(true, Duration::ZERO).is_ok(), "its successor is alive");
        lanes.cut(0);
        let Some(SessionEvent::LaneDown(end)) = events.next(FAREWELL) else { panic!("the new one was not cut") };
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
        let Some(SessionEvent::LaneDown(end)) = events.next(FAREWELL) else { panic!("nobody was told") };
        assert_eq!(end.error.as_ref().unwrap().to_string(), "the thread of this lane panicked");
        assert!(lanes.ended(&end));
        assert_eq!(std::io::Read::read(&mut peer, &mut [0]).unwrap(), 0, "the peer sees its end");
    }
}
