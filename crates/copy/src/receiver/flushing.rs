//! Flushes small files in batches, or each by itself.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use haul_engine::flush_choice::{FlushChooser, FlushWay};
use haul_job::Subject;
use haul_sys::file_system::DirtyPages;
use haul_wire::control::Notice;

use haul_channel::convert;
use haul_kept::sync::lock;

pub(super) struct Flushing {
    /// One waits at a time, so batches grow.
    pub(super) turn: Mutex<()>,
    chooser: Mutex<FlushChooser>,
    dirty: Option<DirtyPages>,
    said: [AtomicBool; 2],
}

impl Flushing {
    pub(super) fn new(together_from_files: usize, dirty_bytes_max: u64) -> Self {
        let chooser = Mutex::new(FlushChooser::new(together_from_files, dirty_bytes_max));
        Self { turn: Mutex::default(), chooser, dirty: DirtyPages::open(), said: Default::default() }
    }

    pub(super) fn choose(&self, sharing: usize) -> FlushWay {
        let dirty_bytes = self.dirty.as_ref().and_then(DirtyPages::bytes);
        lock(&self.chooser).choose(sharing, dirty_bytes)
    }

    /// Enters a batch's time. Returns what to tell once.
    pub(super) fn took(&self, way: FlushWay, files: usize, took: Duration) -> Option<Notice> {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let is_slow = {
            let mut chooser = lock(&self.chooser);
            chooser.took(way, files, us);
            chooser.is_slow_together()
        };
        if way == FlushWay::Each {
            return None;
        }
        let (choice, reason) = match is_slow {
            true => ("one for each", format!("one for all of {files} took {} ms, maybe for others\' data", us / 1000)),
            false => ("one for many", format!("{files} files took {:.1} ms", took.as_secs_f64() * 1e3)),
        };
        let is_new = !self.said[usize::from(is_slow)].swap(true, Ordering::Relaxed);
        is_new.then(|| convert::chose(Subject::SmallFileFlush, choice, reason))
    }
}
