//! Tracks one connection, to tell an idle one from a busy one, and a slow reader from a reader that waits for us.

pub(crate) mod watchdog;

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

use watchdog::{Watchdog, Watched};

use crate::limits::{MIN_STREAM_BYTES, SILENT_LOOKS, SILENT_LOOKS_OF_BUSY, STANDS_STILL};

/// The marks of a connection, shared with its tasks. All run in one thread, so order does not matter.
#[derive(Debug)]
pub(crate) struct Line {
    watchdog: Arc<Watchdog>,
    /// [`NEVER`]: it is our turn to act.
    reading_due: AtomicU64,
    writing_due: AtomicU64,
    /// In microseconds of the watchdog's clock. [`NEVER`]: no write waits.
    blocked_since_us: AtomicU64,
    blocked_us: AtomicU64,
    /// Bytes written since the last [`Line::takes_little`].
    sent: AtomicU64,
    /// In milliseconds of the watchdog's clock.
    moved_ms: AtomicU64,
    in_flight: AtomicU32,
    held_back: AtomicU32,
    phase: AtomicU8,
    is_unflushed: AtomicBool,
    is_read_empty: AtomicBool,
    is_closing: AtomicBool,
    is_cut: AtomicBool,
    may_leave: bool,
    /// The last look before the reader fell silent: see [`Watchdog::look_at_silent`].
    silent_since: AtomicU32,
    /// A second request shows a reader that asks again and again.
    asked: AtomicU32,
    is_listed: AtomicBool,
    leaves: AtomicBool,
    task: Mutex<Option<Waker>>,
}

/// The answers to several pings or settings in one write.
const LITTLE_BYTES: usize = 512;

const NEVER: u64 = u64::MAX;

mod phase {
    /// The reader has sent nothing since its last answer, or since it came.
    pub(super) const SILENT: u8 = 0;
    pub(super) const HEADER: u8 = 1;
    pub(super) const ASKED: u8 = 2;
    pub(super) const HTTP2: u8 = 3;
}

impl Line {
    /// Tracks a new connection. If it `may_leave`, its task learns when the reader has been silent for more than a moment.
    pub(crate) fn new(watchdog: &Arc<Watchdog>, may_leave: bool) -> Arc<Line> {
        let line = Arc::new(Line {
            watchdog: Arc::clone(watchdog),
            reading_due: AtomicU64::new(NEVER),
            writing_due: AtomicU64::new(NEVER),
            blocked_since_us: AtomicU64::new(NEVER),
            blocked_us: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            moved_ms: AtomicU64::new(watchdog.now_ms()),
            in_flight: AtomicU32::new(0),
            held_back: AtomicU32::new(0),
            phase: AtomicU8::new(phase::SILENT),
            is_unflushed: AtomicBool::new(false),
            is_read_empty: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            is_cut: AtomicBool::new(false),
            may_leave,
            silent_since: AtomicU32::new(0),
            asked: AtomicU32::new(0),
            is_listed: AtomicBool::new(false),
            leaves: AtomicBool::new(false),
            task: Mutex::new(None),
        });
        line.rests();
        watchdog.watches(&as_watched(&line));
        line
    }

    pub(crate) async fn within<T>(&self, future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let mut future = pin!(future);
        poll_fn(|cx| {
            if self.is_cut() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            let polled = future.as_mut().poll(cx);
            if polled.is_pending() {
                let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
                if !task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
                    *task = Some(cx.waker().clone());
                }
            }
            polled
        })
        .await
    }

    pub(crate) fn greets(&self) {
        self.reading_due.store(self.watchdog.after(self.watchdog.limits.handshake), Ordering::Relaxed);
    }

    /// Tracks a connection that has rested. Its deadline stays.
    pub(crate) fn again(watchdog: &Arc<Watchdog>, due_ms: u64, has_asked: bool) -> Arc<Line> {
        let line = Line::new(watchdog, true);
        line.asked.store(has_asked.into(), Ordering::Relaxed);
        line.reading_due.store(due_ms, Ordering::Relaxed);
        line
    }

    pub(crate) fn rests(self: &Arc<Line>) {
        self.phase.store(phase::SILENT, Ordering::Relaxed);
        self.reading_due.store(self.watchdog.after(self.watchdog.limits.idle), Ordering::Relaxed);
        if self.may_leave {
            self.leaves.store(false, Ordering::Relaxed);
            self.silent_since.store(self.watchdog.silent_looks(), Ordering::Relaxed);
            if !self.is_listed.swap(true, Ordering::Relaxed) {
                self.watchdog.lists_silent(&as_watched(self));
            }
        }
    }

    pub(crate) fn leaves(&self) -> Option<u64> {
        self.leaves.load(Ordering::Relaxed).then(|| self.reading_due.load(Ordering::Relaxed))
    }

    pub(crate) fn expects_header(&self) {
        self.phase.store(phase::HEADER, Ordering::Relaxed);
        self.reading_due.store(self.watchdog.after(self.watchdog.limits.header), Ordering::Relaxed);
    }

    /// Drops our deadlines: HTTP/2 has its own.
    pub(crate) fn keeps_own_time(&self) {
        self.phase.store(phase::HTTP2, Ordering::Relaxed);
        self.reading_due.store(NEVER, Ordering::Relaxed);
    }

    pub(crate) fn may_rest(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) == 0
            && self.phase.load(Ordering::Relaxed) == phase::ASKED
            && self.is_read_empty.load(Ordering::Relaxed)
            && !self.is_unflushed.load(Ordering::Relaxed)
            && !self.is_closing.load(Ordering::Relaxed)
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.watchdog.is_stopping()
    }

    // ---- Requests ----

    pub(crate) fn begins(&self) {
        let asked = self.asked.load(Ordering::Relaxed);
        self.asked.store(asked.saturating_add(1), Ordering::Relaxed);
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        if self.phase.load(Ordering::Relaxed) != phase::HTTP2 {
            self.phase.store(phase::ASKED, Ordering::Relaxed);
        }
        self.reading_due.store(NEVER, Ordering::Relaxed);
    }

    pub(crate) fn ends(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn is_held_back(&self, waits: bool) {
        match waits {
            true => self.held_back.fetch_add(1, Ordering::Relaxed),
            false => self.held_back.fetch_sub(1, Ordering::Relaxed),
        };
    }

    pub(crate) fn takes_little(&self) -> bool {
        self.sent.swap(0, Ordering::Relaxed) < MIN_STREAM_BYTES && self.held_back.load(Ordering::Relaxed) == 0
    }

    pub(crate) fn closes(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
    }

    // ---- Bytes ----

    pub(crate) fn read(&self, is_empty: bool) {
        self.is_read_empty.store(is_empty, Ordering::Relaxed);
        let phase = self.phase.load(Ordering::Relaxed);
        // A header may come byte by byte; its deadline stays.
        if !is_empty && matches!(phase, phase::SILENT | phase::ASKED) && self.in_flight.load(Ordering::Relaxed) == 0 {
            self.expects_header();
        }
    }

    pub(crate) fn wrote(&self, is_blocked: bool) {
        let waits = self.writing_due.load(Ordering::Relaxed) != NEVER;
        if is_blocked && !waits {
            self.writing_due.store(self.watchdog.after(self.watchdog.limits.stall), Ordering::Relaxed);
            self.blocked_since_us.store(self.watchdog.now_us(), Ordering::Relaxed);
        } else if waits && !is_blocked {
            self.writing_due.store(NEVER, Ordering::Relaxed);
            let since = self.blocked_since_us.swap(NEVER, Ordering::Relaxed);
            self.blocked_us.fetch_add(self.watchdog.now_us().saturating_sub(since), Ordering::Relaxed);
        }
    }

    pub(crate) fn blocked_us(&self) -> u64 {
        let since = self.blocked_since_us.load(Ordering::Relaxed);
        let now = if since == NEVER { 0 } else { self.watchdog.now_us().saturating_sub(since) };
        self.blocked_us.load(Ordering::Relaxed) + now
    }

    pub(crate) fn writes(&self) {
        self.is_unflushed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn flushed(&self) {
        self.is_unflushed.store(false, Ordering::Relaxed);
    }

    pub(crate) fn sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
        if self.counts_as_moving(bytes) {
            self.moved_ms.store(self.watchdog.now_ms(), Ordering::Relaxed);
        }
    }

    /// Whether the reader takes something. Over HTTP/2 a reader that takes nothing may still have pings answered.
    fn counts_as_moving(&self, bytes: usize) -> bool {
        bytes > LITTLE_BYTES || self.phase.load(Ordering::Relaxed) != phase::HTTP2
    }

    /// Whether the reader has taken nothing for a while, held back by no rate of ours.
    pub(crate) fn stands_still(&self) -> bool {
        let since_ms = self.watchdog.now_ms().saturating_sub(self.moved_ms.load(Ordering::Relaxed));
        u128::from(since_ms) >= STANDS_STILL.as_millis() && self.held_back.load(Ordering::Relaxed) == 0
    }

    // ---- The watchdog ----

    /// Leaving and coming back costs two small requests, so a reader that asks again has longer.
    fn silent_looks(&self) -> u32 {
        match self.asked.load(Ordering::Relaxed) {
            0 | 1 => SILENT_LOOKS,
            _ => SILENT_LOOKS_OF_BUSY,
        }
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }

    fn wake(&self) {
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            task.wake();
        }
    }
}

fn as_watched(line: &Arc<Line>) -> Arc<dyn Watched> {
    Arc::<Line>::clone(line)
}

impl Watched for Line {
    fn is_late(&self, now_ms: u64, is_stopping: bool) -> bool {
        let reading_due = self.reading_due.load(Ordering::Relaxed);
        // A reader without a request is not waited for when the service ends.
        reading_due <= now_ms
            || (is_stopping && reading_due != NEVER)
            || self.writing_due.load(Ordering::Relaxed) <= now_ms
    }

    fn cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
        self.wake();
    }

    fn is_silent(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == phase::SILENT
    }

    fn stays_at(&self, look: u32) -> bool {
        self.is_silent() && look.wrapping_sub(self.silent_since.load(Ordering::Relaxed)) < self.silent_looks()
    }

    fn is_listed_no_more(&self) {
        self.is_listed.store(false, Ordering::Relaxed);
    }

    fn leave(&self) {
        self.leaves.store(true, Ordering::Relaxed);
        self.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::limits::Limits;

    fn line() -> (Arc<Watchdog>, Arc<Line>) {
        let watchdog = Arc::new(Watchdog::new(Limits::default()));
        let line = Line::new(&watchdog, true);
        (watchdog, line)
    }

    fn asked_and_answered(line: &Line) {
        line.read(false);
        line.begins();
        line.writes();
        line.wrote(false);
        line.ends();
        line.flushed();
        line.read(true);
    }

    #[test]
    fn a_connection_may_rest_when_its_answer_has_left_and_nothing_more_has_come() {
        let (_watchdog, line) = line();
        line.read(true);
        assert!(!line.may_rest(), "nothing was asked");
        line.read(false);
        line.read(true);
        assert!(!line.may_rest(), "half a header");
        line.begins();
        line.read(true);
        assert!(!line.may_rest(), "a request is under way");
        line.writes();
        line.ends();
        assert!(!line.may_rest(), "its answer is not flushed");
        line.flushed();
        assert!(line.may_rest());
        line.read(false);
        assert!(!line.may_rest(), "more has come");
    }

    #[test]
    fn a_connection_that_speaks_http2_or_closes_does_not_rest() {
        let (_watchdog, line) = line();
        line.keeps_own_time();
        asked_and_answered(&line);
        assert!(!line.may_rest());
        let (_watchdog, line) = self::line();
        line.closes();
        asked_and_answered(&line);
        assert!(!line.may_rest());
    }

    #[test]
    fn a_reader_has_its_time_for_a_request_for_a_header_and_for_each_write() {
        let limits = Limits::default();
        let (watchdog, line) = line();
        let begun = Instant::now();
        let mut now = begun;
        let mut is_late_after = |line: &Line, time: Duration| {
            now += time;
            watchdog.look(now);
            line.is_late(now.duration_since(begun).as_millis() as u64, false)
        };
        let little = Duration::from_secs(2);
        line.rests();
        assert!(!is_late_after(&line, limits.idle - little));
        line.read(false);
        assert!(!is_late_after(&line, limits.header - little), "from the first byte on it has the time of a header");
        line.read(false);
        assert!(is_late_after(&line, 2 * little), "further bytes do not give it more");
        line.begins();
        assert!(!is_late_after(&line, 10 * limits.idle), "we are at turn");
        line.wrote(true);
        assert!(!is_late_after(&line, limits.stall - little));
        line.wrote(true);
        assert!(is_late_after(&line, 2 * little), "it took nothing");
        line.wrote(false);
        assert!(!is_late_after(&line, 10 * limits.stall));
    }

    #[test]
    fn a_connection_leaves_its_task_when_its_reader_is_silent_from_one_look_to_the_next() {
        let (watchdog, line) = line();
        let busy = Line::new(&watchdog, true);
        let over_tls = Line::new(&watchdog, false);
        assert!(watchdog.look_at_silent());
        assert_eq!(line.leaves(), None);
        busy.read(false);
        assert!(!watchdog.look_at_silent(), "nobody is left to look at");
        assert_eq!([&busy, &over_tls].map(|line| line.leaves()), [None; 2]);
        let due_ms = line.leaves().expect("it was silent");
        assert_eq!(Line::again(&watchdog, due_ms - 1, false).reading_due.load(Ordering::Relaxed), due_ms - 1);
        busy.rests();
        assert!(watchdog.look_at_silent() && busy.leaves().is_none(), "its silence has just begun");
        assert!(!watchdog.look_at_silent() && busy.leaves().is_some());
        busy.rests();
        assert_eq!(busy.leaves(), None, "it could not leave, and rests on");
    }

    #[test]
    fn a_reader_that_asks_again_and_again_keeps_its_task_through_short_pauses() {
        let (watchdog, line) = line();
        for has_asked in [false, true] {
            let busy = Line::again(&watchdog, NEVER, has_asked);
            asked_and_answered(&busy);
            busy.rests();
            let looks = (1..100).find(|_| {
                watchdog.look_at_silent();
                busy.leaves().is_some()
            });
            assert_eq!(looks, Some(if has_asked { SILENT_LOOKS_OF_BUSY } else { SILENT_LOOKS }));
        }
        drop(line);
    }

    #[test]
    fn who_waits_for_a_rate_of_ours_does_not_take_little() {
        let (_watchdog, line) = line();
        line.is_held_back(true);
        assert!(!line.takes_little());
        line.is_held_back(false);
        assert!(line.takes_little());
        line.sent(MIN_STREAM_BYTES as usize);
        assert!(!line.takes_little());
    }

    #[test]
    fn when_the_service_ends_only_requests_in_progress_go_on() {
        let (watchdog, line) = line();
        let working = Line::new(&watchdog, true);
        working.read(false);
        working.begins();
        watchdog.stop(Instant::now());
        assert!(line.is_cut() && !working.is_cut());
    }
}
