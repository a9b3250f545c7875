//! Sums of the source's server, for files whose finished draft is read once more before its name. Only where both roles run in
//! one process: then the draft lies on this host.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use haul_kept::sync::lock;
use haul_store::ServerSum;

/// The sums by file index. The sender enters one before the first chunk ends, and so before the file can be complete. The
/// outcome removes it: the window of open items bounds their number.
#[derive(Debug, Default)]
pub struct SumsToCompare {
    sums: Mutex<BTreeMap<u64, Arc<dyn ServerSum>>>,
    passing: PassingBy,
}

/// Counts what goes from server to server, of which the sender sees nothing.
#[derive(Debug, Default)]
pub(crate) struct PassingBy {
    signs: AtomicU64,
    bytes: AtomicU64,
}

impl PassingBy {
    /// A file has so many more bytes than a moment ago.
    pub(crate) fn adds(&self, bytes: u64) {
        self.signs.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A file with so many bytes has its outcome.
    pub(crate) fn ends(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn signs(&self) -> u64 {
        self.signs.load(Ordering::Relaxed)
    }

    /// The bytes of files without an outcome.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl SumsToCompare {
    pub(crate) fn enter(&self, index: u64, sum: Arc<dyn ServerSum>) {
        lock(&self.sums).entry(index).or_insert(sum);
    }

    pub(crate) fn open_sum(&self, index: u64) -> Option<Arc<dyn ServerSum>> {
        lock(&self.sums).get(&index).filter(|sum| sum.is_open()).cloned()
    }

    pub(crate) fn passing(&self) -> &PassingBy {
        &self.passing
    }

    pub(crate) fn forget(&self, index: u64) {
        lock(&self.sums).remove(&index);
    }
}
