//! `--delete` with an empty or wrong source: an unmounted disk must not empty its copy.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use haul_e2e::compare::names_below;
use haul_e2e::{Facets, Lab, Run, assert_same, at, binary, code, contents_of, needs, plant};

use super::stage::Stage;

fn planted(target: &Path) {
    plant::text(&target.join("first"), "words\n");
    plant::text(&target.join("d/second"), "words\n");
}

#[test]
fn an_empty_source_deletes_nothing_unless_somebody_insists() {
    needs!(Haul);
    for (contents, beneath) in [(true, ""), (false, "empty")] {
        let stage = Stage::new();
        let (source, to) = (stage.path().join("empty"), stage.path().join("to"));
        fs::create_dir(&source).expect("own directory");
        let target = to.join(beneath);
        planted(&target);
        let cp = |flags: &[&str]| {
            let cp = stage.haul().args(["cp", "-r", "--json", "--delete"]).args(flags);
            if contents { cp.arg(contents_of(&source)).arg(&to) } else { cp.arg(&source).arg(&to) }
        };
        for flags in [&[][..], &["-n"], &["-a"], &["--delete-excluded"]] {
            let said = ["nothing is deleted here, 2 entries stay: the source has nothing to copy", "--force"];
            let run = cp(flags).run().expect(code::PARTIAL).says(&said);
            assert_eq!((run.count("deleted"), names_below(&target).len()), (0, 3), "{run}");
        }
        // Protected and missing entries would stay anyway.
        cp(&["--exclude", "*"]).run().expect(code::OK);
        let would = cp(&["--force", "-n"]).run().expect(code::OK);
        assert_eq!((would.count("deleted"), names_below(&target).len()), (3, 3), "{would}");
        cp(&["--max-delete", "2"]).run().expect(code::PARTIAL);
        assert!(names_below(&target).len() < 3, "whoever names a number has thought about it");
        cp(&["--force"]).run().expect(code::OK);
        assert_eq!(names_below(&target).len(), 0);
        cp(&[]).run().expect(code::OK);
    }
}

#[test]
fn an_empty_directory_within_a_source_empties_its_copy() {
    needs!(Haul);
    let stage = Stage::new();
    let (source, target) = (stage.path().join("s"), stage.path().join("t"));
    fs::create_dir_all(source.join("sub")).expect("own directory");
    planted(&target.join("sub"));
    stage.haul().args(["cp", "-r", "--delete"]).arg(contents_of(&source)).arg(&target).run().expect(code::OK);
    assert_eq!(names_below(&target), [b"sub"]);
}

#[test]
fn it_is_so_at_another_host_too() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (here, there) = (lab.data("home").join("empty"), lab.data("alpha").join("to"));
    fs::create_dir(&here).expect("own directory");
    planted(&there);
    let cp = || lab.cp().arg("--delete").arg(contents_of(&here)).arg(at("alpha", &there));
    cp().run().expect(code::PARTIAL).says(&["the source has nothing to copy", "--force"]);
    assert_eq!(names_below(&there).len(), 3);
}

fn plant_many(directory: &Path, prefix: &str, files: usize) {
    (0..files).for_each(|number| plant::text(&directory.join(format!("{prefix}{number}")), "words\n"));
}

#[test]
fn more_than_half_of_a_large_target_goes_only_if_somebody_insists() {
    needs!(Haul);
    let stage = Stage::new();
    let (source, target) = (stage.path().join("s"), stage.path().join("t"));
    plant_many(&source, "new", 200);
    plant_many(&source, "both", 60);
    plant_many(&target, "both", 60);
    plant_many(&target.join("sub"), "old", 60);
    let before = names_below(&target).len();
    let cp = |flags: &[&str]| {
        stage.haul().args(["cp", "-r", "--json", "--delete"]).args(flags).arg(contents_of(&source)).arg(&target)
    };
    // New files do not count: 61 of 121 would go.
    for flags in [&["-n"][..], &[]] {
        let said = ["nothing is deleted here, 61 entries stay: the source lacks more than half of the 121", "--force"];
        let run = cp(flags).run().expect(code::PARTIAL).says(&said);
        assert_eq!(run.count("deleted"), 0, "{run}");
    }
    assert_eq!(names_below(&target).len(), before + 200, "all else is copied");
    // By now 61 of 321 are fewer than half.
    let would = cp(&["-n"]).run().expect(code::OK);
    assert_eq!((would.count("deleted"), names_below(&target).len()), (61, before + 200), "{would}");
    cp(&[]).run().expect(code::OK);
    assert_eq!(names_below(&target).len(), 260);

    plant_many(&target.join("sub"), "old", 600);
    cp(&[]).run().expect(code::PARTIAL);
    cp(&["--exclude", "sub"]).run().expect(code::OK);
    assert_eq!(cp(&["--force", "-n"]).run().expect(code::OK).count("deleted"), 601);
    cp(&["--max-delete", "5"]).run().expect(code::PARTIAL);
    assert!(names_below(&target).len() >= 260 + 601 - 5);
    cp(&["--force"]).run().expect(code::OK);
    assert_eq!(names_below(&target).len(), 260);
}

#[test]
fn at_a_terminal_it_asks() {
    needs!(Haul);
    let stage = Stage::new();
    let (source, target) = (stage.path().join("s"), stage.path().join("t"));
    plant_many(&source, "new", 1);
    plant_many(&target, "old", 150);
    let command = format!(
        "{} cp -r --delete {}/ {}",
        binary::find().expect("it is needed").display(),
        source.display(),
        target.display()
    );
    let answered = |answer: &str| Run::new("script").args(["-qec", &command, "/dev/null"]).input(answer).run();
    for (answer, code, left) in [("n\n", code::PARTIAL, 151), ("\n", code::PARTIAL, 151), ("y\n", code::OK, 1)] {
        let run = answered(answer).expect(code);
        let said = run.stdout_text();
        assert!(said.contains("delete 150 entries there all the same? [y/N]"), "{run}");
        assert_eq!(names_below(&target).len(), left, "{run}");
    }
}

#[test]
fn what_goes_at_the_end_leaves_times_and_modes_as_they_came() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (here, there) = (lab.data("home").join("tree"), lab.data("alpha").join("to"));
    plant::text(&here.join("closed/kept"), "words\n");
    plant::text(&there.join("closed/old/deep"), "words\n");
    plant::set_mtime(&here.join("closed"), 1_234_567_890, 0);
    fs::set_permissions(here.join("closed"), fs::Permissions::from_mode(0o555)).expect("own directory");
    lab.cp().args(["-a", "--delete"]).arg(contents_of(&here)).arg(at("alpha", &there)).run().expect(code::OK);
    assert_same(&here, &there, Facets::PLAIN);
}
