//! Symbolic links lead to data moved to another disk: `--keep-dirlinks`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use haul_e2e::{Facets, Lab, Outcome, Run, assert_same, at, code, contents_of, needs, plant, scratch};

/// `data` was moved out of the target, and `run` within.
fn plant_trees(from: &Path, to: &Path, disk: &Path) {
    plant::text(&from.join("top"), "words\n");
    plant::many(&from.join("data"), 20, 3_000, 1);
    plant::file(&from.join("data/sub/large"), 3 << 20, 2);
    plant::text(&from.join("run/log"), "words\n");
    fs::create_dir_all(disk.join("data/sub")).expect("own directory");
    fs::create_dir_all(to.join("archive/run")).expect("own directory");
    plant::text(&disk.join("data/extra"), "words\n");
    symlink(disk.join("data"), to.join("data")).expect("own directory");
    symlink("archive/run", to.join("run")).expect("own directory");
}

fn is_whole(from: &Path, to: &Path, disk: &Path) {
    assert!(to.join("data").is_symlink() && to.join("run").is_symlink(), "the links stay");
    assert_same(&from.join("data"), &disk.join("data"), Facets::PLAIN);
    assert_same(&from.join("run"), &to.join("archive/run"), Facets::PLAIN);
}

fn run(home: &Path, flags: &[&str], from: &Path, to: &Path) -> Outcome {
    let program = haul_e2e::binary::find().expect("asked for with needs!");
    Run::new(program).env("HOME", home).args(["cp", "--json"]).args(flags).arg(contents_of(from)).arg(to).run()
}

#[test]
fn a_link_to_a_directory_is_copied_into_and_stays() {
    needs!(Haul);
    let dir = scratch();
    let [from, to, disk] = ["from", "to", "disk"].map(|name| dir.path().join(name));
    plant_trees(&from, &to, &disk);
    let cp = |flags: &[&str]| run(dir.path(), flags, &from, &to);
    let foreseen = cp(&["-K", "-n", "--delete"]).expect(code::OK);
    let done = cp(&["-K", "--delete"]).expect(code::OK);
    for field in ["files_moved", "others_made", "deleted", "failed"] {
        assert_eq!(foreseen.count(field), done.count(field), "{field}");
    }
    // `extra`; the link's end is not deleted, though the source knows it by the link alone.
    assert_eq!(done.count("deleted"), 1, "{done}");
    is_whole(&from, &to, &disk);
    let again = cp(&["-K", "--delete"]).expect(code::OK);
    assert_eq!((again.count("files_moved"), again.count("files_kept")), (0, done.count("files_moved")));
}

#[test]
fn a_far_side_follows_its_links_too() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let from = lab.data("home").join("from");
    let [to, disk] = ["to", "disk"].map(|name| lab.data("alpha").join(name));
    plant_trees(&from, &to, &disk);
    lab.cp().args(["-K", "--delete"]).arg(contents_of(&from)).arg(at("alpha", &to)).run().expect(code::OK);
    is_whole(&from, &to, &disk);
}

#[test]
fn a_link_in_the_way_is_one_cause_and_one_line_that_names_both_ways_out() {
    needs!(Haul);
    let dir = scratch();
    let [from, to, disk] = ["from", "to", "disk"].map(|name| dir.path().join(name));
    plant_trees(&from, &to, &disk);
    for flags in [&[][..], &["-n"]] {
        let program = haul_e2e::binary::find().expect("asked for with needs!");
        let run = Run::new(program).env("HOME", dir.path()).args(["cp", "--no-progress"]).args(flags);
        let run = run.arg(contents_of(&from)).arg(&to).run().expect(code::PARTIAL);
        let said = run.stderr_text();
        let failed: Vec<_> = said.lines().filter(|line| line.starts_with("failed: data")).collect();
        assert_eq!(failed.len(), 2, "{run}");
        assert!(failed[0].contains("-K copies to where it leads") && failed[0].contains("--delete"), "{run}");
        assert!(failed[1].ends_with("and with it 23 entries beneath it"), "{run}");
        assert_eq!(said.lines().filter(|line| line.starts_with("failed: run")).count(), 2, "{run}");
        assert!(said.contains("26 entries could not be copied"), "{run}");
    }
}
