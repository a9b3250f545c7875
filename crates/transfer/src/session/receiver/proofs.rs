//! What the leader of a sending end has read of a file for its movers.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use haul_engine::integrity::Hash;

use crate::sync::lock;

/// What the leader has read of a file for its movers: at most one hash for each chunk.
#[derive(Default)]
pub(super) struct Proofs {
    hashes: Mutex<BTreeMap<u32, Hash>>,
    told: Condvar,
}

impl Proofs {
    pub(super) fn add(&self, chunk: u32, hash: Hash) {
        lock(&self.hashes).insert(chunk, hash);
        self.told.notify_all();
    }

    /// The hash of a chunk, if it is told within a moment.
    pub(super) fn await_one(&self, chunk: u32, moment: Duration) -> Option<Hash> {
        let is_missing = |hashes: &mut BTreeMap<u32, Hash>| !hashes.contains_key(&chunk);
        let waited = self.told.wait_timeout_while(lock(&self.hashes), moment, is_missing);
        waited.unwrap_or_else(PoisonError::into_inner).0.get(&chunk).copied()
    }

    /// It has arrived.
    pub(super) fn forget(&self, chunk: u32) {
        lock(&self.hashes).remove(&chunk);
    }
}
