//! Waits for conditions, with a deadline and a name for messages.

use std::time::{Duration, Instant};

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Polls `condition`; panics with `what` after `limit`.
#[track_caller]
pub fn eventually(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    assert!(settle(limit, &mut condition), "waited {limit:?} in vain: {what}");
}

/// Polls `condition`; false after `limit`.
pub fn settle(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if condition() {
            return true;
        }
        if start.elapsed() > limit {
            return false;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
