//! Mounts below a tree that is deleted, mirrored or replaced stay.

use std::fs;
use std::path::{Path, PathBuf};

use haul_e2e::{Outcome, Run, code, contents_of, needs, plant, scratch};

struct Mounted(PathBuf);

impl Mounted {
    #[track_caller]
    fn disk(at: &Path) -> Self {
        fs::create_dir_all(at).expect("own directory");
        Run::new("mount").args(["-t", "tmpfs", "-o", "size=1m,mode=755", "haul-e2e"]).arg(at).run().expect(0);
        Self(at.to_owned())
    }

    #[track_caller]
    fn bound(what: &Path, at: &Path) -> Self {
        Run::new("mount").arg("--bind").arg(what).arg(at).run().expect(0);
        Self(at.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn haul(words: &[&str]) -> Run {
    Run::new(haul_e2e::binary::find().expect("asked for with needs!")).args(words)
}

/// A directory with two mounts: another file system, and a directory beside it.
struct Stage {
    dir: tempfile::TempDir,
    _mounts: Vec<Mounted>,
}

impl Stage {
    #[track_caller]
    fn with(tree: &str) -> Self {
        let dir = scratch();
        let (tree, elsewhere) = (dir.path().join(tree), dir.path().join("elsewhere"));
        plant::text(&elsewhere.join("precious"), "bound\n");
        plant::text(&tree.join("file"), "goes\n");
        fs::create_dir_all(tree.join("deep/bound")).expect("own directory");
        let mounts = vec![Mounted::disk(&tree.join("disk")), Mounted::bound(&elsewhere, &tree.join("deep/bound"))];
        plant::text(&tree.join("disk/precious"), "mounted\n");
        Self { dir, _mounts: mounts }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    /// Mounts stand; the rest is gone if `is_done`.
    #[track_caller]
    fn holds(&self, tree: &str, is_done: bool, run: &Outcome) {
        assert!(self.at("elsewhere/precious").exists(), "the mount of a directory was entered\n{run}");
        assert!(self.at(tree).join("disk/precious").exists(), "the other file system was entered\n{run}");
        assert_eq!(self.at(tree).join("file").exists(), !is_done, "{run}");
    }
}

#[test]
fn what_is_mounted_below_what_the_source_lacks_stays() {
    needs!(Root, Haul);
    for flags in [&[][..], &["-x"]] {
        let stage = Stage::with("to/old");
        plant::text(&stage.at("from/new"), "new\n");
        let ends = if flags.is_empty() { code::PARTIAL } else { code::OK };
        let copy = |more: &[&str]| {
            let words: Vec<&str> = ["cp", "--json", "--delete"].iter().chain(flags).chain(more).copied().collect();
            haul(&words).arg(contents_of(&stage.at("from"))).arg(stage.at("to")).run()
        };
        let told = |run: &Outcome| {
            let mut told: Vec<String> =
                run.events_named("deleted").iter().map(|event| event["path"].to_string()).collect();
            told.sort();
            told
        };
        let foretold = copy(&["-n"]).expect(ends);
        stage.holds("to/old", false, &foretold);
        let run = copy(&[]).expect(ends).says(&["mounted there"]);
        stage.holds("to/old", true, &run);
        assert_eq!(told(&foretold), told(&run), "a dry run tells the same");
        assert_eq!(told(&run), ["\"old/file\""]);
    }
}

#[test]
fn a_mirror_of_one_file_system_leaves_the_others_at_its_target() {
    needs!(Root, Haul);
    for (flags, stays) in [(&["-x"][..], true), (&[], false)] {
        let stage = Stage::with("to");
        for directory in ["from/disk", "from/deep/bound"] {
            fs::create_dir_all(stage.at(directory)).expect("own directory");
        }
        let run = haul(&["cp", "--delete"]).args(flags).arg(contents_of(&stage.at("from"))).arg(stage.at("to")).run();
        let run = run.expect(code::OK);
        assert!(!stage.at("to/file").exists(), "{run}");
        // Without -x, the source's own directories have its names.
        for precious in ["to/disk/precious", "elsewhere/precious"] {
            assert_eq!(stage.at(precious).exists(), stays, "{precious}\n{run}");
        }
    }
}

#[test]
fn a_tree_is_removed_without_what_is_mounted_in_it() {
    needs!(Root, Haul);
    let stage = Stage::with("tree");
    let run = haul(&["rm", "-r", "-n"]).arg(stage.at("tree")).run();
    stage.holds("tree", false, &run);
    let run = haul(&["rm", "-r"]).arg(stage.at("tree")).run();
    assert_ne!(run.code(), code::OK, "{run}");
    stage.holds("tree", true, &run.says(&["mounted there"]));
    let run = haul(&["rm", "-r", "-f"]).arg(stage.at("tree/disk")).run();
    assert_ne!(run.code(), code::OK, "{run}");
    stage.holds("tree", true, &run);
    haul(&["rm"]).arg(stage.at("tree/disk/precious")).run().expect(code::OK);
    assert!(!stage.at("tree/disk/precious").exists());
}

#[test]
fn a_directory_with_a_mount_in_it_makes_no_way_for_a_file() {
    needs!(Root, Haul);
    let stage = Stage::with("to/name");
    plant::text(&stage.at("from/name"), "a file by now\n");
    let run = haul(&["cp", "--delete"]).arg(contents_of(&stage.at("from"))).arg(stage.at("to")).run();
    stage.holds("to/name", true, &run.expect(code::PARTIAL).says(&["mounted there"]));
}

#[test]
fn a_file_on_which_another_is_mounted_stays_and_is_told_of() {
    needs!(Root, Haul);
    let dir = scratch();
    plant::text(&dir.path().join("to/old/file"), "below\n");
    plant::text(&dir.path().join("above"), "above\n");
    plant::text(&dir.path().join("from/new"), "new\n");
    let _mounted = Mounted::bound(&dir.path().join("above"), &dir.path().join("to/old/file"));
    for flags in [&["-n"][..], &[]] {
        let words = haul(&["cp", "--json", "--delete"]).args(flags);
        let run = words.arg(contents_of(&dir.path().join("from"))).arg(dir.path().join("to")).run();
        let run = run.expect(code::PARTIAL).says(&["mounted there"]);
        assert!(run.events_named("deleted").is_empty(), "{run}");
    }
}
