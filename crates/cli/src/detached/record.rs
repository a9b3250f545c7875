//! Records of detached copies: `$XDG_STATE_HOME/haul/copies/ID/`, for their user alone.
//!
//! ```text
//!   copy.json      what is copied, how far it is, how it ended; written anew each second
//!   lock           held by the process of the copy as long as it lives
//!   rate           the limit of the rate that somebody has asked for since the copy began
//!   log, log.1     what it said, and what it said before that
//! ```
//! Records name files and hosts, never keys or passwords.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use haul_job::timetable::{Timetable, parse_timetable};
use haul_transfer::own::OwnDirectory;
use serde::{Deserialize, Serialize};

use crate::json::line::to_line;
use crate::json::values::Named;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Copy {
    pub schema: u32,
    pub id: u32,
    pub version: String,
    pub sources: Vec<Named>,
    pub target: Named,
    /// Seconds since 1970.
    pub started_at_s: u64,
    /// `service` or `session`.
    pub keeper: String,
    pub pid: Option<u32>,
    /// Records of an earlier version have none.
    #[serde(default)]
    pub rate: Option<RateSaid>,
    pub now: Option<Now>,
    /// The reason for a further try, if the copy waits for one.
    pub waits: Option<String>,
    pub ended: Option<Ended>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RateSaid {
    /// The user's words; empty without a limit, or one in other words than those of `--rate`.
    pub asked: String,
    pub limit_bytes_per_s: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Now {
    /// Seconds since 1970.
    pub at_s: u64,
    pub files_done: u64,
    pub files_found: u64,
    pub bytes_moved: u64,
    pub bytes_kept: u64,
    pub bytes_found: u64,
    pub found_all: bool,
    pub failed: u64,
    pub rate_bytes_per_s: Option<u64>,
    pub eta_s: Option<u64>,
    pub line: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// Seconds since 1970.
    pub at_s: u64,
    pub exit_code: u8,
    pub result: String,
    /// The closing line, or the error.
    pub summary: String,
}

pub const SCHEMA: u32 = 1;

pub fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

pub struct Records(PathBuf);

#[derive(Clone, Debug)]
pub struct Record(PathBuf);

impl Records {
    /// `None` for a user without a home directory.
    pub fn of_process() -> Option<Self> {
        Some(Self(haul_transfer::Surroundings::of_process().state?.join("copies")))
    }

    #[cfg(test)]
    pub fn at(directory: &Path) -> Self {
        Self(directory.to_owned())
    }

    /// Makes a new copy's record with its number, and removes old ones.
    pub fn claim(&self, copy: Copy, now_s: u64) -> io::Result<(Record, Copy)> {
        let all = OwnDirectory::make(&self.0)?;
        self.remove_old(&all, now_s);
        let ids = self.ids()?;
        if ids.len() >= RECORDS_MAX {
            return Err(io::Error::other(format!("{RECORDS_MAX} detached copies run already")));
        }
        let first = ids.first().map_or(1, |last| last.saturating_add(1));
        for id in first..=first.saturating_add(TRIES) {
            let record = self.record(id);
            match all.make_new_directory(&id.to_string()) {
                Ok(_) => {
                    let copy = Copy { id, ..copy };
                    record.write(&copy)?;
                    return Ok((record, copy));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    pub fn record(&self, id: u32) -> Record {
        Record(self.0.join(id.to_string()))
    }

    pub fn ids(&self) -> io::Result<Vec<u32>> {
        let names = match OwnDirectory::open(&self.0).and_then(|all| all.names(NAMES_MAX)) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut ids: Vec<u32> = names.iter().filter_map(|name| name.to_str()?.parse().ok()).collect();
        ids.sort_unstable_by(|a, b| b.cmp(a));
        Ok(ids)
    }

    /// Removes copies over for more than a week, and all but [`ENDED_KEPT`] of the rest.
    fn remove_old(&self, all: &OwnDirectory, now_s: u64) {
        let over = self.ids().unwrap_or_default().into_iter().filter_map(|id| {
            let record = self.record(id);
            if record.is_alive() {
                return None;
            }
            let at_s = record.read().map_or(0, |copy| copy.over_at_s());
            // A new record has no process yet.
            (now_s.saturating_sub(at_s) >= START_S).then_some((id, at_s))
        });
        for (nth, (id, at_s)) in over.enumerate() {
            if nth >= ENDED_KEPT || now_s.saturating_sub(at_s) > KEPT_S {
                let _ = all.remove_directory(&id.to_string(), FILES_MAX);
            }
        }
    }
}

impl Copy {
    fn over_at_s(&self) -> u64 {
        let last = self.now.as_ref().map_or(self.started_at_s, |now| now.at_s);
        self.ended.as_ref().map_or(last, |ended| ended.at_s)
    }
}

impl Record {
    #[cfg(test)]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Replaces `copy.json`. Not flushed: a power cut ends the copy, too.
    pub fn write(&self, copy: &Copy) -> io::Result<()> {
        let mut file = self.open()?.begin("copy.json", 0o600)?.without_flush();
        file.write_all(to_line(copy).as_bytes())?;
        file.publish()
    }

    pub fn read(&self) -> io::Result<Copy> {
        let mut text = String::new();
        self.open()?.file("copy.json")?.take(MAX_FILE_BYTES).read_to_string(&mut text)?;
        let copy: Copy = serde_json::from_str(&text)?;
        match copy.schema {
            SCHEMA => Ok(copy),
            other => Err(io::Error::other(format!("it is of another version of haul (schema {other})"))),
        }
    }

    pub fn ask_rate(&self, asked: &Timetable) -> io::Result<()> {
        let mut file = self.open()?.begin("rate", 0o600)?.without_flush();
        file.write_all(asked.text().as_bytes())?;
        file.publish()
    }

    /// The rate limit asked for since the copy began.
    pub fn asked_rate(&self) -> io::Result<Option<Timetable>> {
        let file = match self.open()?.file("rate") {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut text = String::new();
        file.take(MAX_RATE_BYTES).read_to_string(&mut text)?;
        parse_timetable(&text).map(Some).map_err(io::Error::other)
    }

    /// Takes its process's lock; `None`: another process has it.
    pub fn lock(&self) -> io::Result<Option<File>> {
        let file = self.open()?.make_file("lock")?;
        Ok(haul_transfer::try_lock_surely(file.as_fd()).then_some(file))
    }

    pub fn is_alive(&self) -> bool {
        let Ok(file) = self.open().and_then(|directory| directory.file("lock")) else { return false };
        // Where locks do not work, a process of that number must do.
        let is_there = || {
            let pid = self.read().ok().and_then(|copy| copy.pid);
            pid.is_some_and(|pid| Path::new("/proc").join(pid.to_string()).exists())
        };
        !haul_transfer::try_lock_surely(file.as_fd()) && is_there()
    }

    pub fn print_to_log(&self) -> io::Result<()> {
        let mut log = self.open()?.make_file_to_append("log")?;
        log.seek(io::SeekFrom::End(0))?;
        haul_transfer::standard_streams::send_output_to(log.as_fd())
    }

    /// Begins a long log anew, and keeps the part before.
    pub fn bound_log(&self) {
        let Ok(directory) = self.open() else { return };
        if directory.file("log").and_then(|log| log.metadata()).is_ok_and(|log| log.len() > LOG_MAX_BYTES / 2)
            && directory.rename("log", "log.1").is_ok()
        {
            let _ = self.print_to_log();
        }
    }

    pub fn logged(&self) -> io::Result<Vec<u8>> {
        let mut text = self.logged_before()?;
        text.extend(self.read_if_there("log")?);
        Ok(text)
    }

    pub fn logged_before(&self) -> io::Result<Vec<u8>> {
        self.read_if_there("log.1")
    }

    pub fn log(&self) -> io::Result<File> {
        self.open()?.file("log")
    }

    fn read_if_there(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        match self.open()?.file(name) {
            Ok(file) => drop(file.take(LOG_MAX_BYTES).read_to_end(&mut text)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(text)
    }

    fn open(&self) -> io::Result<OwnDirectory> {
        OwnDirectory::open(&self.0)
    }
}

/// A hundred thousand names of `-v`, in both parts.
const LOG_MAX_BYTES: u64 = 16 << 20;
/// Bound for a hundred sources with the longest names.
const MAX_FILE_BYTES: u64 = 8 << 20;
/// Bound beyond any timetable.
const MAX_RATE_BYTES: u64 = 16 << 10;
/// Bound beyond what anybody follows.
const RECORDS_MAX: usize = 200;
/// How long a copy's end is seen.
const KEPT_S: u64 = 7 * 86_400;
const ENDED_KEPT: usize = 20;
/// Time for a process to begin.
pub const START_S: u64 = 30;
const TRIES: u32 = 100;
/// Bound beyond all records, and a record's files.
const NAMES_MAX: usize = 10_000;
const FILES_MAX: usize = 100;

#[cfg(test)]
pub mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::json::values;

    pub fn copy(started_at_s: u64) -> Copy {
        Copy {
            schema: SCHEMA,
            id: 0,
            version: "0.1.0".to_owned(),
            sources: vec![values::named(b"data/run42")],
            target: values::named(b"host-b:/data"),
            started_at_s,
            keeper: "session".to_owned(),
            pid: None,
            rate: None,
            now: None,
            waits: None,
            ended: None,
        }
    }

    fn ended(at_s: u64) -> Option<Ended> {
        Some(Ended { at_s, exit_code: 0, result: "ok".to_owned(), summary: "copied 1 file".to_owned() })
    }

    #[test]
    fn records_are_private_numbered_and_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::at(&dir.path().join("copies"));
        for n in 1..=30 {
            let (record, begun) = records.claim(copy(n * 100), n * 100).unwrap();
            assert_eq!(u64::from(begun.id), n);
            record.write(&Copy { ended: ended(n * 100 + 1), ..begun.clone() }).unwrap();
            record.lock().unwrap().unwrap();
            let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!((mode(record.path()), mode(&record.path().join("copy.json"))), (0o700, 0o600));
        }
        assert_eq!(records.ids().unwrap().len(), ENDED_KEPT + 1);
        assert_eq!(records.ids().unwrap()[0], 30);
        let lock = records.record(25).lock().unwrap().unwrap();
        let pid = Some(std::process::id());
        records.record(25).write(&Copy { id: 25, pid, ..copy(2_500) }).unwrap();
        let (_, last) = records.claim(copy(KEPT_S + 9_000), KEPT_S + 9_000).unwrap();
        assert_eq!(records.ids().unwrap(), [last.id, 25]);
        assert!(records.record(25).is_alive());
        // A child just forked by another test may hold the file open longer.
        lock.unlock().unwrap();
        assert!(!records.record(25).is_alive());
    }

    #[test]
    fn a_long_log_keeps_its_last_part() {
        let dir = tempfile::tempdir().unwrap();
        let record = Record(dir.path().to_owned());
        assert_eq!(record.logged().unwrap(), b"");
        fs::write(dir.path().join("log.1"), "before\n").unwrap();
        fs::write(dir.path().join("log"), "after\n").unwrap();
        assert_eq!(record.logged().unwrap(), b"before\nafter\n");
    }
}
