//! Turns the two streams of a session into events and, at the end, the report.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use haul_engine::at_risk;
use haul_engine::attribute::{self, Phases};
use haul_engine::outage::{Listener, Outages};
use haul_engine::remedy::{self, Asked, Facts, Host, LanePath};
use haul_engine::tally::{Tally, TallyFault, Told};
use haul_job::{ClassChange, Earlier, Error, Event, Fault, Job, Observer, Progress, Proof, Report, Subject};
use haul_store::SumCounts;
use haul_wire::RelPath;
use haul_wire::control::{Counted, Cut, Notice, Outcome, Receipt, ReceiverSummary, SenderSummary, Wanted};
use haul_wire::limits::MAX_OPEN_ITEMS;
use haul_wire::manifest::Item;
use haul_wire::summary::{OnePath, PathNow, PathSummary, Subflow};

use crate::convert;
use crate::grant::Visit;
use crate::lane_addresses::LaneAddresses;
use crate::limit_log::LimitLog;
use crate::path_log::PathLog;
use crate::proved::Proved;
use crate::told::{event_of, keep_failure, named};
use crate::withheld;
use haul_kept::files::manifest_file::RootHasher;
use haul_kept::sync::lock;

/// Observes a session. An agent's watch is silent.
pub struct Watch {
    person: Option<Person>,
    visit: Option<Arc<dyn Visit>>,
    lanes_alive: AtomicU16,
    lanes_most: AtomicU16,
    /// Server connections that carry data, if lanes are on this host; 0: none.
    connections: AtomicU16,
    lane_addresses: Arc<Mutex<BTreeMap<u16, LaneAddresses>>>,
    path_log: Mutex<PathLog>,
    other_hosts: Mutex<BTreeMap<u16, String>>,
}

struct Person {
    observer: Arc<dyn Observer>,
    started: Instant,
    connected_us: AtomicU64,
    first_byte_us: AtomicU64,
    last_byte_us: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    tally: Tally,
    root: RootHasher,
    name: Option<RelPath>,
    /// The moment when data of a file was asked for, by index; the tally bounds open items.
    asked: BTreeMap<u64, Instant>,
    deleted: u64,
    withheld: u64,
    bytes_read_again: u64,
    failures: Vec<(Vec<u8>, String)>,
    class_changes: Vec<ClassChange>,
    limits: LimitLog,
    told_found_all: bool,
    path_told: BTreeMap<u16, Instant>,
    rtt_us: BTreeMap<u16, u32>,
    listener: Listener,
    no_data_for: Option<Duration>,
    proved: Proved,
    /// Bytes on their way from server to server.
    bytes_passing: u64,
}

/// A sender reports its path once a second. Earlier reports are ignored.
const PATH_EVERY: Duration = Duration::from_millis(500);

/// A class that does not flap changes less often.
const CLASS_CHANGES_KEPT: usize = 100;

/// Arriving marks are known only for all lanes together.
fn with_marks(path: &PathSummary, seen: u64) -> PathSummary {
    PathSummary { service: path.service.with_seen(seen), ..path.clone() }
}

const SPEND_LOOK: Duration = Duration::from_millis(100);

impl Watch {
    /// Makes a watch without an observer.
    pub fn silent() -> Self {
        Self {
            person: None,
            visit: None,
            lanes_alive: AtomicU16::new(0),
            lanes_most: AtomicU16::new(0),
            connections: AtomicU16::new(0),
            lane_addresses: Arc::default(),
            path_log: Mutex::default(),
            other_hosts: Mutex::default(),
        }
    }

    /// Makes a watch.
    pub fn new(observer: Arc<dyn Observer>) -> Self {
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

    /// Takes in a proof: the last word counts, but one that proves less stays.
    pub fn proves(&self, proof: Proof) {
        if let Some(person) = &self.person {
            person.lock().proved.tell(proof);
        }
    }

    /// Notes that data is compared with sums of the source's store, which `uncompared` files lack.
    pub fn compares(&self, uncompared: Arc<AtomicU64>) {
        if let Some(person) = &self.person {
            person.lock().proved.compares(uncompared);
        }
    }

    /// Sets the rule that cuts files.
    pub fn cut_by(&self, cut: Cut) {
        if let Some(person) = &self.person {
            person.lock().tally.cut_by(cut);
        }
    }

    /// Makes a daemon's watch.
    pub fn serving(visit: Arc<dyn Visit>) -> Self {
        Self { visit: Some(Arc::clone(&visit)), ..Self::new(visit) }
    }

    /// Makes the watch of one job, with shared addresses.
    pub fn of_job(&self, visit: Option<Arc<dyn Visit>>) -> Self {
        let watch = visit.map_or_else(Self::silent, Self::serving);
        Self { lane_addresses: Arc::clone(&self.lane_addresses), ..watch }
    }

    /// Makes the watch of an initiator's job.
    pub fn of_job_for(&self, observer: Arc<dyn Observer>) -> Self {
        Self { lane_addresses: Arc::clone(&self.lane_addresses), ..Self::new(observer) }
    }

    /// Waits before data leaves, or after it came. Returns true if it waited.
    pub fn spend(&self, bytes: u64) -> Result<bool, Error> {
        let Some(visit) = &self.visit else { return Ok(false) };
        let wait = visit.on_data(bytes)?;
        let begun = Instant::now();
        while begun.elapsed() < wait && !self.interrupted() {
            std::thread::park_timeout(wait.saturating_sub(begun.elapsed()).min(SPEND_LOOK));
        }
        Ok(!wait.is_zero())
    }

    /// The error of an interruption, as the user sees it.
    pub fn interruption(&self) -> Error {
        if self.visit.is_some() {
            return Error::new(Fault::Network, "the daemon is being stopped")
                .try_this("run the same command again once it is back: what is verified is not sent again");
        }
        haul_kept::faults::interrupted()
    }

    /// Whether the user or the daemon interrupted.
    pub fn interrupted(&self) -> bool {
        self.person.as_ref().is_some_and(|person| person.observer.interrupted())
    }

    /// The present limit, given `before`. Tells the user of a change.
    pub fn rate_limit(&self, before: Option<u64>) -> Option<u64> {
        let Some(person) = &self.person else { return before };
        let limit = person.observer.rate_limit(before);
        if limit != before {
            person.lock().limits.changed(before, limit, person.started, Instant::now());
            person.observer.on_event(&Event::RateLimit { bytes_per_s: limit });
        }
        limit
    }

    /// The present limit, for later hearers.
    pub fn present_rate_limit(&self, asked: Option<u64>) -> Option<u64> {
        self.person.as_ref().map_or(asked, |person| person.observer.rate_limit(asked))
    }

    /// Takes an item. Fails if it breaks the protocol.
    pub fn on_item(&self, item: &Item) -> Result<(), Error> {
        self.with(|_, state| state.tally.on_item(item).map_err(tally_error))
    }

    /// Takes the single file's name at the target.
    pub fn on_name(&self, name: &RelPath) -> Result<(), Error> {
        self.with(|_, state| match state.name.replace(name.clone()) {
            None => Ok(()),
            Some(_) => Err(Error::broke_the_protocol("it names the file twice")),
        })
    }

    /// Takes an answer.
    pub fn on_answer(&self, index: u64, wanted: &Wanted) {
        let _ = self.with(|_, state| {
            state.tally.on_answer(index, wanted);
            if self.logged().is_some() && state.asked.len() < MAX_OPEN_ITEMS {
                state.asked.entry(index).or_insert_with(Instant::now);
            }
            Ok(())
        });
    }

    /// Takes the count so far.
    pub fn on_counted(&self, counted: Counted) {
        let _ = self.with(|_, state| {
            state.tally.on_counted(counted);
            Ok(())
        });
    }

    /// Takes the manifest's end.
    pub fn on_end_of_manifest(&self) {
        let _ = self.with(|_, state| {
            state.tally.on_end_of_manifest();
            Ok(())
        });
    }

    /// Takes a receipt. Fails if it was not asked for.
    pub fn on_receipt(&self, receipt: &Receipt) -> Result<(), Error> {
        self.with(|person, state| {
            let now_us = person.now_us();
            let _ = person.first_byte_us.compare_exchange(0, now_us, Ordering::Relaxed, Ordering::Relaxed);
            person.last_byte_us.store(now_us, Ordering::Relaxed);
            state.tally.on_receipt(receipt).map_err(tally_error)
        })
    }

    /// Takes an outcome. Fails if it breaks the protocol.
    pub fn on_outcome(&self, outcome: &Outcome) -> Result<(), Error> {
        self.with(|person, state| {
            let State { tally, root, failures, name, asked, .. } = state;
            let took = asked.remove(&outcome.index).map(|asked| asked.elapsed());
            let mut tell = |told: Told| {
                let told = named(told, name.as_ref());
                if let Some(event) = event_of(told, root, failures, person.observer.wants_manifest()) {
                    person.observer.on_event(&event);
                    if let Some(visit) = self.logged() {
                        visit.on_entry(&event, took);
                    }
                }
            };
            tally.on_outcome(outcome, &mut tell).map_err(tally_error)
        })
    }

    /// Takes an end's notice.
    pub fn on_notice(&self, notice: Notice) {
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
                Notice::Withheld { path, entries, why } => {
                    // The far side chooses the number.
                    state.withheld = state.withheld.saturating_add(entries);
                    state.tally.on_failure_aside();
                    let why = withheld::text(entries, why);
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
            if let Some(visit) = self.logged() {
                visit.on_entry(&event, None);
            }
            Ok(())
        });
    }

    fn logged(&self) -> Option<&dyn Visit> {
        self.visit.as_deref().filter(|visit| visit.wants_entries())
    }

    /// Takes the comparisons with server sums.
    pub fn on_sums(&self, sums: SumCounts) {
        if let Some(person) = &self.person {
            person.lock().proved.sums = Some(sums);
        }
    }

    /// Takes the bytes of files that go from server to server, until they have their outcomes.
    pub fn on_passing(&self, bytes: u64) {
        if let Some(person) = &self.person {
            person.lock().bytes_passing = bytes;
        }
    }

    /// Takes the bytes read again so far.
    pub fn on_read_again(&self, bytes: u64) {
        if let Some(person) = &self.person {
            let mut state = person.lock();
            state.bytes_read_again = state.bytes_read_again.max(bytes);
        }
    }

    /// Takes a path's state.
    pub fn on_path(&self, path: &PathNow) {
        let Some(person) = &self.person else { return };
        let now = Instant::now();
        let mut state = person.lock();
        state.rtt_us.insert(path.path, path.rtt_us);
        if state.path_told.get(&path.path).is_some_and(|told| now.duration_since(*told) < PATH_EVERY) {
            return;
        }
        state.path_told.insert(path.path, now);
        drop(state);
        let mut now = convert::path_now(path);
        now.subflows = self.subflows_from_here(path.path, now.subflows);
        person.observer.on_event(&Event::Path(now));
    }

    /// Passes on an event.
    pub fn tell(&self, event: &Event) {
        if let Some(person) = &self.person {
            person.observer.on_event(event);
        }
    }

    /// Whether each item has its outcome.
    pub fn all_settled(&self) -> bool {
        self.person.as_ref().is_none_or(|person| person.lock().tally.all_settled())
    }

    /// Notes a lane, with its TCP addresses.
    pub fn lane_up(&self, path: u16, addresses: Option<LaneAddresses>) {
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

    /// The addresses of a path's first lane.
    pub fn addresses_of(&self, path: u16) -> Option<LaneAddresses> {
        lock(&self.lane_addresses).get(&path).copied()
    }

    /// Notes a lost lane.
    pub fn lane_down(&self, path: u16) {
        self.lanes_alive.fetch_sub(1, Ordering::Relaxed);
        lock(&self.path_log).lane_down(path, Instant::now());
    }

    /// Sets the server connections that carry data.
    pub fn set_connections(&self, connections: u16) {
        self.connections.store(connections, Ordering::Relaxed);
    }

    /// Sets the number of lanes elsewhere.
    pub fn set_lanes(&self, lanes: u16) {
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

    /// Takes the other end's silence, as often as [`Watch::tell_progress`].
    pub fn on_silence(&self, silence: Duration) {
        let Some(person) = &self.person else { return };
        let mut state = person.lock();
        let rtt_us = state.rtt_us.values().copied().max().unwrap_or(0);
        let now_us = person.now_us();
        // Of two other hosts, one may be silent while the other tells what came.
        let receipt_us = Some(person.last_byte_us.load(Ordering::Relaxed)).filter(|us| *us > 0);
        let silent_us = u64::try_from(silence.as_micros()).unwrap_or(u64::MAX);
        let silent_us = receipt_us.map_or(silent_us, |us| silent_us.min(now_us.saturating_sub(us)));
        state.no_data_for = state.listener.on_look(now_us, silent_us, rtt_us).map(Duration::from_micros);
    }

    /// Reports running totals.
    pub fn tell_progress(&self) {
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
            let (to_come, passing) = (state.tally.left(), state.bytes_passing);
            person.observer.on_event(&Event::Progress(Progress {
                files_done: totals.files_moved + totals.files_kept,
                files_kept: totals.files_kept,
                files_found: to_come.files,
                files_left: to_come.files_left,
                bytes_moved: totals.bytes_moved + passing,
                bytes_kept: totals.bytes_kept,
                bytes_matched: totals.bytes_matched,
                bytes_read_again: state.bytes_read_again,
                bytes_to_read_again: state.tally.resumed_bytes().saturating_sub(state.bytes_read_again),
                bytes_found: to_come.bytes,
                bytes_left: to_come.bytes_left.saturating_sub(passing),
                bytes_to_flush: totals.bytes_unsettled.min(at_risk::CHECKPOINT_BYTES),
                found_all: !to_come.is_rough,
                seen_ppm: to_come.seen_ppm,
                lanes: match self.connections.load(Ordering::Relaxed) {
                    0 => self.lanes_alive.load(Ordering::Relaxed),
                    connections => connections,
                },
                failed: totals.failed,
                no_data_for: state.no_data_for,
            }));
            Ok(())
        });
    }

    /// Makes the report of success, for an observer.
    pub fn report(&self, ends: &Ends, asked: Asked, dry_run: bool) -> Option<Report> {
        let person = self.person.as_ref()?;
        let mut state = person.lock();
        let totals = *state.tally.totals();
        let root = std::mem::take(&mut state.root);
        let only_blake3 = root.only();
        let (root_files, root_blake3) = root.finish();
        let passes_by = totals.files_between_servers > 0 && totals.files_between_servers == totals.files_moved;
        let nothing_moved = dry_run || totals.bytes_moved == 0 || passes_by;
        let phases = person.phases();
        let (sender, receiver) = (&ends.sender, &ends.receiver);
        // Of a server's lanes here some rest: each other lane has a connection.
        let lanes = match ends.lane_path.and_then(LanePath::server) {
            Some(_) if sender.path.lanes > 0 => sender.path.lanes,
            _ => self.lanes_most.load(Ordering::Relaxed),
        };
        let shares = attribute::shares(&sender.time, &receiver.time, &sender.path.time);
        let limit = attribute::limit(&phases, &shares).filter(|_| !nothing_moved);
        let lanes = if nothing_moved { 0 } else { lanes };
        let rate_bytes_per_s = state.limits.longest(asked.rate_bytes_per_s, Instant::now());
        let asked = Asked { rate_bytes_per_s, ..asked };
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
            files_between_servers: totals.files_between_servers,
            others_made: totals.others_made,
            deleted: state.deleted,
            withheld: state.withheld,
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
            bytes_matched: totals.bytes_matched,
            bytes_holes: totals.bytes_holes,
            elapsed: Duration::from_micros(phases.elapsed_us),
            connected: since_start(phases.connected_us),
            first_byte: since_start(phases.first_byte_us),
            last_byte: since_start(phases.last_byte_us),
            lanes,
            lane_path: ends.lane_path,
            cipher: ends.cipher.clone(),
            earlier: Earlier::default(),
            outages: Outages::default(),
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
            proof: if passes_by { Proof::ByBothServers } else { state.proved.of(ends.proof) },
            server_sums: state.proved.sums,
        };
        drop(state);
        self.tell_progress();
        Some(report)
    }

    /// Notes another far host.
    pub fn leads_to(&self, path: u16, host: &str) {
        lock(&self.other_hosts).insert(path, host.to_owned());
    }

    fn hosts_of(&self, paths: &[OnePath], first: &str) -> Vec<(u16, String)> {
        let others = lock(&self.other_hosts);
        let host = |path: &OnePath| (path.number, others.get(&path.number).map_or(first, String::as_str).to_owned());
        if others.is_empty() { Vec::new() } else { paths.iter().map(host).collect() }
    }

    /// Describes a path with this side's addresses.
    pub fn seen_from_here(&self, path: &OnePath) -> OnePath {
        let path = path.clone();
        let Some(ends) = self.addresses_of(path.number) else { return path };
        let device = ends.device().unwrap_or_default();
        let subflows = self.subflows_from_here(path.number, path.subflows);
        OnePath { local: Some(ends.local.into()), remote: Some(ends.peer.into()), device, subflows, ..path }
    }

    /// A far sender reports its own address first.
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
    /// Microseconds from the start; at least 1, since 0 stands for never.
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

/// Facts of both ends.
#[derive(Clone, Debug, Default)]
pub struct Ends {
    /// Sender's summary.
    pub sender: SenderSummary,
    /// Receiver's summary.
    pub receiver: ReceiverSummary,
    /// Sending host.
    pub source: Host,
    /// Receiving host.
    pub target: Host,
    /// The lanes' way.
    pub lane_path: Option<LanePath>,
    /// TLS name of the cipher.
    pub cipher: String,
    /// Whether the source is far.
    pub is_pull: bool,
    /// The proof of the data.
    pub proof: Proof,
}

impl Ends {
    fn far_place(&self) -> &str {
        if self.is_pull { &self.source.place } else { &self.target.place }
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

/// The options that affect speed.
pub fn asked(job: &Job) -> Asked {
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
#[path = "../tests/unit/reporter.rs"]
mod tests;
