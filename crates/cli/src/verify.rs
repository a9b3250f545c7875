//! `haul verify FILE [ROOT]`: names each difference on a line, and closes with one line.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use haul_job::{Fault, Progress};
use haul_transfer::verify::{Finding, VerifyOptions, VerifyProgress, VerifyReport, VerifyWatcher, verify};

use crate::args::Verify;
use crate::figures::{bytes, counted, duration};
use crate::printable::printable;
use crate::progress::{Manner, Screen, Show};
use crate::{failure, output, signals};

/// Checks the tree.
pub fn run(typed: &Verify) -> ExitCode {
    let options = VerifyOptions {
        manifest: typed.manifest.clone(),
        root: typed.root.clone(),
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        extra: typed.extra,
    };
    let show = Show::choose(false, typed.no_progress, typed.quiet, std::io::stderr().is_terminal());
    let screen = Screen::new(Manner { quiet: typed.quiet, show, ..Manner::default() });
    let watcher = Watcher { screen, interrupted: signals::watch() };
    let outcome = verify(&options, &watcher);
    watcher.screen.close();
    match outcome {
        Ok(report) => {
            let line = closing_line(&report, typed.extra);
            if differs(&report) {
                let _ = writeln!(std::io::stderr(), "error: {line}");
                return ExitCode::from(failure::of_fault(Fault::Verification).code);
            }
            if !typed.quiet {
                output::say(format!("{line}\n"));
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = write!(std::io::stderr(), "{}", failure::text(&error));
            ExitCode::from(failure::of_fault(error.fault).code)
        }
    }
}

struct Watcher {
    screen: Screen,
    interrupted: Arc<AtomicBool>,
}

impl VerifyWatcher for Watcher {
    fn on_finding(&self, path: &[u8], finding: &Finding) {
        self.screen.below(&finding_line(path, finding), true);
    }

    fn on_progress(&self, progress: &VerifyProgress) {
        let (files_found, bytes_found) = progress.listed.unwrap_or((progress.files, progress.bytes));
        self.screen.progress(&Progress {
            files_done: progress.files,
            files_found,
            bytes_moved: progress.bytes,
            bytes_found,
            found_all: progress.listed.is_some(),
            ..Progress::default()
        });
    }

    fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

fn differs(report: &VerifyReport) -> bool {
    report.differing > 0 || report.extra > 0
}

fn finding_line(path: &[u8], finding: &Finding) -> String {
    let path = printable(path);
    match finding {
        Finding::Missing => format!("missing: {path}"),
        Finding::Size { listed, found } => format!("size differs: {path}: {found} bytes, listed {listed}"),
        Finding::Altered => format!("altered: {path}"),
        Finding::NotAFile => format!("not a regular file: {path}"),
        Finding::Unreadable(why) => format!("unreadable: {path}: {}", printable(why)),
        Finding::Extra => format!("extra: {path}"),
    }
}

fn closing_line(report: &VerifyReport, looked_for_extra: bool) -> String {
    let root: String = report.root_blake3[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    let files = counted(report.files, "file", "files");
    let (size, took) = (bytes(report.bytes), duration(report.elapsed));
    if !differs(report) {
        let extra = if looked_for_extra { ", no extra files" } else { "" };
        return format!("verified {files}, {size}, root {root}… in {took}{extra}");
    }
    let mut parts = Vec::new();
    if report.differing > 0 {
        let verb = if report.differing == 1 { "differs" } else { "differ" };
        parts.push(format!("{} of {files} {verb}", crate::figures::count(report.differing)));
    } else {
        parts.push(format!("verified {files}, {size}"));
    }
    if report.extra > 0 {
        parts.push(counted(report.extra, "extra file", "extra files"));
    }
    format!("{} in {took}", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_closing_line_says_what_was_proved() {
        let good = VerifyReport {
            files: 1_234,
            bytes: 6_012_954_214,
            differing: 0,
            extra: 0,
            root_blake3: [0x1a; 32],
            elapsed: Duration::from_millis(3_200),
        };
        insta::assert_snapshot!(closing_line(&good, false), @"verified 1,234 files, 5.60 GiB, root 1a1a1a1a… in 3.20 s");
        insta::assert_snapshot!(closing_line(&good, true), @"verified 1,234 files, 5.60 GiB, root 1a1a1a1a… in 3.20 s, no extra files");
        let bad = VerifyReport { differing: 2, extra: 1, ..good.clone() };
        insta::assert_snapshot!(closing_line(&bad, true), @"2 of 1,234 files differ, 1 extra file in 3.20 s");
        let more = VerifyReport { extra: 1, ..good };
        insta::assert_snapshot!(closing_line(&more, true), @"verified 1,234 files, 5.60 GiB, 1 extra file in 3.20 s");
    }

    #[test]
    fn findings_name_the_path_safely() {
        assert_eq!(finding_line(b"a\x1b[2J", &Finding::Missing), r"missing: a\x1b[2J");
        assert_eq!(finding_line(b"a", &Finding::Size { listed: 5, found: 4 }), "size differs: a: 4 bytes, listed 5");
    }
}
