//! Walks the sources and yields what is to be copied, depth first and sorted, directory before content.
//!
//! Open a directory -> read its names -> for each, look at it relative to the open directory -> yield it -> enter it.
//! No step uses a path that somebody else could have redirected meanwhile. Memory is bounded by the names of the
//! directories on the way down, descriptors by [`MAX_OPEN_DIRS`].

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Once};

use haul_sys::beneath::{self, Links};
use haul_sys::medium;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::attributes::{self, Attribute, Namespaces, Place};
use crate::error::{StoreError, refusal};
use crate::files_from::{FileList, Range};
use crate::filter::Filter;
use crate::limits::{MAX_DEPTH, MAX_HARD_LINK_GROUPS, MAX_OPEN_DIRS};
use crate::listing::{Hint, Names};
use crate::meta::{Kind, Stat, Time};
use crate::name::{join, parse_haul_name};
use crate::source::{Source, SourceLinks, SourceSet};

/// What a walk yields and reads.
#[derive(Debug, Default)]
pub struct WalkOptions {
    /// Which entries are wanted; it sees paths relative to the target.
    pub filter: Filter,
    /// Only these paths beneath the one source directory, and the directories that lead to them. A listed directory is
    /// copied whole.
    pub files_from: Option<Arc<FileList>>,
    /// Yield further names of a file as [`EntryKind::HardLink`].
    pub hard_links: bool,
    /// Read extended attributes.
    pub xattrs: bool,
    /// Read ACLs.
    pub acls: bool,
}

/// One step of a walk.
#[derive(Debug)]
pub enum Found {
    /// Something to copy.
    Entry(FoundEntry),
    /// All beneath this directory has been yielded.
    DirEnd {
        /// The directory, relative to the target; empty for the root.
        path: Vec<u8>,
        /// All names in it were seen and belong to this source alone, so others at the target are extraneous.
        complete: bool,
    },
    /// Something that is not copied, or not fully, and why: "is a FIFO".
    Skipped {
        /// Relative to the target.
        path: Vec<u8>,
        /// Continues a sentence that begins with the path.
        why: String,
    },
    /// Something that could not be looked at. Behind the entry of a directory, with its path: its names or attributes could not be read.
    Failed {
        /// Relative to the target.
        path: Vec<u8>,
        /// Why.
        error: StoreError,
    },
}

/// Something to copy.
#[derive(Debug, Clone)]
pub struct FoundEntry {
    /// Number of the source, for [`SourceSet::open`].
    pub source: u32,
    /// Relative to the target: never begins with `/`, no empty, `.` or `..` component. Empty for the root itself.
    pub path: Vec<u8>,
    /// Relative to the source, for [`SourceSet::open`].
    pub source_path: Vec<u8>,
    /// What the file system said.
    pub stat: Stat,
    /// Its inode tells when it changed, also where somebody set back the time of its content. Files only.
    pub tells_changes: bool,
    /// What to make at the target.
    pub kind: EntryKind,
    /// Extended attributes and ACLs as asked for, sorted by name.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What to make at the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File {
        /// Names that it has beside this one, where they are asked for: those that are found come as [`EntryKind::HardLink`].
        further_names: u64,
    },
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink {
        /// Where it points, byte for byte.
        target: Vec<u8>,
    },
    /// Another name of a file that was yielded before.
    HardLink {
        /// Target-relative path of the first name.
        first: Vec<u8>,
    },
}

/// An iterator over everything in a [`SourceSet`].
pub struct Walk {
    set: Arc<SourceSet>,
    filter: Filter,
    list: Option<Arc<FileList>>,
    namespaces: Namespaces,
    hard_links: Option<HardLinks>,
    /// Of each file system that was met, by its device number, whether it keeps times of changes.
    change_times: HashMap<u64, bool>,
    next_source: usize,
    /// Directories from the source's root down to where the walk is.
    stack: Vec<Frame>,
    /// Target and source path of the directory on top of the stack.
    path: Vec<u8>,
    source_path: Vec<u8>,
    /// Found, but not yet taken.
    pending: VecDeque<Found>,
}

/// A directory that is being walked.
struct Frame {
    /// Closed when it is far above; reopened, and checked to be the same, on the way back.
    dir: Option<OwnedFd>,
    stat: Stat,
    names: Remaining,
    /// Lengths of the two paths of this directory.
    path_bytes: usize,
    source_path_bytes: usize,
    complete: bool,
}

/// What is still to be visited in a directory.
enum Remaining {
    All { names: Names, next: usize },
    Listed(Range),
}

/// Where a name comes from.
#[derive(Clone, Copy)]
enum Origin {
    /// Its directory has it.
    Found(Hint),
    /// A list has it, whether or not it exists, with a limit of what is wanted beneath it.
    Listed(Option<Range>),
}

/// First names of files that have several.
#[derive(Default)]
struct HardLinks {
    /// By device and inode number.
    groups: HashMap<(u64, u64), Group>,
    told_full: bool,
}

/// A file of which not all names have been seen.
struct Group {
    first: Vec<u8>,
    names_left: u64,
    /// Where the first name stands: in which source, and under which path where that is not its path at the target.
    source: usize,
    source_path: Option<Vec<u8>>,
    /// A file that is deleted gives its inode number to the next one that is made. What has another size or time than the first name had may be
    /// that, or the same file, which grows.
    size: u64,
    mtime: Time,
}

impl Group {
    fn has(&self, stat: &Stat, set: &SourceSet) -> bool {
        (self.size, self.mtime) == (stat.size, stat.mtime) || self.is_still(stat, set)
    }

    /// Whether the first name is one of this file now.
    fn is_still(&self, stat: &Stat, set: &SourceSet) -> bool {
        let root = set.sources[self.source].root.as_fd();
        let path = self.source_path.as_deref().unwrap_or(&self.first);
        beneath::open(root, path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty(), Links::Refused)
            .and_then(Stat::of_fd)
            .is_ok_and(|now| now.is_same_inode(stat))
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
            } else if self.next_source < self.set.sources.len() {
                self.next_source += 1;
                self.begin_source();
            } else {
                return None;
            }
        }
    }
}

impl Walk {
    pub(crate) fn new(set: Arc<SourceSet>, options: WalkOptions) -> Walk {
        // A failure leaves the usual limit, and a walk that exceeds it says so.
        RAISE_LIMIT.call_once(|| drop(haul_sys::process::raise_open_file_limit()));
        let mut walk = Walk {
            set,
            filter: options.filter,
            list: None,
            namespaces: Namespaces { xattrs: options.xattrs, acls: options.acls, ..Namespaces::default() },
            hard_links: options.hard_links.then(HardLinks::default),
            change_times: HashMap::new(),
            next_source: 0,
            stack: Vec::new(),
            path: Vec::new(),
            source_path: Vec::new(),
            pending: VecDeque::new(),
        };
        if let Some(list) = options.files_from {
            walk.take_list(list);
        }
        walk
    }

    fn take_list(&mut self, list: Arc<FileList>) {
        if self.set.sources.len() != 1 || !self.set.sources[0].is_dir {
            let typed = self.set.sources.first().map(|source| source.typed.clone()).unwrap_or_default();
            let error = refusal(io::ErrorKind::NotADirectory, "a list of files needs one directory as the source");
            let error = StoreError::new("copy from a list", &typed, error);
            self.pending.push_back(Found::Failed { path: typed, error });
            self.next_source = self.set.sources.len();
        }
        self.list = Some(list);
    }

    fn begin_source(&mut self) {
        let set = self.set.clone();
        let source = &set.sources[self.next_source - 1];
        self.path.clear();
        self.source_path.clear();
        if source.is_alone() {
            return self.yield_alone(source);
        }
        if !source.is_dir {
            self.visit(source.root.as_fd(), &source.name, Origin::Found(Hint::Unknown));
            return;
        }
        let listed = match &self.list {
            // As with rsync, listed paths are relative to the source whether or not it was typed with a slash.
            Some(list) => list.whole(),
            None => {
                self.path.extend_from_slice(&source.name);
                None
            }
        };
        if !self.filter.selects(&self.path, true) {
            return;
        }
        let open = || rustix::fs::openat(&source.root, ".", DIRECTORY_FLAGS, Mode::empty());
        let opened = rustix::io::retry_on_intr(open);
        self.enter(opened.map_err(io::Error::from), &source.stat, listed);
    }

    fn yield_alone(&mut self, source: &Source) {
        if self.filter.selects(&source.name, false) {
            self.pending.push_back(Found::Entry(FoundEntry {
                source: (self.next_source - 1) as u32,
                path: source.name.clone(),
                source_path: source.name.clone(),
                stat: source.stat.clone(),
                tells_changes: true,
                kind: EntryKind::File { further_names: 0 },
                xattrs: Vec::new(),
            }));
        }
    }

    /// Visits the next name of the directory on top of the stack, or leaves it.
    fn step(&mut self) {
        let Some(frame) = self.stack.last_mut() else { return };
        let (name, origin) = match &mut frame.names {
            Remaining::All { names, next } => match names.get(*next) {
                Some((name, hint)) => {
                    *next += 1;
                    (name.to_vec(), Origin::Found(hint))
                }
                None => return self.leave(),
            },
            Remaining::Listed(range) => match self.list.as_ref().and_then(|list| list.child(*range)) {
                Some(child) => {
                    range.low = child.next;
                    (child.name, Origin::Listed(child.only))
                }
                None => return self.leave(),
            },
        };
        let dir = match frame.dir.take() {
            Some(dir) => Ok(dir),
            None => self.reopen(),
        };
        match dir {
            Ok(dir) => {
                let depth = self.stack.len();
                self.visit(dir.as_fd(), &name, origin);
                let is_far_above = self.stack.len() > depth && depth >= MAX_OPEN_DIRS;
                // Visiting may have entered a directory; this one goes back to its place beneath.
                self.stack[depth - 1].dir = Some(dir);
                if is_far_above {
                    self.stack[depth - MAX_OPEN_DIRS].dir = None;
                }
            }
            Err(error) => {
                let path = self.path.clone();
                self.fail("open directory", path, error);
                self.leave();
            }
        }
    }

    fn leave(&mut self) {
        let Some(frame) = self.stack.pop() else { return };
        let whole = matches!(frame.names, Remaining::All { .. });
        self.pending.push_back(Found::DirEnd { path: self.path.clone(), complete: frame.complete && whole });
        if let Some(above) = self.stack.last() {
            self.path.truncate(above.path_bytes);
            self.source_path.truncate(above.source_path_bytes);
        }
    }

    /// Opens the directory on top of the stack again and checks that it is still the same.
    fn reopen(&self) -> io::Result<OwnedFd> {
        let root = self.source().root.as_fd();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let dir = match self.set.links {
            SourceLinks::Copied => beneath::open(root, &self.source_path, flags, Mode::empty(), Links::Refused)?,
            SourceLinks::FollowedWithin => beneath::open(root, &self.source_path, flags, Mode::empty(), Links::Within)?,
            SourceLinks::Followed => {
                let flags = flags | OFlags::CLOEXEC;
                rustix::io::retry_on_intr(|| rustix::fs::openat(root, &self.source_path, flags, Mode::empty()))?
            }
        };
        let same =
            self.stack.last().is_some_and(|frame| Stat::of_fd(&dir).is_ok_and(|now| now.is_same_inode(&frame.stat)));
        if same { Ok(dir) } else { Err(Errno::STALE.into()) }
    }

    /// Looks at one name in an open directory and yields it.
    fn visit(&mut self, dir: BorrowedFd<'_>, name: &[u8], origin: Origin) {
        let (hint, only) = match origin {
            Origin::Found(hint) => (hint, None),
            Origin::Listed(only) => (Hint::Unknown, only),
        };
        let path = join(&self.path, name);
        if parse_haul_name(name).is_some() {
            let why = "belongs to an unfinished transfer".to_string();
            self.pending.push_back(Found::Skipped { path, why });
            return;
        }
        let follows = self.set.links != SourceLinks::Copied;
        // The directory told the type: what the filter excludes need not be looked at.
        let known = match hint {
            Hint::Directory => Some(true),
            Hint::Other => Some(false),
            Hint::Symlink if !follows => Some(false),
            _ => None,
        };
        if let Some(is_dir) = known
            && !self.filter.selects(&path, is_dir)
        {
            return;
        }
        let source_path = join(&self.source_path, name);
        let stat = match self.look(dir, name, &source_path) {
            Ok(stat) => stat,
            Err(error) if is_missing(&error) && matches!(origin, Origin::Listed(_)) => {
                let error = refusal(io::ErrorKind::NotFound, "it is in the list of files, and there is no such file");
                return self.fail("look at", path, error);
            }
            Err(error) => return self.fail("look at", path, error),
        };
        let is_dir = stat.kind == Kind::Directory;
        if known != Some(is_dir) && !self.filter.selects(&path, is_dir) {
            return;
        }
        match &stat.kind {
            Kind::Directory => {
                let opened = self.open_directory(dir, name, &source_path);
                self.path = path;
                self.source_path = source_path;
                self.enter(opened, &stat, only);
            }
            _ if only.is_some() => self.fail("open directory", path, Errno::NOTDIR.into()),
            Kind::Special => {
                let why = "is a FIFO, a socket or a device".to_string();
                self.pending.push_back(Found::Skipped { path, why });
            }
            Kind::Symlink { .. } => match rustix::fs::readlinkat(dir, name, Vec::new()) {
                Ok(target) => {
                    let kind = EntryKind::Symlink { target: target.into_bytes() };
                    self.found(path, source_path, stat, kind, Vec::new(), true);
                }
                Err(error) => self.fail("read link", path, error.into()),
            },
            Kind::File => {
                let kind = self.file_or_link(&path, &source_path, &stat);
                let xattrs = match kind {
                    EntryKind::File { .. } if self.namespaces.any() => self.attributes_of(dir, name, &source_path),
                    _ => Ok(Vec::new()),
                };
                match xattrs {
                    Ok(xattrs) => {
                        let tells_changes = self.tells_changes(dir, name, &source_path, &stat);
                        self.found(path, source_path, stat, kind, xattrs, tells_changes);
                    }
                    // Without them it would be another file, and the target would lose its own.
                    Err(error) => self.fail(READ_ATTRIBUTES, path, error),
                }
            }
        }
    }

    fn look(&self, dir: BorrowedFd<'_>, name: &[u8], source_path: &[u8]) -> io::Result<Stat> {
        let stat = Stat::of_name(dir, name)?;
        if self.set.links == SourceLinks::Copied || !matches!(stat.kind, Kind::Symlink { .. }) {
            return Ok(stat);
        }
        let followed = match self.set.links {
            SourceLinks::FollowedWithin => {
                let root = self.source().root.as_fd();
                beneath::open(root, source_path, OFlags::PATH, Mode::empty(), Links::Within).and_then(Stat::of_fd)
            }
            _ => rustix::io::retry_on_intr(|| rustix::fs::statat(dir, name, AtFlags::empty()))
                .map(Stat::from)
                .map_err(io::Error::from),
        };
        // The link is there.
        followed.map_err(|error| match is_missing(&error) {
            true => refusal(io::ErrorKind::NotFound, "it is a symbolic link that leads to nothing"),
            false => error,
        })
    }

    fn open_directory(&self, dir: BorrowedFd<'_>, name: &[u8], source_path: &[u8]) -> io::Result<OwnedFd> {
        let flags = match self.set.links {
            SourceLinks::Copied => DIRECTORY_FLAGS,
            SourceLinks::Followed => DIRECTORY_FLAGS & !OFlags::NOFOLLOW,
            SourceLinks::FollowedWithin => {
                let root = self.source().root.as_fd();
                let flags = OFlags::RDONLY | OFlags::DIRECTORY;
                return beneath::open(root, source_path, flags, Mode::empty(), Links::Within);
            }
        };
        Ok(rustix::io::retry_on_intr(|| rustix::fs::openat(dir, name, flags, Mode::empty()))?)
    }

    /// Yields the directory at `self.path` and puts it on the stack. One that cannot be read is still yielded, so that
    /// it exists at the target, and ends incomplete.
    fn enter(&mut self, opened: io::Result<OwnedFd>, seen: &Stat, listed: Option<Range>) {
        let mut failure = None;
        let mut entered = None;
        match opened.and_then(|dir| Ok((Stat::of_fd(&dir)?, dir))) {
            Err(error) => failure = Some(error),
            Ok((stat, _)) if self.stack.iter().any(|frame| frame.stat.is_same_inode(&stat)) => {
                failure = Some(refusal(io::ErrorKind::InvalidInput, "it contains itself through a link"));
            }
            Ok(_) if self.stack.len() >= MAX_DEPTH => {
                failure = Some(refusal(io::ErrorKind::InvalidInput, "directories are nested too deep"));
            }
            Ok((stat, dir)) => entered = Some((stat, dir)),
        }
        let xattrs = match &entered {
            Some((_, dir)) if self.namespaces.any() => attributes::read(&Place::Open(dir.as_fd()), &self.namespaces),
            _ => Ok(Vec::new()),
        };
        let (xattrs, unread) = xattrs.map_or_else(|error| (Vec::new(), Some(error)), |xattrs| (xattrs, None));
        let stat = entered.as_ref().map_or(seen, |(stat, _)| stat).clone();
        self.found(self.path.clone(), self.source_path.clone(), stat, EntryKind::Directory, xattrs, true);
        if let Some(error) = unread {
            // Right behind its own entry: so the target knows that it has to leave those alone that it has. Its names are all seen.
            let error = StoreError::new(READ_ATTRIBUTES, &self.path, error);
            self.pending.push_back(Found::Failed { path: self.path.clone(), error });
        }
        let mut complete = !self.source().shared;
        let mut names = Remaining::All { names: Names::default(), next: 0 };
        if let Some(range) = listed {
            names = Remaining::Listed(range);
        } else if let Some((_, dir)) = &entered {
            match Names::read(dir.as_fd()) {
                Ok(read) => names = Remaining::All { names: read, next: 0 },
                Err(error) => failure = Some(error),
            }
        }
        if let Some(error) = failure {
            // Its own name was seen, so the directory above may still be complete.
            complete = false;
            let error = StoreError::new("read directory", &self.path, error);
            self.pending.push_back(Found::Failed { path: self.path.clone(), error });
        }
        let (stat, dir) = match entered {
            Some((stat, dir)) => (stat, Some(dir)),
            None => {
                names = Remaining::All { names: Names::default(), next: 0 };
                (seen.clone(), None)
            }
        };
        let (path_bytes, source_path_bytes) = (self.path.len(), self.source_path.len());
        self.stack.push(Frame { dir, stat, names, path_bytes, source_path_bytes, complete });
    }

    fn file_or_link(&mut self, path: &[u8], source_path: &[u8], stat: &Stat) -> EntryKind {
        let source = self.next_source - 1;
        let Some(links) = &mut self.hard_links else { return EntryKind::File { further_names: 0 } };
        if stat.nlink < 2 {
            return EntryKind::File { further_names: 0 };
        }
        let key = (stat.id.dev, stat.id.ino);
        if let Some(group) = links.groups.get_mut(&key).filter(|group| group.has(stat, &self.set)) {
            let first = group.first.clone();
            group.names_left -= 1;
            // All names seen: the group is closed, so memory holds only groups that are still open.
            if group.names_left == 0 {
                links.groups.remove(&key);
            }
            return EntryKind::HardLink { first };
        }
        if links.groups.len() < MAX_HARD_LINK_GROUPS || links.groups.contains_key(&key) {
            let (first, names_left) = (path.to_vec(), stat.nlink - 1);
            let source_path = (source_path != path).then(|| source_path.to_vec());
            let group = Group { first, names_left, source, source_path, size: stat.size, mtime: stat.mtime };
            links.groups.insert(key, group);
            return EntryKind::File { further_names: names_left };
        }
        if !links.told_full {
            links.told_full = true;
            let why = format!(
                "and further files are copied apart from their hard links: more than {MAX_HARD_LINK_GROUPS} groups"
            );
            self.pending.push_back(Found::Skipped { path: path.to_vec(), why });
        }
        EntryKind::File { further_names: 0 }
    }

    fn attributes_of(&self, dir: BorrowedFd<'_>, name: &[u8], source_path: &[u8]) -> io::Result<Vec<Attribute>> {
        match self.set.links {
            SourceLinks::Copied => attributes::read(&Place::Name(dir, name), &self.namespaces),
            SourceLinks::Followed | SourceLinks::FollowedWithin => {
                let opened = self.open_path(dir, name, source_path)?;
                attributes::read(&Place::Open(opened.as_fd()), &self.namespaces)
            }
        }
    }

    /// For looking at it only: a FIFO does not hang.
    fn open_path(&self, dir: BorrowedFd<'_>, name: &[u8], source_path: &[u8]) -> io::Result<OwnedFd> {
        let flags = match self.set.links {
            SourceLinks::Copied => OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            SourceLinks::Followed => OFlags::PATH | OFlags::CLOEXEC,
            SourceLinks::FollowedWithin => {
                let root = self.source().root.as_fd();
                return beneath::open(root, source_path, OFlags::PATH, Mode::empty(), Links::Within);
            }
        };
        Ok(rustix::io::retry_on_intr(|| rustix::fs::openat(dir, name, flags, Mode::empty()))?)
    }

    /// A time of its own is true wherever it comes from. Where there may be none the file system is asked, once for all its files.
    fn tells_changes(&mut self, dir: BorrowedFd<'_>, name: &[u8], source_path: &[u8], stat: &Stat) -> bool {
        if stat.id.ctime > stat.mtime {
            return true;
        }
        if let Some(kept) = self.change_times.get(&stat.id.dev) {
            return *kept;
        }
        let opened = self.open_path(dir, name, source_path);
        // What cannot be asked is like most.
        let kept = opened.and_then(|file| medium::keeps_change_times(file.as_fd())).unwrap_or(true);
        self.change_times.insert(stat.id.dev, kept);
        kept
    }

    fn found(
        &mut self,
        path: Vec<u8>,
        source_path: Vec<u8>,
        stat: Stat,
        kind: EntryKind,
        xattrs: Vec<Attribute>,
        tells_changes: bool,
    ) {
        let source = self.next_source as u32 - 1;
        let entry = FoundEntry { source, path, source_path, stat, tells_changes, kind, xattrs };
        self.pending.push_back(Found::Entry(entry));
    }

    /// What failed may still exist at the target, where nobody must delete it: its directory is not complete.
    fn fail(&mut self, op: &'static str, path: Vec<u8>, error: io::Error) {
        if let Some(frame) = self.stack.last_mut() {
            frame.complete = false;
        }
        self.pending.push_back(Found::Failed { error: StoreError::new(op, &path, error), path });
    }

    fn source(&self) -> &Source {
        &self.set.sources[self.next_source - 1]
    }
}

fn is_missing(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOENT.raw_os_error())
}

const READ_ATTRIBUTES: &str = "read the attributes of";

static RAISE_LIMIT: Once = Once::new();

const DIRECTORY_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::FileId;

    /// Each has two more names.
    const FIRST: EntryKind = EntryKind::File { further_names: 2 };

    fn stat(ino: u64, size: u64, mtime: Time) -> Stat {
        let id = FileId { dev: 1, ino, ctime: Time::default() };
        Stat { kind: Kind::File, mode: 0o644, size, blocks: 8, mtime, id, nlink: 3, uid: 0, gid: 0 }
    }

    #[test]
    fn a_new_file_with_the_inode_number_of_a_deleted_one_is_no_name_of_it() {
        let sources = Arc::new(SourceSet::zeros(1).unwrap());
        let mut walk = sources.walk(WalkOptions { hard_links: true, ..WalkOptions::default() });
        walk.next_source = 1;
        let mut kind = |path: &str, stat: &Stat| walk.file_or_link(path.as_bytes(), path.as_bytes(), stat);
        let link = |first: &str| EntryKind::HardLink { first: first.as_bytes().to_vec() };
        let time = |s, ns| Time { s, ns };
        let (first, other) = (stat(7, 100, time(5, 5)), stat(8, 100, time(5, 5)));
        assert_eq!(kind("a", &first), FIRST);
        assert_eq!(kind("b", &first), link("a"));
        assert_eq!(kind("c", &other), FIRST);
        // Each is a file of its own, and the first name of what has the same number after it.
        for (name, second_name, new) in [
            ("d", "e", stat(7, 99, time(5, 5))),
            ("f", "g", stat(7, 99, time(6, 5))),
            ("h", "i", stat(7, 99, time(6, 6))),
            ("j", "k", stat(7, 0, time(7, 0))),
        ] {
            assert_eq!(kind(name, &new), FIRST, "{name}");
            assert_eq!(kind(second_name, &new), link(name));
        }
        assert_eq!((kind("l", &other), kind("m", &other)), (link("c"), link("c")));
        assert_eq!(kind("n", &other), FIRST, "all names of the former were seen");
    }
}
