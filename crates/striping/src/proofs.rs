//! The leader of a sending end tells the hashes of what it has read for its movers.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use haul_engine::integrity::Hash;
use haul_kept::sync::lock;

/// The hashes of a file, one a chunk.
#[derive(Default)]
pub struct Proofs {
    hashes: Mutex<BTreeMap<u32, Hash>>,
    told: Condvar,
}

impl Proofs {
    /// Adds a read chunk's hash.
    pub fn add(&self, chunk: u32, hash: Hash) {
        lock(&self.hashes).insert(chunk, hash);
        self.told.notify_all();
    }

    /// Waits up to `moment` for a hash.
    pub fn await_one(&self, chunk: u32, moment: Duration) -> Option<Hash> {
        let is_missing = |hashes: &mut BTreeMap<u32, Hash>| !hashes.contains_key(&chunk);
        let waited = self.told.wait_timeout_while(lock(&self.hashes), moment, is_missing);
        waited.unwrap_or_else(PoisonError::into_inner).0.get(&chunk).copied()
    }

    /// Forgets a verified chunk.
    pub fn forget(&self, chunk: u32) {
        lock(&self.hashes).remove(&chunk);
    }
}
