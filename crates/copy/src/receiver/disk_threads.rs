//! Runs threads that wait for a disk, for ever if it no longer answers.

use std::sync::Mutex;
use std::thread::JoinHandle;

use haul_kept::sync::lock;

#[derive(Default)]
pub(super) struct DiskThreads(Mutex<Vec<JoinHandle<()>>>);

impl DiskThreads {
    pub(super) fn add(&self, thread: JoinHandle<()>) {
        lock(&self.0).push(thread);
    }

    /// Waits for the threads, unless their disk is lost.
    pub(super) fn join(&self, is_lost: bool) {
        for thread in lock(&self.0).drain(..) {
            if !is_lost || thread.is_finished() {
                // The panic hook has reported a panic; the session ends by its timeout.
                let _ = thread.join();
            }
        }
    }
}
