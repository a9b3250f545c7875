//! The private directory of one run: the guest's memory, job and output.
//!
//! Removal is this program's, the kernel keeper's (see `boot`) if the program was killed, or else the next run's.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::StatVfsMountFlags;

use super::error::UmlError;

/// A directory of this user alone.
pub(super) struct PrivateDirectory {
    path: PathBuf,
}

impl PrivateDirectory {
    /// Prefers memory, if there is room for the guest, to temporary files.
    pub(super) fn make(guest_bytes: u64) -> Result<PrivateDirectory, UmlError> {
        let mut parents = vec![PathBuf::from("/dev/shm")];
        parents.extend([std::env::temp_dir(), PathBuf::from("/tmp"), PathBuf::from("/var/tmp")]);
        parents.retain(|parent| is_fit(parent, guest_bytes));
        let Some(parent) = parents.first() else {
            return Err(UmlError::Refused {
                what: format!("the guest's memory of {} MiB", guest_bytes >> 20),
                why: "it needs a directory with that much room, mounted without noexec: neither /dev/shm nor TMPDIR, \
                      /tmp or /var/tmp is one. Ask for less memory, or set TMPDIR"
                    .to_owned(),
            });
        };
        sweep(parent);
        let path = parent.join(format!("{PREFIX}{}-{:x}", std::process::id(), unique()));
        let made = fs::DirBuilder::new().mode(0o700).create(&path);
        made.map_err(UmlError::io(format!("make {}", path.display())))?;
        Ok(PrivateDirectory { path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The kernel's command line splits at spaces, and the guest's memory must be executable.
fn is_fit(parent: &Path, bytes: u64) -> bool {
    let Some(text) = parent.to_str() else { return false };
    let room = rustix::fs::statvfs(parent).is_ok_and(|fs| {
        fs.f_bavail.saturating_mul(fs.f_frsize) >= bytes && !fs.f_flag.contains(StatVfsMountFlags::NOEXEC)
    });
    text.starts_with('/') && !text.contains(char::is_whitespace) && room
}

fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).and_then(|rest| rest.split('-').next());
        let Some(pid) = pid.and_then(|pid| pid.parse::<u32>().ok()) else { continue };
        let ours = entry.metadata().is_ok_and(|data| data.is_dir() && data.uid() == rustix::process::getuid().as_raw());
        if ours && !Path::new(&format!("/proc/{pid}")).exists() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn unique() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

const PREFIX: &str = "haul-lab-uml-";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_run_removes_what_a_killed_one_left() {
        let parent = tempfile::tempdir().unwrap();
        let dead = parent.path().join(format!("{PREFIX}4194305-0"));
        let alive = parent.path().join(format!("{PREFIX}{}-0", std::process::id()));
        fs::create_dir(&dead).unwrap();
        fs::create_dir(&alive).unwrap();
        sweep(parent.path());
        assert!(!dead.exists() && alive.exists());
    }
}
