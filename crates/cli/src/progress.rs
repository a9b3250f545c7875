//! Messages for a person while a job runs: the bar on a terminal, messages above it, and names with `-v` or `-n`.
//!
//! The bar waits for the first progress: ssh may ask for a password on the same terminal before that.

use std::io::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use haul_job::{Change, Event, LeftOut, Progress, Subject};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::figures::{bytes, clock, count, counted, duration, rate};
use crate::itemise::{Direction, Format};
use crate::live::Live;
use crate::outlook::{Left, Outlook};
use crate::output;
use crate::printable::{printable, printable_path};

/// How much is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    /// Only errors.
    pub quiet: bool,
    /// Each path, each choice.
    pub verbose: bool,
    /// What rules leave out.
    pub very_verbose: bool,
    /// A table at the end.
    pub stats: bool,
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
    /// The form of a line for each entry.
    itemises: Option<(Format, Direction)>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    outlook: Outlook,
    bar_shown: bool,
    last_line: Option<Duration>,
    /// The copy broke off, and no progress came since.
    is_lost: bool,
    /// A line has said that the target is full.
    is_full: bool,
    failed: bool,
    lines_since_failure: bool,
    live: Live,
}

impl Screen {
    /// An empty screen.
    pub fn new(manner: Manner) -> Self {
        Self { manner, started: Instant::now(), bar: ProgressBar::hidden(), itemises: None, state: Mutex::default() }
    }

    /// With what a file costs on this path (see [`Outlook::with_usual`]).
    #[must_use]
    pub fn knowing(self, bytes_per_file: Option<f64>) -> Self {
        let outlook = Outlook::default().with_usual(bytes_per_file);
        Self { state: Mutex::new(State { outlook, ..State::default() }), ..self }
    }

    /// With a line for each entry that changes.
    #[must_use]
    pub fn itemising(self, format: Option<Format>, direction: Direction) -> Self {
        Self { itemises: format.map(|format| (format, direction)), ..self }
    }

    /// Whether this event is shown.
    pub fn shows(&self, event: &Event) -> bool {
        match event {
            Event::Progress(_) => self.manner.show != Show::Nothing || self.manner.live,
            Event::Path(_) => self.manner.live,
            // What the target lacks is told whatever was asked for: the exit status does not say it.
            Event::Failed { .. } | Event::Skipped { .. } => true,
            Event::Warning { .. } | Event::Installing { .. } => !self.manner.quiet,
            Event::Chose { what: Subject::Class, .. } => self.manner.verbose || self.manner.live,
            Event::Connecting { .. } | Event::Chose { .. } => self.manner.verbose,
            Event::Deleted { .. } if self.itemises.is_some() => !self.manner.quiet,
            Event::Copied { .. } | Event::Deleted { .. } => self.names() && self.itemises.is_none(),
            Event::LeftOut { .. } => self.manner.very_verbose && !self.manner.quiet,
            Event::Item(item) => {
                !self.manner.quiet && self.itemises.as_ref().is_some_and(|(format, _)| format.shows(item))
            }
            Event::Retry { .. } => !self.manner.quiet,
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
            Event::Connecting { place } => {
                self.below(&format!("connecting to {}", printable(place)), false);
            }
            Event::Chose { what, choice, reason } => {
                self.below(&format!("{}: {} ({})", what.name(), printable(choice), printable(reason)), false);
            }
            Event::Copied { path, change, .. } => self.name(self.verb(*change), path),
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

    /// Whether more is said than the result.
    pub fn is_verbose(&self) -> bool {
        self.manner.verbose
    }

    /// Whether the totals are shown as a table.
    pub fn has_table(&self) -> bool {
        self.manner.stats
    }

    /// Shows them, where the names go.
    pub fn table(&self, text: &str) {
        self.say(text.to_owned());
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
        state.is_lost = false;
        state.outlook.add(now, progress);
        let left = state.outlook.left(now, progress);
        let line = status(progress, state.outlook.bytes_per_s(), left);
        match self.manner.show {
            Show::Bar => {
                self.bar.set_length(BAR_STEPS);
                self.bar.set_position((left.done.unwrap_or(0.0) * BAR_STEPS as f64) as u64);
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

    /// A full disk fails every file that follows in the same way: one line says it, and the closing lines count the files.
    fn failure(&self, path: &[u8], why: &str) {
        if FULL.iter().any(|words| why.ends_with(words)) && std::mem::replace(&mut self.state().is_full, true) {
            return;
        }
        self.below(&format!("failed: {}: {}", printable_path(path), printable(why)), true);
    }

    /// The first loss is a line. The bar shows those that follow without any progress between them.
    fn retry(&self, why: &str, pause: Duration, gives_up_after: Option<Duration>) {
        let bound = gives_up_after.map_or_else(String::new, |left| format!("; gives up in {}", duration(left)));
        let line = format!("{}: tries again in {}{bound}", printable(why), duration(pause));
        let mut state = self.state();
        state.outlook.broke_off(self.started.elapsed());
        let is_first = !std::mem::replace(&mut state.is_lost, true);
        let on_bar = state.bar_shown;
        drop(state);
        self.bar.set_message(line.clone());
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
        self.say(format!("{verb} {}\n", printable_path(path)));
    }

    /// The same for a line that is finished.
    fn say(&self, line: String) {
        let mut state = self.state();
        state.lines_since_failure |= state.failed;
        self.bar.suspend(|| {
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

/// `45 %  0:12 left  466 MiB/s (3.91 Gbit/s)  1.20 of 2.60 GiB  1,234 of 5,678 files  4 lanes`: what matters most comes first, because a
/// narrow terminal cuts the end off. `~` stands before what is a rough figure, because the source is still being listed.
pub fn status(progress: &Progress, bytes_per_s: Option<f64>, left: Left) -> String {
    let done = progress.bytes_moved + progress.bytes_kept;
    let (rough, more) = if left.is_rough { ("~", "+") } else { ("", "") };
    let mut parts = Vec::new();
    parts.extend(left.done.map(|done| format!("{rough}{:.0} %", (done * 100.0).floor())));
    // All data is there: the disk of the target still writes it, and files get their names.
    let is_flushing = progress.found_all && left.bytes == 0 && left.files > 0 && progress.bytes_moved > 0;
    if is_flushing {
        let size = match progress.bytes_to_flush {
            0 => String::new(),
            to_flush => format!(", {}", bytes(to_flush)),
        };
        parts.push(format!("flushing {}{size}", counted(left.files, "file", "files")));
    } else if let Some(time) = left.time.filter(|_| left.bytes > 0 || left.files > 0) {
        parts.push(format!("{rough}{} left", clock(Duration::from_secs_f64(time.as_secs_f64().ceil()))));
    }
    // A rate of nothing says nothing: files come, or the far side compares.
    parts.extend(bytes_per_s.filter(|rate| *rate >= 1.0).map(rate));
    parts.push(format!("{} of {}{more}", bytes(done), bytes(progress.bytes_found)));
    parts.push(format!("{} of {}{more} files", count(progress.files_done), count(progress.files_found)));
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

fn why_left_out(rule: LeftOut) -> &'static str {
    match rule {
        LeftOut::Missing => "it does not exist at the target (--existing)",
        LeftOut::Exists => "it exists at the target (--ignore-existing)",
        LeftOut::Newer => "the target's is newer (--update)",
        LeftOut::TooLarge => "it is larger than --max-size",
        LeftOut::TooSmall => "it is smaller than --min-size",
        LeftOut::Itself => "it is the source itself, and is not removed",
        LeftOut::NotShorter => "the target's is not shorter (--append-verify)",
        LeftOut::UnsafeLink => "it is a link that leads out of the tree (--safe-links)",
    }
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{bar:16} {wide_msg}").expect("a template of ours").progress_chars("=> ")
}

/// What a far side says of a full disk: strerror(3) of ENOSPC and EDQUOT, and our own words for inodes.
const FULL: [&str; 3] = ["No space left on device", "Disk quota exceeded", "whatever space is free (df -i)"];

/// In a log, progress is a line now and then.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// The width of the bar is far less.
const BAR_STEPS: u64 = 10_000;

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
            bytes_found: 3 << 30,
            found_all: true,
            lanes: 4,
            failed: 1,
            ..Progress::default()
        };
        let left = Left {
            files: 4_444,
            bytes: 3 << 29,
            time: Some(Duration::from_millis(12_300)),
            done: Some(0.509),
            is_rough: false,
        };
        insta::assert_snapshot!(status(&known, Some(131_072_000.0), left), @"50 %  0:13 left  125 MiB/s (1.05 Gbit/s)  1.50 GiB of 3.00 GiB  1,234 of 5,678 files  4 lanes  1 failed");
        let resumed = Progress { bytes_read_again: 1 << 29, failed: 0, lanes: 0, ..known };
        assert!(status(&resumed, None, left).ends_with("files  512 MiB of an earlier run read again"));
        let walking = Progress { found_all: false, failed: 0, ..known };
        let rough = Left { is_rough: true, ..left };
        insta::assert_snapshot!(status(&walking, None, rough), @"~50 %  ~0:13 left  1.50 GiB of 3.00 GiB+  1,234 of 5,678+ files  4 lanes");
    }

    #[test]
    fn the_time_left_is_the_last_to_go_on_a_narrow_terminal() {
        let known = Progress { bytes_moved: 1 << 30, bytes_found: 2 << 30, found_all: true, ..Progress::default() };
        let left =
            Left { files: 1, bytes: 1 << 30, time: Some(Duration::from_secs(7_500)), done: Some(0.5), is_rough: false };
        let first: String = status(&known, Some(131_072_000.0), left).chars().take(40 - 17).collect();
        assert!(first.contains("50 %  2:05:00 left"), "{first}");
    }

    #[test]
    fn when_all_data_is_there_the_flush_is_named() {
        let all = Progress {
            files_done: 8,
            files_found: 20,
            bytes_moved: 9,
            bytes_found: 9,
            found_all: true,
            ..Progress::default()
        };
        let left = Left { files: 12, bytes: 0, time: Some(Duration::from_secs(3)), done: Some(0.99), is_rough: false };
        insta::assert_snapshot!(status(&all, Some(0.0), left), @"99 %  flushing 12 files  9 B of 9 B  8 of 20 files");
        let all = Progress { bytes_to_flush: 5 << 20, ..all };
        insta::assert_snapshot!(status(&all, Some(0.0), left), @"99 %  flushing 12 files, 5.00 MiB  9 B of 9 B  8 of 20 files");
    }

    #[test]
    fn nothing_found_yet_divides_by_nothing() {
        let empty = Progress { found_all: true, ..Progress::default() };
        let left = Left { files: 0, bytes: 0, time: None, done: None, is_rough: false };
        insta::assert_snapshot!(status(&empty, Some(0.0), left), @"0 B of 0 B  0 of 0 files");
    }

    #[test]
    fn a_full_disk_is_one_line() {
        let screen = Screen::new(Manner::default());
        let fail = |why: &str| screen.on_event(&Event::Failed { path: b"a".to_vec(), why: why.to_owned() });
        fail("cannot write a: No space left on device");
        assert!(screen.state().is_full && !screen.state().lines_since_failure);
        fail("cannot write a: No space left on device");
        fail("cannot read a: Permission denied");
        assert!(screen.close() || screen.state().failed);
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
