//! Counts how long a sender has had priority today, across sessions.
//!
//! ```text
//!   ~/.local/state/haul/priority/NAME     seconds since 1970 when the day began, microseconds with priority since then
//! ```
//! Each key of a daemon's client and each user has a file, opened before a session gives up its rights, and locked for a write.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use haul_sys::file;
use haul_sys::own::OwnDirectory;

const DAY_S: u64 = 86_400;

/// Two numbers of at most 20 digits, a space and a newline.
const RECORD_BYTES: usize = 42;

/// A killed session loses at most this much.
const KEEP_EVERY_US: u64 = 1_000_000;

/// One sender's time.
#[derive(Clone, Debug, Default)]
pub struct PriorityTime(Option<Arc<File>>);

impl PriorityTime {
    /// Opens it; `state` is haul's directory.
    pub fn open(state: Option<&Path>, name: &str) -> Self {
        Self(state.and_then(|state| open(&state.join("priority"), name).ok()).map(Arc::new))
    }

    fn add(&self, used_us: u64) -> Option<u64> {
        let file = self.0.as_ref()?;
        file::try_lock(file.as_fd()).ok().filter(|is_locked| *is_locked)?;
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let sum = add_at(file, now_s, used_us).ok();
        file::unlock(file.as_fd());
        sum
    }
}

fn open(directory: &Path, name: &str) -> io::Result<File> {
    OwnDirectory::make(directory)?.make_file(name)
}

fn add_at(file: &File, now_s: u64, used_us: u64) -> io::Result<u64> {
    let mut record = [0; RECORD_BYTES];
    let length = file.read_at(&mut record, 0)?;
    let text = std::str::from_utf8(&record[..length]).unwrap_or_default();
    let mut words = text.split_whitespace().map(str::parse::<u64>);
    let (from_s, before_us) = match (words.next(), words.next()) {
        // A clock that was set back begins a new day, too.
        (Some(Ok(from_s)), Some(Ok(before_us))) if (from_s..from_s.saturating_add(DAY_S)).contains(&now_s) => {
            (from_s, before_us)
        }
        _ => (now_s, 0),
    };
    let sum = before_us.saturating_add(used_us);
    if used_us > 0 {
        file.write_all_at(format!("{from_s:>20} {sum:>20}\n").as_bytes(), 0)?;
    }
    Ok(sum)
}

/// Counts a session's time with priority.
#[derive(Debug)]
pub struct PriorityClock {
    time: PriorityTime,
    covered_us: u64,
    used_us: u64,
    unkept_us: u64,
}

impl PriorityClock {
    /// Starts a sender's clock.
    pub fn new(time: PriorityTime) -> Self {
        let used_us = time.add(0).unwrap_or(0);
        Self { time, covered_us: 0, used_us, unkept_us: 0 }
    }

    /// Counts the time between.
    pub fn count(&mut self, from_us: u64, to_us: u64) {
        let more_us = to_us.saturating_sub(from_us.max(self.covered_us));
        self.covered_us = self.covered_us.max(to_us);
        self.used_us = self.used_us.saturating_add(more_us);
        self.unkept_us = self.unkept_us.saturating_add(more_us);
        if self.unkept_us >= KEEP_EVERY_US {
            self.keep();
        }
    }

    /// The microseconds used today.
    pub fn used_us(&self) -> u64 {
        self.used_us
    }

    fn keep(&mut self) {
        if let Some(sum) = self.time.add(self.unkept_us) {
            (self.used_us, self.unkept_us) = (sum, 0);
        }
    }
}

impl Drop for PriorityClock {
    fn drop(&mut self) {
        self.keep();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_session_goes_on_where_the_last_one_ended_and_two_at_once_count_together() {
        let state = tempfile::tempdir().unwrap();
        let clock = |user: &str| PriorityClock::new(PriorityTime::open(Some(state.path()), user));
        let mut first = clock("alice");
        first.count(1_000_000, 3_500_000);
        first.count(2_000_000, 3_500_000);
        assert_eq!(first.used_us(), 2_500_000);
        drop(first);
        let (mut second, mut third) = (clock("alice"), clock("alice"));
        assert_eq!(second.used_us(), 2_500_000);
        second.count(0, 1_000_000);
        third.count(0, 2_000_000);
        assert_eq!((third.used_us(), clock("alice").used_us()), (5_500_000, 5_500_000));
        assert_eq!(clock("bob").used_us(), 0, "somebody else");
    }

    #[test]
    fn after_a_day_it_begins_anew() {
        let state = tempfile::tempdir().unwrap();
        let file = open(state.path(), "alice").unwrap();
        assert_eq!(add_at(&file, 1_000, 7).unwrap(), 7);
        assert_eq!(add_at(&file, 1_000 + DAY_S - 1, 2).unwrap(), 9);
        assert_eq!(add_at(&file, 1_000 + DAY_S, 0).unwrap(), 0);
        assert_eq!(add_at(&file, 1_000 + DAY_S, 3).unwrap(), 3);
        file.write_all_at(b"nonsense, written by hand, and long enough", 0).unwrap();
        assert_eq!(add_at(&file, 1_000, 1).unwrap(), 1);
    }

    #[test]
    fn without_a_place_each_session_counts_for_itself() {
        let mut clock = PriorityClock::new(PriorityTime::open(None, "alice"));
        clock.count(0, 5_000_000);
        assert_eq!(clock.used_us(), 5_000_000);
    }
}
