//! Marks of progress (111, 112) that a server of GridFTP sends while a transfer goes on.

use std::io;
use std::time::Instant;

use crate::limits::{MARKERS_AT_ONCE, MARKERS_PER_S};
use crate::refusal::invalid;

/// Counts the marks of progress that a server sends during one transfer.
#[derive(Debug)]
pub(crate) struct Markers {
    since: Instant,
    count: u64,
}

impl Markers {
    pub(crate) fn new(now: Instant) -> Markers {
        Markers { since: now, count: 0 }
    }

    pub(crate) fn add(&mut self, now: Instant) -> io::Result<()> {
        self.count += 1;
        let seconds = now.saturating_duration_since(self.since).as_secs();
        match self.count > MARKERS_AT_ONCE + MARKERS_PER_S * seconds {
            true => Err(invalid("the server sends marks of its progress without an end")),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn marks_of_progress_are_heard_for_as_long_as_the_transfer_takes() {
        let begin = Instant::now();
        let mut markers = Markers::new(begin);
        for second in 0..100_000 {
            markers.add(begin + Duration::from_secs(second)).unwrap();
        }
        let mut markers = Markers::new(begin);
        let heard = (0..100_000).take_while(|_| markers.add(begin + Duration::from_secs(1)).is_ok()).count();
        assert!(heard < 200, "{heard} marks in one second");
    }
}
