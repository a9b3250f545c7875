//! Watches for hung disks, to tell one from a silent peer.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use haul_wire::control::Notice;

use haul_kept::sync::lock;

/// The storage of a session's side.
pub struct Storage {
    side: &'static str,
    calls: Mutex<Vec<Option<Instant>>>,
    is_named: AtomicBool,
}

/// Frees the place also on a panic.
struct Call<'a> {
    storage: &'a Storage,
    place: usize,
}

impl Storage {
    /// Watches this side's storage.
    pub fn of(side: &'static str) -> Self {
        Self { side, calls: Mutex::default(), is_named: AtomicBool::new(false) }
    }

    /// Carries out an act that may wait for the disk.
    pub fn during<T>(&self, act: impl FnOnce() -> T) -> T {
        let _call = self.begin(Instant::now());
        act()
    }

    /// The start of the longest wait.
    pub fn waits_since(&self) -> Option<Instant> {
        lock(&self.calls).iter().flatten().min().copied()
    }

    /// Describes a call that has waited for half of the limit.
    pub fn unanswered(&self, timeout: Duration) -> Option<String> {
        let waits = self.waits_since()?.elapsed();
        (waits > timeout / 2).then(|| self.has_not_answered_for(waits))
    }

    /// Makes that notice once, before either side gives up: the other sees only that nothing moves.
    pub fn notice(&self, timeout: Duration) -> Option<Notice> {
        let text = self.unanswered(timeout)?;
        (!self.is_named.swap(true, Ordering::Relaxed)).then_some(Notice::Warning { text })
    }

    /// Describes a disk that has not answered for `waits`.
    pub fn has_not_answered_for(&self, waits: Duration) -> String {
        format!("the storage of the {} has not answered for {} s", self.side, waits.as_secs())
    }

    fn begin(&self, now: Instant) -> Call<'_> {
        let mut calls = lock(&self.calls);
        let place = calls.iter().position(Option::is_none).unwrap_or(calls.len());
        if place == calls.len() {
            calls.push(None);
        }
        calls[place] = Some(now);
        Call { storage: self, place }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        lock(&self.storage.calls)[self.place] = None;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_longest_call_counts_and_places_are_used_again() {
        let (storage, start) = (Storage::of("target"), Instant::now());
        assert_eq!(storage.waits_since(), None);
        let first = storage.begin(start);
        let second = storage.begin(start + Duration::from_secs(1));
        assert_eq!(storage.waits_since(), Some(start));
        drop(first);
        assert_eq!(storage.waits_since(), Some(start + Duration::from_secs(1)));
        let third = storage.begin(start);
        drop((second, third));
        assert_eq!((storage.waits_since(), lock(&storage.calls).len()), (None, 2));
    }
}
