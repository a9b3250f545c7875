//! How many entries `--delete` may take, and whether it may take any.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub(super) struct DeletionLimit {
    most: u64,
    taken: AtomicU64,
    /// A sender that could not list all sources sets it.
    nothing: AtomicBool,
}

impl DeletionLimit {
    /// `most` is `--max-delete`.
    pub(super) fn new(most: Option<u64>) -> Self {
        Self { most: most.unwrap_or(u64::MAX), taken: AtomicU64::new(0), nothing: AtomicBool::new(false) }
    }

    /// Counts one more entry. Returns false if it must stay.
    pub(super) fn take(&self) -> bool {
        self.taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| (taken < self.most).then_some(taken + 1))
            .is_ok()
    }

    pub(super) fn forbid(&self) {
        self.nothing.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_forbidden(&self) -> bool {
        self.nothing.load(Ordering::Relaxed)
    }
}
