//! The events for a program: one JSON object a line. `docs/json.md` is the promise; a test pins it.
//!
//! The types are converted from the events by hand: a change inside the program must not change the output.

mod paths;
mod time;

use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use haul_job::{Cause, Change, Error, Event, Host, Job, PathSummary, Report};
use serde::{Deserialize, Serialize};

use crate::class::{ClassChangeLine, ClassLine, class_name, of_class_change, of_service};
use crate::outlook::Outlook;
use crate::{endpoint, failure, json_text, limit};

use paths::of_each_path;
pub use paths::{OnePathLine, SubflowLine, of_paths, of_subflows};
pub use time::{TimeLine, of_shares};

/// Writes each event as a line.
pub struct JsonLines {
    started: Instant,
    /// `None` after the last line: a thread of a finished job may still try to report a new lane.
    out: Mutex<Option<Box<dyn Write + Send>>>,
    outlook: Mutex<Outlook>,
    /// Of the job in its batch.
    of_line: Option<usize>,
}

impl JsonLines {
    /// Writes to `out` and counts time from now. `of_line`: where the job stands in its batch.
    pub fn new(out: Box<dyn Write + Send>, of_line: Option<usize>) -> Self {
        Self { started: Instant::now(), out: Mutex::new(Some(out)), outlook: Mutex::default(), of_line }
    }

    /// With what a file costs on this path.
    pub fn knowing(self, bytes_per_file: Option<f64>) -> Self {
        Self { outlook: Mutex::new(Outlook::default().with_usual(bytes_per_file)), ..self }
    }

    /// The first line.
    pub fn start(&self, job: &Job) {
        self.write(&of_job(job), true);
    }

    /// One event.
    pub fn on_event(&self, event: &Event) {
        let line = {
            let mut outlook = self.outlook.lock().unwrap_or_else(PoisonError::into_inner);
            of_event(event, self.started.elapsed(), &mut outlook)
        };
        if let Some(line) = line {
            // With a million entries, a system call for each line would cost too much.
            let is_frequent =
                matches!(line, Line::Copied { .. } | Line::Deleted { .. } | Line::LeftOut { .. } | Line::Item { .. });
            self.write(&line, !is_frequent);
        }
    }

    /// The last line of a completed job.
    pub fn report(&self, report: &Report, exit_code: u8) {
        self.write_last(&Line::Report(Box::new(of_report(report, exit_code))));
    }

    /// The last line of a job that broke off.
    pub fn error(&self, error: &Error) {
        self.write_last(&Line::Error(of_error(error)));
    }

    fn write(&self, line: &Line, flush: bool) {
        if let Some(out) = self.out().as_mut() {
            self.write_to(out, line, flush);
        }
    }

    /// No line follows the last one.
    fn write_last(&self, line: &Line) {
        if let Some(mut out) = self.out().take() {
            self.write_to(&mut out, line, true);
        }
    }

    fn write_to(&self, out: &mut impl Write, line: &Line, flush: bool) {
        let text = render(line, self.started.elapsed(), self.of_line);
        // A closed pipe does not end the job.
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
    json_text::line(&Stamped { line, of_line, at_s: seconds(at) })
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
    Warning {
        text: String,
    },
    Report(Box<ReportLine>),
    Error(ErrorLine),
}

/// Why a job broke off.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct ErrorLine {
    pub fault: String,
    pub what: String,
    pub cause: Option<String>,
    pub hint: Option<String>,
    pub exit_code: u8,
}

/// A path of any bytes: as text, and in hexadecimal if it is not valid text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Named {
    /// As text.
    pub path: String,
    /// Exactly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_hex: Option<String>,
}

/// The totals, and where the time went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct ReportLine {
    pub exit_code: u8,
    pub result: String,
    pub dry_run: bool,
    pub files_found: u64,
    pub files_moved: u64,
    pub files_kept: u64,
    #[serde(default)]
    pub files_linked: u64,
    #[serde(default)]
    pub files_copied_there: u64,
    pub others_made: u64,
    pub deleted: u64,
    pub skipped: u64,
    #[serde(default)]
    pub left_out: u64,
    #[serde(default)]
    pub removed: u64,
    pub failed: u64,
    pub vanished: u64,
    pub unverified: u64,
    pub bytes_found: u64,
    pub bytes_moved: u64,
    pub bytes_again: u64,
    // Missing in reports of earlier versions.
    #[serde(default)]
    pub bytes_reread: u64,
    #[serde(default)]
    pub chunks_repaired: u64,
    #[serde(default)]
    pub bytes_read_again: u64,
    #[serde(default)]
    pub bytes_trusted: u64,
    pub bytes_kept: u64,
    #[serde(default)]
    pub bytes_holes: u64,
    pub elapsed_s: f64,
    pub connected_s: Option<f64>,
    pub first_byte_s: Option<f64>,
    pub last_byte_s: Option<f64>,
    pub rate_bytes_per_s: u64,
    pub lanes: u16,
    pub lane_path: String,
    pub cipher: String,
    #[serde(default)]
    pub earlier_tries: u32,
    #[serde(default)]
    pub earlier_bytes_moved: u64,
    #[serde(default)]
    pub earlier_elapsed_s: f64,
    #[serde(default)]
    pub only_blake3: Option<String>,
    pub root_blake3: String,
    pub root_files: u64,
    pub limit: String,
    pub limit_share: f64,
    pub limited_by: Option<String>,
    pub time: TimeLine,
    pub path: PathLine,
    #[serde(default)]
    pub paths: Vec<OnePathLine>,
    /// Each change of the service class, in order.
    #[serde(default)]
    pub class_changes: Vec<ClassChangeLine>,
    pub source: HostLine,
    pub target: HostLine,
    pub remedies: Vec<RemedyLine>,
    pub failures: Vec<Failure>,
}

/// The path as its sender saw it; 0 means unknown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct PathLine {
    pub rtt_min_us: u32,
    pub queueing_us: u32,
    pub resent_ppm: u32,
    pub capacity_bytes_per_s: u64,
    pub window_bytes: u64,
    pub lanes: u16,
    pub congestion_control: String,
    pub rate_variation_permille: u32,
    #[serde(flatten)]
    pub class: ClassLine,
}

/// One end, and the limits of its connections; 0 and empty mean unknown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct HostLine {
    pub place: String,
    pub cpus: u16,
    pub rmem_max_bytes: u64,
    pub wmem_max_bytes: u64,
    pub tcp_rmem_max_bytes: u64,
    pub tcp_wmem_max_bytes: u64,
    pub congestion_control: String,
    pub allowed_congestion_controls: Vec<String>,
}

/// What would help.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RemedyLine {
    /// For a person.
    pub text: String,
    /// A command for the host that the text names.
    pub command: Option<String>,
}

/// An entry that failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Failure {
    #[serde(flatten)]
    pub path: Named,
    pub why: String,
}

fn of_job(job: &Job) -> Line {
    Line::Start {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        sources: job.sources.iter().map(|source| named(&endpoint::text(source))).collect(),
        target: named(&endpoint::text(&job.target)),
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
        Event::Copied { path, bytes, change } => {
            let change = match change {
                Change::Data => "data",
                Change::Metadata => "metadata",
                Change::Made => "made",
            };
            Line::Copied { path: named(path), bytes: *bytes, change }
        }
        Event::Deleted { path, is_directory } => Line::Deleted { path: named(path), directory: *is_directory },
        Event::Skipped { path, why } => Line::Skipped { path: named(path), why: why.clone() },
        Event::LeftOut { path, rule } => Line::LeftOut { path: named(path), rule: rule.name() },
        Event::Item(item) => {
            let changes = crate::itemise::letters(item, crate::itemise::Direction::Here);
            Line::Item { path: named(&item.path), changes, size: item.size, mtime_s: item.mtime_s }
        }
        Event::Failed { path, why } => Line::Failed { path: named(path), why: why.clone() },
        Event::Retry { why, pause, gives_up_after } => {
            outlook.broke_off(at);
            Line::Retry { why: why.clone(), pause_s: seconds(*pause), gives_up_after_s: gives_up_after.map(seconds) }
        }
        Event::Warning { text } => Line::Warning { text: text.clone() },
        // These lines have their own output: --manifest-out.
        Event::Manifest(_) => return None,
    })
}

/// The report as programs read it.
pub fn of_report(r: &Report, exit_code: u8) -> ReportLine {
    ReportLine {
        exit_code,
        result: failure::name_of_code(exit_code).to_owned(),
        dry_run: r.dry_run,
        files_found: r.files_found,
        files_moved: r.files_moved,
        files_kept: r.files_kept,
        files_linked: r.files_linked,
        files_copied_there: r.files_copied_there,
        others_made: r.others_made,
        deleted: r.deleted,
        skipped: r.skipped,
        left_out: r.left_out,
        removed: r.removed,
        failed: r.failed,
        vanished: r.vanished,
        unverified: r.unverified,
        bytes_found: r.bytes_found,
        bytes_moved: r.bytes_moved,
        bytes_again: r.bytes_again,
        bytes_reread: r.bytes_reread,
        chunks_repaired: r.chunks_repaired,
        bytes_read_again: r.bytes_read_again,
        bytes_trusted: r.bytes_trusted,
        bytes_kept: r.bytes_kept,
        bytes_holes: r.bytes_holes,
        elapsed_s: seconds(r.elapsed),
        connected_s: r.connected.map(seconds),
        first_byte_s: r.first_byte.map(seconds),
        last_byte_s: r.last_byte.map(seconds),
        rate_bytes_per_s: (r.bytes_moved as f64 / r.elapsed.as_secs_f64().max(1e-9)) as u64,
        lanes: r.lanes,
        lane_path: r.lane_path.map_or_else(String::new, |path| path.name().to_owned()),
        cipher: r.cipher.clone(),
        earlier_tries: r.earlier.tries,
        earlier_bytes_moved: r.earlier.bytes_moved,
        earlier_elapsed_s: seconds(r.earlier.elapsed),
        only_blake3: r.only_blake3.map(|hash| hex(&hash)),
        root_blake3: hex(&r.root_blake3),
        root_files: r.root_files,
        limit: r.limit.map_or("nothing moved", |limit| limit.cause.name()).to_owned(),
        limit_share: share(r.limit.map_or(0.0, |limit| limit.share)),
        limited_by: limit::limited_by(r),
        time: of_shares(&r.time),
        path: of_path(&r.path),
        paths: of_each_path(r),
        source: of_host(&r.source),
        target: of_host(&r.target),
        remedies: limit::remedies(r)
            .into_iter()
            .map(|remedy| RemedyLine { text: remedy.words, command: remedy.command })
            .collect(),
        class_changes: r.class_changes.iter().map(|change| of_class_change(change, seconds(change.at))).collect(),
        failures: r.failures.iter().map(|(path, why)| Failure { path: named(path), why: why.clone() }).collect(),
    }
}

pub fn of_path(path: &PathSummary) -> PathLine {
    PathLine {
        rtt_min_us: path.rtt_min_us,
        queueing_us: path.queueing_us,
        resent_ppm: path.resent_ppm,
        capacity_bytes_per_s: path.capacity_bytes_per_s,
        window_bytes: path.window_bytes,
        lanes: path.lanes,
        congestion_control: path.congestion_control.clone(),
        rate_variation_permille: path.rate_variation_permille,
        class: of_service(&path.service),
    }
}

pub fn of_host(host: &Host) -> HostLine {
    let limits = &host.limits;
    HostLine {
        place: host.place.clone(),
        cpus: host.cpus,
        rmem_max_bytes: limits.rmem_max_bytes,
        wmem_max_bytes: limits.wmem_max_bytes,
        tcp_rmem_max_bytes: limits.tcp_rmem_max_bytes,
        tcp_wmem_max_bytes: limits.tcp_wmem_max_bytes,
        congestion_control: limits.congestion_control.clone(),
        allowed_congestion_controls: limits.allowed_congestion_controls.clone(),
    }
}

/// The error as programs read it.
pub fn of_error(error: &Error) -> ErrorLine {
    let exit = failure::of_fault(error.fault);
    ErrorLine {
        fault: exit.name.to_owned(),
        what: error.what.clone(),
        cause: error.cause.clone(),
        hint: failure::hint(error).map(str::to_owned),
        exit_code: exit.code,
    }
}

/// A path as programs read it.
pub fn named(path: &[u8]) -> Named {
    let path_hex = std::str::from_utf8(path).is_err().then(|| hex(path));
    Named { path: String::from_utf8_lossy(path).into_owned(), path_hex }
}

/// In small letters.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Rounded to milliseconds, which compare without noise.
pub fn seconds(d: Duration) -> f64 {
    (d.as_secs_f64() * 1e3).round() / 1e3
}

/// Rounded to four digits; NaN and infinity become 0.
pub fn share(fraction: f64) -> f64 {
    if fraction.is_finite() { (fraction * 1e4).round() / 1e4 } else { 0.0 }
}

/// Rises when a field changes its meaning or goes away; new fields and events do not raise it. See docs/json.md.
pub const SCHEMA: u32 = 2;

#[cfg(test)]
mod tests;
