//! How much a sender will send.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many bytes there are to send, as far as files were found by now: never too much.
#[derive(Clone, Debug, Default)]
pub(crate) struct Foreseen(pub(super) Arc<AtomicU64>);

impl Foreseen {
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
