//! The transfers that write files of a target in blocks. A file has as many as there are threads that write it at the same time.
//!
//! ```text
//! a thread that writes -> an idle transfer of the file | a new one | the end of an idle one of another file, and a new one | a wait
//! ```

use std::io::{self, ErrorKind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::limits::UPLOAD_PATIENCE;
use crate::server::Server;
use crate::transfer::BlockUpload;

/// The first error of a file is that of all that follows.
#[derive(Debug, Default)]
pub(super) struct Fate(Mutex<Option<(ErrorKind, String)>>);

impl Fate {
    pub(super) fn check(&self) -> io::Result<()> {
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some((kind, why)) => Err(io::Error::new(*kind, why.clone())),
            None => Ok(()),
        }
    }

    pub(super) fn enter(&self, error: io::Error) -> io::Error {
        let mut fate = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        fate.get_or_insert((error.kind(), error.to_string()));
        error
    }
}

/// Transfers of all files that nobody writes to at the moment.
#[derive(Debug, Default)]
pub(super) struct Uploads {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<Idle>,
    /// The files of transfers that end, because their connection is needed for another file.
    ending: Vec<(u64, u64)>,
}

#[derive(Debug)]
struct Idle {
    file: (u64, u64),
    fate: Arc<Fate>,
    upload: BlockUpload,
}

impl Uploads {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A transfer of this file, for one block.
    pub(super) fn take(&self, server: &Server, file: (u64, u64), path: &[u8]) -> io::Result<BlockUpload> {
        let begun = Instant::now();
        loop {
            if let Some(upload) = self.take_idle(file) {
                return Ok(upload);
            }
            if let Some(upload) = server.try_store(path)? {
                return Ok(upload);
            }
            if self.end_another() {
                continue;
            }
            if begun.elapsed() > UPLOAD_PATIENCE {
                let why = "the server allows no further connection, and the others are in use";
                return Err(io::Error::new(ErrorKind::TimedOut, why));
            }
            drop(self.changed.wait_timeout_while(self.lock(), LOOKS_EVERY, |state| state.idle.is_empty()));
        }
    }

    fn take_idle(&self, file: (u64, u64)) -> Option<BlockUpload> {
        let mut state = self.lock();
        let at = state.idle.iter().position(|idle| idle.file == file)?;
        Some(state.idle.remove(at).upload)
    }

    /// Ends the transfer that nobody has written to for the longest time. False: there is none.
    fn end_another(&self) -> bool {
        let mut other = {
            let mut state = self.lock();
            if state.idle.is_empty() {
                return false;
            }
            let other = state.idle.remove(0);
            state.ending.push(other.file);
            other
        };
        end_all(&other.fate, std::slice::from_mut(&mut other.upload));
        let mut state = self.lock();
        if let Some(at) = state.ending.iter().position(|file| *file == other.file) {
            state.ending.swap_remove(at);
        }
        drop(state);
        self.changed.notify_all();
        true
    }

    pub(super) fn give_back(&self, file: (u64, u64), fate: &Arc<Fate>, upload: BlockUpload) {
        self.lock().idle.push(Idle { file, fate: Arc::clone(fate), upload });
        self.changed.notify_all();
    }

    /// Ends the transfers of a file: the server has confirmed all that was written to it before.
    pub(super) fn end(&self, file: (u64, u64), fate: &Fate) -> io::Result<()> {
        end_all(fate, &mut self.all_of(file));
        // Each of them ends: its connection has a limit for silence.
        drop(self.changed.wait_while(self.lock(), |state| state.ending.contains(&file)));
        fate.check()
    }

    /// Breaks the transfers of a file off.
    pub(super) fn drop_all(&self, file: (u64, u64)) {
        drop(self.all_of(file));
    }

    fn all_of(&self, file: (u64, u64)) -> Vec<BlockUpload> {
        self.lock().idle.extract_if(.., |idle| idle.file == file).map(|idle| idle.upload).collect()
    }
}

/// Says to all of them that this was all, and then waits for all.
fn end_all(fate: &Fate, uploads: &mut [BlockUpload]) {
    let ended: Vec<bool> =
        uploads.iter_mut().map(|upload| upload.end().map_err(|error| fate.enter(error)).is_ok()).collect();
    for (upload, is_ended) in uploads.iter_mut().zip(ended) {
        if is_ended {
            let _ = upload.confirm().map_err(|error| fate.enter(error));
        }
    }
}

/// A connection that a question has given back is not announced here.
const LOOKS_EVERY: Duration = Duration::from_millis(200);
