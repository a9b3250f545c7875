//! `haul verify FILE [ROOT]`: names each difference on a line, and closes with one line.

use std::ffi::OsStr;
use std::io::{IsTerminal as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

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
    let watcher = Watcher { screen, first_missing: Mutex::default(), interrupted: signals::watch() };
    let outcome = verify(&options, &watcher);
    watcher.screen.close();
    match outcome {
        Ok(report) => {
            let line = closing_line(&report, typed.extra);
            if differs(&report) {
                let _ = writeln!(std::io::stderr(), "error: {line}");
                let missing = watcher.first_missing.into_inner().unwrap_or_else(PoisonError::into_inner);
                if report.differing == report.files
                    && let Some(other) = missing.and_then(|path| elsewhere(&typed.root, &path))
                {
                    let _ = writeln!(
                        std::io::stderr(),
                        "  hint:  the tree lies at {0}: haul verify LIST {0}",
                        other.display()
                    );
                }
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
    first_missing: Mutex<Option<Vec<u8>>>,
    interrupted: Arc<AtomicBool>,
}

impl VerifyWatcher for Watcher {
    fn on_finding(&self, path: &[u8], finding: &Finding) {
        if *finding == Finding::Missing {
            self.first_missing.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| path.to_vec());
        }
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

/// Where a file that is listed, and is not below `root`, may be meant to lie: the manifest was made for a directory above, or for one below.
fn elsewhere(root: &Path, listed: &[u8]) -> Option<PathBuf> {
    let listed = Path::new(OsStr::from_bytes(listed));
    let holds = |directory: &Path| directory.join(listed).symlink_metadata().is_ok();
    let root = root.canonicalize().ok()?;
    let above = root.ancestors().skip(1).take(MOST_LEVELS).find(|directory| holds(directory));
    above.map(Path::to_path_buf).or_else(|| {
        let below = std::fs::read_dir(&root).ok()?.take(MOST_LOOKED_AT).filter_map(Result::ok);
        below.map(|entry| entry.path()).find(|directory| holds(directory))
    })
}

/// People are wrong by one directory, seldom by more.
const MOST_LEVELS: usize = 3;
const MOST_LOOKED_AT: usize = 1000;

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
    fn a_tree_one_directory_away_is_found() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("to/tree/sub")).unwrap();
        std::fs::write(dir.path().join("to/tree/sub/file"), "x").unwrap();
        let to = dir.path().canonicalize().unwrap().join("to");
        assert_eq!(elsewhere(&to.join("tree"), b"tree/sub/file"), Some(to.clone()), "too deep");
        assert_eq!(elsewhere(dir.path(), b"tree/sub/file"), Some(to.clone()), "not deep enough");
        assert_eq!(elsewhere(&to, b"tree/sub/other"), None);
    }

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
