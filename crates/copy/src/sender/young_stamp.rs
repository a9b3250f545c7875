//! A file is read only when its times can tell a change (git calls a file that cannot "racily clean").
//!
//! A file system's clock of stamps goes in steps. A change within the step of the last stamp leaves the times as they are, and
//! a reader takes parts of two versions for one. So a file is read only when its last stamp is older than a step.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use haul_wire::manifest::Time;

/// Waits as long as a change could go unseen.
pub(super) fn outlast(ctime: Time) {
    while let Some(rest) = left(ctime, SystemTime::now(), haul_sys::clock::stamp_step()) {
        std::thread::park_timeout(rest);
    }
}

/// The time in which a change could still get the stamp `ctime`. `kernel_step`: of the kernel's clock of stamps.
fn left(ctime: Time, now: SystemTime, kernel_step: Duration) -> Option<Duration> {
    // Another clock would hit one of these once in a hundred thousand times.
    let step = match ctime.ns {
        0 => WHOLE_SECONDS,
        ns if ns % FAT_NS == 0 => Duration::from_nanos(FAT_NS.into()),
        _ => Duration::ZERO,
    };
    let blind = step + kernel_step;
    let since_epoch = Duration::new(u64::try_from(ctime.s).ok()?, ctime.ns);
    let seen_from = UNIX_EPOCH.checked_add(since_epoch)?.checked_add(blind)?;
    let rest = seen_from.duration_since(now).ok()?;
    // A stamp far ahead is of another clock, about which this one says nothing.
    (!rest.is_zero() && rest <= 2 * blind).then_some(rest)
}

/// FAT has steps of 2 s for the time of a change; ext3, HFS+ and SFTP have 1 s.
const WHOLE_SECONDS: Duration = Duration::from_secs(2);

/// exFAT, and FAT for new files, have steps of 10 ms.
const FAT_NS: u32 = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_tells_changes_when_it_is_older_than_a_step_of_its_clock() {
        let step = Duration::from_millis(4);
        let at = |s: u64, ms: u64| UNIX_EPOCH + Duration::from_secs(s) + Duration::from_millis(ms);
        let fine = Time { s: 100, ns: 123_456_789 };
        assert_eq!(left(fine, at(100, 200), step), None);
        assert_eq!(left(fine, at(100, 124), step), Some(Duration::from_nanos(3_456_789)));
        let seconds = Time { s: 100, ns: 0 };
        assert_eq!(left(seconds, at(101, 0), step), Some(Duration::from_millis(1_004)));
        assert_eq!(left(seconds, at(102, 4), step), None);
        let hundredths = Time { s: 100, ns: 120_000_000 };
        assert_eq!(left(hundredths, at(100, 125), step), Some(Duration::from_millis(9)));
        for s in [0, 4_000_000_000, -5, i64::MIN, i64::MAX] {
            assert_eq!(left(Time { s, ns: 0 }, at(100, 0), step), None, "{s}");
        }
    }
}
