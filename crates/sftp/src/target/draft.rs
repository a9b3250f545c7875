//! A file being written at a server, under a temporary name beside its own.
//!
//! Make it -> write pieces, many under way -> wait until all are confirmed -> metadata, flush -> look whether the name still
//! leads to it -> rename. What was not confirmed is not there: no name is given before.

use std::io;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use haul_store::{FileToWrite, Journal, Metadata, StoreError, journal_name, part_name};
use rustix::io::Errno;

use super::journal::ServerJournal;
use super::tree::{Matter, Tree, beside, is_missing, lock, random, sibling};
use super::writes::Writes;
use crate::codec::{Attributes, READ, Reply, Status, WRITE};
use crate::connection::Ticket;
use crate::entry;
use crate::server::{Handle, Server};
use crate::spread::Handles;
use crate::turns::least_loaded;

type Result<T> = std::result::Result<T, StoreError>;

/// A file being written at a server.
#[derive(Debug)]
pub(super) struct SftpDraft {
    tree: Arc<Tree>,
    path: Vec<u8>,
    /// The final name, at the server.
    server_path: Vec<u8>,
    draft_path: Vec<u8>,
    /// The first one made it.
    handles: Handles,
    begun: Arc<Mutex<Begun>>,
    writes: Arc<Writes>,
    /// As far as data was sent.
    size: Arc<AtomicU64>,
    /// As far as the server has confirmed it.
    confirmed: Arc<AtomicU64>,
    /// As much as it will have, where that was said.
    reserved: AtomicU64,
    journal: ServerJournal,
    end: Mutex<End>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    Discarded,
    Named,
}

/// The attributes of the draft before it was written, with which others that its name leads to are compared.
#[derive(Debug, Default)]
enum Begun {
    #[default]
    Unasked,
    /// Asked for ahead of the data: behind it, a question waits for seconds.
    Asked(Ticket),
    Known(Attributes),
}

/// A smaller file is written over one connection.
const SPREAD_FROM_BYTES: u64 = 8 << 20;

/// `st_mode` of a draft: only its kind matters.
const NEW_FILE: u32 = 0o100_600;

/// A server tells no umask, and most have this one.
const USUAL_UMASK: u32 = 0o022;

impl SftpDraft {
    /// Makes an empty draft. What an earlier run left of it goes.
    pub(super) fn make(tree: &Arc<Tree>, path: &[u8]) -> io::Result<Self> {
        let server_path = tree.place(path)?;
        let (draft_path, journal_path) = (beside(&server_path, part_name), beside(&server_path, journal_name));
        let server = tree.server();
        let handle = match Tree::make_new(&server, &draft_path) {
            Ok(handle) => handle,
            Err(_) => {
                Self::check_dead(tree, &draft_path, &journal_path)?;
                tree.make_own(&server, &draft_path)?
            }
        };
        // The journal of an earlier draft describes content that this one lacks. Its absence is usual, so nobody waits. If it stays,
        // what it claims is read again and found wrong.
        server.remove_some_time(&journal_path);
        tree.pool().count_opened();
        let journal = ServerJournal::new(Arc::clone(tree), journal_path, random()?);
        Ok(Self::new(tree, path, server_path, draft_path, handle, 0, journal))
    }

    /// Fails if a living process may write a draft that stands there. One without a journal is nobody's: who wrote it finds its name
    /// taken, and fails.
    fn check_dead(tree: &Arc<Tree>, draft_path: &[u8], journal_path: &[u8]) -> io::Result<()> {
        let Some(draft) = tree.look(draft_path)? else { return Ok(()) };
        if let Some((journal, left)) = ServerJournal::resume(tree, journal_path.to_vec())? {
            journal.check_dead(&left, &draft)?;
        }
        Ok(())
    }

    /// Opens the draft of an interrupted run and its journal; `None` unless both are there and ours.
    pub(super) fn resume(tree: &Arc<Tree>, path: &[u8]) -> io::Result<Option<(Self, Vec<u8>)>> {
        let server_path = tree.place(path)?;
        let (draft_path, journal_path) = (beside(&server_path, part_name), beside(&server_path, journal_name));
        let Some((journal, left)) = ServerJournal::resume(tree, journal_path)? else { return Ok(None) };
        let mut opened = tree.open_own(&draft_path)?;
        if opened.is_none() {
            // The run may have ended between its two renames.
            let taken = Self::taken(&draft_path, journal.id());
            opened = match tree.open_own(&taken)? {
                Some(_) => tree.server().rename(&taken, &draft_path).and_then(|()| tree.open_own(&draft_path))?,
                None => None,
            };
        }
        let Some((handle, attributes)) = opened else { return Ok(None) };
        journal.take_over(&left, &attributes)?;
        let size = attributes.size.unwrap_or(0);
        Ok(Some((Self::new(tree, path, server_path, draft_path, handle, size, journal), left.records)))
    }

    fn new(
        tree: &Arc<Tree>,
        path: &[u8],
        server_path: Vec<u8>,
        draft_path: Vec<u8>,
        handle: Handle,
        size: u64,
        journal: ServerJournal,
    ) -> Self {
        tree.begin_draft(path, journal.id().0);
        Self {
            tree: Arc::clone(tree),
            path: path.to_vec(),
            server_path,
            draft_path,
            handles: Handles::new(handle),
            begun: Arc::default(),
            size: Arc::new(AtomicU64::new(size)),
            confirmed: Arc::default(),
            reserved: AtomicU64::new(0),
            writes: Arc::default(),
            journal,
            end: Mutex::new(End::Open),
        }
    }

    fn first(&self) -> Arc<Handle> {
        self.handles.first()
    }

    /// Handles to write or read with. A large file is opened over each further connection.
    fn handles(&self) -> Vec<Arc<Handle>> {
        if self.is_large() {
            let (path, first) = (self.draft_path.clone(), self.first());
            let (begun, sent, confirmed) =
                (Arc::clone(&self.begun), Arc::clone(&self.size), Arc::clone(&self.confirmed));
            let open = move |server: &Arc<Server>| {
                let handle = server.open(&path, READ | WRITE, None)?;
                let begun = lock(&begun).attributes(&first)?;
                let least_bytes = confirmed.load(Ordering::Relaxed);
                let now = handle.fstat()?;
                check_same(&begun, &now, least_bytes..=sent.load(Ordering::Relaxed))?;
                Ok(handle)
            };
            self.handles.spread(self.tree.pool(), open);
        }
        self.tree.pool().for_data(self.handles.standing())
    }

    /// Waits for the first look at a large draft, where other connections wait for it: ssh would pack it with data into one packet of
    /// 32 KiB, which takes a round trip more over a connection that has just begun.
    fn look_before_data(&self) -> io::Result<()> {
        let is_asked = matches!(*lock(&self.begun), Begun::Asked(_));
        if is_asked && self.tree.pool().servers().len() > 1 {
            // The others open the file meanwhile.
            drop(self.handles());
            lock(&self.begun).attributes(&self.first())?;
        }
        Ok(())
    }

    fn is_large(&self) -> bool {
        self.size.load(Ordering::Relaxed).max(self.reserved.load(Ordering::Relaxed)) >= SPREAD_FROM_BYTES
    }

    fn handle(&self) -> io::Result<Arc<Handle>> {
        least_loaded(&self.handles()).cloned().ok_or_else(|| io::Error::new(io::ErrorKind::BrokenPipe, GIVEN_UP))
    }

    fn context<T>(&self, op: &'static str, done: io::Result<T>) -> Result<T> {
        done.map_err(|error| StoreError::new(op, &self.path, error))
    }

    fn confirmed(&self) -> io::Result<()> {
        self.writes.wait().map_err(|error| self.tree.explain_write(error))
    }

    fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.size.fetch_max(offset + data.len() as u64, Ordering::Relaxed);
        let pool = self.tree.pool();
        self.look_before_data()?;
        let turn = if self.is_large() { Some(pool.turns().take(|| self.handles())) } else { None };
        let handle = match &turn {
            Some(turn) => Arc::clone(turn.handle()),
            None => self.handle()?,
        };
        let most = handle.server().features().write_bytes;
        for (number, piece) in data.chunks(most).enumerate() {
            let recipient = self.writes.begin().map_err(|error| self.tree.explain_write(error))?;
            let at = offset + (number * most) as u64;
            let (turns, place, sent) = (Arc::clone(pool.turns()), Arc::clone(handle.server().place()), Instant::now());
            let (confirmed, end) = (Arc::clone(&self.confirmed), at + piece.len() as u64);
            let answered = move |reply: io::Result<Reply>| {
                turns.confirmed(&place, sent.elapsed());
                if matches!(&reply, Ok(Reply::Status(status)) if status.code == Status::OK) {
                    confirmed.fetch_max(end, Ordering::Relaxed);
                }
                recipient(reply);
            };
            handle.send_data(at, piece, Box::new(answered))?;
        }
        pool.count_moved(data.len());
        Ok(())
    }

    fn resize(&self, size: u64) -> io::Result<()> {
        self.confirmed()?;
        let now = self.size.load(Ordering::Relaxed);
        if now == size {
            return Ok(());
        }
        let set = self.first().fsetstat(&Attributes { size: Some(size), ..Attributes::default() });
        match set {
            // A server that sets no attributes still writes: the last byte makes the hole in front of it.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe && size > now => {
                self.first().write_at(&[0], size - 1)?
            }
            set => set?,
        }
        self.size.store(size, Ordering::Relaxed);
        Ok(())
    }

    /// Sets metadata by `set`, once all is written: a later write would change the time again.
    fn set(&self, meta: &Metadata, set: &dyn Fn(&Attributes) -> io::Result<()>) -> io::Result<()> {
        self.confirmed()?;
        let mode = meta.mode.map_or_else(|| self.usual_mode(meta), Ok)?;
        let meta = Metadata { mode: Some(mode), ..meta.clone() };
        let wants_owners = meta.owner.is_some() || meta.group.is_some();
        let now = if wants_owners {
            self.first().fstat()?
        } else {
            Attributes { mode: Some(NEW_FILE), ..Attributes::default() }
        };
        self.tree.apply(&meta, &entry::stat(&self.draft_path, &now)?, set)
    }

    /// Without a mode in `meta`: that of a file which stands under its name, and else what the usual umask leaves.
    fn usual_mode(&self, meta: &Metadata) -> io::Result<u32> {
        let if_new = meta.mode_if_new.unwrap_or(0o666) & 0o777 & !USUAL_UMASK;
        if meta.mode_if_new.is_none() {
            return Ok(if_new);
        }
        let standing = self.tree.look(&self.server_path)?.filter(entry::is_file);
        Ok(standing.and_then(|standing| standing.mode).map_or(if_new, |mode| mode & 0o777))
    }

    /// The name between the temporary and the final one. Who does not know the number of the draft does not know it.
    fn taken(draft_path: &[u8], (low, high): (u64, u64)) -> Vec<u8> {
        sibling(draft_path, &part_name(&[low.to_be_bytes(), high.to_be_bytes()].concat()))
    }

    /// Takes the temporary name away from all others, and gives the file its own. Between a look at the temporary name and the rename,
    /// somebody else could put another file there; at a name that nobody else knows, nobody does.
    fn name(&self) -> io::Result<()> {
        self.confirmed()?;
        let (server, taken) = (self.tree.server(), Self::taken(&self.draft_path, self.journal.id()));
        let (open, named) = match self.first().renamed(&self.draft_path, &taken) {
            Err(error) if is_missing(&error) => return Err(io::Error::new(io::ErrorKind::NotFound, REMOVED)),
            renamed => renamed?,
        };
        let named = self.check(&open, &named).and_then(|()| self.tree.rename_over(&taken, &self.server_path));
        // What is not ours, or has no name yet, goes back.
        named.inspect_err(|_| drop(server.rename(&taken, &self.draft_path)))
    }

    /// Fails unless a name leads to the written file with its written size. Version 3 has no inodes, so size, times, modes and owners
    /// stand for the file.
    fn check(&self, open: &Attributes, named: &Attributes) -> io::Result<()> {
        if !entry::is_file(named) || open != named {
            return Err(io::Error::new(io::ErrorKind::InvalidData, REPLACED));
        }
        if named.size != Some(self.size.load(Ordering::Relaxed)) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, RESIZED));
        }
        Ok(())
    }
}

impl Begun {
    fn ask(&mut self, first: &Handle) {
        if matches!(self, Begun::Unasked) {
            // A lost connection is found by who needs the answer.
            *self = first.ask_fstat().map_or(Begun::Unasked, Begun::Asked);
        }
    }

    fn attributes(&mut self, first: &Handle) -> io::Result<Attributes> {
        let attributes = match std::mem::take(self) {
            Begun::Unasked => first.fstat()?,
            Begun::Asked(ticket) => first.attributes(ticket)?,
            Begun::Known(attributes) => attributes,
        };
        *self = Begun::Known(attributes);
        Ok(attributes)
    }
}

/// Fails if the name of a draft leads to somebody else's file by now. The draft has what the server confirmed, and no more than was sent.
///
/// Version 3 has no inodes, so owner, mode, size and time stand for the file. While it is written, size and time only grow.
fn check_same(begun: &Attributes, now: &Attributes, bytes: RangeInclusive<u64>) -> io::Result<()> {
    let changed = |attributes: &Attributes| attributes.times.map(|times| times.1);
    let most_bytes = (*bytes.end()).max(begun.size.unwrap_or(0));
    let is_same = entry::is_file(now)
        && now.mode.is_some_and(|mode| mode & 0o022 == 0)
        && (now.owners, now.mode) == (begun.owners, begun.mode)
        && now.size.is_none_or(|size| (*bytes.start()..=most_bytes).contains(&size))
        && changed(now) >= changed(begun);
    if is_same { Ok(()) } else { Err(io::Error::new(io::ErrorKind::InvalidData, REPLACED)) }
}

impl FileToWrite for SftpDraft {
    fn path(&self) -> &[u8] {
        &self.path
    }

    fn id(&self) -> (u64, u64) {
        self.journal.id()
    }

    /// Returns before the server has confirmed it.
    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.context("write", self.write(data, offset))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let read =
            self.confirmed().and_then(|()| self.handle()).and_then(|handle| handle.read_pipelined(buffer, offset));
        self.context("read back", read)
    }

    fn size(&self) -> Result<u64> {
        Ok(self.size.load(Ordering::Relaxed))
    }

    fn set_size(&self, size: u64) -> Result<()> {
        self.context("set the size of", self.resize(size))
    }

    fn flush(&self) -> Result<()> {
        let flushed = self.confirmed().and_then(|()| {
            // One over which no data goes answers first, and flushes what came over all.
            let handles = self.handles.standing();
            let handle = least_loaded(&handles).cloned().unwrap_or_else(|| self.first());
            if !handle.server().features().fsync {
                self.tree.tell(Matter::Flushes);
                return Ok(());
            }
            handle.fsync().map_err(|error| self.writes.fail(error))
        });
        self.context("flush", flushed)
    }

    fn set_metadata(&self, meta: &Metadata, _flush: bool) -> Result<()> {
        let handle = self.first();
        self.context("set metadata of", self.set(meta, &|attributes| handle.fsetstat(attributes)))
    }

    /// Sets the metadata and flushes, both asked for at once.
    fn prepare(&self, meta: &Metadata, flush: bool) -> Result<()> {
        let (handle, flushing) = (self.first(), Mutex::new(None));
        if !flush || !handle.server().features().fsync {
            self.set_metadata(meta, flush)?;
            return self.finish_flush(flush);
        }
        let set = |attributes: &Attributes| {
            let (set, flush) = (handle.ask_fsetstat(attributes)?, handle.ask_fsync()?);
            handle.done(set).inspect(|()| *lock(&flushing) = Some(flush))
        };
        self.context("set metadata of", self.set(meta, &set))?;
        let Some(flush) = lock(&flushing).take() else { return self.flush() };
        self.context("flush", handle.done(flush).map_err(|error| self.writes.fail(error)))
    }

    fn give_name(&self) -> Result<()> {
        let mut end = lock(&self.end);
        if *end != End::Open {
            return Err(StoreError::new("rename to", &self.path, io::Error::new(io::ErrorKind::NotFound, GIVEN_UP)));
        }
        self.context("rename to", self.name())?;
        *end = End::Named;
        self.tree.forget(&self.path);
        self.journal.remove_later();
        Ok(())
    }

    fn discard(&self) -> Result<()> {
        let mut end = lock(&self.end);
        if *end != End::Open {
            return Ok(());
        }
        *end = End::Discarded;
        let journal = self.journal.remove();
        if self.tree.end_draft(&self.path, self.journal.id().0) {
            self.context("discard", self.tree.server().remove(&self.draft_path))?;
        }
        self.context("remove the journal of", journal)
    }

    fn journal(&self) -> &dyn Journal {
        &self.journal
    }

    /// Nobody waits for the answer: if there is no room, the next write fails.
    fn reserve(&self, size: u64) -> Result<()> {
        self.reserved.store(size, Ordering::Relaxed);
        if self.is_large() {
            lock(&self.begun).ask(&self.first());
        }
        self.tree.pool().announce(size);
        let writes = Arc::clone(&self.writes);
        let asked = self.tree.server().ask_space(&self.draft_path, move |space| {
            if space.is_some_and(|space| space.available_bytes < size) {
                writes.fail(Errno::NOSPC.into());
            }
        });
        self.context("make room for", asked)
    }

    fn finish_flush(&self, flush: bool) -> Result<()> {
        if flush { self.flush() } else { self.context("write", self.confirmed()) }
    }
}

impl Drop for SftpDraft {
    /// Nobody could go on with a draft that has no journal, so it goes.
    fn drop(&mut self) {
        let is_latest = self.tree.end_draft(&self.path, self.journal.id().0);
        if is_latest && *lock(&self.end) == End::Open && !self.journal.has_begun() {
            // It is waited for: a removal that comes late would take a later draft of this name.
            let _ = self.tree.server().remove(&self.draft_path);
        }
    }
}

const GIVEN_UP: &str = "it was given up meanwhile";
const REMOVED: &str = "its temporary file is gone: somebody else has removed it";
const REPLACED: &str = "somebody else has put another file in the place of its temporary file";
const RESIZED: &str =
    "its temporary file has another size than was written: somebody else has changed it, or the server has lost data";
