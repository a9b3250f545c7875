//! A server of FTP: what stands where, lists, files that come and go, and small changes. Each step takes a control connection of the pool.
//!
//! A connection that has rested may be closed by now, and a server may throw away what came with a command: then the step is made once
//! more, over another one.

pub(crate) mod between;
pub(crate) mod blocks;
mod connections;
mod ranges;

use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use haul_foreign::{Digest, digest_of_hex};
use haul_store::{SumCounter, SumKind, Time};

use crate::account::{Account, Settings};
use crate::codec::command::Command;
use crate::codec::features::{CKSM, Features};
use crate::codec::listing::{self, Entry, EntryType, Facts, Modified};
use crate::codec::reply::Reply;
use crate::codec::time;
use crate::control::Begun;
use crate::limits::{MAX_LINE_BYTES, SUM_PATIENCE};
use crate::paths::{join, split};
use crate::pool::{Pool, Purpose};
use crate::range_habits::RangeHabits;
use crate::refusal::{file_refusal, invalid, is_lasting, is_missing, missing, refusal};
use crate::transfer::{Download, Line, Upload};

/// A server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) pool: Arc<Pool<Download>>,
    /// The time of what the server tells none.
    pub(crate) begun: Time,
    told: Mutex<HashSet<Matter>>,
    /// LIST takes `-a` for hidden names.
    lists_hidden: AtomicBool,
    has_no_sizes: AtomicBool,
    /// How it sets times, as [`Times`].
    times: AtomicU8,
    /// It is known how it sets times.
    times_proved: AtomicBool,
    /// Files that were written, and compared with its sums.
    compared: SumCounter,
    ranges: RangeHabits,
}

/// A matter of which a person is told once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Matter {
    Times,
    Renames,
    Modes,
    InPlace,
    Parts,
    Blocks,
    Addresses,
}

impl Matter {
    fn words(self) -> &'static str {
        match self {
            Matter::Times => {
                "this server sets no times: the next copy takes all files for changed, unless --size-only compares them"
            }
            Matter::Renames => {
                "this server does not rename onto a file: each file that is replaced is missing for a moment"
            }
            Matter::Modes => "this server does not set modes (SITE CHMOD): files have those that it gives them",
            Matter::Blocks => {
                "the server sends no blocks to this host (a firewall, or its way of sending): it is read as by FTP"
            }
            Matter::Addresses => {
                "the server does not reach this host at every address of --paths: its data comes over the others"
            }
            Matter::InPlace => {
                "files are written under their final names (--inplace): one that is cut off may show half of its content"
            }
            Matter::Parts => "this server sends no parts of files (REST): one connection reads from front to back",
        }
    }
}

/// How a server sets the time of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Times {
    /// Not known yet.
    Unknown = 0,
    /// `MFMT TIME PATH`.
    Mfmt = 1,
    /// `MDTM TIME PATH`, as vsftpd and old servers have it.
    Mdtm = 2,
    /// Not at all.
    Lost = 3,
}

impl Server {
    /// Nothing is asked yet.
    pub(crate) fn new(settings: Settings) -> Arc<Server> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Arc::new(Server {
            pool: Pool::new(Account::new(settings)),
            begun: Time { s: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), ns: since.subsec_nanos() },
            told: Mutex::default(),
            lists_hidden: AtomicBool::new(true),
            has_no_sizes: AtomicBool::new(false),
            times: AtomicU8::new(Times::Unknown as u8),
            times_proved: AtomicBool::new(false),
            compared: SumCounter::default(),
            ranges: RangeHabits::default(),
        })
    }

    /// The server says that it begins at a byte that is asked for. Whether it does is found out.
    pub(crate) fn promises_parts(&self) -> bool {
        self.features().restarts
    }

    /// Says which path is looked at first: the first login takes the questions for it along.
    pub(crate) fn looks_first_at(&self, path: &[u8]) {
        if !path.is_empty() && !path.ends_with(b"/") {
            self.account().looks_first_at(path);
        }
    }

    fn account(&self) -> &Account {
        &self.pool.account
    }

    fn features(&self) -> Features {
        self.account().features()
    }

    /// Tells the person a word, once for each matter.
    pub(crate) fn tell(&self, matter: Matter) {
        if self.told.lock().unwrap_or_else(PoisonError::into_inner).insert(matter) {
            (self.account().settings.tell)(matter.words().to_owned());
        }
    }

    /// A file has its name. Its content was compared with a sum of this kind.
    pub(crate) fn compared(&self, kind: Option<SumKind>) {
        kind.map_or_else(|| self.compared.without(), |kind| self.compared.compared(kind));
        (self.account().settings.tell_sums)(self.compared.counts());
    }

    /// The smallest round trip to the server; 0 while unknown.
    pub(crate) fn rtt_us(&self) -> u32 {
        self.account().rtt_us()
    }

    /// Makes a step over a control connection.
    pub(crate) fn with<T>(
        &self,
        purpose: Purpose,
        mut step: impl FnMut(Line) -> (io::Result<T>, Option<Line>),
    ) -> io::Result<T> {
        let mut tries = 0;
        loop {
            let line = self.pool.take(purpose)?;
            let (has_rested, takes_several) = (line.has_rested, self.account().habits.takes_several());
            let (done, line) = step(line);
            let is_lost = line.as_ref().is_some_and(|line| line.is_broken());
            drop(line);
            let is_new_habit = takes_several != self.account().habits.takes_several();
            match done {
                Err(error) if error.kind() == ErrorKind::Unsupported || is_lasting(&error) => return Err(error),
                Err(_) if is_lost && (has_rested || is_new_habit) && tries < MAX_RESTED_TRIES => tries += 1,
                done => return done,
            }
        }
    }

    /// Makes a step that ends with a reply.
    pub(crate) fn ask<T>(&self, mut step: impl FnMut(&mut Line) -> io::Result<T>) -> io::Result<T> {
        self.with(Purpose::Question, |mut line| (step(&mut line), Some(line)))
    }

    /// The path as the server takes it from any directory.
    fn absolute(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        if self.account().drops_bytes() && path.iter().any(|byte| !matches!(byte, b'\t' | b' '..=b'~')) {
            let why =
                "this server leaves all letters beyond ASCII out of names, so another file would be meant: rename it";
            return Err(io::Error::new(ErrorKind::InvalidInput, why));
        }
        Ok(self.whole_path(path))
    }

    fn whole_path(&self, path: &[u8]) -> Vec<u8> {
        if path.starts_with(b"/") { path.to_vec() } else { join(self.account().home(), path) }
    }

    fn on(&self, verb: &'static str, path: &[u8]) -> io::Result<Command> {
        Command::new(verb, &self.absolute(path)?)
    }

    /// What stands at a path. Links are followed, as far as the server does.
    pub(crate) fn look(&self, path: &[u8]) -> io::Result<Option<Facts>> {
        let looked = self.ask(|line| {
            let early = self.account().first_look(path);
            if early.is_some() {
                // It was asked for before it was known what the server does to names.
                self.absolute(path)?;
            }
            let [mlst, early_facts] = match early.as_deref() {
                Some([mlst, facts @ ..]) => [Some(std::slice::from_ref(mlst)), Some(facts)],
                _ => [None, None],
            };
            if self.features().lists_facts {
                let reply = match mlst {
                    Some([reply]) => reply.clone(),
                    _ => line.ask(self.on("MLST", path)?)?,
                };
                match self.facts_of_mlst(&reply) {
                    Ok(Some(Facts { kind: EntryType::Link(_), .. })) => {}
                    Err(_) if reply.is_unknown() => {}
                    told => return Ok(Looked::Told(told?)),
                }
            }
            let mut has_size = true;
            if !path.is_empty() && !path.ends_with(b"/") {
                let replies = match early_facts {
                    Some(replies) => replies.to_vec(),
                    None => line.ask_all(&[self.on("SIZE", path)?, self.on("MDTM", path)?])?,
                };
                if let Some(facts) = facts_of_file(&replies) {
                    return Ok(Looked::Told(Some(facts)));
                }
                has_size = !replies[0].is_unknown();
            }
            let here = self.absolute(path)?;
            // Where the server does not tell its home, nobody leaves it.
            let entered =
                if here.is_empty() { line.ask(Command::plain("PWD"))? } else { line.ask(Command::new("CWD", &here)?)? };
            Ok(match (entered.is_success(), has_size) {
                (true, _) => Looked::Told(Some(Facts { kind: EntryType::Directory, ..Facts::default() })),
                (false, true) => Looked::Told(None),
                (false, false) => Looked::NeedsList,
            })
        });
        match looked? {
            Looked::Told(facts) => Ok(facts),
            Looked::NeedsList => self.look_in_list(path),
        }
    }

    fn look_in_list(&self, path: &[u8]) -> io::Result<Option<Facts>> {
        let (directory, name) = split(path);
        let mut found = None;
        let listed = self.list(directory, &mut |entry| {
            if entry.name == name {
                found = Some(entry.facts);
            }
            Ok(())
        });
        match listed {
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error),
            Ok(()) => Ok(found.filter(|facts| matches!(facts.kind, EntryType::File) && facts.size.is_some())),
        }
    }

    fn facts_of_mlst(&self, reply: &Reply) -> io::Result<Option<Facts>> {
        match reply.code {
            250 => {
                let line = reply.lines.iter().find_map(|line| listing::facts(line.strip_prefix(b" ")?));
                let entry = line.ok_or_else(|| invalid(format!("the server tells no facts: {}", reply.shown())))?;
                // The path itself was named, maybe as `.`.
                let kind = if entry.facts.kind == EntryType::Itself { EntryType::Directory } else { entry.facts.kind };
                Ok(Some(Facts { kind, ..entry.facts }))
            }
            550 | 450 | 553 => Ok(None),
            _ => Err(refusal(reply)),
        }
    }

    /// Exact times of files of which a list has told the sizes. `None`: it is not there, or the server tells no times.
    pub(crate) fn times_of(&self, paths: &[Vec<u8>]) -> io::Result<Vec<Option<Modified>>> {
        self.ask(|line| {
            let commands = paths.iter().map(|path| self.on("MDTM", path)).collect::<io::Result<Vec<_>>>()?;
            Ok(line.ask_all(&commands)?.iter().map(modified_of).collect())
        })
    }

    /// Sizes and exact times of files. `None`: it is not there, or no file.
    pub(crate) fn look_at_files(&self, paths: &[Vec<u8>]) -> io::Result<Vec<Option<Facts>>> {
        self.ask(|line| {
            let mut commands = Vec::with_capacity(paths.len() * 2);
            for path in paths {
                commands.push(self.on("SIZE", path)?);
                commands.push(self.on("MDTM", path)?);
            }
            let replies = line.ask_all(&commands)?;
            if replies.first().is_some_and(Reply::is_unknown) {
                self.note_no_sizes();
            }
            Ok(replies.chunks(2).map(facts_of_file).collect())
        })
    }

    pub(crate) fn note_no_sizes(&self) {
        self.has_no_sizes.store(true, Ordering::Relaxed);
    }

    /// The server knows no SIZE, as far as it was asked.
    pub(crate) fn has_no_sizes(&self) -> bool {
        self.has_no_sizes.load(Ordering::Relaxed)
    }

    /// Gives each entry of a directory to `each`, without the directory itself and the one above it.
    pub(crate) fn list(&self, path: &[u8], each: &mut dyn FnMut(Entry) -> io::Result<()>) -> io::Result<()> {
        if self.features_after_login()?.lists_facts {
            let mut command = Some(self.on("MLSD", path)?);
            return self
                .list_by(
                    path,
                    &mut |_| Ok(command.take()),
                    &|line| listing::facts(line).ok_or_else(|| no_list(line)),
                    each,
                )
                .map(drop);
        }
        let enter = |line: &mut Line| -> io::Result<()> {
            let here = self.absolute(path)?;
            if here.is_empty() {
                return Ok(());
            }
            let reply = line.ask(Command::new("CWD", &here)?)?;
            if reply.is_success() { Ok(()) } else { Err(missing()) }
        };
        let now = self.begun;
        let of_line = |line: &[u8]| listing::line(line, now).ok_or_else(|| no_list(line));
        if self.lists_hidden.load(Ordering::Relaxed) {
            let mut command = Some(Command::new("LIST", b"-a")?);
            let listed = self.list_by(path, &mut |line| enter(line).map(|()| command.take()), &of_line, each);
            match listed {
                // A server that knows no `-a` takes it for a name, and finds nothing.
                Ok(0) => {}
                Err(error) if error.kind() == ErrorKind::Unsupported || error.kind() == ErrorKind::Other => {
                    self.lists_hidden.store(false, Ordering::Relaxed);
                }
                listed => return listed.map(drop),
            }
        }
        let mut command = Some(Command::plain("LIST"));
        self.list_by(path, &mut |line| enter(line).map(|()| command.take()), &of_line, each).map(drop)
    }

    /// Logs in, if nobody has yet.
    pub(crate) fn reach(&self) -> io::Result<()> {
        self.pool.take(Purpose::Question).map(drop)
    }

    fn features_after_login(&self) -> io::Result<Features> {
        if self.account().home().is_empty() && self.features() == Features::default() {
            // The first login tells.
            self.reach()?;
        }
        Ok(self.features())
    }

    /// Returns how many lines there were, with those of the directory itself.
    fn list_by(
        &self,
        path: &[u8],
        command: &mut dyn FnMut(&mut Line) -> io::Result<Option<Command>>,
        of_line: &dyn Fn(&[u8]) -> io::Result<Entry>,
        each: &mut dyn FnMut(Entry) -> io::Result<()>,
    ) -> io::Result<u64> {
        let mut download = {
            let mut kept = None;
            self.with(Purpose::Question, |mut line| {
                let begun = (|| {
                    if let Some(command) = command(&mut line)? {
                        kept = Some(command);
                    }
                    line.begin_download(kept.clone().ok_or(ErrorKind::InvalidInput)?, 0)
                })();
                match begun {
                    Ok((data, _)) => (Ok(Download::new(data, line, 0)), None),
                    Err(error) => (Err(error), Some(line)),
                }
            })
        }
        .map_err(|error| of_directory(error, path))?;
        let (mut block, mut rest, mut count) = (vec![0; LIST_BLOCK_BYTES], Vec::new(), 0);
        loop {
            let read = download.read(&mut block)?;
            let mut bytes = &block[..read];
            while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
                rest.extend_from_slice(&bytes[..end]);
                bytes = &bytes[end + 1..];
                count += u64::from(take_line(&mut rest, of_line, each)?);
            }
            rest.extend_from_slice(bytes);
            if rest.len() > MAX_LINE_BYTES {
                return Err(invalid("the server lists a name longer than 64 KiB"));
            }
            if read == 0 {
                count += u64::from(take_line(&mut rest, of_line, each)?);
                return Ok(count);
            }
        }
    }

    /// Begins to read a file at a place.
    pub(crate) fn download(&self, path: &[u8], offset: u64) -> io::Result<Download> {
        let turn = self.pool.turn();
        self.download_for(Purpose::Transfer, path, offset, turn)
    }

    /// Begins to read the last bytes of a file, beside the transfers.
    pub(crate) fn download_end(&self, path: &[u8], offset: u64) -> io::Result<Download> {
        self.download_for(Purpose::Question, path, offset, Duration::ZERO)
    }

    fn download_for(&self, purpose: Purpose, path: &[u8], offset: u64, turn: Duration) -> io::Result<Download> {
        self.with(purpose, |mut line| {
            let begun = self.on("RETR", path).and_then(|command| {
                self.pool.pause(turn);
                line.begin_download(command, offset)
            });
            match begun {
                Ok((data, Begun::Here)) => (Ok(Download::new(data, line, offset)), None),
                Ok((data, Begun::FromTheStart)) => (Ok(Download::new(data, line, 0)), None),
                Err(error) => (Err(error), Some(line)),
            }
        })
    }

    /// A command on a part of a file.
    fn on_part(&self, verb: &'static str, part: &str, path: &[u8]) -> io::Result<Command> {
        Command::new(verb, &[part.as_bytes(), b" ", &self.absolute(path)?].concat())
    }

    /// Begins to write a file, from a byte on.
    pub(crate) fn upload(&self, path: &[u8], offset: u64) -> io::Result<Upload> {
        self.with(Purpose::Transfer, |mut line| {
            let begun = self.on("STOR", path).and_then(|command| line.begin_upload(command, offset));
            match begun {
                Ok(data) => (Ok(Upload::new(data, line)), None),
                Err(error) => (Err(error), Some(line)),
            }
        })
    }

    /// Finds out whether the server writes at the end of a file of this size, and leaves what stands before: nothing is written there, and
    /// the file must have this size afterwards.
    pub(crate) fn writes_at(&self, path: &[u8], size: u64) -> io::Result<bool> {
        let written = self.upload(path, size).and_then(|mut upload| upload.finish());
        self.has_kept(path, size, written)
    }

    /// Whether a file has its size behind a transfer that wrote nothing. A server may refuse such a transfer.
    pub(crate) fn has_kept(&self, path: &[u8], size: u64, tried: io::Result<()>) -> io::Result<bool> {
        match tried {
            Ok(()) => {}
            Err(error)
                if matches!(error.kind(), ErrorKind::Other | ErrorKind::Unsupported | ErrorKind::PermissionDenied) =>
            {
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        let shown = self.look_at_files(&[path.to_vec()])?.pop().flatten();
        Ok(shown.and_then(|facts| facts.size) == Some(size))
    }

    /// Where journals of uploads are kept.
    pub(crate) fn journals(&self) -> Option<&Path> {
        self.account().settings.journals.as_deref()
    }

    /// A path at this server, as no other server has it.
    pub(crate) fn named(&self, path: &[u8]) -> Vec<u8> {
        let Settings { host, port, .. } = &self.account().settings;
        [format!("ftp://{}@{host}:{port}/", self.account().user()).as_bytes(), &self.whole_path(path)].concat()
    }

    /// The sum that the server tells of a file, where it tells one.
    pub(crate) fn sum(&self, path: &[u8]) -> io::Result<Option<Digest>> {
        let Some((verb, kind)) = self.features().sum else { return Ok(None) };
        self.ask(|line| {
            line.be_patient(SUM_PATIENCE)?;
            let command = match verb {
                CKSM => self.on_part(verb, WHOLE_FILE, path)?,
                _ => self.on(verb, path)?,
            };
            let reply = line.ask(command)?;
            line.be_as_patient_as_usual()?;
            if !reply.is_success() {
                return Ok(None);
            }
            Ok(digest_of(kind, &reply))
        })
    }

    /// The kind of the sums that the server tells.
    pub(crate) fn sum_kind(&self) -> Option<SumKind> {
        self.features().sum.map(|(_, kind)| kind)
    }

    fn change(&self, verb: &'static str, path: &[u8]) -> io::Result<()> {
        self.ask(|line| {
            let reply = line.ask(self.on(verb, path)?)?;
            if reply.is_success() { Ok(()) } else { Err(refusal(&reply)) }
        })
    }

    pub(crate) fn make_directory(&self, path: &[u8]) -> io::Result<()> {
        self.change("MKD", path)
    }

    pub(crate) fn remove_directory(&self, path: &[u8]) -> io::Result<()> {
        self.change("RMD", path)
    }

    pub(crate) fn remove_file(&self, path: &[u8]) -> io::Result<()> {
        self.change("DELE", path)
    }

    /// Renames. What the server does with a file that stands there is its choice.
    pub(crate) fn rename(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        self.ask(|line| {
            let [from, to] = [self.on("RNFR", from)?, self.on("RNTO", to)?];
            if self.is_grid() {
                // Behind a refused RNFR, RNTO is refused, too.
                let replies = line.ask_all(&[from, to])?;
                let refused = replies.iter().find(|reply| !reply.is_success() && !reply.wants_more());
                return refused.map_or(Ok(()), |reply| Err(file_refusal(reply)));
            }
            let reply = line.ask(from)?;
            if !reply.wants_more() {
                return Err(refusal(&reply));
            }
            let reply = line.ask(to)?;
            if reply.is_success() { Ok(()) } else { Err(refusal(&reply)) }
        })
    }

    pub(crate) fn set_mode(&self, path: &[u8], mode: u32) -> io::Result<()> {
        self.ask(|line| {
            let argument = [format!("CHMOD {:o} ", mode & 0o7777).as_bytes(), &self.absolute(path)?].concat();
            let reply = line.ask(Command::new("SITE", &argument)?)?;
            match reply.is_success() {
                true => Ok(()),
                // The entry is as it was; only the mode is not kept.
                false => {
                    self.tell(Matter::Modes);
                    Ok(())
                }
            }
        })
    }

    pub(crate) fn times(&self) -> Times {
        match self.times.load(Ordering::Relaxed) {
            0 => Times::Unknown,
            1 => Times::Mfmt,
            2 => Times::Mdtm,
            _ => Times::Lost,
        }
    }

    /// True once a file has shown how the server sets times, or that it sets none.
    pub(crate) fn sets_times_as_known(&self) -> bool {
        self.times_proved.load(Ordering::Relaxed)
    }

    pub(crate) fn sets_times(&self, how: Times) {
        self.times_proved.store(true, Ordering::Relaxed);
        if how == Times::Lost {
            self.tell(Matter::Times);
        }
        self.sets_times_by(how);
    }

    /// This command is tried from now on.
    pub(crate) fn sets_times_by(&self, how: Times) {
        self.times.store(how as u8, Ordering::Relaxed);
    }

    /// The command that sets a time, as far as it is known to do so.
    pub(crate) fn time_command(&self, path: &[u8], mtime: Time) -> io::Result<Option<(Times, Command)>> {
        let how = match self.times() {
            Times::Unknown if self.features().sets_times => Times::Mfmt,
            Times::Unknown => Times::Mdtm,
            how => how,
        };
        let verb = match how {
            Times::Mfmt => "MFMT",
            Times::Mdtm => "MDTM",
            Times::Unknown | Times::Lost => return Ok(None),
        };
        let Some(text) = time::text(mtime) else { return Ok(None) };
        let argument = [text.as_bytes(), b" ", &self.absolute(path)?].concat();
        Ok(Some((how, Command::new(verb, &argument)?)))
    }

    /// The command by which a file is asked for.
    pub(crate) fn command(&self, verb: &'static str, path: &[u8]) -> io::Result<Command> {
        self.on(verb, path)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.account().end();
    }
}

/// What the server tells of one path.
enum Looked {
    Told(Option<Facts>),
    /// It knows no SIZE.
    NeedsList,
}

/// The sum that CKSM is asked for: from the first byte to the last.
const WHOLE_FILE: &str = "ADLER32 0 -1";

/// Connections that have rested, and were closed meanwhile.
const MAX_RESTED_TRIES: u32 = 16;

const LIST_BLOCK_BYTES: usize = 64 << 10;

/// What SIZE and MDTM told of a file. `None`: there is none.
pub(crate) fn facts_of_file(replies: &[Reply]) -> Option<Facts> {
    let [size, modified] = replies else { return None };
    let size = (size.code == 213).then(|| std::str::from_utf8(size.text()).ok()?.trim().parse().ok()).flatten()?;
    Some(Facts { kind: EntryType::File, size: Some(size), modified: modified_of(modified), mode: None })
}

fn digest_of(kind: SumKind, reply: &Reply) -> Option<Digest> {
    let text = String::from_utf8_lossy(reply.text()).into_owned();
    text.split_whitespace().find_map(|word| digest_of_hex(kind, word))
}

/// What MDTM told.
fn modified_of(reply: &Reply) -> Option<Modified> {
    let time = (reply.code == 213).then(|| time::parse(reply.text())).flatten()?;
    Some(Modified { time, is_exact: true })
}

/// Takes a line of a list. False: it is empty, or tells a total.
fn take_line(
    rest: &mut Vec<u8>,
    of_line: &dyn Fn(&[u8]) -> io::Result<Entry>,
    each: &mut dyn FnMut(Entry) -> io::Result<()>,
) -> io::Result<bool> {
    let mut line = std::mem::take(rest);
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    if line.is_empty() || line.starts_with(b"total ") {
        return Ok(false);
    }
    let entry = of_line(&line)?;
    if entry.facts.kind != EntryType::Itself && !matches!(&entry.name[..], b"." | b"..") {
        each(entry)?;
    }
    Ok(true)
}

/// A line that nobody understands may hide a name, and what is not listed would be deleted at a target.
fn no_list(line: &[u8]) -> io::Error {
    let shown = haul_store::printable(&line[..line.len().min(100)]);
    invalid(format!("the server lists it in a form that haul does not know: {shown}"))
}

/// A list that is refused: mostly there is no such directory.
fn of_directory(error: io::Error, _path: &[u8]) -> io::Error {
    match error.kind() {
        ErrorKind::Other => missing(),
        _ => error,
    }
}
