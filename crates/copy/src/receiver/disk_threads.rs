//! Threads that wait for a disk, and with it for ever where it does not answer any more.

use std::sync::Mutex;
use std::thread::JoinHandle;

use haul_kept::sync::lock;

/// The threads of one kind of work.
#[derive(Default)]
pub(super) struct DiskThreads(Mutex<Vec<JoinHandle<()>>>);

impl DiskThreads {
    pub(super) fn add(&self, thread: JoinHandle<()>) {
        lock(&self.0).push(thread);
    }

    /// Waits for the end of the threads, unless `is_lost` says that their disk does not answer.
    pub(super) fn join(&self, is_lost: bool) {
        for thread in lock(&self.0).drain(..) {
            if !is_lost || thread.is_finished() {
                // The panic hook has reported a panic; the session ends by its timeout.
                let _ = thread.join();
            }
        }
    }
}
