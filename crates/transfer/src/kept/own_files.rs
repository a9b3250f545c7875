//! How a file that haul keeps for its user is written.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::time::Duration;

use haul_sys::whole_file::{Mode, WholeFile};

/// Temporary files of killed processes are removed after this time. A write takes milliseconds.
const LEFTOVER_AGE: Duration = Duration::from_secs(3600);

/// Leftovers that are removed at once.
const MAX_LEFTOVERS: usize = 64;

/// Writes a file whole or not at all, with the directories above it: under another name in the same directory, flushed, then under its own.
pub(crate) fn write_whole(path: &Path, bytes: &[u8], mode: u32, replace: bool) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let mut leftover = OsString::from(".");
    leftover.push(path.file_name().unwrap_or_default());
    leftover.push(".haul-");
    remove_leftovers(dir, &leftover);
    let mut file = WholeFile::begin(path, Mode::Of(mode))?;
    file.write_all(bytes)?;
    if replace { file.publish() } else { file.publish_new() }
}

/// Removes temporary files of earlier processes. A failure does no harm.
fn remove_leftovers(dir: &Path, prefix: &OsString) {
    let prefix = prefix.as_encoded_bytes();
    let is_ours =
        |name: &[u8]| name.strip_prefix(prefix).is_some_and(|id| !id.is_empty() && id.iter().all(u8::is_ascii_digit));
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| is_ours(entry.file_name().as_encoded_bytes())).take(MAX_LEFTOVERS) {
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        let age = modified.ok().and_then(|modified| modified.elapsed().ok());
        if age.is_some_and(|age| age > LEFTOVER_AGE) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn a_link_at_the_temporary_name_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (file, victim) = (dir.path().join("paths"), dir.path().join("victim"));
        fs::write(&victim, "as it was").unwrap();
        std::os::unix::fs::symlink(&victim, dir.path().join(format!(".paths.haul-{}", std::process::id()))).unwrap();
        write_whole(&file, b"new", 0o600, true).unwrap();
        assert_eq!((fs::read(&victim).unwrap(), fs::read(&file).unwrap()), (b"as it was".to_vec(), b"new".to_vec()));
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn neither_failures_nor_killed_processes_leave_litter_for_good() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("paths");
        let (old, young, other) =
            (dir.path().join(".paths.haul-1"), dir.path().join(".paths.haul-2"), dir.path().join(".paths.haul-x"));
        for leftover in [&old, &young, &other] {
            fs::write(leftover, "").unwrap();
        }
        let long_ago = SystemTime::now() - 2 * LEFTOVER_AGE;
        for leftover in [&old, &other] {
            File::options().write(true).open(leftover).unwrap().set_modified(long_ago).unwrap();
        }
        fs::create_dir(&file).unwrap();
        assert!(write_whole(&file, b"new", 0o600, true).is_err(), "a directory has the name");
        let left = || {
            let mut names: Vec<_> = fs::read_dir(dir.path())
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        assert_eq!(left(), [".paths.haul-2", ".paths.haul-x", "paths"]);
    }
}
