//! The user's last reports for `haul why`: `$XDG_STATE_HOME/haul/report-<time>-<process>.json`.
//!
//! A report is written under a temporary name, then renamed; those beyond the newest [`KEPT_AT_MOST`] are removed. A failure
//! loses it, and the copy goes on. Reports hold names of files, hosts and users, so only their owner can read them. They
//! never hold keys or passwords.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use haul_transfer::own::{self, OwnDirectory, Weight};
use serde::{Deserialize, Serialize};

use crate::json::error::ErrorLine;
use crate::json::line::to_line;
use crate::json::values::{Named, SCHEMA};
use crate::report::json::ReportLine;
use crate::report::outages::OutageLines;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Kept {
    pub schema: u32,
    pub version: String,
    /// Seconds since 1970.
    pub ended_at_s: u64,
    pub sources: Vec<Named>,
    pub target: Named,
    /// The closing line, without the mention of `haul why`.
    pub summary: Option<String>,
    pub report: Option<ReportLine>,
    /// Why the copy broke off without a report.
    pub error: Option<ErrorLine>,
    pub so_far: SoFar,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct SoFar {
    pub elapsed_s: f64,
    pub files_done: u64,
    pub files_found: u64,
    pub bytes_moved: u64,
    pub bytes_kept: u64,
    pub bytes_found: u64,
    pub lanes: u16,
    pub held_by: Option<String>,
    #[serde(flatten)]
    pub outages: OutageLines,
}

/// The reports' directory; `None` for a user without a home.
pub fn directory() -> Option<PathBuf> {
    haul_transfer::Surroundings::of_process().state
}

/// Writes the report, named by `now` since 1970 and process `id`.
pub fn keep(directory: &Path, now: Duration, id: u32, kept: &Kept) -> io::Result<()> {
    let directory = OwnDirectory::make(directory)?;
    let written = write(&directory, &format!("{PREFIX}{:015}-{id}{SUFFIX}", now.as_millis()), kept);
    // A killed copy's rest has our name and goes when old.
    for old in ours(&directory, "")?.into_iter().skip(KEPT_AT_MOST) {
        let _ = directory.remove(old);
    }
    written
}

pub fn list(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let directory = match OwnDirectory::open(directory) {
        Ok(directory) => directory,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    Ok(ours(&directory, SUFFIX)?.into_iter().map(|name| directory.path().join(name)).collect())
}

/// Fails for other versions and other files.
pub fn read(file: &Path) -> io::Result<Kept> {
    let mut text = String::new();
    own::open(file, Weight::Obeyed)?.take(MAX_FILE_BYTES).read_to_string(&mut text)?;
    let kept: Kept = serde_json::from_str(&text)?;
    match kept.schema {
        SCHEMA => Ok(kept),
        other => Err(io::Error::other(format!("it was kept by another version of haul (schema {other})"))),
    }
}

fn write(directory: &OwnDirectory, name: &str, kept: &Kept) -> io::Result<()> {
    // Not flushed: a power cut may take a report.
    let mut file = directory.begin(name, 0o600)?.without_flush();
    file.write_all(to_line(kept).as_bytes())?;
    file.publish()
}

fn ours(directory: &OwnDirectory, suffix: &str) -> io::Result<Vec<String>> {
    let names = directory.names(NAMES_MAX)?.into_iter().filter_map(|name| name.into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.starts_with(PREFIX) && name.ends_with(suffix)).collect();
    // The time has a fixed number of digits, so names sort by it.
    names.sort_unstable_by(|a, b| b.cmp(a));
    Ok(names)
}

/// The state directory also has other commands' files.
const NAMES_MAX: usize = 100_000;

const PREFIX: &str = "report-";
const SUFFIX: &str = ".json";

/// A day's copies; 20 x 4 KB.
pub const KEPT_AT_MOST: usize = 20;

/// A report has some 4 KB; 20 failures with the longest names add 20 x 3 x 64 KiB = 3.75 MiB.
const MAX_FILE_BYTES: u64 = 8 << 20;

#[cfg(test)]
pub mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::cp::closing_lines::tests::report;
    use crate::json::values;
    use crate::report::json;

    pub fn kept() -> Kept {
        Kept {
            schema: SCHEMA,
            version: "0.1.0".to_owned(),
            ended_at_s: 1_700_000_000,
            sources: vec![values::named(b"data/run42")],
            target: values::named(b"host-b:/data"),
            summary: Some(crate::cp::closing_lines::summary(&report())),
            report: Some(json::of_report(&report(), 0)),
            error: None,
            so_far: SoFar { elapsed_s: 12.3, ..SoFar::default() },
        }
    }

    #[test]
    fn what_is_kept_is_read_again_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state/haul");
        keep(&state, Duration::from_secs(5), 7, &kept()).unwrap();
        let files = list(&state).unwrap();
        assert_eq!(files, [state.join("report-000000000005000-7.json")]);
        assert_eq!(read(&files[0]).unwrap(), kept());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&state), mode(&files[0])), (0o700, 0o600));
    }

    #[test]
    fn the_newest_come_first_and_only_so_many_stay() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("report-000000000000001-1.part"), "{").unwrap();
        fs::write(dir.path().join("else"), "").unwrap();
        for second in 1..=25 {
            keep(dir.path(), Duration::from_secs(second), 7, &kept()).unwrap();
        }
        let files = list(dir.path()).unwrap();
        assert_eq!(files.len(), KEPT_AT_MOST);
        assert!(files[0].ends_with("report-000000000025000-7.json"), "{files:?}");
        assert!(files[19].ends_with("report-000000000006000-7.json"), "{files:?}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), KEPT_AT_MOST + 1);
    }

    #[test]
    fn what_cannot_be_read_is_an_error_and_what_cannot_be_written_leaves_no_litter() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("report-1-1.json");
        for text in ["", "{}", "[1]", "\u{fffd}"] {
            fs::write(&file, text).unwrap();
            assert!(read(&file).is_err(), "{text}");
        }
        fs::write(&file, serde_json::to_string(&Kept { schema: 99, ..kept() }).unwrap()).unwrap();
        assert!(read(&file).unwrap_err().to_string().contains("another version"));
        assert!(keep(&file, Duration::ZERO, 1, &kept()).is_err());
        let taken = dir.path().join("report-000000000000000-1.json");
        fs::create_dir(&taken).unwrap();
        assert!(keep(dir.path(), Duration::ZERO, 1, &kept()).is_err());
        assert!(!taken.with_extension("part").exists());
        assert!(list(&dir.path().join("none")).unwrap().is_empty());
    }
}
