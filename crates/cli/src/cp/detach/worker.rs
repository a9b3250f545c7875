//! The process of a detached copy: without a terminal, with a record of its progress.

use std::fs::File;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use haul_job::timetable::Timetable;
use haul_job::{Error, Event, Fault, Report};

use crate::cp::closing_lines;
use crate::detached::record::{Copy, Ended, Now, RateSaid, Record, Records, now_s};
use crate::progress::fields;
use crate::progress::outlook::{Foreknown, Outlook};
use crate::text::failure;

pub struct Worker {
    record: Record,
    state: Mutex<State>,
    /// Held as long as the process lives.
    _lock: File,
}

struct State {
    copy: Copy,
    /// Readers of this end take the log for complete.
    ended: Option<Ended>,
    outlook: Outlook,
    started: Instant,
    written: Option<Instant>,
}

impl Worker {
    /// Takes over this copy: leaves the terminal, and prints to the log.
    pub fn take(id: u32, foreknown: Foreknown) -> Result<Self, Error> {
        let failed = |why: std::io::Error| Error::new(Fault::Usage, format!("cannot carry out copy {id}")).because(why);
        let records = Records::of_process().ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))?;
        let record = records.record(id);
        let copy = record.read().map_err(failed)?;
        let lock = lock(&record).map_err(failed)?;
        haul_transfer::leave_terminal().map_err(failed)?;
        record.print_to_log().map_err(failed)?;
        let copy = Copy { pid: Some(std::process::id()), ..copy };
        record.write(&copy).map_err(failed)?;
        let outlook = Outlook::default().with(foreknown);
        let state = State { copy, ended: None, outlook, started: Instant::now(), written: None };
        Ok(Self { record, state: Mutex::new(state), _lock: lock })
    }

    pub fn wants(event: &Event) -> bool {
        matches!(event, Event::Progress(_) | Event::Retry { .. } | Event::RateLimit { .. })
    }

    /// A limit asked for since the copy began; an unreadable one changes nothing.
    pub fn asked_rate(&self) -> Option<Timetable> {
        self.record.asked_rate().ok().flatten()
    }

    /// Notes the limit for the command that asked and waits.
    pub fn rate_is(&self, asked: &Timetable, limit_bytes_per_s: Option<u64>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let rate = Some(RateSaid { asked: asked.text().to_owned(), limit_bytes_per_s });
        if state.copy.rate != rate {
            state.copy.rate = rate;
            let _ = self.record.write(&state.copy);
        }
    }

    pub fn on_event(&self, event: &Event) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        let is_first = state.copy.now.is_none();
        match event {
            Event::Progress(seen) => {
                let now = state.started.elapsed();
                state.outlook.add(now, seen);
                let left = state.outlook.left(now, seen);
                let rate = state.outlook.bytes_per_s();
                state.copy.waits = None;
                state.copy.now = Some(Now {
                    at_s: now_s(),
                    files_done: seen.files_done,
                    files_found: seen.files_found,
                    bytes_moved: seen.bytes_moved,
                    bytes_kept: seen.bytes_kept,
                    bytes_found: seen.bytes_found,
                    found_all: seen.found_all,
                    failed: seen.failed,
                    rate_bytes_per_s: rate.map(|rate| rate as u64),
                    eta_s: left.time.map(|time| time.as_secs()),
                    line: fields::status(seen, rate, left),
                });
            }
            Event::Retry { why, .. } => {
                state.outlook.broke_off(state.started.elapsed());
                state.copy.waits = Some(why.clone());
            }
            Event::RateLimit { bytes_per_s } => return state.outlook.limit_rate(*bytes_per_s),
            _ => return,
        }
        let is_due = state.written.is_none_or(|written| written.elapsed() >= WRITE_EVERY);
        if is_first || is_due || matches!(event, Event::Retry { .. }) {
            state.written = Some(Instant::now());
            // A record that cannot be written does not stop a copy.
            let _ = self.record.write(&state.copy);
            self.record.bound_log();
        }
    }

    /// Notes the end. The first call counts, and [`Worker::close`] writes it.
    pub fn ended(&self, ended: Result<&Report, &Error>, code: u8) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let summary = match ended {
            Ok(report) => closing_lines::summary(report),
            Err(error) => match &error.hint {
                // Nobody sees an error's hint in the log, so the state has it.
                Some(hint) if error.fault == Fault::Authentication => {
                    format!("{}; {hint}", failure::in_a_line(error))
                }
                _ => failure::in_a_line(error),
            },
        };
        let result = failure::name_of_code(code).to_owned();
        state.ended.get_or_insert(Ended { at_s: now_s(), exit_code: code, result, summary });
    }

    pub fn close(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ended) = state.ended.take() {
            state.copy.ended = Some(ended);
        }
        let _ = self.record.write(&state.copy);
    }
}

/// Tries several times, because `haul status` holds the lock for moments.
fn lock(record: &Record) -> std::io::Result<File> {
    for _ in 0..LOCK_TRIES {
        if let Some(lock) = record.lock()? {
            return Ok(lock);
        }
        thread::park_timeout(LOCK_PAUSE);
    }
    Err(std::io::Error::other("another process carries it out, or the file system of the state directory has no locks"))
}

const WRITE_EVERY: Duration = Duration::from_secs(1);
const LOCK_TRIES: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(20);
