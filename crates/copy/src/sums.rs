//! Sums of the source's server, for files whose finished draft is read once more before its name. Only where both roles run in
//! one process: then the draft lies on this host.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use haul_kept::sync::lock;
use haul_store::ServerSum;

/// The sums by file index. The sender enters one before the first chunk ends, and so before the file can be complete. The
/// outcome removes it: the window of open items bounds their number.
#[derive(Debug, Default)]
pub struct SumsToCompare(Mutex<BTreeMap<u64, Arc<dyn ServerSum>>>);

impl SumsToCompare {
    pub(crate) fn enter(&self, index: u64, sum: Arc<dyn ServerSum>) {
        lock(&self.0).entry(index).or_insert(sum);
    }

    pub(crate) fn open_sum(&self, index: u64) -> Option<Arc<dyn ServerSum>> {
        lock(&self.0).get(&index).filter(|sum| sum.is_open()).cloned()
    }

    pub(crate) fn forget(&self, index: u64) {
        lock(&self.0).remove(&index);
    }
}
