//! Shares the read-ahead buffers among all lanes, and tells how large files are read.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use haul_job::Subject;

use haul_channel::convert;
use haul_channel::teller::Teller;
use haul_kept::sync::lock;

use super::limits::BLOCKS_AHEAD_OF_ALL;

pub(super) struct ReadAheadBudget {
    left: AtomicUsize,
    told: Mutex<Vec<String>>,
    teller: Teller,
}

impl ReadAheadBudget {
    pub(super) fn new(teller: Teller) -> Self {
        Self { left: AtomicUsize::new(BLOCKS_AHEAD_OF_ALL), told: Mutex::default(), teller }
    }

    pub(super) fn lease(&self, wanted: usize) -> usize {
        let take = |left: usize| Some(left.saturating_sub(wanted));
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        left.unwrap_or_else(|left| left).min(wanted)
    }

    pub(super) fn give_back(&self, blocks: usize) {
        self.left.fetch_add(blocks, Ordering::Relaxed);
    }

    /// Tells each way to read large files once, with its reason.
    pub(super) fn tell(&self, choice: &str, reason: &str) {
        let mut told = lock(&self.told);
        if told.iter().any(|known| known == choice) {
            return;
        }
        told.push(choice.to_owned());
        let (what, choice) = (Subject::Reading, choice.to_owned());
        self.teller.notice(convert::chose(what, choice, convert::bounded(reason)));
    }
}
