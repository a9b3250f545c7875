//! `haul verify LIST [ROOT]`: a line for each difference, and a closing line.

pub mod flags;

use std::ffi::OsStr;
use std::io::{IsTerminal as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use haul_job::{Endpoint, Error, Fault, Here, Observer, Place, Progress};
use haul_transfer::Surroundings;
use haul_transfer::place::Algorithm;
use haul_transfer::verify::{Finding, ListAt, VerifyOptions, VerifyProgress, VerifyReport, VerifyWatcher, verify};
use serde::Serialize;

use crate::far_side::endpoint::one_host;
use crate::far_side::options::ways;
use crate::far_side::person::Person;
use crate::json::line::to_line;
use crate::json::values::{Named, hex, named, seconds};
use crate::process::{ending, output, signals};
use crate::progress::screen::{Manner, Screen, Show};
use crate::text::causes::{Causes, more_of, of_message};
use crate::text::failure;
use crate::text::figures::{bytes, counted, duration};
use crate::text::printable::printable;
use crate::text::proof::as_read;
use crate::verify::flags::Verify;

pub fn run(typed: &Verify) -> ExitCode {
    haul_transfer::hide_memory();
    let options = match options(typed) {
        Ok(options) => options,
        Err(error) => return ending::failed(&error, typed.json),
    };
    let show = Show::choose(false, typed.no_progress, typed.quiet || typed.json, std::io::stderr().is_terminal());
    let screen = Screen::new(Manner { quiet: typed.quiet, show, ..Manner::default() });
    let interrupted = signals::watch();
    let observer: Arc<dyn Observer> = Arc::new(Person { interrupted: Arc::clone(&interrupted) });
    let watcher =
        Watcher { screen, json: typed.json, first_missing: Mutex::default(), causes: Mutex::default(), interrupted };
    let outcome = verify(&options, &haul_transfer::ways(&Surroundings::of_process()), &observer, &watcher);
    for (cause, count) in watcher.causes.lock().unwrap_or_else(PoisonError::into_inner).rest() {
        watcher.screen.below(&format!("unreadable: {}", more_of(&cause, count)), true);
    }
    watcher.screen.close();
    match outcome {
        Ok(report) if typed.json => {
            output::say(to_line(&TotalsLine::of(&report)));
            end(&report)
        }
        Ok(report) => {
            let line = closing_line(&report, options.extra || options.list == ListAt::InBag);
            if differs(&report) {
                let _ = writeln!(std::io::stderr(), "error: {line}");
                let missing = watcher.first_missing.into_inner().unwrap_or_else(PoisonError::into_inner);
                let root = Path::new(OsStr::from_bytes(&options.tree.path));
                if report.differing == report.files
                    && options.tree.place == Place::Here(Here::Disk)
                    && let Some(other) = missing.and_then(|path| elsewhere(root, &path))
                {
                    let _ = writeln!(
                        std::io::stderr(),
                        "  hint:  the tree lies at {0}: haul verify LIST {0}",
                        other.display()
                    );
                }
            } else if !typed.quiet {
                output::say(format!("{line}\n"));
            }
            end(&report)
        }
        Err(error) => ending::failed(&error, typed.json),
    }
}

fn end(report: &VerifyReport) -> ExitCode {
    match differs(report) {
        true => ExitCode::from(failure::of_fault(Fault::Verification).code),
        false => ExitCode::SUCCESS,
    }
}

/// The operands: a list and a tree, or a bag alone.
fn options(typed: &Verify) -> Result<VerifyOptions, Error> {
    let here = || Endpoint { place: Place::Here(Here::Disk), path: b".".to_vec() };
    let first = if typed.list == "-" { None } else { Some(one_host(&typed.list)?) };
    let root = typed.root.as_deref().map(one_host).transpose()?;
    let is_bag =
        |first: &Endpoint| first.place != Place::Here(Here::Disk) || Path::new(OsStr::from_bytes(&first.path)).is_dir();
    let (list, tree) = match (first, root) {
        (None, root) => (ListAt::Input, root.unwrap_or_else(here)),
        (Some(bag), None) if is_bag(&bag) => (ListAt::InBag, bag),
        (Some(Endpoint { place: Place::Here(Here::Disk), path }), root) => {
            (ListAt::Here(PathBuf::from(OsStr::from_bytes(&path))), root.unwrap_or_else(here))
        }
        (Some(list), root) => (ListAt::At(list), root.unwrap_or_else(here)),
    };
    let (carriage, ssh) = ways(&typed.reach)?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let algorithm = typed.algorithm.map(Algorithm::from);
    Ok(VerifyOptions { list, tree, threads, extra: typed.extra, algorithm, carriage, ssh })
}

struct Watcher {
    screen: Screen,
    json: bool,
    first_missing: Mutex<Option<Vec<u8>>>,
    causes: Mutex<Causes>,
    interrupted: Arc<AtomicBool>,
}

impl VerifyWatcher for Watcher {
    fn on_finding(&self, path: &[u8], finding: &Finding) {
        if *finding == Finding::Missing {
            self.first_missing.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| path.to_vec());
        }
        match self.json {
            true => output::say(to_line(&DiffersLine::of(path, finding))),
            false => {
                let is_named = match finding {
                    Finding::Unreadable(why) => {
                        self.causes.lock().unwrap_or_else(PoisonError::into_inner).has_line(of_message(why))
                    }
                    _ => true,
                };
                if is_named {
                    self.screen.below(&finding_line(path, finding), true);
                }
            }
        }
    }

    fn on_progress(&self, progress: &VerifyProgress) {
        let (files_found, bytes_found) = progress.listed.unwrap_or((progress.files, progress.bytes));
        self.screen.progress(&Progress {
            files_done: progress.files,
            files_found,
            files_left: files_found.saturating_sub(progress.files),
            bytes_moved: progress.bytes,
            bytes_found,
            bytes_left: bytes_found.saturating_sub(progress.bytes),
            found_all: progress.listed.is_some(),
            ..Progress::default()
        });
    }

    fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

#[derive(Serialize)]
struct DiffersLine {
    event: &'static str,
    #[serde(flatten)]
    path: Named,
    finding: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    listed_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    found_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

impl DiffersLine {
    fn of(path: &[u8], finding: &Finding) -> Self {
        let (mut listed_bytes, mut found_bytes, mut why) = (None, None, None);
        let finding = match finding {
            Finding::Missing => "missing",
            Finding::Size { listed, found } => {
                (listed_bytes, found_bytes) = (Some(*listed), Some(*found));
                "size"
            }
            Finding::Altered => "altered",
            Finding::NotAFile => "not_a_file",
            Finding::Unreadable(words) => {
                why = Some(words.clone());
                "unreadable"
            }
            Finding::Extra => "extra",
        };
        Self { event: "differs", path: named(path), finding, listed_bytes, found_bytes, why }
    }
}

#[derive(Serialize)]
struct TotalsLine {
    event: &'static str,
    all_match: bool,
    files: u64,
    bytes: u64,
    differing: u64,
    extra: u64,
    algorithms: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    root_blake3: Option<String>,
    /// Readers of the files, as in a copy's report.
    proof: &'static str,
    elapsed_s: f64,
}

impl TotalsLine {
    fn of(report: &VerifyReport) -> Self {
        Self {
            event: "verified",
            all_match: !differs(report),
            files: report.files,
            bytes: report.bytes,
            differing: report.differing,
            extra: report.extra,
            algorithms: report.algorithms.iter().map(|algorithm| names(*algorithm).0).collect(),
            root_blake3: report.root_blake3.map(|root| hex(&root)),
            proof: report.proof.name(),
            elapsed_s: seconds(report.elapsed),
        }
    }
}

fn names(algorithm: Algorithm) -> (&'static str, &'static str) {
    match algorithm {
        Algorithm::Blake3 => ("blake3", "BLAKE3"),
        Algorithm::Md5 => ("md5", "MD5"),
        Algorithm::Sha1 => ("sha1", "SHA-1"),
        Algorithm::Sha256 => ("sha256", "SHA-256"),
        Algorithm::Sha512 => ("sha512", "SHA-512"),
    }
}

/// Where a listed file missing below `root` may lie: the manifest may be for a directory above or below.
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

/// People are seldom wrong by more than one directory.
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
    let mut how = match &report.root_blake3 {
        Some(root) => format!("root {}…", hex(&root[..4])),
        None => report.algorithms.iter().map(|algorithm| names(*algorithm).1).collect::<Vec<_>>().join(" and "),
    };
    if let Some(words) = as_read(report.proof) {
        how = [how.as_str(), words].join(" ").trim_start().to_owned();
    }
    let files = counted(report.files, "file", "files");
    let (size, took) = (bytes(report.bytes), duration(report.elapsed));
    if !differs(report) {
        let extra = if looked_for_extra { ", no extra files" } else { "" };
        let how = if how.is_empty() { how } else { format!(", {how}") };
        return format!("verified {files}, {size}{how} in {took}{extra}");
    }
    let mut parts = Vec::new();
    if report.differing > 0 {
        let verb = if report.differing == 1 { "differs" } else { "differ" };
        parts.push(format!("{} of {files} {verb}", crate::text::figures::count(report.differing)));
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

    use haul_job::Proof;

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
            algorithms: [Algorithm::Blake3].into(),
            root_blake3: Some([0x1a; 32]),
            proof: Proof::BothEnds,
            elapsed: Duration::from_millis(3_200),
        };
        insta::assert_snapshot!(closing_line(&good, false), @"verified 1,234 files, 5.60 GiB, root 1a1a1a1a… in 3.20 s");
        insta::assert_snapshot!(closing_line(&good, true), @"verified 1,234 files, 5.60 GiB, root 1a1a1a1a… in 3.20 s, no extra files");
        let sums = VerifyReport { root_blake3: None, algorithms: [Algorithm::Sha256].into(), ..good.clone() };
        insta::assert_snapshot!(closing_line(&sums, false), @"verified 1,234 files, 5.60 GiB, SHA-256 in 3.20 s");
        let bad = VerifyReport { differing: 2, extra: 1, ..good.clone() };
        insta::assert_snapshot!(closing_line(&bad, true), @"2 of 1,234 files differ, 1 extra file in 3.20 s");
        let read = VerifyReport { proof: Proof::AsRead, ..sums };
        insta::assert_snapshot!(closing_line(&read, false), @"verified 1,234 files, 5.60 GiB, SHA-256 as read over sftp in 3.20 s");
        let more = VerifyReport { extra: 1, ..good };
        insta::assert_snapshot!(closing_line(&more, true), @"verified 1,234 files, 5.60 GiB, 1 extra file in 3.20 s");
    }

    #[test]
    fn findings_name_the_path_safely() {
        assert_eq!(finding_line(b"a\x1b[2J", &Finding::Missing), r"missing: a\x1b[2J");
        assert_eq!(finding_line(b"a", &Finding::Size { listed: 5, found: 4 }), "size differs: a: 4 bytes, listed 5");
    }
}
