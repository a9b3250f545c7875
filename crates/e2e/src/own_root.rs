//! Hosts like machines: home, `/data`, `/run`, `/dev/shm`, host name and `/etc/hosts` are their own. A page's text can be
//! typed as it stands.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

/// root's home, as the host's programs see it.
pub const HOME_DIR: &str = "/root";

/// One host's root directory.
#[derive(Clone, Debug)]
pub struct OwnRoot {
    script: PathBuf,
}

impl OwnRoot {
    /// Home and `/data` lie below `files`, all else below `dir`; `programs` come first.
    #[track_caller]
    pub fn build(name: &str, dir: &Path, files: &Path, programs: &Path) -> Self {
        let root = dir.join("root");
        fs::create_dir(&root).expect("own directory");
        let mut mounts = Vec::new();
        for entry in fs::read_dir("/").expect("everybody may read it").flatten() {
            let there = root.join(entry.file_name());
            if let Ok(target) = fs::read_link(entry.path()) {
                symlink(target, there).expect("own directory");
            } else if entry.path().is_dir() {
                fs::create_dir(&there).expect("own directory");
                mounts.push((entry.path(), there));
            }
        }
        fs::create_dir(dir.join("shm")).expect("own directory");
        // sshd insists on it, writable by nobody else.
        fs::DirBuilder::new().mode(0o755).create(dir.join("run/sshd")).expect("own directory");
        let own = [
            ("root", files.join("home")),
            ("data", files.join("data")),
            ("run", dir.join("run")),
            ("dev/shm", dir.join("shm")),
            ("etc/hosts", hosts_file(dir)),
        ];
        for (there, here) in own {
            let there = root.join(there);
            mounts.retain(|(_, at)| *at != there);
            if there.parent() == Some(&root) {
                fs::create_dir_all(&there).expect("own directory");
            }
            mounts.push((here, there));
        }

        let mut script = format!("set -e\necho '{name}' > /proc/sys/kernel/hostname\n");
        // haul-lab makes mounts private from the root on, so the root must be a mount.
        mounts.insert(0, (root.clone(), root.clone()));
        for (from, to) in &mounts {
            let _ = writeln!(script, "mount --rbind '{}' '{}'", from.display(), to.display());
        }
        let _ = writeln!(
            script,
            "export HOME={HOME_DIR} USER=root SHELL=/bin/sh TERM=xterm PATH='{}':\"$PATH\"",
            programs.display()
        );
        let _ = writeln!(script, "exec chroot '{}' env -C {HOME_DIR} \"$@\"", root.display());
        let place = dir.join("enter");
        fs::write(&place, script).expect("own directory");
        Self { script: place }
    }

    /// Words before a program. They run in the network and mount namespaces of `ip netns exec`.
    pub fn words(&self) -> Vec<String> {
        let script = self.script.to_str().expect("scratch directories have plain names");
        ["unshare", "--uts", "sh", script].map(str::to_owned).to_vec()
    }
}

/// The host's `/etc/hosts`.
pub fn hosts_file(dir: &Path) -> PathBuf {
    dir.join("hosts")
}
