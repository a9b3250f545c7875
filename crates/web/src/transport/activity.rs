//! What happens on a connection, so that an idle one can be told from one that works.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Shared by a connection and those who answer on it. All run in one thread at a time, so the order of the single
/// marks does not matter.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// Requests whose answers are not yet given out.
    in_flight: AtomicUsize,
    /// Something was written after the last flush.
    is_unflushed: AtomicBool,
    /// Something was read or written since the last look.
    is_touched: AtomicBool,
    /// Bytes written since the last [`Activity::take_sent`].
    sent: AtomicU64,
}

impl Activity {
    pub(crate) fn begins(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn ends(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) {
        self.is_touched.store(true, Ordering::Relaxed);
    }

    pub(crate) fn wrote(&self) {
        self.is_touched.store(true, Ordering::Relaxed);
        self.is_unflushed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The bytes that were written since the last call.
    pub(crate) fn take_sent(&self) -> u64 {
        self.sent.swap(0, Ordering::Relaxed)
    }

    /// hyper flushes when it has nothing more to write.
    pub(crate) fn flushed(&self) {
        self.is_unflushed.store(false, Ordering::Relaxed);
    }

    /// Whether nothing happened since the last look, and nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_touched.swap(false, Ordering::Relaxed)
            && !self.is_unflushed.load(Ordering::Relaxed)
            && self.in_flight.load(Ordering::Relaxed) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_idle_when_nothing_is_under_way_and_nothing_has_just_happened() {
        let activity = Activity::default();
        activity.begins();
        activity.read();
        assert!(!activity.is_idle() && !activity.is_idle(), "a request is under way");
        activity.ends();
        activity.wrote();
        assert!(!activity.is_idle() && !activity.is_idle(), "its answer is not flushed");
        activity.flushed();
        assert!(activity.is_idle());
        activity.read();
        assert!(!activity.is_idle() && activity.is_idle());
    }
}
