//! `haul ls`, `du`, `stat`, `mkdir`, `mv`, `rm`, `cat` at another host, compared with coreutils.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use haul_e2e::compare::names_below;
use haul_e2e::{Lab, Outcome, Run, at, code, needs, plant};

use crate::daemon::Daemon;

pub fn over_ssh(lab: &Lab, command: &str) -> Run {
    lab.haul().args([command, "-F"]).arg(lab.ssh_config()).env("TZ", "UTC")
}

/// coreutils' output for the same tree.
pub fn neighbour(program: &str, args: &[&str], dir: &Path) -> String {
    let run = Run::new(program).args(args).current_dir(dir).env("TZ", "UTC").env("LC_ALL", "C.UTF-8").run();
    run.expect(code::OK).stdout_text()
}

fn planted(dir: &Path) {
    plant::mixed(&dir.join("tree"), 1);
    plant::odd_names(&dir.join("tree/odd"), 2);
    plant::file(&dir.join("tree/large"), 3 << 20, 3);
    plant::sparse(&dir.join("tree/sparse"), 50 << 20, &[(10 << 20, 5000)], 4);
    plant::date(&dir.join("tree"), 5);
    Run::new("mkfifo").arg(dir.join("tree/fifo")).run().expect(code::OK);
    fs::set_permissions(dir.join("tree/large"), std::os::unix::fs::PermissionsExt::from_mode(0o6751))
        .expect("own file");
}

fn fields(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|line| line.split(' ').filter(|word| !word.is_empty()).collect()).collect()
}

pub fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn what_is_said_of_a_tree_is_what_coreutils_say_of_it() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let data = lab.data("alpha");
    planted(&data);
    let home = format!("{}/", data.display());
    let there = |command: &str, flags: &[&str], path: &str| {
        let path = at("alpha", format!("{home}{path}"));
        over_ssh(&lab, command).args(flags).arg(path).run().expect(code::OK).stdout
    };
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).replace(&format!("alpha:{home}"), "");

    for path in ["tree", "tree/odd"] {
        let flags: &[&str] = &["-A1"];
        let ours = there("ls", &["-A"], path);
        assert_eq!(String::from_utf8_lossy(&ours), neighbour("ls", &[flags[0], path], &data), "{path}");
        let (ours, theirs) = (text(there("ls", &["-l"], path)), neighbour("ls", &["-l", path], &data));
        assert_eq!(fields(&ours), fields(&theirs), "{path}");
    }
    for (flags, theirs) in [
        (&["-t"][..], "-t1"),
        (&["-r"], "-r1"),
        (&["-rt"], "-rt1"),
        (&["--sort=size"], "-S1"),
        (&["-lr", "--sort=size"], "-lrS"),
        (&["-lt"], "-lt"),
    ] {
        let (ours, theirs) = (text(there("ls", flags, "tree")), neighbour("ls", &[theirs, "tree"], &data));
        assert_eq!(fields(&ours), fields(&theirs), "{flags:?}");
    }
    assert_eq!(text(there("ls", &["-R"], "tree")), neighbour("ls", &["-1R", "tree"], &data));
    for flags in [&["-s", "--apparent-size"][..], &["-s"], &["-b"], &["-h"]] {
        let args: Vec<&str> = flags.iter().copied().chain(["tree"]).collect();
        assert_eq!(sorted(&text(there("du", flags, "tree"))), sorted(&neighbour("du", &args, &data)), "{flags:?}");
    }
    for path in ["tree", "tree/large", "tree/sparse", "tree/fifo"] {
        assert_eq!(text(there("stat", &[], path)), neighbour("stat", &[path], &data), "{path}");
    }
    assert!(there("cat", &[], "tree/large") == fs::read(data.join("tree/large")).expect("own file"));
    let names = neighbour("find", &["tree", "-name", "*"], &data);
    let lines = String::from_utf8(there("ls", &["-RA", "--json"], "tree")).expect("JSON is text");
    assert_eq!(lines.lines().count() + 1, names_below(&data.join("tree")).len() + 1, "{names}");
    for line in lines.lines() {
        let entry: serde_json::Value = serde_json::from_str(line).expect("an object a line");
        assert_eq!(entry["place"], "alpha");
    }
}

/// Size and inodes are df(1)'s; use changes under a test.
#[test]
fn the_space_of_a_file_system_is_told_here_at_a_host_and_at_a_daemon() {
    needs!(Namespaces, Haul);
    // The key may move one byte a day: a look costs none.
    let daemon = Daemon::start("ro day=1");
    let (lab, data) = (&daemon.lab, &daemon.offered);
    plant::text(&data.join("file"), "words\n");
    let df = neighbour("df", &["-B1", "--output=size,itotal", "file"], data);
    let expected: Vec<u64> =
        df.lines().nth(1).unwrap_or_default().split_whitespace().map(|n| n.parse().expect("a number")).collect();
    let (remote, here) = (at("alpha", data.join("file")), data.join("file").into_os_string());
    for run in [
        over_ssh(lab, "df").arg("--json").arg(&remote).run(),
        lab.haul().args(["df", "--json"]).arg(&here).run(),
        daemon.haul_in_words("df").arg("--json").arg(daemon.url("file")).run(),
        daemon.haul_in_words("df").arg("--json").arg(daemon.url("")).run(),
    ] {
        let run = run.expect(code::OK);
        let line: serde_json::Value = serde_json::from_str(run.stdout_text().trim()).expect("one object");
        assert_eq!(["size_bytes", "inodes"].map(|name| line[name].as_u64().unwrap_or(0)), expected[..], "{run}");
        let bytes = |name: &str| line[name].as_u64().expect("a number");
        assert!(bytes("used_bytes") + bytes("available_bytes") <= bytes("size_bytes"), "{run}");
    }
    let run = over_ssh(lab, "df").arg("-h").args([&remote, &here]).run().expect(code::OK);
    let lines: Vec<String> = run.stdout_text().lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 3, "{run}");
    assert!(lines[0].contains("Size  Used Available Use% IFree Path") && lines[1].contains("% "), "{run}");
    assert!(lines[1].ends_with(&*remote.to_string_lossy()), "{run}");
    let missing = over_ssh(lab, "df").arg(at("alpha", data.join("none"))).run();
    missing.expect(1).says(&["alpha: ", "none"]);
}

/// `-F`, `-i`, `-S`, `-o` are words of ls(1), and here flags of ssh. Once the local directory was listed, with status 0.
#[test]
fn no_place_is_taken_for_the_value_of_a_flag_of_ssh() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    plant::text(&lab.data("home").join("here"), "words\n");
    for command in ["ls", "du", "stat", "rm", "hash", "cat"] {
        for (flag, word) in
            [("-F", "alpha:data"), ("-i", "alpha:"), ("-o", "alpha:data"), ("-S", "alpha:/data"), ("-F", "/")]
        {
            let run = lab.haul().args([command, flag, word, "here"]).current_dir(lab.data("home")).run();
            run.expect(code::USAGE).says(&[&format!("{flag} takes "), "is none", "a flag of ssh here"]);
        }
    }
    assert!(lab.data("home").join("here").exists());
    let run = lab.haul().args(["ls", "-F", "alpha:data"]).current_dir(lab.data("home")).run().expect(code::USAGE);
    assert_eq!(run.stdout_text(), "");
}

#[test]
fn a_daemon_and_this_machine_are_places_like_any_other() {
    needs!(Namespaces, Haul);
    let daemon = Daemon::start("rw");
    planted(&daemon.offered);
    let there = |command: &str, flags: &[&str], path: &str| {
        let run = daemon.haul_in_words(command).args(flags).arg(daemon.url(path)).env("TZ", "UTC").run();
        run.expect(code::OK).stdout_text()
    };
    let here = |command: &str, flags: &[&str], path: &str| {
        let run = daemon.lab.haul().arg(command).args(flags).arg(path).current_dir(&daemon.offered);
        run.env("TZ", "UTC").run().expect(code::OK).stdout_text()
    };
    let listed = neighbour("ls", &["-A1", "tree"], &daemon.offered);
    assert_eq!([there("ls", &["-A"], "tree"), here("ls", &["-A"], "tree")], [listed.clone(), listed]);
    let listed = neighbour("ls", &["-l", "tree"], &daemon.offered);
    for ours in [there("ls", &["-l"], "tree"), here("ls", &["-l"], "tree")] {
        assert_eq!(fields(&ours), fields(&listed));
    }
    // The far side expands wildcards, as in a copy; a shell did so here.
    assert_eq!(there("cat", &[], "tree/lar*").len(), here("cat", &[], "tree/large").len());
    let missing = daemon.haul_in_words("ls").arg(daemon.url("nothing*")).run();
    missing.expect(2).says(&["nothing matches the wildcard"]);
}

type Place<'a> = &'a dyn Fn(&str, &[&str], &[&str]) -> Outcome;

/// Compares a place with coreutils after the same commands.
fn changes_like_coreutils(run: Place<'_>, ours: &Path, theirs: &Path) {
    for dir in [ours, theirs] {
        for path in ["a/b/file", "a/link-to/x", "c/one", "c/two", "keep"] {
            plant::text(&dir.join(path), path);
        }
        symlink("../keep", dir.join("a/out")).expect("own directory");
        symlink(dir.parent().expect("it has one"), dir.join("a/up")).expect("own directory");
        plant::text(&dir.with_extension("outside"), "stays");
    }
    let steps: [(&str, &[&str], &[&str]); 14] = [
        ("mkdir", &[], &["new"]),
        ("mkdir", &[], &["new"]),
        ("mkdir", &[], &["x/y/z"]),
        ("mkdir", &["-p"], &["x/y/z", "new"]),
        ("mv", &[], &["c/one", "new"]),
        ("mv", &[], &["c/two", "new/one"]),
        ("mv", &["-n"], &["keep", "new/one"]),
        ("mv", &[], &["new", "c"]),
        ("mv", &[], &["c/new/one", "missing/one"]),
        ("mv", &[], &["keep", "c", "keep"]),
        ("rm", &[], &["a"]),
        ("rm", &["-f"], &["nothing"]),
        ("rm", &[], &["nothing"]),
        ("rm", &["-r"], &["a"]),
    ];
    for (command, flags, paths) in steps {
        let (ours_run, theirs_run) =
            (run(command, flags, paths), Run::new(command).args(flags).args(paths).current_dir(theirs).run());
        assert_eq!(ours_run.code(), theirs_run.code(), "{command} {flags:?} {paths:?}\n{ours_run}\n{theirs_run}");
        assert_eq!(names_below(ours), names_below(theirs), "{command} {flags:?} {paths:?}\n{ours_run}");
    }
    let words = |dir: &Path| fs::read_to_string(dir.join("c/new/one")).expect("it was moved");
    assert_eq!(words(ours), words(theirs));
    assert_eq!(fs::read_to_string(ours.with_extension("outside")).expect("it stays"), "stays");
    assert!(!theirs.join("a").exists());
}

#[test]
fn a_tree_is_changed_as_coreutils_change_it() {
    needs!(Namespaces, Haul);
    let daemon = Daemon::start("rw");
    let theirs = |name: &str| {
        let dir = daemon.lab.data("home").join(name);
        fs::create_dir(&dir).expect("own directory");
        dir
    };
    let of_daemon = |command: &str, flags: &[&str], paths: &[&str]| {
        daemon.haul_in_words(command).args(flags).args(paths.iter().map(|path| daemon.url(path))).run()
    };
    changes_like_coreutils(&of_daemon, &daemon.offered, &theirs("as-daemon"));
    let dir = daemon.lab.data("alpha").join("by-ssh");
    fs::create_dir(&dir).expect("own directory");
    let by_ssh = |command: &str, flags: &[&str], paths: &[&str]| {
        let there: Vec<OsString> = paths.iter().map(|path| at("alpha", dir.join(path))).collect();
        over_ssh(&daemon.lab, command).args(flags).args(there).run()
    };
    changes_like_coreutils(&by_ssh, &dir, &theirs("as-ssh"));
    let dir = daemon.lab.data("alpha").join("by-sftp");
    fs::create_dir(&dir).expect("own directory");
    let by_sftp = |command: &str, flags: &[&str], paths: &[&str]| {
        let there = paths.iter().map(|path| format!("sftp://alpha/{}", dir.join(path).display()));
        over_ssh(&daemon.lab, command).args(flags).args(there).run()
    };
    changes_like_coreutils(&by_sftp, &dir, &theirs("as-sftp"));
}

#[test]
fn a_dry_run_names_what_rm_would_remove_and_removes_nothing() {
    needs!(Namespaces, Haul);
    let daemon = Daemon::start("ro");
    plant::text(&daemon.offered.join("tree/dir/file"), "words");
    let run = daemon.haul_in_words("rm").arg("-rn").arg(daemon.url("tree")).run().expect(code::OK);
    let (url, text) = (daemon.url("tree"), run.stdout_text());
    assert_eq!(text, format!("would remove {url}/dir/file\nwould remove {url}/dir\nwould remove {url}\n"));
    assert!(daemon.offered.join("tree/dir/file").exists());
}

#[test]
fn a_key_that_may_only_read_changes_nothing() {
    needs!(Namespaces, Haul);
    let daemon = Daemon::start("ro");
    plant::text(&daemon.offered.join("file"), "words");
    let before = names_below(&daemon.offered);
    for (command, flags, paths) in
        [("mkdir", "-p", &["a/b"][..]), ("mv", "-v", &["file", "other"]), ("rm", "-rf", &["file"])]
    {
        let run = daemon.haul_in_words(command).arg(flags).args(paths.iter().map(|path| daemon.url(path))).run();
        run.expect(code::AUTHENTICATION).says(&["only read"]);
        assert_eq!(names_below(&daemon.offered), before, "{command}");
    }
    assert_eq!(daemon.haul_in_words("cat").arg(daemon.url("file")).run().expect(code::OK).stdout_text(), "words");
}

/// Every way out of a key's directory.
#[test]
fn nothing_outside_of_the_directory_of_a_key_is_seen_or_changed() {
    needs!(Namespaces, Haul);
    let daemon = Daemon::start("rw");
    let outside: PathBuf = daemon.lab.data("alpha").join("outside");
    plant::text(&outside.join("secret"), "secret");
    plant::text(&daemon.offered.join("dir/mine"), "mine");
    symlink(&outside, daemon.offered.join("out")).expect("own directory");
    symlink("../../outside", daemon.offered.join("dir/up")).expect("own directory");
    for path in ["out/", "out/secret", "dir/up/secret", "../outside", "dir/../../outside/secret", "out/*", "../*"] {
        for (command, flags) in
            [("ls", "-l"), ("du", "-s"), ("cat", "-4"), ("stat", "-L"), ("rm", "-r"), ("mkdir", "-v")]
        {
            let run = daemon.haul_in_words(command).arg(flags).arg(daemon.url(path)).run();
            assert_ne!(run.code(), code::OK, "{command} {path}\n{run}");
            assert!(!run.stdout_text().contains("secret"), "{command} {path}\n{run}");
        }
        daemon.haul_in_words("mv").arg(daemon.url("dir/mine")).arg(daemon.url(path)).run().expect(1);
        daemon.haul_in_words("mv").arg(daemon.url(path)).arg(daemon.url("dir/got")).run().expect(1);
    }
    assert_eq!(names_below(&outside), [b"secret"]);
    // A link is removed, not its end; also in a tree.
    daemon.haul_in_words("rm").arg(daemon.url("out")).run().expect(code::OK);
    daemon.haul_in_words("rm").arg("-r").arg(daemon.url("dir")).run().expect(code::OK);
    assert_eq!((names_below(&outside), names_below(&daemon.offered)), (vec![b"secret".to_vec()], vec![]));
}

#[test]
fn two_places_are_no_place_to_move_between() {
    needs!(Haul);
    let run = Run::new(haul_e2e::binary::find().expect("asked for")).args(["mv", "alpha:x", "y"]).run();
    run.expect(code::USAGE).says(&["on two", "haul cp"]);
}
