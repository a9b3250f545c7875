//! Holds how much a sender will send.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The bytes of files found so far: never too many.
#[derive(Clone, Debug, Default)]
pub struct Foreseen(pub Arc<AtomicU64>);

impl Foreseen {
    /// The bytes to send; 0: unknown.
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
