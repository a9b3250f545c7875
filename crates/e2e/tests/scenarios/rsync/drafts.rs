//! Where data waits for its file's name: `--partial-dir`, `--temp-dir`, `--delay-updates`. And `--list-only`.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use haul_e2e::compare::names_below;
use haul_e2e::{Facets, Run, assert_same, at, code, contents_of, needs, plant};
use rustix::process::Signal;

use super::far::Mounted;
use super::stage::Stage;
use crate::daemon::Daemon;

const LARGE_BYTES: u64 = 24 << 20;

fn names(dir: &Path) -> Vec<String> {
    names_below(dir).into_iter().map(|name| String::from_utf8_lossy(&name).into_owned()).collect()
}

fn kill_after(run: Run, moved: u64) {
    // Half of the large file takes two seconds; the journal is written each second.
    let mut run = run.args(["--rate", "6MB", "--json"]).start();
    run.when_moved(moved);
    run.signal(Signal::KILL);
    run.kill();
}

#[test]
fn unfinished_data_stands_where_it_was_asked_for_and_the_next_run_goes_on_with_it() {
    needs!(Haul);
    let stage = Stage::new();
    for (number, absolute) in [(0, false), (1, true)] {
        let dir = stage.path().join(format!("p{number}"));
        let (source, target, elsewhere) = (dir.join("src"), dir.join("to"), dir.join("elsewhere"));
        plant::file(&source.join("deep/large"), LARGE_BYTES, 1);
        plant::text(&source.join("deep/.partial/of-source"), "is not copied\n");
        plant::text(&target.join("deep/.partial/of-target"), "stays\n");
        let flag = match absolute {
            true => format!("--partial-dir={}", elsewhere.display()),
            false => "--partial-dir=.partial".to_owned(),
        };
        let cp = || stage.haul().args(["cp", "--delete", &flag]).arg(contents_of(&source)).arg(&target);
        kill_after(cp(), LARGE_BYTES / 2);
        let parts = if absolute { names(&elsewhere) } else { names(&target.join("deep/.partial")) };
        assert!(parts.iter().any(|name| name.ends_with(".part")), "{flag}: {parts:?}");
        assert!(!names(&target).iter().any(|name| name.starts_with("deep/.haul-")), "{flag}: {:?}", names(&target));
        let run = cp().arg("--json").run().expect(code::OK);
        assert!(run.count("bytes_read_again") > 0, "{flag}: {run}");
        match absolute {
            true => {
                assert_eq!(names(&elsewhere), [] as [&str; 0]);
                assert_eq!(names(&target), ["deep", "deep/.partial", "deep/.partial/of-source", "deep/large"]);
            }
            false => assert_eq!(names(&target), ["deep", "deep/.partial", "deep/.partial/of-target", "deep/large"]),
        }
        assert_same(&source.join("deep/large"), &target.join("deep/large"), Facets::PLAIN);
    }
    // What a run without the flag left beside the file is used, too.
    let (source, target) = (stage.path().join("p0/src"), stage.path().join("beside"));
    kill_after(stage.haul().arg("cp").arg(contents_of(&source)).arg(&target), LARGE_BYTES / 2);
    let run =
        stage.haul().args(["cp", "--json", "--partial-dir=.partial"]).arg(contents_of(&source)).arg(&target).run();
    assert!(run.expect(code::OK).count("bytes_read_again") > 0);
    assert!(!names(&target).iter().any(|name| name.contains(".haul-")), "{:?}", names(&target));
    // A directory made for it goes again.
    let (source, target) = (stage.path().join("p0/src/deep/large"), stage.path().join("one"));
    kill_after(stage.haul().args(["cp", "--partial-dir=.partial"]).arg(&source).arg(&target), LARGE_BYTES / 2);
    stage.haul().args(["cp", "--partial-dir=.partial"]).arg(&source).arg(&target).run().expect(code::OK);
    assert!(!stage.path().join(".partial").exists() && target.exists());
}

#[test]
fn a_directory_on_another_file_system_is_not_used_and_that_is_said() {
    needs!(Root, Haul);
    let stage = Stage::new();
    let elsewhere = Mounted::at(&stage.path().join("elsewhere"));
    let (source, target) = (stage.path().join("large"), stage.path().join("to"));
    plant::file(&source, LARGE_BYTES, 1);
    // It has room for a megabyte.
    let flag = format!("--temp-dir={}", elsewhere.0.display());
    let run = stage.haul().args(["cp", &flag]).arg(&source).arg(&target).run().expect(code::OK);
    assert!(run.stderr_text().contains("another file system"), "{run}");
    assert_same(&source, &target, Facets::PLAIN);
    let beside = stage.path().join("near");
    fs::create_dir(&beside).expect("own directory");
    let run = stage.haul().args(["cp", "-T"]).arg(&beside).arg(&source).arg(&target).run().expect(code::OK);
    assert!(!run.stderr_text().contains("warning"), "{run}");
    for wrong in ["--partial-dir=a/b", "--partial-dir=.."] {
        stage.haul().args(["cp", wrong]).arg(&source).arg(&target).run().expect(code::USAGE);
    }
}

/// One large file, and an older copy.
fn plant_update(source: &Path, target: &Path) {
    for number in 0..20 {
        plant::file(&source.join(format!("d/{number:02}")), 30_000, number);
        plant::text(&target.join(format!("d/{number:02}")), "old\n");
    }
    plant::file(&source.join("z-large"), LARGE_BYTES, 99);
    plant::date(source, 5);
    fs::hard_link(source.join("d/00"), source.join("linked")).expect("one file system");
    plant::set_mtime(&source.join("d"), 1_600_000_000, 0);
}

#[test]
fn all_names_change_at_the_end_and_what_waits_is_not_sent_again() {
    needs!(Haul);
    let stage = Stage::new();
    let (source, target) = (stage.path().join("u/src"), stage.path().join("u/to"));
    plant_update(&source, &target);
    let cp = || stage.haul().args(["cp", "-H", "--delay-updates"]).arg(contents_of(&source)).arg(&target);
    let old = |name: &str| fs::read(target.join(name)).expect("it stands there") == b"old\n";
    kill_after(cp(), LARGE_BYTES / 2);
    assert!((0..20).all(|number| old(&format!("d/{number:02}"))), "no name has changed");
    assert!(!target.join("z-large").exists() && !target.join("linked").exists());
    let run = cp().args(["--json", "--backup", "--delete"]).run().expect(code::OK);
    assert!(run.count("bytes_moved") < LARGE_BYTES, "{run}");
    assert_eq!(fs::read(target.join("d/07~")).expect("a backup"), b"old\n");
    let ino = |name: &str| fs::metadata(target.join(name)).expect("copied").ino();
    assert_eq!(ino("linked"), ino("d/00"));
    for number in 0..20 {
        fs::remove_file(target.join(format!("d/{number:02}~"))).expect("a backup");
    }
    assert_same(&source, &target, Facets { directory_times: false, ..Facets::PLAIN });
    let again = cp().arg("--json").run().expect(code::OK);
    assert_eq!(again.count("others_made"), 0, "{again}");
    // What waits gets the source's present mode.
    let late = stage.path().join("u/late");
    kill_after(stage.haul().args(["cp", "--delay-updates"]).arg(contents_of(&source)).arg(&late), LARGE_BYTES / 2);
    plant::set_mode(&source.join("d/03"), 0o600);
    let run = stage.haul().args(["cp", "--json", "--delay-updates"]).arg(contents_of(&source)).arg(&late).run();
    assert!(run.expect(code::OK).count("bytes_moved") < LARGE_BYTES);
    assert_same(&source, &late, Facets::PLAIN);
    // Without backups, directories get the source's times.
    let fresh = stage.path().join("u/fresh");
    let cp = stage.haul().args(["cp", "--delay-updates"]).arg(contents_of(&source)).arg(&fresh);
    cp.run().expect(code::OK);
    assert_same(&source, &fresh, Facets::PLAIN);
    let both = stage.haul().args(["cp", "--delay-updates", "--inplace"]).arg(&source).arg(&fresh).run();
    assert_eq!(both.code(), code::USAGE);
}

#[test]
fn drafts_and_delayed_names_in_both_directions_over_ssh_and_to_a_daemon() {
    needs!(Namespaces, Haul);
    let daemon = Daemon::start("rw");
    let (home, alpha, offered) = (daemon.lab.data("home"), daemon.lab.data("alpha"), daemon.offered.clone());
    let flags = ["-H", "--delay-updates", "--partial-dir=.partial", "--delete"];
    let planted = |source: PathBuf, target: PathBuf| {
        plant_update(&source, &target);
        (source, target)
    };
    let (source, target) = planted(home.join("s0"), alpha.join("t0"));
    daemon.lab.cp().args(flags).arg(contents_of(&source)).arg(at("alpha", &target)).run().expect(code::OK);
    assert_same(&source, &target, Facets::PLAIN);
    let (source, target) = planted(alpha.join("s1"), home.join("t1"));
    daemon.lab.cp().args(flags).arg(at("alpha", contents_of(&source))).arg(&target).run().expect(code::OK);
    assert_same(&source, &target, Facets::PLAIN);
    let (source, target) = planted(home.join("s2"), offered.join("t2"));
    daemon.cp().args(flags).arg(contents_of(&source)).arg(daemon.url("t2")).run().expect(code::OK);
    assert_same(&source, &target, Facets::PLAIN);
    // A directory for parts beside the target, beneath the key's.
    plant::file(&source.join("z-large"), LARGE_BYTES, 7);
    let cp = daemon.cp().arg("--temp-dir=../parts").arg(contents_of(&source)).arg(daemon.url("t2"));
    cp.run().expect(code::OK);
    assert_eq!(names(&offered.join("parts")), [] as [&str; 0]);
    let out = daemon.cp().arg("--temp-dir=../../out").arg(contents_of(&source)).arg(daemon.url("t2")).run();
    assert_ne!(out.code(), code::OK, "{out}");
    assert!(!alpha.join("out").exists());
    let (source, target) = planted(offered.join("s3"), home.join("t3"));
    daemon.cp().args(flags).arg(daemon.url("s3/")).arg(&target).run().expect(code::OK);
    assert_same(&source, &target, Facets::PLAIN);
    let list = daemon.cp().args(["--list-only", "-r"]).arg(daemon.url("s3/")).run().expect(code::OK);
    let listed = list.events_named("item");
    assert!(listed.len() == 24 && listed[23]["path"] == "z-large" && listed[23]["size"] == LARGE_BYTES, "{list}");
}

#[test]
fn a_list_shows_what_rsync_shows() {
    needs!(Haul, Tool("rsync"));
    let stage = Stage::new();
    let source = stage.ours().source;
    let lines = |text: String| {
        let mut lines: Vec<String> = text
            .lines()
            // rsync's size of a directory is its list's.
            .map(|line| if line.starts_with('d') { format!("d{}", &line[25..]) } else { line.to_owned() })
            .collect();
        lines.sort();
        lines
    };
    let here = contents_of(&source);
    for flags in [&["-r"][..], &[], &["-r", "--exclude=dir/"], &["-rm", "--exclude=*.o"]] {
        let theirs = Run::new("rsync").env("TZ", "UTC").args(["-l", "--list-only"]).args(flags).arg(&here).run();
        let ours = stage.haul().args(["cp", "--list-only"]).args(flags).arg(&here).run().expect(code::OK);
        assert_eq!(lines(ours.stdout_text()), lines(theirs.expect(0).stdout_text()), "{flags:?}");
    }
    let to_nowhere = stage.haul().args(["cp", "--list-only"]).arg(&source).arg("nowhere").run().expect(code::OK);
    assert_eq!(to_nowhere.stdout_text().lines().count(), 1, "{to_nowhere}");
    let json = stage.haul().args(["cp", "--list-only", "--json", "-r"]).arg(&here).run().expect(code::OK);
    assert!(json.events_named("item").len() > 20, "{json}");
}

#[test]
fn what_only_grows_is_brought_up_to_date_and_what_is_not_shorter_stays() {
    needs!(Haul, Tool("rsync"));
    let stage = Stage::new();
    let dirs = ["o", "t"].map(|name| stage.path().join(name));
    for dir in &dirs {
        for (name, source, target) in [
            ("grown", "one\ntwo\n", "one\n"),
            ("grown-and-changed", "one\ntwo\n", "1\n"),
            ("as-long", "one\n", "two\n"),
            ("shrunk", "one\n", "one\ntwo\n"),
            ("new", "one\n", ""),
        ] {
            plant::text(&dir.join("src").join(name), source);
            plant::set_mtime(&dir.join("src").join(name), 1_700_000_000, 0);
            if !target.is_empty() {
                plant::text(&dir.join("to").join(name), target);
                plant::set_mtime(&dir.join("to").join(name), 1_600_000_000, 0);
            }
        }
        plant::file(&dir.join("src/large"), 5_000_000, 1);
        plant::file(&dir.join("to/large"), 3_000_000, 1);
        // Times within a second differ for haul, not for rsync.
        for (end, at) in [("src", 1_700_000_000), ("to", 1_600_000_000)] {
            plant::set_mtime(&dir.join(end).join("large"), at, 0);
            plant::set_mtime(&dir.join(end), 1_500_000_000, 0);
        }
    }
    for flags in [&["--append-verify", "-n"][..], &["--append-verify"], &["--append-verify", "-c"]] {
        let [ours, theirs] = &dirs;
        let run = Run::new("rsync").args(["-rlpti"]).args(flags).arg(contents_of(&theirs.join("src")));
        let theirs_said = run.arg(theirs.join("to")).run().expect(0);
        let run = stage.haul().args(["cp", "--itemize-changes"]).args(flags).arg(contents_of(&ours.join("src")));
        let ours_said = run.arg(ours.join("to")).run().expect(code::OK);
        let mut expected = super::stage::lines(&theirs_said.stdout);
        // rsync appends first, and sends the file again when its beginning has changed.
        expected.remove(">f..t...... grown-and-changed");
        assert_eq!(super::stage::lines(&ours_said.stdout), expected, "{flags:?}");
        let found = haul_e2e::differences(&theirs.join("to"), &ours.join("to"), Facets { root: true, ..Facets::PLAIN });
        assert!(found.is_empty(), "{flags:?}: {}", found.join("\n"));
    }
}
