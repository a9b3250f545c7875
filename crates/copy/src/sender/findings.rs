//! Tells a receiver at the initiator what the sender would say at its good-bye.
//!
//! So a pull need not wait a round trip for the Bye once everything is verified and flushed.
//!
//! ```text
//!   EndOfManifest -> Findings ... Findings -> (Summary) -> Bye
//! ```
//! Some jobs are told nothing, because what the sender does behind the last outcome belongs to their result.

use std::time::{Duration, Instant};

use super::job::SenderJob;

#[derive(Debug, Default)]
pub(super) struct Findings {
    may_tell: bool,
    told: Option<(Instant, u64)>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Behind {
    pub(super) another_job: bool,
    /// The file's hash is compared with a recording's.
    pub(super) recorded: bool,
    pub(super) server: bool,
}

impl Findings {
    pub(super) fn of(job: &SenderJob, behind: Behind) -> Self {
        let Behind { another_job, recorded, server } = behind;
        let selection = &job.selection;
        // Movers, removed sources and files that grew are told at the end.
        let is_last_word = job.is_mover
            || job.carriage.movers > 0
            || selection.remove_source_files
            || selection.growing
            || another_job
            || recorded
            || server;
        Self { may_tell: job.far && !is_last_word, told: None }
    }

    /// Whether findings are due. `moved` counts moves since the beginning; nothing new is found while it stands.
    pub(super) fn are_due(&mut self, now: Instant, moved: u64, is_listed: impl FnOnce() -> bool) -> bool {
        let is_new = self.told.is_none_or(|(told, before)| moved != before && now.duration_since(told) >= EVERY);
        let are_due = self.may_tell && is_new && is_listed();
        if are_due {
            self.told = Some((now, moved));
        }
        are_due
    }
}

/// Findings of a quarter of a second are little of a report. A message has some 300 bytes.
const EVERY: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_told_from_the_end_of_the_manifest_on_and_only_as_long_as_something_moves() {
        let (begun, mut findings) = (Instant::now(), Findings { may_tell: true, told: None });
        let mut are_due =
            |ms: u64, moved, is_listed| findings.are_due(begun + Duration::from_millis(ms), moved, || is_listed);
        assert!(!are_due(0, 3, false), "the manifest goes on");
        assert!(are_due(1, 3, true));
        assert!(!are_due(2, 4, true), "they were told just now");
        assert!(are_due(252, 4, true));
        assert!(!are_due(10_000, 4, true), "nothing has moved");
        assert!(!Findings::default().are_due(begun, 1, || true));
    }
}
