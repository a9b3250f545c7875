//! Who waits for the disk, and since when: a disk that does not answer is not taken for a peer that brings nothing.

use std::sync::Mutex;
use std::time::Instant;

use crate::session;

/// The calls to the disk that have not come back, in any order; as many places as threads were in such calls at once.
#[derive(Default)]
pub(crate) struct Storage(Mutex<Vec<Option<Instant>>>);

/// Frees its place also when the call panics.
struct Call<'a> {
    storage: &'a Storage,
    place: usize,
}

impl Storage {
    /// Carries out something that may wait for the disk.
    pub(crate) fn during<T>(&self, act: impl FnOnce() -> T) -> T {
        let _call = self.begin(Instant::now());
        act()
    }

    /// Since when the longest call waits.
    pub(crate) fn waits_since(&self) -> Option<Instant> {
        session::lock(&self.0).iter().flatten().min().copied()
    }

    fn begin(&self, now: Instant) -> Call<'_> {
        let mut calls = session::lock(&self.0);
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
        session::lock(&self.storage.0)[self.place] = None;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_longest_call_counts_and_places_are_used_again() {
        let (storage, start) = (Storage::default(), Instant::now());
        assert_eq!(storage.waits_since(), None);
        let first = storage.begin(start);
        let second = storage.begin(start + Duration::from_secs(1));
        assert_eq!(storage.waits_since(), Some(start));
        drop(first);
        assert_eq!(storage.waits_since(), Some(start + Duration::from_secs(1)));
        let third = storage.begin(start);
        drop((second, third));
        assert_eq!((storage.waits_since(), session::lock(&storage.0).len()), (None, 2));
    }
}
