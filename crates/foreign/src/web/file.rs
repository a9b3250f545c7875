//! A file on a server, read by ranges.
//!
//! ```text
//! read at a place -> the body that stands there, or a request from there to the end of the file
//!                 -> bytes, and the body waits for the next read behind them
//! ```
//! The first answer pins the version. Later requests ask for it alone, and each answer is compared: data of two versions is never
//! mixed.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use haul_store::{Access, FileToRead, ServerSum, Stat, Time};
use http::header::IF_UNMODIFIED_SINCE;
use http::{Method, StatusCode, response};

use crate::digest::Digest;
use crate::digest::fields::{of_answer, wanted};
use crate::http_client::client::{Answer, Ask, Client, invalid, is_passing, refusal};
use crate::http_client::fields::content_length;
use crate::http_client::limits::MAX_TRIES;
use crate::http_client::url::Url;
use crate::web::bodies::{Bodies, Place, Reading};
use crate::web::file_sum::FileSum;
use crate::web::limits::{
    BODY_RESTS, CONFIRM_AFTER, STARVES_AFTER_PART_OF_SILENCE, SUMMED_AT_ONCE_BYTES, WORTH_PARTS_BYTES,
};
use crate::web::look::{Looked, NO_LENGTH, look, look_beside};
use crate::web::notes::Note;
use crate::web::served::Served;
use crate::web::version::{Part, Version, length_of_refused_range};

#[derive(Debug)]
pub(crate) struct RemoteFile {
    client: Arc<Client>,
    bodies: Arc<Bodies>,
    number: u64,
    url: Url,
    /// The time of a file without one.
    begun: Time,
    seen: Arc<Mutex<Seen>>,
    /// The end of each thread's reading.
    runs: Mutex<HashMap<ThreadId, (u64, u64)>>,
    /// `None`: its reader may compare it.
    sum: Option<Arc<FileSum>>,
    asks_for_sum: AtomicBool,
    noted_size: Option<u64>,
    /// A list's note, whose metadata hold while answers agree.
    listed: Option<Version>,
    /// One thread reads all, from front to back.
    has_one_reader: bool,
}

#[derive(Debug)]
struct Seen {
    /// `None` before the first answer.
    version: Option<Version>,
    /// Signed addresses behind redirects live for minutes, so the first URL stays known.
    located: Option<Url>,
    confirmed: Instant,
}

static FILES: AtomicU64 = AtomicU64::new(0);

impl RemoteFile {
    /// Opens a file without asking.
    pub(crate) fn new(client: Arc<Client>, bodies: Arc<Bodies>, url: Url, begun: Time) -> RemoteFile {
        RemoteFile {
            client,
            bodies,
            number: FILES.fetch_add(1, Ordering::Relaxed),
            url,
            begun,
            seen: Arc::new(Mutex::new(Seen { version: None, located: None, confirmed: Instant::now() })),
            runs: Mutex::default(),
            sum: None,
            asks_for_sum: AtomicBool::new(false),
            noted_size: None,
            listed: None,
            has_one_reader: false,
        }
    }

    /// Opens a walked file, to be compared with its server's sum.
    pub(crate) fn noted(tree: &Served, url: Url, note: Note) -> RemoteFile {
        let mut file = Self::new(Arc::clone(&tree.client), Arc::clone(&tree.bodies), url, tree.begun);
        let ask = {
            let (client, url, seen) = (Arc::clone(&file.client), file.url.clone(), Arc::clone(&file.seen));
            move || digests(&client, &url, lock(&seen).version.as_ref())
        };
        file.sum = Some(Arc::new(FileSum::new(Arc::clone(&tree.sums), note.digests, ask)));
        (file.noted_size, file.listed) = (note.size, note.listed);
        file.has_one_reader =
            tree.access() == Access::Sequential || note.size.is_some_and(|size| size <= WORTH_PARTS_BYTES);
        file
    }

    /// Opens a version found a moment ago.
    pub(crate) fn of_version(self, version: Version) -> RemoteFile {
        self.seen().version = Some(version);
        self
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }

    fn stat_of(&self, version: &Version) -> Stat {
        self.listed.as_ref().filter(|listed| listed.is_list_of(version)).unwrap_or(version).stat(self.begun)
    }

    fn size(&self) -> Option<u64> {
        self.seen().version.as_ref().map(|version| version.size)
    }

    /// The end of this thread's reading from here, if told.
    fn run_end(&self, at: u64) -> Option<u64> {
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let (start, end) = *runs.get(&std::thread::current().id())?;
        (start..end).contains(&at).then_some(end)
    }

    /// Notes an answer's version. The first one pins it.
    fn pin(&self, version: Version) -> io::Result<()> {
        let mut seen = self.seen();
        match &seen.version {
            Some(pinned) if !pinned.is_like(&version) => return Err(stale()),
            Some(_) => {}
            None => seen.version = Some(version),
        }
        seen.confirmed = Instant::now();
        Ok(())
    }

    fn look(&self) -> io::Result<Version> {
        match look(&self.client, &self.url)? {
            Looked::File { version, .. } => Ok(version),
            Looked::Directory(_) => Err(stale()),
        }
    }

    /// Requests the file from `at` on. `None`: it ends there.
    fn open_at(&self, at: u64, since: Instant) -> io::Result<Option<Reading>> {
        let mut refused = 0;
        loop {
            let asked = Instant::now();
            let place = self.bodies.place()?;
            // The others read while this one waits for its turn.
            let waited = if asked.elapsed() < BODY_RESTS { since } else { Instant::now() };
            let (located, version) = {
                let seen = self.seen();
                (seen.located.clone(), seen.version.clone())
            };
            let size = version.as_ref().map(|version| version.size);
            if size.is_some_and(|size| at > 0 && at >= size) {
                return Ok(None);
            }
            // XRootD 5 answers a range without an end with nothing.
            let size = size.or(self.noted_size.filter(|size| at < *size));
            let end = [self.run_end(at), size].into_iter().flatten().min();
            // A whole read needs no range, and some servers have none.
            let range = (at > 0 || (end.is_some() && end != size)).then_some((at, end));
            let condition = version.as_ref().and_then(Version::condition);
            // Each answer is compared with the pinned version anyway.
            let condition =
                condition.filter(|(name, _)| *name != IF_UNMODIFIED_SINCE || !self.bodies.compares_finer_times());
            let is_of_time = condition.as_ref().is_some_and(|(name, _)| *name == IF_UNMODIFIED_SINCE);
            let takes_busy = self.bodies.has_others();
            let is_short = self.noted_size.is_some_and(|size| size <= SUMMED_AT_ONCE_BYTES);
            let wants_digest = is_short && self.sum.as_ref().is_some_and(|sum| sum.is_unknown());
            let url = located.as_ref().unwrap_or(&self.url);
            let fields = if wants_digest { wanted() } else { Vec::new() };
            let begun = Instant::now();
            let is_starved = || self.is_starved_since(begun);
            let answer = self.client.ask(&Ask {
                range,
                condition,
                takes_busy,
                is_starved: takes_busy.then_some(&is_starved),
                is_for_body: true,
                fields,
                since: waited,
                ..Ask::new(Method::GET, url)
            });
            let answer = match answer {
                Ok(answer) => answer,
                // A server with a limit may refuse, cut or ignore one connection more.
                Err(error) if takes_busy && is_passing(&error) && self.others_move(refused) => {
                    refused += 1;
                    self.crowded(place, refused);
                    continue;
                }
                Err(error) => return Err(error),
            };
            self.bodies.answered_after(begun.elapsed());
            match answer.head.status {
                StatusCode::OK | StatusCode::PARTIAL_CONTENT => {
                    return self.begin(at, answer, place, wants_digest);
                }
                StatusCode::PRECONDITION_FAILED if is_of_time => {
                    drop((answer, place));
                    let pinned = version.ok_or_else(stale)?;
                    if !pinned.is_like(&self.look()?) {
                        return Err(stale());
                    }
                    self.bodies.found_finer_times();
                }
                StatusCode::PRECONDITION_FAILED => return Err(stale()),
                StatusCode::RANGE_NOT_SATISFIABLE => {
                    return Err(match (length_of_refused_range(&answer.head), version) {
                        (Some(length), Some(version)) if length == version.size => invalid(NO_PART.to_owned()),
                        _ => stale(),
                    });
                }
                StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
                    if takes_busy && (refused < MAX_TRIES || self.others_move(refused)) =>
                {
                    refused += 1;
                    drop(answer);
                    self.crowded(place, refused);
                }
                // The address of a redirect may have expired.
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND | StatusCode::GONE
                    if located.is_some() =>
                {
                    self.seen().located = None;
                }
                _ => return Err(refusal(&answer.head)),
            }
        }
    }

    fn is_starved_since(&self, asked: Instant) -> bool {
        self.bodies.starves(asked, self.client.settings.silence / STARVES_AFTER_PART_OF_SILENCE)
    }

    /// Whether the others have brought something lately: the wait is theirs, and ends with them.
    fn others_move(&self, refused: u32) -> bool {
        self.client.has_time(self.bodies.moved(), self.crowded_pause(refused + 1))
    }

    fn crowded_pause(&self, refused: u32) -> Duration {
        self.client.backoff(refused.min(LONGEST_CROWDED_PAUSE))
    }

    /// Leaves the server to the others for a while.
    fn crowded(&self, place: Place, refused: u32) {
        self.bodies.too_many();
        drop(place);
        self.client.pause(self.crowded_pause(refused));
    }

    /// Takes an answer's body, if it is what was asked for.
    fn begin(&self, at: u64, answer: Answer, place: Place, wanted_digest: bool) -> io::Result<Option<Reading>> {
        let Answer { head, body, url } = answer;
        let (start, end) = match head.status {
            StatusCode::OK => (0, self.whole(&head)?),
            _ => self.part(at, &head)?,
        };
        if let Some(sum) = &self.sum {
            sum.learn(of_answer(&head, wanted_digest));
        }
        let origin = url.origin().clone();
        if url != self.url {
            self.seen().located = Some(url);
        }
        let mut reading = Reading { body, origin, at: start, end, _place: place };
        // A server without ranges sends all: the part before is skipped.
        let mut block = vec![0; if reading.at < at { SKIPPED_AT_ONCE } else { 0 }];
        while reading.at < at {
            let most = usize::try_from(at - reading.at).unwrap_or(usize::MAX).min(block.len());
            read(&mut reading, &mut block[..most])?;
        }
        Ok(Some(reading))
    }

    fn whole(&self, head: &response::Parts) -> io::Result<u64> {
        // A body in chunks has no length; then the pinned one holds.
        let size = content_length(head).or(self.size()).ok_or_else(|| invalid(NO_LENGTH.to_owned()))?;
        self.pin(Version::of(head, size))?;
        Ok(size)
    }

    fn part(&self, at: u64, head: &response::Parts) -> io::Result<(u64, u64)> {
        let part = Part::of(head).ok_or_else(|| invalid("the server sent a part and does not say which".to_owned()))?;
        if part.start != at {
            return Err(invalid(format!("the server sent another part: from byte {}, not {at}", part.start)));
        }
        let size = part.total.or(self.size()).ok_or_else(|| invalid(NO_LENGTH.to_owned()))?;
        self.pin(Version::of(head, size))?;
        if content_length(head).is_some_and(|length| length != part.end - part.start) {
            return Err(invalid("the server sent a part whose lengths contradict each other".to_owned()));
        }
        Ok((part.start, part.end))
    }
}

impl FileToRead for RemoteFile {
    fn stat(&self) -> io::Result<Stat> {
        let (pinned, is_fresh) = {
            let mut seen = self.seen();
            let is_fresh = seen.confirmed.elapsed() < CONFIRM_AFTER;
            if !is_fresh {
                // On a long path each question costs a connection and some round trips.
                seen.confirmed = Instant::now();
            }
            (seen.version.clone(), is_fresh)
        };
        let Some(pinned) = pinned else {
            let version = self.look()?;
            let stat = self.stat_of(&version);
            self.pin(version)?;
            return Ok(stat);
        };
        let stat = self.stat_of(&pinned);
        if is_fresh {
            return Ok(stat);
        }
        let begun = Instant::now();
        let now = match look_beside(&self.client, &self.url, &|| self.is_starved_since(begun)) {
            Ok(Looked::File { version, .. }) => version,
            Ok(Looked::Directory(_)) => return Err(stale()),
            // The server allows no further connection; the next request tells.
            Err(error) if error.kind() == ErrorKind::ResourceBusy => pinned.clone(),
            Err(error) => return Err(error),
        };
        if pinned.is_like(&now) {
            self.seen().confirmed = Instant::now();
            return Ok(stat);
        }
        match self.stat_of(&now) {
            // The difference is not in the metadata.
            now if now == stat => Err(stale()),
            now => Ok(now),
        }
    }

    fn reads_on(&self, start: u64, end: u64) {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.insert(std::thread::current().id(), (start, end));
    }

    fn server_sum(&self) -> Option<Arc<dyn ServerSum>> {
        self.sum.clone().map(|sum| sum as Arc<dyn ServerSum>)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let count = self.read_from(buffer, offset)?;
        if let Some(sum) = &self.sum {
            let size = self.size().unwrap_or_default();
            sum.took(&buffer[..count], offset, size, self.has_one_reader)?;
            self.ask_for_sum(sum, size);
        }
        Ok(count)
    }
}

impl RemoteFile {
    /// From the middle of a long file on its sum is asked for beside the data: behind it the question costs a round trip.
    fn ask_for_sum(&self, sum: &Arc<FileSum>, size: u64) {
        let is_unwise = size <= SUMMED_AT_ONCE_BYTES || self.has_one_reader || self.bodies.is_limited();
        if is_unwise || self.asks_for_sum.load(Ordering::Relaxed) || !sum.is_due(size) {
            return;
        }
        if !self.asks_for_sum.swap(true, Ordering::Relaxed) {
            let sum = Arc::clone(sum);
            // Without the thread it is asked for at the end.
            let _ = std::thread::Builder::new().name("web-sum".into()).spawn(move || sum.ask_ahead());
        }
    }

    fn read_from(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let (mut done, mut cuts, since) = (0, 0, Instant::now());
        loop {
            let wanted =
                |size: u64| usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX).min(buffer.len());
            if self.size().is_some_and(|size| wanted(size) == done) {
                return Ok(done);
            }
            let at = offset + done as u64;
            let mut reading = match self.bodies.resume(self.number, at) {
                Some(reading) => reading,
                None => {
                    self.bodies.leave();
                    match self.open_at(at, since)? {
                        Some(reading) => reading,
                        None => return Ok(done),
                    }
                }
            };
            let wanted = wanted(self.size().unwrap_or(reading.end));
            let mut brought = Ok(());
            while done < wanted && reading.at < reading.end && brought.is_ok() {
                brought = read(&mut reading, &mut buffer[done..wanted]).map(|count| done += count);
            }
            match brought {
                Ok(()) if reading.at < reading.end => self.bodies.park(self.number, reading),
                Ok(()) => {
                    // A body in chunks may go on behind the known end.
                    if matches!(reading.body.read(&mut [0]), Ok(1..)) {
                        return Err(stale());
                    }
                    self.client.give_back(&reading.origin, reading.body);
                }
                Err(error) if error.kind() == ErrorKind::InvalidData => return Err(error),
                Err(error) => {
                    cuts += 1;
                    let pause = self.client.backoff(cuts);
                    if cuts >= MAX_TRIES || !self.client.has_time(since, pause) {
                        return Err(error);
                    }
                    drop(reading);
                    self.client.pause(pause);
                }
            }
        }
    }
}

impl Drop for RemoteFile {
    fn drop(&mut self) {
        self.bodies.close(self.number);
    }
}

/// Asks for this version's digests, unless the server is busy with our requests.
fn digests(client: &Client, url: &Url, version: Option<&Version>) -> io::Result<Vec<Digest>> {
    let ask = Ask { fields: wanted(), takes_busy: true, ..Ask::new(Method::HEAD, url) };
    let Answer { head, body, url } = client.ask(&ask)?;
    client.give_back(url.origin(), body);
    if matches!(head.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        return Err(refusal(&head));
    }
    let is_same = content_length(&head)
        .is_none_or(|size| version.is_none_or(|version| version.is_like(&Version::of(&head, size))));
    Ok(if head.status == StatusCode::OK && is_same { of_answer(&head, true) } else { Vec::new() })
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads at most to the end of the part, never 0 bytes.
fn read(reading: &mut Reading, buffer: &mut [u8]) -> io::Result<usize> {
    let left = usize::try_from(reading.end - reading.at).unwrap_or(usize::MAX);
    let most = left.min(buffer.len());
    match reading.body.read(&mut buffer[..most])? {
        0 => Err(io::Error::new(ErrorKind::UnexpectedEof, "the server sent less than it had announced")),
        count => {
            reading.at += count as u64;
            Ok(count)
        }
    }
}

fn stale() -> io::Error {
    io::Error::new(ErrorKind::StaleNetworkFileHandle, "it changed on the server while it was read")
}

const NO_PART: &str = "the server refuses a part that the file has (416)";

const SKIPPED_AT_ONCE: usize = 256 << 10;

/// Doublings of the pause after a refusal: 4 s as usual. Then a place of the others may be free.
const LONGEST_CROWDED_PAUSE: u32 = 4;
