//! Writes a tree: an open root directory, and everything relative to it.
//!
//! Paths stay beneath the root; links there, even planted ones, are not followed. Replacing entries are made under a
//! temporary name and renamed.

mod backup;
mod backup_tree;
mod delayed;
mod dirlinks;
mod draft_place;
mod drafts;
mod final_name;
mod finished_directory;
mod follow;
mod left_to_owners;
mod links;
mod made_directories;
mod nodes;
mod options;
mod replace;
mod settings;
mod waiting;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use haul_sys::beneath::{self, Links};
use haul_sys::{file, process};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::attributes::Namespaces;
use crate::ends::reading::SourceFile;
use crate::error::{Context, Result, StoreError, is_missing, printable, refusal};
use crate::kernel_files::KernelFiles;
use crate::listing::are_listed;
use crate::local_file::LocalFile;
use crate::meta::{self, Applied, Kind, Metadata, Stat};
use crate::name::{check_new_path, check_path, split};
use crate::occupied::Occupied;
use crate::parents::Parents;
use crate::regular_file::READ_FLAGS;
use crate::typed::{Typed, means_contents, parent_and_name};

use self::dirlinks::{Base, BaseDir, Dirlinks, ONLY_ROOT};
pub(crate) use self::draft_place::{DraftPlace, Drafts};
pub(crate) use self::final_name::take_name;
use self::finished_directory::FinishedDirectory;
pub use self::left_to_owners::LeftToOwners;
use self::made_directories::MadeDirectories;
pub use self::options::TargetOptions;
pub(crate) use self::settings::Settings;

/// An open directory to write into.
#[derive(Debug)]
pub struct LocalTree {
    /// `None`: missing, in a dry run.
    root: Option<OwnedFd>,
    display: Vec<u8>,
    confine: Option<PathBuf>,
    parents: Parents,
    pub(crate) dirlinks: Dirlinks,
    pub(crate) settings: Arc<Settings>,
}

/// Whether the typed path is the null device (null(4)).
pub fn is_null_device(path: &[u8], options: &TargetOptions) -> Result<bool> {
    let typed = options.typed()?;
    let Ok(entry) = typed.open(&typed.expand(path), OFlags::PATH | OFlags::NOFOLLOW) else { return Ok(false) };
    let stat = rustix::fs::fstat(&entry).context("look at", path)?;
    let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
    Ok(is_device && (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev)) == NULL_DEVICE)
}

const NO_FILE: &str = "it is a device, a FIFO or a socket, which a file would replace";
/// Major and minor number (null(4)).
const NULL_DEVICE: (u32, u32) = (1, 3);

const NO_DIRECTORY_NOW: &str = "it was renamed, removed or unmounted during the copy, and what was copied went with it";
const OTHER_DIRECTORY: &str = "another directory stands there now: it was renamed, replaced or unmounted during the copy, and what was copied went with it";

/// Why no directory replaces another entry.
pub const NO_DIRECTORY: &str = "a file has that name, which only --delete replaces";

/// Why no directory replaces a symbolic link.
pub const NO_DIRECTORY_BUT_A_LINK: &str =
    "a symbolic link has that name: -K copies to where it leads, --delete replaces it";

/// Why no directory replaces this entry.
pub fn no_directory(standing: &Kind) -> &'static str {
    if matches!(standing, Kind::Symlink { .. }) { NO_DIRECTORY_BUT_A_LINK } else { NO_DIRECTORY }
}

impl LocalTree {
    /// Opens a job's target by cp's rule: the path is the tree if it is an existing directory, ends in a slash, or will hold
    /// several files. Otherwise it is the single file's new name, which is returned, beneath its parent. Devices, FIFOs and
    /// sockets are refused; see [`is_null_device`].
    pub fn open(path: &[u8], options: &TargetOptions) -> Result<(LocalTree, Option<Vec<u8>>)> {
        let typed = options.typed()?;
        let expanded = typed.expand(path);
        let tree = |root, shown: &[u8]| LocalTree::new(root, shown, options);
        let into_directory = means_contents(&expanded) || !options.single_file;
        let exists = match typed.open(&expanded, ROOT_FLAGS) {
            Ok(root) => return Ok((tree(Some(root), &expanded), None)),
            Err(error) => !is_missing(&error),
        };
        if exists && into_directory {
            // The second open gives the error: not a directory, not permitted, or a loop of links.
            typed.open(&expanded, ROOT_FLAGS).context("use as target", path)?;
        }
        if into_directory {
            let root = open_or_make(&typed, &expanded, options).context("make target directory", path)?;
            let tree = tree(root.dir, &expanded);
            if root.is_made {
                tree.settings.made.note(b"");
            }
            return Ok((tree, None));
        }
        let (parent, name) = parent_and_name(&expanded);
        check_new_path(name).context("write", path)?;
        let root = open_or_make(&typed, parent, options).context("open target directory", parent)?.dir;
        if let Some(root) = &root
            && Stat::of_name(root.as_fd(), name).is_ok_and(|there| there.kind == Kind::Special)
        {
            return Err(StoreError::new("write", path, refusal(io::ErrorKind::AlreadyExists, NO_FILE)));
        }
        Ok((tree(root, parent), Some(name.to_vec())))
    }

    pub(crate) fn of_root(root: OwnedFd, options: &TargetOptions) -> LocalTree {
        LocalTree::new(Some(root), b"", options)
    }

    fn new(root: Option<OwnedFd>, display: &[u8], options: &TargetOptions) -> LocalTree {
        let namespaces = Namespaces { xattrs: options.xattrs, acls: options.acls, ..Namespaces::default() };
        let (umask, user) = (process::umask(), process::effective_user());
        let kernel_files = KernelFiles::of(options.confine.is_some());
        let settings = Settings {
            namespaces,
            umask,
            user,
            kernel_files,
            placed: Mutex::default(),
            lost_set_group: OnceLock::new(),
            left_to_owners: Mutex::default(),
            backups: OnceLock::new(),
            drafts: OnceLock::new(),
            delayed: OnceLock::new(),
            made: MadeDirectories::default(),
        };
        let (display, confine, parents) = (display.to_vec(), options.confine.clone(), Parents::new(kernel_files));
        let dirlinks = Dirlinks::new(options.keep_dirlinks);
        LocalTree { root, display, confine, parents, dirlinks, settings: Arc::new(settings) }
    }

    pub(crate) fn beside(&self, path: &[u8], options: &TargetOptions) -> io::Result<LocalTree> {
        let typed = options.typed().map_err(|error| error.source)?;
        let path = match path {
            [b'/', ..] => typed.expand(path),
            // In a dry run `..` cannot be walked from a missing directory.
            [b'.', b'.', b'/', beyond @ ..] if self.root.is_none() => {
                let end = self.display.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
                let parent = match crate::name::split(&self.display[..end]).0 {
                    b"" if self.display.starts_with(b"/") => b"/",
                    b"" => &b"."[..],
                    parent => parent,
                };
                [parent, &b"/"[..], beyond].concat()
            }
            _ => [&self.display, &b"/"[..], path].concat(),
        };
        let root = open_or_make(&typed, &path, options)?.dir;
        Ok(LocalTree::new(root, &path, options))
    }

    /// Opens another tree to look for the same files, if it exists.
    pub fn reference(&self, path: &[u8], options: &TargetOptions) -> Result<Option<LocalTree>> {
        let options = TargetOptions { make: false, ..options.clone() };
        match self.beside(path, &options) {
            Err(error) if is_missing(&error) => Ok(None),
            opened => opened.map(|tree| Some(tree).filter(|tree| tree.root.is_some())).context("look into", path),
        }
    }

    /// Fails if the typed path was renamed or unmounted. Passes without the right to look.
    pub fn check_place(&self) -> Result<()> {
        let Some(root) = &self.root else { return Ok(()) };
        let opened = Typed::new(self.confine.as_deref(), None)
            .map_err(|error| error.source)
            .and_then(|typed| Stat::of_fd(typed.trusted().open(&self.display, ROOT_FLAGS)?));
        let why = match opened {
            Ok(now) if now.is_same_inode(&Stat::of_fd(root).context("look at", &self.display)?) => return Ok(()),
            Ok(_) => OTHER_DIRECTORY,
            Err(error) if is_no_directory(&error) => NO_DIRECTORY_NOW,
            Err(_) => return Ok(()),
        };
        let at = if self.display == b"." { b"the current directory" } else { &self.display[..] };
        Err(StoreError::new("find the target directory again at", at, refusal(io::ErrorKind::NotFound, why)))
    }

    /// The root directory; `None` in a dry run if missing.
    pub fn root_directory(&self) -> Option<BorrowedFd<'_>> {
        self.root.as_ref().map(AsFd::as_fd)
    }

    /// The root for people.
    pub fn display_root(&self) -> String {
        printable(&self.display)
    }

    /// The mode of a new entry by the umask, if the source's is not kept.
    pub fn default_mode(&self, is_dir: bool) -> u32 {
        (if is_dir { 0o777 } else { 0o666 }) & !self.settings.umask
    }

    /// The first unsupported attribute, escaped for a terminal.
    pub fn xattrs_unsupported(&self) -> Option<String> {
        self.settings.namespaces.unsupported.get().map(|name| printable(name))
    }

    /// The first entry without its set-group-id bit, for people.
    pub fn lost_set_group(&self) -> Option<String> {
        self.settings.lost_set_group.get().map(|path| printable(path))
    }

    /// Tells what stays, because it belongs to other users.
    pub fn left_to_owners(&self) -> LeftToOwners {
        self.settings.left_to_owners.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Foresees what [`LocalTree::set_metadata`] would leave to an owner, or fail at.
    pub fn foresee_metadata(&self, path: &[u8], now: &Stat, meta: &Metadata) -> Result<Applied> {
        let applied = meta::foresee(now, meta).context("set metadata of", path)?;
        self.settings.note_applied(applied, path);
        Ok(applied)
    }

    /// See [`TargetTree::stat`](crate::TargetTree::stat).
    pub fn stat(&self, path: &[u8]) -> Result<Option<Stat>> {
        if self.root.is_none() {
            return Ok(None);
        }
        let looked = check_path(path).and_then(|()| {
            let (dir, name) = self.place(path)?;
            let mut stat = Stat::of_name(dir.as_fd(), name)?;
            if let Kind::Symlink { target } = &mut stat.kind {
                *target = rustix::fs::readlinkat(&dir, name, Vec::new())?.into_bytes();
            }
            Ok(stat)
        });
        match looked {
            Ok(stat) => Ok(Some(stat)),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(StoreError::new("look at", path, error)),
        }
    }

    /// Whether nothing has this path now. Keeps no directory open, so another thread may ask while the job replaces entries.
    pub fn lacks(&self, path: &[u8]) -> bool {
        let look = |root| rustix::io::retry_on_intr(|| rustix::fs::statat(root, path, AtFlags::SYMLINK_NOFOLLOW));
        let root = self.root.as_ref().filter(|_| !path.is_empty());
        root.is_some_and(|root| matches!(look(root.as_fd()), Err(Errno::NOENT)))
    }

    /// Fails if another entry of this job stands there: the file system takes both names for one.
    pub fn check_twin(&self, standing: &Stat, path: &[u8]) -> Result<()> {
        let are_listed = &mut |names: &[u128]| are_listed(self.place(path)?.0.as_fd(), names);
        match self.settings.placed().is_twin(standing, path, are_listed).context("write", path)? {
            true => Err(StoreError::twin(path)),
            false => Ok(()),
        }
    }

    /// Counts the existing entry as placed by this job.
    pub fn keep(&self, standing: &Stat, path: &[u8]) {
        self.settings.placed().note(standing, path);
    }

    /// See [`TargetTree::make_dir`](crate::TargetTree::make_dir). The mode is 0700 until the metadata is set.
    pub fn make_dir(&self, path: &[u8]) -> Result<bool> {
        let made = check_new_path(path).and_then(|()| {
            if path.is_empty() || self.dirlinks.has(path) {
                return self.root().map(|_| false);
            }
            self.within_parent(path, |dir, name| match rustix::fs::mkdirat(dir, name, Mode::RWXU) {
                Ok(()) => {
                    self.settings.placed().note(&Stat::of_name(dir.as_fd(), name)?, path);
                    self.settings.made.note(path);
                    Ok(true)
                }
                Err(Errno::EXIST) => {
                    let standing = Stat::of_name(dir.as_fd(), name)?;
                    if standing.kind != Kind::Directory {
                        return Err(refusal(io::ErrorKind::NotADirectory, no_directory(&standing.kind)));
                    }
                    self.settings.check_placed(dir, &standing, path).map(|()| false)
                }
                Err(error) => Err(error.into()),
            })
        });
        made.context("make directory", path)
    }

    /// Notes that the job writes here until [`LocalTree::leave`]. Another directory in this place is an error for all that
    /// goes there.
    pub fn enter(&self, path: &[u8]) -> Result<()> {
        let entered = check_path(path).and_then(|()| {
            // An open directory may be an earlier one of this path.
            let base = self.base(path)?;
            let key = Occupied::key(base.number, base.rest);
            self.parents.occupied.leave(&key);
            self.parents.forget(base.number, base.rest);
            let dir = self.parents.open(base.number, base.dir(), base.rest, Links::Refused)?;
            self.parents.occupied.enter(&key, &dir)
        });
        entered.context("use", path)
    }

    /// Ends [`LocalTree::enter`]. Fails if another directory stands there: the entries are not in their place.
    pub fn leave(&self, path: &[u8]) -> Result<()> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let left = check_path(path).and_then(|()| {
            let base = self.base(path)?;
            let key = Occupied::key(base.number, base.rest);
            let opened = beneath::open(base.dir(), base.rest, flags, Mode::empty(), Links::Refused)
                .and_then(|dir| self.parents.occupied.check(&key, &dir));
            self.parents.occupied.leave(&key);
            opened
        });
        left.context("find again, during the copy,", path)
    }

    /// See [`TargetTree::set_metadata`](crate::TargetTree::set_metadata). Equal values are not set.
    pub fn set_metadata(&self, path: &[u8], meta: &Metadata) -> Result<Applied> {
        let set = check_path(path).and_then(|()| {
            let (dir, name) = self.place(path)?;
            if !matches!(Stat::of_name(dir.as_fd(), name)?.kind, Kind::File | Kind::Directory) {
                return Err(refusal(io::ErrorKind::InvalidInput, "it is neither a file nor a directory"));
            }
            // An owner can change an unreadable file, through a path descriptor.
            let open = |flags| rustix::io::retry_on_intr(|| rustix::fs::openat(&dir, name, flags, Mode::empty()));
            let opened = match open(READ_FLAGS) {
                Err(Errno::ACCESS) => open(OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC),
                opened => opened,
            }?;
            self.settings.kernel_files.check(&opened)?;
            let now = Stat::of_fd(&opened)?;
            if !matches!(now.kind, Kind::File | Kind::Directory) {
                return Err(Errno::STALE.into());
            }
            let applied = meta::apply(opened.as_fd(), &now, meta, &self.settings.namespaces)?;
            self.settings.note_applied(applied, path);
            Ok(applied)
        });
        set.context("set metadata of", path)
    }

    /// Lets a user write into its own directory despite the mode, as rsync does; true if necessary. The final mode comes
    /// later.
    pub fn open_up(&self, path: &[u8]) -> Result<bool> {
        let opened = check_path(path).and_then(|()| {
            let (dir, name) = self.place(path)?;
            meta::open_up(dir.as_fd(), name)
        });
        opened.context("set the mode of", path)
    }

    /// See [`TargetTree::flush_dir`](crate::TargetTree::flush_dir).
    pub fn flush_dir(&self, path: &[u8]) -> Result<()> {
        let flushed = self.open_dir(path).and_then(|dir| haul_sys::file::flush_all(dir.as_fd()));
        flushed.context("flush directory", path)
    }

    /// See [`TargetTree::flush_file`](crate::TargetTree::flush_file).
    pub fn flush_file(&self, path: &[u8]) -> Result<()> {
        let flushed = check_path(path).and_then(|()| {
            let (dir, name) = self.place(path)?;
            let opened = rustix::io::retry_on_intr(|| rustix::fs::openat(&dir, name, READ_FLAGS, Mode::empty()))?;
            file::flush_data(opened.as_fd())
        });
        flushed.context("flush", path)
    }

    /// Opens an existing regular file, to compare or verify it.
    pub fn open_file(&self, path: &[u8]) -> Result<SourceFile> {
        let opened = check_path(path).and_then(|()| {
            let (dir, name) = self.place(path)?;
            let opened = rustix::io::retry_on_intr(|| rustix::fs::openat(&dir, name, READ_FLAGS, Mode::empty()))?;
            LocalFile::new(self.settings.kernel_files.checked(opened)?).map(SourceFile::Local)
        });
        opened.context("open", path)
    }

    /// The content of a merge file, if it exists.
    pub fn read_merge_file(&self, path: &[u8]) -> io::Result<Option<Vec<u8>>> {
        match self.open_file(path) {
            Ok(file) => file.read_rules().map(Some),
            Err(error) if is_missing(&error.source) => Ok(None),
            Err(error) => Err(error.source),
        }
    }

    /// Whether something is known to be mounted between the root and this directory, or at it.
    pub fn is_on_other_mount(&self, path: &[u8]) -> bool {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let opened = check_path(path).and_then(|()| {
            let base = self.base(path)?;
            let is_elsewhere =
                base.number != ONLY_ROOT && Stat::of_fd(base.dir())?.id.dev != Stat::of_fd(self.root()?)?.id.dev;
            if is_elsewhere {
                Err(Errno::XDEV.into())
            } else {
                beneath::open_on_one_mount(base.dir(), base.rest, flags)
            }
        });
        opened.is_err_and(|error| error.raw_os_error() == Some(Errno::XDEV.raw_os_error()))
    }

    pub(crate) fn open_dir(&self, path: &[u8]) -> io::Result<OwnedFd> {
        check_path(path)?;
        let base = self.base(path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let opened = beneath::open(base.dir(), base.rest, flags, Mode::empty(), Links::Refused)?;
        self.parents.occupied.check(&Occupied::key(base.number, base.rest), &opened)?;
        self.settings.kernel_files.checked(opened)
    }

    /// Runs `work`, which changes names in this directory, if it exists, and gives back its mode, and with `keeps_time` its
    /// time. Fails if it cannot be opened, or its mode set.
    pub fn within_finished(&self, path: &[u8], keeps_time: bool, work: impl FnOnce()) -> Result<()> {
        let directory = match self.open_dir(path) {
            Err(error) if is_missing(&error) => return Ok(()),
            opened => opened.context("read directory", path)?,
        };
        let finished = FinishedDirectory::open_up(directory.as_fd()).context("change", path)?;
        work();
        if keeps_time {
            finished.give_back_time(directory.as_fd());
        }
        finished.give_back_mode(directory.as_fd()).context("set the mode of", path)
    }

    pub(crate) fn within_parent<T>(
        &self,
        path: &[u8],
        mut work: impl FnMut(&Arc<OwnedFd>, &[u8]) -> io::Result<T>,
    ) -> io::Result<T> {
        let base = self.base(path)?;
        let (parent, name) = split(base.rest);
        if name.is_empty() {
            return Err(Errno::ISDIR.into());
        }
        self.parents.within(base.number, base.dir(), parent, Links::Refused, |dir| {
            work(dir, name).map_err(|error| full_of_what(dir, error))
        })
    }

    pub(crate) fn place<'a>(&self, path: &'a [u8]) -> io::Result<(Arc<OwnedFd>, &'a [u8])> {
        let base = self.base(path)?;
        let (parent, name) = split(base.rest);
        let dir = self.parents.open(base.number, base.dir(), parent, Links::Refused)?;
        Ok((dir, if name.is_empty() { b"." } else { name }))
    }

    /// Forgets a directory that is gone: nothing may go into its remains.
    pub(crate) fn forget(&self, path: &[u8]) {
        self.settings.made.forget(path);
        if let Ok(base) = self.base(path) {
            self.parents.forget(base.number, base.rest);
        }
    }

    fn base<'p>(&self, path: &'p [u8]) -> io::Result<Base<'_, 'p>> {
        Ok(match self.dirlinks.find(path) {
            Some((found, rest)) => Base { number: found.number, dir: BaseDir::Followed(found.dir), rest },
            None => Base { number: ONLY_ROOT, dir: BaseDir::Root(self.root()?), rest: path },
        })
    }

    fn root(&self) -> io::Result<BorrowedFd<'_>> {
        match &self.root {
            Some(root) => Ok(root.as_fd()),
            None => Err(Errno::NOENT.into()),
        }
    }
}

fn is_no_directory(error: &io::Error) -> bool {
    [Errno::NOENT, Errno::NOTDIR, Errno::STALE].iter().any(|code| error.raw_os_error() == Some(code.raw_os_error()))
}

struct Root {
    dir: Option<OwnedFd>,
    is_made: bool,
}

fn open_or_make(typed: &Typed, path: &[u8], options: &TargetOptions) -> io::Result<Root> {
    let mut is_made = false;
    let missing = match typed.open(path, ROOT_FLAGS) {
        Ok(root) => return Ok(Root { dir: Some(root), is_made }),
        Err(error) => error,
    };
    if !is_missing(&missing) {
        return Err(missing);
    }
    if options.dry_run {
        return Ok(Root { dir: None, is_made });
    }
    if !options.make {
        return Err(missing);
    }
    let ends = path.iter().enumerate().filter(|&(at, &byte)| at > 0 && byte == b'/').map(|(at, _)| at);
    for end in ends.chain([path.len()]) {
        let prefix = &path[..end];
        let (parent, name) = parent_and_name(prefix);
        if matches!(name, b"" | b"." | b"..") {
            is_made &= name != b"..";
            continue;
        }
        match typed.open(prefix, ROOT_FLAGS) {
            Err(error) if is_missing(&error) => {}
            opened => {
                opened?;
                is_made = false;
                continue;
            }
        }
        let parent = typed.open(parent, ROOT_FLAGS)?;
        match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o777)) {
            Ok(()) => {
                file::flush_directory(parent.as_fd())?;
                is_made = true;
            }
            Err(Errno::EXIST) => is_made = false,
            Err(error) => return Err(error.into()),
        }
    }
    typed.open(path, ROOT_FLAGS).map(|root| Root { dir: Some(root), is_made })
}

/// A path descriptor needs no right to read: drop boxes work.
const ROOT_FLAGS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

/// `ENOSPC` also means no room for more names.
fn full_of_what(dir: &Arc<OwnedFd>, error: io::Error) -> io::Error {
    let is_full = error.raw_os_error() == Some(Errno::NOSPC.raw_os_error());
    match rustix::fs::fstatvfs(dir) {
        // Some file systems (btrfs) make inodes as needed.
        Ok(space) if is_full && space.f_files > 0 && space.f_favail == 0 => {
            refusal(io::ErrorKind::StorageFull, NO_INODES)
        }
        _ => error,
    }
}

const NO_INODES: &str = "no inodes left: the file system takes no more files, whatever space is free (df -i)";
