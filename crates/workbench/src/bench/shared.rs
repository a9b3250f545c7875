//! The state of a run's threads: start, end, and bytes so far.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Condvar, Mutex, PoisonError};

pub(super) struct Shared {
    pub stop: AtomicBool,
    pub received_bytes: AtomicU64,
    pub start: Start,
}

/// Holds threads until all are ready and the clock runs.
#[derive(Default)]
pub(super) struct Start {
    state: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    ready: usize,
    begun: bool,
}

impl Start {
    pub fn await_start(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.ready += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| !state.begun));
    }

    pub fn await_ready(&self, threads: usize) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_while(state, |state| state.ready < threads));
    }

    pub fn begin(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).begun = true;
        self.changed.notify_all();
    }
}
