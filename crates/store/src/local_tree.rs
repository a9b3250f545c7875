//! Where trees are written: an open root directory, and everything done relative to it.
//!
//! Every path stays beneath the root, and links beneath it are not followed, even planted ones. Entries that replace
//! others are made under a temporary name and renamed, so a name never shows something half made.

mod backup;
mod delayed;
mod drafts;
mod final_name;
mod nodes;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

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
use crate::meta::{self, Kind, Metadata, Stat};
use crate::name::{check_new_path, check_path, part_name, split};
use crate::parents::Parents;
use crate::placed::{Placed, TWIN};
use crate::regular_file::READ_FLAGS;
use crate::typed::{Typed, means_contents, parent_and_name};

use self::backup::Backups;
use self::delayed::Delayed;
pub(crate) use self::drafts::{DraftPlace, Drafts};
pub(crate) use self::final_name::take_name;

/// How a typed target path is understood, and what is kept.
#[derive(Debug, Clone, Default)]
pub struct TargetOptions {
    /// The path is beneath this directory and no link leads out of it; `/x` means `x` beneath it.
    pub confine: Option<PathBuf>,
    /// What `~` stands for.
    pub home: Option<PathBuf>,
    /// Make missing directories of the target path.
    pub make: bool,
    /// One file is copied, so the path may be its new name.
    pub single_file: bool,
    /// Make nothing; a missing target is an empty tree.
    pub dry_run: bool,
    /// Extended attributes are kept.
    pub xattrs: bool,
    /// ACLs are kept.
    pub acls: bool,
    /// The tree is only read, so that links of other users on the typed path are followed, as cp follows them.
    pub read_only: bool,
}

impl TargetOptions {
    fn typed(&self) -> Result<Typed> {
        let typed = Typed::new(self.confine.as_deref(), self.home.as_deref())?;
        Ok(if self.read_only { typed } else { typed.trusted() })
    }
}

/// An open directory to write into.
#[derive(Debug)]
pub struct LocalTree {
    /// `None`: does not exist, in a dry run.
    root: Option<OwnedFd>,
    display: Vec<u8>,
    confine: Option<PathBuf>,
    parents: Parents,
    pub(crate) settings: Arc<Settings>,
}

/// The settings that all files of a tree share.
#[derive(Debug)]
pub(crate) struct Settings {
    pub namespaces: Namespaces,
    pub umask: u32,
    pub user: u32,
    pub kernel_files: KernelFiles,
    pub placed: Mutex<Placed>,
    /// The first entry whose set-group-id bit the kernel did not set.
    pub lost_set_group: OnceLock<Vec<u8>>,
    /// Where what is replaced or deleted stays, if it does.
    pub backups: OnceLock<Backups>,
    /// Where parts stand, if not beside their files.
    pub drafts: OnceLock<Drafts>,
    /// What waits for its name, if names are given at the end.
    pub delayed: OnceLock<Delayed>,
}

impl Settings {
    /// Where the part of `name` in the open directory `parent` stands. What is written in place has its journal beside it.
    pub(crate) fn draft_place(
        &self,
        parent: &Arc<OwnedFd>,
        name: &[u8],
        inplace: bool,
        make: bool,
    ) -> io::Result<DraftPlace> {
        Drafts::place(self.drafts(inplace), parent, name, make)
    }

    /// Where parts stand that do not stand beside their files.
    pub(crate) fn drafts(&self, inplace: bool) -> Option<&Drafts> {
        self.drafts.get().filter(|_| !inplace)
    }

    /// Remembers the first entry that did not get its whole mode.
    pub(crate) fn note_applied(&self, is_whole: bool, path: &[u8]) {
        if !is_whole {
            self.lost_set_group.get_or_init(|| path.to_vec());
        }
    }

    /// An entry is about to be replaced.
    pub(crate) fn keep_backup(&self, placed: &Placed, dir: &Arc<OwnedFd>, path: &[u8]) -> io::Result<()> {
        self.backups.get().map_or(Ok(()), |backups| backups.keep(placed, dir, path).map(drop))
    }

    pub(crate) fn placed(&self) -> MutexGuard<'_, Placed> {
        self.placed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses an entry that another one of this job stands for already. `dir` is the directory of the path.
    pub(crate) fn refuse_twin(&self, dir: &OwnedFd, standing: &Stat, path: &[u8]) -> io::Result<()> {
        check_twin(&self.placed(), dir, standing, path)
    }

    /// As above; else this is the entry at this path.
    pub(crate) fn check_placed(&self, dir: &OwnedFd, standing: &Stat, path: &[u8]) -> io::Result<()> {
        self.refuse_twin(dir, standing, path)?;
        self.placed().note(standing, path);
        Ok(())
    }
}

/// See [`Settings::refuse_twin`].
pub(crate) fn check_twin(placed: &Placed, dir: &OwnedFd, standing: &Stat, path: &[u8]) -> io::Result<()> {
    match placed.is_twin(standing, path, &mut |names| are_listed(dir.as_fd(), names))? {
        true => Err(refusal(io::ErrorKind::AlreadyExists, TWIN)),
        false => Ok(()),
    }
}

/// The typed path is the null device (null(4)), which takes everything and keeps nothing.
pub fn is_null_device(path: &[u8], options: &TargetOptions) -> Result<bool> {
    let typed = options.typed()?;
    let Ok(entry) = typed.open(&typed.expand(path), OFlags::PATH | OFlags::NOFOLLOW) else { return Ok(false) };
    let stat = rustix::fs::fstat(&entry).context("look at", path)?;
    let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
    Ok(is_device && (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev)) == NULL_DEVICE)
}

/// Why such a target is refused.
const NO_FILE: &str = "it is a device, a FIFO or a socket, which a file would replace";
/// Major and minor number (null(4)).
const NULL_DEVICE: (u32, u32) = (1, 3);

/// Why the target is not where it was.
const NO_DIRECTORY_NOW: &str = "it was renamed, removed or unmounted during the copy, and what was copied went with it";
const OTHER_DIRECTORY: &str = "another directory stands there now: it was renamed, replaced or unmounted during the copy, and what was copied went with it";

/// Why no directory is made where something else stands.
pub const NO_DIRECTORY: &str = "a file or link has that name, which only --delete replaces";

impl LocalTree {
    /// Opens the target of a job, by cp's rule. The path is the tree if it is an existing directory, ends in a slash,
    /// or will hold more than one file. Otherwise the path is the new name of the single file: the name is returned,
    /// and its parent is the tree. A name of a device, a FIFO or a socket is refused, because a file would replace it.
    /// The null device is a target of its own: see [`is_null_device`].
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
            // Opened once more to get the error: not a directory, not permitted, or a loop of links.
            typed.open(&expanded, ROOT_FLAGS).context("use as target", path)?;
        }
        if into_directory {
            let root = open_or_make(&typed, &expanded, options).context("make target directory", path)?;
            return Ok((tree(root, &expanded), None));
        }
        let (parent, name) = parent_and_name(&expanded);
        check_new_path(name).context("write", path)?;
        let root = open_or_make(&typed, parent, options).context("open target directory", parent)?;
        if let Some(root) = &root
            && Stat::of_name(root.as_fd(), name).is_ok_and(|there| there.kind == Kind::Special)
        {
            return Err(StoreError::new("write", path, refusal(io::ErrorKind::AlreadyExists, NO_FILE)));
        }
        Ok((tree(root, parent), Some(name.to_vec())))
    }

    /// A directory that is open already.
    pub(crate) fn of_root(root: OwnedFd, options: &TargetOptions) -> LocalTree {
        LocalTree::new(Some(root), b"", options)
    }

    fn new(root: Option<OwnedFd>, display: &[u8], options: &TargetOptions) -> LocalTree {
        let namespaces = Namespaces { xattrs: options.xattrs, acls: options.acls, ..Namespaces::default() };
        let (umask, user) = (process::umask(), process::effective_user());
        let kernel_files = KernelFiles::of(options.confine.is_some());
        let (placed, lost_set_group, backups) = (Mutex::default(), OnceLock::new(), OnceLock::new());
        let (drafts, delayed) = (OnceLock::new(), OnceLock::new());
        let settings =
            Settings { namespaces, umask, user, kernel_files, placed, lost_set_group, backups, drafts, delayed };
        let (display, confine, parents) = (display.to_vec(), options.confine.clone(), Parents::new(kernel_files));
        LocalTree { root, display, confine, parents, settings: Arc::new(settings) }
    }

    /// Another directory, for the same paths: one that is relative begins at this tree.
    pub(crate) fn beside(&self, path: &[u8], options: &TargetOptions) -> io::Result<LocalTree> {
        let typed = options.typed().map_err(|error| error.source)?;
        let path = match path {
            [b'/', ..] => typed.expand(path),
            // A dry run into what does not exist: the way out of it cannot be walked.
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
        let root = open_or_make(&typed, &path, options)?;
        Ok(LocalTree::new(root, &path, options))
    }

    /// Another tree on this host, to look for the same files; `None` where there is none.
    pub fn reference(&self, path: &[u8], options: &TargetOptions) -> Result<Option<LocalTree>> {
        let options = TargetOptions { make: false, ..options.clone() };
        match self.beside(path, &options) {
            Err(error) if is_missing(&error) => Ok(None),
            opened => opened.map(|tree| Some(tree).filter(|tree| tree.root.is_some())).context("look into", path),
        }
    }

    /// Checks that the typed path still leads to this directory. If not, the directory was renamed or unmounted, and
    /// the copied files are not at the path. A path that cannot be looked at, because rights were given up, passes.
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

    /// The root itself; `None` in a dry run into what does not exist.
    pub fn root_directory(&self) -> Option<BorrowedFd<'_>> {
        self.root.as_ref().map(AsFd::as_fd)
    }

    /// The root as it may be shown to a person.
    pub fn display_root(&self) -> String {
        printable(&self.display)
    }

    /// The mode of a new entry when the source's mode is not kept: what the user's umask leaves.
    pub fn default_mode(&self, is_dir: bool) -> u32 {
        (if is_dir { 0o777 } else { 0o666 }) & !self.settings.umask
    }

    /// The first attribute that the file system does not support, escaped for a terminal.
    pub fn xattrs_unsupported(&self) -> Option<String> {
        self.settings.namespaces.unsupported.get().map(|name| printable(name))
    }

    /// The first entry whose set-group-id bit could not be set, as it may be shown to a person.
    pub fn lost_set_group(&self) -> Option<String> {
        self.settings.lost_set_group.get().map(|path| printable(path))
    }

    /// Looks at an entry itself, not through a link; `None` when it or a parent is missing.
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

    /// Fails when what stands at this path is another entry of this job, whose name the file system takes for the same.
    pub fn check_twin(&self, standing: &Stat, path: &[u8]) -> Result<()> {
        let are_listed = &mut |names: &[u128]| are_listed(self.place(path)?.0.as_fd(), names);
        match self.settings.placed().is_twin(standing, path, are_listed).context("write", path)? {
            true => Err(StoreError::twin(path)),
            false => Ok(()),
        }
    }

    /// Counts the existing entry at this path as placed by this job.
    pub fn keep(&self, standing: &Stat, path: &[u8]) {
        self.settings.placed().note(standing, path);
    }

    /// Makes a directory with mode 0700 until its metadata is set; false if it existed.
    pub fn make_dir(&self, path: &[u8]) -> Result<bool> {
        let made = check_new_path(path).and_then(|()| {
            if path.is_empty() {
                return self.root().map(|_| false);
            }
            self.within_parent(path, |dir, name| match rustix::fs::mkdirat(dir, name, Mode::RWXU) {
                Ok(()) => {
                    self.settings.placed().note(&Stat::of_name(dir.as_fd(), name)?, path);
                    Ok(true)
                }
                Err(Errno::EXIST) => {
                    let standing = Stat::of_name(dir.as_fd(), name)?;
                    if standing.kind != Kind::Directory {
                        return Err(refusal(io::ErrorKind::NotADirectory, NO_DIRECTORY));
                    }
                    self.settings.check_placed(dir, &standing, path).map(|()| false)
                }
                Err(error) => Err(error.into()),
            })
        });
        made.context("make directory", path)
    }

    /// The job writes into this directory until [`LocalTree::leave`]. Meanwhile another directory in its place is an
    /// error for everything that goes there.
    pub fn enter(&self, path: &[u8]) -> Result<()> {
        let entered = check_path(path).and_then(|()| {
            // An open directory may be one that stood there before.
            self.parents.occupied.leave(path);
            self.parents.forget(ONLY_ROOT, path);
            let dir = self.parents.open(ONLY_ROOT, self.root()?, path, Links::Refused)?;
            self.parents.occupied.enter(path, &dir)
        });
        entered.context("use", path)
    }

    /// Ends [`LocalTree::enter`]. Fails when another directory stands there by now: what was written is not in its
    /// place.
    pub fn leave(&self, path: &[u8]) -> Result<()> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let opened = check_path(path)
            .and_then(|()| beneath::open(self.root()?, path, flags, Mode::empty(), Links::Refused))
            .and_then(|dir| self.parents.occupied.check(path, &dir));
        self.parents.occupied.leave(path);
        opened.context("find again, during the copy,", path)
    }

    /// Makes a symbolic link; false if it existed. Replaces a file or another link, but never a directory.
    pub fn make_symlink(&self, path: &[u8], target: &[u8], meta: &Metadata) -> Result<bool> {
        let make = |dir: &Arc<OwnedFd>, name: &[u8]| {
            let changed = match rustix::fs::symlinkat(target, dir, name) {
                Ok(()) => true,
                Err(Errno::EXIST) => {
                    let standing = Stat::of_name(dir.as_fd(), name)?;
                    self.settings.refuse_twin(dir, &standing, path)?;
                    let replaced = self.replace_by_symlink(dir, path, target)?;
                    if replaced {
                        // Its inode is free now.
                        self.settings.placed().forget(&standing, path);
                    }
                    replaced
                }
                Err(error) => return Err(error.into()),
            };
            let now = Stat::of_name(dir.as_fd(), name)?;
            if !matches!(now.kind, Kind::Symlink { .. }) {
                return Err(Errno::STALE.into());
            }
            self.settings.placed().note(&now, path);
            Ok(meta::apply_to_link(dir.as_fd(), name, &now, meta, &self.settings.namespaces)? || changed)
        };
        let made = check_new_path(path).and_then(|()| self.within_parent(path, make));
        made.context("make symbolic link", path)
    }

    fn replace_by_symlink(&self, dir: &Arc<OwnedFd>, path: &[u8], target: &[u8]) -> io::Result<bool> {
        let name = split(path).1;
        match Stat::of_name(dir.as_fd(), name)?.kind {
            Kind::Directory => return Err(Errno::ISDIR.into()),
            Kind::Symlink { .. } if rustix::fs::readlinkat(dir, name, Vec::new())?.as_bytes() == target => {
                return Ok(false);
            }
            _ => {}
        }
        self.settings.keep_backup(&self.settings.placed(), dir, path)?;
        replace(dir, name, &part_name(name), |temporary| rustix::fs::symlinkat(target, dir, temporary))?;
        // Somebody else may have put another link in the place of the temporary name.
        match rustix::fs::readlinkat(dir, name, Vec::new())?.as_bytes() == target {
            true => Ok(true),
            false => Err(Errno::STALE.into()),
        }
    }

    /// Makes `path` a hard link to `first`, a regular file or symbolic link; false if it is one already. Replaces a
    /// file or link, but never a directory.
    pub fn make_hard_link(&self, path: &[u8], first: &[u8]) -> Result<bool> {
        self.link(path, self, first)
    }

    /// [`LocalTree::make_hard_link`] to the file with the same path in another tree of this file system.
    pub fn link_from(&self, other: &LocalTree, path: &[u8]) -> Result<bool> {
        self.link(path, other, path)
    }

    fn link(&self, path: &[u8], tree: &LocalTree, first: &[u8]) -> Result<bool> {
        let made = check_new_path(path).and_then(|()| check_new_path(first)).and_then(|()| {
            let (first_dir, first_name) = tree.place(first)?;
            let origin = Stat::of_name(first_dir.as_fd(), first_name)?;
            if !matches!(origin.kind, Kind::File | Kind::Symlink { .. }) {
                return Err(refusal(
                    io::ErrorKind::InvalidInput,
                    "its first name must be a regular file or a symbolic link",
                ));
            }
            self.within_parent(path, |dir, name| {
                let link = |new: &[u8]| rustix::fs::linkat(&first_dir, first_name, dir, new, AtFlags::empty());
                match link(name) {
                    Ok(()) => {
                        self.settings.placed().note_link(&origin, path);
                        return Ok(true);
                    }
                    Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                let now = Stat::of_name(dir.as_fd(), name)?;
                if now.is_same_inode(&origin) {
                    return Ok(false);
                }
                if now.kind == Kind::Directory {
                    return Err(Errno::ISDIR.into());
                }
                self.settings.refuse_twin(dir, &now, path)?;
                self.settings.keep_backup(&self.settings.placed(), dir, path)?;
                replace(dir, name, &part_name(name), link)?;
                // Somebody else may have put another file in the place of the temporary name.
                if !Stat::of_name(dir.as_fd(), name)?.is_same_inode(&origin) {
                    return Err(Errno::STALE.into());
                }
                let mut placed = self.settings.placed();
                placed.forget(&now, path);
                placed.note_link(&origin, path);
                Ok(true)
            })
        });
        made.context("make hard link", path)
    }

    /// Sets metadata of a file or directory, never through a link. Values that are equal already are not set.
    pub fn set_metadata(&self, path: &[u8], meta: &Metadata) -> Result<()> {
        let set = check_path(path).and_then(|()| {
            let (dir, name) = self.place(path)?;
            if !matches!(Stat::of_name(dir.as_fd(), name)?.kind, Kind::File | Kind::Directory) {
                return Err(refusal(io::ErrorKind::InvalidInput, "it is neither a file nor a directory"));
            }
            // A file that may not be read can still be changed by its owner, through a path descriptor.
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
            self.settings.note_applied(meta::apply(opened.as_fd(), &now, meta, &self.settings.namespaces)?, path);
            Ok(())
        });
        set.context("set metadata of", path)
    }

    /// As rsync does, lets an ordinary user write into a directory of its own whose mode forbids it; true if this was
    /// necessary. The directory gets its final mode with its other metadata, when its content is complete.
    pub fn open_up(&self, path: &[u8]) -> Result<bool> {
        let opened = check_path(path).and_then(|()| {
            let (dir, name) = self.place(path)?;
            meta::open_up(dir.as_fd(), name)
        });
        opened.context("set the mode of", path)
    }

    /// Waits until the names in a directory are on the medium.
    pub fn flush_dir(&self, path: &[u8]) -> Result<()> {
        let flushed = self.open_dir(path).and_then(|dir| haul_sys::file::flush_all(dir.as_fd()));
        flushed.context("flush directory", path)
    }

    /// Waits until the data of an existing regular file is on the medium.
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

    /// The content of a merge file; `None` where there is none.
    pub fn read_merge_file(&self, path: &[u8]) -> io::Result<Option<Vec<u8>>> {
        match self.open_file(path) {
            Ok(file) => file.read_rules().map(Some),
            Err(error) if is_missing(&error.source) => Ok(None),
            Err(error) => Err(error.source),
        }
    }

    /// Whether something is mounted between the root and this directory, or at the directory. What cannot be looked at
    /// is on no other mount.
    pub fn is_on_other_mount(&self, path: &[u8]) -> bool {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let opened = check_path(path).and_then(|()| beneath::open_on_one_mount(self.root()?, path, flags));
        opened.is_err_and(|error| error.raw_os_error() == Some(Errno::XDEV.raw_os_error()))
    }

    /// Opens a directory for reading its names.
    pub(crate) fn open_dir(&self, path: &[u8]) -> io::Result<OwnedFd> {
        check_path(path)?;
        let opened =
            beneath::open(self.root()?, path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty(), Links::Refused)?;
        self.parents.occupied.check(path, &opened)?;
        self.settings.kernel_files.checked(opened)
    }

    /// Runs `work` with the open parent of `path` and the last name.
    pub(crate) fn within_parent<T>(
        &self,
        path: &[u8],
        mut work: impl FnMut(&Arc<OwnedFd>, &[u8]) -> io::Result<T>,
    ) -> io::Result<T> {
        let (parent, name) = split(path);
        if name.is_empty() {
            return Err(Errno::ISDIR.into());
        }
        self.parents.within(ONLY_ROOT, self.root()?, parent, Links::Refused, |dir| {
            work(dir, name).map_err(|error| full_of_what(dir, error))
        })
    }

    /// The open parent and the name in it; for the root itself, the root and `.`.
    pub(crate) fn place<'a>(&self, path: &'a [u8]) -> io::Result<(Arc<OwnedFd>, &'a [u8])> {
        let (parent, name) = split(path);
        let dir = self.parents.open(ONLY_ROOT, self.root()?, parent, Links::Refused)?;
        Ok((dir, if name.is_empty() { b"." } else { name }))
    }

    /// After a directory is gone, nothing may be written into what is left of it.
    pub(crate) fn forget(&self, path: &[u8]) {
        self.parents.forget(ONLY_ROOT, path);
    }

    fn root(&self) -> io::Result<BorrowedFd<'_>> {
        match &self.root {
            Some(root) => Ok(root.as_fd()),
            None => Err(Errno::NOENT.into()),
        }
    }
}

/// A path that leads to no directory.
fn is_no_directory(error: &io::Error) -> bool {
    [Errno::NOENT, Errno::NOTDIR, Errno::STALE].iter().any(|code| error.raw_os_error() == Some(code.raw_os_error()))
}

/// Makes something under a temporary name and renames it over `name`.
pub(crate) fn replace(
    dir: &Arc<OwnedFd>,
    name: &[u8],
    temporary: &[u8],
    make: impl Fn(&[u8]) -> rustix::io::Result<()>,
) -> io::Result<()> {
    match make(temporary) {
        // A crash left it behind, or it is the part of a file that is no longer a file at the source.
        Err(Errno::EXIST) => {
            rustix::fs::unlinkat(dir, temporary, AtFlags::empty())?;
            make(temporary)?;
        }
        made => made?,
    }
    if let Err(error) = rustix::fs::renameat(dir, temporary, dir, name) {
        let _ = rustix::fs::unlinkat(dir, temporary, AtFlags::empty());
        return Err(error.into());
    }
    Ok(())
}

/// Opens a typed directory, and makes missing directories if asked for; `None` if it is missing in a dry run.
fn open_or_make(typed: &Typed, path: &[u8], options: &TargetOptions) -> io::Result<Option<OwnedFd>> {
    let missing = match typed.open(path, ROOT_FLAGS) {
        Ok(root) => return Ok(Some(root)),
        Err(error) => error,
    };
    if !is_missing(&missing) {
        return Err(missing);
    }
    if options.dry_run {
        return Ok(None);
    }
    if !options.make {
        return Err(missing);
    }
    let ends = path.iter().enumerate().filter(|&(at, &byte)| at > 0 && byte == b'/').map(|(at, _)| at);
    for end in ends.chain([path.len()]) {
        let prefix = &path[..end];
        let (parent, name) = parent_and_name(prefix);
        if matches!(name, b"" | b"." | b"..") {
            continue;
        }
        match typed.open(prefix, ROOT_FLAGS) {
            Err(error) if is_missing(&error) => {}
            opened => {
                opened?;
                continue;
            }
        }
        let parent = typed.open(parent, ROOT_FLAGS)?;
        match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o777)) {
            Ok(()) => file::flush_directory(parent.as_fd())?,
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    typed.open(path, ROOT_FLAGS).map(Some)
}

/// A path descriptor needs no right to read the directory, so drop boxes work.
const ROOT_FLAGS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

/// The cache tells several roots apart; a target has one.
const ONLY_ROOT: u32 = 0;
/// A file system may have room for data and none for one more name: `ENOSPC` says both. Space that is free then misleads.
fn full_of_what(dir: &Arc<OwnedFd>, error: io::Error) -> io::Error {
    let is_full = error.raw_os_error() == Some(Errno::NOSPC.raw_os_error());
    match rustix::fs::fstatvfs(dir) {
        // Some file systems (btrfs) make inodes as they need them, and count none.
        Ok(space) if is_full && space.f_files > 0 && space.f_favail == 0 => {
            refusal(io::ErrorKind::StorageFull, NO_INODES)
        }
        _ => error,
    }
}

const NO_INODES: &str = "no inodes left: the file system takes no more files, whatever space is free (df -i)";
