//! An experiment's progress: a bar on a terminal, messages in a log.
//!
//! A guest's standard error is a pipe, so the terminal's width ([`terminal_columns`]) travels with the request.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};

use crate::experiment::RunEvent;

/// Columns of standard error's terminal, if any.
pub fn terminal_columns() -> Option<u16> {
    let stderr = io::stderr();
    let size = rustix::termios::isatty(&stderr).then(|| rustix::termios::tcgetwinsize(&stderr).ok())?;
    // Some terminals do not know their width.
    Some(size.map_or(0, |size| size.ws_col)).map(|columns| if columns == 0 { FALLBACK_COLUMNS } else { columns })
}

/// Shows an experiment's events.
pub struct Progress<'a> {
    bar: ProgressBar,
    tell: &'a mut dyn FnMut(&str),
}

impl<'a> Progress<'a> {
    /// With `columns` a bar, otherwise lines for `tell`. `beats` moves the bar's clock between events, if time is not
    /// skipped.
    pub fn new(columns: Option<u16>, beats: bool, tell: &'a mut dyn FnMut(&str)) -> Progress<'a> {
        let bar = match columns {
            Some(columns) => bar(Ansi { columns, out: Mutex::new(Box::new(io::stderr())) }, beats),
            None => ProgressBar::hidden(),
        };
        Progress { bar, tell }
    }

    /// Shows an event.
    pub fn event(&mut self, event: &RunEvent<'_>) {
        match event {
            RunEvent::Started { samples, present, .. } => {
                self.bar.set_length(*samples as u64);
                self.bar.set_position(*present as u64);
            }
            RunEvent::Point(point) => self.bar.set_message(format!("making and calibrating the lab: {point}")),
            RunEvent::Running { tool, point, repetition } => {
                self.bar.set_message(format!("{tool}  {point}  #{repetition}"));
            }
            RunEvent::Missing(_) | RunEvent::Finished(_) => {}
        }
        if let Some(line) = line(event) {
            match self.bar.is_hidden() {
                true => (self.tell)(&line),
                false => self.bar.println(line),
            }
        }
        if let RunEvent::Finished(_) = event {
            self.bar.inc(1);
        }
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn bar(terminal: Ansi, beats: bool) -> ProgressBar {
    let clock = if beats { "  {elapsed_precise}" } else { "" };
    let template = format!("{{bar:20}} {{pos}}/{{len}}{clock}  {{wide_msg}}");
    let style = ProgressStyle::with_template(&template).expect("the template is sound, see the test");
    let target = ProgressDrawTarget::term_like_with_hz(Box::new(terminal), DRAWS_PER_S);
    let bar = ProgressBar::with_draw_target(Some(0), target).with_style(style.progress_chars("=> "));
    if beats {
        bar.enable_steady_tick(BEAT);
    }
    bar
}

fn line(event: &RunEvent<'_>) -> Option<String> {
    Some(match event {
        RunEvent::Missing(tool) => format!("without {}: {}", tool.label, tool.why),
        RunEvent::Started { dir, samples, present: 0 } => format!("{samples} measurements, into {}", dir.display()),
        RunEvent::Started { dir, samples, present } => {
            format!("{samples} measurements, {present} of them there already, into {}", dir.display())
        }
        RunEvent::Point(point) => format!("making and calibrating the lab: {point}"),
        RunEvent::Running { .. } => return None,
        RunEvent::Finished(sample) => {
            let rate = sample.rate_mbit_per_s.map_or(String::new(), |rate| format!(", {rate:.0} Mbit/s"));
            let time = sample.seconds.map_or("not started".into(), |seconds| format!("{seconds:.2} s"));
            let why = sample.why.as_ref().map_or(String::new(), |why| format!(", INVALID: {why}"));
            format!("{:>20}  {}  #{}: {time}{rate}{why}", sample.tool, sample.point, sample.repetition)
        }
    })
}

/// A terminal behind a pipe, driven by ECMA-48, which all terminals understand.
struct Ansi {
    columns: u16,
    out: Mutex<Box<dyn Write + Send>>,
}

impl Ansi {
    fn out(&self) -> MutexGuard<'_, Box<dyn Write + Send>> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn moved(&self, n: usize, letter: char) -> io::Result<()> {
        if n == 0 { Ok(()) } else { write!(self.out(), "\x1b[{n}{letter}") }
    }
}

impl fmt::Debug for Ansi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a terminal of {} columns", self.columns)
    }
}

impl TermLike for Ansi {
    fn width(&self) -> u16 {
        self.columns
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.moved(n, 'A')
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.moved(n, 'B')
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.moved(n, 'C')
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.moved(n, 'D')
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        // The terminal may be in raw mode, so we return the carriage.
        write!(self.out(), "{text}\r\n")
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        write!(self.out(), "{text}")
    }

    fn clear_line(&self) -> io::Result<()> {
        write!(self.out(), "\r\x1b[2K")
    }

    fn flush(&self) -> io::Result<()> {
        self.out().flush()
    }
}

const FALLBACK_COLUMNS: u16 = 80;
const DRAWS_PER_S: u8 = 10;
const BEAT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::experiment::Point;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn play(progress: &mut Progress<'_>) {
        let point = Point::default();
        progress.event(&RunEvent::Started { dir: Path::new("results/x"), samples: 4, present: 1 });
        progress.event(&RunEvent::Point(&point));
        progress.event(&RunEvent::Running { tool: "scp", point: &point, repetition: 0 });
    }

    #[test]
    fn a_log_gets_lines() {
        let mut lines = Vec::new();
        let mut tell = |line: &str| lines.push(line.to_owned());
        play(&mut Progress::new(None, true, &mut tell));
        assert_eq!(
            lines,
            [
                "4 measurements, 1 of them there already, into results/x",
                "making and calibrating the lab: the only point"
            ]
        );
    }

    #[test]
    fn a_terminal_gets_a_bar_below_the_lines() {
        let screen = Shared::default();
        let terminal = Ansi { columns: 60, out: Mutex::new(Box::new(screen.clone())) };
        let mut tell = |line: &str| panic!("{line} stands above the bar");
        let mut progress = Progress { bar: bar(terminal, false), tell: &mut tell };
        play(&mut progress);
        drop(progress);
        let shown = String::from_utf8(screen.0.lock().unwrap().clone()).unwrap();
        assert!(shown.contains("4 measurements, 1 of them there already, into results/x"), "{shown:?}");
        assert!(shown.contains("=====>") && shown.contains(" 1/4  "), "{shown:?}");
        assert!(shown.contains("\x1b[2K") && shown.trim_end_matches("\x1b[2K").ends_with('\r'), "{shown:?}");
    }
}
