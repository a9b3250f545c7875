//! Walks the sources at a server and yields the entries to copy, depth first and sorted, directory before content.
//!
//! List a directory -> sort its names -> yield each -> enter it. Memory is bounded by the names of the directories on the
//! way down. A server tells the attributes with the names; where it does not, each entry is looked at.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use haul_store::{
    CALLED_LIKE_A_PART, EntryKind, Filter, Found, FoundEntry, Hidden, ItemSource, Kind, Stat, StoreError, WalkOptions,
    parse_haul_name,
};

use super::roots::Root;
use crate::codec::Attributes;
use crate::entry;
use crate::limits::MAX_DEPTH;
use crate::listing::{Listed, Listing};
use crate::paths::join;
use crate::pool::Pool;

/// An iterator over everything in the sources.
pub(crate) struct Walk {
    pool: Arc<Pool>,
    roots: Arc<[Root]>,
    filter: Filter,
    dirs: bool,
    prunes: bool,
    next_root: usize,
    stack: Vec<Frame>,
    pending: VecDeque<Found>,
}

struct Frame {
    source: u32,
    /// Relative to the target.
    path: Vec<u8>,
    /// At the server.
    server_path: Vec<u8>,
    names: std::vec::IntoIter<Listed>,
    complete: bool,
    /// The directory's entry, until something in it is yielded.
    unannounced: Option<Found>,
}

impl Walk {
    pub(crate) fn new(pool: Arc<Pool>, roots: Arc<[Root]>, options: WalkOptions) -> Self {
        let mut pending = VecDeque::new();
        if options.files_from.is_some() {
            let typed = roots.first().map(|root| root.typed.clone()).unwrap_or_default();
            let why = io::Error::new(io::ErrorKind::Unsupported, "a list of files does not work over sftp");
            let error = StoreError::new("copy from a list", &typed, why);
            pending.push_back(Found::Failed { path: typed, error, hides: Hidden::Anything });
            return Self::with(pool, Arc::from([]), Filter::default(), false, false, pending);
        }
        Self::with(pool, roots, options.filter, options.dirs, options.prune_empty_dirs, pending)
    }

    fn with(
        pool: Arc<Pool>,
        roots: Arc<[Root]>,
        filter: Filter,
        dirs: bool,
        prunes: bool,
        pending: VecDeque<Found>,
    ) -> Self {
        Self { pool, roots, filter, dirs, prunes, next_root: 0, stack: Vec::new(), pending }
    }

    fn begin_root(&mut self) {
        let source = self.next_root;
        self.next_root += 1;
        let Root { path, name, is_dir, attributes, .. } = self.roots[source].clone();
        if !self.filter.selects(&name, is_dir) {
            return;
        }
        let number = u32::try_from(source).expect("a command line has fewer operands");
        self.yield_entry(number, name, path, attributes);
    }

    fn step(&mut self) {
        let Some(frame) = self.stack.last_mut() else { return };
        let Some(Listed { name, attributes }) = frame.names.next() else { return self.leave() };
        let (source, path) = (frame.source, join(&frame.path, &name));
        let server_path = join(&frame.server_path, &name);
        let Some(is_dir) = entry::is_dir(&attributes) else {
            // This server tells names alone.
            return match self.pool.server().lstat(&server_path) {
                Ok(attributes) => self.visit(source, &name, path, server_path, attributes),
                Err(error) => self.fail("look at", path, error),
            };
        };
        if self.filter.selects(&path, is_dir) {
            self.visit(source, &name, path, server_path, attributes);
        }
    }

    fn visit(&mut self, source: u32, name: &[u8], path: Vec<u8>, server_path: Vec<u8>, attributes: Attributes) {
        if !self.filter.selects(&path, entry::is_dir(&attributes) == Some(true)) {
            return;
        }
        if parse_haul_name(name).is_some() {
            let why = io::Error::new(io::ErrorKind::InvalidInput, CALLED_LIKE_A_PART);
            let error = StoreError::new("copy", &path, why);
            return self.pending.push_back(Found::Failed { path, error, hides: Hidden::Nothing });
        }
        self.yield_entry(source, path, server_path, attributes);
    }

    fn yield_entry(&mut self, source: u32, path: Vec<u8>, server_path: Vec<u8>, attributes: Attributes) {
        let stat = match entry::stat(&server_path, &attributes) {
            Ok(stat) => stat,
            Err(error) => return self.fail("look at", path, error),
        };
        match stat.kind {
            Kind::Directory => self.enter(source, path, server_path, stat),
            Kind::File => self.found(entry_of(source, path, stat, EntryKind::File { further_names: 0 })),
            Kind::Symlink { .. } => match self.pool.server().readlink(&server_path) {
                Ok(target) => self.found(entry_of(source, path, stat, EntryKind::Symlink { target })),
                Err(error) => self.fail("read link", path, error),
            },
            Kind::Special => {
                self.announce();
                self.pending.push_back(Found::Skipped { path, why: "is a FIFO, a socket or a device".to_owned() });
            }
        }
    }

    fn enter(&mut self, source: u32, path: Vec<u8>, server_path: Vec<u8>, stat: Stat) {
        let found = Found::Entry(entry_of(source, path.clone(), stat, EntryKind::Directory));
        let root = &self.roots[source as usize];
        let is_source = self.stack.is_empty();
        let lists = !self.dirs || (is_source && root.name.is_empty());
        let mut unannounced = Some(found);
        if !self.prunes || path.is_empty() {
            self.announce();
            self.pending.extend(unannounced.take());
        }
        let mut failures = Vec::new();
        let listing = match (lists, self.stack.len() < MAX_DEPTH) {
            (false, _) => Listing::default(),
            (true, true) => Listing::read(&self.pool, &server_path).unwrap_or_else(|error| {
                failures.push((path.clone(), "read directory", error));
                Listing::default()
            }),
            (true, false) => {
                let why = io::Error::new(io::ErrorKind::InvalidInput, "directories are nested too deep");
                failures.push((path.clone(), "read directory", why));
                Listing::default()
            }
        };
        for name in listing.refused {
            let why = io::Error::new(io::ErrorKind::InvalidData, NO_NAME);
            // The name itself must not become a path.
            failures.push((join(&path, haul_store::printable(&name).replace('/', "\\x2f").as_bytes()), "copy", why));
        }
        let complete = failures.is_empty() && lists;
        for (path, op, error) in failures {
            let error = StoreError::new(op, &path, error);
            let hides = if error.is_vanished() { Hidden::Nothing } else { Hidden::Anything };
            self.pending.push_back(Found::Failed { path, error, hides });
        }
        let names = listing.names.into_iter();
        self.stack.push(Frame { source, path, server_path, names, complete, unannounced });
    }

    fn leave(&mut self) {
        let Some(frame) = self.stack.pop() else { return };
        if frame.unannounced.is_none() {
            self.pending.push_back(Found::DirEnd { path: frame.path, complete: frame.complete });
        }
    }

    /// Yields the directories on the way here that were held back.
    fn announce(&mut self) {
        for frame in &mut self.stack {
            self.pending.extend(frame.unannounced.take());
        }
    }

    fn found(&mut self, entry: FoundEntry) {
        self.announce();
        self.pending.push_back(Found::Entry(entry));
    }

    /// Marks the directory as incomplete: the failed entry may exist at the target, and must not be deleted there.
    fn fail(&mut self, op: &'static str, path: Vec<u8>, error: io::Error) {
        if let Some(frame) = self.stack.last_mut() {
            frame.complete = false;
        }
        self.pending.push_back(Found::failed(op, path, error));
    }
}

impl Iterator for Walk {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        loop {
            if let Some(found) = self.pending.pop_front() {
                return Some(found);
            }
            if !self.stack.is_empty() {
                self.step();
            } else if self.next_root < self.roots.len() {
                self.begin_root();
            } else {
                return None;
            }
        }
    }
}

impl ItemSource for Walk {}

fn entry_of(source: u32, path: Vec<u8>, stat: Stat, kind: EntryKind) -> FoundEntry {
    // The path at the target begins with the name of its source, by which it is opened.
    let source_path = path.clone();
    // The time of the content stands for that of any change. A change shows in it, unless somebody sets it back; so a later
    // run goes on with the part of an earlier one. A reader waits until a file is older than a step of that time.
    FoundEntry { source, path, source_path, stat, tells_changes: true, kind, xattrs: Vec::new() }
}

const NO_NAME: &str = "the server lists a name that no file can have";
