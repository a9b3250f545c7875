//! `haul cp`: typed arguments -> job -> run -> closing lines and exit code.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::CommandFactory as _;
use haul_job::{Cause, Earlier, Error, Event, Fault, Job, Observer, Report};
use haul_transfer::Surroundings;

use crate::after::After;
use crate::args::{Cp, Filter, Typed};
use crate::itemise::Direction;
use crate::json::{self, JsonLines};
use crate::kept::{self, Kept, SoFar};
use crate::log_file::LogFile;
use crate::manifest_out::{self, ManifestOut};
use crate::place::stream;
use crate::progress::{Manner, Screen, Show};
use crate::retry::{Next, Patience, Retries, Try};
use crate::speaker::{Speaker, Word};
use crate::{detached, ending, endpoint, failure, job, output, report, signals, usual};

/// Carries the copy out.
pub fn run(typed: &Cp, filters: &[Filter]) -> ExitCode {
    if typed.human_readable && typed.paths.is_empty() {
        if let Some(cp) = Typed::command().find_subcommand_mut("cp") {
            output::note(cp.print_help());
        }
        return ExitCode::SUCCESS;
    }
    if let Some(code) = stream::run(typed) {
        return code;
    }
    if typed.goes_on.detach && typed.goes_on.detached_as.is_none() {
        return detached::begin(typed, filters);
    }
    haul_transfer::hide_memory();
    let after = match After::of(typed) {
        Ok(after) => Arc::new(after),
        Err(error) => return ending::failed(&error, typed.json),
    };
    let view = Arc::new(View::new(typed, None));
    let surroundings = Surroundings::of_process();
    let mut by_itself = |job: &Job, observer| haul_transfer::run(job, &surroundings, observer);
    let carried = job::from_typed(typed, filters).map_err(Box::new).and_then(|job| {
        let (interrupted, stops_at) = (signals::watch(), typed.stops.at()?);
        let carry = Carry { typed, after: &after, interrupted, stops_at, known: false, run: &mut by_itself };
        carry_out(&job, &view, carry)
    });
    let code = match carried {
        Ok(done) => done.code,
        Err(error) => {
            view.close_with(&error);
            let code = failure::of_fault(error.fault).code;
            after.ended(Err(&error), code, None);
            code
        }
    };
    after.finish();
    ExitCode::from(code)
}

/// What carries a job out: once, or again after what may pass.
pub type Run<'a> = dyn FnMut(&Job, Arc<dyn Observer>) -> Result<Report, Error> + 'a;

/// How a job is carried out.
pub struct Carry<'a> {
    /// The flags.
    pub typed: &'a Cp,
    /// Hears how it ends.
    pub after: &'a Arc<After>,
    /// The flag of the signals.
    pub interrupted: Arc<AtomicBool>,
    /// `--stop-after`, `--stop-at`.
    pub stops_at: Option<SystemTime>,
    /// The far side was there before: its name is right.
    pub known: bool,
    /// One try.
    pub run: &'a mut Run<'a>,
}

/// A job that has come to its end.
pub struct Done {
    /// The exit code.
    pub code: u8,
    /// `None`: standard output was lost meanwhile.
    pub report: Option<Report>,
}

/// Carries one job out, and shows its end if it went to its end.
pub fn carry_out(job: &Job, view: &Arc<View>, carry: Carry<'_>) -> Result<Done, Box<Error>> {
    let Carry { typed, after, interrupted, stops_at, known, run } = carry;
    let failed = Box::new;
    if typed.json && manifest_aside(typed) {
        let what = "--manifest-out - and --json both write to standard output";
        return Err(failed(Error::new(Fault::Usage, what).try_this("name a file: --manifest-out FILE")));
    }
    let manifest = typed.manifest_out.as_deref().map(ManifestOut::start).transpose().map_err(failed)?;
    if let View::Json(json) = &**view {
        json.start(job);
    }
    // Standard output that fails now would also fail at the end, after hours.
    if let Some(error) = output::lost() {
        return Err(failed(error));
    }
    let started = Instant::now();
    let so_far = Mutex::default();
    let log = typed.lines.log_file.as_deref().map(|file| LogFile::open(file, direction(typed)));
    let mut log = log.transpose().map_err(failed)?;
    let logs = log.is_some();
    let (shown, noted) = (Arc::clone(view), Arc::clone(after));
    let speak = move |event| {
        if let Some(log) = &mut log {
            log.add(&event);
        }
        noted.on_event(&event);
        shown.on_event(&event);
    };
    let speaker = Speaker::start(speak).map_err(|error| {
        let what = "cannot start the thread that prints messages";
        failed(Error::new(Fault::FileIo, what).because(error))
    })?;
    let watcher = Arc::new(Watcher {
        view: Arc::clone(view),
        after: Arc::clone(after),
        speaker,
        manifest,
        so_far,
        this_try: Mutex::default(),
        interrupted,
        logs,
        stops_at,
    });
    let mut retries = retries(typed);
    if known {
        retries.has_reached();
    }
    let ended = run_with_patience(job, retries, &watcher, started, run).map_err(|error| watcher.named(error));
    // Kept files are written first: a reader of our output may pause for long.
    let listed = match (&ended, &watcher.manifest) {
        (Ok(_), Some(manifest)) => manifest.finish(),
        // Ends here and not in `drop`: a thread of the job may still hold the watcher when the process ends.
        (Err(_), Some(manifest)) => {
            manifest.discard();
            Ok(())
        }
        _ => Ok(()),
    };
    let code = match (&ended, &listed) {
        (Err(error), _) => failure::of_fault(error.fault).code,
        // A failure of the data matters more than a failure of its list.
        (Ok(report), listed) => match (failure::of_report(report).code, listed) {
            (0, Err(error)) => failure::of_fault(error.fault).code,
            (code, _) => code,
        },
    };
    let kept = (!job.selection.dry_run).then(|| kept_report(job, &ended, code, watcher.so_far(started)));
    after.ended(ended.as_ref(), code, kept);
    if !watcher.speaker.finish(|| watcher.interrupted()) {
        return Ok(Done { code, report: ended.ok() });
    }
    let report = ended.map_err(failed)?;
    if let Err(error) = listed {
        view.manifest_failed(&error);
    }
    view.close(&report, code, typed.quiet || typed.lines.list_only);
    Ok(Done { code, report: Some(report) })
}

/// Lines of a manifest that a reader of standard output has seen cannot be taken back, so that copy is tried once.
fn retries(typed: &Cp) -> Retries {
    Retries::new(if manifest_aside(typed) { Some(Patience::Never) } else { typed.retry })
}

/// Runs the job, and again after what may pass. The journal at the target keeps what the tries before have brought.
fn run_with_patience(
    job: &Job,
    mut retries: Retries,
    watcher: &Arc<Watcher>,
    started: Instant,
    run: &mut Run<'_>,
) -> Result<Report, Error> {
    let mut earlier = Earlier::default();
    loop {
        watcher.begin_try()?;
        let ended = run(job, Arc::clone(watcher) as Arc<dyn Observer>);
        let error = match ended {
            Ok(report) => return Ok(Report { earlier, ..report }),
            Err(error) => error,
        };
        let this = watcher.this_try();
        let how = Try { reached: this.reached, moved: this.bytes_moved > 0 };
        let Some(next) = retries.after(started.elapsed(), error.fault, how) else { return Err(error) };
        let Next { pause, gives_up_after } = next;
        watcher.on_event(&Event::Retry { why: failure::in_a_line(&error), pause, gives_up_after });
        let again_at = Instant::now() + pause;
        while Instant::now() < again_at {
            if watcher.interrupted() {
                return Err(Error::new(Fault::Interrupted, "stopped by a signal, between two tries")
                    .because(failure::in_a_line(&error)));
            }
            std::thread::park_timeout(LOOK_EVERY.min(again_at.saturating_duration_since(Instant::now())));
        }
        earlier.tries += 1;
        earlier.bytes_moved += this.bytes_moved;
        earlier.elapsed = started.elapsed();
    }
}

/// How often a pause looks for a signal.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Keeps the report for `haul why`. If this fails, the copy is still a success.
fn kept_report(job: &Job, ended: &Result<Report, Error>, code: u8, so_far: SoFar) -> Kept {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let named = |endpoint| json::named(&endpoint::text(endpoint));
    let kept = Kept {
        schema: json::SCHEMA,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ended_at_s: now.as_secs(),
        sources: job.sources.iter().take(SOURCES_KEPT).map(named).collect(),
        target: named(&job.target),
        summary: ended.as_ref().ok().map(report::summary),
        report: ended.as_ref().ok().map(|report| json::of_report(report, code)),
        error: ended.as_ref().err().map(json::of_error),
        so_far,
    };
    if let Some(directory) = kept::directory() {
        let _ = kept::keep(&directory, now, std::process::id(), &kept);
    }
    kept
}

/// A shell may expand a wildcard to thousands.
const SOURCES_KEPT: usize = 100;

/// Standard output is for the manifest alone.
fn manifest_aside(typed: &Cp) -> bool {
    typed.manifest_out.as_deref() == Some(Path::new(manifest_out::STANDARD_OUTPUT))
}

fn manner(typed: &Cp) -> Manner {
    Manner {
        quiet: typed.quiet,
        verbose: typed.verbose > 0,
        very_verbose: typed.verbose > 1,
        stats: typed.lines.stats,
        dry_run: typed.dry_run || typed.lines.list_only,
        live: typed.live,
        aside: manifest_aside(typed),
        show: Show::choose(typed.progress, typed.no_progress, typed.quiet, std::io::stderr().is_terminal()),
    }
}

/// Which way the data goes, for rsync's letters.
fn direction(typed: &Cp) -> Direction {
    let is_here = |path: &std::ffi::OsString| endpoint::parse_hosts(path).is_ok_and(|(end, _)| end.place.is_here());
    match (typed.paths.first().map(is_here), typed.paths.last().map(is_here)) {
        (_, Some(false)) => Direction::Away,
        (Some(false), _) => Direction::Hither,
        _ => Direction::Here,
    }
}

/// Who is told.
pub enum View {
    /// A person; of a batch, with the line of the job.
    Screen(Screen, Option<usize>),
    /// A program.
    Json(JsonLines),
}

fn usual(typed: &Cp) -> Option<f64> {
    usual::bytes_per_file(&typed.paths.last()?.to_string_lossy())
}

impl View {
    /// As the flags say. `line`: of the job in its batch.
    pub fn new(typed: &Cp, line: Option<usize>) -> Self {
        match typed.json {
            true => {
                View::Json(JsonLines::new(Box::new(std::io::BufWriter::new(output::Out)), line).knowing(usual(typed)))
            }
            false => {
                let screen =
                    Screen::new(manner(typed)).knowing(usual(typed)).itemising(typed.lines.format(), direction(typed));
                View::Screen(screen, line)
            }
        }
    }

    /// Whether this event is shown.
    fn shows(&self, event: &Event) -> bool {
        match self {
            View::Screen(screen, _) => screen.shows(event),
            View::Json(_) => true,
        }
    }

    fn on_event(&self, event: &Event) {
        match self {
            View::Screen(screen, _) => screen.on_event(event),
            View::Json(json) => json.on_event(event),
        }
    }

    fn close(&self, report: &Report, code: u8, quiet: bool) {
        match self {
            View::Json(json) => json.report(report, code),
            View::Screen(screen, number) => {
                let list = screen.close();
                let tree = report::tree_line(report).filter(|_| screen.is_verbose());
                let lines = tree.into_iter().chain([report::closing_line(report)]);
                let line: String = lines.map(|line| format!("{}{line}\n", of_line(*number))).collect();
                match quiet {
                    true => {}
                    false if screen.is_aside() => drop(std::io::stderr().write_all(line.as_bytes())),
                    false => output::say(line),
                }
                if screen.has_table() {
                    screen.table(&crate::stats::table(report));
                }
                let _ = write!(std::io::stderr(), "{}", report::closing_failures(report, list));
            }
        }
    }

    /// The end of a job that broke off.
    pub fn close_with(&self, error: &Error) {
        match self {
            View::Json(json) => output::tell(error, || json.error(error)),
            View::Screen(screen, number) => {
                screen.close();
                let _ = write!(std::io::stderr(), "{}{}", of_line(*number), failure::text(error));
            }
        }
    }

    fn manifest_failed(&self, error: &Error) {
        match self {
            View::Json(json) => json.on_event(&Event::Warning { text: failure::in_a_line(error) }),
            View::Screen(screen, _) => screen.below(failure::text(error).trim_end(), true),
        }
    }
}

/// Before what is said of a job of a batch.
fn of_line(number: Option<usize>) -> String {
    number.map(|number| format!("line {number}: ")).unwrap_or_default()
}

/// Receives the events of the job.
struct Watcher {
    view: Arc<View>,
    after: Arc<After>,
    speaker: Speaker<Event>,
    manifest: Option<ManifestOut>,
    so_far: Mutex<SoFar>,
    this_try: Mutex<ThisTry>,
    interrupted: Arc<AtomicBool>,
    /// `--log-file`.
    logs: bool,
    /// `--stop-after`, `--stop-at`.
    stops_at: Option<SystemTime>,
}

/// What has come in this try.
#[derive(Clone, Copy, Default)]
struct ThisTry {
    reached: bool,
    bytes_moved: u64,
}

impl Watcher {
    fn is_time_over(&self) -> bool {
        self.stops_at.is_some_and(|at| SystemTime::now() >= at)
    }

    /// An interruption by the clock says so.
    fn named(&self, error: Error) -> Error {
        if error.fault != Fault::Interrupted || self.interrupted.load(Ordering::Relaxed) || !self.is_time_over() {
            return error;
        }
        Error::new(Fault::Interrupted, "the time of --stop-after or --stop-at is over")
            .try_this("run the same command again to go on: what is verified is not sent again")
    }

    /// Forgets the try before, also what it wrote into the manifest.
    fn begin_try(&self) -> Result<(), Error> {
        *self.this_try.lock().unwrap_or_else(PoisonError::into_inner) = ThisTry::default();
        self.manifest.as_ref().map_or(Ok(()), ManifestOut::begin_again)
    }

    fn this_try(&self) -> ThisTry {
        *self.this_try.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, event: &Event) {
        if let Event::Progress(p) = event {
            let bytes_moved = p.bytes_moved;
            *self.this_try.lock().unwrap_or_else(PoisonError::into_inner) = ThisTry { reached: true, bytes_moved };
        }
        let mut so_far = self.so_far.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Progress(p) => {
                so_far.files_done = p.files_done;
                so_far.files_found = p.files_found;
                so_far.bytes_moved = p.bytes_moved;
                so_far.bytes_kept = p.bytes_kept;
                so_far.bytes_found = p.bytes_found;
                so_far.lanes = p.lanes;
            }
            Event::Path(path) => so_far.held_by = path.held_by.map(|cause| Cause::name(cause).to_owned()),
            _ => {}
        }
    }

    fn so_far(&self, started: Instant) -> SoFar {
        let so_far = self.so_far.lock().unwrap_or_else(PoisonError::into_inner).clone();
        SoFar { elapsed_s: json::seconds(started.elapsed()), ..so_far }
    }
}

impl Observer for Watcher {
    fn on_event(&self, event: &Event) {
        if let (Event::Manifest(line), Some(manifest)) = (event, &self.manifest) {
            manifest.add(line);
            return;
        }
        if matches!(event, Event::Progress(_) | Event::Path(_)) {
            self.note(event);
        }
        let logged = self.logs && LogFile::takes(event);
        if self.view.shows(event) || self.after.wants(event) || logged {
            self.speaker.say(event.clone(), || self.interrupted());
        }
    }

    fn wants_manifest(&self) -> bool {
        self.manifest.is_some()
    }

    fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed) || self.is_time_over()
    }
}

impl Word for Event {
    fn bytes(&self) -> usize {
        let words = match self {
            Event::Copied { path, .. } | Event::Deleted { path, .. } | Event::LeftOut { path, .. } => path.len(),
            Event::Item(item) => size_of_val(&**item) + item.path.len() + item.link.as_ref().map_or(0, Vec::len),
            Event::Failed { path, why } | Event::Skipped { path, why } => path.len() + why.len(),
            Event::Warning { text } => text.len(),
            // Few of them come.
            _ => 0,
        };
        size_of::<Self>() + words
    }

    /// Newer totals and a newer state of the path replace older ones that still wait.
    fn replaces(&self, before: &Self) -> bool {
        match (self, before) {
            (Event::Progress(_), Event::Progress(_)) => true,
            (Event::Path(now), Event::Path(before)) => now.path == before.path,
            _ => false,
        }
    }
}
