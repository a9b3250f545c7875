//! Runs one job, and again after what may pass, and shows its end.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use haul_job::{Cause, Earlier, Endpoint, Error, Event, Fault, Job, Observer, OutageGathering, Outages, Report};

use crate::cp::closing_lines;
use crate::cp::flags::Cp;
use crate::cp::log_file::LogFile;
use crate::cp::manifest_out::ManifestOut;
use crate::cp::on_end::OnEnd;
use crate::cp::rate_now::RateNow;
use crate::cp::retry::{Next, Patience, Retries, Try};
use crate::cp::view::{View, direction, manifest_aside};
use crate::json::{error, values};
use crate::process::output;
use crate::process::speaker::{Speaker, Word};
use crate::report::json;
use crate::report::kept::{self, Kept, SoFar};
use crate::report::outages::of_outages;
use crate::text::failure;

pub type Run<'a> = dyn FnMut(&Job, Arc<dyn Observer>) -> Result<Report, Error> + 'a;

pub struct Carry<'a> {
    pub typed: &'a Cp,
    pub on_end: &'a Arc<OnEnd>,
    pub interrupted: Arc<AtomicBool>,
    pub stops_at: Option<SystemTime>,
    /// The far side was there before: its name is right.
    pub known: bool,
    pub run: &'a mut Run<'a>,
}

pub struct Done {
    pub code: u8,
    /// `None`: standard output was lost meanwhile.
    pub report: Option<Report>,
}

pub fn carry_out(job: &Job, view: &Arc<View>, carry: Carry<'_>) -> Result<Done, Box<Error>> {
    let Carry { typed, on_end, interrupted, stops_at, known, run } = carry;
    let failed = Box::new;
    if typed.json && manifest_aside(typed) {
        let what = "--manifest-out - and --json both write to standard output";
        return Err(failed(Error::new(Fault::Usage, what).try_this("name a file: --manifest-out FILE")));
    }
    let manifest = typed.manifest_out.as_deref().map(ManifestOut::start).transpose().map_err(failed)?;
    if let View::Json(json) = &**view {
        json.start(job);
    }
    // A broken standard output would fail the copy only at its end, after hours.
    if let Some(error) = output::lost() {
        return Err(failed(error));
    }
    let started = Instant::now();
    let so_far = Mutex::default();
    let log = typed.lines.log_file.as_deref().map(|file| LogFile::open(file, direction(typed)));
    let mut log = log.transpose().map_err(failed)?;
    let logs = log.is_some();
    let (shown, noted) = (Arc::clone(view), Arc::clone(on_end));
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
        on_end: Arc::clone(on_end),
        speaker,
        manifest,
        so_far,
        this_try: Mutex::default(),
        outages: Mutex::default(),
        interrupted,
        logs,
        stops_at,
        rate: RateNow::of(typed, on_end),
    });
    let mut retries = retries(typed);
    if known {
        retries.has_reached();
    }
    let ended = run_with_patience(job, retries, &watcher, started, run).map_err(|error| watcher.named(error));
    // Kept files come first: our output's reader may pause for long.
    let listed = match (&ended, &watcher.manifest) {
        (Ok(_), Some(manifest)) => manifest.finish(),
        // A thread of the job may hold the watcher when the process ends, so `drop` is too late.
        (Err(_), Some(manifest)) => {
            manifest.discard();
            Ok(())
        }
        _ => Ok(()),
    };
    let code = match (&ended, &listed) {
        (Err(error), _) => failure::of_fault(error.fault).code,
        // A failure of the data matters more than one of its list.
        (Ok(report), listed) => match (failure::of_report(report).code, listed) {
            (0, Err(error)) => failure::of_fault(error.fault).code,
            (code, _) => code,
        },
    };
    let kept = (!job.selection.dry_run).then(|| kept_report(job, &ended, code, watcher.so_far(started)));
    on_end.ended(ended.as_ref(), code, kept);
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

/// A reader of standard output has seen the manifest's lines, so such a copy is tried once.
fn retries(typed: &Cp) -> Retries {
    Retries::new(if manifest_aside(typed) { Some(Patience::Never) } else { typed.retry })
}

/// Tries again after faults that may pass; the target's journal keeps earlier data.
fn run_with_patience(
    job: &Job,
    mut retries: Retries,
    watcher: &Arc<Watcher>,
    started: Instant,
    run: &mut Run<'_>,
) -> Result<Report, Error> {
    let mut earlier = Earlier::default();
    let mut limit = job.carriage.rate_bytes_per_s;
    loop {
        watcher.begin_try()?;
        let bytes_per_s = watcher.rate.limit();
        if bytes_per_s != limit {
            watcher.on_event(&Event::RateLimit { bytes_per_s });
        }
        let mut job = Cow::Borrowed(job);
        if job.carriage.rate_bytes_per_s != bytes_per_s {
            job.to_mut().carriage.rate_bytes_per_s = bytes_per_s;
        }
        let ended = run(&job, Arc::clone(watcher) as Arc<dyn Observer>);
        limit = watcher.rate.limit();
        let error = match ended {
            Ok(report) => return Ok(Report { earlier, outages: watcher.outages(), ..report }),
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

fn kept_report(job: &Job, ended: &Result<Report, Error>, code: u8, so_far: SoFar) -> Kept {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let named = |endpoint: &Endpoint| values::named(&endpoint.written());
    let kept = Kept {
        schema: values::SCHEMA,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ended_at_s: now.as_secs(),
        sources: job.sources.iter().take(SOURCES_KEPT).map(named).collect(),
        target: named(&job.target),
        summary: ended.as_ref().ok().map(closing_lines::summary),
        report: ended.as_ref().ok().map(|report| json::of_report(report, code)),
        error: ended.as_ref().err().map(error::of_error),
        so_far,
    };
    if let Some(directory) = kept::directory() {
        let _ = kept::keep(&directory, now, std::process::id(), &kept);
    }
    kept
}

/// A shell may expand a wildcard to thousands.
const SOURCES_KEPT: usize = 100;

struct Watcher {
    view: Arc<View>,
    on_end: Arc<OnEnd>,
    speaker: Speaker<Event>,
    manifest: Option<ManifestOut>,
    so_far: Mutex<SoFar>,
    this_try: Mutex<ThisTry>,
    /// All tries' outages, by this host's clock.
    outages: Mutex<OutageGathering>,
    interrupted: Arc<AtomicBool>,
    logs: bool,
    stops_at: Option<SystemTime>,
    rate: RateNow,
}

#[derive(Clone, Copy, Default)]
struct ThisTry {
    reached: bool,
    bytes_moved: u64,
}

impl Watcher {
    fn is_time_over(&self) -> bool {
        self.stops_at.is_some_and(|at| SystemTime::now() >= at)
    }

    /// Marks an interruption by the clock.
    fn named(&self, error: Error) -> Error {
        if error.fault != Fault::Interrupted || self.interrupted.load(Ordering::Relaxed) || !self.is_time_over() {
            return error;
        }
        Error::new(Fault::Interrupted, "the time of --stop-after or --stop-at is over")
            .try_this("run the same command again to go on: what is verified is not sent again")
    }

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
            let no_data_us = p.no_data_for.map(microseconds);
            self.gathering().on_progress(now_us(), no_data_us);
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
            Event::Retry { .. } => self.gathering().on_broke_off(now_us()),
            Event::Path(path) => so_far.held_by = path.held_by.map(|cause| Cause::name(cause).to_owned()),
            _ => {}
        }
    }

    fn gathering(&self) -> MutexGuard<'_, OutageGathering> {
        self.outages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn outages(&self) -> Outages {
        self.gathering().clone().until(now_us())
    }

    fn so_far(&self, started: Instant) -> SoFar {
        let so_far = self.so_far.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let outages = of_outages(&self.outages());
        SoFar { elapsed_s: values::seconds(started.elapsed()), outages, ..so_far }
    }
}

/// Since 1970.
fn now_us() -> u64 {
    microseconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Observer for Watcher {
    fn on_event(&self, event: &Event) {
        if let (Event::Manifest(line), Some(manifest)) = (event, &self.manifest) {
            manifest.add(line);
            return;
        }
        if matches!(event, Event::Progress(_) | Event::Path(_) | Event::Retry { .. }) {
            self.note(event);
        }
        let logged = self.logs && LogFile::takes(event);
        if self.view.shows(event) || self.on_end.wants(event) || logged {
            self.speaker.say(event.clone(), || self.interrupted());
        }
    }

    fn wants_manifest(&self) -> bool {
        self.manifest.is_some()
    }

    fn rate_limit(&self, _: Option<u64>) -> Option<u64> {
        self.rate.limit()
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
            _ => 0,
        };
        size_of::<Self>() + words
    }

    /// New totals and path states replace those that still wait.
    fn replaces(&self, before: &Self) -> bool {
        match (self, before) {
            (Event::Progress(_), Event::Progress(_)) => true,
            (Event::Path(now), Event::Path(before)) => now.path == before.path,
            _ => false,
        }
    }
}
