//! The rules with an end on another host, over ssh and a daemon, both ways. And `-x` with a real mount.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use haul_e2e::{Run, at, code, contents_of, needs, plant};

use super::stage::Stage;
use crate::daemon::Daemon;

/// A source, and an earlier copy beside the target.
struct Trees {
    source: PathBuf,
    target: PathBuf,
    earlier: PathBuf,
}

impl Trees {
    fn plant(source: PathBuf, target: PathBuf) -> Self {
        let earlier = target.with_file_name("earlier");
        for (dir, mode) in [(&source, 0o644), (&earlier, 0o640)] {
            plant::text(&dir.join("same"), "as in the copy before\n");
            plant::set_mode(&dir.join("same"), mode);
            plant::set_mtime(&dir.join("same"), 1_500_000_000, 7);
        }
        plant::text(&source.join(".rules"), "- *.o\n");
        plant::text(&source.join("hidden.o"), "an object\n");
        plant::text(&source.join("changed"), "new words\n");
        plant::text(&target.join("changed"), "old words, and more\n");
        plant::text(&target.join("extra"), "not at the source\n");
        Self { source, target, earlier }
    }

    #[track_caller]
    fn check(&self) {
        let read =
            |name: &str| fs::read_to_string(self.target.join(name)).unwrap_or_else(|why| format!("{name}: {why}"));
        let stat = |path: PathBuf| fs::metadata(path).expect("it stands there");
        let (linked, copied) = (stat(self.target.join("same")), stat(self.target.join("changed")));
        assert_eq!(linked.ino(), stat(self.earlier.join("same")).ino(), "--link-dest");
        assert_eq!(copied.mode() & 0o777, 0o640, "--chmod");
        assert_eq!(
            (read("changed"), read("changed~")),
            ("new words\n".into(), "old words, and more\n".into()),
            "--backup"
        );
        assert_eq!(read("extra~"), "not at the source\n");
        assert!(!self.target.join("extra").exists(), "--delete");
        assert!(!self.target.join("hidden.o").exists() && self.target.join(".rules").exists(), "--filter");
    }
}

const FLAGS: [&str; 5] = ["--link-dest=../earlier", "--backup", "--delete", "--chmod=F640", "--filter=: .rules"];

#[test]
fn rules_hold_in_both_directions_over_ssh_and_to_a_daemon() {
    needs!(Namespaces, Haul);
    let daemon = Daemon::start("rw");
    let (home, alpha) = (daemon.lab.data("home"), daemon.lab.data("alpha"));
    let pushed = Trees::plant(home.join("a/src"), alpha.join("a/to"));
    daemon
        .lab
        .cp()
        .args(FLAGS)
        .arg(contents_of(&pushed.source))
        .arg(at("alpha", &pushed.target))
        .run()
        .expect(code::OK);
    pushed.check();
    let pulled = Trees::plant(alpha.join("b/src"), home.join("b/to"));
    daemon
        .lab
        .cp()
        .args(FLAGS)
        .arg(at("alpha", contents_of(&pulled.source)))
        .arg(&pulled.target)
        .run()
        .expect(code::OK);
    pulled.check();
    let served = Trees::plant(home.join("c/src"), daemon.offered.join("c/to"));
    daemon.cp().args(FLAGS).arg(contents_of(&served.source)).arg(daemon.url("c/to")).run().expect(code::OK);
    served.check();
    let fetched = Trees::plant(daemon.offered.join("d/src"), home.join("d/to"));
    daemon.cp().args(FLAGS).arg(daemon.url("d/src/")).arg(&fetched.target).run().expect(code::OK);
    fetched.check();
    // Replaced files go beside the target.
    plant::text(&served.source.join("changed"), "newer words, and more\n");
    let to_old = "--backup-dir=../old";
    daemon.cp().arg(to_old).arg(contents_of(&served.source)).arg(daemon.url("c/to")).run().expect(code::OK);
    plant::text(&pushed.source.join("changed"), "newer words, and more\n");
    daemon
        .lab
        .cp()
        .arg(to_old)
        .arg(contents_of(&pushed.source))
        .arg(at("alpha", &pushed.target))
        .run()
        .expect(code::OK);
    for trees in [&served, &pushed] {
        let old = trees.target.with_file_name("old");
        assert_eq!(fs::read_to_string(old.join("changed")).expect("a backup"), "new words\n");
    }
    // A far side keeps paths, too.
    daemon.cp().arg("-R").arg(daemon.url("d/./src/same")).arg(home.join("e")).run().expect(code::OK);
    assert!(home.join("e/src/same").exists());
    daemon
        .lab
        .cp()
        .arg("-R")
        .arg(format!("{}/./a/src/same", home.display()))
        .arg(at("alpha", alpha.join("e")))
        .run()
        .expect(code::OK);
    assert!(alpha.join("e/a/src/same").exists());
}

#[test]
fn a_daemon_is_led_to_no_directory_outside_of_its_own() {
    needs!(Namespaces, Haul);
    let daemon = Daemon::start("rw");
    let outside = daemon.lab.data("alpha").join("outside");
    let trees = Trees::plant(daemon.lab.data("home").join("src"), daemon.offered.join("to"));
    plant::text(&outside.join("same"), "as in the copy before\n");
    plant::set_mtime(&outside.join("same"), 1_500_000_000, 7);
    let absolute = outside.display();
    for flag in ["--link-dest=../../outside", "--copy-dest=../../outside", "--backup-dir=../../outside"] {
        let run = daemon.cp().arg(flag).arg(contents_of(&trees.source)).arg(daemon.url("to")).run();
        assert_ne!(run.code(), code::OK, "{flag}: {run}");
    }
    // Absolute paths begin at the key's directory.
    let run =
        daemon.cp().arg(format!("--link-dest={absolute}")).arg(contents_of(&trees.source)).arg(daemon.url("to")).run();
    run.expect(code::OK);
    assert_eq!(fs::metadata(outside.join("same")).expect("planted").nlink(), 1);
    assert!(!outside.join("changed").exists());
}

pub struct Mounted(pub PathBuf);

impl Mounted {
    #[track_caller]
    pub fn at(path: &Path) -> Self {
        fs::create_dir_all(path).expect("own directory");
        Run::new("mount").args(["-t", "tmpfs", "-o", "size=1m,mode=755", "haul-e2e"]).arg(path).run().expect(0);
        Self(path.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn what_is_mounted_in_the_source_stays_out_as_with_rsync() {
    needs!(Root, Haul, Tool("rsync"));
    let stage = Stage::new();
    let mounts: Vec<Mounted> =
        [stage.ours(), stage.theirs()].iter().map(|pair| Mounted::at(&pair.source.join("dir/mounted"))).collect();
    for mount in &mounts {
        plant::text(&mount.0.join("beyond"), "on another file system\n");
        plant::set_mtime(&mount.0, 1_400_000_000, 0);
        plant::set_mtime(mount.0.parent().expect("it has one"), 1_400_000_000, 0);
    }
    // The target's own entry there stays.
    for pair in [stage.ours(), stage.theirs()] {
        plant::text(&pair.target.join("dir/mounted/stays"), "at the target\n");
        plant::set_mtime(&pair.target.join("dir/mounted/stays"), 1_300_000_000, 0);
    }
    let compared = stage.compare(&["-x", "--delete"], &["-x", "--delete"]);
    assert!(compared.target.is_empty() && compared.letters.is_empty(), "{}", compared.all().join("\n"));
    let (ours, crossed) = (stage.ours(), stage.path().join("crossed"));
    assert!(!ours.target.join("dir/mounted/beyond").exists());
    stage.haul().arg("cp").arg(contents_of(&ours.source)).arg(&crossed).run().expect(code::OK);
    assert!(crossed.join("dir/mounted/beyond").exists());
}
