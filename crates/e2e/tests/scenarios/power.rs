//! Power failures on a real file system, right after a copy and at any moment before.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use haul_e2e::compare::{names_below, path_of};
use haul_e2e::{Facets, MortalDisk, Outcome, Run, assert_same, code, contents_of, differences, needs, plant, scratch};
use rustix::process::Signal;

fn copy(source: &Path, target: &Path, flags: &[&str]) -> Run {
    let program = haul_e2e::binary::find().expect("asked for with needs!");
    Run::new(program).args(["cp", "--json", "-H"]).args(flags).arg(contents_of(source)).arg(target)
}

/// Small and large files, links, and a name with older contents at the target.
fn plant_source(source: &Path) {
    plant::mixed(&source.join("mixed"), 1);
    plant::many(&source.join("many"), 300, 3000, 2);
    plant::file(&source.join("large"), 40 << 20, 3);
    plant::hard_links(&source.join("linked"), 4);
    plant::file(&source.join("replaced"), 3 << 20, 5);
    plant::date(source, 6);
}

fn plant_target(target: &Path) {
    plant::file(&target.join("replaced"), 1 << 20, 7);
    plant::file(&target.join("deleted"), 1000, 8);
    Run::new("sync").arg("-f").arg(target).run().expect(0);
}

/// Chunked files go through the page cache, or from 256 MiB on past it.
const ROUTES: [&str; 2] = ["copy", "direct"];

fn goes_past_cache(run: &Outcome) -> bool {
    let chose = run.events_named("chose");
    chose.iter().any(|event| event["what"] == "write route" && event["choice"] == "direct")
}

const LINKED: Facets = Facets { hard_links: true, link_times: true, ..Facets::PLAIN };

#[test]
fn after_an_exit_with_0_the_power_may_go_on_a_real_file_system() {
    needs!(Haul, LoopDevices);
    let dir = scratch();
    let source = dir.path().join("source");
    plant_source(&source);
    for route in ROUTES {
        let disk = MortalDisk::mount(256);
        let target = disk.path().join("to");
        plant_target(&target);
        let run = copy(&source, &target, &["--delete", "--write-route", route]).run().expect(code::OK);
        assert_eq!(goes_past_cache(&run), route == "direct", "{run}");
        let later = disk.after_a_power_cut();
        assert_same(&source, &later.path().join("to"), LINKED);

        // Another run has nothing left to flush.
        copy(&source, &later.path().join("to"), &["--delete"]).run().expect(code::OK);
    }

    // Without a flush the disk forgets, so this test sees lost data.
    let disk = MortalDisk::mount(256);
    let careless = disk.path().join("careless");
    copy(&source, &careless, &["--no-flush"]).run().expect(code::OK);
    assert_same(&source, &careless, Facets::PLAIN);
    let later = disk.after_a_power_cut();
    assert!(!differences(&source, &later.path().join("careless"), LINKED).is_empty(), "this disk forgets nothing");
}

#[test]
fn the_power_may_go_at_any_moment_and_the_next_run_goes_on() {
    needs!(Haul, LoopDevices);
    let dir = scratch();
    let source = dir.path().join("source");
    plant_source(&source);
    for route in ROUTES {
        check_moments(&source, route);
    }
}

#[track_caller]
fn check_moments(source: &Path, route: &str) {
    let mut kept = 0;
    for moved in [1, 9, 18, 27, 36, 43].map(|mib: u64| mib << 20) {
        let disk = MortalDisk::mount(256);
        let target = disk.path().join("to");
        plant_target(&target);
        let before = fs::read(target.join("replaced")).expect("it was planted");
        let mut running = copy(source, &target, &["--rate", "30MB", "--write-route", route]).start();
        running.when_moved(moved);
        running.signal(Signal::STOP);
        let later = disk.after_a_power_cut();
        running.kill();
        let found = later.path().join("to");
        check_names(source, &found, &before);
        let run = copy(source, &found, &["--delete"]).run().expect(code::OK);
        assert_same(source, &found, LINKED);
        kept += run.count("bytes_kept");
    }
    assert!(kept > 20 << 20, "{route}: only {kept} bytes were ever found again");
}

/// Checks that each final name is whole, or has its old contents.
fn check_names(source: &Path, found: &Path, before: &[u8]) {
    for name in names_below(found) {
        let name: PathBuf = path_of(&name).to_owned();
        let is_ours = name.file_name().is_some_and(|name| name.as_bytes().starts_with(b".haul-"));
        let there = found.join(&name);
        let metadata = fs::symlink_metadata(&there).expect("it was listed");
        if is_ours || !metadata.is_file() || name == Path::new("deleted") {
            continue;
        }
        let contents = fs::read(&there).expect("it was listed");
        let is_old = name == Path::new("replaced") && contents == before;
        assert!(is_old || contents == fs::read(source.join(&name)).expect("it is copied"), "{}", name.display());
    }
}
