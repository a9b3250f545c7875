//! Selection, comparison and deletion.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use haul_e2e::compare::names_below;
use haul_e2e::{Facets, Lab, Run, assert_same, at, code, contents_of, needs, plant};

struct Selection {
    lab: Lab,
    here: PathBuf,
    there: PathBuf,
}

impl Selection {
    fn new(names: &[&str]) -> Self {
        let lab = Lab::pair();
        let (here, there) = (lab.data("home").join("tree"), lab.data("alpha").join("tree"));
        fs::create_dir_all(&here).expect("own directory");
        for name in names {
            plant::text(&here.join(name), name);
        }
        Self { lab, here, there }
    }

    fn cp(&self, flags: &[&str]) -> Run {
        self.lab.cp().args(flags).arg(contents_of(&self.here)).arg(at("alpha", &self.there))
    }

    #[track_caller]
    fn leaves(&self, expected: &[&str]) {
        let found: Vec<_> =
            names_below(&self.there).into_iter().map(|name| String::from_utf8_lossy(&name).into_owned()).collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn the_first_rule_that_matches_decides() {
    needs!(Namespaces, Haul);
    let names = ["a.log", "a.txt", "keep.log", "sub/b.log", "sub/keep.log", "sub/c.txt", "tmp/x", "sub/tmp/y"];
    let cases: [(&[&str], &[&str]); 7] = [
        (&["--exclude", "*.log"], &["a.txt", "sub", "sub/c.txt", "sub/tmp", "sub/tmp/y", "tmp", "tmp/x"]),
        (
            &["--include", "keep.log", "--exclude", "*.log"],
            &["a.txt", "keep.log", "sub", "sub/c.txt", "sub/keep.log", "sub/tmp", "sub/tmp/y", "tmp", "tmp/x"],
        ),
        (
            &["--exclude", "*.log", "--include", "keep.log"],
            &["a.txt", "sub", "sub/c.txt", "sub/tmp", "sub/tmp/y", "tmp", "tmp/x"],
        ),
        // An anchored pattern with a final slash: directories only.
        (&["--exclude", "/tmp/", "--exclude", "*.log"], &["a.txt", "sub", "sub/c.txt", "sub/tmp", "sub/tmp/y"]),
        (&["--exclude", "tmp", "--exclude", "*.log"], &["a.txt", "sub", "sub/c.txt"]),
        (
            &["--include", "*/", "--include", "*.txt", "--exclude", "*"],
            &["a.txt", "sub", "sub/c.txt", "sub/tmp", "tmp"],
        ),
        (&["--exclude", "sub/**", "--exclude", "/*.log"], &["a.txt", "sub", "tmp", "tmp/x"]),
    ];
    for (flags, expected) in cases {
        let selection = Selection::new(&names);
        selection.cp(flags).run().expect(code::OK);
        selection.leaves(expected);
    }
}

#[test]
fn filters_mean_what_they_mean_to_rsync() {
    needs!(Namespaces, Haul, Tool("rsync"));
    let names = [
        "a",
        "b.o",
        "dir/a",
        "dir/b.o",
        "dir/deep/a",
        "dir/deep/b.o",
        "foo/bar/baz",
        "foo/baz",
        "x/foo/bar/q",
        "[z]",
        "q?",
        "dir/.hidden",
        "star*",
        "build/out/1",
        "src/build/2",
    ];
    let cases: [&[&str]; 16] = [
        &["--exclude=*.o"],
        &["--exclude=/a"],
        &["--exclude=a"],
        &["--exclude=dir/"],
        &["--exclude=dir/*"],
        &["--exclude=dir/**"],
        &["--exclude=**/b.o"],
        &["--exclude=foo/bar"],
        &["--exclude=/foo/bar"],
        &["--exclude=/foo/*/"],
        &["--exclude=[[]z]"],
        &["--exclude=q\\?"],
        &["--exclude=.*"],
        &["--include=/dir/", "--include=/dir/a", "--exclude=/dir/*", "--exclude=/x"],
        &["--include=*/", "--include=a", "--exclude=*"],
        &["--exclude=build/***"],
    ];
    let selection = Selection::new(&names);
    for flags in cases {
        let _ = fs::remove_dir_all(&selection.there);
        selection.cp(flags).run().expect(code::OK);
        let theirs = selection.lab.data("home").join("theirs");
        let _ = fs::remove_dir_all(&theirs);
        Run::new("rsync").arg("-r").args(flags).arg(contents_of(&selection.here)).arg(&theirs).run().expect(0);
        let (ours, theirs) = (names_below(&selection.there), names_below(&theirs));
        let text =
            |names: &[Vec<u8>]| names.iter().map(|n| String::from_utf8_lossy(n).into_owned()).collect::<Vec<_>>();
        assert_eq!(text(&ours), text(&theirs), "with {flags:?}");
    }
}

#[test]
fn lists_of_files_come_from_a_file_or_standard_input() {
    needs!(Namespaces, Haul);
    let names = ["a", "b", "dir/c", "dir/d", "dir/deep/e", "new\nline"];
    let selection = Selection::new(&names);
    selection.cp(&["--files-from", "-"]).input("a\ndir/c\n").run().expect(code::OK);
    selection.leaves(&["a", "dir", "dir/c"]);

    let selection = Selection::new(&names);
    let list = selection.lab.data("home").join("list");
    fs::write(&list, b"new\nline\0dir/deep/e\0").expect("own file");
    let list = list.to_string_lossy().into_owned();
    selection.cp(&["--files-from", &list, "-0"]).run().expect(code::OK);
    selection.leaves(&["dir", "dir/deep", "dir/deep/e", "new\nline"]);

    let selection = Selection::new(&names);
    let run = selection.cp(&["--files-from", "-"]).input("a\nnot-there\nb\n").run();
    run.expect(code::PARTIAL).says(&["not-there"]);
    selection.leaves(&["a", "b"]);

    let selection = Selection::new(&names);
    plant::text(&selection.lab.data("home").join("secret"), "not yours\n");
    let run = selection.cp(&["--files-from", "-"]).input("../secret\na\n").run();
    run.expect_one_of(&[code::PARTIAL, code::USAGE]);
    assert!(!selection.lab.data("alpha").join("secret").exists());
}

#[test]
fn lists_of_files_select_what_is_pulled_too_and_may_be_longer_than_a_message() {
    needs!(Namespaces, Haul);
    let deep = ["d".repeat(200).as_str(); 6].join("/");
    let listed: Vec<String> = (0..1000).map(|number| format!("{deep}/{number}")).collect();
    let all: Vec<&str> = listed.iter().map(String::as_str).chain(["other", "dir/other"]).collect();
    let selection = Selection::new(&all);
    let lab = &selection.lab;
    let list = lab.data("home").join("list");
    fs::write(&list, listed.join("\n")).expect("own file");
    let list = list.to_string_lossy().into_owned();
    selection.cp(&["--files-from", &list]).run().expect(code::OK);
    let pushed = names_below(&selection.there);
    assert_eq!(pushed.len(), 1000 + 6);
    plant::text(&selection.there.join("other"), "not listed\n");
    for (number, source) in [contents_of(&selection.there), selection.there.clone().into()].into_iter().enumerate() {
        let back = lab.data("home").join(format!("back{number}"));
        lab.cp().args(["--files-from", &list]).arg(at("alpha", source)).arg(&back).run().expect(code::OK);
        assert_eq!(names_below(&back), pushed);
    }
}

/// Modes and times of copied entries; the target's own time only if it was copied.
fn modes_and_times(source: &Path, target: &Path) -> Vec<String> {
    let copied_time = fs::metadata(source).expect("own directory").mtime();
    let names = names_below(target).into_iter().map(|name| String::from_utf8_lossy(&name).into_owned());
    let told = |name: String| {
        let found = fs::symlink_metadata(target.join(&name)).expect("just listed");
        let time = if name.is_empty() { i64::from(found.mtime() == copied_time) } else { found.mtime() };
        format!("{name:?} {:o} {time}", found.mode())
    };
    std::iter::once(String::new()).chain(names).map(told).collect()
}

#[test]
fn a_list_gives_the_target_the_modes_and_times_that_rsync_gives_it() {
    needs!(Namespaces, Haul, Tool("rsync"));
    let names =
        ["way/to/deep/f", "way/other", "alone/f", "alone/sub/g", "slash/f", "slash/sub/deep/h", "rest/x", "top"];
    let selection = Selection::new(&names);
    let lab = &selection.lab;
    let directories =
        ["way/to/deep", "way/to", "way", "alone/sub", "alone", "slash/sub/deep", "slash/sub", "slash", ""];
    let set = |path: &Path, mode: u32, seconds: u64| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("own");
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        fs::File::open(path).and_then(|file| file.set_modified(time)).expect("own");
    };
    for (number, name) in (0u32..).zip(directories) {
        set(&selection.here.join(name), 0o710 + number, 1_000_000_000 + u64::from(number));
    }
    let cases: [(&str, &[&str]); 6] = [
        ("alone\nslash/\nalone\n", &[]),
        ("./way/to\n", &[]),
        ("alone\nalone/sub/g\nslash/sub/\n", &[]),
        ("way\nslash/sub\n", &["-r"]),
        ("way/to/deep/f\nslash/\n", &["--exclude=way", "--exclude=sub"]),
        ("top\nmissing/x\nway/missing\n", &[]),
    ];
    let (list, theirs) = (lab.data("home").join("list"), lab.data("home").join("theirs"));
    for (number, (listed, flags)) in cases.into_iter().enumerate() {
        fs::write(&list, listed).expect("own file");
        let list = list.to_string_lossy().into_owned();
        let flags = [flags, &["-t", "-p", "--files-from", &list]].concat();
        let pulled = lab.data("home").join("pulled");
        let ours = if number % 2 == 0 { &selection.there } else { &pulled };
        // Existing entries keep mode and time unless listed.
        for target in [ours, &theirs] {
            let _ = fs::remove_dir_all(target);
            fs::create_dir_all(target.join("way")).expect("own directory");
            [target.join("way"), target.clone()].iter().for_each(|path| set(path, 0o701, 1_100_000_000));
        }
        let mut rsync = std::process::Command::new("rsync");
        let status = rsync.args(&flags).arg(contents_of(&selection.here)).arg(&theirs).output().expect("rsync");
        let ends = if status.status.success() { code::OK } else { code::PARTIAL };
        let run = match number % 2 {
            0 => selection.cp(&flags),
            _ => lab.cp().args(&flags).arg(at("alpha", &selection.here)).arg(&pulled),
        };
        run.run().expect(ends);
        let (ours, theirs) = (modes_and_times(&selection.here, ours), modes_and_times(&selection.here, &theirs));
        assert_eq!(ours, theirs, "{listed:?} with {flags:?}");
    }
}

#[test]
fn a_list_of_exclusions_comes_from_a_file() {
    needs!(Namespaces, Haul);
    let selection = Selection::new(&["a.log", "b.txt", "c.tmp"]);
    selection.cp(&["--exclude-from", "-"]).input("*.log\n# a comment\n\n*.tmp\n").run().expect(code::OK);
    selection.leaves(&["b.txt"]);
}

#[test]
fn delete_removes_what_the_source_does_not_have() {
    needs!(Namespaces, Haul);
    let selection = Selection::new(&["a", "dir/b"]);
    selection.cp(&[]).run().expect(code::OK);
    for name in ["extra", "dir/extra", "old/deep/er", "new\nline"] {
        plant::text(&selection.there.join(name), name);
    }
    std::os::unix::fs::symlink("/etc", selection.there.join("link-out")).expect("own directory");
    selection.cp(&[]).run().expect(code::OK);
    assert!(selection.there.join("extra").exists(), "nothing is deleted unasked");

    let dry = selection.cp(&["--delete", "-n"]).run().expect(code::OK);
    assert!(dry.count("deleted") >= 5, "{dry}");
    assert!(selection.there.join("old/deep/er").exists(), "a dry run deletes nothing");

    let run = selection.cp(&["--delete"]).run().expect(code::OK);
    assert_same(&selection.here, &selection.there, Facets::PLAIN);
    assert_eq!(run.count("deleted"), dry.count("deleted"), "{run}");
    assert!(std::path::Path::new("/etc/passwd").exists());
}

#[test]
fn delete_spares_what_is_excluded() {
    needs!(Namespaces, Haul);
    let selection = Selection::new(&["a", "skip.log"]);
    for name in ["own.log", "sub/own.log", "gone"] {
        plant::text(&selection.there.join(name), name);
    }
    selection.cp(&["--delete", "--exclude", "*.log"]).run().expect(code::OK);
    selection.leaves(&["a", "own.log", "sub", "sub/own.log"]);
}

#[test]
fn delete_makes_way_for_what_is_of_another_kind() {
    needs!(Namespaces, Haul);
    let planted = || {
        let selection = Selection::new(&["dir/a", "file", "linked/b", "other", "spared"]);
        std::os::unix::fs::symlink("other", selection.here.join("link")).expect("own directory");
        fs::hard_link(selection.here.join("other"), selection.here.join("second-name")).expect("own directory");
        for name in ["dir", "file/deep/er", "link/x", "second-name/y", "spared/kept"] {
            plant::text(&selection.there.join(name), "theirs");
        }
        plant::text(&selection.lab.data("alpha").join("elsewhere/theirs"), "theirs");
        std::os::unix::fs::symlink("../elsewhere", selection.there.join("linked")).expect("own directory");
        selection
    };
    // Without --delete no other kind is replaced; the rest is copied.
    let selection = planted();
    let run = selection.cp(&["-H"]).run().expect(code::PARTIAL);
    run.says(&["cannot make directory dir: a file has that name", "cannot replace file: it is a directory"]);
    assert_eq!(fs::read_to_string(selection.there.join("dir")).expect("there"), "theirs");
    assert_eq!(fs::read_to_string(selection.there.join("other")).expect("there"), "other");

    // Excluded entries stay, with their directories.
    let selection = planted();
    let flags = ["-H", "--delete", "--exclude", "kept"];
    let before = names_below(&selection.there);
    selection.cp(&flags).arg("-n").run().expect(code::PARTIAL);
    assert_eq!(names_below(&selection.there), before, "a dry run");
    selection.cp(&flags).run().expect(code::PARTIAL).says(&["cannot replace spared: it is a directory"]);
    fs::remove_dir_all(selection.there.join("spared")).expect("own directory");
    selection.cp(&flags).run().expect(code::OK);
    assert_same(&selection.here, &selection.there, Facets::PLAIN);
    assert!(selection.lab.data("alpha").join("elsewhere/theirs").exists(), "a link goes, not what it names");

    // Only `dir`, within the limit; other entries in the way stay.
    let selection = planted();
    selection.cp(&["--delete", "--max-delete", "1"]).run().expect(code::PARTIAL).says(&["--max-delete 1"]);
    assert_eq!(fs::read_to_string(selection.there.join("dir/a")).expect("there"), "dir/a");
    assert!(selection.there.join("file/deep/er").exists() && selection.there.join("linked").is_symlink());
}

#[test]
fn delete_waits_when_the_source_could_not_be_read() {
    needs!(Root, Haul, Tool("setpriv"));
    let nobody = crate::faults::Nobody::new();
    plant::text(&nobody.source.join("open/file"), "words\n");
    plant::text(&nobody.source.join("closed/file"), "words\n");
    nobody.cp(&[]).run().expect(code::OK);
    let extra = ["extra", "open/extra", "closed/extra"].map(|name| nobody.target.join(name));
    for extra in &extra {
        plant::text(extra, "words\n");
        std::os::unix::fs::chown(extra, Some(65534), Some(65534)).expect("root may");
    }
    plant::set_mode(&nobody.source.join("closed"), 0o700);
    let run = nobody.cp(&["--delete"]).run().expect(code::PARTIAL);
    assert!(nobody.target.join("closed/file").exists(), "unreadable is not absent\n{run}");
    assert_eq!(
        extra.each_ref().map(|extra| extra.exists()),
        [true, true, true],
        "the missing entries may be in that directory\n{run}"
    );
    let [warning] = &run.events_named("warning")[..] else { panic!("one warning\n{run}") };
    assert_eq!(warning["text"], "nothing is deleted: cannot read directory closed: Permission denied", "{run}");
    // The directory stays usable, whatever the source's mode.
    plant::set_mode(&nobody.source.join("closed"), 0);
    nobody.cp(&["--delete"]).run().expect(code::PARTIAL);
    let mode = nobody.target.join("closed").metadata().expect("there").permissions().mode();
    assert!(extra[2].exists() && mode & 0o700 == 0o700, "{mode:o}");
}

#[test]
fn a_dry_run_changes_nothing_and_tells_what_would_happen() {
    needs!(Namespaces, Haul);
    let selection = Selection::new(&["a", "dir/b"]);
    let run = selection.cp(&["-n"]).run().expect(code::OK);
    assert!(!selection.there.exists());
    assert_eq!(
        run.events_named("copied").iter().filter(|event| event["change"] == "data").count(),
        run.report()["files_moved"].as_u64().unwrap_or(0).max(2) as usize,
        "{run}"
    );
    assert_eq!(run.report()["dry_run"], true, "{run}");
}

#[test]
fn checksum_sees_what_size_and_time_hide() {
    needs!(Namespaces, Haul);
    let selection = Selection::new(&["a", "b"]);
    plant::date(&selection.here, 1);
    selection.cp(&[]).run().expect(code::OK);
    plant::text(&selection.there.join("a"), "A");
    plant::date(&selection.there, 1);
    assert_eq!(selection.cp(&[]).run().expect(code::OK).count("files_moved"), 0);
    let run = selection.cp(&["-c"]).run().expect(code::OK);
    assert_eq!((run.count("files_moved"), run.count("files_kept")), (1, 1), "{run}");
    assert_same(&selection.here, &selection.there, Facets::PLAIN);
    // Same content, other time: only the time is updated.
    plant::set_mtime(&selection.here.join("b"), 1_234_567_890, 1);
    let run = selection.cp(&["-c"]).run().expect(code::OK);
    assert_eq!(run.count("bytes_moved"), 0, "{run}");
    assert_same(&selection.here, &selection.there, Facets::PLAIN);
}

#[test]
fn newer_and_existing_files_can_be_left_alone() {
    needs!(Namespaces, Haul);
    let selection = Selection::new(&["newer-there", "newer-here", "only-here"]);
    plant::set_mtime(&selection.here.join("newer-there"), 1_500_000_000, 0);
    plant::text(&selection.there.join("newer-there"), "theirs");
    plant::set_mtime(&selection.there.join("newer-there"), 1_600_000_000, 0);
    plant::text(&selection.there.join("newer-here"), "old");
    plant::set_mtime(&selection.there.join("newer-here"), 1_400_000_000, 0);

    std::os::unix::fs::symlink("only-here", selection.here.join("link")).expect("own directory");
    fs::hard_link(selection.here.join("only-here"), selection.here.join("second-name")).expect("own directory");
    for name in ["link", "second-name"] {
        plant::text(&selection.there.join(name), "theirs");
    }

    selection.cp(&["-H", "--ignore-existing"]).run().expect(code::OK);
    for (name, content) in [("newer-here", "old"), ("link", "theirs"), ("second-name", "theirs")] {
        let there = selection.there.join(name);
        assert!(there.symlink_metadata().expect("there").is_file(), "{name}");
        assert_eq!(fs::read_to_string(there).expect("readable"), content, "{name}");
    }
    assert!(selection.there.join("only-here").exists());
    selection.cp(&["-u"]).run().expect(code::OK);
    assert_eq!(fs::read(selection.there.join("newer-there")).expect("readable"), b"theirs");
    assert_eq!(fs::read(selection.there.join("newer-here")).expect("readable"), b"newer-here");
    selection.cp(&[]).run().expect(code::OK);
    assert_same(&selection.here, &selection.there, Facets::PLAIN);
}
