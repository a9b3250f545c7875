//! Keeps the measured ways to write to the file systems of this host, so that not every job measures again.
//!
//! ```text
//!   ~/.local/state/haul/write-routes     one line for each file system:
//!   4f2a91c07d3e5b18 direct 1795298048   the file system's id (statvfs(3)), the way, when it was measured
//! ```
//! A far side soon gives up the right to open files. So it opens one that a job of its host has made, and writes in place.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use haul_store::WriteRoute;
use haul_sys::file;
use haul_sys::own::OwnDirectory;

use crate::surroundings::Surroundings;

/// The file system measured longest ago goes first.
const MAX_FILE_SYSTEMS: usize = 64;

/// 64 lines of 16 + 6 + 20 bytes, and spaces.
const MAX_FILE_BYTES: u64 = 4 << 10;

/// Disks and kernels are replaced.
const MAX_AGE: Duration = Duration::from_secs(30 * 24 * 3600);

/// The measured ways.
#[derive(Default)]
pub struct KnownRoutes {
    state: Option<PathBuf>,
    file: OnceLock<Option<File>>,
}

impl KnownRoutes {
    /// Opens the file, at a far side now.
    pub fn of(surroundings: &Surroundings, far: bool) -> Self {
        let state = surroundings.state.clone();
        if !far {
            return Self { state, file: OnceLock::new() };
        }
        let file = state.as_ref().and_then(|directory| open_in(directory, false));
        Self { state, file: OnceLock::from(file) }
    }

    fn file(&self) -> Option<&File> {
        let open = || self.state.as_ref().and_then(|directory| open_in(directory, true));
        self.file.get_or_init(open).as_ref()
    }

    /// The recent finding for a file system.
    pub fn find(&self, id: u64, now: SystemTime) -> Option<WriteRoute> {
        let lines = self.lines(now);
        lines.iter().find(|line| line.id == id).map(|line| line.route)
    }

    /// Keeps a finding, if the host permits.
    pub fn keep(&self, id: u64, route: WriteRoute, now: SystemTime) {
        let Some(file) = self.file() else { return };
        let mut lines = self.lines(now);
        lines.retain(|line| line.id != id);
        lines.push(Line { id, route, at_s: seconds(now) });
        let first = lines.len().saturating_sub(MAX_FILE_SYSTEMS);
        let text: String = lines[first..].iter().map(Line::to_string).collect();
        // A lost line is measured again.
        let _ = file::write_all_at(file.as_fd(), text.as_bytes(), 0)
            .and_then(|()| file::set_size(file.as_fd(), text.len() as u64));
    }

    fn lines(&self, now: SystemTime) -> Vec<Line> {
        let Some(file) = self.file() else { return Vec::new() };
        let mut bytes = vec![0; MAX_FILE_BYTES as usize];
        let read = file::read_full_at(file.as_fd(), &mut bytes, 0).unwrap_or(0);
        let text = String::from_utf8_lossy(&bytes[..read]);
        let is_lately = |line: &Line| seconds(now).checked_sub(line.at_s).is_some_and(|age| age <= MAX_AGE.as_secs());
        text.lines().filter_map(Line::parse).filter(is_lately).take(MAX_FILE_SYSTEMS).collect()
    }
}

fn open_in(directory: &Path, make: bool) -> Option<File> {
    const NAME: &str = "write-routes";
    match make {
        true => OwnDirectory::make(directory).and_then(|directory| directory.make_file(NAME)),
        false => OwnDirectory::open(directory).and_then(|directory| directory.file_to_write(NAME)),
    }
    .ok()
}

struct Line {
    id: u64,
    route: WriteRoute,
    at_s: u64,
}

impl Line {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let (id, route, at_s) = (words.next()?, words.next()?, words.next()?);
        let id = u64::from_str_radix(id, 16).ok()?;
        let route = WriteRoute::ALL.into_iter().find(|known| known.name() == route)?;
        let line = Self { id, route, at_s: at_s.parse().ok()? };
        words.next().is_none().then_some(line)
    }
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{:016x} {} {}", self.id, self.route.name(), self.at_s)
    }
}

/// Checks a write, for the fuzz targets.
#[cfg(feature = "testing")]
pub fn survive_the_disk(text: &str) {
    for line in text.lines().filter_map(Line::parse) {
        let again = Line::parse(line.to_string().trim_end()).expect("it is ours");
        assert_eq!((again.id, again.route, again.at_s), (line.id, line.route, line.at_s));
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(dir: &tempfile::TempDir) -> KnownRoutes {
        KnownRoutes { state: None, file: OnceLock::from(open_in(&dir.path().join("new/haul"), true)) }
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn what_one_job_measured_the_next_one_finds_for_a_month() {
        let dir = tempfile::tempdir().unwrap();
        opened(&dir).keep(7, WriteRoute::Direct, at(1_000));
        opened(&dir).keep(8, WriteRoute::Copy, at(1_001));
        opened(&dir).keep(7, WriteRoute::Copy, at(1_002));
        let known = opened(&dir);
        assert_eq!(
            [7, 8, 9].map(|id| known.find(id, at(2_000))),
            [Some(WriteRoute::Copy), Some(WriteRoute::Copy), None]
        );
        assert_eq!(known.find(8, at(1_001 + MAX_AGE.as_secs() + 1)), None, "too old");
        assert_eq!(known.find(8, at(10)), None, "measured in the future");
    }

    #[test]
    fn the_file_stays_small_and_what_is_no_line_of_ours_goes() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("new/haul")).unwrap();
        let path = dir.path().join("new/haul/write-routes");
        std::fs::write(&path, b"\xff\xfe torn\n0000000000000005 sideways 10\n").unwrap();
        for id in 0..200 {
            opened(&dir).keep(id, WriteRoute::Direct, at(1_000 + id));
        }
        let known = opened(&dir);
        assert_eq!(known.find(0, at(2_000)), None, "the oldest went");
        assert_eq!(known.find(199, at(2_000)), Some(WriteRoute::Direct));
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.len() as u64 <= MAX_FILE_BYTES && text.lines().count() == MAX_FILE_SYSTEMS, "{text}");
        assert!(!text.contains("sideways"));
    }

    #[test]
    fn a_far_side_makes_no_file() {
        let dir = tempfile::tempdir().unwrap();
        assert!(open_in(dir.path(), false).is_none());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(open_in(dir.path(), true).is_some() && open_in(dir.path(), false).is_some());
    }

    #[test]
    fn without_a_home_nothing_is_kept_and_nothing_fails() {
        let known = KnownRoutes::of(&Surroundings::default(), false);
        known.keep(1, WriteRoute::Direct, at(1));
        assert_eq!(known.find(1, at(1)), None);
    }
}
