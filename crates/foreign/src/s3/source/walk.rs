//! The walk over objects as files: each directory before its content, names in order.
//!
//! ```text
//! directory -> names, as its listing goes on -> 128 of them are looked at, 16 at once -> entries
//!                                               (HEAD; GET of a small object whose content is wanted for sure)
//! ```

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use haul_store::{
    EntryKind, FileId, Found, FoundEntry, Hidden, ItemSource, Kind, Stat, StoreError, Time, Version as FileVersion,
    WalkOptions, parse_haul_name,
};

use crate::s3::at_once::at_once;
use crate::s3::limits::{LOOKS_AHEAD, LOOKS_AT_ONCE, MAX_DEPTH, MAX_LINK_BYTES, MAX_NAME_BYTES};
use crate::s3::source::names::{Names, Seen};
use crate::s3::source::opened::{Bucket, Object, Top};

pub(super) struct Walk {
    bucket: Arc<Bucket>,
    options: WalkOptions,
    /// The sources to come; the last is the next.
    tops: Vec<usize>,
    stack: Vec<Frame>,
    pending: VecDeque<Found>,
}

struct Frame {
    source: u32,
    path: Vec<u8>,
    prefix: Vec<u8>,
    names: Names,
    looked: VecDeque<(Vec<u8>, Child)>,
    /// Whether all of the directory is known.
    complete: bool,
    is_over: bool,
}

enum Child {
    File(Box<Object>),
    Link(Vec<u8>, Box<Object>),
    Directory,
    Failed(io::Error),
}

impl Walk {
    pub(super) fn new(bucket: Arc<Bucket>, options: WalkOptions) -> Walk {
        let mut tops: Vec<usize> = (0..bucket.tops.len()).collect();
        tops.sort_by(|one, other| bucket.tops[*other].name().cmp(bucket.tops[*one].name()));
        let mut walk = Walk { bucket, options, tops, stack: Vec::new(), pending: VecDeque::new() };
        if walk.options.files_from.is_some() {
            walk.tops.clear();
            let why = "a list of files is for directories of hosts with haul: name each object";
            let error = StoreError::new("copy from a list", b"", io::Error::new(ErrorKind::Unsupported, why));
            walk.pending.push_back(Found::Failed { path: Vec::new(), error, hides: Hidden::Anything });
        }
        walk
    }

    fn begin(&mut self, number: usize) {
        let bucket = Arc::clone(&self.bucket);
        let source = u32::try_from(number).expect("a command line has fewer words");
        match &bucket.tops[number] {
            Top::File { name, object, .. } => {
                if self.options.filter.selects(name, false) && !self.options.listing_only {
                    self.entry(source, name.clone(), Child::File(object.clone()));
                }
            }
            Top::Directory { name, prefix } => {
                if self.options.filter.selects(name, true) {
                    self.directory(source, name.clone(), prefix.clone(), !self.options.dirs);
                }
            }
            Top::Contents(prefix) => self.directory(source, Vec::new(), prefix.clone(), true),
        }
    }

    fn entry(&mut self, source: u32, path: Vec<u8>, child: Child) {
        let (object, kind) = match child {
            Child::File(object) => (object, EntryKind::File { further_names: 0 }),
            Child::Link(target, object) => (object, EntryKind::Symlink { target }),
            Child::Directory | Child::Failed(_) => return,
        };
        let mut stat = object.stat(self.bucket.begun);
        if let EntryKind::Symlink { target } = &kind {
            (stat.kind, stat.size) = (Kind::Symlink { target: target.clone() }, 0);
        }
        self.pending.push_back(Found::Entry(FoundEntry {
            source,
            path,
            source_path: object.key.clone(),
            stat,
            tells_changes: object.version.tells_changes(),
            kind,
            xattrs: Vec::new(),
        }));
    }

    fn directory(&mut self, source: u32, path: Vec<u8>, prefix: Vec<u8>, is_entered: bool) {
        self.pending.push_back(Found::Entry(FoundEntry {
            source,
            path: path.clone(),
            source_path: prefix.clone(),
            stat: directory_stat(self.bucket.begun),
            tells_changes: false,
            kind: EntryKind::Directory,
            xattrs: Vec::new(),
        }));
        if is_entered && self.stack.len() >= MAX_DEPTH {
            let why = io::Error::new(ErrorKind::QuotaExceeded, "its key has more than 128 slashes");
            let error = StoreError::new("list", &prefix, why);
            self.pending.push_back(Found::Failed { path: path.clone(), error, hides: Hidden::Anything });
        } else if is_entered {
            let names = Names::of(&self.bucket.store, prefix.clone(), self.bucket.links);
            let looked = VecDeque::new();
            self.stack.push(Frame { source, path, prefix, names, looked, complete: true, is_over: false });
            return;
        }
        self.pending.push_back(Found::DirEnd { path, complete: false });
    }

    /// Visits the next name of the topmost directory, or leaves it.
    fn step(&mut self) {
        let Some(frame) = self.stack.last_mut() else { return };
        if frame.looked.is_empty() && !frame.is_over {
            look_ahead(&self.bucket, &self.options, frame);
        }
        let Some((name, child)) = frame.looked.pop_front() else {
            if !frame.is_over {
                return;
            }
            let Frame { path, complete, .. } = self.stack.pop().expect("it was there");
            self.pending.push_back(Found::DirEnd { path, complete });
            return;
        };
        let (source, path) = (frame.source, join(&frame.path, &name));
        match child {
            Child::Directory => {
                let prefix = [&frame.prefix[..], &name, b"/"].concat();
                self.directory(source, path, prefix, !self.options.dirs);
            }
            Child::Failed(error) => {
                frame.complete = false;
                let error = StoreError::new("copy", &path, error);
                self.pending.push_back(Found::Failed { path, error, hides: Hidden::Anything });
            }
            child => self.entry(source, path, child),
        }
    }
}

fn look_ahead(bucket: &Bucket, options: &WalkOptions, frame: &mut Frame) {
    let mut found: Vec<(Vec<u8>, Option<Child>)> = Vec::new();
    let mut to_look: Vec<ToLook> = Vec::new();
    while to_look.len() < LOOKS_AHEAD && found.len() < LOOKS_AHEAD {
        let (name, seen) = match frame.names.next() {
            Ok(Some(next)) => next,
            Ok(None) => {
                frame.is_over = true;
                break;
            }
            Err(error) => {
                (frame.is_over, frame.complete) = (true, false);
                found.push((Vec::new(), Some(Child::Failed(error))));
                break;
            }
        };
        let path = join(&frame.path, &name);
        let Seen { is_object, is_link, is_directory, is_late, size } = seen;
        if let Some(why) = why_bad(&name) {
            if options.filter.selects(&path, is_directory) {
                found.push((name.clone(), Some(Child::Failed(of_name(why)))));
            }
            continue;
        }
        // Of one name, the first is copied: an object, then a link, then a directory.
        let mut is_taken = is_late;
        if options.filter.selects(&path, false) && !options.listing_only {
            for (is_there, ending) in [(is_object, &b""[..]), (is_link, LINK_ENDING)] {
                let key = [&frame.prefix[..], &name, ending].concat();
                match is_there {
                    true if std::mem::replace(&mut is_taken, true) => {
                        found.push((name.clone(), Some(Child::Failed(of_name(CLASH)))));
                    }
                    true => {
                        found.push((name.clone(), None));
                        let is_wanted = || options.surely_wanted.as_ref().is_some_and(|wanted| wanted.has(&path));
                        let reads_up_to_bytes = match ending {
                            LINK_ENDING => Some(MAX_LINK_BYTES),
                            _ => is_wanted().then_some(size),
                        };
                        to_look.push(ToLook { at: found.len() - 1, key, reads_up_to_bytes });
                    }
                    false => {}
                }
            }
        }
        if is_directory && options.filter.selects(&path, true) {
            let is_taken = is_taken || is_object || is_link;
            let child = if is_taken { Child::Failed(of_name(CLASH)) } else { Child::Directory };
            found.push((name, Some(child)));
        }
    }
    let looked = at_once(LOOKS_AT_ONCE, &to_look, |to_look| look_at(bucket, to_look));
    for (to_look, child) in to_look.iter().zip(looked) {
        found[to_look.at].1 = Some(child);
    }
    frame.looked = found.into_iter().filter_map(|(name, child)| Some((name, child?))).collect();
}

pub(in crate::s3) use crate::s3::source::names::LINK_ENDING;

struct ToLook {
    /// The place of the name among those found.
    at: usize,
    key: Vec<u8>,
    /// The content is wanted, up to this size.
    reads_up_to_bytes: Option<u64>,
}

fn look_at(bucket: &Bucket, ToLook { key, reads_up_to_bytes, .. }: &ToLook) -> Child {
    let looked = match *reads_up_to_bytes {
        Some(most_bytes) => bucket.look_and_read(key, most_bytes),
        None => bucket.look(key),
    };
    let looked = looked.and_then(|found| {
        let object = found.ok_or_else(|| io::Error::new(ErrorKind::NotFound, "it has vanished"))?;
        match bucket.links && (key.ends_with(LINK_ENDING) || object.kept.is_link()) {
            true => Ok(Child::Link(bucket.link(&object)?, Box::new(object))),
            false => {
                bucket.keep(&object);
                Ok(Child::File(Box::new(object)))
            }
        }
    });
    looked.unwrap_or_else(Child::Failed)
}

fn why_bad(name: &[u8]) -> Option<&'static str> {
    match name {
        b"" => Some("no file can have an empty name: its key has two slashes in a row, or ends in one and has content"),
        b"." | b".." => Some("no file can be called . or .."),
        _ if name.len() > MAX_NAME_BYTES => Some("no file can have a name of more than 255 bytes"),
        _ if name.contains(&0) => Some("no name can have a NUL"),
        _ if parse_haul_name(name).is_some() => Some("haul calls its unfinished files so"),
        _ => None,
    }
}

pub(in crate::s3) const CLASH: &str = "something else in the store has its name: an object or a link, and keys beneath it, cannot stand beside each other";

fn of_name(why: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, why)
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}

pub(in crate::s3) fn directory_stat(mtime: Time) -> Stat {
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
