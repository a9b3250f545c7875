//! `haul cp`: typed arguments -> job -> run -> closing lines and exit code.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::CommandFactory as _;
use haul_transfer::{Error, Event, Observer, Report};

use crate::args::{Cp, Filter, Typed};
use crate::json::JsonLines;
use crate::manifest_out::ManifestOut;
use crate::progress::{Manner, Screen, Show};
use crate::{failure, job, report, signals};

/// Carries the copy out.
pub fn run(typed: &Cp, filters: &[Filter]) -> ExitCode {
    if typed.human_readable && typed.paths.is_empty() {
        if let Some(cp) = Typed::command().find_subcommand_mut("cp") {
            let _ = cp.print_help();
        }
        return ExitCode::SUCCESS;
    }
    let view = if typed.json {
        View::Json(JsonLines::new(Box::new(std::io::BufWriter::new(std::io::stdout()))))
    } else {
        View::Screen(Screen::new(manner(typed)))
    };
    match carry_out(typed, filters, view) {
        Ok(code) => ExitCode::from(code),
        Err((view, error)) => {
            view.close_with(&error);
            ExitCode::from(failure::of_fault(error.fault).code)
        }
    }
}

fn carry_out(typed: &Cp, filters: &[Filter], view: View) -> Result<u8, (Arc<View>, Error)> {
    let view = Arc::new(view);
    let failed = |error| (Arc::clone(&view), error);
    let job = job::from_typed(typed, filters).map_err(failed)?;
    let manifest = typed.manifest_out.as_deref().map(ManifestOut::start).transpose().map_err(failed)?;
    if let View::Json(json) = &*view {
        json.start(&job);
    }
    let watcher = Arc::new(Watcher { view: Arc::clone(&view), manifest, interrupted: signals::watch() });
    let report = haul_transfer::run(&job, Arc::clone(&watcher) as Arc<dyn Observer>).map_err(|error| {
        // Not left to drop: a thread of the job may still hold the watcher when the process ends.
        if let Some(manifest) = &watcher.manifest {
            manifest.discard();
        }
        failed(error)
    })?;

    let mut code = failure::of_report(&report).code;
    if let Some(Err(error)) = watcher.manifest.as_ref().map(ManifestOut::finish) {
        view.manifest_failed(&error);
        // What went wrong with the data matters more than what went wrong with its list.
        if code == 0 {
            code = failure::of_fault(error.fault).code;
        }
    }
    view.close(&report, code, typed.quiet);
    Ok(code)
}

fn manner(typed: &Cp) -> Manner {
    Manner {
        quiet: typed.quiet,
        verbose: typed.verbose > 0,
        dry_run: typed.dry_run,
        show: Show::choose(typed.progress, typed.no_progress, typed.quiet, std::io::stderr().is_terminal()),
    }
}

/// Who is told.
enum View {
    /// A person.
    Screen(Screen),
    /// A program.
    Json(JsonLines),
}

impl View {
    fn close(&self, report: &Report, code: u8, quiet: bool) {
        match self {
            View::Json(json) => json.report(report, code),
            View::Screen(screen) => {
                let list = screen.close();
                if !quiet {
                    let _ = writeln!(std::io::stdout(), "{}", report::closing_line(report));
                }
                let _ = write!(std::io::stderr(), "{}", report::closing_failures(report, list));
            }
        }
    }

    fn close_with(&self, error: &Error) {
        match self {
            View::Json(json) => json.error(error),
            View::Screen(screen) => {
                screen.close();
                let _ = write!(std::io::stderr(), "{}", failure::text(error));
            }
        }
    }

    fn manifest_failed(&self, error: &Error) {
        match self {
            View::Json(json) => json.on_event(&Event::Warning { text: plain(error) }),
            View::Screen(screen) => screen.below(failure::text(error).trim_end(), true),
        }
    }
}

/// What the job reports to.
struct Watcher {
    view: Arc<View>,
    manifest: Option<ManifestOut>,
    interrupted: Arc<AtomicBool>,
}

impl Observer for Watcher {
    fn on_event(&self, event: &Event) {
        if let (Event::Manifest(line), Some(manifest)) = (event, &self.manifest) {
            manifest.add(line);
            return;
        }
        match &*self.view {
            View::Screen(screen) => screen.on_event(event),
            View::Json(json) => json.on_event(event),
        }
    }

    fn wants_manifest(&self) -> bool {
        self.manifest.is_some()
    }

    fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

/// An error on one line.
fn plain(error: &Error) -> String {
    match &error.cause {
        Some(cause) => format!("{}: {cause}", error.what),
        None => error.what.clone(),
    }
}
