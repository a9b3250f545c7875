//! When large files go up in ranges, and what is known of a server that takes them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// When large files go up in ranges.
#[derive(Clone, Copy, Debug)]
pub struct RangeUploads {
    /// From this round trip on.
    pub from_us: u32,
    /// The largest file that is going to be written, as far as is known: so many connections are dialled ahead.
    pub foreseen_bytes: u64,
    /// The wait of a file for a server's processes that are busy when the trial's second transfers begin, beside the path's share.
    pub grace: Duration,
}

/// What is known of a server's ranges.
#[derive(Debug, Default)]
pub(crate) struct RangeHabits {
    trial: Mutex<Trial>,
    changed: Condvar,
    /// The bytes that are worth a connection.
    pub(crate) worth_bytes: OnceLock<u64>,
    /// A file had another content all the same.
    has_failed: AtomicBool,
}

/// How far the trial is.
#[derive(Debug, Default)]
struct Trial {
    is_begun: bool,
    /// By this time, a server that does not lock its files has begun the second transfers.
    due: Option<Instant>,
    /// Second transfers that have begun beside their first ones.
    begun: usize,
    found: Option<bool>,
}

impl RangeHabits {
    fn lock(&self) -> MutexGuard<'_, Trial> {
        self.trial.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer of the trial, once it is there.
    pub(crate) fn found(&self) -> Option<bool> {
        self.lock().found.map(|found| found && !self.has_failed.load(Ordering::Relaxed))
    }

    /// No further file goes up in ranges.
    pub(crate) fn give_up(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// True once: the caller is the one to try it, and calls [`RangeHabits::enter`].
    pub(crate) fn begin(&self) -> bool {
        !std::mem::replace(&mut self.lock().is_begun, true)
    }

    /// The caller could not try it.
    pub(crate) fn leave(&self) {
        self.lock().is_begun = false;
    }

    /// A second transfer was asked for, and is due then.
    pub(crate) fn is_due(&self, due: Instant) {
        let mut trial = self.lock();
        trial.due = trial.due.max(Some(due));
        self.changed.notify_all();
    }

    /// A second transfer has begun.
    pub(crate) fn has_begun(&self) {
        self.lock().begun += 1;
        self.changed.notify_all();
    }

    /// Enters the answer.
    pub(crate) fn enter(&self, found: bool) {
        self.lock().found = Some(found);
        self.changed.notify_all();
    }

    /// Waits for the answer.
    pub(crate) fn wait(&self) -> bool {
        let waiting = self.changed.wait_while(self.lock(), |trial| trial.found.is_none());
        drop(waiting);
        self.found() == Some(true)
    }

    /// Waits for the answer, as long as it may be a good one: the second transfers have begun when they are due, or this much later. `usual`
    /// is that time where none was asked for yet.
    ///
    /// A file without the answer goes up in one stream. So do all further ones: lanes share either all files or none, and this one is on its
    /// way.
    pub(crate) fn wait_in_time(&self, usual: Instant, allowance: Duration) -> bool {
        let mut trial = self.lock();
        while trial.found.is_none() {
            if trial.begun >= SECOND_TRANSFERS {
                drop(trial);
                return self.wait();
            }
            let due = trial.due.unwrap_or(usual) + allowance;
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.give_up();
                return false;
            }
            trial = self.changed.wait_timeout(trial, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(trial);
        self.found() == Some(true)
    }
}

/// One behind the end of a file, and one inside another one.
pub(crate) const SECOND_TRANSFERS: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_waits_for_the_answer_only_while_it_may_be_a_good_one() {
        const HOUR: Duration = Duration::from_secs(3600);
        let now = Instant::now();
        for begun in 0..=SECOND_TRANSFERS {
            let habits = RangeHabits::default();
            assert!(habits.begin() && !habits.begin());
            habits.is_due(now);
            (0..begun).for_each(|_| habits.has_begun());
            let waits = std::thread::scope(|scope| {
                let waits = scope.spawn(|| habits.wait_in_time(now + HOUR, Duration::ZERO));
                if begun < SECOND_TRANSFERS {
                    return waits.join().unwrap();
                }
                habits.enter(true);
                waits.join().unwrap()
            });
            assert_eq!(waits, begun == SECOND_TRANSFERS, "{begun} have begun in time");
            habits.enter(true);
            assert_eq!(habits.found(), Some(waits), "no lane shares a file that goes up in one stream");
        }
        let habits = RangeHabits::default();
        assert!(!habits.wait_in_time(now, Duration::ZERO), "nothing was asked for in the usual time");
    }
}
