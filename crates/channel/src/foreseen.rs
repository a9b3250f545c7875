//! Holds how much a sender will send.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The bytes of files found so far: never too many.
#[derive(Clone, Debug, Default)]
pub struct Foreseen(pub Arc<AtomicU64>);

impl Foreseen {
    /// Bytes that are known.
    pub fn of(bytes: u64) -> Self {
        Self(Arc::new(AtomicU64::new(bytes)))
    }

    /// Adds what a walk has found by now.
    pub fn at_least(&self, bytes: u64) {
        self.0.fetch_max(bytes, Ordering::Relaxed);
    }

    /// The bytes to send; 0: unknown.
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
