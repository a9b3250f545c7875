//! What is done when a copy is over: its report is kept, its record closed, and whoever wants to know is told.

use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

use haul_job::{Error, Event, Report};

use crate::args::Cp;
use crate::detached::Worker;
use crate::kept::Kept;
use crate::notify::Notify;
use crate::{failure, json_text};

/// Who is to be told.
#[derive(Default)]
pub struct After {
    worker: Option<Worker>,
    notify: Option<Notify>,
    kept: Mutex<Option<Kept>>,
}

impl After {
    /// Judges the flags. In the process of a detached copy, takes that copy over.
    pub fn of(typed: &Cp) -> Result<Self, Error> {
        let notify = typed.goes_on.notify.as_deref().map(Notify::parse).transpose()?;
        let worker = typed.goes_on.detached_as.map(Worker::take).transpose()?;
        Ok(Self { worker, notify, kept: Mutex::default() })
    }

    /// Whether it takes this event.
    pub fn wants(&self, event: &Event) -> bool {
        self.worker.is_some() && Worker::wants(event)
    }

    /// An event that it wants.
    pub fn on_event(&self, event: &Event) {
        if let Some(worker) = self.worker.as_ref().filter(|_| Worker::wants(event)) {
            worker.on_event(event);
        }
    }

    /// The copy is over. The first word counts.
    pub fn ended(&self, ended: Result<&Report, &Error>, code: u8, kept: Option<Kept>) {
        if let Some(worker) = &self.worker {
            worker.ended(ended, code);
        }
        if kept.is_some() {
            *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = kept;
        }
    }

    /// All has been said.
    pub fn finish(&self) {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(notify), Some(kept)) = (&self.notify, kept)
            && let Err(error) = notify.run(&json_text::line(&kept))
        {
            let _ = write!(std::io::stderr(), "{}", failure::warning(&error));
        }
        if let Some(worker) = &self.worker {
            worker.close();
        }
    }
}
