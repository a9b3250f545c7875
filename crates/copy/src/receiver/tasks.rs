//! The queue of the settle thread.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use haul_kept::sync::lock;

use super::in_order::InOrder;
use super::incoming::Incoming;

pub(super) enum Task {
    Checkpoint(Arc<Incoming>),
    /// Too much is at risk: the files with the most get checkpoints.
    Relieve,
    Publish(Arc<Incoming>),
    Lost(Arc<Incoming>, u32),
    InOrder(u64, InOrder),
}

/// The window of open items bounds it, with a few tasks each.
#[derive(Default)]
pub(super) struct Tasks {
    state: Mutex<State>,
    filled: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Task>,
    is_over: bool,
}

impl Tasks {
    pub(super) fn push(&self, task: Task) {
        lock(&self.state).waiting.push_back(task);
        self.filled.notify_one();
    }

    pub(super) fn next(&self) -> Option<Task> {
        let is_idle = |state: &mut State| state.waiting.is_empty() && !state.is_over;
        let mut state = self.filled.wait_while(lock(&self.state), is_idle).unwrap_or_else(PoisonError::into_inner);
        if state.is_over { None } else { state.waiting.pop_front() }
    }

    #[cfg(feature = "testing")]
    pub(super) fn try_next(&self) -> Option<Task> {
        lock(&self.state).waiting.pop_front()
    }

    /// Takes further chunks of a file that may be lost: one new journal does for all.
    pub(super) fn more_lost(&self, incoming: &Arc<Incoming>) -> Vec<u32> {
        let mut more = Vec::new();
        lock(&self.state).waiting.retain(|task| match task {
            Task::Lost(other, chunk) if Arc::ptr_eq(other, incoming) => {
                more.push(*chunk);
                false
            }
            _ => true,
        });
        more
    }

    pub(super) fn end(&self) {
        lock(&self.state).is_over = true;
        self.filled.notify_all();
    }
}
