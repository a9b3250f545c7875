//! Finds the class that a job needs to be done by its deadline.

use haul_engine::service::ServiceClass;
use haul_engine::service::schedule::{News, Progress, Schedule};
use haul_job::Subject;
use haul_wire::control::{Carriage, Notice};

use haul_channel::convert;

use super::service::described;
use super::work::Left;

pub(crate) struct Deadline {
    schedule: Option<Schedule>,
    wanted: Option<ServiceClass>,
    untold: Vec<Notice>,
}

/// A job's present state.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    pub(crate) at_us: u64,
    /// Bytes verified at the target.
    pub delivered_bytes: u64,
    /// The bytes' class now.
    pub class: ServiceClass,
    pub(crate) allowed_most: ServiceClass,
}

impl Deadline {
    pub fn new(carriage: &Carriage) -> Self {
        let left_ms = carriage.service.time_left_ms;
        let schedule =
            left_ms.map(|ms| Schedule::new(0, ms.saturating_mul(1000)).with_ceiling(carriage.rate_bytes_per_s));
        Self { schedule, wanted: None, untold: Vec::new() }
    }

    pub(crate) fn limit_rate(&mut self, bytes_per_s: Option<u64>) {
        self.schedule = self.schedule.take().map(|schedule| schedule.with_ceiling(bytes_per_s));
    }

    /// The wanted class; `None` without a deadline.
    pub(crate) fn on_sample(&mut self, now: Now, left: impl FnOnce() -> Left) -> Option<ServiceClass> {
        let schedule = self.schedule.as_mut()?;
        let left = left();
        let progress = Progress {
            done_bytes: now.delivered_bytes,
            done_files: left.done_files,
            left_bytes: left.bytes,
            left_files: left.files,
            class: now.class,
            allowed_most: now.allowed_most,
        };
        let wanted = schedule.on_sample(now.at_us, progress);
        if let Some(news) = wanted.news {
            self.untold.push(match news {
                _ if news.is_warning() => Notice::Warning { text: convert::bounded(news.to_string()) },
                News::CanBeMet { .. } => convert::chose(Subject::Class, "deadline", news.to_string()),
                _ => convert::chose(Subject::Class, described(wanted.class), news.to_string()),
            });
        }
        self.wanted = Some(wanted.class);
        self.wanted
    }

    pub fn told(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.untold)
    }
}
