//! Reads and writes haul's files for its user, in a directory that only this user can change.

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::time::Duration;

use haul_sys::own::{self, OwnDirectory, Weight};

/// An older file belongs to a killed process.
const LEFTOVER_AGE: Duration = Duration::from_secs(3600);

const MAX_LEFTOVERS: usize = 64;

const MAX_LOOKED_AT: usize = 10_000;

/// A list of peers is private.
const PRIVATE_MODE: u32 = 0o600;

/// Writes a file whole or not at all: under another name, flushed, then under its own.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default();
    let directory = OwnDirectory::make(path.parent().unwrap_or(Path::new("/")))?;
    let mut leftover = OsString::from(".");
    leftover.push(name);
    leftover.push(".haul-");
    remove_leftovers(&directory, &leftover);
    let mut file = directory.begin(name, PRIVATE_MODE)?;
    file.write_all(bytes)?;
    file.publish()
}

/// Reads up to `most` bytes.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    own::open(path, Weight::Obeyed)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn remove_leftovers(directory: &OwnDirectory, prefix: &OsString) {
    let prefix = prefix.as_encoded_bytes();
    let is_ours =
        |name: &[u8]| name.strip_prefix(prefix).is_some_and(|id| !id.is_empty() && id.iter().all(u8::is_ascii_digit));
    let names = directory.names(MAX_LOOKED_AT).unwrap_or_default();
    for name in names.iter().filter(|name| is_ours(name.as_encoded_bytes())).take(MAX_LEFTOVERS) {
        let age = directory.modified(name).ok().and_then(|modified| modified.elapsed().ok());
        if age.is_some_and(|age| age > LEFTOVER_AGE) {
            let _ = directory.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn a_link_at_the_temporary_name_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (file, victim) = (dir.path().join("paths"), dir.path().join("victim"));
        fs::write(&victim, "as it was").unwrap();
        std::os::unix::fs::symlink(&victim, dir.path().join(format!(".paths.haul-{}", std::process::id()))).unwrap();
        write_whole(&file, b"new").unwrap();
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
        assert!(write_whole(&file, b"new").is_err(), "a directory has the name");
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

    #[test]
    fn what_somebody_else_may_have_put_there_is_neither_read_nor_written() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("state/paths");
        write_whole(&file, b"ours").unwrap();
        assert_eq!(read(&file, 100).unwrap(), b"ours");
        fs::set_permissions(file.parent().unwrap(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(read(&file, 100).is_err() && write_whole(&file, b"more").is_err());
        assert_eq!(fs::read(&file).unwrap(), b"ours");
    }
}
