//! Who is told of a copy: a person at a screen, or a program that reads JSON.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;

use haul_job::{Error, Event, Report};

use crate::cp::flags::Cp;
use crate::cp::job::asked_rate;
use crate::cp::json::JsonLines;
use crate::cp::{closing_lines, manifest_out, per_file_cost, wall_clock};
use crate::far_side::endpoint;
use crate::process::output;
use crate::progress::itemise::Direction;
use crate::progress::outlook::Foreknown;
use crate::progress::screen::{Manner, Screen, Show};
use crate::text::failure;

pub enum View {
    /// A person; the number is the job's line in its batch.
    Screen(Screen, Option<usize>),
    Json(JsonLines),
}

pub fn foreknown(typed: &Cp) -> Foreknown {
    let usual = typed.paths.last().and_then(|target| per_file_cost::usual(&target.to_string_lossy()));
    let limit_bytes_per_s = asked_rate(typed).at(wall_clock::minute());
    Foreknown { limit_bytes_per_s, compresses: typed.compress, usual }
}

impl View {
    /// Chooses by the flags; `line` is the job's line in its batch.
    pub fn new(typed: &Cp, line: Option<usize>) -> Self {
        match typed.json {
            true => {
                View::Json(JsonLines::new(Box::new(std::io::BufWriter::new(output::Out)), line).with(foreknown(typed)))
            }
            false => {
                let screen =
                    Screen::new(manner(typed)).with(foreknown(typed)).itemising(typed.lines.format(), direction(typed));
                View::Screen(screen, line)
            }
        }
    }

    pub fn shows(&self, event: &Event) -> bool {
        match self {
            View::Screen(screen, _) => screen.shows(event),
            View::Json(_) => true,
        }
    }

    pub fn on_event(&self, event: &Event) {
        match self {
            View::Screen(screen, _) => screen.on_event(event),
            View::Json(json) => json.on_event(event),
        }
    }

    pub fn close(&self, report: &Report, code: u8, quiet: bool) {
        match self {
            View::Json(json) => json.report(report, code),
            View::Screen(screen, number) => {
                let list = screen.close();
                let tree = closing_lines::tree_line(report).filter(|_| screen.is_verbose());
                let lines = tree.into_iter().chain([closing_lines::closing_line(report)]);
                let line: String = lines.map(|line| format!("{}{line}\n", of_line(*number))).collect();
                match quiet {
                    true => {}
                    false if screen.is_aside() => drop(std::io::stderr().write_all(line.as_bytes())),
                    false => output::say(line),
                }
                if screen.has_table() {
                    screen.table(&crate::cp::stats::table(report));
                }
                let _ = write!(std::io::stderr(), "{}", closing_lines::closing_failures(report, list));
            }
        }
    }

    pub fn close_with(&self, error: &Error) {
        match self {
            View::Json(json) => output::tell(error, || json.error(error)),
            View::Screen(screen, number) => {
                screen.close();
                let _ = write!(std::io::stderr(), "{}{}", of_line(*number), failure::text(error));
            }
        }
    }

    pub fn manifest_failed(&self, error: &Error) {
        match self {
            View::Json(json) => json.on_event(&Event::Warning { text: failure::in_a_line(error) }),
            View::Screen(screen, _) => screen.below(failure::text(error).trim_end(), true),
        }
    }
}

fn of_line(number: Option<usize>) -> String {
    number.map(|number| format!("line {number}: ")).unwrap_or_default()
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

pub fn direction(typed: &Cp) -> Direction {
    let is_here = |path: &std::ffi::OsString| endpoint::parse_hosts(path).is_ok_and(|(end, _)| end.place.is_here());
    match (typed.paths.first().map(is_here), typed.paths.last().map(is_here)) {
        (_, Some(false)) => Direction::Away,
        (Some(false), _) => Direction::Hither,
        _ => Direction::Here,
    }
}

pub fn manifest_aside(typed: &Cp) -> bool {
    typed.manifest_out.as_deref() == Some(Path::new(manifest_out::STANDARD_OUTPUT))
}
