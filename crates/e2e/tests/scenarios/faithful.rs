//! The target equals the source: contents, names, links, modes, times, holes, attributes; and the proof.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use haul_e2e::compare::names_below;
use haul_e2e::{Facets, Lab, assert_same, at, code, contents_of, needs, plant};
use rustix::fs::{CWD, FileType, Mode, OFlags};

/// Owners can still update read-only trees, such as archives and package caches.
#[test]
fn an_ordinary_user_updates_directories_that_forbid_it() {
    needs!(Root, Haul, Tool("setpriv"));
    let nobody = crate::faults::Nobody::new();
    let inside = |tree: &Path, name: &str| tree.join("closed/deep").join(name);
    for name in ["same", "changed", "new"] {
        plant::text(&inside(&nobody.source, name), name);
    }
    let close = |tree: &Path| {
        for (path, mode) in [("closed/deep", 0o555), ("closed", 0o500), ("", 0o555)] {
            plant::set_mode(&tree.join(path), mode);
        }
    };
    plant::set_mode(&nobody.source.join("closed"), 0o555);
    nobody.cp(&[]).run().expect(code::OK);
    fs::write(inside(&nobody.source, "changed"), "longer than before").expect("root may");
    fs::remove_file(inside(&nobody.target, "new")).expect("root may");
    plant::text(&inside(&nobody.target, "extra/dir/file"), "theirs");
    let extra = inside(&nobody.target, "extra");
    for path in [extra.clone(), extra.join("dir"), extra.join("dir/file")] {
        std::os::unix::fs::chown(path, Some(65534), Some(65534)).expect("root may");
    }
    plant::set_mode(&extra.join("dir"), 0o000);
    close(&nobody.target);
    nobody.cp(&["--delete"]).run().expect(code::OK);
    assert_same(&nobody.source, &nobody.target, Facets::PLAIN);
}

/// As with rsync, a file's owner may overwrite it, and its mode is restored.
#[test]
fn the_owner_of_a_file_that_forbids_writing_writes_into_it_in_place() {
    needs!(Root, Haul, Tool("setpriv"));
    let nobody = crate::faults::Nobody::new();
    for (name, mode) in [("readonly", 0o444), ("closed", 0o000), ("large", 0o400)] {
        let text = if name == "large" { "new\n".repeat(3 << 20) } else { "new\n".to_owned() };
        plant::text(&nobody.source.join(name), &text);
        plant::text(&nobody.target.join(name), "what stood there before\n");
        std::os::unix::fs::chown(nobody.target.join(name), Some(65534), Some(65534)).expect("root may");
        plant::set_mode(&nobody.source.join(name), 0o444);
        plant::set_mode(&nobody.target.join(name), mode);
    }
    nobody.cp(&["--inplace"]).run().expect(code::OK);
    assert_same(&nobody.source, &nobody.target, Facets::PLAIN);
}

#[test]
fn archive_with_links_lists_and_attributes_keeps_everything_both_ways() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let source = lab.data("home").join("tree");
    plant::mixed(&source, 1);
    plant::hard_links(&source.join("hard"), 2);
    plant::extended_attributes(&source.join("attributes"));
    plant::access_lists(&source.join("lists"));
    plant::sparse(&source.join("sparse"), 64 << 20, &[(0, 5000), (20 << 20, 1 << 20)], 3);
    for (number, name) in (1000..).zip(["sizes/4096", "modes/dir-750", "links/dangling"]) {
        std::os::unix::fs::lchown(source.join(name), Some(number), Some(number + 500)).expect("root may");
    }
    plant::date(&source, 4);
    let (there, back) = (lab.data("alpha").join("tree"), lab.data("home").join("back"));
    lab.cp_run(["-aHAX".into(), contents_of(&source), at("alpha", &there)]).expect(code::OK);
    assert_same(&source, &there, Facets::ALL);
    lab.cp_run(["-aHAX".into(), at("alpha", contents_of(&there)), back.clone().into()]).expect(code::OK);
    assert_same(&source, &back, Facets::ALL);
}

#[test]
fn without_flags_owner_attributes_and_hard_links_are_left_out() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (source, there) = (lab.data("home").join("tree"), lab.data("alpha").join("tree"));
    plant::hard_links(&source.join("hard"), 2);
    plant::extended_attributes(&source.join("attributes"));
    std::os::unix::fs::chown(source.join("attributes/file"), Some(1234), Some(1234)).expect("root may");
    lab.cp_run([contents_of(&source), at("alpha", &there)]).expect(code::OK);
    assert_same(&source, &there, Facets::PLAIN);
    let meta = fs::metadata(there.join("attributes/file")).expect("it was copied");
    assert_eq!((meta.uid(), meta.gid()), (0, 0));
    assert_eq!(fs::metadata(there.join("hard/a/first")).expect("it was copied").nlink(), 1);
    let mut names = [0; 1000];
    let listed = rustix::fs::llistxattr(there.join("attributes/file"), &mut names[..]).expect("readable");
    assert!(!names[..listed].starts_with(b"user."));
}

#[test]
fn sizes_around_every_boundary_arrive() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (source, there) = (lab.data("home").join("tree"), lab.data("alpha").join("tree"));
    for base in [1u64 << 8, 1 << 10, 1 << 12, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 23, 3 << 22] {
        for size in [base - 1, base, base + 1] {
            plant::file(&source.join(size.to_string()), size, size);
        }
    }
    for base in [1u64 << 31, 1 << 32] {
        for size in [base - 1, base, base + 1] {
            // Data at both ends keeps the test quick.
            plant::sparse(&source.join(size.to_string()), size, &[(0, 100), (size - 100, 100)], size);
        }
    }
    lab.cp_run([contents_of(&source), at("alpha", &there)]).expect(code::OK);
    assert_same(&source, &there, Facets { allocation: true, ..Facets::PLAIN });
}

#[test]
fn holes_stay_holes_and_can_be_filled() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (source, to) = (lab.data("home").join("sparse"), lab.data("alpha"));
    plant::sparse(&source, 1 << 30, &[(0, 4096), (500 << 20, 1 << 20), ((1 << 30) - 4096, 4096)], 1);
    let run = lab.cp_run([source.clone().into(), at("alpha", to.join("holes"))]).expect(code::OK);
    assert_same(&source, &to.join("holes"), Facets { allocation: true, ..Facets::PLAIN });
    assert!(run.count("bytes_moved") < 8 << 20, "holes do not travel\n{run}");
    plant::sparse(&source, 100 << 20, &[(0, 100)], 1);
    lab.cp_run([source.clone().into(), at("alpha", to.join("end"))]).expect(code::OK);
    assert_same(&source, &to.join("end"), Facets { allocation: true, ..Facets::PLAIN });
    lab.cp_run(["--no-sparse".into(), source.clone().into(), at("alpha", to.join("full"))]).expect(code::OK);
    assert_same(&source, &to.join("full"), Facets::PLAIN);
    let blocks = fs::metadata(to.join("full")).expect("it was copied").blocks();
    assert!(blocks * 512 >= 100 << 20, "--no-sparse writes zeros, but only {blocks} blocks are taken");
}

/// Hashing as many zeros takes a quarter of an hour.
const HOLES_LIMIT: Duration = Duration::from_secs(60);

#[test]
fn holes_of_terabytes_are_copied_hashed_and_verified_at_once() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (source, to, back) = (lab.data("home").join("sparse"), lab.data("alpha"), lab.data("home").join("back"));
    plant::sparse(&source, (5 << 40) + 12_345, &[(0, 4096), (3 << 40, 4096)], 1);
    let pushed = lab.cp().arg(&source).arg(at("alpha", to.join("there"))).limit(HOLES_LIMIT).run().expect(code::OK);
    let hash = pushed.report()["only_blake3"].as_str().expect("one file has a hash").to_owned();
    assert!(pushed.count("bytes_moved") < 8 << 20, "{pushed}");
    // One merges chunks' hashes, the other reads from front to back.
    let list =
        lab.haul().arg("hash").arg("sparse").current_dir(lab.data("home")).limit(HOLES_LIMIT).run().expect(code::OK);
    assert_eq!(list.stdout_text(), format!("{hash}  sparse\n"));
    // The list names its algorithm: 64 digits may be SHA-256, too, which has to read holes.
    plant::text(&lab.data("home").join("list"), &format!("BLAKE3 (there) = {hash}\n"));
    let verified = lab.haul().arg("verify").arg(lab.data("home").join("list")).arg(&to).limit(HOLES_LIMIT);
    verified.run().expect(code::OK);
    let pulled = lab.cp().arg(at("alpha", to.join("there"))).arg(&back).limit(HOLES_LIMIT).run().expect(code::OK);
    assert_eq!(pulled.report()["only_blake3"], hash.as_str());
    let local = lab.cp().arg(&back).arg(to.join("local")).limit(HOLES_LIMIT).run().expect(code::OK);
    assert_eq!(local.report()["only_blake3"], hash.as_str());
    for copy in [to.join("there"), back, to.join("local")] {
        let found = fs::metadata(&copy).expect("it was copied");
        assert!(found.len() == (5 << 40) + 12_345 && found.blocks() * 512 < 1 << 20, "{found:?}");
    }
}

#[test]
fn a_changed_mode_or_time_follows_without_moving_data() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (source, there) = (lab.data("home").join("tree"), lab.data("alpha").join("tree"));
    plant::mixed(&source, 1);
    lab.cp_run([contents_of(&source), at("alpha", &there)]).expect(code::OK);
    plant::set_mode(&source.join("sizes/4096"), 0o600);
    plant::set_mode(&source.join("modes/dir-750"), 0o711);
    plant::set_mtime(&source.join("empty"), 1_200_000_000, 123_456_789);
    let again = lab.cp_run([contents_of(&source), at("alpha", &there)]).expect(code::OK);
    assert_same(&source, &there, Facets::PLAIN);
    assert_eq!(again.count("bytes_moved"), 0, "{again}");
}

#[test]
fn times_before_1970_and_far_ahead_arrive() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (source, there) = (lab.data("home").join("tree"), lab.data("alpha").join("tree"));
    for (name, seconds, nanoseconds) in [
        ("epoch", 0, 0),
        ("before", -1, 999_999_999),
        ("long-before", -1_000_000_000, 1),
        ("ahead", 10_000_000_000, 5),
        ("year-9999", 253_402_300_799, 999_999_999),
    ] {
        plant::text(&source.join(name), name);
        plant::set_mtime(&source.join(name), seconds, nanoseconds);
    }
    lab.cp_run([contents_of(&source), at("alpha", &there)]).expect(code::OK);
    assert_same(&source, &there, Facets::PLAIN);
    let again = lab.cp_run([contents_of(&source), at("alpha", &there)]).expect(code::OK);
    assert_eq!(again.count("files_moved"), 0, "{again}");
}

#[test]
fn special_files_are_skipped_with_a_word() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (source, there) = (lab.data("home").join("tree"), lab.data("alpha").join("tree"));
    plant::text(&source.join("file"), "words\n");
    rustix::fs::mknodat(CWD, source.join("pipe"), FileType::Fifo, Mode::RUSR, 0).expect("root may");
    let _socket = std::os::unix::net::UnixListener::bind(source.join("socket")).expect("a short path");
    let run = lab.cp_run([contents_of(&source), at("alpha", &there)]).expect(code::OK);
    assert_eq!(names_below(&there), [b"file"]);
    assert_eq!(run.count("skipped"), 2, "{run}");
    assert_eq!(run.events_named("skipped").len(), 2, "{run}");
}

#[test]
fn deep_trees_beyond_the_longest_path_arrive() {
    needs!(Namespaces, Haul);
    const DEPTH: usize = 200;
    let lab = Lab::pair();
    let (source, there) = (lab.data("home").join("tree"), lab.data("alpha").join("tree"));
    fs::create_dir(&source).expect("own directory");
    let folder = "d".repeat(100);
    let mut at_depth = open(&source);
    for _ in 0..DEPTH {
        rustix::fs::mkdirat(&at_depth, folder.as_str(), Mode::RWXU).expect("space");
        at_depth = open_below(&at_depth, &folder);
    }
    let file = rustix::fs::openat(&at_depth, "deepest", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).expect("space");
    rustix::io::write(&file, b"down here").expect("space");

    lab.cp_run([contents_of(&source), at("alpha", &there)]).expect(code::OK);
    let deepest = (0..DEPTH).fold(open(&there), |dir, _| open_below(&dir, &folder));
    let file = rustix::fs::openat(&deepest, "deepest", OFlags::RDONLY, Mode::empty()).expect("it was copied");
    let mut words = [0; 100];
    let length = rustix::io::read(&file, &mut words[..]).expect("readable");
    assert_eq!(&words[..length], b"down here");
    // The standard library removes trees of any depth.
}

#[test]
fn a_replaced_file_leaves_its_other_names_alone() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (source, there) = (lab.data("home").join("file"), lab.data("alpha").join("file"));
    plant::file(&source, 5000, 1);
    plant::text(&there, "old words\n");
    fs::hard_link(&there, lab.data("alpha").join("other-name")).expect("one file system");
    lab.cp_run([source.clone().into(), at("alpha", &there)]).expect(code::OK);
    assert_same(&source, &there, Facets::PLAIN);
    assert_eq!(fs::read(lab.data("alpha").join("other-name")).expect("untouched"), b"old words\n");
}

#[test]
fn links_at_the_target_are_not_followed_out_of_the_tree() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (source, there, outside) =
        (lab.data("home").join("tree"), lab.data("alpha").join("tree"), lab.data("alpha").join("out"));
    plant::text(&source.join("dir/file"), "new words\n");
    plant::text(&source.join("plain"), "new words\n");
    plant::text(&outside.join("file"), "precious\n");
    fs::create_dir(&there).expect("own directory");
    std::os::unix::fs::symlink(&outside, there.join("dir")).expect("own directory");
    std::os::unix::fs::symlink(outside.join("file"), there.join("plain")).expect("own directory");
    lab.cp_run([contents_of(&source), at("alpha", &there)]).expect_one_of(&[code::OK, code::PARTIAL]);
    assert_eq!(fs::read(outside.join("file")).expect("untouched"), b"precious\n");
    assert_eq!(names_below(&outside), [b"file"]);
    assert!(fs::symlink_metadata(there.join("plain")).expect("it was copied").is_file());
}

#[test]
fn following_links_copies_what_they_point_to() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (source, there) = (lab.data("home").join("tree"), lab.data("alpha").join("tree"));
    plant::text(&source.join("real/file"), "words\n");
    std::os::unix::fs::symlink("real", source.join("to-folder")).expect("own directory");
    std::os::unix::fs::symlink("real/file", source.join("to-file")).expect("own directory");
    lab.cp_run(["-L".into(), contents_of(&source), at("alpha", &there)]).expect(code::OK);
    for name in ["to-file", "to-folder/file"] {
        let path = there.join(name);
        assert!(fs::symlink_metadata(&path).expect("it was copied").is_file());
        assert_eq!(fs::read(path).expect("readable"), b"words\n");
    }
    assert!(fs::symlink_metadata(there.join("to-folder")).expect("it was copied").is_dir());
    std::os::unix::fs::symlink("no-such-file", source.join("dangling")).expect("own directory");
    let run = lab.cp_run(["-L".into(), contents_of(&source), at("alpha", &there)]);
    run.expect(code::PARTIAL).says(&["leads to nothing"]);
}

#[test]
fn read_only_directories_can_be_filled_by_a_plain_user() {
    needs!(Root, Haul, Tool("setpriv"));
    let dir = haul_e2e::scratch();
    let program = dir.path().join("haul");
    fs::copy(haul_e2e::binary::find().expect("asked for"), &program).expect("space");
    let (source, target) = (dir.path().join("from"), dir.path().join("to"));
    plant::text(&source.join("closed/inner/file"), "words\n");
    plant::set_mode(&source.join("closed/inner"), 0o555);
    plant::set_mode(&source.join("closed"), 0o555);
    fs::create_dir(&target).expect("own directory");
    for path in [&target, &dir.path().join("home")] {
        fs::create_dir_all(path).expect("own directory");
        std::os::unix::fs::chown(path, Some(65534), Some(65534)).expect("root may");
    }
    crate::faults::as_nobody(&program, dir.path())
        .arg("cp")
        .arg(contents_of(&source))
        .arg(&target)
        .run()
        .expect(code::OK);
    assert_same(&source, &target, Facets::PLAIN);
}

#[test]
fn the_manifest_proves_the_tree_and_finds_a_flipped_bit() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let (source, there, manifest) =
        (lab.data("home").join("tree"), lab.data("alpha").join("tree"), lab.data("home").join("m"));
    plant::mixed(&source, 1);
    plant::file(&source.join("large"), 9_000_000, 2);
    let list = |to: &Path| {
        let run = lab.cp().arg("--manifest-out").arg(&manifest).arg(contents_of(&source)).arg(at("alpha", to)).run();
        run.expect(code::OK)
    };
    let run = list(&there);
    let verify = |root: &Path| lab.haul().arg("verify").arg(&manifest).arg(root).run();
    verify(&there).expect(code::OK);
    verify(&source).expect(code::OK);
    let text = fs::read(&manifest).expect("it was written");
    let root = run.report()["root_blake3"].as_str().expect("a hash").to_owned();
    assert!(String::from_utf8_lossy(&text).contains(&root), "the manifest closes with the report's root");
    assert!(!text.contains(&0x1b), "names are escaped");
    let hash = blake3::hash(&fs::read(source.join("large")).expect("readable")).to_hex();
    assert!(String::from_utf8_lossy(&text).contains(hash.as_str()));

    let mut data = fs::read(there.join("large")).expect("readable");
    data[5_000_000] ^= 1;
    let time = fs::metadata(there.join("large")).expect("it was copied");
    fs::write(there.join("large"), data).expect("space");
    plant::set_mtime(&there.join("large"), time.mtime(), time.mtime_nsec() as u32);
    verify(&there).expect(code::VERIFICATION).says(&["large"]);
    // Only the content differs, not size or time.
    list(&there);
    verify(&there).expect(code::VERIFICATION);
    let repaired = lab.cp_run(["-c".into(), contents_of(&source), at("alpha", &there)]).expect(code::OK);
    assert_eq!(repaired.count("files_moved"), 1, "{repaired}");
    verify(&there).expect(code::OK);
    fs::remove_file(there.join("large")).expect("it is there");
    verify(&there).expect(code::VERIFICATION).says(&["large"]);
    fs::write(&manifest, &text[..text.len() - 20]).expect("space");
    verify(&source).expect(code::VERIFICATION);
}

/// Set-user-id and set-group-id must be asked for (`-a`, `-p`); other bits come as with rsync's `-p`. A directory for
/// everybody stays sticky: otherwise all could remove others' files.
#[test]
fn a_set_user_id_bit_does_not_travel_unasked() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let source = lab.data("home").join("tree");
    let files = [("suid", 0o4755), ("sgid", 0o2755), ("both", 0o6755), ("sticky", 0o1644), ("for-all", 0o666)];
    let directories = [("d-sgid", 0o2775), ("d-sticky", 0o1777), ("d-for-all", 0o777), ("d-both", 0o6755)];
    for (name, mode) in files {
        plant::text(&source.join(name), "#!/bin/sh\n");
        plant::set_mode(&source.join(name), mode);
    }
    for (name, mode) in directories {
        plant::text(&source.join(name).join("file"), "words\n");
        plant::set_mode(&source.join(name), mode);
    }
    plant::set_mode(&source, 0o1777);
    let mode = |path: &Path| fs::metadata(path).expect("it was copied").permissions().mode() & 0o7777;
    for (number, (flags, kept, kept_of_directories)) in
        [(&[][..], 0o777, 0o1777), (&["-a"], 0o7777, 0o7777), (&["-p"], 0o7777, 0o7777)].into_iter().enumerate()
    {
        let there = lab.data("alpha").join(format!("there{number}"));
        fs::create_dir(&there).expect("own directory");
        plant::set_mode(&there, 0o750);
        // A directory as an entry leaves the existing one as it is.
        lab.cp().args(flags).arg(&source).arg(at("alpha", &there)).run().expect(code::OK);
        assert_eq!(mode(&there), 0o750, "{flags:?}");
        // A directory's contents make the existing one the source's counterpart, as with rsync.
        lab.cp().args(flags).arg(contents_of(&source)).arg(at("alpha", &there)).run().expect(code::OK);
        for top in [there.clone(), there.join("tree")] {
            assert_eq!(mode(&top), 0o1777, "{flags:?} {}", top.display());
            for (name, planted) in &files {
                assert_eq!(mode(&top.join(name)), planted & kept, "{flags:?} {name}");
            }
            for (name, planted) in &directories {
                assert_eq!(mode(&top.join(name)), planted & kept_of_directories, "{flags:?} {name}");
            }
        }
    }
}

fn open(path: &Path) -> OwnedFd {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).expect("a directory")
}

fn open_below(dir: &OwnedFd, name: &str) -> OwnedFd {
    rustix::fs::openat(dir, name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).expect("a directory")
}
