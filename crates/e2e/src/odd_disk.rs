//! A FUSE file system in memory with other systems' oddities: colliding spellings, whole seconds, no locks, late errors,
//! forgotten files, no answers.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use unicode_normalization::UnicodeNormalization as _;

use crate::scratch;

/// The oddities from the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Oddities {
    /// `readme` and `README` are one name (FAT, APFS, NTFS).
    pub one_case: bool,
    /// Composed and decomposed accents are the same (ZFS with `normalization`, HFS+).
    pub one_form: bool,
    /// Final dots and spaces are not part of a name (FAT, Windows servers).
    pub strips_dots: bool,
    /// A name is listed as compared, not as given (HFS+: decomposed).
    pub respells: bool,
    /// Times have no fractions.
    pub whole_seconds: bool,
    /// An inode's change time shows its modification time (FAT, exFAT, SFTP).
    pub one_time: bool,
    /// flock(2) and fcntl(2) fail with ENOLCK, as on NFS without its lock daemon.
    pub no_locks: bool,
    /// Neither hard links nor renameat2(2) with flags.
    pub plain_renames_only: bool,
    /// The kernel may take directories and links for unchanged for a second, as on NFS: it asks half as often.
    pub stays_known: bool,
}

impl Oddities {
    fn ttl(self, attr: &FileAttr) -> &'static Duration {
        match attr.kind {
            FileType::Directory | FileType::Symlink if self.stays_known => &KNOWN_TTL,
            _ => &TTL,
        }
    }

    /// A directory may be known by several names.
    fn ttl_of_name(self, attr: &FileAttr) -> &'static Duration {
        if attr.kind == FileType::Symlink { self.ttl(attr) } else { &TTL }
    }
}

/// The file system, mounted until dropped.
pub struct OddDisk {
    dir: tempfile::TempDir,
    shared: Shared,
    session: Option<fuser::BackgroundSession>,
}

impl OddDisk {
    /// Mounts an empty one.
    #[track_caller]
    pub fn mount(oddities: Oddities) -> Self {
        let dir = scratch();
        let shared = Shared { state: Arc::new(Mutex::new(State::new(oddities))), gate: Arc::default() };
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("haul-e2e".into()), MountOption::DefaultPermissions];
        let session = fuser::spawn_mount(shared.clone(), dir.path(), &config);
        Self { session: Some(session.expect("asked for with needs!")), dir, shared }
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// From now on writes succeed, and each flush and close fails with this errno.
    pub fn fails_late(&self, error: Option<i32>) {
        self.shared.now().late = error;
    }

    /// Makes open files and names stale (ESTALE) until looked up again, like a restart.
    pub fn starts_anew(&self) {
        self.shared.now().epoch += 1;
    }

    /// Reads beyond this offset get no answer; with `None`, all do.
    pub fn hangs_beyond(&self, offset: Option<u64>) {
        let mut state = self.shared.now();
        state.hangs_beyond = offset;
        if offset.is_none() {
            for (reply, bytes) in state.held.drain(..) {
                reply.data(&bytes);
            }
        }
    }

    /// Without answers, every call that the kernel cannot serve itself waits.
    pub fn answers(&self, answers: bool) {
        *self.shared.gate.is_shut.lock().unwrap_or_else(PoisonError::into_inner) = !answers;
        self.shared.gate.opened.notify_all();
    }

    /// Reads that wait for an answer.
    pub fn waiting(&self) -> usize {
        self.shared.now().held.len()
    }
}

impl Drop for OddDisk {
    fn drop(&mut self) {
        self.answers(true);
        self.hangs_beyond(None);
        let _ = std::process::Command::new("umount").arg("-l").arg(self.dir.path()).status();
        // The thread ends with its last descriptor, which a killed program may keep a moment longer.
        drop(self.session.take());
    }
}

#[derive(Clone)]
struct Shared {
    state: Arc<Mutex<State>>,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    is_shut: Mutex<bool>,
    opened: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        let shut = self.gate.is_shut.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.gate.opened.wait_while(shut, |is_shut| *is_shut));
        self.now()
    }

    fn now(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct State {
    oddities: Oddities,
    nodes: BTreeMap<u64, Node>,
    next: u64,
    epoch: u64,
    late: Option<i32>,
    hangs_beyond: Option<u64>,
    held: Vec<(ReplyData, Vec<u8>)>,
}

struct Node {
    kind: FileType,
    mode: u32,
    mtime: SystemTime,
    ctime: SystemTime,
    links: u32,
    data: Vec<u8>,
    link: PathBuf,
    /// The name as compared, and for it the shown name and the entry.
    children: BTreeMap<OsString, (OsString, u64)>,
}

const EPOCH_SHIFT: u32 = 32;
const ROOT: u64 = INodeNo::ROOT.0;
/// The kernel asks each time.
const TTL: Duration = Duration::ZERO;
/// Each step of a path asks for the directory's mode: of a copy's requests, half.
const KNOWN_TTL: Duration = Duration::from_secs(1);
const BLOCK: u32 = 4096;
/// More names than an answer to a listing holds.
const LISTED_AT_ONCE: usize = 1024;

type Result<T> = std::result::Result<T, Errno>;

impl State {
    fn new(oddities: Oddities) -> Self {
        let nodes = BTreeMap::from([(ROOT, Node::new(FileType::Directory, 0o755, SystemTime::now()))]);
        Self { oddities, nodes, next: ROOT + 1, epoch: 0, late: None, hangs_beyond: None, held: Vec::new() }
    }

    fn key(&self, name: &OsStr) -> OsString {
        let mut key = name.to_owned();
        if self.oddities.strips_dots
            && let Some(text) = key.to_str()
        {
            key = text.trim_end_matches(['.', ' ']).into();
        }
        if self.oddities.one_case {
            key.make_ascii_lowercase();
        }
        match key.to_str() {
            Some(text) if self.oddities.one_form => text.nfd().collect::<String>().into(),
            _ => key,
        }
    }

    fn time(&self, time: SystemTime) -> SystemTime {
        match time.duration_since(UNIX_EPOCH) {
            Ok(since) if self.oddities.whole_seconds => UNIX_EPOCH + Duration::from_secs(since.as_secs()),
            _ => time,
        }
    }

    /// Fails as stale for nodes found before the last start.
    fn id(&self, ino: INodeNo) -> Result<u64> {
        let (id, epoch) = (ino.0 & u64::from(u32::MAX), ino.0 >> EPOCH_SHIFT);
        if id != ROOT && epoch != self.epoch { Err(Errno::ESTALE) } else { Ok(id) }
    }

    fn node(&mut self, ino: INodeNo) -> Result<&mut Node> {
        let id = self.id(ino)?;
        self.nodes.get_mut(&id).ok_or(Errno::ESTALE)
    }

    fn opened(&mut self, ino: INodeNo, handle: FileHandle) -> Result<&mut Node> {
        if handle.0 != self.epoch {
            return Err(Errno::ESTALE);
        }
        self.node(ino)
    }

    fn find(&mut self, parent: INodeNo, name: &OsStr) -> Result<u64> {
        let key = self.key(name);
        let directory = self.node(parent)?;
        if directory.kind != FileType::Directory {
            return Err(Errno::ENOTDIR);
        }
        directory.children.get(&key).map(|(_, id)| *id).ok_or(Errno::ENOENT)
    }

    fn attr(&self, id: u64) -> FileAttr {
        let node = &self.nodes[&id];
        let size = if node.kind == FileType::Symlink { node.link.as_os_str().len() } else { node.data.len() } as u64;
        let number = if id == ROOT { ROOT } else { id | self.epoch << EPOCH_SHIFT };
        FileAttr {
            ino: INodeNo(number),
            size,
            blocks: size.div_ceil(512),
            atime: node.mtime,
            mtime: node.mtime,
            ctime: if self.oddities.one_time { node.mtime } else { node.ctime },
            crtime: node.ctime,
            kind: node.kind,
            perm: node.mode as u16,
            nlink: node.links,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: BLOCK,
            flags: 0,
        }
    }

    fn add(&mut self, parent: INodeNo, name: &OsStr, kind: FileType, mode: u32) -> Result<u64> {
        match self.find(parent, name) {
            Err(error) if error.code() == Errno::ENOENT.code() => {}
            Err(error) => return Err(error),
            Ok(_) => return Err(Errno::EEXIST),
        }
        let id = self.next;
        self.next += 1;
        let now = self.time(SystemTime::now());
        self.nodes.insert(id, Node::new(kind, mode & 0o7777, now));
        self.enter(parent, name, id)?;
        Ok(id)
    }

    fn enter(&mut self, parent: INodeNo, name: &OsStr, id: u64) -> Result<()> {
        let (key, now) = (self.key(name), self.time(SystemTime::now()));
        let shown = if self.oddities.respells { key.clone() } else { name.to_owned() };
        let directory = self.node(parent)?;
        directory.children.insert(key, (shown, id));
        (directory.mtime, directory.ctime) = (now, now);
        Ok(())
    }

    fn leave(&mut self, parent: INodeNo, name: &OsStr) -> Result<u64> {
        let (key, now) = (self.key(name), self.time(SystemTime::now()));
        let directory = self.node(parent)?;
        let (_, id) = directory.children.remove(&key).ok_or(Errno::ENOENT)?;
        (directory.mtime, directory.ctime) = (now, now);
        Ok(id)
    }

    /// Open files keep their data; tests are short.
    fn unlink(&mut self, parent: INodeNo, name: &OsStr, is_directory: bool) -> Result<()> {
        let id = self.find(parent, name)?;
        let node = &self.nodes[&id];
        match (node.kind == FileType::Directory, is_directory) {
            (true, false) => return Err(Errno::EISDIR),
            (false, true) => return Err(Errno::ENOTDIR),
            (true, true) if !node.children.is_empty() => return Err(Errno::ENOTEMPTY),
            _ => {}
        }
        self.leave(parent, name)?;
        self.nodes.get_mut(&id).expect("it was found").links -= 1;
        Ok(())
    }

    fn rename(&mut self, from: (INodeNo, &OsStr), to: (INodeNo, &OsStr), flags: RenameFlags) -> Result<()> {
        if !flags.is_empty() && self.oddities.plain_renames_only {
            return Err(Errno::EINVAL);
        }
        let id = self.find(from.0, from.1)?;
        if let Ok(standing) = self.find(to.0, to.1)
            && standing != id
        {
            if flags.contains(RenameFlags::RENAME_NOREPLACE) {
                return Err(Errno::EEXIST);
            }
            let is_directory = self.nodes[&standing].kind == FileType::Directory;
            self.unlink(to.0, to.1, is_directory)?;
        }
        self.leave(from.0, from.1)?;
        self.enter(to.0, to.1, id)
    }
}

impl Node {
    fn new(kind: FileType, mode: u32, now: SystemTime) -> Self {
        let (data, link, children) = (Vec::new(), PathBuf::new(), BTreeMap::new());
        Self { kind, mode, mtime: now, ctime: now, links: 1, data, link, children }
    }
}

macro_rules! answer {
    ($reply:ident, $outcome:expr, $value:pat => $told:expr) => {
        match $outcome {
            Ok($value) => $told,
            Err(error) => $reply.error(error),
        }
    };
}

impl Filesystem for Shared {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        if self.lock().oddities.no_locks {
            // Without these the kernel would lock by itself.
            let locks = InitFlags::FUSE_FLOCK_LOCKS | InitFlags::FUSE_POSIX_LOCKS;
            config.add_capabilities(locks).map_err(|_| std::io::Error::other("the kernel keeps its locks"))?;
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let mut state = self.lock();
        answer!(reply, state.find(parent, name), id => {
            let attr = state.attr(id);
            reply.entry(state.oddities.ttl_of_name(&attr), &attr, Generation(0));
        });
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let state = self.lock();
        answer!(reply, state.id(ino), id => {
            let attr = state.attr(id);
            reply.attr(state.oddities.ttl(&attr), &attr);
        });
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut state = self.lock();
        let now = state.time(SystemTime::now());
        let mtime = mtime.map(|time| match time {
            TimeOrNow::SpecificTime(time) => state.time(time),
            TimeOrNow::Now => now,
        });
        let set = state.node(ino).map(|node| {
            node.mode = mode.map_or(node.mode, |mode| mode & 0o7777);
            if let Some(size) = size {
                node.data.resize(usize::try_from(size).expect("tests are small"), 0);
                node.mtime = now;
            }
            node.mtime = mtime.unwrap_or(node.mtime);
            node.ctime = now;
        });
        answer!(reply, set.and_then(|()| state.id(ino)), id => {
            let attr = state.attr(id);
            reply.attr(state.oddities.ttl(&attr), &attr);
        });
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        let mut state = self.lock();
        answer!(reply, state.node(ino), node => reply.data(node.link.as_os_str().as_encoded_bytes()));
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, reply: ReplyEntry) {
        let mut state = self.lock();
        let made = state.add(parent, name, FileType::Directory, mode);
        answer!(reply, made, id => reply.entry(&TTL, &state.attr(id), Generation(0)));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.lock().unlink(parent, name, false), () => reply.ok());
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.lock().unlink(parent, name, true), () => reply.ok());
    }

    fn symlink(&self, _: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let mut state = self.lock();
        let made = state.add(parent, name, FileType::Symlink, 0o777);
        let made = made.inspect(|id| state.nodes.get_mut(id).expect("it was made").link = target.to_owned());
        answer!(reply, made, id => {
            let attr = state.attr(id);
            reply.entry(state.oddities.ttl_of_name(&attr), &attr, Generation(0));
        });
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        answer!(reply, self.lock().rename((parent, name), (new_parent, new_name), flags), () => reply.ok());
    }

    fn link(&self, _: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let mut state = self.lock();
        if state.oddities.plain_renames_only {
            return reply.error(Errno::EPERM);
        }
        let linked = match state.find(parent, name) {
            Ok(_) => Err(Errno::EEXIST),
            Err(_) => state.id(ino).and_then(|id| state.enter(parent, name, id).map(|()| id)),
        };
        let linked = linked.inspect(|id| state.nodes.get_mut(id).expect("it was found").links += 1);
        answer!(reply, linked, id => reply.entry(&TTL, &state.attr(id), Generation(0)));
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let mut state = self.lock();
        let epoch = state.epoch;
        answer!(reply, state.node(ino), _ => reply.opened(FileHandle(epoch), FopenFlags::empty()));
    }

    fn create(&self, _: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, _: i32, reply: ReplyCreate) {
        let mut state = self.lock();
        let made = state.add(parent, name, FileType::RegularFile, mode);
        let handle = FileHandle(state.epoch);
        answer!(reply, made, id => reply.created(&TTL, &state.attr(id), Generation(0), handle, FopenFlags::empty()));
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut state = self.lock();
        let bytes = state.opened(ino, handle).map(|node| {
            let start = usize::try_from(offset).unwrap_or(usize::MAX).min(node.data.len());
            node.data[start..node.data.len().min(start + size as usize)].to_vec()
        });
        match bytes {
            Ok(bytes) if state.hangs_beyond.is_some_and(|beyond| offset >= beyond) => state.held.push((reply, bytes)),
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut state = self.lock();
        let now = state.time(SystemTime::now());
        let written = state.opened(ino, handle).map(|node| {
            let start = usize::try_from(offset).expect("tests are small");
            let end = start + data.len();
            node.data.resize(node.data.len().max(end), 0);
            node.data[start..end].copy_from_slice(data);
            (node.mtime, node.ctime) = (now, now);
        });
        answer!(reply, written, () => reply.written(u32::try_from(data.len()).expect("a request is short")));
    }

    fn flush(&self, _: &Request, ino: INodeNo, handle: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        answer!(reply, self.lock().settled(ino, handle), () => reply.ok());
    }

    fn fsync(&self, _: &Request, ino: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        answer!(reply, self.lock().settled(ino, handle), () => reply.ok());
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        answer!(reply, self.lock().node(ino), _ => reply.ok());
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let mut state = self.lock();
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let dots = [".", ".."].map(|name| (OsString::from(name), ROOT));
        let entries = state.node(ino).map(|node| {
            let all = dots.iter().chain(node.children.values()).zip(1..);
            all.skip(from).take(LISTED_AT_ONCE).map(|(entry, next)| (entry.clone(), next)).collect::<Vec<_>>()
        });
        let entries = match entries {
            Ok(entries) => entries,
            Err(error) => return reply.error(error),
        };
        for ((name, id), next) in entries {
            let (ino, kind) = (state.attr(id).ino, state.nodes[&id].kind);
            if reply.add(ino, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn setlk(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: LockOwner,
        _: u64,
        _: u64,
        _: i32,
        _: u32,
        _: bool,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOLCK);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        const BLOCKS: u64 = 1 << 24;
        reply.statfs(BLOCKS, BLOCKS, BLOCKS, BLOCKS, BLOCKS, BLOCK, 255, BLOCK);
    }
}

impl State {
    fn settled(&mut self, ino: INodeNo, handle: FileHandle) -> Result<()> {
        self.opened(ino, handle)?;
        self.late.map_or(Ok(()), |error| Err(Errno::from_i32(error)))
    }
}
