//! Memory stays bounded on both sides, for any number and size of files.
//!
//! `HAUL_E2E_FILES=1000000 HAUL_E2E_SPARSE_GB=100` runs the promise in full.

use std::fs;

use haul_e2e::memory::PeakWatch;
use haul_e2e::{Facets, Lab, Outcome, Run, SmallDisk, assert_same, at, code, contents_of, needs, plant};

/// The promise for either side.
const LIMIT_BYTES: u64 = 256 << 20;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[track_caller]
fn within_limit(lab: &Lab, label: &str, command: Run) -> Outcome {
    let (here, there) = (PeakWatch::of(lab.home()), PeakWatch::of(lab.alpha()));
    let run = command.limit(std::time::Duration::from_secs(600)).run().expect(code::OK);
    let (here, there) = (here.largest().unwrap_or(0), there.largest().unwrap_or(0));
    eprintln!("{label}: peak memory {} MiB here, {} MiB there, {:?}", here >> 20, there >> 20, run.elapsed);
    assert!(here > 0 && there > 0, "both sides were seen\n{run}");
    assert!(here < LIMIT_BYTES && there < LIMIT_BYTES, "{label}: {here} bytes here, {there} bytes there\n{run}");
    run
}

#[test]
fn a_million_files_need_no_more_than_a_thousand() {
    needs!(Namespaces, Haul);
    let files = number("HAUL_E2E_FILES", 100_000);
    let disk = SmallDisk::mount(20_000);
    let lab = Lab::pair();
    let (source, there) = (disk.path().join("source"), disk.path().join("target"));
    // Each file with content takes a page: three trees of a million would overload the machine, not haul.
    plant::many(&source, files, if files > 200_000 { 0 } else { 10 }, 1);
    let command = || lab.cp().arg(contents_of(&source)).arg(at("alpha", &there));
    let run = within_limit(&lab, "first copy", command());
    assert_eq!(run.count("files_moved"), files, "{run}");
    let run = within_limit(&lab, "copied again", command());
    assert_eq!((run.count("files_moved"), run.count("files_kept")), (0, files), "{run}");
    let run = within_limit(&lab, "again, with --delete", command().arg("--delete"));
    assert_eq!(run.count("deleted"), 0, "{run}");
    let back = disk.path().join("back");
    within_limit(&lab, "pulled", lab.cp().arg(at("alpha", contents_of(&there))).arg(&back));
    assert_same(&source, &back, Facets::PLAIN);
}

#[test]
fn one_huge_directory_is_no_harder() {
    needs!(Namespaces, Haul);
    let files = number("HAUL_E2E_FILES", 100_000) / 2;
    let disk = SmallDisk::mount(20_000);
    let lab = Lab::pair();
    let (source, there) = (disk.path().join("source"), disk.path().join("target"));
    fs::create_dir(&source).expect("own disk");
    for number in 0..files {
        fs::File::create(source.join(format!("an-empty-file-with-quite-a-long-name-{number:010}"))).expect("own disk");
    }
    within_limit(&lab, "one directory", lab.cp().arg("--delete").arg(contents_of(&source)).arg(at("alpha", &there)));
    assert_same(&source, &there, Facets::CONTENTS);
}

#[test]
fn a_huge_sparse_file_is_no_harder() {
    needs!(Namespaces, Haul);
    let size = number("HAUL_E2E_SPARSE_GB", 10) * 1_000_000_000;
    let lab = Lab::pair();
    let (source, there) = (lab.data("home").join("sparse"), lab.data("alpha").join("sparse"));
    plant::sparse(&source, size, &[(0, 1000), (size / 2, 1 << 20), (size - 1000, 1000)], 1);
    let run = within_limit(&lab, "sparse file", lab.cp().arg(&source).arg(at("alpha", &there)));
    assert!(run.count("bytes_moved") < 32 << 20, "{run}");
    assert_same(&source, &there, Facets { allocation: true, ..Facets::PLAIN });
}

#[test]
fn many_lanes_stay_within_the_limit() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (source, there) = (lab.data("home").join("large"), lab.data("alpha").join("large"));
    plant::file(&source, 300 << 20, 1);
    within_limit(&lab, "64 lanes", lab.cp().args(["--lanes", "64"]).arg(&source).arg(at("alpha", &there)));
    assert_same(&source, &there, Facets::PLAIN);
}
