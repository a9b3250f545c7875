//! Scratch directories, and small disks that can become full.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::Run;

/// A directory below `HAUL_E2E_DIR` or the system's temporary one, open to other users.
pub fn scratch() -> tempfile::TempDir {
    let base = std::env::var_os("HAUL_E2E_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = tempfile::Builder::new().prefix("haul-e2e-").tempdir_in(&base);
    let dir = dir.unwrap_or_else(|error| panic!("no scratch directory in {}: {error}", base.display()));
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).expect("own directory");
    dir
}

/// A memory file system of limited size, mounted until dropped. Mount it before the lab: a running sshd does not see later
/// mounts.
#[derive(Debug)]
pub struct SmallDisk {
    dir: tempfile::TempDir,
}

impl SmallDisk {
    /// Mounts `mib` MiB.
    #[track_caller]
    pub fn mount(mib: u32) -> Self {
        let dir = scratch();
        let options = format!("size={mib}m,mode=755");
        Run::new("mount").args(["-t", "tmpfs", "-o", &options, "haul-e2e"]).arg(dir.path()).run().expect(0);
        Self { dir }
    }

    /// Limits the inodes.
    #[track_caller]
    pub fn limit_inodes(&self, inodes: u32) {
        Run::new("mount").arg("-o").arg(format!("remount,nr_inodes={inodes}")).arg(self.path()).run().expect(0);
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Makes it read-only.
    #[track_caller]
    pub fn make_read_only(&self) {
        Run::new("mount").args(["-o", "remount,ro"]).arg(self.path()).run().expect(0);
    }

    /// Changes its size.
    #[track_caller]
    pub fn resize(&self, mib: u32) {
        Run::new("mount").arg("-o").arg(format!("remount,size={mib}m")).arg(self.path()).run().expect(0);
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.dir.path()).status();
    }
}
