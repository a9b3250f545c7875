//! Files of one server that are read, and what is known of them.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use haul_foreign::Sums;
use haul_store::Access;

use crate::codec::listing::Facts;
use crate::limits::JUMP_BYTES_PER_US;
use crate::server::Server;

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
    is_tried: Mutex<bool>,
    are_missing: AtomicBool,
}

impl Served {
    pub(crate) fn new(server: Arc<Server>) -> Arc<Served> {
        Arc::new(Served { server, sums: Arc::default(), notes: Notes::default(), parts: Parts::default() })
    }

    /// Finds out whether the server begins where it is asked to, before any of what it sends counts: a server that takes REST, and begins at
    /// the start all the same, would give wrong data. The last byte of a file tells.
    pub(crate) fn sends_parts(&self, path: &[u8], size: u64) -> io::Result<bool> {
        let mut is_tried = self.parts.is_tried.lock().unwrap_or_else(PoisonError::into_inner);
        if !*is_tried && size >= 2 {
            let begun = self.server.download(path, size - 1);
            let mut download = match begun {
                // A server may refuse RETR after a REST that it does not know.
                Err(error) if error.kind() == ErrorKind::Unsupported => {
                    self.parts.are_missing.store(true, Ordering::Relaxed);
                    *is_tried = true;
                    return Ok(false);
                }
                begun => begun?,
            };
            let mut sends = download.at == size - 1;
            if sends {
                let mut block = [0; 16];
                let (mut count, mut read) = (0, 1);
                while read > 0 && count <= 1 {
                    read = download.read(&mut block)?;
                    count += read;
                }
                sends = count == 1;
            }
            self.parts.are_missing.store(!sends, Ordering::Relaxed);
            *is_tried = true;
        }
        Ok(!self.parts.are_missing.load(Ordering::Relaxed))
    }

    pub(super) fn access(&self) -> Access {
        match self.parts.are_missing.load(Ordering::Relaxed) {
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
