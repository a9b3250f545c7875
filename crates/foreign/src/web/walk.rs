//! The walk over files and directories of a server: each directory before its content, names in order.
//!
//! ```text
//! directory -> its index page -> its names, sorted -> 64 of them are looked at, 8 at once -> entries
//! ```

use std::collections::{VecDeque, btree_map};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use haul_store::{
    EntryKind, FileId, Found, FoundEntry, Hidden, ItemSource, Kind, Stat, StoreError, Time, Version as FileVersion,
    WalkOptions, parse_haul_name,
};

use crate::digest::Digest;
use crate::http_client::url::Url;
use crate::web::collection;
use crate::web::index_page::{Entry, index_of};
use crate::web::limits::{LOOKS_AHEAD, LOOKS_AT_ONCE, MAX_DEPTH};
use crate::web::look::{Looked, look};
use crate::web::notes::Note;
use crate::web::served::{Served, Top};
use crate::web::version::Version;

pub(crate) struct Walk {
    tree: Arc<Served>,
    options: WalkOptions,
    /// The sources to come; the last is the next.
    tops: Vec<usize>,
    stack: Vec<Frame>,
    pending: VecDeque<Found>,
}

struct Frame {
    source: u32,
    path: Vec<u8>,
    names: btree_map::IntoIter<Vec<u8>, Entry>,
    /// The server's clock at the listing.
    answered: Option<i64>,
    looked: VecDeque<(Vec<u8>, Child)>,
    complete: bool,
}

enum Child {
    File(Url, Version),
    /// A list may tell less of its version.
    Listed(Url, Version, Vec<Digest>),
    Directory(Url, Option<Time>),
    Failed(io::Error),
    Skipped(&'static str),
}

impl Walk {
    pub(crate) fn new(tree: Arc<Served>, options: WalkOptions) -> Walk {
        let mut tops: Vec<usize> = (0..tree.sources.len()).collect();
        tops.sort_by(|one, other| tree.sources[*other].name().cmp(tree.sources[*one].name()));
        let mut walk = Walk { tree, options, tops, stack: Vec::new(), pending: VecDeque::new() };
        if walk.options.files_from.is_some() {
            walk.tops.clear();
            let why = "a list of files is for directories of hosts with haul: name the URL of each file";
            let error = StoreError::new("copy from a list", b"", io::Error::new(ErrorKind::Unsupported, why));
            walk.pending.push_back(Found::Failed { path: Vec::new(), error, hides: Hidden::Anything });
        }
        walk
    }

    fn begin(&mut self, number: usize) {
        let tree = Arc::clone(&self.tree);
        let source = u32::try_from(number).expect("a command line has fewer words");
        match &tree.sources[number] {
            Top::File { name, version, .. } => {
                if self.options.filter.selects(name, false) && !self.options.listing_only {
                    let listed = tree.is_dav.then(|| version.clone());
                    self.file(source, name.clone(), name.clone(), version, Note { listed, ..Note::default() });
                }
            }
            Top::Directory { url, name } => {
                if self.options.filter.selects(name, true) {
                    self.directory(source, name.clone(), url, None, !self.options.dirs);
                }
            }
            Top::Contents(url) => self.directory(source, Vec::new(), url, None, true),
        }
    }

    fn file(&mut self, source: u32, path: Vec<u8>, source_path: Vec<u8>, version: &Version, note: Note) {
        let stat = version.stat(self.tree.begun);
        let tells_changes = version.tells_changes();
        let kind = EntryKind::File { further_names: 0 };
        self.tree.notes.add(&source_path, Note { size: Some(version.size), ..note });
        let entry = FoundEntry { source, path, source_path, stat, tells_changes, kind, xattrs: Vec::new() };
        self.pending.push_back(Found::Entry(entry));
    }

    fn directory(&mut self, source: u32, path: Vec<u8>, url: &Url, mtime: Option<Time>, is_entered: bool) {
        let index = match is_entered {
            true if self.stack.len() >= MAX_DEPTH => Err(io::Error::new(ErrorKind::QuotaExceeded, TOO_DEEP)),
            true if self.tree.is_dav => collection::index_of(&self.tree.client, url).map(Some),
            true => index_of(&self.tree.client, url).map(Some),
            false => Ok(None),
        };
        let of_index = index.as_ref().ok().and_then(|index| index.as_ref()?.mtime);
        let stat = directory_stat(mtime.or(of_index).unwrap_or(self.tree.begun));
        self.pending.push_back(Found::Entry(FoundEntry {
            source,
            path: path.clone(),
            source_path: self.tree.path_of(url),
            stat,
            tells_changes: false,
            kind: EntryKind::Directory,
            xattrs: Vec::new(),
        }));
        match index {
            Ok(Some(index)) => self.stack.push(Frame {
                source,
                path,
                names: index.entries.into_iter(),
                answered: index.answered,
                looked: VecDeque::new(),
                complete: true,
            }),
            Ok(None) => self.pending.push_back(Found::DirEnd { path, complete: false }),
            Err(error) => {
                let error = StoreError::new("list", url.to_string().as_bytes(), error);
                self.pending.push_back(Found::Failed { path: path.clone(), error, hides: Hidden::Anything });
                self.pending.push_back(Found::DirEnd { path, complete: false });
            }
        }
    }

    /// Visits the next name of the topmost directory, or leaves it.
    fn step(&mut self) {
        if let Some(frame) = self.stack.last_mut()
            && frame.looked.is_empty()
        {
            frame.looked = look_ahead(&self.tree, &self.options, frame);
        }
        let Some(frame) = self.stack.last_mut() else { return };
        let Some((name, child)) = frame.looked.pop_front() else {
            let Frame { path, complete, .. } = self.stack.pop().expect("it was there");
            self.pending.push_back(Found::DirEnd { path, complete });
            return;
        };
        let (source, path) = (frame.source, join(&frame.path, &name));
        match child {
            Child::File(url, version) => {
                let source_path = self.tree.path_of(&url);
                self.file(source, path, source_path, &version, Note::default());
            }
            Child::Listed(url, version, digests) => {
                let (source_path, listed) = (self.tree.path_of(&url), Some(version.clone()));
                self.file(source, path, source_path, &version, Note { digests, listed, ..Note::default() });
            }
            Child::Directory(url, mtime) => self.directory(source, path, &url, mtime, !self.options.dirs),
            Child::Skipped(why) => self.pending.push_back(Found::Skipped { path, why: why.to_owned() }),
            Child::Failed(error) => {
                frame.complete = false;
                let error = StoreError::new("copy", &path, error);
                self.pending.push_back(Found::Failed { path, error, hides: Hidden::Anything });
            }
        }
    }
}

/// Returns nothing at the end.
fn look_ahead(tree: &Served, options: &WalkOptions, frame: &mut Frame) -> VecDeque<(Vec<u8>, Child)> {
    let mut found: Vec<(Vec<u8>, Option<Child>)> = Vec::new();
    let mut to_look: Vec<(usize, Url)> = Vec::new();
    while to_look.len() < LOOKS_AHEAD && found.len() < NAMES_AHEAD {
        let Some((name, entry)) = frame.names.next() else { break };
        let path = join(&frame.path, &name);
        let is_directory = matches!(entry, Entry::Directory(..));
        if !options.filter.selects(&path, is_directory) || (options.listing_only && !is_directory) {
            continue;
        }
        let child = match entry {
            _ if parse_haul_name(&name).is_some() => Some(Child::Failed(of_name("haul calls its unfinished files so"))),
            Entry::Directory(url, mtime) => Some(Child::Directory(url, mtime)),
            Entry::Seen(url, version, digests) => Some(listed(tree, url, version, digests)),
            Entry::Bad(why) => Some(Child::Failed(of_name(why))),
            Entry::NoFile => Some(Child::Skipped("is no file")),
            Entry::Skipped(why) => Some(Child::Skipped(why)),
            Entry::File(url, told) => match told.size.zip(told.mtime) {
                Some((size, mtime))
                    if let Some(version) = Version::told(size, mtime, frame.answered)
                        && tree.is_exact(&url, &version) =>
                {
                    Some(listed(tree, url, version, Vec::new()))
                }
                _ => {
                    to_look.push((found.len(), url));
                    None
                }
            },
        };
        found.push((name, child));
    }
    for (at, child) in look_at_all(tree, to_look) {
        found[at].1 = Some(child);
    }
    // A link without a slash may lead to a directory, which a rule may leave out.
    let selects = |name: &[u8], child: &Child| {
        !matches!(child, Child::Directory(..)) || options.filter.selects(&join(&frame.path, name), true)
    };
    let found = found.into_iter().filter_map(|(name, child)| Some((name, child?)));
    found.filter(|(name, child)| selects(name, child)).collect()
}

/// The first answer for a listed file is compared with its list; nothing is asked before.
fn listed(tree: &Served, url: Url, version: Version, digests: Vec<Digest>) -> Child {
    match tree.learn_ranges(&url, version.size, None) {
        Ok(()) => Child::Listed(url, version, digests),
        Err(error) => Child::Failed(error),
    }
}

/// A portion of names whose looks cost nothing.
const NAMES_AHEAD: usize = 1024;

fn look_at_all(tree: &Served, to_look: Vec<(usize, Url)>) -> Vec<(usize, Child)> {
    let threads = LOOKS_AT_ONCE.min(tree.client.settings.connections).min(to_look.len());
    let (next, looked) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some((at, url)) = to_look.get(next.fetch_add(1, Ordering::Relaxed)) {
            let child = look_at(tree, url);
            looked.lock().unwrap_or_else(PoisonError::into_inner).push((*at, child));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // Fewer threads only take longer.
            let _ = std::thread::Builder::new().name("look".into()).spawn_scoped(scope, work);
        }
        work();
    });
    looked.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn look_at(tree: &Served, url: &Url) -> Child {
    let looked = look(&tree.client, url).and_then(|looked| {
        if let Looked::File { version, accepts_ranges } = &looked {
            tree.learn_ranges(url, version.size, *accepts_ranges)?;
        }
        Ok(looked)
    });
    match looked {
        Ok(Looked::File { version, .. }) => Child::File(url.clone(), version),
        Ok(Looked::Directory(url)) => Child::Directory(url, None),
        Err(error) => Child::Failed(error),
    }
}

fn of_name(why: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, why)
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}

fn directory_stat(mtime: Time) -> Stat {
    Stat {
        kind: Kind::Directory,
        mode: 0o755,
        size: 0,
        blocks: 0,
        mtime,
        id: FileId { dev: 0, ino: 0 },
        version: FileVersion::new(mtime, 0),
        nlink: 1,
        uid: 0,
        gid: 0,
    }
}

const TOO_DEEP: &str = "it lies more than 64 directories deep: a link on the server may lead upwards";

impl Iterator for Walk {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        loop {
            if let Some(found) = self.pending.pop_front() {
                return Some(found);
            }
            if !self.stack.is_empty() {
                self.step();
            } else {
                let number = self.tops.pop()?;
                self.begin(number);
            }
        }
    }
}

impl ItemSource for Walk {}
