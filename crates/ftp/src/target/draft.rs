//! A file being written at a server: an upload under a temporary name beside its own, then a rename.
//!
//! ```text
//! short file: blocks gather -> STOR               long file: blocks go up as they come, in their order
//!   -> 226 -> sum compared where the server tells one; time set, size compared -> RNFR, RNTO onto the name
//! ```
//! A long file that broke off goes on by REST and STOR, if a trial shows that the server writes at the byte of REST. The server's part counts as
//! far as the journal on this host says that it was sent.

use std::io::{self, ErrorKind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use haul_foreign::Hasher;
use haul_store::{FileToRead as _, FileToWrite, Journal, Metadata, StoreError, SumKind, Time, part_name};

use super::journal::UploadJournal;
use super::tree::{Tree, split};
use crate::codec::command::Command;
use crate::codec::listing::{EntryType, Facts, Modified};
use crate::limits::{GATHERED_BYTES, MAX_SUMMED_BYTES, ORDER_PATIENCE, ZEROS_BYTES};
use crate::paths::sibling;
use crate::refusal::{invalid, is_missing};
use crate::server::{Server, Times, facts_of_file};
use crate::source::FtpFile;
use crate::transfer::Upload;

type Result<T> = std::result::Result<T, StoreError>;

/// A file being written at a server.
#[derive(Debug)]
pub(super) struct FtpDraft {
    tree: Arc<Tree>,
    path: Vec<u8>,
    /// The final name, at the server.
    place: Vec<u8>,
    /// The temporary one; in place it is the final name.
    draft_place: Vec<u8>,
    size: Option<u64>,
    mtime: Option<Time>,
    number: (u64, u64),
    journal: UploadJournal,
    /// An empty file has its temporary name already.
    pub(super) stands: bool,
    state: Mutex<State>,
    went_on: Condvar,
}

#[derive(Debug)]
struct State {
    body: Body,
    /// Bytes so far.
    at: u64,
    /// The sum of them that the server can tell, too.
    hasher: Option<Hasher>,
    /// The first error is that of everything behind it.
    failed: Option<(ErrorKind, String)>,
    is_discarded: bool,
    mtime: Option<Time>,
    mode: Option<u32>,
    /// The file as it is read back.
    read_back: Option<Arc<FtpFile>>,
}

#[derive(Debug)]
enum Body {
    Gathered(Vec<u8>),
    /// The server has so many bytes from an earlier run. Those in front of [`State::at`] count.
    Left(u64),
    GoingUp(Box<Upload>),
    /// The server has all of it.
    Complete,
    /// It has its name.
    Named,
    Broken,
}

impl FtpDraft {
    pub(super) fn new(
        tree: &Arc<Tree>,
        path: &[u8],
        mtime: Option<Time>,
        size: Option<u64>,
        inplace: bool,
    ) -> io::Result<FtpDraft> {
        if inplace && !tree.in_place {
            return Err(no_writing_in_place());
        }
        let place = tree.place(path)?;
        let draft_place = if inplace { place.clone() } else { draft_of(&place) };
        // The name must be one that a command can say, before anything comes.
        tree.server.command("STOR", &place)?;
        let number = random()?;
        let journal = match (&tree.server.journals(), size) {
            (Some(directory), Some(size)) if size > GATHERED_BYTES && !inplace && tree.server.promises_parts() => {
                UploadJournal::new(directory, &tree.server.named(&draft_place), number, size)?
            }
            _ => UploadJournal::none(),
        };
        if !inplace {
            journal.take_over()?;
            sweep(tree, path, &place)?;
        }
        let body = Body::Gathered(Vec::new());
        Ok(FtpDraft::with(tree, path, [place, draft_place], (size, mtime), (number, journal), body))
    }

    fn with(
        tree: &Arc<Tree>,
        path: &[u8],
        [place, draft_place]: [Vec<u8>; 2],
        (size, mtime): (Option<u64>, Option<Time>),
        (number, journal): ((u64, u64), UploadJournal),
        body: Body,
    ) -> FtpDraft {
        let is_new = matches!(body, Body::Gathered(_));
        FtpDraft {
            tree: Arc::clone(tree),
            path: path.to_vec(),
            place,
            draft_place,
            size,
            mtime,
            number,
            journal,
            stands: false,
            state: Mutex::new(State {
                body,
                at: 0,
                // The sum of what an earlier run sent is not known.
                hasher: tree.server.sum_kind().filter(|_| is_new).map(Hasher::new),
                failed: None,
                is_discarded: false,
                mtime,
                mode: None,
                read_back: None,
            }),
            went_on: Condvar::new(),
        }
    }

    /// Goes on with an upload that an earlier run left, where the server writes at the byte that is asked for. Returns the receiver's
    /// journal, too.
    pub(super) fn resume(tree: &Arc<Tree>, path: &[u8]) -> io::Result<Option<(FtpDraft, Vec<u8>)>> {
        let Some(directory) = tree.server.journals() else { return Ok(None) };
        let place = tree.place(path)?;
        let draft_place = draft_of(&place);
        let left = UploadJournal::left(directory, &tree.server.named(&draft_place))?;
        let Some((journal, left)) = left else { return Ok(None) };
        // Lanes bring ranges of it, where the server takes them by now.
        if tree.server.may_take_ranges(left.size) && tree.server.takes_ranges(crate::paths::split(&place).0) {
            return Ok(None);
        }
        let has = size_of_left(tree, path, &draft_place, left.size)?;
        let Some(has) = has else { return Ok(None) };
        if !tree.server.writes_at(&draft_place, has)? {
            return Ok(None);
        }
        let facts = (Some(left.size), None);
        let draft = FtpDraft::with(tree, path, [place, draft_place], facts, (left.number, journal), Body::Left(has));
        Ok(Some((draft, left.receiver)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn context<T>(&self, op: &'static str, done: impl FnOnce() -> io::Result<T>) -> Result<T> {
        done().map_err(|error| StoreError::new(op, &self.path, error))
    }

    fn begin(&self, at: u64) -> io::Result<Upload> {
        self.tree.server.upload(&self.draft_place, at)
    }

    fn write(&self, state: &mut State, data: &[u8]) -> io::Result<()> {
        let end = state.at + data.len() as u64;
        if self.size.is_some_and(|size| end > size) {
            return Err(invalid("more comes of it than was announced"));
        }
        if let Body::Gathered(gathered) = &mut state.body {
            if self.size.unwrap_or(end) <= GATHERED_BYTES {
                gathered.extend_from_slice(data);
                return Ok(());
            }
            let mut upload = self.begin(0)?;
            upload.write(gathered)?;
            state.body = Body::GoingUp(Box::new(upload));
        }
        if let Body::Left(_) = &state.body {
            // Some servers let nobody write while somebody reads.
            state.read_back = None;
            state.body = Body::GoingUp(Box::new(self.begin(state.at)?));
        }
        match &mut state.body {
            Body::GoingUp(upload) => {
                self.tree.server.pool.moved();
                upload.write(data)
            }
            Body::Gathered(_) | Body::Left(_) | Body::Complete | Body::Named | Body::Broken => Err(over()),
        }
    }

    fn append(&self, state: &mut State, data: &[u8]) -> io::Result<()> {
        check(state)?;
        if let Err(error) = self.write(state, data) {
            state.failed = Some((error.kind(), error.to_string()));
            state.body = Body::Broken;
            return Err(error);
        }
        if let Some(hasher) = &mut state.hasher {
            hasher.update(data);
        }
        state.at += data.len() as u64;
        self.went_on.notify_all();
        Ok(())
    }

    /// Ends the upload, once: the server says that it has all of it.
    fn complete(&self, state: &mut State) -> io::Result<()> {
        check(state)?;
        let sent = match std::mem::replace(&mut state.body, Body::Broken) {
            Body::Complete => Ok(()),
            _ if self.size.is_some_and(|size| state.at != size) => Err(invalid("it is not complete")),
            Body::Gathered(gathered) => self.put(&gathered),
            Body::GoingUp(mut upload) => upload.finish(),
            Body::Left(has) if has == state.at => Ok(()),
            Body::Left(_) => Err(invalid("it is not complete")),
            Body::Named | Body::Broken => Err(over()),
        };
        sent.inspect_err(|error| state.failed = Some((error.kind(), error.to_string())))?;
        state.body = Body::Complete;
        Ok(())
    }

    /// A connection that has rested may be closed by now: then all of it goes up once more.
    fn put(&self, gathered: &[u8]) -> io::Result<()> {
        let mut tries = 0;
        loop {
            let mut upload = self.begin(0)?;
            let sent = upload.write(gathered).and_then(|()| upload.finish());
            match sent {
                Err(_) if upload.line.is_broken() && upload.line.has_rested && tries < MAX_PUTS => tries += 1,
                sent => return sent,
            }
        }
    }

    /// Compares what the server shows with what was sent, and sets the time. Returns what it shows, and whether the file has its name. All of
    /// it mostly takes two round trips; the second one gives the name.
    fn settle(&self, state: &mut State) -> io::Result<(Facts, bool, Option<SumKind>)> {
        let server = &self.tree.server;
        // Before its time is set: a draft that is as old as its source gets its name at once.
        let mut compared = None;
        if let Some(hasher) = state.hasher.take().filter(|_| state.at <= MAX_SUMMED_BYTES)
            && let Some(digest) = server.sum(&self.draft_place)?
            && server.sum_kind() == Some(digest.kind)
        {
            if digest.value != hasher.finish() {
                let kind = digest.kind.name();
                return Err(invalid(format!("the server has another {kind} of it than it was sent")));
            }
            compared = Some(digest.kind);
        }
        if let Some(mode) = state.mode {
            server.set_mode(&self.draft_place, mode)?;
        }
        let (shown, is_named) = match state.mtime {
            Some(mtime) => match self.set_time_and_name(state, mtime)? {
                Some(shown) => (Some(shown), true),
                None => (set_time(server, &self.draft_place, mtime)?, false),
            },
            None => {
                let mut shown = server.look_at_files(std::slice::from_ref(&self.draft_place))?;
                (shown.pop().flatten(), false)
            }
        };
        // The server has said that it has it. One without SIZE shows it in its list alone.
        let shown = match shown {
            None if server.has_no_sizes() => self.look_in_list()?,
            shown => shown,
        };
        let shown = shown.ok_or_else(|| invalid("the server has confirmed it, and does not have it"))?;
        check_size(&shown, state.at)?;
        Ok((shown, is_named, compared))
    }

    /// Whether the server's way to set times is known, so that the name needs no look before it.
    fn may_name_at_once(&self) -> bool {
        let server = &self.tree.server;
        self.draft_place != self.place && server.sets_times_as_known()
    }

    /// RNFR goes along with the look, and RNTO follows when the look has shown the whole size and the time. `None`: it has no name yet.
    fn set_time_and_name(&self, state: &State, mtime: Time) -> io::Result<Option<Facts>> {
        if !self.may_name_at_once() {
            return Ok(None);
        }
        let server = &self.tree.server;
        let sets_time = server.time_command(&self.draft_place, mtime)?;
        let keeps_times = sets_time.is_some();
        let mut commands: Vec<Command> = sets_time.into_iter().map(|(_, command)| command).collect();
        for verb in ["SIZE", "MDTM", "RNFR"] {
            commands.push(server.command(verb, &self.draft_place)?);
        }
        let onto = server.command("RNTO", &self.place)?;
        server.ask(|line| {
            let replies = line.ask_all(&commands)?;
            let [.., size, modified, from] = &replies[..] else { return Err(invalid("an answer is missing")) };
            let shown = facts_of_file(&[size.clone(), modified.clone()]);
            let is_whole =
                |shown: &Facts| check_size(shown, state.at).is_ok() && (!keeps_times || has_time(shown, mtime));
            match shown.filter(is_whole) {
                Some(shown) if from.wants_more() && line.ask(onto.clone())?.is_success() => Ok(Some(shown)),
                _ => Ok(None),
            }
        })
    }

    fn look_in_list(&self) -> io::Result<Option<Facts>> {
        self.tree.listings.forget(split(&self.path).0);
        let name = split(&self.draft_place).1.to_vec();
        let directory = split(&self.path).0;
        let path = if directory.is_empty() { name } else { [directory, b"/", &name].concat() };
        self.tree.look(&path)
    }
}

/// The server shows the file with as many bytes as were sent.
fn check_size(shown: &Facts, sent: u64) -> io::Result<()> {
    match shown.size {
        Some(size) if size == sent => Ok(()),
        size => {
            let has = size.map_or("no size".to_owned(), |size| format!("{size} bytes"));
            Err(invalid(format!("the server has {has} of it, not {sent} bytes")))
        }
    }
}

fn check(state: &State) -> io::Result<()> {
    match (&state.failed, state.is_discarded) {
        (Some((kind, why)), _) => Err(io::Error::new(*kind, why.clone())),
        (None, true) => Err(over()),
        (None, false) => Ok(()),
    }
}

/// Sets the time of a file, and looks at it. The first time it is found out which command the server has for that.
pub(super) fn set_time(server: &Server, place: &[u8], mtime: Time) -> io::Result<Option<Facts>> {
    for _ in 0..TIME_COMMANDS {
        let command = server.time_command(place, mtime)?;
        let (size, modified) = (server.command("SIZE", place)?, server.command("MDTM", place)?);
        let (shown, is_taken) = server.ask(|line| {
            let mut commands: Vec<_> = command.iter().map(|(_, command)| command.clone()).collect();
            commands.extend([size.clone(), modified.clone()]);
            let replies = line.ask_all(&commands)?;
            let (set, looked) = replies.split_at(replies.len() - 2);
            let is_taken = set.first().is_none_or(|reply| reply.is_success());
            if looked[0].is_unknown() {
                server.note_no_sizes();
            }
            Ok((facts_of_file(looked), is_taken))
        })?;
        let Some((how, _)) = command else { return Ok(shown) };
        match &shown {
            Some(facts) if is_taken && has_time(facts, mtime) => {
                server.sets_times(how);
                return Ok(shown);
            }
            // A server without SIZE shows no time here.
            None => return Ok(None),
            Some(_) if how == Times::Mfmt => server.sets_times_by(Times::Mdtm),
            Some(_) => {
                server.sets_times(Times::Lost);
                return Ok(shown);
            }
        }
    }
    Ok(None)
}

/// MFMT, MDTM and none.
const TIME_COMMANDS: u32 = 3;

/// Whether the facts have this time, to the second.
pub(super) fn has_time(facts: &Facts, mtime: Time) -> bool {
    facts.modified.is_some_and(|Modified { time, .. }| time.s == mtime.s)
}

/// Removes the temporary file that an earlier run left. Somebody else's link at its place would lead elsewhere.
pub(super) fn sweep(tree: &Tree, path: &[u8], place: &[u8]) -> io::Result<bool> {
    let draft = draft_beside(path);
    match tree.look(&draft) {
        Ok(Some(Facts { kind: EntryType::Directory, .. })) => {
            Err(invalid("a directory has the name of its temporary file"))
        }
        Ok(Some(_)) => {
            tree.server.remove_file(&draft_of(place))?;
            tree.note(&draft, None);
            Ok(true)
        }
        Ok(None) => Ok(false),
        Err(error) if is_missing(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The size of the temporary file that an earlier run left. A link at its place would lead elsewhere.
pub(super) fn size_of_left(tree: &Tree, path: &[u8], draft_place: &[u8], most: u64) -> io::Result<Option<u64>> {
    if !matches!(tree.look(&draft_beside(path))?, Some(Facts { kind: EntryType::File, .. })) {
        return Ok(None);
    }
    let shown = tree.server.look_at_files(&[draft_place.to_vec()])?.pop().flatten();
    // A longer one is of something else. What is asked for behind its end would leave its end.
    Ok(shown.and_then(|facts| facts.size).filter(|has| (1..=most).contains(has)))
}

/// The path of the temporary file in the tree.
pub(super) fn draft_beside(path: &[u8]) -> Vec<u8> {
    let (directory, name) = split(path);
    let draft_name = part_name(name);
    if directory.is_empty() { draft_name } else { [directory, b"/", &draft_name].concat() }
}

pub(super) fn draft_of(place: &[u8]) -> Vec<u8> {
    sibling(place, &part_name(crate::paths::split(place).1))
}

impl FileToWrite for FtpDraft {
    fn path(&self) -> &[u8] {
        &self.path
    }

    fn id(&self) -> (u64, u64) {
        self.number
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.context("write", || {
            let waits = |state: &mut State| state.failed.is_none() && !state.is_discarded && state.at < offset;
            let waited = self.went_on.wait_timeout_while(self.lock(), ORDER_PATIENCE, waits);
            let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            check(&state)?;
            match state.at == offset {
                true => self.append(&mut state, data),
                false => Err(io::Error::new(ErrorKind::InvalidInput, NOT_IN_ORDER)),
            }
        })
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.context("read back", || {
            let file = {
                let mut state = self.lock();
                if !matches!(state.body, Body::Left(_)) {
                    self.complete(&mut state)?;
                }
                if state.read_back.is_none() {
                    let file = FtpFile::open(&self.tree.served, self.draft_place.clone())?;
                    state.read_back = Some(Arc::new(file));
                }
                state.read_back.clone().expect("it was opened")
            };
            file.read_at(buffer, offset)
        })
    }

    /// What the server has of an earlier run is proved in the order of the journal, without a gap: a server keeps the beginning.
    fn proves(&self, offset: u64, length: u64) -> Option<bool> {
        if !self.journal.is_kept() {
            return None;
        }
        let mut state = self.lock();
        let has = if let Body::Left(has) = &state.body { *has } else { 0 };
        let stands = offset == state.at && offset.saturating_add(length) <= has;
        if stands {
            state.at += length;
        }
        Some(stands)
    }

    fn gives_back(&self) -> bool {
        matches!(self.lock().body, Body::Left(_))
    }

    fn size(&self) -> Result<u64> {
        let state = self.lock();
        Ok(if let Body::Left(has) = &state.body { *has } else { state.at })
    }

    fn set_size(&self, size: u64) -> Result<()> {
        self.context("set the size of", || {
            let mut state = self.lock();
            let zeros = vec![0; ZEROS_BYTES];
            while state.at < size {
                let most = usize::try_from(size - state.at).unwrap_or(usize::MAX).min(zeros.len());
                self.append(&mut state, &zeros[..most])?;
            }
            if state.at > size { Err(io::Error::new(ErrorKind::InvalidInput, NOT_IN_ORDER)) } else { Ok(()) }
        })
    }

    /// Room for it is not made before its end is written.
    fn extend(&self, _size: u64) -> Result<()> {
        Ok(())
    }

    /// A server has no flush: what it has confirmed counts. It confirms nothing before the end.
    fn flush(&self) -> Result<()> {
        self.context("write", || {
            let mut state = self.lock();
            match self.size == Some(state.at) {
                true => self.complete(&mut state),
                false => check(&state),
            }
        })
    }

    fn set_metadata(&self, meta: &Metadata, _flush: bool) -> Result<()> {
        self.context("write", || {
            let mut state = self.lock();
            self.complete(&mut state)?;
            state.mtime = meta.mtime.or(self.mtime);
            state.mode = meta.mode;
            Ok(())
        })
    }

    fn give_name(&self) -> Result<()> {
        self.context("finish", || {
            let mut state = self.lock();
            self.complete(&mut state)?;
            state.read_back = None;
            let (shown, is_named, sum) = self.settle(&mut state).inspect_err(|error| {
                // The server has something else than was sent: a later run must not take it for right.
                if error.kind() == ErrorKind::InvalidData {
                    let _ = self.journal.remove();
                }
            })?;
            if self.draft_place != self.place && !is_named {
                self.tree.rename_over(&self.draft_place, &self.place)?;
            }
            state.body = Body::Named;
            self.tree.server.compared(sum);
            self.tree.note(&self.path, Some(shown));
            // A second copy may have begun a draft of this name: it is not ours to sweep.
            self.tree.note(&draft_beside(&self.path), None);
            // One that stays tells of a draft that is gone.
            let _ = self.journal.remove();
            Ok(())
        })
    }

    fn discard(&self) -> Result<()> {
        let has_something = {
            let mut state = self.lock();
            state.is_discarded = true;
            state.read_back = None;
            let body = std::mem::replace(&mut state.body, Body::Broken);
            self.went_on.notify_all();
            match body {
                Body::Named => {
                    state.body = Body::Named;
                    false
                }
                Body::GoingUp(_) | Body::Left(_) | Body::Complete => true,
                // What failed may have left its beginning.
                Body::Broken => state.at > 0 || self.stands,
                Body::Gathered(_) => self.stands,
            }
        };
        let _ = self.journal.remove();
        if !has_something || self.draft_place == self.place {
            return Ok(());
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

impl Journal for FtpDraft {
    fn begin(&self, header: &[u8], begun: &mut dyn FnMut()) -> io::Result<()> {
        check(&self.lock())?;
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

impl Drop for FtpDraft {
    /// A later run goes on with one that has a journal.
    fn drop(&mut self) {
        let is_named = matches!(self.lock().body, Body::Named);
        if !is_named && !self.lock().is_discarded && !self.journal.is_begun() {
            let _ = self.discard();
        }
    }
}

pub(super) fn no_writing_in_place() -> io::Error {
    io::Error::new(ErrorKind::Unsupported, "nothing was to be written in place: half a file would show")
}

pub(super) fn random() -> io::Result<(u64, u64)> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    let number = u128::from_le_bytes(bytes);
    Ok((number as u64, (number >> 64) as u64))
}

pub(super) fn over() -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, "it was given up")
}

/// Connections that have rested, and were closed meanwhile.
const MAX_PUTS: u32 = 16;

const NOT_IN_ORDER: &str = "its data came again, and what goes up cannot be taken back: copy it once more";
