//! Unusual file systems, from memory: colliding names, coarse times, no locks, late errors, stale handles, hanging storage.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use haul_e2e::{Facets, OddDisk, Oddities, Run, assert_same, code, contents_of, eventually, needs, plant, scratch};

fn copy(source: &Path, target: &Path, flags: &[&str]) -> Run {
    let program = haul_e2e::binary::find().expect("asked for with needs!");
    Run::new(program).args(["cp", "--json"]).args(flags).arg(contents_of(source)).arg(target)
}

/// Like FAT behind a simple server.
const WEAK: Oddities = Oddities {
    one_case: true,
    one_form: false,
    strips_dots: false,
    respells: false,
    whole_seconds: true,
    one_time: true,
    no_locks: true,
    plain_renames_only: true,
    stays_known: false,
};
/// Like ZFS with `normalization=formD`.
const ONE_FORM: Oddities = Oddities {
    one_case: false,
    one_form: true,
    strips_dots: false,
    respells: false,
    whole_seconds: false,
    one_time: false,
    no_locks: false,
    plain_renames_only: false,
    stays_known: false,
};

#[test]
fn of_names_that_differ_in_case_one_stays_whole_where_both_are_one() {
    needs!(Haul, Fuse);
    let dir = scratch();
    let (source, disk) =
        (dir.path().join("source"), OddDisk::mount(Oddities { one_case: true, ..Oddities::default() }));
    let target = disk.path().join("to");
    for (path, size, seed) in [
        ("README", 1000, 1),
        ("readme", 1000, 2),
        ("Large", 5 << 20, 3),
        ("large", 5 << 20, 4),
        ("Folder/a", 10, 5),
        ("folder/b", 10, 6),
        ("alone", 100, 7),
    ] {
        plant::file(&source.join(path), size, seed);
    }
    // The second time, existing entries are this copy's own.
    for _ in 0..2 {
        let run = copy(&source, &target, &[]).run().expect(code::PARTIAL);
        run.says(&["upper and lower case"]);
        // Of two colliding files under way, either may be first.
        for names in [&["README", "readme"][..], &["Large", "large"], &["Folder/a"], &["alone"]] {
            let there = fs::read(target.join(names[0])).expect("it is there");
            let one_of_them = names.iter().any(|name| fs::read(source.join(name)).expect("own file") == there);
            assert!(one_of_them, "{names:?} are mixed");
        }
        let mut names: Vec<_> = fs::read_dir(&target)
            .expect("it was made")
            .map(|entry| entry.expect("it can be listed").file_name().to_ascii_lowercase())
            .collect();
        names.sort();
        assert_eq!(names, ["alone", "folder", "large", "readme"], "nothing else is left there");
    }
}

#[test]
fn of_names_that_differ_in_case_and_arrive_together_nothing_unfinished_stays() {
    needs!(Haul, Fuse);
    let dir = scratch();
    let disk = OddDisk::mount(Oddities { one_case: true, ..Oddities::default() });
    let (source, target) = (dir.path().join("source"), disk.path().join("to"));
    for (name, seed) in [("Large", 1), ("large", 2)] {
        plant::file(&source.join(name), 12 << 20, seed);
    }
    // The divided rate keeps both under way.
    copy(&source, &target, &["--rate", "24MB", "--lanes", "2"])
        .run()
        .expect(code::PARTIAL)
        .says(&["upper and lower case"]);
    let names: Vec<_> =
        fs::read_dir(&target).expect("it was made").map(|entry| entry.expect("listed").file_name()).collect();
    assert_eq!(names.len(), 1, "{names:?}");
}

#[test]
fn names_of_one_case_there_are_found_however_far_apart_they_come() {
    needs!(Haul, Fuse);
    let one_case = Oddities { one_case: true, ..Oddities::default() };
    keeps_the_first_however_far_apart(one_case, ["Data", "data"], ["Folder", "folder"]);
}

#[test]
fn names_of_one_form_there_are_found_however_far_apart_they_come() {
    needs!(Haul, Fuse);
    // Composed and decomposed (UAX #15).
    keeps_the_first_however_far_apart(ONE_FORM, ["e\u{301}tat", "\u{e9}tat"], ["e\u{301}tude", "\u{e9}tude"]);
}

/// The two names of each collide there; in the listing's order.
#[track_caller]
fn keeps_the_first_however_far_apart(oddities: Oddities, files: [&str; 2], directories: [&str; 2]) {
    let dir = scratch();
    let (source, disk) = (dir.path().join("source"), OddDisk::mount(Oddities { stays_known: true, ..oddities }));
    let target = disk.path().join("to");
    let [first, second] = directories.map(|name| source.join(name));
    for (path, seed) in [
        (source.join(files[0]), 1),
        (first.join("a"), 2),
        (second.join("a"), 3),
        (second.join("deeper/b"), 4),
        (source.join(files[1]), 5),
    ] {
        plant::file(&path, 1000, seed);
    }
    plant_between(&source.join(format!("{}s", directories[0])));
    for _ in 0..2 {
        let run = copy(&source, &target, &["--delete"]).limit(FAR_APART_LIMIT).run().expect(code::PARTIAL);
        run.says(&["takes both for one"]);
        for first in [files[0].to_owned(), format!("{}/a", directories[0])] {
            let (there, here) = (fs::read(target.join(&first)), fs::read(source.join(&first)));
            assert_eq!(there.expect("it is there"), here.expect("own file"), "{first}");
        }
        assert_eq!(fs::read_dir(target.join(directories[0])).expect("it was made").count(), 1, "twins are not mixed");
    }
}

fn names(directory: &Path) -> Vec<String> {
    let read = fs::read_dir(directory).expect("it was made");
    let mut names: Vec<_> =
        read.map(|entry| entry.expect("listed").file_name().into_string().expect("UTF-8")).collect();
    names.sort();
    names
}

fn deletions(run: &haul_e2e::Outcome) -> Vec<String> {
    let path = |event: &serde_json::Value| event["path"].as_str().expect("a path").to_owned();
    let mut deleted: Vec<String> = run.events_named("deleted").iter().map(path).collect();
    deleted.sort();
    deleted
}

#[test]
fn what_is_spelt_otherwise_at_the_target_is_not_deleted() {
    needs!(Haul, Fuse);
    let one_case = Oddities { one_case: true, ..Oddities::default() };
    let windows = Oddities { one_case: true, strips_dots: true, plain_renames_only: true, ..Oddities::default() };
    let hfs = Oddities { one_form: true, one_case: true, respells: true, ..Oddities::default() };
    // Names before and after, of a file, a directory and a link.
    let renamed = [("Photo", "photo"), ("Pictures", "pictures"), ("Latest", "LATEST")];
    spares_respelled(one_case, renamed);
    spares_respelled(windows, renamed);
    spares_respelled(windows, [("photo", "Photo. "), ("pictures", "pictures."), ("Latest", "latest...")]);
    spares_respelled(hfs, [("caf\u{e9}", "cafe\u{301}"), ("\u{e9}t\u{e9}", "\u{e9}t\u{e9}"), ("Latest", "LATEST")]);
}

#[track_caller]
fn spares_respelled(oddities: Oddities, renamed: [(&str, &str); 3]) {
    let dir = scratch();
    let (source, disk) = (dir.path().join("source"), OddDisk::mount(oddities));
    let target = disk.path().join("to");
    let [file, directory, link] = renamed;
    plant::file(&source.join(file.0), 1000, 1);
    plant::file(&source.join(directory.0).join("inner"), 1000, 2);
    plant::file(&source.join("alone"), 1000, 3);
    std::os::unix::fs::symlink("alone", source.join(link.0)).expect("own directory");
    copy(&source, &target, &[]).run().expect(code::OK);
    for (before, after) in renamed {
        fs::rename(source.join(before), source.join(after)).expect("own directory");
    }
    for (path, size, seed) in [("extra", 10, 4), ("gone/extra", 10, 5)] {
        plant::file(&target.join(path), size, seed);
    }
    plant::file(&target.join(directory.0).join("extra"), 10, 6);
    plant::file(&source.join("new"), 1000, 7);
    // Changed content makes the name be given anew.
    for changes in [false, true] {
        if changes {
            plant::file(&source.join(file.1), 2000, 8);
            plant::file(&source.join(directory.1).join("inner"), 2000, 9);
            plant::file(&target.join("extra"), 10, 4);
        }
        let foretold = deletions(&copy(&source, &target, &["--delete", "-n"]).run().expect(code::OK));
        let run = copy(&source, &target, &["--delete"]).run().expect(code::OK);
        assert_eq!(foretold, deletions(&run), "a dry run tells the same\n{run}");
        assert_eq!(foretold.len(), if changes { 1 } else { 4 }, "{run}");
        for (path, of) in [(Path::new(file.1), file.1), (&Path::new(directory.1).join("inner"), directory.1)] {
            let (there, here) = (fs::read(target.join(path)), fs::read(source.join(path)));
            assert_eq!(there.expect("it is there"), here.expect("own file"), "{of}");
        }
        assert_eq!(fs::read_link(target.join(link.1)).expect("it is there"), Path::new("alone"));
        assert_eq!(names(&target).len(), 5, "{:?}", names(&target));
        assert_eq!(names(&target.join(directory.1)).len(), 1);
    }
}

#[test]
fn twins_with_further_links_do_not_replace_each_other() {
    needs!(Haul, Fuse);
    for oddities in [Oddities { one_case: true, ..Oddities::default() }, ONE_FORM] {
        let dir = scratch();
        let (source, disk) = (dir.path().join("source"), OddDisk::mount(oddities));
        let target = disk.path().join("to");
        let [one, other] = if oddities.one_case { ["Data", "data"] } else { ["e\u{301}tat", "\u{e9}tat"] };
        let (first, second) = (vec![1; 1000], vec![2; 1000]);
        for (name, links, content) in [(one, ["Further", "deep/further"], &first), (other, ["m", "z"], &second)] {
            plant::file(&source.join(name), 1, 1);
            fs::write(source.join(name), content).expect("own file");
            for link in links {
                fs::create_dir_all(source.join(link).parent().expect("it has one")).expect("own directory");
                fs::hard_link(source.join(name), source.join(link)).expect("own directory");
            }
        }
        for flags in [&["-H"][..], &["-H", "-c"], &["-H", "--remove-source-files"]] {
            let run = copy(&source, &target, flags).run().expect(code::PARTIAL).says(&["takes both for one"]);
            for content in [&first, &second] {
                let has = |name: &String| {
                    target.join(name).is_file() && fs::read(target.join(name)).is_ok_and(|there| there == *content)
                };
                let stays = |name: &String| fs::read(source.join(name)).is_ok_and(|there| there == *content);
                let (there, here) = (names(&target), names(&source));
                assert!(
                    there.iter().any(has) || here.iter().any(stays),
                    "one content is lost: {there:?}, {here:?}\n{run}"
                );
            }
            let there = fs::read(target.join(one)).expect("it is there");
            assert!(there == first, "the second name replaced the first\n{run}");
        }
    }
}

/// exFAT by FUSE, where two spellings have two inode numbers.
struct ExFat {
    dir: tempfile::TempDir,
    device: String,
}

impl ExFat {
    #[track_caller]
    fn mount() -> Self {
        let dir = scratch();
        let (image, at) = (dir.path().join("image"), dir.path().join("disk"));
        fs::File::create(&image).and_then(|file| file.set_len(64 << 20)).expect("own directory");
        fs::create_dir(&at).expect("own directory");
        Run::new("mkfs.exfat").arg(&image).run().expect(0);
        let device = Run::new("losetup").args(["-f", "--show"]).arg(&image).run().expect(0).stdout_text();
        let device = device.trim().to_owned();
        Run::new("mount.exfat-fuse").arg(&device).arg(&at).run().expect(0);
        Self { dir, device }
    }

    fn path(&self) -> std::path::PathBuf {
        self.dir.path().join("disk")
    }
}

impl Drop for ExFat {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.path()).status();
        let _ = std::process::Command::new("losetup").arg("-d").arg(&self.device).status();
    }
}

#[test]
fn names_that_are_one_are_told_where_the_file_system_numbers_names() {
    needs!(Haul, Fuse, LoopDevices, Tool("mkfs.exfat"), Tool("mount.exfat-fuse"));
    let (dir, disk) = (scratch(), ExFat::mount());
    let (source, target) = (dir.path().join("source"), disk.path().join("to"));
    let write = |path: &Path, words: &str| {
        fs::create_dir_all(path.parent().expect("it has one")).expect("own directory");
        fs::write(path, words).expect("own directory");
    };
    write(&source.join("Photo"), "first");
    write(&source.join("Pictures/inner"), "inner");
    copy(&source, &target, &[]).run().expect(code::OK);
    fs::rename(source.join("Photo"), source.join("photo")).expect("own directory");
    fs::rename(source.join("Pictures"), source.join("pictures")).expect("own directory");
    write(&target.join("extra"), "goes");
    for flags in [&["--delete", "-n"][..], &["--delete"]] {
        let run = copy(&source, &target, flags).run().expect(code::OK);
        assert_eq!(deletions(&run), ["extra"], "{run}");
    }
    assert_eq!(fs::read_to_string(target.join("photo")).expect("it is there"), "first");
    assert_eq!(fs::read_to_string(target.join("pictures/inner")).expect("it is there"), "inner");
    // Two names of the source are one here: the first comes whole, the other is not lost.
    write(&source.join("Photo"), "second");
    for flags in [&[][..], &["--remove-source-files"]] {
        let run = copy(&source, &disk.path().join("twins"), flags).run().expect(code::PARTIAL);
        run.says(&["takes both for one"]);
        let there = fs::read_to_string(disk.path().join("twins/photo")).expect("it is there");
        assert_eq!(there, "second", "the one that comes first in the order of names");
        assert_eq!(fs::read_to_string(source.join("photo")).expect("it stays"), "first");
    }
}

#[test]
fn a_name_is_spelt_anew_where_both_spellings_are_one() {
    needs!(Haul, Fuse);
    let disk = OddDisk::mount(Oddities { one_case: true, ..Oddities::default() });
    plant::file(&disk.path().join("Photo"), 10, 1);
    plant::file(&disk.path().join("Pictures/inner"), 10, 2);
    let program = haul_e2e::binary::find().expect("asked for with needs!");
    for (from, to) in [("Photo", "photo"), ("Pictures", "pictures")] {
        let run = Run::new(&program).args(["mv", from, to]).current_dir(disk.path()).run();
        run.expect(code::OK);
    }
    assert_eq!(names(disk.path()), ["photo", "pictures"]);
    assert_eq!(names(&disk.path().join("pictures")), ["inner"]);
    fs::hard_link(disk.path().join("photo"), disk.path().join("other")).expect("own disk");
    let run = Run::new(&program).args(["mv", "photo", "other"]).current_dir(disk.path()).run();
    assert_ne!(run.says(&["the same file"]).code(), code::OK);
}

#[test]
fn files_named_one_by_one_are_found_to_be_one_there_however_far_apart_they_come() {
    needs!(Haul, Fuse);
    let dir = scratch();
    let disk = OddDisk::mount(Oddities { one_case: true, stays_known: true, ..Oddities::default() });
    for (path, seed) in [("a/Data", 1), ("b/data", 2)] {
        plant::file(&dir.path().join(path), 1000, seed);
    }
    plant_between(&dir.path().join("k"));
    for _ in 0..2 {
        let between = (0..BETWEEN).map(|number| format!("k/{number}"));
        let program = haul_e2e::binary::find().expect("asked for with needs!");
        let command = Run::new(program).args(["cp", "--json", "a/Data"]).args(between).arg("b/data").arg(disk.path());
        let run = command.current_dir(dir.path()).run().expect(code::PARTIAL);
        run.says(&["takes both for one"]);
        let there = fs::read(disk.path().join("Data")).expect("it is there");
        assert_eq!(there, fs::read(dir.path().join("a/Data")).expect("own file"), "the first stays");
    }
}

/// More than a copy remembers as placed last.
const BETWEEN: u32 = 33_000;
/// Each of them takes some six requests to the file system, and each request two switches between programs.
const FAR_APART_LIMIT: Duration = Duration::from_secs(240);

fn plant_between(directory: &Path) {
    fs::create_dir_all(directory).expect("own directory");
    for number in 0..BETWEEN {
        std::os::unix::fs::symlink("x", directory.join(format!("{number}"))).expect("own directory");
    }
}

#[test]
fn a_file_system_that_can_do_little_is_copied_to_and_gone_on_with() {
    needs!(Haul, Fuse);
    let dir = scratch();
    let (source, disk) = (dir.path().join("source"), OddDisk::mount(WEAK));
    let target = disk.path().join("to");
    plant::many(&source.join("many"), 200, 2000, 1);
    plant::file(&source.join("large"), 60 << 20, 2);
    plant::date(&source, 3);
    let mut running = copy(&source, &target, &["--rate", "30MB"]).start();
    // At this rate, two checkpoints have passed: they come each second.
    running.when_moved(45 << 20);
    running.kill();
    let run = copy(&source, &target, &[]).run().expect(code::OK);
    assert!(run.count("bytes_moved") < 58 << 20, "it began anew\n{run}");
    assert_same(&source, &target, Facets { modes: true, ..Facets::CONTENTS });
    let again = copy(&source, &target, &[]).run().expect(code::OK);
    assert_eq!(again.count("bytes_moved"), 0, "times without fractions are taken for the same\n{again}");
}

#[test]
fn a_source_that_does_not_tell_when_it_changed_is_read_again_from_its_beginning() {
    needs!(Haul, Fuse);
    const BYTES: u64 = 60 << 20;
    for (one_time, is_rewritten) in [(true, true), (true, false), (false, true), (false, false)] {
        let dir = scratch();
        let disk = OddDisk::mount(Oddities { one_time, ..Oddities::default() });
        let (source, target) = (disk.path().join("from"), dir.path().join("to"));
        let plant = |seed| {
            plant::file(&source.join("large"), BYTES, seed);
            plant::set_mtime(&source.join("large"), 1_234_567_890, 5);
        };
        plant(1);
        let mut running = copy(&source, &target, &["--rate", "30MB"]).start();
        // At this rate, a checkpoint has passed: they come each second.
        running.when_moved(45 << 20);
        running.kill();
        if is_rewritten {
            plant(2);
        }
        let run = copy(&source, &target, &[]).run().expect(code::OK);
        assert_same(&source, &target, Facets::PLAIN);
        let went_on = run.count("bytes_moved") < BYTES;
        assert_eq!(went_on, !one_time && !is_rewritten, "one time: {one_time}, rewritten: {is_rewritten}\n{run}");
    }
}

#[test]
fn an_error_that_comes_only_with_the_flush_leaves_no_file_under_its_name() {
    needs!(Haul, Fuse);
    const ENOSPC: i32 = 28;
    const EDQUOT: i32 = 122;
    const EIO: i32 = 5;
    let dir = scratch();
    let (source, disk) = (dir.path().join("source"), OddDisk::mount(Oddities::default()));
    let target = disk.path().join("to");
    for (name, size, seed) in [("small", 3000, 1), ("large", 9 << 20, 2)] {
        plant::file(&source.join(name), size, seed);
    }
    for (error, fails, words) in [
        (EIO, code::PARTIAL, "Input/output error"),
        (ENOSPC, code::SPACE, "No space left"),
        (EDQUOT, code::SPACE, "quota"),
    ] {
        disk.fails_late(Some(error));
        let run = copy(&source, &target, &[]).run().expect(fails).says(&[words]);
        for name in ["small", "large"] {
            assert!(!target.join(name).exists(), "{name} has its name though the disk did not keep it\n{run}");
        }
    }
    disk.fails_late(None);
    copy(&source, &target, &[]).run().expect(code::OK);
    assert_same(&source, &target, Facets::PLAIN);
}

#[test]
fn a_file_server_that_starts_anew_costs_what_was_open_and_the_next_run_brings_it() {
    needs!(Haul, Fuse);
    let dir = scratch();
    let (source, disk) = (dir.path().join("source"), OddDisk::mount(Oddities::default()));
    let target = disk.path().join("to");
    plant::many(&source.join("many"), 2000, 4000, 1);
    plant::file(&source.join("large"), 30 << 20, 2);
    let mut running = copy(&source, &target, &["--rate", "15MB"]).start();
    running.when_moved(20 << 20);
    disk.starts_anew();
    let run = running.wait();
    // Behind a stale target directory, the meaning of its path is unknown.
    assert!([code::OK, code::PARTIAL, code::FILE_IO].contains(&run.code()), "{run}");
    if run.code() == code::OK {
        assert_same(&source, &target, Facets::PLAIN);
    }
    copy(&source, &target, &[]).run().expect(code::OK);
    assert_same(&source, &target, Facets::PLAIN);
}

#[test]
fn a_source_whose_storage_does_not_answer_is_named() {
    needs!(Haul, Fuse);
    let dir = scratch();
    let (disk, target) = (OddDisk::mount(Oddities::default()), dir.path().join("to"));
    plant::file(&disk.path().join("from/large"), 30 << 20, 1);
    plant::many(&disk.path().join("from/many"), 20, 1000, 2);
    // The page cache must not answer for the disk.
    disk.starts_anew();
    disk.hangs_beyond(Some(10 << 20));
    let begun = Instant::now();
    let running = copy(&disk.path().join("from"), &target, &["--timeout", "3"]).start();
    eventually("somebody reads in vain", Duration::from_secs(20), || disk.waiting() > 0);
    let run = running.wait();
    assert_eq!(run.code(), code::TIMEOUT, "{run}");
    run.says(&["storage of the source has not answered"]);
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    assert!(target.join("many").exists(), "the others had gone on");
    disk.hangs_beyond(None);
    copy(&disk.path().join("from"), &target, &[]).run().expect(code::OK);
    assert_same(&disk.path().join("from"), &target, Facets::PLAIN);
}

/// Both versions come within a second, with equal size and times.
#[test]
fn two_versions_of_one_second_are_not_mixed() {
    needs!(Haul, Fuse);
    let dir = scratch();
    let disk = OddDisk::mount(Oddities { whole_seconds: true, ..Oddities::default() });
    let (source, target) = (disk.path().join("from"), dir.path().join("to"));
    fs::create_dir(&source).expect("the disk is ours");
    let (first, second) = (vec![b'a'; 4 << 20], vec![b'b'; 4 << 20]);
    let into_second = || SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").subsec_millis();
    let mut tried = 0;
    // On a slow host the second may end too early.
    while tried < 3 {
        while into_second() > 100 {
            std::thread::sleep(Duration::from_millis(10));
        }
        let begun = SystemTime::now();
        fs::write(source.join("file"), &first).expect("the disk is ours");
        let run = copy(&source, &target, &["-t", "--rate", "64Mbit", "--lanes", "1"]).start();
        std::thread::sleep(Duration::from_millis(250));
        fs::File::options()
            .write(true)
            .open(source.join("file"))
            .and_then(|mut file| file.write_all(&second))
            .expect("it is there");
        let is_one_second = begun.elapsed().expect("forward").as_millis() < 850;
        let ended = run.wait();
        if let Ok(there) = fs::read(target.join("file")) {
            assert!(there == first || there == second, "two versions are mixed, with exit status {:?}", ended.code());
        }
        let _ = fs::remove_dir_all(&target);
        tried += u32::from(is_one_second);
        if begun.elapsed().expect("forward") > Duration::from_secs(60) {
            break;
        }
    }
}
