//! A file at a server, read by transfers that each begin at a place of it.
//!
//! ```text
//! read at a place -> the transfer that stands there, or a new one from there on (REST, RETR)
//!                 -> bytes, and the transfer waits for the next read behind them
//!                 -> at the end of the file: the server has said that all of it was sent (226)
//! ```
//! Size and time that were found first are compared with those of now, so that data of two versions is never mixed.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Instant;

use haul_foreign::FileSum;
use haul_store::{FileToRead, ServerSum, Stat};

use super::served::Served;
use crate::codec::listing::{EntryType, Facts};
use crate::entry;
use crate::limits::{CONFIRM_AFTER, MAX_SUMMED_BYTES, MAX_TRIES, TURN_PATIENCE, WORTH_PARTS_BYTES};
use crate::refusal::{invalid, missing};
use crate::transfer::Download;

/// A file, open for reading.
#[derive(Debug)]
pub(crate) struct FtpFile {
    served: Arc<Served>,
    number: u64,
    path: Vec<u8>,
    /// The version that was found first.
    facts: Facts,
    size: u64,
    /// When the server last told this version, or has sent all of it by one transfer.
    confirmed: Mutex<Option<Instant>>,
    sum: Arc<FileSum>,
    /// The sum is being asked for while data still comes.
    asks_for_sum: AtomicBool,
    /// How far each reader goes on.
    runs: Mutex<HashMap<ThreadId, (u64, u64)>>,
}

static FILES: AtomicU64 = AtomicU64::new(0);

impl FtpFile {
    /// Opens a regular file. One that the walk has seen is not asked for again.
    pub(crate) fn open(served: &Arc<Served>, path: Vec<u8>) -> io::Result<FtpFile> {
        let noted = served.notes.of(&path);
        let is_noted = noted.is_some();
        let facts = match noted {
            Some(facts) => facts,
            None => served.server.look(&path)?.ok_or_else(missing)?,
        };
        let size = match (&facts.kind, facts.size) {
            (EntryType::File, Some(size)) => size,
            (EntryType::File, None) => return Err(invalid("the server does not say how long it is")),
            _ => return Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file")),
        };
        // A file that one transfer brings is of one version, however long ago it was listed.
        let is_fresh = !is_noted || size <= WORTH_PARTS_BYTES;
        let ask = {
            let (served, path) = (Arc::clone(served), path.clone());
            move || Ok(served.server.sum(&path)?.into_iter().collect())
        };
        let sum = FileSum::new(Arc::clone(&served.sums), Vec::new(), ask);
        let sum = match served.server.sum_kind() {
            Some(kind) => sum.of_kind(kind),
            None => sum,
        };
        Ok(FtpFile {
            served: Arc::clone(served),
            number: FILES.fetch_add(1, Ordering::Relaxed),
            sum: Arc::new(sum),
            asks_for_sum: AtomicBool::new(false),
            path,
            facts,
            size,
            confirmed: Mutex::new(is_fresh.then(Instant::now)),
            runs: Mutex::default(),
        })
    }

    fn confirmed(&self) -> MutexGuard<'_, Option<Instant>> {
        self.confirmed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_sum(&self) -> bool {
        self.size <= MAX_SUMMED_BYTES && self.served.server.sum_kind().is_some()
    }

    /// Asks for the bytes from here to the end of this reader's run, in blocks.
    fn fetch(&self, at: u64) -> io::Result<Download> {
        let run = {
            let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
            runs.get(&std::thread::current().id()).copied()
        };
        let end = run.filter(|(start, end)| (*start..*end).contains(&at)).map_or(self.size, |(_, end)| end);
        // What goes to the end of the file from its beginning shows whether it ends there.
        let is_whole = at == 0 && end >= self.size;
        if is_whole && let Some(download) = self.served.server.fetch_from_all(&self.path, self.size)? {
            return Ok(download);
        }
        self.served.server.fetch(&self.path, at, (!is_whole).then_some(end.min(self.size)))
    }

    fn open_at(&self, at: u64) -> io::Result<Download> {
        if self.served.server.sends_blocks() {
            if self.size > WORTH_PARTS_BYTES {
                *self.confirmed() = None;
            }
            match self.fetch(at) {
                Err(error) if error.kind() == ErrorKind::Unsupported => self.served.server.give_up_blocks(),
                begun => return begun,
            }
        }
        let server = &self.served.server;
        let is_believed = at == 0 || (server.promises_parts() && !server.pool.is_limited());
        let begins_at = if is_believed || self.served.sends_parts(&self.path, self.size)? { at } else { 0 };
        if self.size > WORTH_PARTS_BYTES || at > 0 {
            // The name may lead to another version by now: the next look tells.
            *self.confirmed() = None;
        }
        let mut download = server.download(&self.path, begins_at)?;
        // The transfer is on its way while this is found out.
        let awaited = if begins_at > 0 { self.served.awaits_parts() } else { Some(true) };
        if awaited != Some(true) {
            // Where the server allows no other connection, this one finds it out.
            drop(download);
            let sends_parts = self.served.sends_parts(&self.path, self.size)?;
            download = server.download(&self.path, if sends_parts { at } else { 0 })?;
        }
        // A server without REST sends all of it: what stands before is read and left.
        let mut block = vec![0; if download.at < at { SKIPPED_AT_ONCE } else { 0 }];
        while download.at < at {
            let most = usize::try_from(at - download.at).unwrap_or(usize::MAX).min(block.len());
            if download.read(&mut block[..most])? == 0 {
                return Err(stale());
            }
        }
        Ok(download)
    }

    fn read_from(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let wanted = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX).min(buffer.len());
        let (mut done, mut cuts, since) = (0, 0, Instant::now());
        let pool = &self.served.server.pool;
        while done < wanted {
            let at = offset + done as u64;
            let (mut brought, mut is_in_blocks, mut is_in_stripes) = (0, false, false);
            let read = (|| {
                let mut download = match pool.resume(self.number, at) {
                    Some(download) => download,
                    None => {
                        pool.leave();
                        self.open_at(at)?
                    }
                };
                (is_in_blocks, is_in_stripes) = (download.is_in_blocks(), download.is_in_stripes());
                while done + brought < wanted && download.end != Some(download.at) {
                    match download.read(&mut buffer[done + brought..wanted])? {
                        // The server has said that this is all.
                        0 => return Err(stale()),
                        count => brought += count,
                    }
                }
                match download.at < download.end.unwrap_or(self.size) {
                    true => pool.park(self.number, download.at, download),
                    false => self.end(download)?,
                }
                Ok(())
            })();
            match read {
                Ok(()) => done += brought,
                // It sends in a way that was not asked for: from here on it is read as any server of FTP.
                Err(error) if is_in_blocks && error.kind() == ErrorKind::Unsupported => {
                    done += brought;
                    match is_in_stripes {
                        true => self.served.server.give_up_stripes(&error),
                        false => self.served.server.give_up_blocks(),
                    }
                }
                Err(error) if is_final(&error) => return Err(error),
                Err(error) => {
                    // Bytes in front of a cut are right: TCP keeps their order, and the version is compared.
                    let has_end = offset + (done + brought) as u64 == self.size;
                    done += if has_end { 0 } else { brought };
                    cuts = if brought > 0 && !has_end { 1 } else { cuts + 1 };
                    if cuts >= MAX_TRIES || (brought == 0 && since.elapsed() > TURN_PATIENCE) {
                        return Err(error);
                    }
                    pool.pause(pool.backoff(cuts));
                }
            }
        }
        Ok(done)
    }

    /// From the middle of a long file on its sum is asked for: the server computes it while the rest comes.
    fn ask_for_sum(&self) {
        let is_unwise = self.size <= WORTH_PARTS_BYTES || self.served.server.pool.is_limited();
        if is_unwise || self.asks_for_sum.load(Ordering::Relaxed) || !self.sum.is_due(self.size) {
            return;
        }
        if !self.asks_for_sum.swap(true, Ordering::Relaxed) {
            let sum = Arc::clone(&self.sum);
            // Without the thread it is asked for at the end.
            let _ = std::thread::Builder::new().name("ftp-sum".into()).spawn(move || sum.ask_ahead());
        }
    }

    /// The last byte is there. The file ends here only if the server says so, in both ways.
    fn end(&self, mut download: Download) -> io::Result<()> {
        let began_at_start = download.began_at == 0 && download.end.is_none();
        if download.read(&mut [0])? > 0 {
            return Err(stale());
        }
        if began_at_start {
            *self.confirmed() = Some(Instant::now());
        }
        Ok(())
    }
}

/// Such an error is the same the next time.
fn is_final(error: &io::Error) -> bool {
    error.raw_os_error().is_some()
        || matches!(
            error.kind(),
            ErrorKind::InvalidData
                | ErrorKind::InvalidInput
                | ErrorKind::NotFound
                | ErrorKind::Other
                | ErrorKind::PermissionDenied
                | ErrorKind::StaleNetworkFileHandle
                | ErrorKind::Unsupported
        )
}

impl FileToRead for FtpFile {
    fn stat(&self) -> io::Result<Stat> {
        let begun = self.served.server.begun;
        let stat = entry::stat(&self.path, &self.facts, begun);
        {
            let mut confirmed = self.confirmed();
            if confirmed.is_some_and(|confirmed| confirmed.elapsed() < CONFIRM_AFTER) {
                return Ok(stat);
            }
            // One reader asks for all.
            *confirmed = Some(Instant::now());
        }
        let now = self.served.server.look_at_files(std::slice::from_ref(&self.path)).inspect_err(|_| {
            *self.confirmed() = None;
        })?;
        let now = match now.into_iter().next().flatten() {
            Some(now) => now,
            // It told the size by its list alone.
            None if self.served.server.has_no_sizes() => return Ok(stat),
            None => return Err(missing()),
        };
        let is_exact = self.facts.modified.is_some_and(|modified| modified.is_exact);
        let now =
            Facts { mode: self.facts.mode, modified: if is_exact { now.modified } else { self.facts.modified }, ..now };
        Ok(entry::stat(&self.path, &now, begun))
    }

    fn reads_on(&self, start: u64, end: u64) {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.insert(std::thread::current().id(), (start, end));
    }

    fn server_sum(&self) -> Option<Arc<dyn ServerSum>> {
        self.has_sum().then(|| Arc::clone(&self.sum) as Arc<dyn ServerSum>)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let count = self.read_from(buffer, offset)?;
        if self.has_sum() {
            self.sum.took(&buffer[..count], offset, self.size, self.size <= WORTH_PARTS_BYTES)?;
            self.ask_for_sum();
        }
        Ok(count)
    }
}

impl Drop for FtpFile {
    fn drop(&mut self) {
        self.served.server.pool.close(self.number);
    }
}

/// The server has another version than the one that was begun with, or has told a wrong size.
fn stale() -> io::Error {
    io::Error::new(
        ErrorKind::StaleNetworkFileHandle,
        "the server sent more or less of it than its size: it changed while it was read, or the server is wrong about the size",
    )
}

const SKIPPED_AT_ONCE: usize = 256 << 10;
