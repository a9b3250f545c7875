//! The limit of the rate, which time or the user may change while a copy runs.

use crate::reporter::Watch;

/// The limit in a session's loop, which only the initiator's user can change.
pub struct RateLimit {
    bytes_per_s: Option<u64>,
}

/// The new limit in bytes per second, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewLimit(pub Option<u64>);

impl RateLimit {
    /// Begins with the job's limit.
    pub fn of(asked_bytes_per_s: Option<u64>) -> Self {
        Self { bytes_per_s: asked_bytes_per_s }
    }

    /// Returns a limit that has changed.
    pub fn changed(&mut self, watch: &Watch) -> Option<NewLimit> {
        let now = watch.rate_limit(self.bytes_per_s);
        let before = std::mem::replace(&mut self.bytes_per_s, now);
        (now != before).then_some(NewLimit(now))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use haul_job::{Event, Observer};

    use super::*;

    #[derive(Default)]
    struct Person {
        limit: AtomicU64,
        told: AtomicU64,
    }

    impl Observer for Person {
        fn on_event(&self, event: &Event) {
            self.told.fetch_add(u64::from(matches!(event, Event::RateLimit { .. })), Ordering::Relaxed);
        }

        fn rate_limit(&self, now: Option<u64>) -> Option<u64> {
            Some(self.limit.load(Ordering::Relaxed)).filter(|limit| *limit > 0).or(now)
        }
    }

    #[test]
    fn a_change_is_told_once_and_a_silent_watch_changes_nothing() {
        let person = Arc::new(Person::default());
        let watch = Watch::new(Arc::clone(&person) as Arc<dyn Observer>);
        let mut limit = RateLimit::of(Some(5));
        assert_eq!(limit.changed(&watch), None);
        person.limit.store(9, Ordering::Relaxed);
        assert_eq!(limit.changed(&watch), Some(NewLimit(Some(9))));
        assert_eq!(limit.changed(&watch), None);
        assert_eq!(person.told.load(Ordering::Relaxed), 1);
        assert_eq!(RateLimit::of(Some(5)).changed(&Watch::silent()), None);
    }
}
