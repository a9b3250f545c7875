//! How small files are flushed before they get their names: each by itself, or all of the file system at once.
//!
//! ```text
//!   few files                      -> each
//!   much of others is dirty        -> each: a flush of the file system would write all of that first
//!   else                           -> together, as long as that does not take longer than each by itself would
//! ```
//! Each flush costs a commit of the file system's journal, or a wait for one. 1,024 files of 8 KiB took 20 ms together and 60 ms
//! each by itself on ext4, 40 and 1,800 on btrfs.

/// A way to flush a batch of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushWay {
    /// One flush for each.
    Each,
    /// One flush of the file system.
    Together,
}

/// Chooses by what was measured in this job.
#[derive(Clone, Debug)]
pub struct FlushChooser {
    together_from_files: usize,
    dirty_bytes_max: u64,
    each_us: u64,
    pause: u32,
    next_pause: u32,
    slow: bool,
}

impl FlushChooser {
    /// Flushes batches below `together_from_files` one by one, and all batches while the host has more than `dirty_bytes_max` to
    /// write.
    pub fn new(together_from_files: usize, dirty_bytes_max: u64) -> Self {
        Self { together_from_files, dirty_bytes_max, each_us: EACH_US, pause: 0, next_pause: FIRST_PAUSE, slow: false }
    }

    /// How so many files are flushed. `dirty_bytes`: the host's unflushed writes, if known.
    pub fn choose(&mut self, files: usize, dirty_bytes: Option<u64>) -> FlushWay {
        if files < self.together_from_files {
            return FlushWay::Each;
        }
        if self.pause > 0 {
            self.pause -= 1;
            return FlushWay::Each;
        }
        match dirty_bytes {
            Some(bytes) if bytes > self.dirty_bytes_max => FlushWay::Each,
            _ => FlushWay::Together,
        }
    }

    /// Enters what a batch took.
    pub fn took(&mut self, way: FlushWay, files: usize, us: u64) {
        let files = u64::try_from(files).unwrap_or(u64::MAX).max(1);
        match way {
            FlushWay::Each => self.each_us = (self.each_us * 3 + us / files) / 4,
            FlushWay::Together => {
                self.slow = us > SHORT_US && us > self.each_us.saturating_mul(files);
                if self.slow {
                    self.pause = self.next_pause;
                    self.next_pause = (self.next_pause * 2).min(LONGEST_PAUSE);
                } else {
                    self.next_pause = FIRST_PAUSE;
                }
            }
        }
    }

    /// Whether the last flush together was slower.
    pub fn is_slow_together(&self) -> bool {
        self.slow
    }
}

/// One flush on a good SSD, until one is measured.
const EACH_US: u64 = 500;

/// A quicker flush is not worth another way.
const SHORT_US: u64 = 100_000;

/// 256 MiB of a job may be at risk: more is others'. At 200 MB/s it takes less than three seconds.
pub const DIRTY_BYTES_MAX: u64 = 512 << 20;

/// Batches until a slow way is tried again.
const FIRST_PAUSE: u32 = 4;
const LONGEST_PAUSE: u32 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_files_share_a_flush_and_few_do_not() {
        let mut chooser = FlushChooser::new(8, DIRTY_BYTES_MAX);
        assert_eq!(chooser.choose(7, Some(0)), FlushWay::Each);
        assert_eq!(chooser.choose(8, Some(0)), FlushWay::Together);
        assert_eq!(chooser.choose(8, None), FlushWay::Together);
        assert_eq!(chooser.choose(1000, Some(DIRTY_BYTES_MAX + 1)), FlushWay::Each, "others have written much");
    }

    #[test]
    fn a_shared_flush_that_takes_longer_than_its_files_is_tried_again_later_and_ever_later() {
        let mut chooser = FlushChooser::new(8, DIRTY_BYTES_MAX);
        let mut tried_at = [0; 5];
        let mut batch = 0;
        for tried in &mut tried_at {
            while chooser.choose(100, Some(0)) == FlushWay::Each {
                chooser.took(FlushWay::Each, 100, 200_000);
                batch += 1;
            }
            *tried = batch;
            chooser.took(FlushWay::Together, 100, 3_000_000);
            assert!(chooser.is_slow_together());
        }
        assert_eq!(tried_at, [0, 4, 12, 28, 60]);
        while chooser.choose(100, Some(0)) == FlushWay::Each {}
        chooser.took(FlushWay::Together, 100, 150_000);
        assert!(!chooser.is_slow_together(), "each took 2 ms");
        assert_eq!(chooser.choose(100, Some(0)), FlushWay::Together);
    }
}
