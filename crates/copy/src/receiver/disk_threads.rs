//! Runs threads that wait for a disk, for ever if it no longer answers.

use std::io;
use std::sync::{Mutex, OnceLock};
use std::thread::JoinHandle;

use haul_kept::sync::lock;

#[derive(Default)]
pub(super) struct DiskThreads {
    are_there: OnceLock<bool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl DiskThreads {
    /// The first call starts the threads; others wait for it. Returns false, now and later, if not one could start: then nothing
    /// may be queued for them. Fewer threads only take longer.
    pub(super) fn start_once(&self, count: usize, spawn: impl Fn(usize) -> io::Result<JoinHandle<()>>) -> bool {
        *self.are_there.get_or_init(|| {
            let started = (0..count).map_while(|number| spawn(number).ok()).map(|thread| self.add(thread)).count();
            started > 0
        })
    }

    pub(super) fn add(&self, thread: JoinHandle<()>) {
        lock(&self.threads).push(thread);
    }

    /// Waits for the threads, unless their disk is lost.
    pub(super) fn join(&self, is_lost: bool) {
        for thread in lock(&self.threads).drain(..) {
            if !is_lost || thread.is_finished() {
                // The panic hook has reported a panic; the session ends by its timeout.
                let _ = thread.join();
            }
        }
    }
}
