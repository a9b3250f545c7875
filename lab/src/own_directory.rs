//! Directories removed at their process's end, or else by the next lab.
//!
//! The name has the owner's process id. The owner's lock ends with it, so a reused id is not the owner.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use haul_sys::file;

/// A directory or its file could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot keep the lab's files in {path}: {cause}")]
pub struct OwnDirectoryError {
    /// The path.
    pub path: PathBuf,
    /// The cause.
    pub cause: io::Error,
}

/// A directory removed on drop.
#[derive(Debug)]
pub struct OwnDirectory {
    path: PathBuf,
    _lock: File,
}

impl OwnDirectory {
    /// Makes one for data, open to servers without rights.
    pub fn for_work(parent: &Path) -> Result<OwnDirectory, OwnDirectoryError> {
        fs::create_dir_all(parent).map_err(|cause| failed(parent, cause))?;
        drop(those_alive(parent, WORK));
        OwnDirectory::make(parent, WORK, 0o755)
    }

    /// Makes one for a lab's files, below a directory of this user alone.
    pub(crate) fn for_lab(parent: &Path) -> Result<OwnDirectory, OwnDirectoryError> {
        DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(|cause| failed(parent, cause))?;
        // In a shared directory, another user may have made it first.
        if !is_ours(parent) {
            let cause = io::Error::new(io::ErrorKind::PermissionDenied, "it belongs to somebody else");
            return Err(failed(parent, cause));
        }
        drop(labs_alive(parent));
        OwnDirectory::make(parent, LAB, 0o700)
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn make(parent: &Path, prefix: &str, mode: u32) -> Result<OwnDirectory, OwnDirectoryError> {
        let path = parent.join(format!("{prefix}{}", std::process::id()));
        let make = || {
            DirBuilder::new().mode(0o700).create(&path)?;
            // The umask cuts the mode of creation.
            fs::set_permissions(&path, Permissions::from_mode(mode))?;
            // An unlocked lock file means removal, so the file gets its name when locked.
            let unnamed = path.join("lock-to-be");
            let lock = File::create(&unnamed)?;
            file::try_lock(lock.as_fd())?;
            fs::rename(&unnamed, path.join(LOCK_FILE))?;
            Ok(lock)
        };
        match make() {
            Ok(lock) => Ok(OwnDirectory { path, _lock: lock }),
            Err(cause) => Err(failed(&path, cause)),
        }
    }
}

impl Drop for OwnDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The owners of running labs and their directories. Those of dead owners are removed.
pub(crate) fn labs_alive(parent: &Path) -> Vec<(u32, PathBuf)> {
    those_alive(parent, LAB)
}

fn those_alive(parent: &Path, prefix: &str) -> Vec<(u32, PathBuf)> {
    let mut alive = Vec::new();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        let owner = name.to_str().and_then(|name| name.strip_prefix(prefix)?.parse::<u32>().ok());
        let Some(owner) = owner.filter(|_| is_ours(&path)) else { continue };
        match is_orphaned(owner, &path) {
            true => drop(fs::remove_dir_all(&path)),
            false => alive.push((owner, path)),
        }
    }
    alive
}

fn is_ours(path: &Path) -> bool {
    let ours = rustix::process::getuid().as_raw();
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir() && meta.uid() == ours)
}

/// Whether the process is gone, or another has its id: the owner would hold the lock.
fn is_orphaned(owner: u32, directory: &Path) -> bool {
    let lock = File::options().write(true).open(directory.join(LOCK_FILE));
    !Path::new(&format!("/proc/{owner}")).exists()
        || lock.is_ok_and(|lock| file::try_lock(lock.as_fd()).unwrap_or(false))
}

fn failed(path: &Path, cause: io::Error) -> OwnDirectoryError {
    OwnDirectoryError { path: path.to_owned(), cause }
}

const WORK: &str = "haul-lab-work-";
const LAB: &str = "";

const LOCK_FILE: &str = "lock";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_dead_left_goes_and_what_the_living_have_stays() {
        let parent = tempfile::tempdir().unwrap();
        // Process ids are below 2^22.
        let dead = parent.path().join("haul-lab-work-4194305");
        let other = parent.path().join("something-4194305");
        for path in [&dead, &other] {
            fs::create_dir(path).unwrap();
            fs::write(path.join("data"), "x").unwrap();
        }
        let own = OwnDirectory::for_work(parent.path()).unwrap();
        assert!(!dead.exists() && other.exists());
        assert_eq!(those_alive(parent.path(), WORK), [(std::process::id(), own.path().to_owned())]);
        assert_eq!(fs::metadata(own.path()).unwrap().permissions().mode() & 0o777, 0o755, "whatever the umask");
        let path = own.path().to_owned();
        drop(own);
        assert!(!path.exists());
    }

    #[test]
    fn a_number_that_another_process_got_is_no_owner() {
        let parent = tempfile::tempdir().unwrap();
        // The process lives without a lock.
        let path = parent.path().join(format!("haul-lab-work-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        assert_eq!(those_alive(parent.path(), WORK).len(), 1, "it may be about to lock");
        fs::write(path.join(LOCK_FILE), "").unwrap();
        assert_eq!(those_alive(parent.path(), WORK), []);
        assert!(!path.exists());
    }
}
