//! Ends a copy: keeps its report, closes its record, tells whoever wants to know.

use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

use haul_job::timetable::Timetable;
use haul_job::{Error, Event, Report};

use crate::cp::detach::worker::Worker;
use crate::cp::flags::Cp;
use crate::cp::notify::Notify;
use crate::cp::view;
use crate::json::line::to_line;
use crate::report::kept::Kept;
use crate::text::failure;

#[derive(Default)]
pub struct OnEnd {
    worker: Option<Worker>,
    notify: Option<Notify>,
    kept: Mutex<Option<Kept>>,
}

impl OnEnd {
    /// Judges the flags. A detached copy's process takes the copy over.
    pub fn of(typed: &Cp) -> Result<Self, Error> {
        let notify = typed.goes_on.notify.as_deref().map(Notify::parse).transpose()?;
        let worker = typed.goes_on.detached_as.map(|id| Worker::take(id, view::foreknown(typed))).transpose()?;
        Ok(Self { worker, notify, kept: Mutex::default() })
    }

    pub fn wants(&self, event: &Event) -> bool {
        self.worker.is_some() && Worker::wants(event)
    }

    pub fn on_event(&self, event: &Event) {
        if let Some(worker) = self.worker.as_ref().filter(|_| Worker::wants(event)) {
            worker.on_event(event);
        }
    }

    pub fn is_detached(&self) -> bool {
        self.worker.is_some()
    }

    pub fn asked_rate(&self) -> Option<Timetable> {
        self.worker.as_ref().and_then(Worker::asked_rate)
    }

    pub fn rate_is(&self, asked: &Timetable, limit_bytes_per_s: Option<u64>) {
        if let Some(worker) = &self.worker {
            worker.rate_is(asked, limit_bytes_per_s);
        }
    }

    pub fn ended(&self, ended: Result<&Report, &Error>, code: u8, kept: Option<Kept>) {
        if let Some(worker) = &self.worker {
            worker.ended(ended, code);
        }
        if kept.is_some() {
            *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = kept;
        }
    }

    /// Runs `--notify` and closes the record, after all other output.
    pub fn finish(&self) {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(notify), Some(kept)) = (&self.notify, kept)
            && let Err(error) = notify.run(&to_line(&kept))
        {
            let _ = write!(std::io::stderr(), "{}", failure::warning(&error));
        }
        if let Some(worker) = &self.worker {
            worker.close();
        }
    }
}
