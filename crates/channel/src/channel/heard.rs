//! Notes when the peer of a control channel was last heard.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(super) struct Heard {
    start: Instant,
    last_ms: AtomicU64,
    /// While the reading thread waits for the session's loop, silence does not count.
    waits: AtomicBool,
}

impl Heard {
    pub(super) fn new() -> Self {
        Self { start: Instant::now(), last_ms: AtomicU64::new(0), waits: AtomicBool::new(false) }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn touch(&self) {
        self.last_ms.store(self.now_ms(), Ordering::Relaxed);
    }

    pub(super) fn begin_wait(&self) {
        self.waits.store(true, Ordering::Release);
    }

    pub(super) fn end_wait(&self) {
        self.touch();
        self.waits.store(false, Ordering::Release);
    }

    pub(super) fn waits(&self) -> bool {
        self.waits.load(Ordering::Acquire)
    }

    pub(super) fn silence(&self) -> Duration {
        if self.waits() {
            return Duration::ZERO;
        }
        Duration::from_millis(self.now_ms().saturating_sub(self.last_ms.load(Ordering::Relaxed)))
    }
}
