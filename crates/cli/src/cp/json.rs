//! The events for a program, an object a line, promised in `docs/use/json.md` and pinned by a test.
//!
//! Types are converted by hand: an internal change must not change the output.

use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use haul_job::{Cause, Change, Error, Event, Job, Report};
use serde::Serialize;

use crate::json::error::{ErrorLine, of_error};
use crate::json::line::to_line;
use crate::json::values::{Named, SCHEMA, named, seconds, share};
use crate::progress::outlook::{Foreknown, Outlook};
use crate::report::class::class_name;
use crate::report::json::{ReportLine, of_report};
use crate::report::paths::{SubflowLine, of_subflows};

pub struct JsonLines {
    started: Instant,
    /// `None` after the last line: a thread of a finished job may still report a lane.
    out: Mutex<Option<Box<dyn Write + Send>>>,
    outlook: Mutex<Outlook>,
    of_line: Option<usize>,
}

impl JsonLines {
    /// Counts time from now. `of_line` is the job's place in its batch.
    pub fn new(out: Box<dyn Write + Send>, of_line: Option<usize>) -> Self {
        Self { started: Instant::now(), out: Mutex::new(Some(out)), outlook: Mutex::default(), of_line }
    }

    pub fn with(self, foreknown: Foreknown) -> Self {
        Self { outlook: Mutex::new(Outlook::default().with(foreknown)), ..self }
    }

    pub fn start(&self, job: &Job) {
        self.write(&of_job(job), true);
    }

    pub fn on_event(&self, event: &Event) {
        let line = {
            let mut outlook = self.outlook.lock().unwrap_or_else(PoisonError::into_inner);
            of_event(event, self.started.elapsed(), &mut outlook)
        };
        if let Some(line) = line {
            // For a million entries, a system call a line would cost too much.
            let is_frequent =
                matches!(line, Line::Copied { .. } | Line::Deleted { .. } | Line::LeftOut { .. } | Line::Item { .. });
            self.write(&line, !is_frequent);
        }
    }

    pub fn report(&self, report: &Report, exit_code: u8) {
        self.write_last(&Line::Report(Box::new(of_report(report, exit_code))));
    }

    pub fn error(&self, error: &Error) {
        self.write_last(&Line::Error(of_error(error)));
    }

    fn write(&self, line: &Line, flush: bool) {
        if let Some(out) = self.out().as_mut() {
            self.write_to(out, line, flush);
        }
    }

    fn write_last(&self, line: &Line) {
        if let Some(mut out) = self.out().take() {
            self.write_to(&mut out, line, true);
        }
    }

    fn write_to(&self, out: &mut impl Write, line: &Line, flush: bool) {
        let text = render(line, self.started.elapsed(), self.of_line);
        let _ = out.write_all(text.as_bytes());
        if flush {
            let _ = out.flush();
        }
    }

    fn out(&self) -> MutexGuard<'_, Option<Box<dyn Write + Send>>> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn render(line: &Line, at: Duration, of_line: Option<usize>) -> String {
    to_line(&Stamped { line, of_line, at_s: seconds(at) })
}

#[derive(Serialize)]
struct Stamped<'a> {
    #[serde(flatten)]
    line: &'a Line,
    #[serde(rename = "line", skip_serializing_if = "Option::is_none")]
    of_line: Option<usize>,
    at_s: f64,
}

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line {
    Start {
        schema: u32,
        version: &'static str,
        sources: Vec<Named>,
        target: Named,
        dry_run: bool,
    },
    Connecting {
        place: String,
    },
    Installing {
        place: String,
        bytes: u64,
    },
    Chose {
        what: &'static str,
        choice: String,
        reason: String,
    },
    Found {
        files: u64,
        bytes: u64,
        complete: bool,
    },
    Progress {
        files_done: u64,
        files_found: u64,
        bytes_moved: u64,
        bytes_kept: u64,
        bytes_read_again: u64,
        bytes_found: u64,
        found_all: bool,
        lanes: u16,
        failed: u64,
        rate_bytes_per_s: Option<u64>,
        files_left: u64,
        bytes_left: u64,
        bytes_to_flush: u64,
        eta_s: Option<f64>,
        done_share: Option<f64>,
        no_data_s: Option<f64>,
    },
    Path {
        number: u16,
        rate_bytes_per_s: u64,
        rtt_us: u32,
        rtt_min_us: u32,
        queueing_us: u32,
        resent_ppm: u32,
        lanes: u16,
        pacing_bytes_per_s: u64,
        held_by: Option<&'static str>,
        class: &'static str,
        marked_lanes: u16,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        subflows: Vec<SubflowLine>,
    },
    Copied {
        #[serde(flatten)]
        path: Named,
        bytes: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        bytes_matched: Option<u64>,
        change: &'static str,
    },
    Deleted {
        #[serde(flatten)]
        path: Named,
        directory: bool,
    },
    Skipped {
        #[serde(flatten)]
        path: Named,
        why: String,
    },
    LeftOut {
        #[serde(flatten)]
        path: Named,
        rule: &'static str,
    },
    Item {
        #[serde(flatten)]
        path: Named,
        changes: String,
        size: u64,
        mtime_s: i64,
    },
    Failed {
        #[serde(flatten)]
        path: Named,
        why: String,
    },
    Retry {
        why: String,
        pause_s: f64,
        gives_up_after_s: Option<f64>,
    },
    RateLimit {
        limit_bytes_per_s: Option<u64>,
    },
    Warning {
        text: String,
    },
    Report(Box<ReportLine>),
    Error(ErrorLine),
}

fn of_job(job: &Job) -> Line {
    Line::Start {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        sources: job.sources.iter().map(|source| named(&source.written())).collect(),
        target: named(&job.target.written()),
        dry_run: job.selection.dry_run,
    }
}

fn of_event(event: &Event, at: Duration, outlook: &mut Outlook) -> Option<Line> {
    Some(match event {
        Event::Connecting { place } => Line::Connecting { place: place.clone() },
        Event::Installing { place, bytes } => Line::Installing { place: place.clone(), bytes: *bytes },
        Event::Chose { what, choice, reason } => {
            Line::Chose { what: what.name(), choice: choice.clone(), reason: reason.clone() }
        }
        Event::Found { files, bytes, complete } => Line::Found { files: *files, bytes: *bytes, complete: *complete },
        Event::Progress(p) => {
            outlook.add(at, p);
            let left = outlook.left(at, p);
            Line::Progress {
                files_done: p.files_done,
                files_found: p.files_found,
                bytes_moved: p.bytes_moved,
                bytes_kept: p.bytes_kept,
                bytes_read_again: p.bytes_read_again,
                bytes_found: p.bytes_found,
                found_all: p.found_all,
                lanes: p.lanes,
                failed: p.failed,
                rate_bytes_per_s: outlook.bytes_per_s().map(|rate| rate as u64),
                files_left: left.files,
                bytes_left: left.bytes,
                bytes_to_flush: p.bytes_to_flush,
                eta_s: left.time.map(seconds),
                done_share: left.done.map(share),
                no_data_s: p.no_data_for.map(seconds),
            }
        }
        Event::Path(p) => Line::Path {
            number: p.path,
            rate_bytes_per_s: p.rate_bytes_per_s,
            rtt_us: p.rtt_us,
            rtt_min_us: p.rtt_min_us,
            queueing_us: p.queueing_us,
            resent_ppm: p.resent_ppm,
            lanes: p.lanes,
            pacing_bytes_per_s: p.pacing_bytes_per_s,
            held_by: p.held_by.map(Cause::name),
            class: class_name(p.mark),
            marked_lanes: p.marked_lanes,
            subflows: of_subflows(&p.subflows),
        },
        Event::Copied { path, bytes, bytes_matched, change } => {
            let change = match change {
                Change::Data => "data",
                Change::Metadata => "metadata",
                Change::Made => "made",
            };
            Line::Copied {
                path: named(path),
                bytes: *bytes,
                bytes_matched: Some(*bytes_matched).filter(|bytes| *bytes > 0),
                change,
            }
        }
        Event::Deleted { path, is_directory } => Line::Deleted { path: named(path), directory: *is_directory },
        Event::Skipped { path, why } => Line::Skipped { path: named(path), why: why.clone() },
        Event::LeftOut { path, rule } => Line::LeftOut { path: named(path), rule: rule.name() },
        Event::Item(item) => {
            let changes = crate::progress::itemise::letters(item, crate::progress::itemise::Direction::Here);
            Line::Item { path: named(&item.path), changes, size: item.size, mtime_s: item.mtime_s }
        }
        Event::Failed { path, why } => Line::Failed { path: named(path), why: why.clone() },
        Event::Retry { why, pause, gives_up_after } => {
            outlook.broke_off(at);
            Line::Retry { why: why.clone(), pause_s: seconds(*pause), gives_up_after_s: gives_up_after.map(seconds) }
        }
        Event::RateLimit { bytes_per_s } => {
            outlook.limit_rate(*bytes_per_s);
            Line::RateLimit { limit_bytes_per_s: *bytes_per_s }
        }
        Event::Warning { text } => Line::Warning { text: text.clone() },
        Event::Manifest(_) => return None,
    })
}

#[cfg(test)]
mod tests;
