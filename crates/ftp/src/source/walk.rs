//! Walks the sources at a server and yields the entries to copy, depth first and sorted, directory before content.
//!
//! ```text
//! list a directory -> sort its names -> 64 of them are looked at over one connection, if the list tells no exact times -> entries
//! ```

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use haul_store::{
    CALLED_LIKE_A_PART, EntryKind, Filter, Found, FoundEntry, Hidden, ItemSource, StoreError, WalkOptions, printable,
};

use super::root::Root;
use super::served::Served;
use super::sorted_names::SortedNames;
use crate::codec::listing::{Entry, EntryType, Facts};
use crate::entry;
use crate::limits::{LOOKS_AHEAD, MAX_DEPTH, RUN_BYTES, WORTH_PARTS_BYTES};
use crate::paths::{is_of_haul, join};

pub(crate) struct Walk {
    served: Arc<Served>,
    roots: Arc<[Root]>,
    filter: Filter,
    dirs: bool,
    lists_only: bool,
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
    names: SortedNames,
    looked: VecDeque<(Vec<u8>, io::Result<Facts>)>,
    complete: bool,
}

impl Walk {
    pub(crate) fn new(served: Arc<Served>, roots: Arc<[Root]>, options: WalkOptions) -> Walk {
        let mut walk = Walk {
            served,
            roots,
            filter: options.filter,
            dirs: options.dirs,
            lists_only: options.listing_only,
            next_root: 0,
            stack: Vec::new(),
            pending: VecDeque::new(),
        };
        if options.files_from.is_some() {
            walk.next_root = walk.roots.len();
            let why = io::Error::new(ErrorKind::Unsupported, "a list of files does not work over FTP");
            let error = StoreError::new("copy from a list", b"", why);
            walk.pending.push_back(Found::Failed { path: Vec::new(), error, hides: Hidden::Anything });
        }
        walk
    }

    fn begin_root(&mut self) {
        let source = self.next_root;
        self.next_root += 1;
        let Root { path, name, facts } = self.roots[source].clone();
        let is_directory = facts.kind == EntryType::Directory;
        if name.is_empty() || self.filter.selects(&name, is_directory) {
            let number = u32::try_from(source).expect("a command line has fewer operands");
            self.yield_entry(number, name, path, facts);
        }
    }

    fn step(&mut self) {
        if let Some(frame) = self.stack.last_mut()
            && frame.looked.is_empty()
        {
            match look_ahead(&self.served, &self.filter, self.lists_only, frame) {
                Ok(looked) => frame.looked = looked,
                Err(error) => {
                    // The runs of sorted names cannot be read.
                    frame.complete = false;
                    frame.names = SortedNames::default();
                    let error = StoreError::new("list", &frame.path, error);
                    let path = frame.path.clone();
                    return self.pending.push_back(Found::Failed { path, error, hides: Hidden::Anything });
                }
            }
        }
        let Some(frame) = self.stack.last_mut() else { return };
        let Some((name, facts)) = frame.looked.pop_front() else {
            let Some(Frame { path, complete, .. }) = self.stack.pop() else { return };
            return self.pending.push_back(Found::DirEnd { path, complete });
        };
        let (source, path) = (frame.source, join(&frame.path, &name));
        let server_path = join(&frame.server_path, &name);
        if is_of_haul(&name) {
            let why = io::Error::new(ErrorKind::InvalidInput, CALLED_LIKE_A_PART);
            let error = StoreError::new("copy", &path, why);
            return self.pending.push_back(Found::Failed { path, error, hides: Hidden::Nothing });
        }
        match facts {
            Ok(facts) => self.yield_entry(source, path, server_path, facts),
            Err(error) => self.fail("look at", path, error),
        }
    }

    fn yield_entry(&mut self, source: u32, path: Vec<u8>, server_path: Vec<u8>, facts: Facts) {
        match &facts.kind {
            EntryType::Directory | EntryType::Itself => self.enter(source, path, server_path, &facts),
            EntryType::File => {
                let Some(size) = facts.size else {
                    return self.fail("copy", path, io::Error::new(ErrorKind::InvalidData, NO_LENGTH));
                };
                if size > WORTH_PARTS_BYTES
                    && let Err(error) = self.served.try_parts(&server_path, size)
                {
                    return self.fail("open", path, error);
                }
                self.served.notes.add(&server_path, &facts);
                let found = self.entry(source, path, &server_path, &facts, EntryKind::File { further_names: 0 });
                self.pending.push_back(found);
            }
            EntryType::Link(Some(target)) => {
                let kind = EntryKind::Symlink { target: target.clone() };
                let found = self.entry(source, path, &server_path, &facts, kind);
                self.pending.push_back(found);
            }
            EntryType::Link(None) => self.skip(path, "is a symbolic link, and the server does not tell where it leads"),
            EntryType::Special => self.skip(path, "is a FIFO, a socket or a device"),
            EntryType::Unknown => self.skip(path, "is something of which the server does not tell what it is"),
        }
    }

    fn entry(&self, source: u32, path: Vec<u8>, server_path: &[u8], facts: &Facts, kind: EntryKind) -> Found {
        let stat = entry::stat(server_path, facts, self.served.server.begun);
        // The time of the content stands for that of any change, as over SFTP. A time of minutes tells no change.
        let tells_changes = facts.modified.is_some_and(|modified| modified.is_exact);
        let source_path = path.clone();
        Found::Entry(FoundEntry { source, path, source_path, stat, tells_changes, kind, xattrs: Vec::new() })
    }

    fn enter(&mut self, source: u32, path: Vec<u8>, server_path: Vec<u8>, facts: &Facts) {
        let facts = Facts {
            kind: EntryType::Directory,
            modified: facts.modified.filter(|time| time.is_exact),
            ..facts.clone()
        };
        let found = self.entry(source, path.clone(), &server_path, &facts, EntryKind::Directory);
        self.pending.push_back(found);
        let is_contents = self.stack.is_empty() && self.roots[source as usize].name.is_empty();
        if self.dirs && !is_contents {
            return self.pending.push_back(Found::DirEnd { path, complete: false });
        }
        let listed = match self.stack.len() < MAX_DEPTH {
            true => SortedNames::read(&self.served.server, &server_path, RUN_BYTES),
            false => Err(io::Error::new(ErrorKind::QuotaExceeded, "directories are nested too deep")),
        };
        let (mut names, mut complete) = match listed {
            Ok(names) => (names, true),
            Err(error) => {
                let error = StoreError::new("list", &path, error);
                self.pending.push_back(Found::Failed { path: path.clone(), error, hides: Hidden::Anything });
                (SortedNames::default(), false)
            }
        };
        for name in &std::mem::take(&mut names.refused).0 {
            complete = false;
            // The name itself must not become a path.
            let path = join(&path, printable(name).replace('/', "\\x2f").as_bytes());
            let why = io::Error::new(ErrorKind::InvalidData, "the server lists a name that no file can have");
            let error = StoreError::new("copy", &path, why);
            self.pending.push_back(Found::Failed { path, error, hides: Hidden::Anything });
        }
        let looked = VecDeque::new();
        self.stack.push(Frame { source, path, server_path, names, looked, complete });
    }

    fn skip(&mut self, path: Vec<u8>, why: &str) {
        self.pending.push_back(Found::Skipped { path, why: why.to_owned() });
    }

    /// Marks the directory as incomplete: the failed entry may exist at the target, and must not be deleted there.
    fn fail(&mut self, op: &'static str, path: Vec<u8>, error: io::Error) {
        if let Some(frame) = self.stack.last_mut() {
            frame.complete = false;
        }
        self.pending.push_back(Found::failed(op, path, error));
    }
}

/// Takes the next names of a directory, and asks for the exact times of files that the list has not told. An empty result means that there
/// are no more.
fn look_ahead(
    served: &Served,
    filter: &Filter,
    lists_only: bool,
    frame: &mut Frame,
) -> io::Result<VecDeque<(Vec<u8>, io::Result<Facts>)>> {
    let (mut taken, mut to_look) = (Vec::new(), Vec::new());
    while to_look.len() < LOOKS_AHEAD && taken.len() < NAMES_AHEAD {
        let Some(Entry { name, facts }) = frame.names.next()? else { break };
        let is_directory = facts.kind == EntryType::Directory;
        if !filter.selects(&join(&frame.path, &name), is_directory) || (lists_only && !is_directory) {
            continue;
        }
        let is_exact = facts.modified.is_some_and(|modified| modified.is_exact);
        if facts.kind == EntryType::File && !is_exact && !is_of_haul(&name) {
            to_look.push(taken.len());
        }
        taken.push((name, Ok(facts)));
    }
    let paths: Vec<Vec<u8>> = to_look.iter().map(|at| join(&frame.server_path, &taken[*at].0)).collect();
    let looked = match paths.is_empty() {
        true => Ok(Vec::new()),
        false => served.server.times_of(&paths),
    };
    match looked {
        Ok(looked) => {
            for (at, modified) in to_look.into_iter().zip(looked) {
                // A server without MDTM leaves the time of the list.
                if let (Some(modified), (_, Ok(facts))) = (modified, &mut taken[at]) {
                    facts.modified = Some(modified);
                }
            }
        }
        Err(error) => {
            for at in to_look {
                taken[at].1 = Err(io::Error::new(error.kind(), error.to_string()));
            }
        }
    }
    Ok(taken.into())
}

/// Names that need no look are taken in portions, too.
const NAMES_AHEAD: usize = 1024;

const NO_LENGTH: &str = "the server does not say how long it is";

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
