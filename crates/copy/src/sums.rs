//! Sums that the server of a source gave, for files whose finished draft is read once more before it gets its name. Only where both
//! roles run in one process: then the draft lies on this host.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use haul_kept::sync::lock;
use haul_store::ServerSum;

/// The sums by the index of their file. The sender enters them before it ends the first chunk of a file, and so before the file can be
/// complete. A file that has its outcome has none: the window of open items bounds their number.
#[derive(Debug, Default)]
pub struct SumsToCompare(Mutex<BTreeMap<u64, Arc<dyn ServerSum>>>);

impl SumsToCompare {
    /// A chunk of this file was read.
    pub(crate) fn enter(&self, index: u64, sum: Arc<dyn ServerSum>) {
        lock(&self.0).entry(index).or_insert(sum);
    }

    /// The sum that a complete draft has to have.
    pub(crate) fn open_sum(&self, index: u64) -> Option<Arc<dyn ServerSum>> {
        lock(&self.0).get(&index).filter(|sum| sum.is_open()).cloned()
    }

    /// The file has its outcome.
    pub(crate) fn forget(&self, index: u64) {
        lock(&self.0).remove(&index);
    }
}
