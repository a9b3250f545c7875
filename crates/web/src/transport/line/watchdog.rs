//! One watchdog for the connections of a thread: it ends those that miss a deadline.
//!
//! ```text
//! line      notes until when its reader has to do something (`line.rs`)
//! watchdog  looks at all lines a few times in each limit -> marks those that are late, and wakes their tasks
//! within    the task sees the mark, and drops the connection
//! ```
//! A timer each would cost a small answer more than its digest, and an idle reader more memory than its socket.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::limits::{Limits, WATCH_EVERY_MAX};

pub(crate) trait Watched: fmt::Debug + Send + Sync {
    fn is_late(&self, now_ms: u64, is_stopping: bool) -> bool;

    fn cut(&self);

    fn is_silent(&self) -> bool;

    /// Whether its silence is too short at this look.
    fn stays_at(&self, look: u32) -> bool;

    /// Notes that it left the list of silent connections.
    fn is_listed_no_more(&self);

    fn leave(&self);
}

#[derive(Debug)]
pub(crate) struct Watchdog {
    begun: Instant,
    /// In milliseconds since it began.
    now_ms: AtomicU64,
    every: Duration,
    pub(super) limits: Limits,
    is_stopping: AtomicBool,
    /// An ended line is removed at the next look.
    lines: Mutex<Vec<Weak<dyn Watched>>>,
    silent: Mutex<Vec<Weak<dyn Watched>>>,
    silent_looks: AtomicU32,
    has_silent: Notify,
}

impl Watchdog {
    pub(crate) fn new(limits: Limits) -> Watchdog {
        let shortest = limits.header.min(limits.idle).min(limits.stall).min(limits.handshake);
        Watchdog {
            begun: Instant::now(),
            now_ms: AtomicU64::new(0),
            every: (shortest / LOOKS_IN_A_LIMIT).clamp(Duration::from_millis(1), WATCH_EVERY_MAX),
            limits,
            is_stopping: AtomicBool::new(false),
            lines: Mutex::default(),
            silent: Mutex::default(),
            silent_looks: AtomicU32::new(0),
            has_silent: Notify::new(),
        }
    }

    pub(crate) fn every(&self) -> Duration {
        self.every
    }

    pub(super) fn watches(&self, line: &Arc<dyn Watched>) {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(line));
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.now_ms.load(Ordering::Relaxed)
    }

    pub(super) fn silent_looks(&self) -> u32 {
        self.silent_looks.load(Ordering::Relaxed)
    }

    pub(super) fn lists_silent(&self, line: &Arc<dyn Watched>) {
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        silent.push(Arc::downgrade(line));
        if silent.len() == 1 {
            self.has_silent.notify_one();
        }
    }

    pub(crate) async fn has_silent(&self) {
        self.has_silent.notified().await;
    }

    /// Tells lines to leave that were silent since the last look. Returns whether others are silent: else no look is needed.
    pub(crate) fn look_at_silent(&self) -> bool {
        let look = self.silent_looks.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let mut leaving = Vec::new();
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        silent.retain(|line| {
            let Some(line) = line.upgrade() else { return false };
            let stays = line.stays_at(look);
            if !stays {
                line.is_listed_no_more();
                if line.is_silent() {
                    leaving.push(line);
                }
            }
            stays
        });
        let has_more = !silent.is_empty();
        drop(silent);
        for line in leaving {
            line.leave();
        }
        has_more
    }

    /// Adds `every` to the limit, because the last look may be so long ago: no deadline is early.
    pub(super) fn after(&self, limit: Duration) -> u64 {
        self.now_ms.load(Ordering::Relaxed).saturating_add(ms(limit)).saturating_add(ms(self.every))
    }

    pub(super) fn now_us(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    pub(crate) fn stop(&self, now: Instant) {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.look(now);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    pub(crate) fn look(&self, now: Instant) {
        let now_ms = ms(now.saturating_duration_since(self.begun));
        self.now_ms.store(now_ms, Ordering::Relaxed);
        let mut late = Vec::new();
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).retain(|line| {
            let Some(line) = line.upgrade() else { return false };
            if line.is_late(now_ms, self.is_stopping()) {
                late.push(line);
            }
            true
        });
        // A cut task may end and drop its line: not below the lock.
        for line in late {
            line.cut();
        }
    }
}

/// A limit is kept to a quarter of itself.
const LOOKS_IN_A_LIMIT: u32 = 4;

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
