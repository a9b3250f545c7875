//! Copies from and to hosts by their sftp server alone.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use haul_e2e::{Facets, Lab, Running, assert_same, at, code, contents_of, needs, plant};

/// Times have whole seconds.
const KEPT: Facets = Facets { modes: true, ..Facets::CONTENTS };

/// `sftp://alpha/PATH`; a leading slash makes it absolute.
fn over_sftp(path: &Path) -> OsString {
    let mut text = OsString::from("sftp://alpha/");
    text.push(path);
    text
}

#[test]
fn a_tree_with_odd_names_goes_there_and_back() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (source, there, back) =
        (lab.data("home").join("tree"), lab.data("alpha").join("to/tree"), lab.data("home").join("back"));
    plant::mixed(&source, 1);
    plant::odd_names(&source.join("odd"), 2);
    let push = || lab.cp().arg(contents_of(&source)).arg(over_sftp(&there));
    let pushed = push().run().expect(code::OK);
    assert_eq!(pushed.report()["proof"], "confirmed");
    assert_same(&source, &there, KEPT);
    assert_eq!(push().run().expect(code::OK).count("files_moved"), 0, "times tell that all is there");

    let pull = || lab.cp().arg(over_sftp(Path::new(&contents_of(&there)))).arg(&back);
    let pulled = pull().run().expect(code::OK);
    assert_eq!(pulled.report()["proof"], "as_read");
    assert_same(&source, &back, KEPT);
    assert_eq!(pull().run().expect(code::OK).count("files_moved"), 0);

    fs::write(there.join("extra"), "extra").expect("own directory");
    plant::many(&there.join("extras"), 20, 10, 3);
    push().arg("--delete").run().expect(code::OK);
    assert_same(&source, &there, KEPT);
}

#[test]
fn holes_are_kept_where_this_host_knows_them() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (source, there, back) =
        (lab.data("home").join("holed"), lab.data("alpha").join("holed"), lab.data("home").join("back"));
    plant::sparse(&source, 64 << 20, &[(1 << 20, 5000), (40 << 20, 70_000)], 1);
    lab.cp().arg(&source).arg(over_sftp(&there)).run().expect(code::OK);
    assert_same(&source, &there, Facets { allocation: true, ..KEPT });
    lab.cp().arg(over_sftp(&there)).arg(&back).run().expect(code::OK);
    assert_same(&source, &back, KEPT);
}

#[test]
fn what_was_written_is_read_back_where_that_is_asked_for() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (source, there) = (lab.data("home").join("file"), lab.data("alpha").join("file"));
    plant::file(&source, 3 << 20, 1);
    let run = lab.cp().args(["--verify", "disk"]).arg(&source).arg(over_sftp(&there)).run().expect(code::OK);
    assert_eq!(run.count("bytes_reread"), 3 << 20);
    assert_same(&source, &there, KEPT);
}

/// A run that starts over sends more than a checkpoint interval.
const SIZE: u64 = 640 << 20;
const CUT_AT: u64 = 420 << 20;

#[test]
fn a_killed_copy_to_a_server_goes_on() {
    killed_and_again(false);
}

#[test]
fn a_killed_copy_from_a_server_goes_on() {
    killed_and_again(true);
}

fn killed_and_again(is_pull: bool) {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (from, to) = if is_pull { ("alpha", "home") } else { ("home", "alpha") };
    let (source, target) = (lab.data(from).join("large"), lab.data(to).join("large"));
    plant::file(&source, SIZE, 1);
    let copy = || match is_pull {
        true => lab.cp().args(["--rate", "160MB"]).arg(over_sftp(&source)).arg(&target),
        false => lab.cp().args(["--rate", "160MB"]).arg(&source).arg(over_sftp(&target)),
    };
    let mut running: Running = copy().start();
    running.when_moved(CUT_AT);
    running.kill();
    assert!(!target.exists(), "half a file has no name");
    let again = copy().run().expect(code::OK);
    assert_same(&source, &target, KEPT);
    let (moved, again_at_most) = (again.count("bytes_moved"), SIZE - CUT_AT + (256 << 20) + (64 << 20));
    assert!(moved < again_at_most && again.count("bytes_read_again") > 0, "{moved} bytes again");
}

#[test]
fn a_second_copy_of_a_file_leaves_the_first_alone() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (source, there) = (lab.data("home").join("large"), lab.data("alpha").join("to/large"));
    plant::file(&source, SIZE, 1);
    fs::create_dir_all(there.parent().expect("it has one")).expect("own directory");
    let copy = || lab.cp().arg(&source).arg(over_sftp(&there));
    let mut first = copy().args(["--rate", "160MB"]).start();
    let has_journal = || {
        let names = fs::read_dir(there.parent().expect("it has one")).expect("own directory");
        names.flatten().any(|entry| entry.path().extension().is_some_and(|kind| kind == "journal"))
    };
    first.when("its draft has a journal", |_| has_journal());
    copy().run().expect(code::PARTIAL).says(&["another haul (process ", "is writing this file"]);
    first.wait().expect(code::OK);
    assert_same(&source, &there, KEPT);
    assert_eq!(fs::read_dir(there.parent().expect("it has one")).expect("own directory").count(), 1);
}

#[test]
fn a_server_and_a_host_with_haul_are_two_ends_of_one_copy() {
    needs!(Namespaces, Haul);
    let lab = Lab::triangle();
    let (source, there) = (lab.data("alpha").join("file"), lab.data("beta").join("file"));
    plant::file(&source, 5 << 20, 1);
    lab.cp().arg(over_sftp(&source)).arg(at("beta", &there)).run().expect(code::OK);
    assert_same(&source, &there, KEPT);
    let back = lab.data("alpha").join("back");
    lab.cp().arg(at("beta", &there)).arg(over_sftp(&back)).run().expect(code::OK);
    assert_same(&source, &back, KEPT);
    let copy = lab.data("alpha").join("copy");
    let run = lab.cp().arg(over_sftp(&source)).arg(over_sftp(&copy)).run().expect(code::OK);
    run.says(&["the data passes through this host"]);
    assert_same(&source, &copy, KEPT);
}

#[test]
fn what_sftp_cannot_do_is_refused_before_a_login() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let source = lab.data("home").join("file");
    plant::file(&source, 10, 1);
    for flag in ["-X", "-A", "--inplace", "--backup", "-K", "--filter=dir-merge .rules"] {
        lab.cp().arg(flag).arg(&source).arg(over_sftp(Path::new("file"))).run().expect(code::USAGE);
    }
    let missing = lab.cp().arg(over_sftp(Path::new("missing"))).arg(&source).run();
    missing.expect(code::PARTIAL).says(&["cannot find sftp://", "/missing"]);
}
