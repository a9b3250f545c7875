//! Tells whoever watches what happens: turns the two streams of a session into events and, at the end, the report.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use haul_engine::at_risk;
use haul_engine::attribute::{self, Phases};
use haul_engine::remedy::{self, Asked, Facts, Host, LanePath};
use haul_engine::tally::{Tally, TallyFault, Told};
use haul_job::{
    Change, ClassChange, Earlier, Error, Event, Fault, Job, ManifestLine, Observer, Progress, Report, Subject,
};
use haul_wire::RelPath;
use haul_wire::control::{Counted, Notice, Outcome, Receipt, ReceiverSummary, SenderSummary, Wanted};
use haul_wire::manifest::Item;
use haul_wire::summary::{OnePath, PathNow, PathSummary, Subflow};

use crate::files::manifest_file::RootHasher;
use crate::session::convert;
use crate::session::grant::Visit;
use crate::session::lane_addresses::LaneAddresses;
use crate::session::path_log::PathLog;
use crate::sync::lock;

/// Stands beside a session. An agent's watch is silent: nobody is there to be told.
pub(crate) struct Watch {
    person: Option<Person>,
    /// The one who watches is a daemon, not the one who asked for the copy.
    visit: Option<Arc<dyn Visit>>,
    lanes_alive: AtomicU16,
    lanes_most: AtomicU16,
    /// Where the first lane of each path leads, by the number of the path.
    lane_addresses: Arc<Mutex<BTreeMap<u16, LaneAddresses>>>,
    /// For a daemon.
    path_log: Mutex<PathLog>,
    /// Paths that lead to other hosts than the first one, and these hosts.
    other_hosts: Mutex<BTreeMap<u16, String>>,
}

struct Person {
    observer: Arc<dyn Observer>,
    started: Instant,
    /// When the first lane stood, the first byte was verified, and the last: microseconds since the start, 0 before that.
    connected_us: AtomicU64,
    first_byte_us: AtomicU64,
    last_byte_us: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    tally: Tally,
    root: RootHasher,
    /// What the single file is called at the target, where that is not its name at the source.
    name: Option<RelPath>,
    deleted: u64,
    /// What the receiver has read of what earlier runs left.
    bytes_read_again: u64,
    failures: Vec<(Vec<u8>, String)>,
    class_changes: Vec<ClassChange>,
    told_found_all: bool,
    /// When each path was last told of, by its number.
    path_told: BTreeMap<u16, Instant>,
}

/// A sender reports its path once a second. More frequent reports are ignored, with some tolerance for queues.
const PATH_EVERY: Duration = Duration::from_millis(500);

/// Failures kept for the closing lines; each was told when it happened.
const FAILURES_KEPT: usize = 20;

/// Changes of the class that the report has; a class that does not flap has few.
const CLASS_CHANGES_KEPT: usize = 100;

/// Which marks arrived is known of all lanes together.
fn with_marks(path: &PathSummary, seen: u64) -> PathSummary {
    PathSummary { service: path.service.with_seen(seen), ..path.clone() }
}

/// Whoever waits for a rate looks so often whether the session is to end.
const SPEND_LOOK: Duration = Duration::from_millis(100);

impl Watch {
    pub(crate) fn silent() -> Self {
        Self {
            person: None,
            visit: None,
            lanes_alive: AtomicU16::new(0),
            lanes_most: AtomicU16::new(0),
            lane_addresses: Arc::default(),
            path_log: Mutex::default(),
            other_hosts: Mutex::default(),
        }
    }

    pub(crate) fn new(observer: Arc<dyn Observer>) -> Self {
        let person = Person {
            observer,
            started: Instant::now(),
            connected_us: AtomicU64::new(0),
            first_byte_us: AtomicU64::new(0),
            last_byte_us: AtomicU64::new(0),
            state: Mutex::default(),
        };
        Self { person: Some(person), ..Self::silent() }
    }

    pub(crate) fn serving(visit: Arc<dyn Visit>) -> Self {
        Self { visit: Some(Arc::clone(&visit)), ..Self::new(visit) }
    }

    /// Of one job, beside the watch of its session: where lanes lead is known to both.
    pub(crate) fn of_job(&self, visit: Option<Arc<dyn Visit>>) -> Self {
        let watch = visit.map_or_else(Self::silent, Self::serving);
        Self { lane_addresses: Arc::clone(&self.lane_addresses), ..watch }
    }

    /// The same for an initiator, of whom this one wants to hear of the job.
    pub(crate) fn of_job_for(&self, observer: Arc<dyn Observer>) -> Self {
        Self { lane_addresses: Arc::clone(&self.lane_addresses), ..Self::new(observer) }
    }

    /// Data of files is about to leave, or has come: waits as long as the one who is served here has to. True: it waited.
    pub(crate) fn spend(&self, bytes: u64) -> Result<bool, Error> {
        let Some(visit) = &self.visit else { return Ok(false) };
        let wait = visit.on_data(bytes)?;
        let begun = Instant::now();
        while begun.elapsed() < wait && !self.interrupted() {
            std::thread::park_timeout(wait.saturating_sub(begun.elapsed()).min(SPEND_LOOK));
        }
        Ok(!wait.is_zero())
    }

    /// What an interruption means for the one who asked for the copy.
    pub(crate) fn interruption(&self) -> Error {
        if self.visit.is_some() {
            return Error::new(Fault::Network, "the daemon is being stopped")
                .try_this("run the same command again once it is back: what is verified is not sent again");
        }
        crate::faults::interrupted()
    }

    pub(crate) fn interrupted(&self) -> bool {
        self.person.as_ref().is_some_and(|person| person.observer.interrupted())
    }

    pub(crate) fn on_item(&self, item: &Item) -> Result<(), Error> {
        self.with(|_, state| state.tally.on_item(item).map_err(tally_error))
    }

    /// The single file gets this name at the target.
    pub(crate) fn on_name(&self, name: &RelPath) -> Result<(), Error> {
        self.with(|_, state| match state.name.replace(name.clone()) {
            None => Ok(()),
            Some(_) => Err(Error::broke_the_protocol("it names the file twice")),
        })
    }

    pub(crate) fn on_answer(&self, index: u64, wanted: &Wanted) {
        let _ = self.with(|_, state| {
            state.tally.on_answer(index, wanted);
            Ok(())
        });
    }

    /// So much there is, as far as a count has come.
    pub(crate) fn on_counted(&self, counted: Counted) {
        let _ = self.with(|_, state| {
            state.tally.on_counted(counted);
            Ok(())
        });
    }

    pub(crate) fn on_end_of_manifest(&self) {
        let _ = self.with(|_, state| {
            state.tally.on_end_of_manifest();
            Ok(())
        });
    }

    pub(crate) fn on_receipt(&self, receipt: &Receipt) -> Result<(), Error> {
        self.with(|person, state| {
            let now_us = person.now_us();
            let _ = person.first_byte_us.compare_exchange(0, now_us, Ordering::Relaxed, Ordering::Relaxed);
            person.last_byte_us.store(now_us, Ordering::Relaxed);
            state.tally.on_receipt(receipt).map_err(tally_error)
        })
    }

    pub(crate) fn on_outcome(&self, outcome: &Outcome) -> Result<(), Error> {
        self.with(|person, state| {
            let State { tally, root, failures, name, .. } = state;
            let mut tell = |told: Told| {
                let told = named(told, name.as_ref());
                if let Some(event) = event_of(told, root, failures, person.observer.wants_manifest()) {
                    person.observer.on_event(&event);
                }
            };
            tally.on_outcome(outcome, &mut tell).map_err(tally_error)
        })
    }

    pub(crate) fn on_notice(&self, notice: Notice) {
        let _ = self.with(|person, state| {
            let event = match notice {
                Notice::Deleted { path, is_directory } => {
                    state.deleted += 1;
                    Event::Deleted { path, is_directory }
                }
                Notice::Failed { path, why } => {
                    state.tally.on_failure_aside();
                    keep_failure(&mut state.failures, &path, &why);
                    Event::Failed { path, why }
                }
                Notice::Skipped { path, why } => {
                    state.tally.on_skip_aside();
                    Event::Skipped { path, why }
                }
                Notice::Warning { text } => Event::Warning { text },
                Notice::Chose { what, choice, reason } => {
                    let what = Subject::named(&what);
                    if what == Subject::Class && state.class_changes.len() < CLASS_CHANGES_KEPT {
                        let (class, reason, at) = (choice.clone(), reason.clone(), person.started.elapsed());
                        state.class_changes.push(ClassChange { at, class, reason });
                    }
                    Event::Chose { what, choice, reason }
                }
            };
            person.observer.on_event(&event);
            Ok(())
        });
    }

    /// So many bytes of what earlier runs left were read so far.
    pub(crate) fn on_read_again(&self, bytes: u64) {
        if let Some(person) = &self.person {
            let mut state = person.lock();
            state.bytes_read_again = state.bytes_read_again.max(bytes);
        }
    }

    /// The path as it is now.
    pub(crate) fn on_path(&self, path: &PathNow) {
        let Some(person) = &self.person else { return };
        let now = Instant::now();
        let mut state = person.lock();
        if state.path_told.get(&path.path).is_some_and(|told| now.duration_since(*told) < PATH_EVERY) {
            return;
        }
        state.path_told.insert(path.path, now);
        drop(state);
        let mut now = convert::path_now(path);
        now.subflows = self.subflows_from_here(path.path, now.subflows);
        person.observer.on_event(&Event::Path(now));
    }

    /// Something about the job itself.
    pub(crate) fn tell(&self, event: &Event) {
        if let Some(person) = &self.person {
            person.observer.on_event(event);
        }
    }

    pub(crate) fn all_settled(&self) -> bool {
        self.person.as_ref().is_none_or(|person| person.lock().tally.all_settled())
    }

    /// A lane of this path stands, and its other end has proved its key; over TCP it has these ends.
    pub(crate) fn lane_up(&self, path: u16, addresses: Option<LaneAddresses>) {
        if let Some(addresses) = addresses {
            lock(&self.lane_addresses).entry(path).or_insert(addresses);
        }
        if let Some(visit) = &self.visit
            && let Some(ends) = lock(&self.path_log).lane_up(path, addresses)
        {
            visit.on_path(path, ends.local, ends.peer);
        }
        let alive = self.lanes_alive.fetch_add(1, Ordering::Relaxed) + 1;
        self.lanes_most.fetch_max(alive, Ordering::Relaxed);
        self.connected();
    }

    /// The ends of a path as its first lane has found them.
    pub(crate) fn addresses_of(&self, path: u16) -> Option<LaneAddresses> {
        lock(&self.lane_addresses).get(&path).copied()
    }

    pub(crate) fn lane_down(&self, path: u16) {
        self.lanes_alive.fetch_sub(1, Ordering::Relaxed);
        lock(&self.path_log).lane_down(path, Instant::now());
    }

    /// For a side through which the lanes do not run.
    pub(crate) fn set_lanes(&self, lanes: u16) {
        self.lanes_alive.store(lanes, Ordering::Relaxed);
        self.lanes_most.fetch_max(lanes, Ordering::Relaxed);
        self.connected();
    }

    fn connected(&self) {
        if let Some(person) = &self.person {
            let now_us = person.now_us();
            let _ = person.connected_us.compare_exchange(0, now_us, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Tells the running totals.
    pub(crate) fn tell_progress(&self) {
        if let Some(visit) = &self.visit {
            let gone = lock(&self.path_log).gone(Instant::now());
            gone.into_iter().for_each(|path| visit.on_path_gone(path));
        }
        let _ = self.with(|person, state| {
            let totals = *state.tally.totals();
            let found =
                Event::Found { files: totals.files_found, bytes: totals.bytes_found, complete: totals.found_all };
            if totals.found_all && !state.told_found_all {
                state.told_found_all = true;
                person.observer.on_event(&found);
            }
            let to_come = state.tally.left();
            person.observer.on_event(&Event::Progress(Progress {
                files_done: totals.files_moved + totals.files_kept,
                files_kept: totals.files_kept,
                files_found: to_come.files,
                files_left: to_come.files_left,
                bytes_moved: totals.bytes_moved,
                bytes_kept: totals.bytes_kept,
                bytes_read_again: state.bytes_read_again,
                bytes_to_read_again: state.tally.resumed_bytes().saturating_sub(state.bytes_read_again),
                bytes_found: to_come.bytes,
                bytes_left: to_come.bytes_left,
                bytes_to_flush: totals.bytes_unsettled.min(at_risk::CHECKPOINT_BYTES),
                found_all: !to_come.is_rough,
                lanes: self.lanes_alive.load(Ordering::Relaxed),
                failed: totals.failed,
            }));
            Ok(())
        });
    }

    /// The report, once the session ended well. `None` when nobody watches.
    pub(crate) fn report(&self, ends: &Ends, asked: Asked, dry_run: bool) -> Option<Report> {
        let person = self.person.as_ref()?;
        let mut state = person.lock();
        let totals = *state.tally.totals();
        let root = std::mem::take(&mut state.root);
        let only_blake3 = root.only();
        let (root_files, root_blake3) = root.finish();
        let nothing_moved = dry_run || totals.bytes_moved == 0;
        let phases = person.phases();
        let (sender, receiver) = (&ends.sender, &ends.receiver);
        let lanes = self.lanes_most.load(Ordering::Relaxed);
        let shares = attribute::shares(&sender.time, &receiver.time, &sender.path.time);
        let limit = attribute::limit(&phases, &shares).filter(|_| !nothing_moved);
        let lanes = if nothing_moved { 0 } else { lanes };
        let facts = Facts {
            source: &ends.source,
            target: &ends.target,
            path: &sender.path,
            asked,
            lanes,
            lane_path: ends.lane_path.unwrap_or(LanePath::Direct),
            bytes_moved: totals.bytes_moved,
            phases,
        };
        let since_start = |us: Option<u64>| us.map(Duration::from_micros);
        let report = Report {
            files_found: totals.files_found,
            files_moved: totals.files_moved,
            files_kept: totals.files_kept,
            files_linked: totals.files_linked,
            files_copied_there: totals.files_copied_there,
            others_made: totals.others_made,
            deleted: state.deleted,
            failed: totals.failed,
            vanished: totals.vanished,
            unverified: totals.unverified,
            skipped: totals.skipped,
            left_out: totals.left_out,
            removed: sender.removed,
            bytes_found: totals.bytes_found,
            bytes_moved: totals.bytes_moved,
            bytes_again: receiver.arrived_bytes.saturating_sub(totals.bytes_moved),
            bytes_reread: receiver.reread_bytes,
            chunks_repaired: receiver.repaired_chunks,
            bytes_read_again: receiver.read_again_bytes,
            bytes_trusted: receiver.trusted_bytes,
            bytes_kept: totals.bytes_kept,
            bytes_holes: totals.bytes_holes,
            elapsed: Duration::from_micros(phases.elapsed_us),
            connected: since_start(phases.connected_us),
            first_byte: since_start(phases.first_byte_us),
            last_byte: since_start(phases.last_byte_us),
            lanes,
            lane_path: ends.lane_path,
            cipher: ends.cipher.clone(),
            earlier: Earlier::default(),
            only_blake3,
            root_blake3,
            root_files,
            remedies: limit.map_or_else(Vec::new, |limit| remedy::remedies(&limit, &shares, &facts)),
            source: ends.source.clone(),
            target: ends.target.clone(),
            path: with_marks(&sender.path, receiver.marks_seen),
            paths: sender.paths.iter().map(|path| self.seen_from_here(path)).collect(),
            hosts: self.hosts_of(&sender.paths, ends.far_place()),
            time: shares,
            limit,
            dry_run,
            failures: std::mem::take(&mut state.failures),
            class_changes: std::mem::take(&mut state.class_changes),
        };
        drop(state);
        self.tell_progress();
        Some(report)
    }

    /// A path leads to another host than the first one.
    pub(crate) fn leads_to(&self, path: u16, host: &str) {
        lock(&self.other_hosts).insert(path, host.to_owned());
    }

    /// Where the paths of a job lead, if not all to one host.
    fn hosts_of(&self, paths: &[OnePath], first: &str) -> Vec<(u16, String)> {
        let others = lock(&self.other_hosts);
        let host = |path: &OnePath| (path.number, others.get(&path.number).map_or(first, String::as_str).to_owned());
        if others.is_empty() { Vec::new() } else { paths.iter().map(host).collect() }
    }

    /// A path whose lanes end here, with the addresses of this side.
    pub(crate) fn seen_from_here(&self, path: &OnePath) -> OnePath {
        let path = path.clone();
        let Some(ends) = self.addresses_of(path.number) else { return path };
        let device = ends.device().unwrap_or_default();
        let subflows = self.subflows_from_here(path.number, path.subflows);
        OnePath { local: Some(ends.local.into()), remote: Some(ends.peer.into()), device, subflows, ..path }
    }

    /// With the addresses of this side first. Those of a far sender have no address of this host at its end.
    fn subflows_from_here(&self, path: u16, mut subflows: Vec<Subflow>) -> Vec<Subflow> {
        let Some(ends) = self.addresses_of(path) else { return subflows };
        if !subflows.iter().any(|subflow| convert::ip(subflow.local) == ends.local) {
            subflows.iter_mut().for_each(|subflow| std::mem::swap(&mut subflow.local, &mut subflow.remote));
        }
        subflows
    }

    fn with(&self, act: impl FnOnce(&Person, &mut State) -> Result<(), Error>) -> Result<(), Error> {
        match &self.person {
            Some(person) => act(person, &mut person.lock()),
            None => Ok(()),
        }
    }
}

impl Person {
    /// Never 0, which stands for what has not happened.
    fn now_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX).max(1)
    }

    fn phases(&self) -> Phases {
        let at = |us: &AtomicU64| Some(us.load(Ordering::Relaxed)).filter(|us| *us > 0);
        Phases {
            connected_us: at(&self.connected_us),
            first_byte_us: at(&self.first_byte_us),
            last_byte_us: at(&self.last_byte_us),
            elapsed_us: self.now_us(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is known of both ends when a session is over.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ends {
    pub(crate) sender: SenderSummary,
    pub(crate) receiver: ReceiverSummary,
    pub(crate) source: Host,
    pub(crate) target: Host,
    /// None: no lane stood.
    pub(crate) lane_path: Option<LanePath>,
    pub(crate) cipher: String,
    /// The source is the far end.
    pub(crate) is_pull: bool,
}

impl Ends {
    /// The end that may have several hosts: the other one is here.
    fn far_place(&self) -> &str {
        if self.is_pull { &self.source.place } else { &self.target.place }
    }
}

/// A manifest lists what is at the target. All else tells of the source.
fn named(told: Told, name: Option<&RelPath>) -> Told {
    match (told, name) {
        (Told::Hashed { size, mtime, blake3, .. }, Some(name)) => {
            Told::Hashed { path: name.clone(), size, mtime, blake3 }
        }
        (told, _) => told,
    }
}

fn event_of(
    told: Told,
    root: &mut RootHasher,
    failures: &mut Vec<(Vec<u8>, String)>,
    wants_manifest: bool,
) -> Option<Event> {
    let bytes_of = |path: RelPath| path.as_bytes().to_vec();
    Some(match told {
        Told::Copied { path, bytes } => Event::Copied { path: bytes_of(path), bytes, change: Change::Data },
        Told::Touched { path } => Event::Copied { path: bytes_of(path), bytes: 0, change: Change::Metadata },
        Told::Made { path } => Event::Copied { path: bytes_of(path), bytes: 0, change: Change::Made },
        Told::Skipped { path, why } => Event::Skipped { path: bytes_of(path), why },
        Told::LeftOut { path, rule } => Event::LeftOut { path: bytes_of(path), rule: convert::left_out(rule) },
        Told::Item { item, result, changes } => Event::Item(Box::new(convert::item_told(&item, &result, changes))),
        Told::Failed { path, why } => {
            let path = bytes_of(path);
            keep_failure(failures, &path, &why);
            Event::Failed { path, why }
        }
        Told::Hashed { path, size, mtime, blake3 } => {
            root.add(path.as_bytes(), size, &blake3);
            let line = ManifestLine { path: bytes_of(path), size, mtime_s: mtime.s, mtime_ns: mtime.ns, blake3 };
            return wants_manifest.then_some(Event::Manifest(line));
        }
    })
}

fn keep_failure(failures: &mut Vec<(Vec<u8>, String)>, path: &[u8], why: &str) {
    if failures.len() < FAILURES_KEPT {
        failures.push((path.to_vec(), why.to_owned()));
    }
}

fn tally_error(fault: TallyFault) -> Error {
    let why = match fault {
        TallyFault::Overflow => "it keeps more items open than agreed",
        TallyFault::NotOpen => "it reports on an item that is not open",
        TallyFault::Twice => "it settles an item twice",
    };
    Error::broke_the_protocol(why)
}

/// What bears on the speed of a job.
pub(crate) fn asked(job: &Job) -> Asked {
    let (carriage, selection) = (&job.carriage, &job.selection);
    Asked {
        rate_bytes_per_s: carriage.rate_bytes_per_s,
        cipher: carriage.cipher.is_some(),
        compress: carriage.compress,
        checksum: selection.checksum,
        no_flush: !selection.flush,
        window_bytes: carriage.window_bytes,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Counting(AtomicUsize);

    impl Observer for Counting {
        fn on_event(&self, event: &Event) {
            self.0.fetch_add(usize::from(matches!(event, Event::Path(_))), Ordering::Relaxed);
        }

        fn interrupted(&self) -> bool {
            false
        }
    }

    #[test]
    fn a_peer_that_talks_of_its_path_without_end_is_heard_now_and_then() {
        let counting = Arc::new(Counting::default());
        let observer: Arc<dyn Observer> = Arc::clone(&counting) as _;
        let watch = Watch::new(observer);
        let start = Instant::now();
        (0..1000).for_each(|_| watch.on_path(&PathNow::default()));
        let most = 1 + usize::try_from(start.elapsed().as_millis() / PATH_EVERY.as_millis()).unwrap();
        assert!((1..=most).contains(&counting.0.load(Ordering::Relaxed)));
    }

    /// Keeps the subjects of choices.
    #[derive(Default)]
    struct Hearing(Mutex<Vec<Subject>>);

    impl Observer for Hearing {
        fn on_event(&self, event: &Event) {
            if let Event::Chose { what, .. } = event {
                self.0.lock().unwrap().push(*what);
            }
        }

        fn interrupted(&self) -> bool {
            false
        }
    }

    #[test]
    fn where_a_file_goes_on_is_told_by_its_name_and_a_strangers_word_is_not_passed_on() {
        let hearing = Arc::new(Hearing::default());
        let watch = Watch::new(Arc::clone(&hearing) as Arc<dyn Observer>);
        watch.on_notice(convert::chose(Subject::Resume, "from the beginning of a file", "it changed"));
        let (choice, reason) = (String::new(), String::new());
        watch.on_notice(Notice::Chose { what: "\u{1b}[2J".to_owned(), choice, reason });
        assert_eq!(*hearing.0.lock().unwrap(), [Subject::Resume, Subject::Other]);
    }
}
