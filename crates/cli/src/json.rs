//! What a program sees: one JSON object a line. `docs/json.md` is the promise; a test pins it.
//!
//! The types here are converted by hand from the events, so that a change inside does not change what others read.

use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use haul_transfer::{Change, Error, Event, Job, Report};
use serde::Serialize;

use crate::failure;
use crate::job::endpoint_text;

/// Writes each event as a line.
pub struct JsonLines {
    started: Instant,
    out: Mutex<Box<dyn Write + Send>>,
}

impl JsonLines {
    /// Writes to `out` and counts time from now.
    pub fn new(out: Box<dyn Write + Send>) -> Self {
        Self { started: Instant::now(), out: Mutex::new(out) }
    }

    /// The first line.
    pub fn start(&self, job: &Job) {
        self.write(&of_job(job), true);
    }

    /// One event.
    pub fn on_event(&self, event: &Event) {
        if let Some(line) = of_event(event) {
            // A line for each of a million entries need not be a system call for each.
            self.write(&line, !matches!(line, Line::Copied { .. } | Line::Deleted { .. }));
        }
    }

    /// The last line of a job that went to its end.
    pub fn report(&self, report: &Report, exit_code: u8) {
        self.write(&of_report(report, exit_code), true);
    }

    /// The last line of a job that did not.
    pub fn error(&self, error: &Error) {
        self.write(&of_error(error), true);
    }

    fn write(&self, line: &Line, flush: bool) {
        let text = render(line, self.started.elapsed());
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        // A reader that went away does not end the job.
        let _ = out.write_all(text.as_bytes());
        if flush {
            let _ = out.flush();
        }
    }
}

fn render(line: &Line, at: Duration) -> String {
    let stamped = Stamped { line, at_s: seconds(at) };
    let mut text = serde_json::to_string(&stamped).expect("plain structs of numbers and strings");
    text.push('\n');
    text
}

#[derive(Serialize)]
struct Stamped<'a> {
    #[serde(flatten)]
    line: &'a Line,
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
        bytes_found: u64,
        found_all: bool,
        lanes: u16,
        failed: u64,
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
    },
    Skipped {
        #[serde(flatten)]
        path: Named,
        why: String,
    },
    Failed {
        #[serde(flatten)]
        path: Named,
        why: String,
    },
    Warning {
        text: String,
    },
    Report(Box<ReportLine>),
    Error {
        fault: &'static str,
        what: String,
        cause: Option<String>,
        hint: Option<String>,
        exit_code: u8,
    },
}

/// A path of any bytes: as text, and exactly when it is not text.
#[derive(Serialize)]
struct Named {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
}

#[derive(Serialize)]
struct ReportLine {
    exit_code: u8,
    result: &'static str,
    dry_run: bool,
    files_found: u64,
    files_moved: u64,
    files_kept: u64,
    others_made: u64,
    deleted: u64,
    skipped: u64,
    failed: u64,
    vanished: u64,
    unverified: u64,
    bytes_found: u64,
    bytes_moved: u64,
    bytes_again: u64,
    bytes_kept: u64,
    elapsed_s: f64,
    first_byte_s: Option<f64>,
    rate_bytes_per_s: u64,
    lanes: u16,
    lane_path: String,
    cipher: String,
    root_blake3: String,
    root_files: u64,
    limit: &'static str,
    time: TimeLine,
    failures: Vec<Failure>,
}

/// Fractions of the lanes' time.
#[derive(Serialize)]
struct TimeLine {
    source_storage: f64,
    source_cpu: f64,
    network: f64,
    target_cpu: f64,
    target_storage: f64,
    idle: f64,
}

#[derive(Serialize)]
struct Failure {
    #[serde(flatten)]
    path: Named,
    why: String,
}

fn of_job(job: &Job) -> Line {
    Line::Start {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        sources: job.sources.iter().map(|source| named(&endpoint_text(source))).collect(),
        target: named(&endpoint_text(&job.target)),
        dry_run: job.selection.dry_run,
    }
}

fn of_event(event: &Event) -> Option<Line> {
    Some(match event {
        Event::Connecting { place } => Line::Connecting { place: place.clone() },
        Event::Installing { place, bytes } => Line::Installing { place: place.clone(), bytes: *bytes },
        Event::Chose { what, choice, reason } => Line::Chose { what, choice: choice.clone(), reason: reason.clone() },
        Event::Found { files, bytes, complete } => Line::Found { files: *files, bytes: *bytes, complete: *complete },
        Event::Progress(p) => Line::Progress {
            files_done: p.files_done,
            files_found: p.files_found,
            bytes_moved: p.bytes_moved,
            bytes_kept: p.bytes_kept,
            bytes_found: p.bytes_found,
            found_all: p.found_all,
            lanes: p.lanes,
            failed: p.failed,
        },
        Event::Copied { path, bytes, change } => {
            let change = match change {
                Change::Data => "data",
                Change::Metadata => "metadata",
                Change::Made => "made",
            };
            Line::Copied { path: named(path), bytes: *bytes, change }
        }
        Event::Deleted { path } => Line::Deleted { path: named(path) },
        Event::Skipped { path, why } => Line::Skipped { path: named(path), why: why.clone() },
        Event::Failed { path, why } => Line::Failed { path: named(path), why: why.clone() },
        Event::Warning { text } => Line::Warning { text: text.clone() },
        // These lines have a file of their own: --manifest-out.
        Event::Manifest(_) => return None,
    })
}

fn of_report(r: &Report, exit_code: u8) -> Line {
    Line::Report(Box::new(ReportLine {
        exit_code,
        result: failure::name_of_code(exit_code),
        dry_run: r.dry_run,
        files_found: r.files_found,
        files_moved: r.files_moved,
        files_kept: r.files_kept,
        others_made: r.others_made,
        deleted: r.deleted,
        skipped: r.skipped,
        failed: r.failed,
        vanished: r.vanished,
        unverified: r.unverified,
        bytes_found: r.bytes_found,
        bytes_moved: r.bytes_moved,
        bytes_again: r.bytes_again,
        bytes_kept: r.bytes_kept,
        elapsed_s: seconds(r.elapsed),
        first_byte_s: r.first_byte.map(seconds),
        rate_bytes_per_s: (r.bytes_moved as f64 / r.elapsed.as_secs_f64().max(1e-9)) as u64,
        lanes: r.lanes,
        lane_path: r.lane_path.clone(),
        cipher: r.cipher.clone(),
        root_blake3: hex(&r.root_blake3),
        root_files: r.root_files,
        limit: r.limit.as_str(),
        time: TimeLine {
            source_storage: share(r.time.source_storage),
            source_cpu: share(r.time.source_cpu),
            network: share(r.time.network),
            target_cpu: share(r.time.target_cpu),
            target_storage: share(r.time.target_storage),
            idle: share(r.time.idle),
        },
        failures: r.failures.iter().map(|(path, why)| Failure { path: named(path), why: why.clone() }).collect(),
    }))
}

fn of_error(error: &Error) -> Line {
    let exit = failure::of_fault(error.fault);
    Line::Error {
        fault: exit.name,
        what: error.what.clone(),
        cause: error.cause.clone(),
        hint: failure::hint(error).map(str::to_owned),
        exit_code: exit.code,
    }
}

fn named(path: &[u8]) -> Named {
    let path_hex = std::str::from_utf8(path).is_err().then(|| hex(path));
    Named { path: String::from_utf8_lossy(path).into_owned(), path_hex }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Milliseconds are enough, and a reader compares them without noise.
fn seconds(d: Duration) -> f64 {
    (d.as_secs_f64() * 1e3).round() / 1e3
}

/// Four digits; what is not a number is nothing.
fn share(fraction: f64) -> f64 {
    if fraction.is_finite() { (fraction * 1e4).round() / 1e4 } else { 0.0 }
}

/// Rises when a field changes its meaning or goes; new fields and events come without it. See docs/json.md.
pub const SCHEMA: u32 = 1;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use haul_transfer::{Carriage, Endpoint, Fault, Place, Progress, Selection, SshOptions};

    use super::*;
    use crate::report::tests::report;

    /// Every kind of line once, with every field set.
    fn all_lines() -> Vec<Line> {
        let job = Job {
            sources: vec![
                Endpoint { place: Place::Local, path: b"data/".to_vec() },
                Endpoint { place: Place::Local, path: b"odd\xff".to_vec() },
            ],
            target: Endpoint {
                place: Place::Ssh { user: Some("me".into()), host: "host-b".into(), port: None },
                path: b"in".to_vec(),
            },
            selection: Selection::default(),
            carriage: Carriage::default(),
            ssh: SshOptions::default(),
        };
        let path = b"data/a".to_vec();
        let events = [
            Event::Connecting { place: "me@host-b".into() },
            Event::Installing { place: "me@host-b".into(), bytes: 12_000_000 },
            Event::Chose { what: "lanes", choice: "4".into(), reason: "2 cores at the slower end".into() },
            Event::Found { files: 3, bytes: 4096, complete: true },
            Event::Progress(Progress {
                files_done: 1,
                files_found: 3,
                bytes_moved: 1024,
                bytes_kept: 512,
                bytes_found: 4096,
                found_all: true,
                lanes: 4,
                failed: 1,
            }),
            Event::Copied { path: path.clone(), bytes: 1024, change: Change::Data },
            Event::Copied { path: b"odd\xff".to_vec(), bytes: 0, change: Change::Made },
            Event::Deleted { path: path.clone() },
            Event::Skipped { path: path.clone(), why: "it is a socket".into() },
            Event::Failed { path: path.clone(), why: "cannot read: permission denied".into() },
            Event::Warning { text: "a lane died and came back".into() },
        ];
        let failed = Report { failed: 1, failures: vec![(path, "permission denied".into())], ..report() };
        let error = Error::new(Fault::Network, "cannot reach host-b").because("connection refused").try_this("-P");
        let mut lines = vec![of_job(&job)];
        lines.extend(events.iter().filter_map(of_event));
        lines.push(of_report(&failed, 23));
        lines.push(of_error(&error));
        lines
    }

    #[test]
    fn the_schema_is_what_the_documentation_promises() {
        let text: String = all_lines().iter().map(|line| render(line, Duration::from_millis(1_500))).collect();
        insta::assert_snapshot!("json_lines", text);
    }

    #[test]
    fn every_line_is_one_object_and_every_field_is_documented() {
        let documentation = include_str!("../../../docs/json.md");
        for line in all_lines() {
            let text = render(&line, Duration::ZERO);
            assert_eq!(text.matches('\n').count(), 1);
            let value: serde_json::Value = serde_json::from_str(&text).unwrap();
            let object = value.as_object().unwrap();
            let event = object["event"].as_str().unwrap();
            assert!(documentation.contains(&format!("### `{event}`")), "{event}");
            for field in object.keys() {
                assert!(documentation.contains(&format!("`{field}`")), "{event}: {field}");
            }
        }
    }

    #[test]
    fn a_reader_that_went_away_is_no_error() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(std::io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Err(std::io::ErrorKind::BrokenPipe.into())
            }
        }
        let lines = Arc::new(JsonLines::new(Box::new(Closed)));
        lines.on_event(&Event::Warning { text: "x".into() });
        lines.report(&report(), 0);
    }
}
