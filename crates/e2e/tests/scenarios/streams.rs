//! Streams without length (`haul cp -`), hash lists of the far side, dead copies' remains.

use std::fs;
use std::path::Path;
use std::time::Duration;

use haul_e2e::compare::names_below;
use haul_e2e::{Lab, Run, at, code, eventually, needs, plant};

use crate::daemon::Daemon;

fn over_ssh(lab: &Lab, command: &str) -> Run {
    lab.haul().args([command, "-F"]).arg(lab.ssh_config())
}

fn bytes_of(path: &Path) -> Vec<u8> {
    fs::read(path).expect("it is there")
}

#[test]
fn a_stream_becomes_a_file_and_a_file_a_stream() {
    needs!(Namespaces, Haul);
    let daemon = Daemon::start("rw");
    let file = daemon.lab.data("home").join("file");
    let there = daemon.lab.data("alpha").join("by-ssh");
    // Nothing, less than a page, whole pages, and some more.
    for (size, seed) in [(0, 1), (1000, 2), (2 << 16, 3), (5_000_001, 4)] {
        plant::file(&file, size, seed);
        let bytes = bytes_of(&file);
        over_ssh(&daemon.lab, "cp").arg("-").arg(at("alpha", &there)).input(bytes.clone()).run().expect(code::OK);
        daemon.haul_in_words("cp").args(["-", &daemon.url("in")]).input(bytes.clone()).run().expect(code::OK);
        daemon
            .lab
            .haul()
            .args(["cp", "-"])
            .arg(file.with_extension("here"))
            .input(bytes.clone())
            .run()
            .expect(code::OK);
        for copy in [&there, &daemon.offered.join("in"), &file.with_extension("here")] {
            assert!(bytes_of(copy) == bytes, "{size} {}", copy.display());
        }
        let run = over_ssh(&daemon.lab, "cp").arg(at("alpha", &there)).arg("-").run().expect(code::OK);
        assert!(run.says(&["verified", "BLAKE3"]).stdout == bytes, "{size}");
        let run = daemon.haul_in_words("cp").args([&daemon.url("in"), "-"]).run().expect(code::OK);
        assert!(run.stdout == bytes, "{size}");
    }
}

#[test]
fn a_stream_that_has_no_place_to_go_is_refused() {
    needs!(Namespaces, Haul);
    let daemon = Daemon::start("ro");
    plant::text(&daemon.offered.join("dir/file"), "words");
    let stream = |args: &[&str]| daemon.haul_in_words("cp").args(args).input("words").run();
    stream(&["-", &daemon.url("new")]).expect(code::AUTHENTICATION).says(&["only read"]);
    stream(&["-", "-"]).expect(code::USAGE);
    stream(&["-", "file", "to"]).expect(code::USAGE);
    stream(&["-n", "-", "to"]).expect(code::USAGE).says(&["--dry-run"]);
    stream(&[&daemon.url("missing"), "-"]).expect(code::PARTIAL).says(&["No such file"]);
    stream(&[&daemon.url("dir"), "-"]).expect(code::PARTIAL);
    let dir = daemon.lab.data("home").join("dir");
    fs::create_dir(&dir).expect("own directory");
    stream(&["-", dir.to_str().expect("text")]).expect(code::USAGE).says(&["is a directory", "name the file"]);
    assert_eq!(names_below(&daemon.offered), [&b"dir"[..], b"dir/file"]);
}

#[test]
fn a_stream_that_breaks_leaves_no_file() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (there, haul) = (lab.data("alpha"), haul_e2e::binary::find().expect("asked for"));
    // The writer never comes to its end.
    let endless = || {
        let script = "exec \"$0\" cp --no-keep-login -F \"$1\" - \"$2\" < <(head -c 9000000 /dev/zero; sleep 100)";
        let run = lab.home().run("bash").args(["-c", script]).arg(&haul).arg(lab.ssh_config());
        run.arg(at("alpha", there.join("file"))).start()
    };
    let has_draft = || !names_below(&there).is_empty();
    let near = endless();
    eventually("there is a draft", Duration::from_secs(30), has_draft);
    near.kill();
    eventually("the draft is removed", Duration::from_secs(30), || !has_draft());
    lab.alpha().expect_no_haul_left(Duration::from_secs(30));

    let near = endless();
    eventually("there is a draft", Duration::from_secs(30), has_draft);
    lab.alpha().kill_haul();
    near.wait().expect_one_of(&[code::NETWORK, code::SSH]);
    assert!(!there.join("file").exists());
    over_ssh(&lab, "clean").arg("-f").arg(at("alpha", &there)).run().expect(code::OK).says(&["removed"]);
    assert!(!has_draft());

    // The reader has enough.
    plant::file(&there.join("file"), 9 << 20, 1);
    let script = "\"$0\" cp --no-keep-login -F \"$1\" \"$2\" - | head -c 1000 > /dev/null; exit ${PIPESTATUS[0]}";
    let run = lab.home().run("bash").args(["-c", script]).arg(&haul).arg(lab.ssh_config());
    let run = run.arg(at("alpha", there.join("file"))).run();
    run.expect(code::FILE_IO).says(&["standard output was closed"]);
    lab.alpha().expect_no_haul_left(Duration::from_secs(30));
}

#[test]
fn the_far_side_hashes_and_the_neighbours_read_the_list() {
    needs!(Namespaces, Haul);
    let daemon = Daemon::start("ro");
    let tree = daemon.offered.join("tree");
    plant::mixed(&tree, 1);
    plant::odd_names(&tree.join("odd"), 2);
    for (name, program) in [("sha256", "sha256sum"), ("sha512", "sha512sum"), ("md5", "md5sum")] {
        let run = daemon.haul_in_words("hash").args(["-a", name]).arg(daemon.url("tree")).run().expect(code::OK);
        let checked = Run::new(program).args(["-c", "--strict", "--quiet"]).current_dir(&daemon.offered);
        checked.input(run.stdout.clone()).run().expect(code::OK);
        let files = Run::new("find").arg(&tree).args(["-type", "f", "-printf", "x"]).run().stdout.len();
        assert_eq!(run.stdout.iter().filter(|byte| **byte == b'\n').count(), files, "{name}");
    }
    let by_path = over_ssh(&daemon.lab, "hash").arg(at("alpha", &tree)).run().expect(code::OK);
    let url = daemon.haul_in_words("hash").arg(daemon.url("tree")).run().expect(code::OK);
    let hashes = |text: String| -> Vec<String> { text.lines().map(|line| line.chars().take(65).collect()).collect() };
    assert_eq!(hashes(by_path.stdout_text()), hashes(url.stdout_text()));
    daemon.haul_in_words("hash").arg(daemon.url("nothing")).run().expect(1).says(&["No such file"]);
}

#[test]
fn what_a_dead_copy_left_is_shown_and_removed_and_that_of_a_living_one_is_not() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (source, there) = (lab.data("home").join("large"), lab.data("alpha").join("to"));
    plant::file(&source, 60 << 20, 1);
    let clean = |flags: &[&str]| over_ssh(&lab, "clean").args(flags).arg(at("alpha", &there)).run().expect(code::OK);
    let mut living = lab.cp().args(["--rate", "20MB"]).arg(&source).arg(at("alpha", there.join("large"))).start();
    living.when_moved(1 << 20);
    assert_eq!(clean(&["-f"]).stdout_text(), "", "it lives");
    living.kill();
    lab.alpha().kill_haul();
    lab.alpha().expect_no_haul_left(Duration::from_secs(30));
    let left = names_below(&there);
    assert!(!left.is_empty() && left.iter().all(|name| name.starts_with(b".haul-")), "{left:?}");
    assert_eq!(clean(&[]).stdout_text().lines().count(), left.len());
    assert_eq!(names_below(&there), left, "it was only shown");
    clean(&["--delete"]);
    assert_eq!(names_below(&there), Vec::<Vec<u8>>::new());
}
