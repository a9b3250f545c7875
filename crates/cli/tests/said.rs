//! What is said of copies on this host.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

struct Scene {
    dir: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["source/a", "source/sub/b", "source/sub/c"] {
            fs::create_dir_all(dir.path().join(name).parent().unwrap()).unwrap();
            fs::write(dir.path().join(name), name).unwrap();
        }
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn haul(&self, line: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
        command.args(line).current_dir(self.dir.path()).env("HOME", self.dir.path()).stdin(Stdio::null());
        for name in ["XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "COLUMNS"] {
            command.env_remove(name);
        }
        command.output().unwrap()
    }

    fn says(&self, line: &[&str]) -> String {
        let output = self.haul(line);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

#[test]
fn names_that_two_sources_share_are_told() {
    let scene = Scene::new();
    fs::create_dir(scene.path("other")).unwrap();
    fs::write(scene.path("other/a"), "another").unwrap();
    for (line, is_told) in [
        (&["cp", "-r", "source/", "other/", "to"][..], true),
        (&["cp", "-rq", "source/", "other/", "quiet"], false),
        (&["cp", "-r", "source", "other", "apart"], false),
    ] {
        let output = scene.haul(line);
        let said = String::from_utf8(output.stderr).unwrap();
        let expected = "warning: 1 entry has its name from an earlier source (a); the first that has a name counts";
        assert_eq!((output.status.code(), said.contains(expected)), (Some(0), is_told), "{line:?}: {said}");
    }
    assert_eq!(fs::read_to_string(scene.path("to/a")).unwrap(), "source/a");
}

#[test]
fn a_source_that_is_not_there_has_the_exit_status_of_rsync() {
    let scene = Scene::new();
    for line in [
        &["cp", "nosuch", "to"][..],
        &["cp", "nosuch", "source", "to/"],
        &["cp", "nosuch/", "to"],
        &["cp", "nosuch*", "host:to"],
    ] {
        let output = scene.haul(line);
        assert_eq!(output.status.code(), Some(23), "{line:?}: {output:?}");
        assert!(String::from_utf8(output.stderr).unwrap().contains("cannot find nosuch"), "{line:?}");
    }
}

#[test]
fn links_to_an_earlier_copy_are_counted_as_such() {
    let scene = Scene::new();
    scene.says(&["cp", "-a", "source/", "monday"]);
    let dry = scene.says(&["cp", "-a", "-n", "--link-dest=../monday", "source/", "tuesday"]);
    assert!(dry.contains("would copy 0 files") && dry.contains("link 3 files") && !dry.contains("keep"), "{dry}");
    fs::create_dir(scene.path("tuesday")).unwrap();
    let dry = scene.says(&["cp", "-a", "-n", "--link-dest=../monday", "source/", "tuesday/"]);
    assert!(dry.contains("link 3 files"), "{dry}");
    let said = scene.says(&["cp", "-a", "--link-dest=../monday", "source/", "tuesday"]);
    assert!(said.contains("linked 3 files") && !said.contains("nothing to copy"), "{said}");
    assert!(!said.contains("already there"), "{said}");
    assert_eq!(fs::metadata(scene.path("tuesday/sub/b")).unwrap().nlink(), 2);
    fs::write(scene.path("source/new"), "new").unwrap();
    fs::write(scene.path("source/a"), "other words").unwrap();
    let said = scene.says(&["cp", "-a", "--link-dest=../monday", "source/", "wednesday"]);
    assert!(said.contains("copied 2 files") && said.contains("linked 2 files"), "{said}");
    let said = scene.says(&["cp", "-a", "--copy-dest=../monday", "source/sub/", "thursday"]);
    assert!(!said.contains("linked"), "{said}");
    let said = scene.says(&["cp", "-a", "--json", "--copy-dest=../tuesday", "source/", "friday"]);
    assert!(said.contains("\"files_copied_there\":2") && said.contains("\"files_linked\":0"), "{said}");
    let said = scene.says(&["cp", "-a", "--link-dest=../monday", "source/", "wednesday"]);
    assert!(said.contains("4 files") && said.contains("already there"), "{said}");
}

#[test]
fn a_directory_that_goes_has_a_slash_behind_it_as_in_rsync() {
    let scene = Scene::new();
    let plant = || {
        scene.says(&["cp", "-r", "source/", "target"]);
        fs::create_dir_all(scene.path("target/old/deep")).unwrap();
        fs::write(scene.path("target/old/file"), "x").unwrap();
        let _ = symlink("a", scene.path("target/old/link"));
    };
    let lines = |text: &str, begin: &str| -> Vec<String> {
        let of = text.lines().filter_map(|line| line.strip_prefix(begin));
        let mut lines: Vec<String> = of.map(|line| line.trim_start().to_owned()).collect();
        lines.sort();
        lines
    };
    let gone = ["old/", "old/deep/", "old/file", "old/link"];
    plant();
    assert_eq!(lines(&scene.says(&["cp", "-r", "--delete", "-n", "source/", "target"]), "delete "), gone);
    assert_eq!(
        lines(&scene.says(&["cp", "-r", "--delete", "--itemize-changes", "source/", "target"]), "*deleting"),
        gone
    );
    plant();
    assert_eq!(lines(&scene.says(&["cp", "-r", "--delete", "-v", "source/", "target"]), "deleted "), gone);
    plant();
    let said = scene.says(&["cp", "-r", "--delete", "--json", "source/", "target"]);
    let told: Vec<&str> = said.lines().filter(|line| line.contains("\"event\":\"deleted\"")).collect();
    assert_eq!(told.iter().filter(|line| line.contains("\"directory\":true")).count(), 2, "{told:?}");
}

#[test]
fn holes_are_not_called_there_already() {
    let scene = Scene::new();
    let file = fs::File::create(scene.path("hollow")).unwrap();
    file.set_len(1 << 30).unwrap();
    std::os::unix::fs::FileExt::write_at(&file, &[1; 4096], 1 << 20).unwrap();
    let said = scene.says(&["cp", "hollow", "there"]);
    assert!(said.contains("copied 1 file") && !said.contains("already") && !said.contains("GiB"), "{said}");
    let said = scene.says(&["cp", "hollow", "there"]);
    assert!(
        said.contains("nothing to copy: 1 file, ") && said.contains("already there") && !said.contains("GiB"),
        "{said}"
    );
}

#[test]
fn a_tree_has_its_hash_with_v_and_one_file_its_own() {
    let scene = Scene::new();
    let said = scene.says(&["cp", "-r", "-v", "--manifest-out", "list", "source/", "target"]);
    let root = fs::read_to_string(scene.path("list")).unwrap().trim_end().rsplit(' ').next().unwrap().to_owned();
    assert!(said.contains(&format!("tree BLAKE3 {root} of 3 files\n")), "{said}");
    assert!(said.lines().last().unwrap().contains("all verified"), "{said}");
    assert_eq!(scene.says(&["hash", "-m", "target"]), fs::read_to_string(scene.path("list")).unwrap());
    let none = scene.haul(&["hash", "-m", "nowhere"]);
    assert_eq!((none.status.code(), none.stdout.as_slice()), (Some(1), &b""[..]));
    assert!(!scene.says(&["cp", "-v", "source/a", "one"]).contains("tree BLAKE3"));
    assert!(!scene.says(&["cp", "-r", "source/", "other"]).contains("tree BLAKE3"), "without -v");
}

#[test]
fn trees_that_cannot_be_compared_are_no_trees_that_differ() {
    let scene = Scene::new();
    for line in
        [&["diff", "--no-such-flag", "source", "source"][..], &["diff", "source"], &["diff", "source", "source/a"]]
    {
        assert_eq!(scene.haul(line).status.code(), Some(2), "{line:?}");
    }
    assert_eq!(scene.haul(&["diff", "source", "source/sub"]).status.code(), Some(1));
    assert_eq!(scene.haul(&["diff", "source", "source"]).status.code(), Some(0));
    assert_eq!(scene.haul(&["diff", "--help"]).status.code(), Some(0));
}
