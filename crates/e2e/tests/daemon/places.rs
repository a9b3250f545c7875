//! Places beyond any key of a daemon: the kernel's file systems, and other users' mounts.

use std::fs;
use std::path::{Path, PathBuf};

use haul_e2e::compare::names_below;

use haul_e2e::{OddDisk, Oddities, Run, code, contents_of, needs, plant};

use crate::{Stage, USER};

struct Mounted(PathBuf);

impl Mounted {
    fn new(kind: &str, at: PathBuf) -> Self {
        fs::create_dir(&at).expect("own directory");
        Run::new("mount").args(["-t", kind, "haul-e2e"]).arg(&at).run().expect(0);
        Self(at)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

const REFUSED: &str = "a file system of the kernel's own";

/// As with root=/, for keys of root and another user. The file is overwritten with its own content.
#[test]
fn no_key_reads_or_writes_a_file_system_of_the_kernels_own_wherever_it_is_mounted() {
    needs!(Haul, Root);
    for access in ["rw".to_owned(), format!("rw user={}", USER.0)] {
        let stage = Stage::new("rw");
        stage.authorize(&access, &stage.at("offered"));
        plant::set_mode(&stage.at("offered"), 0o777);
        plant::text(&stage.at("offered/data"), "theirs\n");
        plant::set_mode(&stage.at("offered/data"), 0o666);
        let _mounts =
            [("proc", "proc"), ("sysfs", "sys")].map(|(kind, name)| Mounted::new(kind, stage.at("offered").join(name)));
        let standing = |path: &str| fs::read(stage.at("offered").join(path)).expect("it is there");
        for path in ["proc/sys/kernel/core_pattern", "sys/kernel/mm/transparent_hugepage/enabled", "proc/self/comm"] {
            fs::write(stage.at("file"), standing(path)).expect("own file");
            for flags in [&["--inplace"][..], &[]] {
                let run = stage.cp().args(flags).args(["file", &stage.url(path)]).run();
                run.expect_one_of(&[code::FILE_IO, code::PARTIAL]).says(&[REFUSED]);
            }
            let run = stage.cp().args([&stage.url(path), "got"]).run();
            run.expect_one_of(&[code::FILE_IO, code::PARTIAL]).says(&[REFUSED]);
            assert!(!stage.at("got").exists());
        }
        // Entries beside it are copied; the exit status tells of missing ones.
        let run = stage.cp().arg(stage.url("")).arg("whole").run().expect(code::PARTIAL);
        run.says(&[REFUSED]);
        assert_eq!(names_below(&stage.at("whole")), [&b"data"[..], b"proc", b"sys"]);
        let tree = stage.at("tree");
        plant::text(&tree.join("proc/sys/kernel/domainname"), "mine\n");
        plant::text(&tree.join("more"), "words\n");
        let run = stage.cp().args(["--inplace"]).arg(contents_of(&tree)).arg(stage.url("")).run();
        run.expect(code::PARTIAL).says(&[REFUSED]);
        assert_eq!(fs::read(stage.at("offered/more")).expect("it was copied"), b"words\n");
        // A deletion looks into no mount.
        fs::remove_dir_all(tree.join("proc")).expect("own directory");
        let run = stage.cp().args(["--delete"]).arg(contents_of(&tree)).arg(stage.url("")).run();
        run.expect(code::PARTIAL).says(&["something is mounted there"]);
        assert!(!stage.at("offered/data").exists() && stage.at("offered/proc/version").exists());
        // A key cannot have it as directory, either.
        stage.authorize(&access, &stage.at("offered/proc"));
        stage.cp().args([&stage.url("version"), "got"]).run().expect(code::FILE_IO).says(&[REFUSED]);
    }
}

/// FUSE compares the effective user id, not the file system's.
#[test]
fn a_key_of_a_user_does_not_enter_what_root_has_mounted_for_itself_by_fuse() {
    needs!(Haul, Fuse);
    let disk = OddDisk::mount(Oddities::default());
    plant::text(&disk.path().join("secret"), "root's words\n");
    for path in [disk.path(), &disk.path().join("secret")] {
        plant::set_mode(path, 0o777);
    }
    let stage = Stage::new("rw");
    let pull = |access: &str, root: &Path, path: &str| {
        stage.authorize(access, root);
        stage.cp().args([&stage.url(path), "got"]).run()
    };
    let user = format!("rw user={}", USER.0);
    let above = disk.path().parent().expect("it is mounted somewhere").canonicalize().expect("it is there");
    let name = disk.path().file_name().expect("it has one").to_string_lossy();
    pull(&user, disk.path(), "secret").expect_one_of(&[code::FILE_IO, code::AUTHENTICATION]).says(&["denied"]);
    pull(&user, &above, &format!("{name}/secret")).expect_one_of(&[code::FILE_IO, code::PARTIAL]);
    plant::text(&stage.at("file"), "words\n");
    let push = stage.cp().args(["--inplace", "file", &stage.url(&format!("{name}/secret"))]).run();
    push.expect_one_of(&[code::FILE_IO, code::PARTIAL]);
    assert!(!stage.at("got").exists());
    assert_eq!(fs::read(disk.path().join("secret")).expect("own file"), b"root's words\n");
    pull("rw", disk.path(), "secret").expect(code::OK);
}
