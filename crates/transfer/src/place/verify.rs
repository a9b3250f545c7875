//! Checks a tree against a list of hashes: what `haul verify` runs.
//!
//! Read a line -> whoever has the tree opens the file beneath its root, following no link, and hashes it -> compare -> tell the watcher
//! what differs. The list streams: a million files need no more memory than a thousand. Only the search for extra files remembers
//! something of each path, 16 bytes of hash.

mod bags;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::BufReader;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use haul_job::{Carriage, Endpoint, Error, Fault, Observer, SshOptions};
use haul_store::{Kind, LocalTree, TargetOptions};
use haul_sys::standard_streams::Input;
use haul_wire::hashed::{Algorithm, FileFound, WantedFile};
use haul_wire::place::{self as wire, Question, Told, Verb};

use super::asking::{Request, ask};
use super::file_at::FileAt;
use super::lists::List;
use super::named_hashes::Hashes;
use super::{Answered, Piece};
use crate::files::hash_list::{Listed, Style};
use crate::kept::surroundings::Surroundings;
use crate::session::clock::TICK;
use crate::session::reporter::Watch;
use bags::Bag;

/// What to check.
#[derive(Clone, Debug)]
pub struct VerifyOptions {
    /// Where the hashes are.
    pub list: ListAt,
    /// The tree.
    pub tree: Endpoint,
    /// Files of this host that are read at the same time; at least 1.
    pub threads: usize,
    /// Look for files that the list does not have, too.
    pub extra: bool,
    /// The hash of lines that do not say theirs; `None`: what their length says.
    pub algorithm: Option<Algorithm>,
    /// How words travel to another host.
    pub carriage: Carriage,
    /// How the system's ssh program is called.
    pub ssh: SshOptions,
}

/// Where a list of hashes is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListAt {
    /// A file of this host.
    Here(PathBuf),
    /// Standard input.
    Input,
    /// A file of any place.
    At(Endpoint),
    /// The tree is a bag, and has its lists.
    InBag,
}

/// What is wrong with one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Not there.
    Missing,
    /// Another size than listed.
    Size {
        /// In the list.
        listed: u64,
        /// In the tree.
        found: u64,
    },
    /// Other contents; the right size, where the list has sizes.
    Altered,
    /// Not a regular file, or reached through a symbolic link.
    NotAFile,
    /// Could not be read: the system's words.
    Unreadable(String),
    /// In the tree, not in the list.
    Extra,
}

/// Watches a check.
pub trait VerifyWatcher {
    /// A file differs.
    fn on_finding(&self, path: &[u8], finding: &Finding);

    /// Running totals, several times a second.
    fn on_progress(&self, progress: &VerifyProgress);

    /// Asked often; true ends the check with [`Fault::Interrupted`].
    fn interrupted(&self) -> bool {
        false
    }
}

/// Running totals of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifyProgress {
    /// Files checked.
    pub files: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Files and bytes that are listed, when it can be known before the end of the list is read.
    pub listed: Option<(u64, u64)>,
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyReport {
    /// Files listed. A file of several lists counts in each.
    pub files: u64,
    /// Their bytes: as listed, or as found where the list has no sizes.
    pub bytes: u64,
    /// Listed files that are missing, differ or could not be read.
    pub differing: u64,
    /// Files in the tree that are not listed, when looked for.
    pub extra: u64,
    /// By which hashes files were found right.
    pub algorithms: BTreeSet<Algorithm>,
    /// Root hash of a manifest of haul; the root of the tree as well when nothing differs.
    pub root_blake3: Option<[u8; 32]>,
    /// The whole check.
    pub elapsed: Duration,
}

/// Checks `options.tree` against `options.list`.
///
/// # Errors
/// The list is none or is damaged, the tree cannot be opened, its host cannot be reached. What differs is no error, but told.
pub fn verify(
    options: &VerifyOptions,
    surroundings: &Surroundings,
    observer: &Arc<dyn Observer>,
    watcher: &dyn VerifyWatcher,
) -> Result<VerifyReport, Error> {
    let started = Instant::now();
    let context = Context { options, surroundings, observer, watcher };
    // A list that is none is found before anybody logs in.
    let mut single = match &options.list {
        ListAt::InBag => None,
        list => Some(context.open_list(list)?),
    };
    let bag = match options.list {
        ListAt::InBag => Some(Bag::open(&context)?),
        _ => None,
    };
    let watch = Arc::new(Watch::new(Arc::clone(observer)));
    let request = context.request(Verb::HashNamed, options.tree.path.clone());
    let hashes = Hashes::open(&request, options.threads, surroundings, &watch)?;
    let mut check = Check::new(hashes, watcher);
    let outcome = match (&mut single, &bag) {
        (Some(list), _) => context.one_list(&mut check, list),
        (None, Some(bag)) => bag.check(&context, &mut check),
        (None, None) => Ok(0),
    };
    let outcome = check.hashes.close(outcome);
    // Ctrl-C reaches ssh as well: whatever broke by that, the person knows why.
    let extra = outcome.map_err(|error| if watcher.interrupted() { interrupted() } else { error })?;
    let root_blake3 = single.as_ref().and_then(List::trailer).map(|trailer| trailer.root);
    let Totals { files, bytes, differing } = check.totals;
    let algorithms = check.algorithms;
    Ok(VerifyReport { files, bytes, differing, extra, algorithms, root_blake3, elapsed: started.elapsed() })
}

/// What a check needs besides its files.
pub(super) struct Context<'a> {
    pub(super) options: &'a VerifyOptions,
    pub(super) surroundings: &'a Surroundings,
    pub(super) observer: &'a Arc<dyn Observer>,
    pub(super) watcher: &'a dyn VerifyWatcher,
}

impl Context<'_> {
    /// A question to the place of the tree.
    pub(super) fn request(&self, verb: Verb, path: Vec<u8>) -> Request {
        let VerifyOptions { tree, carriage, ssh, .. } = self.options;
        let question = Question { verb, paths: vec![path] };
        Request { place: tree.place.clone(), question, carriage: carriage.clone(), ssh: ssh.clone() }
    }

    fn open_list(&self, list: &ListAt) -> Result<List, Error> {
        let is_root = !self.options.tree.path.is_empty() && self.options.tree.path.iter().all(|byte| *byte == b'/');
        let style = Style::Program { algorithm: self.options.algorithm, takes_absolute: is_root };
        match list {
            ListAt::Here(path) => List::open_here(path, style),
            ListAt::Input => {
                let input = Input::open().map_err(|error| {
                    Error::new(Fault::FileIo, "cannot read the list from standard input").because(error)
                })?;
                List::read(Box::new(BufReader::new(input)), "from standard input", style)
            }
            ListAt::At(endpoint) => {
                let request =
                    Request { place: endpoint.place.clone(), ..self.request(Verb::Read, endpoint.path.clone()) };
                let file = FileAt::open(&request, self.surroundings, self.observer)?;
                List::read(Box::new(file), &haul_store::printable(&endpoint.path), style)
            }
            ListAt::InBag => Err(Error::new(Fault::Usage, "a bag has several lists")),
        }
    }

    fn one_list(&self, check: &mut Check<'_>, list: &mut List) -> Result<u64, Error> {
        let mut seen = self.options.extra.then(HashSet::new);
        check.listed = list.listed;
        check.list(&mut || list.next_file(), seen.as_mut())?;
        if let Some(trailer) = list.trailer() {
            check.totals.bytes = trailer.bytes;
        }
        match seen {
            Some(seen) => self.find_extra(check, b"", &[seen], list.id),
            None => Ok(0),
        }
    }

    /// Tells every regular file beneath `directory` of the tree that is missing in one of the sets, except the list itself. Of what cannot
    /// be listed or looked at nobody knows whether it is extra: that is told, too.
    pub(super) fn find_extra(
        &self,
        check: &mut Check<'_>,
        directory: &[u8],
        seen: &[HashSet<[u8; 16]>],
        list: Option<(u64, u64)>,
    ) -> Result<u64, Error> {
        let (mut extra, watcher) = (0, self.watcher);
        let is_listed = |path: &[u8]| seen.iter().all(|seen| seen.contains(&short_hash(path)));
        let root = join(&self.options.tree.path, directory);
        if self.options.tree.place.is_here() {
            let tree = LocalTree::open(&root, &TargetOptions { read_only: true, ..TargetOptions::default() }).map_err(
                |error| {
                    let what = format!("cannot look for extra files in {}", haul_store::printable(&root));
                    Error::new(Fault::FileIo, what).because(error.source)
                },
            )?;
            let flow = tree.0.each_entry(|path, found| {
                if watcher.interrupted() {
                    return ControlFlow::Break(());
                }
                let path = join(directory, path);
                match found {
                    Ok(stat) => {
                        let is_list = list == Some((stat.id.dev, stat.id.ino));
                        if stat.kind == Kind::File && !is_listed(&path) && !is_list {
                            extra += 1;
                            watcher.on_finding(&path, &Finding::Extra);
                        }
                    }
                    Err(error) => check.tell(&path, &Finding::Unreadable(error.source.to_string())),
                }
                ControlFlow::Continue(())
            });
            return if flow.is_continue() { Ok(extra) } else { Err(interrupted()) };
        }
        let all = wire::List { recursive: true, hidden: true, itself: false, facts: true };
        let request = self.request(Verb::List(all), root);
        let answered = ask(&request, self.surroundings, Arc::clone(self.observer), &mut |piece| {
            match piece {
                Piece::Line(Told::Entry { path, facts: Some(facts) }) => {
                    let path = join(directory, path.as_bytes());
                    if facts.kind == wire::Kind::File && !is_listed(&path) {
                        extra += 1;
                        watcher.on_finding(&path, &Finding::Extra);
                    }
                }
                Piece::Line(Told::Failed { why, .. }) => check.tell(directory, &Finding::Unreadable(why)),
                Piece::Line(_) | Piece::Data(_) => {}
            }
            ControlFlow::Continue(())
        })?;
        if answered == Answered::Whole { Ok(extra) } else { Err(interrupted()) }
    }
}

/// A check on its way.
pub(super) struct Check<'a> {
    hashes: Hashes,
    watcher: &'a dyn VerifyWatcher,
    waiting: BTreeMap<u64, Listed>,
    pub(super) totals: Totals,
    algorithms: BTreeSet<Algorithm>,
    /// What lines mean whose length fits two hashes: the first file that was right has shown it.
    decided: Option<Algorithm>,
    listed: Option<(u64, u64)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) files: u64,
    pub(super) bytes: u64,
    pub(super) differing: u64,
}

impl<'a> Check<'a> {
    fn new(hashes: Hashes, watcher: &'a dyn VerifyWatcher) -> Self {
        Self {
            hashes,
            watcher,
            waiting: BTreeMap::new(),
            totals: Totals::default(),
            algorithms: BTreeSet::new(),
            decided: None,
            listed: None,
        }
    }

    /// Compares all files of a list.
    pub(super) fn list(
        &mut self,
        next: &mut dyn FnMut() -> Result<Option<Listed>, Error>,
        mut seen: Option<&mut HashSet<[u8; 16]>>,
    ) -> Result<(), Error> {
        let mut has_ended = false;
        while !has_ended || self.hashes.has_open() {
            // One answer for each line: a list that comes slowly holds up nothing.
            if !has_ended && self.hashes.has_room() {
                match next()? {
                    Some(listed) => {
                        if let Some(seen) = &mut seen {
                            seen.insert(short_hash(listed.path.as_bytes()));
                        }
                        self.want(listed);
                    }
                    None => has_ended = true,
                }
            }
            let must_wait = has_ended || !self.hashes.has_room();
            while let Some((number, found)) = self.hashes.next(if must_wait { TICK } else { Duration::ZERO })? {
                self.answer(number, found)?;
                if must_wait {
                    break;
                }
            }
            if self.watcher.interrupted() {
                return Err(interrupted());
            }
            let (files, bytes) = (self.totals.files, self.hashes.bytes());
            self.watcher.on_progress(&VerifyProgress { files, bytes, listed: self.listed });
        }
        Ok(())
    }

    fn want(&mut self, mut listed: Listed) {
        if let (Some(_), Some(decided)) = (listed.or, self.decided) {
            (listed.algorithm, listed.or) = (decided, None);
        }
        let Listed { path, size, algorithm, or, .. } = &listed;
        let wanted = WantedFile { path: path.clone(), size: *size, algorithm: *algorithm, or: *or };
        let number = self.hashes.want(wanted);
        self.waiting.insert(number, listed);
    }

    fn answer(&mut self, number: u64, found: FileFound) -> Result<(), Error> {
        let listed = self.waiting.remove(&number);
        let listed = listed.ok_or_else(|| Error::broke_the_protocol("it tells of what was not asked for"))?;
        self.totals.files += 1;
        let finding = match found {
            FileFound::Hashed { size, hash, or } => {
                self.totals.bytes = self.totals.bytes.saturating_add(size);
                let right = match &listed {
                    Listed { size: Some(listed), .. } if *listed != size => None,
                    Listed { hash: wanted, algorithm, .. } if *wanted == hash => Some(*algorithm),
                    Listed { hash: wanted, or: Some(other), .. } if *wanted == or => Some(*other),
                    _ => None,
                };
                if let Some(algorithm) = right {
                    self.algorithms.insert(algorithm);
                    if listed.or.is_some() {
                        self.decided.get_or_insert(algorithm);
                    }
                    return Ok(());
                }
                Finding::Altered
            }
            FileFound::OtherSize { size } => {
                self.totals.bytes = self.totals.bytes.saturating_add(size);
                match listed.size {
                    Some(listed) => Finding::Size { listed, found: size },
                    None => Finding::Altered,
                }
            }
            FileFound::Missing => Finding::Missing,
            FileFound::NotAFile => Finding::NotAFile,
            FileFound::Unreadable { why } => Finding::Unreadable(why),
        };
        self.tell(listed.path.as_bytes(), &finding);
        Ok(())
    }

    fn tell(&mut self, path: &[u8], finding: &Finding) {
        self.totals.differing += 1;
        self.watcher.on_finding(if path.is_empty() { b"." } else { path }, finding);
    }
}

fn interrupted() -> Error {
    Error::new(Fault::Interrupted, "interrupted before the whole tree was checked")
}

pub(super) fn join(directory: &[u8], path: &[u8]) -> Vec<u8> {
    match (directory, path) {
        (b"", _) => path.to_vec(),
        (_, b"") => directory.to_vec(),
        (directory, path) if directory.ends_with(b"/") => [directory, path].concat(),
        (directory, path) => [directory, b"/", path].concat(),
    }
}

/// Half of a BLAKE3 hash: two paths of a million share it with a chance of 2^-89.
fn short_hash(path: &[u8]) -> [u8; 16] {
    let mut short = [0; 16];
    short.copy_from_slice(&blake3::hash(path).as_bytes()[..16]);
    short
}
