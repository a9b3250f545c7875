//! `haul record` over several disks, then a copy to another host as one file.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use haul_e2e::{Lab, Outcome, Run, SmallDisk, at, code, needs, plant};

/// A recording over two disks of some blocks and a bit.
struct Recorded {
    lab: Lab,
    disks: [SmallDisk; 2],
    stream: Vec<u8>,
    index: PathBuf,
}

impl Recorded {
    fn new() -> Self {
        let (lab, disks) = (Lab::pair(), [SmallDisk::mount(64), SmallDisk::mount(64)]);
        let sent = lab.data("home").join("sent");
        plant::file(&sent, (30 << 20) + 77, 1);
        let stream = fs::read(&sent).expect("own file");
        let index = lab.data("home").join("scan.vdif.stripes");
        let recorded = Self { lab, disks, stream, index };
        let haul = Run::new(haul_e2e::binary::find().expect("asked for with needs!"));
        let run = haul.args(["record", "-l", "1M"]).args(recorded.stripe_dirs([0, 1]));
        run.arg(recorded.index.with_extension("")).input(recorded.stream.clone()).run().expect(code::OK);
        recorded
    }

    fn stripe_dirs(&self, order: [usize; 2]) -> impl Iterator<Item = PathBuf> {
        order.map(|disk| ["--stripe-dir".into(), self.disks[disk].path().to_owned()]).into_iter().flatten()
    }

    fn stripe(&self, disk: usize) -> PathBuf {
        self.disks[disk].path().join(format!("scan.vdif.stripe-{disk}"))
    }

    fn copy_to(&self, target: &Path) -> Outcome {
        let source = format!("stripes:{}", self.index.display());
        self.lab.cp().args(self.stripe_dirs([1, 0])).arg(source).arg(at("alpha", target)).run()
    }
}

#[test]
fn a_recording_over_two_disks_arrives_as_one_file() {
    needs!(Namespaces, Haul);
    let recorded = Recorded::new();
    for disk in [0, 1] {
        let bytes = fs::metadata(recorded.stripe(disk)).expect("each disk has its part").len();
        assert!((15 << 20..17 << 20).contains(&bytes), "{bytes} of them on disk {disk}");
    }
    let there = recorded.lab.data("alpha");
    let run = recorded.copy_to(&there).expect(code::OK);
    let name = there.join("scan.vdif");
    assert!(fs::read(&name).expect("it has its name") == recorded.stream, "{run}");
}

#[test]
fn a_recording_that_a_disk_has_changed_is_named() {
    needs!(Namespaces, Haul);
    let recorded = Recorded::new();
    let stripe = fs::File::options().write(true).open(recorded.stripe(1)).expect("own disk");
    let before = recorded.stream[(1 << 20) + 5];
    stripe.write_all_at(&[before ^ 1], 5).expect("own disk");
    let run = recorded.copy_to(&recorded.lab.data("alpha")).expect(code::PARTIAL);
    run.says(&["differ from the recording"]);
}
