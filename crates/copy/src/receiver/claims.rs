//! The chunks of one file are claimed here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Each lane has at most one claim.
#[derive(Default)]
pub(super) struct Claims(pub(super) Mutex<BTreeMap<u32, Arc<Claim>>>);

pub(super) struct Claim {
    /// Holds the lane that has the claim, and those that had the chunk before: what they brought is void.
    pub(super) lanes: BTreeSet<u16>,
    /// Writers hold it for reading: a chunk that goes past the page cache has several.
    ended: RwLock<bool>,
}

impl Claim {
    pub(super) fn new(lanes: BTreeSet<u16>) -> Self {
        Self { lanes, ended: RwLock::new(false) }
    }

    /// Returns once the writes that have begun are over.
    pub(super) fn end(&self) {
        *self.ended.write().unwrap_or_else(PoisonError::into_inner) = true;
    }

    /// The claim does not end meanwhile.
    pub(super) fn unless_ended<T>(&self, act: impl FnOnce() -> T) -> Option<T> {
        let ended = self.ended.read().unwrap_or_else(PoisonError::into_inner);
        (!*ended).then(act)
    }
}
