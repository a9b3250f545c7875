//! One watchdog for the connections of a thread: it ends those that miss a deadline.
//!
//! ```text
//! line      notes until when its reader has to do something (`line.rs`)
//! watchdog  looks at all lines a few times in each limit -> marks those that are late, and wakes their tasks
//! within    the task sees the mark, and drops the connection
//! ```
//! A timer for each connection would cost a small answer more than its digest does, and an idle reader more memory
//! than its socket.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::limits::{Limits, WATCH_EVERY_MAX};

use super::Line;

/// The watchdog of a thread.
#[derive(Debug)]
pub(crate) struct Watchdog {
    begun: Instant,
    /// The time of its last look, in milliseconds since it began.
    now_ms: AtomicU64,
    every: Duration,
    pub(super) limits: Limits,
    is_stopping: AtomicBool,
    /// A line that has ended leaves with the next look.
    lines: Mutex<Vec<Weak<Line>>>,
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
        }
    }

    /// How often [`Watchdog::look`] is to be called.
    pub(crate) fn every(&self) -> Duration {
        self.every
    }

    pub(super) fn watches(&self, line: &Arc<Line>) {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(line));
    }

    /// When this limit has passed from now on. The last look may be a while ago, so no deadline is early.
    pub(super) fn after(&self, limit: Duration) -> u64 {
        self.now_ms.load(Ordering::Relaxed).saturating_add(ms(limit)).saturating_add(ms(self.every))
    }

    /// The time now.
    pub(super) fn now_us(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Requests in progress are answered, and no further ones.
    pub(crate) fn stop(&self, now: Instant) {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.look(now);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Ends what is late.
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
        // A task may end on the way, and its line with it: not below the lock.
        for line in late {
            line.cut();
        }
    }
}

/// So a limit is kept to a quarter of itself.
const LOOKS_IN_A_LIMIT: u32 = 4;

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
