//! Bounds the data at risk, of lanes and the settle thread together; lanes wait here.
//!
//! Otherwise the network would pile up data behind a slow flush, and a death would cost all of it.

use std::sync::{Condvar, Mutex, PoisonError};

use haul_engine::at_risk::AtRisk;

use haul_kept::sync::lock;

pub(super) struct Exposure {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    at_risk: AtRisk,
    told: bool,
    over: bool,
}

impl Exposure {
    /// The bytes at risk may exceed `interval_bytes` by what is then under way.
    pub(super) fn new(interval_bytes: u64) -> Self {
        let state = State { at_risk: AtRisk::new(interval_bytes), told: false, over: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    pub(super) fn change<T>(&self, enter: impl FnOnce(&mut AtRisk) -> T) -> T {
        let mut state = lock(&self.state);
        let result = enter(&mut state.at_risk);
        if !state.at_risk.is_full() {
            self.changed.notify_all();
        }
        result
    }

    /// Returns true for a due checkpoint that the settle thread does not know; the caller tells it.
    pub(super) fn becomes_due(&self) -> bool {
        let mut state = lock(&self.state);
        state.at_risk.is_due() && !std::mem::replace(&mut state.told, true)
    }

    /// Returns false when the settle thread must be told of the next one.
    pub(super) fn is_still_due(&self) -> bool {
        let mut state = lock(&self.state);
        state.told = state.at_risk.is_due();
        state.told
    }

    pub(super) fn is_full(&self) -> bool {
        let state = lock(&self.state);
        state.at_risk.is_full() && !state.over
    }

    pub(super) fn await_room(&self) {
        let state = lock(&self.state);
        let waited = self.changed.wait_while(state, |state| state.at_risk.is_full() && !state.over);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn end(&self) {
        lock(&self.state).over = true;
        self.changed.notify_all();
    }
}
