//! Which entries come: `-m`, `-d`, `--safe-links`, `--modify-window` beside rsync, and between hosts.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use haul_e2e::compare::names_below;
use haul_e2e::{Facets, Run, at, code, contents_of, differences, needs, plant};

use super::stage::{Stage, lines};
use crate::daemon::Daemon;

const DAY: i64 = 1_700_000_000;

/// Directories with and without files, and climbing links.
fn plant_tree(dir: &Path) {
    for empty in ["void", "deep/a/b", "kept", "only-objects"] {
        fs::create_dir_all(dir.join(empty)).expect("own directory");
    }
    plant::text(&dir.join("only-objects/x.o"), "an object\n");
    plant::text(&dir.join("deep/f"), "a file\n");
    plant::text(&dir.join("deep/c/g"), "another\n");
    for (name, leads) in [
        ("ok", "deep/f"),
        ("out", "../x"),
        ("absolute", "/etc/passwd"),
        ("up", ".."),
        ("through", "deep/../deep/f"),
        ("at-the-end", "deep/c/.."),
        ("deep/up", ".."),
        ("deep/c/ok", "../f"),
        ("deep/c/too-far", "../../../f"),
        ("deep/c/twice", "../.."),
    ] {
        symlink(leads, dir.join(name)).expect("own directory");
    }
    plant::date(dir, 11);
    plant::set_mtime(dir, DAY, 0);
}

fn plant_old(dir: &Path) {
    plant::text(&dir.join("void/old"), "not at the source\n");
    plant::text(&dir.join("deep/old"), "not at the source\n");
    plant::text(&dir.join("out"), "a file where a link is left out\n");
    plant::text(&dir.join("extra/old"), "not at the source\n");
    plant::date(dir, 12);
    plant::set_mtime(&dir.join("out"), DAY, 0);
    plant::set_mtime(dir, DAY - 9, 0);
}

/// rsync and haul on equal trees, both with `source`.
#[track_caller]
fn same(flags: &[&str], source: &str, for_rsync: &[&str]) {
    let stage = Stage::new();
    let (ours, theirs) = (stage.path().join("o"), stage.path().join("t"));
    let mut said = Vec::new();
    for dir in [&ours, &theirs] {
        plant_tree(&dir.join("in/src"));
        plant_old(&dir.join("to"));
        let run = if *dir == ours {
            stage.haul().args(["cp", "--itemize-changes"]).args(flags)
        } else {
            Run::new("rsync").args(["-lpti"]).args(flags).args(for_rsync)
        };
        said.push(run.current_dir(dir.join("in")).arg(source).arg("../to").run().expect(0).stdout);
    }
    let facets = Facets { root: false, ..Facets::PLAIN };
    let found = differences(&theirs.join("to"), &ours.join("to"), facets);
    assert!(found.is_empty(), "{flags:?} {source}:\n{}", found.join("\n"));
    assert_eq!(lines(&said[0]), lines(&said[1]), "{flags:?} {source}");
}

#[test]
fn empty_directories_are_pruned_as_rsync_does_it() {
    needs!(Haul, Tool("rsync"));
    for flags in [
        &["-m"][..],
        &["-m", "--delete"],
        &["-m", "--exclude=*.o", "--delete"],
        &["-m", "--filter=P kept/", "--delete"],
        &["-m", "--filter=hide,! */", "--include=*.o", "--delete"],
        &["-m", "--include=*/", "--include=g", "--exclude=*"],
        &["-m", "-n", "--delete"],
    ] {
        same(flags, "src/", &["-r"]);
        same(flags, "src", &["-r"]);
    }
    same(&["-m"], "src/void", &["-r"]);
    same(&["-m", "-R"], "src/deep", &["-r"]);
}

#[test]
fn directories_come_without_their_contents_unless_they_have_a_slash_behind() {
    needs!(Haul, Tool("rsync"));
    for source in ["src", "src/", "src/deep", "src/deep/", "src/deep/.", "./src/deep/c/"] {
        same(&["-d"], source, &[]);
        same(&["-d", "--delete"], source, &[]);
    }
    same(&["-d", "-m"], "src/", &[]);
    same(&["-d", "-R"], "src/deep", &[]);
    same(&["-d", "-R"], "src/deep/", &[]);
    // Recursion wins.
    same(&["-d", "-r"], "src/", &[]);
    same(&["-d", "-n", "--delete"], "src/", &[]);
}

#[test]
fn links_that_lead_out_of_the_tree_are_left_out_and_what_stands_there_stays() {
    needs!(Haul, Tool("rsync"));
    for flags in [&["--safe-links"][..], &["--safe-links", "--delete"], &["--safe-links", "-n"]] {
        same(flags, "src/", &["-r"]);
        same(flags, "src", &["-r"]);
        same(flags, "src/deep", &["-r"]);
    }
    let stage = Stage::new();
    let source = stage.path().join("links");
    fs::create_dir_all(source.join("a")).expect("own directory");
    symlink("../x", source.join("a/first")).expect("own directory");
    fs::hard_link(source.join("a/first"), source.join("second")).expect("one file system");
    let run =
        stage.haul().args(["cp", "--json", "-H", "--safe-links"]).arg(contents_of(&source)).arg(stage.path().join("h"));
    let run = run.run().expect(code::OK);
    assert_eq!(names_below(&stage.path().join("h")), [&b"a"[..], b"a/first"], "{run}");
    assert_eq!(run.events_named("left_out")[0]["rule"], "safe-links");
    // A directory in place of a left-out link or file stays.
    for (flag, name) in [("--safe-links", "out"), ("--max-size=1", "file")] {
        let (source, target) = (stage.path().join(name).join("s"), stage.path().join(name).join("d"));
        plant::text(&source.join("file"), "two or more bytes");
        symlink("../x", source.join("out")).expect("own directory");
        plant::text(&target.join(name).join("inside"), "stays");
        stage.haul().args(["cp", "--delete", flag]).arg(contents_of(&source)).arg(&target).run().expect(code::OK);
        assert!(target.join(name).join("inside").exists(), "{flag}");
    }
}

/// rclone has these flags' names.
#[test]
fn files_that_are_too_old_or_too_young_are_left_out_and_stay_at_the_target() {
    needs!(Haul);
    let stage = Stage::new();
    let (from, to) = (stage.path().join("a"), stage.path().join("b"));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let now_s = i64::try_from(now.as_secs()).expect("long before the end of time");
    for (name, age_s) in [("young", 60), ("old", 3 * 86_400), ("older", 400 * 86_400)] {
        plant::text(&from.join(name), "words\n");
        plant::set_mtime(&from.join(name), now_s - age_s, 0);
    }
    plant::text(&to.join("older"), "stays\n");
    let cp = |age: &str| stage.haul().args(["cp", "--json", "--delete", "--min-age=10m", age]);
    let run = cp("--max-age=1y").arg(contents_of(&from)).arg(&to).run().expect(code::OK);
    let rules: BTreeSet<String> = run.events_named("left_out").iter().map(|event| event["rule"].to_string()).collect();
    assert_eq!(rules, ["\"max-age\"", "\"min-age\""].map(str::to_owned).into(), "{run}");
    assert_eq!(names_below(&to), [&b"old"[..], b"older"], "{run}");
    assert_eq!(fs::read_to_string(to.join("older")).expect("it stays"), "stays\n");
    cp("--max-age=soon").arg(contents_of(&from)).arg(&to).run().expect(code::USAGE).says(&["90m, 12h, 30d, 2w or 1y"]);
}

#[test]
fn a_window_decides_which_times_are_equal() {
    needs!(Haul, Tool("rsync"));
    for (window, seconds, ns) in [(0, 0, 500), (0, 1, 0), (1, 1, 0), (1, -1, 900), (2, 3, 0), (-1, 0, 500), (-1, 0, 0)]
    {
        let stage = Stage::new();
        let (ours, theirs) = (stage.path().join("o"), stage.path().join("t"));
        let mut said = Vec::new();
        for dir in [&ours, &theirs] {
            plant::text(&dir.join("src/file"), "here\n");
            plant::text(&dir.join("to/file"), "else\n");
            plant::text(&dir.join("src/mode"), "same\n");
            plant::text(&dir.join("to/mode"), "same\n");
            plant::set_mode(&dir.join("to/mode"), 0o600);
            for name in ["file", "mode", ""] {
                plant::set_mtime(&dir.join("src").join(name), DAY, 1_000);
                plant::set_mtime(&dir.join("to").join(name), DAY + seconds, 1_000 + ns);
            }
            let flag = format!("--modify-window={window}");
            let run = if *dir == ours {
                stage.haul().args(["cp", "--itemize-changes"])
            } else {
                Run::new("rsync").args(["-rlpti"])
            };
            said.push(run.arg(flag).arg(contents_of(&dir.join("src"))).arg(dir.join("to")).run().expect(0).stdout);
        }
        let found = differences(&theirs.join("to"), &ours.join("to"), Facets { root: true, ..Facets::PLAIN });
        assert!(found.is_empty(), "{window} {seconds} {ns}:\n{}", found.join("\n"));
        assert_eq!(lines(&said[0]), lines(&said[1]), "{window} {seconds} {ns}");
    }
}

#[test]
fn entries_are_chosen_in_both_directions_over_ssh_and_to_a_daemon() {
    needs!(Namespaces, Haul);
    let daemon = Daemon::start("rw");
    let (home, alpha, offered) = (daemon.lab.data("home"), daemon.lab.data("alpha"), daemon.offered.clone());
    let flags = ["-m", "--safe-links", "--delete", "--modify-window=1"];
    let planted = |source: &Path, target: &Path| {
        plant_tree(source);
        plant_old(target);
        (source.to_owned(), target.to_owned())
    };
    let (source, target) = planted(&home.join("s0"), &alpha.join("t0"));
    daemon.lab.cp().args(flags).arg(contents_of(&source)).arg(at("alpha", &target)).run().expect(code::OK);
    check(&source, &target);
    let (source, target) = planted(&alpha.join("s1"), &home.join("t1"));
    daemon.lab.cp().args(flags).arg(at("alpha", contents_of(&source))).arg(&target).run().expect(code::OK);
    check(&source, &target);
    let (source, target) = planted(&home.join("s2"), &offered.join("t2"));
    daemon.cp().args(flags).arg(contents_of(&source)).arg(daemon.url("t2")).run().expect(code::OK);
    check(&source, &target);
    let (source, target) = planted(&offered.join("s3"), &home.join("t3"));
    daemon.cp().args(flags).arg(daemon.url("s3/")).arg(&target).run().expect(code::OK);
    check(&source, &target);
    let target = home.join("t4");
    daemon.cp().arg("-d").arg(daemon.url("s3/deep/")).arg(daemon.url("s3/void")).arg(&target).run().expect(code::OK);
    assert_eq!(names_below(&target), [&b"a"[..], b"c", b"f", b"up", b"void"]);
}

#[track_caller]
fn check(source: &Path, target: &Path) {
    let expected: &[&[u8]] = &[
        b"deep",
        b"deep/c",
        b"deep/c/g",
        b"deep/c/ok",
        b"deep/f",
        b"deep/up",
        b"ok",
        b"only-objects",
        b"only-objects/x.o",
        b"out",
    ];
    assert_eq!(names_below(target), expected, "{}", target.display());
    let time = |dir: &Path| fs::metadata(dir.join("deep/f")).expect("copied").mtime();
    assert_eq!(time(source), time(target));
}

#[test]
fn devices_fifos_and_sockets_come_where_they_are_asked_for() {
    needs!(Root, Haul, Tool("rsync"));
    let node = |path: &Path, kind: &[&str]| {
        Run::new("mknod").arg(path).args(kind).run().expect(0);
    };
    let plant = |dir: &Path| {
        fs::create_dir_all(dir.join("src/d")).expect("own directory");
        fs::create_dir_all(dir.join("to")).expect("own directory");
        node(&dir.join("src/d/null"), &["c", "1", "3"]);
        node(&dir.join("src/zero"), &["c", "1", "5"]);
        node(&dir.join("src/loop"), &["b", "7", "9"]);
        node(&dir.join("src/fifo"), &["p"]);
        drop(std::os::unix::net::UnixListener::bind(dir.join("src/socket")).expect("own directory"));
        // Another device, a file, and the same with another mode stand there.
        node(&dir.join("to/zero"), &["c", "1", "8"]);
        plant::text(&dir.join("to/loop"), "a file\n");
        node(&dir.join("to/fifo"), &["p"]);
        plant::set_mode(&dir.join("to/fifo"), 0o600);
        node(&dir.join("to/extra"), &["p"]);
    };
    let facts = |dir: &Path| {
        let mut facts = Vec::new();
        for name in names_below(dir) {
            let stat = fs::symlink_metadata(dir.join(haul_e2e::compare::path_of(&name))).expect("it stands there");
            facts.push((name, stat.mode(), stat.rdev(), if stat.is_dir() { 0 } else { stat.mtime() }));
        }
        facts
    };
    for (ours_flags, theirs_flags) in [
        (&["-D"][..], &["-D"][..]),
        (&["--specials", "--delete"], &["--specials", "--delete"]),
        (&["--devices"], &["--devices"]),
    ] {
        let stage = Stage::new();
        let (ours, theirs) = (stage.path().join("o"), stage.path().join("t"));
        for dir in [&ours, &theirs] {
            plant(dir);
        }
        for name in ["d/null", "zero", "loop", "fifo", "socket"] {
            for dir in [&ours, &theirs] {
                Run::new("touch").args(["-d", "@1700000000"]).arg(dir.join("src").join(name)).run().expect(0);
            }
        }
        for dir in [&ours, &theirs] {
            let standing = ["extra", "zero", "loop", "fifo"].map(|name| dir.join("to").join(name));
            Run::new("touch").args(["-d", "@1600000000"]).args(standing).run().expect(0);
        }
        for _ in 0..2 {
            let run = stage.haul().args(["cp", "--itemize-changes"]).args(ours_flags);
            let said =
                run.arg(contents_of(&ours.join("src"))).arg(ours.join("to")).run().expect(code::OK).stdout_text();
            let run = Run::new("rsync").args(["-rlpti"]).args(theirs_flags);
            let expected =
                run.arg(contents_of(&theirs.join("src"))).arg(theirs.join("to")).run().expect(0).stdout_text();
            let nodes = |text: String| {
                let is_node = |line: &&str| line.len() > 11 && matches!(line.as_bytes()[1], b'D' | b'S');
                let mut lines: Vec<String> = text.lines().filter(is_node).map(str::to_owned).collect();
                lines.sort();
                lines
            };
            assert_eq!(nodes(said), nodes(expected), "{ours_flags:?}");
            assert_eq!(facts(&ours.join("to")), facts(&theirs.join("to")), "{ours_flags:?}");
        }
    }
    let stage = Stage::new();
    plant(stage.path());
    let run =
        stage.haul().args(["cp", "-a"]).arg(contents_of(&stage.path().join("src"))).arg(stage.path().join("plain"));
    let run = run.run().expect(code::OK);
    assert!(run.stderr_text().contains("skipped: zero") && !stage.path().join("plain/zero").exists(), "{run}");
}
