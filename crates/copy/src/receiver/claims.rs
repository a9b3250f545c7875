//! Holds the claims on the chunks of one file.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// A lane has at most one claim.
#[derive(Default)]
pub(super) struct Claims(pub(super) Mutex<BTreeMap<u32, Arc<Claim>>>);

pub(super) struct Claim {
    /// The lane that may write, and earlier ones, whose data is void.
    pub(super) lanes: BTreeSet<u16>,
    /// Writers lock it for reading: a chunk past the page cache has several.
    ended: RwLock<bool>,
}

impl Claim {
    pub(super) fn new(lanes: BTreeSet<u16>) -> Self {
        Self { lanes, ended: RwLock::new(false) }
    }

    /// Returns once the begun writes are over.
    pub(super) fn end(&self) {
        *self.ended.write().unwrap_or_else(PoisonError::into_inner) = true;
    }

    pub(super) fn unless_ended<T>(&self, act: impl FnOnce() -> T) -> Option<T> {
        let ended = self.ended.read().unwrap_or_else(PoisonError::into_inner);
        (!*ended).then(act)
    }
}
