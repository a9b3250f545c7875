//! Bad disks, permissions and moments give clear messages and exit codes; other entries are copied, and no final name is
//! incomplete.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use haul_e2e::compare::{names_below, path_of, shown};
use haul_e2e::{Facets, Lab, Run, SlowCpu, SmallDisk, assert_same, at, code, contents_of, needs, plant, scratch};

/// Checks that files with final names are whole.
#[track_caller]
fn nothing_half_written(source: &Path, target: &Path) {
    for name in names_below(target) {
        let path = path_of(&name);
        if source.join(path).is_file() && target.join(path).is_file() {
            let (wanted, found) = (fs::read(source.join(path)), fs::read(target.join(path)));
            let equal = matches!((&wanted, &found), (Ok(wanted), Ok(found)) if wanted == found);
            assert!(equal, "{} is half-written under its final name", shown(&name));
        }
    }
}

pub fn as_nobody(program: &Path, dir: &Path) -> Run {
    Run::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--"])
        .arg(program)
        .env("HOME", dir.join("home"))
        .current_dir("/")
}

pub struct Nobody {
    dir: tempfile::TempDir,
    pub source: PathBuf,
    pub target: PathBuf,
}

impl Nobody {
    pub fn new() -> Self {
        let dir = scratch();
        let (source, target) = (dir.path().join("from"), dir.path().join("to"));
        fs::copy(haul_e2e::binary::find().expect("asked for with needs!"), dir.path().join("haul")).expect("space");
        for path in [&source, &target, &dir.path().join("home")] {
            fs::create_dir(path).expect("own directory");
        }
        for path in [&target, &dir.path().join("home")] {
            std::os::unix::fs::chown(path, Some(65534), Some(65534)).expect("root may");
        }
        Self { dir, source, target }
    }

    pub fn cp(&self, flags: &[&str]) -> Run {
        let program = as_nobody(&self.dir.path().join("haul"), self.dir.path()).args(["cp", "--json"]);
        program.args(flags).arg(contents_of(&self.source)).arg(&self.target)
    }
}

#[test]
fn a_full_disk_stops_the_copy_and_it_goes_on_when_there_is_room() {
    needs!(Namespaces, Haul);
    let disk = SmallDisk::mount(24);
    let lab = Lab::pair();
    let (source, there) = (lab.data("home").join("tree"), disk.path().join("tree"));
    plant::many(&source.join("a-small"), 100, 20_000, 1);
    plant::file(&source.join("b-large"), 60 << 20, 2);
    plant::many(&source.join("c-small"), 100, 20_000, 3);
    let cp = || lab.cp().arg(contents_of(&source)).arg(at("alpha", &there)).run();
    let run = cp().expect(code::SPACE).says(&["space"]);
    nothing_half_written(&source, &there);
    assert!(!there.join("b-large").exists(), "{run}");
    disk.resize(200);
    cp().expect(code::OK);
    assert_same(&source, &there, Facets::PLAIN);
}

#[test]
fn a_full_disk_here_stops_a_pull() {
    needs!(Namespaces, Haul);
    let disk = SmallDisk::mount(16);
    let lab = Lab::pair();
    let source = lab.data("alpha").join("large");
    plant::file(&source, 40 << 20, 1);
    let run = lab.cp().arg(at("alpha", &source)).arg(disk.path().join("large")).run();
    run.expect(code::SPACE).says(&["space"]);
    // Nothing arrived, so no name is left.
    let left: Vec<_> = fs::read_dir(disk.path()).expect("own disk").flatten().map(|entry| entry.file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_file_system_without_inodes_is_not_called_full_of_data() {
    needs!(Namespaces, Haul);
    let disk = SmallDisk::mount(24);
    disk.limit_inodes(20);
    let lab = Lab::pair();
    let source = lab.data("home").join("tree");
    plant::many(&source, 100, 100, 1);
    let run = lab
        .haul()
        .args(["cp", "-F"])
        .arg(lab.ssh_config())
        .arg(contents_of(&source))
        .arg(at("alpha", disk.path().join("to")))
        .run();
    let run = run.expect_one_of(&[code::SPACE, code::PARTIAL]).says(&["no inodes left", "df -i"]);
    let lines = run.stderr_text().lines().filter(|line| line.starts_with("failed: ")).count();
    assert!(lines <= 1, "a full disk is one line, however many files it refuses\n{run}");
}

#[test]
fn a_read_only_target_is_named() {
    needs!(Namespaces, Haul);
    let disk = SmallDisk::mount(8);
    fs::create_dir(disk.path().join("dir")).expect("own disk");
    disk.make_read_only();
    let lab = Lab::pair();
    let source = lab.data("home").join("tree");
    plant::text(&source.join("a"), "words\n");
    for there in [disk.path().join("dir"), disk.path().join("new")] {
        let run = lab.cp().arg(contents_of(&source)).arg(at("alpha", &there)).run();
        run.expect_one_of(&[code::FILE_IO, code::PARTIAL]).says(&["read-only"]);
    }
}

#[test]
fn a_target_without_permission_is_named() {
    needs!(Root, Haul, Tool("setpriv"));
    let nobody = Nobody::new();
    plant::text(&nobody.source.join("file"), "words\n");
    std::os::unix::fs::chown(&nobody.target, Some(0), Some(0)).expect("root may");
    nobody.cp(&[]).run().expect_one_of(&[code::FILE_IO, code::PARTIAL]).says(&["permission denied"]);
    assert_eq!(names_below(&nobody.target).len(), 0);
}

#[test]
fn what_cannot_be_read_is_a_line_and_the_rest_is_copied() {
    needs!(Root, Haul, Tool("setpriv"));
    let nobody = Nobody::new();
    for name in ["a", "closed-file", "closed-dir/inside", "z/last"] {
        plant::text(&nobody.source.join(name), name);
    }
    plant::set_mode(&nobody.source.join("closed-file"), 0o600);
    plant::set_mode(&nobody.source.join("closed-dir"), 0o700);
    let run = nobody.cp(&[]).run().expect(code::PARTIAL).says(&["permission denied"]);
    assert_eq!(run.count("failed"), 2, "{run}");
    for name in ["a", "z/last"] {
        assert_same(&nobody.source.join(name), &nobody.target.join(name), Facets::PLAIN);
    }
    assert!(!nobody.target.join("closed-file").exists());
    let failed: Vec<_> = run.events_named("failed").iter().map(|event| event["path"].clone()).collect();
    assert!(failed.contains(&"closed-file".into()) && failed.contains(&"closed-dir".into()), "{failed:?}");
}

#[test]
fn what_cannot_be_written_is_a_line_and_the_rest_is_copied() {
    needs!(Root, Haul, Tool("setpriv"));
    let nobody = Nobody::new();
    for name in ["a", "closed/inside", "z/last"] {
        plant::text(&nobody.source.join(name), name);
    }
    plant::set_mode(&nobody.source.join("closed"), 0o755);
    fs::create_dir(nobody.target.join("closed")).expect("root may");
    let run = nobody.cp(&[]).run().expect(code::PARTIAL).says(&["permission denied"]);
    assert!(!nobody.target.join("closed/inside").exists(), "{run}");
    for name in ["a", "z/last"] {
        assert_same(&nobody.source.join(name), &nobody.target.join(name), Facets::PLAIN);
    }
}

#[test]
fn a_source_that_is_not_there_is_named() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let here = lab.data("home");
    plant::text(&here.join("there"), "words\n");
    let (lacks, far_lacks) = (here.join("not-there"), at("alpha", lab.data("alpha").join("not-there")));
    for target in [here.clone().into_os_string(), at("alpha", lab.data("alpha"))] {
        let run = lab.cp().arg(&lacks).arg(target).run().expect(code::PARTIAL);
        run.says(&["cannot find", "not-there", "no such file"]);
    }
    let run = lab.cp().arg(&far_lacks).arg(&here).run().expect(code::PARTIAL);
    run.says(&["alpha: cannot find", "not-there", "no such file"]);
    let run =
        lab.cp().args(["not-there", "there"].map(|name| here.join(name))).arg(at("alpha", lab.data("alpha"))).run();
    run.expect(code::PARTIAL).says(&["not-there"]);
    assert_same(&here.join("there"), &lab.data("alpha").join("there"), Facets::PLAIN);
}

#[test]
fn files_that_vanish_after_they_were_listed_have_their_own_code() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (source, there) = (lab.data("home").join("tree"), lab.data("alpha").join("tree"));
    plant::file(&source.join("a-large"), 40 << 20, 1);
    plant::file(&source.join("b-vanishes"), 40 << 20, 2);
    plant::many(&source.join("c-stay"), 10, 1000, 3);
    let command = lab.cp().args(["--rate", "10MB", "--lanes", "1"]).arg(contents_of(&source)).arg(at("alpha", &there));
    let mut running = command.start();
    running.when("all is listed", |running| {
        haul_e2e::outcome::json_lines(&running.stdout_so_far()).iter().any(|event| event["complete"] == true)
    });
    fs::remove_file(source.join("b-vanishes")).expect("it is there");
    let run = running.wait().expect(code::VANISHED).says(&["b-vanishes"]);
    assert_eq!(run.count("vanished"), 1, "{run}");
    assert_same(&source, &there, Facets { directory_times: false, ..Facets::PLAIN });
}

#[test]
fn a_file_where_a_directory_must_go_is_not_destroyed() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (source, there) = (lab.data("home").join("tree"), lab.data("alpha").join("tree"));
    for name in ["a", "thing/inside", "z"] {
        plant::text(&source.join(name), name);
    }
    plant::text(&there.join("thing"), "precious\n");
    let run = lab
        .cp()
        .arg(contents_of(&source))
        .arg(at("alpha", &there))
        .run()
        .expect(code::PARTIAL)
        .says(&["cannot make directory thing: a file has that name"]);
    assert_eq!(fs::read(there.join("thing")).expect("untouched"), b"precious\n", "{run}");
    for name in ["a", "z"] {
        assert_same(&source.join(name), &there.join(name), Facets::PLAIN);
    }
}

#[test]
fn a_directory_where_a_file_must_go_is_not_destroyed() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (source, there) = (lab.data("home").join("tree"), lab.data("alpha").join("tree"));
    for name in ["a", "thing", "z"] {
        plant::text(&source.join(name), name);
    }
    plant::text(&there.join("thing/precious"), "precious\n");
    let run = lab
        .cp()
        .arg(contents_of(&source))
        .arg(at("alpha", &there))
        .run()
        .expect(code::PARTIAL)
        .says(&["cannot replace thing: it is a directory"]);
    assert!(there.join("thing/precious").exists(), "{run}");
    for name in ["a", "z"] {
        assert_same(&source.join(name), &there.join(name), Facets::PLAIN);
    }
}

#[test]
fn a_target_below_a_file_is_refused() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (file, there) = (lab.data("home").join("file"), lab.data("alpha").join("file"));
    plant::text(&file, "words\n");
    plant::text(&there, "in the way\n");
    let run = lab.cp().arg(&file).arg(at("alpha", there.join("below"))).run();
    run.expect_one_of(&[code::FILE_IO, code::PARTIAL]).says(&["not a directory"]);
    assert_eq!(fs::read(&there).expect("untouched"), b"in the way\n");
}

#[test]
fn few_file_descriptors_are_enough_or_are_named() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (source, program) = (lab.data("home").join("tree"), haul_e2e::binary::find().expect("asked for"));
    plant::many(&source, 300, 2000, 1);
    plant::file(&source.join("large"), 20 << 20, 2);
    let here = || {
        let script = format!("ulimit -n 64; exec \"$@\" -F {}", lab.ssh_config().display());
        lab.home().run("sh").args(["-c", &script, "sh"]).arg(&program).args(["cp", "--json"])
    };
    let limited = lab.data("alpha").join("limited");
    plant::text(&limited, &format!("#!/bin/sh\nulimit -n 64\nexec {} \"$@\"\n", program.display()));
    plant::set_mode(&limited, 0o755);
    let there = || lab.cp().arg("--haul-path").arg(&limited);
    for (name, cp) in [("here", &here as &dyn Fn() -> Run), ("there", &there)] {
        let (pushed, pulled) = (lab.data("alpha").join(name), lab.data("home").join(name));
        enough_or_named(cp().arg(contents_of(&source)).arg(at("alpha", &pushed)), &source, &pushed);
        enough_or_named(cp().arg(at("alpha", contents_of(&source))).arg(&pulled), &source, &pulled);
    }
}

#[track_caller]
fn enough_or_named(run: Run, source: &Path, target: &Path) {
    let run = run.run();
    if run.code() == code::OK {
        assert_same(source, target, Facets::PLAIN);
    } else {
        run.says(&["open files"]);
        nothing_half_written(source, target);
    }
}

#[test]
fn a_planted_link_under_a_temporary_name_is_not_followed() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (source, there) = (lab.data("home").join("large"), lab.data("alpha").join("to/large"));
    plant::file(&source, 40 << 20, 1);
    let mut running = lab.cp().args(["--rate", "20MB"]).arg(&source).arg(at("alpha", &there)).start();
    running.when_moved(8 << 20);
    running.kill();
    lab.alpha().expect_no_haul_left(std::time::Duration::from_secs(20));
    let (dir, victim) = (lab.data("alpha").join("to"), lab.data("alpha").join("victim"));
    plant::text(&victim, "precious\n");
    let unfinished = names_below(&dir);
    assert!(unfinished.len() >= 2, "data and a journal are left: {unfinished:?}");
    for name in unfinished {
        let path = dir.join(path_of(&name));
        fs::remove_file(&path).expect("own directory");
        std::os::unix::fs::symlink(&victim, &path).expect("own directory");
    }
    lab.cp().arg(&source).arg(at("alpha", &there)).run().expect_one_of(&[code::OK, code::PARTIAL, code::FILE_IO]);
    assert_eq!(fs::read(&victim).expect("untouched"), b"precious\n");
}

#[test]
fn hashing_that_takes_longer_than_the_time_limit_is_waited_for() {
    needs!(Haul, Slow);
    const LIMIT: Duration = Duration::from_secs(3);
    let dir = haul_e2e::scratch();
    let (source, target) = (dir.path().join("from"), dir.path().join("to"));
    plant::file(&source.join("large"), 500 << 20, 1);
    let program = haul_e2e::binary::find().expect("asked for with needs!");
    let copy = || Run::new(&program).args(["cp", "--json"]).arg(contents_of(&source)).arg(&target);
    copy().run().expect(code::OK);
    let slow = SlowCpu::of(50);
    let command = format!(
        "{}; exec {} cp --json --checksum --timeout {} {}/ {}",
        slow.join(),
        program.display(),
        LIMIT.as_secs(),
        source.display(),
        target.display()
    );
    let run = Run::new("sh").args(["-c", &command]).run().expect(code::OK);
    assert_eq!((run.count("bytes_moved"), run.count("files_kept")), (0, 1), "{run}");
    // Both ends hash the file in turn.
    assert!(run.elapsed > 2 * LIMIT, "{:?} are too little to show anything", run.elapsed);
}

#[test]
fn a_directory_that_is_replaced_while_files_arrive_in_it_has_failed() {
    needs!(Haul);
    const FILES: u64 = 400;
    let count = |path: &Path| fs::read_dir(path).map_or(0, Iterator::count) as u64;
    for flags in [&[][..], &["--delete"], &["--remove-source-files"]] {
        let dir = scratch();
        let (source, target, away) = (dir.path().join("from/sub"), dir.path().join("to"), dir.path().join("away"));
        fs::create_dir_all(&source).expect("own directory");
        for number in 0..FILES {
            plant::file(&source.join(format!("f{number}")), 20_000, number);
        }
        let program = haul_e2e::binary::find().expect("asked for with needs!");
        let copy = Run::new(program).args(["cp", "-r", "--rate", "4MB"]).args(flags);
        let mut running = copy.arg(contents_of(&dir.path().join("from"))).arg(&target).start();
        running.when("some files have arrived", |_| count(&target.join("sub")) > 60);
        fs::rename(target.join("sub"), &away).expect("it was made");
        plant::text(&target.join("sub/precious"), "of somebody else\n");
        let run = running.wait().expect(code::PARTIAL).says(&["another directory stands there"]);
        assert_eq!(fs::read_to_string(target.join("sub/precious")).expect("it stays"), "of somebody else\n", "{run}");
        for number in 0..FILES {
            let name = format!("f{number}");
            let is_somewhere = [&source, &away, &target.join("sub")].iter().any(|place| place.join(&name).exists());
            assert!(is_somewhere, "{name} is lost\n{run}");
        }
        if !flags.contains(&"--remove-source-files") {
            continue;
        }
        // A file that is no longer in its place at the target was not taken from the source.
        assert!(count(&source) > 0, "{run}");
    }
}
