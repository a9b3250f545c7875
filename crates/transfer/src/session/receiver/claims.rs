//! The claims on the chunks of one file.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// The claims on the chunks of one file; at most one for each lane.
#[derive(Default)]
pub(super) struct Claims(pub(super) Mutex<BTreeMap<u32, Arc<Claim>>>);

/// One claim.
pub(super) struct Claim {
    /// The lane that has it, and those that had the chunk before: what they brought is void. Each at most once.
    pub(super) lanes: BTreeSet<u16>,
    /// Held for reading by whoever writes: a chunk that goes past the page cache has several writers.
    ended: RwLock<bool>,
}

impl Claim {
    pub(super) fn new(lanes: BTreeSet<u16>) -> Self {
        Self { lanes, ended: RwLock::new(false) }
    }

    /// Ends it, once the writes that have begun are over.
    pub(super) fn end(&self) {
        *self.ended.write().unwrap_or_else(PoisonError::into_inner) = true;
    }

    /// Does this unless the claim has ended. It does not end meanwhile.
    pub(super) fn unless_ended<T>(&self, act: impl FnOnce() -> T) -> Option<T> {
        let ended = self.ended.read().unwrap_or_else(PoisonError::into_inner);
        (!*ended).then(act)
    }
}
