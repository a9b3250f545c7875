//! A file being written in pieces at their places, over several connections, under a temporary name beside its own: in blocks at a server of
//! GridFTP, in ranges where a server of FTP takes them.
//!
//! ```text
//! short file: blocks gather -> STOR        long file: each thread that writes has a transfer (ESTO; REST, STOR) -> blocks, in any order
//!   -> 226 of each transfer -> size, and Adler-32 where the server tells one, compared; time -> RNFR, RNTO onto the name
//! ```
//! A long file that broke off is gone on with where the server tells Adler-32, or gives ranges back. The journal on this host has the sum of
//! each chunk that was sent: a chunk counts if the server has the same sum of it now.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use haul_foreign::Adler32Parts;
use haul_store::{DraftPlan, FileToRead as _, FileToWrite, Journal, Metadata, StoreError, SumKind, Time};

use super::block_journal::{About, BlockJournal, Sums};
use super::draft::{draft_beside, draft_of, over, random, size_of_left, sweep};
use super::finished::with_time;
use super::ranges::{Draft, Ranges};
use super::tree::Tree;
use super::uploads::{Fate, Uploads};
use super::{proof, read_back};
use crate::codec::listing::Facts;
use crate::limits::{GATHERED_BYTES, MAX_SUMMED_BYTES, ZEROS_BYTES};
use crate::paths::split;
use crate::refusal::{invalid, is_lasting};
use crate::server::blocks::{End, Finished};
use crate::source::FtpFile;

type Result<T> = std::result::Result<T, StoreError>;

/// A file being written at a server.
#[derive(Debug)]
pub(super) struct BlockDraft {
    tree: Arc<Tree>,
    carrier: Carrier,
    path: Vec<u8>,
    /// The final name, at the server.
    place: Vec<u8>,
    /// The temporary one.
    draft_place: Vec<u8>,
    size: Option<u64>,
    mtime: Option<Time>,
    number: (u64, u64),
    journal: BlockJournal,
    /// An earlier run began it.
    earlier: Option<Earlier>,
    fate: Arc<Fate>,
    /// The byte behind the last one that was written.
    end: AtomicU64,
    state: Mutex<State>,
    written: Condvar,
}

/// What brings the pieces to the server.
#[derive(Debug)]
enum Carrier {
    Blocks(Arc<Uploads>),
    Ranges(Box<Ranges>),
}

/// What an earlier run sent.
#[derive(Debug)]
struct Earlier {
    about: About,
    /// The chunks that the server has as they were sent.
    proved: Sums,
}

#[derive(Debug)]
struct State {
    stage: Stage,
    /// Threads that write at the moment.
    writers: usize,
    /// The parts that were written, and their sums. `None`: some part was written twice.
    parts: Option<Adler32Parts>,
    /// The parts that were written since what they replace was confirmed.
    again: Adler32Parts,
    mtime: Option<Time>,
    mode: Option<u32>,
    /// The file as it is read back.
    read_back: Option<Arc<FtpFile>>,
    /// What the server told when it confirmed a short file.
    finished: Option<Finished>,
}

#[derive(Debug)]
enum Stage {
    /// A short file, before any of it was sent.
    Gathered(Vec<u8>),
    /// Blocks are on their way.
    Sending,
    /// The server has confirmed all that was written.
    Confirmed,
    Named,
    Discarded,
}

impl BlockDraft {
    pub(super) fn new(
        tree: &Arc<Tree>,
        uploads: &Arc<Uploads>,
        path: &[u8],
        plan: Option<&DraftPlan>,
    ) -> io::Result<BlockDraft> {
        let place = tree.place(path)?;
        // The name must be one that a command can say, before anything comes.
        tree.server.command("STOR", &place)?;
        let size = plan.map(|plan| plan.size);
        let is_short = size.is_some_and(|size| size <= GATHERED_BYTES);
        let number = random()?;
        let journal = match (journals(tree), plan) {
            (Some(directory), Some(&DraftPlan { size, chunk_bytes, .. })) if !is_short && chunk_bytes > 0 => {
                let place = tree.server.named(&draft_of(&place));
                BlockJournal::new(directory, About { place, number, size, chunk_bytes })?
            }
            _ => BlockJournal::none(),
        };
        sweep(tree, path, &place)?;
        let stage = if is_short { Stage::Gathered(Vec::new()) } else { Stage::Sending };
        let facts = (size, plan.map(|plan| plan.mtime));
        let carrier = Carrier::Blocks(Arc::clone(uploads));
        Ok(BlockDraft::with((tree, carrier), path, place, facts, (number, journal), stage))
    }

    /// A file that goes up in ranges.
    pub(super) fn in_ranges(tree: &Arc<Tree>, path: &[u8], plan: &DraftPlan) -> io::Result<BlockDraft> {
        let place = tree.place(path)?;
        tree.server.command("STOR", &place)?;
        let &DraftPlan { size, chunk_bytes, mtime, .. } = plan;
        let number = random()?;
        let journal = match tree.server.journals() {
            Some(directory) if chunk_bytes > 0 => {
                let place = tree.server.named(&draft_of(&place));
                BlockJournal::new(directory, About { place, number, size, chunk_bytes })?
            }
            _ => BlockJournal::none(),
        };
        sweep(tree, path, &place)?;
        let ranges = Ranges::begin(size, chunk_bytes, &tree.server, &draft_of(&place))?;
        let carrier = Carrier::Ranges(Box::new(ranges));
        let facts = (Some(size), Some(mtime));
        Ok(BlockDraft::with((tree, carrier), path, place, facts, (number, journal), Stage::Sending))
    }

    fn with(
        (tree, carrier): (&Arc<Tree>, Carrier),
        path: &[u8],
        place: Vec<u8>,
        (size, mtime): (Option<u64>, Option<Time>),
        (number, journal): ((u64, u64), BlockJournal),
        stage: Stage,
    ) -> BlockDraft {
        BlockDraft {
            tree: Arc::clone(tree),
            carrier,
            path: path.to_vec(),
            draft_place: draft_of(&place),
            place,
            size,
            mtime,
            number,
            journal,
            earlier: None,
            fate: Arc::default(),
            end: AtomicU64::new(0),
            state: Mutex::new(State {
                stage,
                writers: 0,
                parts: Some(Adler32Parts::default()),
                again: Adler32Parts::default(),
                mtime,
                mode: None,
                read_back: None,
                finished: None,
            }),
            written: Condvar::new(),
        }
    }

    /// Goes on with an upload that an earlier run left, if the server has some of it as it was sent. Returns the receiver's journal, too.
    pub(super) fn resume(
        tree: &Arc<Tree>,
        uploads: &Arc<Uploads>,
        path: &[u8],
    ) -> io::Result<Option<(BlockDraft, Vec<u8>)>> {
        let Some(directory) = journals(tree) else { return Ok(None) };
        let (server, place) = (&tree.server, tree.place(path)?);
        let draft_place = draft_of(&place);
        let Some((journal, left)) = BlockJournal::left(directory, &server.named(&draft_place))? else {
            return Ok(None);
        };
        let Some(has) = size_of_left(tree, path, &draft_place, left.about.size)? else { return Ok(None) };
        // The sums are asked for behind it, so they show that what stands there stays.
        if !server.keeps_what_stands(&draft_place, has)? {
            return Ok(None);
        }
        let proved = proof::proved(server, &draft_place, (&left.about, &left.sums), has)?;
        let ends = proved.keys().filter_map(|chunk| left.about.range(*chunk));
        let Some(end) = ends.map(|(start, bytes)| start + bytes).max() else { return Ok(None) };
        let facts = (Some(left.about.size), None);
        let about = (left.about.number, journal);
        let carrier = Carrier::Blocks(Arc::clone(uploads));
        let mut draft = BlockDraft::with((tree, carrier), path, place, facts, about, Stage::Sending);
        (draft.earlier, draft.end) = (Some(Earlier { about: left.about, proved }), AtomicU64::new(end));
        Ok(Some((draft, left.receiver)))
    }

    /// Goes on with ranges that an earlier run left, as far as the server gives them back as they were sent.
    pub(super) fn resume_ranges(tree: &Arc<Tree>, path: &[u8]) -> io::Result<Option<(BlockDraft, Vec<u8>)>> {
        let (server, place) = (&tree.server, tree.place(path)?);
        let Some(directory) = server.journals() else { return Ok(None) };
        let draft_place = draft_of(&place);
        let Some((journal, left)) = BlockJournal::left(directory, &server.named(&draft_place))? else {
            return Ok(None);
        };
        let About { size, chunk_bytes, number, .. } = left.about;
        let Some(has) = size_of_left(tree, path, &draft_place, size)? else { return Ok(None) };
        if !server.may_take_ranges(size) || !server.takes_ranges(split(&place).0) {
            return Ok(None);
        }
        let proved = read_back::proved(server, &draft_place, (&left.about, &left.sums), &left.begins, has)?;
        // The first byte cannot be written again.
        let Some((last, _)) = proved.last_key_value().filter(|_| proved.contains_key(&0)) else { return Ok(None) };
        let end = left.about.range(*last).map_or(0, |(start, bytes)| start + bytes);
        let carrier = Carrier::Ranges(Box::new(Ranges::go_on(size, chunk_bytes)));
        let facts = (Some(size), None);
        let mut draft = BlockDraft::with((tree, carrier), path, place, facts, (number, journal), Stage::Sending);
        (draft.earlier, draft.end) = (Some(Earlier { about: left.about, proved }), AtomicU64::new(end));
        Ok(Some((draft, left.receiver)))
    }

    /// Nothing of it was written, and one stream brings the file: its STOR empties what stands under the temporary name. To remove that
    /// first would take a round trip.
    pub(super) fn leave_to_stream(self) {
        self.lock().stage = Stage::Discarded;
        if let Carrier::Ranges(ranges) = &self.carrier {
            ranges.end_first();
        }
        let _ = self.journal.remove();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn context<T>(&self, op: &'static str, done: impl FnOnce() -> io::Result<T>) -> Result<T> {
        done().map_err(|error| StoreError::new(op, &self.path, error))
    }

    fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.fate.check()?;
        let end = offset.checked_add(data.len() as u64).ok_or(ErrorKind::InvalidInput)?;
        if self.size.is_some_and(|size| end > size) {
            return Err(invalid("more comes of it than was announced"));
        }
        let sum = Adler32Parts::sum_of(data);
        if !self.begin_write(data, offset, sum)? {
            return Ok(());
        }
        let sent = self.send(data, offset);
        self.end.fetch_max(end, Ordering::Relaxed);
        let mut state = self.lock();
        state.writers -= 1;
        drop(state);
        self.written.notify_all();
        sent.map_err(|error| self.fate.enter(error))
    }

    /// True: the data has to be sent. What is written a second time waits until the server has what was written first: two connections have
    /// no order.
    fn begin_write(&self, data: &[u8], offset: u64, sum: u32) -> io::Result<bool> {
        let mut state = self.lock();
        match &mut state.stage {
            Stage::Gathered(gathered) => {
                let (start, end) = (usize::try_from(offset), usize::try_from(offset + data.len() as u64));
                let (Ok(start), Ok(end)) = (start, end) else { return Err(invalid("it is longer than was said")) };
                if gathered.len() < end {
                    gathered.resize(end, 0);
                }
                gathered[start..end].copy_from_slice(data);
                self.end.fetch_max(end as u64, Ordering::Relaxed);
                add(&mut state.parts, data, offset, sum);
                return Ok(false);
            }
            Stage::Sending | Stage::Confirmed => state.stage = Stage::Sending,
            Stage::Named | Stage::Discarded => return Err(over()),
        }
        self.journal.enter(data, offset, sum);
        (state.read_back, state.finished) = (None, None);
        let is_first = state.parts.is_some();
        if !add(&mut state.parts, data, offset, sum) && (is_first || !state.again.add(offset, data.len() as u64, sum)) {
            state = self.confirm(state)?;
            (state.stage, state.again) = (Stage::Sending, Adler32Parts::default());
            state.again.add(offset, data.len() as u64, sum);
        }
        state.writers += 1;
        Ok(true)
    }

    /// The draft as its ranges need it.
    fn of_ranges(&self) -> Draft<'_> {
        Draft { server: &self.tree.server, place: &self.draft_place, journal: &self.journal }
    }

    fn send(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let server = &self.tree.server;
        let uploads = match &self.carrier {
            Carrier::Blocks(uploads) => uploads,
            Carrier::Ranges(ranges) => return ranges.write(self.of_ranges(), data, offset),
        };
        for _ in 0..MAX_CLOSED {
            let mut upload = uploads.take(server, self.number, &self.draft_place)?;
            match upload.write(data, offset) {
                Ok(()) => {
                    uploads.give_back(self.number, &self.fate, upload);
                    server.pool.moved();
                    return Ok(());
                }
                Err(error) if upload.may_be_closed() && !is_lasting(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::new(ErrorKind::ConnectionAborted, "the server closes its connections"))
    }

    /// Breaks its transfers off.
    fn drop_all(&self) {
        match &self.carrier {
            Carrier::Blocks(uploads) => uploads.drop_all(self.number),
            Carrier::Ranges(ranges) => ranges.drop_all(),
        }
    }

    /// Waits until the server has confirmed all that was written.
    fn confirm<'a>(&'a self, mut state: MutexGuard<'a, State>) -> io::Result<MutexGuard<'a, State>> {
        // Each of them ends: its connection has a limit for silence.
        while state.writers > 0 {
            state = self.written.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        self.fate.check()?;
        match std::mem::replace(&mut state.stage, Stage::Sending) {
            Stage::Gathered(gathered) => {
                let (_, end) = self.end_of(&state);
                let put = self.tree.server.put(&self.draft_place, &gathered, &end);
                state.finished = put.map_err(|error| self.fate.enter(error))?;
            }
            Stage::Sending => match &self.carrier {
                Carrier::Blocks(uploads) => uploads.end(self.number, &self.fate)?,
                Carrier::Ranges(ranges) => {
                    ranges.confirm(self.of_ranges()).map_err(|error| self.fate.enter(error))?;
                }
            },
            Stage::Confirmed => {}
            stage @ (Stage::Named | Stage::Discarded) => {
                state.stage = stage;
                return Err(over());
            }
        }
        state.stage = Stage::Confirmed;
        Ok(state)
    }

    fn complete(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.lock();
        if let Some(size) = self.size
            && (self.end.load(Ordering::Relaxed) != size
                || state.parts.as_ref().is_some_and(|parts| size > 0 && parts.of_first(size).is_none()))
        {
            return Err(invalid("it is not complete"));
        }
        self.confirm(state)
    }

    /// How the file is finished, and its sum, if the server tells one to compare.
    fn end_of(&self, state: &State) -> (Option<u32>, End) {
        let size = self.end.load(Ordering::Relaxed);
        let sum = state.parts.as_ref().and_then(|parts| parts.of_first(size)).filter(|_| size <= MAX_SUMMED_BYTES);
        let sum = sum.filter(|_| self.tree.server.sum_kind() == Some(SumKind::Adler32));
        (sum, End { mtime: state.mtime, sums: sum.is_some() })
    }

    /// Compares what the server shows with what was sent, and sets the time. Returns the kind of the sum that was compared, too.
    fn settle(&self, state: &mut State) -> io::Result<(Facts, Option<SumKind>)> {
        let server = &self.tree.server;
        if let Carrier::Ranges(ranges) = &self.carrier {
            if !ranges.is_whole() {
                return Err(io::Error::other("some of it was cut off"));
            }
            ranges.compare_begins(self.of_ranges())?;
        }
        if let Some(mode) = state.mode {
            server.set_mode(&self.draft_place, mode)?;
        }
        let size = self.end.load(Ordering::Relaxed);
        let (sum, end) = self.end_of(state);
        let mut finished = match state.finished.take() {
            Some(finished) => finished,
            None => server.finish(&self.draft_place, &end)?,
        };
        let told = finished.sum.take();
        let facts = match state.mtime {
            Some(mtime) => with_time(server, &self.draft_place, mtime, finished)?,
            None => finished.facts,
        };
        let shown = facts.ok_or_else(|| invalid("the server has confirmed it, and does not have it"))?;
        if shown.size != Some(size) {
            let has = shown.size.map_or("no size".to_owned(), |size| format!("{size} bytes"));
            return Err(invalid(format!("the server has {has} of it, not {size} bytes")));
        }
        let Some((sum, digest)) = sum.zip(told) else { return Ok((shown, None)) };
        if digest.value != sum.to_be_bytes() {
            return Err(invalid(format!("the server has another {} of it than it was sent", digest.kind.name())));
        }
        Ok((shown, Some(digest.kind)))
    }
}

/// Where journals are kept, at a server that can prove what they say.
fn journals(tree: &Tree) -> Option<&Path> {
    tree.server.journals().filter(|_| tree.server.sum_kind() == Some(SumKind::Adler32))
}

/// Enters a part. False: some of it was written before.
fn add(parts: &mut Option<Adler32Parts>, data: &[u8], offset: u64, sum: u32) -> bool {
    let is_new = parts.as_mut().is_some_and(|parts| data.is_empty() || parts.add(offset, data.len() as u64, sum));
    if !is_new {
        *parts = None;
    }
    is_new
}

impl FileToWrite for BlockDraft {
    fn path(&self) -> &[u8] {
        &self.path
    }

    fn id(&self) -> (u64, u64) {
        self.number
    }

    /// Returns before the server has confirmed it.
    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.context("write", || self.write(data, offset))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.context("read back", || {
            let file = {
                let mut state = self.confirm(self.lock())?;
                if state.read_back.is_none() {
                    let file = FtpFile::open(&self.tree.served, self.draft_place.clone())?;
                    state.read_back = Some(Arc::new(file));
                }
                state.read_back.clone().expect("it was opened")
            };
            file.read_at(buffer, offset)
        })
    }

    /// A chunk counts that the receiver's journal claims, and the server has.
    fn proves(&self, offset: u64, length: u64) -> Option<bool> {
        let Some(Earlier { about, proved }) = &self.earlier else {
            return (matches!(self.carrier, Carrier::Ranges(_)) && self.journal.is_kept()).then_some(false);
        };
        let chunk = u32::try_from(offset / about.chunk_bytes)
            .ok()
            .filter(|chunk| about.range(*chunk) == Some((offset, length)));
        let sum = chunk.and_then(|chunk| proved.get(&chunk));
        if let Some((sum, parts)) = sum.zip(self.lock().parts.as_mut()) {
            parts.add(offset, length, *sum);
        }
        Some(sum.is_some())
    }

    fn size(&self) -> Result<u64> {
        Ok(self.end.load(Ordering::Relaxed))
    }

    /// What a connection that was cut did not bring is a hole: the receiver reads it, and asks for it again.
    fn next_data(&self, offset: u64, end: u64) -> Result<Option<(u64, u64)>> {
        self.context("look through", || {
            let end = end.min(self.end.load(Ordering::Relaxed));
            let Carrier::Ranges(ranges) = &self.carrier else { return Ok((offset < end).then_some((offset, end))) };
            drop(self.confirm(self.lock())?);
            Ok(ranges.next_data(offset, end))
        })
    }

    fn set_size(&self, size: u64) -> Result<()> {
        self.context("set the size of", || {
            let zeros = vec![0; ZEROS_BYTES];
            loop {
                let end = self.end.load(Ordering::Relaxed);
                if end >= size {
                    return if end == size { Ok(()) } else { Err(ErrorKind::InvalidInput.into()) };
                }
                let most = usize::try_from(size - end).unwrap_or(usize::MAX).min(zeros.len());
                self.write(&zeros[..most], end)?;
            }
        })
    }

    /// Room for it is not made before its end is written.
    fn extend(&self, _size: u64) -> Result<()> {
        Ok(())
    }

    /// A server has no flush: what it has confirmed counts. Before the end, to be confirmed costs a round trip and the windows of all
    /// connections, and a later run asks for sums anyway.
    fn flush(&self) -> Result<()> {
        self.context("write", || {
            let state = self.lock();
            let size = self.size.unwrap_or(0);
            let is_open = state.parts.as_ref().map_or(self.journal.is_kept(), |parts| parts.of_first(size).is_none());
            match is_open {
                true => self.fate.check(),
                false => self.confirm(state).map(drop),
            }
        })
    }

    fn set_metadata(&self, meta: &Metadata, _flush: bool) -> Result<()> {
        self.context("write", || {
            {
                let mut state = self.lock();
                let mtime = meta.mtime.or(self.mtime);
                // What was finished before has the time of before.
                state.finished = state.finished.take().filter(|_| state.mtime == mtime);
                (state.mtime, state.mode) = (mtime, meta.mode);
            }
            self.complete().map(drop)
        })
    }

    fn give_name(&self) -> Result<()> {
        self.context("finish", || {
            let mut state = self.complete()?;
            state.read_back = None;
            let (shown, sum) = self.settle(&mut state).inspect_err(|error| {
                // The server has something else than was sent: a later run must not take it for right.
                if error.kind() == ErrorKind::InvalidData {
                    let _ = self.journal.remove();
                    if matches!(self.carrier, Carrier::Ranges(_)) {
                        self.tree.server.give_up_ranges();
                    }
                }
            })?;
            self.tree.rename_over(&self.draft_place, &self.place)?;
            self.tree.server.compared(sum);
            state.stage = Stage::Named;
            self.tree.note(&self.path, Some(shown));
            self.tree.note(&draft_beside(&self.path), None);
            // One that stays tells of a draft that is gone.
            let _ = self.journal.remove();
            Ok(())
        })
    }

    fn discard(&self) -> Result<()> {
        {
            let mut state = self.lock();
            let is_sent = match &state.stage {
                Stage::Named | Stage::Discarded => return Ok(()),
                Stage::Gathered(_) => false,
                Stage::Sending | Stage::Confirmed => true,
            };
            state.stage = Stage::Discarded;
            state.read_back = None;
            while state.writers > 0 {
                state = self.written.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            self.drop_all();
            let _ = self.journal.remove();
            if !is_sent {
                return Ok(());
            }
        }
        self.context("remove the unfinished", || match self.tree.server.remove_file(&self.draft_place) {
            Err(_) if matches!(self.tree.server.look(&self.draft_place), Ok(None)) => Ok(()),
            removed => removed,
        })
    }

    fn journal(&self) -> &dyn Journal {
        self
    }
}

impl Drop for BlockDraft {
    /// A later run goes on with one that has a journal.
    fn drop(&mut self) {
        match self.journal.is_begun() {
            true => self.drop_all(),
            false => drop(self.discard()),
        }
    }
}

impl Journal for BlockDraft {
    fn begin(&self, header: &[u8], begun: &mut dyn FnMut()) -> io::Result<()> {
        self.fate.check()?;
        match self.lock().stage {
            Stage::Discarded | Stage::Named => return Err(over()),
            Stage::Gathered(_) | Stage::Sending | Stage::Confirmed => {}
        }
        self.journal.begin(header, begun)
    }

    fn append(&self, record: &[u8]) -> io::Result<()> {
        self.journal.append(record)
    }

    fn keep(&self, len: u64) -> io::Result<()> {
        self.journal.keep(len)
    }

    fn remove(&self) -> io::Result<()> {
        self.journal.remove()
    }
}

/// Connections that have rested, and were closed meanwhile.
const MAX_CLOSED: u32 = 16;
