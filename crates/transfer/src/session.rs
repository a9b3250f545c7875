//! What both ends of a session have in common: its first failure, its lanes, its clock.

use std::io;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use haul_net::{Applied, ShutdownHandle, Stream};
use haul_wire::control::{Control, Notice};

use crate::channel::{Channel, EventSender, LaneEnd, SessionEvent};
use crate::convert;
use crate::error::{Error, Fault};
use crate::far::PING_EVERY;
use crate::watch::Watch;

/// How often a session looks at its clock.
pub(crate) const TICK: Duration = Duration::from_millis(50);

/// How often the running totals are told.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// A disk is read and flushed at least so fast: what a side may take to compare or flush a file besides the usual limit. A
/// checkpoint's 256 MiB are four minutes.
const LEAST_STORAGE_BYTES_PER_S: u64 = 1 << 20;

/// What the slowest disk takes for so many bytes.
pub(crate) fn time_to_store(bytes: u64) -> Duration {
    Duration::from_secs(bytes / LEAST_STORAGE_BYTES_PER_S)
}

/// How long the last messages may take.
pub(crate) const FAREWELL: Duration = Duration::from_secs(2);

/// Brings lanes back that were lost: the side that dials does, the other waits.
pub(crate) trait LaneKeeper: Send {
    /// This lane ended before its time.
    fn lane_lost(&mut self, lane: u16);

    /// So many lanes in all would be of use. False: this side cannot bring any.
    fn want(&mut self, lanes: u16) -> bool;
}

/// A side that does not dial.
pub(crate) struct NoKeeper;

impl LaneKeeper for NoKeeper {
    fn lane_lost(&mut self, _lane: u16) {}

    fn want(&mut self, _lanes: u16) -> bool {
        false
    }
}

/// A lock that survives a panic of another thread: the session ends by its failure, not by poison.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The first failure of any thread of a session; its loop sees it at the next tick.
#[derive(Default)]
pub(crate) struct Failure(Mutex<Option<Error>>);

impl Failure {
    pub(crate) fn set(&self, error: Error) {
        lock(&self.0).get_or_insert(error);
    }

    pub(crate) fn get(&self) -> Result<(), Error> {
        match &*lock(&self.0) {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }
}

/// Counts the threads of lanes that have not ended.
#[derive(Default)]
struct Running {
    count: Mutex<usize>,
    ended: Condvar,
}

/// A lane that carries data.
struct Alive {
    lane: u16,
    serial: u64,
    shutdown: ShutdownHandle,
}

/// So many lanes of a session may break the protocol. A line that changes bytes does that to a lane without TLS now and then; a peer
/// that brings them without end is no peer.
const MAX_BROKEN_LANES: usize = 16;

/// The lanes of one side, each with its thread.
pub(crate) struct Lanes {
    /// At most one of each number.
    alive: Vec<Alive>,
    started: u64,
    /// Those that may still run: a thread that ended keeps its stack until it is joined, and a peer may bring lanes for ever.
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

    /// Starts the thread of a new lane. `carry` returns when the lane is at its end; an error means before its time.
    pub(crate) fn start(
        &mut self,
        stream: Stream,
        lane: u16,
        carry: impl FnOnce(Stream) -> io::Result<()> + Send + 'static,
    ) -> Result<(), Error> {
        let (shutdown, peer) = (stream.shutdown_handle(), peer_of(&stream));
        // A lane that comes back before its end was noticed: the old one is as good as dead.
        self.cut(lane);
        self.forget(lane);
        self.started += 1;
        let serial = self.started;
        let events = self.events.clone();
        let running = Arc::clone(&self.running);
        *lock(&running.count) += 1;
        let thread = std::thread::Builder::new()
            .name(format!("lane-{lane}"))
            .spawn(move || {
                // A broken invariant of ours, which the panic hook has told, costs this lane, not the session: its work goes
                // back to the queue like that of any lane that died.
                let result = catch_unwind(AssertUnwindSafe(|| carry(stream)))
                    .unwrap_or_else(|_| Err(io::Error::other("the thread of this lane panicked")));
                *lock(&running.count) -= 1;
                running.ended.notify_all();
                // A session that is over does not listen any more.
                let _ = events.send(SessionEvent::LaneDown(LaneEnd { lane, serial, error: result.err() }));
            })
            .map_err(|error| Error::new(Fault::FileIo, "cannot start a thread for a lane").because(error))?;
        self.alive.push(Alive { lane, serial, shutdown });
        self.threads.push(thread);
        self.watch.lane_up(peer);
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
        (self.alive.len()..before).for_each(|_| self.watch.lane_down());
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
        for alive in self.alive.iter().filter(|alive| alive.lane == lane) {
            alive.shutdown.shutdown();
        }
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
                    Some((_, why)) => error.because(format!("what came on the last ones makes no sense: {why}")),
                    None => error,
                })
            }
            None => Ok(()),
        }
    }

    /// Ends all lanes at once.
    pub(crate) fn cut_all(&mut self) {
        for alive in &self.alive {
            alive.shutdown.shutdown();
        }
    }

    /// Waits for the lanes' threads: nothing is at stake any more, so those that do not end by themselves soon are cut.
    pub(crate) fn join(mut self) {
        let count = lock(&self.running.count);
        drop(self.running.ended.wait_timeout_while(count, FAREWELL, |count| *count > 0));
        self.cut_all();
        drop(self.events);
        // One that waits for a disk that does not answer ends when that does: the session does not.
        let count = lock(&self.running.count);
        let left = self.running.ended.wait_timeout_while(count, FAREWELL, |count| *count > 0);
        let all_ended = *left.unwrap_or_else(PoisonError::into_inner).0 == 0;
        for thread in self.threads.into_iter().filter(|thread| all_ended || thread.is_finished()) {
            // It caught its own panic.
            let _ = thread.join();
        }
    }
}

/// Where a lane leads; `None` when it does not run over TCP.
pub(crate) fn peer_of(stream: &Stream) -> Option<IpAddr> {
    stream.tcp().and_then(|tcp| tcp.peer_addr().ok()).map(|address| address.ip().to_canonical())
}

/// What the loop of a session does at every turn besides its events.
pub(crate) struct Clock {
    told_at: Instant,
    timeout: Duration,
}

impl Clock {
    pub(crate) fn new(timeout_ms: u32) -> Self {
        Self { told_at: Instant::now(), timeout: Duration::from_millis(u64::from(timeout_ms)) }
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// How long a peer may be silent: with a shorter limit than a few pings, a healthy one would be taken for dead.
    pub(crate) fn silence_limit(&self) -> Duration {
        self.timeout.max(3 * PING_EVERY)
    }

    /// The peer has to be heard now and then, and to listen.
    pub(crate) fn check_peer(&self, channel: &Channel) -> Result<(), Error> {
        if channel.outbox().has_overflowed() {
            return Err(Error::broke_the_protocol("it does not listen"));
        }
        let limit = self.silence_limit();
        if channel.silence() > limit { Err(silent(limit)) } else { Ok(()) }
    }

    /// Tells progress; finds interruption, silence and failures of other threads.
    pub(crate) fn turn(&mut self, watch: &Watch, channel: &Channel, failure: &Failure) -> Result<(), Error> {
        failure.get()?;
        if watch.interrupted() {
            return Err(watch.interruption());
        }
        self.check_peer(channel)?;
        if self.told_at.elapsed() >= PROGRESS_EVERY {
            self.told_at = Instant::now();
            watch.tell_progress();
        }
        Ok(())
    }
}

/// Judges a sending peer by the payload that arrives: signs of life alone keep nobody.
pub(crate) struct Progress {
    least_bytes_per_s: u64,
    bytes: u64,
    done: u64,
    since: Instant,
    /// When something was finished, or there was nothing to do.
    done_at: Instant,
}

/// Less than this is no progress: a thousandth of the slowest path that anybody moves data over. With the usual limit of 60 s
/// a peer has to bring 60 KiB in a minute, or to finish something.
const LEAST_BYTES_PER_S: u64 = 1 << 10;

/// Data that comes for so long without one chunk that is complete will never be a file: every connection is cut before. A chunk of a file of
/// 1 TiB (16 MiB) on each of 64 lanes gets through in that time where all of them together carry 12 kB/s.
pub(crate) const MAX_IN_VAIN: Duration = Duration::from_secs(24 * 60 * 60);

impl Progress {
    /// With a rate limit, half of that is enough.
    pub(crate) fn new(rate_bytes_per_s: Option<u64>, now: Instant) -> Self {
        let least_bytes_per_s = rate_bytes_per_s.map_or(LEAST_BYTES_PER_S, |rate| LEAST_BYTES_PER_S.min(rate / 2));
        Self { least_bytes_per_s, bytes: 0, done: 0, since: now, done_at: now }
    }

    /// For so long it was our own loop that nothing could come through.
    pub(crate) fn forgive(&mut self, busy: Duration) {
        self.since += busy;
        self.done_at += busy;
    }

    /// True once there has been work for `timeout`, too few bytes came and nothing was finished. `bytes` and `done` count from
    /// the start of the session.
    pub(crate) fn is_stalled(
        &mut self,
        has_work: bool,
        bytes: u64,
        done: u64,
        now: Instant,
        timeout: Duration,
    ) -> bool {
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        let least = self.least_bytes_per_s.saturating_mul(timeout_ms) / 1000;
        if done != self.done || !has_work {
            self.done_at = now;
        }
        let moves = bytes.saturating_sub(self.bytes) >= least.max(1) || done != self.done;
        if moves || !has_work {
            (self.bytes, self.done, self.since) = (bytes, done, now);
            return false;
        }
        self.stands_for(now) > timeout
    }

    /// How long nothing worth the name had come when `is_stalled` was last asked.
    pub(crate) fn stands_for(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    /// Whether bytes come and come, and nothing is ever finished with them; as of when `is_stalled` was last asked.
    pub(crate) fn is_in_vain(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.done_at) > MAX_IN_VAIN
    }
}

/// The person said stop.
pub(crate) fn interrupted() -> Error {
    Error::new(Fault::Interrupted, "interrupted")
        .try_this("run the same command again to go on: what is verified is not sent again")
}

/// The peer fell silent.
pub(crate) fn silent(timeout: Duration) -> Error {
    Error::new(Fault::Timeout, format!("the far side has been silent for {} s", timeout.as_secs()))
        .because("the network is gone, or the host")
        .try_this("run the same command again to go on: what is verified is not sent again")
}

/// A message that does not belong here.
pub(crate) fn unexpected(message: &Control) -> Error {
    let name = format!("{message:?}");
    let name = name.split(['(', ' ', '{']).next().unwrap_or_default().to_owned();
    Error::broke_the_protocol(format!("unexpected message {name}"))
}

/// Tells the peer why, as far as it still listens, and ends the channel.
pub(crate) fn abort(channel: &Channel, error: &Error) {
    channel.outbox().send(Control::Abort(convert::abort(error)));
    channel.close(FAREWELL);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::Events;
    use crate::event::{Event, Observer};

    struct Deaf;

    impl Observer for Deaf {
        fn on_event(&self, _: &Event) {}

        fn interrupted(&self) -> bool {
            false
        }
    }

    #[test]
    fn data_that_never_becomes_a_chunk_is_in_vain() {
        let start = Instant::now();
        let (day, hour, tick) = (MAX_IN_VAIN, Duration::from_secs(3600), Duration::from_millis(1));
        let mut progress = Progress::new(None, start);
        let mut bytes = 0;
        let mut comes = |progress: &mut Progress, has_work, done, at: Duration| {
            bytes += 1 << 30;
            assert!(!progress.is_stalled(has_work, bytes, done, start + at, hour));
            progress.is_in_vain(start + at)
        };
        assert!(!comes(&mut progress, true, 1, hour));
        assert!(!comes(&mut progress, true, 1, day + hour));
        assert!(comes(&mut progress, true, 1, day + hour + tick));
        assert!(!comes(&mut progress, true, 2, day + 2 * hour), "a chunk was complete");
        assert!(!comes(&mut progress, false, 2, 2 * day), "nothing was to be done");
        progress.forgive(hour);
        assert!(!comes(&mut progress, true, 2, 3 * day + hour));
        assert!(comes(&mut progress, true, 2, 3 * day + hour + tick));
    }

    #[test]
    fn a_byte_now_and_then_is_no_progress() {
        let start = Instant::now();
        let at = |s: u64| start + Duration::from_secs(s);
        const TIMEOUT: Duration = Duration::from_secs(60);
        let mut progress = Progress::new(None, start);
        assert!((1..=60).all(|s| !progress.is_stalled(true, s, 0, at(s), TIMEOUT)));
        assert!(progress.is_stalled(true, 61, 0, at(61), TIMEOUT));
        // Something finished, enough bytes, or nothing to wait for: each starts the time anew.
        for (has_work, bytes, done) in [(true, 61, 1), (true, 61 + (60 << 10), 1), (false, 61 + (60 << 10), 1)] {
            let mut progress = Progress { bytes: 61, ..Progress::new(None, start) };
            assert!(!progress.is_stalled(has_work, bytes, done, at(61), TIMEOUT));
            assert!(progress.is_stalled(true, bytes, done, at(122), TIMEOUT));
        }
        let mut progress = Progress::new(None, start);
        progress.forgive(Duration::from_secs(300));
        assert!(!progress.is_stalled(true, 0, 0, at(360), TIMEOUT), "what our own loop took is not the peer's");
        assert!(progress.is_stalled(true, 0, 0, at(361), TIMEOUT));
        let mut slow = Progress::new(Some(100), start);
        assert!(!slow.is_stalled(true, 3_000, 0, at(61), TIMEOUT), "half of what the rate limit allows");
    }

    #[test]
    fn lanes_that_come_and_go_leave_no_threads() {
        let events = Events::new();
        let mut lanes = Lanes::new(events.sender(), Arc::new(Watch::silent()));
        for _ in 0..200 {
            let (stream, _peer) = Stream::plain_pair().unwrap();
            lanes.start(stream, 0, |_stream| Ok(())).unwrap();
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
        lanes.start(pair, 0, |_stream| Ok(())).unwrap();
        assert_eq!(watch.lane_peer(), None);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        lanes.start(Stream::plain_tcp(tcp), 1, |_stream| Ok(())).unwrap();
        assert_eq!(watch.lane_peer(), Some(IpAddr::from([127, 0, 0, 1])));
    }

    #[test]
    fn the_end_of_a_lane_that_was_replaced_is_not_the_end_of_its_successor() {
        let (events, watch) = (Events::new(), Arc::new(Watch::new(Arc::new(Deaf))));
        let mut lanes = Lanes::new(events.sender(), Arc::clone(&watch));
        let until_cut = |mut stream: Stream| std::io::Read::read(&mut stream, &mut [0]).map(drop);
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
        let short = [Applied { what, asked: "2 bytes".into(), granted: "1 bytes".into(), reason, falls_short: true }];
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
