//! Messages for a person while a job runs: the bar on a terminal, messages above it, and names with `-v` or `-n`.
//!
//! The bar waits for the first progress: ssh may ask for a password on the same terminal before that.

use std::collections::VecDeque;
use std::io::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use haul_job::{Change, Event, Progress, Subject};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::figures::{bytes, clock, count, counted, rate};
use crate::live::Live;
use crate::output;
use crate::printable::{printable, printable_path};

/// How much is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    /// Only errors.
    pub quiet: bool,
    /// Each path, each choice.
    pub verbose: bool,
    /// A dry run: "would copy" instead of "copied".
    pub dry_run: bool,
    /// How progress is shown.
    pub show: Show,
    /// A line each second about the copy.
    pub live: bool,
    /// Everything goes to standard error: standard output has the manifest.
    pub aside: bool,
}

/// How progress is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Show {
    /// Not at all.
    #[default]
    Nothing,
    /// A bar that stays in its place, on a terminal.
    Bar,
    /// A line now and then, in a log.
    Lines,
}

impl Show {
    /// Decides from the flags, and from whether standard error is a terminal.
    pub fn choose(progress: bool, no_progress: bool, silent: bool, terminal: bool) -> Self {
        match (no_progress || silent, terminal, progress) {
            (true, _, _) => Show::Nothing,
            (_, true, _) => Show::Bar,
            (_, false, true) => Show::Lines,
            _ => Show::Nothing,
        }
    }
}

/// The terminal or the log of a person.
pub struct Screen {
    manner: Manner,
    started: Instant,
    bar: ProgressBar,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    speed: Speed,
    bar_shown: bool,
    last_line: Option<Duration>,
    failed: bool,
    lines_since_failure: bool,
    live: Live,
}

impl Screen {
    /// An empty screen.
    pub fn new(manner: Manner) -> Self {
        Self { manner, started: Instant::now(), bar: ProgressBar::hidden(), state: Mutex::default() }
    }

    /// Whether this event is shown.
    pub fn shows(&self, event: &Event) -> bool {
        match event {
            Event::Progress(_) => self.manner.show != Show::Nothing || self.manner.live,
            Event::Path(_) => self.manner.live,
            Event::Failed { .. } => true,
            Event::Warning { .. } | Event::Skipped { .. } | Event::Installing { .. } => !self.manner.quiet,
            Event::Chose { what: Subject::Class, .. } => self.manner.verbose || self.manner.live,
            Event::Connecting { .. } | Event::Chose { .. } => self.manner.verbose,
            Event::Copied { .. } | Event::Deleted { .. } => self.names(),
            Event::Found { .. } | Event::Manifest(_) => false,
        }
    }

    /// Shows one event that [`Screen::shows`].
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
            Event::Path(path) => self.state().live.on_path(*path),
            Event::Failed { path, why } => {
                self.below(&format!("failed: {}: {}", printable_path(path), printable(why)), true);
            }
            Event::Warning { text } => self.below(&format!("warning: {}", printable(text)), false),
            Event::Skipped { path, why } => {
                self.below(&format!("skipped: {}: {}", printable_path(path), printable(why)), false);
            }
            Event::Installing { place, bytes: size } => {
                self.below(&format!("putting haul on {} ({}), once", printable(place), bytes(*size)), false);
            }
            Event::Connecting { place } => {
                self.below(&format!("connecting to {}", printable(place)), false);
            }
            Event::Chose { what, choice, reason } => {
                self.below(&format!("{}: {} ({})", what.name(), printable(choice), printable(reason)), false);
            }
            Event::Copied { path, change, .. } => self.name(self.verb(*change), path),
            Event::Deleted { path } => {
                self.name(if self.manner.dry_run { "delete" } else { "deleted" }, path);
            }
            Event::Found { .. } | Event::Manifest(_) => {}
        }
    }

    /// True if standard output belongs to the manifest.
    pub fn is_aside(&self) -> bool {
        self.manner.aside
    }

    /// Removes the bar. True if other lines came after a failure: then the failure is worth repeating.
    pub fn close(&self) -> bool {
        self.bar.finish_and_clear();
        let state = self.state();
        state.failed && state.lines_since_failure
    }

    /// Running totals of files and bytes.
    pub fn progress(&self, progress: &Progress) {
        if self.manner.show == Show::Nothing {
            return;
        }
        let now = self.started.elapsed();
        let mut state = self.state();
        state.speed.add(now, progress.bytes_moved);
        let line = status(progress, state.speed.bytes_per_s());
        match self.manner.show {
            Show::Bar => {
                // The bar stays empty while the total is unknown: the share of a growing total would run back and
                // forth.
                self.bar.set_length(if progress.found_all { progress.bytes_found.max(1) } else { u64::MAX });
                self.bar.set_position(progress.bytes_moved + progress.bytes_kept);
                self.bar.set_message(line);
                if !state.bar_shown {
                    state.bar_shown = true;
                    self.bar.set_style(style());
                    self.bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_S));
                }
            }
            Show::Lines if state.last_line.is_none_or(|last| now - last >= LINE_EVERY) => {
                state.last_line = Some(now);
                drop(state);
                let _ = writeln!(std::io::stderr(), "{line}");
            }
            _ => {}
        }
    }

    fn live_line(&self, progress: &Progress) {
        let line = self.state().live.on_progress(self.started.elapsed(), progress);
        if let Some(line) = line {
            self.below(&line, false);
        }
    }

    /// A line on standard error, above the bar.
    pub fn below(&self, line: &str, failure: bool) {
        let mut state = self.state();
        state.failed |= failure;
        state.lines_since_failure |= state.failed && !failure;
        self.bar.suspend(|| {
            let _ = writeln!(std::io::stderr(), "{line}");
        });
    }

    /// A line on standard output, for `-v` and `-n`.
    fn name(&self, verb: &str, path: &[u8]) {
        let mut state = self.state();
        state.lines_since_failure |= state.failed;
        self.bar.suspend(|| {
            let line = format!("{verb} {}\n", printable_path(path));
            // Only the manifest may go to standard output.
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

/// `45 %  1.20 of 2.60 GiB  466 MiB/s (3.91 Gbit/s)  1,234 of 5,678 files  0:12 left  4 lanes`
fn status(progress: &Progress, bytes_per_s: Option<f64>) -> String {
    let done = progress.bytes_moved + progress.bytes_kept;
    let more = if progress.found_all { "" } else { "+" };
    let mut parts = Vec::new();
    if progress.found_all && progress.bytes_found > 0 {
        parts.push(format!("{} %", (u128::from(done) * 100 / u128::from(progress.bytes_found)).min(100)));
    }
    parts.push(format!("{} of {}{more}", bytes(done), bytes(progress.bytes_found)));
    parts.extend(bytes_per_s.map(rate));
    parts.push(format!("{} of {}{more} files", count(progress.files_done), count(progress.files_found)));
    let left = progress.bytes_found.saturating_sub(done);
    match bytes_per_s {
        Some(speed) if progress.found_all && speed >= 1.0 && left > 0 => {
            let seconds = left as f64 / speed;
            // A longer time left only means that the copy stalls.
            if seconds < 100.0 * 86_400.0 {
                parts.push(format!("{} left", clock(Duration::from_secs_f64(seconds.ceil()))));
            }
        }
        _ => {}
    }
    if progress.bytes_read_again > 0 {
        parts.push(format!("{} of an earlier run read again", bytes(progress.bytes_read_again)));
    }
    if progress.lanes > 0 {
        parts.push(counted(progress.lanes.into(), "lane", "lanes"));
    }
    if progress.failed > 0 {
        parts.push(format!("{} failed", count(progress.failed)));
    }
    parts.join("  ")
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{bar:16} {wide_msg}").expect("a template of ours").progress_chars("=> ")
}

/// The rate of the last few seconds.
#[derive(Default)]
struct Speed {
    samples: VecDeque<(Duration, u64)>,
}

impl Speed {
    fn add(&mut self, now: Duration, bytes: u64) {
        let fresh = self.samples.back().is_none_or(|(last, _)| now.saturating_sub(*last) >= SAMPLE_EVERY);
        if fresh {
            self.samples.push_back((now, bytes));
        }
        while self.samples.len() > 2 && now.saturating_sub(self.samples[0].0) > SPEED_OVER {
            self.samples.pop_front();
        }
    }

    fn bytes_per_s(&self) -> Option<f64> {
        let (first, last) = (self.samples.front()?, self.samples.back()?);
        let span = last.0.saturating_sub(first.0);
        (span >= SAMPLE_EVERY).then(|| last.1.saturating_sub(first.1) as f64 / span.as_secs_f64())
    }
}

/// Long enough for a calm figure, short enough to see a change. With the next constant: at most 51 samples.
const SPEED_OVER: Duration = Duration::from_secs(5);
const SAMPLE_EVERY: Duration = Duration::from_millis(100);

/// In a log, progress is a line now and then.
const LINE_EVERY: Duration = Duration::from_secs(5);

const REDRAWS_PER_S: u8 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_shows_what_is_known() {
        let known = Progress {
            files_done: 1_234,
            files_found: 5_678,
            bytes_moved: 1 << 30,
            bytes_kept: 1 << 29,
            bytes_read_again: 0,
            bytes_found: 3 << 30,
            found_all: true,
            lanes: 4,
            failed: 1,
        };
        insta::assert_snapshot!(status(&known, Some(131_072_000.0)), @"50 %  1.50 GiB of 3.00 GiB  125 MiB/s (1.05 Gbit/s)  1,234 of 5,678 files  0:13 left  4 lanes  1 failed");
        let resumed = Progress { bytes_read_again: 1 << 29, found_all: false, failed: 0, lanes: 0, ..known };
        assert!(status(&resumed, None).ends_with("files  512 MiB of an earlier run read again"));
        let walking = Progress { found_all: false, failed: 0, ..known };
        insta::assert_snapshot!(status(&walking, None), @"1.50 GiB of 3.00 GiB+  1,234 of 5,678+ files  4 lanes");
    }

    #[test]
    fn nothing_found_yet_divides_by_nothing() {
        let empty = Progress { found_all: true, ..Progress::default() };
        insta::assert_snapshot!(status(&empty, Some(0.0)), @"0 B of 0 B  0 B/s (0.00 kbit/s)  0 of 0 files");
    }

    #[test]
    fn the_speed_forgets_what_is_long_past() {
        let mut speed = Speed::default();
        assert_eq!(speed.bytes_per_s(), None);
        for tenth in 0..100 {
            speed.add(Duration::from_millis(tenth * 100), tenth * 1_000);
        }
        assert_eq!(speed.bytes_per_s(), Some(10_000.0));
        assert!(speed.samples.len() <= 51);
        for tenth in 100..200 {
            speed.add(Duration::from_millis(tenth * 100), 99_000);
        }
        assert_eq!(speed.bytes_per_s(), Some(0.0));
    }

    #[test]
    fn the_bar_needs_a_terminal_and_leave_to_speak() {
        assert_eq!(Show::choose(false, false, false, true), Show::Bar);
        assert_eq!(Show::choose(false, false, false, false), Show::Nothing);
        assert_eq!(Show::choose(true, false, false, false), Show::Lines);
        assert_eq!(Show::choose(true, false, true, true), Show::Nothing);
        assert_eq!(Show::choose(false, true, false, true), Show::Nothing);
    }
}
