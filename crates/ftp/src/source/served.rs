//! Files of one server that are read, and what is known of them.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use haul_foreign::Sums;
use haul_store::Access;

use crate::codec::listing::Facts;
use crate::limits::{JUMP_BYTES_PER_US, LIMITS_LOOKED_AT};
use crate::server::{Matter, Server};

/// Files of one server that are read.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) server: Arc<Server>,
    pub(crate) sums: Arc<Sums>,
    pub(crate) notes: Notes,
    parts: Parts,
}

/// Whether the server begins at a byte that is asked for. It is tried once.
#[derive(Debug, Default)]
struct Parts {
    verdict: Mutex<Verdict>,
    reached: Condvar,
    are_missing: AtomicBool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Verdict {
    #[default]
    Untried,
    /// A thread tries it.
    Trying,
    Reached,
}

impl Parts {
    fn lock(&self) -> MutexGuard<'_, Verdict> {
        self.verdict.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reach(&self, verdict: Verdict) {
        *self.lock() = verdict;
        self.reached.notify_all();
    }
}

impl Served {
    pub(crate) fn new(server: Arc<Server>) -> Arc<Served> {
        Arc::new(Served { server, sums: Arc::default(), notes: Notes::default(), parts: Parts::default() })
    }

    /// Finds out whether the server sends parts, with a file of this size. A server that promises it is believed until that is known, so that
    /// nobody waits; but no data that begins inside a file counts before (see [`Served::sends_parts`]). The answer is told.
    pub(super) fn try_parts(self: &Arc<Self>, path: &[u8], size: u64) -> io::Result<()> {
        if self.server.sends_blocks() {
            return Ok(());
        }
        if !self.server.promises_parts() {
            return self.sends_parts(path, size).map(drop);
        }
        {
            let mut verdict = self.parts.lock();
            if *verdict != Verdict::Untried || size < 2 {
                return Ok(());
            }
            *verdict = Verdict::Trying;
        }
        let (served, path) = (Arc::clone(self), path.to_vec());
        // Another error shows again, in words, where parts are needed.
        let tries = move || drop(served.find_out(&path, size));
        if std::thread::Builder::new().name("ftp-parts".into()).spawn(tries).is_err() {
            self.parts.reach(Verdict::Untried);
        }
        Ok(())
    }

    /// Waits for the answer of a thread that tries it, as long as others may have a connection. `None`: this one has to be given up first.
    pub(super) fn awaits_parts(&self) -> Option<bool> {
        let mut verdict = self.parts.lock();
        while *verdict == Verdict::Trying && !self.server.pool.is_limited() {
            let waited = self.parts.reached.wait_timeout(verdict, LIMITS_LOOKED_AT);
            verdict = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        (*verdict == Verdict::Reached).then(|| !self.parts.are_missing.load(Ordering::Relaxed))
    }

    /// Finds out whether the server begins where it is asked to, before any of what it sends counts: a server that takes REST, and begins at
    /// the start all the same, would give wrong data. The last byte of a file tells.
    pub(crate) fn sends_parts(&self, path: &[u8], size: u64) -> io::Result<bool> {
        // Each block says where it belongs.
        if self.server.sends_blocks() {
            return Ok(true);
        }
        let verdict = self.parts.lock();
        // Each step of a try has its deadline.
        let trying = |verdict: &mut Verdict| *verdict == Verdict::Trying;
        let mut verdict = self.parts.reached.wait_while(verdict, trying).unwrap_or_else(PoisonError::into_inner);
        if *verdict == Verdict::Untried && size >= 2 {
            *verdict = Verdict::Trying;
            drop(verdict);
            return self.find_out(path, size);
        }
        Ok(!self.parts.are_missing.load(Ordering::Relaxed))
    }

    /// The one thread that tries it.
    fn find_out(&self, path: &[u8], size: u64) -> io::Result<bool> {
        let sends = self.sends_last_byte(path, size);
        self.parts.are_missing.store(matches!(sends, Ok(false)), Ordering::Relaxed);
        self.parts.reach(if sends.is_ok() { Verdict::Reached } else { Verdict::Untried });
        if matches!(sends, Ok(false)) {
            self.server.tell(Matter::Parts);
        }
        sends
    }

    fn sends_last_byte(&self, path: &[u8], size: u64) -> io::Result<bool> {
        let mut download = match self.server.download_end(path, size - 1) {
            // A server may refuse RETR after a REST that it does not know.
            Err(error) if error.kind() == ErrorKind::Unsupported => return Ok(false),
            begun => begun?,
        };
        if download.at != size - 1 {
            return Ok(false);
        }
        let mut block = [0; 16];
        let (mut count, mut read) = (0, 1);
        while read > 0 && count <= 1 {
            read = download.read(&mut block)?;
            count += read;
        }
        Ok(count == 1)
    }

    pub(super) fn access(&self) -> Access {
        match self.parts.are_missing.load(Ordering::Relaxed) || self.server.is_striped() {
            true => Access::Sequential,
            false => Access::Runs { jump_bytes: u64::from(self.server.rtt_us()) * JUMP_BYTES_PER_US },
        }
    }
}

/// What the walk saw of files, for when they are opened. The file of a note that had to go is asked for once more.
#[derive(Debug, Default)]
pub(crate) struct Notes(Mutex<HashMap<Vec<u8>, Facts>>);

impl Notes {
    pub(crate) fn add(&self, path: &[u8], facts: &Facts) {
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if notes.len() >= MAX_NOTES {
            notes.clear();
        }
        notes.insert(path.to_vec(), facts.clone());
    }

    pub(crate) fn of(&self, path: &[u8]) -> Option<Facts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned()
    }
}

/// Files that are noted at once: as many as a session has open items of, for the most part. A note takes about 200 bytes.
const MAX_NOTES: usize = 16 << 10;
