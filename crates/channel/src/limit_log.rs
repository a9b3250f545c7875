//! How long each limit of the rate held, for the report of a copy.

use std::time::{Duration, Instant};

#[derive(Default)]
pub(crate) struct LimitLog {
    now: Option<(Option<u64>, Instant)>,
    held: Vec<(u64, Duration)>,
}

/// A timetable has fewer; a user's later changes do not count.
const LIMITS_KEPT: usize = 100;

impl LimitLog {
    pub(crate) fn changed(&mut self, before: Option<u64>, limit: Option<u64>, started: Instant, now: Instant) {
        let since = self.now.map_or(started, |(_, since)| since);
        self.add(before, now.saturating_duration_since(since));
        self.now = Some((limit, now));
    }

    fn add(&mut self, limit: Option<u64>, time: Duration) {
        let Some(limit) = limit else { return };
        if let Some((_, held)) = self.held.iter_mut().find(|(other, _)| *other == limit) {
            *held += time;
        } else if self.held.len() < LIMITS_KEPT {
            self.held.push((limit, time));
        }
    }

    pub(crate) fn longest(&mut self, asked: Option<u64>, now: Instant) -> Option<u64> {
        let Some((limit, since)) = self.now.take() else { return asked };
        self.add(limit, now.saturating_duration_since(since));
        self.held.iter().max_by_key(|(_, held)| *held).map(|(limit, _)| *limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_a_report_is_the_one_that_held_longest() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let mut log = LimitLog::default();
        assert_eq!(log.longest(Some(7), at(9)), Some(7), "it never changed");
        log.changed(Some(7), None, start, at(10));
        assert_eq!(log.longest(Some(7), at(1000)), Some(7), "no limit is no limit that held");
        let mut log = LimitLog::default();
        log.changed(Some(7), Some(3), start, at(10));
        log.changed(Some(3), Some(7), start, at(25));
        assert_eq!(log.longest(Some(7), at(31)), Some(7), "in two parts");
        let mut log = LimitLog::default();
        log.changed(Some(7), Some(3), start, at(10));
        log.changed(Some(3), Some(7), start, at(25));
        assert_eq!(log.longest(Some(7), at(29)), Some(3));
    }
}
