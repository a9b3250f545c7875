//! Compares two trees, here or at other hosts, for `haul diff`.
//!
//! ```text
//!   listing of A --\                                        /--> hashes of A --\
//!                   > both in one order -> compare facts --<                    > compare
//!   listing of B --/                                        \--> hashes of B --/
//! ```
//! Listings and hashes stream, so memory does not grow with the trees. Each side hashes its own files.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use haul_job::{Carriage, Endpoint, Error, Fault, FilterRule, Observer, Proof, SshOptions};
use haul_store::Filter;
use haul_wire::RelPath;
use haul_wire::hashed::{Algorithm, FileFound, WantedFile};
use haul_wire::place::{Facts, Kind, List, Moment, Question, Told, Verb};

use super::asking::ask;
use super::hearer::Piece;
use super::named_hashes::Hashes;
use super::request::Request;
use super::ways::Ways;
use haul_channel::clock::TICK;
use haul_channel::reporter::Watch;

/// The trees and the kind of a comparison.
#[derive(Clone, Debug)]
pub struct DiffOptions {
    /// The source and target of a copy.
    pub trees: [Endpoint; 2],
    /// Compares contents, not size and time.
    pub contents: bool,
    /// The compared metadata.
    pub metadata: Metadata,
    /// Filter rules, without merge files.
    pub rules: Vec<FilterRule>,
    /// Files read at once here, at least 1.
    pub threads: usize,
    /// Settings of connections.
    pub carriage: Carriage,
    /// Settings of the ssh program.
    pub ssh: SshOptions,
}

/// The metadata to compare, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Metadata {
    /// No metadata is compared.
    #[default]
    None,
    /// Permissions, special bits included.
    Permissions,
    /// Permissions, owner and group by name, and times of directories and links.
    All,
}

/// The result for one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compared {
    /// Only at the source.
    New(Kind),
    /// Only at the target.
    Extra(Kind),
    /// At both, and different.
    Changed(Kind, Vec<Aspect>),
    /// The same at both.
    Same(Kind),
    /// A failure in the system's words.
    Failed(String),
}

/// A property in which two entries differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Aspect {
    /// A file or a directory.
    Kind,
    /// The size of a file.
    Size,
    /// The time of the last change.
    Time,
    /// The contents of a file.
    Contents,
    /// The target of a link.
    Target,
    /// The device of a device file.
    Device,
    /// The permissions.
    Permissions,
    /// The owner.
    Owner,
    /// The group.
    Group,
}

/// Watches a comparison.
pub trait DiffWatcher {
    /// Takes the result for an entry.
    fn on_compared(&self, path: &[u8], compared: &Compared);

    /// Ends the comparison if true.
    fn interrupted(&self) -> bool {
        false
    }
}

/// Counts of entries by result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct DiffReport {
    pub new: u64,
    pub extra: u64,
    pub changed: u64,
    pub same: u64,
    pub failed: u64,
    /// Bytes that each side hashed.
    pub bytes_hashed: [u64; 2],
    /// The reader of each side's files.
    pub proofs: [Proof; 2],
    /// Aspects that a server did not tell.
    pub untold: BTreeSet<Aspect>,
    pub elapsed: Duration,
}

/// Compares the trees.
///
/// # Errors
/// A tree is missing, or its host cannot be reached or breaks off.
pub fn diff(
    options: &DiffOptions,
    ways: &Ways,
    observer: &Arc<dyn Observer>,
    watcher: &dyn DiffWatcher,
) -> Result<DiffReport, Error> {
    let started = Instant::now();
    let chosen = Chosen::by(&options.rules)?;
    let trees = options.trees.each_ref();
    let mut comparing =
        Comparing { options, ways, observer, watcher, chosen, hashing: None, report: DiffReport::default() };
    let result = trees.map(|tree| Side::open(&comparing, tree));
    let [source, target] = result;
    let outcome = comparing.all(&mut source?, &mut target?);
    let outcome = match comparing.hashing.take() {
        Some(hashing) => hashing.close(outcome, &mut comparing.report),
        None => outcome,
    };
    outcome.map_err(|error| if watcher.interrupted() { interrupted() } else { error })?;
    Ok(DiffReport { elapsed: started.elapsed(), ..comparing.report })
}

fn interrupted() -> Error {
    Error::new(Fault::Interrupted, "interrupted before all was compared")
}

struct Comparing<'a> {
    options: &'a DiffOptions,
    ways: &'a Ways,
    observer: &'a Arc<dyn Observer>,
    watcher: &'a dyn DiffWatcher,
    chosen: Chosen,
    hashing: Option<Hashing>,
    report: DiffReport,
}

impl Comparing<'_> {
    fn request(&self, tree: &Endpoint, verb: Verb, path: Vec<u8>) -> Request {
        let question = Question { verb, paths: vec![path] };
        let (carriage, ssh) = (self.options.carriage.clone(), self.options.ssh.clone());
        Request { place: tree.place.clone(), question, carriage, ssh }
    }

    fn all(&mut self, source: &mut Side, target: &mut Side) -> Result<(), Error> {
        let (mut here, mut there) = (self.next(source)?, self.next(target)?);
        if source.is_tree != target.is_tree {
            let what = "one is a directory and the other is none";
            return Err(Error::new(Fault::Usage, what).try_this("name two directories, or two files"));
        }
        loop {
            if self.watcher.interrupted() {
                return Err(interrupted());
            }
            let order = match (&here, &there) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(here), Some(there)) => here.order().cmp(&there.order()),
            };
            match (order, here.take(), there.take()) {
                (Ordering::Less, Some(new), back) => {
                    self.tell(&new.path, &Compared::New(new.facts.kind));
                    (here, there) = (self.next(source)?, back);
                }
                (Ordering::Greater, back, Some(extra)) => {
                    self.tell(&extra.path, &Compared::Extra(extra.facts.kind));
                    (here, there) = (back, self.next(target)?);
                }
                (_, Some(one), Some(other)) => {
                    self.compare(one, &other)?;
                    (here, there) = (self.next(source)?, self.next(target)?);
                }
                _ => break,
            }
        }
        self.hear(true)
    }

    fn next(&mut self, side: &mut Side) -> Result<Option<Entry>, Error> {
        loop {
            match side.next()? {
                Some(Said::Entry(entry)) if !self.chosen.takes(&entry) => {}
                Some(Said::Entry(entry)) => return Ok(Some(*entry)),
                Some(Said::Failed(why)) => self.tell(b"", &Compared::Failed(why)),
                None => return Ok(None),
            }
        }
    }

    fn compare(&mut self, one: Entry, other: &Entry) -> Result<(), Error> {
        let (facts, standing) = (&one.facts, &other.facts);
        let (contents, metadata) = (self.options.contents, self.options.metadata);
        let mut aspects = Vec::new();
        match facts.kind {
            kind if kind != standing.kind => aspects.push(Aspect::Kind),
            Kind::File => {
                if facts.lacks.size || standing.lacks.size {
                    self.report.untold.insert(Aspect::Size);
                } else if facts.size != standing.size {
                    aspects.push(Aspect::Size);
                }
                if !contents {
                    add_time(&mut aspects, facts, standing, &mut self.report.untold);
                }
            }
            Kind::Symlink if facts.target != standing.target => aspects.push(Aspect::Target),
            Kind::BlockDevice | Kind::CharacterDevice if facts.special != standing.special => {
                aspects.push(Aspect::Device)
            }
            _ => {}
        }
        let same_size = facts.kind == Kind::File && standing.kind == Kind::File && facts.size == standing.size;
        if facts.kind == standing.kind {
            add_metadata(&mut aspects, metadata, (facts, standing), &mut self.report.untold);
        }
        if contents && same_size && facts.size > 0 {
            return self.want(one, aspects);
        }
        let kind = facts.kind;
        self.tell(&one.path, &if aspects.is_empty() { Compared::Same(kind) } else { Compared::Changed(kind, aspects) });
        Ok(())
    }

    fn want(&mut self, entry: Entry, aspects: Vec<Aspect>) -> Result<(), Error> {
        if self.hashing.is_none() {
            self.hashing = Some(Hashing::open(self, entry.path.is_empty())?);
        }
        while self.hashing.as_ref().is_some_and(|hashing| !hashing.has_room()) {
            self.hear_some(TICK)?;
        }
        if let Some(hashing) = &mut self.hashing {
            hashing.want(entry, aspects)?;
        }
        self.hear(false)
    }

    fn hear(&mut self, all: bool) -> Result<(), Error> {
        let limit = if all { TICK } else { Duration::ZERO };
        loop {
            let has_open = self.hashing.as_ref().is_some_and(|hashing| !hashing.waiting.is_empty());
            if !has_open || (!self.hear_some(limit)? && !all) {
                return Ok(());
            }
        }
    }

    fn hear_some(&mut self, limit: Duration) -> Result<bool, Error> {
        if self.watcher.interrupted() {
            return Err(interrupted());
        }
        let Some(hashing) = &mut self.hashing else { return Ok(false) };
        let (settled, has_heard) = hearing(hashing, limit)?;
        for (path, compared) in settled {
            self.tell(&path, &compared);
        }
        Ok(has_heard)
    }

    fn tell(&mut self, path: &[u8], compared: &Compared) {
        let count = match compared {
            Compared::New(_) => &mut self.report.new,
            Compared::Extra(_) => &mut self.report.extra,
            Compared::Changed(..) => &mut self.report.changed,
            Compared::Same(_) => &mut self.report.same,
            Compared::Failed(_) => &mut self.report.failed,
        };
        *count += 1;
        self.watcher.on_compared(if path.is_empty() { b"." } else { path }, compared);
    }
}

fn add_time(aspects: &mut Vec<Aspect>, facts: &Facts, standing: &Facts, untold: &mut BTreeSet<Aspect>) {
    if facts.lacks.modified || standing.lacks.modified {
        untold.insert(Aspect::Time);
    } else if !same_time(standing.modified, facts.modified) {
        aspects.push(Aspect::Time);
    }
}

fn add_metadata(
    aspects: &mut Vec<Aspect>,
    metadata: Metadata,
    (facts, standing): (&Facts, &Facts),
    untold: &mut BTreeSet<Aspect>,
) {
    let lacks = |one: fn(&Facts) -> bool| one(facts) || one(standing);
    // A link has no permissions of its own.
    if metadata >= Metadata::Permissions && facts.kind != Kind::Symlink {
        if lacks(|facts| facts.lacks.mode) {
            untold.insert(Aspect::Permissions);
        } else if facts.mode != standing.mode {
            aspects.push(Aspect::Permissions);
        }
    }
    if metadata < Metadata::All {
        return;
    }
    if !aspects.contains(&Aspect::Time) {
        add_time(aspects, facts, standing, untold);
    }
    if lacks(|facts| facts.lacks.owner) {
        untold.extend([Aspect::Owner, Aspect::Group]);
        return;
    }
    // Accounts are compared by name, or by number if a side has no name.
    let same = |id: u32, name: &[u8], other: u32, theirs: &[u8]| match name.is_empty() || theirs.is_empty() {
        true => id == other,
        false => name == theirs,
    };
    if !same(facts.uid, &facts.owner, standing.uid, &standing.owner) {
        aspects.push(Aspect::Owner);
    }
    if !same(facts.gid, &facts.group, standing.gid, &standing.group) {
        aspects.push(Aspect::Group);
    }
}

struct Chosen {
    filter: Filter,
    last: (Vec<u8>, bool),
}

impl Chosen {
    fn by(rules: &[FilterRule]) -> Result<Self, Error> {
        let refused = |why: String| Error::new(Fault::Usage, "cannot compare with these rules").because(why);
        if rules.iter().any(|rule| matches!(rule, FilterRule::PerDirectory(_))) {
            let why = "files of rules in the directories of a tree are read by copies alone";
            return Err(refused(why.to_owned()).try_this("haul cp -r -n -i A/ B"));
        }
        Ok(Self { filter: Filter::of(rules).map_err(refused)?, last: (Vec::new(), true) })
    }

    /// Whether entry and directories above are wanted.
    fn takes(&mut self, entry: &Entry) -> bool {
        if self.filter.is_empty() {
            return true;
        }
        let parent = entry.path.iter().rposition(|byte| *byte == b'/').map_or(&b""[..], |at| &entry.path[..at]);
        if self.last.0 != parent {
            let slashes = parent.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
            let is_wanted = slashes.chain([parent.len()]).all(|end| self.filter.selects(&parent[..end], true));
            self.last = (parent.to_vec(), is_wanted);
        }
        self.last.1 && self.filter.selects(&entry.path, entry.facts.kind == Kind::Directory)
    }
}

/// A file system that counts seconds has no nanoseconds.
fn same_time(standing: Moment, wanted: Moment) -> bool {
    standing.s == wanted.s && (standing.ns == wanted.ns || standing.ns == 0)
}

type Settled = Vec<(Vec<u8>, Compared)>;

fn hearing(hashing: &mut Hashing, mut limit: Duration) -> Result<(Settled, bool), Error> {
    let (mut settled, mut has_heard) = (Vec::new(), false);
    if !limit.is_zero() {
        hashing.sides.iter_mut().for_each(Hashes::flush);
    }
    // A side that owes no answer is not awaited.
    let first = usize::from(!hashing.sides[0].has_open());
    for side in [first, 1 - first] {
        while let Some((number, found)) = hashing.sides[side].next(limit)? {
            (has_heard, limit) = (true, Duration::ZERO);
            settled.extend(hashing.answer(side, number, found)?);
        }
        limit = Duration::ZERO;
    }
    Ok((settled, has_heard))
}

struct Hashing {
    sides: [Hashes; 2],
    names: Option<[RelPath; 2]>,
    waiting: BTreeMap<u64, Waiting>,
}

struct Waiting {
    path: Vec<u8>,
    aspects: Vec<Aspect>,
    found: [Option<FileFound>; 2],
}

impl Hashing {
    fn open(comparing: &Comparing<'_>, is_single: bool) -> Result<Self, Error> {
        let open = |tree: &Endpoint| {
            let (root, name) = if is_single { parent(&tree.path) } else { (tree.path.clone(), Vec::new()) };
            let watch = Arc::new(Watch::new(Arc::clone(comparing.observer)));
            let request = comparing.request(tree, Verb::HashNamed, root);
            let hashes = Hashes::open(&request, comparing.options.threads, comparing.ways, &watch)?;
            let name = RelPath::new(name).map_err(|fault| {
                Error::new(Fault::Usage, format!("cannot compare {}", haul_store::printable(&tree.path))).because(fault)
            })?;
            Ok::<_, Error>((hashes, name))
        };
        let [source, target] = comparing.options.trees.each_ref();
        let ((source, name), (target, other)) = (open(source)?, open(target)?);
        Ok(Self { sides: [source, target], names: is_single.then_some([name, other]), waiting: BTreeMap::new() })
    }

    fn has_room(&self) -> bool {
        self.sides.iter().all(Hashes::has_room)
    }

    fn want(&mut self, entry: Entry, aspects: Vec<Aspect>) -> Result<(), Error> {
        let path = RelPath::new(entry.path.clone()).map_err(|fault| Error::broke_the_protocol(fault.to_string()))?;
        let mut number = 0;
        for (side, hashes) in self.sides.iter_mut().enumerate() {
            let path = self.names.as_ref().map_or_else(|| path.clone(), |names| names[side].clone());
            let size = Some(entry.facts.size);
            // Both sides give the same numbers.
            number = hashes.want(WantedFile { path, size, algorithm: Algorithm::Blake3, or: None });
        }
        self.waiting.insert(number, Waiting { path: entry.path, aspects, found: [None, None] });
        Ok(())
    }

    fn answer(&mut self, side: usize, number: u64, found: FileFound) -> Result<Option<(Vec<u8>, Compared)>, Error> {
        let unasked = || Error::broke_the_protocol("it tells of what was not asked for");
        let waiting = self.waiting.get_mut(&number).ok_or_else(unasked)?;
        waiting.found[side] = Some(found);
        let mut aspects = waiting.aspects.clone();
        let [Some(one), Some(other)] = &waiting.found else { return Ok(None) };
        let compared = match (one, other) {
            (FileFound::Hashed { hash, .. }, FileFound::Hashed { hash: other, .. }) => {
                if hash != other {
                    aspects.insert(0, Aspect::Contents);
                }
                match aspects.is_empty() {
                    true => Compared::Same(Kind::File),
                    false => Compared::Changed(Kind::File, aspects),
                }
            }
            (FileFound::Unreadable { why }, _) | (_, FileFound::Unreadable { why }) => {
                Compared::Failed(format!("cannot read {}: {why}", haul_store::printable(&waiting.path)))
            }
            _ => Compared::Failed(format!("{} changed meanwhile", haul_store::printable(&waiting.path))),
        };
        Ok(self.waiting.remove(&number).map(|waiting| (waiting.path, compared)))
    }

    fn close(self, outcome: Result<(), Error>, report: &mut DiffReport) -> Result<(), Error> {
        report.bytes_hashed = self.sides.each_ref().map(Hashes::bytes);
        report.proofs = self.sides.each_ref().map(Hashes::proof);
        let [source, target] = self.sides;
        target.close(source.close(outcome))
    }
}

fn parent(path: &[u8]) -> (Vec<u8>, Vec<u8>) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(0) => (b"/".to_vec(), path[1..].to_vec()),
        Some(at) => (path[..at].to_vec(), path[at + 1..].to_vec()),
        None => (b".".to_vec(), path.to_vec()),
    }
}

struct Side {
    lines: Receiver<Result<Option<Told>, Error>>,
    is_tree: bool,
    has_ended: bool,
    last: Option<Entry>,
}

enum Said {
    Entry(Box<Entry>),
    Failed(String),
}

#[derive(Clone)]
struct Entry {
    path: Vec<u8>,
    facts: Facts,
}

impl Entry {
    /// Orders a directory before its entries, and those before the next.
    fn order(&self) -> (Vec<&[u8]>, &[u8]) {
        match self.path.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (self.path[..at].split(|byte| *byte == b'/').collect(), &self.path[at + 1..]),
            None => (Vec::new(), &self.path),
        }
    }
}

const LINES_AHEAD: usize = 1024;

impl Side {
    fn open(comparing: &Comparing<'_>, tree: &Endpoint) -> Result<Self, Error> {
        let all = List { recursive: true, hidden: true, itself: false, facts: true };
        // A named link is followed: `dir/` means its target.
        let path = if tree.path.is_empty() { b".".to_vec() } else { tree.path.clone() };
        let request = comparing.request(tree, Verb::List(all), path);
        let (sender, lines) = sync_channel(LINES_AHEAD);
        let (ways, observer) = (comparing.ways.clone(), Arc::clone(comparing.observer));
        let list = move || {
            let mut take = |piece| {
                let is_heard = match piece {
                    Piece::Line(told) => sender.send(Ok(Some(told))).is_ok(),
                    Piece::Data(_) | Piece::Elsewhere(_) => true,
                };
                if is_heard { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            };
            let answered = ask(&request, &ways, observer, &mut take);
            let _ = sender.send(answered.map(|_| None));
        };
        let started = std::thread::Builder::new().name("listing".into()).spawn(list);
        started.map_err(|error| Error::new(Fault::FileIo, "cannot start a thread").because(error))?;
        Ok(Self { lines, is_tree: false, has_ended: false, last: None })
    }

    fn next(&mut self) -> Result<Option<Said>, Error> {
        while !self.has_ended {
            let broken = || Error::new(Fault::FileIo, "a listing has ended before its end");
            match self.lines.recv().map_err(|_| broken())?? {
                Some(Told::Entry { path, facts: Some(facts) }) => {
                    let entry = Entry { path: path.as_bytes().to_vec(), facts: *facts };
                    if self.last.as_ref().is_some_and(|last| last.order() >= entry.order()) {
                        return Err(Error::broke_the_protocol("its listing is not sorted"));
                    }
                    self.last = Some(entry.clone());
                    return Ok(Some(Said::Entry(Box::new(entry))));
                }
                Some(Told::Failed { is_operand: true, why }) => return Err(Error::new(Fault::FileIo, why)),
                Some(Told::Failed { why, .. }) => return Ok(Some(Said::Failed(why))),
                Some(Told::Unsorted) => {
                    let what = "a directory has too many names to be compared";
                    return Err(Error::new(Fault::FileIo, what));
                }
                Some(Told::In { .. }) => self.is_tree = true,
                Some(_) => {}
                None => self.has_ended = true,
            }
        }
        Ok(None)
    }
}
