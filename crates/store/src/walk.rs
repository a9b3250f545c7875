//! Walks the sources and yields the entries to copy, depth first and sorted, directory before content.
//!
//! Open a directory -> read its names -> for each, look at it relative to the open directory -> yield it -> enter it.
//! So nobody can redirect a path between two steps. Memory holds names of the directories on the way down,
//! [`MAX_OPEN_DIRS`](crate::limits::MAX_OPEN_DIRS) bound the descriptors.
//!
//! Sources that meet are walked as one: the first source's entry counts, as in rsync; but a directory wins over a file, and
//! directories are merged.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Once};

use haul_sys::medium;
use rustix::fs::AtFlags;
use rustix::io::Errno;

use crate::at::{self, At};
use crate::attributes::{self, Namespaces, Place};
use crate::duplicates::Duplicates;
use crate::error::{StoreError, is_missing, refusal};
use crate::files_from::{Extent, FileList, Range};
use crate::filter::{Asks, DirectoryRules, Filter};
use crate::found::{CALLED_LIKE_A_PART, EntryKind, Found, FoundEntry, Hidden};
use crate::hard_links::{HardLinks, Name};
use crate::layers::{Directory, Frame, Layer, Stack, Wanted, source_path};
use crate::limits::{MAX_DEPTH, MAX_HARD_LINK_GROUPS};
use crate::listing::{Hint, Names};
use crate::meta::{Kind, Stat};
use crate::name::{join, parse_haul_name};
use crate::source::{Source, SourceLinks, SourceSet};
use crate::special::Special;
use crate::walk_options::WalkOptions;

/// An iterator over everything in a [`SourceSet`].
pub struct Walk {
    set: Arc<SourceSet>,
    filter: Filter,
    directory_rules: DirectoryRules,
    list: Option<Arc<FileList>>,
    namespaces: Namespaces,
    hard_links: Option<HardLinks>,
    told_forgotten: bool,
    one_file_system: bool,
    dirs: bool,
    prunes: bool,
    devices: bool,
    specials: bool,
    listing_only: bool,
    change_times: HashMap<u64, bool>,
    has_begun: bool,
    stack: Stack,
    path: Vec<u8>,
    pending: VecDeque<Found>,
    duplicates: Duplicates,
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
            } else if !self.has_begun {
                self.has_begun = true;
                self.begin();
            } else {
                return None;
            }
        }
    }
}

impl SourceSet {
    /// Walks all sources as one tree.
    pub fn walk(self: &Arc<Self>, options: WalkOptions) -> Walk {
        Walk::new(self.clone(), options)
    }
}

impl Walk {
    fn new(set: Arc<SourceSet>, options: WalkOptions) -> Walk {
        // After a failure the usual limit holds, and a walk beyond it says so.
        RAISE_LIMIT.call_once(|| drop(haul_sys::process::raise_open_file_limit()));
        let mut walk = Walk {
            set,
            filter: options.filter,
            directory_rules: DirectoryRules::default(),
            list: None,
            namespaces: Namespaces { xattrs: options.xattrs, acls: options.acls, ..Namespaces::default() },
            hard_links: options.hard_links.then(HardLinks::default),
            told_forgotten: false,
            one_file_system: options.one_file_system,
            dirs: options.dirs,
            prunes: options.prune_empty_dirs,
            devices: options.devices,
            specials: options.specials,
            listing_only: options.listing_only,
            change_times: HashMap::new(),
            has_begun: false,
            stack: Stack::default(),
            path: Vec::new(),
            pending: VecDeque::new(),
            duplicates: Duplicates::default(),
        };
        if let Some(list) = options.files_from {
            walk.take_list(list);
        }
        walk
    }

    /// See [`ItemSource::duplicates`](crate::ItemSource::duplicates).
    pub fn duplicates(&self) -> &Duplicates {
        &self.duplicates
    }

    /// The share of names visited so far, without a list.
    pub fn share(&self) -> Option<f64> {
        let knows = self.has_begun && self.list.is_none();
        knows.then(|| self.stack.share())
    }

    fn take_list(&mut self, list: Arc<FileList>) {
        if self.set.sources.len() != 1 || !self.set.sources[0].is_dir {
            let typed = self.set.sources.first().map(|source| source.typed.clone()).unwrap_or_default();
            self.pending.push_back(Found::list_of_no_directory(typed));
            self.has_begun = true;
        }
        self.list = Some(list);
    }

    fn begin(&mut self) {
        let set = Arc::clone(&self.set);
        let numbered = || (0u32..).zip(&set.sources);
        // As in rsync, listed paths are relative to the source, with or without a slash.
        let is_root = |source: &Source| source.name.is_empty() || self.list.is_some();
        let mut roots: Vec<Directory> = Vec::new();
        for (number, source) in numbered().filter(|(_, source)| is_root(source)) {
            if roots.iter().all(|root| !root.seen.is_same_inode(&source.stat)) {
                let opened = at::open_by_path(&set, number, b"", Extent::All);
                roots.push(Directory { source: number, seen: source.stat.clone(), opened });
            }
        }
        let mut names = Names::default();
        let mut too_many = None;
        for (number, source) in numbered().filter(|(_, source)| !is_root(source)) {
            let hint = if source.is_dir { Hint::Directory } else { Hint::Unknown };
            if let Err(error) = names.add(&source.name, number, hint) {
                too_many = Some(error);
            }
        }
        if let Some(error) = too_many {
            self.fail("list", Vec::new(), error);
        }
        let whole = if self.dirs { Extent::Entries } else { Extent::All };
        if roots.is_empty() {
            names.sort();
            return self.stack.push(Frame { complete: true, is_loose: true, extent: whole, ..Frame::of(names) });
        }
        if !self.filter.selects(b"", true) {
            return;
        }
        let (extent, beneath) = match &self.list {
            Some(list) => list.root(),
            None => (whole, None),
        };
        // rsync's rules see this directory as `.`.
        let extent = match extent {
            Extent::Itself if !self.filter.selects(b".", true) => Extent::OnTheWay,
            extent => extent,
        };
        self.enter(roots, extent, beneath, names);
    }

    fn step(&mut self) {
        let list = self.list.as_deref();
        let Some(frame) = self.stack.top() else { return };
        match frame.next(list) {
            Some((name, wanted)) => self.visit(&name, wanted),
            None => self.leave(),
        }
    }

    fn leave(&mut self) {
        let Some(frame) = self.stack.pop() else { return };
        // Nothing was wanted in an unannounced directory.
        if !frame.is_loose && frame.unannounced.is_empty() {
            self.pending.push_back(Found::DirEnd { path: self.path.clone(), complete: frame.complete });
        }
        if let Some(above) = self.stack.top() {
            self.path.truncate(above.path_bytes);
        }
    }

    fn visit(&mut self, name: &[u8], wanted: Wanted) {
        let path = join(&self.path, name);
        self.read_merge_files(&path, &wanted);
        if self.set.target.get().is_some_and(|target| target == name) {
            let error = StoreError::new("copy", &self.path, refusal(io::ErrorKind::InvalidInput, IS_THE_TARGET));
            self.pending.push_back(Found::Failed { path: self.path.clone(), error, hides: Hidden::Anything });
            // Copied entries would be found here, and copied without end.
            if let Some(frame) = self.stack.top() {
                frame.complete = false;
            }
            return self.leave();
        }
        if parse_haul_name(name).is_some() {
            // A rule may exclude it by name, of whatever type.
            if self.filtered(&path, false, &wanted) > Extent::Nothing {
                let error = StoreError::new("copy", &path, refusal(io::ErrorKind::InvalidInput, CALLED_LIKE_A_PART));
                self.pending.push_back(Found::Failed { path, error, hides: Hidden::Nothing });
            }
            return;
        }
        let set = Arc::clone(&self.set);
        let mut file: Option<(u32, Arc<OwnedFd>, Stat)> = None;
        let mut directories: Vec<Directory> = Vec::new();
        let mut extent = wanted.extent;
        let mut crosses = false;
        for &(source, hint) in &wanted.sources {
            let known = match hint {
                Hint::Directory => Some(true),
                Hint::Other => Some(false),
                Hint::Symlink if set.links == SourceLinks::Copied => Some(false),
                _ => None,
            };
            if let Some(is_dir) = known
                && self.filtered(&path, is_dir, &wanted) == Extent::Nothing
            {
                continue;
            }
            if known == Some(false) && (self.listing_only || file.is_some()) {
                if file.is_some() {
                    self.duplicates.add(&path);
                }
                continue;
            }
            let dir = match self.dir(source) {
                Ok(dir) => dir,
                Err(error) => {
                    self.fail("open directory", path.clone(), error);
                    continue;
                }
            };
            let at = self.at(&set, source, &dir, name, &path);
            // A source named itself was looked at, and is open.
            let own = set.source(source);
            let looked = if own.is_dir && at.source_path.is_empty() { Ok(own.stat.clone()) } else { at.look() };
            let stat = match looked {
                Ok(stat) => stat,
                Err(error) if is_missing(&error) && wanted.is_listed => {
                    let error = "it is in the list of files, and there is no such file";
                    self.fail("look at", path.clone(), refusal(io::ErrorKind::NotFound, error));
                    continue;
                }
                // As in rsync, an excluded entry may lead nowhere.
                Err(_) if self.filtered(&path, false, &wanted) == Extent::Nothing => continue,
                Err(error) => {
                    self.fail("look at", path.clone(), error);
                    continue;
                }
            };
            let is_dir = stat.kind == Kind::Directory;
            extent = self.filtered(&path, is_dir, &wanted);
            if extent == Extent::Nothing {
                continue;
            }
            if !is_dir {
                match &file {
                    Some((_, _, first)) if first.is_same_inode(&stat) => {}
                    Some(_) => self.duplicates.add(&path),
                    None => file = Some((source, dir, stat)),
                }
            } else if directories.iter().all(|directory| !directory.seen.is_same_inode(&stat)) {
                crosses |= self.one_file_system && stat.id.dev != own.stat.id.dev;
                let opened = match at.source_path {
                    b"" => at::open_by_path(&set, source, b"", extent),
                    _ => at.open_directory(extent),
                };
                directories.push(Directory { source, seen: stat, opened });
            }
        }
        match file {
            _ if !directories.is_empty() => {
                if file.is_some() {
                    self.duplicates.add(&path);
                    let why = "is a directory in another source, which is copied instead".to_string();
                    self.pending.push_back(Found::Skipped { path: path.clone(), why });
                }
                self.path = path;
                let extent = if crosses { extent.min(Extent::Itself) } else { extent };
                self.enter(directories, extent, wanted.beneath, Names::default());
                if let Some(frame) = self.stack.top().filter(|_| crosses) {
                    frame.complete = false;
                }
            }
            None => {}
            Some((_, _, stat)) if matches!(stat.kind, Kind::Symlink { .. }) && wanted.leads_on() => {
                let error = refusal(io::ErrorKind::NotADirectory, LISTED_BEYOND_LINK);
                self.fail("open directory", path, error);
            }
            Some(_) if wanted.beneath.is_some() => self.fail("open directory", path, Errno::NOTDIR.into()),
            Some((source, dir, stat)) => {
                let at = self.at(&set, source, &dir, name, &path);
                self.yield_file(at, &path, stat);
            }
        }
    }

    /// The wanted extent after the rules, which, as in rsync, spare directories on the way.
    fn filtered(&self, path: &[u8], is_dir: bool, wanted: &Wanted) -> Extent {
        let selects = || self.filter.selects_in(&self.directory_rules, Asks::Sender, path, is_dir);
        if wanted.extent == Extent::OnTheWay || selects() {
            return wanted.extent;
        }
        if wanted.beneath.is_some() { Extent::OnTheWay } else { Extent::Nothing }
    }

    /// Reads the unread merge files of this directory and those above, of the first source there.
    fn read_merge_files(&mut self, path: &[u8], wanted: &Wanted) {
        let Some(&(number, _)) = wanted.sources.first() else { return };
        let (set, has_list) = (Arc::clone(&self.set), self.list.is_some());
        let mut read = |path: &[u8]| {
            let Source { name, is_dir, .. } = set.source(number);
            let is_beneath = path.strip_prefix(&name[..]).is_some_and(|rest| rest.starts_with(b"/"));
            // The parent of a named entry is not searched.
            if !(has_list || name.is_empty() || (*is_dir && is_beneath)) {
                return Ok(None);
            }
            set.read_merge_file(number, source_path(&set, has_list, number, path))
        };
        let mut wrong = Vec::new();
        self.directory_rules
            .go_to(self.filter.merge_files(), path, &mut read, &mut |path, why| wrong.push((path, why)));
        for (path, why) in wrong {
            self.fail("use the rules of", path, why);
        }
    }

    fn yield_file(&mut self, at: At<'_>, path: &[u8], stat: Stat) {
        let path = path.to_vec();
        match &stat.kind {
            Kind::Directory => {}
            Kind::Special if self.devices || self.specials => match self.special(at) {
                Ok(Some(special)) => {
                    self.found(FoundEntry { kind: EntryKind::Special(special), ..at.entry(&path, stat) })
                }
                Ok(None) => self.skip_special(path),
                Err(error) => self.fail("look at", path, error),
            },
            Kind::Special => self.skip_special(path),
            Kind::Symlink { .. } => match rustix::fs::readlinkat(at.dir, at.name, Vec::new()) {
                Ok(target) => {
                    let kind = match self.file_or_link(at, &path, &stat) {
                        EntryKind::File { .. } => EntryKind::Symlink { target: target.into_bytes() },
                        further => further,
                    };
                    let xattrs = match kind {
                        EntryKind::Symlink { .. } if self.namespaces.xattrs => at.attributes(&self.namespaces),
                        _ => Ok(Vec::new()),
                    };
                    match xattrs {
                        Ok(xattrs) => self.found(FoundEntry { kind, xattrs, ..at.entry(&path, stat) }),
                        Err(error) => self.fail(READ_ATTRIBUTES, path, error),
                    }
                }
                Err(error) => self.fail("read link", path, error.into()),
            },
            Kind::File => {
                let kind = self.file_or_link(at, &path, &stat);
                let xattrs = match kind {
                    EntryKind::File { .. } if self.namespaces.any() => at.attributes(&self.namespaces),
                    _ => Ok(Vec::new()),
                };
                match xattrs {
                    Ok(xattrs) => {
                        let tells_changes = self.tells_changes(at, &stat);
                        self.found(FoundEntry { kind, xattrs, tells_changes, ..at.entry(&path, stat) });
                    }
                    // A copy without attributes would be another file, and delete the target's.
                    Err(error) => self.fail(READ_ATTRIBUTES, path, error),
                }
            }
        }
    }

    fn skip_special(&mut self, path: Vec<u8>) {
        let why = "is a FIFO, a socket or a device".to_string();
        self.announce();
        self.pending.push_back(Found::Skipped { path, why });
    }

    fn special(&self, at: At<'_>) -> io::Result<Option<Special>> {
        let found = Special::of_name(at.dir, at.name, at.set.links != SourceLinks::Copied)?;
        Ok(found.filter(|found| if found.is_device() { self.devices } else { self.specials }))
    }

    /// Yields the directory at `self.path` and enters it; an unreadable one ends incomplete. `names` has sources in it that
    /// were named one by one.
    fn enter(&mut self, directories: Vec<Directory>, extent: Extent, listed: Option<Range>, mut names: Names) {
        let set = Arc::clone(&self.set);
        let mut failures = Vec::new();
        let mut layers: Vec<Layer> = Vec::with_capacity(directories.len());
        // The metadata comes from the first source.
        let mut own = None;
        for Directory { source, seen, opened } in directories {
            let checked = opened.and_then(|dir| set.kernel_files.checked(dir));
            let entered = match checked.and_then(|dir| Ok((Stat::of_fd(&dir)?, dir))) {
                Err(error) => Err(error),
                Ok((stat, _)) if self.stack.is_above(source, &stat) => {
                    Err(refusal(io::ErrorKind::InvalidInput, "it contains itself through a link"))
                }
                Ok(_) if self.stack.len() >= MAX_DEPTH => {
                    Err(refusal(io::ErrorKind::InvalidInput, "directories are nested too deep"))
                }
                Ok(entered) => Ok(entered),
            };
            let is_first = own.is_none();
            match entered {
                Ok((stat, dir)) => {
                    if is_first {
                        let read = || attributes::read(&Place::Open(dir.as_fd()), &self.namespaces);
                        let xattrs = if self.namespaces.any() { read() } else { Ok(Vec::new()) };
                        own = Some((source, stat.clone(), xattrs));
                    }
                    layers.push(Layer { source, dir: Some(Arc::new(dir)), stat });
                }
                Err(error) => {
                    if is_first {
                        own = Some((source, seen, Ok(Vec::new())));
                    }
                    failures.push((source, error));
                }
            }
        }
        let Some((source, stat, xattrs)) = own else { return };
        let (xattrs, unread) = xattrs.map_or_else(|error| (Vec::new(), Some(error)), |xattrs| (xattrs, None));
        let source_path = source_path(&set, self.list.is_some(), source, &self.path).to_vec();
        let (path, kind) = (self.path.clone(), EntryKind::Directory);
        let entry = FoundEntry { source, path, source_path, stat, tells_changes: true, kind, xattrs };
        // A target's entry beneath the source's mount point stays.
        let stays_if_empty = || extent == Extent::Itself && self.one_file_system || self.is_protected();
        let is_pruned = self.prunes && !self.path.is_empty() && !stays_if_empty();
        let mut unannounced = vec![Found::Entry(entry)];
        if let Some(error) = unread {
            // Directly behind the directory's entry, the failure makes the target keep its attributes. All names were seen.
            let error = StoreError::new(READ_ATTRIBUTES, self.shown_path(&set, source), error);
            unannounced.push(Found::Failed { path: self.path.clone(), error, hides: Hidden::Nothing });
        }
        if extent > Extent::OnTheWay && !is_pruned {
            self.announce();
            self.pending.extend(unannounced.drain(..));
        }
        if extent >= Extent::Entries {
            for layer in &layers {
                let Some(dir) = &layer.dir else { continue };
                let read = names.add_directory(dir.as_fd(), layer.source, |_| true);
                if let Err(error) = read.and_then(|()| self.check_search(dir)) {
                    failures.push((layer.source, error));
                }
            }
            names.sort();
        }
        // Its own name was seen: the one above may be complete. With a list, only a directory listed with all beneath is.
        let is_listed_whole = extent == Extent::All || (extent == Extent::Entries && self.list.is_none());
        let complete = failures.is_empty() && is_listed_whole;
        for (source, error) in failures {
            let error = StoreError::new("read directory", self.shown_path(&set, source), error);
            let hides = if error.is_vanished() { Hidden::Nothing } else { Hidden::Anything };
            self.pending.push_back(Found::Failed { path: self.path.clone(), error, hides });
        }
        // Listed paths beneath an unopenable directory fail with it.
        let listed = listed.filter(|_| !layers.is_empty());
        let path_bytes = self.path.len();
        self.stack.push(Frame { layers, listed, extent, unannounced, path_bytes, complete, ..Frame::of(names) });
    }

    /// As in rsync, a protected directory is made even if empty.
    fn is_protected(&self) -> bool {
        !self.filter.selects_in(&self.directory_rules, Asks::Receiver { is_beneath_deleted: false }, &self.path, true)
    }

    /// Yields the directories on the way. As in rsync, the target's root keeps its metadata unless listed.
    fn announce(&mut self) {
        if self.list.is_some() || self.prunes {
            self.stack.announce(&mut self.pending);
        }
    }

    fn check_search(&self, dir: &OwnedFd) -> io::Result<()> {
        if self.listing_only {
            rustix::fs::statat(dir, ".", AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }

    fn dir(&mut self, source: u32) -> io::Result<Arc<OwnedFd>> {
        let source_path = source_path(&self.set, self.list.is_some(), source, &self.path);
        let layer = self.stack.dir(&self.set, source, source_path);
        layer.unwrap_or_else(|| Ok(Arc::clone(&self.set.source(source).root)))
    }

    fn at<'a>(&self, set: &'a SourceSet, source: u32, dir: &'a OwnedFd, name: &'a [u8], path: &'a [u8]) -> At<'a> {
        At { set, source, dir: dir.as_fd(), name, source_path: source_path(set, self.list.is_some(), source, path) }
    }

    fn shown_path<'a>(&'a self, set: &'a SourceSet, source: u32) -> &'a [u8] {
        if self.path.is_empty() { &set.source(source).typed } else { &self.path }
    }

    fn file_or_link(&mut self, at: At<'_>, path: &[u8], stat: &Stat) -> EntryKind {
        let Some(links) = &mut self.hard_links else { return EntryKind::File { further_names: 0 } };
        match links.note(at, path, stat) {
            Name::First { further_names } => return EntryKind::File { further_names },
            Name::Further { first } => return EntryKind::HardLink { first },
            Name::Forgotten => {}
        }
        if !std::mem::replace(&mut self.told_forgotten, true) {
            let why = format!(
                "and further files are copied apart from their hard links: more than {MAX_HARD_LINK_GROUPS} groups"
            );
            self.pending.push_back(Found::Skipped { path: path.to_vec(), why });
        }
        EntryKind::File { further_names: 0 }
    }

    /// Whether the file system keeps ctimes. One later than the mtime proves it; else it is asked once.
    fn tells_changes(&mut self, at: At<'_>, stat: &Stat) -> bool {
        if stat.version.changed() > stat.mtime {
            return true;
        }
        if let Some(kept) = self.change_times.get(&stat.id.dev) {
            return *kept;
        }
        // Most keep change times.
        let kept = at.open_path().and_then(|file| medium::keeps_change_times(file.as_fd())).unwrap_or(true);
        self.change_times.insert(stat.id.dev, kept);
        kept
    }

    fn found(&mut self, entry: FoundEntry) {
        self.announce();
        self.pending.push_back(Found::Entry(entry));
    }

    /// Marks the directory as incomplete: the failed entry must not be deleted at the target.
    fn fail(&mut self, op: &'static str, path: Vec<u8>, error: io::Error) {
        if let Some(frame) = self.stack.top() {
            frame.complete = false;
        }
        self.pending.push_back(Found::failed(op, path, error));
    }
}

const READ_ATTRIBUTES: &str = "read the attributes of";

const IS_THE_TARGET: &str =
    "it is the target itself: choose a target outside of the source, or leave it out with --exclude";

const LISTED_BEYOND_LINK: &str = "it is a symbolic link, and the list names what lies beyond it; -L follows links";

static RAISE_LIMIT: Once = Once::new();
