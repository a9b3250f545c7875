//! Whole files that wait for their final name, in all lanes: each is an open file, and a process may have only so many.

use std::sync::atomic::{AtomicU64, Ordering};

/// So many in one lane share a commit of the file system.
const LANE_MAX: usize = 64;

/// And this share of the files that the process may have open, in all lanes: 32 lanes of 64 are twice as many as a host allows that has
/// 1024 for its limit.
const SHARE: u64 = 4;

pub(super) struct Unnamed {
    open: AtomicU64,
    max: u64,
}

impl Unnamed {
    /// `may_be_open`: how many files the process may have open at once.
    pub(super) fn new(may_be_open: u64) -> Self {
        Self { open: AtomicU64::new(0), max: may_be_open / SHARE }
    }

    /// One more waits in a lane.
    pub(super) fn add(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// So many have their names, or never will.
    pub(super) fn remove(&self, files: usize) {
        self.open.fetch_sub(files as u64, Ordering::Relaxed);
    }

    /// Whether a lane that has so many should name them before it takes another.
    pub(super) fn are_too_many(&self, in_lane: usize) -> bool {
        in_lane >= LANE_MAX || self.open.load(Ordering::Relaxed) >= self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_lanes_hold_no_more_than_a_share_of_what_may_be_open() {
        let unnamed = Unnamed::new(1024);
        assert!(!unnamed.are_too_many(LANE_MAX - 1) && unnamed.are_too_many(LANE_MAX));
        let mut lanes = [0; 32];
        for turn in 0..10_000 {
            let lane = &mut lanes[turn % 32];
            if unnamed.are_too_many(*lane) {
                unnamed.remove(std::mem::take(lane));
            }
            unnamed.add();
            *lane += 1;
            assert!(lanes.iter().sum::<usize>() <= 256, "{lanes:?}");
        }
    }
}
