//! The sessions of a daemon: counted, logged, and ended with it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use haul_job::{Change, Error, Event, Fault, Observer};
use haul_net::{PublicKey, ShutdownHandle};
use haul_transfer::{Grant, Visit};
use haul_wire::control::Role;

use crate::allowance::{Allowance, KeyLimits};
use crate::limits::{MAX_LISTED_BYTES_OF_ALL, MAX_LISTED_BYTES_PER_KEY, MAX_SESSIONS, MAX_SESSIONS_PER_KEY};
use crate::log::{Client, Field, Fields, Log, Visitor, escaped};
use crate::registrar::Registrar;

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
    listed_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// The daemon has its maximum.
    Daemon,
    /// The maximum of the key.
    Key(usize),
    Stopping,
}

impl Sessions {
    /// Counts a session until the place is dropped.
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

    /// False: the list exceeds the room left.
    fn on_list(&self, number: u64, bytes: usize) -> bool {
        let mut running = self.lock();
        let Some(session) = running.get_mut(&number) else { return false };
        session.listed_bytes = bytes;
        let key = session.key;
        let of_key = running.values().filter(|session| session.key == key).map(|session| session.listed_bytes);
        let of_all = running.values().map(|session| session.listed_bytes);
        of_key.sum::<usize>() <= MAX_LISTED_BYTES_PER_KEY && of_all.sum::<usize>() <= MAX_LISTED_BYTES_OF_ALL
    }

    pub(crate) fn stop(&self) {
        let _running = self.lock();
        self.stopping.store(true, Ordering::Release);
    }

    pub(crate) fn cut(&self) {
        for session in self.lock().values() {
            session.control.shutdown();
        }
    }

    /// Returns how many are left after `limit`.
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

/// One counted session, until this is dropped, also by a panic.
pub(crate) struct Place {
    sessions: Arc<Sessions>,
    pub(crate) number: u64,
    pub(crate) key: PublicKey,
}

impl Place {
    pub(crate) fn clerk(self, who: Client, registrar: Registrar, allowance: Arc<Allowance>, log: Arc<Log>) -> Clerk {
        Clerk { place: self, who, registrar, allowance, log, totals: Mutex::default(), entries: None }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.sessions.lock().remove(&self.number);
        self.sessions.one_ended.notify_all();
    }
}

/// Watches one session: logs its purpose, counts its bytes, and tells it to stop.
pub(crate) struct Clerk {
    place: Place,
    who: Client,
    registrar: Registrar,
    allowance: Arc<Allowance>,
    log: Arc<Log>,
    totals: Mutex<Count>,
    /// `None`: entries are not logged.
    entries: Option<Mutex<Entries>>,
}

#[derive(Default)]
struct Entries {
    /// `None`: the job is no copy.
    task: Option<Task>,
    left_out: u64,
}

#[derive(Clone)]
struct Task {
    is_read: bool,
    /// The places that the copy named, in words.
    places: String,
    first: String,
}

#[derive(Clone, Copy, Default)]
struct Count {
    before: Totals,
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
    pub(crate) fn logging_entries(self) -> Self {
        Self { entries: Some(Mutex::default()), ..self }
    }

    fn tell(&self, what: &str, matters: bool) {
        self.tell_with("session", what, matters, &[]);
    }

    fn tell_with(&self, event: &'static str, what: &str, matters: bool, fields: &Fields) {
        self.log.tell_of_session(&self.visitor(), (event, what), matters, fields);
    }

    fn tell_entry(&self, entries: &mut Entries, task: &Task, event: &Event, took: Option<Duration>) {
        let Task { is_read, places, first } = task;
        let (done, direction) = if *is_read { ("read", "read") } else { ("wrote", "write") };
        let (path, outcome, bytes, why) = match event {
            Event::Copied { path, change: Change::Data, bytes, .. } => (path, done, *bytes, None),
            Event::Copied { path, change: Change::Metadata, .. } => (path, "touched", 0, None),
            Event::Copied { path, change: Change::Made, .. } => (path, "made", 0, None),
            Event::Deleted { path, .. } => (path, "deleted", 0, None),
            Event::Failed { path, why } => (path, "failed", 0, Some(why)),
            _ => return,
        };
        let path = escaped(path);
        let in_time = took.map(|took| format!(" in {:.3} s", took.as_secs_f64())).unwrap_or_default();
        let side = if *is_read { "from" } else { "to" };
        let text = match (outcome, why) {
            ("read" | "wrote", _) => format!("{outcome} '{path}' {side} {places}: {bytes} bytes{in_time}"),
            (_, Some(why)) => format!("failed with '{path}' at {places}: {why}"),
            _ => format!("{outcome} '{path}' at {places}"),
        };
        let mut fields = vec![
            ("direction", Field::text(direction)),
            ("place", Field::text(first)),
            ("path", Field::text(&path)),
            ("outcome", Field::text(if outcome == done { "copied" } else { outcome })),
            ("bytes", Field::Number(bytes)),
        ];
        fields.extend(took.map(|took| ("took_ms", Field::ms(took))));
        fields.extend(why.map(|why| ("why", Field::text(why))));
        if !self.log.tell_of_entry(&self.visitor(), &text, why.is_some(), &fields) {
            entries.left_out += 1;
        }
    }

    fn visitor(&self) -> Visitor<'_> {
        Visitor { key: &self.place.key, number: self.place.number, who: &self.who }
    }

    pub(crate) fn tell_end(&self, how: &str, took: Duration, matters: bool) {
        let Count { before, now } = *self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        let Totals { files, bytes, failed } = before.and(now);
        let also = if failed > 0 { format!(", {failed} failed") } else { String::new() };
        let entries = self.entries.as_ref().map(|entries| entries.lock().unwrap_or_else(PoisonError::into_inner));
        let left_out = entries.map_or(0, |entries| entries.left_out);
        let unlogged =
            if left_out > 0 { format!("; {left_out} lines about files were left out") } else { String::new() };
        let took_s = took.as_secs_f64();
        let text = format!("{how}: {files} files done, {bytes} bytes moved{also} in {took_s:.1} s{unlogged}");
        let numbers = [("files", files), ("bytes", bytes), ("failed", failed), ("not_logged", left_out)];
        let mut fields: Vec<_> = numbers.map(|(name, number)| (name, Field::Number(number))).to_vec();
        fields.push(("took_ms", Field::ms(took)));
        self.tell_with("end", &text, matters, &fields);
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

    fn wants_entries(&self) -> bool {
        self.entries.is_some()
    }

    fn on_entry(&self, event: &Event, took: Option<Duration>) {
        let Some(entries) = &self.entries else { return };
        let mut entries = entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = entries.task.clone() {
            self.tell_entry(&mut entries, &task, event, took);
        }
    }

    fn on_role(&self, role: &Role) {
        let (what, is_read, paths) = match role {
            Role::Sender { sources } => ("reads", true, &sources[..]),
            Role::SourceMover { sources } => ("reads for another host", true, &sources[..]),
            Role::Receiver { target } => ("writes to", false, std::slice::from_ref(target)),
            Role::Mover { target } => ("writes for another host to", false, std::slice::from_ref(target)),
            Role::Place { question } if question.writes() => ("changes", false, &question.paths[..]),
            Role::Place { question } => ("looks at", true, &question.paths[..]),
            Role::Probe { time_ms } => {
                let text = format!("probes the path, {:.1} s each way", f64::from(*time_ms) / 1e3);
                return self.tell_with("begin", &text, false, &[("direction", Field::text("both"))]);
            }
        };
        let places = named(paths);
        let first = paths.first().map(|path| escaped(path)).unwrap_or_default();
        let direction = if is_read { "read" } else { "write" };
        let fields = [("direction", Field::text(direction)), ("place", Field::text(&first))];
        self.tell_with("begin", &format!("{what} {places}"), false, &fields);
        if let Some(entries) = &self.entries {
            let is_copy = matches!(role, Role::Sender { .. } | Role::Receiver { .. });
            let task = is_copy.then_some(Task { is_read, places, first });
            entries.lock().unwrap_or_else(PoisonError::into_inner).task = task;
        }
    }

    fn on_path(&self, number: u16, local: IpAddr, peer: IpAddr) {
        let fields = [
            ("path_number", Field::Number(number.into())),
            ("local", Field::text(&local.to_string())),
            ("remote", Field::text(&peer.to_string())),
        ];
        self.tell_with("path", &format!("has path {number}, between {local} and {peer}"), false, &fields);
    }

    fn on_path_gone(&self, number: u16) {
        let fields = [("path_number", Field::Number(number.into()))];
        self.tell_with("path_lost", &format!("has lost path {number}"), false, &fields);
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

    fn somebody() -> Client {
        Client { name: "somebody".to_owned(), from: "10.0.0.1:5000".parse().unwrap(), class: None }
    }

    #[test]
    fn an_entry_has_a_line_with_all_that_is_known_of_it_if_the_operator_wants_it() {
        let sessions = Arc::new(Sessions::default());
        let (stream, _peer) = Stream::plain_pair().unwrap();
        let place = sessions.enter(PublicKey([1; 32]), KeyLimits::default(), stream.shutdown_handle()).ok().unwrap();
        let lines = Arc::new(Mutex::new(String::new()));
        let written = Arc::clone(&lines);
        let log = Log::new(false, Form::Json, Box::new(move |line| written.lock().unwrap().push_str(&line)));
        let clerk = place.clerk(somebody(), nobody_asks(), Arc::default(), Arc::new(log)).logging_entries();
        clerk.on_role(&Role::Receiver { target: b"incoming".to_vec() });
        let path = b"a/\x1b[1m.dat".to_vec();
        let copied = Event::Copied { path: path.clone(), bytes: 7, bytes_matched: 0, change: Change::Data };
        clerk.on_entry(&copied, Some(Duration::from_millis(1_500)));
        clerk.on_entry(&Event::Failed { path, why: "no space".to_owned() }, None);
        clerk.tell_end("ended well", Duration::from_secs(2), false);
        let lines = lines.lock().unwrap();
        let lines: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let events: Vec<_> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
        assert_eq!(events, ["begin", "file", "file", "end"]);
        for line in &lines {
            assert_eq!(
                (&line["name"], &line["address"], &line["session"]),
                (&"somebody".into(), &"10.0.0.1:5000".into(), &1.into())
            );
        }
        for (name, value) in
            [("direction", "write"), ("place", "incoming"), ("path", r"a/\u{1b}[1m.dat"), ("outcome", "copied")]
        {
            assert_eq!(lines[1][name], value);
        }
        assert_eq!((&lines[1]["bytes"], &lines[1]["took_ms"]), (&7.into(), &1_500.into()));
        assert_eq!(
            (&lines[2]["outcome"], &lines[2]["why"], &lines[2]["level"]),
            (&"failed".into(), &"no space".into(), &"warning".into())
        );
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
        let clerk = Arc::new(place.clerk(somebody(), nobody_asks(), Arc::default(), log));
        // Like a walk that outlives the session's own thread.
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
        let clerk = place.clerk(somebody(), nobody_asks(), Arc::default(), log);
        clerk.on_unfenced("no rights to give up are left");
        let said = lines.lock().unwrap().join("");
        assert!(
            said.contains("somebody (10.0.0.1:5000) works without a fence") && said.contains("no rights to give up"),
            "{said}"
        );
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
