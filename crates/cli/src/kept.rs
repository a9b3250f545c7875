//! The last reports of this user, one file each, for `haul why`: `$XDG_STATE_HOME/haul/report-<time>-<process>.json`.
//!
//! A report goes to a temporary name, gets its own, and the oldest beyond [`KEPT_AT_MOST`] go. What cannot be written is not
//! kept; the copy does not care. Names of files, hosts and users are in it, so only this user can read it; keys and
//! passwords never come here.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use haul_transfer::whole_file::{Mode, WholeFile};
use serde::{Deserialize, Serialize};

use crate::json::{ErrorLine, Named, ReportLine, SCHEMA};
use crate::json_text;

/// What is kept of one copy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Kept {
    /// That of the JSON lines, whose report this holds.
    pub schema: u32,
    pub version: String,
    /// Seconds since 1970.
    pub ended_at_s: u64,
    pub sources: Vec<Named>,
    pub target: Named,
    /// The closing line, without the word on `haul why`.
    pub summary: Option<String>,
    pub report: Option<ReportLine>,
    /// Why there is no report.
    pub error: Option<ErrorLine>,
    /// What is known without one.
    pub so_far: SoFar,
}

/// The last running totals.
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
    /// What held the lanes when the path was last looked at.
    pub held_by: Option<String>,
}

/// The directory of the reports; `None` for a user without a home.
pub fn directory() -> Option<PathBuf> {
    haul_transfer::state_directory()
}

/// Keeps it, as written at `now` since 1970 by process `id`.
pub fn keep(directory: &Path, now: Duration, id: u32, kept: &Kept) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let file = directory.join(format!("{PREFIX}{:015}-{id}{SUFFIX}", now.as_millis()));
    let written = write(&file, kept);
    // Whatever else a copy that was killed left under our names grows old here, too.
    for old in ours(directory, "")?.into_iter().skip(KEPT_AT_MOST) {
        let _ = fs::remove_file(old);
    }
    written
}

/// The files, the newest first.
pub fn list(directory: &Path) -> io::Result<Vec<PathBuf>> {
    ours(directory, SUFFIX)
}

/// One of them. One that another version wrote, or something else, is an error.
pub fn read(file: &Path) -> io::Result<Kept> {
    let mut text = String::new();
    File::open(file)?.take(MAX_FILE_BYTES).read_to_string(&mut text)?;
    let kept: Kept = serde_json::from_str(&text)?;
    match kept.schema {
        SCHEMA => Ok(kept),
        other => Err(io::Error::other(format!("it was kept by another version of haul (schema {other})"))),
    }
}

fn write(file: &Path, kept: &Kept) -> io::Result<()> {
    // A power cut may take it: it tells of a copy, it is none.
    let mut file = WholeFile::begin(file, Mode::Of(0o600))?.without_flush();
    file.write_all(json_text::line(kept).as_bytes())?;
    file.publish()
}

fn ours(directory: &Path, suffix: &str) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with(PREFIX) && name.ends_with(suffix))
        .collect();
    // The time stands first in the name, with as many digits in each.
    names.sort_unstable_by(|a, b| b.cmp(a));
    Ok(names.into_iter().map(|name| directory.join(name)).collect())
}

const PREFIX: &str = "report-";
const SUFFIX: &str = ".json";

/// Enough to look back over a day's work; 20 x 4 KB.
pub const KEPT_AT_MOST: usize = 20;

/// A report is some 4 KB; with 20 failures of the longest names 20 x 3 x 64 KiB = 3.75 MiB more.
const MAX_FILE_BYTES: u64 = 8 << 20;

#[cfg(test)]
pub mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::json;
    use crate::report::tests::report;

    /// Of a full success.
    pub fn kept() -> Kept {
        Kept {
            schema: SCHEMA,
            version: "0.1.0".to_owned(),
            ended_at_s: 1_700_000_000,
            sources: vec![json::named(b"data/run42")],
            target: json::named(b"host-b:/data"),
            summary: Some(crate::report::summary(&report())),
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
        // The rest of one that was killed, and what is not ours.
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
