//! A file that changes while it is read is sent once more, in its new version.
//!
//! The kernel shows one change in two steps, and a look between them sees half of it. A file that is cut has its new size
//! first, and its times milliseconds later. A growing file has its times first.

use haul_wire::manifest::Identity;

/// Changes count in halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChangesLeft(u8);

impl ChangesLeft {
    pub(super) const AT_FIRST: Self = Self(2);

    /// Counts a change from the announced version. `None`: too many.
    pub(super) fn after(self, announced: &Identity, now: &Identity) -> Option<Self> {
        let other_times = (announced.mtime, announced.ctime) != (now.mtime, now.ctime);
        let is_whole = announced.inode != now.inode || (announced.size != now.size && other_times);
        let halves = if is_whole { 2 } else { 1 };
        (self.0 > 0).then(|| Self(self.0.saturating_sub(halves)))
    }
}

#[cfg(test)]
mod tests {
    use haul_wire::manifest::Time;

    use super::*;

    fn at(s: i64, size: u64) -> Identity {
        let time = Time { s, ns: 0 };
        Identity { size, mtime: time, ctime: time, inode: 1 }
    }

    #[test]
    fn a_file_may_change_once_however_the_kernel_shows_it() {
        let first = ChangesLeft::AT_FIRST;
        let changed = first.after(&at(1, 10), &at(2, 5)).unwrap();
        assert_eq!(changed.after(&at(2, 5), &at(3, 4)), None);
        for between in [at(1, 5), at(2, 10)] {
            let half = first.after(&at(1, 10), &between).unwrap();
            let whole = half.after(&between, &at(2, 5)).unwrap();
            assert_eq!(whole.after(&at(2, 5), &at(3, 4)), None);
        }
    }

    #[test]
    fn a_file_without_times_is_not_sent_for_ever() {
        let mut left = Some(ChangesLeft::AT_FIRST);
        let times = (1..).find(|size| {
            left = left.and_then(|left| left.after(&at(0, *size), &at(0, size + 1)));
            left.is_none()
        });
        assert_eq!(times, Some(3));
    }
}
