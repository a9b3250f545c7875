//! Tests jobs with several sources that meet at the target, and `--delete` with them.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use haul_job::{Endpoint, Event, Fault, Here, Job, Place, Report, Subject};

use crate::scenarios::{Bench, Witness, files, run_here, run_watched, warnings};
use haul_copy::receiver::CHECKPOINT_BYTES;
use haul_kept::surroundings::Surroundings;
use haul_transfer::coordinate;

fn job(bench: &Bench, sources: &[&str]) -> Job {
    let endpoint = |source: &&str| {
        let path = [bench.root().as_os_str().as_encoded_bytes(), b"/", source.as_bytes()].concat();
        Endpoint { place: Place::Here(Here::Disk), path }
    };
    Job { sources: sources.iter().map(endpoint).collect(), ..bench.job() }
}

fn put(bench: &Bench, path: &str, content: &str) {
    let path = bench.root().join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

fn names(root: &Path) -> Vec<String> {
    files(root).into_iter().map(|(path, _)| path.display().to_string()).collect()
}

fn delete(bench: &Bench, sources: &[&str], dry_run: bool) -> (Report, Vec<String>) {
    let mut job = job(bench, sources);
    (job.selection.delete, job.selection.dry_run) = (true, dry_run);
    let witness = Arc::<Witness>::default();
    let report = run_watched(&job, 2, CHECKPOINT_BYTES, &witness).unwrap();
    (report, warnings(&witness.events()).into_iter().map(str::to_owned).collect())
}

fn two_and_extras() -> Bench {
    let bench = Bench::new();
    for path in ["a/one", "a/d/one", "b/two", "b/d/two", "b/only/f", "to/extra", "to/d/extra", "to/only/extra"] {
        put(&bench, path, path);
    }
    put(&bench, "to/two", "b/two");
    put(&bench, "to/gone/f", "");
    bench
}

const TOGETHER: [&str; 5] = ["d/one", "d/two", "one", "only/f", "two"];

#[test]
fn what_none_of_several_sources_has_is_deleted_also_in_directories_that_all_have() {
    let bench = two_and_extras();
    let before = names(&bench.to());
    let (report, warnings) = delete(&bench, &["a/", "b/"], true);
    assert_eq!((report.deleted, report.failed, names(&bench.to())), (5, 0, before));
    assert_eq!(warnings, [""; 0]);
    let (report, warnings) = delete(&bench, &["a/", "b/"], false);
    assert_eq!((report.deleted, report.failed), (5, 0), "{:?}", report.failures);
    assert_eq!((names(&bench.to()), warnings), (TOGETHER.map(str::to_owned).to_vec(), Vec::new()));
    let (report, _) = delete(&bench, &["a/", "b/"], false);
    assert_eq!((report.deleted, report.files_moved), (0, 0));
}

#[test]
fn directories_of_one_name_and_single_files_are_one_listing_too() {
    let bench = two_and_extras();
    delete(&bench, &["a/d", "b/d"], false);
    assert_eq!(names(&bench.to().join("d")), ["one", "two"]);
    assert!(bench.to().join("extra").exists(), "what lies beside is not judged");
    delete(&bench, &["a/", "b/two"], false);
    assert_eq!(names(&bench.to()), ["d/one", "one", "two"]);
}

#[test]
fn nothing_is_deleted_where_a_source_is_missing_and_it_is_said_once() {
    for (sources, dry_run) in [(["a/", "b/"], false), (["a/", "b/"], true), (["b/", "a/"], false), (["a/", "b"], false)]
    {
        let bench = two_and_extras();
        put(&bench, "to/one/of-b", "");
        std::fs::remove_dir_all(bench.root().join("b")).unwrap();
        let before = names(&bench.to());
        let (report, warnings) = delete(&bench, &sources, dry_run);
        assert_eq!(report.deleted, 0, "{sources:?}");
        assert!(before.iter().all(|name| bench.to().join(name).exists()), "{:?}", names(&bench.to()));
        let why = |(_, why): &(Vec<u8>, String)| why.contains("cannot find") && why.contains("/b");
        assert!(report.failures.iter().any(why), "{:?}", report.failures);
        let [warning] = &warnings[..] else { panic!("{warnings:?}") };
        assert!(warning.starts_with("nothing is deleted: cannot find ") && warning.contains("/b"), "{warning}");
        assert_eq!(bench.to().join("d/one").exists(), !dry_run, "what is there is copied");
    }
}

#[test]
fn the_first_source_of_a_name_counts_in_every_run_and_the_next_run_moves_nothing() {
    let bench = Bench::new();
    for number in 0..200 {
        let size = if number % 50 == 0 { 3_000_000 } else { 100 };
        for (source, byte) in [("a", "a"), ("b", "b")] {
            put(&bench, &format!("{source}/d{}/f{number}", number % 3), &byte.repeat(size));
        }
    }
    for sources in [["a/", "b/"], ["b/", "a/"]] {
        let _ = std::fs::remove_dir_all(bench.to());
        let witness = Arc::<Witness>::default();
        let report = run_watched(&job(&bench, &sources), 4, CHECKPOINT_BYTES, &witness).unwrap();
        assert_eq!((report.files_moved, report.failed, report.skipped), (200, 0, 0), "{:?}", report.failures);
        let told = |event: &Event| {
            matches!(event, Event::Chose { what: Subject::Sources, reason, .. }
                if reason.starts_with("200 entries have their names from an earlier source (") && reason.ends_with(", ...)"))
        };
        assert!(witness.events().iter().any(told));
        assert_eq!(files(&bench.to()), files(&bench.root().join(&sources[0][..1])));
        let again = run_here(&job(&bench, &sources), 4, CHECKPOINT_BYTES).unwrap();
        assert_eq!((again.files_moved, again.files_kept, again.failed), (0, 200, 0));
    }
}

#[test]
fn a_source_that_is_named_twice_or_lies_in_another_is_copied_once() {
    let bench = Bench::new();
    for path in ["a/f", "a/s/g", "a/s/t/h"] {
        put(&bench, path, &path.repeat(100_000));
    }
    for sources in [&["a/", "a/"][..], &["a/s", "a/"], &["a/", "a/s"]] {
        let _ = std::fs::remove_dir_all(bench.to());
        for moved in [3, 0] {
            let report = run_here(&job(&bench, sources), 4, CHECKPOINT_BYTES).unwrap();
            assert_eq!((report.files_moved, report.failed), (moved, 0), "{sources:?}: {:?}", report.failures);
        }
        assert_eq!(files(&bench.to()), files(&bench.root().join("a")), "{sources:?}");
    }
}

#[test]
fn two_different_files_of_one_name_are_refused_and_a_directory_comes_before_a_file() {
    let bench = Bench::new();
    for path in ["a/f", "b/f", "a/x", "b/x/g"] {
        put(&bench, path, path);
    }
    let report = run_here(&job(&bench, &["a/f", "b/f"]), 1, CHECKPOINT_BYTES).unwrap();
    let [(_, why)] = &report.failures[..] else { panic!("{:?}", report.failures) };
    assert!(why.contains("another source has the same name"), "{why}");
    let report = run_here(&job(&bench, &["a/", "b/"]), 1, CHECKPOINT_BYTES).unwrap();
    assert_eq!((report.failed, report.skipped), (0, 1), "{report:?}");
    assert_eq!(names(&bench.to()), ["f", "x/g"]);
}

#[test]
fn a_link_is_copied_into_the_directory_to_which_it_leads_and_not_onto_its_file() {
    let bench = Bench::new();
    put(&bench, "d/f", "precious");
    symlink("d", bench.root().join("to-d")).unwrap();
    symlink("d/f", bench.root().join("to-f")).unwrap();
    let copy = |source: &str, target: &str, follow_links: bool| {
        let mut job = job(&bench, &[source]);
        job.target.path = bench.root().join(target).into_os_string().into_encoded_bytes();
        job.selection.follow_links = follow_links;
        coordinate::run(&job, &Surroundings::default(), Arc::<Witness>::default())
    };
    assert_eq!(copy("to-d", "d", false).unwrap().failed, 0);
    assert_eq!(std::fs::read_link(bench.root().join("d/to-d")).unwrap(), Path::new("d"));
    std::fs::remove_file(bench.root().join("d/to-d")).unwrap();
    for (source, target, follow_links) in [("to-d", "d", true), ("to-d/", "d", false), ("to-f", "d/f", false)] {
        assert_eq!(copy(source, target, follow_links).unwrap_err().fault, Fault::Usage, "{source} {target}");
    }
    assert_eq!(copy("to-f", "d/f", true).unwrap().files_kept, 1);
    assert_eq!(std::fs::read(bench.root().join("d/f")).unwrap(), b"precious");
}
