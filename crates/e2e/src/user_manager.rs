//! systemd for the services of one lingering user, on a lab's host.
//!
//! Its own mounts say so: `/run` that systemd runs, `/var/lib/systemd` that the user lingers. It needs a control group, too:
//! systemd moves all processes of its group.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;

use crate::{Host, Run, Running, eventually, settle};

/// The manager of `root` on one host, ended on drop with its services.
#[derive(Debug)]
pub struct UserManager {
    running: Option<Running>,
    group: PathBuf,
}

/// A busy machine takes some seconds.
const READY_LIMIT: Duration = Duration::from_secs(30);

impl UserManager {
    /// Starts it, and waits until it takes services.
    #[track_caller]
    pub fn start(host: &Host) -> Self {
        let root = hierarchy().expect("asked for with needs!");
        let group = root.join(format!("{}-systemd", host.namespace));
        fs::create_dir(&group).unwrap_or_else(|error| panic!("no control group {}: {error}", group.display()));
        let begin = format!(
            "{}\nmkdir -p /run/systemd/system\necho $$ >{}/cgroup.procs\nexec {PROGRAM} --user --log-target=console",
            who_lingers(),
            group.display(),
        );
        // `ip netns exec` would mount a /sys without control groups.
        let network = format!("--net=/run/netns/{}", host.namespace);
        let run = Run::new("nsenter").args([&network, "unshare", "--mount", "sh", "-ec", &begin]);
        let run = host.environment().into_iter().fold(run, |run, (name, value)| run.env(name, value));
        let running = run.env("USER", "root").limit(Duration::from_secs(600)).start();
        let manager = Self { running: Some(running), group };
        let socket = host.dir.join("run/systemd/private");
        eventually("the user's systemd takes services", READY_LIMIT, || socket.exists());
        manager
    }

    /// The manager's process.
    pub fn id(&self) -> u32 {
        self.running.as_ref().map_or(0, Running::id)
    }
}

impl Drop for UserManager {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            // On SIGTERM it ends its services first.
            running.signal(Signal::TERM);
            let mut running = running;
            settle(Duration::from_secs(5), || running.has_ended());
            drop(running.kill());
        }
        settle(Duration::from_secs(5), || remove_groups(&self.group).is_ok());
    }
}

/// A shell command after which `root` lingers, seen only in the shell's own mounts.
pub fn who_lingers() -> &'static str {
    "mount -t tmpfs tmpfs /run; mount -t tmpfs tmpfs /var/lib; mkdir -p /var/lib/systemd/linger; touch /var/lib/systemd/linger/root"
}

/// Whether this machine can do it.
pub fn is_possible() -> bool {
    Path::new(PROGRAM).exists() && hierarchy().is_some()
}

const PROGRAM: &str = "/lib/systemd/systemd";

/// systemd's own hierarchy, or version 2's.
fn hierarchy() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let found = |wanted: fn(&str, &str) -> bool| {
        mounts.lines().find_map(|line| {
            let columns: Vec<&str> = line.split(' ').collect();
            let [_, root, kind, options, ..] = columns[..] else { return None };
            wanted(kind, options).then(|| PathBuf::from(root))
        })
    };
    found(|kind, options| kind == "cgroup" && options.split(',').any(|option| option == "name=systemd"))
        .or_else(|| found(|kind, _| kind == "cgroup2"))
}

fn remove_groups(dir: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_groups(&entry.path())?;
        }
    }
    fs::remove_dir(dir)
}
