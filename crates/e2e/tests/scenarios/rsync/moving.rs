//! `--remove-source-files`: what the target lacks is still at the source.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use haul_e2e::compare::names_below;
use haul_e2e::{Facets, Lab, assert_same, at, code, contents_of, needs, plant};
use rustix::process::Signal;

use super::stage::Stage;
use crate::daemon::Daemon;

fn files(dir: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let read = |name: Vec<u8>| Some((name.clone(), fs::read(dir.join(haul_e2e::compare::path_of(&name))).ok()?));
    names_below(dir).into_iter().filter_map(read).collect()
}

#[test]
fn a_move_that_is_killed_and_run_again_ends_with_the_whole_tree_and_loses_no_file() {
    needs!(Haul);
    let stage = Stage::new();
    let (source, target, whole) = (stage.path().join("m"), stage.path().join("to"), stage.path().join("whole"));
    plant::many(&source, 400, 20_000, 1);
    plant::file(&source.join("large"), 9_000_000, 2);
    plant::date(&source, 3);
    stage.haul().arg("cp").arg(contents_of(&source)).arg(&whole).run().expect(code::OK);
    let all = files(&whole);
    let cp = || stage.haul().args(["cp", "--remove-source-files", "--rate", "12MB", "--json"]);
    for moved in [500_000, 2_000_000, 4_000_000] {
        let mut run = cp().arg(contents_of(&source)).arg(&target).start();
        run.when_moved(moved);
        run.signal(Signal::KILL);
        run.kill();
        let (left, there) = (files(&source), files(&target));
        for (name, content) in &all {
            let is_somewhere = left.get(name) == Some(content) || there.get(name) == Some(content);
            assert!(is_somewhere, "{} is lost", haul_e2e::compare::shown(name));
        }
    }
    cp().arg(contents_of(&source)).arg(&target).run().expect(code::OK);
    // The first file that left gave the source's directory a new time.
    assert_same(&whole, &target, Facets { directory_times: false, ..Facets::PLAIN });
    assert!(files(&source).is_empty(), "all files are gone, and directories stay");
    assert!(source.is_dir());
}

#[test]
fn a_source_that_a_rule_leaves_out_or_that_is_the_target_stays() {
    needs!(Haul);
    let stage = Stage::new();
    let (a, b) = (stage.path().join("a"), stage.path().join("b"));
    plant::text(&a.join("small"), "x");
    plant::file(&a.join("large"), 5_000, 1);
    let cp = |flags: &[&str]| stage.haul().args(["cp", "--json", "--remove-source-files"]).args(flags);
    let run = cp(&["--max-size=1k"]).arg(contents_of(&a)).arg(&b).run().expect(code::OK);
    assert_eq!((run.count("left_out"), run.count("removed")), (1, 1), "{run}");
    assert_eq!(run.events_named("left_out")[0]["rule"], "max-size");
    assert_eq!((names_below(&a), names_below(&b)), (vec![b"large".to_vec()], vec![b"small".to_vec()]));
    // Another name of the source's own file: removing the source would be no move.
    fs::hard_link(a.join("large"), b.join("large")).expect("one file system");
    let run = cp(&[]).arg(contents_of(&a)).arg(&b).run().expect(code::OK);
    assert_eq!((run.count("left_out"), run.count("removed")), (1, 0), "{run}");
    for refused in [
        cp(&[]).arg(contents_of(&a)).arg(contents_of(&a)),
        cp(&[]).arg(&a).arg(stage.path()),
        cp(&[]).arg(a.join("large")).arg(&a),
        cp(&[]).arg(&a).arg("null:"),
        cp(&[]).arg(&a).arg("/dev/null"),
        cp(&["--delete"]).arg(contents_of(&a)).arg(&b),
        cp(&["--no-flush"]).arg(contents_of(&a)).arg(&b),
    ] {
        refused.run().expect(code::USAGE);
        assert!(a.join("large").exists());
    }
    let run = cp(&["-n"]).arg(contents_of(&a)).arg(stage.path().join("c")).run().expect(code::OK);
    assert_eq!((run.count("removed"), names_below(&a).len()), (0, 1), "{run}");
}

#[test]
fn a_move_goes_both_ways_over_ssh() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (here, there, back) = (lab.data("home").join("m"), lab.data("alpha").join("m"), lab.data("home").join("b"));
    let whole = lab.data("home").join("whole");
    for dir in [&here, &whole] {
        plant::many(dir, 20, 3_000, 1);
        plant::file(&dir.join("large"), 2_000_000, 2);
        std::os::unix::fs::symlink("large", dir.join("link")).expect("own directory");
        plant::date(dir, 3);
    }
    let pushed = lab.cp_run(["--remove-source-files".into(), contents_of(&here), at("alpha", &there)]).expect(code::OK);
    assert_eq!(pushed.count("removed"), 22, "{pushed}");
    assert_same(&whole, &there, Facets::PLAIN);
    let args = ["--remove-source-files".into(), at("alpha", contents_of(&there)), back.clone().into()];
    let pulled = lab.cp_run(args).expect(code::OK);
    assert_eq!(pulled.count("removed"), 22, "{pulled}");
    assert_same(&whole, &back, Facets::PLAIN);
    assert!(files(&here).is_empty() && files(&there).is_empty());
}

#[test]
fn a_key_that_may_only_read_moves_nothing_away() {
    needs!(Namespaces, Haul);
    let daemon = Daemon::start("ro");
    plant::text(&daemon.offered.join("file"), "words\n");
    let to = daemon.lab.data("home").join("to");
    let run = daemon.cp().args(["--remove-source-files".into(), daemon.url("file")]).arg(&to).run();
    assert_ne!(run.code(), code::OK);
    assert!(run.stdout_text().contains("--remove-source-files") && daemon.offered.join("file").exists(), "{run}");
    daemon.cp().arg(daemon.url("file")).arg(&to).run().expect(code::OK);
}

/// A bind mount would show the same numbers; FUSE shows others.
#[test]
fn a_host_that_sees_the_tree_of_the_other_by_another_way_loses_nothing() {
    needs!(Namespaces, Haul, Fuse);
    if std::process::Command::new("bindfs").arg("--version").output().is_err() {
        return eprintln!("skipped: there is no bindfs");
    }
    let lab = Lab::pair();
    let (there, seen) = (lab.data("alpha").join("tree"), lab.data("home").join("seen"));
    plant::many(&there, 5, 3_000, 1);
    let whole = files(&there);
    fs::create_dir(&seen).expect("own directory");
    let mounted = std::process::Command::new("bindfs").args([&there, &seen]).status().expect("it is there");
    assert!(mounted.success(), "{mounted}");
    let mut runs = Vec::new();
    // Wherever unfinished data stands.
    for flag in ["--no-sparse", "--temp-dir=../drafts", "--partial-dir=.partial"] {
        let cp = || lab.cp().args(["--remove-source-files", flag]);
        runs.push(cp().arg(contents_of(&seen)).arg(at("alpha", &there)).run());
        runs.push(cp().arg(at("alpha", contents_of(&there))).arg(&seen).run());
    }
    let left = files(&there);
    let unmounted = std::process::Command::new("umount").arg(&seen).status().expect("it is there");
    assert!(unmounted.success(), "{unmounted}");
    for run in runs {
        run.expect(code::USAGE).says(&["onto itself"]);
    }
    assert_eq!(left, whole);
}
