//! The process that carries a detached copy out: without a terminal, with a record of how far it is.

use std::fs::File;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use haul_job::{Error, Event, Fault, Report};

use crate::detached::record::{Copy, Ended, Now, Record, Records};
use crate::outlook::Outlook;
use crate::{failure, progress, report};

/// Writes the record of its own copy.
pub struct Worker {
    record: Record,
    state: Mutex<State>,
    /// Held as long as the process lives.
    _lock: File,
}

struct State {
    copy: Copy,
    outlook: Outlook,
    started: Instant,
    written: Option<Instant>,
}

impl Worker {
    /// Takes over the copy with this number: leaves the terminal, and prints to the log.
    pub fn take(id: u32) -> Result<Self, Error> {
        let failed = |why: std::io::Error| Error::new(Fault::Usage, format!("cannot carry out copy {id}")).because(why);
        let records = Records::of_process().ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))?;
        let record = records.record(id);
        let copy = record.read().map_err(failed)?;
        let lock = lock(&record).map_err(failed)?;
        haul_transfer::leave_terminal().map_err(failed)?;
        record.print_to_log().map_err(failed)?;
        let copy = Copy { pid: Some(std::process::id()), ..copy };
        record.write(&copy).map_err(failed)?;
        let state = State { copy, outlook: Outlook::default(), started: Instant::now(), written: None };
        Ok(Self { record, state: Mutex::new(state), _lock: lock })
    }

    /// Whether the record changes with this event.
    pub fn wants(event: &Event) -> bool {
        matches!(event, Event::Progress(_) | Event::Retry { .. })
    }

    /// Notes an event that it wants. At most once a second it is written down.
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
                    line: progress::status(seen, rate, left),
                });
            }
            Event::Retry { why, .. } => {
                state.outlook.broke_off(state.started.elapsed());
                state.copy.waits = Some(why.clone());
            }
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

    /// How the copy ended. The first word counts, and is written down at [`Worker::close`].
    pub fn ended(&self, ended: Result<&Report, &Error>, code: u8) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let summary = match ended {
            Ok(report) => report::summary(report),
            Err(error) => failure::in_a_line(error),
        };
        let result = failure::name_of_code(code).to_owned();
        state.copy.ended.get_or_insert(Ended { at_s: now_s(), exit_code: code, result, summary });
    }

    /// The log is complete.
    pub fn close(&self) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.record.write(&state.copy);
    }
}

/// Others look at the lock now and then, and hold it for a moment.
fn lock(record: &Record) -> std::io::Result<File> {
    for _ in 0..LOCK_TRIES {
        if let Some(lock) = record.lock()? {
            return Ok(lock);
        }
        thread::park_timeout(LOCK_PAUSE);
    }
    Err(std::io::Error::other("another process carries it out, or the file system of the state directory has no locks"))
}

/// Seconds since 1970.
pub fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

const WRITE_EVERY: Duration = Duration::from_secs(1);
const LOCK_TRIES: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(20);
