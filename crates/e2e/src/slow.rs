//! Slow disks and processors of known speed, by control groups of version 1 or 2.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{Run, scratch};

/// A processor's share, for its members.
#[derive(Debug)]
pub struct SlowCpu(Group);

impl SlowCpu {
    /// Members together get these thousandths of a processor.
    #[track_caller]
    pub fn of(permille: u32) -> Self {
        // The processor shall be slow without long stops.
        const PERIOD_US: u32 = 20_000;
        const QUOTA_US_MIN: u32 = 1_000;
        let period_us = PERIOD_US.max(QUOTA_US_MIN * 1000 / permille);
        let (group, quota_us) = (Group::new(CPU), period_us * permille / 1000);
        if group.controller.is_v2 {
            group.set("cpu.max", &format!("{quota_us} {period_us}"));
        } else {
            group.set("cpu.cfs_period_us", &period_us.to_string());
            group.set("cpu.cfs_quota_us", &quota_us.to_string());
        }
        Self(group)
    }

    /// A shell command that makes the shell, and the program that replaces it, members.
    pub fn join(&self) -> String {
        self.0.join()
    }
}

/// A file system on a slow disk.
#[derive(Debug)]
pub struct SlowDisk {
    dir: tempfile::TempDir,
    device: String,
    group: Option<Group>,
}

impl SlowDisk {
    /// `mib` MiB, full speed until [`SlowDisk::slow_down`].
    #[track_caller]
    pub fn mount(mib: u64) -> Self {
        let dir = scratch();
        let image = dir.path().join("image");
        let file = fs::File::create(&image).expect("own directory");
        file.set_len(mib << 20).expect("a sparse file");
        Run::new("mkfs.ext4").args(["-q", "-F"]).arg(&image).run().expect(0);
        let attached = Run::new("losetup").args(["-f", "--show"]).arg(&image).run().expect(0);
        let device = attached.stdout_text().trim().to_owned();
        let disk = Self { dir, device, group: None };
        fs::create_dir(disk.path()).expect("own directory");
        Run::new("mount").arg(&disk.device).arg(disk.path()).run().expect(0);
        disk
    }

    /// The mount point.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("mounted")
    }

    /// Sets this rate, and empties the page cache of its data.
    #[track_caller]
    pub fn slow_down(&mut self, bytes_per_s: u64) {
        Run::new("sync").arg("-f").arg(self.path()).run().expect(0);
        fs::write("/proc/sys/vm/drop_caches", "3").expect("root may drop caches");
        let name = self.device.rsplit('/').next().unwrap_or_default();
        let number = fs::read_to_string(format!("/sys/class/block/{name}/dev")).expect("a block device has a number");
        let number = number.trim();
        let controller = Controller::find(BLOCKS).expect("asked for with needs!");
        if controller.is_v2 {
            let group = Group::new(BLOCKS);
            group.set("io.max", &format!("{number} rbps={bytes_per_s} wbps={bytes_per_s}"));
            self.group = Some(group);
        } else {
            // Version 1 does not know whose pages are written back: only the root group's limit works.
            for what in ["read", "write"] {
                let file = controller.root.join(format!("blkio.throttle.{what}_bps_device"));
                fs::write(&file, format!("{number} {bytes_per_s}")).expect("root may set a limit");
            }
        }
    }

    /// A shell command that limits the shell and the program that replaces it.
    pub fn join(&self) -> String {
        self.group.as_ref().map(Group::join).unwrap_or_default()
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        let name = self.device.rsplit('/').next().unwrap_or_default();
        // The rest is unmounted at full speed, and the device's next owner has no limit.
        if let (Some(controller), Ok(number)) = (
            Controller::find(BLOCKS).filter(|controller| !controller.is_v2),
            fs::read_to_string(format!("/sys/class/block/{name}/dev")),
        ) {
            for what in ["read", "write"] {
                let file = controller.root.join(format!("blkio.throttle.{what}_bps_device"));
                let _ = fs::write(&file, format!("{} 0", number.trim()));
            }
        }
        let _ = std::process::Command::new("umount").arg("-l").arg(self.path()).status();
        let _ = std::process::Command::new("losetup").arg("-d").arg(&self.device).status();
    }
}

type Names = (&'static str, &'static str);

/// Processor time.
pub const CPU: Names = ("cpu", "cpu");

/// Block devices.
pub const BLOCKS: Names = ("blkio", "io");

/// Whether root may use this controller here.
pub fn has_controller(names: Names) -> bool {
    Controller::find(names).is_some()
}

#[derive(Debug)]
struct Controller {
    root: PathBuf,
    is_v2: bool,
}

impl Controller {
    fn find((v1, v2): Names) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        mounts.lines().find_map(|line| {
            let columns: Vec<_> = line.split(' ').collect();
            let [_, root, kind, options, ..] = columns[..] else { return None };
            let root = PathBuf::from(root);
            match kind {
                "cgroup" if options.split(',').any(|option| option == v1) => Some(Self { root, is_v2: false }),
                "cgroup2" => {
                    let there = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
                    there.split_whitespace().any(|name| name == v2).then_some(Self { root, is_v2: true })
                }
                _ => None,
            }
        })
    }
}

#[derive(Debug)]
struct Group {
    controller: Controller,
    dir: PathBuf,
}

impl Group {
    #[track_caller]
    fn new(names: Names) -> Self {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let controller = Controller::find(names).expect("asked for with needs!");
        if controller.is_v2 {
            fs::write(controller.root.join("cgroup.subtree_control"), format!("+{}", names.1)).expect("root may");
        }
        let name = format!("haul-e2e-{}-{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
        let dir = controller.root.join(name);
        fs::create_dir(&dir).unwrap_or_else(|error| panic!("no control group {}: {error}", dir.display()));
        Self { controller, dir }
    }

    #[track_caller]
    fn set(&self, setting: &str, value: &str) {
        let file = self.dir.join(setting);
        fs::write(&file, value).unwrap_or_else(|error| panic!("{} = {value}: {error}", file.display()));
    }

    fn join(&self) -> String {
        format!("echo $$ >{}", procs(&self.dir).display())
    }
}

fn procs(dir: &Path) -> PathBuf {
    dir.join("cgroup.procs")
}

impl Drop for Group {
    fn drop(&mut self) {
        // Killed members may still be ending.
        crate::settle(std::time::Duration::from_secs(5), || fs::remove_dir(&self.dir).is_ok());
    }
}
