//! The sessions of a daemon: they are counted against the limits, logged, and ended when the daemon ends.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use haul_job::{Error, Event, Fault, Observer};
use haul_net::{PublicKey, ShutdownHandle};
use haul_transfer::{Grant, Visit};
use haul_wire::control::Role;

use crate::allowance::{Allowance, KeyLimits};
use crate::limits::{MAX_LISTED_BYTES_OF_ALL, MAX_LISTED_BYTES_PER_KEY, MAX_SESSIONS, MAX_SESSIONS_PER_KEY};
use crate::log::{Log, Visitor, escaped};
use crate::registrar::Registrar;

/// The sessions of a daemon.
#[derive(Default)]
pub(crate) struct Sessions {
    running: Mutex<HashMap<u64, Running>>,
    one_ended: Condvar,
    started: AtomicU64,
    stopping: AtomicBool,
}

struct Running {
    key: PublicKey,
    control: ShutdownHandle,
    /// Memory of the list of files that it was given.
    listed_bytes: usize,
}

/// Why a session is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// The daemon has as many sessions as it may.
    Daemon,
    /// The key has as many sessions as it may: so many.
    Key(usize),
    /// The daemon is stopping.
    Stopping,
}

impl Sessions {
    /// Counts a session until the returned place is dropped.
    pub(crate) fn enter(
        self: &Arc<Self>,
        key: PublicKey,
        limits: KeyLimits,
        control: ShutdownHandle,
    ) -> Result<Place, NoRoom> {
        let mut running = self.lock();
        if self.stopping.load(Ordering::Acquire) {
            return Err(NoRoom::Stopping);
        }
        if running.len() >= MAX_SESSIONS {
            return Err(NoRoom::Daemon);
        }
        let most = limits.sessions.unwrap_or(MAX_SESSIONS_PER_KEY);
        if running.values().filter(|session| session.key == key).count() >= most {
            return Err(NoRoom::Key(most));
        }
        let number = self.started.fetch_add(1, Ordering::Relaxed) + 1;
        running.insert(number, Running { key, control, listed_bytes: 0 });
        Ok(Place { sessions: Arc::clone(self), number, key })
    }

    /// Counts the list of a session. False: the list is too long for the room that is left.
    fn on_list(&self, number: u64, bytes: usize) -> bool {
        let mut running = self.lock();
        let Some(session) = running.get_mut(&number) else { return false };
        session.listed_bytes = bytes;
        let key = session.key;
        let of_key = running.values().filter(|session| session.key == key).map(|session| session.listed_bytes);
        let of_all = running.values().map(|session| session.listed_bytes);
        of_key.sum::<usize>() <= MAX_LISTED_BYTES_PER_KEY && of_all.sum::<usize>() <= MAX_LISTED_BYTES_OF_ALL
    }

    /// Asks all sessions to end, and lets no new one begin.
    pub(crate) fn stop(&self) {
        let _running = self.lock();
        self.stopping.store(true, Ordering::Release);
    }

    /// Ends the control channels. That ends the sessions.
    pub(crate) fn cut(&self) {
        for session in self.lock().values() {
            session.control.shutdown();
        }
    }

    /// Waits until all have ended, at most for `limit`. Returns how many are left.
    pub(crate) fn wait(&self, limit: Duration) -> usize {
        let running = self.lock();
        let (running, _) = self
            .one_ended
            .wait_timeout_while(running, limit, |running| !running.is_empty())
            .unwrap_or_else(PoisonError::into_inner);
        running.len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One counted session. It stops counting when this is dropped, also by a panic.
pub(crate) struct Place {
    sessions: Arc<Sessions>,
    pub(crate) number: u64,
    pub(crate) key: PublicKey,
}

impl Place {
    /// Makes the clerk of this session. The session counts until its clerk is dropped.
    pub(crate) fn clerk(self, who: String, registrar: Registrar, allowance: Arc<Allowance>, log: Arc<Log>) -> Clerk {
        Clerk { place: self, who, registrar, allowance, log, totals: Mutex::default() }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.sessions.lock().remove(&self.number);
        self.sessions.one_ended.notify_all();
    }
}

/// Watches one session: logs its purpose, counts the bytes that it moves, and tells it to stop.
pub(crate) struct Clerk {
    place: Place,
    who: String,
    registrar: Registrar,
    allowance: Arc<Allowance>,
    log: Arc<Log>,
    totals: Mutex<Count>,
}

/// What the jobs of a session have done.
#[derive(Clone, Copy, Default)]
struct Count {
    /// Those that have ended.
    before: Totals,
    /// The one that runs.
    now: Totals,
}

#[derive(Clone, Copy, Default)]
struct Totals {
    files: u64,
    bytes: u64,
    failed: u64,
}

impl Totals {
    fn and(self, other: Totals) -> Totals {
        Totals { files: self.files + other.files, bytes: self.bytes + other.bytes, failed: self.failed + other.failed }
    }
}

impl Clerk {
    fn tell(&self, what: &str, matters: bool) {
        self.log.tell_of_session(&self.visitor(), what, matters, &[]);
    }

    fn visitor(&self) -> Visitor<'_> {
        Visitor { key: &self.place.key, number: self.place.number, who: &self.who }
    }

    /// Tells how the session ended, and how far it came.
    pub(crate) fn tell_end(&self, how: &str, took: Duration, matters: bool) {
        let Count { before, now } = *self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        let Totals { files, bytes, failed } = before.and(now);
        let also = if failed > 0 { format!(", {failed} failed") } else { String::new() };
        let text = format!("{how}: {files} files done, {bytes} bytes moved{also} in {:.1} s", took.as_secs_f64());
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let numbers = [("files", files), ("bytes", bytes), ("failed", failed), ("took_ms", took_ms)];
        self.log.tell_of_session(&self.visitor(), &text, matters, &numbers);
    }
}

impl Observer for Clerk {
    fn on_event(&self, event: &Event) {
        if let Event::Progress(progress) = event {
            self.totals.lock().unwrap_or_else(PoisonError::into_inner).now =
                Totals { files: progress.files_done, bytes: progress.bytes_moved, failed: progress.failed };
        }
    }

    fn interrupted(&self) -> bool {
        self.place.sessions.stopping.load(Ordering::Acquire)
    }
}

impl Visit for Clerk {
    fn on_root(&self, directory: BorrowedFd<'_>, uid: u32) -> Result<(), Error> {
        let refused = Error::new(Fault::Authentication, "the daemon does not let this key in")
            .try_this("ask its operator to name another directory beside your key");
        let standing = self.registrar.standing();
        match standing.own.within_reach_of(directory, uid, &standing.grant) {
            Ok(None) => Ok(()),
            Ok(Some(why)) => {
                self.tell(&format!("is refused: {why}"), true);
                Err(refused.because("its directory holds files of the daemon's own"))
            }
            Err(error) => Err(refused.because(format!("its directory cannot be looked at: {error}"))),
        }
    }

    fn on_unfenced(&self, why: &str) {
        self.tell(&format!("works without a fence of the kernel around its directory: {why}"), true);
    }

    fn on_role(&self, role: &Role) {
        let what = match role {
            Role::Sender { sources } => format!("reads {}", named(sources)),
            Role::SourceMover { sources } => format!("reads for another host {}", named(sources)),
            Role::Receiver { target } => format!("writes to '{}'", escaped(target)),
            Role::Mover { target } => format!("writes for another host to '{}'", escaped(target)),
            Role::Place { question } => {
                let first = question.paths.first().map(|path| escaped(path)).unwrap_or_default();
                let more = question.paths.len().saturating_sub(1);
                let verb = if question.writes() { "changes" } else { "looks at" };
                if more > 0 { format!("{verb} '{first}' and {more} more") } else { format!("{verb} '{first}'") }
            }
            Role::Probe { time_ms } => format!("probes the path, {:.1} s each way", f64::from(*time_ms) / 1e3),
        };
        self.tell(&what, false);
    }

    fn on_path(&self, number: u16, local: IpAddr, peer: IpAddr) {
        self.tell(&format!("has path {number}, between {local} and {peer}"), false);
    }

    fn on_path_gone(&self, number: u16) {
        self.tell(&format!("has lost path {number}"), false);
    }

    fn on_refused(&self, why: &str) {
        self.tell(&format!("names paths that are not used: {why}"), true);
    }

    fn on_data(&self, bytes: u64) -> Result<Duration, Error> {
        self.allowance.spend(bytes, Instant::now(), SystemTime::now())
    }

    fn on_list(&self, bytes: usize) -> bool {
        self.place.sessions.on_list(self.place.number, bytes)
    }

    fn on_job_end(&self, error: Option<&Error>) {
        let mut totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        *totals = Count { before: totals.before.and(totals.now), now: Totals::default() };
        drop(totals);
        if let Some(error) = error {
            let cause = error.cause.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default();
            self.tell(&format!("failed in one of its jobs: {}{cause}", error.what), true);
        }
    }

    fn next_job(&self) -> Result<Grant, Error> {
        self.registrar.ask_again().ok_or_else(|| {
            Error::new(Fault::Authentication, "the daemon does not let our key in any more")
                .try_this("ask its operator to add it to the list of authorised keys: haul key show prints it")
        })
    }
}

/// The first of these paths, and how many more there are.
fn named(paths: &[Vec<u8>]) -> String {
    let first = paths.first().map(|path| escaped(path)).unwrap_or_default();
    match paths.len().saturating_sub(1) {
        0 => format!("'{first}'"),
        more => format!("'{first}' and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use haul_net::Stream;

    use super::*;
    use crate::log::Form;
    use crate::own_files::OwnPaths;
    use crate::registrar::Standing;

    #[test]
    fn one_key_leaves_room_for_others() {
        let sessions = Arc::new(Sessions::default());
        let (stream, _peer) = Stream::plain_pair().unwrap();
        let enter = |key: u8| sessions.enter(PublicKey([key; 32]), KeyLimits::default(), stream.shutdown_handle());
        let mut places: Vec<Place> = (0..MAX_SESSIONS_PER_KEY).map(|_| enter(0).ok().unwrap()).collect();
        assert_eq!(enter(0).err(), Some(NoRoom::Key(MAX_SESSIONS_PER_KEY)));
        let others = (MAX_SESSIONS - MAX_SESSIONS_PER_KEY) as u8;
        places.extend((1..=others).map(|key| enter(key).ok().unwrap()));
        assert_eq!(enter(200).err(), Some(NoRoom::Daemon));
        places.pop();
        places.push(enter(200).ok().unwrap());
        sessions.stop();
        places.clear();
        assert_eq!(enter(0).err(), Some(NoRoom::Stopping));
        assert_eq!(sessions.wait(Duration::ZERO), 0);
    }

    #[test]
    fn a_line_may_say_how_many_sessions_its_key_has() {
        let sessions = Arc::new(Sessions::default());
        let (stream, _peer) = Stream::plain_pair().unwrap();
        let enter = |most| {
            let limits = KeyLimits { sessions: Some(most), ..KeyLimits::default() };
            sessions.enter(PublicKey([1; 32]), limits, stream.shutdown_handle())
        };
        let _first = enter(1).ok().unwrap();
        assert_eq!(enter(1).err(), Some(NoRoom::Key(1)));
        let _others: Vec<Place> = (1..40).map(|_| enter(40).ok().unwrap()).collect();
        assert_eq!(enter(40).err(), Some(NoRoom::Key(40)));
    }

    fn nobody_asks() -> Registrar {
        let own = OwnPaths::new("/not-there/key".as_ref(), "/not-there/list".as_ref()).find();
        Registrar::start(Standing { grant: Grant::default(), own }, || None).unwrap()
    }

    #[test]
    fn a_session_counts_until_the_last_of_its_threads_has_ended() {
        let sessions = Arc::new(Sessions::default());
        let (stream, _peer) = Stream::plain_pair().unwrap();
        let place = sessions.enter(PublicKey([1; 32]), KeyLimits::default(), stream.shutdown_handle()).ok().unwrap();
        let log = Arc::new(Log::new(true, Form::Text, Box::new(drop)));
        let clerk = Arc::new(place.clerk("somebody".to_owned(), nobody_asks(), Arc::default(), log));
        // A walk holds the clerk like this, and may go on after the session's own thread has ended.
        let held = Arc::clone(&clerk) as Arc<dyn Visit>;
        drop(clerk);
        assert_eq!(sessions.wait(Duration::ZERO), 1);
        drop(held);
        assert_eq!(sessions.wait(Duration::ZERO), 0);
    }

    #[test]
    fn a_session_without_a_fence_stands_in_the_log() {
        let sessions = Arc::new(Sessions::default());
        let (stream, _peer) = Stream::plain_pair().unwrap();
        let place = sessions.enter(PublicKey([1; 32]), KeyLimits::default(), stream.shutdown_handle()).ok().unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let written = Arc::clone(&lines);
        let log = Arc::new(Log::new(true, Form::Text, Box::new(move |line| written.lock().unwrap().push(line))));
        let clerk = place.clerk("somebody".to_owned(), nobody_asks(), Arc::default(), log);
        clerk.on_unfenced("no rights to give up are left");
        let said = lines.lock().unwrap().join("");
        assert!(said.contains("somebody works without a fence") && said.contains("no rights to give up"), "{said}");
    }

    #[test]
    fn lists_of_one_key_leave_room_for_those_of_others() {
        let sessions = Arc::new(Sessions::default());
        let (stream, _peer) = Stream::plain_pair().unwrap();
        let enter = |key: u8| {
            sessions.enter(PublicKey([key; 32]), KeyLimits::default(), stream.shutdown_handle()).ok().unwrap()
        };
        let lists = |place: &Place, bytes| sessions.on_list(place.number, bytes);
        let (first, second) = (enter(0), enter(0));
        assert!(lists(&first, 1) && lists(&first, MAX_LISTED_BYTES_PER_KEY), "it grows");
        assert!(!lists(&second, 1));
        let others: Vec<Place> = (1..=3).map(enter).collect();
        drop(second);
        assert!(others.iter().all(|other| lists(other, MAX_LISTED_BYTES_PER_KEY)));
        let late = enter(9);
        assert!(!lists(&late, 1), "the daemon is full");
        drop(first);
        assert!(lists(&late, MAX_LISTED_BYTES_PER_KEY), "a list goes with its session");
    }
}
