//! A disk that can lose power: unflushed data is gone, as on a real one.
//!
//! The file system's cache lies above a loop device, whose image file is the medium. So a copy of the image is the disk after
//! a power cut.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::{Run, scratch, settle};

/// An ext4 that writes nothing by itself during a test.
#[derive(Debug)]
pub struct MortalDisk {
    dir: tempfile::TempDir,
    device: String,
}

/// Seconds between ext4's commits (`commit=`). By default, all data would be safe after five.
const COMMIT_EVERY: &str = "commit=600";

impl MortalDisk {
    /// Mounts a fresh one of `mib` MiB.
    #[track_caller]
    pub fn mount(mib: u64) -> Self {
        let dir = scratch();
        let image = dir.path().join("image");
        fs::File::create(&image).and_then(|file| file.set_len(mib << 20)).expect("a sparse file");
        // No background work remains.
        let options = ["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"];
        Run::new("mkfs.ext4").args(options).arg(&image).run().expect(0);
        Self::attach(dir)
    }

    #[track_caller]
    fn attach(dir: tempfile::TempDir) -> Self {
        let attached = Run::new("losetup").args(["-f", "--show"]).arg(dir.path().join("image")).run().expect(0);
        let disk = Self { device: attached.stdout_text().trim().to_owned(), dir };
        fs::create_dir(disk.path()).expect("own directory");
        Run::new("mount").args(["-o", COMMIT_EVERY]).arg(&disk.device).arg(disk.path()).run().expect(0);
        disk
    }

    /// The mount point.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("mounted")
    }

    /// Mounts the disk as after a power cut now. Programs must not write meanwhile.
    #[track_caller]
    pub fn after_a_power_cut(&self) -> Self {
        let mut before = self.counters();
        let is_still = settle(Duration::from_secs(10), || {
            let now = self.counters();
            let is_still = now == before && now.1 == "0";
            before = now;
            is_still
        });
        assert!(is_still, "something writes to {}", self.device);
        let dir = scratch();
        Run::new("cp").arg("--sparse=always").arg(self.dir.path().join("image")).arg(dir.path()).run().expect(0);
        Self::attach(dir)
    }

    /// Reads, writes, and requests under way (Documentation/block/stat.rst).
    fn counters(&self) -> (Vec<String>, String) {
        let name = self.device.rsplit('/').next().unwrap_or_default();
        let text = fs::read_to_string(format!("/sys/class/block/{name}/stat")).expect("a block device has counters");
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        (words[..8].to_vec(), words[8].clone())
    }
}

impl Drop for MortalDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.path()).status();
        let _ = std::process::Command::new("losetup").arg("-d").arg(&self.device).status();
    }
}
