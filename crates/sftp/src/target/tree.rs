//! The tree that is written, as its parts share it: checked paths, names that replace others, attributes.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use haul_store::{Kind, Metadata, Stat, check_path, part_name};
use rustix::io::Errno;

use crate::codec::{Attributes, CREATE, EXCLUSIVE, READ, WRITE};
use crate::connection::Ticket;
use crate::entry;
use crate::limits::{MAX_DRAFT_ATTEMPTS, MAX_KNOWN_DIRECTORIES, MAX_REMOVALS};
use crate::paths::{beneath, join, split};
use crate::pool::Pool;
use crate::server::{Handle, Server};

/// Tells the person a word about the server, once for each matter.
pub type Tell = Box<dyn Fn(String) + Send + Sync>;

/// The tree that is written.
pub(crate) struct Tree {
    pool: Arc<Pool>,
    /// At the server. `None` in a dry run into a missing directory.
    root: Option<Vec<u8>>,
    tell: Tell,
    told: Mutex<HashSet<Matter>>,
    /// Directories beneath the root that are known to be directories and no links.
    directories: Mutex<HashSet<Vec<u8>>>,
    /// The latest draft of each path that is being written.
    drafts: Mutex<HashMap<Vec<u8>, u64>>,
    own_user: Mutex<Option<u32>>,
    /// A look that was begun before it is needed: over a long path, a single file waits for each question.
    looked_ahead: Mutex<Option<LookedAhead>>,
    /// Removals that nobody waits for yet.
    removals: Mutex<Vec<(Arc<Server>, Ticket)>>,
}

/// A question that is under way.
struct LookedAhead {
    server_path: Vec<u8>,
    server: Arc<Server>,
    ticket: Ticket,
}

/// What a person is told once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Matter {
    Renames,
    Flushes,
    Modes,
    Times,
    Owners,
    LinkTimes,
}

impl Matter {
    fn words(self) -> &'static str {
        match self {
            Matter::Renames => {
                "this server cannot rename onto a file (posix-rename@openssh.com): each file that is replaced is missing \
                 for a moment"
            }
            Matter::Flushes => {
                "this server has no flush (fsync@openssh.com): what it has confirmed may be lost if it loses power soon"
            }
            Matter::Modes => "this server does not set modes: files have those that it gives them",
            Matter::Times => "this server does not set times: the next copy will take all files for changed",
            Matter::Owners => "this server does not set owners: files belong to the user of the login",
            Matter::LinkTimes => "this server does not set the times of links",
        }
    }
}

impl Tree {
    pub(crate) fn new(pool: Arc<Pool>, root: Option<Vec<u8>>, tell: Tell) -> Arc<Self> {
        Arc::new(Self {
            pool,
            root,
            tell,
            told: Mutex::default(),
            directories: Mutex::default(),
            drafts: Mutex::default(),
            own_user: Mutex::default(),
            looked_ahead: Mutex::default(),
            removals: Mutex::default(),
        })
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    pub(crate) fn server(&self) -> Arc<Server> {
        self.pool.server()
    }

    pub(crate) fn is_missing(&self) -> bool {
        self.root.is_none()
    }

    pub(crate) fn tell(&self, matter: Matter) {
        if lock(&self.told).insert(matter) {
            (self.tell)(matter.words().to_owned());
        }
    }

    fn root(&self) -> io::Result<&[u8]> {
        self.root.as_deref().ok_or_else(|| Errno::NOENT.into())
    }

    /// The path at the server. All directories on the way are directories and no links: a link would lead out of the tree.
    /// Version 3 cannot open a directory and stay in it, so somebody else who may write there can still put a link there
    /// afterwards.
    pub(crate) fn place(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        check_path(path)?;
        let root = self.root()?;
        let ends = (0..path.len()).filter(|at| path[*at] == b'/');
        for directory in ends.map(|end| &path[..end]) {
            if lock(&self.directories).contains(directory) {
                continue;
            }
            let attributes = self.server().lstat(&join(root, directory))?;
            match entry::is_dir(&attributes) {
                Some(true) => self.is_directory(directory),
                _ if entry::is_link(&attributes) => return Err(Errno::LOOP.into()),
                _ => return Err(Errno::NOTDIR.into()),
            }
        }
        beneath(root, path)
    }

    /// Notes that a directory stands there, and no link.
    pub(crate) fn is_directory(&self, path: &[u8]) {
        let mut directories = lock(&self.directories);
        if directories.len() >= MAX_KNOWN_DIRECTORIES {
            directories.clear();
        }
        directories.insert(path.to_vec());
    }

    /// Forgets what was known of an entry and of all beneath it.
    pub(crate) fn forget(&self, path: &[u8]) {
        let is_at_or_beneath =
            |other: &[u8]| other.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"));
        lock(&self.directories).retain(|directory| !is_at_or_beneath(directory));
    }

    /// Begins a look at an entry.
    pub(crate) fn look_ahead(&self, server_path: Vec<u8>) {
        let server = self.server();
        // Whoever needs it asks again.
        let Ok(ticket) = server.ask_lstat(&server_path) else { return };
        *lock(&self.looked_ahead) = Some(LookedAhead { server_path, server, ticket });
    }

    /// The attributes of an entry itself; `None` if it is missing.
    pub(crate) fn look(&self, server_path: &[u8]) -> io::Result<Option<Attributes>> {
        let ahead = lock(&self.looked_ahead).take_if(|ahead| ahead.server_path == server_path);
        let looked = match ahead {
            Some(LookedAhead { server, ticket, .. }) => server.looked(ticket),
            None => self.server().lstat(server_path),
        };
        match looked {
            Err(error) if is_missing(&error) => Ok(None),
            looked => looked.map(Some),
        }
    }

    /// Renames onto a file or link, never onto a directory.
    pub(crate) fn rename_over(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        let server = self.server();
        let plainly = |error: io::Error| match server.lstat(to) {
            Ok(there) if entry::is_dir(&there) == Some(true) => Errno::ISDIR.into(),
            _ => error,
        };
        if server.features().posix_rename {
            return server.posix_rename(from, to).map_err(plainly);
        }
        let Err(error) = server.rename(from, to) else { return Ok(()) };
        let there = match self.look(to)? {
            Some(there) if entry::is_dir(&there) != Some(true) => there,
            _ => return Err(plainly(error)),
        };
        // What stands there may be the draft itself, if the server has renamed it and says otherwise.
        if self.look(from)?.is_none() {
            return if entry::is_file(&there) { Ok(()) } else { Err(error) };
        }
        self.tell(Matter::Renames);
        server.remove(to)?;
        server.rename(from, to)
    }

    /// Makes a new file of ours that others cannot read. It is an error if something stands there.
    pub(crate) fn make_new(server: &Arc<Server>, server_path: &[u8]) -> io::Result<Handle> {
        server.open(server_path, READ | WRITE | CREATE | EXCLUSIVE, Some(OWN_MODE))
    }

    /// Makes a new file of ours that others cannot read. An entry that stands there is removed.
    pub(crate) fn make_own(&self, server: &Arc<Server>, server_path: &[u8]) -> io::Result<Handle> {
        for _ in 0..MAX_DRAFT_ATTEMPTS {
            let error = match Self::make_new(server, server_path) {
                Ok(handle) => return Ok(handle),
                Err(error) => error,
            };
            match self.look(server_path) {
                Ok(Some(there)) if entry::is_dir(&there) != Some(true) => server.remove(server_path)?,
                _ => return Err(error),
            }
        }
        Err(io::Error::new(io::ErrorKind::ResourceBusy, "somebody keeps taking the name of its temporary file"))
    }

    /// Opens a file that an earlier run of this user made; `None` if it is missing, or not certainly ours.
    pub(crate) fn open_own(&self, server_path: &[u8]) -> io::Result<Option<(Handle, Attributes)>> {
        // A FIFO would hold the server.
        match self.look(server_path)? {
            Some(there) if self.is_own(&there)? => {}
            _ => return Ok(None),
        }
        let handle = self.server().open(server_path, READ | WRITE, None)?;
        let attributes = handle.fstat()?;
        Ok(self.is_own(&attributes)?.then_some((handle, attributes)))
    }

    /// Whether it is a regular file of the user of the login to which nobody else may write.
    fn is_own(&self, attributes: &Attributes) -> io::Result<bool> {
        let for_owner_alone = attributes.mode.is_some_and(|mode| mode & 0o7022 == 0);
        if !entry::is_file(attributes) || !for_owner_alone {
            return Ok(false);
        }
        match attributes.owners {
            Some((user, _)) => Ok(self.own_user()? == Some(user)),
            // A server that tells no owners has none.
            None => Ok(true),
        }
    }

    /// The user of the login, as the server numbers it: the owner of a file that was just made.
    fn own_user(&self) -> io::Result<Option<u32>> {
        let mut known = lock(&self.own_user);
        if known.is_none() {
            *known = self.probe(self.root()?)?.owners.map(|(user, _)| user);
        }
        Ok(*known)
    }

    /// Makes a file of ours in a directory, and removes it. Its attributes tell the user of the login and the server's clock.
    pub(crate) fn probe(&self, directory: &[u8]) -> io::Result<Attributes> {
        let path = unique(&join(directory, b"."), part_name)?;
        let made = self.make_own(&self.server(), &path)?;
        let attributes = made.fstat();
        self.server().remove(&path)?;
        attributes
    }

    /// Removes a file of ours, and does not wait.
    pub(crate) fn remove_later(&self, server_path: &[u8]) {
        let mut removals = lock(&self.removals);
        if removals.len() >= MAX_REMOVALS {
            let (server, oldest) = removals.remove(0);
            let _ = server.done(oldest);
        }
        let server = self.server();
        removals.extend(server.ask_remove(server_path).ok().map(|ticket| (server, ticket)));
    }

    /// Waits for what is being removed.
    pub(crate) fn await_removals(&self) {
        let removals = std::mem::take(&mut *lock(&self.removals));
        // What stays does no harm, and goes with the next copy.
        removals.into_iter().for_each(|(server, ticket)| drop(server.done(ticket)));
    }

    /// A draft of this path begins. Its number tells it from later ones.
    pub(crate) fn begin_draft(&self, path: &[u8], number: u64) {
        lock(&self.drafts).insert(path.to_vec(), number);
    }

    /// The draft is no longer written. True if no later one has taken its name.
    pub(crate) fn end_draft(&self, path: &[u8], number: u64) -> bool {
        let mut drafts = lock(&self.drafts);
        let is_latest = drafts.get(path) == Some(&number);
        if is_latest {
            drafts.remove(path);
        }
        is_latest
    }

    /// Applies metadata by `set`. A server may refuse them, which is told once and fails nothing. `now` is the entry's
    /// present state, as far as it is known.
    pub(crate) fn apply(
        &self,
        meta: &Metadata,
        now: &Stat,
        set: &dyn Fn(&Attributes) -> io::Result<()>,
    ) -> io::Result<()> {
        if meta.owner.is_some() || meta.group.is_some() {
            let leave = |wanted: Option<u32>, now| wanted.filter(|id| *id != u32::MAX).unwrap_or(now);
            let owners = (leave(meta.owner, now.uid), leave(meta.group, now.gid));
            if owners != (now.uid, now.gid) {
                self.try_set(&Attributes { owners: Some(owners), ..Attributes::default() }, Matter::Owners, set)?;
            }
        }
        let is_link = matches!(now.kind, Kind::Symlink { .. });
        let mode = effective_mode(meta, now).filter(|_| !is_link);
        let times = meta.mtime.and_then(|mtime| Some((seconds_now(), u32::try_from(mtime.s).ok()?)));
        if meta.mtime.is_some() && times.is_none() {
            self.tell(Matter::Times);
        }
        let both = Attributes { mode, times, ..Attributes::default() };
        if both.is_empty() {
            return Ok(());
        }
        match set(&both) {
            Err(error) if is_refusal(&error) => {}
            set => return set,
        }
        // Some servers set one of the two.
        if mode.is_some() {
            self.try_set(&Attributes { times: None, ..both }, Matter::Modes, set)?;
        }
        if times.is_some() {
            let matter = if is_link { Matter::LinkTimes } else { Matter::Times };
            self.try_set(&Attributes { mode: None, ..both }, matter, set)?;
        }
        Ok(())
    }

    fn try_set(
        &self,
        attributes: &Attributes,
        matter: Matter,
        set: &dyn Fn(&Attributes) -> io::Result<()>,
    ) -> io::Result<()> {
        match set(attributes) {
            Err(error) if is_refusal(&error) => {
                self.tell(matter);
                Ok(())
            }
            set => set,
        }
    }

    /// An error of a write, which a full disk may explain: OpenSSH gives it no code of its own.
    pub(crate) fn explain_write(&self, error: io::Error) -> io::Error {
        let is_told = error.raw_os_error().is_some() || error.kind() == io::ErrorKind::BrokenPipe;
        let is_full = || matches!(self.server().space(self.root().unwrap_or(b".")), Ok(Some(space)) if space.available_bytes < FULL_BYTES);
        if !is_told && is_full() { Errno::NOSPC.into() } else { error }
    }
}

fn effective_mode(meta: &Metadata, now: &Stat) -> Option<u32> {
    meta.mode.map(|mode| match now.kind {
        _ if meta.special_bits => mode & 0o7777,
        Kind::Directory => (mode & 0o1777) | (now.mode & 0o7000),
        _ => mode & 0o777,
    })
}

/// The temporary name beside the file, by the convention of a local disk.
pub(crate) fn beside(server_path: &[u8], name: fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    sibling(server_path, &name(split(server_path).1))
}

/// The path of another name in the same directory.
pub(crate) fn sibling(server_path: &[u8], name: &[u8]) -> Vec<u8> {
    match split(server_path).0 {
        b"" if server_path.starts_with(b"/") => join(b"/", name),
        parent => join(parent, name),
    }
}

/// A temporary name that nobody else has, in the same directory.
pub(crate) fn unique(server_path: &[u8], name: fn(&[u8]) -> Vec<u8>) -> io::Result<Vec<u8>> {
    Ok(sibling(server_path, &name(&random()?.0.to_be_bytes())))
}

pub(crate) fn is_missing(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOENT.raw_os_error())
}

/// Whether a server does not want to do it, and not: cannot, because the entry is gone or the connection.
fn is_refusal(error: &io::Error) -> bool {
    !is_missing(error) && error.kind() != io::ErrorKind::BrokenPipe
}

/// Both halves of a number that no other draft has.
pub(crate) fn random() -> io::Result<(u64, u64)> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    let number = u128::from_le_bytes(bytes);
    Ok((number as u64, (number >> 64) as u64))
}

/// SFTP sets both times together, so the time of the last access is that of the copy.
fn seconds_now() -> u32 {
    let now = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH);
    now.map_or(0, |since| u32::try_from(since.as_secs()).unwrap_or(u32::MAX))
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const OWN_MODE: u32 = 0o600;

/// Less room than one write needs counts as none.
const FULL_BYTES: u64 = 1 << 20;

impl Drop for Tree {
    fn drop(&mut self) {
        self.await_removals();
    }
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tree").field("root", &self.root).finish_non_exhaustive()
    }
}
