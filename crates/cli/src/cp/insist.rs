//! Deletions that look like a mistake need `--force`, or an answer at the terminal.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use haul_job::Report;

use crate::cp::flags::Cp;
use crate::text::figures::counted;

/// Asks whether to make the withheld deletions. Does not ask without a terminal, in a dry run, with `--json` or
/// `--quiet`, or after a failure.
pub fn asks_for_deletions(typed: &Cp, report: &Report, interrupted: &AtomicBool) -> bool {
    let others_failed = report.failed > 1;
    let is_heard = io::stdin().is_terminal() && io::stderr().is_terminal();
    if report.withheld == 0 || others_failed || report.dry_run || typed.json || typed.quiet || !is_heard {
        return false;
    }
    let _ = write!(
        io::stderr(),
        "haul: delete {} there all the same? [y/N] ",
        counted(report.withheld, "entry", "entries")
    );
    line(interrupted).is_some_and(|line| is_yes(&line))
}

/// A line of standard input; `None` after a signal. A thread reads, because a read cannot be ended from outside.
fn line(interrupted: &AtomicBool) -> Option<String> {
    const LOOK_EVERY: Duration = Duration::from_millis(100);
    let (tell, told) = mpsc::channel();
    let read = move || {
        let mut line = String::new();
        // The terminal bounds a line (termios(3), canonical mode). Invalid text is no yes.
        let _ = io::stdin().read_line(&mut line);
        let _ = tell.send(line);
    };
    std::thread::Builder::new().name("answer".into()).spawn(read).ok()?;
    while !interrupted.load(Ordering::Relaxed) {
        match told.recv_timeout(LOOK_EVERY) {
            Ok(line) => return Some(line),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
    let _ = writeln!(io::stderr());
    None
}

fn is_yes(line: &str) -> bool {
    ["y", "yes"].iter().any(|yes| line.trim().eq_ignore_ascii_case(yes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_is_yes() {
        for (line, expected) in
            [("y\n", true), ("Yes\n", true), ("\n", false), ("", false), ("yellow\n", false), ("n\n", false)]
        {
            assert_eq!(is_yes(line), expected, "{line:?}");
        }
    }
}
