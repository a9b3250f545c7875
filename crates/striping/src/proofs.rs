//! The leader of a sending end tells the hashes of what it has read for its movers.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use haul_engine::integrity::Hash;
use haul_kept::sync::lock;

/// The hashes of the chunks of a file, at most one each.
#[derive(Default)]
pub struct Proofs {
    hashes: Mutex<BTreeMap<u32, Hash>>,
    told: Condvar,
}

impl Proofs {
    /// The leader has read this chunk.
    pub fn add(&self, chunk: u32, hash: Hash) {
        lock(&self.hashes).insert(chunk, hash);
        self.told.notify_all();
    }

    /// Returns the hash of a chunk, if it is told within a moment.
    pub fn await_one(&self, chunk: u32, moment: Duration) -> Option<Hash> {
        let is_missing = |hashes: &mut BTreeMap<u32, Hash>| !hashes.contains_key(&chunk);
        let waited = self.told.wait_timeout_while(lock(&self.hashes), moment, is_missing);
        waited.unwrap_or_else(PoisonError::into_inner).0.get(&chunk).copied()
    }

    /// The chunk is verified.
    pub fn forget(&self, chunk: u32) {
        lock(&self.hashes).remove(&chunk);
    }
}
