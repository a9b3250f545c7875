//! A person's messages during a job: the bar, messages above it, names with `-v` or `-n`.
//!
//! The bar waits for progress: ssh may ask for a password first.

use std::io::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use haul_job::{Change, Event, LeftOut, Progress, Subject};
use haul_transfer::terminal;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::process::output;
use crate::progress::failures::Failures;
use crate::progress::fields::{BAR_COLUMNS, fields, fit, status};
use crate::progress::itemise::{Direction, Format};
use crate::progress::live::Live;
use crate::progress::outlook::{Foreknown, Outlook};
use crate::text::figures::{bits, bytes, duration};
use crate::text::printable::{printable, printable_path};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    pub quiet: bool,
    pub verbose: bool,
    /// Names entries that rules leave out, too.
    pub very_verbose: bool,
    pub stats: bool,
    pub dry_run: bool,
    pub show: Show,
    pub live: bool,
    /// All to standard error: standard output has the manifest.
    pub aside: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Show {
    #[default]
    Nothing,
    Bar,
    Lines,
}

impl Show {
    pub fn choose(progress: bool, no_progress: bool, silent: bool, terminal: bool) -> Self {
        match (no_progress || silent, terminal, progress) {
            (true, _, _) => Show::Nothing,
            (_, true, _) => Show::Bar,
            (_, false, true) => Show::Lines,
            _ => Show::Nothing,
        }
    }
}

fn rate_limit(bytes_per_s: Option<u64>) -> String {
    match bytes_per_s {
        Some(limit) => format!("the rate limit is {} from now on", bits(limit as f64)),
        None => "there is no rate limit from now on".to_owned(),
    }
}

pub struct Screen {
    manner: Manner,
    started: Instant,
    bar: ProgressBar,
    itemises: Option<(Format, Direction)>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    outlook: Outlook,
    is_begun: bool,
    shape: Shape,
    last_line: Option<Duration>,
    /// True if the copy broke off, without progress since.
    is_lost: bool,
    failures: Failures,
    failed: bool,
    lines_since_failure: bool,
    live: Live,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Shape {
    #[default]
    Hidden,
    Bar,
    Words,
}

impl Screen {
    pub fn new(manner: Manner) -> Self {
        Self { manner, started: Instant::now(), bar: ProgressBar::hidden(), itemises: None, state: Mutex::default() }
    }

    #[must_use]
    pub fn with(self, foreknown: Foreknown) -> Self {
        let outlook = Outlook::default().with(foreknown);
        Self { state: Mutex::new(State { outlook, ..State::default() }), ..self }
    }

    #[must_use]
    pub fn itemising(self, format: Option<Format>, direction: Direction) -> Self {
        Self { itemises: format.map(|format| (format, direction)), ..self }
    }

    pub fn shows(&self, event: &Event) -> bool {
        match event {
            Event::Progress(_) => self.manner.show != Show::Nothing || self.manner.live,
            Event::Path(_) => self.manner.live,
            // Told in any case: the exit status does not name what the target lacks.
            Event::Failed { .. } | Event::Skipped { .. } => true,
            Event::Warning { .. } | Event::Installing { .. } | Event::Chose { what: Subject::Sources, .. } => {
                !self.manner.quiet
            }
            Event::Chose { what: Subject::Class, .. } => self.manner.verbose || self.manner.live,
            Event::Connecting { .. } | Event::Chose { .. } => self.manner.verbose,
            Event::Deleted { .. } if self.itemises.is_some() => !self.manner.quiet,
            Event::Copied { .. } | Event::Deleted { .. } => self.names() && self.itemises.is_none(),
            Event::LeftOut { .. } => self.manner.very_verbose && !self.manner.quiet,
            Event::Item(item) => {
                !self.manner.quiet && self.itemises.as_ref().is_some_and(|(format, _)| format.shows(item))
            }
            Event::Retry { .. } | Event::RateLimit { .. } => !self.manner.quiet,
            Event::Found { .. } | Event::Manifest(_) => false,
        }
    }

    pub fn on_event(&self, event: &Event) {
        if !self.shows(event) {
            return;
        }
        match event {
            Event::Progress(progress) => {
                self.progress(progress);
                if self.manner.live {
                    self.live_line(progress);
                }
            }
            Event::Path(path) => self.state().live.on_path(path.clone()),
            Event::Failed { path, why } => {
                self.failure(path, why);
            }
            Event::Warning { text } => self.below(&format!("warning: {}", printable(text)), false),
            Event::Skipped { path, why } => {
                self.below(&format!("skipped: {}: {}", printable_path(path), printable(why)), false);
            }
            Event::Installing { place, bytes: size } => {
                self.below(&format!("putting haul on {} ({}), once", printable(place), bytes(*size)), false);
            }
            Event::Retry { why, pause, gives_up_after } => self.retry(why, *pause, *gives_up_after),
            Event::RateLimit { bytes_per_s } => {
                self.state().outlook.limit_rate(*bytes_per_s);
                self.below(&rate_limit(*bytes_per_s), false);
            }
            Event::Connecting { place } => {
                self.below(&format!("connecting to {}", printable(place)), false);
            }
            Event::Chose { what: Subject::Sources, choice, reason } => {
                self.below(&format!("warning: {}; {} counts", printable(reason), printable(choice)), false);
            }
            Event::Chose { what, choice, reason } => {
                self.below(&format!("{}: {} ({})", what.name(), printable(choice), printable(reason)), false);
            }
            Event::Copied { path, bytes, bytes_matched, change } => {
                self.say(format!(
                    "{} {}{}\n",
                    self.verb(*change),
                    printable_path(path),
                    stood_there(*bytes, *bytes_matched)
                ));
            }
            Event::Item(item) => {
                if let Some((format, direction)) = &self.itemises {
                    self.say(format.line(item, *direction));
                }
            }
            Event::LeftOut { path, rule } => {
                self.below(&format!("left out: {}: {}", printable_path(path), why_left_out(*rule)), false);
            }
            Event::Deleted { path, is_directory } => {
                if let Some((format, _)) = &self.itemises {
                    return self.say(format.deleted(path, *is_directory));
                }
                let slash = if *is_directory { "/" } else { "" };
                let verb = if self.manner.dry_run { "delete" } else { "deleted" };
                self.say(format!("{verb} {}{slash}\n", printable_path(path)));
            }
            Event::Found { .. } | Event::Manifest(_) => {}
        }
    }

    pub fn is_verbose(&self) -> bool {
        self.manner.verbose
    }

    pub fn has_table(&self) -> bool {
        self.manner.stats
    }

    pub fn table(&self, text: &str) {
        self.say(text.to_owned());
    }

    pub fn is_aside(&self) -> bool {
        self.manner.aside
    }

    /// Removes the bar, and tells counted failures. True if other lines followed a failure, so it is worth repeating.
    pub fn close(&self) -> bool {
        self.bar.finish_and_clear();
        let rest = self.state().failures.rest();
        rest.iter().for_each(|line| self.below(line, true));
        let state = self.state();
        state.failed && state.lines_since_failure
    }

    pub fn progress(&self, progress: &Progress) {
        if self.manner.show == Show::Nothing {
            return;
        }
        let now = self.started.elapsed();
        let mut state = self.state();
        state.is_lost = false;
        state.outlook.add(now, progress);
        let left = state.outlook.left(now, progress);
        let rate = state.outlook.bytes_per_s();
        match self.manner.show {
            Show::Bar => {
                state.is_begun = true;
                self.draw(&mut state, &fields(progress, rate, left));
                self.bar.set_length(BAR_STEPS);
                self.bar.set_position((left.done.unwrap_or(0.0) * BAR_STEPS as f64) as u64);
            }
            Show::Lines if state.last_line.is_none_or(|last| now - last >= LINE_EVERY) => {
                state.last_line = Some(now);
                drop(state);
                let _ = writeln!(std::io::stderr(), "{}", status(progress, rate, left));
            }
            _ => {}
        }
    }

    /// Draws the fields that fit; nothing for a job in a shell's background.
    fn draw(&self, state: &mut State, fields: &[String]) {
        let stderr = std::io::stderr();
        let (has_bar, words) = fit(fields, terminal::columns(&stderr).unwrap_or(USUAL_COLUMNS));
        let shape = match terminal::is_in_background(&stderr) {
            true => Shape::Hidden,
            false if has_bar => Shape::Bar,
            false => Shape::Words,
        };
        let before = std::mem::replace(&mut state.shape, shape);
        match shape {
            _ if shape == before => {}
            Shape::Hidden => self.bar.set_draw_target(ProgressDrawTarget::hidden()),
            Shape::Bar => self.bar.set_style(style()),
            Shape::Words => self.bar.set_style(words_alone()),
        }
        // Setting words draws them, so the style comes first.
        self.bar.set_message(words);
        if before == Shape::Hidden && shape != Shape::Hidden {
            self.bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_S));
        }
    }

    fn failure(&self, path: &[u8], why: &str) {
        let line = self.state().failures.line(path, why);
        if let Some(line) = line {
            self.below(&line, true);
        }
    }

    /// The first loss is a line; without progress, only the bar shows the next.
    fn retry(&self, why: &str, pause: Duration, gives_up_after: Option<Duration>) {
        let bound = gives_up_after.map_or_else(String::new, |left| format!("; gives up in {}", duration(left)));
        let line = format!("{}: tries again in {}{bound}", printable(why), duration(pause));
        let mut state = self.state();
        state.outlook.broke_off(self.started.elapsed());
        let is_first = !std::mem::replace(&mut state.is_lost, true);
        if state.is_begun {
            self.draw(&mut state, &retry_fields(&line, pause, gives_up_after));
        }
        let on_bar = state.shape != Shape::Hidden;
        drop(state);
        if is_first || !on_bar {
            self.below(&line, false);
        }
    }

    fn live_line(&self, progress: &Progress) {
        let line = self.state().live.on_progress(self.started.elapsed(), progress);
        if let Some(line) = line {
            self.below(&line, false);
        }
    }

    pub fn below(&self, line: &str, failure: bool) {
        let mut state = self.state();
        state.failed |= failure;
        state.lines_since_failure |= state.failed && !failure;
        self.bar.suspend(|| {
            let _ = writeln!(std::io::stderr(), "{line}");
        });
    }

    fn say(&self, line: String) {
        let mut state = self.state();
        state.lines_since_failure |= state.failed;
        self.bar.suspend(|| {
            if self.manner.aside {
                let _ = std::io::stderr().write_all(line.as_bytes());
            } else {
                output::say(line);
            }
        });
    }

    fn names(&self) -> bool {
        !self.manner.quiet && (self.manner.verbose || self.manner.dry_run)
    }

    fn verb(&self, change: Change) -> &'static str {
        match (change, self.manner.dry_run) {
            (Change::Data, true) => "copy",
            (Change::Metadata, true) => "update",
            (Change::Made, true) => "make",
            (Change::Data, false) => "copied",
            (Change::Metadata, false) => "updated",
            (Change::Made, false) => "made",
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells what of a differing file was not sent.
fn stood_there(file_bytes: u64, matched_bytes: u64) -> String {
    match matched_bytes {
        0 => String::new(),
        _ => format!(" ({} of its {} stood there)", bytes(matched_bytes), bytes(file_bytes)),
    }
}

fn why_left_out(rule: LeftOut) -> &'static str {
    match rule {
        LeftOut::Missing => "it does not exist at the target (--existing)",
        LeftOut::Exists => "it exists at the target (--ignore-existing)",
        LeftOut::Newer => "the target's is newer (--update)",
        LeftOut::TooLarge => "it is larger than --max-size",
        LeftOut::TooSmall => "it is smaller than --min-size",
        LeftOut::TooOld => "it is older than --max-age",
        LeftOut::TooYoung => "it is younger than --min-age: somebody may still write it",
        LeftOut::Itself => "it is the source itself, and is not removed",
        LeftOut::NotShorter => "the target's is not shorter (--append-verify)",
        LeftOut::UnsafeLink => "it is a link that leads out of the tree (--safe-links)",
    }
}

/// Keeps the most important parts during a pause.
fn retry_fields(line: &str, pause: Duration, gives_up_after: Option<Duration>) -> Vec<String> {
    let again = format!("tries again in {}", duration(pause));
    let end = gives_up_after.map(|left| format!("gives up in {}", duration(left)));
    match fit(&[line.to_owned()], terminal::columns(std::io::stderr()).unwrap_or(USUAL_COLUMNS)) {
        (_, whole) if !whole.is_empty() => vec![whole],
        _ => std::iter::once(again).chain(end).collect(),
    }
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template(&format!("{{bar:{BAR_COLUMNS}}} {{wide_msg}}"))
        .expect("a template of ours")
        .progress_chars("=> ")
}

fn words_alone() -> ProgressStyle {
    ProgressStyle::with_template("{wide_msg}").expect("a template of ours")
}

const LINE_EVERY: Duration = Duration::from_secs(5);

/// The steps are more than a bar has columns.
const BAR_STEPS: u64 = 10_000;

const REDRAWS_PER_S: u8 = 10;

const USUAL_COLUMNS: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_needs_a_terminal_and_leave_to_speak() {
        assert_eq!(Show::choose(false, false, false, true), Show::Bar);
        assert_eq!(Show::choose(false, false, false, false), Show::Nothing);
        assert_eq!(Show::choose(true, false, false, false), Show::Lines);
        assert_eq!(Show::choose(true, false, true, true), Show::Nothing);
        assert_eq!(Show::choose(false, true, false, true), Show::Nothing);
    }
}
