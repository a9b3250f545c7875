//! One watchdog for the connections of a thread: it ends those that miss a deadline.
//!
//! ```text
//! line      notes until when its reader has to do something (`line.rs`)
//! watchdog  looks at all lines a few times in each limit -> marks those that are late, and wakes their tasks
//! within    the task sees the mark, and drops the connection
//! ```
//! A timer for each connection would cost a small answer more than its digest does, and an idle reader more memory
//! than its socket.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

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
    /// Those that fell silent, and may leave.
    silent: Mutex<Vec<Weak<Line>>>,
    /// How often [`Watchdog::look_at_silent`] was called.
    silent_looks: AtomicU32,
    /// The list of silent ones is no longer empty.
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

    /// How often [`Watchdog::look`] is to be called.
    pub(crate) fn every(&self) -> Duration {
        self.every
    }

    pub(super) fn watches(&self, line: &Arc<Line>) {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(line));
    }

    /// The time of the last look, in milliseconds since the watchdog began.
    pub(crate) fn now_ms(&self) -> u64 {
        self.now_ms.load(Ordering::Relaxed)
    }

    pub(super) fn silent_looks(&self) -> u32 {
        self.silent_looks.load(Ordering::Relaxed)
    }

    pub(super) fn lists_silent(&self, line: &Arc<Line>) {
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        silent.push(Arc::downgrade(line));
        if silent.len() == 1 {
            self.has_silent.notify_one();
        }
    }

    /// Until there are silent ones, and [`Watchdog::look_at_silent`] is to be called.
    pub(crate) async fn has_silent(&self) {
        self.has_silent.notified().await;
    }

    /// Tells those to leave that were silent at the last look, and have been so since. Says whether further ones are silent. While all are
    /// busy, or gone, nobody has to look.
    pub(crate) fn look_at_silent(&self) -> bool {
        let look = self.silent_looks.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let mut leaving = Vec::new();
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        silent.retain(|line| {
            let Some(line) = line.upgrade() else { return false };
            let stays =
                line.is_silent() && look.wrapping_sub(line.silent_since.load(Ordering::Relaxed)) < line.silent_looks();
            if !stays {
                line.is_listed.store(false, Ordering::Relaxed);
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
