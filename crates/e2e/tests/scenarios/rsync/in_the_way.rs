//! Entries in the way, and names that need one another: rsync and haul leave the same.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use haul_e2e::{Facets, Run, binary, code, differences, needs, plant, scratch};

/// Runs rsync and haul on equal plants, and compares directories and exit codes.
#[track_caller]
fn same(what: &str, plant: impl Fn(&Path), words: &[&str]) {
    let dir = scratch();
    let [theirs, ours] = ["theirs", "ours"].map(|name| {
        let dir = dir.path().join(name);
        for end in ["s", "t"] {
            fs::create_dir_all(dir.join(end)).expect("own directory");
        }
        plant(&dir);
        dir
    });
    let by_rsync = Run::new("rsync").arg("-a").args(words).current_dir(&theirs).run();
    let run = Run::new(binary::find().expect("asked for with needs!")).current_dir(&ours);
    let run = run.env("HOME", dir.path().join("home")).args(["cp", "-q", "-a"]).args(words).run();
    let found = differences(&theirs, &ours, Facets { hard_links: true, directory_times: false, ..Facets::PLAIN });
    assert!(found.is_empty(), "{what}: rsync {words:?}:\n  {}\n{run}", found.join("\n  "));
    assert_eq!(run.code(), by_rsync.code(), "{what}: rsync {words:?}\n{run}");
}

const HAS_DATA: &str = "the next has its data already";

type Plant<'a> = &'a dyn Fn(&Path);

/// Older than that of [`newer`].
fn old(path: &Path, text: &str) {
    plant::text(path, text);
    plant::set_mtime(path, 1_500_000_000, 0);
}

fn newer(path: &Path, text: &str) {
    plant::text(path, text);
    plant::set_mtime(path, 1_600_000_000, 0);
}

fn empty(path: &Path) {
    fs::create_dir_all(path).expect("own directory");
}

#[test]
fn an_empty_directory_makes_way_for_a_file_or_a_link() {
    needs!(Haul, Tool("rsync"));
    let in_the_way = |dir: &Path| {
        old(&dir.join("s/file"), "new\n");
        symlink("file", dir.join("s/link")).expect("own directory");
        old(&dir.join("s/full"), "new\n");
        ["t/file", "t/link"].iter().for_each(|name| empty(&dir.join(name)));
        old(&dir.join("t/full/inside"), "stays\n");
    };
    for flags in [
        &[][..],
        &["-n"],
        &["-u"],
        &["-c"],
        &["-b"],
        &["--existing"],
        &["--delete"],
        &["--ignore-existing"],
        &["--force"],
    ] {
        same("in the way", in_the_way, &[flags, &["s/", "t/"]].concat());
    }
    let second_name = |dir: &Path| {
        old(&dir.join("s/a"), "two names\n");
        fs::hard_link(dir.join("s/a"), dir.join("s/b")).expect("one file system");
        empty(&dir.join("t/b"));
    };
    same("a further name", second_name, &["-H", "s/", "t/"]);
    same("a further name", second_name, &["-H", "-u", "s/", "t/"]);
    let protected = |dir: &Path| {
        old(&dir.join("s/small"), "new\n");
        empty(&dir.join("t/small"));
    };
    same("what a rule leaves out", protected, &["--min-size=1k", "s/", "t/"]);
}

#[test]
fn ignore_times_sends_what_looks_equal() {
    needs!(Haul, Tool("rsync"));
    let hidden = |dir: &Path| {
        old(&dir.join("s/file"), "here\n");
        old(&dir.join("t/file"), "else\n");
    };
    for flags in [&["-I"][..], &["--ignore-times"], &["-I", "-c"], &["-I", "--size-only"], &["-I", "-u"], &[]] {
        same("equal in size and time", hidden, &[flags, &["s/", "t/"]].concat());
    }
}

#[test]
fn a_target_beneath_the_source_is_refused_only_where_it_is_copied() {
    needs!(Haul, Tool("rsync"));
    let tree = |dir: &Path| {
        old(&dir.join("a/b/c/file"), "words\n");
        empty(&dir.join("a/to"));
        newer(&dir.join("list"), "b/c\n");
        newer(&dir.join("slash"), "b/c/\n");
        newer(&dir.join("into"), "b/c/\nto/\n");
    };
    for words in [
        &["-R", "a/b/./c", "a/x"][..],
        &["-R", "a/./b", "a/to/"],
        &["-r", "--files-from=list", "a", "a/x"],
        &["--files-from=slash", "a", "a/to"],
        &["--exclude=/to", "a/", "a/to"],
        &["--exclude=/a/to", "--delete", "a", "a/to"],
        &["--exclude=to/", "a/", "a/to/"],
    ] {
        same("beneath the source", tree, words);
    }
    let dir = scratch();
    tree(dir.path());
    // rsync copies a part of the copy into itself, as far as listed.
    for words in [
        &["-R", "a", "a/x"][..],
        &["a/", "a/x"],
        &["-R", "a/./b", "a/b/x"],
        &["--exclude=/x/y", "a/", "a/x"],
        &["--files-from=into", "a", "a/to"],
    ] {
        let run =
            Run::new(binary::find().expect("asked for with needs!")).current_dir(dir.path()).arg("cp").args(words);
        let run = run.env("HOME", dir.path().join("home")).run().expect(code::USAGE);
        assert!(run.stderr_text().contains("into itself"), "{words:?}: {run}");
    }
}

#[test]
fn a_further_name_is_sent_where_a_rule_leaves_the_first_one_alone() {
    needs!(Haul, Tool("rsync"));
    let names = |dir: &Path, names: &[&str]| {
        old(&dir.join("s/a"), "of the source\n");
        for name in names {
            fs::hard_link(dir.join("s/a"), dir.join("s").join(name)).expect("one file system");
        }
    };
    let other = |dir: &Path, name: &str, at: i64| {
        newer(&dir.join("t").join(name), "another file\n");
        plant::set_mtime(&dir.join("t").join(name), at, 0);
    };
    let (newer, older) = (1_600_000_000, 1_400_000_000);
    let cases: [(&str, Plant<'_>); 5] = [
        ("the first is newer, and two are missing", &|dir| {
            names(dir, &["b", "c"]);
            other(dir, "a", newer);
        }),
        ("the first is newer, the next is older", &|dir| {
            names(dir, &["b"]);
            other(dir, "a", newer);
            other(dir, "b", older);
        }),
        ("two are newer, and two are missing", &|dir| {
            names(dir, &["b", "c", "d"]);
            other(dir, "a", newer);
            other(dir, "b", newer);
        }),
        ("the first is missing, the next is older", &|dir| {
            names(dir, &["b"]);
            other(dir, "b", older);
        }),
        (HAS_DATA, &|dir| {
            names(dir, &["b", "c"]);
            other(dir, "a", newer);
            old(&dir.join("t/b"), "of the source\n");
        }),
    ];
    for (what, plant) in cases {
        for flags in [&["-H", "-u"][..], &["-H", "--ignore-existing"], &["-H", "--existing"], &["-H", "-u", "-n"]] {
            // rsync makes a second file of what --ignore-existing found right; haul links.
            if !(what == HAS_DATA && flags.contains(&"--ignore-existing")) {
                same(what, plant, &[flags, &["s/", "t/"]].concat());
            }
        }
    }
    // rsync 3.5 waits for ever with -u.
    let blocked = |dir: &Path| {
        names(dir, &["b", "c"]);
        old(&dir.join("t/a/inside"), "stays\n");
    };
    same("a directory stands under the first", blocked, &["-H", "--ignore-existing", "s/", "t/"]);
}

#[test]
fn a_backup_replaces_nothing_that_this_copy_has_placed() {
    needs!(Haul, Tool("rsync"));
    let both = |dir: &Path| {
        for (name, text) in [("f", "new f\n"), ("f~", "new f~\n")] {
            old(&dir.join("s").join(name), text);
        }
        newer(&dir.join("t/f"), "older words of f\n");
    };
    same("only f stands there", both, &["-b", "s/", "t/"]);
    same(
        "both stand there",
        |dir: &Path| {
            both(dir);
            newer(&dir.join("t/f~"), "older words of f~\n");
        },
        &["-b", "s/", "t/"],
    );
    same(
        "many of them",
        |dir: &Path| {
            for n in 0..40 {
                for name in [format!("{n}"), format!("{n}~")] {
                    old(&dir.join("s").join(&name), &format!("new {name}\n"));
                    newer(&dir.join("t").join(&name), &format!("what was {name}\n"));
                }
            }
        },
        &["-b", "s/", "t/"],
    );
    same(
        "f is deleted",
        |dir: &Path| {
            old(&dir.join("s/f~"), "new f~\n");
            newer(&dir.join("t/f"), "older words of f\n");
        },
        &["-b", "--delete", "s/", "t/"],
    );
}

#[test]
fn names_like_those_of_backups_stay_unless_a_rule_gives_them_up() {
    needs!(Haul, Tool("rsync"));
    let extra = |dir: &Path| {
        old(&dir.join("s/kept"), "new\n");
        for name in ["t/d/plain", "t/d/stale~", "t/stale~", "t/other.old"] {
            newer(&dir.join(name), name);
        }
        empty(&dir.join("s/d"));
    };
    for rules in [
        &[][..],
        &["--filter=R *~"],
        &["--filter=+ *~"],
        &["--filter=H *~"],
        &["--filter=P d/*~", "--filter=R *~"],
        &["--filter=R *~", "--filter=P d/*~"],
        &["--filter=R *~", "-n"],
        &["--filter=R *.old", "--suffix=.old"],
        &["--filter=R *~", "--delete-excluded"],
    ] {
        same("extra names", extra, &[&["-b", "--delete"], rules, &["s/", "t/"]].concat());
    }
}
