//! Files that differ at the target: only changes are sent, each way, and never a wrong file.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use haul_e2e::{Facets, Lab, Outcome, assert_same, at, code, needs, plant};

use crate::daemon::Daemon;

const SIZE: u64 = 64 << 20;

/// Cost of a small change beside its bytes: two cut pieces, and small messages.
const AROUND_A_CHANGE: u64 = 1 << 20;

#[track_caller]
fn change(file: &Path) {
    let open = fs::File::options().write(true).open(file).expect("own file");
    open.write_all_at(&[7; 100_000], SIZE / 2).expect("space");
    plant::set_mtime(file, 1_000_000_000, 0);
}

#[track_caller]
fn sent_little(run: &Outcome) {
    let (moved, matched) = (run.count("bytes_moved"), run.count("bytes_matched"));
    assert!(moved <= AROUND_A_CHANGE && moved + matched == SIZE, "{moved} {matched}: {run}");
    let told = format!(r#""bytes_matched":{matched},"change":"data""#);
    assert!(run.stdout_text().contains(&told), "{run}");
}

#[test]
fn over_ssh_only_what_changed_is_sent_both_ways_and_the_whole_file_when_asked_for() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (here, there) = (lab.data("home").join("file"), lab.data("alpha").join("file"));
    plant::file(&here, SIZE, 1);
    lab.cp().arg(&here).arg(at("alpha", &there)).run().expect(code::OK);
    change(&here);
    sent_little(&lab.cp().arg(&here).arg(at("alpha", &there)).run().expect(code::OK));
    assert_same(&here, &there, Facets::PLAIN);

    change(&there);
    plant::set_mtime(&there, 1_100_000_000, 0);
    sent_little(&lab.cp().arg(at("alpha", &there)).arg(&here).run().expect(code::OK));
    assert_same(&here, &there, Facets::PLAIN);

    plant::set_mtime(&here, 1_200_000_000, 0);
    let run = lab.cp().arg("-W").arg(&here).arg(at("alpha", &there)).run().expect(code::OK);
    assert_eq!((run.count("bytes_moved"), run.count("bytes_matched")), (SIZE, 0), "{run}");
}

/// rsync's case: one byte in front.
#[test]
fn what_moved_inside_a_file_is_found_as_well() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (here, there) = (lab.data("home").join("file"), lab.data("alpha").join("file"));
    plant::file(&here, SIZE - 1, 1);
    let before = fs::read(&here).expect("own file");
    fs::write(&there, &before).expect("space");
    fs::write(&here, [b"x", &before[..]].concat()).expect("space");
    sent_little(&lab.cp().arg(&here).arg(at("alpha", &there)).run().expect(code::OK));
    assert_same(&here, &there, Facets::PLAIN);
}

#[test]
fn on_one_host_files_are_sent_whole_unless_the_look_is_asked_for() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (one, other) = (lab.data("home").join("one"), lab.data("home").join("other"));
    plant::file(&one, SIZE, 1);
    lab.cp().arg(&one).arg(&other).run().expect(code::OK);
    change(&one);
    let run = lab.cp().arg(&one).arg(&other).run().expect(code::OK);
    assert_eq!(run.count("bytes_moved"), SIZE, "{run}");
    plant::set_mtime(&one, 1_300_000_000, 0);
    let run = lab.cp().arg("--no-whole-file").arg(&one).arg(&other).run().expect(code::OK);
    assert_eq!((run.count("bytes_moved"), run.count("bytes_matched")), (0, SIZE), "{run}");
    assert_same(&one, &other, Facets::PLAIN);
}

#[test]
fn a_daemon_is_sent_only_what_changed() {
    needs!(Namespaces, Haul);
    let daemon = Daemon::start("rw");
    let (here, there) = (daemon.lab.data("home").join("file"), daemon.offered.join("file"));
    plant::file(&here, SIZE, 1);
    fs::copy(&here, &there).expect("space");
    change(&here);
    sent_little(&daemon.cp().arg(&here).arg(daemon.url("file")).run().expect(code::OK));
    assert_same(&here, &there, Facets::PLAIN);
}

#[test]
fn a_side_that_is_killed_in_the_middle_leaves_the_old_file_and_the_same_command_goes_on() {
    needs!(Namespaces, Haul);
    for kill_there in [false, true] {
        let lab = Lab::pair();
        let (here, there) = (lab.data("home").join("file"), lab.data("alpha").join("file"));
        // The second half is new, so the copy lasts at this rate.
        plant::file(&here, SIZE, 1);
        fs::copy(&here, &there).expect("space");
        let old = fs::read(&there).expect("own file");
        let mut new = old.clone();
        plant::file(&here, SIZE / 2, 2);
        new.truncate((SIZE / 2) as usize);
        new.extend_from_slice(&fs::read(&here).expect("own file"));
        fs::write(&here, &new).expect("space");
        plant::set_mtime(&here, 1_000_000_000, 0);
        let cp = || lab.cp().args(["--retry", "0"]).arg(&here).arg(at("alpha", &there));
        let mut running = cp().args(["--rate", "8MB"]).start();
        running.when_moved(8 << 20);
        if kill_there {
            lab.alpha().kill_haul();
            running.wait().expect_one_of(&[code::NETWORK, code::SSH]);
        } else {
            running.kill();
        }
        assert!(fs::read(&there).expect("it stays") == old, "the old file stays until the new one is whole");
        let run = cp().run().expect(code::OK);
        assert!(run.count("bytes_moved") <= SIZE / 2 + AROUND_A_CHANGE, "{run}");
        assert_same(&here, &there, Facets::PLAIN);
        lab.alpha().expect_no_haul_left(std::time::Duration::from_secs(30));
    }
}
